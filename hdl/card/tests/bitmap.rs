//! The bitmap against a plain set: what it offers, counts and flags; how soon, how fairly, and how fast.

mod common;

use common::{Bench, Stall, in_threads, model, rng};
use rand::Rng;
use std::collections::VecDeque;
use weir_card::bitmap::{BitmapConfig, FLOP_BITS, bitmap};

fn configs() -> Vec<BitmapConfig> {
    let mut v = vec![];
    for bits in [2, 5, 17, 64, 65, 100, 128, 512] {
        for (full, limited) in [(false, false), (true, false), (true, true)] {
            v.push(BitmapConfig {
                bits,
                full,
                limited,
            });
        }
    }
    v.push(BitmapConfig {
        bits: 256,
        full: false,
        limited: true,
    });
    v.push(BitmapConfig {
        bits: 4096,
        full: true,
        limited: true,
    });
    v.push(BitmapConfig {
        bits: 16384,
        full: true,
        limited: false,
    });
    v
}

/// What a put was.
#[derive(Clone, Copy, Default)]
struct Event {
    accepted: bool,
    double: bool,
    range: bool,
}

/// The set as the specification says.
struct Model {
    config: BitmapConfig,
    set: Vec<bool>,
    /// What the `count` port shows.
    count: u64,
    /// Puts on their way to `count` and the errors; the first is visible.
    events: VecDeque<Event>,
    takes: u64,
    /// Number of takes at the time of each put.
    since: Vec<u64>,
}

impl Model {
    fn new(c: &BitmapConfig) -> Model {
        let n = c.bits as usize;
        let lag = if c.bits <= FLOP_BITS { 1 } else { 2 };
        Model {
            config: *c,
            set: vec![c.full; n],
            count: if c.full { n as u64 } else { 0 },
            events: vec![Event::default(); lag].into(),
            takes: 0,
            since: vec![0; n],
        }
    }

    /// One clock edge: the take comes before the put.
    fn step(&mut self, take: Option<usize>, put: Option<usize>) {
        let c = self.config;
        if let Some(t) = take {
            assert!(self.set[t], "{c:?}: {t} was offered but is not set");
            self.set[t] = false;
            self.takes += 1;
            self.count -= 1;
            let others = self.takes - self.since[t];
            // One round, and what the output holds.
            let bits = u64::from(c.bits);
            let bound = if c.bits <= FLOP_BITS {
                bits + 2
            } else {
                3 * bits
            };
            assert!(
                c.limited || others <= bound,
                "{c:?}: {t} waited for {others} takes"
            );
        }
        let mut event = Event::default();
        if let Some(i) = put {
            event.range = i >= self.set.len();
            event.double = !event.range && self.set[i];
            event.accepted = !event.range && !event.double;
            if event.accepted {
                self.set[i] = true;
                self.since[i] = self.takes;
            }
        }
        self.events.pop_front();
        self.events.push_back(event);
        self.count += self.events[0].accepted as u64;
    }

    fn check(&self, b: &Bench) {
        let (c, at) = (self.config, b.cycle());
        assert_eq!(b.get("count"), self.count, "{c:?}: count, cycle {at}");
        assert_eq!(
            b.is("error_double_put"),
            self.events[0].double,
            "{c:?}: double put, cycle {at}"
        );
        assert_eq!(
            b.is("error_range"),
            self.events[0].range,
            "{c:?}: range, cycle {at}"
        );
    }
}

/// Waits until puts are allowed after a reset.
fn ready(b: &mut Bench) {
    for _ in 0..1000 {
        if !b.is("clearing") {
            return;
        }
        b.tick();
    }
    panic!("clearing never ends");
}

/// Puts right and wrong, takes, limits, clears and resets, all at random.
fn random_run(c: &BitmapConfig, seed: u64, cycles: u64) {
    let block = bitmap(c);
    let built = model(&block);
    let mut b = Bench::new(&block, &built, seed);
    let mut r = rng(seed);
    let (mut put_go, mut take_go) = (Stall::new(seed ^ 1), Stall::new(seed ^ 2));
    let n = c.bits as u64;
    let index_max = 1u64 << c.index_bits();
    let mut m = Model::new(c);
    let mut limit = n;
    let mut taken: Vec<usize> = vec![];
    let mut starved = 0u64;
    let mut since_limit = 0;
    let mut quiet: Option<[u64; 4]> = None;
    b.set("limit", limit);
    ready(&mut b);
    for _ in 0..cycles {
        if r.random_range(0..2000) == 0 {
            let pulse = if r.random() { "rst" } else { "clear" };
            b.set("put_valid", false);
            b.set("take_ready", false);
            b.set(pulse, true);
            b.tick();
            b.set(pulse, false);
            (m, starved, since_limit, quiet) = (Model::new(c), 0, 0, None);
            taken.clear();
            ready(&mut b);
        }
        if c.limited && r.random_range(0..400) == 0 {
            (limit, since_limit, quiet) = (r.random_range(0..=n), 0, None);
        }
        let put = put_go.go().then(|| match r.random_range(0..20) {
            0 => r.random_range(0..index_max) as usize,
            _ if !taken.is_empty() => taken.swap_remove(r.random_range(0..taken.len())),
            _ => r.random_range(0..n) as usize,
        });
        let take_ready = take_go.go();
        b.set("put_valid", put.is_some());
        b.set(
            "put_index",
            put.map_or(r.random_range(0..index_max), |p| p as u64),
        );
        b.set("take_ready", take_ready);
        b.set("limit", limit);
        b.eval();
        m.check(&b);
        let offered = b.is("take_valid").then(|| b.get("take_index") as usize);
        if let Some(t) = offered {
            assert!(
                m.set[t],
                "{c:?}: {t} is offered but not set, cycle {}",
                b.cycle()
            );
            let fresh = since_limit < 2;
            assert!(
                fresh || !c.limited || (t as u64) < limit,
                "{c:?}: {t} offered above {limit}, cycle {}",
                b.cycle()
            );
        }
        // Something could be offered: then it must be, soon.
        let some = (0..m.set.len()).any(|i| m.set[i] && (!c.limited || (i as u64) < limit));
        starved = if offered.is_none() && some {
            starved + 1
        } else {
            0
        };
        let bound = if !c.limited || since_limit > 12 * n + 400 {
            8
        } else {
            12 * n + 400
        };
        assert!(
            starved <= bound,
            "{c:?}: nothing offered for {starved} cycles, cycle {}",
            b.cycle()
        );
        // Idle means that nothing moves while inputs are held.
        let shown = [
            b.get("take_valid"),
            b.get("take_index"),
            b.get("count"),
            b.get("idle"),
        ];
        if let Some(before) = quiet {
            assert_eq!(shown, before, "{c:?}: not idle, cycle {}", b.cycle());
        }
        quiet = (shown[3] == 1 && put.is_none() && !(take_ready && shown[0] == 1)).then_some(shown);

        let take = offered.filter(|_| take_ready);
        m.step(take, put);
        taken.extend(take);
        since_limit += 1;
        b.tick();
    }
}

#[test]
fn random_in_lock_step() {
    in_threads(&configs(), |c| {
        for seed in 0..2 {
            random_run(c, seed, if c.bits > 1000 { 6_000 } else { 20_000 });
        }
    });
}

/// One put and one take in every single cycle, however the bits in circulation are spread.
#[test]
fn one_put_and_one_take_every_cycle() {
    let sizes = [17u32, 64, 128, 256, 512, 4096, 16384];
    in_threads(&sizes, |&bits| {
        let c = BitmapConfig::work(bits);
        let block = bitmap(&c);
        let built = model(&block);
        for spread in 0..4u64 {
            let mut b = Bench::new(&block, &built, spread);
            let mut r = rng(spread);
            // 12 numbers: neighbours, far apart, one word after the other, or anywhere.
            let step = [
                1,
                (bits as u64 / 12).max(1),
                c.index_bits() as u64 * 2 + 1,
                0,
            ][spread as usize];
            let mut numbers: Vec<u64> = (0..12).map(|i| i * step % bits as u64).collect();
            while spread == 3 && {
                numbers.sort();
                numbers.dedup();
                numbers.len() < 12 || numbers[11] == 11
            } {
                numbers = (0..12).map(|_| r.random_range(0..bits as u64)).collect();
            }
            let mut back: VecDeque<u64> = numbers.into();
            let mut takes = 0;
            let (warm, cycles) = (40, 2000);
            for t in 0..warm + cycles {
                let put = back.pop_front();
                b.set("put_valid", put.is_some());
                b.set("put_index", put.unwrap_or(0));
                b.set("take_ready", t >= 14);
                b.eval();
                if b.is("take_valid") && t >= 14 {
                    back.push_back(b.get("take_index"));
                    takes += (t >= warm) as u32;
                }
                assert!(!b.is("error_double_put"));
                b.tick();
            }
            assert_eq!(
                takes, cycles,
                "{bits} bits, spread {spread}: takes in {cycles} cycles"
            );
        }
    });
}

/// A put into the empty set is offered after a stated number of cycles.
#[test]
fn latency_when_empty() {
    for (bits, want) in [(17u32, 1), (64, 1), (65, 3), (512, 3), (4096, 3)] {
        let c = BitmapConfig::work(bits);
        let block = bitmap(&c);
        let mut b = Bench::new(&block, &model(&block), 7);
        for index in [0, bits as u64 - 1, bits as u64 / 2] {
            b.set("put_valid", true);
            b.set("put_index", index);
            b.set("take_ready", false);
            b.tick();
            b.set("put_valid", false);
            let mut cycles = 1;
            while !b.is("take_valid") {
                b.tick();
                cycles += 1;
                assert!(cycles < 20, "never offered");
            }
            assert_eq!(cycles, want, "{bits} bits");
            assert_eq!(b.get("take_index"), index);
            b.set("take_ready", true);
            b.tick();
            b.set("take_ready", false);
            b.tick();
            assert!(!b.is("take_valid") && b.is("idle"));
        }
    }
}

/// Members that come back a few cycles after they were taken, as a LUN does that goes on wanting: all are taken alike often.
#[test]
fn members_that_come_back_are_taken_alike_often() {
    let sizes = [5u32, 17, 32, 64, 65, 100, 128, 256];
    in_threads(&sizes, |&bits| {
        let c = BitmapConfig::work(bits);
        let block = bitmap(&c);
        let built = model(&block);
        for (members, delay) in [
            (3, 1),
            (5, 2),
            (5, 3),
            (16, 1),
            (16, 3),
            (16, 8),
            (17, 2),
            (60, 1),
            (60, 9),
            (100, 2),
        ] {
            if members > bits {
                continue;
            }
            // Spread over the set, so that several words take part.
            let numbers = (0..members).map(|i| u64::from(i * bits / members));
            let mut b = Bench::new(&block, &built, 1);
            let mut back: VecDeque<(u64, u64)> = numbers.map(|n| (0, n)).collect();
            let mut takes = vec![0u64; bits as usize];
            let laps = 200;
            for now in 0..6 * u64::from(members) * laps {
                let put = back.pop_front_if(|(at, _)| *at <= now);
                b.set("put_valid", put.is_some());
                b.set("put_index", put.map_or(0, |(_, n)| n));
                // The engine takes one in four cycles.
                let ready = now % 4 == 0;
                b.set("take_ready", ready);
                b.eval();
                if ready && b.is("take_valid") {
                    let taken = b.get("take_index");
                    back.push_back((now + 4 * delay, taken));
                    takes[taken as usize] += 1;
                }
                b.tick();
            }
            takes.retain(|n| *n > 0);
            let (least, most) = (takes.iter().min().unwrap(), takes.iter().max().unwrap());
            assert_eq!(takes.len(), members as usize);
            // Only a word in RAM may miss a member that stays away for long, and only every second time.
            let bound = if bits > FLOP_BITS && delay > 3 {
                2 * least + 2
            } else {
                least + 2
            };
            assert!(
                *most <= bound,
                "{bits} bits, {members} members, back after {delay} takes: {least} to {most} takes"
            );
        }
    });
}
