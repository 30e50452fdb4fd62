//! Queues against the mock device: data, bounds, doorbells, faults, deletion and reset under load, late commands.

mod mock;

use mock::{Fault, MockPci};
use std::collections::{BTreeSet, HashMap};
use weir_driver::nvme::feature::Fairness;
use weir_driver::nvme::registers::{cq_head_doorbell, sq_tail_doorbell};
use weir_driver::nvme::{Command, NvmOpcode, StatusCode};
use weir_driver::*;

type Buf = Buffer<mock::MockMemory>;

fn start(pci: &MockPci) -> Controller<MockPci> {
    Controller::new(
        pci.clone(),
        Options {
            admin_timeout_ns: 200_000_000,
            ..Options::default()
        },
    )
    .unwrap()
}

/// A queue with all LUNs open.
fn queue(c: &mut Controller<MockPci>, config: QueueConfig) -> Queue<MockPci> {
    let mut q = c.create_queue(&config).unwrap();
    for lun in c.luns() {
        q.open(lun).unwrap();
    }
    q
}

/// Polls until nothing is in flight.
fn drain(pci: &MockPci, q: &mut Queue<MockPci>, mut done: impl FnMut(Completed<mock::MockMemory>)) {
    for _ in 0..10_000 {
        q.poll(&mut done).unwrap();
        if q.is_empty() {
            return;
        }
        pci.relax();
    }
    panic!("{} commands hang", q.len());
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % n
    }
}

#[test]
fn random_commands_move_the_right_bytes() {
    for seed in 1..=12u64 {
        let mut rng = Rng(seed * 0x9E37_79B9);
        let pci = MockPci::new(3, 1024);
        let mut c = start(&pci);
        pci.device().latency = 20;
        let lists = [0, 8, 2048, 4080, 4088][seed as usize % 5];
        let sqs = 1 + rng.below(3) as u16;
        let entries = 1 << (3 + rng.below(4));
        let vector = (seed % 2 == 0).then_some(3);
        let config = QueueConfig {
            entries,
            submission_queues: sqs,
            prp_list_offset: lists,
            vector,
            ..Default::default()
        };
        let mut q = queue(&mut c, config);
        // Every block is written by one command at a time, so that what a read must find is known.
        let mut shadow: Vec<Vec<u8>> = vec![vec![0; 1024 * 512]; 3];
        let mut busy: Vec<Vec<bool>> = vec![vec![false; 1024]; 3];
        let mut flying: HashMap<u64, (Op, u32, u64, u32, Vec<u8>)> = HashMap::new();
        let mut pool: Vec<Buf> = Vec::new();
        let (mut user, mut reads, mut rejected) = (0, 0, 0);
        for _ in 0..1500 {
            for _ in 0..rng.below(9) {
                let lun = rng.below(3) as u32;
                let blocks = 1 + if rng.below(3) == 0 {
                    rng.below(256)
                } else {
                    rng.below(20)
                } as u32;
                let slba = rng.below(1024 - u64::from(blocks));
                let range = slba as usize..slba as usize + blocks as usize;
                let op = [Op::Read, Op::Write, Op::Flush]
                    [rng.below(if blocks > 3 { 2 } else { 3 }) as usize];
                if op != Op::Flush && busy[lun as usize][range.clone()].contains(&true) {
                    continue;
                }
                let bytes = range.start * 512..range.end * 512;
                let mut buffer = match pool.pop() {
                    Some(buffer) => buffer,
                    // Cut at any dword of the first page, so that transfers start anywhere in a page.
                    None => c
                        .buffer((128 << 10) + 4096)
                        .unwrap()
                        .split_off(rng.below(1024) as usize * 4)
                        .unwrap(),
                };
                let mut data = shadow[lun as usize][bytes].to_vec();
                if op == Op::Write {
                    data.iter_mut().for_each(|b| *b = rng.below(256) as u8);
                    buffer.with_mut(|b| b[..data.len()].copy_from_slice(&data));
                } else {
                    buffer.with_mut(|b| b.fill(0xEE));
                }
                let (buffer, spare) = if op == Op::Flush {
                    (None, Some(buffer))
                } else {
                    (Some(buffer), None)
                };
                pool.extend(spare);
                let sq = rng.below(sqs.into()) as usize;
                match q.submit_on(sq, lun, op, buffer, slba, blocks, user) {
                    Ok(()) => {
                        if op != Op::Flush {
                            busy[lun as usize][range].fill(true);
                        }
                        flying.insert(user, (op, lun, slba, blocks, data));
                        user += 1;
                    }
                    Err(Rejected { reason, buffer }) => {
                        assert!(
                            matches!(reason, SubmitError::QueueFull | SubmitError::LunFull),
                            "{reason}"
                        );
                        rejected += 1;
                        pool.extend(buffer);
                    }
                }
            }
            q.ring();
            if rng.below(4) == 0 {
                pci.relax();
            }
            if vector.is_some() && rng.below(3) > 0 && !q.wait(pci.now_ns()) {
                continue;
            }
            q.poll(|done| {
                let (op, lun, slba, blocks, data) = flying.remove(&done.user).expect("once");
                assert!(done.status.is_success() && done.lun == lun, "{done:?}");
                let range = slba as usize..slba as usize + blocks as usize;
                let bytes = range.start * 512..range.end * 512;
                match (op, &done.buffer) {
                    (Op::Flush, None) => return,
                    (Op::Write, Some(_)) => shadow[lun as usize][bytes].copy_from_slice(&data),
                    (Op::Read, Some(buffer)) => buffer.with(|b| {
                        reads += 1;
                        assert_eq!(b[..data.len()], data, "read of {blocks} blocks at {slba}");
                        assert!(
                            b[data.len()..].iter().all(|&b| b == 0xEE),
                            "wrote past the transfer"
                        );
                    }),
                    _ => panic!("buffer lost: {op:?}"),
                }
                busy[lun as usize][range].fill(false);
                pool.extend(done.buffer);
            })
            .unwrap();
        }
        drain(&pci, &mut q, |done| {
            drop(flying.remove(&done.user).expect("once"))
        });
        assert!(
            flying.is_empty() && reads > 100 && rejected > 10,
            "{reads} reads, {rejected} rejected"
        );
        c.delete_queue(q, |_| panic!("nothing is in flight"))
            .unwrap();
        drop(pool);
        c.shutdown().unwrap();
        assert_eq!((pci.violations(), pci.allocations()), (vec![], 0));
    }
}

#[test]
fn prps_name_exactly_the_buffer() {
    let mut rng = Rng(7);
    let pci = MockPci::new(1, 512);
    let mut c = start(&pci);
    for lists in [0, 4064, 4072, 4080, 4088] {
        let mut q = queue(
            &mut c,
            QueueConfig {
                entries: 4,
                prp_list_offset: lists,
                ..Default::default()
            },
        );
        for _ in 0..400 {
            let blocks = 1 + rng.below(256) as u32;
            let at = match rng.below(4) {
                0 => 0,
                1 => 4096 - 4,
                _ => rng.below(1024) as usize * 4,
            };
            let buffer = c.buffer((128 << 10) + 4096).unwrap().split_off(at).unwrap();
            let (iova, len) = (buffer.iova(), blocks as usize * 512);
            pci.device().trace = Some(Vec::new());
            q.read(0, buffer, 0, blocks, 0).unwrap();
            q.ring();
            drain(&pci, &mut q, |done| assert!(done.status.is_success()));
            let pieces = pci.device().trace.take().unwrap();
            let mut next = iova;
            for &(address, bytes) in &pieces {
                assert_eq!(address, next);
                assert!(
                    address / 4096 == (address + bytes as u64 - 1) / 4096,
                    "a piece crosses a page"
                );
                next += bytes as u64;
            }
            assert_eq!(next, iova + len as u64);
        }
        c.delete_queue(q, |_| ()).unwrap();
    }
    assert_eq!(pci.violations(), Vec::<String>::new());
}

#[test]
fn every_open_lun_keeps_an_entry() {
    let pci = MockPci::new(4, 64);
    let mut c = start(&pci);
    let mut q = queue(
        &mut c,
        QueueConfig {
            entries: 8,
            ..Default::default()
        },
    );
    let submit = |q: &mut Queue<MockPci>, lun| q.flush(lun, 0).map_err(|r| r.reason);
    // Seven entries, four LUNs: LUN 0 may have all but one for each of the others.
    for _ in 0..4 {
        submit(&mut q, 0).unwrap();
    }
    assert_eq!(submit(&mut q, 0), Err(SubmitError::LunFull));
    submit(&mut q, 1).unwrap();
    assert_eq!(submit(&mut q, 1), Err(SubmitError::LunFull));
    submit(&mut q, 2).unwrap();
    submit(&mut q, 3).unwrap();
    assert_eq!(submit(&mut q, 3), Err(SubmitError::QueueFull));
    assert_eq!((q.len(), q.in_flight(0), q.in_flight(3)), (7, 4, 1));
    assert_eq!(
        q.close(0),
        Err(OpenError::Busy {
            lun: 0,
            in_flight: 4
        })
    );
    q.ring();
    drain(&pci, &mut q, |_| ());
    // A LUN that is closed leaves its entry to the others.
    q.close(3).unwrap();
    q.close(2).unwrap();
    assert_eq!(q.close(2), Err(OpenError::NotOpen { lun: 2 }));
    for _ in 0..6 {
        submit(&mut q, 0).unwrap();
    }
    assert_eq!(submit(&mut q, 0), Err(SubmitError::LunFull));
    assert_eq!(submit(&mut q, 2), Err(SubmitError::NotOpen(2)));
    assert_eq!(submit(&mut q, 9), Err(SubmitError::NotOpen(9)));
    // LUN 1's entry is the last: no other can be opened.
    let third = *c.lun(2).unwrap();
    assert_eq!(
        q.open(&third),
        Err(OpenError::NoEntry {
            lun: 2,
            capacity: 7
        })
    );
    q.ring();
    drain(&pci, &mut q, |_| ());
    q.open(&third).unwrap();
    q.open(&third).unwrap();
    submit(&mut q, 2).unwrap();
    // More LUNs than entries.
    let mut small = c
        .create_queue(&QueueConfig {
            entries: 4,
            submission_queues: 2,
            ..Default::default()
        })
        .unwrap();
    for lun in &c.luns()[..3] {
        small.open(lun).unwrap();
    }
    assert_eq!(
        small.open(&c.luns()[3]),
        Err(OpenError::NoEntry {
            lun: 3,
            capacity: 3
        })
    );
}

#[test]
fn a_slow_lun_does_not_stop_the_one_behind_it() {
    let pci = MockPci::new(2, 64);
    let mut c = start(&pci);
    c.set_depth(0, 1).unwrap();
    pci.device().latency = 1;
    let mut q = queue(
        &mut c,
        QueueConfig {
            entries: 16,
            ..Default::default()
        },
    );
    let mut done = [0, 0];
    for _ in 0..200 {
        while q.flush(0, 0).is_ok() {}
        let _ = q.flush(1, 0);
        q.ring();
        pci.relax();
        q.poll(|d| done[d.lun as usize] += 1).unwrap();
    }
    assert!(done[1] >= 190 && done[0] >= 190, "{done:?}");
    assert!(c.lun_statistics(0).unwrap().deferred_depth > 100);
}

#[test]
fn bad_submissions_give_the_buffer_back() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    let mut q = queue(
        &mut c,
        QueueConfig {
            entries: 4,
            ..Default::default()
        },
    );
    let buffer = c.buffer(4096).unwrap();
    let iova = buffer.iova();
    let mut buffer = Some(buffer);
    for (sq, blocks, want) in [
        (
            0,
            0,
            SubmitError::Blocks {
                blocks: 0,
                max: 256,
            },
        ),
        (
            0,
            257,
            SubmitError::Blocks {
                blocks: 257,
                max: 256,
            },
        ),
        (
            0,
            9,
            SubmitError::Buffer {
                len: 4096,
                want: 9 * 512,
            },
        ),
        (1, 1, SubmitError::NoSuchQueue { index: 1, count: 1 }),
    ] {
        let rejected = q
            .submit_on(sq, 0, Op::Read, buffer.take(), 0, blocks, 0)
            .unwrap_err();
        assert_eq!(rejected.reason, want);
        buffer = rejected.buffer;
        assert_eq!(buffer.as_ref().map(|b| b.iova()), Some(iova));
    }
    let rejected = q.submit(0, Op::Write, None, 0, 1, 0).unwrap_err();
    assert_eq!(rejected.reason, SubmitError::Buffer { len: 0, want: 512 });
    q.ring();
    assert_eq!(pci.device().doorbells.get(&sq_tail_doorbell(1, 0)), None);
}

#[test]
fn error_statuses_reach_their_command() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    let mut q = queue(&mut c, QueueConfig::default());
    pci.device()
        .bad_blocks
        .insert(5, StatusCode::UNRECOVERED_READ_ERROR);
    for slba in [4, 5, 6, 64] {
        q.read(0, c.buffer(4096).unwrap(), slba, 1, slba).unwrap();
    }
    // SAFETY: the command names no memory.
    unsafe {
        q.submit_raw(0, 0, Command::nvm(NvmOpcode::READ, 77), None, 77)
            .unwrap()
    };
    // SAFETY: as above.
    unsafe {
        q.submit_raw(0, 0, Command::nvm(NvmOpcode(0x55), 1), None, 55)
            .unwrap()
    };
    q.ring();
    let mut got = HashMap::new();
    drain(&pci, &mut q, |d| {
        assert_eq!(got.insert(d.user, d.status.code()), None)
    });
    let want = [
        (4, StatusCode::SUCCESS),
        (5, StatusCode::UNRECOVERED_READ_ERROR),
        (6, StatusCode::SUCCESS),
        (64, StatusCode::LBA_OUT_OF_RANGE),
        (77, StatusCode::INVALID_NAMESPACE),
        (55, StatusCode::INVALID_OPCODE),
    ];
    assert_eq!(got, HashMap::from(want));
}

#[test]
fn one_doorbell_makes_a_batch_visible() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    let mut q = queue(
        &mut c,
        QueueConfig {
            entries: 32,
            ..Default::default()
        },
    );
    let writes = |offset| pci.device().doorbells.get(&offset).copied().unwrap_or(0);
    for round in 1..=10 {
        for user in 0..16 {
            q.flush(0, user).unwrap();
        }
        assert_eq!(writes(sq_tail_doorbell(1, 0)), round - 1);
        q.ring();
        q.ring();
        assert_eq!(writes(sq_tail_doorbell(1, 0)), round);
        pci.device().latency = 1;
        pci.relax();
        assert_eq!(q.poll(|_| ()), Ok(16));
        assert_eq!(writes(cq_head_doorbell(1, 0)), round);
    }
    // One at a time, the completion queue's head is told once in eight.
    for _ in 0..16 {
        q.flush(0, 0).unwrap();
        q.ring();
        drain(&pci, &mut q, |_| ());
    }
    assert_eq!(writes(cq_head_doorbell(1, 0)), 12);
    assert_eq!(pci.violations(), Vec::<String>::new());
}

#[test]
fn a_full_completion_queue_is_emptied_and_goes_on() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    let config = QueueConfig {
        entries: 64,
        cq_entries: Some(4),
        submission_queues: 2,
        ..Default::default()
    };
    let mut q = queue(&mut c, config);
    for sq in 0..2 {
        for user in 0..63 {
            q.submit_on(sq, 0, Op::Flush, None, 0, 0, user).unwrap();
        }
    }
    q.ring();
    let mut seen = vec![0; 63];
    drain(&pci, &mut q, |d| seen[d.user as usize] += 1);
    assert!(seen.iter().all(|&n| n == 2));
}

#[test]
fn a_device_that_breaks_the_protocol_stops_the_queue() {
    let expect = |fault, want: &str| {
        let pci = MockPci::new(1, 64);
        let mut c = start(&pci);
        let mut q = queue(
            &mut c,
            QueueConfig {
                entries: 16,
                ..Default::default()
            },
        );
        pci.fault(fault);
        q.read(0, c.buffer(4096).unwrap(), 0, 8, 42).unwrap();
        q.ring();
        let mut seen = 0;
        let mut error = None;
        for _ in 0..50 {
            pci.relax();
            if let Err(e) = q.poll(|_| seen += 1) {
                error = Some(e);
                break;
            }
        }
        assert_eq!(error.map(|e| e.to_string()).as_deref(), Some(want));
        assert_eq!(
            q.poll(|_| panic!("a stopped queue reports nothing")),
            Err(error.unwrap())
        );
        assert_eq!(
            (q.failed(), q.flush(0, 1).unwrap_err().reason),
            (error, SubmitError::Failed)
        );
        assert!(seen <= 1, "{seen} completions of one command");
        // A reset brings it back, and every command has been reported once.
        pci.heal();
        let mut aborted = Vec::new();
        c.reset(std::slice::from_mut(&mut q), |d| {
            aborted.push((d.user, d.status.code(), d.buffer.is_some()))
        })
        .unwrap();
        assert_eq!(aborted.len() + seen, 1);
        assert!(
            aborted
                .iter()
                .all(|a| *a == (42, StatusCode::ABORTED_BY_HOST, true))
        );
        q.flush(0, 7).unwrap();
        q.ring();
        drain(&pci, &mut q, |d| {
            assert_eq!((d.user, d.status.is_success()), (7, true))
        });
        c.delete_queue(q, |_| ()).unwrap();
        c.shutdown().unwrap();
        assert_eq!(pci.allocations(), 0);
    };
    expect(
        Fault::UnknownCid,
        "CQ 1 entry 0: completion of CID 0x0020 of SQ 1, which is not in flight",
    );
    expect(
        Fault::RepeatedCid,
        "CQ 1 entry 1: completion of CID 0x0000 of SQ 1, which is not in flight",
    );
    expect(
        Fault::UnknownSq,
        "CQ 1 entry 0: completion for SQ 99, which does not complete here",
    );
    expect(
        Fault::SqHeadPast,
        "CQ 1: SQ 1 head 2 reported, but the tail is 1",
    );
}

#[test]
fn a_completion_of_an_earlier_round_is_not_taken_for_the_slot_s_next_command() {
    // RepeatedCid posts each completion twice; the second must not complete a command that reuses the slot.
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    let mut q = queue(
        &mut c,
        QueueConfig {
            entries: 2,
            ..Default::default()
        },
    );
    pci.device().latency = 1;
    pci.fault(Fault::RepeatedCid);
    q.flush(0, 1).unwrap();
    q.ring();
    pci.relax();
    let mut users = Vec::new();
    // The completion queue of two entries holds one, so the second waits for the next round.
    assert_eq!(q.poll(|d| users.push(d.user)), Ok(1));
    q.flush(0, 2).unwrap();
    q.ring();
    pci.relax();
    let error = q.poll(|d| users.push(d.user)).unwrap_err();
    assert!(matches!(error, QueueError::UnknownCommand { cid: 0, .. }));
    assert_eq!(users, [1]);
}

#[test]
fn a_wrong_phase_tag_is_not_a_completion() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    let mut q = queue(
        &mut c,
        QueueConfig {
            entries: 4,
            ..Default::default()
        },
    );
    pci.fault(Fault::WrongPhase);
    q.flush(0, 1).unwrap();
    q.ring();
    for _ in 0..100 {
        pci.relax();
        assert_eq!(q.poll(|_| panic!("nothing is complete")), Ok(0));
    }
    let mut users = Vec::new();
    c.delete_queue(q, |d| users.push((d.user, d.status.code())))
        .unwrap();
    assert_eq!(users, [(1, StatusCode::ABORTED_BY_HOST)]);
}

#[test]
fn deletion_under_load_returns_every_buffer_once() {
    let mut statuses = BTreeSet::new();
    for seed in 0..20 {
        let pci = MockPci::new(2, 512);
        let mut c = start(&pci);
        pci.device().latency = 1 + seed;
        let config = QueueConfig {
            entries: 16,
            submission_queues: 2,
            ..Default::default()
        };
        let (mut q, mut other) = (queue(&mut c, config), queue(&mut c, config));
        let mut left: Vec<u64> = (0..20).collect();
        for user in 0..20 {
            q.submit_on(
                user as usize % 2,
                user as u32 % 2,
                Op::Write,
                Some(c.buffer(4096).unwrap()),
                user,
                8,
                user,
            )
            .unwrap();
        }
        other.read(0, c.buffer(4096).unwrap(), 0, 8, 99).unwrap();
        q.ring();
        other.ring();
        for _ in 0..seed / 2 {
            pci.relax();
        }
        c.delete_queue(q, |d| {
            assert!(d.buffer.is_some());
            statuses.insert(d.status.code().0);
            left.retain(|&user| user != d.user);
        })
        .unwrap();
        assert_eq!(left, Vec::<u64>::new());
        drain(&pci, &mut other, |d| {
            assert_eq!((d.user, d.status.is_success()), (99, true))
        });
        c.delete_queue(other, |_| ()).unwrap();
        c.shutdown().unwrap();
        assert_eq!((pci.violations(), pci.allocations()), (vec![], 0));
    }
    // Done before, aborted by the device, and never fetched.
    let all = [
        StatusCode::SUCCESS,
        StatusCode::ABORTED_SQ_DELETION,
        StatusCode::ABORTED_BY_HOST,
    ];
    assert_eq!(statuses, BTreeSet::from(all.map(|s| s.0)));
}

#[test]
fn reset_needs_every_queue_and_gives_them_back_empty() {
    let pci = MockPci::new(2, 512);
    let mut c = start(&pci);
    c.set_depth(0, 3).unwrap();
    let config = QueueConfig {
        entries: 8,
        vector: Some(1),
        ..Default::default()
    };
    let mut queues = vec![queue(&mut c, config), queue(&mut c, config)];
    let forgotten = queue(&mut c, config);
    pci.fault(Fault::Stuck);
    for (q, user) in queues.iter_mut().zip(0..) {
        q.read(1, c.buffer(8192).unwrap(), 0, 16, user).unwrap();
        q.ring();
    }
    pci.relax();
    assert_eq!(
        c.reset(&mut queues, |_| panic!("refused")),
        Err(Error::QueuesLeft(vec![3]))
    );
    assert_eq!(queues[0].len(), 1);
    drop(forgotten);
    pci.heal();
    let mut users = Vec::new();
    c.reset(&mut queues, |d| users.push(d.user)).unwrap();
    assert_eq!(users, [0, 1]);
    assert_eq!(c.budget(0).unwrap().depth(), 32);
    for q in &mut queues {
        for user in 0..100 {
            q.write(1, c.buffer(4096).unwrap(), 0, 8, user).unwrap();
            q.ring();
            assert!(q.wait(pci.now_ns() + 100_000_000));
            drain(&pci, q, |d| assert!(d.status.is_success()));
        }
    }
    // A reset that fails leaves queues that say so.
    pci.fault(Fault::NeverReady);
    assert!(matches!(
        c.reset(&mut queues, |_| ()),
        Err(Error::NotReady { .. })
    ));
    assert_eq!(queues[0].poll(|_| ()), Err(QueueError::Down));
    assert_eq!(
        queues[0].flush(0, 0).unwrap_err().reason,
        SubmitError::Failed
    );
    pci.heal();
    c.reset(&mut queues, |_| ()).unwrap();
    assert_eq!(queues[0].flush(0, 0).map_err(|r| r.reason), Ok(()));
    assert_eq!(pci.violations(), Vec::<String>::new());
}

#[test]
fn a_dropped_queue_leaks_what_the_device_may_still_write() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    let before = pci.allocations();
    let mut q = queue(
        &mut c,
        QueueConfig {
            entries: 4,
            ..Default::default()
        },
    );
    pci.fault(Fault::Stuck);
    q.read(0, c.buffer(4096).unwrap(), 0, 8, 0).unwrap();
    q.ring();
    drop(q);
    pci.heal();
    for _ in 0..50 {
        pci.relax();
    }
    // Submission ring, completion ring, PRP lists, and the buffer.
    assert_eq!(pci.allocations(), before + 4);
    assert_eq!(pci.violations(), Vec::<String>::new());
}

#[test]
fn a_parked_command_is_left_and_a_stuck_one_aborted() {
    let pci = MockPci::new(2, 64);
    let mut c = start(&pci);
    let mut q = queue(
        &mut c,
        QueueConfig {
            entries: 16,
            ..Default::default()
        },
    );
    let mut watch = Watch::default();
    c.set_depth(0, 1).unwrap();
    pci.device().latency = 20;
    for user in 0..8 {
        q.flush(0, user).unwrap();
    }
    q.ring();
    q.tick();
    pci.relax();
    let late = |q: &Queue<MockPci>| q.outstanding().max_by_key(|o| (o.age, o.user)).unwrap();
    let last = late(&q);
    assert_eq!((last.user, last.age, last.lun, last.sqid), (7, 1, 0, 1));
    // The LUN moves on, so its last command is left alone each time.
    for _ in 0..3 {
        assert!(matches!(c.inquire(&last, &mut watch), Ok(Verdict::Waiting(s)) if s.parked > 0));
        let before = q.len();
        while q.len() == before {
            pci.relax();
            q.poll(|_| ()).unwrap();
        }
    }
    // Now it does not, and the command is aborted.
    pci.fault(Fault::Stuck);
    pci.relax();
    q.poll(|_| ()).unwrap();
    let _ = c.inquire(&last, &mut watch).unwrap();
    assert_eq!(c.inquire(&last, &mut watch), Ok(Verdict::Aborted));
    let mut statuses = Vec::new();
    for _ in 0..5 {
        pci.relax();
        q.poll(|d| statuses.push((d.user, d.status.code())))
            .unwrap();
    }
    assert_eq!(statuses, [(7, StatusCode::ABORT_REQUESTED)]);
    pci.device().abortable = false;
    assert_eq!(c.inquire(&late(&q), &mut watch), Ok(Verdict::NotAborted));
    // Another device has no statistics to ask.
    pci.fault(Fault::Gone);
    assert_eq!(
        c.inquire(&last, &mut watch),
        Err(Error::Gone { register: "CSTS" })
    );
}

#[test]
fn a_lun_that_others_keep_from_tags_waits() {
    let pci = MockPci::new(2, 64);
    let mut c = start(&pci);
    pci.device().latency = 20;
    let mut q = queue(
        &mut c,
        QueueConfig {
            entries: 32,
            ..Default::default()
        },
    );
    let mut watch = Watch::default();
    c.set_tags(1, Fairness::NONE).unwrap();
    for user in 100..120 {
        q.flush(0, user).unwrap();
    }
    q.flush(1, 9).unwrap();
    q.ring();
    pci.relax();
    let late = q.outstanding().find(|o| o.user == 9).unwrap();
    let mut waits = 0;
    // While LUN 0 has the only tag, LUN 1 has completed nothing, and is left alone all the same.
    while pci.device().luns[0].statistics.completed < 18 {
        assert!(matches!(c.inquire(&late, &mut watch), Ok(Verdict::Waiting(s)) if s.parked == 1));
        waits += 1;
        let before = q.len();
        // An inquiry looks at a LUN before its last completion is polled: two make sure of one.
        while q.len() > before - 2 {
            pci.relax();
            q.poll(|d| assert_eq!(d.lun, 0)).unwrap();
        }
    }
    assert!(waits >= 3, "{waits} inquiries");
    // When nobody moves any more, it is aborted.
    pci.fault(Fault::Stuck);
    let verdicts: Vec<_> = (0..4)
        .map(|_| c.inquire(&late, &mut watch).unwrap())
        .collect();
    assert!(verdicts.contains(&Verdict::Aborted), "{verdicts:?}");
}

#[test]
fn queues_run_on_threads_of_their_own() {
    let pci = MockPci::new(4, 256);
    let mut c = start(&pci);
    let queues: Vec<_> = (0..4)
        .map(|_| {
            queue(
                &mut c,
                QueueConfig {
                    entries: 16,
                    ..Default::default()
                },
            )
        })
        .collect();
    let buffers: Vec<Buf> = (0..4).map(|_| c.buffer(4096).unwrap()).collect();
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads = queues
            .into_iter()
            .zip(buffers)
            .zip(0..4)
            .map(|((mut q, buffer), lun)| {
                let pci = pci.clone();
                scope.spawn(move || {
                    let mut buffer = Some(buffer);
                    for i in 0..200u64 {
                        buffer.as_mut().unwrap().with_mut(|b| b.fill(i as u8));
                        q.write(lun, buffer.take().unwrap(), i % 32 * 8, 8, i)
                            .unwrap();
                        q.ring();
                        drain(&pci, &mut q, |d| buffer = d.buffer);
                        q.read(lun, buffer.take().unwrap(), i % 32 * 8, 8, i)
                            .unwrap();
                        q.ring();
                        drain(&pci, &mut q, |d| buffer = d.buffer);
                        buffer
                            .as_ref()
                            .unwrap()
                            .with(|b| assert!(b.iter().all(|&b| b == i as u8)));
                    }
                    q
                })
            });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for q in done {
        c.delete_queue(q, |_| ()).unwrap();
    }
    c.shutdown().unwrap();
    assert_eq!((pci.violations(), pci.allocations()), (vec![], 0));
}

#[test]
fn buffers_are_cut_at_dwords_and_live_as_long_as_a_piece() {
    let pci = MockPci::new(1, 8);
    let whole = Buffer::new(pci.alloc(8192).unwrap());
    let iova = whole.iova();
    let mut head = whole;
    assert!(head.split_off(2).is_none() && head.split_off(8196).is_none() && head.len() == 8192);
    let mut tail = head.split_off(5000).unwrap();
    assert_eq!(
        (head.len(), tail.len(), tail.iova()),
        (5000, 3192, iova + 5000)
    );
    head.with_mut(|b| b.fill(1));
    tail.with_mut(|b| b.fill(2));
    drop(head);
    assert_eq!(pci.allocations(), 1);
    tail.with(|b| assert!(b.iter().all(|&b| b == 2)));
    drop(tail);
    assert_eq!(pci.allocations(), 0);
    let pieces = Buffer::pieces(pci.alloc(4096).unwrap(), 1000);
    assert_eq!(
        pieces.iter().map(|p| p.len()).collect::<Vec<_>>(),
        [1000; 4]
    );
    assert_eq!(Buffer::pieces(pci.alloc(4096).unwrap(), 0).len(), 0);
    assert_eq!(Buffer::pieces(pci.alloc(4096).unwrap(), 4096).len(), 1);
    assert_eq!(
        pci.alloc(0).err().unwrap().to_string(),
        "cannot allocate 0 bytes of DMA memory: not 1 byte to 1 GiB"
    );
}
