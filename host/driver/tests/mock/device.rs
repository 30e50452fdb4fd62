//! The model itself: registers, queues, I/O commands.

use std::collections::{BTreeMap, HashMap, VecDeque};
use weir_driver::nvme::command::*;
use weir_driver::nvme::feature::*;
use weir_driver::nvme::log::*;
use weir_driver::nvme::registers::*;
use weir_driver::nvme::weir::*;
use weir_driver::nvme::*;
use zerocopy::{FromBytes, IntoBytes};

/// Something the device does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// All reads are all ones, and nothing happens any more.
    Gone,
    /// CSTS.RDY never follows CC.EN.
    NeverReady,
    /// CSTS.CFS instead of CSTS.RDY.
    Fatal,
    /// Completions name a command that is not in flight.
    UnknownCid,
    /// Each completion is posted twice.
    RepeatedCid,
    /// Completions name a submission queue that does not complete there.
    UnknownSq,
    /// Completions have the phase tag of the last round.
    WrongPhase,
    /// Completions report a head one past the tail.
    SqHeadPast,
    /// I/O commands are fetched and never completed.
    Stuck,
    /// Admin commands are fetched and never completed.
    AdminStuck,
    /// One I/O completion in four is random but for its phase tag, CIDs and queues near the right ones.
    Garbage,
    /// Admin commands succeed without sending their data.
    NoData,
    /// Create I/O Submission Queue fails.
    NoSubmissionQueues,
}

pub(super) struct Sq {
    pub(super) base: u64,
    pub(super) entries: u16,
    pub(super) head: u16,
    pub(super) tail: u16,
    pub(super) cqid: u16,
}

pub(super) struct Cq {
    pub(super) base: u64,
    pub(super) entries: u16,
    pub(super) head: u16,
    pub(super) tail: u16,
    pub(super) phase: bool,
    pub(super) vector: Option<u16>,
    pub(super) waiting: VecDeque<Completion>,
}

/// A fetched I/O command.
pub(super) struct Io {
    pub(super) sqid: u16,
    pub(super) command: Command,
    /// Turns until it completes, once it executes.
    pub(super) turns: u32,
    pub(super) executing: bool,
}

pub struct Lun {
    pub data: Vec<u8>,
    pub budget: LunBudget,
    pub statistics: LunStatistics,
}

pub struct Device {
    pub cap: Cap,
    pub weir: bool,
    pub faults: Vec<Fault>,
    pub luns: Vec<Lun>,
    pub tags: TagSet,
    pub events: VecDeque<AsyncEvent>,
    /// Statuses that the next I/O commands get, by LBA.
    pub bad_blocks: HashMap<u64, StatusCode>,
    /// Addresses the device reached that no memory is behind, and other things a driver must not do.
    pub violations: Vec<String>,
    /// Doorbell writes, by offset.
    pub doorbells: HashMap<usize, u32>,
    /// The most turns an I/O executes; chosen at random below.
    pub latency: u32,
    pub abortable: bool,
    /// Bits of the CID that [`Fault::UnknownCid`] turns over.
    pub cid_error: u16,
    /// Pieces (address, bytes) of every transfer, when asked for.
    pub trace: Option<Vec<(u64, usize)>>,
    pub now_ns: u64,
    pub(super) cc: Cc,
    pub(super) csts: Csts,
    pub(super) aqa: Aqa,
    pub(super) asq: u64,
    pub(super) acq: u64,
    pub(super) sqs: BTreeMap<u16, Sq>,
    pub(super) cqs: BTreeMap<u16, Cq>,
    pub(super) ios: Vec<Io>,
    pub(super) requests: Vec<u16>,
    /// Submission queues being deleted, and the command that asked.
    pub(super) deleting: Vec<(u16, u16)>,
    pub(super) coalescing: u32,
    pub(super) vectors: HashMap<u16, bool>,
    pub(super) memory: BTreeMap<u64, (usize, usize)>,
    pub(super) next_iova: u64,
    pub seed: u64,
}

pub const SERIAL: &str = "MOCK1";
pub const TAGS: u16 = 64;
pub const BLOCK: usize = 512;

impl Device {
    pub(super) fn new(luns: u32, blocks: u64) -> Device {
        let lun = |_| Lun {
            data: vec![0; blocks as usize * BLOCK],
            budget: LunBudget::new()
                .with_depth(default_depth(TAGS))
                .with_weight(1),
            statistics: LunStatistics::default(),
        };
        Device {
            cap: Cap::new()
                .with_mqes(255)
                .with_cqr(true)
                .with_to(2)
                .with_css(1),
            weir: true,
            faults: Vec::new(),
            luns: (0..luns).map(lun).collect(),
            tags: TagSet::new().with_depth(TAGS),
            events: VecDeque::new(),
            bad_blocks: HashMap::new(),
            violations: Vec::new(),
            doorbells: HashMap::new(),
            latency: 4,
            abortable: true,
            cid_error: 0x20,
            trace: None,
            now_ns: 0,
            cc: Cc::new(),
            csts: Csts::new(),
            aqa: Aqa::new(),
            asq: 0,
            acq: 0,
            sqs: BTreeMap::new(),
            cqs: BTreeMap::new(),
            ios: Vec::new(),
            requests: Vec::new(),
            deleting: Vec::new(),
            coalescing: 0,
            vectors: HashMap::new(),
            memory: BTreeMap::new(),
            next_iova: 0x7_0000_0000,
            seed: 1,
        }
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.seed >> 33) % below.max(1)
    }

    /// Pointer to `len` bytes at `iova`, when they are in one allocation.
    fn reach(&mut self, iova: u64, len: usize) -> Option<*mut u8> {
        let found = self.memory.range(..=iova).next_back();
        if let Some((&base, &(ptr, size))) = found
            && iova - base + len as u64 <= size as u64
        {
            return Some((ptr + (iova - base) as usize) as *mut u8);
        }
        self.violations.push(format!("DMA to {iova:#x}+{len:#x}"));
        None
    }

    /// Tail of the submission queue `qid`, 0 when there is none.
    pub fn sq_tail(&self, qid: u16) -> u16 {
        self.sqs.get(&qid).map_or(0, |sq| sq.tail)
    }

    /// IOVA and entries of the completion queue `qid`.
    pub fn cq_place(&self, qid: u16) -> (u64, u32) {
        let cq = &self.cqs[&qid];
        (cq.base, cq.entries.into())
    }

    /// Where the rings of a submission and a completion queue lie in this process, and their entries.
    pub fn rings(&mut self, sqid: u16, cqid: u16) -> ((*mut u8, u32), (*mut u8, u32)) {
        let (sq, sq_entries) = (self.sqs[&sqid].base, u32::from(self.sqs[&sqid].entries));
        let (cq, cq_entries) = self.cq_place(cqid);
        let mut reach = |iova, bytes| self.reach(iova, bytes).expect("a ring in memory");
        let sq = reach(sq, sq_entries as usize * Command::SIZE);
        let cq = reach(cq, cq_entries as usize * Completion::SIZE);
        ((sq, sq_entries), (cq, cq_entries))
    }

    pub fn dma_read(&mut self, iova: u64, out: &mut [u8]) -> bool {
        let Some(ptr) = self.reach(iova, out.len()) else {
            return false;
        };
        // SAFETY: the allocation is alive, since it removes itself from `memory` before it is freed.
        unsafe { ptr.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        true
    }

    pub fn dma_write(&mut self, iova: u64, data: &[u8]) -> bool {
        let Some(ptr) = self.reach(iova, data.len()) else {
            return false;
        };
        // SAFETY: as in `dma_read`.
        unsafe { ptr.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        true
    }

    /// The pieces of a command's transfer.
    fn pieces(&mut self, command: &Command, len: usize) -> Result<Vec<(u64, usize)>, StatusCode> {
        let mut out = Vec::new();
        let read = |at| {
            let mut entry = [0; 8];
            if self.dma_read(at, &mut entry) {
                Ok(u64::from_le_bytes(entry))
            } else {
                Err(())
            }
        };
        match prp::walk(command.prp1, command.prp2, len, read, |at, len| {
            out.push((at, len))
        }) {
            Ok(()) => {
                if let Some(trace) = &mut self.trace {
                    trace.extend(&out);
                }
                Ok(out)
            }
            Err(prp::WalkError::Misaligned(_)) => Err(StatusCode::PRP_OFFSET_INVALID),
            Err(prp::WalkError::Read(())) => Err(StatusCode::DATA_TRANSFER_ERROR),
        }
    }

    pub(super) fn send(&mut self, command: &Command, data: &[u8]) -> StatusCode {
        let pieces = match self.pieces(command, data.len()) {
            Ok(pieces) => pieces,
            Err(status) => return status,
        };
        let mut at = 0;
        for (iova, len) in pieces {
            if !self.dma_write(iova, &data[at..at + len]) {
                return StatusCode::DATA_TRANSFER_ERROR;
            }
            at += len;
        }
        StatusCode::SUCCESS
    }

    pub(super) fn receive(&mut self, command: &Command, data: &mut [u8]) -> StatusCode {
        let pieces = match self.pieces(command, data.len()) {
            Ok(pieces) => pieces,
            Err(status) => return status,
        };
        let mut at = 0;
        for (iova, len) in pieces {
            if !self.dma_read(iova, &mut data[at..at + len]) {
                return StatusCode::DATA_TRANSFER_ERROR;
            }
            at += len;
        }
        StatusCode::SUCCESS
    }

    pub(super) fn read32(&mut self, offset: usize) -> u32 {
        if self.has(Fault::Gone) {
            return ALL_ONES;
        }
        match offset {
            offset::CAP => u64::from(self.cap) as u32,
            0x04 => (u64::from(self.cap) >> 32) as u32,
            offset::VS => VERSION_1_4,
            offset::CC => self.cc.into(),
            offset::CSTS => self.csts.into(),
            offset::AQA => self.aqa.into(),
            _ => 0,
        }
    }

    pub(super) fn write32(&mut self, at: usize, value: u32) {
        if self.has(Fault::Gone) {
            return;
        }
        let half = |old: u64, high: bool| match high {
            true => old & 0xFFFF_FFFF | u64::from(value) << 32,
            false => old & !0xFFFF_FFFF | u64::from(value),
        };
        match at {
            offset::CC => self.write_cc(value.into()),
            offset::AQA => self.aqa = value.into(),
            0x28 | 0x2C => self.asq = half(self.asq, at == 0x2C),
            0x30 | 0x34 => self.acq = half(self.acq, at == 0x34),
            offset::DOORBELLS.. => self.doorbell(at, value),
            _ => self
                .violations
                .push(format!("write of {value:#x} to {at:#x}")),
        }
    }

    fn write_cc(&mut self, cc: Cc) {
        let was = self.cc.en();
        self.cc = cc;
        if cc.shn() != 0 {
            self.csts.set_shst(SHST_COMPLETE);
        }
        if cc.en() && !was {
            if self.has(Fault::NeverReady) {
                return;
            }
            if self.has(Fault::Fatal) {
                self.csts.set_cfs(true);
                return;
            }
            self.csts = Csts::new().with_rdy(true);
            let sq = Sq {
                base: self.asq,
                entries: self.aqa.asqs() + 1,
                head: 0,
                tail: 0,
                cqid: 0,
            };
            self.sqs.insert(0, sq);
            self.cqs
                .insert(0, Cq::new(self.acq, self.aqa.acqs() + 1, Some(0)));
        }
        if !cc.en() && was {
            self.csts = Csts::new();
            self.sqs.clear();
            self.cqs.clear();
            self.ios.clear();
            self.requests.clear();
            self.deleting.clear();
            self.events.clear();
            for lun in &mut self.luns {
                lun.statistics = LunStatistics::default();
                lun.budget = LunBudget::new()
                    .with_depth(default_depth(TAGS))
                    .with_weight(1);
            }
        }
    }

    fn doorbell(&mut self, at: usize, value: u32) {
        *self.doorbells.entry(at).or_default() += 1;
        let index = (at - offset::DOORBELLS) / (4 << self.cap.dstrd());
        let qid = (index / 2) as u16;
        let ok = if index.is_multiple_of(2) {
            self.sqs.get_mut(&qid).is_some_and(|sq| {
                sq.tail = value as u16;
                value < u32::from(sq.entries)
            })
        } else {
            self.cqs.get_mut(&qid).is_some_and(|cq| {
                cq.head = value as u16;
                value < u32::from(cq.entries)
            })
        };
        if !ok {
            self.violations
                .push(format!("doorbell {at:#x} written {value}"));
        }
    }

    /// One turn of the device.
    pub fn step(&mut self) {
        self.now_ns += 1000;
        if self.has(Fault::Gone) || !self.csts.rdy() {
            return;
        }
        let qids: Vec<u16> = self.sqs.keys().copied().collect();
        for qid in qids {
            while let Some(command) = self.fetch(qid) {
                if qid == 0 {
                    self.admin(&command);
                } else {
                    let lun = command.nsid.wrapping_sub(1);
                    let turns = self.random(self.latency.into()) as u32;
                    if (lun as usize) < self.luns.len() {
                        self.luns[lun as usize].statistics.parked += 1;
                    }
                    self.ios.push(Io {
                        sqid: qid,
                        command,
                        turns,
                        executing: false,
                    });
                }
            }
        }
        self.execute();
        self.deliver_events();
        let cqids: Vec<u16> = self.cqs.keys().copied().collect();
        for cqid in cqids {
            self.post(cqid);
        }
        self.finish_deletions();
    }

    fn fetch(&mut self, qid: u16) -> Option<Command> {
        let sq = self.sqs.get_mut(&qid)?;
        if sq.head == sq.tail {
            return None;
        }
        let at = sq.base + u64::from(sq.head) * 64;
        sq.head = (sq.head + 1) % sq.entries;
        let mut bytes = [0; 64];
        self.dma_read(at, &mut bytes);
        Command::read_from_bytes(&bytes).ok()
    }

    fn execute(&mut self) {
        let mut done = Vec::new();
        let stuck = self.has(Fault::Stuck);
        let mut waiting = std::mem::take(&mut self.ios);
        let mut total: u64 = self.luns.iter().map(|lun| lun.statistics.in_flight).sum();
        for io in &mut waiting {
            if let Some(lun) = self
                .luns
                .get_mut((io.command.nsid as usize).wrapping_sub(1))
            {
                let s = &mut lun.statistics;
                if !io.executing {
                    if s.in_flight >= lun.budget.depth().into() {
                        s.deferred_depth += 1;
                        continue;
                    }
                    if total >= self.tags.depth().into() {
                        s.deferred_tags += 1;
                        continue;
                    }
                    io.executing = true;
                    total += 1;
                    s.parked -= 1;
                    s.in_flight += 1;
                    s.admitted += 1;
                    s.peak = s.peak.max(s.in_flight);
                }
            }
            io.turns = io.turns.saturating_sub(u32::from(!stuck));
        }
        let mut i = 0;
        while i < waiting.len() {
            let executing =
                waiting[i].executing || waiting[i].command.nsid as usize > self.luns.len();
            if executing && waiting[i].turns == 0 && !stuck {
                done.push(waiting.remove(i));
            } else {
                i += 1;
            }
        }
        self.ios = waiting;
        for io in done {
            let status = self.io(&io.command);
            if let Some(lun) = self
                .luns
                .get_mut((io.command.nsid as usize).wrapping_sub(1))
            {
                lun.statistics.in_flight -= 1;
                lun.statistics.completed += 1;
            }
            self.complete(io.sqid, io.command.cdw0.cid(), status, 0);
        }
    }

    fn io(&mut self, command: &Command) -> StatusCode {
        let opcode = NvmOpcode(command.cdw0.opcode());
        let at = (command.nsid as usize).wrapping_sub(1);
        if at >= self.luns.len() {
            return StatusCode::INVALID_NAMESPACE;
        }
        if opcode == NvmOpcode::FLUSH {
            return StatusCode::SUCCESS;
        }
        let (slba, blocks) = (command.slba(), u64::from(command.blocks()));
        let size = (self.luns[at].data.len() / BLOCK) as u64;
        if slba.checked_add(blocks).is_none_or(|end| end > size) {
            return StatusCode::LBA_OUT_OF_RANGE;
        }
        if blocks as usize * BLOCK > MAX_TRANSFER {
            return StatusCode::INVALID_FIELD;
        }
        if let Some(&status) = (slba..slba + blocks).find_map(|lba| self.bad_blocks.get(&lba)) {
            return status;
        }
        let range = slba as usize * BLOCK..(slba + blocks) as usize * BLOCK;
        self.luns[at].statistics.bytes += range.len() as u64;
        match opcode {
            NvmOpcode::READ => {
                let data = self.luns[at].data[range].to_vec();
                self.send(command, &data)
            }
            NvmOpcode::WRITE => {
                let mut data = vec![0; range.len()];
                let status = self.receive(command, &mut data);
                self.luns[at].data[range].copy_from_slice(&data);
                status
            }
            _ => StatusCode::INVALID_OPCODE,
        }
    }

    pub(super) fn complete(&mut self, sqid: u16, cid: u16, status: StatusCode, result: u32) {
        let Some(sq) = self.sqs.get(&sqid) else {
            return;
        };
        let mut entry = Completion {
            result,
            sq_head: sq.head,
            sqid,
            cid,
            status_phase: Completion::pack_status(status.into(), false),
            ..Default::default()
        };
        let (cqid, past) = (sq.cqid, (sq.tail + 1) % sq.entries);
        let io = sqid != 0;
        if io && self.has(Fault::UnknownCid) {
            entry.cid ^= self.cid_error;
        }
        if io && self.has(Fault::UnknownSq) {
            entry.sqid = 99;
        }
        if io && self.has(Fault::SqHeadPast) {
            entry.sq_head = past;
        }
        let twice = io && self.has(Fault::RepeatedCid);
        let Some(cq) = self.cqs.get_mut(&cqid) else {
            return;
        };
        cq.waiting
            .extend(std::iter::repeat_n(entry, 1 + usize::from(twice)));
    }

    fn post(&mut self, cqid: u16) {
        let wrong = cqid != 0 && self.has(Fault::WrongPhase);
        let garbage = self.has(Fault::Garbage);
        let seed = &mut self.seed;
        let mut noise = || {
            *seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            *seed >> 13
        };
        let mut writes = Vec::new();
        let mut posted = false;
        while let Some(cq) = self.cqs.get_mut(&cqid) {
            let next = (cq.tail + 1) % cq.entries;
            if next == cq.head || cq.waiting.is_empty() {
                break;
            }
            let mut entry = cq.waiting.pop_front().unwrap();
            let bits = noise();
            if cqid != 0 && garbage && bits >> 40 & 3 == 0 {
                entry.cid = (bits & 0x1F) as u16;
                entry.sqid = 1 + (bits >> 8 & 7 == 0) as u16;
                entry.sq_head = (bits >> 16 & 0xF) as u16;
                entry.status_phase = (bits >> 32) as u16 & !1;
            }
            entry.status_phase |= u16::from(cq.phase != wrong);
            let at = cq.base + u64::from(cq.tail) * 16;
            cq.tail = next;
            cq.phase ^= next == 0;
            posted = true;
            writes.push((at, entry));
        }
        for (at, entry) in writes {
            self.dma_write(at, entry.as_bytes());
        }
        if posted && let Some(vector) = self.cqs[&cqid].vector {
            self.vectors.insert(vector, true);
        }
    }

    /// A deletion completes when the completions of the queue have been posted.
    fn finish_deletions(&mut self) {
        let cqs = &self.cqs;
        let busy = |qid| {
            cqs.values()
                .any(|cq| cq.waiting.iter().any(|entry| entry.sqid == qid))
        };
        let (left, done) = self
            .deleting
            .iter()
            .copied()
            .partition(|&(qid, _)| busy(qid));
        self.deleting = left;
        let done: Vec<(u16, u16)> = done;
        for (_, cid) in done {
            self.complete(0, cid, StatusCode::SUCCESS, 0);
        }
    }

    fn deliver_events(&mut self) {
        while !self.events.is_empty() && !self.requests.is_empty() {
            let (event, cid) = (self.events.pop_front().unwrap(), self.requests.remove(0));
            self.complete(0, cid, StatusCode::SUCCESS, event.into());
        }
    }
}

impl Cq {
    pub(super) fn new(base: u64, entries: u16, vector: Option<u16>) -> Cq {
        Cq {
            base,
            entries,
            head: 0,
            tail: 0,
            phase: true,
            vector,
            waiting: VecDeque::new(),
        }
    }
}
