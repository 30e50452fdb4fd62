//! S2: 1 to 16 LUNs by 1 to 4 queues.

use super::{card, load, media};
use crate::common::load::{Trouble, exercised, readers, spread};

/// Depth and media allow a LUN so many IOPS, the media port so many in all: every cell reaches the lower of the two.
#[test]
fn throughput_grows_with_luns_and_not_with_queues() {
    let card = card();
    let (depth, mean_ns) = (3, 5_000);
    let lun_bound = f64::from(depth) / (mean_ns as f64 * 1e-9);
    // 32 beats of 128 bits and the completion.
    let port_bound: f64 = 250e6 / 33.0;
    for luns in [1, 2, 4, 8, 16] {
        let row = [1, 2, 4].map(|queues| {
            let what = format!("S2, {luns} LUNs, {queues} queues");
            let each = 32 / queues;
            let job = readers(512, (0..luns).map(|lun| (lun, queues, each)));
            // Long enough for a few hundred I/Os.
            let time_us = u64::from(480 / luns).max(60);
            let ran = card.run(&what, &job, load(queues, time_us), |s| {
                s.depth = vec![(None, depth as u16)];
                s.media_latency = media(mean_ns);
            });
            for lun in ran.luns() {
                exercised(&what, Trouble::Depth, 10, [lun]);
            }
            ran.iops()
        });
        let bound = port_bound.min(f64::from(luns) * lun_bound);
        println!("{luns} LUNs: {row:.0?} of {bound:.0} IOPS");
        assert!(
            row.iter().all(|iops| *iops > 0.9 * bound),
            "{luns} LUNs: {row:.0?} of {bound:.0} IOPS"
        );
        assert!(
            spread(&row) < 1.05,
            "{luns} LUNs: {row:.0?} IOPS by 1, 2 and 4 queues"
        );
    }
}
