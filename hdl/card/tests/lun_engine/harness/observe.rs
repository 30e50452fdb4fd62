//! What each cycle shows, against the model, phase by phase of the wheel.

use super::*;

impl Harness {
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
        self.puts(now);
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
        self.tick();
    }

    /// LUNs into the work set. One that P2 has put there without an admission had its visit, and saves.
    fn puts(&mut self, now: u64) {
        if !self.b.is("work_put_valid") {
            return;
        }
        let lun = self.b.get("work_put_index") as u32;
        let admitted = self.b.is("exec_valid") && !self.p2.0;
        if self.phase == 3 && !admitted && !self.walk_turn && !self.m.discard {
            assert!(self.p2.1, "LUN {lun} saves, and no other waits");
            self.m.save(lun as usize);
            self.saved += 1;
        }
        self.work.put(lun, now + 1);
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
                    (self.m.tag_depth_set, self.m.rule) = (depth, rule);
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
                (self.m.tag_depth(), self.m.rule),
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
            self.m
                .admit(slot, l, get("tag"), self.p2.1, self.p.exact, now - 1);
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
        let free = (self.m.tags.len() as u64) < self.m.tag_depth() && !self.p2.0 && !self.walk_turn;
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
        // A budget that was taken is still answered.
        (self.budget, self.walk, self.snapshot, self.stats_due) = (None, None, None, None);
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

    pub(in super::super) fn run(&mut self) {
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
