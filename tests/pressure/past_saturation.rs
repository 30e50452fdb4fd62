//! S4: 128 jobs on a depth of 128, each with 1, 2, 4 and 8 I/Os.

use super::{card, load, media};
use crate::common::load::{Trouble, exercised, readers};

/// Seven eighths of the commands wait on the card in the last run, and nobody runs queues again for them.
#[test]
fn throughput_past_saturation_stays_at_its_peak() {
    let card = card();
    let iops = [1, 2, 4, 8].map(|depth| {
        let what = format!("S4, iodepth {depth}");
        let ran = card.run(
            &what,
            &readers(512, [(0, 128, depth)]),
            load(32, 300),
            |s| {
                s.depth = vec![(None, 128)];
                s.media_latency = media(30_000);
            },
        );
        let lun = *ran.luns().next().unwrap();
        assert_eq!(lun.peak, 128);
        if depth > 1 {
            exercised(&what, Trouble::Depth, 500, [&lun]);
        }
        ran.iops()
    });
    let peak = iops.iter().fold(0.0, |a: f64, b| a.max(*b));
    println!("{iops:.0?} IOPS at iodepth 1, 2, 4, 8");
    for (at, iops) in iops.iter().enumerate() {
        assert!(
            *iops > 0.97 * peak,
            "iodepth {}: {iops:.0} IOPS, {peak:.0} at the peak",
            1 << at
        );
    }
}
