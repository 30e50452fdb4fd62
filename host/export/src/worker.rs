//! One worker: a thread, its driver queue, and the requests that come to it.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};

use weir_driver::nvme::Status;
use weir_driver::{Buffer, Controller, Op, Pci, Queue};

use crate::health::Health;

/// Turns without a completion between two looks at the controller.
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
    let (mut number, mut turns) = (0u64, 0);
    let mut health = Health::new(pci);
    let lost = loop {
        if waiting.is_empty() && backlog.is_empty() {
            match requests.recv() {
                Ok(request) => backlog.push_back(request),
                Err(_) => return Some(queue),
            }
            health.progress(pci);
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
                turns = 0;
                health.progress(pci);
                continue;
            }
        }
        pci.relax();
        turns += 1;
        if turns < TURNS {
            continue;
        }
        turns = 0;
        if let Err(reason) = health.check(pci, controller, &queue) {
            break reason;
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
