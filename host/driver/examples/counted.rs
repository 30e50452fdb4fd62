//! What `make guest-bench` counts: reads from LUNs with one thread, polling; `perf` is the shorter one, to read.
//!
//! A batch is submitted with one doorbell when as many of the depth are free. `bare` is for counting instructions: depth
//! 1, then batches of 4, then of 32, all in flight before the first is reaped, blocks in order, no clock read between
//! the first I/O and the last. `--lun-depth` sets how many commands each LUN may execute at once; only a Weir card has that.

mod common;

use common::{Args, Failure, fail};
use std::mem::ManuallyDrop;
use std::time::Instant;
use weir_driver::backend::Device;
use weir_driver::nvme::Status;
use weir_driver::{Admin, Buffer, Completed, Controller, Op, Options, Pci, Queue, QueueConfig};

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
    let mut args = Args::new();
    let bare = args.flag("bare");
    let (depth, batch) = (args.value("--depth", 32)?, args.value("--batch", 1)?);
    if batch == 0 || batch > depth {
        return fail(format!("--batch {batch}: must be 1 to the depth, {depth}"));
    }
    let runs = if bare {
        vec![(1, 1), (4, 4), (32, 32)]
    } else {
        vec![(depth, batch)]
    };
    let (ios, bytes) = (args.value("--ios", 100_000)?, args.value("--bytes", 4096)?);
    let luns = args.value("--luns", String::new())?;
    let lun_depth = args.value("--lun-depth", 0)?;
    let luns = luns
        .split(',')
        .filter(|lun| !lun.is_empty())
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let job = Job {
        runs,
        bare,
        ios,
        bytes,
        luns,
        lun_depth,
    };
    match Device::open(&args.device(USAGE)?)? {
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
    let mut places = Vec::new();
    for &lun in &job.luns {
        if job.lun_depth > 0 {
            controller.set_depth(lun, job.lun_depth)?;
        }
        let lun = controller.lun(lun)?;
        queue.open(lun)?;
        let blocks = (job.bytes >> lun.block_shift).max(1) as u64;
        places.push((lun.index, blocks as u32, (lun.blocks / blocks).max(1)));
    }
    for &(depth, batch) in &job.runs {
        let buffers = Buffer::pieces(controller.pci().alloc(depth * job.bytes)?, job.bytes);
        println!(
            "depth {depth}, {batch} a doorbell, {} bytes, LUNs {:?}: start",
            job.bytes, job.luns
        );
        let start = Instant::now();
        let (ios, errors) = match (job.bare, places.first()) {
            (true, Some(&place)) => bare(&mut queue, buffers, place, job.ios)?,
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

/// Submits all buffers, rings once, reaps all, and again; ends with the first batch that makes up `ios`. Returns I/Os and
/// errors.
fn bare<P: Pci>(
    queue: &mut Queue<P>,
    mut free: Vec<Buffer<P::Memory>>,
    (lun, blocks, places): Place,
    ios: u64,
) -> Result<(u64, u64), Failure> {
    let end = places * u64::from(blocks);
    let (mut done, mut slba) = (0, 0);
    let mut next = || {
        let at = slba;
        slba = if at + u64::from(blocks) < end {
            at + u64::from(blocks)
        } else {
            0
        };
        (at, 0)
    };
    if free.len() == 1
        && let Some(mut buffer) = free.pop()
    {
        for _ in 0..ios {
            queue
                .read(lun, buffer, next().0, blocks, 0)
                .map_err(|rejected| rejected.reason)?;
            queue.ring();
            buffer = loop {
                match queue.poll_one()? {
                    None => {}
                    Some(Completed {
                        status: Status::SUCCESS,
                        buffer: Some(buffer),
                        ..
                    }) => break buffer,
                    Some(_) => return fail("a read failed"),
                }
            };
        }
        return Ok((ios, 0));
    }
    // Not dropped, but leaked when this fails: so that it may be in registers.
    let mut free = ManuallyDrop::new(free);
    while done < ios {
        let batch = free.len() as u32;
        let mut left = batch;
        queue.submit_all(lun, Op::Read, blocks, &mut free, &mut next)?;
        queue.ring();
        while left > 0 {
            let reaped = queue.reap(left, |io| match io.buffer {
                // There is always room: so the code has no growing and no panic in it.
                Some(buffer) if free.len() < free.capacity() => free.push(buffer),
                other => std::mem::forget(other),
            })?;
            if reaped.other.is_some() {
                return fail("a read failed");
            }
            left -= reaped.count;
        }
        done += u64::from(batch);
    }
    drop(ManuallyDrop::into_inner(free));
    Ok((done, 0))
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
