//! S1: LUNs that run out of budget all the time. A command that waits is admitted by the event that frees its budget; a
//! wake-up that was lost would be a hang, and the world calls it one.

use super::{card, load};
use crate::common::load::{Trouble, exercised, readers};
use crate::common::{BLOCKS, Rig, unwritten};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weir_card::config::CardConfig;
use weir_driver::{Admin, Op, Pci, QueueConfig};
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

/// Interrupts alone tell of completions, while depths change and queues are deleted under load and made again on another
/// vector: no wake-up and no interrupt is lost.
#[test]
fn vectors_move_and_depths_change_under_load() {
    let seed = 4;
    let mut rng = StdRng::seed_from_u64(seed);
    let mut rig = Rig::new(&CardConfig::small(), seed, |w| {
        for lun in &mut w.luns {
            lun.read_latency = Latency::Uniform(200, 6000);
        }
    });
    let make = |rig: &mut Rig, vector| {
        let config = QueueConfig {
            entries: 16,
            vector: Some(vector),
            ..QueueConfig::default()
        };
        (vector, rig.queue(config))
    };
    let mut queues: Vec<_> = (1..=3).map(|vector| make(&mut rig, vector)).collect();
    let mut free_vector = 4;
    let (mut right, mut aborted) = (0, 0);
    let mut done = |d: crate::common::Done| {
        if !d.status.is_success() {
            aborted += 1;
            return;
        }
        right += 1;
        let expected = unwritten(d.lun, d.user, 4, seed);
        let buffer = d.buffer.unwrap();
        buffer.with(|b| {
            assert!(
                b[..expected.len()] == expected,
                "LUN {} block {}",
                d.lun,
                d.user
            )
        });
    };
    for round in 0..1500 {
        let (at, lun) = (rng.random_range(0..3usize), rng.random_range(0..4));
        let queue = &mut queues[at].1;
        while queue.has_room(lun) {
            let slba = rng.random_range(0..BLOCKS - 4);
            let buffer = Some(rig.buffer(4));
            queue.submit(lun, Op::Read, buffer, slba, 4, slba).unwrap();
        }
        queue.ring();
        if round % 8 == 0 {
            rig.controller
                .set_depth(lun, rng.random_range(2..=16))
                .unwrap();
        }
        if round % 50 == 49 {
            let (vector, old) = queues.swap_remove(at);
            rig.controller.delete_queue(old, &mut done).unwrap();
            queues.push(make(&mut rig, free_vector));
            free_vector = vector;
        }
        rig.pass(400);
        for (vector, queue) in &mut queues {
            if rig.pci.take_interrupt(*vector) {
                queue.poll(&mut done).unwrap();
            }
        }
    }
    for (vector, queue) in &mut queues {
        while !queue.is_empty() {
            let came = queue.wait(rig.pci.now_ns() + 1_000_000);
            assert!(
                came,
                "vector {vector}: no interrupt for {} commands",
                queue.len()
            );
            queue.poll(&mut done).unwrap();
        }
    }
    assert!(
        right > 500 && aborted > 50,
        "{right} right, {aborted} aborted"
    );
    exercised("S1, vectors", Trouble::Depth, 100, &rig.statistics());
}
