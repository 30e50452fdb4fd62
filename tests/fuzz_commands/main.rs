//! Random admin and I/O commands against the Verilated card: no hang, one completion a command, with a status that NVMe
//! allows, no byte moved elsewhere, and a card that is whole afterwards.
//!
//! A case is a card, a seed, and some hundred steps: entries that are valid, valid but for one field, or noise; PRPs that
//! are unmapped, misaligned or chained; doorbells with values that no queue has; queues created and deleted in any
//! order; resets. [`model`] says from the bytes of an entry which statuses it may have and which bytes it moves;
//! [`host`] has rings and memory. Commands that touch the same blocks at once make these blocks unknown until written again.
//!
//! `WEIR_FUZZ_SEED=n` runs the one case of that seed and prints its steps; `WEIR_FUZZ_SECONDS=s` goes on with new seeds
//! for that long (`make fuzz`).

#[path = "../common/mod.rs"]
mod common;
mod host;
mod model;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use common::{BLOCKS, Rig};
use host::Host;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use weir_card::config::CardConfig;
use weir_nvme::command::{Cdw0, Command};
use weir_nvme::{AdminOpcode, NvmOpcode, PAGE_SIZE};
use weir_sim::media::Fault;
use weir_sim::time::Latency;

/// Steps of a case.
const STEPS: u32 = 300;
/// Cases of a short run: the seeds 0 to this.
const SHORT: u64 = 12;

/// How often what happened.
type Seen = BTreeMap<String, u64>;

/// What a run must have met, or it says nothing.
const EXERCISED: [&str; 25] = [
    "CC.EN = 0",
    "FLR",
    "fatal",
    "checked read",
    "I/O SUCCESS",
    "I/O INVALID_OPCODE",
    "I/O INVALID_FIELD",
    "I/O INVALID_NAMESPACE",
    "I/O LBA_OUT_OF_RANGE",
    "I/O PRP_OFFSET_INVALID",
    "I/O DATA_TRANSFER_ERROR",
    "I/O ABORT_REQUESTED",
    "I/O ABORTED_SQ_DELETION",
    "admin SUCCESS",
    "admin INVALID_OPCODE",
    "admin INVALID_FIELD",
    "admin INVALID_NAMESPACE",
    "admin INVALID_LOG_PAGE",
    "admin INVALID_QUEUE_IDENTIFIER",
    "admin INVALID_QUEUE_SIZE",
    "admin INVALID_QUEUE_DELETION",
    "admin COMPLETION_QUEUE_INVALID",
    "admin INVALID_INTERRUPT_VECTOR",
    "admin AER_LIMIT_EXCEEDED",
    "admin DATA_TRANSFER_ERROR",
];

#[test]
fn random_commands() {
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse().expect(name));
    if let Some(seed) = number("WEIR_FUZZ_SEED") {
        println!("{:#?}", run(seed));
        return;
    }
    let time = number("WEIR_FUZZ_SECONDS").map(Duration::from_secs);
    let start = Instant::now();
    let mut seen = Seen::new();
    let mut cases = 0;
    while time.map_or(cases < SHORT, |time| start.elapsed() < time) {
        for (what, count) in run(cases) {
            *seen.entry(what).or_default() += count;
        }
        cases += 1;
    }
    println!("{cases} cases of {STEPS} steps: {seen:#?}");
    for what in EXERCISED {
        assert!(seen.contains_key(what), "not exercised: {what}: {seen:#?}");
    }
}

/// Runs a case: what happened in it. When it fails, says how to run it again, and its last steps.
fn run(seed: u64) -> Seen {
    let mut rig = Rig::new(&CardConfig::small(), seed, |w| {
        for lun in &mut w.luns {
            (lun.read_latency, lun.write_latency) =
                (Latency::Uniform(100, 3000), Latency::Uniform(100, 3000));
        }
    });
    // A piece of media that fails, so that errors come from both sides.
    let place = rig.pci.world_mut().media().luns()[3];
    rig.pci.world_mut().media().inject(Fault {
        bytes: place.base + 1000 * 512..place.base + 1016 * 512,
        reads: true,
        writes: true,
    });
    let mut host = Host::new(rig.pci.clone(), &rig.config, seed);
    let result = catch_unwind(AssertUnwindSafe(|| {
        steps(&mut host, seed);
        host.finish();
    }));
    if let Err(panic) = result {
        eprintln!("case {seed} failed; WEIR_FUZZ_SEED={seed} runs it again. Its last steps:");
        let log = host.log();
        log[log.len().saturating_sub(60)..]
            .iter()
            .for_each(|line| eprintln!("  {line}"));
        rig.pci.world_mut().trace_end();
        // The driver's own drop would talk to a card that may be stuck.
        std::mem::forget(rig.controller);
        resume_unwind(panic);
    }
    rig.restart();
    rig.pci.world_mut().media().clear_faults();
    rig.whole();
    host.seen().clone()
}

fn steps(host: &mut Host, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    host.start();
    for _ in 0..STEPS {
        match rng.random_range(0..100) {
            0..55 => {
                for _ in 0..rng.random_range(1..6) {
                    if let Some(sqid) = host.sqs().choose(&mut rng).copied() {
                        let command = io_command(host, &mut rng);
                        host.submit(sqid, command);
                    }
                }
            }
            55..75 => {
                let command = admin_command(host, &mut rng);
                host.submit(0, command);
            }
            75..83 => host.ring(),
            83..85 => bad_doorbell(host, &mut rng),
            85 if rng.random_range(0..4) == 0 => host.reset(rng.random()),
            _ => {}
        }
        if rng.random_range(0..4) > 0 {
            host.ring();
        }
        let ns = [0, 40, 300, 2000, 10_000][rng.random_range(0..5usize)];
        host.pass(ns);
        if rng.random_range(0..8) > 0 {
            host.poll();
        }
    }
}

/// An address of one of many kinds, most of them good: inside the command's own memory.
fn address(base: u64, pages: usize, rng: &mut StdRng) -> u64 {
    let page = base + (rng.random_range(0..pages) * PAGE_SIZE) as u64;
    match rng.random_range(0..40) {
        0 => page + rng.random_range(0..4096),
        1 => rng.random::<u64>() & !0xfff,
        2 => host::UNMAPPED,
        3 => host::UNMAPPED - 4096 * rng.random_range(0..4),
        _ => page,
    }
}

/// PRP1 and PRP2 for `bytes` bytes in the memory of slice `base`, with the list, if it takes one, written there.
fn prps(host: &mut Host, base: u64, bytes: usize, rng: &mut StdRng) -> (u64, u64) {
    let offset = match rng.random_range(0..4) {
        0 => 4 * rng.random_range(0..1024),
        1 => 512 * rng.random_range(0..8),
        _ => 0,
    };
    let prp1 = address(base, host::DATA_PAGES, rng) | offset;
    let pages = weir_nvme::prp::page_count(prp1, bytes);
    if pages <= 2 {
        return (prp1, address(base, host::DATA_PAGES, rng));
    }
    let lists = base + (host::DATA_PAGES * PAGE_SIZE) as u64;
    let mut order: Vec<u64> = (0..host::DATA_PAGES as u64).collect();
    rand::seq::SliceRandom::shuffle(&mut order[..], rng);
    let start = match rng.random_range(0..3) {
        0 => PAGE_SIZE as u64 - 8 * rng.random_range(1..20),
        1 => 8 * rng.random_range(0..512),
        _ => 0,
    };
    let mut entry = lists + start;
    for (left, page) in (1..pages).rev().zip(order.iter().cycle()) {
        if entry % 4096 == 4088 && left > 1 {
            let mut next = (entry & !0xfff) + 4096;
            if rng.random_range(0..20) == 0 {
                next = [entry, host::UNMAPPED, next + 8, next + 4][rng.random_range(0..4usize)];
            }
            host.store(entry, next);
            entry = (entry & !0xfff) + 4096;
        }
        let good = base + page * PAGE_SIZE as u64;
        let value = match rng.random_range(0..300) {
            0 => good + 8,
            1 => host::UNMAPPED,
            2 => rng.random(),
            _ => good,
        };
        host.store(entry, value);
        entry += 8;
    }
    let prp2 = match rng.random_range(0..40) {
        0 => (lists + start) ^ 4,
        1 => host::UNMAPPED + start,
        _ => lists + start,
    };
    (prp1, prp2)
}

fn noise(rng: &mut StdRng) -> Command {
    let mut bytes = [0u8; Command::SIZE];
    rng.fill(&mut bytes[..]);
    zerocopy::FromBytes::read_from_bytes(&bytes[..]).unwrap()
}

/// Flips a bit outside the PRPs, whose addresses would be another command's.
fn flip(command: &mut Command, rng: &mut StdRng) {
    let bytes = zerocopy::IntoBytes::as_mut_bytes(command);
    let mut bit = rng.random_range(0..8 * (64 - 16));
    if bit >= 8 * 24 {
        bit += 8 * 16;
    }
    bytes[bit / 8] ^= 1 << (bit % 8);
}

fn io_command(host: &mut Host, rng: &mut StdRng) -> Command {
    if rng.random_range(0..25) == 0 {
        return noise(rng);
    }
    let blocks = match rng.random_range(0..6) {
        0 => rng.random_range(1..=300),
        1 => 256,
        2 => 1,
        _ => rng.random_range(1..=24),
    };
    let slba = match rng.random_range(0..20) {
        0 => rng.random(),
        1 => BLOCKS - u64::from(blocks) + rng.random_range(0..2),
        2 => u64::MAX - rng.random_range(0..300),
        3..9 => rng.random_range(0..64),
        _ => rng.random_range(0..BLOCKS - 300),
    };
    let opcode = match rng.random_range(0..8) {
        0 => NvmOpcode::FLUSH,
        1..4 => NvmOpcode::WRITE,
        _ => NvmOpcode::READ,
    };
    let nsid = match rng.random_range(0..30) {
        0 => [0, 5, 6, u32::MAX, u32::MAX - 1][rng.random_range(0..5usize)],
        _ => rng.random_range(1..=4),
    };
    let mut command = Command::io(opcode, nsid, slba, blocks);
    if rng.random_range(0..4) == 0 {
        // FUA, limited retry: no effect.
        command.cdw12 |= rng.random_range(0..4u32) << 30;
    }
    let base = host.slice();
    (command.prp1, command.prp2) = prps(host, base, (blocks.min(256) as usize) * 512, rng);
    command.cdw0.set_cid(rng.random_range(0..200));
    if rng.random_range(0..20) == 0 {
        flip(&mut command, rng);
    }
    command
}

/// One of these queue identifiers, or now and then any.
fn queue(good: &[u16], rng: &mut StdRng) -> u32 {
    match good.choose(rng) {
        Some(&id) if rng.random_range(0..5) > 0 => id.into(),
        _ => rng.random_range(0..8),
    }
}

fn admin_command(host: &mut Host, rng: &mut StdRng) -> Command {
    if rng.random_range(0..25) == 0 {
        return noise(rng);
    }
    let base = host.slice();
    let mut command = Command::default();
    let opcode = match rng.random_range(0..40) {
        0..3 => AdminOpcode::CREATE_IO_CQ,
        3..9 => AdminOpcode::CREATE_IO_SQ,
        9..11 => AdminOpcode::DELETE_IO_SQ,
        11 => AdminOpcode::DELETE_IO_CQ,
        12..15 => AdminOpcode::IDENTIFY,
        15..20 => AdminOpcode::GET_LOG_PAGE,
        20..25 => AdminOpcode::SET_FEATURES,
        25..28 => AdminOpcode::GET_FEATURES,
        28..36 => AdminOpcode::ABORT,
        _ => AdminOpcode::ASYNC_EVENT_REQUEST,
    };
    command.cdw0 = Cdw0::new().with_opcode(opcode.0);
    (command.prp1, command.prp2) = prps(host, base, 4096, rng);
    match opcode {
        AdminOpcode::CREATE_IO_CQ | AdminOpcode::CREATE_IO_SQ => {
            let cq = opcode == AdminOpcode::CREATE_IO_CQ;
            command.prp1 = host.ring_memory(rng.random_range(0..20) == 0);
            let entries = match rng.random_range(0..4) {
                0 => rng.random_range(0..20u32),
                _ => 15 - rng.random_range(0..4),
            };
            command.cdw10 = queue(&[1, 2, 3, 4], rng) | entries << 16;
            command.cdw11 = u32::from(rng.random_range(0..20) > 0)
                | if cq {
                    let vector = if rng.random_range(0..4) == 0 { 9 } else { 5 };
                    rng.random_range(0..2u32) << 1 | rng.random_range(0..vector) << 16
                } else {
                    queue(&host.cqs(), rng) << 16
                };
        }
        AdminOpcode::DELETE_IO_SQ => command.cdw10 = queue(&host.sqs(), rng),
        AdminOpcode::DELETE_IO_CQ => command.cdw10 = queue(&host.cqs(), rng),
        AdminOpcode::IDENTIFY => {
            command.cdw10 = rng.random_range(0..6);
            command.nsid = rng.random_range(0..6);
        }
        AdminOpcode::GET_LOG_PAGE => {
            let lid = [1, 2, 3, 0xc0, 0xc0, rng.random_range(0..256)][rng.random_range(0..6usize)];
            let dwords = [128, 1024, 20, rng.random_range(0..3000)][rng.random_range(0..4usize)];
            command.cdw10 = lid | (dwords - 1u32.min(dwords)) << 16;
            command.nsid = [0, u32::MAX, rng.random_range(0..6)][rng.random_range(0..3usize)];
        }
        AdminOpcode::SET_FEATURES | AdminOpcode::GET_FEATURES => {
            command.cdw10 = [rng.random_range(0..16), 0xc0, 0xc1][rng.random_range(0..3usize)];
            command.nsid = [0, u32::MAX, rng.random_range(0..6)][rng.random_range(0..3usize)];
            command.cdw11 = match command.cdw10 {
                0xc0 => rng.random_range(0..40) | rng.random_range(0..9u32) << 16,
                0xc1 => rng.random_range(0..40) | rng.random_range(0..4u32) << 16,
                _ => rng.random(),
            };
        }
        AdminOpcode::ABORT => {
            command.cdw10 = match host.victim(rng) {
                Some((sqid, cid)) if rng.random_range(0..4) > 0 => {
                    u32::from(sqid) | u32::from(cid) << 16
                }
                _ => rng.random(),
            }
        }
        _ => {}
    }
    command.cdw0.set_cid(rng.random());
    if rng.random_range(0..20) == 0 {
        flip(&mut command, rng);
    }
    command
}

/// A doorbell write that names no queue, or a value that is no index of its ring: it must change nothing.
fn bad_doorbell(host: &mut Host, rng: &mut StdRng) {
    let index = rng.random_range(0..40u32);
    let limit = host.doorbell_limit(index);
    let value = match limit {
        Some(entries) => rng.random_range(entries..0x1_0000),
        None => rng.random_range(0..20),
    };
    host.write_doorbell(index, value);
}
