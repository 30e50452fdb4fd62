//! What the whole card promises, each as a story: budgets, full queues, errors, bad commands.

mod common;

use common::load::{Card, Load, Trouble, exercised};
use common::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weir_card::config::CardConfig;
use weir_driver::{Admin, Op, Pci, QueueConfig};
use weir_nvme::command::Command;
use weir_nvme::{Status, StatusCode};
use weir_sim::media::Fault;
use weir_sim::model::ModelOptions;
use weir_sim::slave::Behaviour;
use weir_sim::time::Latency;

/// Depths change at random in 2..=16 while every LUN is loaded: nothing hangs, no depth is exceeded, every block is right.
#[test]
fn depth_changes_under_load() {
    let seed = 3;
    let mut rig = Rig::new(&CardConfig::small(), seed, |w| {
        for lun in &mut w.luns {
            (lun.read_latency, lun.write_latency) =
                (Latency::Uniform(200, 3000), Latency::Uniform(200, 3000));
        }
    });
    let mut rng = StdRng::seed_from_u64(seed);
    let mut queues: Vec<_> = (0..4).map(|_| rig.deep_queue()).collect();
    rig.controller.set_budget(None, 2, 1).unwrap();
    let mut finished = 0;
    for round in 0..2000u32 {
        let (q, lun) = (rng.random_range(0..4usize), rng.random_range(0..4));
        if queues[q].has_room(lun) {
            let blocks = rng.random_range(1..=16);
            let slba = rng.random_range(0..BLOCKS - 16);
            queues[q]
                .submit(
                    lun,
                    Op::Read,
                    Some(rig.buffer(blocks)),
                    slba,
                    blocks,
                    slba << 8 | u64::from(blocks),
                )
                .unwrap();
            queues[q].ring();
        }
        if round % 16 == 0 {
            let lun = rng.random_range(0..4);
            let depth = rng.random_range(2..=16);
            rig.controller.set_depth(lun, depth).unwrap();
        }
        rig.pass(300);
        queues[q]
            .poll(|d| {
                finished += 1;
                right(&d, seed);
            })
            .unwrap();
    }
    for queue in &mut queues {
        for d in rig.drain(queue) {
            finished += 1;
            right(&d, seed);
        }
    }
    assert!(finished > 500, "{finished}");
    let luns = rig.statistics();
    for (lun, s) in luns.iter().enumerate() {
        assert!(s.peak <= 16, "LUN {lun}: peak {}", s.peak);
        assert_eq!((s.in_flight, s.parked, s.admitted), (0, 0, s.completed));
    }
    exercised("depth changes", Trouble::Depth, 50, &luns);
}

/// A read of never written blocks, its first block and length in `user`, brought what media holds.
fn right(d: &Done, seed: u64) {
    let (slba, blocks) = (d.user >> 8, (d.user & 0xff) as u32);
    let expected = unwritten(d.lun, slba, blocks, seed);
    assert!(d.status.is_success());
    d.buffer.as_ref().unwrap().with(|b| {
        assert!(
            b[..expected.len()] == expected,
            "LUN {} block {slba}",
            d.lun
        )
    });
}

/// In one shared queue, a slow LUN that holds all it may does not slow the LUN behind it.
#[test]
fn a_slow_lun_does_not_hold_up_its_neighbour() {
    let mut rig = Rig::new(&CardConfig::small(), 1, |w| {
        w.luns[0].read_latency = Latency::Fixed(400_000)
    });
    rig.controller.set_depth(0, 1).unwrap();
    let mut queue = rig.deep_queue();
    let alone = {
        let start = rig.pci.now_ns();
        rig.one(&mut queue, 1, Op::Read, Some(rig.buffer(8)), 0, 8);
        rig.pci.now_ns() - start
    };
    let mut parked = 0;
    while queue.has_room(0) {
        queue
            .submit(0, Op::Read, Some(rig.buffer(8)), 0, 8, 0)
            .unwrap();
        parked += 1;
    }
    queue.ring();
    rig.pass(2000);
    let statistics = rig.controller.lun_statistics(0).unwrap();
    assert_eq!(
        (statistics.in_flight, statistics.parked),
        (1, parked - 1),
        "all but one are parked"
    );
    let start = rig.pci.now_ns();
    for n in 0..50 {
        queue
            .submit(1, Op::Read, Some(rig.buffer(8)), n * 8, 8, n)
            .unwrap();
        queue.ring();
        let mut seen = false;
        while !seen {
            queue.poll(|d| seen |= d.lun == 1).unwrap();
            rig.pass(40);
        }
    }
    let each = (rig.pci.now_ns() - start) / 50;
    assert!(
        each <= alone + 80,
        "{each} ns beside the slow LUN, {alone} ns alone"
    );
    rig.drain(&mut queue);
}

/// A completion queue that nobody empties stalls no other.
#[test]
fn a_full_cq_stalls_no_other() {
    let mut rig = Rig::new(&CardConfig::small(), 2, |_| ());
    let mut full = rig.queue(QueueConfig {
        entries: 16,
        cq_entries: Some(2),
        ..QueueConfig::default()
    });
    let mut other = rig.deep_queue();
    for n in 0..12 {
        full.submit(n % 4, Op::Read, Some(rig.buffer(8)), 0, 8, 0)
            .unwrap();
    }
    full.ring();
    rig.pass(20_000);
    for n in 0..40u32 {
        let done = rig.one(&mut other, n % 4, Op::Read, Some(rig.buffer(8)), 8, 8);
        assert!(done.status.is_success());
    }
    // What waited for room holds no tag.
    for lun in 0..4 {
        assert_eq!(rig.controller.lun_statistics(lun).unwrap().in_flight, 0);
    }
    assert_eq!(rig.drain(&mut full).len(), 12, "nothing was lost");
}

/// An AXI error fails the command that met it, and only that one.
#[test]
fn media_errors_fail_their_command_alone() {
    let seed = 5;
    let mut rig = Rig::new(&CardConfig::small(), seed, |_| ());
    let place = rig.pci.world_mut().media().luns()[1];
    rig.pci.world_mut().media().inject(Fault {
        bytes: place.base + 16 * 512..place.base + 17 * 512,
        reads: true,
        writes: true,
    });
    let mut queue = rig.deep_queue();
    for (n, op) in [Op::Read, Op::Write, Op::Read, Op::Read]
        .into_iter()
        .enumerate()
    {
        for slba in [0, 8, 16] {
            queue
                .submit(1, op, Some(rig.buffer(8)), slba, 8, slba + 100 * n as u64)
                .unwrap();
        }
        queue.ring();
        for done in rig.drain(&mut queue) {
            let hit = done.user % 100 == 16;
            let expected = if hit {
                StatusCode::DATA_TRANSFER_ERROR
            } else {
                StatusCode::SUCCESS
            };
            assert_eq!(code(&done), expected, "{op:?} at {}", done.user);
        }
    }
    let log = rig.controller.error_log().unwrap();
    assert_eq!(log[0].status().code(), StatusCode::DATA_TRANSFER_ERROR);
    rig.pci.world_mut().media().clear_faults();
    rig.whole();
}

/// Every kind of bad command gets the status that the specification names, and harms nothing.
#[test]
fn bad_commands_get_their_status() {
    let mut rig = Rig::new(&CardConfig::small(), 6, |_| ());
    let mut queue = rig.deep_queue();
    let page = rig.buffer(16);
    let prp = page.iova();
    let good = |opcode: u8| {
        let mut c = Command::default();
        c.cdw0.set_opcode(opcode);
        c.nsid = 1;
        c.prp1 = prp;
        c
    };
    type Change = fn(&mut Command);
    let cases: [(&str, u8, Change, StatusCode); 17] = [
        ("good read", 2, |_| (), StatusCode::SUCCESS),
        ("good write", 1, |_| (), StatusCode::SUCCESS),
        ("good flush", 0, |_| (), StatusCode::SUCCESS),
        ("opcode", 0x55, |_| (), StatusCode::INVALID_OPCODE),
        (
            "Compare, which is not there",
            5,
            |_| (),
            StatusCode::INVALID_OPCODE,
        ),
        (
            "fused",
            2,
            |c| c.cdw0.set_fuse(1),
            StatusCode::INVALID_FIELD,
        ),
        ("SGL", 2, |c| c.cdw0.set_psdt(1), StatusCode::INVALID_FIELD),
        ("NSID 0", 2, |c| c.nsid = 0, StatusCode::INVALID_NAMESPACE),
        (
            "NSID past the last",
            2,
            |c| c.nsid = 5,
            StatusCode::INVALID_NAMESPACE,
        ),
        (
            "NSID of 2^31",
            2,
            |c| c.nsid = 1 << 31,
            StatusCode::INVALID_NAMESPACE,
        ),
        (
            "broadcast",
            2,
            |c| c.nsid = u32::MAX,
            StatusCode::INVALID_NAMESPACE,
        ),
        ("too long", 2, |c| c.cdw12 = 256, StatusCode::INVALID_FIELD),
        (
            "one block past the end",
            2,
            |c| c.cdw10 = BLOCKS as u32,
            StatusCode::LBA_OUT_OF_RANGE,
        ),
        (
            "over the end",
            2,
            |c| (c.cdw10, c.cdw12) = (BLOCKS as u32 - 1, 1),
            StatusCode::LBA_OUT_OF_RANGE,
        ),
        (
            "SLBA of 2^63",
            1,
            |c| c.cdw11 = 1 << 31,
            StatusCode::LBA_OUT_OF_RANGE,
        ),
        (
            "PRP1 odd",
            2,
            |c| c.prp1 |= 2,
            StatusCode::PRP_OFFSET_INVALID,
        ),
        (
            "PRP2 with an offset",
            2,
            |c| (c.cdw12, c.prp2) = (15, c.prp1 + 4096 + 4),
            StatusCode::PRP_OFFSET_INVALID,
        ),
    ];
    for (what, opcode, change, expected) in cases {
        let mut command = good(opcode);
        change(&mut command);
        // SAFETY: the pointers that the card may follow lead to `page`, which lives to the end of the test.
        unsafe { queue.submit_raw(0, 0, command, None, 0) }.unwrap();
        queue.ring();
        let done = rig.drain(&mut queue).pop().unwrap();
        assert_eq!(code(&done), expected, "{what}");
        assert_eq!(
            done.status.dnr(),
            expected != StatusCode::SUCCESS,
            "{what}: do not retry"
        );
    }
    drop(queue);
    rig.whole();
    drop(page);
}

/// A PRP list with an entry that has an offset, and one that is not there, fail their command alone.
#[test]
fn bad_prp_lists_fail_their_command_alone() {
    let mut rig = Rig::new(&CardConfig::small(), 7, |_| ());
    let mut queue = rig.deep_queue();
    let data = rig.buffer(64);
    let mut list = rig.buffer(8);
    let (data_iova, list_iova) = (data.iova(), list.iova());
    let mut command = Command::default();
    command.cdw0.set_opcode(2);
    (command.nsid, command.prp1, command.cdw12) = (1, data_iova, 31);
    let mut entries = [data_iova + 4096, data_iova + 8192 + 8, data_iova + 12288];
    for (prp2, offset, expected) in [
        (list_iova, 8, StatusCode::PRP_OFFSET_INVALID),
        (list_iova, 0, StatusCode::SUCCESS),
        (0xdead_0000_0000, 0, StatusCode::DATA_TRANSFER_ERROR),
        (list_iova + 4, 0, StatusCode::PRP_OFFSET_INVALID),
    ] {
        entries[1] = data_iova + 8192 + offset;
        list.with_mut(|bytes| {
            for (place, entry) in bytes.chunks_exact_mut(8).zip(entries) {
                place.copy_from_slice(&entry.to_le_bytes());
            }
        });
        command.prp2 = prp2;
        // SAFETY: the list leads to `data`, which lives to the end of the test; the other pointer leads nowhere.
        unsafe { queue.submit_raw(0, 0, command, None, 0) }.unwrap();
        queue.ring();
        let done = rig.drain(&mut queue).pop().unwrap();
        assert_eq!(code(&done), expected, "PRP2 {prp2:#x}, offset {offset}");
    }
    drop(queue);
    rig.whole();
    drop((data, list));
}

/// Bad doorbells are reported by asynchronous events, and change nothing.
#[test]
fn bad_doorbells_are_reported() {
    let mut rig = Rig::new(&CardConfig::small(), 8, |_| ());
    let mut queue = rig.deep_queue();
    for (at, value, info) in [
        (0x1000 + 8 * 3, 1, 0),  // SQ 3 does not exist
        (0x1000 + 8 * 40, 1, 0), // nor does the card have an SQ 40
        (0x1000 + 8, 16, 1),     // SQ 1 has 16 entries
        (0x1000 + 12, 300, 1),   // its CQ has 16
    ] {
        rig.pci.write32(at, value);
        rig.pass(3000);
        let event = rig
            .controller
            .next_event()
            .unwrap()
            .unwrap_or_else(|| panic!("doorbell {at:#x}: no event"));
        assert_eq!(
            (event.event_type(), event.info()),
            (0, info),
            "doorbell {at:#x}"
        );
        // Reading the error log allows the next event.
        rig.controller.error_log().unwrap();
    }
    let done = rig.one(&mut queue, 0, Op::Read, Some(rig.buffer(8)), 0, 8);
    assert_eq!(done.status, Status::SUCCESS);
}

/// Data is right with one AXI ID in order, and with many answered in any order, interleaved, with stalls everywhere.
#[test]
fn any_axi_neighbour_will_do() {
    let one_id = CardConfig {
        host_id_bits: 0,
        media_id_bits: 0,
        host_max_outstanding: 4,
        ..CardConfig::small()
    };
    for (config, behaviour, seed) in [
        (
            one_id,
            Behaviour {
                interleave: false,
                jitter: 0,
                ..Behaviour::HOSTILE
            },
            11,
        ),
        (CardConfig::small(), Behaviour::HOSTILE, 12),
    ] {
        let mut rig = Rig::new(&config, seed, |w| {
            w.host_behaviour = behaviour;
            w.media_behaviour = Behaviour {
                interleave: false,
                ..behaviour
            };
        });
        let mut rng = StdRng::seed_from_u64(seed);
        // A list near the end of its page chains.
        let mut queue = rig.queue(QueueConfig {
            entries: 16,
            prp_list_offset: 4096 - 24,
            ..QueueConfig::default()
        });
        let mut written = std::collections::HashMap::new();
        for round in 0..60u64 {
            // Regions of one round do not overlap, so that each result is known.
            for region in 0..8u64 {
                let lun = rng.random_range(0..4u32);
                if !queue.has_room(lun) {
                    continue;
                }
                let blocks = rng.random_range(1..=if region == 0 { 256 } else { 32 });
                let slba = if region == 0 { 1024 } else { region * 64 };
                let offset = 4 * rng.random_range(0..1024usize);
                let mut whole = rig.controller.buffer(4096 + blocks as usize * 512).unwrap();
                let mut buffer = if offset > 0 {
                    whole.split_off(offset).unwrap()
                } else {
                    whole
                };
                drop(buffer.split_off(blocks as usize * 512));
                if rng.random_bool(0.5) {
                    let fill = (round * 8 + region) as u8;
                    buffer.with_mut(|d| {
                        d.iter_mut()
                            .enumerate()
                            .for_each(|(i, b)| *b = fill ^ i as u8)
                    });
                    for b in 0..u64::from(blocks) {
                        written.insert((lun, slba + b), (fill, b));
                    }
                    queue
                        .submit(lun, Op::Write, Some(buffer), slba, blocks, u64::MAX)
                        .unwrap();
                } else {
                    queue
                        .submit(lun, Op::Read, Some(buffer), slba, blocks, slba)
                        .unwrap();
                }
            }
            queue.ring();
            let mut late = Vec::new();
            for done in rig.drain(&mut queue) {
                assert!(done.status.is_success(), "{done:?}");
                if done.user != u64::MAX {
                    late.push(done);
                }
            }
            for done in late {
                let (lun, slba) = (done.lun, done.user);
                done.buffer.unwrap().with(|bytes| {
                    for (i, block) in bytes.chunks_exact(512).enumerate() {
                        let lba = slba + i as u64;
                        match written.get(&(lun, lba)) {
                            None => assert_eq!(
                                block,
                                unwritten(lun, lba, 1, seed),
                                "LUN {lun} block {lba}"
                            ),
                            Some(&(fill, at)) => {
                                let from = at as usize * 512;
                                let right = block
                                    .iter()
                                    .enumerate()
                                    .all(|(j, b)| *b == fill ^ (from + j) as u8);
                                assert!(right, "LUN {lun} block {lba} round {round}");
                            }
                        }
                    }
                });
            }
        }
    }
}

/// Queue identifiers come in any order, and submission queues share a completion queue.
#[test]
fn queues_in_any_order_share_a_cq() {
    let mut rig = Rig::new(&CardConfig::small(), 9, |_| ());
    let entries = 16;
    let mut shared = rig.queue(QueueConfig {
        entries,
        submission_queues: 2,
        sqid: Some(3),
        cqid: Some(2),
        ..QueueConfig::default()
    });
    let mut single = rig.queue(QueueConfig {
        entries,
        sqid: Some(1),
        cqid: Some(4),
        ..QueueConfig::default()
    });
    for n in 0..60u64 {
        for sq in 0..2 {
            let (lun, slba) = ((n % 4) as u32, n * 8 % BLOCKS);
            shared
                .submit_on(
                    sq,
                    lun,
                    Op::Read,
                    Some(rig.buffer(8)),
                    slba,
                    8,
                    slba << 8 | 8,
                )
                .unwrap();
        }
        single
            .submit(0, Op::Read, Some(rig.buffer(8)), n, 8, n << 8 | 8)
            .unwrap();
        shared.ring();
        single.ring();
        let mut seen = [0, 0];
        for done in rig.drain(&mut shared) {
            right(&done, 9);
            seen[usize::from(done.sq)] += 1;
        }
        assert_eq!(seen, [1, 1], "each submission queue has its own completion");
        rig.drain(&mut single)
            .iter()
            .for_each(|done| right(done, 9));
    }
}

/// Completions raise their queue's vector; coalesced ones raise it once for several, and after the time at the latest.
#[test]
fn interrupts_come_and_coalesce() {
    let mut rig = Rig::new(&CardConfig::small(), 10, |_| ());
    let mut queue = rig.queue(QueueConfig {
        entries: 16,
        vector: Some(3),
        ..QueueConfig::default()
    });
    let burst = |rig: &Rig, queue: &mut weir_driver::Queue<_>, n: u64| {
        for i in 0..n {
            let lun = (i % 4) as u32;
            queue.submit(lun, Op::Flush, None, 0, 0, i).unwrap();
        }
        queue.ring();
        let start = rig.pci.now_ns();
        let mut times = Vec::new();
        let mut done = 0;
        while done < n {
            assert!(
                queue.wait(rig.pci.now_ns() + 1_000_000),
                "an interrupt comes"
            );
            times.push(rig.pci.now_ns() - start);
            done += queue.poll(|d| assert!(d.status.is_success())).unwrap() as u64;
        }
        times
    };
    let prompt = burst(&rig, &mut queue, 1);
    assert!(prompt[0] < 5_000, "{prompt:?} ns");
    // Four completions, or 200 us.
    rig.controller.set_coalescing(4, 2).unwrap();
    let full = burst(&rig, &mut queue, 4);
    assert!(
        full.len() == 1 && full[0] < 5_000,
        "one interrupt for four: {full:?} ns"
    );
    let late = burst(&rig, &mut queue, 2);
    assert!(
        late.len() == 1 && (190_000..215_000).contains(&late[0]),
        "the time ends it: {late:?} ns"
    );
    rig.controller.set_vector_coalescing(3, true).unwrap();
    let exempt = burst(&rig, &mut queue, 1);
    assert!(exempt[0] < 5_000, "{exempt:?} ns");
}

/// The platform's limit on tags holds after every reset, whatever the tag depth was made before.
#[test]
fn tags_in_use_bound_the_tag_depth_after_a_reset_too() {
    let mut rig = Rig::new(&CardConfig::small(), 5, |w| {
        for lun in &mut w.luns {
            lun.read_latency = Latency::Fixed(4000);
        }
    });
    rig.pci
        .world_mut()
        .write_platform(weir_card::lun_map::offset::TAGS, 3);
    rig.pci.world_mut().settle_platform().unwrap();
    for _ in 0..2 {
        rig.controller.reset(&mut [], |_| ()).unwrap();
        assert_eq!(rig.controller.tags().unwrap().0, 3);
        let mut queue = rig.deep_queue();
        for n in 0..12 {
            let buffer = Some(rig.buffer(1));
            queue.submit(n % 4, Op::Read, buffer, 8, 1, 0).unwrap();
        }
        queue.ring();
        rig.pass(3000);
        let executing: u64 = (0..4)
            .map(|lun| rig.controller.lun_statistics(lun).unwrap().in_flight)
            .sum();
        assert_eq!(executing, 3);
        rig.drain(&mut queue);
        rig.controller.delete_queue(queue, |_| ()).unwrap();
        assert!(
            rig.controller
                .set_tags(4, weir_nvme::feature::Fairness::NONE)
                .is_err()
        );
        rig.controller
            .set_tags(2, weir_nvme::feature::Fairness::NONE)
            .unwrap();
    }
}

/// A host port that loses data and answers well: buffers that held the right data before must not pass for what never came.
#[test]
fn data_that_never_arrives_is_wrong() {
    let options = ModelOptions {
        trace: false,
        asserts: true,
        random_collisions: true,
    };
    let card = Card::new(CardConfig::small(), options);
    for job in [
        "rw=write\nsize=64k\niodepth=8\nverify=pattern\nverify_pattern=0xdeadbeef\n",
        "rw=randwrite\nbs=512\nsize=16k\nverify=pattern\nverify_pattern=0xdeadbeef\n",
        "rw=write\nbs=64k\nsize=64k\nverify=crc32c\n",
        "rw=randrw\nsize=4k\nio_size=64k\nloops=3\nverify=crc32c\n",
    ] {
        let load = Load {
            cpus: 1,
            time_ns: 1_000_000,
            seed: 1,
        };
        let job = format!("[a]\nioengine=libaio\n{job}");
        let lost = card.outcome("lost", &job, load, |s| s.host_behaviour.loses_data = true);
        assert!(!lost.is_good(), "{job}");
        assert!(card.outcome("kept", &job, load, |_| ()).is_good(), "{job}");
    }
}
