//! S0: many queues on one LUN. The card keeps its count, so that no CPU writes what another one reads.

use super::{card, load, media};
use crate::common::load::{Trouble, exercised, jain, readers, spread};

/// A depth of 256 that 32 queues would fill four times over is always full and never passed, and no queue gets less than
/// another.
#[test]
fn thirty_two_queues_fill_one_lun_s_depth() {
    let ran = card().run("S0", &readers(512, [(0, 32, 32)]), load(32, 400), |s| {
        s.depth = vec![(None, 256)];
        s.media_latency = media(60_000);
    });
    let lun = *ran.luns().next().unwrap();
    assert_eq!(lun.peak, 256);
    exercised("S0", Trouble::Depth, 1000, [&lun]);
    // Little's law: 256 commands in 60 us of media and what the card itself takes.
    let full = 256.0 / 60e-6;
    let iops = ran.iops();
    assert!(
        (0.94 * full..1.01 * full).contains(&iops),
        "{iops:.0} of {full:.0} IOPS"
    );
    let fairness = jain(&ran.iops_by_job());
    assert!(fairness > 0.99, "the queues get {:.0?}", ran.iops_by_job());
}

/// The number of queues that the commands come by changes nothing.
#[test]
fn as_quick_by_many_queues_as_by_one() {
    let card = card();
    let iops = [1, 4, 32].map(|queues| {
        let what = format!("S0, {queues} queues");
        let job = readers(512, [(0, queues, 64 / queues)]);
        let ran = card.run(&what, &job, load(queues, 150), |s| {
            s.depth = vec![(None, 16)];
            s.media_latency = media(4_000);
        });
        exercised(&what, Trouble::Depth, 300, ran.luns());
        ran.iops()
    });
    assert!(
        spread(&iops) < 1.03,
        "{iops:.0?} IOPS by 1, 4 and 32 queues"
    );
}
