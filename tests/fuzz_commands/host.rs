//! A host that sends anything: rings, memory in slices, and the books of what each command may do.

use std::collections::BTreeMap;

use crate::common::{BLOCKS, unwritten};
use crate::model::{self, Memory, Moves, Queues, Verdict};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use weir_card::config::CardConfig;
use weir_driver::Pci;
use weir_nvme::command::{Command, Completion};
use weir_nvme::log::LunStatistics;
use weir_nvme::registers::offset;
use weir_nvme::{AdminOpcode, PAGE_SIZE, StatusCode, weir};
use weir_sim::memory::HostMemory;
use weir_sim::pci::SimPci;
use zerocopy::{FromBytes, IntoBytes};

/// Pages of a slice for data: 128 KiB at an offset.
pub const DATA_PAGES: usize = 33;
/// Pages of a slice: data, lists, and one that nothing may write.
const SLICE: usize = (DATA_PAGES + 3) * PAGE_SIZE;
/// More than may be outstanding: a ring and as many slots for each of four queues, and the admin queue.
const SLICES: usize = 180;
/// Where nothing is mapped: below the first IOVA.
pub const UNMAPPED: u64 = 0x8000_0000;
/// Simulated time without a completion that is a hang.
const PATIENCE_NS: u64 = 20_000_000;
/// Entries of the admin queues.
const ADMIN: u32 = 16;

struct Slice {
    base: u64,
    /// What it must hold.
    bytes: Vec<u8>,
    busy: bool,
}

struct Sq {
    cq: u16,
    iova: u64,
    entries: u32,
    tail: u32,
    rung: u32,
    head: u32,
    dying: bool,
}

struct Cq {
    iova: u64,
    entries: u32,
    head: u32,
    phase: bool,
}

struct Sent {
    sqid: u16,
    command: Command,
    verdict: Verdict,
    slice: Option<usize>,
    /// Another command in flight touches its blocks, and one of both writes.
    racy: bool,
    /// What a write writes.
    data: Vec<u8>,
    /// The ring that a Create would use.
    ring: Option<u64>,
}

#[derive(Clone)]
enum Block {
    Fresh,
    Data(Box<[u8]>),
    Unknown,
}

pub struct Host {
    pci: SimPci,
    config: CardConfig,
    seed: u64,
    slices: Vec<Slice>,
    prepared: Option<usize>,
    ring: Option<u64>,
    /// Rings that were given back, as (first, length): nothing may touch them.
    freed: Vec<(u64, u64)>,
    sqs: BTreeMap<u16, Sq>,
    cqs: BTreeMap<u16, Cq>,
    outstanding: Vec<Sent>,
    media: Vec<Vec<Block>>,
    /// A queue lies where no memory is: the controller may go fatal.
    poisoned: bool,
    progress_ns: u64,
    log: Vec<String>,
    /// What happened, and how often.
    seen: BTreeMap<String, u64>,
}

struct View<'a>(&'a mut HostMemory);

impl Memory for View<'_> {
    fn entry(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.0.covers(address, 8) && self.0.read(address, &mut bytes))
            .then(|| u64::from_le_bytes(bytes))
    }

    fn covers(&mut self, address: u64, bytes: usize) -> bool {
        self.0.covers(address, bytes)
    }
}

/// The word of a slice that was not written: odd, so that it is no good PRP entry.
fn pattern(slice: usize) -> Vec<u8> {
    (0..SLICE as u64 / 8)
        .flat_map(|n| {
            let word = (n + ((slice as u64) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            word.to_le_bytes()
        })
        .collect()
}

impl Host {
    /// Takes over from the driver that brought the card up.
    pub fn new(pci: SimPci, config: &CardConfig, seed: u64) -> Host {
        let slices = (0..SLICES)
            .map(|n| {
                let mut world = pci.world_mut();
                let memory = &mut world.host().memory;
                let (base, _) = memory.allocate(SLICE).unwrap();
                let bytes = pattern(n);
                assert!(memory.write(base, &bytes));
                Slice {
                    base,
                    bytes,
                    busy: false,
                }
            })
            .collect();
        let mut host = Host {
            pci,
            config: config.clone(),
            seed,
            slices,
            prepared: None,
            ring: None,
            freed: Vec::new(),
            sqs: BTreeMap::new(),
            cqs: BTreeMap::new(),
            outstanding: Vec::new(),
            media: vec![vec![Block::Fresh; BLOCKS as usize]; config.luns as usize],
            poisoned: false,
            progress_ns: 0,
            log: Vec::new(),
            seen: BTreeMap::new(),
        };
        host.disable();
        host
    }

    pub fn log(&self) -> &[String] {
        &self.log
    }

    /// What happened, and how often: statuses by the kind of queue, resets, checked reads.
    pub fn seen(&self) -> &BTreeMap<String, u64> {
        &self.seen
    }

    fn saw(&mut self, what: String) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn note(&mut self, what: String) {
        self.log.push(format!("{} ns: {what}", self.pci.now_ns()));
    }

    /// Runs `f` on host memory.
    fn memory<T>(&self, f: impl FnOnce(&mut HostMemory) -> T) -> T {
        f(&mut self.pci.world_mut().host().memory)
    }

    pub fn pass(&mut self, ns: u64) {
        let until = self.pci.now_ns() + ns;
        while self.pci.now_ns() < until {
            self.pci.advance(until);
            if let Some(error) = self.pci.take_error() {
                panic!("{error}");
            }
        }
    }

    fn wait_ready(&mut self, ready: bool) {
        let start = self.pci.now_ns();
        while (self.pci.read32(offset::CSTS) & 1 == 1) != ready {
            self.pass(400);
            assert!(
                self.pci.now_ns() < start + PATIENCE_NS,
                "CSTS.RDY does not become {ready}: {}",
                self.pci.world().state()
            );
        }
    }

    fn disable(&mut self) {
        self.pci.write32(offset::CC, 0);
        self.wait_ready(false);
    }

    /// Enables the controller with new admin queues.
    pub fn start(&mut self) {
        let (sq, cq) = (self.new_ring(), self.new_ring());
        let admin = ADMIN - 1;
        self.pci.write32(offset::AQA, admin | admin << 16);
        for (at, iova) in [(offset::ASQ, sq), (offset::ACQ, cq)] {
            self.pci.write32(at, iova as u32);
            self.pci.write32(at + 4, (iova >> 32) as u32);
        }
        // IOSQES 64 bytes, IOCQES 16 bytes.
        self.pci.write32(offset::CC, 6 << 16 | 4 << 20 | 1);
        self.wait_ready(true);
        self.add_sq(0, 0, sq, ADMIN);
        self.add_cq(0, cq, ADMIN);
        self.progress_ns = self.pci.now_ns();
        for (opcode, qid, other) in [
            (AdminOpcode::CREATE_IO_CQ, 1, 0),
            (AdminOpcode::CREATE_IO_CQ, 2, 2),
            (AdminOpcode::CREATE_IO_SQ, 1, 1),
            (AdminOpcode::CREATE_IO_SQ, 2, 2),
            (AdminOpcode::CREATE_IO_SQ, 3, 1),
        ] {
            let mut command = Command::admin(opcode);
            (command.cdw10, command.cdw11) = (qid | 15 << 16, 1 | other << 16);
            command.prp1 = self.ring_memory(false);
            self.must(command);
        }
    }

    /// Identifiers of I/O completion queues.
    pub fn cqs(&self) -> Vec<u16> {
        self.cqs.keys().copied().filter(|&id| id != 0).collect()
    }

    fn new_ring(&self) -> u64 {
        self.memory(|m| m.allocate(PAGE_SIZE).unwrap().0)
    }

    fn free_ring(&mut self, iova: u64) {
        if iova != UNMAPPED {
            self.memory(|m| m.free(iova).unwrap());
            self.freed.push((iova, PAGE_SIZE as u64));
        }
    }

    fn add_sq(&mut self, id: u16, cq: u16, iova: u64, entries: u32) {
        let sq = Sq {
            cq,
            iova,
            entries,
            tail: 0,
            rung: 0,
            head: 0,
            dying: false,
        };
        self.sqs.insert(id, sq);
    }

    fn add_cq(&mut self, id: u16, iova: u64, entries: u32) {
        let cq = Cq {
            iova,
            entries,
            head: 0,
            phase: true,
        };
        self.cqs.insert(id, cq);
    }

    /// I/O submission queues that take commands.
    pub fn sqs(&self) -> Vec<u16> {
        let live = |(&id, sq): (&u16, &Sq)| (id != 0 && !sq.dying).then_some(id);
        self.sqs.iter().filter_map(live).collect()
    }

    /// Memory for the next command; its first byte.
    pub fn slice(&mut self) -> u64 {
        let at = match self.prepared {
            Some(at) => at,
            None => self.slices.iter().position(|s| !s.busy).unwrap(),
        };
        self.prepared = Some(at);
        self.refill(at);
        self.slices[at].base
    }

    fn refill(&mut self, at: usize) {
        self.slices[at].bytes = pattern(at);
        let slice = &self.slices[at];
        assert!(self.memory(|m| m.write(slice.base, &slice.bytes)));
    }

    /// Stores a list entry in the next command's memory.
    pub fn store(&mut self, address: u64, value: u64) {
        let slice = &mut self.slices[self.prepared.unwrap()];
        let at = (address - slice.base) as usize;
        slice.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        assert!(self.memory(|m| m.write(address, &value.to_le_bytes())));
    }

    /// Memory for the ring that the next command creates; `nowhere`: an address without memory.
    pub fn ring_memory(&mut self, nowhere: bool) -> u64 {
        if let Some(old) = self.ring.take() {
            self.free_ring(old);
        }
        let iova = if nowhere { UNMAPPED } else { self.new_ring() };
        self.ring = Some(iova);
        iova
    }

    /// A command in flight, for Abort.
    pub fn victim(&self, rng: &mut StdRng) -> Option<(u16, u16)> {
        let sent = self.outstanding.choose(rng)?;
        Some((sent.sqid, sent.command.cdw0.cid()))
    }

    fn queue_command(sqid: u16, command: &Command) -> bool {
        let opcode = AdminOpcode(command.cdw0.opcode());
        sqid == 0
            && [
                AdminOpcode::CREATE_IO_CQ,
                AdminOpcode::CREATE_IO_SQ,
                AdminOpcode::DELETE_IO_CQ,
                AdminOpcode::DELETE_IO_SQ,
            ]
            .contains(&opcode)
    }

    fn changing_queues(&self) -> bool {
        self.outstanding
            .iter()
            .any(|s| Self::queue_command(s.sqid, &s.command))
    }

    /// Puts a command on a queue, unless it is full, or it would change queues while another command does.
    pub fn submit(&mut self, sqid: u16, mut command: Command) {
        let (slice, ring) = (self.prepared.take(), self.ring.take());
        let queue_command = Self::queue_command(sqid, &command);
        let sq = &self.sqs[&sqid];
        let full = (sq.tail + 1) % sq.entries == sq.head;
        if full || queue_command && self.changing_queues() {
            if let Some(iova) = ring {
                self.free_ring(iova);
            }
            return;
        }
        while self
            .outstanding
            .iter()
            .any(|s| s.sqid == sqid && s.command.cdw0.cid() == command.cdw0.cid())
        {
            let cid = command.cdw0.cid().wrapping_add(1);
            command.cdw0.set_cid(cid);
        }
        let verdict = self.judge(sqid, &command);
        self.note(format!(
            "SQ {sqid} {command:x?}, allowed {:x?}",
            verdict.allowed
        ));
        if sqid == 0 {
            self.admin_submitted(&command, &verdict);
        }
        let mut sent = Sent {
            sqid,
            command,
            verdict,
            slice,
            racy: false,
            data: Vec::new(),
            ring,
        };
        if sqid != 0 && sent.verdict.executes {
            for other in &mut self.outstanding {
                if overlap(&sent, other) {
                    other.racy = true;
                    sent.racy = true;
                }
            }
        }
        if sent.verdict.moves == Moves::Out {
            sent.data = self.gather(&sent.verdict.pieces);
        }
        if let Some(at) = slice {
            self.slices[at].busy = true;
        }
        self.outstanding.push(sent);
        let sq = self.sqs.get_mut(&sqid).unwrap();
        let at = sq.iova + u64::from(sq.tail) * Command::SIZE as u64;
        sq.tail = (sq.tail + 1) % sq.entries;
        if at < UNMAPPED || at >= UNMAPPED + PAGE_SIZE as u64 {
            assert!(self.memory(|m| m.write(at, command.as_bytes())));
        }
    }

    fn judge(&mut self, sqid: u16, command: &Command) -> Verdict {
        let queues = Queues {
            sqs: self.sqs.iter().map(|(&id, sq)| (id, sq.cq)).collect(),
            cqs: self.cqs.keys().copied().collect(),
            limit: self.config.queues as u16,
            entries: self.config.entries,
            vectors: self.config.queues + 1,
        };
        let luns = self.config.luns;
        let faulty = |lun: u32, slba: u64, blocks: u32| {
            lun == 3 && slba < 1016 && slba + u64::from(blocks) > 1000
        };
        let mut world = self.pci.world_mut();
        let mut view = View(&mut world.host().memory);
        match sqid {
            0 => model::admin(command, &queues, luns, &mut view),
            _ => model::io(command, &vec![BLOCKS; luns as usize], faulty, &mut view),
        }
    }

    fn admin_submitted(&mut self, command: &Command, verdict: &Verdict) {
        let qid = command.cdw10 as u16;
        match AdminOpcode(command.cdw0.opcode()) {
            AdminOpcode::DELETE_IO_SQ if verdict.allowed.contains(&StatusCode::SUCCESS) => {
                self.sqs.get_mut(&qid).unwrap().dying = true;
                for sent in self.outstanding.iter_mut().filter(|s| s.sqid == qid) {
                    sent.verdict.allowed.insert(StatusCode::ABORTED_SQ_DELETION);
                }
            }
            AdminOpcode::ABORT => {
                let cid = (command.cdw10 >> 16) as u16;
                for sent in &mut self.outstanding {
                    if (sent.sqid, sent.command.cdw0.cid()) == (qid, cid) {
                        sent.verdict.allowed.insert(StatusCode::ABORT_REQUESTED);
                    }
                }
            }
            _ => {}
        }
    }

    /// The bytes at these places; empty when some are nowhere.
    fn gather(&self, pieces: &[(u64, usize)]) -> Vec<u8> {
        self.memory(|m| {
            let mut bytes = Vec::new();
            for &(address, len) in pieces {
                let start = bytes.len();
                bytes.resize(start + len, 0);
                if !m.covers(address, len) || !m.read(address, &mut bytes[start..]) {
                    return Vec::new();
                }
            }
            bytes
        })
    }

    /// Tells the card of all that was submitted.
    pub fn ring(&mut self) {
        for (&id, sq) in &mut self.sqs {
            if sq.tail != sq.rung {
                sq.rung = sq.tail;
                self.pci
                    .write32(offset::DOORBELLS + 8 * usize::from(id), sq.tail);
            }
        }
    }

    /// First value that is no index of the ring behind doorbell `index`; None when there is no such queue.
    pub fn doorbell_limit(&self, index: u32) -> Option<u32> {
        let id = (index / 2) as u16;
        match index % 2 {
            0 => self.sqs.get(&id).map(|sq| sq.entries),
            _ => self.cqs.get(&id).map(|cq| cq.entries),
        }
    }

    /// A doorbell write, unless queues are being changed, so that it is known to be bad.
    pub fn write_doorbell(&mut self, index: u32, value: u32) {
        if !self.changing_queues() {
            self.note(format!("doorbell {index} = {value:#x}"));
            self.pci
                .write32(offset::DOORBELLS + 4 * index as usize, value);
        }
    }

    /// Takes all completions, checks each.
    pub fn poll(&mut self) {
        let ids: Vec<u16> = self.cqs.keys().rev().copied().collect();
        for id in ids {
            self.poll_cq(id);
        }
        self.check_memory();
        if self.pci.read32(offset::CSTS) & 2 != 0 {
            assert!(self.poisoned, "CSTS.CFS is set");
            self.note("fatal".into());
            self.saw("fatal".into());
            self.reset(false);
        }
        let waiting = self.waiting();
        if waiting == 0 {
            self.progress_ns = self.pci.now_ns();
        }
        assert!(
            self.pci.now_ns() < self.progress_ns + PATIENCE_NS,
            "hang: {waiting} commands wait: {}",
            self.pci.world().state()
        );
    }

    /// Commands that must be answered.
    fn waiting(&self) -> usize {
        let event = |s: &&Sent| {
            s.sqid != 0 || s.command.cdw0.opcode() != AdminOpcode::ASYNC_EVENT_REQUEST.0
        };
        self.outstanding.iter().filter(event).count()
    }

    fn poll_cq(&mut self, id: u16) {
        let mut moved = false;
        while let Some(cq) = self.cqs.get(&id) {
            let at = cq.iova + u64::from(cq.head) * Completion::SIZE as u64;
            let mut bytes = [0; Completion::SIZE];
            if cq.iova == UNMAPPED || !self.memory(|m| m.read(at, &mut bytes)) {
                break;
            }
            let completion = Completion::read_from_bytes(&bytes).unwrap();
            if completion.phase() != cq.phase {
                break;
            }
            let cq = self.cqs.get_mut(&id).unwrap();
            cq.head = (cq.head + 1) % cq.entries;
            cq.phase ^= cq.head == 0;
            moved = true;
            self.completed(id, &completion);
        }
        if moved && let Some(cq) = self.cqs.get(&id) {
            self.pci
                .write32(offset::DOORBELLS + 8 * usize::from(id) + 4, cq.head);
        }
    }

    fn completed(&mut self, cq: u16, completion: &Completion) {
        self.progress_ns = self.pci.now_ns();
        let (sqid, cid, code) = (completion.sqid, completion.cid, completion.status().code());
        self.note(format!("CQ {cq} {completion:x?} {code:x?}"));
        let sq = self
            .sqs
            .get_mut(&sqid)
            .unwrap_or_else(|| panic!("a completion of SQ {sqid}, which does not exist"));
        assert_eq!(sq.cq, cq, "SQ {sqid} completes elsewhere");
        let ahead = |to: u32| (to + sq.entries - sq.head) % sq.entries;
        let head = u32::from(completion.sq_head);
        assert!(
            head < sq.entries && ahead(head) <= ahead(sq.rung),
            "SQ {sqid}: head {head} reported, {} before, tail {}",
            sq.head,
            sq.rung
        );
        sq.head = head;
        let at = self
            .outstanding
            .iter()
            .position(|s| s.sqid == sqid && s.command.cdw0.cid() == cid)
            .unwrap_or_else(|| panic!("SQ {sqid} CID {cid:#x} is not outstanding"));
        let sent = self.outstanding.remove(at);
        assert!(
            sent.verdict.allowed.contains(&code),
            "{code:x?} for {:x?}, allowed {:x?}",
            sent.command,
            sent.verdict.allowed
        );
        let queue = if sqid == 0 { "admin" } else { "I/O" };
        self.saw(format!("{queue} {code:?}"));
        self.data_moved(&sent, code == StatusCode::SUCCESS);
        if sqid == 0 {
            self.admin_completed(sent, code == StatusCode::SUCCESS);
        }
    }

    /// Checks host memory and keeps the books of media.
    fn data_moved(&mut self, sent: &Sent, success: bool) {
        let io = sent.sqid != 0;
        if sent.verdict.moves == Moves::In {
            let got = self.gather(&sent.verdict.pieces);
            if success && io && !sent.racy && !self_overlap(&sent.verdict.pieces) {
                let (lun, slba) = (sent.command.nsid - 1, sent.command.slba());
                assert!(
                    !got.is_empty(),
                    "a read to unmapped memory succeeded: {:x?}",
                    sent.command
                );
                self.saw("checked read".into());
                for (n, block) in got.chunks(512).enumerate() {
                    let lba = slba + n as u64;
                    let right = match &self.media[lun as usize][lba as usize] {
                        Block::Fresh => block == unwritten(lun, lba, 1, self.seed),
                        Block::Data(data) => block == &data[..],
                        Block::Unknown => true,
                    };
                    assert!(right, "LUN {lun} block {lba}: wrong data");
                }
            }
            // What was moved is new in the books; everything else must be as it was.
            if let Some(at) = sent.slice {
                self.adopt(at, &sent.verdict.pieces);
            }
        }
        if sent.verdict.moves == Moves::Out && io {
            self.written(sent, success);
        }
        if let Some(at) = sent.slice {
            self.check_slice(at);
            self.slices[at].busy = false;
        }
    }

    fn written(&mut self, sent: &Sent, success: bool) {
        let (lun, slba) = (sent.command.nsid as usize - 1, sent.command.slba() as usize);
        for n in 0..sent.command.blocks() as usize {
            let known = success && !sent.racy;
            self.media[lun][slba + n] = match sent.data.get(512 * n..512 * (n + 1)) {
                Some(data) if known => Block::Data(data.into()),
                _ => Block::Unknown,
            };
        }
    }

    /// Takes what memory holds at these places into the slice's books.
    fn adopt(&mut self, at: usize, pieces: &[(u64, usize)]) {
        let base = self.slices[at].base;
        for &(address, len) in pieces {
            let Some(start) = address
                .checked_sub(base)
                .filter(|s| s + len as u64 <= SLICE as u64)
            else {
                continue;
            };
            let mut bytes = vec![0; len];
            assert!(self.memory(|m| m.read(address, &mut bytes)));
            self.slices[at].bytes[start as usize..][..len].copy_from_slice(&bytes);
        }
    }

    fn check_slice(&self, at: usize) {
        let slice = &self.slices[at];
        let mut bytes = vec![0; SLICE];
        assert!(self.memory(|m| m.read(slice.base, &mut bytes)));
        let wrong = bytes.iter().zip(&slice.bytes).position(|(a, b)| a != b);
        assert_eq!(
            wrong, None,
            "slice {at} at {:#x}: this byte was changed by nobody",
            slice.base
        );
    }

    /// No access to a ring that was given back.
    fn check_memory(&mut self) {
        let freed = &self.freed;
        self.memory(|m| {
            for bad in m.bad_accesses() {
                let inside = |&(base, len): &(u64, u64)| (base..base + len).contains(&bad.iova);
                assert!(!freed.iter().any(inside), "a ring of the past: {bad:x?}");
            }
            m.clear_bad();
        });
    }

    fn admin_completed(&mut self, sent: Sent, success: bool) {
        let command = &sent.command;
        let (qid, entries) = (command.cdw10 as u16, (command.cdw10 >> 16) + 1);
        match (AdminOpcode(command.cdw0.opcode()), success) {
            (AdminOpcode::CREATE_IO_CQ | AdminOpcode::CREATE_IO_SQ, false) => {
                sent.ring.into_iter().for_each(|iova| self.free_ring(iova));
            }
            (AdminOpcode::CREATE_IO_CQ, true) => {
                self.poisoned |= sent.ring == Some(UNMAPPED);
                self.add_cq(qid, command.prp1, entries);
            }
            (AdminOpcode::CREATE_IO_SQ, true) => {
                self.poisoned |= sent.ring == Some(UNMAPPED);
                self.add_sq(qid, (command.cdw11 >> 16) as u16, command.prp1, entries);
            }
            (AdminOpcode::DELETE_IO_CQ, true) => {
                let cq = self.cqs.remove(&qid).unwrap();
                self.free_ring(cq.iova);
            }
            (AdminOpcode::DELETE_IO_SQ, true) => {
                // Everything that was fetched has its completion by now.
                let cq = self.sqs[&qid].cq;
                self.poll_cq(cq);
                self.drop_sent(|s| s.sqid == qid);
                let sq = self.sqs.remove(&qid).unwrap();
                self.free_ring(sq.iova);
            }
            (AdminOpcode::DELETE_IO_SQ, false) => {
                if let Some(sq) = self.sqs.get_mut(&qid) {
                    sq.dying = false;
                }
            }
            _ => {}
        }
    }

    /// Forgets commands that get no answer.
    fn drop_sent(&mut self, which: impl Fn(&Sent) -> bool) {
        let (dropped, kept) = std::mem::take(&mut self.outstanding)
            .into_iter()
            .partition(which);
        self.outstanding = kept;
        let dropped: Vec<Sent> = dropped;
        for sent in dropped {
            self.data_moved(&sent, false);
            if let Some(iova) = sent.ring {
                self.free_ring(iova);
            }
        }
    }

    /// A controller reset, or a Function Level Reset, in the middle of everything; then it starts again.
    pub fn reset(&mut self, function: bool) {
        let kind = if function { "FLR" } else { "CC.EN = 0" };
        self.note(kind.into());
        self.saw(kind.into());
        if function {
            self.pci.world_mut().function_level_reset();
            // What executes, up to 64 x 128 KiB, ends at a beat a cycle; PCIe allows 100 ms.
            self.pass(3_000_000);
            self.pci.world_mut().enable_function().unwrap();
            assert_eq!(self.pci.read32(offset::CC) & 1, 0, "CC.EN after an FLR");
            self.wait_ready(false);
        } else {
            self.disable();
        }
        let rings: Vec<u64> = self
            .sqs
            .values()
            .map(|sq| sq.iova)
            .chain(self.cqs.values().map(|cq| cq.iova))
            .collect();
        self.drop_sent(|_| true);
        (self.sqs, self.cqs) = Default::default();
        rings.into_iter().for_each(|iova| self.free_ring(iova));
        self.poisoned = false;
        self.pass(20_000);
        self.check_memory();
        self.start();
    }

    /// Runs an admin command that must succeed.
    fn must(&mut self, command: Command) {
        while {
            let sq = &self.sqs[&0];
            (sq.tail + 1) % sq.entries == sq.head
        } {
            self.pass(1000);
            self.poll();
        }
        self.submit(0, command);
        if let Some(sent) = self.outstanding.last_mut() {
            sent.verdict.allowed = [StatusCode::SUCCESS].into();
        }
        self.drain();
    }

    fn drain(&mut self) {
        while self.waiting() > 0 {
            self.ring();
            self.pass(2000);
            self.poll();
        }
    }

    /// Everything that is outstanding ends; no queue, slot, tag or count is left.
    pub fn finish(&mut self) {
        self.drain();
        // A queue that lies nowhere may still turn the controller fatal: only a reset ends that.
        if self.poisoned {
            self.reset(false);
        }
        let events = self.outstanding.len();
        assert!(
            events <= usize::from(weir::AERL) + 1,
            "{events} Asynchronous Event Requests are held"
        );
        for lun in 0..self.config.luns {
            let mut command = Command::admin(AdminOpcode::GET_LOG_PAGE);
            let dwords = size_of::<LunStatistics>() as u32 / 4;
            command.cdw10 = 0xc0 | (dwords - 1) << 16;
            command.nsid = lun + 1;
            command.prp1 = self.slice();
            let at = self.prepared.unwrap();
            self.must(command);
            let (s, _) = LunStatistics::read_from_prefix(&self.slices[at].bytes).unwrap();
            let (in_flight, parked) = (s.in_flight, s.parked);
            assert_eq!((in_flight, parked), (0, 0), "LUN {lun}");
            let (admitted, completed) = (s.admitted, s.completed);
            assert_eq!(admitted, completed, "LUN {lun}");
        }
        for qid in self.sqs() {
            let mut command = Command::admin(AdminOpcode::DELETE_IO_SQ);
            command.cdw10 = qid.into();
            self.must(command);
        }
        for qid in self.cqs() {
            let mut command = Command::admin(AdminOpcode::DELETE_IO_CQ);
            command.cdw10 = qid.into();
            self.must(command);
        }
        self.pass(50_000);
        self.poll();
        assert!(
            self.pci.world().output().idle,
            "busy: {}",
            self.pci.world().state()
        );
        (0..self.slices.len()).for_each(|at| self.check_slice(at));
    }
}

/// Do both touch a block that one of them writes?
fn overlap(a: &Sent, b: &Sent) -> bool {
    let reaches = |s: &Sent| s.sqid != 0 && s.verdict.executes;
    let writes = a.verdict.moves == Moves::Out || b.verdict.moves == Moves::Out;
    if !reaches(a) || !reaches(b) || !writes || a.command.nsid != b.command.nsid {
        return false;
    }
    let range = |s: &Sent| {
        (
            s.command.slba(),
            s.command.slba() + u64::from(s.command.blocks()),
        )
    };
    let ((a0, a1), (b0, b1)) = (range(a), range(b));
    a0 < b1 && b0 < a1
}

/// Does a transfer touch a byte twice?
fn self_overlap(pieces: &[(u64, usize)]) -> bool {
    let mut sorted = pieces.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|p| {
        p[0].0
            .checked_add(p[0].1 as u64)
            .is_none_or(|end| end > p[1].0)
    })
}
