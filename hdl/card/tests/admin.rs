//! The admin queue in lock step with a plain Rust model of the controller: every command, every check with its status, data
//! byte for byte, features, events, queues, under random stalls, resets and bus errors.

#[path = "common/admin_harness.rs"]
mod admin_harness;
#[path = "common/admin_model.rs"]
mod admin_model;
mod common;

use admin_harness::Harness;
use admin_model::Command;
use common::{in_threads, model};
use rand::Rng;
use std::collections::BTreeSet;
use weir_card::admin::admin;
use weir_card::config::CardConfig;
use weir_nvme::StatusCode;

fn sizes() -> Vec<CardConfig> {
    let size = |data_bits, queues, luns| CardConfig {
        name: format!("{data_bits}"),
        data_bits,
        queues,
        luns,
        ..CardConfig::small()
    };
    vec![size(128, 4, 4), size(256, 16, 32), size(512, 40, 256)]
}

/// Random commands, most with at most one thing wrong, against the model; resets of both kinds between and within.
#[test]
fn random_commands_do_as_the_model() {
    let seen = std::sync::Mutex::new(BTreeSet::new());
    for c in sizes() {
        let module = admin(&c);
        let model = model(&module);
        in_threads(&(0..6u64).collect::<Vec<_>>(), |seed| {
            let mut h = Harness::new(&c, &module, &model, *seed);
            for _ in 0..700 {
                h.ready = [100, 60, 20][h.rng.random_range(0..3)];
                h.refuse = if h.chance(10) { 5 } else { 0 };
                let e = h.random_command();
                // A log is read while nothing is added to it.
                if e.cdw0.opcode() == 2 {
                    h.settle();
                } else {
                    h.news = h.chance(60);
                }
                match h.rng.random_range(0..200) {
                    0 => h.clear(),
                    1 => {
                        h.offer = Some(e);
                        for _ in 0..h.rng.random_range(0..200) {
                            if h.cycle().is_some() {
                                h.current = None;
                            }
                        }
                        h.reset();
                    }
                    _ => {
                        h.run(e);
                    }
                }
            }
            h.settle();
            println!(
                "{} bits, seed {seed}: {} statuses, {} events, held still {} times",
                c.data_bits,
                h.seen.len(),
                h.events,
                h.rests
            );
            assert!(h.events > 3 && h.rests > 30, "the load was not there");
            seen.lock().unwrap().append(&mut h.seen);
        });
    }
    let all = [
        StatusCode::SUCCESS,
        StatusCode::INVALID_OPCODE,
        StatusCode::INVALID_FIELD,
        StatusCode::DATA_TRANSFER_ERROR,
        StatusCode::INVALID_NAMESPACE,
        StatusCode::COMMAND_SEQUENCE_ERROR,
        StatusCode::PRP_OFFSET_INVALID,
        StatusCode::COMPLETION_QUEUE_INVALID,
        StatusCode::INVALID_QUEUE_IDENTIFIER,
        StatusCode::INVALID_QUEUE_SIZE,
        StatusCode::AER_LIMIT_EXCEEDED,
        StatusCode::INVALID_INTERRUPT_VECTOR,
        StatusCode::INVALID_LOG_PAGE,
        StatusCode::INVALID_QUEUE_DELETION,
        StatusCode::FEATURE_NOT_SAVEABLE,
        StatusCode::FEATURE_NOT_NAMESPACE_SPECIFIC,
    ];
    let all: BTreeSet<u16> = all.iter().map(|s| s.0).collect();
    assert_eq!(*seen.lock().unwrap(), all, "every status was seen");
}

/// Identify and logs at every dword offset of PRP1, over its page's end into PRP2.
#[test]
fn data_at_every_offset() {
    let c = &sizes()[2];
    let module = admin(c);
    let model = model(&module);
    in_threads(&(0..16u64).collect::<Vec<_>>(), |part| {
        let mut h = Harness::new(c, &module, &model, *part);
        h.ready = 100;
        (h.model.present[0], h.model.blocks[0]) = (true, 0xab_cdef_0123);
        for offset in (*part..1024).step_by(16) {
            let mut e = Command::default();
            e.cdw0.set_opcode(6);
            e.cdw10 = (offset % 4) as u32;
            e.nsid = if e.cdw10 == 2 {
                h.rng.random_range(0..4)
            } else {
                1
            };
            (e.prp1, e.prp2) = (0x7000 + offset * 4, 0x5000);
            h.run(e);
            e.cdw0.set_opcode(2);
            (e.nsid, e.cdw10) = (1, 0xc0 | (h.rng.random_range(0..40) << 16));
            h.run(e);
        }
        assert_eq!(h.seen.iter().copied().collect::<Vec<_>>(), [0]);
    });
}

/// Every check that fails, with its status, as literal as the specification has it.
#[test]
fn every_failing_check_has_its_status() {
    use StatusCode as S;
    let c = &sizes()[0]; // 4 queues of 16, 4 LUNs, 32 tags
    let module = admin(c);
    let mut h = Harness::new(c, &module, &model(&module), 1);
    (h.model.queues, h.model.luns, h.model.tags) = (3, 4, 32);
    h.model.present = vec![true, true, false, true];
    for (name, v) in [("queues", 3u64), ("luns", 4), ("tags", 32)] {
        h.b.set(name, v);
    }
    let e = |opcode: u8, nsid: u32, cdw10: u32, cdw11: u32| {
        let mut e = Command {
            nsid,
            cdw10,
            cdw11,
            prp1: 0x7000,
            prp2: 0x9000,
            ..Command::default()
        };
        e.cdw0.set_opcode(opcode);
        e
    };
    let prp = |mut c: Command, prp1: u64, prp2: u64| {
        (c.prp1, c.prp2) = (prp1, prp2);
        c
    };
    let at = |mut c: Command, cdw12: u32, cdw13: u32| {
        (c.cdw12, c.cdw13) = (cdw12, cdw13);
        c
    };
    let mut fused = e(6, 0, 1, 0);
    fused.cdw0.set_fuse(1);
    let mut sgl = e(6, 0, 1, 0);
    sgl.cdw0.set_psdt(1);
    let ok = S::SUCCESS;
    // In this order: queues exist from their lines on.
    let table = [
        ("fused", fused, S::INVALID_FIELD),
        ("SGL", sgl, S::INVALID_FIELD),
        ("Format NVM", e(0x80, 1, 0, 0), S::INVALID_OPCODE),
        ("Keep Alive", e(0x18, 0, 0, 0), S::INVALID_OPCODE),
        ("Number of Queues", e(9, 0, 7, 0x0002_0002), ok),
        (
            "Number of Queues FFFFh",
            e(9, 0, 7, 0xffff_0002),
            S::INVALID_FIELD,
        ),
        ("CQ 0", e(5, 0, 15 << 16, 1), S::INVALID_QUEUE_IDENTIFIER),
        (
            "CQ over the limit",
            e(5, 0, 15 << 16 | 4, 1),
            S::INVALID_QUEUE_IDENTIFIER,
        ),
        (
            "CQ 9, alias of 1",
            e(5, 0, 15 << 16 | 9, 1),
            S::INVALID_QUEUE_IDENTIFIER,
        ),
        ("CQ of one entry", e(5, 0, 1, 1), S::INVALID_QUEUE_SIZE),
        (
            "CQ of 17 entries",
            e(5, 0, 16 << 16 | 1, 1),
            S::INVALID_QUEUE_SIZE,
        ),
        ("CQ in pieces", e(5, 0, 15 << 16 | 1, 0), S::INVALID_FIELD),
        (
            "CQ off its page",
            prp(e(5, 0, 15 << 16 | 1, 1), 0x7010, 0),
            S::PRP_OFFSET_INVALID,
        ),
        (
            "vector 5",
            e(5, 0, 15 << 16 | 1, 5 << 16 | 3),
            S::INVALID_INTERRUPT_VECTOR,
        ),
        (
            "vector 8, alias of 0",
            e(5, 0, 15 << 16 | 1, 8 << 16 | 3),
            S::INVALID_INTERRUPT_VECTOR,
        ),
        (
            "SQ before its CQ",
            e(1, 0, 15 << 16 | 1, 1 << 16 | 1),
            S::COMPLETION_QUEUE_INVALID,
        ),
        ("CQ 1, vector 4", e(5, 0, 15 << 16 | 1, 4 << 16 | 3), ok),
        (
            "CQ 1 again",
            e(5, 0, 15 << 16 | 1, 1),
            S::INVALID_QUEUE_IDENTIFIER,
        ),
        (
            "Number of Queues, late",
            e(9, 0, 7, 0x0002_0002),
            S::COMMAND_SEQUENCE_ERROR,
        ),
        (
            "SQ on CQ 0",
            e(1, 0, 15 << 16 | 1, 1),
            S::COMPLETION_QUEUE_INVALID,
        ),
        (
            "SQ on CQ 9, alias of 1",
            e(1, 0, 15 << 16 | 1, 9 << 16 | 1),
            S::COMPLETION_QUEUE_INVALID,
        ),
        (
            "SQ 0",
            e(1, 0, 15 << 16, 1 << 16 | 1),
            S::INVALID_QUEUE_IDENTIFIER,
        ),
        (
            "SQ of one entry",
            e(1, 0, 1, 1 << 16 | 1),
            S::INVALID_QUEUE_SIZE,
        ),
        (
            "SQ in pieces",
            e(1, 0, 15 << 16 | 1, 1 << 16),
            S::INVALID_FIELD,
        ),
        (
            "SQ off its page",
            prp(e(1, 0, 15 << 16 | 1, 1 << 16 | 1), 4, 0),
            S::PRP_OFFSET_INVALID,
        ),
        ("SQ 1", e(1, 0, 15 << 16 | 1, 1 << 16 | 1), ok),
        ("SQ 3, same CQ", e(1, 0, 1 << 16 | 3, 1 << 16 | 1), ok),
        (
            "SQ 1 again",
            e(1, 0, 15 << 16 | 1, 1 << 16 | 1),
            S::INVALID_QUEUE_IDENTIFIER,
        ),
        (
            "delete CQ 1, used twice",
            e(4, 0, 1, 0),
            S::INVALID_QUEUE_DELETION,
        ),
        (
            "delete SQ 2, none",
            e(0, 0, 2, 0),
            S::INVALID_QUEUE_IDENTIFIER,
        ),
        (
            "delete SQ 9, alias of 1",
            e(0, 0, 9, 0),
            S::INVALID_QUEUE_IDENTIFIER,
        ),
        ("abort in SQ 1", e(8, 0, 5 << 16 | 1, 0), ok),
        ("abort in SQ 9, alias of 1", e(8, 0, 5 << 16 | 9, 0), ok),
        ("delete SQ 1", e(0, 0, 1, 0), ok),
        (
            "delete CQ 1, used once",
            e(4, 0, 1, 0),
            S::INVALID_QUEUE_DELETION,
        ),
        ("delete SQ 3", e(0, 0, 3, 0), ok),
        (
            "delete CQ 9, alias of 1",
            e(4, 0, 9, 0),
            S::INVALID_QUEUE_IDENTIFIER,
        ),
        ("delete CQ 1", e(4, 0, 1, 0), ok),
        (
            "delete CQ 1 again",
            e(4, 0, 1, 0),
            S::INVALID_QUEUE_IDENTIFIER,
        ),
        ("CNS 4", e(6, 1, 4, 0), S::INVALID_FIELD),
        ("CNS 10h", e(6, 1, 0x10, 0), S::INVALID_FIELD),
        ("Identify NSID 0", e(6, 0, 0, 0), S::INVALID_NAMESPACE),
        ("Identify NSID 5", e(6, 5, 0, 0), S::INVALID_NAMESPACE),
        ("Identify an absent LUN", e(6, 3, 0, 0), ok),
        (
            "descriptors of an absent LUN",
            e(6, 3, 3, 0),
            S::INVALID_NAMESPACE,
        ),
        ("descriptors", e(6, 4, 3, 0), ok),
        (
            "list after FFFFFFFEh",
            e(6, 0xffff_fffe, 2, 0),
            S::INVALID_NAMESPACE,
        ),
        ("list after FFFFFFFDh", e(6, 0xffff_fffd, 2, 0), ok),
        (
            "PRP1 off its dword",
            prp(e(6, 0, 1, 0), 0x7002, 0),
            S::PRP_OFFSET_INVALID,
        ),
        (
            "PRP2 off its page",
            prp(e(6, 0, 1, 0), 0x7004, 0x9008),
            S::PRP_OFFSET_INVALID,
        ),
        ("PRP2 without use", prp(e(6, 0, 1, 0), 0x7000, 0x9008), ok),
        ("log 4", e(2, 0, 4, 0), S::INVALID_LOG_PAGE),
        ("log C0h of NSID 0", e(2, 0, 0xc0, 0), S::INVALID_NAMESPACE),
        (
            "log C0h of an absent LUN",
            e(2, 3, 0xc0, 0),
            S::INVALID_NAMESPACE,
        ),
        (
            "log off its dword",
            at(e(2, 0, 2, 0), 2, 0),
            S::INVALID_FIELD,
        ),
        ("log at its end", at(e(2, 0, 2, 0), 512, 0), ok),
        (
            "log past its end",
            at(e(2, 0, 2, 0), 516, 0),
            S::INVALID_FIELD,
        ),
        (
            "error log past its end",
            at(e(2, 0, 1, 0), 260, 0),
            S::INVALID_FIELD,
        ),
        (
            "log C0h past its end",
            at(e(2, 1, 0xc0, 0), 84, 0),
            S::INVALID_FIELD,
        ),
        ("log at 4 GiB", at(e(2, 0, 2, 0), 0, 1), S::INVALID_FIELD),
        ("log of 8 KiB", e(2, 0, 2047 << 16 | 3, 0), ok),
        (
            "log of 8 KiB and 4",
            e(2, 0, 2048 << 16 | 3, 0),
            S::INVALID_FIELD,
        ),
        ("log of 256 KiB and 4", e(2, 0, 3, 1), S::INVALID_FIELD),
        (
            "log over three pages",
            prp(e(2, 0, 2047 << 16 | 3, 0), 0x7004, 0x9000),
            S::INVALID_FIELD,
        ),
        (
            "log, PRP2 off its page",
            prp(e(2, 0, 1024 << 16 | 3, 0), 0x7000, 0x9004),
            S::PRP_OFFSET_INVALID,
        ),
        ("volatile write cache", e(9, 0, 6, 1), S::INVALID_FIELD),
        ("get volatile write cache", e(10, 0, 6, 0), S::INVALID_FIELD),
        ("save", e(9, 0, 1 << 31 | 1, 0), S::FEATURE_NOT_SAVEABLE),
        (
            "of a namespace",
            e(9, 1, 1, 0),
            S::FEATURE_NOT_NAMESPACE_SPECIFIC,
        ),
        ("of all namespaces", e(9, u32::MAX, 1, 0), ok),
        ("power state 1", e(9, 0, 2, 1), S::INVALID_FIELD),
        ("sensor 1", e(9, 0, 4, 1 << 16), S::INVALID_FIELD),
        ("threshold kind 2", e(9, 0, 4, 2 << 20), S::INVALID_FIELD),
        ("get sensor 1", e(10, 0, 4, 1 << 16), S::INVALID_FIELD),
        ("vector 4", e(9, 0, 9, 1 << 16 | 4), ok),
        ("vector 5", e(9, 0, 9, 1 << 16 | 5), S::INVALID_FIELD),
        ("get vector 8, alias of 0", e(10, 0, 9, 8), S::INVALID_FIELD),
        ("select 4", e(10, 0, 4 << 8 | 1, 0), S::INVALID_FIELD),
        ("depth 0", e(9, 1, 0xc0, 1 << 16), S::INVALID_FIELD),
        (
            "depth 33 of 32",
            e(9, 1, 0xc0, 1 << 16 | 33),
            S::INVALID_FIELD,
        ),
        ("depth 32", e(9, 1, 0xc0, 1 << 16 | 32), ok),
        ("weight 0", e(9, 1, 0xc0, 4), S::INVALID_FIELD),
        (
            "budget of NSID 0",
            e(9, 0, 0xc0, 1 << 16 | 4),
            S::INVALID_NAMESPACE,
        ),
        (
            "budget of NSID 5",
            e(9, 5, 0xc0, 1 << 16 | 4),
            S::INVALID_NAMESPACE,
        ),
        ("budget of all", e(9, u32::MAX, 0xc0, 1 << 16 | 4), ok),
        (
            "get the budget of all",
            e(10, u32::MAX, 0xc0, 0),
            S::INVALID_NAMESPACE,
        ),
        ("tag depth 0", e(9, 0, 0xc1, 0), S::INVALID_FIELD),
        ("tag depth 33", e(9, 0, 0xc1, 33), S::INVALID_FIELD),
        ("rule 3", e(9, 0, 0xc1, 3 << 16 | 8), S::INVALID_FIELD),
        ("rule 2", e(9, 0, 0xc1, 2 << 16 | 8), ok),
        (
            "reserved bits of the tag set",
            e(9, 0, 0xc1, 4 << 16 | 8),
            S::INVALID_FIELD,
        ),
    ];
    for (name, command, status) in table {
        let (result, is) = h.run(command);
        let dnr = if status == ok { 0 } else { 1 << 14 };
        assert_eq!(is, status.0 | dnr, "{name}");
        if name.starts_with("abort in SQ 9") {
            assert_eq!(result, 1, "not aborted");
        }
    }
    // Four requests are held, a fifth is one too many.
    (0..4).for_each(|_| assert_eq!(h.run(e(12, 0, 0, 0)), (0, 0)));
    assert_eq!(h.run(e(12, 0, 0, 0)).1, S::AER_LIMIT_EXCEEDED.0 | 1 << 14);
}
