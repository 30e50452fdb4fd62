//! The free list against a queue: order, count, flags, and one put and one take every cycle.

mod common;

use common::{Bench, Stall, model, rng};
use rand::Rng;
use std::collections::VecDeque;
use weir_card::bitmap::BitmapConfig;
use weir_card::free_list::free_list;

fn run(c: &BitmapConfig, seed: u64) {
    let block = free_list(c);
    let mut b = Bench::new(&block, &model(&block), seed);
    let mut r = rng(seed);
    let (mut put_go, mut take_go) = (Stall::new(seed + 1), Stall::new(seed + 2));
    let n = c.bits as u64;
    let fresh = || {
        if c.full {
            (0..n).collect::<VecDeque<_>>()
        } else {
            VecDeque::new()
        }
    };
    let mut list = fresh();
    let mut taken: Vec<u64> = vec![];
    let (mut double, mut range, mut starved) = (false, false, 0);
    for _ in 0..20_000 {
        if r.random_range(0..2000) == 0 {
            let pulse = if r.random() { "rst" } else { "clear" };
            b.set("put_valid", false);
            b.set("take_ready", false);
            b.set(pulse, true);
            b.tick();
            b.set(pulse, false);
            (list, double, range, starved) = (fresh(), false, false, 0);
            taken.clear();
        }
        let ready = take_go.go();
        // A put of a member is its user's mistake, which only a full list sees.
        let put = put_go.go().then(|| match r.random_range(0..10) {
            0 if !c.bits.is_power_of_two() => Some(r.random_range(n..1 << c.index_bits())),
            _ if !taken.is_empty() => Some(taken.swap_remove(r.random_range(0..taken.len()))),
            _ if list.len() as u64 == n && !ready => Some(r.random_range(0..n)),
            _ => None,
        });
        let put = put.flatten();
        b.set("put_valid", put.is_some());
        b.set("put_index", put.unwrap_or(0));
        b.set("take_ready", ready);
        b.eval();
        let shown = (
            b.get("count"),
            b.is("error_double_put"),
            b.is("error_range"),
        );
        assert_eq!(
            shown,
            (list.len() as u64, double, range),
            "{c:?} cycle {}",
            b.cycle()
        );
        let full = list.len() as u64 == n;
        let offered = b.is("take_valid").then(|| b.get("take_index"));
        starved = if offered.is_none() && !list.is_empty() {
            starved + 1
        } else {
            0
        };
        assert!(starved <= 2, "{c:?}: nothing offered, cycle {}", b.cycle());
        if let Some(i) = offered {
            assert_eq!(Some(&i), list.front(), "{c:?}: order, cycle {}", b.cycle());
            if ready {
                taken.extend(list.pop_front());
            }
        }
        range = put.is_some_and(|i| i >= n);
        double = put.is_some() && !range && full;
        list.extend(put.filter(|_| !range && !double));
        b.tick();
    }
}

#[test]
fn random_in_lock_step() {
    for (bits, full) in [
        (2, true),
        (5, false),
        (100, true),
        (256, true),
        (512, false),
    ] {
        run(
            &BitmapConfig {
                bits,
                full,
                limited: false,
            },
            bits as u64,
        );
    }
}

#[test]
fn one_put_and_one_take_every_cycle() {
    let block = free_list(&BitmapConfig::allocator(256));
    let mut b = Bench::new(&block, &model(&block), 3);
    let mut back = None;
    b.set("take_ready", true);
    b.tick();
    for _ in 0..2000 {
        b.set("put_valid", back.is_some());
        b.set("put_index", back.unwrap_or(0));
        b.eval();
        assert!(b.is("take_valid"));
        back = Some(b.get("take_index"));
        b.tick();
    }
}
