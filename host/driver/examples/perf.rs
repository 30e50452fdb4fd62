//! Reads at random from LUNs with one thread, polling, and prints the rate:
//!
//!     perf DEVICE [--depth N] [--batch N] [--ios N] [--bytes N] [--luns 0,1,..]
//!     perf DEVICE bare [--ios N]
//!
//! A batch is submitted with one doorbell when that many of the depth are free. `bare` is for counting instructions:
//! depth 1, then batches of 4, then of 32, always all in flight before the first is reaped, LBAs in order, no clock read
//! between the first I/O and the last.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;
use weir_driver::backend::Device;
use weir_driver::{Admin, Buffer, Controller, Options, Pci, Queue, QueueConfig};

struct Args {
    bare: bool,
    depth: usize,
    batch: usize,
    ios: u64,
    bytes: usize,
    luns: Option<Vec<u32>>,
}

fn main() -> ExitCode {
    match open() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("perf: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let name = words.next().ok_or(
        "usage: perf DEVICE [bare] [--depth N] [--batch N] [--ios N] [--bytes N] [--luns 0,1,..]",
    )?;
    let mut args = Args {
        bare: false,
        depth: 32,
        batch: 1,
        ios: 100_000,
        bytes: 4096,
        luns: None,
    };
    while let Some(word) = words.next() {
        if word == "bare" {
            args.bare = true;
            continue;
        }
        let value = words
            .next()
            .ok_or_else(|| format!("{word}: a value must follow"))?;
        match word.as_str() {
            "--depth" => args.depth = value.parse()?,
            "--batch" => args.batch = value.parse()?,
            "--ios" => args.ios = value.parse()?,
            "--bytes" => args.bytes = value.parse()?,
            "--luns" => {
                args.luns = Some(value.split(',').map(str::parse).collect::<Result<_, _>>()?)
            }
            _ => return Err(format!("{word}: no such option").into()),
        }
    }
    if args.batch == 0 || args.batch > args.depth {
        return Err(format!(
            "--batch {}: must be 1 to the depth, {}",
            args.batch, args.depth
        )
        .into());
    }
    match Device::open(&name)? {
        Device::Vfio(pci) => perf(pci, &args),
    }
}

fn perf<P: Pci>(pci: P, args: &Args) -> Result<(), Box<dyn Error>> {
    let mut controller = Controller::new(pci, Options::default())?;
    let config = QueueConfig {
        entries: 256,
        ..QueueConfig::default()
    };
    let mut queue = controller.create_queue(&config)?;
    let all = || controller.luns().iter().map(|lun| lun.index).collect();
    let luns: Vec<u32> = args.luns.clone().unwrap_or_else(all);
    let mut sizes = Vec::new();
    for &lun in &luns {
        let lun = controller.lun(lun)?;
        queue.open(lun)?;
        let blocks = args.bytes >> lun.block_shift;
        sizes.push((lun.index, blocks as u32, lun.blocks / blocks.max(1) as u64));
    }
    let runs: &[(usize, usize)] = if args.bare {
        &[(1, 1), (4, 4), (32, 32)]
    } else {
        &[(args.depth, args.batch)]
    };
    for &(depth, batch) in runs {
        let memory = controller.pci().alloc(depth * args.bytes)?;
        let buffers = Buffer::pieces(memory, args.bytes);
        println!(
            "depth {depth}, {batch} a doorbell, {} bytes, LUNs {luns:?}: start",
            args.bytes
        );
        let start = Instant::now();
        let ios = if args.bare {
            bare(&mut queue, buffers, sizes[0], args.ios)?
        } else {
            random(&mut queue, buffers, &sizes, batch, args.ios)?
        };
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{ios} I/Os in {seconds:.3} s: {:.0} IOPS",
            ios as f64 / seconds
        );
    }
    controller.delete_queue(queue, |_| ())?;
    controller.shutdown()?;
    Ok(())
}

/// Submits all buffers, rings once, reaps all, and again; stops at the first batch that makes up `ios`.
fn bare<P: Pci>(
    queue: &mut Queue<P>,
    mut free: Vec<Buffer<P::Memory>>,
    lun: (u32, u32, u64),
    ios: u64,
) -> Result<u64, Box<dyn Error>> {
    let (lun, blocks, places) = lun;
    let (batch, mut done, mut errors, mut place) = (free.len(), 0, 0, 0);
    while done < ios {
        while let Some(buffer) = free.pop() {
            place = if place + 1 < places { place + 1 } else { 0 };
            queue
                .read(lun, buffer, place * u64::from(blocks), blocks, 0)
                .map_err(|r| r.reason)?;
        }
        queue.ring();
        let mut left = batch;
        while left > 0 {
            left -= queue.poll(|io| {
                errors += u64::from(!io.status.is_success());
                free.extend(io.buffer);
            })?;
        }
        done += batch as u64;
    }
    finish(done, errors)
}

/// Keeps the buffers in flight, at random places of the LUNs in turn, `batch` a doorbell.
fn random<P: Pci>(
    queue: &mut Queue<P>,
    mut free: Vec<Buffer<P::Memory>>,
    luns: &[(u32, u32, u64)],
    batch: usize,
    ios: u64,
) -> Result<u64, Box<dyn Error>> {
    let (mut next, mut done, mut errors, mut seed) = (0, 0, 0, 1u64);
    while done < ios {
        let some = batch.min((ios - next) as usize);
        if some > 0 && free.len() >= some {
            for buffer in free.drain(free.len() - some..) {
                let (lun, blocks, places) = luns[next as usize % luns.len()];
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                queue
                    .read(lun, buffer, seed % places * u64::from(blocks), blocks, next)
                    .map_err(|r| r.reason)?;
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
    finish(done, errors)
}

fn finish(done: u64, errors: u64) -> Result<u64, Box<dyn Error>> {
    match errors {
        0 => Ok(done),
        n => Err(format!("{n} of {done} reads failed").into()),
    }
}
