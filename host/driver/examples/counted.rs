//! What `make guest-bench` counts: reads from LUNs with one thread, polling; `perf` is the shorter one, to read.
//!
//! A batch is submitted with one doorbell when as many of the depth are free. `bare` is for counting instructions: depth
//! 1, then batches of 4, then of 32, all in flight before the first is reaped, blocks in order, no clock read between
//! the first I/O and the last. `--lun-depth` sets how many commands each LUN may execute at once; only a Weir card has that.

#[path = "common/bare.rs"]
mod bare;
mod common;

use bare::Reads;
use common::{Args, Failure, fail};
use std::time::Instant;
use weir_driver::backend::Device;
use weir_driver::{Admin, Buffer, Controller, Options, Pci, Queue, QueueConfig};

const USAGE: &str = "counted DEVICE [bare] [--depth N] [--batch N] [--ios N] [--bytes N] [--luns 0,1,..] [--lun-depth N]";

/// What is read: LUN, blocks a read, reads that fit into it.
type Place = (u32, u32, u64);

struct Job {
    /// (depth, batch) of each run.
    runs: Vec<(usize, usize)>,
    bare: bool,
    ios: u64,
    bytes: usize,
    /// Empty: all.
    luns: Vec<u32>,
    /// 0: as it is.
    lun_depth: u16,
}

fn main() -> Result<(), Failure> {
    let mut args = Args::new(USAGE);
    let bare = args.flag("bare");
    let (depth, batch) = (args.value("--depth", 32), args.value("--batch", 1));
    if batch == 0 || batch > depth {
        args.wrong(format!("--batch {batch}: must be 1 to the depth, {depth}"));
    }
    let runs = if bare {
        vec![(1, 1), (4, 4), (32, 32)]
    } else {
        vec![(depth, batch)]
    };
    let (ios, bytes) = (args.value("--ios", 100_000), args.value("--bytes", 4096));
    let (luns, lun_depth) = (args.values("--luns"), args.value("--lun-depth", 0));
    let job = Job {
        runs,
        bare,
        ios,
        bytes,
        luns,
        lun_depth,
    };
    match args.device() {
        Device::Vfio(pci) => perf(pci, job),
        Device::VfioUser(pci) => perf(pci, job),
    }
}

fn perf<P: Pci>(pci: P, mut job: Job) -> Result<(), Failure> {
    let mut controller = Controller::new(pci, Options::default())?;
    let mut queue = controller.create_queue(&QueueConfig {
        entries: 256.min(u32::from(controller.info().cap.mqes()) + 1),
        ..QueueConfig::default()
    })?;
    if job.luns.is_empty() {
        job.luns = controller.luns().iter().map(|lun| lun.index).collect();
    }
    let (mut places, mut first) = (Vec::new(), None);
    for &lun in &job.luns {
        if job.lun_depth > 0 {
            controller.set_depth(lun, job.lun_depth)?;
        }
        let lun = controller.lun(lun)?;
        queue.open(lun)?;
        let blocks = (job.bytes >> lun.block_shift).max(1) as u64;
        first.get_or_insert(Reads::new(lun.index, blocks as u32, lun.blocks));
        places.push((lun.index, blocks as u32, (lun.blocks / blocks).max(1)));
    }
    for &(depth, batch) in &job.runs {
        let buffers = Buffer::pieces(controller.pci().alloc(depth * job.bytes)?, job.bytes);
        println!(
            "depth {depth}, {batch} a doorbell, {} bytes, LUNs {:?}: start",
            job.bytes, job.luns
        );
        let start = Instant::now();
        let (ios, errors) = match first {
            Some(reads) if job.bare => (bare(&mut queue, buffers, reads, job.ios)?, 0),
            _ => random(&mut queue, buffers, &places, batch, job.ios)?,
        };
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{ios} I/Os in {seconds:.3} s: {:.0} IOPS",
            ios as f64 / seconds
        );
        if errors > 0 {
            return fail(format!("{errors} of {ios} reads failed"));
        }
    }
    controller.delete_queue(queue, |_| ())?;
    controller.shutdown()?;
    Ok(())
}

/// The bare loop, until `ios` were read; gives how many were.
fn bare<P: Pci>(
    queue: &mut Queue<P>,
    mut buffers: Vec<Buffer<P::Memory>>,
    reads: Reads,
    ios: u64,
) -> Result<u64, Failure> {
    let depth = buffers.len() as u64;
    let rounds = ios.div_ceil(depth);
    let done = match (buffers.len(), buffers.pop()) {
        (1, Some(buffer)) => bare::one(queue, buffer, reads, rounds, || {}).map(drop),
        (_, last) => {
            buffers.extend(last);
            bare::rounds(queue, buffers, reads, rounds, || {}).map(drop)
        }
    };
    match done {
        Ok(()) => Ok(rounds * depth),
        Err(error) => fail(error.to_string()),
    }
}

/// Keeps the buffers in flight, at random places of the LUNs in turn, `batch` a doorbell. Returns I/Os and errors.
fn random<P: Pci>(
    queue: &mut Queue<P>,
    mut free: Vec<Buffer<P::Memory>>,
    places: &[Place],
    batch: usize,
    ios: u64,
) -> Result<(u64, u64), Failure> {
    let (mut next, mut done, mut errors, mut seed) = (0, 0, 0, 1u64);
    while done < ios {
        let some = batch.min((ios - next) as usize);
        if some > 0 && free.len() >= some {
            for buffer in free.drain(free.len() - some..) {
                let (lun, blocks, places) = places[next as usize % places.len()];
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let slba = seed % places * u64::from(blocks);
                queue
                    .read(lun, buffer, slba, blocks, next)
                    .map_err(|rejected| rejected.reason)?;
                next += 1;
            }
            queue.ring();
        }
        let got = queue.poll(|io| {
            errors += u64::from(!io.status.is_success());
            free.extend(io.buffer);
        })?;
        done += got as u64;
        if got == 0 {
            queue.wait(0);
        }
    }
    Ok((done, errors))
}
