//! An AXI4 slave with a latency: the media controller, the zero-latency host, and the test slave that delays, reorders
//! and back-pressures, are this with other [`Behaviour`]s and [`Target`]s.
//!
//! ```text
//!   AR ──▶ [ heap by ready time ] ──▶ one burst at a time ──▶ R      (beats of two bursts mix only with `interleave`)
//!   AW ──▶ [ addresses ] ─┐
//!   W  ──▶ [ buffer ] ────┴─▶ Target::write ──▶ [ heap by ready time ] ──▶ B
//! ```
//!
//! Within an ID answers keep their order; between IDs the one that is ready first goes first. With no latency R is valid
//! in the cycle after AR, B in the cycle after WLAST, and every ready is high.

use slab::Slab;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::axi::{Addr, BOUNDARY, MasterOut, Resp, Shape, SlaveOut, WriteBuffer, load_beat};
use crate::rng::Rng;

/// What answers behind the slave.
pub trait Target {
    /// Fills `out` from `addr` on.
    fn read(&mut self, addr: u64, out: &mut [u8]) -> Resp;
    /// Takes contiguous enabled bytes of a write; called once for each run between bytes that strobes left out.
    fn write(&mut self, addr: u64, data: &[u8]) -> Resp;
    /// Cycles from the acceptance of a burst's address (read) or last data (write) to its answer, beyond the one that
    /// every slave needs.
    fn latency(&mut self, now: u64, addr: u64, bytes: u64, write: bool) -> u64;
}

/// How the slave handles its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Bursts it accepts before it has answered, for each direction: at least 1.
    pub outstanding: usize,
    /// Chance that a ready is high or an answer is offered in a cycle, in percent; 100 for never stalling.
    pub ready_percent: u32,
    /// Most cycles added to a burst's latency, drawn for each; reorders answers between IDs.
    pub jitter: u64,
    /// Beats of bursts with different IDs may mix on R.
    pub interleave: bool,
    /// Written data becomes visible only when B is given, not when it was accepted.
    pub late_writes: bool,
    /// Writes of more than 64 bytes are lost, though answered as good: a fault, for tests of who must notice.
    pub loses_data: bool,
}

impl Behaviour {
    /// Always ready, in order of readiness, no interleaving.
    pub const PLAIN: Behaviour = Behaviour {
        outstanding: 256,
        ready_percent: 100,
        jitter: 0,
        interleave: false,
        late_writes: false,
        loses_data: false,
    };

    /// The worst that AXI allows: for tests.
    pub const HOSTILE: Behaviour = Behaviour {
        outstanding: 8,
        ready_percent: 60,
        jitter: 40,
        interleave: true,
        late_writes: true,
        loses_data: false,
    };
}

/// Counts since construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlaveStats {
    /// Read bursts accepted.
    pub reads: u64,
    /// Write bursts accepted.
    pub writes: u64,
    /// Beats given on R.
    pub r_beats: u64,
    /// Beats taken on W.
    pub w_beats: u64,
}

struct ReadBurst {
    addr: Addr,
    beat: u32,
    /// Bus-aligned address of `bytes[0]`.
    base: u64,
    resp: Resp,
    bytes: Vec<u8>,
}

struct Waiting {
    addr: Addr,
    /// Set for writes whose data is not visible yet.
    buffer: Option<WriteBuffer>,
    resp: Resp,
}

type Queue = BinaryHeap<Reverse<(u64, u64, usize)>>;

/// The slave. One call of [`Slave::cycle`] a clock cycle.
pub struct Slave {
    shape: Shape,
    behaviour: Behaviour,
    rng: Rng,
    sequence: u64,
    /// When the last accepted burst of each ID is ready: later ones are not before it.
    read_order: Vec<u64>,
    write_order: Vec<u64>,
    reads: Queue,
    read_slots: Slab<Addr>,
    active: Vec<ReadBurst>,
    current: usize,
    spare: Vec<Vec<u8>>,
    addresses: VecDeque<Addr>,
    beat: u32,
    buffer: WriteBuffer,
    answers: Queue,
    answer_slots: Slab<Waiting>,
    spare_buffers: Vec<WriteBuffer>,
    stats: SlaveStats,
}

impl Slave {
    /// A slave of this width. Equal seeds behave equally.
    pub fn new(shape: Shape, behaviour: Behaviour, seed: u64) -> Self {
        Slave {
            shape,
            behaviour,
            rng: Rng::new(seed, 0x51a7e),
            sequence: 0,
            read_order: vec![0; shape.ids()],
            write_order: vec![0; shape.ids()],
            reads: Queue::new(),
            read_slots: Slab::new(),
            active: Vec::new(),
            current: 0,
            spare: Vec::new(),
            addresses: VecDeque::new(),
            beat: 0,
            buffer: WriteBuffer::new(BOUNDARY as usize),
            answers: Queue::new(),
            answer_slots: Slab::new(),
            spare_buffers: Vec::new(),
            stats: SlaveStats::default(),
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

    /// Takes the handshakes of cycle `now`, in which the master drives `m` and this slave drives `s`; leaves in `s` what
    /// it drives in the next cycle. True when a handshake took place or `s` changed.
    pub fn cycle(
        &mut self,
        now: u64,
        m: &MasterOut,
        s: &mut SlaveOut,
        target: &mut impl Target,
    ) -> bool {
        let random = self.behaviour.ready_percent < 100;
        let mut changed = random;
        if m.ar_valid && s.ar_ready {
            changed = true;
            self.accept_read(now, m.ar, target);
        }
        if m.aw_valid && s.aw_ready {
            changed = true;
            self.addresses.push_back(m.aw);
            self.stats.writes += 1;
        }
        if m.w_valid && s.w_ready {
            changed = true;
            self.accept_data(now, m, target);
        }
        if s.b_valid && m.b_ready {
            changed = true;
            s.b_valid = false;
        }
        if s.r_valid && m.r_ready {
            changed = true;
            s.r_valid = false;
            self.stats.r_beats += 1;
            self.finish_beat();
        }
        if !s.b_valid {
            changed |= self.offer_b(now, s, target);
        }
        if !s.r_valid {
            changed |= self.offer_r(now, s, target);
        }
        if changed {
            self.drive_ready(s);
        }
        changed
    }

    /// The next cycle in which this slave changes its outputs by itself, if it waits for one.
    pub fn next_event(&self) -> Option<u64> {
        if self.behaviour.ready_percent < 100 || !self.active.is_empty() {
            return Some(0);
        }
        let ready = |queue: &Queue| queue.peek().map(|Reverse((at, ..))| *at);
        [ready(&self.reads), ready(&self.answers)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Read and write bursts accepted and not yet answered.
    pub fn outstanding(&self) -> (usize, usize) {
        (
            self.reads.len() + self.active.len(),
            self.addresses.len() + self.answers.len(),
        )
    }

    /// Counts since construction.
    pub fn stats(&self) -> SlaveStats {
        self.stats
    }

    fn drive_ready(&mut self, s: &mut SlaveOut) {
        let room = self.behaviour.outstanding;
        let (reads, writes) = self.outstanding();
        s.ar_ready = reads < room && self.rng.percent(self.behaviour.ready_percent);
        s.aw_ready = writes < room && self.rng.percent(self.behaviour.ready_percent);
        // Data is not taken before its address, which comes at the latest in the same cycle.
        s.w_ready = (!self.addresses.is_empty() || s.aw_ready)
            && self.rng.percent(self.behaviour.ready_percent);
    }

    fn ready_at(&mut self, now: u64, a: &Addr, write: bool, target: &mut impl Target) -> u64 {
        let jitter = self.behaviour.jitter;
        let drawn = if jitter > 0 {
            self.rng.below(jitter + 1)
        } else {
            0
        };
        let latency = target.latency(now, a.addr, a.bytes(), write) + drawn;
        let order = if write {
            &mut self.write_order
        } else {
            &mut self.read_order
        };
        let index = a.id as usize & (order.len() - 1);
        order[index] = order[index].max(now + 1 + latency);
        order[index]
    }

    fn accept_read(&mut self, now: u64, a: Addr, target: &mut impl Target) {
        let ready = self.ready_at(now, &a, false, target);
        self.stats.reads += 1;
        self.sequence += 1;
        self.reads
            .push(Reverse((ready, self.sequence, self.read_slots.insert(a))));
    }

    fn accept_data(&mut self, now: u64, m: &MasterOut, target: &mut impl Target) {
        self.stats.w_beats += 1;
        // The checker has refused data without an address.
        let Some(a) = self.addresses.front().copied() else {
            return;
        };
        if self.beat == 0 {
            self.buffer.start(a.addr, self.shape);
        }
        self.buffer
            .push(a.beat_addr(self.beat), m.w_strb, &m.w_data, self.shape);
        self.beat += 1;
        if self.beat < a.beats() {
            return;
        }
        self.beat = 0;
        self.addresses.pop_front();
        let ready = self.ready_at(now, &a, true, target);
        let mut waiting = Waiting {
            addr: a,
            buffer: None,
            resp: Resp::Okay,
        };
        if self.behaviour.late_writes {
            let spare = self
                .spare_buffers
                .pop()
                .unwrap_or_else(|| WriteBuffer::new(BOUNDARY as usize));
            waiting.buffer = Some(std::mem::replace(&mut self.buffer, spare));
        } else {
            waiting.resp = write(&self.buffer, self.shape, target, &self.behaviour);
        }
        self.sequence += 1;
        self.answers.push(Reverse((
            ready,
            self.sequence,
            self.answer_slots.insert(waiting),
        )));
    }

    fn offer_b(&mut self, now: u64, s: &mut SlaveOut, target: &mut impl Target) -> bool {
        let Some(&Reverse((ready, _, slot))) = self.answers.peek() else {
            return false;
        };
        if ready > now + 1 || !self.rng.percent(self.behaviour.ready_percent) {
            return false;
        }
        self.answers.pop();
        let mut waiting = self.answer_slots.remove(slot);
        if let Some(buffer) = waiting.buffer.take() {
            waiting.resp = write(&buffer, self.shape, target, &self.behaviour);
            self.spare_buffers.push(buffer);
        }
        (s.b_valid, s.b_id, s.b_resp) = (true, waiting.addr.id, waiting.resp);
        true
    }

    fn offer_r(&mut self, now: u64, s: &mut SlaveOut, target: &mut impl Target) -> bool {
        let most = if self.behaviour.interleave { 4 } else { 1 };
        while self.active.len() < most && self.start_read(now, target) {}
        if self.active.is_empty() || !self.rng.percent(self.behaviour.ready_percent) {
            return false;
        }
        self.current = match self.active.len() {
            1 => 0,
            n => self.rng.below(n as u64) as usize,
        };
        let burst = &self.active[self.current];
        let width = self.shape.data_bytes;
        let at = (burst.addr.beat_addr(burst.beat) - burst.base) as usize & !(width - 1);
        load_beat(&burst.bytes[at..at + width], &mut s.r_data);
        (s.r_valid, s.r_id, s.r_resp) = (true, burst.addr.id, burst.resp);
        s.r_last = burst.beat + 1 == burst.addr.beats();
        true
    }

    /// Moves the read that is due into `active`; false when none is due or its ID is still being answered.
    fn start_read(&mut self, now: u64, target: &mut impl Target) -> bool {
        let Some(&Reverse((ready, _, slot))) = self.reads.peek() else {
            return false;
        };
        let due = ready <= now + 1
            && self
                .active
                .iter()
                .all(|b| b.addr.id != self.read_slots[slot].id);
        if !due {
            return false;
        }
        self.reads.pop();
        let addr = self.read_slots.remove(slot);
        let base = addr.addr & !(self.shape.data_bytes as u64 - 1);
        let end = addr.addr + addr.bytes();
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(
            ((end - base) as usize).next_multiple_of(self.shape.data_bytes),
            0,
        );
        let before = (addr.addr - base) as usize;
        let length = (end - base) as usize;
        // Lanes that the burst does not ask for carry what nobody may use.
        bytes[..before].fill(0xa5);
        bytes[length..].fill(0xa5);
        let resp = target.read(addr.addr, &mut bytes[before..length]);
        self.active.push(ReadBurst {
            addr,
            beat: 0,
            base,
            resp,
            bytes,
        });
        true
    }

    fn finish_beat(&mut self) {
        let burst = &mut self.active[self.current];
        burst.beat += 1;
        if burst.beat == burst.addr.beats() {
            self.spare.push(self.active.swap_remove(self.current).bytes);
        }
    }
}

fn write(
    buffer: &WriteBuffer,
    shape: Shape,
    target: &mut impl Target,
    behaviour: &Behaviour,
) -> Resp {
    let mut worst = Resp::Okay;
    buffer.runs(shape, |addr, data| {
        if !behaviour.loses_data || data.len() <= 64 {
            worst = worst.max(target.write(addr, data));
        }
    });
    worst
}

#[cfg(test)]
mod tests;
