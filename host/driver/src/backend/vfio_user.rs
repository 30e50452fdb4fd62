//! [`VfioUserPci`]: a function that another process serves over vfio-user, such as `weir serve`. One of the files with
//! `unsafe` code.
//!
//! No VM, no root and no IOMMU: DMA memory is a file in memory that both processes map, interrupts are eventfds. It is for
//! a device that is simulated: every register access is a message, and a lock keeps the messages apart. Writes are
//! posted, as PCIe's are; a read waits for its answer.
//!
//! A server that dies, or does not answer in [`ANSWER`], is a function that is gone: reads are all ones.
#![allow(unsafe_code)]

use super::dma::{Arena, Iommu};
use super::error::DeviceError;
use super::eventfd::Event;
use crate::memory::Memory;
use crate::pci::{AllocError, Pci};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_nvme::registers::ALL_ONES;
use weir_vfio_user::wire::{irq, region};
use weir_vfio_user::{Client, Error, Permissions};

/// How long the server may take to answer: a simulated card takes its time over a reset.
pub const ANSWER: Duration = Duration::from_secs(30);
/// The most MSI-X vectors used; each is a file descriptor.
const MAX_VECTORS: u32 = 256;
/// IOVAs (first, end exclusive): all but the lowest, so that 0 is never good, and where x86 has its interrupts.
const IOVAS: [(u64, u64); 2] = [(1 << 20, 0xfee0_0000), (1 << 32, 1 << 47)];
/// Turns of a waiting loop that yield; the later ones sleep, for the simulator wants the processor.
const YIELDS: u32 = 20;
/// How long a turn sleeps then.
const SLEEP: Duration = Duration::from_micros(20);
/// The command register (PCI 3.0, 6.2.2), with memory space and bus mastering on.
const COMMAND: u64 = 4;
const ENABLED: u16 = 1 << 1 | 1 << 2;

/// A function served over vfio-user. Dropping the last handle, and the last memory, closes the connection.
pub struct VfioUserPci {
    /// Turns of a waiting loop since the last register write.
    turns: Cell<u32>,
    function: Arc<Open>,
}

/// The function while it is open.
struct Open {
    path: PathBuf,
    start: Instant,
    bar0_len: usize,
    arena: Mutex<Arena>,
    events: Vec<Event>,
    server: Server,
}

/// The connection, and the files that chunks of memory are.
struct Server {
    client: Mutex<Client>,
    /// By the chunk's address here.
    files: Mutex<HashMap<usize, OwnedFd>>,
    gone: AtomicBool,
}

impl Clone for VfioUserPci {
    fn clone(&self) -> Self {
        VfioUserPci {
            turns: Cell::new(0),
            function: self.function.clone(),
        }
    }
}

impl VfioUserPci {
    /// Connects to the server at `path`, lets its function master the bus, and listens to its MSI-X vectors.
    pub fn open(path: &Path) -> Result<VfioUserPci, DeviceError> {
        let failed = |source| match source {
            // What `weir serve` answers a second client's first message.
            Error::Refused { errno, .. } if errno == Errno::BUSY.raw_os_error() as u32 => {
                DeviceError::Served { path: path.into() }
            }
            source => DeviceError::VfioUser {
                path: path.into(),
                source,
            },
        };
        let mut client = Client::connect(path, ANSWER).map_err(failed)?;
        let bar0_len = client.region_info(region::BAR0).map_err(failed)?.size.get() as usize;
        if bar0_len < 0x2000 {
            return Err(DeviceError::NoNvme {
                path: path.into(),
                bar0_len,
            });
        }
        let vectors = client.irq_info(irq::MSIX).map_err(failed)?.count.get();
        let event = |source| DeviceError::Open {
            path: path.into(),
            source,
        };
        let events = (0..vectors.min(MAX_VECTORS))
            .map(|_| Event::new())
            .collect::<io::Result<Vec<_>>>()
            .map_err(event)?;
        let fds: Vec<_> = events.iter().map(AsFd::as_fd).collect();
        client.set_msix(0, &fds).map_err(failed)?;
        client
            .region_write(region::CONFIG, COMMAND, &ENABLED.to_le_bytes())
            .map_err(failed)?;
        Ok(VfioUserPci {
            turns: Cell::new(0),
            function: Arc::new(Open {
                path: path.into(),
                start: Instant::now(),
                bar0_len,
                arena: Mutex::new(Arena::new(IOVAS)),
                events,
                server: Server {
                    client: Mutex::new(client),
                    files: Mutex::default(),
                    gone: AtomicBool::new(false),
                },
            }),
        })
    }

    /// The server's socket.
    pub fn path(&self) -> &Path {
        &self.function.path
    }

    /// Resets the function. Bus mastering is as before; a [`Controller`](crate::Controller) on it must be reset
    /// afterwards.
    pub fn reset(&self) -> Result<(), DeviceError> {
        let reset = |client: &mut Client| {
            client.reset()?;
            client.region_write(region::CONFIG, COMMAND, &ENABLED.to_le_bytes())
        };
        let result = self.function.server.ask(reset);
        result.map_err(|source| DeviceError::VfioUser {
            path: self.function.path.clone(),
            source,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Asks the server; after a failure that ends the connection, never again.
    fn ask<T>(&self, ask: impl FnOnce(&mut Client) -> Result<T, Error>) -> Result<T, Error> {
        let mut client = lock(&self.client);
        if self.gone.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        let result = ask(&mut client);
        if !matches!(result, Ok(_) | Err(Error::Refused { .. })) {
            self.gone.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl Pci for VfioUserPci {
    type Memory = VfioUserMemory;

    fn bar0_len(&self) -> usize {
        self.function.bar0_len
    }

    fn read32(&self, offset: usize) -> u32 {
        let mut value = [0; 4];
        let read =
            |client: &mut Client| client.region_read(region::BAR0, offset as u64, &mut value);
        match self.function.server.ask(read) {
            Ok(()) => u32::from_le_bytes(value),
            Err(_) => ALL_ONES,
        }
    }

    /// The message is sent after every earlier store: a system call is a barrier to the compiler, and the socket to
    /// other processes.
    fn write32(&self, offset: usize, value: u32) {
        self.turns.set(0);
        let write = |client: &mut Client| {
            client.region_post(region::BAR0, offset as u64, &value.to_le_bytes())
        };
        // A function that is gone takes no write.
        let _ = self.function.server.ask(write);
    }

    fn alloc(&self, len: usize) -> Result<VfioUserMemory, AllocError> {
        let pages = lock(&self.function.arena).alloc(&self.function.server, len)?;
        Ok(VfioUserMemory {
            ptr: pages.ptr,
            iova: pages.iova,
            len: pages.len,
            function: self.function.clone(),
        })
    }

    fn vectors(&self) -> u16 {
        self.function.events.len() as u16
    }

    fn take_interrupt(&self, vector: u16) -> bool {
        let event = self.function.events.get(usize::from(vector));
        event.is_some_and(Event::take)
    }

    fn wait_interrupt(&self, vector: u16, deadline_ns: u64) -> bool {
        let Some(event) = self.function.events.get(usize::from(vector)) else {
            return false;
        };
        loop {
            let left = deadline_ns.saturating_sub(self.now_ns());
            if event.wait(left) {
                return true;
            } else if left == 0 {
                return false;
            }
        }
    }

    fn relax(&self) {
        let turns = self.turns.get();
        if turns < YIELDS {
            self.turns.set(turns + 1);
            std::thread::yield_now();
        } else {
            std::thread::sleep(SLEEP);
        }
    }

    fn now_ns(&self) -> u64 {
        self.function.start.elapsed().as_nanos() as u64
    }
}

impl Iommu for Server {
    /// A file in memory that cannot shrink, so that the server may map it.
    fn memory(&self, len: usize) -> io::Result<(NonNull<u8>, bool)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("weir-dma", flags)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place that the system chooses, of a file of that length that cannot shrink.
        let ptr = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let ptr = NonNull::new(ptr.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        lock(&self.files).insert(ptr.as_ptr() as usize, file);
        Ok((ptr, false))
    }

    unsafe fn map(&self, iova: u64, ptr: NonNull<u8>, len: usize) -> io::Result<()> {
        let files = lock(&self.files);
        let file = files
            .get(&(ptr.as_ptr() as usize))
            .ok_or(io::ErrorKind::NotFound)?;
        let map = |client: &mut Client| {
            client.dma_map(file.as_fd(), 0, iova, len as u64, Permissions::ReadWrite)
        };
        self.ask(map).map_err(io::Error::other)
    }

    /// A server that is gone has no mapping left.
    fn unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        match self.ask(|client| client.dma_unmap(iova, len as u64)) {
            Err(error @ Error::Refused { .. }) => Err(io::Error::other(error)),
            _ => Ok(()),
        }
    }

    fn forget(&self, ptr: NonNull<u8>) {
        lock(&self.files).remove(&(ptr.as_ptr() as usize));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // First nothing goes to memory any more, then it goes; the server forgets the rest with the connection.
        let disable = |client: &mut Client| client.region_write(region::CONFIG, COMMAND, &[0; 2]);
        let _ = self.server.ask(disable);
        lock(&self.arena).clear(&self.server);
    }
}

/// DMA memory of a [`VfioUserPci`].
pub struct VfioUserMemory {
    ptr: NonNull<u8>,
    iova: u64,
    len: usize,
    function: Arc<Open>,
}

// SAFETY: nothing in it belongs to a thread; the arena is behind a lock.
unsafe impl Send for VfioUserMemory {}
// SAFETY: as above; all of it is read only.
unsafe impl Sync for VfioUserMemory {}

// SAFETY: whole zeroed pages of a chunk, this value's alone until it is dropped; the server has the same pages at the
// IOVAs that the arena says, for as long as `function` lives.
unsafe impl Memory for VfioUserMemory {
    fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    fn len(&self) -> usize {
        self.len
    }

    fn iova(&self) -> u64 {
        self.iova
    }
}

impl Drop for VfioUserMemory {
    fn drop(&mut self) {
        lock(&self.function.arena).free(&self.function.server, self.iova, self.len);
    }
}
