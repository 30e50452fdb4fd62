//! Reads 4 KiB at random from all LUNs with one thread, polling, and prints the rate. With a simulated card it is the
//! simulator's rate.

mod common;

use common::{Args, Failure, fail};
use std::time::Instant;
use weir_driver::backend::Device;
use weir_driver::{Buffer, Controller, Options, Pci, QueueConfig};

const BYTES: usize = 4096;

fn main() -> Result<(), Failure> {
    let mut args = Args::new("perf DEVICE [--depth N] [--batch N] [--ios N]");
    let (depth, batch) = (args.value("--depth", 32), args.value("--batch", 8));
    let ios = args.value("--ios", 10_000);
    if batch == 0 || batch > depth {
        args.wrong(format!("--batch {batch}: must be 1 to the depth, {depth}"));
    }
    match args.device() {
        Device::Vfio(pci) => perf(pci, depth, batch, ios),
        Device::VfioUser(pci) => {
            println!(
                "over vfio-user: what follows is the simulator's rate in real time, not a card's"
            );
            perf(pci, depth, batch, ios)
        }
    }
}

fn perf<P: Pci>(pci: P, depth: usize, batch: usize, ios: u64) -> Result<(), Failure> {
    let mut controller = Controller::new(pci, Options::default())?;
    let entries = 256.min(u32::from(controller.info().cap.mqes()) + 1);
    let mut queue = controller.create_queue(&QueueConfig {
        entries,
        ..QueueConfig::default()
    })?;
    // A ring holds an entry less than it has.
    let depth = depth.min(entries as usize - 1);
    let batch = batch.min(depth);
    let luns = controller.luns().to_vec();
    luns.iter().try_for_each(|lun| queue.open(lun))?;
    // As many buffers as reads are to be in flight: those in `free` are not.
    let mut free = Buffer::pieces(controller.pci().alloc(depth * BYTES)?, BYTES);
    let (mut next, mut done, mut errors, mut seed) = (0, 0, 0, 1u64);
    println!(
        "{depth} in flight, {batch} a doorbell, {} LUNs: start",
        luns.len()
    );
    let start = Instant::now();
    while done < ios {
        let some = batch.min((ios - next) as usize);
        if some > 0 && free.len() >= some {
            for buffer in free.drain(free.len() - some..) {
                let lun = &luns[next as usize % luns.len()];
                let blocks = BYTES as u64 >> lun.block_shift;
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let slba = (seed >> 33) % (lun.blocks / blocks) * blocks;
                queue
                    .read(lun.index, buffer, slba, blocks as u32, next)
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
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{ios} I/Os in {seconds:.3} s: {:.0} IOPS",
        ios as f64 / seconds
    );
    controller.delete_queue(queue, |_| ())?;
    controller.shutdown()?;
    match errors {
        0 => Ok(()),
        errors => fail(format!("{errors} of {ios} reads failed")),
    }
}
