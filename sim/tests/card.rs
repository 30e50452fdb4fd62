//! The whole card under jobs that check every byte: against slaves that do the worst AXI allows, over a link that
//! reorders, with one ID and with many, with its assertions on and RAM collisions random.

use std::sync::OnceLock;

use verilator_sys::Model;
use weir_card::card::card;
use weir_card::config::CardConfig;
use weir_sim::fio::results::LunSample;
use weir_sim::fio::{self, PlanOptions};
use weir_sim::link::{Link, LinkParams};
use weir_sim::model::{self, ModelOptions};
use weir_sim::run::{self, Outcome, Settings};
use weir_sim::slave::Behaviour;
use weir_sim::time::Latency;

const CHECKED: ModelOptions = ModelOptions {
    trace: false,
    asserts: true,
    random_collisions: true,
};

fn small() -> &'static (CardConfig, Model) {
    static BUILT: OnceLock<(CardConfig, Model)> = OnceLock::new();
    BUILT.get_or_init(|| build(CardConfig::small()))
}

fn build(config: CardConfig) -> (CardConfig, Model) {
    let model = model::build(&card(&config), CHECKED).unwrap();
    (config, model)
}

fn run(
    (config, built): &(CardConfig, Model),
    job: &str,
    ios: u64,
    seed: u64,
    change: impl FnOnce(&mut Settings),
) -> Outcome {
    let file = fio::parse("test.fio", job).unwrap();
    let options = PlanOptions {
        seed,
        ios: Some(ios),
        ..PlanOptions::default()
    };
    let plan = run::plan(&file, None, config.queues, &options).unwrap();
    let mut settings = Settings::new(config);
    settings.hang_cycles = Some(100_000);
    change(&mut settings);
    let card = Box::new(model::instance(built, seed).unwrap());
    run::run(card, config, plan, &settings, None, &mut |_| ())
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

fn good(outcome: &Outcome, what: &str) {
    let results = &outcome.results;
    assert!(
        outcome.is_good(),
        "{what}: {:?} {:?}",
        outcome.problems,
        results.mismatches
    );
    for (n, lun) in results.luns.iter().enumerate() {
        let card = lun.card.unwrap();
        assert_eq!(
            (card.in_flight, card.parked),
            (0, 0),
            "{what}: LUN {n} {card:?}"
        );
        assert_eq!(card.admitted, card.completed, "{what}: LUN {n}");
        assert!(card.peak <= 32, "{what}: LUN {n} {card:?}");
    }
}

const MIXED: &str = "[global]\nioengine=libaio\nsize=256k\n\
    [small]\nfilename=a\nrw=randrw\nbs=512\niodepth=12\nverify=crc32c\n\
    [pages]\nfilename=b\nrw=randrw\nbs=4k\niodepth=8\nverify=crc32c\n\
    [large]\nfilename=c\nrw=randrw\nbsrange=512-128k\niodepth=4\nverify=crc32c\n\
    [all]\nfilename=a:b:c\nrw=randrw\nbsrange=512-16k\niodepth=8\nfsync=5\n";

fn hostile(settings: &mut Settings) {
    settings.host_behaviour = Behaviour::HOSTILE;
    settings.media_behaviour = Behaviour {
        interleave: false,
        ..Behaviour::HOSTILE
    };
}

#[test]
fn hostile_slaves_corrupt_nothing() {
    for seed in 1..=4 {
        let outcome = run(small(), MIXED, 300, seed, hostile);
        good(&outcome, "hostile slaves");
    }
}

#[test]
fn a_link_that_reorders_and_mixes_corrupts_nothing() {
    for seed in 1..=3 {
        let link = LinkParams {
            jitter: 3000,
            interleave: true,
            mps: 128,
            tags: 16,
            bursts: 8,
            ..LinkParams::new(3, 4)
        };
        let outcome = run(small(), MIXED, 300, seed, |settings| {
            settings.link = Link::Pcie(link);
            settings.media_latency = vec![
                (None, Latency::Uniform(0, 3000)),
                (Some(1), Latency::Exponential(500, 5000)),
            ];
        });
        good(&outcome, "a link with jitter");
    }
}

#[test]
fn one_id_in_order_serves_as_well() {
    let config = CardConfig {
        host_id_bits: 0,
        media_id_bits: 0,
        ..CardConfig::small()
    };
    let built = build(config);
    good(&run(&built, MIXED, 300, 1, |_| ()), "one ID");
    good(
        &run(&built, MIXED, 300, 2, hostile),
        "one ID, hostile slaves",
    );
}

#[test]
fn wider_buses_serve_as_well() {
    for bits in [256, 512] {
        let built = build(CardConfig {
            data_bits: bits,
            ..CardConfig::small()
        });
        good(
            &run(&built, MIXED, 300, 1, hostile),
            &format!("{bits} bits"),
        );
    }
}

#[test]
fn depth_changes_under_load_lose_nothing() {
    let outcome = run(small(), MIXED, 2000, 5, |settings| {
        settings.run.soak_ns = Some(3_000);
        settings.media_latency = vec![(None, Latency::Fixed(1000))];
        settings.link = "gen3x8".parse().unwrap();
    });
    good(&outcome, "soak");
    let deferred: u64 = outcome
        .results
        .luns
        .iter()
        .map(|lun| lun.card.unwrap().deferred_depth)
        .sum();
    assert!(
        deferred > 0,
        "not exercised: nothing was deferred for depth"
    );
}

#[test]
fn a_depth_is_kept() {
    let outcome = run(small(), MIXED, 500, 6, |settings| {
        settings.depth = vec![(None, 5), (Some(1), 2)];
        settings.media_latency = vec![(None, Latency::Fixed(2000))];
    });
    good(&outcome, "depth");
    let peaks: Vec<u64> = outcome
        .results
        .luns
        .iter()
        .map(|lun| lun.card.unwrap().peak)
        .collect();
    assert_eq!(peaks, [5, 2, 5]);
    // What the plots show: the depth, and how much of it is used, as the card has it at that moment.
    for (lun, depth) in outcome.results.luns.iter().zip([5, 2, 5]) {
        let samples = &lun.samples;
        assert!(samples.len() > 100, "{} samples", samples.len());
        assert!(samples.iter().all(|s| s.depth == Some(depth)));
        let executing: Vec<u32> = samples.iter().map(|s| s.executing.unwrap()).collect();
        assert_eq!(executing.iter().max(), Some(&depth));
        let more = |s: &LunSample| s.executing > Some(s.outstanding);
        assert!(
            !samples.iter().any(more),
            "more execute than are outstanding"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let once = |seed| {
        let outcome = run(small(), MIXED, 200, seed, hostile);
        (outcome.world, outcome.results.elapsed_ns)
    };
    assert_eq!(once(7), once(7));
    assert_ne!(once(7), once(8));
}
