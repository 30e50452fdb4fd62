//! AXI4 masters in plain Rust, for the tests of what lies between the card's blocks and its ports.

#![allow(dead_code)] // Each test uses its part.

use super::axi::Memory;
use super::common::{Stall, rng};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{HashMap, VecDeque};
use verilator_sys::{In, Out, Sim, WideIn, WideOut};

/// Reads at random and checks every beat against memory, which must not change.
pub struct ReadMaster {
    rng: ChaCha8Rng,
    ask: Stall,
    take: Stall,
    stalls: bool,
    ar: (In, In, In, In, Out),
    r: (Out, Out, WideOut, Out, Out, In),
    beat_bytes: u64,
    /// Ids that are not in flight.
    free: Vec<u64>,
    offered: Option<(u64, u64, u64)>,
    /// By id: address, len, beats that came.
    flights: HashMap<u64, (u64, u64, u64)>,
    ready: bool,
    /// No new reads.
    pub stop: bool,
    /// Bursts that ended.
    pub ended: u64,
}

impl ReadMaster {
    /// A master on the ports `ar`_valid.. and `r`_valid.. of the block, with these ids.
    pub fn new(sim: &Sim, ar: &str, r: &str, ids: Vec<u64>, stalls: bool, seed: u64) -> ReadMaster {
        let i = |n: &str| sim.input(&format!("{ar}_{n}")).expect("port");
        let o = |n: &str| sim.output(&format!("{r}_{n}")).expect("port");
        let data = sim.wide_output(&format!("{r}_data")).expect("port");
        let ar_ready = sim.output(&format!("{ar}_ready")).expect("port");
        let r_ready = sim.input(&format!("{r}_ready")).expect("port");
        ReadMaster {
            rng: rng(seed),
            ask: Stall::new(seed ^ 11),
            take: Stall::new(seed ^ 12),
            stalls,
            ar: (i("valid"), i("id"), i("addr"), i("len"), ar_ready),
            r: (o("valid"), o("id"), data, o("resp"), o("last"), r_ready),
            beat_bytes: data.width() as u64 / 8,
            free: ids,
            offered: None,
            flights: HashMap::new(),
            ready: false,
            stop: false,
            ended: 0,
        }
    }

    /// Bursts in flight.
    pub fn outstanding(&self) -> usize {
        self.flights.len()
    }

    /// Drives the ports for this cycle.
    pub fn drive(&mut self, sim: &mut Sim) {
        let go = !self.stop && !self.free.is_empty() && (!self.stalls || self.ask.go());
        if self.offered.is_none() && go {
            let id = self
                .free
                .swap_remove(self.rng.random_range(0..self.free.len()));
            let beats = 4096 / self.beat_bytes;
            let first = self.rng.random_range(0..beats);
            let len = self.rng.random_range(0..(beats - first).min(6));
            let page = self.rng.random_range(0..1u64 << 40);
            let offset = 4 * self.rng.random_range(0..self.beat_bytes / 4);
            let addr = page * 4096 + first * self.beat_bytes + offset;
            self.offered = Some((id, addr, len));
        }
        sim.set(self.ar.0, self.offered.is_some());
        if let Some((id, addr, len)) = self.offered {
            sim.set(self.ar.1, id);
            sim.set(self.ar.2, addr);
            sim.set(self.ar.3, len);
        }
        self.ready = !self.stalls || self.take.go();
        sim.set(self.r.5, self.ready);
    }

    /// After eval: what moves at the coming clock edge.
    pub fn sample(&mut self, sim: &Sim, memory: &Memory) {
        if self.ready && sim.is(self.r.0) {
            let id = sim.get(self.r.1);
            let flight = self.flights.get_mut(&id);
            let (addr, len, beat) = flight.unwrap_or_else(|| panic!("R of id {id}, not in flight"));
            let at = (*addr / self.beat_bytes + *beat) * self.beat_bytes;
            let mut words = vec![0; self.r.2.words()];
            sim.get_wide(self.r.2, &mut words);
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let front = addr.saturating_sub(at) as usize;
            let want = memory.read(at, self.beat_bytes as usize);
            assert_eq!(bytes[front..], want[front..], "R of id {id}, beat {beat}");
            let bad = memory.bad_reads.contains(&(at / 4096));
            assert_eq!(sim.get(self.r.3), if bad { 2 } else { 0 });
            assert_eq!(sim.is(self.r.4), beat == len, "RLAST of id {id}");
            *beat += 1;
            if *beat > *len {
                self.flights.remove(&id);
                self.free.push(id);
                self.ended += 1;
            }
        }
        if sim.is(self.ar.4)
            && let Some((id, addr, len)) = self.offered.take()
        {
            self.flights.insert(id, (addr, len, 0));
        }
    }
}

struct Burst {
    id: u64,
    addr: u64,
    data: Vec<u8>,
}

/// Writes at random, on pages of its own, and checks memory at every B: the oldest burst of that id must be there.
pub struct WriteMaster {
    rng: ChaCha8Rng,
    ask: Stall,
    send: Stall,
    stalls: bool,
    aw: (In, In, In, In, Out),
    w: (In, WideIn, In, In, Out),
    b: (Out, Out, In),
    beat_bytes: u64,
    ids: Vec<u64>,
    /// An id may be in flight more than once; its answers keep their order.
    repeating: bool,
    next_page: u64,
    offered: Option<Burst>,
    beats: VecDeque<(Vec<u8>, bool)>,
    sending: bool,
    flights: Vec<Burst>,
    /// Most addresses ahead of their data.
    ahead: usize,
    longest: u64,
    /// No new writes.
    pub stop: bool,
    /// Bursts that ended.
    pub ended: u64,
}

impl WriteMaster {
    /// A master on the ports `aw`_valid.., `w`_valid.. and `b`_valid.. of the block, with these ids, on pages from `page` on.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        sim: &Sim,
        [aw, w, b]: [&str; 3],
        ids: Vec<u64>,
        repeating: bool,
        longest: u64,
        page: u64,
        stalls: bool,
        seed: u64,
    ) -> WriteMaster {
        let i = |n: &str| sim.input(&format!("{aw}_{n}")).expect("port");
        let data = sim.wide_input(&format!("{w}_data")).expect("port");
        WriteMaster {
            rng: rng(seed),
            ask: Stall::new(seed ^ 21),
            send: Stall::new(seed ^ 22),
            stalls,
            aw: (
                i("valid"),
                i("id"),
                i("addr"),
                i("len"),
                sim.output(&format!("{aw}_ready")).expect("port"),
            ),
            w: (
                sim.input(&format!("{w}_valid")).expect("port"),
                data,
                sim.input(&format!("{w}_strb")).expect("port"),
                sim.input(&format!("{w}_last")).expect("port"),
                sim.output(&format!("{w}_ready")).expect("port"),
            ),
            b: (
                sim.output(&format!("{b}_valid")).expect("port"),
                sim.output(&format!("{b}_id")).expect("port"),
                sim.input(&format!("{b}_ready")).expect("port"),
            ),
            beat_bytes: data.width() as u64 / 8,
            ids,
            repeating,
            next_page: page,
            offered: None,
            beats: VecDeque::new(),
            sending: false,
            flights: vec![],
            ahead: 3,
            longest,
            stop: false,
            ended: 0,
        }
    }

    /// Bursts in flight.
    pub fn outstanding(&self) -> usize {
        self.flights.len()
    }

    /// Drives the ports for this cycle.
    pub fn drive(&mut self, sim: &mut Sim) {
        let waiting = self.beats.iter().filter(|b| b.1).count();
        let in_flight = |id: &u64| self.flights.iter().any(|f| f.id == *id);
        let able: Vec<u64> = if self.repeating {
            self.ids.clone()
        } else {
            self.ids.iter().copied().filter(|i| !in_flight(i)).collect()
        };
        let go = !self.stop
            && !able.is_empty()
            && waiting < self.ahead
            && (!self.stalls || self.ask.go());
        if self.offered.is_none() && go {
            let id = able[self.rng.random_range(0..able.len())];
            let beats = 1 + self.rng.random_range(0..self.longest);
            let data: Vec<u8> = (0..beats * self.beat_bytes)
                .map(|_| self.rng.random())
                .collect();
            let addr = self.next_page * 4096;
            self.next_page += 1;
            self.offered = Some(Burst { id, addr, data });
        }
        sim.set(self.aw.0, self.offered.is_some());
        if let Some(b) = &self.offered {
            sim.set(self.aw.1, b.id);
            sim.set(self.aw.2, b.addr);
            sim.set(self.aw.3, b.data.len() as u64 / self.beat_bytes - 1);
        }
        self.sending |= !self.beats.is_empty() && (!self.stalls || self.send.go());
        sim.set(self.w.0, self.sending);
        if let Some((data, last)) = self.beats.front() {
            let words: Vec<u64> = data
                .chunks(8)
                .map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes")))
                .collect();
            sim.set_wide(self.w.1, &words);
            sim.set(self.w.2, u64::MAX >> (64 - self.beat_bytes));
            sim.set(self.w.3, *last);
        }
        sim.set(self.b.2, 1);
    }

    /// After eval: what moves at the coming clock edge.
    pub fn sample(&mut self, sim: &Sim, memory: &Memory) {
        if sim.is(self.b.0) {
            let id = sim.get(self.b.1);
            let oldest = self.flights.iter().position(|f| f.id == id);
            let oldest = oldest.unwrap_or_else(|| panic!("B of id {id}, not in flight"));
            let burst = self.flights.remove(oldest);
            let there = memory.read(burst.addr, burst.data.len());
            assert!(
                there == burst.data,
                "B of id {id} before its data, or out of order"
            );
            self.ended += 1;
        }
        if self.sending && sim.is(self.w.4) {
            self.beats.pop_front();
            self.sending = false;
        }
        if sim.is(self.aw.4)
            && let Some(burst) = self.offered.take()
        {
            let beats = burst.data.chunks(self.beat_bytes as usize);
            let n = beats.len();
            self.beats
                .extend(beats.enumerate().map(|(i, b)| (b.to_vec(), i + 1 == n)));
            self.flights.push(burst);
        }
    }
}
