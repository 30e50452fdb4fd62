//! Late commands: those that wait on the card are left, those that are stuck are aborted.

mod mock;

use mock::{Fault, MockPci, drain, entries, one_queue};
use weir_driver::nvme::StatusCode;
use weir_driver::nvme::feature::Fairness;
use weir_driver::*;

#[test]
fn a_parked_command_is_left_and_a_stuck_one_aborted() {
    let (pci, mut c, mut q) = one_queue(2, 64, entries(16));
    let mut watch = Watch::default();
    // What a slot was used for before does not age the next command.
    q.flush(0, 0).unwrap();
    q.ring();
    q.tick();
    drain(&pci, &mut q, |_| ());
    q.tick();
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
    let (pci, mut c, mut q) = one_queue(2, 64, entries(32));
    pci.device().latency = 20;
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
fn what_cannot_be_aborted_is_ended_by_a_reset() {
    let (pci, mut c, q) = one_queue(1, 64, QueueConfig::default());
    let mut queues = [q];
    let mut watch = Watch::default();
    pci.device().abortable = false;
    pci.fault(Fault::Stuck);
    let buffer = c.buffer(4096).unwrap();
    let iova = buffer.iova();
    queues[0].read(0, buffer, 0, 8, 5).unwrap();
    queues[0].ring();
    pci.relax();
    let late = queues[0].outstanding().next().unwrap();
    // The first look sees progress, since it was admitted; after that nothing moves.
    assert!(matches!(
        c.inquire(&late, &mut watch),
        Ok(Verdict::Waiting(_))
    ));
    assert_eq!(c.inquire(&late, &mut watch), Ok(Verdict::NotAborted));
    pci.heal();
    let mut ended = Vec::new();
    c.reset(&mut queues, |done| {
        ended.push((done.user, done.status.code(), done.buffer.map(|b| b.iova())))
    })
    .unwrap();
    assert_eq!(ended, [(5, StatusCode::ABORTED_BY_HOST, Some(iova))]);
    let [mut q] = queues;
    q.read(0, c.buffer(4096).unwrap(), 0, 8, 6).unwrap();
    q.ring();
    drain(&pci, &mut q, |done| {
        assert_eq!((done.user, done.status.is_success()), (6, true))
    });
}

#[test]
fn a_card_that_is_pulled_out_is_an_error_and_its_memory_stays() {
    let (pci, mut c, q) = one_queue(1, 64, QueueConfig::default());
    let mut queues = [q];
    let mut watch = Watch::default();
    queues[0].read(0, c.buffer(4096).unwrap(), 0, 8, 5).unwrap();
    pci.fault(Fault::Gone);
    let allocations = pci.allocations();
    queues[0].ring();
    for _ in 0..10 {
        pci.relax();
        assert_eq!(queues[0].poll(|_| panic!("nothing completes")), Ok(0));
    }
    let late = queues[0].outstanding().next().unwrap();
    let gone = |register| Err(Error::Gone { register });
    assert_eq!(c.check(), gone("CSTS"));
    assert_eq!(
        c.inquire(&late, &mut watch),
        Err(Error::Gone { register: "CSTS" })
    );
    assert_eq!(c.reset(&mut queues, |_| panic!("in flight")), gone("CC"));
    let [q] = queues;
    assert_eq!(
        c.delete_queue(q, |_| panic!("in flight")),
        gone("CSTS"),
        "nothing says that the card will not write any more"
    );
    assert_eq!(pci.allocations(), allocations);
}
