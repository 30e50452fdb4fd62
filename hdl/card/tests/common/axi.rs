//! AXI4 slaves in plain Rust for the tests of the data path: random stalls, latency, order and interleaving, injected
//! errors, and every rule that the master must keep checked.

#![allow(dead_code)] // Each test uses its part.

use super::common::{Stall, rng};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{HashMap, HashSet, VecDeque};
use verilator_sys::{In, Out, Sim, WideIn, WideOut};

/// Sparse memory. Bytes never written follow from their address and the seed.
#[derive(Clone)]
pub struct Memory {
    pub seed: u64,
    pages: HashMap<u64, Box<[u8; 4096]>>,
    /// Reads of these 4 KiB pages answer SLVERR.
    pub bad_reads: HashSet<u64>,
    /// Writes to these 4 KiB pages answer SLVERR, and change nothing.
    pub bad_writes: HashSet<u64>,
}

impl Memory {
    /// Nothing written yet.
    pub fn new(seed: u64) -> Memory {
        Memory {
            seed,
            pages: HashMap::new(),
            bad_reads: HashSet::new(),
            bad_writes: HashSet::new(),
        }
    }

    fn fresh(&self, page: u64) -> Box<[u8; 4096]> {
        let mut bytes = Box::new([0; 4096]);
        for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
            let x = (page * 512 + i as u64) ^ self.seed.wrapping_mul(0x9e37_79b9);
            let x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word.copy_from_slice(
                &(x ^ (x >> 29))
                    .wrapping_mul(0x94d0_49bb_1331_11eb)
                    .to_le_bytes(),
            );
        }
        bytes
    }

    /// Calls `f(at, offset in the page, bytes)` for the part of each page that `addr..addr + n` touches.
    fn parts(addr: u64, n: usize, mut f: impl FnMut(usize, u64, std::ops::Range<usize>)) {
        let mut at = 0;
        while at < n {
            let offset = (addr as usize + at) % 4096;
            let len = (n - at).min(4096 - offset);
            f(at, (addr + at as u64) / 4096, offset..offset + len);
            at += len;
        }
    }

    /// `n` bytes from `addr` on.
    pub fn read(&self, addr: u64, n: usize) -> Vec<u8> {
        let mut out = vec![0; n];
        Memory::parts(addr, n, |at, page, range| {
            let part = &mut out[at..at + range.len()];
            match self.pages.get(&page) {
                Some(p) => part.copy_from_slice(&p[range]),
                None => part.copy_from_slice(&self.fresh(page)[range]),
            }
        });
        out
    }

    /// Writes `bytes` at `addr`.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) {
        Memory::parts(addr, bytes.len(), |at, page, range| {
            let n = range.len();
            if !self.pages.contains_key(&page) {
                let fresh = self.fresh(page);
                self.pages.insert(page, fresh);
            }
            self.pages.get_mut(&page).expect("inserted")[range].copy_from_slice(&bytes[at..at + n]);
        });
    }

    /// Writes 8 bytes, least significant first.
    pub fn set_u64(&mut self, addr: u64, value: u64) {
        self.write(addr, &value.to_le_bytes());
    }

    /// Numbers of pages that were written.
    pub fn written(&self) -> Vec<u64> {
        self.pages.keys().copied().collect()
    }
}

/// How a slave behaves.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Answers may overtake each other (never within one id).
    pub reorder: bool,
    /// Read bursts of different ids may interleave.
    pub interleave: bool,
    /// Most cycles from a request to its answer; the least is 1.
    pub latency: u64,
    /// Stalls and gaps on every channel.
    pub stalls: bool,
}

impl Manner {
    /// Zero latency: R valid the cycle after AR, B the cycle after WLAST, always ready.
    pub const PROMPT: Manner = Manner {
        reorder: false,
        interleave: false,
        latency: 1,
        stalls: false,
    };
}

struct Burst {
    id: u64,
    addr: u64,
    len: u64,
    beat: u64,
    ready_at: u64,
}

/// Checks the rules for an address and gives the bytes of a beat.
fn check_address(name: &str, addr: u64, len: u64, beat_bytes: u64) {
    let start = addr / beat_bytes * beat_bytes;
    assert!(
        start % 4096 + (len + 1) * beat_bytes <= 4096,
        "{name}: burst at {addr:#x} of {} beats crosses 4 KiB",
        len + 1
    );
}

/// The read side of a slave port.
pub struct ReadSlave {
    name: String,
    manner: Manner,
    rng: ChaCha8Rng,
    take: Stall,
    give: Stall,
    ar: (Out, Out, Out, Out, In),
    r: (In, In, WideIn, In, In, Out),
    beat_bytes: u64,
    bursts: Vec<Burst>,
    /// Offered: which burst.
    offered: Option<usize>,
    inside: Option<usize>,
    /// This cycle's.
    pub ar_ready: bool,
    cycle: u64,
    /// Requests so far: cycle, id, address, len.
    pub requests: Vec<(u64, u64, u64, u64)>,
    /// Cycles in which a beat went over.
    pub beats: Vec<u64>,
    /// Most bursts in flight at once.
    pub most: usize,
    /// One id is never in flight twice.
    pub unique_ids: bool,
    /// Takes requests and does not answer.
    pub paused: bool,
    /// R is taken in the cycle in which it is offered.
    pub always_taken: bool,
    /// Addresses at and above the first answer this many cycles later.
    pub slow: Option<(u64, u64)>,
}

impl ReadSlave {
    /// A slave on the ports `ar`_valid.. and `r`_valid.. of the block.
    pub fn new(sim: &Sim, ar: &str, r: &str, manner: Manner, seed: u64) -> ReadSlave {
        let o = |n: &str| sim.output(&format!("{ar}_{n}")).expect("port");
        let i = |n: &str| sim.input(&format!("{r}_{n}")).expect("port");
        let data = sim.wide_input(&format!("{r}_data")).expect("port");
        ReadSlave {
            name: ar.into(),
            manner,
            rng: rng(seed),
            take: Stall::new(seed ^ 1),
            give: Stall::new(seed ^ 2),
            ar: (
                o("valid"),
                o("id"),
                o("addr"),
                o("len"),
                sim.input(&format!("{ar}_ready")).expect("port"),
            ),
            r: (
                i("valid"),
                i("id"),
                data,
                i("resp"),
                i("last"),
                sim.output(&format!("{r}_ready")).expect("port"),
            ),
            beat_bytes: data.width() as u64 / 8,
            bursts: vec![],
            offered: None,
            inside: None,
            ar_ready: false,
            cycle: 0,
            requests: vec![],
            beats: vec![],
            most: 0,
            unique_ids: true,
            paused: false,
            always_taken: false,
            slow: None,
        }
    }

    /// Bursts that have not ended.
    pub fn outstanding(&self) -> usize {
        self.bursts.len()
    }

    /// Drives the ports for this cycle.
    pub fn drive(&mut self, sim: &mut Sim, memory: &Memory) {
        self.ar_ready = !self.manner.stalls || self.take.go();
        sim.set(self.ar.4, self.ar_ready);
        if self.offered.is_none() && !self.paused && (!self.manner.stalls || self.give.go()) {
            let first_of_id = |i: usize| self.bursts[..i].iter().all(|b| b.id != self.bursts[i].id);
            let mut able: Vec<usize> = (0..self.bursts.len())
                .filter(|i| self.bursts[*i].ready_at <= self.cycle && first_of_id(*i))
                .collect();
            if !self.manner.reorder {
                able.retain(|i| *i == 0);
            }
            let inside = if self.manner.interleave {
                None
            } else {
                self.inside
            };
            self.offered = match inside {
                Some(i) => Some(i),
                None if able.is_empty() => None,
                None => Some(able[self.rng.random_range(0..able.len())]),
            };
        }
        sim.set(self.r.0, self.offered.is_some());
        if let Some(i) = self.offered {
            let b = &self.bursts[i];
            let base = (b.addr / self.beat_bytes + b.beat) * self.beat_bytes;
            let mut bytes = memory.read(base, self.beat_bytes as usize);
            // Lanes in front of an unaligned start carry anything.
            let front = b.addr.saturating_sub(base) as usize;
            bytes[..front].iter_mut().for_each(|x| *x = !*x);
            let words: Vec<u64> = bytes
                .chunks(8)
                .map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes")))
                .collect();
            sim.set(self.r.1, b.id);
            sim.set_wide(self.r.2, &words);
            sim.set(
                self.r.3,
                if memory.bad_reads.contains(&(base / 4096)) {
                    2
                } else {
                    0
                },
            );
            sim.set(self.r.4, b.beat == b.len);
        }
    }

    /// After eval: what moves at the coming clock edge.
    pub fn sample(&mut self, sim: &Sim) {
        let waits = self.offered.is_some() && !sim.is(self.r.5);
        assert!(!waits || !self.always_taken, "{}: R waits", self.name);
        if let Some(i) = self.offered
            && !waits
        {
            self.beats.push(self.cycle);
            self.bursts[i].beat += 1;
            self.inside = Some(i);
            self.offered = None;
            if self.bursts[i].beat > self.bursts[i].len {
                self.bursts.remove(i);
                self.inside = None;
            }
        }
        if self.ar_ready && sim.is(self.ar.0) {
            let (id, addr, len) = (sim.get(self.ar.1), sim.get(self.ar.2), sim.get(self.ar.3));
            check_address(&self.name, addr, len, self.beat_bytes);
            assert!(
                !self.unique_ids || self.bursts.iter().all(|b| b.id != id),
                "{}: id {id} is in flight twice",
                self.name
            );
            let more = self.slow.filter(|s| addr >= s.0).map_or(0, |s| s.1);
            let ready_at = self.cycle + more + self.rng.random_range(1..=self.manner.latency);
            self.requests.push((self.cycle, id, addr, len));
            self.bursts.push(Burst {
                id,
                addr,
                len,
                beat: 0,
                ready_at,
            });
            self.most = self.most.max(self.bursts.len());
        }
        self.cycle += 1;
    }
}

/// Runs of bytes.
struct Data {
    bytes: Vec<(u64, Vec<u8>)>,
}

/// The write side of a slave port. Data becomes visible in memory when its B is given.
pub struct WriteSlave {
    name: String,
    manner: Manner,
    rng: ChaCha8Rng,
    take_aw: Stall,
    take_w: Stall,
    give: Stall,
    aw: (Out, Out, Out, Out, In),
    w: (Out, WideOut, Out, Out, In),
    b: (In, In, In, Out),
    beat_bytes: u64,
    addresses: VecDeque<Burst>,
    /// Beats taken, of which the address may still come: words, strobes, last.
    raw: VecDeque<(Vec<u64>, u64, bool)>,
    current: Data,
    answers: Vec<(u64, u64, Data)>,
    offered: Option<usize>,
    /// This cycle's: AW, W.
    pub readies: (bool, bool),
    cycle: u64,
    /// Requests so far: cycle, id, address, len.
    pub requests: Vec<(u64, u64, u64, u64)>,
    /// Cycles in which a beat went over.
    pub beats: Vec<u64>,
    /// Cycles in which a B went over.
    pub responses: Vec<u64>,
    /// Most bursts in flight at once.
    pub most: usize,
    /// One id is never in flight twice.
    pub unique_ids: bool,
    /// B is taken in the cycle in which it is offered.
    pub always_taken: bool,
}

impl WriteSlave {
    /// A slave on the ports `aw`_valid.., `w`_valid.. and `b`_valid.. of the block.
    pub fn new(sim: &Sim, aw: &str, w: &str, b: &str, manner: Manner, seed: u64) -> WriteSlave {
        let o = |n: &str| sim.output(&format!("{aw}_{n}")).expect("port");
        let data = sim.wide_output(&format!("{w}_data")).expect("port");
        let input = |n: String| sim.input(&n).expect("port");
        WriteSlave {
            name: aw.into(),
            manner,
            rng: rng(seed),
            take_aw: Stall::new(seed ^ 3),
            take_w: Stall::new(seed ^ 4),
            give: Stall::new(seed ^ 5),
            aw: (
                o("valid"),
                o("id"),
                o("addr"),
                o("len"),
                input(format!("{aw}_ready")),
            ),
            w: (
                sim.output(&format!("{w}_valid")).expect("port"),
                data,
                sim.output(&format!("{w}_strb")).expect("port"),
                sim.output(&format!("{w}_last")).expect("port"),
                input(format!("{w}_ready")),
            ),
            b: (
                input(format!("{b}_valid")),
                input(format!("{b}_id")),
                input(format!("{b}_resp")),
                sim.output(&format!("{b}_ready")).expect("port"),
            ),
            beat_bytes: data.width() as u64 / 8,
            addresses: VecDeque::new(),
            raw: VecDeque::new(),
            current: Data { bytes: vec![] },
            answers: vec![],
            offered: None,
            readies: (false, false),
            cycle: 0,
            requests: vec![],
            beats: vec![],
            responses: vec![],
            most: 0,
            unique_ids: true,
            always_taken: false,
        }
    }

    /// Bursts that have not ended.
    pub fn outstanding(&self) -> usize {
        self.addresses.len() + self.answers.len()
    }

    /// Drives the ports for this cycle.
    pub fn drive(&mut self, sim: &mut Sim, memory: &mut Memory) {
        self.readies = (
            !self.manner.stalls || self.take_aw.go(),
            !self.manner.stalls || self.take_w.go(),
        );
        sim.set(self.aw.4, self.readies.0);
        sim.set(self.w.4, self.readies.1);
        if self.offered.is_none() && (!self.manner.stalls || self.give.go()) {
            let first_of_id = |i: usize| self.answers[..i].iter().all(|b| b.0 != self.answers[i].0);
            let mut able: Vec<usize> = (0..self.answers.len())
                .filter(|i| self.answers[*i].1 <= self.cycle && first_of_id(*i))
                .collect();
            if !self.manner.reorder {
                able.retain(|i| *i == 0);
            }
            if !able.is_empty() {
                let i = able[self.rng.random_range(0..able.len())];
                self.offered = Some(i);
                let bytes = std::mem::take(&mut self.answers[i].2.bytes);
                let bad = bytes
                    .first()
                    .is_some_and(|(a, _)| memory.bad_writes.contains(&(a / 4096)));
                if !bad {
                    bytes.into_iter().for_each(|(a, v)| memory.write(a, &v));
                }
                sim.set(self.b.1, self.answers[i].0);
                sim.set(self.b.2, if bad { 3 } else { 0 });
            }
        }
        sim.set(self.b.0, self.offered.is_some());
    }

    /// After eval: what moves at the coming clock edge.
    pub fn sample(&mut self, sim: &Sim) {
        let waits = self.offered.is_some() && !sim.is(self.b.3);
        assert!(!waits || !self.always_taken, "{}: B waits", self.name);
        if let Some(i) = self.offered
            && !waits
        {
            self.answers.remove(i);
            self.responses.push(self.cycle);
            self.offered = None;
        }
        if self.readies.0 && sim.is(self.aw.0) {
            let (id, addr, len) = (sim.get(self.aw.1), sim.get(self.aw.2), sim.get(self.aw.3));
            check_address(&self.name, addr, len, self.beat_bytes);
            let twice = self
                .addresses
                .iter()
                .map(|b| b.id)
                .chain(self.answers.iter().map(|b| b.0))
                .any(|x| x == id);
            assert!(
                !self.unique_ids || !twice,
                "{}: id {id} is in flight twice",
                self.name
            );
            self.requests.push((self.cycle, id, addr, len));
            self.addresses.push_back(Burst {
                id,
                addr,
                len,
                beat: 0,
                ready_at: 0,
            });
            self.most = self.most.max(self.outstanding());
        }
        if self.readies.1 && sim.is(self.w.0) {
            self.beats.push(self.cycle);
            let mut words = vec![0; self.w.1.words()];
            sim.get_wide(self.w.1, &mut words);
            let strobes = sim.get(self.w.2);
            let last = sim.is(self.w.3);
            self.raw.push_back((words, strobes, last));
        }
        while let Some(burst) = self.addresses.front_mut()
            && let Some((words, strobes, last)) = self.raw.pop_front()
        {
            let base = (burst.addr / self.beat_bytes + burst.beat) * self.beat_bytes;
            let mut run: Option<(u64, Vec<u8>)> = None;
            for i in 0..self.beat_bytes {
                if strobes >> i & 1 == 1 {
                    assert!(
                        base + i >= burst.addr,
                        "{}: a byte in front of the burst's address",
                        self.name
                    );
                    let byte = (words[i as usize / 8] >> (8 * (i % 8))) as u8;
                    run.get_or_insert((base + i, vec![])).1.push(byte);
                } else {
                    self.current.bytes.extend(run.take());
                }
            }
            self.current.bytes.extend(run);
            assert_eq!(
                last,
                burst.beat == burst.len,
                "{}: WLAST in beat {} of {}",
                self.name,
                burst.beat,
                burst.len + 1
            );
            burst.beat += 1;
            if last {
                let id = burst.id;
                self.addresses.pop_front();
                let ready_at = self.cycle + self.rng.random_range(1..=self.manner.latency);
                let data = std::mem::replace(&mut self.current, Data { bytes: vec![] });
                self.answers.push((id, ready_at, data));
            }
        }
        self.cycle += 1;
    }
}
