//! Devices that break the protocol, and deletion and reset of queues under load.

mod mock;

use mock::{Fault, MockPci, drain, entries, one_queue, queue, start};
use std::collections::BTreeSet;
use weir_driver::nvme::StatusCode;
use weir_driver::*;

#[test]
fn a_device_that_breaks_the_protocol_stops_the_queue() {
    let expect = |fault, cid_error, want: &str| {
        let pci = MockPci::new(1, 64);
        pci.device().cid_error = cid_error;
        let mut c = start(&pci);
        let mut q = queue(&mut c, entries(16));
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
    let unknown = |cid, index| {
        format!("CQ 1 entry {index}: completion of CID {cid} of SQ 1, which is not in flight")
    };
    // Another round of the slot, a slot that was never used, one past the queue.
    expect(Fault::UnknownCid, 0x20, &unknown("0x0020", 0));
    expect(Fault::UnknownCid, 0x01, &unknown("0x0001", 0));
    expect(Fault::UnknownCid, 0xFFFF, &unknown("0xffff", 0));
    expect(Fault::RepeatedCid, 0, &unknown("0x0000", 1));
    let wrong = "CQ 1 entry 0: completion for SQ 99, which does not complete here";
    expect(Fault::UnknownSq, 0, wrong);
    expect(
        Fault::SqHeadPast,
        0,
        "CQ 1: SQ 1 head 2 reported, but the tail is 1",
    );
}

#[test]
fn a_completion_of_an_earlier_round_is_not_taken_for_the_slot_s_next_command() {
    // RepeatedCid posts each completion twice; the second must not complete a command that reuses the slot.
    let (pci, _c, mut q) = one_queue(1, 64, entries(2));
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
    let (pci, mut c, mut q) = one_queue(1, 64, entries(4));
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
    let mut q = queue(&mut c, entries(4));
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
fn deletion_empties_a_full_completion_queue() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    let mut q = queue(
        &mut c,
        QueueConfig {
            entries: 64,
            cq_entries: Some(4),
            ..Default::default()
        },
    );
    pci.device().latency = 1000;
    for user in 0..60 {
        q.flush(0, user).unwrap();
    }
    q.ring();
    pci.relax();
    let mut users = BTreeSet::new();
    c.delete_queue(q, |d| {
        assert_eq!(d.status.code(), StatusCode::ABORTED_SQ_DELETION);
        assert!(users.insert(d.user));
    })
    .unwrap();
    assert_eq!(users.len(), 60);
}

#[test]
fn a_queue_of_another_controller_is_refused() {
    let (one, two) = (MockPci::new(1, 64), MockPci::new(1, 64));
    let (mut c, mut d) = (start(&one), start(&two));
    let mut mine = queue(&mut c, QueueConfig::default());
    let theirs = queue(&mut d, QueueConfig::default());
    assert_eq!(mine.cqid(), theirs.cqid());
    assert_eq!(c.delete_queue(theirs, |_| ()), Err(Error::ForeignQueue(1)));
    assert_eq!(
        d.reset(std::slice::from_mut(&mut mine), |_| ()),
        Err(Error::ForeignQueue(1))
    );
    c.delete_queue(mine, |_| ()).unwrap();
}

#[test]
fn a_reset_that_cannot_create_a_queue_leaves_it_down() {
    let (pci, mut c, mut q) = one_queue(1, 64, QueueConfig::default());
    let before = pci.allocations();
    pci.fault(Fault::NoSubmissionQueues);
    let error = c.reset(std::slice::from_mut(&mut q), |_| ()).unwrap_err();
    assert!(matches!(
        error,
        Error::Command {
            command: "Create I/O Submission Queue",
            ..
        }
    ));
    assert_eq!(q.poll(|_| ()), Err(QueueError::Down));
    pci.heal();
    c.reset(std::slice::from_mut(&mut q), |_| ()).unwrap();
    q.flush(0, 3).unwrap();
    q.ring();
    drain(&pci, &mut q, |d| assert_eq!(d.user, 3));
    // While it is down the device has none of its memory, so that dropping it frees all.
    pci.fault(Fault::NoSubmissionQueues);
    c.reset(std::slice::from_mut(&mut q), |_| ()).unwrap_err();
    drop(q);
    assert_eq!(pci.allocations(), before - 3);
    pci.heal();
    c.reset(&mut [], |_| ()).unwrap();
}

#[test]
fn random_completions_never_report_a_command_twice() {
    let (mut reported, mut stopped) = (0, 0);
    for seed in 1..200 {
        let (pci, mut c, mut q) = one_queue(2, 64, entries(16));
        pci.fault(Fault::Garbage);
        pci.device().seed = seed;
        let mut flying = BTreeSet::new();
        let mut kept = Vec::new();
        let mut next = 0;
        for _ in 0..20 {
            while q.has_room(next as u32 % 2) {
                q.read(next as u32 % 2, c.buffer(4096).unwrap(), 0, 8, next)
                    .unwrap();
                flying.insert(next);
                next += 1;
            }
            q.ring();
            pci.relax();
            let result = q.poll(|d| {
                assert!(flying.remove(&d.user), "command {} reported twice", d.user);
                assert_eq!(u64::from(d.lun), d.user % 2);
                // A device that says done too early may still use the buffer: no driver can know.
                kept.push(d.buffer.expect("the buffer comes back"));
                reported += 1;
            });
            assert_eq!(q.len(), flying.len());
            if result.is_err() {
                stopped += 1;
                break;
            }
        }
        pci.heal();
        c.reset(std::slice::from_mut(&mut q), |d| {
            assert!(flying.remove(&d.user))
        })
        .unwrap();
        assert!(flying.is_empty());
        drop(kept);
        c.delete_queue(q, |_| ()).unwrap();
        c.shutdown().unwrap();
        assert_eq!((pci.violations(), pci.allocations()), (vec![], 0));
    }
    assert!(
        reported > 200 && stopped > 150,
        "{reported} reported, {stopped} stopped"
    );
}

#[test]
fn a_queue_whose_creation_got_no_answer_keeps_its_memory() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    let before = pci.allocations();
    pci.fault(Fault::AdminStuck);
    let error = c.create_queue(&QueueConfig::default()).err().unwrap();
    assert_eq!(
        error,
        Error::Timeout {
            command: "Create I/O Completion Queue",
            ms: 200
        }
    );
    // The device may have taken it all the same: both rings and the lists stay.
    assert_eq!(pci.allocations(), before + 3);
    pci.heal();
    c.reset(&mut [], |_| ()).unwrap();
    c.create_queue(&QueueConfig::default()).unwrap();
}
