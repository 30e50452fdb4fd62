//! The LUN engine in lock step with a plain Rust model, under random load, back-pressure, budgets, walks, discards and resets.
//!
//! The model does not choose which LUN is next: it checks that each choice is legal, and that no LUN waits too long.

#[path = "../common/mod.rs"]
mod common;
mod harness;
use common::*;
use harness::Harness;
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
    /// As Set Features has set it.
    tag_depth_set: u64,
    /// Tags in use.
    limit: u64,
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
    /// Commands that may hold a tag.
    fn tag_depth(&self) -> u64 {
        self.tag_depth_set.min(self.limit)
    }

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
            tag_depth_set: c.tags.into(),
            limit: c.tags.into(),
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
        self.tag_depth().div_ceil(active.max(1)).max(4)
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
        let tags_full = self.tags.len() as u64 >= self.tag_depth();
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
    fn admit(&mut self, slot: u32, l: usize, tag: u32, others_wait: bool, exact: bool, now: u64) {
        let command = self.command(slot);
        assert_eq!(command.lun, l, "admitted for another LUN");
        assert_eq!(
            self.luns[l].list.front(),
            Some(&slot),
            "slot {slot} is not the head of LUN {l}"
        );
        assert!(
            (self.tags.len() as u64) < self.tag_depth(),
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
                lun.deficit += lun.weight;
            }
            assert!(
                lun.deficit >= command.cost() || !others_wait || !exact,
                "LUN {l} has not saved enough, and others wait"
            );
            lun.deficit = lun.deficit.saturating_sub(command.cost());
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

    /// A visit of a LUN that could go and did not: its quantum does not cover its head, and others wait.
    fn save(&mut self, l: usize) {
        assert!(self.eligible(l) && self.rule == WEIGHTED, "LUN {l} saves");
        let lun = &mut self.luns[l];
        lun.deficit += lun.weight;
        lun.passed_over = 0;
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
    let totals = std::sync::Mutex::new((0, 0, 0, 0));
    in_threads(&profiles(n, turns, c.luns, first_seed), |p| {
        println!("{p:?}");
        let mut h = Harness::new(c, &module, &model, p);
        h.run();
        let mut t = totals.lock().unwrap();
        *t = (
            t.0 + h.admissions,
            t.1.max(h.longest_wait),
            t.2 + h.deferrals,
            t.3 + h.saved,
        );
    });
    let (admissions, longest, deferrals, saved) = totals.into_inner().unwrap();
    println!(
        "{}: {admissions} admissions, passed over at most {longest} turns, {deferrals} deferrals seen, {saved} visits that saved",
        c.name
    );
    assert!(
        admissions > n * turns / 40 && deferrals > 0 && (saved > 0 || c.luns == 1),
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
