//! The id map between random masters and slaves that delay, reorder and interleave: every answer finds its owner, in order
//! where an id repeats, with never more in flight than allowed.

#[path = "common/axi.rs"]
mod axi;
mod common;
#[path = "common/masters.rs"]
mod masters;

use axi::{Manner, Memory, ReadSlave, WriteSlave};
use common::{Bench, in_threads, model, rng};
use masters::{ReadMaster, WriteMaster};
use rand::Rng;
use weir_card::axi_id_map::{IdMap, axi_id_map};
use weir_card::config::CardConfig;
use weir_card::interfaces::AxiParams;

const INNER_BITS: u32 = 6;
const REPEATING_FROM: u32 = 48;

fn maps() -> Vec<IdMap> {
    let map = |id_bits, max_outstanding, repeating_from| IdMap {
        name: format!("map_{id_bits}_{max_outstanding}_{repeating_from}"),
        inner: AxiParams {
            id_bits: INNER_BITS,
            data_bits: 128,
        },
        id_bits,
        max_outstanding,
        repeating_from,
    };
    vec![
        // One id, in order.
        map(0, 32, REPEATING_FROM),
        map(0, 1, 0),
        // Few ids, in order each.
        map(1, 32, REPEATING_FROM),
        map(2, 32, 0),
        map(3, 20, REPEATING_FROM),
        // A pool.
        map(4, 16, REPEATING_FROM),
        map(4, 12, 0),
        map(2, 4, REPEATING_FROM),
        // Direct.
        map(6, 40, REPEATING_FROM),
        map(9, 64, REPEATING_FROM),
    ]
}

fn run(
    map: &IdMap,
    bench: &mut Bench,
    seed: u64,
    manner: Manner,
    stalls: bool,
    cycles: u64,
) -> (u64, u64, u64) {
    let sim = &bench.sim;
    let repeats = if map.repeating_from > 0 {
        64 - map.repeating_from as u64
    } else {
        0
    };
    let unique: Vec<u64> = (0..64 - repeats).collect();
    let mut read = ReadMaster::new(sim, "inner_ar", "inner_r", (0..64).collect(), stalls, seed);
    // All unique ids from one master, or (odd seeds, where the map has them) the repeating ones.
    let repeating = repeats > 0 && seed % 2 == 1;
    let ids = if repeating {
        (map.repeating_from as u64..64).step_by(5).collect()
    } else {
        unique
    };
    let ports = ["inner_aw", "inner_w", "inner_b"];
    let mut write = WriteMaster::new(sim, ports, ids, repeating, 4, 1 << 30, stalls, seed + 1);
    let mut memory = Memory::new(seed);
    let (reading, writing) = (Memory::new(seed + 5), &mut memory);
    let mut slave_read = ReadSlave::new(sim, "outer_ar", "outer_r", manner, seed + 2);
    let mut slave_write = WriteSlave::new(sim, "outer_aw", "outer_w", "outer_b", manner, seed + 3);
    let pooled =
        map.id_bits > 1 && map.max_outstanding <= 1 << map.id_bits || map.id_bits >= INNER_BITS;
    slave_read.unique_ids = pooled;
    slave_write.unique_ids = pooled && !repeating;
    let begin = bench.cycle();
    loop {
        let cycle = bench.cycle() - begin;
        (read.stop, write.stop) = (cycle >= cycles, cycle >= cycles);
        if cycle >= cycles
            && read.outstanding() == 0
            && write.outstanding() == 0
            && slave_write.outstanding() == 0
        {
            break;
        }
        assert!(
            cycle < cycles + 20_000,
            "{} seed {seed}: the rest never ends",
            map.name
        );
        let sim = &mut bench.sim;
        read.drive(sim);
        write.drive(sim);
        slave_read.drive(sim, &reading);
        slave_write.drive(sim, writing);
        bench.eval();
        let sim = &bench.sim;
        read.sample(sim, &reading);
        write.sample(sim, writing);
        let before = slave_read.requests.len() + slave_write.requests.len();
        slave_read.sample(sim);
        slave_write.sample(sim);
        // What was taken in this very cycle counts from the next on.
        let fresh = slave_read.requests.len() + slave_write.requests.len() - before;
        let in_flight = slave_read.outstanding() + slave_write.outstanding();
        assert!(
            !bench.is("quiet") || in_flight <= fresh,
            "quiet with {in_flight} bursts in flight"
        );
        bench.tick();
    }
    for port in [
        "inner_ar_valid",
        "inner_aw_valid",
        "inner_w_valid",
        "outer_r_valid",
        "outer_b_valid",
    ] {
        bench.set(port, 0);
    }
    bench.tick();
    assert!(bench.is("quiet") && bench.is("idle"), "{}", map.name);
    let max = map.max_outstanding as usize;
    assert!(
        slave_read.most <= max && slave_write.most <= max,
        "{}: {} reads, {} writes in flight",
        map.name,
        slave_read.most,
        slave_write.most
    );
    (read.ended, write.ended, slave_read.beats.len() as u64)
}

#[test]
fn every_answer_finds_its_owner() {
    in_threads(&maps(), |map| {
        let module = axi_id_map(map);
        let model = model(&module);
        for seed in 0..8 {
            let mut bench = Bench::new(&module, &model, seed);
            let mut random = rng(seed);
            let manner = Manner {
                reorder: random.random_range(0..4) > 0,
                interleave: random.random_range(0..4) > 0,
                latency: [1, 8, 60, 200][random.random_range(0..4)],
                stalls: random.random_range(0..4) > 0,
            };
            let (reads, writes, _) = run(
                map,
                &mut bench,
                seed,
                manner,
                random.random_range(0..4) > 0,
                2000,
            );
            assert!(
                reads > 5 && writes > 5,
                "{} seed {seed}: {reads} reads, {writes} writes",
                map.name
            );
            // A reset in mid-run, and again.
            bench.reset();
            run(map, &mut bench, seed + 100, manner, true, 500);
        }
    });
}

#[test]
fn a_prompt_port_runs_without_bubbles() {
    let map = IdMap {
        name: "map_rate".into(),
        inner: AxiParams {
            id_bits: INNER_BITS,
            data_bits: 128,
        },
        id_bits: 4,
        max_outstanding: 16,
        repeating_from: 0,
    };
    let module = axi_id_map(&map);
    let mut bench = Bench::new(&module, &model(&module), 1);
    let (_, writes, beats) = run(&map, &mut bench, 2, Manner::PROMPT, false, 4000);
    // R: a beat every cycle. Writes have 2.5 beats on average, and none waits for another.
    assert!(beats >= 3980, "{beats} R beats in 4000 cycles");
    assert!(
        writes >= 1550,
        "{writes} writes of 1 to 4 beats in 4000 cycles"
    );
}

#[test]
fn the_cards_own_maps_build() {
    for name in ["small", "default", "large"] {
        let c = CardConfig::named(name).expect("named");
        for (host, media) in [(c.host_id_bits, c.media_id_bits), (0, 0), (1, 2), (12, 12)] {
            let c = CardConfig {
                host_id_bits: host,
                media_id_bits: media,
                ..c.clone()
            };
            assert!(c.host_id_map().outer().id_bits >= 1);
            for module in [axi_id_map(&c.host_id_map()), axi_id_map(&c.media_id_map())] {
                verilator_sys::lint(module.files(), module.name())
                    .unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
}
