//! Every shift of lanes, at every width, beat by beat against the bytes.

mod common;

use common::{Bench, Stall, in_threads, model, rng};
use rand::Rng;
use std::collections::VecDeque;
use weir_card::config::CardConfig;
use weir_card::dma::realign::realign;

/// A burst of `dwords` from lane `from` to lane `to`.
#[derive(Clone, Copy, Debug)]
struct Burst {
    from: u64,
    to: u64,
    dwords: u64,
}

/// Beats of dwords; lanes that carry no data are None.
fn beats(lanes: u64, lane: u64, data: &[u32]) -> Vec<Vec<Option<u32>>> {
    let n = (lane + data.len() as u64).div_ceil(lanes);
    let at = |i: u64| {
        i.checked_sub(lane)
            .and_then(|i| data.get(i as usize))
            .copied()
    };
    (0..n)
        .map(|b| (0..lanes).map(|l| at(b * lanes + l)).collect())
        .collect()
}

fn words(beat: &[u32]) -> Vec<u64> {
    beat.chunks(2)
        .map(|p| p[0] as u64 | (p[1] as u64) << 32)
        .collect()
}

/// Runs the bursts; returns the cycles from the first beat in to the last beat out.
fn run(c: &CardConfig, bench: &mut Bench, bursts: &[Burst], seed: u64, stalls: bool) -> u64 {
    let lanes = c.lanes() as u64;
    let mut random = rng(seed);
    let (mut give, mut take) = (Stall::new(seed + 1), Stall::new(seed + 2));
    let mut input = VecDeque::new();
    let mut expected = VecDeque::new();
    for b in bursts {
        let data: Vec<u32> = (0..b.dwords).map(|_| random.random()).collect();
        let source = beats(lanes, b.from, &data);
        let n = source.len();
        for (i, beat) in source.iter().enumerate() {
            // Lanes without data carry anything.
            let filled: Vec<u32> = beat
                .iter()
                .map(|x| x.unwrap_or_else(|| random.random()))
                .collect();
            input.push_back((*b, words(&filled), i == 0, i + 1 == n));
        }
        let destination = beats(lanes, b.to, &data);
        let n = destination.len();
        expected.extend(
            destination
                .into_iter()
                .enumerate()
                .map(|(i, d)| (d, i + 1 == n)),
        );
    }
    let mut offered = false;
    let (mut begin, mut end) = (None, 0);
    while !expected.is_empty() {
        offered |= !input.is_empty() && (!stalls || give.go());
        bench.set("input_valid", offered);
        if let Some((b, data, first, last)) = input.front() {
            bench.set_wide("input_data", data);
            bench.set("input_first", *first);
            bench.set("input_last", *last);
            bench.set("input_plan_rotate", (b.to + lanes - b.from) % lanes);
            bench.set("input_plan_prime", b.to < b.from);
            bench.set("input_plan_len", (b.to + b.dwords).div_ceil(lanes) - 1);
            bench.set("input_plan_first_lane", b.to);
            bench.set("input_plan_last_lane", (b.to + b.dwords - 1) % lanes);
        }
        let ready = !stalls || take.go();
        bench.set("output_ready", ready);
        bench.eval();
        if offered && bench.is("input_ready") {
            begin.get_or_insert(bench.cycle());
            input.pop_front();
            offered = false;
        }
        if ready && bench.is("output_valid") {
            let (want, last): (Vec<Option<u32>>, bool) =
                expected.pop_front().expect("beats are left");
            let data = bench.get_wide("output_data");
            let strobes = bench.get("output_strb");
            for (lane, x) in want.iter().enumerate() {
                let strobe = strobes >> (4 * lane) & 15;
                assert_eq!(
                    strobe,
                    if x.is_some() { 15 } else { 0 },
                    "strobes of lane {lane}"
                );
                let got = (data[lane / 2] >> (32 * (lane % 2))) as u32;
                assert!(
                    x.is_none_or(|x| x == got),
                    "lane {lane}: {got:x} for {x:x?}"
                );
            }
            assert_eq!(bench.is("output_last"), last);
            end = bench.cycle();
        }
        bench.tick();
        assert!(bench.cycle() < 2_000_000);
    }
    bench.set("input_valid", 0);
    bench.tick();
    assert!(bench.is("idle"));
    end - begin.unwrap_or(end)
}

fn widths() -> Vec<CardConfig> {
    [128, 256, 512]
        .map(|data_bits| CardConfig {
            data_bits,
            ..CardConfig::small()
        })
        .to_vec()
}

#[test]
fn every_shift_and_short_length() {
    in_threads(&widths(), |c| {
        let module = realign(c);
        let mut bench = Bench::new(&module, &model(&module), c.data_bits as u64);
        let lanes = c.lanes() as u64;
        let mut bursts = vec![];
        for from in 0..lanes {
            for to in 0..lanes {
                for dwords in (1..=lanes + 2).chain([2 * lanes, 3 * lanes + 1]) {
                    bursts.push(Burst { from, to, dwords });
                }
            }
        }
        run(c, &mut bench, &bursts, 1, true);
    });
}

#[test]
fn random_bursts_and_a_reset_in_between() {
    in_threads(&widths(), |c| {
        let module = realign(c);
        let model = model(&module);
        let lanes = c.lanes() as u64;
        for seed in 0..6 {
            let mut bench = Bench::new(&module, &model, seed);
            let mut random = rng(seed);
            let mut bursts = |n| -> Vec<Burst> {
                let mut burst = || {
                    let long = random.random_range(0..4) == 0;
                    let dwords = random.random_range(1..=if long { 1024 - lanes } else { 40 });
                    Burst {
                        from: random.random_range(0..lanes),
                        to: random.random_range(0..lanes),
                        dwords,
                    }
                };
                (0..n).map(|_| burst()).collect()
            };
            run(c, &mut bench, &bursts(60), seed, seed % 3 > 0);
            bench.set("input_valid", 1);
            bench.set("output_ready", 0);
            bench.tick();
            bench.set("input_valid", 0);
            bench.reset();
            run(c, &mut bench, &bursts(60), seed, seed % 3 > 0);
        }
    });
}

#[test]
fn kept_lanes_cost_nothing() {
    for c in widths() {
        let module = realign(&c);
        let mut bench = Bench::new(&module, &model(&module), 1);
        let lanes = c.lanes() as u64;
        let bursts: Vec<Burst> = (0..100)
            .map(|i| Burst {
                from: i % lanes,
                to: i % lanes,
                dwords: 128 - i % lanes,
            })
            .collect();
        let beats: u64 = bursts
            .iter()
            .map(|b| (b.from + b.dwords).div_ceil(lanes))
            .sum();
        assert_eq!(run(&c, &mut bench, &bursts, 1, false), beats);
    }
}
