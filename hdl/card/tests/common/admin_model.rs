//! The controller's admin side in plain Rust: what a command must answer, write and ask of other blocks.

#![allow(dead_code)] // Each test uses its part.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use weir_card::admin::identity;
use weir_card::config::CardConfig;
use weir_nvme::StatusCode;
pub use weir_nvme::command::Command;
use weir_nvme::feature::FeatureId;
use weir_nvme::log::{ErrorEntry, FirmwareSlotLog, LunStatistics, SmartLog};
use weir_nvme::weir;
use zerocopy::{FromZeros, IntoBytes};

/// Do Not Retry, in the 15 bits of a status.
pub const DNR: u16 = 1 << 14;

/// A queue that is created (deleted: only `queue`, the rest 0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSet {
    pub queue: u64,
    pub enable: bool,
    pub base: u64,
    pub size: u64,
    /// CQ of an SQ, vector of a CQ.
    pub other: u64,
    pub interrupts: bool,
}

/// A request to another block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    SqSet(QueueSet),
    CqSet(QueueSet),
    /// Delete: one 0; Abort: one 1.
    Walk {
        one: u64,
        sq: u64,
        cid: u64,
    },
    /// LUN, or all, or the tag set: {set, tag_set, all, lun, depth, weight, rule}, 0 where it has no meaning.
    Budget([u64; 7]),
    Snapshot(u64),
}

/// What a command must lead to.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// 15 bits.
    pub status: u16,
    pub result: u32,
    pub effects: VecDeque<Effect>,
    /// Bytes from PRP1 on.
    pub data: Vec<u8>,
    /// An Asynchronous Event Request is held.
    pub held: bool,
    /// The result is the walker's to say.
    pub aborts: bool,
}

fn fail(code: StatusCode) -> Expected {
    Expected {
        status: DNR | code.0,
        ..Expected::default()
    }
}

fn answer(result: u32) -> Expected {
    Expected {
        result,
        ..Expected::default()
    }
}

/// The state that commands see and change.
#[derive(Clone)]
pub struct Controller {
    pub c: CardConfig,
    pub queues: u32,
    pub luns: u32,
    pub tags: u32,
    pub present: Vec<bool>,
    pub blocks: Vec<u64>,
    pub stats: Vec<[u64; 10]>,
    /// The LUN engine's: depth, weight; tag depth, rule.
    pub budgets: Vec<[u64; 2]>,
    pub tag_set: [u64; 2],
    /// CQ of each SQ that exists; by identifier.
    pub sqs: Vec<Option<u16>>,
    pub cqs: Vec<bool>,
    /// Values by feature identifier; 04h has {over, under}.
    pub features: [u32; 12],
    pub under: u32,
    pub vectors: u64,
    /// Held Asynchronous Event Requests.
    pub aers: Vec<u16>,
    /// Cycles of events not yet reported: doorbell of no queue, value of no ring.
    pub pulses: [Vec<u64>; 2],
    pub masked: bool,
    /// Newest first: count, SQ, CID, status, NSID.
    errors: VecDeque<(u64, u16, u16, u16, u32)>,
    error_count: u64,
    /// Commands and blocks of Read, Write.
    io: [(u128, u128); 2],
}

impl Controller {
    /// After power-up, with limits, LUNs and statistics at random.
    pub fn random(c: &CardConfig, rng: &mut ChaCha8Rng) -> Controller {
        let n = c.luns as usize;
        let bits = |rng: &mut ChaCha8Rng, b: u32| rng.random::<u64>() >> (64 - b);
        let stats = (0..n)
            .map(|_| {
                let d = c.depth_bits();
                let widths = [d, d, c.slot_bits() + 1, 48, 48, 48, 48, 48, 64, 64];
                widths.map(|w| bits(rng, w))
            })
            .collect();
        let tags = c.tags >> rng.random_range(0..2);
        let mut controller = Controller {
            c: c.clone(),
            queues: rng.random_range(c.queues.div_ceil(2)..=c.queues),
            luns: rng.random_range(c.luns.div_ceil(2)..=c.luns),
            tags,
            present: (0..n).map(|_| rng.random_range(0..4) > 0).collect(),
            blocks: (0..n).map(|_| bits(rng, 40)).collect(),
            stats,
            budgets: vec![[tags.min(32) as u64, 1]; n],
            tag_set: [tags as u64, 0],
            sqs: vec![],
            cqs: vec![],
            features: [0; 12],
            under: 0,
            vectors: 0,
            aers: vec![],
            pulses: [vec![], vec![]],
            masked: false,
            errors: VecDeque::new(),
            error_count: 0,
            io: [(0, 0); 2],
        };
        controller.clear();
        controller
    }

    /// A controller reset: all but the logs.
    pub fn clear(&mut self) {
        let n = self.c.queues as usize + 1;
        self.sqs = vec![None; n];
        self.cqs = vec![false; n];
        self.features = [0; 12];
        (self.features[1], self.features[4]) = (3, 0xffff);
        (self.under, self.vectors) = (0, 0);
        self.aers.clear();
        self.pulses = [vec![], vec![]];
        self.masked = false;
    }

    /// A reset of the hardware: the logs too.
    pub fn power_up(&mut self) {
        self.clear();
        self.errors.clear();
        self.error_count = 0;
        self.io = [(0, 0); 2];
    }

    /// An I/O command completed: 0 Read, 1 Write, 2 Flush.
    pub fn count(&mut self, op: u64, blocks: u64) {
        if let Some((commands, total)) = self.io.get_mut(op as usize) {
            *commands += 1;
            *total += blocks as u128;
        }
    }

    /// A command ended with an error.
    pub fn log_error(&mut self, sq: u16, cid: u16, status: u16, nsid: u32) {
        self.error_count += 1;
        self.errors
            .push_front((self.error_count, sq, cid, status, nsid));
        self.errors.truncate(4);
    }

    /// An event is due, a request held, and nothing masks it.
    pub fn event_due(&self) -> bool {
        !self.masked && !self.aers.is_empty() && self.pulses.iter().any(|p| !p.is_empty())
    }

    fn nsid_exists(&self, nsid: u32) -> bool {
        (1..=self.luns).contains(&nsid)
    }

    fn qid_exists(&self, qid: u16) -> bool {
        (1..=self.queues).contains(&qid.into())
    }

    /// Takes a command: what must follow. Changes the state as the command does.
    pub fn take(&mut self, e: &Command) -> Expected {
        if e.cdw0.fuse() != 0 || e.cdw0.psdt() != 0 {
            return fail(StatusCode::INVALID_FIELD);
        }
        match e.cdw0.opcode() {
            0x00 => self.delete_sq(e),
            0x01 => self.create_sq(e),
            0x02 => self.get_log_page(e),
            0x04 => self.delete_cq(e),
            0x05 => self.create_cq(e),
            0x06 => self.identify(e),
            0x08 => self.abort(e),
            0x09 => self.set_features(e),
            0x0a => self.get_features(e),
            0x0c if self.aers.len() == 4 => fail(StatusCode::AER_LIMIT_EXCEEDED),
            0x0c => {
                self.aers.push(e.cdw0.cid());
                Expected {
                    held: true,
                    ..Expected::default()
                }
            }
            _ => fail(StatusCode::INVALID_OPCODE),
        }
    }

    fn create_cq(&mut self, e: &Command) -> Expected {
        let (qid, size) = (e.cdw10 as u16, e.cdw10 >> 16);
        let vector = e.cdw11 >> 16;
        if !self.qid_exists(qid) || self.cqs[qid as usize] {
            return fail(StatusCode::INVALID_QUEUE_IDENTIFIER);
        }
        if size == 0 || size >= self.c.entries {
            return fail(StatusCode::INVALID_QUEUE_SIZE);
        }
        if e.cdw11 & 1 == 0 {
            return fail(StatusCode::INVALID_FIELD);
        }
        if !e.prp1.is_multiple_of(4096) {
            return fail(StatusCode::PRP_OFFSET_INVALID);
        }
        if vector > self.c.queues {
            return fail(StatusCode::INVALID_INTERRUPT_VECTOR);
        }
        self.cqs[qid as usize] = true;
        Expected {
            effects: [Effect::CqSet(QueueSet {
                queue: qid.into(),
                enable: true,
                base: e.prp1,
                size: size.into(),
                other: vector.into(),
                interrupts: e.cdw11 & 2 != 0,
            })]
            .into(),
            ..Expected::default()
        }
    }

    fn create_sq(&mut self, e: &Command) -> Expected {
        let (qid, size) = (e.cdw10 as u16, e.cdw10 >> 16);
        let cq = (e.cdw11 >> 16) as u16;
        if !self.qid_exists(qid) || self.sqs[qid as usize].is_some() {
            return fail(StatusCode::INVALID_QUEUE_IDENTIFIER);
        }
        if !self.qid_exists(cq) || !self.cqs[cq as usize] {
            return fail(StatusCode::COMPLETION_QUEUE_INVALID);
        }
        if size == 0 || size >= self.c.entries {
            return fail(StatusCode::INVALID_QUEUE_SIZE);
        }
        if e.cdw11 & 1 == 0 {
            return fail(StatusCode::INVALID_FIELD);
        }
        if !e.prp1.is_multiple_of(4096) {
            return fail(StatusCode::PRP_OFFSET_INVALID);
        }
        self.sqs[qid as usize] = Some(cq);
        Expected {
            effects: [Effect::SqSet(QueueSet {
                queue: qid.into(),
                enable: true,
                base: e.prp1,
                size: size.into(),
                other: cq.into(),
                interrupts: false,
            })]
            .into(),
            ..Expected::default()
        }
    }

    fn delete_sq(&mut self, e: &Command) -> Expected {
        let qid = e.cdw10 as u16;
        if !self.qid_exists(qid) || self.sqs[qid as usize].take().is_none() {
            return fail(StatusCode::INVALID_QUEUE_IDENTIFIER);
        }
        let queue = qid.into();
        Expected {
            effects: [
                Effect::Walk {
                    one: 0,
                    sq: queue,
                    cid: 0,
                },
                Effect::SqSet(QueueSet {
                    queue,
                    ..QueueSet::default()
                }),
            ]
            .into(),
            ..Expected::default()
        }
    }

    fn delete_cq(&mut self, e: &Command) -> Expected {
        let qid = e.cdw10 as u16;
        if !self.qid_exists(qid) || !self.cqs[qid as usize] {
            return fail(StatusCode::INVALID_QUEUE_IDENTIFIER);
        }
        if self.sqs.contains(&Some(qid)) {
            return fail(StatusCode::INVALID_QUEUE_DELETION);
        }
        self.cqs[qid as usize] = false;
        let set = QueueSet {
            queue: qid.into(),
            ..QueueSet::default()
        };
        Expected {
            effects: [Effect::CqSet(set)].into(),
            ..Expected::default()
        }
    }

    fn abort(&mut self, e: &Command) -> Expected {
        let qid = e.cdw10 as u16;
        if !self.qid_exists(qid) || self.sqs[qid as usize].is_none() {
            return answer(1);
        }
        let walk = Effect::Walk {
            one: 1,
            sq: qid.into(),
            cid: (e.cdw10 >> 16).into(),
        };
        Expected {
            effects: [walk].into(),
            aborts: true,
            ..Expected::default()
        }
    }

    /// PRP1 and PRP2 for `dwords` dwords.
    fn prps_bad(e: &Command, dwords: u64) -> bool {
        let first = 1024 - e.prp1 % 4096 / 4;
        !e.prp1.is_multiple_of(4) || (dwords > first && !e.prp2.is_multiple_of(4096))
    }

    fn identify(&mut self, e: &Command) -> Expected {
        let (cns, nsid) = (e.cdw10 & 0xff, e.nsid);
        if cns > 3 {
            return fail(StatusCode::INVALID_FIELD);
        }
        if matches!(cns, 0 | 3) && !self.nsid_exists(nsid) || cns == 2 && nsid >= 0xffff_fffe {
            return fail(StatusCode::INVALID_NAMESPACE);
        }
        if Controller::prps_bad(e, 1024) {
            return fail(StatusCode::PRP_OFFSET_INVALID);
        }
        let id = identity(&self.c);
        let here = self.present.get(nsid.wrapping_sub(1) as usize) == Some(&true);
        let data = match cns {
            0 if here => weir::identify_namespace(self.blocks[nsid as usize - 1]),
            0 => [0; 4096],
            1 => {
                let mut image = weir::identify_controller(&id);
                image[516..520].copy_from_slice(&self.luns.to_le_bytes());
                image
            }
            2 => weir::active_namespaces(self.luns, nsid, |lun| self.present[lun as usize]),
            _ if here => weir::namespace_descriptors(id.serial, nsid),
            _ => return fail(StatusCode::INVALID_NAMESPACE),
        };
        Expected {
            data: data.to_vec(),
            ..Expected::default()
        }
    }

    fn get_log_page(&mut self, e: &Command) -> Expected {
        let lid = e.cdw10 & 0xff;
        let log = match lid {
            1 => self.error_log(),
            2 => self.smart_log(),
            3 => self.firmware_log(),
            0xc0 if !self.nsid_exists(e.nsid) => return fail(StatusCode::INVALID_NAMESPACE),
            0xc0 => self.lun_log(e.nsid as usize - 1),
            _ => return fail(StatusCode::INVALID_LOG_PAGE),
        };
        let dwords = (u64::from(e.cdw11 & 0xffff) << 16 | u64::from(e.cdw10 >> 16)) + 1;
        let offset = u64::from(e.cdw13) << 32 | u64::from(e.cdw12);
        let room = 2048 - e.prp1 % 4096 / 4;
        if dwords > room || !offset.is_multiple_of(4) || offset > log.len() as u64 {
            return fail(StatusCode::INVALID_FIELD);
        }
        if Controller::prps_bad(e, dwords) {
            return fail(StatusCode::PRP_OFFSET_INVALID);
        }
        let mut effects = VecDeque::new();
        if lid == 0xc0 {
            let lun = e.nsid - 1;
            if !self.present[lun as usize] {
                return fail(StatusCode::INVALID_NAMESPACE);
            }
            effects.push_back(Effect::Snapshot(lun.into()));
        }
        if lid == 1 && e.cdw10 >> 15 & 1 == 0 {
            self.masked = false;
        }
        let mut data = log[offset as usize..].to_vec();
        data.resize(dwords as usize * 4, 0);
        Expected {
            effects,
            data,
            ..Expected::default()
        }
    }

    fn error_log(&self) -> Vec<u8> {
        let mut log = vec![];
        for i in 0..4 {
            let mut entry = ErrorEntry::new_zeroed();
            if let Some(&(count, sq, cid, status, nsid)) = self.errors.get(i) {
                entry.error_count = count;
                entry.sqid = sq;
                entry.cid = cid;
                entry.status_phase = status << 1;
                entry.parameter_location = 0xffff;
                entry.nsid = nsid;
            }
            log.extend(entry.as_bytes());
        }
        log
    }

    fn smart_log(&self) -> Vec<u8> {
        let mut log = SmartLog::new_zeroed();
        log.temperature = 313.into();
        log.available_spare = 100;
        log.spare_threshold = 10;
        log.power_cycles = 1.into();
        let [(reads, read), (writes, written)] = self.io;
        log.data_units_read = read.div_ceil(1000).into();
        log.data_units_written = written.div_ceil(1000).into();
        log.host_reads = reads.into();
        log.host_writes = writes.into();
        log.error_log_entries = u128::from(self.error_count).into();
        log.as_bytes().to_vec()
    }

    fn firmware_log(&self) -> Vec<u8> {
        let mut log = FirmwareSlotLog::new_zeroed();
        log.afi = 1;
        let name = format!("{:8}", identity(&self.c).firmware);
        log.revision[0].copy_from_slice(name.as_bytes());
        log.as_bytes().to_vec()
    }

    fn lun_log(&self, lun: usize) -> Vec<u8> {
        let [
            in_flight,
            peak,
            parked,
            admitted,
            completed,
            deferred_depth,
            deferred_tags,
            deferred_share,
            cycles_waited,
            bytes,
        ] = self.stats[lun];
        let log = LunStatistics {
            in_flight,
            peak,
            parked,
            admitted,
            completed,
            deferred_depth,
            deferred_tags,
            deferred_share,
            cycles_waited,
            bytes,
        };
        log.as_bytes().to_vec()
    }

    fn known(fid: u32) -> bool {
        let known = [1, 2, 4, 5, 7, 8, 9, 10, 11];
        known.contains(&fid)
            || fid == FeatureId::LUN_BUDGET.0.into()
            || fid == FeatureId::TAG_SET.0.into()
    }

    fn queue_numbers(&self) -> u32 {
        (self.queues - 1) << 16 | (self.queues - 1)
    }

    fn set_features(&mut self, e: &Command) -> Expected {
        let (fid, v) = (e.cdw10 & 0xff, e.cdw11);
        let invalid = fail(StatusCode::INVALID_FIELD);
        if !Controller::known(fid) {
            return invalid;
        }
        if e.cdw10 >> 31 == 1 {
            return fail(StatusCode::FEATURE_NOT_SAVEABLE);
        }
        if fid != 0xc0 && e.nsid != 0 && e.nsid != u32::MAX {
            return fail(StatusCode::FEATURE_NOT_NAMESPACE_SPECIFIC);
        }
        let (depth, high) = (u64::from(v & 0xffff), u64::from(v >> 16));
        let depth_bad = depth == 0 || depth > self.tags.into();
        let kept = match fid {
            1 | 11 => v,
            2 if v & 31 != 0 => return invalid,
            2 => 0,
            4 => {
                let (sensor, kind) = (v >> 16 & 15, v >> 20 & 3);
                if !matches!(sensor, 0 | 15) || kind > 1 {
                    return invalid;
                }
                if kind == 1 {
                    self.under = v & 0xffff;
                    return answer(0);
                }
                v & 0xffff
            }
            5 => v & 0x1_ffff,
            7 => {
                if self.sqs.iter().any(|s| s.is_some()) || self.cqs.contains(&true) {
                    return fail(StatusCode::COMMAND_SEQUENCE_ERROR);
                }
                if v & 0xffff == 0xffff || v >> 16 == 0xffff {
                    return invalid;
                }
                return answer(self.queue_numbers());
            }
            8 => v & 0xffff,
            9 => {
                let vector = v & 0xffff;
                if vector > self.c.queues {
                    return invalid;
                }
                self.vectors &= !(1 << vector);
                self.vectors |= u64::from(v >> 16 & 1) << vector;
                return answer(0);
            }
            10 => v & 1,
            0xc0 => {
                let all = e.nsid == u32::MAX;
                if !all && !self.nsid_exists(e.nsid) {
                    return fail(StatusCode::INVALID_NAMESPACE);
                }
                if depth_bad || high == 0 {
                    return invalid;
                }
                let lun = if all { 0 } else { e.nsid - 1 };
                let set = [1, 0, all.into(), lun.into(), depth, high, 0];
                return Expected {
                    effects: [Effect::Budget(set)].into(),
                    ..Expected::default()
                };
            }
            _ => {
                if depth_bad || high > 2 {
                    return invalid;
                }
                return Expected {
                    effects: [Effect::Budget([1, 1, 0, 0, depth, 0, high])].into(),
                    ..Expected::default()
                };
            }
        };
        self.features[fid as usize] = kept;
        answer(0)
    }

    fn get_features(&mut self, e: &Command) -> Expected {
        let (fid, v) = (e.cdw10 & 0xff, e.cdw11);
        let select = e.cdw10 >> 8 & 7;
        let of_lun = fid == 0xc0;
        let vector = v & 0xffff;
        let (sensor, kind) = (v >> 16 & 15, v >> 20 & 3);
        if !Controller::known(fid)
            || select > 3
            || fid == 9 && vector > self.c.queues
            || fid == 4 && (!matches!(sensor, 0 | 15) || kind > 1)
        {
            return fail(StatusCode::INVALID_FIELD);
        }
        if of_lun && !self.nsid_exists(e.nsid) {
            return fail(StatusCode::INVALID_NAMESPACE);
        }
        match (select, fid) {
            (3, 0xc0) => answer(1 << 2 | 1 << 1),
            (3, _) => answer(1 << 2),
            (_, 7) => answer(self.queue_numbers()),
            (0, 4) if kind == 1 => answer(self.under),
            (0, 9) => answer((self.vectors >> vector & 1) as u32 * 65536 + vector),
            (0, 0xc0) => {
                let [depth, weight] = self.budgets[e.nsid as usize - 1];
                let get = [0, 0, 0, u64::from(e.nsid - 1), 0, 0, 0];
                Expected {
                    effects: [Effect::Budget(get)].into(),
                    ..answer((weight << 16 | depth) as u32)
                }
            }
            (0, 0xc1) => {
                let [depth, rule] = self.tag_set;
                Expected {
                    effects: [Effect::Budget([0, 1, 0, 0, 0, 0, 0])].into(),
                    ..answer((rule << 16 | depth) as u32)
                }
            }
            (0, _) => answer(self.features[fid as usize]),
            (_, 1) => answer(3),
            (_, 4) if kind == 0 => answer(0xffff),
            (_, 9) => answer(vector),
            (_, 0xc0) => answer(1 << 16 | self.c.tags.min(32)),
            (_, 0xc1) => answer(self.c.tags),
            _ => answer(0),
        }
    }

    /// The LUN engine's part of a [`Effect::Budget`]: changes it, and gives {depth, weight, rule} of the reply.
    pub fn budget(&mut self, [set, tag_set, all, lun, depth, weight, rule]: [u64; 7]) -> [u64; 3] {
        if tag_set == 1 {
            if set == 1 {
                self.tag_set = [depth, rule];
            }
            return [self.tag_set[0], 0, self.tag_set[1]];
        }
        for (n, b) in self.budgets.iter_mut().enumerate() {
            if set == 1 && (all == 1 || n as u64 == lun) {
                *b = [depth, weight];
            }
        }
        let [depth, weight] = self.budgets[lun as usize];
        [depth, weight, 0]
    }
}
