//! The engine on the queueing model.

use super::model::{Fault, Model};
use crate::fio::{
    Control, Event, Plan, PlanOptions, Results, RunOptions, parse_with_env, plan, run,
};

pub fn planned(text: &str, options: &PlanOptions) -> Plan {
    let file = parse_with_env("test.fio", text, &|_| None).expect("parses");
    plan(&file, options).expect("plans")
}

fn model(plan: &Plan) -> Model {
    Model::new(plan.cpus as usize, plan.luns.len(), 32, plan.seed)
}

fn go(text: &str, options: &PlanOptions) -> (Results, Model) {
    let plan = planned(text, options);
    let mut model = model(&plan);
    let results = run(&plan, &RunOptions::default(), &mut model, &mut |_| {}).expect("runs");
    (results, model)
}

const MIXED: &str = "[global]\nioengine=libaio\niodepth=16\nbs=4k\nsize=256k\n\
    [a]\nfilename=x\nrw=randrw\nverify=crc32c\n[b]\nfilename=x\nrw=randwrite\nverify=crc32c\nnorandommap\n\
    [c]\nfilename=y\nrw=write\nbs=512\nverify=crc32c\n[d]\nfilename=y\nrw=randread\n";

#[test]
fn overlapping_writers_and_readers_are_checked_without_a_false_alarm() {
    for seed in 0..8 {
        let (results, _) = go(
            MIXED,
            &PlanOptions {
                cpus: 3,
                seed,
                ..PlanOptions::default()
            },
        );
        assert!(results.is_good(), "seed {seed}: {:?}", results.mismatches);
        let total = results.total();
        assert_eq!(total.checked_bytes, total.read.bytes);
        // a's writes, c's 256 KiB, and what b wrote, each block once; d reads 256 KiB.
        let a = &results.instances[0].stats;
        assert_eq!(a.verified_bytes, a.write.bytes);
        let b = &results.instances[1].stats;
        assert!(
            b.write.bytes == 256 << 10 && (130 << 10..200 << 10).contains(&b.verified_bytes),
            "{}",
            b.verified_bytes
        );
        assert_eq!(results.instances[2].stats.verified_bytes, 256 << 10);
        assert_eq!(results.instances[3].stats.read.bytes, 256 << 10);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let options = |seed| PlanOptions {
        cpus: 2,
        seed,
        ..PlanOptions::default()
    };
    let (_, first) = go(MIXED, &options(5));
    let (_, again) = go(MIXED, &options(5));
    let (_, other) = go(MIXED, &options(6));
    assert_eq!(first.log, again.log);
    assert_ne!(first.log, other.log);
}

#[test]
fn every_fault_is_caught() {
    for (fault, says) in [
        (Fault::FlipBit, "corrupt"),
        (Fault::LoseWrite, "lost"),
        (Fault::Misplace, "lost"),
        (Fault::WrongLun, "misplaced"),
    ] {
        let plan = planned(
            "[global]\nioengine=libaio\niodepth=8\nrw=randwrite\nbs=4k\nsize=128k\nverify=crc32c\n[a]\nfilename=x\n[b]\nfilename=y\n",
            &PlanOptions {
                cpus: 2,
                ..PlanOptions::default()
            },
        );
        let mut model = model(&plan);
        model.fault = Some((fault, 20));
        let results = run(&plan, &RunOptions::default(), &mut model, &mut |_| {}).expect("runs");
        assert_eq!(model.fault, None, "{fault:?} struck");
        assert!(!results.is_good(), "{fault:?} was not seen");
        let first = results.mismatches[0].to_string();
        assert!(first.contains(says), "{fault:?}: {first}");
    }
}

/// The second pass over the same blocks: what the first one wrote is still there.
#[test]
fn a_lost_overwrite_is_stale() {
    let plan = planned(
        "[a]\nrw=write\nbs=4k\nsize=64k\nverify=crc32c\nloops=2\n",
        &PlanOptions::default(),
    );
    let mut model = model(&plan);
    // 16 writes and 16 reads, each one step to take effect and one to complete, then the second pass.
    model.fault = Some((Fault::LoseWrite, 70));
    let results = run(&plan, &RunOptions::default(), &mut model, &mut |_| {}).expect("runs");
    // Of the 8 blocks of a 4 KiB write each.
    assert_eq!(results.total().mismatches, 8);
    let wrong = results.mismatches[0].to_string();
    assert!(wrong.contains("stale: holds write "), "{wrong}");
}

/// With verify=pattern a block holds the same whichever write it is from, but not before the first.
#[test]
fn a_lost_write_of_a_pattern_is_caught() {
    let text = "[a]\nrw=write\nbs=4k\nsize=64k\nverify=pattern\nverify_pattern=0xdeadbeef%o\n";
    let plan = planned(text, &PlanOptions::default());
    let mut model = model(&plan);
    model.fault = Some((Fault::LoseWrite, 10));
    let results = run(&plan, &RunOptions::default(), &mut model, &mut |_| {}).expect("runs");
    assert_eq!(results.total().mismatches, 8);
    assert!(results.mismatches[0].to_string().contains("lost"));
    let good = go(text, &PlanOptions::default()).0;
    assert!(good.is_good());
    assert_eq!(good.total().verified_bytes, 64 << 10);
}

#[test]
fn verify_fatal_ends_the_job_at_once() {
    let text = |fatal: u32| {
        format!("[a]\nrw=write\nbs=4k\nsize=256k\nverify=crc32c\nverify_fatal={fatal}\n")
    };
    let mut read = Vec::new();
    for fatal in [0, 1] {
        let plan = planned(&text(fatal), &PlanOptions::default());
        let mut model = model(&plan);
        model.fault = Some((Fault::LoseWrite, 0));
        let results = run(&plan, &RunOptions::default(), &mut model, &mut |_| {}).expect("runs");
        assert_eq!(results.total().mismatches, 8);
        read.push(results.total().read.ios);
    }
    assert_eq!(read, [64, 1]);
}

#[test]
fn an_io_error_ends_its_job_and_is_counted() {
    let plan = planned(
        "[a]\nrw=write\nbs=4k\nsize=256k\nverify=crc32c\n",
        &PlanOptions::default(),
    );
    let mut model = model(&plan);
    model.fault = Some((Fault::WriteError, 5));
    let results = run(&plan, &RunOptions::default(), &mut model, &mut |_| {}).expect("runs");
    assert_eq!(results.total().write.errors, 1);
    assert!(results.total().write.ios < 64 && !results.is_good());
    let failures: Vec<String> = results.failures.iter().map(ToString::to_string).collect();
    assert_eq!(failures.len(), 1);
    assert!(
        failures[0].starts_with("LUN 0, LBA 16, 8 blocks: Write of job a failed at ")
            && failures[0].ends_with("with status 0x281, UNRECOVERED_READ_ERROR"),
        "{failures:?}"
    );
}

/// As fio 3.33, told by when a job with `ioengine=null thinktime=20000` ends: 60 I/Os after 1.2 s, `ramp_time=1` or not.
#[test]
fn the_number_of_ios_counts_from_the_start_on() {
    let text = "[j]\nrw=randread\nbs=4k\nsize=64m\nruntime=10\nramp_time=1\nnumber_ios=400\n";
    let options = PlanOptions {
        time_ns: Some(10_000_000),
        ..PlanOptions::default()
    };
    let (results, model) = go(text, &options);
    assert_eq!(model.log.len(), 400);
    let counted = results.total().read.ios;
    assert!((1..400).contains(&counted), "{counted} of 400");
}

#[test]
fn a_hang_ends_the_run() {
    let plan = planned("[a]\nrw=read\nbs=4k\nsize=256k\n", &PlanOptions::default());
    let mut model = model(&plan);
    model.fault = Some((Fault::Hang, 5));
    let error = run(&plan, &RunOptions::default(), &mut model, &mut |_| {}).unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with(
            "model: a hang\n1 I/Os are not finished\n  job a #0 on CPU 0: Read LUN 0 block "
        ),
        "{error}"
    );
}

/// 8 jobs of depth 16 on one queue of 32 entries: all get the same share, and the wait is submission latency.
#[test]
fn a_full_queue_is_shared_in_turn() {
    let options = PlanOptions {
        time_ns: Some(2_000_000),
        ..PlanOptions::default()
    };
    let text = "[j]\nioengine=libaio\niodepth=16\nrw=randread\nsize=4m\nnumjobs=8\nruntime=1\ntime_based\nfilename=x\n";
    let (results, model) = go(text, &options);
    let ios: Vec<u64> = results.instances.iter().map(|i| i.stats.read.ios).collect();
    let (least, most) = (ios.iter().min().unwrap(), ios.iter().max().unwrap());
    assert!(*least > 500 && most - least <= 16, "{ios:?}");
    let read = &results.total().read;
    // 32 in flight of 5 us each: a place is free every 156 ns, and 8 jobs wait for it, each with its next I/O.
    assert!(
        (1150.0..1350.0).contains(&read.slat.mean),
        "{}",
        read.slat.mean
    );
    assert!((read.lat.mean - read.slat.mean - read.clat.mean).abs() < 1.0);
    assert_eq!((model.peak[0], results.luns[0].peak_outstanding), (32, 32));
}

#[test]
fn time_is_the_run_s_and_the_ramp_is_not_counted() {
    let text = "[j]\nioengine=libaio\niodepth=4\nrw=randread\nsize=1m\nruntime=60\nramp_time=20\ntime_based\n";
    let (results, _) = go(
        text,
        &PlanOptions {
            time_ns: Some(3_000_000),
            ..PlanOptions::default()
        },
    );
    let stats = &results.instances[0].stats;
    // 20 s of ramp shrink as 60 s do to 3 ms.
    assert!(
        (3_990_000..4_020_000).contains(&results.elapsed_ns),
        "{}",
        results.elapsed_ns
    );
    assert!(
        (2_990_000..3_020_000).contains(&stats.read.runtime_ns),
        "{}",
        stats.read.runtime_ns
    );
    // 4 in flight, 5 us each.
    assert!(
        (700_000.0..900_000.0).contains(&stats.read.iops()),
        "{}",
        stats.read.iops()
    );
    assert!(
        stats
            .read
            .series
            .buckets
            .iter()
            .take(900)
            .map(|b| b.0)
            .sum::<u64>()
            == stats.read.ios
    );
}

#[test]
fn a_count_of_ios_ends_the_run_exactly() {
    let text = "[j]\nioengine=libaio\niodepth=4\nrw=randwrite\nsize=1m\nruntime=60\ntime_based\nnumjobs=3\nverify=crc32c\n";
    let (results, _) = go(
        text,
        &PlanOptions {
            ios: Some(100),
            cpus: 2,
            ..PlanOptions::default()
        },
    );
    assert_eq!(results.total().write.ios, 100);
    assert_eq!(
        results.total().verified_bytes,
        100 * 4096,
        "what was written is verified"
    );
    assert!(results.ios_reached);
}

#[test]
fn a_write_phase_cut_short_is_verified() {
    let text = "[j]\nioengine=libaio\niodepth=4\nrw=randwrite\nsize=64m\nruntime=60\ntime_based\nverify=crc32c\n";
    let (results, _) = go(
        text,
        &PlanOptions {
            time_ns: Some(100_000),
            ..PlanOptions::default()
        },
    );
    let total = results.total();
    assert!(total.write.ios > 50 && total.write.bytes < 64 << 20);
    assert_eq!(total.verified_bytes, total.write.bytes);
}

#[test]
fn stonewalls_and_start_delays_hold_back() {
    let text = "[global]\nrw=write\nbs=4k\nsize=64k\nruntime=60\nfilename=x\n\
        [a]\nverify=crc32c\n[late]\nstartdelay=12\n[b]\nstonewall\n[c]\n";
    let plan = planned(
        text,
        &PlanOptions {
            time_ns: Some(5_000_000),
            cpus: 4,
            ..PlanOptions::default()
        },
    );
    assert_eq!(
        plan.instances
            .iter()
            .map(|i| (i.group, i.phase))
            .collect::<Vec<_>>(),
        [(0, 0), (0, 0), (1, 1), (1, 1)]
    );
    let mut model = model(&plan);
    let results = run(&plan, &RunOptions::default(), &mut model, &mut |_| {}).expect("runs");
    let first = |cpu| {
        model
            .log
            .iter()
            .position(|&(c, _)| c == cpu)
            .expect("issued")
    };
    let last = |cpu| {
        model
            .log
            .iter()
            .rposition(|&(c, _)| c == cpu)
            .expect("issued")
    };
    assert!(
        first(2) > last(0) && first(2) > last(1) && first(3) > last(1),
        "the stonewall holds"
    );
    assert!(first(1) > last(0), "12 s are 1 ms, by when `a` has ended");
    let started = results.instances[1].elapsed_ns - results.instances[1].stats.write.runtime_ns;
    assert!((1_000_000..1_010_000).contains(&started), "{started}");
}

/// 100,000 I/Os a second are one every 10 us.
#[test]
fn a_rate_is_of_simulated_time() {
    let text = "[j]\nioengine=libaio\niodepth=8\nrw=randread\nsize=64m\nrate_iops=100k\nkb_base=1000\nruntime=1\n";
    let (results, _) = go(
        text,
        &PlanOptions {
            time_ns: Some(2_000_000),
            ..PlanOptions::default()
        },
    );
    let iops = results.total().read.iops();
    assert!((98_000.0..101_000.0).contains(&iops), "{iops}");
}

#[test]
fn depths_change_at_their_time() {
    let plan = planned(
        "[j]\nioengine=libaio\niodepth=32\nrw=randread\nsize=64m\nruntime=1\nfilename=x:y\n",
        &PlanOptions {
            time_ns: Some(1_000_000),
            ..PlanOptions::default()
        },
    );
    let options = RunOptions {
        events: vec![
            Event::parse("200us", "lun1.depth=4").unwrap(),
            Event::parse("100", "lun0.weight=3").unwrap(),
        ],
        ..RunOptions::default()
    };
    let mut model = model(&plan);
    run(&plan, &options, &mut model, &mut |_| {}).expect("runs");
    let (at, weight) = model.controls[0];
    assert!((100_000..102_000).contains(&at) && weight == Control::Weight { lun: 0, weight: 3 });
    let (at, depth) = model.controls[1];
    assert!((200_000..202_000).contains(&at) && depth == Control::Depth { lun: 1, depth: 4 });
    for bad in [
        ("200us", "lun1"),
        ("x", "lun1.depth=4"),
        ("1", "lun.depth=4"),
        ("1", "lun1.colour=4"),
    ] {
        assert!(Event::parse(bad.0, bad.1).is_err(), "{bad:?}");
    }
}

#[test]
fn the_soak_changes_every_lun_s_depth_within_2_and_16() {
    let plan = planned(
        "[j]\nioengine=libaio\niodepth=64\nrw=randrw\nsize=4m\nruntime=1\ntime_based\nfilename=x:y\nnumjobs=2\n",
        &PlanOptions {
            time_ns: Some(1_000_000),
            cpus: 2,
            ..PlanOptions::default()
        },
    );
    let options = RunOptions {
        soak_ns: Some(50_000),
        cpu_ns: 100,
        ..RunOptions::default()
    };
    let mut model = model(&plan);
    let results = run(&plan, &options, &mut model, &mut |_| {}).expect("runs");
    assert!(results.is_good());
    assert!(
        (38..=44).contains(&model.controls.len()),
        "{}",
        model.controls.len()
    );
    let depths: Vec<u32> = model
        .controls
        .iter()
        .map(|(_, c)| {
            if let Control::Depth { depth, .. } = c {
                *depth
            } else {
                0
            }
        })
        .collect();
    assert!(depths.iter().all(|depth| (2..=16).contains(depth)));
    assert!(
        depths
            .iter()
            .collect::<std::collections::HashSet<_>>()
            .len()
            > 5
    );
}

/// A depth of more than the tags in use would be refused by the card.
#[test]
fn the_soak_stays_within_the_tags() {
    let plan = planned(
        "[j]\nioengine=libaio\niodepth=8\nrw=randread\nsize=4m\nruntime=1\ntime_based\n",
        &PlanOptions {
            time_ns: Some(500_000),
            ..PlanOptions::default()
        },
    );
    for (most, want) in [(1, 1..=1), (3, 2..=3)] {
        let options = RunOptions {
            soak_ns: Some(10_000),
            soak_most: most,
            ..RunOptions::default()
        };
        let mut model = model(&plan);
        run(&plan, &options, &mut model, &mut |_| {}).expect("runs");
        let depths: Vec<u32> = model
            .controls
            .iter()
            .filter_map(|(_, control)| match control {
                Control::Depth { depth, .. } => Some(*depth),
                Control::Weight { .. } => None,
            })
            .collect();
        assert!(depths.len() > 40 && depths.iter().all(|depth| want.contains(depth)));
        assert!(want.clone().all(|depth| depths.contains(&depth)));
    }
}

/// A host that takes 1 us a submission and 1 us a completion does no more than 500,000 I/Os a second on a CPU.
#[test]
fn a_host_that_costs_time_bounds_its_rate() {
    let plan = planned(
        "[j]\nioengine=libaio\niodepth=32\nrw=randread\nsize=64m\nruntime=1\ntime_based\n",
        &PlanOptions {
            time_ns: Some(2_000_000),
            ..PlanOptions::default()
        },
    );
    let mut model = model(&plan);
    let options = RunOptions {
        cpu_ns: 1000,
        ..RunOptions::default()
    };
    let results = run(&plan, &options, &mut model, &mut |_| {}).expect("runs");
    let iops = results.total().read.iops();
    assert!((480_000.0..505_000.0).contains(&iops), "{iops}");
    assert!(results.cpu_busy[0] > 0.95, "{:?}", results.cpu_busy);
}

/// 1 MiB of I/O is eight commands of 128 KiB, and is one I/O.
#[test]
fn an_io_longer_than_a_command_is_several() {
    let text = "[j]\nioengine=libaio\niodepth=6\nrw=write\nbs=1m\nsize=8m\nverify=crc32c\n";
    let (results, model) = go(text, &PlanOptions::default());
    let total = results.total();
    assert_eq!(
        (total.write.ios, total.write.bytes, total.verified_bytes),
        (8, 8 << 20, 8 << 20)
    );
    assert_eq!(model.log.len(), 8 * 8 * 2);
    assert!(model.log.iter().all(|(_, command)| command.blocks == 256));
}
