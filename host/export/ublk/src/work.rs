//! One CPU's thread: requests of all devices from its [`Ring`] to its driver queue, and their completions back.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::yield_now;
use std::time::Duration;

use rustix::io::Errno;
use weir_driver::nvme::{Status, StatusCode};
use weir_driver::{Buffer, Controller, Op, Pci, Queue};
use weir_export::Health;

use crate::ring::{Place, Port, Ring};
use crate::uapi;

/// Turns that find nothing before the thread sleeps between two looks at the completion queue: some 100 us.
const TURNS: u32 = 100;
/// How long it sleeps then. A new request ends it.
const SLEEP: Duration = Duration::from_micros(50);
/// Sleeps without a completion between two looks at the controller.
const SLEEPS: u32 = 1000;

/// What a thread tells.
pub enum Event {
    /// Every tag of its hardware queues is fetched.
    Ready,
    /// The controller is gone, or does not answer, or the thread cannot go on: everything fails from now on.
    Lost(String),
}

/// One LUN's hardware queue of this CPU.
pub struct Lane<P: Pci> {
    pub lun: u32,
    /// log2 of 512-byte sectors in a block.
    pub sector_shift: u8,
    pub port: Port,
    /// Each tag's; none while it is with the driver.
    pub buffers: Vec<Option<Buffer<P::Memory>>>,
}

/// Requests of a LUN that wait for room in the driver queue, and what is as in [`Lane`].
struct Tags<P: Pci> {
    lun: u32,
    sector_shift: u8,
    buffers: Vec<Option<Buffer<P::Memory>>>,
    waiting: VecDeque<u16>,
}

/// What the threads share. Read only, but when the controller is lost.
pub struct Shared<P: Pci> {
    /// None when it was shut down.
    pub controller: Mutex<Option<Controller<P>>>,
    pub lost: AtomicBool,
}

struct Worker<P: Pci> {
    queue: Queue<P>,
    ring: Ring,
    tags: Vec<Tags<P>>,
    /// The controller is lost: every request fails.
    lost: bool,
}

/// Serves until every device is stopped. The queue, unless the controller was lost.
pub fn work<P: Pci>(
    pci: &P,
    shared: &Shared<P>,
    queue: Queue<P>,
    lanes: Vec<Lane<P>>,
    events: &Sender<Event>,
) -> Option<Queue<P>> {
    let (mut tags, mut ports) = (Vec::new(), Vec::new());
    for lane in lanes {
        ports.push(lane.port);
        tags.push(Tags {
            lun: lane.lun,
            sector_shift: lane.sector_shift,
            buffers: lane.buffers,
            waiting: VecDeque::new(),
        });
    }
    let ring = match Ring::new(ports) {
        Ok(ring) => ring,
        Err(error) => {
            let _ = events.send(Event::Lost(format!("io_uring: {error}")));
            return Some(queue);
        }
    };
    let _ = events.send(Event::Ready);
    let mut worker = Worker {
        queue,
        ring,
        tags,
        lost: false,
    };
    match worker.serve(pci, shared) {
        Ok(()) => return Some(worker.queue),
        Err(reason) => {
            shared.lost.store(true, Ordering::Relaxed);
            let _ = events.send(Event::Lost(reason));
        }
    }
    // The device may still use what is in flight, so the queue keeps that for ever.
    worker.lost = true;
    let in_flight: Vec<u64> = worker.queue.outstanding().map(|each| each.user).collect();
    for place in in_flight {
        worker.fail(Place(place));
    }
    for port in 0..worker.tags.len() {
        while let Some(tag) = worker.tags[port].waiting.pop_front() {
            worker.fail(Place::new(port, tag));
        }
    }
    loop {
        while let Some((place, requested)) = worker.ring.next() {
            if requested {
                worker.fail(place);
            }
        }
        if worker.ring.fetched() == 0 {
            return None;
        }
        if worker.ring.wait(None).is_err() {
            // Some tags' buffers are still the kernel's.
            std::mem::forget(worker);
            return None;
        }
    }
}

impl<P: Pci> Worker<P> {
    /// Until every device is stopped; an error says why the controller is lost.
    fn serve(&mut self, pci: &P, shared: &Shared<P>) -> Result<(), String> {
        let io = |error| format!("io_uring: {error}");
        let mut health = Health::new(pci);
        // Since when something was found: turns, and sleeps; and whether health knows.
        let (mut turns, mut sleeps, mut told) = (0, 0, true);
        loop {
            let mut found = false;
            while let Some((place, requested)) = self.ring.next() {
                found = true;
                if requested {
                    self.start(place);
                }
            }
            self.queue.ring();
            if self.complete()? {
                (found, told) = (true, false);
                (turns, sleeps) = (0, 0);
                self.resume();
            }
            if found {
                self.ring.submit().map_err(io)?;
                continue;
            }
            if self.queue.is_empty() {
                if self.ring.fetched() == 0 {
                    return Ok(());
                }
                self.ring.wait(None).map_err(io)?;
                told = false;
            } else if turns < TURNS {
                turns += 1;
                // Whose requests they are may want this CPU.
                yield_now();
            } else {
                self.ring.wait(Some(SLEEP)).map_err(io)?;
                sleeps += 1;
                if sleeps < SLEEPS {
                    continue;
                }
                sleeps = 0;
                if !std::mem::replace(&mut told, true) {
                    health.progress(pci);
                }
                if shared.lost.load(Ordering::Relaxed) {
                    return Err("another queue found it lost".to_owned());
                }
                health.check(pci, &shared.controller, &self.queue)?;
            }
        }
    }

    /// Takes completions; false when there were none.
    fn complete(&mut self) -> Result<bool, String> {
        let (ring, tags) = (&mut self.ring, &mut self.tags);
        let polled = self.queue.poll(|done| {
            let place = Place(done.user);
            let result = match done.status.is_success() {
                true => moved(&ring.request(place)),
                false => -errno(done.status).raw_os_error(),
            };
            if done.buffer.is_some() {
                tags[place.port()].buffers[usize::from(place.tag())] = done.buffer;
            }
            ring.commit(place, result);
        });
        Ok(polled.map_err(|error| error.to_string())? > 0)
    }

    /// Submits what waits for room, as far as there is some now.
    fn resume(&mut self) {
        for port in 0..self.tags.len() {
            while self.tags[port].waiting.front().is_some()
                && self.queue.has_room(self.tags[port].lun)
            {
                let tag = self.tags[port].waiting.pop_front();
                self.submit(Place::new(port, tag.expect("seen above")));
            }
        }
    }

    /// A new request.
    fn start(&mut self, place: Place) {
        let tags = &mut self.tags[place.port()];
        if tags.waiting.is_empty() && self.queue.has_room(tags.lun) {
            self.submit(place);
        } else {
            tags.waiting.push_back(place.tag());
        }
    }

    /// A request for which there is room.
    fn submit(&mut self, place: Place) {
        let request = self.ring.request(place);
        let tags = &mut self.tags[place.port()];
        let op = match request.op_flags as u8 {
            uapi::OP_READ => Op::Read,
            uapi::OP_WRITE => Op::Write,
            uapi::OP_FLUSH => Op::Flush,
            _ => return self.ring.commit(place, -Errno::OPNOTSUPP.raw_os_error()),
        };
        let buffer = &mut tags.buffers[usize::from(place.tag())];
        let data = if op == Op::Flush { None } else { buffer.take() };
        let (slba, blocks) = (
            request.start_sector >> tags.sector_shift,
            request.nr_sectors >> tags.sector_shift,
        );
        if let Err(rejected) = self.queue.submit(tags.lun, op, data, slba, blocks, place.0) {
            *buffer = rejected.buffer.or(buffer.take());
            self.fail(place);
        }
    }

    fn fail(&mut self, place: Place) {
        self.ring.commit(place, -Errno::IO.raw_os_error());
    }
}

/// What a request that was done has moved, bytes.
fn moved(request: &uapi::IoDesc) -> i32 {
    match request.op_flags as u8 {
        uapi::OP_FLUSH => 0,
        _ => (request.nr_sectors << 9) as i32,
    }
}

/// What Linux tells whose request it was; as its own nvme driver.
fn errno(status: Status) -> Errno {
    match status.code() {
        StatusCode::CAPACITY_EXCEEDED => Errno::NOSPC,
        StatusCode::INVALID_OPCODE => Errno::OPNOTSUPP,
        StatusCode::INVALID_FIELD | StatusCode::LBA_OUT_OF_RANGE => Errno::REMOTEIO,
        StatusCode::WRITE_FAULT | StatusCode::UNRECOVERED_READ_ERROR => Errno::NODATA,
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_an_errno_and_a_request_its_bytes() {
        assert_eq!(
            errno(StatusCode::UNRECOVERED_READ_ERROR.into()),
            Errno::NODATA
        );
        assert_eq!(errno(StatusCode::LBA_OUT_OF_RANGE.into()), Errno::REMOTEIO);
        assert_eq!(errno(StatusCode::INTERNAL_ERROR.into()), Errno::IO);
        let request = |op: u8, nr_sectors| uapi::IoDesc {
            op_flags: 0x2000 | u32::from(op),
            nr_sectors,
            ..uapi::IoDesc::default()
        };
        assert_eq!(moved(&request(uapi::OP_WRITE, 9)), 4608);
        assert_eq!(moved(&request(uapi::OP_FLUSH, 9)), 0);
        let place = Place::new(31, 4095);
        assert_eq!((place.port(), place.tag()), (31, 4095));
    }
}
