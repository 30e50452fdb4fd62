//! The card's figures, in cycles of its 250 MHz clock and simulated time. `make bench` prints them; the README quotes them.
//!
//! The host costs no time here: it polls every few cycles, and buffers and entries are there at once. What is measured is
//! the card (and, where one is named, the modelled link).

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::*;
use weir_card::config::CardConfig;
use weir_driver::{Admin, Buffer, Op, Queue, QueueConfig};
use weir_sim::link::{Link, LinkParams};
use weir_sim::model::ModelOptions;
use weir_sim::pci::{SimMemory, SimPci};

/// Blocks of 4 KiB.
const FOUR_K: u32 = 8;

fn rig(config: &CardConfig, link: Link) -> Rig {
    Rig::with(config, 1, ModelOptions::default(), |w| w.link = link)
}

fn deep(rig: &mut Rig, n: usize) -> Vec<Queue<SimPci>> {
    let entries = rig.config.entries;
    (0..n)
        .map(|_| {
            rig.queue(QueueConfig {
                entries,
                ..QueueConfig::default()
            })
        })
        .collect()
}

/// Cycle in which each step of one command at depth 1 was seen at the card's pins, counted from the doorbell's WVALID.
fn latency(rig: &mut Rig, blocks: u32) -> [u64; 5] {
    let mut queue = deep(rig, 1).remove(0);
    // The second one finds what the first has warmed up: nothing is, but then the figure shows it.
    let mut steps = [0; 5];
    for _ in 0..2 {
        queue
            .submit(0, Op::Read, Some(rig.buffer(blocks)), 0, blocks, 0)
            .unwrap();
        queue.ring();
        let mut world = rig.pci.world_mut();
        steps = [0; 5];
        for _ in 0..2000 {
            world.step().unwrap();
            let now = world.cycle() - 1;
            let (host, media) = (world.output().host, world.output().media);
            for (step, seen) in [(0, host.ar_valid), (1, media.ar_valid), (2, host.w_valid)] {
                if seen && steps[step] == 0 {
                    steps[step] = now;
                }
            }
            // The last two beats on W: the end of the data, and the completion entry.
            if host.w_valid && host.w_last {
                (steps[3], steps[4]) = (steps[4], now);
            }
        }
        let start = world.last_register_write().unwrap().0;
        steps.iter_mut().for_each(|s| *s -= start);
        drop(world);
        rig.drain(&mut queue);
    }
    rig.controller.delete_queue(queue, |_| ()).unwrap();
    steps
}

/// Keeps every queue full until `total` commands have completed; cycles a command over the second half, and the
/// simulator's clocked cycles a second.
fn sustained(rig: &mut Rig, queues: usize, total: u64, op: Op, blocks: u32) -> (f64, f64) {
    let luns = rig.controller.luns().len() as u32;
    let depth = rig.config.tags as u16;
    rig.controller.set_budget(None, depth, 1).unwrap();
    let mut queues = deep(rig, queues);
    let mut spare: Vec<Buffer<SimMemory>> = Vec::new();
    let (mut done, mut next, mut middle) = (0u64, 0u64, None);
    let (start, before) = (Instant::now(), rig.pci.world().stats().clocked);
    while done < total {
        for queue in &mut queues {
            let lun = |n: u64| (n % u64::from(luns)) as u32;
            while queue.has_room(lun(next)) {
                let buffer =
                    (blocks > 0).then(|| spare.pop().unwrap_or_else(|| rig.buffer(blocks)));
                let slots = BLOCKS / u64::from(blocks.max(1));
                // Scattered, without a generator's cost.
                let slba = next.wrapping_mul(0x9e37_79b9_7f4a_7c15) % slots * u64::from(blocks);
                queue
                    .submit(lun(next), op, buffer, slba, blocks, 0)
                    .unwrap();
                next += 1;
            }
            queue.ring();
        }
        rig.pass(64);
        for queue in &mut queues {
            queue
                .poll(|d| {
                    assert!(d.status.is_success());
                    done += 1;
                    spare.extend(d.buffer);
                })
                .unwrap();
        }
        if middle.is_none() && done >= total / 2 {
            middle = Some((done, rig.pci.world().cycle()));
        }
    }
    let (at, cycle) = middle.unwrap();
    let each = (rig.pci.world().cycle() - cycle) as f64 / (done - at) as f64;
    let speed = (rig.pci.world().stats().clocked - before) as f64 / start.elapsed().as_secs_f64();
    for mut queue in queues {
        rig.drain(&mut queue);
        rig.controller.delete_queue(queue, |_| ()).unwrap();
    }
    (each, speed)
}

fn main() {
    let card = CardConfig::default_card();
    println!(
        "Weir's figures: simulated card `{}`, 250 MHz, {} bits; a cycle is 4 ns",
        card.name, card.data_bits
    );
    println!("\nDepth-1 read latency, no link (cycles from the doorbell's WVALID)");
    println!(
        "{:>10} {:>8} {:>8} {:>8} {:>8} {:>8}   bound",
        "", "SQ AR", "media AR", "data W", "data end", "CQE W"
    );
    for (blocks, bound) in [(1, 72), (FOUR_K, 184)] {
        let steps = latency(&mut rig(&card, Link::None), blocks);
        let [sq, media, first, end, cqe] = steps;
        println!(
            "{:>8} B {sq:>8} {media:>8} {first:>8} {end:>8} {cqe:>8}   {bound}",
            blocks * 512
        );
    }

    println!("\nSustained, no link, queues full (cycles a command)");
    println!("{:>14} {:>10} {:>10}   bound", "", "cycles", "M IOPS");
    let mut simulator = 0.0;
    for (name, op, blocks, total, bound) in [
        ("Flush", Op::Flush, 0, 20_000, 8.0),
        ("read 512 B", Op::Read, 1, 12_000, 20.0),
        ("read 4 KiB", Op::Read, FOUR_K, 4_000, 135.0),
        ("write 512 B", Op::Write, 1, 12_000, f64::NAN),
        ("write 4 KiB", Op::Write, FOUR_K, 4_000, f64::NAN),
    ] {
        let (each, speed) = sustained(&mut rig(&card, Link::None), 4, total, op, blocks);
        let bound = if bound.is_nan() {
            "-".into()
        } else {
            format!("{bound}")
        };
        println!("{name:>14} {each:>10.2} {:>10.2}   {bound}", 250.0 / each);
        simulator = speed;
    }

    println!(
        "\n4 KiB random read on the modelled link (a model of PCIe, not a measurement of one)"
    );
    let params: LinkParams = match "gen3x8".parse::<Link>() {
        Ok(Link::Pcie(params)) => params,
        other => panic!("gen3x8 is a link: {other:?}"),
    };
    let (each, with_link) = sustained(
        &mut rig(&card, Link::Pcie(params)),
        4,
        8_000,
        Op::Read,
        FOUR_K,
    );
    let (got, bound) = (250e6 / each, params.read_bound(4096));
    println!(
        "{:>14} {:.3} M IOPS of {:.3} M: {:.1} % (at least 95 %)",
        "gen3x8",
        got / 1e6,
        bound / 1e6,
        100.0 * got / bound
    );

    // A queue keeps an entry for each LUN that is open on it, so not all 256 are.
    let large = CardConfig::large();
    println!(
        "\nSustained on `{}` ({} bits, 64 of its {} LUNs), no link (cycles a command)",
        large.name, large.data_bits, large.luns
    );
    println!("{:>14} {:>10} {:>10}   port's own", "", "cycles", "M IOPS");
    for (name, op, blocks, total, port) in [
        ("Flush", Op::Flush, 0, 8_000, 0),
        ("read 512 B", Op::Read, 1, 8_000, 9),
        ("read 4 KiB", Op::Read, FOUR_K, 4_000, 65),
        ("write 512 B", Op::Write, 1, 8_000, 9),
        ("write 4 KiB", Op::Write, FOUR_K, 4_000, 65),
    ] {
        let mut rig = Rig::with(&large, 1, ModelOptions::default(), |w| w.luns.truncate(64));
        let (each, _) = sustained(&mut rig, 4, total, op, blocks);
        let port = if port > 0 {
            port.to_string()
        } else {
            "-".into()
        };
        println!("{name:>14} {each:>10.2} {:>10.2}   {port}", 250.0 / each);
    }

    println!(
        "\nSimulator on this machine: {:.2} M cycles/s while it wrote 4 KiB, {:.2} M with the link model (at least 0.5)",
        simulator / 1e6,
        with_link / 1e6
    );
}
