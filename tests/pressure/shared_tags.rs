//! S3: LUNs that share too few tags, under each fairness rule.

use super::{Load, card, load, media};
use crate::common::load::{Ran, Trouble, exercised, jain, readers};
use weir_driver::nvme::feature::Fairness;

/// Tags of all LUNs together.
const TAGS: u32 = 32;

fn run(what: &str, sections: impl Iterator<Item = (u32, u32, u32)>, rule: Fairness) -> Ran {
    card().run(what, &readers(512, sections), load(16, 400), |s| {
        s.tags = TAGS;
        s.depth = vec![(None, TAGS as u16)];
        s.fairness = rule;
        s.media_latency = media(6_000);
    })
}

/// LUNs that want alike get alike by every rule, and the rules that enforce it cost no throughput.
#[test]
fn luns_that_want_alike_get_alike_at_no_cost() {
    for luns in [2, 8, 24] {
        let results = [
            ("none", Fairness::NONE),
            ("even", Fairness::EVEN),
            ("weighted", Fairness::WEIGHTED),
        ]
        .map(|(name, rule)| {
            let what = format!("S3, {luns} LUNs, rule {name}");
            let ran = run(&what, (0..luns).map(|lun| (lun, 4, 8)), rule);
            // By the even rule each holds its share, and there are as many tags as shares; by weight a turn ends after a command.
            match rule {
                Fairness::WEIGHTED => exercised(&what, Trouble::Share, 200, ran.luns()),
                Fairness::EVEN if luns * 4 <= TAGS => {
                    exercised(&what, Trouble::Share, 200, ran.luns());
                }
                _ => exercised(&what, Trouble::Tags, 200, ran.luns()),
            }
            let fairness = jain(&ran.iops_by_lun());
            println!("{what}: {:.0} IOPS, Jain's index {fairness:.4}", ran.iops());
            assert!(fairness > 0.99, "{what}: {:.0?}", ran.iops_by_lun());
            ran.iops()
        });
        let [none, even, weighted] = results;
        let cost = 1.0 - even.min(weighted) / none;
        assert!(cost < 0.03, "S3, {luns} LUNs: {results:.0?} IOPS");
    }
}

/// A heavy LUN and seven light ones: without a rule the light ones wait for tags; with the even one they do not.
#[test]
fn a_heavy_lun_leaves_the_light_ones_their_share() {
    let sections = || {
        [(0, 9, 48)]
            .into_iter()
            .chain((1..8).map(|lun| (lun, 1, 4)))
    };
    let light_wait = |ran: &Ran| {
        let light = ran.luns().skip(1);
        let (waited, admitted) =
            light.fold((0, 0), |s, l| (s.0 + l.cycles_waited, s.1 + l.admitted));
        waited as f64 / admitted as f64
    };
    let (what, none) = ("S3, uneven, none", run("none", sections(), Fairness::NONE));
    exercised(what, Trouble::Tags, 50, none.luns().skip(1));
    let (what, even) = ("S3, uneven, even", run("even", sections(), Fairness::EVEN));
    exercised(what, Trouble::Share, 50, even.luns().take(1));
    let (without, with) = (light_wait(&none), light_wait(&even));
    println!(
        "S3, uneven: the light wait {without:.0} cycles without a rule, {with:.0} with; {:.0} and {:.0} IOPS in all",
        none.iops(),
        even.iops()
    );
    assert!(
        with < 0.2 * without,
        "the light wait {with:.0} cycles, {without:.0} without a rule"
    );
}

/// Saturated LUNs share the tags by their weights, within 5 %, also where a LUN's depth is well below the tags.
#[test]
fn saturated_luns_share_by_weight() {
    for (tags, depth, weights) in [(8, 8, [1, 2, 4, 8]), (32, 20, [1, 1, 2, 4])] {
        let what = format!("S3, weights {weights:?}, {tags} tags, depth {depth}");
        let job = readers(512, (0..4).map(|lun| (lun, 8, 32)));
        let load = Load {
            time_ns: 2_000_000,
            ..load(16, 0)
        };
        let ran = card().run(&what, &job, load, |s| {
            s.tags = tags;
            s.depth = vec![(None, depth)];
            s.fairness = Fairness::WEIGHTED;
            s.weight = (0..).zip(weights).map(|(lun, w)| (Some(lun), w)).collect();
            s.media_latency = media(u64::from(tags) * 150);
        });
        for lun in ran.luns() {
            exercised(&what, Trouble::Share, 400, [lun]);
        }
        let (got, sum) = (ran.iops_by_lun(), weights.iter().sum::<u16>());
        println!("{what}: {got:.0?} IOPS");
        for (lun, weight) in weights.iter().enumerate() {
            let part = got[lun] / got.iter().sum::<f64>() * f64::from(sum) / f64::from(*weight);
            assert!(
                (0.95..1.05).contains(&part),
                "{what}: LUN {lun} gets {part:.2} of its share: {got:.0?}"
            );
        }
    }
}
