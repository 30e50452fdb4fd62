//! The bus gate: every burst is answered once, by the side it belongs to; none begins to leave without `enable`, none that stands at
//! the pins is withdrawn; a reset drains.

#[path = "common/axi.rs"]
mod axi;
mod common;

use axi::{Manner, Memory, ReadSlave, WriteSlave};
use common::{Bench, Stall, in_threads, model, rng};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{HashMap, VecDeque};
use weir_card::bus_gate::bus_gate;
use weir_card::interfaces::AxiParams;
use weir_kit::Dir;

/// DECERR.
const OWN: u64 = 3;

/// A burst of the card: {id, address, beats - 1}.
type Ask = (u64, u64, u64);

/// A burst under way: what was asked, beats that came, and whether the gate answers it.
struct Flight {
    ask: Ask,
    beats: u64,
    own: bool,
}

/// A gate of 8 bursts a direction.
fn gate() -> weir_kit::Module {
    let a = AxiParams {
        id_bits: 6,
        data_bits: 128,
    };
    bus_gate(&a, 8)
}

/// The card's side, the gate, and slaves outside.
struct Gate {
    b: Bench,
    rng: ChaCha8Rng,
    outputs: Vec<(String, bool)>,
    read: ReadSlave,
    write: WriteSlave,
    memory: Memory,
    unchanging: Memory,
    ar: Option<Ask>,
    aw: Option<Ask>,
    reads: HashMap<u64, Flight>,
    writes: HashMap<u64, Flight>,
    /// Data of the writes whose address was taken: {data, last}.
    beats: VecDeque<(Vec<u64>, bool)>,
    sending: bool,
    /// Bytes that must be outside once answered; by id.
    data: HashMap<u64, Vec<u8>>,
    stalls: Vec<Stall>,
    enable: bool,
    draining: bool,
    stop: bool,
    next: u64,
    /// What waited, untaken, in the cycle before: R and B inside, AR, AW and W outside.
    waited: [Option<Vec<u64>>; 5],
    answered: [u64; 2],
    rests: u64,
}

impl Gate {
    fn new(
        module: &weir_kit::Module,
        model: &verilator_sys::Model,
        manner: Manner,
        seed: u64,
    ) -> Gate {
        let b = Bench::new(module, model, seed);
        let out = module.ports().iter().filter(|p| p.dir == Dir::Out);
        Gate {
            outputs: out.map(|p| (p.name.clone(), p.width > 64)).collect(),
            read: ReadSlave::new(&b.sim, "outer_ar", "outer_r", manner, seed + 1),
            write: WriteSlave::new(&b.sim, "outer_aw", "outer_w", "outer_b", manner, seed + 2),
            b,
            rng: rng(seed),
            memory: Memory::new(seed),
            unchanging: Memory::new(seed + 3),
            ar: None,
            aw: None,
            reads: HashMap::new(),
            writes: HashMap::new(),
            beats: VecDeque::new(),
            sending: false,
            data: HashMap::new(),
            stalls: (0..5).map(|i| Stall::new(seed * 10 + i)).collect(),
            enable: true,
            draining: false,
            stop: false,
            next: 0,
            waited: [const { None }; 5],
            answered: [0, 0],
            rests: 0,
        }
    }

    /// A new burst with an id that is not in flight.
    fn ask(&mut self, used: &HashMap<u64, Flight>, base: u64) -> Option<Ask> {
        let free: Vec<u64> = (0..8).filter(|i| !used.contains_key(i)).collect();
        if free.is_empty() {
            return None;
        }
        self.next += 1;
        let id = free[self.rng.random_range(0..free.len())];
        Some((id, base + self.next * 4096, self.rng.random_range(0..5)))
    }

    fn wide(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn cycle(&mut self) {
        let [ask_r, ask_w, send, take_r, take_b] = [0, 1, 2, 3, 4].map(|i| self.stalls[i].go());
        if self.ar.is_none() && ask_r && !self.stop {
            let used = std::mem::take(&mut self.reads);
            self.ar = self.ask(&used, 1 << 40);
            self.reads = used;
        }
        if self.aw.is_none() && ask_w && !self.stop {
            let used = std::mem::take(&mut self.writes);
            self.aw = self.ask(&used, 2 << 40);
            self.writes = used;
        }
        self.b.set("enable", self.enable);
        self.b.set("draining", self.draining);
        for (name, ask) in [("ar", self.ar), ("aw", self.aw)] {
            self.b.set(&format!("inner_{name}_valid"), ask.is_some());
            if let Some((id, addr, len)) = ask {
                self.b.set(&format!("inner_{name}_id"), id);
                self.b.set(&format!("inner_{name}_addr"), addr);
                self.b.set(&format!("inner_{name}_len"), len);
            }
        }
        self.sending |= !self.beats.is_empty() && (send || self.stop);
        self.b.set("inner_w_valid", self.sending);
        if let Some((data, last)) = self.beats.front() {
            self.b.set_wide("inner_w_data", data);
            self.b.set("inner_w_strb", 0xffffu64);
            self.b.set("inner_w_last", *last);
        }
        let readies = [take_r || self.stop, take_b || self.stop];
        self.b.set("inner_r_ready", readies[0]);
        self.b.set("inner_b_ready", readies[1]);
        self.read.drive(&mut self.b.sim, &self.unchanging);
        self.write.drive(&mut self.b.sim, &mut self.memory);
        self.b.eval();
        self.rest();

        for (name, waited) in [("ar", 2), ("aw", 3)] {
            let leaves = self.b.is(&format!("outer_{name}_valid"));
            let stands = self.waited[waited].is_some();
            assert!(
                self.enable || stands || !leaves,
                "a burst begins to leave while bus mastering is off"
            );
        }
        self.stable(readies);
        if readies[0] && self.b.is("inner_r_valid") {
            self.read_beat();
        }
        if readies[1] && self.b.is("inner_b_valid") {
            self.response();
        }
        if self.sending && self.b.is("inner_w_ready") {
            self.beats.pop_front();
            self.sending = false;
        }
        if self.b.is("inner_ar_ready")
            && let Some(ask) = self.ar.take()
        {
            let own = !self.b.is("outer_ar_valid");
            assert!(!own || (self.draining && !self.enable), "an own burst");
            self.reads.insert(ask.0, Flight { ask, beats: 0, own });
        }
        if self.b.is("inner_aw_ready")
            && let Some(ask) = self.aw.take()
        {
            let mut bytes = vec![];
            for beat in 0..=ask.2 {
                let words: Vec<u64> = (0..2).map(|_| self.rng.random()).collect();
                bytes.extend(Gate::wide(&words));
                self.beats.push_back((words, beat == ask.2));
            }
            let own = !self.b.is("outer_aw_valid");
            assert!(!own || (self.draining && !self.enable), "an own burst");
            self.data.insert(ask.0, bytes);
            self.writes.insert(ask.0, Flight { ask, beats: 0, own });
        }
        self.read.sample(&self.b.sim);
        self.write.sample(&self.b.sim);
        self.b.tick();
    }

    /// What is offered and not taken stays, and stays the same.
    fn stable(&mut self, readies: [bool; 2]) {
        let channels = [
            ("inner_r", &["id", "resp", "last"][..], readies[0]),
            ("inner_b", &["id", "resp"], readies[1]),
            ("outer_ar", &["id", "addr", "len"], self.read.ar_ready),
            ("outer_aw", &["id", "addr", "len"], self.write.readies.0),
            ("outer_w", &["last", "strb"], self.write.readies.1),
        ];
        for (i, (name, fields, ready)) in channels.into_iter().enumerate() {
            let valid = self.b.is(&format!("{name}_valid"));
            let mut now: Vec<u64> = fields
                .iter()
                .map(|f| self.b.get(&format!("{name}_{f}")))
                .collect();
            if ["inner_r", "outer_w"].contains(&name) {
                now.extend(self.b.get_wide(&format!("{name}_data")));
            }
            if let Some(before) = self.waited[i].take() {
                assert!(valid && before == now, "{name} changes while it waits");
            }
            self.waited[i] = (valid && !ready).then_some(now);
        }
    }

    fn read_beat(&mut self) {
        let id = self.b.get("inner_r_id");
        let own = self.b.get("inner_r_resp") == OWN;
        let outside = self.reads.values().filter(|f| !f.own).count();
        assert!(
            !own || outside == 0,
            "an own answer overtakes one from outside"
        );
        let flight = self.reads.get_mut(&id).expect("R of a burst in flight");
        assert_eq!(own, flight.own, "answered by the other side");
        let (_, addr, len) = flight.ask;
        let want = match own {
            true => vec![0; 16],
            false => self.unchanging.read(addr + 16 * flight.beats, 16),
        };
        assert_eq!(Gate::wide(&self.b.get_wide("inner_r_data")), want);
        assert_eq!(self.b.is("inner_r_last"), flight.beats == len);
        flight.beats += 1;
        if flight.beats > len {
            self.answered[flight.own as usize] += 1;
            self.reads.remove(&id);
        }
    }

    fn response(&mut self) {
        let id = self.b.get("inner_b_id");
        let flight = self.writes.remove(&id).expect("B of a burst in flight");
        let own = self.b.get("inner_b_resp") == OWN;
        assert_eq!(own, flight.own, "answered by the other side");
        let outside = self.writes.values().filter(|f| !f.own).count();
        assert!(
            !own || outside == 0,
            "an own answer overtakes one from outside"
        );
        let bytes = self.data.remove(&id).expect("its data");
        let there = self.memory.read(flight.ask.1, bytes.len());
        assert_eq!(
            there == bytes,
            !own,
            "data is outside if and only if it left"
        );
        self.answered[own as usize] += 1;
    }

    /// While idle, and with inputs held, no output changes.
    fn rest(&mut self) {
        if !self.b.is("idle") || self.rng.random_range(0..10) > 0 {
            return;
        }
        let read = |b: &Bench, (n, wide): &(String, bool)| match wide {
            true => b.get_wide(n),
            false => vec![b.get(n)],
        };
        let before: Vec<_> = self.outputs.iter().map(|o| read(&self.b, o)).collect();
        for _ in 0..70 {
            self.b.sim.tick();
            self.b.sim.eval();
            for (o, was) in self.outputs.iter().zip(&before) {
                assert_eq!(&read(&self.b, o), was, "{} changes while idle", o.0);
            }
        }
        self.rests += 1;
    }

    fn in_flight(&self) -> usize {
        self.reads.len() + self.writes.len() + self.beats.len()
    }
}

/// Bus mastering and drains come and go at random under load; then all drains, by one of them.
#[test]
fn every_burst_is_answered_by_one_side() {
    let module = gate();
    let model = model(&module);
    in_threads(&(0..12u64).collect::<Vec<_>>(), |seed| {
        let mut random = rng(*seed);
        let manner = Manner {
            reorder: random.random_range(0..3) > 0,
            interleave: random.random_range(0..3) > 0,
            latency: [1, 8, 60][random.random_range(0..3)],
            stalls: random.random_range(0..4) > 0,
        };
        let mut g = Gate::new(&module, &model, manner, *seed);
        for round in 0..6 {
            for _ in 0..3000 {
                if random.random_range(0..150) == 0 {
                    g.enable = !g.enable;
                }
                if random.random_range(0..150) == 0 {
                    g.draining = !g.draining;
                }
                g.cycle();
            }
            (g.stop, g.enable, g.draining) = (true, round % 2 == 0, true);
            let mut left = 5000;
            while g.in_flight() > 0 || g.ar.is_some() || g.aw.is_some() {
                g.cycle();
                left -= 1;
                assert!(left > 0, "seed {seed}: {} bursts do not end", g.in_flight());
            }
            g.cycle();
            assert!(g.b.is("quiet") && g.b.is("idle"));
            assert_eq!(g.write.outstanding() + g.read.outstanding(), 0);
            g.stop = false;
        }
        println!(
            "seed {seed}: outside, own {:?}, held {}",
            g.answered, g.rests
        );
        assert!(g.answered.iter().all(|n| *n > 50) && g.rests > 20);
        // A reset in the middle leaves nothing of the gate's own burst.
        (g.enable, g.draining, g.stop) = (false, true, false);
        (0..200).for_each(|_| g.cycle());
        for name in [
            "inner_ar_valid",
            "inner_aw_valid",
            "inner_w_valid",
            "outer_r_valid",
            "outer_b_valid",
        ] {
            g.b.set(name, 0);
        }
        g.b.reset();
        g.b.eval();
        assert!(g.b.is("quiet") && g.b.is("idle"));
        assert!(!g.b.is("inner_r_valid") && !g.b.is("inner_b_valid"));
    });
}

/// Open, the gate costs no cycle: addresses, data and answers pass in the cycle they come.
#[test]
fn an_open_gate_costs_no_cycle() {
    let module = gate();
    let mut b = Bench::new(&module, &model(&module), 3);
    let all =
        |b: &mut Bench, names: &[&str], value: u64| names.iter().for_each(|n| b.set(n, value));
    let inner = ["inner_ar_valid", "inner_aw_valid", "inner_w_valid"];
    let outer = ["outer_r_valid", "outer_b_valid", "outer_r_last"];
    let readies = [
        "outer_ar_ready",
        "outer_aw_ready",
        "outer_w_ready",
        "inner_r_ready",
        "inner_b_ready",
    ];
    all(&mut b, &inner, 1);
    all(&mut b, &readies, 1);
    all(&mut b, &["enable", "inner_w_last"], 1);
    all(&mut b, &["draining"], 0);
    all(&mut b, &outer, 0);
    b.eval();
    let passes = ["outer_ar_valid", "outer_aw_valid", "outer_w_valid"];
    assert!(passes.iter().all(|n| b.is(n)));
    assert!(b.is("inner_w_ready"));
    b.tick();
    all(&mut b, &inner, 0);
    all(&mut b, &outer, 1);
    b.eval();
    assert!(b.is("inner_r_valid") && b.is("inner_b_valid"));
    b.tick();
}
