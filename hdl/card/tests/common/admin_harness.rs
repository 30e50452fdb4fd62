//! The admin block with its neighbours in plain Rust: walker, LUN engine, LUN map, host bus, completion port; each command is
//! run in lock step with [`Controller`].

#![allow(dead_code)] // Each test uses its part.

use super::admin_model::{Command, Controller, DNR, Effect, Expected, QueueSet};
use super::common::*;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeSet, HashMap};
use weir_card::config::CardConfig;
use weir_kit::{Dir, Module};
use weir_nvme::StatusCode;
use zerocopy::IntoBytes;

/// Cycles within which a command is answered on the slowest bus of these tests.
const PATIENCE: u64 = 400_000;
/// Asynchronous Event Requests have CIDs from here on, other commands below.
const EVENT_CIDS: u16 = 0x8000;

pub struct Harness {
    c: CardConfig,
    pub b: Bench,
    pub rng: ChaCha8Rng,
    pub model: Controller,
    /// Outputs, and whether they are wider than 64 bits.
    outputs: Vec<(String, bool)>,
    next_cid: u16,
    /// The entry that is offered.
    pub offer: Option<Command>,
    /// Cycles in which it was picked, and in which it comes.
    coming: Option<(u64, u64)>,
    /// The command under way.
    pub current: Option<Expected>,
    /// Its NSID, or the last one's.
    nsid: u32,
    /// A reply is due at this cycle.
    walk_at: Option<u64>,
    found: bool,
    reply_at: Option<(u64, [u64; 3])>,
    stats_at: Option<u64>,
    busy_until: u64,
    looked: usize,
    /// The beat of admin data.
    aw: Option<u64>,
    w: Option<(Vec<u64>, u64)>,
    answer_at: Option<(u64, bool)>,
    /// Percent of beats that are refused; one was.
    pub refuse: u32,
    refused: bool,
    /// Bytes written by the command under way.
    written: HashMap<u64, u8>,
    /// Percent of cycles in which neighbours are ready.
    pub ready: u32,
    /// Bad doorbells, I/O and errors beside the commands.
    pub news: bool,
    /// The completion that is offered, and since when.
    offered: Option<(u64, [u64; 3])>,
    /// How often the block was held still while idle, and events were reported.
    pub rests: u64,
    pub events: u64,
    /// Statuses seen.
    pub seen: BTreeSet<u16>,
}

impl Harness {
    pub fn new(
        c: &CardConfig,
        module: &Module,
        model: &verilator_sys::Model,
        seed: u64,
    ) -> Harness {
        let mut rng = rng(seed);
        let out = module.ports().iter().filter(|p| p.dir == Dir::Out);
        let mut h = Harness {
            c: c.clone(),
            b: Bench::new(module, model, seed),
            model: Controller::random(c, &mut rng),
            rng,
            outputs: out.map(|p| (p.name.clone(), p.width > 64)).collect(),
            next_cid: 0,
            offer: None,
            coming: None,
            current: None,
            nsid: 0,
            walk_at: None,
            found: false,
            reply_at: None,
            stats_at: None,
            busy_until: 0,
            looked: 0,
            aw: None,
            w: None,
            answer_at: None,
            refuse: 0,
            refused: false,
            written: HashMap::new(),
            ready: 60,
            news: false,
            offered: None,
            rests: 0,
            events: 0,
            seen: BTreeSet::new(),
        };
        let m = &h.model;
        for (name, v) in [("queues", m.queues), ("luns", m.luns), ("tags", m.tags)] {
            h.b.set(name, v as u64);
        }
        h.b.set("clear", 0);
        h
    }

    /// An entry was on its way in cycle `at`.
    fn coming_at(&self, at: u64) -> bool {
        self.coming.is_some_and(|(from, _)| from < at)
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn soon(&mut self) -> u64 {
        self.b.cycle() + self.rng.random_range(1..30)
    }

    /// A cycle. Gives the completion of the command under way: {result, status}.
    pub fn cycle(&mut self) -> Option<(u32, u16)> {
        let now = self.b.cycle();
        // An entry comes some cycles after it is picked, which it is only while the block is quiet.
        if self.offer.is_none() {
            self.coming = None;
        } else if self.coming.is_none() && self.b.is("quiet") {
            self.coming = Some((now, now + self.rng.random_range(1..20)));
        }
        let comes = self.coming.is_some_and(|(_, at)| at <= now);
        self.b.set("entry_coming", self.coming_at(now));
        self.b.set("entry_valid", comes);
        if let Some(e) = self.offer {
            let words = e.as_bytes().chunks(8);
            let words: Vec<u64> = words
                .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
                .collect();
            self.b.set_wide("entry_data", &words);
        }
        let readies = ["cpl", "walk", "budget", "snapshot", "aw", "w"].map(|name| {
            let go = self.chance(self.ready);
            self.b.set(&format!("{name}_ready"), go);
            go
        });
        self.replies(now);
        let (kinds, error) = self.other_blocks();
        self.b.eval();
        self.rest();

        self.looked = self.b.get("lookup_lun") as usize;
        assert!(!comes || self.b.is("entry_ready"), "an entry waits");
        if comes && let Some(e) = self.offer.take() {
            self.coming = None;
            assert!(self.current.is_none(), "one command at a time");
            self.nsid = e.nsid;
            self.written.clear();
            self.refused = false;
            self.current = Some(self.model.take(&e));
            if self.current.as_ref().is_some_and(|c| c.held) {
                self.current = None;
            }
        }
        self.requests(now, readies);
        self.bus(now, readies);
        let completion = self.completion(now, readies[0]);
        for (kind, pulse) in kinds.into_iter().enumerate() {
            if pulse {
                self.model.pulses[kind].push(now);
            }
        }
        if let Some((sq, cid, status)) = error {
            self.model.log_error(sq, cid, status, 0);
        }
        self.b.tick();
        completion
    }

    /// Answers of the walker, the LUN engine, the LUN map and the bus.
    fn replies(&mut self, now: u64) {
        let walked = self.walk_at.take_if(|t| *t <= now).is_some();
        self.b.set("walk_done", walked);
        self.b.set("walk_found", self.found);
        if walked {
            self.busy_until = now + self.rng.random_range(0..40);
        }
        self.b.set("sq_busy", self.busy_until > now);
        let reply = self.reply_at.take_if(|r| r.0 <= now);
        self.b.set("budget_reply_valid", reply.is_some());
        if let Some((_, [depth, weight, rule])) = reply {
            self.b.set("budget_reply_depth", depth);
            self.b.set("budget_reply_weight", weight);
            self.b.set("budget_reply_rule", rule);
        }
        let stats = self.stats_at.take_if(|t| *t <= now).is_some();
        self.b.set("stats_valid", stats);
        let lun = self.looked.min(self.model.present.len() - 1);
        self.b.set("lookup_present", self.model.present[lun]);
        self.b.set("lookup_blocks", self.model.blocks[lun]);
        let answer = self.answer_at.take_if(|a| a.0 <= now);
        self.b.set("b_valid", answer.is_some());
        self.b.set("b_resp", answer.map_or(0, |a| 2 * a.1 as u64));
        self.refused |= answer.is_some_and(|a| a.1);
    }

    /// Bad doorbells by kind; I/O, and perhaps its error {SQ, CID, status}.
    fn other_blocks(&mut self) -> ([bool; 2], Option<(u16, u16, u16)>) {
        let mut kinds = [false; 2];
        let mut io = None;
        let mut error = None;
        if self.news {
            kinds = [self.chance(2), self.chance(2)];
            if self.chance(10) {
                let op = self.rng.random_range(0..3u64);
                io = Some((op, self.rng.random_range(1..=256u64)));
                let sq = self.rng.random_range(1..=self.c.queues) as u16;
                let status = self.rng.random_range(1..1 << 15);
                error = self
                    .chance(20)
                    .then(|| (sq, self.rng.random::<u16>(), status));
            }
        }
        self.b.set("doorbell_bad_register", kinds[0]);
        self.b.set("doorbell_bad_value", kinds[1]);
        self.b.set("io_valid", io.is_some());
        if let Some((op, blocks)) = io {
            self.b.set("io_op", op);
            self.b.set("io_blocks", blocks);
            self.model.count(op, blocks);
        }
        self.b.set("error_valid", error.is_some());
        if let Some((sq, cid, status)) = error {
            self.b.set("error_sq", sq as u64);
            self.b.set("error_cid", cid as u64);
            self.b.set("error_status", status as u64);
        }
        (kinds, error)
    }

    /// While idle, and with inputs held, no output changes; nor does anything within, for the lock step goes on.
    fn rest(&mut self) {
        if !self.b.is("idle") || !self.chance(5) {
            return;
        }
        let read = |b: &Bench, (n, wide): &(String, bool)| match wide {
            true => b.get_wide(n),
            false => vec![b.get(n)],
        };
        let before: Vec<_> = self.outputs.iter().map(|o| read(&self.b, o)).collect();
        for _ in 0..50 {
            self.b.sim.tick();
            self.b.sim.eval();
            for (o, was) in self.outputs.iter().zip(&before) {
                assert_eq!(&read(&self.b, o), was, "{} changes while idle", o.0);
            }
        }
        self.rests += 1;
    }

    /// What is asked of other blocks: what the command must ask, in order, and nothing else.
    fn requests(&mut self, now: u64, [_, walk, budget, snapshot, ..]: [bool; 6]) {
        let get = |n: &str| self.b.get(n);
        let dying = self.b.is("dying");
        let mut asked = None;
        let mut ask = |effect| assert!(asked.replace(effect).is_none(), "two at a time");
        if self.b.is("cq_set_valid") {
            let enable = self.b.is("cq_set_enable");
            let set = QueueSet {
                queue: get("cq_set_cq"),
                enable,
                base: get("cq_set_base"),
                size: get("cq_set_size"),
                other: get("cq_set_vector"),
                interrupts: self.b.is("cq_set_interrupts"),
            };
            let none = QueueSet {
                queue: set.queue,
                ..QueueSet::default()
            };
            ask(Effect::CqSet(if enable { set } else { none }));
        }
        if self.b.is("sq_set_valid") {
            let enable = self.b.is("sq_set_enable");
            let set = QueueSet {
                queue: get("sq_set_sq"),
                enable,
                base: get("sq_set_base"),
                size: get("sq_set_size"),
                other: get("sq_set_cq"),
                interrupts: false,
            };
            let none = QueueSet {
                queue: set.queue,
                ..QueueSet::default()
            };
            assert_eq!(dying, !enable, "a queue dies until its end");
            assert!(enable || (self.busy_until <= now && self.walk_at.is_none()));
            ask(Effect::SqSet(if enable { set } else { none }));
        }
        if walk && self.b.is("walk_valid") {
            let one = get("walk_one");
            assert_eq!(dying, one == 0);
            ask(Effect::Walk {
                one,
                sq: get("walk_sq"),
                cid: one * get("walk_cid"),
            });
        }
        if budget && self.b.is("budget_valid") {
            let [set, tag_set, all] =
                ["set", "tag_set", "all"].map(|n| get(&format!("budget_{n}")));
            // Fields without a meaning are 0.
            let of_lun = 1 - tag_set;
            ask(Effect::Budget([
                set,
                tag_set,
                set * of_lun * all,
                of_lun * (1 - set * all) * get("budget_lun"),
                set * get("budget_depth"),
                set * of_lun * get("budget_weight"),
                set * tag_set * get("budget_rule"),
            ]));
        }
        if snapshot && self.b.is("snapshot_valid") {
            ask(Effect::Snapshot(get("snapshot_lun")));
        }
        let deletes = |c: &Expected| {
            let e = c.effects.iter().find_map(|e| match e {
                Effect::SqSet(s) if !s.enable => Some(s.queue),
                _ => None,
            });
            e == Some(self.b.get("dying_sq"))
        };
        assert!(
            !dying || self.current.as_ref().is_some_and(deletes),
            "a queue dies that is not deleted"
        );
        if let Some(asked) = asked {
            let wanted = self.current.as_mut().and_then(|c| c.effects.pop_front());
            assert_eq!(Some(asked), wanted);
            match asked {
                Effect::Walk { .. } => {
                    self.found = self.rng.random();
                    self.walk_at = Some(self.soon());
                    self.busy_until = u64::MAX;
                }
                Effect::Budget(b) => {
                    let reply = self.model.budget(b);
                    self.reply_at = Some((self.soon(), reply));
                }
                Effect::Snapshot(lun) => {
                    let stats = self.model.stats[lun as usize];
                    let names = [
                        "in_flight",
                        "peak",
                        "parked",
                        "admitted",
                        "completed",
                        "deferred_depth",
                        "deferred_tags",
                        "deferred_share",
                        "cycles_waited",
                        "bytes",
                    ];
                    for (name, v) in names.into_iter().zip(stats) {
                        self.b.set(&format!("stats_{name}"), v);
                    }
                    self.stats_at = Some(self.soon());
                }
                _ => {}
            }
        }
    }

    /// Beats of admin data.
    fn bus(&mut self, now: u64, [.., aw_ready, w_ready]: [bool; 6]) {
        if aw_ready && self.b.is("aw_valid") {
            assert_eq!(self.b.get("aw_id") >> self.c.chunk_bits(), 3, "kind ADMIN");
            assert_eq!(self.b.get("aw_len"), 0);
            assert!(self.aw.replace(self.b.get("aw_addr")).is_none());
        }
        if w_ready && self.b.is("w_valid") {
            assert!(self.b.is("w_last"));
            let beat = (self.b.get_wide("w_data"), self.b.get("w_strb"));
            assert!(self.w.replace(beat).is_none());
        }
        if let (Some(addr), Some((data, strobes))) = (self.aw, &self.w) {
            assert_eq!(addr % u64::from(self.c.beat_bytes()), 0);
            assert_ne!(*strobes, 0);
            for i in (0..u64::from(self.c.beat_bytes())).filter(|i| strobes >> i & 1 == 1) {
                let byte = (data[i as usize / 8] >> (i % 8 * 8)) as u8;
                let twice = self.written.insert(addr + i, byte);
                assert!(twice.is_none(), "{:#x} is written twice", addr + i);
            }
            (self.aw, self.w) = (None, None);
            assert!(self.answer_at.is_none(), "one beat in flight");
            let wait = if self.ready == 100 {
                1
            } else {
                self.rng.random_range(1..20)
            };
            self.answer_at = Some((now + wait, self.chance(self.refuse)));
        }
    }

    /// The completion port: events are checked here, the command's own is given to the caller.
    fn completion(&mut self, now: u64, ready: bool) -> Option<(u32, u16)> {
        if !self.b.is("cpl_valid") {
            assert!(self.offered.is_none(), "a completion was taken back");
            return None;
        }
        let seen = ["cid", "result", "status"].map(|n| self.b.get(&format!("cpl_{n}")));
        // An error is logged in the cycle before, in which there was none of I/O.
        if self.offered.is_none() && seen[2] != 0 {
            let (cid, status) = (seen[0] as u16, seen[2] as u16);
            self.model.log_error(0, cid, status, self.nsid);
        }
        let (since, first) = *self.offered.get_or_insert((now, seen));
        assert_eq!(seen, first, "a completion waits unchanged");
        if !ready {
            return None;
        }
        self.offered = None;
        let [cid, result, status] = [seen[0] as u16 as u32, seen[1] as u32, seen[2] as u32];
        let (cid, status) = (cid as u16, status as u16);
        let Some(held) = self.model.aers.iter().position(|a| *a == cid) else {
            assert!(self.current.is_some(), "a completion of nothing");
            return Some((result, status));
        };
        assert!(self.current.is_none(), "between two commands");
        self.model.aers.remove(held);
        // Decided in the cycle before: of the kinds that were due then, the unknown doorbell first.
        let due = |kind: usize| self.model.pulses[kind].iter().any(|p| p + 1 < since);
        let kind = if due(0) { 0 } else { 1 };
        assert!(
            !self.coming_at(since - 1),
            "an event goes before an entry that is coming"
        );
        assert!(due(kind) && !self.model.masked, "an event that is not due");
        assert_eq!(
            (result, status),
            (1 << 16 | (kind as u32) << 8, 0),
            "error log, kind"
        );
        self.model.pulses[kind].retain(|p| p + 1 >= since);
        self.model.masked = true;
        self.events += 1;
        None
    }

    /// Runs one command to its end and checks all of it; gives {result, status}.
    pub fn run(&mut self, mut e: Command) -> (u32, u16) {
        self.next_cid = (self.next_cid + 1) % EVENT_CIDS;
        let event = e.cdw0.opcode() == 0x0c;
        e.cdw0
            .set_cid(self.next_cid + if event { EVENT_CIDS } else { 0 });
        self.offer = Some(e);
        let mut expected = None;
        let start = self.b.cycle();
        loop {
            let completion = self.cycle();
            assert!(self.b.cycle() < start + PATIENCE, "no answer to {e:?}");
            if self.offer.is_some() {
                continue;
            }
            if expected.is_none() {
                // As it was when it was taken; effects are checked as they come.
                expected = self.current.clone();
            }
            let Some(expected) = &expected else {
                return (0, 0); // Held.
            };
            let Some((result, status)) = completion else {
                continue;
            };
            let current = self.current.take().expect("under way");
            assert!(current.effects.is_empty(), "{e:?}: not done: {current:?}");
            let mut want = (expected.result, expected.status);
            if expected.aborts {
                want.0 = !self.found as u32;
            }
            if self.refused {
                want.1 = StatusCode::DATA_TRANSFER_ERROR.0;
            }
            assert_eq!((result, status), want, "{e:?}");
            self.check_data(&e, &expected.data);
            let m = &self.model;
            let coalescing =
                ["threshold", "time", "disable"].map(|n| self.b.get(&format!("coalescing_{n}")));
            let kept = u64::from(m.features[8]);
            assert_eq!(coalescing, [kept & 0xff, kept >> 8, m.vectors], "{e:?}");
            self.seen.insert(status & !DNR);
            return (result, status);
        }
    }

    /// What was written is the data, whole, at PRP1 and PRP2, and no other byte.
    fn check_data(&self, e: &Command, data: &[u8]) {
        assert_eq!(self.written.len(), data.len(), "{e:?}: bytes written");
        let first = 4096 - e.prp1 % 4096;
        for (i, want) in (0u64..).zip(data) {
            let at = if i < first {
                e.prp1 + i
            } else {
                e.prp2 + i - first
            };
            let is = self.written.get(&at);
            assert_eq!(is, Some(want), "{e:?}: byte {i}");
        }
    }

    /// Lets events come out; then none is left that is due.
    pub fn settle(&mut self) {
        self.news = false;
        for _ in 0..2000 {
            self.cycle();
            if !self.model.event_due() && self.b.is("quiet") {
                return;
            }
        }
        panic!("an event that is due is not reported");
    }

    pub fn clear(&mut self) {
        self.settle();
        self.b.set("clear", 1);
        self.cycle();
        self.b.set("clear", 0);
        self.model.clear();
        // The LUN engine's budgets go back to their defaults at once.
        let tags = u64::from(self.c.tags);
        self.model.budgets.fill([tags.min(32), 1]);
        self.model.tag_set = [tags, 0];
    }

    pub fn reset(&mut self) {
        for name in [
            "entry_valid",
            "entry_coming",
            "walk_done",
            "budget_reply_valid",
            "stats_valid",
            "b_valid",
        ] {
            self.b.set(name, 0);
        }
        for name in [
            "io_valid",
            "error_valid",
            "doorbell_bad_register",
            "doorbell_bad_value",
        ] {
            self.b.set(name, 0);
        }
        self.b.reset();
        self.model.power_up();
        (self.offer, self.current, self.offered) = (None, None, None);
        self.coming = None;
        (self.walk_at, self.reply_at, self.stats_at) = (None, None, None);
        (self.aw, self.w, self.answer_at) = (None, None, None);
        self.busy_until = 0;
        self.written.clear();
    }

    /// A number of `0..n`, or near it, or with high bits that a truncation would lose.
    fn near(&mut self, n: u32) -> u32 {
        match self.rng.random_range(0..12) {
            0 => n,
            1 => n + 1,
            2 => self.rng.random_range(0..=n) | 1 << self.rng.random_range(4..16),
            _ => self.rng.random_range(0..n),
        }
    }

    /// A command that is likely to be right in all but one thing.
    pub fn random_command(&mut self) -> Command {
        let mut e = Command::default();
        let opcodes = [
            0, 0, 1, 1, 1, 2, 2, 2, 4, 5, 5, 6, 8, 8, 9, 9, 9, 10, 10, 10, 12, 12,
        ];
        let opcode = opcodes[self.rng.random_range(0..opcodes.len())];
        let odd = self.chance(2);
        e.cdw0
            .set_opcode(if odd { self.rng.random() } else { opcode });
        if self.chance(1) {
            e.cdw0.set_fuse(self.rng.random_range(1..4));
        }
        if self.chance(1) {
            e.cdw0.set_psdt(self.rng.random_range(1..4));
        }
        e.nsid = match self.rng.random_range(0..8) {
            0 => self.rng.random(),
            1 => u32::MAX - self.rng.random_range(0..3),
            2 => 0,
            _ => 1 + self.near(self.c.luns),
        };
        e.prp1 = self.rng.random_range(0..1u64 << 51) << 12;
        e.prp2 = (1 << 51 | self.rng.random_range(0..1u64 << 51)) << 12;
        for prp in [&mut e.prp1, &mut e.prp2] {
            *prp |= match self.rng.random_range(0..10) {
                0 => self.rng.random_range(0..4096),
                1..4 if opcode == 2 || opcode == 6 => self.rng.random_range(0..1024) * 4,
                _ => 0,
            };
        }
        match opcode {
            0 | 1 | 4 | 5 | 8 => {
                let size = match self.rng.random_range(0..10) {
                    0 => self.c.entries + self.rng.random_range(0..2),
                    1 => self.rng.random(),
                    2 => 0,
                    _ => self.rng.random_range(0..self.c.entries),
                };
                e.cdw10 = size << 16 | self.near(self.c.queues + 1) & 0xffff;
                e.cdw11 = self.near(self.c.queues + 1) << 16 | self.rng.random_range(0..8);
                e.cdw11 |= !self.chance(10) as u32;
            }
            2 => {
                let logs = [1, 1, 2, 3, 0xc0, 0xc0, self.rng.random::<u8>() as u32];
                let dwords = match self.rng.random_range(0..20) {
                    0 => self.rng.random_range(0..2100),
                    1 => self.rng.random(),
                    _ => self.rng.random_range(0..40),
                };
                let rae = self.rng.random_range(0..2) << 15;
                e.cdw10 = logs[self.rng.random_range(0..7)] | rae | dwords << 16;
                e.cdw11 = dwords >> 16;
                e.cdw12 = match self.rng.random_range(0..8) {
                    0 => self.rng.random(),
                    1 => self.rng.random_range(0..600),
                    2 => 4 * self.rng.random_range(0..150),
                    3 => [80, 84, 256, 260, 512, 516, 0x3ffc][self.rng.random_range(0..7)],
                    _ => 0,
                };
                e.cdw13 = (self.chance(3)) as u32;
            }
            6 => e.cdw10 = self.near(4) & 0xff,
            9 | 10 => {
                let known = [1, 2, 4, 5, 7, 8, 9, 10, 11, 0xc0, 0xc0, 0xc1];
                let fid = match self.chance(5) {
                    true => self.rng.random::<u8>().into(),
                    false => known[self.rng.random_range(0..known.len())],
                };
                e.cdw10 = fid;
                if opcode == 10 {
                    e.cdw10 |= self.near(4) << 8 & 0x700;
                } else if self.chance(5) {
                    e.cdw10 |= 1 << 31;
                }
                if fid != 0xc0 && self.chance(80) {
                    e.nsid = 0;
                }
                let high: u32 = self.rng.random_range(0..4);
                e.cdw11 = match (fid, self.rng.random_range(0..4)) {
                    (_, 0) => self.rng.random(),
                    (0xc0 | 0xc1, _) => high << 16 | self.near(self.c.tags + 1) & 0xffff,
                    (4, _) => {
                        let sensor = [0, 0, 15, 3][self.rng.random_range(0..4)];
                        high << 20 | sensor << 16 | u32::from(self.rng.random::<u16>())
                    }
                    (9, _) => high << 16 | self.near(self.c.queues + 1) & 0xffff,
                    (7, _) => [0xffff, 0xffff << 16, 3 << 16 | 3, 0][high as usize],
                    (2, _) => self.rng.random_range(0..2),
                    _ => self.rng.random(),
                };
            }
            _ => {}
        }
        e
    }
}
