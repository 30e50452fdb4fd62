//! The LUN engine with its two bitmaps: rates, latencies, fairness and `idle`, as the module's documentation promises them.

mod common;
use common::*;
use std::collections::VecDeque;
use weir_card::bitmap::{BitmapConfig, BitmapPorts, bitmap};
use weir_card::config::CardConfig;
use weir_card::lun_engine::{LunEnginePorts, connect_sets, lun_engine};
use weir_kit::*;

const READ: u64 = 0;
const FLUSH: u64 = 2;
const NONE: u64 = 0;
const EVEN: u64 = 1;
const WEIGHTED: u64 = 2;

/// What the engine's own ports leave to see from outside.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
struct Ports {
    #[input]
    #[bits(32)]
    cycle: Sig,
    #[input]
    park: Stream<weir_card::interfaces::Park>,
    #[output]
    exec: Stream<weir_card::interfaces::Exec>,
    #[input]
    done: Stream<weir_card::interfaces::Done>,
    #[input]
    budget: Stream<weir_card::interfaces::BudgetRequest>,
    #[output]
    #[bits(1)]
    budget_reply_valid: Sig,
    #[input]
    sq_to_cq: weir_card::lun_engine::SqToCq,
    #[input]
    #[params(p.queue_bits())]
    pop: Stream<Sig>,
    #[output]
    #[bits(1)]
    popped_valid: Sig,
    #[output]
    popped: weir_card::interfaces::Popped,
    #[output]
    #[bits(1)]
    cq_work_valid: Sig,
    #[output]
    #[bits(1)]
    clearing: Sig,
    #[output]
    #[bits(1)]
    idle: Sig,
}

/// The engine and its bitmaps.
#[hw]
fn top(c: &CardConfig) -> Module {
    let (tag_config, work_config) = (BitmapConfig::allocator(c.tags), BitmapConfig::work(c.luns));
    let (engine, tags, work) = (lun_engine(c), bitmap(&tag_config), bitmap(&work_config));
    module("engine_and_sets", "for tests.", c, |p: Ports| {
        let u_engine = instance::<LunEnginePorts>("u_engine", &engine, c);
        let u_tags = instance::<BitmapPorts>("u_tags", &tags, &tag_config);
        let u_work = instance::<BitmapPorts>("u_work", &work, &work_config);
        connect_sets(&u_engine, &u_tags, &u_work);
        for x in [
            u_engine.discard,
            u_engine.clear,
            u_engine.reject.valid,
            u_engine.walk.valid,
            u_engine.snapshot.valid,
            u_tags.clear,
            u_work.clear,
        ] {
            x.set(0);
        }
        u_engine.tags.set(c.tags);
        u_engine.sq_to_cq.set(&p.sq_to_cq);
        u_engine.reject.payload.set(&Bundle::zero(c));
        u_engine.walk.payload.set(&Bundle::zero(c));
        u_engine.snapshot.payload.set(0);
        u_engine.cycle.set(p.cycle);
        u_engine.park.set(&p.park);
        p.exec.set(&u_engine.exec);
        u_engine.done.set(&p.done);
        u_engine.budget.set(&p.budget);
        p.budget_reply_valid.set(u_engine.budget_reply_valid);
        u_engine.pop.set(&p.pop);
        p.popped_valid.set(u_engine.popped_valid);
        p.popped.set(&u_engine.popped);
        p.cq_work_valid.set(u_engine.cq_work_valid);
        p.clearing
            .set(u_engine.clearing | u_tags.clearing | u_work.clearing);
        p.idle.set(u_engine.idle & u_tags.idle & u_work.idle);
        assert(
            "sets_are_used_rightly",
            !(u_tags.error_double_put
                | u_tags.error_range
                | u_work.error_double_put
                | u_work.error_range),
        );
        unused(u_engine);
        unused(u_tags);
        unused(u_work);
    })
}

/// A command: LUN, op, cost in 4 KiB units.
type Command = (u64, u64, u64);

/// Drives the engine as its neighbours do, as fast as it takes.
struct Driver {
    b: Bench,
    free: VecDeque<u64>,
    /// Commands to park, in order.
    queue: VecDeque<Command>,
    /// {slot, LUN, tag, op} of what executes, and when it is done.
    executing: VecDeque<([u64; 4], u64)>,
    /// Cycles that a command executes.
    execution: u64,
    /// Commands that wait on the list of the only CQ.
    has_work: bool,
    popping: bool,
    /// When each was parked, admitted (and for which LUN), listed, popped.
    parked_at: Vec<u64>,
    admitted: Vec<(u64, u64)>,
    done_at: Vec<u64>,
    work_at: Vec<u64>,
    popped_at: Vec<u64>,
}

impl Driver {
    fn new(c: &CardConfig, execution: u64) -> Driver {
        let module = top(c);
        let mut b = Bench::new(&module, &model(&module), 1);
        b.eval();
        while b.is("clearing") {
            b.tick();
            b.eval();
        }
        b.set("sq_to_cq_valid", 1u64);
        b.tick();
        b.set("sq_to_cq_valid", 0u64);
        b.set("exec_ready", 1u64);
        Driver {
            b,
            free: (0..c.slots().into()).collect(),
            queue: VecDeque::new(),
            executing: VecDeque::new(),
            execution,
            has_work: false,
            popping: false,
            parked_at: vec![],
            admitted: vec![],
            done_at: vec![],
            work_at: vec![],
            popped_at: vec![],
        }
    }

    fn budget(&mut self, tag_set: bool, lun: u64, depth: u64, weight: u64, rule: u64) {
        for (name, v) in [
            ("valid", 1),
            ("set", 1),
            ("tag_set", tag_set as u64),
            ("all", 0),
            ("lun", lun),
            ("depth", depth),
            ("weight", weight),
            ("rule", rule),
        ] {
            self.b.set(&format!("budget_{name}"), v);
        }
        self.b.eval();
        while !self.b.is("budget_ready") {
            self.cycle();
        }
        self.cycle();
        self.b.set("budget_valid", 0u64);
    }

    fn cycle(&mut self) {
        let now = self.b.cycle();
        self.b.set("cycle", now);
        let park = self
            .queue
            .front()
            .copied()
            .filter(|_| !self.free.is_empty());
        self.b.set("park_valid", park.is_some());
        if let Some((lun, op, cost)) = park {
            self.b.set("park_slot", self.free[0]);
            self.b.set("park_lun", lun);
            self.b.set("park_op", op);
            self.b.set("park_cost", cost);
            self.b
                .set("park_blocks", if op == FLUSH { 0 } else { cost * 8 });
        }
        let done = self.executing.front().copied().filter(|e| e.1 <= now);
        self.b.set("done_valid", done.is_some());
        if let Some(([slot, lun, tag, op], _)) = done {
            for (name, v) in [("slot", slot), ("lun", lun), ("tag", tag), ("op", op)] {
                self.b.set(&format!("done_exec_{name}"), v);
            }
        }
        self.b.set("pop_valid", self.has_work && !self.popping);
        self.b.eval();

        if park.is_some() && self.b.is("park_ready") {
            self.free.pop_front();
            self.queue.pop_front();
            self.parked_at.push(now);
        }
        if self.b.is("exec_valid") {
            let exec = ["slot", "lun", "tag", "op"].map(|n| self.b.get(&format!("exec_{n}")));
            self.admitted.push((now, exec[1]));
            self.executing.push_back((exec, now + self.execution));
        }
        if done.is_some() && self.b.is("done_ready") {
            self.executing.pop_front();
            self.done_at.push(now);
        }
        if self.b.is("popped_valid") {
            self.free.push_back(self.b.get("popped_slot"));
            self.has_work = self.b.is("popped_more");
            self.popping = false;
            self.popped_at.push(now);
        } else if self.has_work && self.b.is("pop_ready") {
            self.popping = true;
        }
        if self.b.is("cq_work_valid") {
            self.has_work = true;
            self.work_at.push(now);
        }
        self.b.tick();
        self.b.eval();
    }

    fn cycles(&mut self, n: u64) {
        (0..n).for_each(|_| self.cycle());
    }

    /// Keeps `waiting` commands queued behind the engine, for `n` cycles.
    fn load(&mut self, n: u64, waiting: usize, mut next: impl FnMut(usize) -> Command) {
        let mut i = 0;
        for _ in 0..n {
            while self.queue.len() < waiting {
                self.queue.push_back(next(i));
                i += 1;
            }
            self.cycle();
        }
    }

    /// Admissions a LUN from cycle `from` on.
    fn admissions(&self, luns: usize, from: u64) -> Vec<u64> {
        let mut n = vec![0; luns];
        self.admitted
            .iter()
            .filter(|a| a.0 >= from)
            .for_each(|a| n[a.1 as usize] += 1);
        n
    }
}

/// One command every 4 cycles through park, admit, complete and pop, on one LUN, on a few, on all.
#[test]
fn a_command_every_four_cycles() {
    for c in [CardConfig::small(), CardConfig::default_card()] {
        for luns in [1, 2, 3, c.luns as usize] {
            let mut d = Driver::new(&c, 20);
            d.load(500, 4, |i| ((i % luns) as u64, FLUSH, 1));
            let from = d.b.cycle();
            d.load(4000, 4, |i| ((i % luns) as u64, FLUSH, 1));
            let n = d.admissions(luns, from);
            println!(
                "{}, {luns} LUNs: {} admissions in 4000 cycles",
                c.name,
                n.iter().sum::<u64>()
            );
            assert_eq!(
                n.iter().sum::<u64>(),
                1000,
                "{}, {luns} LUNs: {n:?}",
                c.name
            );
            let popped = d.popped_at.iter().filter(|t| **t >= from).count();
            assert!((999..=1001).contains(&popped), "popped {popped}");
        }
    }
}

/// A single command on an idle engine, at each offset to the wheel.
#[test]
fn latency_of_one_command() {
    for c in [CardConfig::small(), CardConfig::large()] {
        let mut d = Driver::new(&c, 10);
        for i in 0..8 {
            d.cycles(100 + i);
            let offered = d.b.cycle();
            d.queue.push_back((i % c.luns as u64, READ, 1));
            d.cycles(60);
            let (parked, admitted) = (d.parked_at[i as usize], d.admitted[i as usize].0);
            let (done, work, popped) = (
                d.done_at[i as usize],
                d.work_at[i as usize],
                d.popped_at[i as usize],
            );
            println!(
                "{}: wait {}, to exec {}, done to list {}, list to popped {}",
                c.name,
                parked - offered,
                admitted - parked,
                work - done,
                popped - work
            );
            assert!(parked - offered <= 3);
            assert_eq!(admitted - parked, 3, "from P0 to exec.valid");
            assert_eq!(work - done, 1, "from P2 to cq_work");
            assert_eq!(popped - work, 2, "from cq_work in P3 to popped in P1");
        }
    }
}

/// Admissions a LUN when all are loaded alike, and more than there are tags (8): the rule decides who gets them.
fn shares(rule: u64, weights: &[u64], costs: &[u64], depth: u64, cycles: u64) -> Vec<u64> {
    let luns = weights.len();
    let c = CardConfig {
        queues: 64,
        luns: luns as u32,
        ..CardConfig::small()
    };
    let mut d = Driver::new(&c, 100);
    for (l, weight) in weights.iter().enumerate() {
        d.budget(false, l as u64, depth, *weight, NONE);
    }
    d.budget(true, 0, 8, 1, rule);
    // Each LUN keeps as many commands on the card: what is popped is parked again at once.
    let mut waiting = vec![0i64; luns];
    for _ in 0..cycles {
        let admitted = d.admitted.len();
        d.cycle();
        for a in &d.admitted[admitted..] {
            waiting[a.1 as usize] -= 1;
        }
        if d.queue.is_empty() {
            let l = (0..luns).min_by_key(|l| waiting[*l]).unwrap();
            waiting[l] += 1;
            d.queue.push_back((l as u64, READ, costs[l]));
        }
    }
    d.admissions(luns, cycles / 6)
}

/// Each LUN's part of what was got is its part of what is wanted, within `percent` of that.
fn near(what: &str, got: &[u64], want: &[u64], percent: u64) {
    let (sum, parts) = (got.iter().sum::<u64>(), want.iter().sum::<u64>());
    for (g, w) in got.iter().zip(want) {
        let expected = sum * w / parts;
        assert!(
            g.abs_diff(expected) * 100 <= expected * percent,
            "{what}: got {got:?}, expected like {want:?}"
        );
    }
}

#[test]
fn fairness_rules_share_the_tags() {
    let alike = [1; 4];
    let run = |rule, weights: &[u64], costs: &[u64]| shares(rule, weights, costs, 32, 200_000);
    near("none", &run(NONE, &alike, &alike), &alike, 1);
    near("even", &run(EVEN, &alike, &alike), &alike, 1);
    near("weights alike", &run(WEIGHTED, &alike, &alike), &alike, 5);
    let weights = [1, 2, 4, 8];
    near("weights", &run(WEIGHTED, &weights, &alike), &weights, 1);
    let got = shares(WEIGHTED, &weights, &alike, 8, 200_000);
    near("weights, depth as tags", &got, &weights, 1);
    // A depth below the tags does not take a LUN's weight from it, as long as its quantum fits.
    let eight = [1, 1, 1, 1, 2, 2, 2, 2];
    let got = shares(WEIGHTED, &eight, &[1; 8], 4, 200_000);
    near("weights, depth half the tags", &got, &eight, 1);
    let got = shares(WEIGHTED, &weights, &[32; 4], 3, 400_000);
    near("weights, large commands, small depth", &got, &weights, 5);
    // Commands of 128 KiB against commands of 4 KiB: the same bytes.
    let costs = [32, 8, 1, 1];
    near("costs", &run(WEIGHTED, &alike, &costs), &[1, 4, 32, 32], 5);
}

/// As many LUNs as make turns short: none is passed over, at the work set's end or anywhere.
#[test]
fn fairness_rules_share_the_tags_over_many_luns() {
    for luns in [16, 64, 128] {
        let weights: Vec<u64> = (0..luns).map(|l| 1 << (l % 4)).collect();
        let (alike, cost) = (vec![1; luns], vec![32; luns]);
        let cycles = 240_000;
        let got = shares(NONE, &weights, &cost, 32, cycles);
        near(&format!("none, {luns} LUNs"), &got, &alike, 2);
        let got = shares(WEIGHTED, &weights, &cost, 32, cycles);
        near(&format!("weighted, {luns} LUNs"), &got, &weights, 5);
    }
}

/// A LUN that fills its depth is left alone until a command of it completes, and then goes at once.
#[test]
fn a_freed_budget_admits_the_next_command() {
    let mut d = Driver::new(&CardConfig::small(), 200);
    d.budget(false, 1, 2, 1, NONE);
    for _ in 0..6 {
        d.queue.push_back((1, READ, 1));
    }
    d.cycles(700);
    assert_eq!(d.admitted.len(), 6);
    for i in 2..6 {
        let waited = d.admitted[i].0 - d.done_at[i - 2];
        assert!(
            waited <= 8,
            "admitted {waited} cycles after the completion that made room"
        );
    }
}

/// Idle means idle: waiting for a completion, behind a depth, or with nothing, no output moves.
#[test]
fn idle_is_quiet() {
    let mut d = Driver::new(&CardConfig::small(), 1 << 40);
    let idle_after = |d: &mut Driver, what: &str| {
        d.cycles(12 + 8);
        assert!(d.b.is("idle"), "not idle {what}");
        for _ in 0..50 {
            d.cycle();
            assert!(
                d.b.is("idle") && !d.b.is("exec_valid") && !d.b.is("cq_work_valid"),
                "something moves {what}"
            );
        }
    };
    d.cycles(30);
    idle_after(&mut d, "with nothing to do");
    d.budget(false, 0, 2, 1, NONE);
    for _ in 0..5 {
        d.queue.push_back((0, READ, 1));
    }
    d.cycles(1);
    assert!(!d.b.is("idle"), "idle while a command is offered");
    d.cycles(30);
    idle_after(&mut d, "behind the depth");
    assert_eq!(d.admitted.len(), 2);
    d.budget(false, 0, 3, 1, NONE);
    d.cycles(12);
    assert_eq!(d.admitted.len(), 3, "a larger depth admits");
}
