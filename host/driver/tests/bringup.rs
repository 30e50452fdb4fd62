//! Bring-up, admin commands, reset and shutdown against the mock device.

mod mock;

use mock::{Fault, MockPci, SERIAL, TAGS, start};
use weir_driver::nvme::feature::Fairness;
use weir_driver::nvme::identify::Cns;
use weir_driver::nvme::log::{AsyncEvent, AsyncEventType, LogPage};
use weir_driver::nvme::{StatusCode, weir};
use weir_driver::*;

fn try_start(pci: &MockPci) -> Result<Controller<MockPci>, Error> {
    let options = Options {
        admin_timeout_ns: 200_000_000,
        ..Options::default()
    };
    Controller::new(pci.clone(), options)
}

#[test]
fn a_card_is_recognised_with_its_luns() {
    let pci = MockPci::new(3, 100);
    let mut c = start(&pci);
    let info = c.info().clone();
    assert_eq!(
        (
            info.model.as_str(),
            info.serial.as_str(),
            info.firmware.as_str()
        ),
        (weir::MODEL, SERIAL, "1.0")
    );
    assert_eq!(
        (info.max_transfer, info.namespaces, info.error_log_entries),
        (128 << 10, 3, 4)
    );
    assert_eq!(
        (
            info.submission_queues,
            info.completion_queues,
            info.event_requests
        ),
        (8, 8, 4)
    );
    assert_eq!(info.weir.unwrap().tags, u32::from(TAGS));
    let luns: Vec<_> = c
        .luns()
        .iter()
        .map(|l| (l.index, l.nsid, l.blocks, l.block_size()))
        .collect();
    assert_eq!(luns, [(0, 1, 100, 512), (1, 2, 100, 512), (2, 3, 100, 512)]);
    assert_eq!(c.lun(1).unwrap().id, Some(weir::namespace_uuid(SERIAL, 2)));
    assert_eq!(c.lun(3).unwrap_err(), Error::NoSuchLun(3));
    assert!(matches!(
        c.identify(Cns(0x77), 0),
        Err(Error::Command { status, .. }) if status.code() == StatusCode::INVALID_FIELD
    ));
    c.check().unwrap();
    c.shutdown().unwrap();
    assert_eq!((pci.violations(), pci.allocations()), (vec![], 0));
}

#[test]
fn bring_up_says_what_is_wrong() {
    let with = |change: &dyn Fn(&MockPci)| {
        let pci = MockPci::new(1, 8);
        change(&pci);
        try_start(&pci)
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default()
    };
    assert_eq!(
        with(&|p| p.fault(Fault::Gone)),
        "CAP reads all ones: the device is gone"
    );
    assert_eq!(
        with(&|p| p.fault(Fault::NeverReady)),
        "CSTS.RDY = 1 did not follow within 1000 ms; CSTS reads 0x00000000"
    );
    assert_eq!(
        with(&|p| p.fault(Fault::Fatal)),
        "CSTS.CFS is set: the controller has failed"
    );
    assert_eq!(
        with(&|p| p.fault(Fault::AdminStuck)),
        "Identify: no completion within 200 ms"
    );
    assert_eq!(
        with(&|p| p.device().cap.set_mpsmin(1)),
        "CAP.MPSMIN is 1, but must be 0, for pages of 4 KiB"
    );
    assert_eq!(
        with(&|p| p.device().cap.set_css(0x40)),
        "CAP.CSS is 64, but must be one with bit 0, the NVM command set"
    );
    assert_eq!(
        with(&|p| p.device().cap.set_mqes(0)),
        "CAP.MQES is 0, but must be at least 1"
    );
    assert_eq!(with(&|p| p.device().cap.set_dstrd(2)), "");
}

#[test]
fn budgets_tags_and_statistics() {
    let pci = MockPci::new(2, 64);
    let mut c = start(&pci);
    let budget =
        |c: &mut Controller<MockPci>, lun| c.budget(lun).map(|b| (b.depth(), b.weight())).unwrap();
    assert_eq!(budget(&mut c, 0), (32, 1));
    c.set_depth(0, 5).unwrap();
    c.set_weight(0, 9).unwrap();
    c.set_weight(1, 2).unwrap();
    assert_eq!((budget(&mut c, 0), budget(&mut c, 1)), ((5, 9), (32, 2)));
    c.set_budget(None, 7, 3).unwrap();
    assert_eq!((budget(&mut c, 0), budget(&mut c, 1)), ((7, 3), (7, 3)));
    c.set_tags(16, Fairness::WEIGHTED).unwrap();
    assert_eq!(c.tags().unwrap(), (16, Fairness::WEIGHTED));
    for (error, want) in [
        (c.set_depth(0, 0), "depth is 0, but must be 1 to 64"),
        (c.set_depth(0, TAGS + 1), "depth is 65, but must be 1 to 64"),
        (c.set_weight(0, 0), "weight is 0, but must be 1 to 65535"),
        (
            c.set_tags(0, Fairness::NONE),
            "tag depth is 0, but must be 1 to 64",
        ),
        (
            c.set_tags(1, Fairness(3)),
            "fairness rule is 3, but must be a bit set in 0b111",
        ),
        (c.set_depth(2, 1), "there is no LUN 2"),
        (
            c.set_coalescing(0, 1),
            "completions an interrupt is 0, but must be 1 to 256",
        ),
        (
            c.log_page(LogPage::SMART, 0, &mut [0; 6]),
            "bytes of a log page is 6, but must be a multiple of 4 from 4 to 4096",
        ),
    ] {
        assert_eq!(error.unwrap_err().to_string(), want);
    }
    c.set_coalescing(256, 3).unwrap();
    assert_eq!(
        c.get_feature(
            weir_driver::nvme::feature::FeatureId::INTERRUPT_COALESCING,
            0,
            0
        ),
        Ok(0x03FF)
    );
    pci.device().luns[1].statistics.deferred_depth = 77;
    assert_eq!(c.lun_statistics(1).unwrap().deferred_depth, 77);
    assert_eq!(
        c.error_log()
            .unwrap()
            .iter()
            .map(|e| (e.error_count, e.lba))
            .collect::<Vec<_>>(),
        [(7, 9)]
    );
    assert_eq!(
        (
            c.smart_log().unwrap().percentage_used,
            c.firmware_log().unwrap().afi
        ),
        (1, 1)
    );
    assert_eq!(pci.violations(), Vec::<String>::new());
}

#[test]
fn another_device_has_no_budgets() {
    let pci = MockPci::new(2, 64);
    pci.device().weir = false;
    let mut c = start(&pci);
    assert!(!c.is_weir());
    assert_eq!(c.set_depth(0, 5), Err(Error::Unsupported("the LUN budget")));
    assert_eq!(
        c.set_budget(None, 5, 1),
        Err(Error::Unsupported("the LUN budget"))
    );
    assert_eq!(
        c.set_tags(5, Fairness::EVEN),
        Err(Error::Unsupported("the tag set"))
    );
    assert_eq!(c.tags(), Err(Error::Unsupported("the tag set")));
    assert_eq!(
        c.lun_statistics(0),
        Err(Error::Unsupported("LUN statistics"))
    );
}

#[test]
fn events_arrive_beside_commands_and_are_asked_for_again() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    assert_eq!(c.next_event(), Ok(None));
    for info in 0..20 {
        let event = AsyncEvent::new()
            .with_event_type(AsyncEventType::ERROR.0)
            .with_info(info);
        pci.device().events.push_back(event);
        c.smart_log().unwrap();
        assert_eq!(c.next_event(), Ok(Some(event)), "event {info}");
    }
    assert_eq!(c.next_event(), Ok(None));
}

#[test]
fn queues_are_planned_within_what_is_granted() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    let base = QueueConfig {
        entries: 16,
        ..Default::default()
    };
    for (config, want) in [
        (
            QueueConfig {
                entries: 12,
                ..base
            },
            "QueueConfig::entries is 12, but must be a power of two from 2 to 256",
        ),
        (
            QueueConfig {
                entries: 512,
                ..base
            },
            "QueueConfig::entries is 512, but must be a power of two from 2 to 256",
        ),
        (
            QueueConfig {
                cq_entries: Some(1),
                ..base
            },
            "QueueConfig::cq_entries is 1, but must be a power of two from 2 to 256",
        ),
        (
            QueueConfig {
                submission_queues: 0,
                ..base
            },
            "QueueConfig::submission_queues is 0, but must be 1 to 8",
        ),
        (
            QueueConfig {
                submission_queues: 9,
                ..base
            },
            "QueueConfig::submission_queues is 9, but must be 1 to 8",
        ),
        (
            QueueConfig {
                vector: Some(9),
                ..base
            },
            "QueueConfig::vector is 9, but must be below 9",
        ),
        (
            QueueConfig {
                prp_list_offset: 12,
                ..base
            },
            "QueueConfig::prp_list_offset is 12, but must be a multiple of 8 below 4096",
        ),
        (
            QueueConfig {
                sqid: Some(9),
                ..base
            },
            "QueueConfig::sqid is 9, but must be free: the controller grants 8 submission and 8 completion queues",
        ),
        (
            QueueConfig {
                cqid: Some(0),
                ..base
            },
            "QueueConfig::cqid is 0, but must be free: the controller grants 8 submission and 8 completion queues",
        ),
    ] {
        assert_eq!(
            c.create_queue(&config)
                .err()
                .map(|e| e.to_string())
                .as_deref(),
            Some(want)
        );
    }
    let ids = |q: &Queue<MockPci>| (q.sqid(), q.cqid());
    let a = c
        .create_queue(&QueueConfig {
            sqid: Some(2),
            cqid: Some(7),
            submission_queues: 3,
            ..base
        })
        .unwrap();
    let b = c.create_queue(&base).unwrap();
    let d = c.create_queue(&base).unwrap();
    assert_eq!((ids(&a), ids(&b), ids(&d)), ((2, 7), (1, 1), (5, 2)));
    assert!(
        c.create_queue(&QueueConfig {
            sqid: Some(4),
            ..base
        })
        .is_err()
    );
    assert!(
        c.create_queue(&QueueConfig {
            cqid: Some(7),
            ..base
        })
        .is_err()
    );
    assert!(
        c.create_queue(&QueueConfig {
            submission_queues: 4,
            ..base
        })
        .is_err()
    );
    c.delete_queue(a, |_| ()).unwrap();
    let e = c
        .create_queue(&QueueConfig {
            submission_queues: 3,
            ..base
        })
        .unwrap();
    assert_eq!(ids(&e), (2, 3));
    assert_eq!(c.shutdown(), Err(Error::QueuesLeft(vec![1, 2, 3])));
}

#[test]
fn a_refused_queue_leaves_nothing() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    let before = pci.allocations();
    pci.fault(Fault::NoSubmissionQueues);
    let error = c.create_queue(&QueueConfig::default()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "Create I/O Submission Queue: status INVALID_QUEUE_IDENTIFIER"
    );
    assert_eq!(pci.allocations(), before);
    pci.heal();
    let q = c.create_queue(&QueueConfig::default()).unwrap();
    c.delete_queue(q, |_| ()).unwrap();
    c.shutdown().unwrap();
    assert_eq!((pci.violations(), pci.allocations()), (vec![], 0));
}

#[test]
fn a_device_that_goes_away_ends_every_wait() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    pci.fault(Fault::Gone);
    assert_eq!(c.check(), Err(Error::Gone { register: "CSTS" }));
    assert_eq!(c.lun_statistics(0), Err(Error::Gone { register: "CSTS" }));
    assert_eq!(
        c.reset(&mut [], |_| ()),
        Err(Error::Gone { register: "CC" })
    );
    drop(c);
    // The device may still write the admin queue for all we know: three pages stay.
    assert_eq!(pci.allocations(), 3);
}

#[test]
fn a_silent_admin_queue_is_an_error_and_a_reset_heals_it() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    pci.fault(Fault::AdminStuck);
    let error = c.smart_log().err().unwrap();
    assert_eq!(
        error,
        Error::Timeout {
            command: "Get Log Page",
            ms: 200
        }
    );
    pci.heal();
    c.reset(&mut [], |_| ()).unwrap();
    c.smart_log().unwrap();
}

#[test]
fn data_that_never_came_is_not_that_of_the_command_before() {
    let pci = MockPci::new(1, 64);
    let mut c = start(&pci);
    assert_eq!(c.smart_log().unwrap().percentage_used, 1);
    pci.fault(Fault::NoData);
    assert_eq!(c.smart_log().unwrap().percentage_used, 0);
    assert_eq!(
        c.reset(&mut [], |_| ()).unwrap_err().to_string(),
        "SQES is 0, but must be 6, for entries of 64 bytes"
    );
}
