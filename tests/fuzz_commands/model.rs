//! What a command may answer and which bytes it moves, from its 64 bytes and what the host knows, written from NVMe 1.4 and
//! the design. Where the specification leaves the order of checks open, each check that fails names an allowed status.

use std::collections::BTreeSet;

use weir_nvme::command::Command;
use weir_nvme::feature::FeatureId;
use weir_nvme::prp::{WalkError, walk};
use weir_nvme::{AdminOpcode, NSID_ALL, NvmOpcode, PAGE_SIZE, StatusCode};

/// Most blocks of a command: MDTS 128 KiB.
const MAX_BLOCKS: u32 = 256;

/// A transfer's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// Nothing.
    None,
    /// Media, or the controller, to host memory.
    In,
    /// Host memory to media.
    Out,
}

/// What is known of a command before it is answered.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Statuses that it may have.
    pub allowed: BTreeSet<StatusCode>,
    /// When it is a success.
    pub moves: Moves,
    /// Where in host memory: (address, bytes), in order; as far as PRPs could be followed.
    pub pieces: Vec<(u64, usize)>,
    /// It is good as far as its entry goes, so it reaches media.
    pub executes: bool,
}

impl Verdict {
    fn of(allowed: impl IntoIterator<Item = StatusCode>) -> Verdict {
        Verdict {
            allowed: allowed.into_iter().collect(),
            moves: Moves::None,
            pieces: Vec::new(),
            executes: false,
        }
    }
}

/// Host memory as the model needs it.
pub trait Memory {
    /// The list entry at an address; None where nothing is mapped.
    fn entry(&mut self, address: u64) -> Option<u64>;
    /// All of it is mapped.
    fn covers(&mut self, address: u64, bytes: usize) -> bool;
}

/// Follows the PRPs of `bytes` bytes: the pieces, and the errors to be met on the way.
fn follow(
    command: &Command,
    bytes: usize,
    memory: &mut impl Memory,
) -> (Vec<(u64, usize)>, BTreeSet<StatusCode>) {
    let mut pieces = Vec::new();
    let walked = walk(
        command.prp1,
        command.prp2,
        bytes,
        |at| memory.entry(at).ok_or(()),
        |address, len| pieces.push((address, len)),
    );
    let mut errors = BTreeSet::new();
    match walked {
        Ok(()) => {}
        Err(WalkError::Misaligned(_)) => _ = errors.insert(StatusCode::PRP_OFFSET_INVALID),
        Err(WalkError::Read(())) => _ = errors.insert(StatusCode::DATA_TRANSFER_ERROR),
    }
    if pieces.iter().any(|&(at, len)| !memory.covers(at, len)) {
        errors.insert(StatusCode::DATA_TRANSFER_ERROR);
    }
    (pieces, errors)
}

/// An I/O command; LUN n has `blocks[n]` blocks; `faulty` says whether media fails somewhere in a range.
pub fn io(
    command: &Command,
    blocks: &[u64],
    faulty: impl Fn(u32, u64, u32) -> bool,
    memory: &mut impl Memory,
) -> Verdict {
    use StatusCode as S;
    let mut bad = BTreeSet::new();
    let opcode = NvmOpcode(command.cdw0.opcode());
    let transfer = opcode == NvmOpcode::READ || opcode == NvmOpcode::WRITE;
    if !transfer && opcode != NvmOpcode::FLUSH {
        bad.insert(S::INVALID_OPCODE);
    }
    if command.cdw0.fuse() != 0 || command.cdw0.psdt() != 0 {
        bad.insert(S::INVALID_FIELD);
    }
    let size = command
        .nsid
        .checked_sub(1)
        .and_then(|lun| blocks.get(lun as usize).map(|&size| (lun, size)));
    let count = command.blocks();
    if size.is_none() {
        bad.insert(S::INVALID_NAMESPACE);
        // Flush may name all namespaces (6.8); that this card refuses it is allowed too.
        if opcode == NvmOpcode::FLUSH && command.nsid == NSID_ALL {
            bad.insert(S::SUCCESS);
        }
    }
    let bytes = count.min(MAX_BLOCKS) as usize * 512;
    if transfer {
        if count > MAX_BLOCKS {
            bad.insert(S::INVALID_FIELD);
        }
        if let Some((_, size)) = size
            && command
                .slba()
                .checked_add(u64::from(count))
                .is_none_or(|end| end > size)
        {
            bad.insert(S::LBA_OUT_OF_RANGE);
        }
        let pages = weir_nvme::prp::page_count(command.prp1, bytes);
        let mask = [0, 0, 0xfff, 7][pages.min(3)];
        if command.prp1 & 3 != 0 || command.prp2 & mask != 0 {
            bad.insert(S::PRP_OFFSET_INVALID);
        }
    }
    if !bad.is_empty() {
        return Verdict::of(bad);
    }
    if !transfer {
        return Verdict::of([S::SUCCESS]);
    }
    let (pieces, mut errors) = follow(command, bytes, memory);
    let (lun, _) = size.unwrap();
    if faulty(lun, command.slba(), count) {
        errors.insert(S::DATA_TRANSFER_ERROR);
    }
    if errors.is_empty() {
        errors.insert(S::SUCCESS);
    }
    Verdict {
        allowed: errors,
        moves: if opcode == NvmOpcode::READ {
            Moves::In
        } else {
            Moves::Out
        },
        pieces,
        executes: true,
    }
}

/// Queues as the host knows them.
pub struct Queues {
    /// Identifiers of I/O submission queues, each with its completion queue.
    pub sqs: Vec<(u16, u16)>,
    /// Identifiers of I/O completion queues.
    pub cqs: Vec<u16>,
    /// The highest identifier that may be created.
    pub limit: u16,
    /// Most entries of a queue.
    pub entries: u32,
    /// Vectors of the function.
    pub vectors: u32,
}

/// An admin command.
pub fn admin(command: &Command, queues: &Queues, luns: u32, memory: &mut impl Memory) -> Verdict {
    use StatusCode as S;
    let qid = command.cdw10 as u16;
    let high = command.cdw11 >> 16;
    let nsid_names_lun = (1..=luns).contains(&command.nsid);
    let mut bad = BTreeSet::new();
    if command.cdw0.fuse() != 0 || command.cdw0.psdt() != 0 {
        bad.insert(S::INVALID_FIELD);
    }
    let opcode = AdminOpcode(command.cdw0.opcode());
    // Statuses of which any is right, where the model does not decide.
    let mut any = Vec::new();
    let mut bytes = 0;
    match opcode {
        AdminOpcode::CREATE_IO_CQ | AdminOpcode::CREATE_IO_SQ => {
            let cq = opcode == AdminOpcode::CREATE_IO_CQ;
            let taken = match cq {
                true => queues.cqs.contains(&qid),
                false => queues.sqs.iter().any(|q| q.0 == qid),
            };
            if qid == 0 || qid > queues.limit || taken {
                bad.insert(S::INVALID_QUEUE_IDENTIFIER);
            }
            let size = command.cdw10 >> 16;
            if size == 0 || size >= queues.entries {
                bad.insert(S::INVALID_QUEUE_SIZE);
            }
            if command.cdw11 & 1 == 0 {
                bad.insert(S::INVALID_FIELD);
            }
            if command.prp1 & 0xfff != 0 {
                bad.extend([S::INVALID_FIELD, S::PRP_OFFSET_INVALID]);
            }
            if cq && high >= queues.vectors {
                bad.insert(S::INVALID_INTERRUPT_VECTOR);
                if command.cdw11 & 2 == 0 {
                    any.push(S::SUCCESS);
                }
            }
            if !cq && (high == 0 || !queues.cqs.contains(&(high as u16))) {
                bad.insert(S::COMPLETION_QUEUE_INVALID);
                if high == 0 || high > u32::from(queues.limit) {
                    bad.insert(S::INVALID_QUEUE_IDENTIFIER);
                }
            }
        }
        AdminOpcode::DELETE_IO_SQ => {
            if qid == 0 || queues.sqs.iter().all(|q| q.0 != qid) {
                bad.insert(S::INVALID_QUEUE_IDENTIFIER);
            }
        }
        AdminOpcode::DELETE_IO_CQ => {
            if qid == 0 || !queues.cqs.contains(&qid) {
                bad.insert(S::INVALID_QUEUE_IDENTIFIER);
            } else if queues.sqs.iter().any(|q| q.1 == qid) {
                bad.insert(S::INVALID_QUEUE_DELETION);
            }
        }
        AdminOpcode::IDENTIFY => {
            bytes = PAGE_SIZE;
            let cns = command.cdw10 as u8;
            if !matches!(cns, 0..=3) {
                bad.insert(S::INVALID_FIELD);
            }
            if matches!(cns, 0 | 3) && !nsid_names_lun {
                bad.extend([S::INVALID_NAMESPACE, S::INVALID_FIELD]);
                // CNS 0 of an identifier that is valid but inactive reads zeros, of FFFFFFFFh what all share (5.15.2.1).
                any.push(S::SUCCESS);
            }
            if cns == 2 && command.nsid >= 0xffff_fffe {
                bad.insert(S::INVALID_NAMESPACE);
            }
            if command.cdw10 >> 16 != 0 || command.cdw11 != 0 || command.cdw14 != 0 {
                // CNTID, CNS specific identifier, UUID: reserved for these CNS.
                any.extend([S::SUCCESS, S::INVALID_FIELD]);
            }
        }
        AdminOpcode::GET_LOG_PAGE => {
            let dwords =
                (u64::from(command.cdw11 as u16) << 16 | u64::from(command.cdw10 >> 16)) + 1;
            bytes = dwords.min(1 << 16) as usize * 4;
            match command.cdw10 as u8 {
                1..=3 | 0xc0 => {}
                _ => _ = bad.insert(S::INVALID_LOG_PAGE),
            }
            let plain = command.cdw10 & 0xff00 == 0
                && command.cdw11 >> 16 == 0
                && command.cdw12 | command.cdw13 | command.cdw14 == 0
                && dwords <= 1024
                && (nsid_names_lun || matches!(command.cdw10 as u8, 1 | 3) && command.nsid == 0);
            if !plain {
                any.extend([S::SUCCESS, S::INVALID_FIELD, S::INVALID_NAMESPACE]);
            }
        }
        AdminOpcode::SET_FEATURES | AdminOpcode::GET_FEATURES => {
            let fid = command.cdw10 as u8;
            any.extend([
                S::SUCCESS,
                S::INVALID_FIELD,
                S::INVALID_NAMESPACE,
                S::FEATURE_NOT_SAVEABLE,
                S::FEATURE_NOT_CHANGEABLE,
                S::FEATURE_NOT_NAMESPACE_SPECIFIC,
            ]);
            if fid == FeatureId::NUMBER_OF_QUEUES.0 {
                // Once there are queues (5.21.1.7).
                any.push(S::COMMAND_SEQUENCE_ERROR);
            }
            let depth = command.cdw11 & 0xffff;
            if opcode == AdminOpcode::SET_FEATURES && command.cdw10 >> 8 == 0 && fid == 0xc0 {
                // Depth 0, more than tags, and weight 0 are refused; the rest is as good as its NSID.
                let right = (1..=32).contains(&depth) && high > 0;
                let named = nsid_names_lun || command.nsid == NSID_ALL;
                any = match (right, named) {
                    (true, true) => vec![S::SUCCESS],
                    (false, true) => vec![S::INVALID_FIELD],
                    (true, false) => vec![S::INVALID_NAMESPACE, S::INVALID_FIELD],
                    (false, false) => vec![S::INVALID_FIELD, S::INVALID_NAMESPACE],
                };
            }
            if !bad.is_empty() {
                any.clear();
            }
        }
        AdminOpcode::ABORT => any.extend([S::SUCCESS, S::ABORT_LIMIT_EXCEEDED]),
        AdminOpcode::ASYNC_EVENT_REQUEST => any.extend([S::SUCCESS, S::AER_LIMIT_EXCEEDED]),
        _ => _ = bad.insert(S::INVALID_OPCODE),
    }
    if bytes > 0 {
        let (pieces, errors) = follow(command, bytes, memory);
        // An Identify that ends inside PRP1's page, or a log of two pages at most.
        if !errors.is_empty() {
            any.extend(errors.iter().copied());
            any.push(S::INVALID_FIELD);
        }
        if bad.is_empty() && any.is_empty() {
            any.push(S::SUCCESS);
        }
        return Verdict {
            allowed: bad.into_iter().chain(any).collect(),
            moves: Moves::In,
            pieces,
            executes: true,
        };
    }
    if bad.is_empty() && any.is_empty() {
        any.push(S::SUCCESS);
    }
    Verdict::of(bad.into_iter().chain(any))
}
