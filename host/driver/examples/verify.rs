//! Writes to all LUNs, reads back and compares, with several threads, first polling, then with interrupts; each with a
//! controller reset in the middle. **Overwrites the first blocks of every LUN.**
//!
//! A thread has a queue of its own, and a stripe of every LUN. `--ios` is a thread's, in each pass.

mod common;

use common::{Args, Failure, fail};
use std::thread;
use weir_driver::backend::Device;
use weir_driver::nvme::registers::{ALL_ONES, offset};
use weir_driver::{Buffer, Controller, Lun, Op, Options, Pci, Queue, QueueConfig};

const DEPTH: usize = 16;
const BYTES: usize = 16 << 10;
/// How many seconds nothing may complete: simulated cards are slow.
const PATIENCE: u32 = 60;
const SECOND_NS: u64 = 1_000_000_000;

fn main() -> Result<(), Failure> {
    let mut args = Args::new("verify DEVICE [--threads N] [--ios N]");
    let threads = args.value("--threads", 4);
    let ios = args.value("--ios", 256);
    match args.device() {
        Device::Vfio(pci) => io(pci, threads, ios),
        Device::VfioUser(pci) => io(pci, threads, ios),
    }
}

fn io<P: Pci + Send>(pci: P, threads: u16, ios: u64) -> Result<(), Failure>
where
    P::Memory: Send + Sync,
{
    // Vector 0 is the admin queue's.
    let vectors = pci.vectors().saturating_sub(1);
    let mut controller = Controller::new(pci, Options::default())?;
    let luns = controller.luns().to_vec();
    let threads = threads.min(controller.info().submission_queues);
    for (interrupts, threads) in [(false, threads), (true, threads.min(vectors))] {
        let mut queues = Vec::new();
        for i in 0..threads {
            let vector = interrupts.then_some(i + 1);
            let most = u32::from(controller.info().cap.mqes()) + 1;
            let config = QueueConfig {
                entries: most.min(64),
                vector,
                ..QueueConfig::default()
            };
            let mut queue = controller.create_queue(&config)?;
            luns.iter().try_for_each(|lun| queue.open(lun))?;
            queues.push(queue);
        }
        for round in 0..2 {
            thread::scope(|scope| {
                let running = queues.iter_mut().zip(0..).map(|(queue, i)| {
                    let (pci, luns) = (controller.pci().clone(), &luns);
                    scope.spawn(move || {
                        let mut free = Buffer::pieces(pci.alloc(DEPTH * BYTES)?, BYTES);
                        for op in [Op::Write, Op::Read] {
                            pass(&pci, queue, luns, &mut free, op, ios, i << 48 | round << 40)?;
                        }
                        Ok(())
                    })
                });
                let running: Vec<_> = running.collect();
                let mut results = running.into_iter().map(|thread| thread.join());
                results.try_for_each(|result| result.unwrap_or_else(|_| fail("a thread panicked")))
            })?;
            let how = if interrupts { "interrupts" } else { "polling" };
            let when = ["", ", after a controller reset"][round as usize];
            let count = luns.len();
            println!(
                "{how}{when}: {threads} threads wrote and read back {ios} I/Os each on {count} LUNs, all right"
            );
            if round == 0 {
                controller.reset(&mut queues, |_| ())?;
            }
        }
        for queue in queues {
            controller.delete_queue(queue, |_| ())?;
        }
    }
    controller.shutdown()?;
    Ok(())
}

/// `ios` writes, or reads that are compared, `DEPTH` at a time; `seed` makes the data, its top bits are the stripe.
fn pass<P: Pci>(
    pci: &P,
    queue: &mut Queue<P>,
    luns: &[Lun],
    free: &mut Vec<Buffer<P::Memory>>,
    op: Op,
    ios: u64,
    seed: u64,
) -> Result<(), Failure> {
    let count = luns.len() as u64;
    let (mut next, mut done) = (0, 0);
    let (mut look, mut idle) = (pci.now_ns() + SECOND_NS, 0);
    // What an I/O's number means: LUN, first block, blocks.
    let place = |io: u64| {
        let lun = &luns[(io % count) as usize];
        let most = (BYTES >> lun.block_shift) as u64;
        let stripe = (seed >> 48) * ios.div_ceil(count);
        (lun, (stripe + io / count) * most, (io % most + 1) as u32)
    };
    while done < ios {
        while next < ios
            && queue.has_room(place(next).0.index)
            && let Some(mut buffer) = free.pop()
        {
            let (lun, slba, blocks) = place(next);
            buffer.with_mut(|bytes| fill(bytes, if op == Op::Write { seed | next } else { !0 }));
            let submitted = queue.submit(lun.index, op, Some(buffer), slba, blocks, next);
            submitted.map_err(|rejected| rejected.reason)?;
            next += 1;
        }
        queue.ring();
        let mut wrong = None;
        let got = queue.poll(|io| {
            let (lun, _, blocks) = place(io.user);
            let len = blocks as usize * lun.block_size();
            let same =
                |buffer: &Buffer<_>| buffer.with(|bytes| is_filled(&bytes[..len], seed | io.user));
            if !io.status.is_success() || !io.buffer.as_ref().is_some_and(same) {
                wrong = Some(format!(
                    "{op:?} {} of LUN {}: {:?}, or other data",
                    io.user, io.lun, io.status
                ));
            }
            free.extend(io.buffer);
        })?;
        if let Some(wrong) = wrong {
            return fail(wrong);
        }
        done += got as u64;
        if got > 0 {
            (look, idle) = (pci.now_ns() + SECOND_NS, 0);
        } else if !queue.wait(look) || pci.now_ns() >= look {
            (look, idle) = (pci.now_ns() + SECOND_NS, idle + 1);
            if pci.read32(offset::CSTS) == ALL_ONES {
                return fail("CSTS reads all ones: the device is gone");
            } else if idle == PATIENCE {
                return fail(format!("nothing completed within {PATIENCE} s"));
            }
        }
    }
    Ok(())
}

fn word(seed: u64, i: usize) -> [u8; 8] {
    let mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed.wrapping_add(i as u64).to_le_bytes()
}

fn fill(bytes: &mut [u8], seed: u64) {
    let words = bytes.chunks_exact_mut(8).enumerate();
    words.for_each(|(i, to)| to.copy_from_slice(&word(seed, i)));
}

fn is_filled(bytes: &[u8], seed: u64) -> bool {
    let mut words = bytes.chunks_exact(8).enumerate();
    words.all(|(i, is)| *is == word(seed, i))
}
