//! The LUN engine in lock step with a plain Rust model, under random load, back-pressure, budgets, walks, discards and resets.
//!
//! The model does not choose which LUN is next: it checks that each choice is legal, and that no LUN waits too long.

mod common;
use common::*;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeSet, VecDeque};
use weir_card::config::CardConfig;
use weir_card::lun_engine::{ABORT_REQUESTED, ABORTED_SQ_DELETION, lun_engine};

const READ: u8 = 0;
const WRITE: u8 = 1;
const FLUSH: u8 = 2;
const NONE: u64 = 0;
const EVEN: u64 = 1;
const WEIGHTED: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Free,
    Parked,
    Executing(u32),
    Listed(u32),
}

/// A command as it was sent.
#[derive(Clone, Copy, Debug)]
struct Command {
    sq: u32,
    cid: u16,
    lun: usize,
    op: u8,
    blocks: u64,
    parked_at: u64,
    counted: bool,
    rejected: bool,
    status: Option<u64>,
}

impl Command {
    fn cost(&self) -> u64 {
        self.blocks.div_ceil(8).max(1)
    }
}

/// The counters of log C0h, in the order of `LunStats`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stats {
    in_flight: u64,
    peak: u64,
    parked: u64,
    admitted: u64,
    completed: u64,
    deferred_depth: u64,
    deferred_tags: u64,
    deferred_share: u64,
    cycles_waited: u64,
    bytes: u64,
}

#[derive(Clone, Debug)]
struct Lun {
    list: VecDeque<u32>,
    writes: u64,
    depth: u64,
    weight: u64,
    deficit: u64,
    stats: Stats,
    /// Wheel turns in which it could have gone and did not.
    passed_over: u64,
}

/// The walker's place.
struct Walk {
    one: bool,
    sq: u32,
    cid: u16,
    lun: usize,
    left: Option<usize>,
    found: bool,
}

struct Model {
    slots: Vec<(Place, Command)>,
    luns: Vec<Lun>,
    cqs: Vec<VecDeque<u32>>,
    cq_of: Vec<u32>,
    tags: BTreeSet<u32>,
    tag_depth: u64,
    rule: u64,
    walk: Option<Walk>,
    /// Draining: which slot goes when is not predicted any more.
    discard: bool,
    /// Shares as they were lately: any may bind while a division is under way.
    shares: VecDeque<u64>,
    /// Depths being set for all LUNs, one by one.
    all_depth: Option<u64>,
}

impl Model {
    fn new(c: &CardConfig) -> Model {
        let none = Command {
            sq: 0,
            cid: 0,
            lun: 0,
            op: 0,
            blocks: 0,
            parked_at: 0,
            counted: false,
            rejected: false,
            status: None,
        };
        let lun = Lun {
            list: VecDeque::new(),
            writes: 0,
            depth: c.tags.min(32).into(),
            weight: 1,
            deficit: 0,
            stats: Stats::default(),
            passed_over: 0,
        };
        Model {
            slots: vec![(Place::Free, none); c.slots() as usize],
            luns: vec![lun; c.luns as usize],
            cqs: vec![VecDeque::new(); c.queues as usize + 1],
            cq_of: vec![0; c.queues as usize + 1],
            tags: BTreeSet::new(),
            tag_depth: c.tags.into(),
            rule: NONE,
            walk: None,
            discard: false,
            shares: VecDeque::new(),
            all_depth: None,
        }
    }

    fn command(&self, slot: u32) -> Command {
        self.slots[slot as usize].1
    }

    fn share(&self) -> u64 {
        let active = self
            .luns
            .iter()
            .filter(|l| l.stats.parked + l.stats.in_flight > 0)
            .count() as u64;
        self.tag_depth.div_ceil(active.max(1)).max(4)
    }

    /// The least and the greatest share that may bind now.
    fn share_range(&self) -> (u64, u64) {
        if self.rule != EVEN {
            return (u64::MAX, u64::MAX);
        }
        let shares = || self.shares.iter().copied().chain([self.share()]);
        (shares().min().unwrap(), shares().max().unwrap())
    }

    /// The least and the greatest depth of a LUN that may hold now.
    fn depth_range(&self, l: usize) -> (u64, u64) {
        let depth = self.luns[l].depth;
        let all = self.all_depth.unwrap_or(depth);
        (depth.min(all), depth.max(all))
    }

    /// Whether the head of `l` may go for certain, tags aside.
    fn eligible(&self, l: usize) -> bool {
        let lun = &self.luns[l];
        let Some(&head) = lun.list.front() else {
            return false;
        };
        let flush_waits = self.command(head).op == FLUSH && lun.writes > 0;
        lun.stats.in_flight < self.depth_range(l).0
            && lun.stats.in_flight < self.share_range().0
            && !flush_waits
    }

    /// Counts what holds a new head. Not exact under EVEN, whose division takes its time, and while depths are set for all.
    fn new_head(&mut self, l: usize, gives_way: bool) {
        let Some(&slot) = self.luns[l].list.front() else {
            return;
        };
        if std::mem::replace(&mut self.slots[slot as usize].1.counted, true) || self.discard {
            return;
        }
        let tags_full = self.tags.len() as u64 >= self.tag_depth;
        let share = self.share_range().0;
        let lun = &mut self.luns[l];
        if lun.stats.in_flight >= lun.depth {
            lun.stats.deferred_depth += 1;
        } else if gives_way || lun.stats.in_flight >= share {
            lun.stats.deferred_share += 1;
        } else if tags_full {
            lun.stats.deferred_tags += 1;
        }
    }

    fn park(&mut self, slot: u32, command: Command) {
        assert_eq!(self.slots[slot as usize].0, Place::Free);
        self.slots[slot as usize] = (Place::Parked, command);
        let l = command.lun;
        let was_empty = self.luns[l].list.is_empty();
        self.luns[l].list.push_back(slot);
        self.luns[l].stats.parked += 1;
        if was_empty {
            self.new_head(l, false);
        }
    }

    /// An admission that the engine made in a P2 at `now`.
    fn admit(&mut self, slot: u32, l: usize, tag: u32, others_wait: bool, now: u64) {
        let command = self.command(slot);
        assert_eq!(command.lun, l, "admitted for another LUN");
        assert_eq!(
            self.luns[l].list.front(),
            Some(&slot),
            "slot {slot} is not the head of LUN {l}"
        );
        assert!(
            (self.tags.len() as u64) < self.tag_depth,
            "more tags than the tag depth"
        );
        assert!(self.tags.insert(tag), "tag {tag} has two owners");
        let (depth, share, rule) = (self.depth_range(l).1, self.share_range().1, self.rule);
        let lun = &mut self.luns[l];
        assert!(lun.stats.in_flight < depth, "LUN {l} above its depth");
        assert!(lun.stats.in_flight < share, "LUN {l} above its share");
        assert!(
            command.op != FLUSH || lun.writes == 0,
            "a Flush passed Writes"
        );
        lun.list.pop_front();
        lun.passed_over = 0;
        lun.stats.parked -= 1;
        lun.stats.in_flight += 1;
        lun.stats.peak = lun.stats.peak.max(lun.stats.in_flight);
        lun.stats.admitted += 1;
        lun.stats.cycles_waited += now - command.parked_at;
        lun.writes += (command.op == WRITE) as u64;
        let mut gives_way = false;
        if rule == WEIGHTED {
            if lun.deficit < command.cost() {
                lun.deficit += lun.weight * 32;
            }
            lun.deficit -= command.cost();
        }
        if lun.list.is_empty() || rule != WEIGHTED {
            lun.deficit = 0;
        }
        if let (WEIGHTED, Some(&next)) = (rule, lun.list.front()) {
            let deficit = lun.deficit;
            gives_way = deficit < self.command(next).cost() && others_wait && self.eligible(l);
        }
        self.slots[slot as usize].0 = Place::Executing(tag);
        self.new_head(l, gives_way);
        if let Some(w) = &mut self.walk
            && w.lun == l
            && let Some(left) = &mut w.left
        {
            *left -= 1;
            if *left == 0 {
                self.next_walk_lun();
            }
        }
    }

    fn next_walk_lun(&mut self) {
        let walk = self.walk.as_mut().unwrap();
        walk.lun += 1;
        walk.left = None;
    }

    /// A step of the walker; whether it has ended a command.
    fn walk_step(&mut self) -> Option<u32> {
        let walk = self.walk.as_mut().unwrap();
        let l = walk.lun;
        let Some(left) = walk.left else {
            let n = self.luns[l].list.len();
            walk.left = Some(n);
            if n == 0 {
                self.next_walk_lun();
            }
            return None;
        };
        walk.left = Some(left - 1);
        let (one, sq, cid) = (walk.one, walk.sq, walk.cid);
        let slot = self.luns[l]
            .list
            .pop_front()
            .expect("commands still to see are parked");
        let command = self.command(slot);
        let ends = command.sq == sq && (!one || command.cid == cid);
        if ends {
            self.walk.as_mut().unwrap().found = true;
            self.luns[l].stats.parked -= 1;
            if self.luns[l].list.is_empty() {
                self.luns[l].deficit = 0;
            }
            let status = if one {
                ABORT_REQUESTED
            } else {
                ABORTED_SQ_DELETION
            };
            self.slots[slot as usize].1.status = Some(status.into());
        } else {
            self.luns[l].list.push_back(slot);
        }
        if left == 1 {
            self.next_walk_lun();
        }
        self.new_head(l, false);
        ends.then_some(slot)
    }

    /// P3: counts down.
    fn executed(&mut self, slot: u32, status: u64) {
        let (place, command) = self.slots[slot as usize];
        let Place::Executing(tag) = place else {
            panic!("slot {slot} was not executing")
        };
        assert!(self.tags.remove(&tag));
        let lun = &mut self.luns[command.lun];
        lun.stats.in_flight -= 1;
        lun.stats.completed += 1;
        lun.writes -= (command.op == WRITE) as u64;
        if status & 0x7ff == 0 {
            lun.stats.bytes += command.blocks * 512;
        }
        self.slots[slot as usize].1.status = Some(status);
    }

    /// P3: on its CQ's list; whether the list was empty.
    fn list(&mut self, slot: u32) -> (u32, bool) {
        let cq = self.cq_of[self.command(slot).sq as usize];
        self.slots[slot as usize].0 = Place::Listed(cq);
        let list = &mut self.cqs[cq as usize];
        list.push_back(slot);
        (cq, list.len() == 1)
    }

    fn held(&self) -> usize {
        self.slots.iter().filter(|s| s.0 != Place::Free).count()
    }
}

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

/// What kind of load a run has. Rates are percent a cycle, `every` is one in so many cycles (0: never).
#[derive(Clone, Debug)]
struct Profile {
    seed: u64,
    turns: u64,
    park: u32,
    done: u32,
    exec: u32,
    pop: u32,
    budget_every: u32,
    walk_every: u32,
    end_every: u32,
    luns: u32,
    /// Nothing that the model cannot time: no EVEN, no depth for all.
    exact: bool,
}

/// What P2 took in, for P3.
enum Ending {
    Executed(u32, u64),
    Rejected(u32),
    Walked(u32),
}

type Budget = [u64; 7];
const BUDGET: [&str; 7] = ["set", "tag_set", "all", "lun", "depth", "weight", "rule"];

struct Harness {
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
    longest_wait: u64,
    admissions: u64,
    deferrals: u64,
}

impl Harness {
    fn new(
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

    /// One cycle, checked against the model.
    fn cycle(&mut self) {
        self.drive();
        let now = self.b.cycle();
        self.walk_answer();
        if let Some((at, l, expected)) = self
            .stats_due
            .filter(|d| d.0 == now || self.b.is("stats_valid"))
        {
            assert!(
                at == now && self.b.is("stats_valid"),
                "statistics come two cycles after the request"
            );
            self.compare_stats(l, &expected);
            self.stats_due = None;
        }
        if self.b.is("budget_reply_valid") {
            self.budget_answer();
        }
        match self.phase {
            0 => self.park_and_pop(now),
            1 => self.other(now),
            2 => self.admit(),
            _ => self.complete(now),
        }
        if self.b.is("exec_valid") && self.exec_ready {
            self.executing.push(self.b.get("exec_slot") as u32);
        }
        if self.walk.is_some() && self.b.is("walk_ready") {
            let (one, sq, cid) = self.walk.take().unwrap();
            self.m.walk = Some(Walk {
                one,
                sq,
                cid,
                lun: 0,
                left: None,
                found: false,
            });
        }
        if self.tags.offer.is_some() && self.b.is("tag_ready") {
            self.tags.take();
        }
        if self.work.offer.is_some() && self.b.is("work_ready") {
            self.work.take();
        }
        if self.b.is("work_put_valid") {
            self.work.put(self.b.get("work_put_index") as u32, now + 1);
        }
        self.tick();
    }

    fn park_and_pop(&mut self, now: u64) {
        assert_eq!(
            self.b.get("executing"),
            self.m.tags.len() as u64,
            "tags in use"
        );
        assert_eq!(self.b.is("empty"), self.m.held() == 0, "empty");
        self.walk_turn = self.odd && self.m.walk.is_some() && !self.m.discard;
        if !self.m.discard {
            self.told_to_logs();
        }
        assert!(self.b.is("park_ready"), "the wheel is out of step");
        if let Some(cq) = self.pop.take() {
            let slot = self.m.cqs[cq as usize].front().copied();
            self.popping = Some((cq, slot.unwrap_or(u32::MAX)));
        }
        if let Some((slot, mut command)) = self.park.take() {
            command.parked_at = now;
            self.m.park(slot, command);
        }
    }

    fn told_to_logs(&mut self) {
        assert_eq!(
            self.b.is("completed_valid"),
            self.told.is_some(),
            "completed"
        );
        let Some(slot) = self.told.take() else { return };
        let c = self.m.command(slot);
        let got = ["slot", "sq", "cid", "status"].map(|n| self.b.get(&format!("completed_{n}")));
        assert_eq!(
            got,
            [slot.into(), c.sq.into(), c.cid.into(), c.status.unwrap()]
        );
        let (op, blocks) = if c.rejected {
            (0, 0)
        } else {
            (c.op.into(), c.blocks)
        };
        assert_eq!(
            (self.b.get("completed_op"), self.b.get("completed_blocks")),
            (op, blocks)
        );
    }

    fn other(&mut self, now: u64) {
        assert_eq!(
            self.b.is("popped_valid"),
            self.popping.is_some(),
            "a pop is answered in the next cycle"
        );
        if let Some((cq, expected)) = self.popping.take() {
            let slot = self.b.get("popped_slot") as u32;
            let (place, command) = self.m.slots[slot as usize];
            let list = &mut self.m.cqs[cq as usize];
            let more = self.b.is("popped_more");
            if !self.m.discard {
                assert_eq!((slot, place), (expected, Place::Listed(cq)), "popped");
                list.pop_front();
                assert_eq!(more, !list.is_empty(), "more");
                assert_eq!(
                    self.b.get("popped_status"),
                    command.status.unwrap(),
                    "status of slot {slot}"
                );
            }
            assert_ne!(place, Place::Free, "popped slot {slot} twice");
            assert_eq!(self.m.cq_of[command.sq as usize], cq, "completed to its CQ");
            assert_eq!(self.b.get("popped_sq"), command.sq as u64);
            assert_eq!(self.b.get("popped_cid"), command.cid as u64);
            self.has_work[cq as usize] = more;
            self.m.slots[slot as usize].0 = Place::Free;
        }
        if self.budget.is_some() && self.b.is("budget_ready") {
            let q = self.budget.take().unwrap();
            let [set, tag_set, all, lun, depth, weight, rule] = q;
            match (set, tag_set, all) {
                (1, 1, _) => {
                    (self.m.tag_depth, self.m.rule) = (depth, rule);
                }
                (1, 0, 1) => self.m.all_depth = Some(depth),
                (1, 0, 0) => {
                    (
                        self.m.luns[lun as usize].depth,
                        self.m.luns[lun as usize].weight,
                    ) = (depth, weight)
                }
                _ => {}
            }
            self.reply_due = Some(q);
        } else if self.snapshot.is_some() && self.b.is("snapshot_ready") {
            let l = self.snapshot.take().unwrap();
            self.stats_due = Some((now + 2, l, self.m.luns[l].stats));
        }
    }

    fn budget_answer(&mut self) {
        let [_, tag_set, all, lun, depth, weight, _] =
            self.reply_due.take().expect("an answer to a request");
        let got = |n: &str| self.b.get(&format!("budget_reply_{n}"));
        if tag_set == 1 {
            assert_eq!(
                (got("depth"), got("rule")),
                (self.m.tag_depth, self.m.rule),
                "tag set"
            );
            return;
        }
        if all == 1 {
            self.m.all_depth = None;
            for l in &mut self.m.luns {
                (l.depth, l.weight) = (depth, weight);
            }
        }
        let l = &self.m.luns[lun as usize];
        assert_eq!(
            (got("depth"), got("weight")),
            (l.depth, l.weight),
            "budget of LUN {lun}"
        );
    }

    fn admit(&mut self) {
        self.p2 = (self.b.is("exec_valid"), self.work.offer.is_some());
        let done = self.done.is_some() && self.b.is("done_ready");
        let reject = self.reject.is_some() && self.b.is("reject_ready");
        assert!(!(done && reject), "one of them a turn");
        if done {
            let (slot, status) = self.done.take().unwrap();
            self.ending = Some(Ending::Executed(slot, status));
        }
        if reject {
            let (slot, command) = self.reject.take().unwrap();
            assert_eq!(self.m.slots[slot as usize].0, Place::Free);
            self.m.slots[slot as usize] = (Place::Parked, command);
            self.ending = Some(Ending::Rejected(slot));
        }
        if self.walk_turn {
            assert!(!done && !reject);
            self.ending = self.m.walk_step().map(Ending::Walked);
        }
    }

    fn complete(&mut self, now: u64) {
        if self.b.is("exec_valid") && !self.p2.0 {
            assert!(
                !self.walk_turn && !self.m.discard,
                "admitted in another's turn"
            );
            let get = |n: &str| self.b.get(&format!("exec_{n}")) as u32;
            let (slot, l) = (get("slot"), get("lun") as usize);
            let command = self.m.command(slot);
            assert_eq!(
                (get("sq"), get("op")),
                (command.sq, command.op.into()),
                "what executes is what was parked"
            );
            self.m.admit(slot, l, get("tag"), self.p2.1, now - 1);
            self.admissions += 1;
        }
        let ending = self.ending.take();
        let executed = matches!(ending, Some(Ending::Executed(..)));
        assert_eq!(
            self.b.is("tag_free_valid"),
            executed,
            "a tag is freed when its command has executed"
        );
        let slot = match ending {
            Some(Ending::Executed(slot, status)) => {
                let tag = self.b.get("tag_free_index") as u32;
                assert_eq!(self.m.slots[slot as usize].0, Place::Executing(tag));
                self.tags.put(tag, now + 1);
                self.m.executed(slot, status);
                Some(slot)
            }
            Some(Ending::Rejected(slot) | Ending::Walked(slot)) => Some(slot),
            None => None,
        };
        let work = self
            .b
            .is("cq_work_valid")
            .then(|| self.b.get("cq_work_cq") as u32);
        if let Some(cq) = work {
            assert!(
                !self.has_work[cq as usize] || self.m.discard,
                "cq_work of a list that had entries"
            );
            self.has_work[cq as usize] = true;
        }
        if self.m.discard {
            return;
        }
        self.told = slot;
        let expected = slot.map(|s| self.m.list(s)).filter(|l| l.1).map(|l| l.0);
        assert_eq!(work, expected, "cq_work");
        self.no_lost_wake_up();
        let share = self.m.share();
        self.m.shares.push_back(share);
        if self.m.shares.len() > 8 {
            self.m.shares.pop_front();
        }
    }

    /// A walk ends in P2, which shows in P3, or by the admission of that P2.
    fn walk_answer(&mut self) {
        let admitted = self.phase == 3 && self.b.is("exec_valid") && !self.p2.0;
        if !self.b.is("walk_done") {
            let over = self
                .m
                .walk
                .as_ref()
                .is_some_and(|w| w.lun == self.m.luns.len());
            assert!(
                !over || self.m.discard || self.phase != 3,
                "the walk has ended"
            );
            return;
        }
        let walk = self.m.walk.take().expect("a walk to end");
        if !self.m.discard {
            let by_admission =
                admitted && walk.lun + 1 == self.m.luns.len() && walk.left == Some(1);
            assert!(
                walk.lun == self.m.luns.len() || by_admission,
                "the walk has not ended: LUN {}",
                walk.lun
            );
            assert_eq!(self.b.is("walk_found"), walk.found, "found");
        }
    }

    fn compare_stats(&mut self, l: usize, expected: &Stats) {
        let get = |n: &str| self.b.get(&format!("stats_{n}"));
        let mut got = Stats {
            in_flight: get("in_flight"),
            peak: get("peak"),
            parked: get("parked"),
            admitted: get("admitted"),
            completed: get("completed"),
            deferred_depth: get("deferred_depth"),
            deferred_tags: get("deferred_tags"),
            deferred_share: get("deferred_share"),
            cycles_waited: get("cycles_waited"),
            bytes: get("bytes"),
        };
        let deferred = got.deferred_depth + got.deferred_share + got.deferred_tags;
        self.deferrals = self.deferrals.max(deferred);
        if !self.p.exact {
            assert!(deferred <= got.admitted + got.parked + expected.deferred_depth + 1000);
            got = Stats {
                deferred_depth: expected.deferred_depth,
                deferred_share: expected.deferred_share,
                deferred_tags: expected.deferred_tags,
                ..got
            };
        }
        assert_eq!(got, *expected, "statistics of LUN {l}");
    }

    /// Nobody who could go is passed over for long.
    fn no_lost_wake_up(&mut self) {
        let free = (self.m.tags.len() as u64) < self.m.tag_depth && !self.p2.0 && !self.walk_turn;
        let quantum = if self.m.rule == WEIGHTED { 4 * 32 } else { 4 };
        let bound = self.c.luns as u64 * quantum + 8 * self.c.luns as u64 + 16;
        for l in 0..self.m.luns.len() {
            if !self.m.eligible(l) {
                self.m.luns[l].passed_over = 0;
            } else if free {
                self.m.luns[l].passed_over += 1;
                self.longest_wait = self.longest_wait.max(self.m.luns[l].passed_over);
                assert!(
                    self.m.luns[l].passed_over <= bound,
                    "LUN {l} could go and was passed over {bound} times: lost wake-up"
                );
            }
        }
    }

    /// Lets everything end.
    fn drain(&mut self) {
        self.stop = true;
        let p = self.p.clone();
        (
            self.p.budget_every,
            self.p.walk_every,
            self.p.done,
            self.p.exec,
            self.p.pop,
        ) = (0, 0, 50, 50, 50);
        let mut n = 0;
        loop {
            self.cycle();
            let over = self.phase == 0
                && self.m.held() == 0
                && self.park.is_none()
                && self.reject.is_none();
            if over
                && self.budget.is_none()
                && self.reply_due.is_none()
                && self.m.walk.is_none()
                && self.walk.is_none()
                && self.stats_due.is_none()
                && self.snapshot.is_none()
                && self.b.is("empty")
            {
                break;
            }
            n += 1;
            assert!(
                n < 400 * self.c.slots() as u64,
                "{} slots stay behind; budget {:?} {:?}, walk {:?} {}, snapshot {:?} {:?}, empty {}",
                self.m.held(),
                self.budget,
                self.reply_due,
                self.walk,
                self.m.walk.is_some(),
                self.snapshot,
                self.stats_due,
                self.b.is("empty")
            );
        }
        (self.p, self.stop) = (p, false);
    }

    /// Disables: everything comes out through the CQ lists, then the tables are cleared.
    fn discard(&mut self) {
        while self.phase != 0 {
            self.cycle();
        }
        self.stop = true;
        (
            self.budget,
            self.walk,
            self.snapshot,
            self.stats_due,
            self.reply_due,
        ) = (None, None, None, None, None);
        self.m.discard = true;
        let mut n = 0;
        loop {
            self.cycle();
            if self.m.held() == 0
                && self.phase == 0
                && self.park.is_none()
                && self.reject.is_none()
                && self.b.is("empty")
            {
                break;
            }
            n += 1;
            assert!(
                n < 400 * self.c.slots() as u64,
                "{} slots are not discarded",
                self.m.held()
            );
        }
        assert_eq!(self.b.get("executing"), 0);
        self.stop = false;
        self.b.set("discard", 0u64);
        self.b.set("park_valid", 0u64);
        self.b.set("clear", 1u64);
        self.b.eval();
        self.tick();
        self.start();
    }

    fn run(&mut self) {
        for _ in 0..self.p.turns * 4 {
            self.cycle();
            if self.phase == 0 && self.one_in(self.p.end_every) {
                match self.rng.random_range(0..3) {
                    0 => self.drain(),
                    1 => self.discard(),
                    _ => self.reset(),
                }
            }
        }
        self.drain();
    }
}

fn profiles(n: u64, turns: u64, luns: u32, first_seed: u64) -> Vec<Profile> {
    let profile = |seed: u64| {
        let mut r = rng(seed ^ 0x5eed);
        let rate = |r: &mut ChaCha8Rng| [3, 10, 25, 60, 100][r.random_range(0..5)];
        Profile {
            seed,
            turns,
            park: rate(&mut r),
            done: rate(&mut r),
            exec: rate(&mut r).max(10),
            pop: rate(&mut r),
            budget_every: [0, 30, 100, 400][r.random_range(0..4)],
            walk_every: [0, 0, 150, 500][r.random_range(0..4)],
            end_every: [0, 600, 2000][r.random_range(0..3)],
            luns: r.random_range(1..=luns),
            exact: seed.is_multiple_of(2),
        }
    };
    (first_seed..first_seed + n).map(profile).collect()
}

fn run_all(c: &CardConfig, n: u64, turns: u64, first_seed: u64) {
    let module = lun_engine(c);
    let model = model(&module);
    let totals = std::sync::Mutex::new((0, 0, 0));
    in_threads(&profiles(n, turns, c.luns, first_seed), |p| {
        println!("{p:?}");
        let mut h = Harness::new(c, &module, &model, p);
        h.run();
        let mut t = totals.lock().unwrap();
        *t = (
            t.0 + h.admissions,
            t.1.max(h.longest_wait),
            t.2 + h.deferrals,
        );
    });
    let (admissions, longest, deferrals) = totals.into_inner().unwrap();
    println!(
        "{}: {admissions} admissions, passed over at most {longest} turns, {deferrals} deferrals seen",
        c.name
    );
    assert!(
        admissions > n * turns / 40 && deferrals > 0,
        "the load was not there"
    );
}

#[test]
fn small_card() {
    run_all(&CardConfig::small(), 24, 4000, 0);
}

#[test]
fn one_lun() {
    run_all(
        &CardConfig {
            name: "one_lun".into(),
            queues: 2,
            luns: 1,
            tags: 8,
            ..CardConfig::small()
        },
        8,
        4000,
        100,
    );
}

/// Small enough for the ghost owners of the proofs: they are checked here in every cycle.
#[test]
fn tiny_card_with_ghost_owners() {
    let c = CardConfig {
        name: "tiny".into(),
        queues: 1,
        entries: 4,
        luns: 2,
        tags: 2,
        ..CardConfig::small()
    };
    run_all(&c, 6, 3000, 400);
    let c = CardConfig {
        name: "tiny_queues".into(),
        queues: 2,
        tags: 4,
        luns: 3,
        ..c
    };
    run_all(&c, 6, 3000, 500);
}

#[test]
fn odd_numbers() {
    run_all(
        &CardConfig {
            name: "odd".into(),
            queues: 3,
            luns: 3,
            tags: 8,
            ..CardConfig::small()
        },
        12,
        4000,
        200,
    );
}

#[test]
fn default_card() {
    run_all(&CardConfig::default_card(), 4, 6000, 300);
}
