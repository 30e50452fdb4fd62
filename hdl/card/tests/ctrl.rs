//! Enable, disable, shutdown and function level reset: rules of the specification checked in every cycle of a random life,
//! with neighbours that sweep and drain as the card's do.

mod common;

use common::{Bench, in_threads, model, rng};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use weir_card::config::CardConfig;
use weir_card::ctrl::ctrl;
use weir_kit::{Dir, Module};

/// What ctrl shows in a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shown {
    rdy: bool,
    cfs: bool,
    shst: u64,
    discard: bool,
    clear: bool,
    registers_clear: bool,
    set: bool,
}

struct Life {
    b: Bench,
    rng: ChaCha8Rng,
    outputs: Vec<String>,
    en: bool,
    supported: bool,
    shn: u64,
    flr: bool,
    fault: bool,
    executing: bool,
    /// Cycles until the blocks have drained, and swept.
    drains: u64,
    /// How long draining takes, when not at random.
    long: Option<u64>,
    sweeps: u64,
    last: Shown,
    // What the rules remember.
    /// Cycles with EN = 1 asking for what CAP offers, all swept, not yet ready.
    asked: u64,
    /// A function level reset was asked for and has not yet cleared the registers; for how many cycles with nothing to wait for.
    flr_owed: bool,
    flr_wait: u64,
    fatal: bool,
    /// Cycles in one state of SHN, ready and executing.
    shutdown_for: u64,
    shutdown_done: bool,
    counts: [u64; 6],
}

impl Life {
    fn new(module: &Module, model: &verilator_sys::Model, seed: u64) -> Life {
        let out = module.ports().iter().filter(|p| p.dir == Dir::Out);
        let mut b = Bench::new(module, model, seed);
        for (name, v) in [
            ("asq", 0x1234_5000),
            ("acq", 0xfeed_6000u64),
            ("asqs", 31),
            ("acqs", 63),
        ] {
            b.set(name, v);
        }
        Life {
            outputs: out.map(|p| p.name.clone()).collect(),
            b,
            rng: rng(seed),
            en: false,
            supported: true,
            shn: 0,
            flr: false,
            fault: false,
            executing: false,
            drains: 0,
            long: None,
            sweeps: 20,
            last: Shown {
                discard: true,
                ..Shown::default()
            },
            asked: 0,
            flr_owed: false,
            flr_wait: 0,
            fatal: false,
            shutdown_for: 0,
            shutdown_done: false,
            counts: [0; 6],
        }
    }

    /// A cycle with the inputs as they are.
    fn cycle(&mut self) -> Shown {
        let draining = self.last.discard;
        if !draining {
            // Under load: never quiet but by chance.
            self.drains = self.long.unwrap_or_else(|| self.rng.random_range(0..30));
        }
        let quiet = self.drains == 0;
        let clearing = self.sweeps > 0;
        for (name, v) in [
            ("cc_en", self.en as u64),
            ("cc_supported", self.supported as u64),
            ("cc_shn", self.shn),
            ("flr", self.flr as u64),
            ("fault", self.fault as u64),
            ("quiet", quiet as u64),
            ("executing_none", !self.executing as u64),
            ("clearing", clearing as u64),
        ] {
            self.b.set(name, v);
        }
        self.b.eval();
        self.rest();
        let is = |n: &str| self.b.is(n);
        let now = Shown {
            rdy: is("csts_rdy"),
            cfs: is("csts_cfs"),
            shst: self.b.get("csts_shst"),
            discard: is("discard"),
            clear: is("clear"),
            registers_clear: is("registers_clear"),
            set: is("sq_set_valid"),
        };
        self.rules(now, quiet, clearing);
        self.b.tick();
        self.drains = self.drains.saturating_sub(1);
        self.sweeps = if now.clear {
            self.rng.random_range(1..25)
        } else {
            self.sweeps.saturating_sub(1)
        };
        self.last = now;
        now
    }

    fn rules(&mut self, now: Shown, quiet: bool, clearing: bool) {
        let last = self.last;
        // RDY rises only when all is swept, with the admin queues set up in the cycle before; it falls with the clear.
        if now.rdy && !last.rdy {
            assert!(last.set, "ready without admin queues");
            self.counts[0] += 1;
        }
        if last.rdy && !now.rdy {
            assert!(now.clear, "RDY falls only when the tables are cleared");
        }
        assert_eq!(now.set, self.b.is("cq_set_valid"));
        if now.set {
            assert!(!clearing && !now.discard && !now.rdy);
            let get = |n: &str| self.b.get(n);
            let set = [
                "sq_set_sq",
                "sq_set_enable",
                "sq_set_base",
                "sq_set_size",
                "sq_set_cq",
            ]
            .map(get);
            assert_eq!(set, [0, 1, 0x1234_5000, 31, 0]);
            let set = [
                "cq_set_cq",
                "cq_set_enable",
                "cq_set_base",
                "cq_set_size",
                "cq_set_interrupts",
                "cq_set_vector",
            ]
            .map(get);
            assert_eq!(set, [0, 1, 0xfeed_6000, 63, 1, 0]);
        }
        // Two cycles from EN, with all swept, to RDY.
        let may = self.en
            && self.supported
            && !clearing
            && !self.flr
            && !self.flr_owed
            && !now.discard
            && !self.fatal;
        self.asked = if may { self.asked + 1 } else { 0 };
        assert!(self.asked <= 2 || now.rdy, "not ready 2 cycles after EN");
        // Discard begins the cycle after EN is lost and holds until the sweep has ended.
        if last.discard && !now.discard {
            assert!(!last.rdy, "discard ends while ready");
        }
        assert!(!now.clear || now.discard, "clear belongs to discard");
        if now.clear {
            assert!(quiet, "cleared before it was quiet");
            assert!(!last.clear, "a pulse");
            self.counts[1] += 1;
        }
        // A function level reset resets the registers, once, with the tables.
        assert_eq!(now.registers_clear, now.clear && self.flr_owed);
        self.flr_wait = if self.flr_owed && quiet && !clearing && !now.clear {
            self.flr_wait + 1
        } else {
            0
        };
        assert!(self.flr_wait < 8, "a function level reset does not end");
        self.counts[2] += now.registers_clear as u64;
        self.flr_owed = self.flr || (self.flr_owed && !now.clear);
        // CFS: what CAP does not offer was asked for, or a fault while ready; until it is disabled.
        assert_eq!(now.cfs, self.fatal, "CSTS.CFS");
        let on = now.rdy && !now.discard;
        let off = !now.rdy && !now.discard && !now.set;
        let off_asked = off && self.en && !self.flr && !self.flr_owed;
        self.fatal |= (on && self.fault) || (off_asked && !self.supported);
        if now.clear || (off && !self.en) {
            self.fatal = false;
        }
        self.counts[3] += (now.cfs && !last.cfs) as u64;
        // SHST: 1 while commands execute, 2 when none does, until SHN is taken back or the controller disabled.
        assert_eq!(now.shst, self.shutdown(), "SHST: {now:?}");
        if self.shn == 0 || !on {
            (self.shutdown_for, self.shutdown_done) = (0, false);
        } else {
            self.shutdown_for += 1;
            self.shutdown_done |= !self.executing;
        }
        self.counts[4] += (now.shst == 2) as u64;
    }

    fn shutdown(&self) -> u64 {
        match (self.shutdown_for, self.shutdown_done) {
            (0, _) => 0,
            (_, true) => 2,
            _ => 1,
        }
    }

    /// While idle, and with inputs held, no output changes.
    fn rest(&mut self) {
        if !self.b.is("idle") || self.rng.random_range(0..4) > 0 {
            return;
        }
        let read = |b: &Bench| self.outputs.iter().map(|n| b.get(n)).collect::<Vec<_>>();
        let before = read(&self.b);
        for _ in 0..50 {
            self.b.sim.tick();
            self.b.sim.eval();
            assert_eq!(read(&self.b), before, "idle: {:?}", self.outputs);
        }
        self.counts[5] += 1;
    }

    /// Inputs change at random, each at its own pace.
    fn change(&mut self) {
        let mut chance = |n: u32| self.rng.random_range(0..n) == 0;
        if chance(60) {
            self.en = !self.en;
            self.supported = !chance(5);
        }
        if chance(30) {
            self.executing = !self.executing;
        }
        if chance(80) {
            self.shn = if self.shn == 0 {
                1 + chance(2) as u64
            } else {
                0
            };
        }
        self.flr = if self.flr { !chance(3) } else { chance(300) };
        self.fault = chance(200);
    }
}

fn life(seed: u64, module: &Module, model: &verilator_sys::Model) {
    let mut l = Life::new(module, model, seed);
    for _ in 0..30_000 {
        l.change();
        l.cycle();
    }
    println!(
        "seed {seed}: ready, clears, FLRs, fatal, shutdown cycles, held: {:?}",
        l.counts
    );
    assert!(l.counts.iter().all(|n| *n > 20), "the life was too quiet");
}

#[test]
fn every_rule_holds_in_a_random_life() {
    let module = ctrl(&CardConfig::small());
    let model = model(&module);
    in_threads(&(0..8u64).collect::<Vec<_>>(), |seed| {
        life(*seed, &module, &model);
    });
}

/// A disable waits for what is under way, as long as it takes; and a second enable for the sweep.
#[test]
fn a_disable_waits_and_an_enable_waits_for_it() {
    let module = ctrl(&CardConfig::small());
    let mut l = Life::new(&module, &model(&module), 5);
    l.en = true;
    while !l.cycle().rdy {}
    l.en = false;
    l.long = Some(1000);
    assert!(l.cycle().rdy);
    // Asked again before it is down: it goes down all the same.
    l.en = true;
    for _ in 0..900 {
        let s = l.cycle();
        assert!(s.rdy && s.discard && !s.clear);
    }
    let mut cycles = 0;
    while !l.cycle().clear {
        cycles += 1;
        assert!(cycles < 200);
    }
    l.sweeps = 300;
    for _ in 0..299 {
        let s = l.cycle();
        assert!(!s.rdy && s.discard && !s.set);
    }
    cycles = 0;
    while !l.cycle().rdy {
        cycles += 1;
        assert!(cycles < 6);
    }
}
