//! S1: LUNs that run out of budget all the time. A command that waits is admitted by the event that frees its budget; a
//! wake-up that was lost would be a hang, and the world calls it one.

use super::{card, load};
use crate::common::load::{Trouble, exercised, readers};
use weir_sim::time::Latency;

/// Twelve LUNs under reads and verified writes, each depth set to a random 2 to 16 and completions reaped on the submitting
/// CPU or its neighbour in turn, every few microseconds.
#[test]
fn depths_and_completing_cpus_change_under_mixed_load() {
    let mut job = String::from(
        "[global]\nioengine=libaio\ndirect=1\niodepth=32\nsize=64k\nruntime=60\ntime_based\n",
    );
    for (lun, kind) in (0..12).zip(
        ["randread", "read", "randwrite", "write", "randrw", "rw"]
            .iter()
            .cycle(),
    ) {
        job += &format!(
            "[l{lun}]\nfilename=l{lun}\nrw={kind}\nbsrange={}\n",
            ["512-512", "4k-4k", "512-2k"][lun % 3]
        );
        if kind.contains('w') {
            job += "verify=crc32c\nfsync=9\n";
        }
    }
    for seed in 1..=2 {
        let load = super::Load {
            seed,
            ..load(4, 300)
        };
        let ran = card().run("S1", &job, load, |s| {
            s.run.soak_ns = Some(7_000);
            s.media_latency = vec![(None, Latency::Uniform(300, 6_000))];
        });
        for (n, lun) in ran.luns().enumerate() {
            exercised(&format!("S1, LUN {n}"), Trouble::Depth, 3, [lun]);
            assert!(lun.peak <= 32, "LUN {n}: {lun:?}");
        }
        exercised("S1", Trouble::Depth, 500, ran.luns());
        let total = ran.outcome.results.total();
        assert!(
            total.verified_bytes > 100_000,
            "{} B verified",
            total.verified_bytes
        );
    }
}

/// A depth of one without any media latency: every completion is a restart.
#[test]
fn every_completion_restarts_its_lun() {
    let job = readers(512, (0..24).map(|lun| (lun, 2, 16)));
    let ran = card().run("S1, depth 1", &job, load(8, 60), |s| {
        s.depth = vec![(None, 1)];
    });
    let admitted: u64 = ran.luns().map(|lun| lun.admitted).sum();
    exercised("S1, depth 1", Trouble::Depth, admitted * 9 / 10, ran.luns());
    assert!(ran.luns().all(|lun| lun.peak == 1));
}
