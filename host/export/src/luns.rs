//! [`Luns`]: requests from any thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use weir_driver::backend::{Device, DeviceError};
use weir_driver::nvme::log::LunStatistics;
use weir_driver::nvme::{Command, StatusCode};
use weir_driver::{Admin, Buffer, Controller, Error, Lun, Op, Options, Pci, Queue, QueueConfig};

use crate::worker::{Outcome, Request, work};

/// Commands of one request that are under way at once.
const WINDOW: usize = 8;
/// Entries of a queue at most.
const ENTRIES: u32 = 256;

/// Why a controller cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The controller cannot be brought up.
    #[error(transparent)]
    Driver(#[from] Error),
    /// Not every LUN has an entry in a queue.
    #[error("LUN {lun}: {source}")]
    Lun {
        /// The LUN.
        lun: u32,
        /// Why.
        source: weir_driver::OpenError,
    },
    /// It has none.
    #[error("the controller has no LUN")]
    NoLun,
    /// The system gives no thread.
    #[error("cannot start a worker: {0}")]
    Thread(std::io::Error),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// Offset or length is no multiple of a block, or lies past the LUN's end.
    #[error(
        "LUN {lun}: {len} bytes at {offset}: must be whole blocks of {block} inside its {bytes} bytes"
    )]
    Range {
        /// The LUN.
        lun: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: usize,
        /// Bytes of a block.
        block: usize,
        /// Bytes of the LUN.
        bytes: u64,
    },
    /// There is no such LUN.
    #[error("there is no LUN {0}")]
    NoLun(u32),
    /// The controller refused or failed the command.
    #[error("LUN {lun}: {op:?} failed: {code:?}")]
    Status {
        /// The LUN.
        lun: u32,
        /// What was to be done.
        op: Op,
        /// What the controller said.
        code: StatusCode,
    },
    /// No DMA memory.
    #[error("{0}")]
    Memory(String),
    /// The controller is gone, or does not answer.
    #[error("the controller is lost: {0}")]
    Lost(String),
}

/// LUNs that are open.
pub trait Luns: Send + Sync {
    /// The LUNs, in the order of their numbers.
    fn luns(&self) -> &[Lun];

    /// The most bytes one command moves.
    fn max_transfer(&self) -> usize;

    /// Reads `out.len()` bytes from byte `offset` on. Requests of the same `stream` use the same queue.
    fn read(&self, stream: usize, lun: u32, offset: u64, out: &mut [u8]) -> Result<(), IoError>;

    /// Writes `data` from byte `offset` on. Done when the controller has it; durable after a [`flush`](Luns::flush).
    fn write(&self, stream: usize, lun: u32, offset: u64, data: &[u8]) -> Result<(), IoError>;

    /// Makes durable what was written to the LUN before.
    fn flush(&self, stream: usize, lun: u32) -> Result<(), IoError>;

    /// Executes an admin command, as [`Admin::execute`] does.
    fn admin(&self, name: &'static str, command: Command, data: &mut [u8]) -> Result<u32, Error>;

    /// What the card did for each LUN since it was opened; none when it is no Weir card, or lost.
    fn statistics(&self) -> Vec<(u32, LunStatistics)>;
}

/// Opens the device of this name (see [`Device`]) and all its LUNs.
pub fn open(device: &str) -> Result<Arc<dyn Luns>, OpenError> {
    match Device::open(device)? {
        Device::Vfio(pci) => Ok(Arc::new(Pool::new(pci)?)),
        Device::VfioUser(pci) => Ok(Arc::new(Pool::new(pci)?)),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker: where its requests go, and its thread, which gives the queue back.
struct Worker<P: Pci> {
    requests: Option<Sender<Request<P::Memory>>>,
    thread: Option<JoinHandle<Option<Queue<P>>>>,
}

struct Pool<P: Pci> {
    /// A handle is for one thread at a time.
    pci: Mutex<P>,
    luns: Vec<Lun>,
    max_transfer: usize,
    workers: Vec<Worker<P>>,
    /// Buffers of `max_transfer` bytes that nobody uses.
    free: Mutex<Vec<Buffer<P::Memory>>>,
    /// Taken when it is shut down.
    controller: Arc<Mutex<Option<Controller<P>>>>,
}

impl<P> Pool<P>
where
    P: Pci + Send + 'static,
    P::Memory: Send + Sync,
{
    fn new(pci: P) -> Result<Self, OpenError> {
        let mut controller = Controller::new(pci.clone(), Options::default())?;
        let luns = controller.luns().to_vec();
        if luns.is_empty() {
            return Err(OpenError::NoLun);
        }
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let count = cpus
            .min(usize::from(controller.info().submission_queues))
            .max(1);
        let entries = ENTRIES.min(u32::from(controller.info().cap.mqes()) + 1);
        let mut queues = Vec::new();
        for _ in 0..count {
            let config = QueueConfig {
                entries,
                ..QueueConfig::default()
            };
            let mut queue = controller.create_queue(&config)?;
            for lun in &luns {
                let opened = queue.open(lun);
                opened.map_err(|source| OpenError::Lun {
                    lun: lun.index,
                    source,
                })?;
            }
            queues.push(queue);
        }
        let max_transfer = queues[0].max_transfer();
        let controller = Arc::new(Mutex::new(Some(controller)));
        let mut workers = Vec::new();
        for queue in queues {
            let (requests, receiver): (_, Receiver<Request<P::Memory>>) = channel();
            let (pci, controller) = (pci.clone(), controller.clone());
            let run = move || work(&pci, &controller, queue, &receiver);
            let thread = thread::Builder::new()
                .name("weir-queue".to_owned())
                .spawn(run);
            workers.push(Worker {
                requests: Some(requests),
                thread: Some(thread.map_err(OpenError::Thread)?),
            });
        }
        Ok(Pool {
            pci: Mutex::new(pci),
            luns,
            max_transfer,
            workers,
            free: Mutex::default(),
            controller,
        })
    }
}

impl<P: Pci> Pool<P> {
    fn lun(&self, lun: u32) -> Result<&Lun, IoError> {
        let found = self.luns.iter().find(|l| l.index == lun);
        found.ok_or(IoError::NoLun(lun))
    }

    fn range(&self, lun: u32, offset: u64, len: usize) -> Result<&Lun, IoError> {
        let found = self.lun(lun)?;
        let block = found.block_size();
        let end = offset.checked_add(len as u64);
        let whole = offset.is_multiple_of(block as u64) && len.is_multiple_of(block);
        if !whole || end.is_none_or(|end| end > found.bytes()) {
            return Err(IoError::Range {
                lun,
                offset,
                len,
                block,
                bytes: found.bytes(),
            });
        }
        Ok(found)
    }

    fn buffer(&self) -> Result<Buffer<P::Memory>, IoError> {
        if let Some(buffer) = lock(&self.free).pop() {
            return Ok(buffer);
        }
        let memory = lock(&self.pci).alloc(self.max_transfer);
        memory
            .map(Buffer::new)
            .map_err(|error| IoError::Memory(error.to_string()))
    }

    /// Cuts `len` bytes into commands; `before` fills a command's buffer and `after` takes from it, each with the byte it
    /// begins at and its length.
    fn transfer(
        &self,
        stream: usize,
        op: Op,
        lun: &Lun,
        (offset, len): (u64, usize),
        mut before: impl FnMut(&mut [u8], usize),
        mut after: impl FnMut(&[u8], usize),
    ) -> Result<(), IoError> {
        let (reply, replies) = channel();
        let (mut sent, mut under_way, mut result) = (0, 0, Ok(()));
        while (sent < len && result.is_ok()) || under_way > 0 {
            if sent < len && result.is_ok() && under_way < WINDOW {
                let bytes = self.max_transfer.min(len - sent);
                match self.buffer() {
                    Ok(mut buffer) => {
                        buffer.with_mut(|to| before(&mut to[..bytes], sent));
                        self.send(
                            stream,
                            Request {
                                lun: lun.index,
                                op,
                                buffer: Some(buffer),
                                slba: (offset + sent as u64) >> lun.block_shift,
                                blocks: (bytes >> lun.block_shift) as u32,
                                at: sent,
                                reply: reply.clone(),
                            },
                        )?;
                        sent += bytes;
                        under_way += 1;
                    }
                    Err(error) => result = Err(error),
                }
                continue;
            }
            let Ok(Outcome { at, buffer, status }) = replies.recv() else {
                return Err(lost());
            };
            under_way -= 1;
            let status = status.map_err(IoError::Lost).and_then(|status| {
                if status.is_success() {
                    return Ok(());
                }
                Err(IoError::Status {
                    lun: lun.index,
                    op,
                    code: status.code(),
                })
            });
            if let Some(buffer) = buffer {
                if status.is_ok() {
                    buffer.with(|from| after(&from[..self.max_transfer.min(len - at)], at));
                }
                lock(&self.free).push(buffer);
            }
            result = result.and(status);
        }
        result
    }

    fn send(&self, stream: usize, request: Request<P::Memory>) -> Result<(), IoError> {
        let worker = &self.workers[stream % self.workers.len()];
        let requests = worker.requests.as_ref().ok_or_else(lost)?;
        requests.send(request).map_err(|_| lost())
    }
}

fn lost() -> IoError {
    IoError::Lost("its worker has ended".to_owned())
}

impl<P> Luns for Pool<P>
where
    P: Pci + Send + 'static,
    P::Memory: Send + Sync,
{
    fn luns(&self) -> &[Lun] {
        &self.luns
    }

    fn max_transfer(&self) -> usize {
        self.max_transfer
    }

    fn read(&self, stream: usize, lun: u32, offset: u64, out: &mut [u8]) -> Result<(), IoError> {
        let (found, len) = (self.range(lun, offset, out.len())?, out.len());
        let after = |from: &[u8], at: usize| out[at..at + from.len()].copy_from_slice(from);
        self.transfer(stream, Op::Read, found, (offset, len), |_, _| (), after)
    }

    fn write(&self, stream: usize, lun: u32, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let found = self.range(lun, offset, data.len())?;
        let before = |to: &mut [u8], at: usize| to.copy_from_slice(&data[at..at + to.len()]);
        self.transfer(
            stream,
            Op::Write,
            found,
            (offset, data.len()),
            before,
            |_, _| (),
        )
    }

    fn flush(&self, stream: usize, lun: u32) -> Result<(), IoError> {
        self.lun(lun)?;
        let (reply, replies) = channel();
        self.send(
            stream,
            Request {
                lun,
                op: Op::Flush,
                buffer: None,
                slba: 0,
                blocks: 0,
                at: 0,
                reply,
            },
        )?;
        let outcome = replies.recv().map_err(|_| lost())?;
        match outcome.status {
            Ok(status) if status.is_success() => Ok(()),
            Ok(status) => Err(IoError::Status {
                lun,
                op: Op::Flush,
                code: status.code(),
            }),
            Err(reason) => Err(IoError::Lost(reason)),
        }
    }

    fn admin(&self, name: &'static str, command: Command, data: &mut [u8]) -> Result<u32, Error> {
        match lock(&self.controller).as_mut() {
            Some(controller) => controller.execute(name, command, data),
            None => Err(Error::Disabled),
        }
    }

    fn statistics(&self) -> Vec<(u32, LunStatistics)> {
        let mut controller = lock(&self.controller);
        let Some(controller) = controller.as_mut().filter(|c| c.is_weir()) else {
            return Vec::new();
        };
        let read = |lun: &Lun| Some((lun.index, controller.lun_statistics(lun.index).ok()?));
        self.luns.iter().map_while(read).collect()
    }
}

impl<P: Pci> Drop for Pool<P> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.requests = None;
        }
        let threads = self
            .workers
            .iter_mut()
            .filter_map(|worker| worker.thread.take());
        let queues: Vec<Queue<P>> = threads
            .filter_map(|thread| thread.join().ok().flatten())
            .collect();
        let Some(mut controller) = lock(&self.controller).take() else {
            return;
        };
        // A controller that is lost answers none of this, and needs not to.
        for queue in queues {
            let _ = controller.delete_queue(queue, |_| ());
        }
        let _ = controller.shutdown();
    }
}
