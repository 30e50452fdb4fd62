//! Writes to all LUNs, reads back and compares, with several threads, first polling, then with interrupts; resets the
//! controller and does it again: `io DEVICE [THREADS [IOS]]`. **Overwrites the first blocks of every LUN.**
//!
//! Each thread has a queue of its own and a stripe of every LUN of its own. IOS is I/Os of a thread in each pass.

use std::error::Error;
use std::process::ExitCode;
use std::thread;
use weir_driver::backend::Device;
use weir_driver::{Buffer, Controller, Lun, Op, Options, Pci, Queue, QueueConfig};

const DEPTH: usize = 16;
const BYTES: usize = 16 << 10;
/// How long nothing may complete: simulated cards are slow.
const LIMIT_NS: u64 = 60_000_000_000;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    match open() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("io: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("usage: io DEVICE [THREADS [IOS]]")?;
    let mut number = |default| args.next().map_or(Ok(default), |text| text.parse());
    let (threads, ios) = (number(4)?, number(256)?);
    match Device::open(&name)? {
        Device::Vfio(pci) => io(pci, threads, ios as u64),
    }
}

fn io<P: Pci + Send>(pci: P, threads: usize, ios: u64) -> Result<(), Failure>
where
    P::Memory: Send + Sync,
{
    let vectors = pci.vectors();
    let mut controller = Controller::new(pci, Options::default())?;
    let luns = controller.luns().to_vec();
    let granted = usize::from(controller.info().submission_queues);
    for interrupts in [false, true] {
        // Vector 0 is the admin queue's.
        let most = if interrupts {
            usize::from(vectors).saturating_sub(1).min(granted)
        } else {
            granted
        };
        let threads = threads.min(most);
        if threads == 0 {
            println!("no interrupt vectors: only polling was tried");
            break;
        }
        let queue = |i: usize| {
            let vector = interrupts.then_some(i as u16 + 1);
            let config = QueueConfig {
                vector,
                ..QueueConfig::default()
            };
            let mut queue = controller.create_queue(&config)?;
            luns.iter().try_for_each(|lun| queue.open(lun))?;
            Ok(queue)
        };
        let mut queues = (0..threads)
            .map(queue)
            .collect::<Result<Vec<_>, Failure>>()?;
        for round in 0..2 {
            let luns = &luns;
            thread::scope(|scope| {
                let run = |(i, queue)| {
                    let pci = controller.pci().clone();
                    scope.spawn(move || worker(&pci, queue, luns, i as u64, ios, round))
                };
                let running: Vec<_> = queues.iter_mut().enumerate().map(run).collect();
                running
                    .into_iter()
                    .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
            })?;
            println!(
                "{}{}: {threads} threads wrote and read back {ios} I/Os each on {} LUNs, all right",
                if interrupts { "interrupts" } else { "polling" },
                ["", ", after a controller reset"][round as usize],
                luns.len()
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

/// Writes `ios` extents of up to 16 KiB, then reads and compares them, `DEPTH` at a time.
fn worker<P: Pci>(
    pci: &P,
    queue: &mut Queue<P>,
    luns: &[Lun],
    thread: u64,
    ios: u64,
    round: u64,
) -> Result<(), Failure> {
    let count = luns.len() as u64;
    let mut free = Buffer::pieces(pci.alloc(DEPTH * BYTES)?, BYTES);
    for op in [Op::Write, Op::Read] {
        let (mut next, mut done, mut deadline) = (0, 0, pci.now_ns() + LIMIT_NS);
        while done < ios {
            while next < ios
                && let Some(mut buffer) = free.pop()
            {
                let lun = &luns[(next % count) as usize];
                let most = (BYTES >> lun.block_shift) as u64;
                let slba = (thread * ios.div_ceil(count) + next / count) * most;
                if slba + most > lun.blocks {
                    return Err(
                        format!("LUN {} is too small for {ios} I/Os a thread", lun.index).into(),
                    );
                }
                let blocks = next % most + 1;
                buffer.with_mut(|bytes| {
                    fill(
                        bytes,
                        if op == Op::Write {
                            seed(thread, next, round)
                        } else {
                            !0
                        },
                    )
                });
                queue
                    .submit(lun.index, op, Some(buffer), slba, blocks as u32, next)
                    .map_err(|rejected| rejected.reason)?;
                next += 1;
            }
            queue.ring();
            let mut wrong = None;
            let got = queue.poll(|io| {
                let lun = &luns[(io.user % count) as usize];
                let bytes =
                    (io.user % (BYTES >> lun.block_shift) as u64 + 1) as usize * lun.block_size();
                if !io.status.is_success() {
                    wrong = Some(format!(
                        "{op:?} {} of LUN {}: {:?}",
                        io.user, io.lun, io.status
                    ));
                }
                free.extend(io.buffer.inspect(|buffer| {
                    let want = seed(thread, io.user, round);
                    if buffer.with(|data| !is_filled(&data[..bytes], want)) {
                        wrong.get_or_insert(format!(
                            "I/O {} of LUN {}: not the data written",
                            io.user, io.lun
                        ));
                    }
                }));
            })?;
            if let Some(wrong) = wrong {
                return Err(format!("thread {thread}: {wrong}").into());
            }
            done += got as u64;
            if got > 0 {
                deadline = pci.now_ns() + LIMIT_NS;
            } else if !queue.wait(deadline) || pci.now_ns() >= deadline {
                return Err(format!(
                    "thread {thread}: nothing completed within {} s",
                    LIMIT_NS / 1_000_000_000
                )
                .into());
            }
        }
    }
    Ok(())
}

fn seed(thread: u64, io: u64, round: u64) -> u64 {
    (thread << 48 | round << 40 | io).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

fn fill(bytes: &mut [u8], seed: u64) {
    for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&seed.wrapping_add(i as u64).to_le_bytes());
    }
}

fn is_filled(bytes: &[u8], seed: u64) -> bool {
    let mut words = bytes.chunks_exact(8).enumerate();
    words.all(|(i, word)| *word == seed.wrapping_add(i as u64).to_le_bytes())
}
