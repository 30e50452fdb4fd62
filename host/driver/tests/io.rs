//! Queues against the mock device: data, PRPs, bounds, doorbells.

mod mock;

use mock::{MockPci, drain, entries, one_queue, queue, start};
use std::collections::{HashMap, HashSet};
use weir_driver::nvme::registers::{cq_head_doorbell, sq_tail_doorbell};
use weir_driver::nvme::{Command, NvmOpcode, StatusCode};
use weir_driver::*;

type Buf = Buffer<mock::MockMemory>;

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
    for seed in 1..=8u64 {
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
        for _ in 0..1000 {
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
    let (pci, mut c, mut q) = one_queue(4, 64, entries(8));
    let submit = |q: &mut Queue<MockPci>, lun| {
        let room = q.has_room(lun);
        let result = q.flush(lun, 0).map_err(|r| r.reason);
        assert_eq!(room, result.is_ok(), "has_room foretells what submit says");
        result
    };
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
    let mut q = queue(&mut c, entries(16));
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
    let (pci, c, mut q) = one_queue(1, 64, entries(4));
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
    let (pci, c, mut q) = one_queue(1, 64, QueueConfig::default());
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
    let (pci, _c, mut q) = one_queue(1, 64, entries(32));
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

/// Whichever way commands go in and out, the queue takes one exactly when the LUN holds none or a place is spare, and each
/// comes back once.
#[test]
fn every_way_in_and_out_counts_alike() {
    const LUNS: u32 = 3;
    for seed in 1..=12u64 {
        let mut rng = Rng(seed * 0x51ED_270B);
        let pci = MockPci::new(LUNS, 64);
        let mut c = start(&pci);
        pci.device().latency = 6;
        let size = 1u32 << (2 + rng.below(4));
        let mut q = queue(&mut c, entries(size));
        let mut held = [0u32; LUNS as usize];
        let mut flying: HashMap<u64, u32> = HashMap::new();
        let mut pool: Vec<Buf> = (0..80).map(|_| c.buffer(8192).unwrap()).collect();
        let (mut user, mut refused, mut ran) = (0, 0, 0);
        for _ in 0..2000 {
            let lun = rng.below(LUNS.into()) as u32;
            let room = |held: &[u32]| {
                let kept: u32 = held.iter().map(|held| (*held).max(1)).sum();
                held[lun as usize] == 0 || kept < size - 1
            };
            assert_eq!(q.has_room(lun), room(&held), "seed {seed}");
            let mut put = |held: &mut [u32], user: u64| {
                assert!(room(held), "seed {seed}: LUN {lun} of {held:?}");
                held[lun as usize] += 1;
                flying.insert(user, lun);
            };
            let way = rng.below(4);
            if way == 0 {
                let many = 1 + rng.below(u64::from(size) + 2) as usize;
                let mut buffers = pool.split_off(pool.len() - many);
                let before = user;
                let result = q.submit_all(lun, Op::Read, 8, &mut buffers, || {
                    user += 1;
                    (0, user)
                });
                let taken = many - buffers.len();
                // One more was asked for when it was refused.
                user = before + taken as u64;
                (before..user).for_each(|n| put(&mut held, n + 1));
                assert_eq!(result.is_ok(), buffers.is_empty());
                assert!(result.is_ok() || !room(&held), "seed {seed}: {result:?}");
                refused += usize::from(result.is_err());
                ran += taken;
                pool.append(&mut buffers);
            } else {
                user += 1;
                let buffer = (way != 1).then(|| pool.pop().unwrap());
                // Two pages, which go the long way.
                let (op, blocks) =
                    [(Op::Flush, 0), (Op::Read, 16), (Op::Read, 1)][way as usize - 1];
                match q.submit(lun, op, buffer, 0, blocks, user) {
                    Ok(()) => put(&mut held, user),
                    Err(rejected) => {
                        assert!(!room(&held), "seed {seed}: {}", rejected.reason);
                        pool.extend(rejected.buffer);
                        refused += 1;
                    }
                }
            }
            if rng.below(2) == 0 {
                q.ring();
                pci.relax();
            }
            let mut done = |done: Completed<_>| {
                assert!(done.status.is_success());
                assert_eq!(flying.remove(&done.user), Some(done.lun), "seed {seed}");
                held[done.lun as usize] -= 1;
                pool.extend(done.buffer);
            };
            match rng.below(6) {
                0 => drop(q.poll(done).unwrap()),
                1 => q.poll_one().unwrap().into_iter().for_each(done),
                2 => {
                    let most = rng.below(5) as u32;
                    let reaped = q.reap(most, &mut done).unwrap();
                    assert!(reaped.count <= most);
                    reaped.other.into_iter().for_each(done);
                }
                _ => {}
            }
            assert_eq!(q.len(), flying.len(), "seed {seed}");
            (0..LUNS).for_each(|lun| assert_eq!(q.in_flight(lun), held[lun as usize]));
        }
        assert!(refused > 20 && ran > 20, "seed {seed}: {refused}, {ran}");
        assert_eq!(pci.violations(), Vec::<String>::new());
    }
}

/// What was done before the panic counts, and the rest goes on.
#[test]
fn a_panic_in_a_closure_loses_no_command() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let (pci, c, mut q) = one_queue(1, 64, entries(8));
    // More than a lap of the rings, so that panics hit each place.
    for round in 0..20u64 {
        let mut buffers: Vec<_> = (0..4).map(|_| c.buffer(4096).unwrap()).collect();
        let mut next = 0;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            q.submit_all(0, Op::Write, 8, &mut buffers, || {
                next += 1;
                assert!(next != 3, "on purpose");
                (0, next)
            })
        }));
        // The tail goes around in some rounds, so that fewer were still to be put in then.
        assert!(panicked.is_err());
        assert_eq!((q.in_flight(0), q.len()), (2, 2), "round {round}");
        q.ring();
        pci.device().latency = 1;
        pci.relax();
        let mut got = vec![];
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            q.poll(|done| {
                got.push(done.user);
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!((q.in_flight(0), q.len()), (1, 1), "round {round}");
        assert_eq!(q.poll(|done| got.push(done.user)), Ok(1));
        assert_eq!(got, [1, 2]);
        assert!(q.is_empty() && q.has_room(0));
    }
    assert_eq!(pci.violations(), Vec::<String>::new());
}

/// A command that stays while the ring goes around many times keeps its slot and CID, and is in nobody's way.
#[test]
fn a_command_that_takes_long_is_passed() {
    let (pci, _c, mut q) = one_queue(2, 64, entries(4));
    // Any number of turns up to this, from a fixed seed: more than all that follow.
    pci.device().latency = u32::MAX;
    q.flush(1, 999).unwrap();
    q.ring();
    pci.relax();
    pci.device().latency = 1;
    let long = q.outstanding().next().unwrap();
    let (mut cids, mut displaced) = (HashSet::new(), 0);
    for user in 0..200 {
        q.flush(0, user).unwrap();
        q.flush(0, user).unwrap();
        q.ring();
        let flying: Vec<_> = q.outstanding().collect();
        assert_eq!(flying.iter().filter(|f| f.cid == long.cid).count(), 1);
        displaced += flying.iter().filter(|f| f.cid & 0x8000 != 0).count();
        cids.extend(flying.iter().map(|f| f.cid));
        let mut left = 2;
        while left > 0 {
            pci.relax();
            left -= q.poll(|done| assert_eq!(done.user, user)).unwrap();
        }
        assert_eq!(q.len(), 1);
    }
    assert!(
        cids.len() > 300,
        "{} CIDs: they have generations",
        cids.len()
    );
    assert!(displaced > 40, "{displaced} commands were not in order");
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
fn queues_run_on_threads_of_their_own() {
    let pci = MockPci::new(4, 256);
    let mut c = start(&pci);
    let queues: Vec<_> = (0..4).map(|_| queue(&mut c, entries(16))).collect();
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
