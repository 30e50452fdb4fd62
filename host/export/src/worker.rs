//! One worker: a thread, its driver queue, and the requests that come to it.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};

use weir_driver::nvme::Status;
use weir_driver::nvme::registers::{ALL_ONES, Csts, offset};
use weir_driver::{Buffer, Controller, Op, Outstanding, Pci, Queue, Verdict, Watch};

use crate::luns::lock;

/// Nothing has completed for so long: the commands in flight are late, and asked about.
const LATE_NS: u64 = 10_000_000_000;
/// So often in a row, and the controller is given up.
const INQUIRIES: u32 = 6;
/// Turns without a completion between two looks at the clock.
const TURNS: u32 = 1000;

/// A command for a worker.
pub(crate) struct Request<M> {
    pub(crate) lun: u32,
    pub(crate) op: Op,
    pub(crate) buffer: Option<Buffer<M>>,
    pub(crate) slba: u64,
    pub(crate) blocks: u32,
    /// Told back.
    pub(crate) at: usize,
    pub(crate) reply: Sender<Outcome<M>>,
}

/// What came of it.
pub(crate) struct Outcome<M> {
    pub(crate) at: usize,
    /// None for a flush, and when it stays with a device that is lost.
    pub(crate) buffer: Option<Buffer<M>>,
    /// Or why there is none.
    pub(crate) status: Result<Status, String>,
}

/// Where an outcome goes.
type Reply<P> = Sender<Outcome<<P as Pci>::Memory>>;

/// Serves `requests` until their senders are gone and all is answered. The queue, unless the controller was lost.
pub(crate) fn work<P: Pci>(
    pci: &P,
    controller: &Mutex<Option<Controller<P>>>,
    mut queue: Queue<P>,
    requests: &Receiver<Request<P::Memory>>,
) -> Option<Queue<P>> {
    let mut backlog = VecDeque::new();
    // Who waits for a command, by its number.
    let mut waiting = HashMap::<u64, (usize, Reply<P>)>::new();
    let (mut number, mut turns, mut inquiries) = (0u64, 0, 0);
    let (mut progress_ns, mut watch) = (pci.now_ns(), Watch::default());
    let lost = loop {
        if waiting.is_empty() && backlog.is_empty() {
            match requests.recv() {
                Ok(request) => backlog.push_back(request),
                Err(_) => return Some(queue),
            }
            (progress_ns, inquiries) = (pci.now_ns(), 0);
        }
        // Ended senders show when there is nothing left to do.
        while let Ok(request) = requests.try_recv() {
            backlog.push_back(request);
        }
        for _ in 0..backlog.len() {
            let Some(request) = backlog.pop_front() else {
                break;
            };
            if !queue.has_room(request.lun) {
                backlog.push_back(request);
                continue;
            }
            number += 1;
            let Request {
                lun,
                op,
                buffer,
                slba,
                blocks,
                at,
                reply,
            } = request;
            match queue.submit(lun, op, buffer, slba, blocks, number) {
                Ok(()) => _ = waiting.insert(number, (at, reply)),
                Err(rejected) => {
                    let status = Err(rejected.reason.to_string());
                    let buffer = rejected.buffer;
                    let _ = reply.send(Outcome { at, buffer, status });
                }
            }
        }
        queue.ring();
        let polled = queue.poll(|done| {
            if let Some((at, reply)) = waiting.remove(&done.user) {
                // A requester that has given up needs no answer.
                let _ = reply.send(Outcome {
                    at,
                    buffer: done.buffer,
                    status: Ok(done.status),
                });
            }
        });
        match polled {
            Err(error) => break error.to_string(),
            Ok(0) => {}
            Ok(_) => {
                (progress_ns, turns, inquiries) = (pci.now_ns(), 0, 0);
                continue;
            }
        }
        pci.relax();
        turns += 1;
        if turns < TURNS {
            continue;
        }
        turns = 0;
        let csts = pci.read32(offset::CSTS);
        if csts == ALL_ONES {
            break "its registers read all ones".to_owned();
        } else if Csts::from(csts).cfs() {
            break "it reports a fatal status (CSTS.CFS)".to_owned();
        } else if pci.now_ns() < progress_ns + LATE_NS {
            continue;
        }
        progress_ns = pci.now_ns();
        let late: Vec<Outstanding> = queue.outstanding().collect();
        match inquire(controller, &late, &mut watch) {
            Ok(true) => inquiries = 0,
            Ok(false) if inquiries + 1 < INQUIRIES => inquiries += 1,
            Ok(false) => break "commands neither complete nor can be aborted".to_owned(),
            Err(error) => break error,
        }
    };
    // The device may still use what is in flight: the queue keeps it, when it is dropped too.
    drop(queue);
    for (at, reply) in waiting.into_values() {
        let _ = reply.send(Outcome {
            at,
            buffer: None,
            status: Err(lost.clone()),
        });
    }
    let refuse = |request: Request<P::Memory>| {
        let _ = request.reply.send(Outcome {
            at: request.at,
            buffer: request.buffer,
            status: Err(lost.clone()),
        });
    };
    backlog.into_iter().for_each(refuse);
    requests.iter().for_each(refuse);
    None
}

/// Asks the controller about late commands, and aborts those that are stuck; true when any of them only waits its turn.
fn inquire<P: Pci>(
    controller: &Mutex<Option<Controller<P>>>,
    late: &[Outstanding],
    watch: &mut Watch,
) -> Result<bool, String> {
    let mut controller = lock(controller);
    let Some(controller) = controller.as_mut() else {
        return Ok(false);
    };
    let mut waits = false;
    for command in late {
        match controller.inquire(command, watch) {
            Ok(Verdict::Waiting(_)) => waits = true,
            Ok(Verdict::Aborted | Verdict::NotAborted) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(waits)
}
