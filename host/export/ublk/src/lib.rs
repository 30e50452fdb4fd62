//! LUNs as Linux block devices: `/dev/ublkb0` and on, each with a hardware queue a CPU, by Linux's ublk driver.
//!
//! ```text
//! modprobe ublk_drv
//! weir bind 0000:01:00.0
//! weir export ublk --device 0000:01:00.0        # or vfio-user:PATH; --lun N for some of its LUNs
//! ```
//!
//! # Architecture
//! ```text
//!   programs, file systems ─► blk-mq ─► hardware queue c of /dev/ublkb0, 1, ... ─► one io_uring ─┐
//!                                                                                  thread c      │
//!                                        controller ◄── driver queue c ◄──────────────────────────┘
//! ```
//! * A thread a CPU serves that CPU's hardware queue of every device, over one driver queue on which all LUNs are open.
//!   Nothing is shared between threads while I/O runs: no lock, no counter.
//! * A tag has a buffer of DMA memory, and that is where the kernel copies a write's data to and a read's from: the
//!   copy that ublk makes is the only one.
//! * While nothing is in flight a thread sleeps in its ring. While something is, it looks at the completion queue and
//!   at the ring in turns, giving its CPU away in between; after some 100 us of that it looks every 50 us. Interrupts of
//!   the controller are not used: one costs the host more than the looks it would save.
//! * Flushes go to the controller. The devices announce a volatile cache, so that Linux sends them, and no FUA, which
//!   Linux then makes of a write and a flush. A Weir card has no volatile cache; a flush costs it 5 cycles.
//! * Requests that find the driver queue full wait, each LUN's in order, and every LUN has an entry of its own.
//! * When the controller is lost every request fails with EIO, and [`Export::lost`] says why.
//!
//! | file | what |
//! |---|---|
//! | `uapi.rs` | Linux's ublk_cmd.h |
//! | `control.rs` | devices are made and deleted, through /dev/ublk-control |
//! | `ring.rs` | requests, through a device's /dev/ublkcN |
//! | `work.rs` | the thread |
//!
//! The crate `libublk` would do the first three, but wants libclang wherever it is built, and one thread a device and
//! queue: docs/decisions/0008-ublk-without-libublk.md.
//!
//! # A server that is killed
//! Its devices stay, and their requests wait. The next export of the same controller (told by its name, which the kernel
//! keeps with the device, as a hash, with the LUN) takes them back, with the hardware queues and tags they have: what the dead
//! one had under way is issued again, which for reads, writes and flushes does no harm. So what is mounted lives on.
//! [`remove_dead`] gives them up instead, with errors for whoever uses them.
//!
//! # What it leaves out
//! Discard and write zeroes, which the card has not yet; zero copy, which needs pages that the device may reach.
//!
//! # Key constants
//! * logical block: the LUN's, at most 4096 bytes; physical block: 4096
//! * transfer: up to MDTS; tags: as many as 128 MiB of buffers allow, 4 to 128 a LUN and CPU
#![deny(unsafe_code)]

mod control;
mod ring;
mod uapi;
mod work;

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use weir_driver::backend::{Device, DeviceError};
use weir_driver::{Admin, Buffer, Controller, Lun, Options, Pci, Queue, QueueConfig};

use weir_export::{Control as ControlSocket, Execute};

use crate::control::{Control, Node, Owner, left};
use crate::ring::Port;
use crate::uapi::Params;
use crate::work::{Event, Lane, Shared, work};

/// Entries of a driver queue at most.
const ENTRIES: u32 = 256;
/// Bytes of all buffers, when the number of tags is not given.
const MEMORY: usize = 128 << 20;
/// The largest block that Linux takes.
const MAX_BLOCK_SHIFT: u8 = 12;

/// What to export, and how.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The LUNs; all when there is none.
    pub luns: Vec<u32>,
    /// Hardware queues of each device; a CPU each when not given, or as many as the controller has queues.
    pub queues: Option<u16>,
    /// Tags of a hardware queue, 1 to 4096.
    pub depth: Option<u16>,
    /// Where others may look at the controller and set depths meanwhile, see [`ControlSocket`]; nowhere when not given.
    pub control: Option<PathBuf>,
}

/// Why LUNs cannot be exported, or not orderly be taken back.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no ublk.
    #[error(
        "{} is not there: load Linux's ublk driver with `modprobe ublk_drv` (Linux 6.4 or later, CONFIG_BLK_DEV_UBLK)",
        uapi::CONTROL
    )]
    NoDriver,
    /// Only root may.
    #[error(
        "no permission to make block devices through {}: run as root",
        uapi::CONTROL
    )]
    Permission,
    /// A device file cannot be opened.
    #[error("cannot open {}: {source}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// io_uring is not to be had.
    #[error("io_uring: {0}; see the sysctl kernel.io_uring_disabled")]
    Ring(io::Error),
    /// The ublk driver refused.
    #[error("the ublk driver does not {what}: {source}")]
    Control {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The ublk driver gave other queues than were asked for.
    #[error(
        "the ublk driver gives {queues} hardware queues of {depth} tags, not what was asked for"
    )]
    Granted {
        /// Hardware queues.
        queues: u16,
        /// Tags of each.
        depth: u16,
    },
    /// The controller cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The controller cannot be brought up, or does not do as it is told.
    #[error(transparent)]
    Driver(#[from] weir_driver::Error),
    /// There is no such LUN.
    #[error("there is no LUN {lun}: the controller has {have}")]
    NoLun {
        /// Asked for.
        lun: u32,
        /// Those that are there.
        have: String,
    },
    /// Its blocks are too large for Linux.
    #[error("LUN {lun} has blocks of {bytes} bytes: a Linux block device has 512 to 4096")]
    Block {
        /// The LUN.
        lun: u32,
        /// Bytes of a block.
        bytes: usize,
    },
    /// Not every LUN has an entry in a driver queue.
    #[error("LUN {lun}: {source}")]
    Entries {
        /// The LUN.
        lun: u32,
        /// Why.
        source: weir_driver::OpenError,
    },
    /// More queues than there are.
    #[error("{asked} queues: must be 1 to {most}, the queues that the controller grants")]
    Queues {
        /// Asked for.
        asked: u16,
        /// The most.
        most: u16,
    },
    /// Too many tags, or none.
    #[error("{0} tags in a hardware queue: must be 1 to {max}", max = uapi::MAX_DEPTH)]
    Depth(u16),
    /// More tags than an io_uring has entries.
    #[error("{depth} tags of {luns} LUNs: together they must be at most 32768")]
    Tags {
        /// Tags of a LUN.
        depth: u16,
        /// LUNs.
        luns: usize,
    },
    /// Another export has the device.
    #[error("{} is served by process {pid}, an export of the same controller", .path.display())]
    Served {
        /// The device.
        path: PathBuf,
        /// The process.
        pid: i32,
    },
    /// The kernel does not let go of a server that died.
    #[error(
        "{}: its server has died, but requests are still on the way; try again",
        .path.display()
    )]
    NotQuiet {
        /// The device.
        path: PathBuf,
    },
    /// A device that was left has other queues than asked for, or than another.
    #[error(
        "{}, which an export that died has left, has {queues} hardware queues of {depth}: export with --queues {queues} --depth \
         {depth}, or remove what was left with --remove-dead",
        .path.display()
    )]
    Left {
        /// The device.
        path: PathBuf,
        /// Its hardware queues.
        queues: u16,
        /// Tags of each.
        depth: u16,
    },
    /// A device that was left is not what the LUN is now.
    #[error(
        "{}, which an export that died has left, has another size or other blocks than LUN {lun} has now: remove what was left \
         with --remove-dead",
        .path.display()
    )]
    Changed {
        /// The device.
        path: PathBuf,
        /// The LUN.
        lun: u32,
    },
    /// Nobody can look at the controller.
    #[error(transparent)]
    Socket(#[from] weir_export::ControlError),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The controller was lost while the devices were made.
    #[error("the controller is lost: {0}")]
    Lost(String),
}

/// A LUN and its block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The LUN.
    pub lun: Lun,
    /// `/dev/ublkbN`.
    pub path: PathBuf,
    /// It was left by an export that died, and taken back.
    pub taken_back: bool,
}

/// LUNs that are block devices. When it is dropped without [`stop`](Export::stop), their I/O fails.
pub trait Export {
    /// The devices, in the order of their LUNs.
    fn disks(&self) -> &[Disk];

    /// Hardware queues of each device, and tags of each queue.
    fn queues(&self) -> (u16, u16);

    /// Waits for `time` at most; tells why the controller was lost, once that happens.
    fn lost(&self, time: Duration) -> Option<String>;

    /// Removes the devices, when what programs have written has reached the controller; deletes the queues and shuts the
    /// controller down. Programs that have a device open get errors from now on: look before.
    fn stop(self: Box<Self>) -> Result<(), Error>;
}

/// Makes LUNs of the device of that name (see [`Device`]) block devices.
pub fn start(device: &str, config: &Config) -> Result<Box<dyn Export>, Error> {
    // What is missing here is told before a controller is taken.
    let control = Control::open()?;
    if let Some(depth) = config.depth
        && !(1..=uapi::MAX_DEPTH).contains(&depth)
    {
        return Err(Error::Depth(depth));
    }
    // Before the controller is opened, since another export has that as well.
    let left = left(&control, device)?;
    Ok(match Device::open(device)? {
        Device::Vfio(pci) => Box::new(Exported::start(pci, device, &control, left, config)?),
        Device::VfioUser(pci) => Box::new(Exported::start(pci, device, &control, left, config)?),
    })
}

/// Removes the block devices that exports of the device of that name which died have left; which they were. What waits in
/// them fails.
pub fn remove_dead(device: &str) -> Result<Vec<PathBuf>, Error> {
    let nodes = left(&Control::open()?, device)?;
    // One that is not started may be about to be; the next export removes it if it is not.
    let quiesced = nodes.iter().filter(|node| !node.is_dead());
    quiesced
        .map(|node| node.remove().map(|()| node.block()))
        .collect()
}

struct Exported<P: Pci> {
    /// Ends before the controller is shut down.
    socket: Option<ControlSocket>,
    disks: Vec<Disk>,
    queues: (u16, u16),
    /// First dropped: the threads end when their devices are stopped.
    nodes: Vec<Node>,
    threads: Vec<JoinHandle<Option<Queue<P>>>>,
    shared: Arc<Shared<P>>,
    events: Receiver<Event>,
}

impl<P> Exported<P>
where
    P: Pci + Send + 'static,
    P::Memory: Send + Sync,
{
    fn start(
        pci: P,
        name: &str,
        control: &Rc<Control>,
        mut left: Vec<Node>,
        config: &Config,
    ) -> Result<Self, Error> {
        let mut controller = Controller::new(pci.clone(), Options::default())?;
        let luns = choose(controller.luns(), &config.luns)?;
        // The controller is ours by now, so no other export is about to start these.
        for node in left.iter().filter(|node| node.is_dead()) {
            node.remove()?;
        }
        left.retain(|node| !node.is_dead());
        left.retain(|node| luns.iter().any(|lun| lun.index == node.owner().lun()));
        let config = as_left(config, &left)?;
        let most = controller.info().submission_queues;
        let count = match config.queues {
            Some(asked) if asked == 0 || asked > most => {
                return Err(Error::Queues { asked, most });
            }
            Some(asked) => asked,
            None => {
                thread::available_parallelism().map_or(1, |cpus| cpus.get().min(most.into()) as u16)
            }
        };
        let transfer = controller.info().max_transfer;
        let depth = config.depth.unwrap_or_else(|| {
            let fit = MEMORY / (transfer * luns.len() * usize::from(count));
            fit.clamp(4, 128) as u16
        });
        if luns.len() * usize::from(depth) > 32768 {
            return Err(Error::Tags {
                depth,
                luns: luns.len(),
            });
        }
        let entries = ENTRIES.min(u32::from(controller.info().cap.mqes()) + 1);
        let queues = (0..count)
            .map(|_| queue(&mut controller, &luns, entries))
            .collect::<Result<Vec<_>, Error>>()?;
        let shared = Arc::new(Shared {
            controller: Mutex::new(Some(controller)),
            lost: AtomicBool::new(false),
        });
        let (send, events) = channel();
        let mut exported = Exported {
            socket: None,
            disks: Vec::new(),
            queues: (count, depth),
            nodes: Vec::new(),
            threads: Vec::new(),
            shared,
            events,
        };
        let mut files = Vec::new();
        for lun in luns {
            let params = params(&lun, transfer);
            let found = left.iter().position(|node| node.owner().lun() == lun.index);
            let node = match found {
                Some(at) => {
                    let node = left.swap_remove(at);
                    node.take_back(&params)?;
                    node
                }
                None => Node::add(
                    control,
                    Owner::new(name, lun.index),
                    (count, depth),
                    &params,
                )?,
            };
            files.push(Arc::new(node.open()?));
            exported.disks.push(Disk {
                lun,
                path: node.block(),
                taken_back: node.was_left(),
            });
            exported.nodes.push(node);
        }
        for (index, queue) in (0..count).zip(queues) {
            let mut lanes = Vec::new();
            for (disk, file) in exported.disks.iter().zip(&files) {
                let mut buffers = (0..depth)
                    .map(|_| Ok(Buffer::new(pci.alloc(transfer)?)))
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(weir_driver::Error::Alloc)?;
                let port = Port::new(file.clone(), index, &mut buffers).map_err(Error::Ring)?;
                lanes.push(Lane {
                    lun: disk.lun.index,
                    sector_shift: disk.lun.block_shift - 9,
                    port,
                    buffers: buffers.into_iter().map(Some).collect(),
                });
            }
            let mut cpus = CpuSet::new();
            let known = |cpu: &usize| *cpu < CpuSet::MAX_CPU;
            for cpu in exported.nodes[0].cpus(index)?.into_iter().filter(known) {
                cpus.set(cpu);
            }
            let (pci, shared, events) = (pci.clone(), exported.shared.clone(), send.clone());
            let run = move || {
                // A CPU that this process may not use: the thread runs where it may.
                let _ = sched_setaffinity(None, &cpus);
                work(&pci, &shared, queue, lanes, &events)
            };
            let thread = thread::Builder::new().name("weir-ublk".to_owned());
            exported
                .threads
                .push(thread.spawn(run).map_err(Error::Thread)?);
        }
        // The devices start when every tag is fetched: a thread that cannot would be waited for without end.
        for _ in 0..count {
            if let Some(Event::Lost(reason)) = exported.event(None) {
                return Err(Error::Lost(reason));
            }
        }
        for node in &mut exported.nodes {
            node.start()?;
        }
        if let Some(path) = &config.control {
            let shared = exported.shared.clone();
            let execute: Box<Execute> = Box::new(move |name, command, data| {
                let mut controller = shared.controller.lock();
                match controller.as_mut().map(|controller| controller.as_mut()) {
                    Ok(Some(controller)) => controller.execute(name, command, data),
                    _ => Err(weir_driver::Error::Disabled),
                }
            });
            exported.socket = Some(ControlSocket::serve(path, execute)?);
        }
        Ok(exported)
    }
}

impl<P: Pci> Exported<P> {
    fn event(&self, time: Option<Duration>) -> Option<Event> {
        let ended = || Event::Lost("its threads have ended".to_owned());
        match time {
            None => Some(self.events.recv().unwrap_or_else(|_| ended())),
            Some(time) => match self.events.recv_timeout(time) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(ended()),
            },
        }
    }
}

impl<P> Export for Exported<P>
where
    P: Pci + Send + 'static,
    P::Memory: Send + Sync,
{
    fn disks(&self) -> &[Disk] {
        &self.disks
    }

    fn queues(&self) -> (u16, u16) {
        self.queues
    }

    fn lost(&self, time: Duration) -> Option<String> {
        match self.event(Some(time)) {
            Some(Event::Lost(reason)) => Some(reason),
            Some(Event::Ready) | None => None,
        }
    }

    fn stop(mut self: Box<Self>) -> Result<(), Error> {
        self.socket = None;
        for node in &self.nodes {
            node.stop()?;
        }
        let threads = self.threads.drain(..);
        let queues: Vec<Queue<P>> = threads
            .filter_map(|thread| thread.join().ok().flatten())
            .collect();
        let whole = queues.len() == usize::from(self.queues.0);
        let mut controller = self.shared.controller.lock();
        let controller = controller
            .as_mut()
            .unwrap_or_else(|error| error.get_mut())
            .take();
        if let Some(mut controller) = controller {
            if whole {
                for queue in queues {
                    controller.delete_queue(queue, |_| ())?;
                }
                controller.shutdown()?;
            } else {
                // It is lost: dropped, it is disabled if it still answers. So are the devices, by their drop.
                return Ok(());
            }
        }
        self.nodes.drain(..).try_for_each(Node::delete)
    }
}

/// `config` with the queues and tags of the devices that were `left`, which must all have the same, and no other than asked
/// for.
fn as_left(config: &Config, left: &[Node]) -> Result<Config, Error> {
    let mut config = config.clone();
    for node in left {
        let (queues, depth) = node.queues();
        if *config.queues.get_or_insert(queues) != queues
            || *config.depth.get_or_insert(depth) != depth
        {
            let path = node.block();
            return Err(Error::Left {
                path,
                queues,
                depth,
            });
        }
    }
    Ok(config)
}

/// The LUNs that are asked for, all when none is.
fn choose(have: &[Lun], asked: &[u32]) -> Result<Vec<Lun>, Error> {
    let numbers = || {
        let list: Vec<String> = have.iter().map(|lun| lun.index.to_string()).collect();
        match list.is_empty() {
            true => "none".to_owned(),
            false => list.join(", "),
        }
    };
    for &lun in asked {
        if !have.iter().any(|each| each.index == lun) {
            return Err(Error::NoLun {
                lun,
                have: numbers(),
            });
        }
    }
    if have.is_empty() {
        return Err(Error::NoLun {
            lun: 0,
            have: numbers(),
        });
    }
    let wanted = |lun: &&Lun| asked.is_empty() || asked.contains(&lun.index);
    let luns: Vec<Lun> = have.iter().filter(wanted).copied().collect();
    match luns.iter().find(|lun| lun.block_shift > MAX_BLOCK_SHIFT) {
        Some(lun) => Err(Error::Block {
            lun: lun.index,
            bytes: lun.block_size(),
        }),
        None => Ok(luns),
    }
}

/// A driver queue on which all `luns` are open.
fn queue<P: Pci>(
    controller: &mut Controller<P>,
    luns: &[Lun],
    entries: u32,
) -> Result<Queue<P>, Error> {
    let config = QueueConfig {
        entries,
        ..QueueConfig::default()
    };
    let mut queue = controller.create_queue(&config)?;
    for lun in luns {
        queue.open(lun).map_err(|source| Error::Entries {
            lun: lun.index,
            source,
        })?;
    }
    Ok(queue)
}

/// What Linux is told of a LUN, whose commands move `transfer` bytes at most.
fn params(lun: &Lun, transfer: usize) -> Params {
    Params {
        len: size_of::<Params>() as u32,
        types: uapi::PARAM_BASIC,
        attrs: uapi::ATTR_VOLATILE_CACHE,
        logical_bs_shift: lun.block_shift,
        physical_bs_shift: MAX_BLOCK_SHIFT,
        io_opt_shift: 0,
        io_min_shift: MAX_BLOCK_SHIFT,
        max_sectors: (transfer >> 9) as u32,
        dev_sectors: lun.bytes() >> 9,
        ..Params::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lun(index: u32, block_shift: u8) -> Lun {
        Lun {
            index,
            nsid: index + 1,
            blocks: 1000,
            block_shift,
            id: None,
        }
    }

    #[test]
    fn luns_are_chosen_and_refused() {
        let have = [lun(0, 9), lun(1, 12), lun(3, 9), lun(4, 16)];
        let numbers = |luns: Vec<Lun>| luns.iter().map(|lun| lun.index).collect::<Vec<_>>();
        assert_eq!(numbers(choose(&have, &[3, 1]).unwrap()), [1, 3]);
        assert_eq!(numbers(choose(&have[..3], &[]).unwrap()), [0, 1, 3]);
        let error = choose(&have, &[0, 2]).unwrap_err().to_string();
        assert_eq!(error, "there is no LUN 2: the controller has 0, 1, 3, 4");
        assert!(matches!(
            choose(&have, &[]),
            Err(Error::Block {
                lun: 4,
                bytes: 65536
            })
        ));
        assert!(matches!(choose(&[], &[]), Err(Error::NoLun { .. })));
    }

    #[test]
    fn linux_is_told_sectors() {
        let params = params(&lun(1, 12), 128 << 10);
        assert_eq!((params.dev_sectors, params.max_sectors), (8000, 256));
        assert_eq!(
            (params.logical_bs_shift, params.physical_bs_shift),
            (12, 12)
        );
    }
}
