//! Completion posting against a plain model: a host that reads its rings as NVMe tells it to, and an engine with a list a CQ.

mod common;
use common::*;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use weir_card::config::CardConfig;
use weir_card::cq_post::cq_post;

/// A completed command, as it comes from the engine's list.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Command {
    slot: u64,
    sq: u64,
    cid: u64,
    status: u64,
    result: u64,
}

/// One completion queue, as the host and the engine see it.
#[derive(Clone, Debug, Default)]
struct Cq {
    base: u64,
    /// Entries - 1.
    size: u64,
    interrupts: bool,
    vector: u64,
    /// The host's: next entry to look at, the phase it waits for.
    head: u64,
    phase: bool,
    /// Entries in host memory, by index.
    ring: Vec<Option<[u64; 2]>>,
    /// The engine's list.
    list: VecDeque<Command>,
    /// Popped, not yet seen by the host, in order.
    popped: VecDeque<(Command, u64)>,
    /// The host reads nothing: the ring fills up.
    stuck: bool,
    seen: u64,
}

/// A burst on its way.
#[derive(Clone, Debug)]
struct Burst {
    addr: u64,
    /// Bytes written: address and 16 bytes each.
    entries: Vec<(u64, [u64; 2])>,
    answer_at: u64,
}

struct Harness {
    c: CardConfig,
    b: Bench,
    rng: ChaCha8Rng,
    cqs: Vec<Cq>,
    heads: Vec<u64>,
    aw: VecDeque<(u64, u64)>,
    beats: Vec<(Vec<u64>, u64)>,
    written: VecDeque<Vec<(Vec<u64>, u64)>>,
    bursts: VecDeque<Burst>,
    /// CQ whose pop is answered in this cycle.
    answering: Option<usize>,
    admin: Option<Command>,
    rates: [u32; 4],
    discard: bool,
    freed: u64,
    completed: u64,
    next_slot: u64,
    sizes: [u64; 5],
}

impl Harness {
    fn new(
        c: &CardConfig,
        module: &weir_kit::Module,
        model: &verilator_sys::Model,
        seed: u64,
    ) -> Harness {
        let mut rng = rng(seed);
        let mut rate = || [5, 25, 60, 100][rng.random_range(0..4)];
        let rates = [rate(), rate(), rate(), rate()];
        let mut h = Harness {
            c: c.clone(),
            b: Bench::new(module, model, seed),
            cqs: vec![Cq::default(); c.queues as usize + 1],
            heads: (0..=c.queues).map(|_| rng.random_range(0..4096)).collect(),
            rng,
            aw: VecDeque::new(),
            beats: vec![],
            written: VecDeque::new(),
            bursts: VecDeque::new(),
            answering: None,
            admin: None,
            rates,
            discard: false,
            freed: 0,
            completed: 0,
            next_slot: 0,
            sizes: [0; 5],
        };
        h.create_all();
        h
    }

    fn create_all(&mut self) {
        self.b.eval();
        while self.b.is("clearing") {
            self.b.tick();
            self.b.eval();
        }
        for q in 0..self.cqs.len() {
            let size = self.rng.random_range(1..20);
            let cq = Cq {
                base: 0x1_0000_0000 + q as u64 * 0x10_0000 + 0x1000 * self.rng.random_range(0..16),
                size,
                interrupts: self.rng.random(),
                vector: self.rng.random_range(0..=self.c.queues) as u64,
                phase: true,
                ring: vec![None; size as usize + 1],
                ..Cq::default()
            };
            for (name, v) in [
                ("cq", q as u64),
                ("enable", 1),
                ("base", cq.base),
                ("size", cq.size),
                ("interrupts", cq.interrupts as u64),
                ("vector", cq.vector),
                ("valid", 1),
            ] {
                self.b.set(&format!("cq_set_{name}"), v);
            }
            self.b.tick();
            self.b.set("cq_set_valid", 0u64);
            self.b.tick();
            self.cqs[q] = cq;
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn random_command(&mut self, admin: bool) -> Command {
        self.next_slot = (self.next_slot + 1) % self.c.slots() as u64;
        Command {
            slot: self.next_slot,
            sq: if admin {
                0
            } else {
                self.rng.random_range(1..=self.c.queues) as u64
            },
            cid: self.rng.random_range(0..1 << 16),
            status: self.rng.random_range(0..1 << 15),
            result: if admin {
                self.rng.random_range(0..1 << 32)
            } else {
                0
            },
        }
    }

    /// A cycle: the engine's news, the host's doorbells, the bus.
    fn cycle(&mut self, feed: bool) {
        let now = self.b.cycle();
        let [work_rate, bell_rate, bus_rate, answer_rate] = self.rates;
        self.b.set("discard", self.discard);

        // The engine appends a command; the pulse says that a list is no longer empty.
        let mut work = None;
        if now.is_multiple_of(4) && feed && self.chance(work_rate) {
            let q = self.rng.random_range(1..self.cqs.len());
            let command = self.random_command(false);
            let list = &mut self.cqs[q].list;
            list.push_back(command);
            work = (list.len() == 1).then_some(q as u64);
        }
        self.b.set("cq_work_valid", work.is_some());
        self.b.set("cq_work_cq", work.unwrap_or(0));

        // The engine answers a pop that it took in the cycle before.
        let answer = self.answering.take();
        self.b.set("popped_valid", answer.is_some());
        if let Some(q) = answer {
            let command = self.cqs[q]
                .list
                .pop_front()
                .expect("popped of a list with entries");
            let more = !self.cqs[q].list.is_empty();
            for (name, v) in [
                ("slot", command.slot),
                ("sq", command.sq),
                ("cid", command.cid),
                ("status", command.status),
                ("more", more as u64),
            ] {
                self.b.set(&format!("popped_{name}"), v);
            }
            if !self.discard {
                self.cqs[q].popped.push_back((command, 0));
            }
        }
        if self.admin.is_none() && feed && !self.discard && self.chance(work_rate / 4) {
            self.admin = Some(self.random_command(true));
        }
        self.b.set("admin_cpl_valid", self.admin.is_some());
        if let Some(a) = self.admin {
            for (name, v) in [("cid", a.cid), ("result", a.result), ("status", a.status)] {
                self.b.set(&format!("admin_cpl_{name}"), v);
            }
        }

        // The host reads what is new, and says so.
        self.b.set("doorbell_valid", 0u64);
        let q = self.rng.random_range(0..self.cqs.len());
        let mut wrong = None;
        if self.chance(bell_rate) && !self.cqs[q].stuck {
            if self.chance(5) {
                // A head that the ring does not have, or a CQ that is none.
                let size = self.cqs[q].size;
                wrong = Some((
                    "doorbell_bad_value",
                    q as u64,
                    size + 1 + self.rng.random_range(0..60_000),
                ));
            } else if self.read_ring(q) {
                let head = self.cqs[q].head;
                self.ring_doorbell(q as u64, head);
            }
        }
        if let Some((_, q, value)) = wrong {
            self.ring_doorbell(q, value);
        }

        // The bus: responses in order.
        let answered =
            self.bursts.front().is_some_and(|f| f.answer_at <= now) && self.chance(answer_rate);
        self.b.set("b_valid", answered);
        self.b.set("b_resp", 0u64);
        let (aw_ready, w_ready) = (self.chance(bus_rate), self.chance(bus_rate));
        self.b.set("aw_ready", aw_ready);
        self.b.set("w_ready", w_ready);
        self.b.eval();
        let head_sq = self.b.get("head_sq") as usize;
        let head = self.heads[head_sq.min(self.heads.len() - 1)];
        self.b.set("head", head);
        self.b.eval();

        for name in ["doorbell_bad_value", "doorbell_bad_register"] {
            assert_eq!(
                self.b.is(name),
                wrong.is_some_and(|w| w.0 == name),
                "{name}"
            );
        }
        if let Some(q) = answer {
            let (command, at) = if self.discard {
                (None, None)
            } else {
                (self.cqs[q].popped.back().map(|p| p.0), Some(head_sq))
            };
            assert!(self.b.is("slot_free_valid"), "a popped slot is free");
            self.freed += 1;
            if let Some(command) = command {
                assert_eq!(
                    (self.b.get("slot_free"), self.b.get("release_sq")),
                    (command.slot, command.sq)
                );
                assert_eq!(
                    at,
                    Some(command.sq as usize),
                    "the head of the command's own queue"
                );
                self.cqs[q].popped.back_mut().unwrap().1 = head;
            }
        } else {
            assert!(!self.b.is("slot_free_valid"));
        }
        if self.admin.is_some() && self.b.is("admin_cpl_ready") {
            let a = self.admin.take().unwrap();
            self.cqs[0].popped.push_back((a, head));
        }
        // The wheel takes a pop in P0 and answers in P1.
        if now % 4 == 2 && self.b.is("pop_valid") {
            self.answering = Some(self.b.get("pop_cq") as usize);
        }
        self.bus(now, aw_ready, w_ready, answered);
        self.b.tick();
        self.b.eval();
        // SQ heads move on as commands are fetched.
        let sq = self.rng.random_range(0..self.heads.len());
        self.heads[sq] = self.rng.random_range(0..4096);
    }

    fn ring_doorbell(&mut self, q: u64, value: u64) {
        for (name, v) in [("valid", 1), ("is_cq", 1), ("queue", q), ("value", value)] {
            self.b.set(&format!("doorbell_{name}"), v);
        }
    }

    /// The host looks at its ring as far as the phase tells; whether it found something.
    fn read_ring(&mut self, q: usize) -> bool {
        let most = self.rng.random_range(1..8);
        let cq = &mut self.cqs[q];
        for n in 0..most {
            let Some([low, high]) = cq.ring[cq.head as usize] else {
                return n > 0;
            };
            if (high >> 48 & 1 == 1) != cq.phase {
                return n > 0;
            }
            let (command, head) = cq
                .popped
                .pop_front()
                .expect("an entry for each command that was popped");
            let expected_high = command.status << 49
                | (cq.phase as u64) << 48
                | command.cid << 32
                | command.sq << 16
                | head;
            assert_eq!(
                (low, high),
                (command.result, expected_high),
                "CQ {q}, entry {}: {command:?}",
                cq.head
            );
            cq.seen += 1;
            self.completed += 1;
            cq.head = if cq.head == cq.size { 0 } else { cq.head + 1 };
            cq.phase ^= cq.head == 0;
        }
        true
    }

    /// Takes bursts apart, checks them, and answers them in order.
    fn bus(&mut self, now: u64, aw_ready: bool, w_ready: bool, answered: bool) {
        if answered {
            let burst = self.bursts.pop_front().unwrap();
            let q = self
                .cqs
                .iter()
                .position(|cq| (cq.base..=cq.base + cq.size * 16).contains(&burst.addr))
                .expect("an address of a ring");
            let n = burst.entries.len() as u64;
            self.sizes[n as usize] += 1;
            for (addr, entry) in burst.entries {
                let i = (addr - self.cqs[q].base) / 16;
                let cq = &mut self.cqs[q];
                let unread = cq.ring[i as usize]
                    .is_some_and(|[_, high]| (high >> 48 & 1 == 1) == (cq.phase == (i >= cq.head)));
                assert!(
                    !unread,
                    "CQ {q}: entry {i} is overwritten before it was read"
                );
                cq.ring[i as usize] = Some(entry);
            }
            let cq = &self.cqs[q];
            assert_eq!(
                self.b.is("irq_valid"),
                cq.interrupts,
                "an interrupt after the response"
            );
            if cq.interrupts {
                assert_eq!(
                    (self.b.get("irq_vector"), self.b.get("irq_entries")),
                    (cq.vector, n)
                );
            }
        } else {
            assert!(!self.b.is("irq_valid"), "no interrupt before its response");
        }
        if aw_ready && self.b.is("aw_valid") {
            assert_eq!(self.b.get("aw_id") >> self.c.chunk_bits(), 1, "kind CQ");
            self.aw
                .push_back((self.b.get("aw_addr"), self.b.get("aw_len") + 1));
        }
        if w_ready && self.b.is("w_valid") {
            self.beats
                .push((self.b.get_wide("w_data"), self.b.get("w_strb")));
            if self.b.is("w_last") {
                self.written.push_back(std::mem::take(&mut self.beats));
            }
        }
        // Data may come before its address.
        if let (Some(_), Some(_)) = (self.aw.front(), self.written.front()) {
            self.finish_burst(now);
        }
    }

    fn finish_burst(&mut self, now: u64) {
        let (addr, expected) = self.aw.pop_front().unwrap();
        let beats = self.written.pop_front().unwrap();
        assert_eq!(beats.len() as u64, expected, "beats of the burst");
        let bytes = self.c.beat_bytes() as u64;
        assert_eq!(addr % bytes, 0);
        let mut entries = vec![];
        for (i, (data, strb)) in beats.iter().enumerate() {
            for e in 0..bytes / 16 {
                let lanes = strb >> (16 * e) & 0xffff;
                assert!(lanes == 0 || lanes == 0xffff, "an entry is written whole");
                if lanes != 0 {
                    let at = addr + i as u64 * bytes + e * 16;
                    entries.push((at, [data[2 * e as usize], data[2 * e as usize + 1]]));
                }
            }
        }
        assert!(!entries.is_empty() && entries.len() <= 4);
        assert_eq!(
            entries[0].0 / 64,
            entries.last().unwrap().0 / 64,
            "within 64 bytes"
        );
        let first = entries[0].0;
        assert!(
            entries
                .iter()
                .enumerate()
                .all(|(i, e)| e.0 == first + 16 * i as u64),
            "one after the other"
        );
        let answer_at = now + self.rng.random_range(1..30);
        self.bursts.push_back(Burst {
            addr: first,
            entries,
            answer_at,
        });
    }

    fn waiting(&self) -> usize {
        self.cqs
            .iter()
            .map(|cq| cq.list.len() + cq.popped.len())
            .sum::<usize>()
            + self.admin.is_some() as usize
    }

    fn drain(&mut self) {
        self.cqs.iter_mut().for_each(|cq| cq.stuck = false);
        self.rates[1..].fill(60);
        let mut n = 0;
        while self.waiting() > 0 {
            self.cycle(false);
            n += 1;
            assert!(n < 200_000, "{} completions do not arrive", self.waiting());
        }
        for _ in 0..200 {
            self.cycle(false);
        }
        assert!(self.b.is("quiet"), "nothing is under way");
    }
}

fn sizes() -> Vec<CardConfig> {
    let size = |data_bits, queues| CardConfig {
        name: format!("{data_bits}"),
        data_bits,
        queues,
        ..CardConfig::small()
    };
    vec![size(128, 3), size(256, 4), size(512, 5)]
}

/// Random load, stalls, full rings and wrong doorbells: every command is posted once, in order, in its ring.
#[test]
fn every_completion_is_posted_once() {
    for c in sizes() {
        let module = cq_post(&c);
        let model = model(&module);
        let full_lines = std::sync::atomic::AtomicU64::new(0);
        in_threads(&(0..6u64).collect::<Vec<_>>(), |seed| {
            let mut h = Harness::new(&c, &module, &model, *seed);
            for _ in 0..6 {
                for q in 1..h.cqs.len() {
                    h.cqs[q].stuck = h.rng.random_range(0..3) == 0;
                }
                (0..4000).for_each(|_| h.cycle(true));
                h.drain();
            }
            println!(
                "{} bits, seed {seed}: {} completions, bursts of 1 to 4 entries: {:?}",
                c.data_bits,
                h.completed,
                &h.sizes[1..]
            );
            assert!(
                h.completed > 200 && h.sizes[1] > 0,
                "the load was not there"
            );
            full_lines.fetch_add(h.sizes[4], std::sync::atomic::Ordering::Relaxed);
        });
        assert!(full_lines.into_inner() > 100, "four entries in one write");
    }
}

/// A full CQ stalls no other.
#[test]
fn a_full_cq_holds_up_nobody() {
    let c = CardConfig {
        queues: 3,
        ..CardConfig::small()
    };
    let module = cq_post(&c);
    let mut h = Harness::new(&c, &module, &model(&module), 77);
    h.rates = [60, 60, 100, 100];
    h.cqs[1].stuck = true;
    (0..8000).for_each(|_| h.cycle(true));
    assert_eq!(h.cqs[1].seen, 0);
    assert_eq!(
        h.cqs[1].ring.iter().flatten().count() as u64,
        h.cqs[1].size,
        "the ring is filled but for one entry"
    );
    for q in [2, 3] {
        assert!(h.cqs[q].seen > 300, "CQ {q} has seen {}", h.cqs[q].seen);
    }
    h.drain();
    assert!(h.cqs[1].seen > 300, "its own go on when it is read");
}

/// A discard frees every slot and writes nothing.
#[test]
fn a_discard_frees_slots_in_silence() {
    let c = CardConfig::small();
    let module = cq_post(&c);
    let mut h = Harness::new(&c, &module, &model(&module), 5);
    h.rates = [100, 5, 60, 60];
    (0..3000).for_each(|_| h.cycle(true));
    assert!(
        h.cqs.iter().any(|cq| cq.list.len() > 3),
        "lists have filled"
    );
    // What is on its way ends first.
    h.discard = true;
    h.admin = None;
    let mut n = 0;
    while h.cqs.iter().any(|cq| !cq.list.is_empty()) || !h.b.is("quiet") {
        h.cycle(false);
        n += 1;
        assert!(n < 20_000, "the lists do not empty");
    }
    let posted = h.sizes.iter().sum::<u64>();
    (0..100).for_each(|_| h.cycle(false));
    assert_eq!(posted, h.sizes.iter().sum::<u64>());
}
