//! Drives the engine's ports at random and keeps the model in step.

mod observe;

use super::*;

/// A set behind a stream, like the bitmap: what is put is offered some cycles later, and stays offered until taken.
struct SetModel {
    members: Vec<(u32, u64)>,
    offer: Option<u32>,
    delay: u64,
    last: u32,
}

impl SetModel {
    fn new(members: std::ops::Range<u32>, delay: u64) -> SetModel {
        SetModel {
            members: members.map(|m| (m, 0)).collect(),
            offer: None,
            delay,
            last: 0,
        }
    }

    fn put(&mut self, index: u32, now: u64) {
        assert!(
            self.offer != Some(index) && self.members.iter().all(|m| m.0 != index),
            "{index} is in the set already"
        );
        self.members.push((index, now + self.delay));
    }

    /// Offers the next above the last taken, round the end.
    fn refill(&mut self, now: u64) {
        if self.offer.is_none() {
            let ready = (0..self.members.len()).filter(|i| self.members[*i].1 <= now);
            let next = ready.min_by_key(|i| (self.members[*i].0 <= self.last, self.members[*i].0));
            self.offer = next.map(|i| self.members.swap_remove(i).0);
        }
    }

    fn take(&mut self) {
        self.last = self.offer.take().expect("something was offered");
    }
}
/// What P2 took in, for P3.
enum Ending {
    Executed(u32, u64),
    Rejected(u32),
    Walked(u32),
}

type Budget = [u64; 7];
const BUDGET: [&str; 7] = ["set", "tag_set", "all", "lun", "depth", "weight", "rule"];

pub(super) struct Harness {
    c: CardConfig,
    b: Bench,
    m: Model,
    rng: ChaCha8Rng,
    p: Profile,
    phase: u32,
    odd: bool,
    stop: bool,
    tags: SetModel,
    work: SetModel,
    park: Option<(u32, Command)>,
    reject: Option<(u32, Command)>,
    done: Option<(u32, u64)>,
    pop: Option<u32>,
    budget: Option<Budget>,
    walk: Option<(bool, u32, u16)>,
    snapshot: Option<usize>,
    stats_due: Option<(u64, usize, Stats)>,
    reply_due: Option<Budget>,
    executing: Vec<u32>,
    exec_ready: bool,
    /// exec_valid and work_valid as they were in P2.
    p2: (bool, bool),
    has_work: Vec<bool>,
    ending: Option<Ending>,
    popping: Option<(u32, u32)>,
    walk_turn: bool,
    /// The command that P3 listed, told to the logs in the next cycle.
    told: Option<u32>,
    pub(super) longest_wait: u64,
    pub(super) admissions: u64,
    pub(super) deferrals: u64,
    pub(super) saved: u64,
}

impl Harness {
    pub(super) fn new(
        c: &CardConfig,
        module: &weir_kit::Module,
        model: &verilator_sys::Model,
        p: &Profile,
    ) -> Harness {
        let mut r = rng(p.seed);
        let (tag_delay, work_delay) = (r.random_range(0..4), r.random_range(0..6));
        let mut h = Harness {
            c: c.clone(),
            b: Bench::new(module, model, p.seed),
            m: Model::new(c),
            rng: r,
            p: p.clone(),
            phase: 0,
            odd: false,
            stop: false,
            tags: SetModel::new(0..c.tags, tag_delay),
            work: SetModel::new(0..0, work_delay),
            park: None,
            reject: None,
            done: None,
            pop: None,
            budget: None,
            walk: None,
            snapshot: None,
            stats_due: None,
            reply_due: None,
            executing: vec![],
            exec_ready: false,
            p2: (false, false),
            has_work: vec![],
            ending: None,
            popping: None,
            walk_turn: false,
            told: None,
            longest_wait: 0,
            admissions: 0,
            deferrals: 0,
            saved: 0,
        };
        h.start();
        h
    }

    /// A clock edge; follows the wheel.
    fn tick(&mut self) {
        self.odd ^= self.phase == 3 && !self.b.is("clearing");
        self.phase = (self.phase + 1) % 4;
        self.b.tick();
        self.b.eval();
    }

    fn reset(&mut self) {
        self.b.reset();
        (self.phase, self.odd) = (0, false);
        self.start();
    }

    /// After a reset or a clear: waits for the sweep, maps the queues, goes to the next P0.
    fn start(&mut self) {
        self.tags = SetModel::new(0..self.c.tags, self.tags.delay);
        self.work = SetModel::new(0..0, self.work.delay);
        (self.park, self.reject, self.done, self.pop) = (None, None, None, None);
        (self.budget, self.walk, self.snapshot) = (None, None, None);
        (self.stats_due, self.reply_due, self.ending, self.popping) = (None, None, None, None);
        (self.walk_turn, self.p2, self.told) = (false, (false, false), None);
        self.executing.clear();
        self.has_work = vec![false; self.c.queues as usize + 1];
        self.m = Model::new(&self.c);
        // The platform's limit stays through resets of the controller.
        self.m.limit = self.rng.random_range(1..=self.c.tags).into();
        if self.chance(50) {
            self.m.limit = self.c.tags.into();
        }
        self.b.set("tags", self.m.limit);
        for name in [
            "park", "reject", "done", "pop", "budget", "walk", "snapshot", "tag", "work",
            "sq_to_cq",
        ] {
            self.b.set(&format!("{name}_valid"), 0u64);
        }
        for name in ["exec_ready", "discard", "clear"] {
            self.b.set(name, 0u64);
        }
        self.b.eval();
        let mut n = 0;
        while self.b.is("clearing") {
            self.tick();
            n += 1;
            assert!(n < 1000, "clearing does not end");
        }
        for sq in 0..=self.c.queues {
            let cq = self.rng.random_range(0..=self.c.queues);
            self.m.cq_of[sq as usize] = cq;
            self.b.set("sq_to_cq_valid", 1u64);
            self.b.set("sq_to_cq_sq", sq);
            self.b.set("sq_to_cq_cq", cq);
            self.tick();
        }
        self.b.set("sq_to_cq_valid", 0u64);
        self.b.eval();
        while self.phase != 0 {
            self.tick();
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn one_in(&mut self, n: u32) -> bool {
        n != 0 && self.rng.random_range(0..n) == 0
    }

    fn free_slot(&mut self) -> Option<u32> {
        let offered = [self.park, self.reject].map(|o| o.map(|o| o.0));
        let free =
            |s: &u32| self.m.slots[*s as usize].0 == Place::Free && !offered.contains(&Some(*s));
        let free: Vec<u32> = (0..self.c.slots()).filter(free).collect();
        (!free.is_empty()).then(|| free[self.rng.random_range(0..free.len())])
    }

    fn random_command(&mut self, status: Option<u64>) -> Command {
        let op = [READ, READ, READ, WRITE, WRITE, FLUSH][self.rng.random_range(0..6)];
        let most = if self.rng.random() { 8 } else { 256 };
        Command {
            sq: self.rng.random_range(1..=self.c.queues),
            cid: self.rng.random_range(0..8),
            lun: self.rng.random_range(0..self.p.luns) as usize,
            op,
            blocks: if op == FLUSH {
                0
            } else {
                self.rng.random_range(1..=most)
            },
            parked_at: 0,
            counted: false,
            rejected: status.is_some(),
            status,
        }
    }

    /// Decides what is offered in this cycle; what was offered and not taken stays.
    fn choose(&mut self) {
        let p = self.p.clone();
        if self.park.is_none() && !self.stop && self.chance(p.park) {
            self.park = self.free_slot().map(|s| (s, self.random_command(None)));
        }
        if self.reject.is_none() && !self.stop && self.chance(p.park / 10) {
            let status = self.rng.random_range(0..1 << 15);
            self.reject = self
                .free_slot()
                .map(|s| (s, self.random_command(Some(status))));
        }
        if self.done.is_none() && !self.executing.is_empty() && self.chance(p.done) {
            let i = self.rng.random_range(0..self.executing.len());
            let status = if self.chance(80) {
                0
            } else {
                self.rng.random_range(0..1 << 15)
            };
            self.done = Some((self.executing.swap_remove(i), status));
        }
        if self.pop.is_none() && self.popping.is_none() && self.chance(p.pop) {
            let with: Vec<u32> = (0..=self.c.queues)
                .filter(|q| self.has_work[*q as usize])
                .collect();
            if !with.is_empty() {
                self.pop = Some(with[self.rng.random_range(0..with.len())]);
            }
        }
        if self.m.discard {
            return;
        }
        if self.budget.is_none() && self.reply_due.is_none() && self.one_in(p.budget_every) {
            let lun = self.rng.random_range(0..self.c.luns) as u64;
            let most = if self.chance(70) { 6 } else { self.c.tags };
            let depth = self.rng.random_range(1..=most.min(self.c.tags)) as u64;
            let (set, tag_set, all) = (self.chance(80), self.chance(30), self.chance(20));
            // Admin lets no tag depth above the limit through.
            let depth = if tag_set {
                depth.min(self.m.limit)
            } else {
                depth
            };
            let rule = if p.exact {
                [NONE, WEIGHTED][self.rng.random_range(0..2)]
            } else {
                self.rng.random_range(0..3)
            };
            let all = all && set && !tag_set && !p.exact;
            self.budget = Some([
                set as u64,
                tag_set as u64,
                all as u64,
                lun,
                depth,
                self.rng.random_range(1..=4),
                rule,
            ]);
        }
        if self.walk.is_none() && self.m.walk.is_none() && self.one_in(p.walk_every) {
            self.walk = Some((
                self.rng.random(),
                self.rng.random_range(1..=self.c.queues),
                self.rng.random_range(0..8),
            ));
        }
        if self.snapshot.is_none() && self.stats_due.is_none() && self.one_in(20) {
            self.snapshot = Some(self.rng.random_range(0..self.c.luns) as usize);
        }
    }

    fn drive(&mut self) {
        self.choose();
        let now = self.b.cycle();
        self.tags.refill(now);
        self.work.refill(now);
        self.exec_ready = self.chance(self.p.exec);
        let exec_ready = self.exec_ready;
        let b = &mut self.b;
        b.set("cycle", now);
        b.set("exec_ready", exec_ready);
        b.set("discard", self.m.discard);
        b.set("park_valid", self.park.is_some());
        if let Some((slot, c)) = self.park {
            b.set("park_slot", slot);
            b.set("park_sq", c.sq);
            b.set("park_cid", c.cid);
            b.set("park_lun", c.lun as u64);
            b.set("park_op", c.op);
            b.set("park_cost", c.cost());
            b.set("park_blocks", c.blocks);
        }
        b.set("reject_valid", self.reject.is_some());
        if let Some((slot, c)) = self.reject {
            b.set("reject_slot", slot);
            b.set("reject_sq", c.sq);
            b.set("reject_cid", c.cid);
            b.set("reject_status", c.status.unwrap());
        }
        b.set("done_valid", self.done.is_some());
        if let Some((slot, status)) = self.done {
            let (place, c) = self.m.slots[slot as usize];
            let Place::Executing(tag) = place else {
                panic!("done of slot {slot}, which is {place:?}")
            };
            b.set("done_exec_slot", slot);
            b.set("done_exec_sq", c.sq);
            b.set("done_exec_lun", c.lun as u64);
            b.set("done_exec_tag", tag);
            b.set("done_exec_op", c.op);
            b.set("done_status", status);
        }
        b.set("pop_valid", self.pop.is_some());
        b.set("pop_data", self.pop.unwrap_or(0));
        b.set("budget_valid", self.budget.is_some());
        for (name, v) in BUDGET.iter().zip(self.budget.unwrap_or_default()) {
            b.set(&format!("budget_{name}"), v);
        }
        b.set("walk_valid", self.walk.is_some());
        if let Some((one, sq, cid)) = self.walk {
            b.set("walk_one", one);
            b.set("walk_sq", sq);
            b.set("walk_cid", cid);
        }
        b.set("snapshot_valid", self.snapshot.is_some());
        b.set("snapshot_data", self.snapshot.unwrap_or(0) as u64);
        b.set("tag_valid", self.tags.offer.is_some());
        b.set("tag_data", self.tags.offer.unwrap_or(0));
        b.set("work_valid", self.work.offer.is_some());
        b.set("work_data", self.work.offer.unwrap_or(0));
        b.eval();
    }
}
