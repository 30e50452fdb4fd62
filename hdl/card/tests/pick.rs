//! Which chunk comes next: nothing is lost or given twice, order inside a LUN, and the shares that each fairness rule gives.

mod common;

use common::{Bench, Stall, in_threads, model, rng};
use rand::Rng;
use std::collections::{HashMap, VecDeque};
use verilator_sys::Model;
use weir_card::config::CardConfig;
use weir_card::dma::pick::pick;
use weir_card::interfaces::Rule;
use weir_kit::{HwEnum, Module};

fn configs() -> Vec<CardConfig> {
    let small = CardConfig::small();
    let with = |luns, tags| CardConfig {
        luns,
        tags,
        ..small.clone()
    };
    vec![
        with(1, 8),
        with(4, 32),
        with(5, 32),
        with(32, 128),
        with(200, 256),
    ]
}

/// Chunks of the direction under test.
const CHUNKS: u32 = 16;

struct Pick {
    bench: Bench,
    /// LUNs whose chunks end next, one a cycle.
    ends: VecDeque<u64>,
}

impl Pick {
    fn new(module: &Module, model: &Model, seed: u64) -> Pick {
        let mut bench = Bench::new(module, model, seed);
        bench.set("insert_valid", 0);
        bench.set("take_ready", 0);
        bench.set("ended_valid", 0);
        Pick {
            bench,
            ends: VecDeque::new(),
        }
    }

    /// One cycle: (tag, lun, weight if new) goes in; what is taken comes out.
    fn cycle(&mut self, insert: Option<(u64, u64, Option<u64>)>, ready: bool) -> Option<u64> {
        let b = &mut self.bench;
        b.set("insert_valid", insert.is_some());
        if let Some((tag, lun, weight)) = insert {
            b.set("insert_tag", tag);
            b.set("insert_lun", lun);
            b.set("insert_new", weight.is_some());
            b.set("insert_weight", weight.unwrap_or(0));
        }
        b.set("take_ready", ready);
        let end = self.ends.pop_front();
        b.set("ended_valid", end.is_some());
        b.set("ended_lun", end.unwrap_or(0));
        b.eval();
        let taken = (ready && b.is("take_valid")).then(|| b.get("take_data"));
        b.tick();
        taken
    }
}

#[test]
fn nothing_is_lost_and_a_lun_keeps_its_order() {
    let work: Vec<(CardConfig, u64)> = configs()
        .into_iter()
        .flat_map(|c| (0..6).map(move |s| (c.clone(), s)))
        .collect();
    let built: Vec<_> = configs()
        .into_iter()
        .map(|c| (c.clone(), pick(&c, CHUNKS)))
        .map(|(c, m)| (c, model(&m), m))
        .collect();
    in_threads(&work, |(c, seed)| {
        let (_, model, module) = built.iter().find(|b| b.0 == *c).expect("built");
        let mut p = Pick::new(module, model, *seed);
        let mut random = rng(*seed);
        for round in 0..3 {
            // Rounds 0 and 1 under one rule; in round 2 it changes all the time.
            let rule = random.random_range(0..3u64);
            p.bench.set("rule", rule);
            let luns = random.random_range(1..=c.luns as u64);
            let mut free: Vec<u64> = (0..c.tags as u64).collect();
            let mut lists: HashMap<u64, VecDeque<u64>> = HashMap::new();
            let (mut give, mut take) = (Stall::new(seed + 1), Stall::new(seed + 2));
            let mut inside = 0;
            let mut waited = 0;
            // Chunks in flight, by LUN.
            let mut flying: HashMap<u64, u32> = HashMap::new();
            let mut end = Stall::new(seed + 3);
            for cycle in 0..4600 {
                if round == 2 && random.random_range(0..40) == 0 {
                    p.bench.set("rule", random.random_range(0..3u64));
                }
                let insert = if cycle < 3500 && !free.is_empty() && give.go() {
                    let tag = free.swap_remove(random.random_range(0..free.len()));
                    let lun = random.random_range(0..luns);
                    Some((tag, lun, Some(random.random_range(1..5))))
                } else {
                    None
                };
                let in_flight: u32 = flying.values().sum();
                let ready = in_flight < CHUNKS && (cycle >= 3500 || take.go());
                if in_flight > 0 && (cycle >= 3500 || end.go()) {
                    let able: Vec<u64> = flying.iter().filter(|f| *f.1 > 0).map(|f| *f.0).collect();
                    let lun = *able.iter().min().expect("some fly");
                    *flying.get_mut(&lun).expect("flies") -= 1;
                    p.ends.push_back(lun);
                }
                if let Some(tag) = p.cycle(insert, ready) {
                    let (lun, list) = lists
                        .iter_mut()
                        .find(|(_, l)| l.contains(&tag))
                        .unwrap_or_else(|| panic!("tag {tag} is not inside"));
                    if round < 2 {
                        let oldest = list.pop_front();
                        assert_eq!(oldest, Some(tag), "order inside a LUN");
                    } else {
                        list.retain(|t| *t != tag);
                    }
                    let its = flying.entry(*lun).or_default();
                    let room = CHUNKS - in_flight;
                    assert!(
                        *its <= 3 * (room + 3),
                        "a LUN has {its} chunks in flight while {room} are free"
                    );
                    *its += 1;
                    inside -= 1;
                    free.push(tag);
                    waited = 0;
                }
                // While half of the chunks are free nobody is passed over; a place that was kept for nothing costs a cycle.
                let plenty = in_flight + 2 < CHUNKS / 2;
                let must_offer = ready && inside > 0 && plenty && insert.is_none();
                waited = if must_offer { waited + 1 } else { 0 };
                assert!(
                    waited < 20 + luns,
                    "{inside} are inside and none is offered: seed {seed}, {} LUNs of {}, round {round}, rule {rule}, cycle {cycle}, {in_flight} fly",
                    luns,
                    c.luns
                );
                if let Some((tag, lun, _)) = insert {
                    lists.entry(lun).or_default().push_back(tag);
                    inside += 1;
                }
            }
            assert_eq!(inside, 0, "{:?}: some never come out", module.name());
            for (lun, n) in flying {
                p.ends.extend((0..n).map(|_| lun));
            }
            for _ in 0..CHUNKS + 20 {
                p.cycle(None, true);
            }
            assert!(p.bench.is("idle"));
            if round == 0 {
                p.bench.reset();
            }
        }
    });
}

/// LUN n has `commands[n]` commands without end, which come back 2 cycles after each chunk; one chunk every `every` cycles.
/// Returns chunks a LUN.
fn shares(
    c: &CardConfig,
    rule: Rule,
    commands: &[u64],
    weights: &[u64],
    every: u64,
    chunks: u64,
) -> Vec<u64> {
    let module = pick(c, CHUNKS);
    let mut p = Pick::new(&module, &model(&module), 1);
    p.bench.set("rule", rule.value());
    let mut lun_of = vec![];
    for (lun, n) in commands.iter().enumerate() {
        lun_of.extend((0..*n).map(|_| lun as u64));
    }
    let mut back: VecDeque<(u64, u64)> = VecDeque::new();
    let mut new: VecDeque<u64> = (0..lun_of.len() as u64).collect();
    let mut served = vec![0; commands.len()];
    let mut cycle = 0;
    let warm_up = 200;
    while served.iter().sum::<u64>() < chunks {
        cycle += 1;
        let insert = match back.front() {
            Some((due, tag)) if *due <= cycle => Some((*tag, false)),
            _ => new.pop_front().map(|tag| (tag, true)),
        };
        if insert.is_some_and(|i| !i.1) {
            back.pop_front();
        }
        let insert = insert.map(|(tag, new)| {
            let lun = lun_of[tag as usize];
            (tag, lun, new.then_some(weights[lun as usize]))
        });
        if let Some(tag) = p.cycle(insert, cycle % every == 0) {
            back.push_back((cycle + 2, tag));
            p.ends.push_back(lun_of[tag as usize]);
            if cycle > warm_up {
                served[lun_of[tag as usize] as usize] += 1;
            }
        }
        assert!(cycle < 100 * chunks * every);
    }
    served
}

#[test]
fn the_rules_give_their_shares() {
    let c = CardConfig {
        luns: 8,
        tags: 64,
        ..CardConfig::small()
    };
    let commands = [1, 2, 4, 8, 1, 3, 7, 6];
    let weights = [1, 1, 1, 1, 4, 2, 3, 1];
    for every in [4, 16, 128] {
        let n = 1400;
        let none = shares(&c, Rule::None, &commands, &weights, every, n);
        let even = shares(&c, Rule::Even, &commands, &weights, every, n);
        let weighted = shares(&c, Rule::Weighted, &commands, &weights, every, n);
        println!(
            "a chunk every {every} cycles: none {none:?}, even {even:?}, weighted {weighted:?}"
        );
        let near = |have: &[u64], want: &[u64], slack: u64| {
            let total: u64 = want.iter().sum();
            let ok = |(h, w): (&u64, &u64)| h.abs_diff(n * w / total) <= slack;
            assert!(
                have.iter().zip(want).all(ok),
                "every {every}: {have:?} for {want:?}"
            );
        };
        near(&none, &commands, 5);
        near(&even, &[1; 8], 2);
        near(&weighted, &weights, 5);
    }
}

#[test]
fn a_slow_lun_leaves_room_for_others() {
    let c = CardConfig {
        luns: 4,
        tags: 64,
        ..CardConfig::small()
    };
    for rule in [Rule::None, Rule::Even, Rule::Weighted] {
        let module = pick(&c, CHUNKS);
        let mut p = Pick::new(&module, &model(&module), 1);
        p.bench.set("rule", rule.value());
        // LUN 1 has 30 commands whose chunks never end.
        let mut slow = 0;
        for i in 0..30 {
            slow += p.cycle(Some((i, 1, Some(1))), true).map_or(0, |_| 1);
        }
        for _ in 0..100 {
            slow += p.cycle(None, true).map_or(0, |_| 1);
        }
        assert!(
            (10..=13).contains(&slow),
            "{rule:?}: {slow} of {CHUNKS} chunks for one LUN"
        );
        assert!(p.bench.is("idle"), "nothing moves until a chunk ends");
        // LUN 2's chunks end at once: it runs on what is left.
        for i in 32..64 {
            let mut taken = p.cycle(Some((i, 2, Some(1))), true);
            for _ in 0..12 {
                taken = taken.or_else(|| p.cycle(None, true));
            }
            assert_eq!(taken, Some(i), "{rule:?}");
            p.ends.push_back(2);
        }
        // LUN 1's chunks end: it goes on.
        p.ends.extend([1; 12]);
        let mut more = 0;
        for _ in 0..60 {
            more += p.cycle(None, true).map_or(0, |t| (t < 30) as u32);
        }
        assert!(more >= 10, "{rule:?}: {more} more");
    }
}

#[test]
fn rates() {
    let c = CardConfig {
        luns: 8,
        tags: 64,
        ..CardConfig::small()
    };
    let module = pick(&c, CHUNKS);
    let model = model(&module);
    // In and out in every cycle for one LUN; an insert is offered in the cycle after.
    let mut p = Pick::new(&module, &model, 1);
    p.bench.set("rule", Rule::Even.value());
    for i in 0..40 {
        let taken = p.cycle(Some((i, 3, Some(1))), true);
        assert_eq!(taken, i.checked_sub(1));
        p.ends.extend(taken.map(|_| 3));
    }
    assert_eq!(p.cycle(None, true), Some(39));
    // Many LUNs in turn: one in 3 cycles.
    p.bench.reset();
    for i in 0..64 {
        assert_eq!(p.cycle(Some((i, i % 8, Some(1))), false), None);
    }
    let mut cycles = 0;
    let mut order = vec![];
    while order.len() < 64 {
        let lun = p.cycle(None, true).map(|t| t % 8);
        p.ends.extend(lun);
        order.extend(lun);
        cycles += 1;
    }
    assert!(cycles <= 3 * 64, "{cycles} cycles for 64");
    let turns: Vec<u64> = order
        .chunks(8)
        .flat_map(|o| (0..8).map(|l| o.iter().filter(|x| **x == l).count() as u64))
        .collect();
    assert!(
        turns.iter().all(|n| *n == 1),
        "each LUN once a round: {order:?}"
    );
}
