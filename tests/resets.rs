//! Resets, deletes and aborts in the middle of I/O: no slot, tag or count is left behind, and every command is accounted for.

mod common;

use common::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weir_card::config::CardConfig;
use weir_driver::{Admin, Op, Pci, Queue};
use weir_nvme::StatusCode;
use weir_sim::pci::SimPci;
use weir_sim::slave::Behaviour;
use weir_sim::time::Latency;

/// A card whose LUNs are slow and shallow, so that commands are parked, executing and completing at any time.
fn loaded(seed: u64) -> Rig {
    loaded_on(seed, Behaviour::PLAIN)
}

/// The same, with a host port that behaves like this.
fn loaded_on(seed: u64, host: Behaviour) -> Rig {
    let mut rig = Rig::new(&CardConfig::small(), seed, |w| {
        w.host_behaviour = host;
        for lun in &mut w.luns {
            (lun.read_latency, lun.write_latency) =
                (Latency::Uniform(100, 6000), Latency::Uniform(100, 6000));
        }
    });
    rig.controller.set_budget(None, 3, 1).unwrap();
    rig
}

/// Fills `queue` with reads and writes of up to 128 KiB.
fn fill(rig: &Rig, queue: &mut Queue<SimPci>, rng: &mut StdRng) -> usize {
    let mut n = 0;
    for _ in 0..16 {
        let lun = rng.random_range(0..4);
        if queue.has_room(lun) {
            let blocks = [1, 8, 32, 256][rng.random_range(0..4usize)];
            let op = if rng.random() { Op::Read } else { Op::Write };
            queue
                .submit(
                    lun,
                    op,
                    Some(rig.buffer(blocks)),
                    rng.random_range(0..BLOCKS - 256),
                    blocks,
                    0,
                )
                .unwrap();
            n += 1;
        }
    }
    queue.ring();
    n
}

#[test]
fn controller_reset_in_the_middle_of_io() {
    let mut rig = loaded(1);
    let mut rng = StdRng::seed_from_u64(1);
    let mut parked = 0;
    for _ in 0..25 {
        let mut queues: Vec<_> = (0..3).map(|_| rig.deep_queue()).collect();
        let mut submitted = 0;
        for queue in &mut queues {
            submitted += fill(&rig, queue, &mut rng);
        }
        rig.pass(rng.random_range(0..6000));
        parked += (0..4)
            .map(|l| rig.controller.lun_statistics(l).unwrap().parked)
            .sum::<u64>();
        let mut returned = 0;
        for queue in &mut queues {
            queue.poll(|_| returned += 1).unwrap();
        }
        rig.controller
            .reset(&mut queues, |_| returned += 1)
            .unwrap();
        assert_eq!(returned, submitted, "every buffer comes back once");
        for queue in queues {
            rig.controller.delete_queue(queue, |_| ()).unwrap();
        }
        rig.controller.set_budget(None, 3, 1).unwrap();
    }
    assert!(parked > 20, "not exercised: {parked} commands were parked");
    rig.whole();
}

#[test]
fn function_level_reset_in_the_middle_of_io() {
    let mut rig = loaded(2);
    let mut rng = StdRng::seed_from_u64(2);
    for _ in 0..15 {
        let mut queues: Vec<_> = (0..3).map(|_| rig.deep_queue()).collect();
        for queue in &mut queues {
            fill(&rig, queue, &mut rng);
        }
        rig.pass(rng.random_range(0..5000));
        rig.pci.world_mut().function_level_reset();
        // PCIe allows 100 ms. What executes, up to 12 x 128 KiB, ends at a beat a cycle.
        rig.pass(600_000);
        rig.pci.world_mut().enable_function().unwrap();
        assert_eq!(rig.pci.read32(0x14) & 1, 0, "CC.EN is 0 after an FLR");
        assert_eq!(rig.pci.read32(0x1c) & 1, 0, "CSTS.RDY is 0 after an FLR");
        rig.restart();
        rig.controller.set_budget(None, 3, 1).unwrap();
        // Of the old queues only the memory is left.
        drop(queues);
    }
    rig.whole();
}

/// Found by random messages to `weir serve`: the tables were cleared while sq_fetch looked after the doorbell.
#[test]
fn function_level_reset_beside_doorbells_of_a_controller_that_is_off() {
    let mut rig = loaded(4);
    rig.pci.world_mut().function_level_reset();
    rig.pass(600_000);
    rig.pci.world_mut().enable_function().unwrap();
    for gap in 0..80 {
        // Doorbells of I/O queues, one a few cycles after the other, on both sides of the reset.
        for queue in [1, 2, 3, 1, 2, 3] {
            rig.pci.write32(0x1000 + 8 * queue, 1);
        }
        rig.pass(gap);
        rig.pci.world_mut().function_level_reset();
        for queue in [1, 2, 3, 1, 2, 3] {
            rig.pci.write32(0x1000 + 8 * queue, 1);
        }
        rig.pass(10_000);
        rig.pci.world_mut().enable_function().unwrap();
    }
    rig.restart();
    rig.whole();
}

/// Software takes Bus Master Enable away under load and gives it back: no request begins meanwhile (the world checks every cycle),
/// what stands at the pins is not withdrawn, and every command ends well afterwards.
#[test]
fn bus_mastering_comes_and_goes_in_the_middle_of_io() {
    let mut rig = loaded_on(7, Behaviour::HOSTILE);
    let mut rng = StdRng::seed_from_u64(7);
    let mut queues: Vec<_> = (0..3).map(|_| rig.deep_queue()).collect();
    let mut held = 0;
    for _ in 0..20 {
        for queue in &mut queues {
            fill(&rig, queue, &mut rng);
        }
        rig.pass(rng.random_range(0..4000));
        rig.pci.world_mut().set_bus_master(false);
        // What has left is answered; then nothing reaches memory any more.
        rig.pass(4_000);
        for queue in &mut queues {
            queue
                .poll(|done| assert!(done.status.is_success()))
                .unwrap();
        }
        let waiting: Vec<_> = queues.iter().map(|queue| queue.len()).collect();
        rig.pass(rng.random_range(0..5_000));
        for queue in &mut queues {
            queue.poll(|_| panic!("an entry was written")).unwrap();
        }
        held += waiting.iter().sum::<usize>();
        rig.pci.world_mut().set_bus_master(true);
        if rng.random() {
            for queue in &mut queues {
                for done in rig.drain(queue) {
                    assert!(done.status.is_success(), "{done:?}");
                }
            }
        }
    }
    assert!(held > 200, "{held} commands waited for bus mastering");
    for mut queue in queues {
        rig.drain(&mut queue);
        rig.controller.delete_queue(queue, |_| ()).unwrap();
    }
    rig.whole();
}

#[test]
fn queue_deletion_in_the_middle_of_io() {
    let mut rig = loaded(3);
    let mut rng = StdRng::seed_from_u64(3);
    let mut aborted = 0;
    let mut other = rig.deep_queue();
    for _ in 0..25 {
        let mut queue = rig.deep_queue();
        let submitted = fill(&rig, &mut queue, &mut rng);
        fill(&rig, &mut other, &mut rng);
        rig.pass(rng.random_range(0..4000));
        let mut returned = 0;
        rig.controller
            .delete_queue(queue, |done| {
                returned += 1;
                let expected =
                    done.status.is_success() || code(&done) == StatusCode::ABORTED_SQ_DELETION;
                assert!(expected, "{done:?}");
                aborted += usize::from(!done.status.is_success());
            })
            .unwrap();
        assert_eq!(returned, submitted);
        for done in rig.drain(&mut other) {
            assert!(done.status.is_success(), "the other queue lives: {done:?}");
        }
    }
    assert!(
        aborted > 20,
        "not exercised: {aborted} commands were aborted"
    );
    rig.controller.delete_queue(other, |_| ()).unwrap();
    rig.whole();
}

#[test]
fn abort_ends_what_is_parked_and_not_what_executes() {
    let mut rig = Rig::new(&CardConfig::small(), 4, |w| {
        w.luns[0].read_latency = Latency::Fixed(300_000)
    });
    rig.controller.set_depth(0, 1).unwrap();
    let mut queue = rig.deep_queue();
    for n in 0..6 {
        queue
            .submit(0, Op::Read, Some(rig.buffer(8)), 8 * n, 8, n)
            .unwrap();
    }
    queue.ring();
    rig.pass(2000);
    let outstanding: Vec<_> = queue.outstanding().collect();
    assert_eq!(outstanding.len(), 6);
    let mut cids: Vec<u16> = outstanding.iter().map(|o| o.cid).collect();
    cids.sort_unstable();
    let aborted: Vec<bool> = cids
        .iter()
        .map(|&cid| rig.controller.abort(queue.sqid(), cid).unwrap())
        .collect();
    assert_eq!(
        aborted.iter().filter(|&&a| a).count(),
        5,
        "all but the executing one: {aborted:?}"
    );
    let done = rig.drain(&mut queue);
    let by_request = done
        .iter()
        .filter(|d| code(d) == StatusCode::ABORT_REQUESTED)
        .count();
    assert_eq!((by_request, done.len()), (5, 6));
    assert!(
        !rig.controller.abort(queue.sqid(), 0x7777).unwrap(),
        "an unknown command is not aborted"
    );
    rig.controller.delete_queue(queue, |_| ()).unwrap();
    rig.whole();
}
