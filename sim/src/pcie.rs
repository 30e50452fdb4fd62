//! The PCIe endpoint bridge, the link and the root complex between the card's host port and host memory.
//!
//! ```text
//!             ┌ posted buffer ┐   wire, card to host        ┌──────┐
//!  AW, W ─────▶ TLPs of MPS   ├──▶ one TLP after another ──▶│      │──▶ memory, interrupts
//!  B  ◀───────┘ when taken    │                             │ root │
//!  AR ───────▶ requests, tags ┘                             │      │
//!  R  ◀─────── completions ◀───── one TLP after another ◀───│      │◀── memory, MMIO of the CPUs
//!             └───────────────┘   wire, host to card        └──────┘
//! ```
//!
//! Each direction is one FIFO, so that a TLP's times are known when it is sent: nothing is computed a cycle. Posted
//! writes stay in order and take effect in order; a read request does not pass them; B means that the bridge has the data
//! in posted order. Completions of different AXI IDs may come out of order (`jitter`), within an ID never.
//!
//! Not modelled: flow-control credits of the root (docs/link-model.md says what it must give), replays, power states, relaxed
//! ordering.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::axi::{Addr, MasterOut, Resp, Shape, SlaveOut, WriteBuffer, load_beat};
use crate::host::Host;
use crate::link::{
    COMPLETION_HEADER, DLLP_PAIR, FRAMING, LinkParams, REQUEST_HEADER, TLPS_PER_DLLP_PAIR,
};
use crate::lite::Access;
use crate::rng::Rng;
use crate::time::CYCLE_FS;

/// Longest payload of a TLP that the bridge's buffers take.
const MAX_MPS: usize = 1024;

/// One direction of the link.
#[derive(Debug, Default)]
struct Wire {
    free_fs: u64,
    tlps: u64,
    bytes: u64,
    busy_fs: u64,
    unacknowledged: u64,
}

impl Wire {
    /// Sends `bytes` no earlier than `now`; the time of the last one.
    fn send(&mut self, link: &LinkParams, now: u64, bytes: u64) -> u64 {
        let time = link.wire_fs(bytes);
        self.free_fs = self.free_fs.max(now) + time;
        self.bytes += bytes;
        self.busy_fs += time;
        self.free_fs
    }
}

/// What the link carried, and for how long it was busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// TLPs from the card.
    pub up_tlps: u64,
    /// Bytes from the card, with headers, framing and DLLPs.
    pub up_bytes: u64,
    /// Time that the direction was busy, in ns.
    pub up_busy_ns: u64,
    /// TLPs to the card.
    pub down_tlps: u64,
    /// Bytes to the card.
    pub down_bytes: u64,
    /// As `up_busy_ns`, to the card.
    pub down_busy_ns: u64,
}

enum Up {
    Write(WriteBuffer),
    Read(Request),
    MmioAnswer { token: u64, data: u32 },
}

enum Down {
    Completion {
        slot: usize,
        bytes: usize,
        last: bool,
        resp: Resp,
    },
    Mmio(Access),
}

/// A PCIe memory read request: a part of an AXI read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    slot: usize,
    addr: u64,
    bytes: usize,
}

struct Read {
    addr: Addr,
    beat: u32,
    /// Bus-aligned address of `bytes[0]`.
    base: u64,
    bytes: Vec<u8>,
    /// Bytes of `bytes` that have come: completions of a read come in order.
    arrived: usize,
    resp: Resp,
    /// Is it in `PcieRoot::ready`?
    queued: bool,
}

/// The model. One call of [`PcieRoot::cycle`] a clock cycle.
pub struct PcieRoot {
    link: LinkParams,
    shape: Shape,
    rng: Rng,
    up: Wire,
    down: Wire,
    up_flight: VecDeque<(u64, Up)>,
    down_flight: VecDeque<(u64, Down)>,

    addresses: VecDeque<Addr>,
    beat: u32,
    tlp: WriteBuffer,
    tlp_open: bool,
    burst_resp: Resp,
    spare_tlps: Vec<WriteBuffer>,
    /// When bytes of the posted buffer have left it: (time, bytes).
    posted: VecDeque<(u64, u32)>,
    posted_bytes: u32,
    b: VecDeque<(u32, Resp)>,

    reads: Vec<Option<Read>>,
    free_reads: Vec<usize>,
    spare_data: Vec<Vec<u8>>,
    requests: VecDeque<Request>,
    tags: u16,
    sequence: u64,
    /// When the completion of the last request of each ID is ready.
    order: Vec<u64>,
    completions: BinaryHeap<Reverse<(u64, u64, Request)>>,
    /// Reads with beats to give; the first is being given.
    ready: VecDeque<usize>,

    to_card: VecDeque<Access>,
    to_host: VecDeque<(u64, u32)>,
}

impl PcieRoot {
    /// A link with nothing on it, at a port of this width.
    pub fn new(link: LinkParams, shape: Shape, seed: u64) -> Self {
        let bursts = usize::from(link.bursts);
        PcieRoot {
            link,
            shape,
            rng: Rng::new(seed, 0x9c1e),
            up: Wire::default(),
            down: Wire::default(),
            up_flight: VecDeque::new(),
            down_flight: VecDeque::new(),
            addresses: VecDeque::with_capacity(bursts),
            beat: 0,
            tlp: WriteBuffer::new(MAX_MPS),
            tlp_open: false,
            burst_resp: Resp::Okay,
            spare_tlps: Vec::new(),
            posted: VecDeque::new(),
            posted_bytes: 0,
            b: VecDeque::new(),
            reads: (0..bursts).map(|_| None).collect(),
            free_reads: (0..bursts).rev().collect(),
            spare_data: Vec::new(),
            requests: VecDeque::new(),
            tags: link.tags,
            sequence: 0,
            order: vec![0; shape.ids()],
            completions: BinaryHeap::new(),
            ready: VecDeque::with_capacity(bursts),
            to_card: VecDeque::new(),
            to_host: VecDeque::new(),
        }
    }

    /// What it drives before the first cycle.
    pub fn initial(&self) -> SlaveOut {
        SlaveOut {
            aw_ready: true,
            w_ready: true,
            ar_ready: true,
            ..Default::default()
        }
    }

    /// A CPU accesses a register in cycle `now`.
    pub fn mmio(&mut self, now: u64, access: Access) {
        let payload = if matches!(access, Access::Write { .. }) {
            4
        } else {
            0
        };
        let end = self.send_down(now * CYCLE_FS, REQUEST_HEADER + payload);
        self.down_flight.push_back((end, Down::Mmio(access)));
    }

    /// An access that has reached the card.
    pub fn pop_access(&mut self) -> Option<Access> {
        self.to_card.pop_front()
    }

    /// The card answers a register read in cycle `now`; the answer follows the writes that the card sent before it.
    pub fn answer(&mut self, now: u64, token: u64, data: u32) {
        let end = self.send_up(now * CYCLE_FS, COMPLETION_HEADER + 4);
        let arrives = end + fs(self.link.up_latency);
        self.up_flight
            .push_back((arrives, Up::MmioAnswer { token, data }));
    }

    /// An answer (token, data) that has reached the CPU.
    pub fn pop_answer(&mut self) -> Option<(u64, u32)> {
        self.to_host.pop_front()
    }

    /// Read bursts not finished, and write bursts without B.
    pub fn outstanding(&self) -> (usize, usize) {
        (
            self.reads.len() - self.free_reads.len(),
            self.addresses.len() + self.b.len(),
        )
    }

    /// Is anything on its way, in either direction?
    pub fn busy(&self) -> bool {
        self.outstanding() != (0, 0) || !self.up_flight.is_empty() || !self.down_flight.is_empty()
    }

    /// What was carried since construction.
    pub fn stats(&self) -> LinkStats {
        LinkStats {
            up_tlps: self.up.tlps,
            up_bytes: self.up.bytes,
            up_busy_ns: self.up.busy_fs / 1_000_000,
            down_tlps: self.down.tlps,
            down_bytes: self.down.bytes,
            down_busy_ns: self.down.busy_fs / 1_000_000,
        }
    }

    /// Takes the handshakes of cycle `now`, in which the card drives `m` and the bridge drives `s`; leaves in `s` what it
    /// drives in the next cycle. True when anything happened.
    pub fn cycle(&mut self, now: u64, m: &MasterOut, s: &mut SlaveOut, host: &mut Host) -> bool {
        let next_fs = (now + 1) * CYCLE_FS;
        let mut changed = self.handshakes(now, m, s, host);
        while self.up_flight.front().is_some_and(|(at, _)| *at <= next_fs) {
            changed = true;
            self.arrive_up(host);
        }
        while self
            .completions
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= next_fs)
        {
            changed = true;
            self.complete(host);
        }
        while self
            .down_flight
            .front()
            .is_some_and(|(at, _)| *at <= next_fs)
        {
            changed = true;
            self.arrive_down();
        }
        while self.posted.front().is_some_and(|(at, _)| *at <= next_fs) {
            changed = true;
            self.posted_bytes -= self.posted.pop_front().map_or(0, |(_, bytes)| bytes);
        }
        if changed {
            self.request(now);
            self.drive(s);
        }
        changed
    }

    /// The next cycle in which this model changes its outputs or the host by itself, if it waits for one.
    pub fn next_event(&self) -> Option<u64> {
        if !self.ready.is_empty() || !self.b.is_empty() {
            return Some(0);
        }
        let times = [
            self.up_flight.front().map(|(at, _)| *at),
            self.down_flight.front().map(|(at, _)| *at),
            self.completions.peek().map(|Reverse((at, ..))| *at),
            self.posted.front().map(|(at, _)| *at),
        ];
        times
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.div_ceil(CYCLE_FS))
    }

    fn handshakes(&mut self, now: u64, m: &MasterOut, s: &mut SlaveOut, host: &mut Host) -> bool {
        let mut changed = false;
        if m.ar_valid && s.ar_ready {
            changed = true;
            self.accept_read(m.ar);
        }
        if m.aw_valid && s.aw_ready {
            changed = true;
            self.addresses.push_back(m.aw);
        }
        if m.w_valid && s.w_ready {
            changed = true;
            self.accept_data(now, m, host);
        }
        if s.b_valid && m.b_ready {
            changed = true;
            s.b_valid = false;
        }
        if s.r_valid && m.r_ready {
            changed = true;
            s.r_valid = false;
            self.finish_beat();
        }
        changed
    }

    fn drive(&mut self, s: &mut SlaveOut) {
        if !s.b_valid
            && let Some((id, resp)) = self.b.pop_front()
        {
            (s.b_valid, s.b_id, s.b_resp) = (true, id, resp);
        }
        if !s.r_valid && !self.ready.is_empty() {
            self.offer_r(s);
        }
        let bursts = usize::from(self.link.bursts);
        s.ar_ready = !self.free_reads.is_empty();
        s.aw_ready = self.addresses.len() + self.b.len() < bursts;
        // Room for the beat on the bus now and one more.
        let room = self.posted_bytes + 2 * self.shape.data_bytes as u32 <= self.link.posted_bytes;
        s.w_ready = room && (!self.addresses.is_empty() || s.aw_ready);
    }

    fn accept_data(&mut self, now: u64, m: &MasterOut, host: &mut Host) {
        // The checker has refused data without an address.
        let Some(a) = self.addresses.front().copied() else {
            return;
        };
        let addr = a.beat_addr(self.beat);
        if !self.tlp_open {
            self.tlp_open = true;
            self.tlp.start(addr, self.shape);
        }
        self.tlp.push(addr, m.w_strb, &m.w_data, self.shape);
        self.posted_bytes += self.shape.data_bytes as u32;
        self.beat += 1;
        let last = self.beat == a.beats();
        if last || self.tlp.used() + self.shape.data_bytes > usize::from(self.link.mps) {
            self.send_write(now, host);
        }
        if last {
            self.beat = 0;
            self.addresses.pop_front();
            self.b
                .push_back((a.id, std::mem::take(&mut self.burst_resp)));
        }
    }

    fn send_write(&mut self, now: u64, host: &mut Host) {
        self.tlp_open = false;
        let occupied = self.tlp.used() as u32;
        let mut refused = false;
        self.tlp.runs(self.shape, |addr, data| {
            refused |= !host.accepts(addr, data.len())
        });
        if refused {
            self.burst_resp = Resp::DecErr;
        }
        if refused || self.tlp.data().is_empty() {
            self.posted_bytes -= occupied;
            return;
        }
        let spare = self
            .spare_tlps
            .pop()
            .unwrap_or_else(|| WriteBuffer::new(MAX_MPS));
        let tlp = std::mem::replace(&mut self.tlp, spare);
        // The payload is whole double words; first and last byte enables are in the header.
        let (first, end) = (
            tlp.addr() & !3,
            (tlp.addr() + tlp.data().len() as u64).next_multiple_of(4),
        );
        let left = self.send_up(now * CYCLE_FS, REQUEST_HEADER + (end - first));
        self.posted.push_back((left, occupied));
        self.up_flight
            .push_back((left + fs(self.link.up_latency), Up::Write(tlp)));
    }

    fn accept_read(&mut self, a: Addr) {
        // `ar_ready` says that there is one.
        let Some(slot) = self.free_reads.pop() else {
            return;
        };
        let base = a.addr & !(self.shape.data_bytes as u64 - 1);
        let end = a.addr + a.bytes();
        let mut bytes = self.spare_data.pop().unwrap_or_default();
        bytes.resize(
            ((end - base) as usize).next_multiple_of(self.shape.data_bytes),
            0,
        );
        bytes[..(a.addr - base) as usize].fill(0xa5);
        let arrived = (a.addr - base) as usize;
        self.reads[slot] = Some(Read {
            addr: a,
            beat: 0,
            base,
            bytes,
            arrived,
            resp: Resp::Okay,
            queued: false,
        });
        let mrrs = u64::from(self.link.mrrs);
        let mut addr = a.addr;
        while addr < end {
            let next = (addr / mrrs + 1).saturating_mul(mrrs).min(end);
            self.requests.push_back(Request {
                slot,
                addr,
                bytes: (next - addr) as usize,
            });
            addr = next;
        }
    }

    /// Sends read requests while there are tags.
    fn request(&mut self, now: u64) {
        while self.tags > 0
            && let Some(request) = self.requests.pop_front()
        {
            self.tags -= 1;
            let end = self.send_up(now * CYCLE_FS, REQUEST_HEADER);
            self.up_flight
                .push_back((end + fs(self.link.up_latency), Up::Read(request)));
        }
    }

    fn arrive_up(&mut self, host: &mut Host) {
        let Some((at, item)) = self.up_flight.pop_front() else {
            return;
        };
        match item {
            Up::Write(tlp) => {
                tlp.runs(self.shape, |addr, data| {
                    host.deliver(addr, data);
                });
                self.spare_tlps.push(tlp);
            }
            Up::Read(request) => {
                let drawn = if self.link.jitter > 0 {
                    self.rng.below(u64::from(self.link.jitter) + 1)
                } else {
                    0
                };
                let Some(read) = self.reads[request.slot].as_ref() else {
                    return;
                };
                let id = read.addr.id as usize & (self.order.len() - 1);
                let ready = at + fs(self.link.memory_latency) + drawn * 1_000_000;
                self.order[id] = self.order[id].max(ready);
                self.sequence += 1;
                self.completions
                    .push(Reverse((self.order[id], self.sequence, request)));
            }
            Up::MmioAnswer { token, data } => self.to_host.push_back((token, data)),
        }
    }

    /// Reads memory and sends the completions of the request that is due.
    fn complete(&mut self, host: &mut Host) {
        let Some(Reverse((at, _, request))) = self.completions.pop() else {
            return;
        };
        let Some(read) = self.reads[request.slot].as_mut() else {
            return;
        };
        let from = (request.addr - read.base) as usize;
        let slot = request.slot;
        if !host
            .memory
            .read(request.addr, &mut read.bytes[from..from + request.bytes])
        {
            // Unsupported Request: one completion without data.
            read.bytes[from..from + request.bytes].fill(0xff);
            let end = self.send_down(at, COMPLETION_HEADER);
            let all = Down::Completion {
                slot,
                bytes: request.bytes,
                last: true,
                resp: Resp::SlvErr,
            };
            self.down_flight.push_back((end, all));
            return;
        }
        let mps = u64::from(self.link.mps);
        let (mut addr, end) = (request.addr, request.addr + request.bytes as u64);
        while addr < end {
            // A completion ends on a Read Completion Boundary (any of 64 bytes divides MPS), PCIe 2.3.1.1.
            let next = ((addr / mps + 1) * mps).min(end);
            let payload = next.next_multiple_of(4) - (addr & !3);
            let left = self.send_down(at, COMPLETION_HEADER + payload);
            let bytes = (next - addr) as usize;
            self.down_flight.push_back((
                left,
                Down::Completion {
                    slot,
                    bytes,
                    last: next == end,
                    resp: Resp::Okay,
                },
            ));
            addr = next;
        }
    }

    fn arrive_down(&mut self) {
        match self.down_flight.pop_front() {
            Some((
                _,
                Down::Completion {
                    slot,
                    bytes,
                    last,
                    resp,
                },
            )) => {
                self.tags += u16::from(last);
                let Some(read) = self.reads[slot].as_mut() else {
                    return;
                };
                read.arrived += bytes;
                read.resp = read.resp.max(resp);
                if !read.queued && beat_there(read, self.shape) {
                    read.queued = true;
                    self.ready.push_back(slot);
                }
            }
            Some((_, Down::Mmio(access))) => self.to_card.push_back(access),
            None => {}
        }
    }

    fn offer_r(&mut self, s: &mut SlaveOut) {
        if self.link.interleave {
            self.mix();
        }
        let Some(read) = self
            .ready
            .front()
            .and_then(|slot| self.reads[*slot].as_ref())
        else {
            return;
        };
        let width = self.shape.data_bytes;
        let at = (read.addr.beat_addr(read.beat) - read.base) as usize & !(width - 1);
        load_beat(&read.bytes[at..at + width], &mut s.r_data);
        (s.r_valid, s.r_id, s.r_resp) = (true, read.addr.id, read.resp);
        s.r_last = read.beat + 1 == read.addr.beats();
    }

    /// Brings another read to the front, the first of its ID.
    fn mix(&mut self) {
        let pick = self.rng.below(self.ready.len() as u64) as usize;
        let id = |slot: usize| self.reads[slot].as_ref().map(|read| read.addr.id);
        let wanted = id(self.ready[pick]);
        if let Some(first) = self.ready.iter().position(|slot| id(*slot) == wanted)
            && let Some(slot) = self.ready.remove(first)
        {
            self.ready.push_front(slot);
        }
    }

    /// The beat on R was taken: leave the read when it is finished or its next beat is not there.
    fn finish_beat(&mut self) {
        let Some(&slot) = self.ready.front() else {
            return;
        };
        let Some(read) = self.reads[slot].as_mut() else {
            return;
        };
        read.beat += 1;
        if read.beat == read.addr.beats() {
            self.ready.pop_front();
            self.spare_data
                .extend(self.reads[slot].take().map(|read| read.bytes));
            self.free_reads.push(slot);
        } else if !beat_there(read, self.shape) {
            read.queued = false;
            self.ready.pop_front();
        }
    }

    fn send_up(&mut self, now_fs: u64, bytes: u64) -> u64 {
        self.up.tlps += 1;
        acknowledge(&self.link, &mut self.up, &mut self.down, now_fs);
        self.up.send(&self.link, now_fs, FRAMING + bytes)
    }

    /// The time at which the card has the TLP.
    fn send_down(&mut self, now_fs: u64, bytes: u64) -> u64 {
        self.down.tlps += 1;
        acknowledge(&self.link, &mut self.down, &mut self.up, now_fs);
        self.down.send(&self.link, now_fs, FRAMING + bytes) + fs(self.link.down_latency)
    }
}

/// Charges the other direction with the Ack and the UpdateFC of a few TLPs.
fn acknowledge(link: &LinkParams, of: &mut Wire, other: &mut Wire, now_fs: u64) {
    of.unacknowledged += 1;
    if of.unacknowledged == TLPS_PER_DLLP_PAIR {
        of.unacknowledged = 0;
        other.send(link, now_fs, DLLP_PAIR);
    }
}

/// Has the next beat of this read come completely?
fn beat_there(read: &Read, shape: Shape) -> bool {
    let at = (read.addr.beat_addr(read.beat) - read.base) as usize & !(shape.data_bytes - 1);
    let end = (read.addr.addr + read.addr.bytes() - read.base) as usize;
    read.arrived >= (at + shape.data_bytes).min(end)
}

/// Nanoseconds as femtoseconds.
fn fs(ns: u32) -> u64 {
    u64::from(ns) * 1_000_000
}

#[cfg(test)]
mod tests;
