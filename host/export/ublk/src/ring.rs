//! [`Ring`]: the requests of one CPU's hardware queues, one of each device, by one io_uring. One of the crate's files
//! with `unsafe` code.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;
use zerocopy::IntoBytes;

use weir_driver::{Buffer, Memory};

use crate::uapi::{self, IoCommand, IoDesc};

/// A request's place: the port's index in bits 63:16, its tag below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u64);

impl Place {
    pub fn new(port: usize, tag: u16) -> Place {
        Place((port as u64) << 16 | u64::from(tag))
    }

    pub fn port(self) -> usize {
        (self.0 >> 16) as usize
    }

    pub fn tag(self) -> u16 {
        self.0 as u16
    }
}

/// The request descriptors of one hardware queue, which the kernel writes and we read.
struct Descriptors {
    ptr: NonNull<c_void>,
    len: usize,
    depth: u16,
}

// SAFETY: the mapping belongs to the process, and this value alone unmaps it.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn map(file: &File, queue: u16, depth: u16) -> io::Result<Descriptors> {
        let bytes =
            |depth: u16| (usize::from(depth) * size_of::<IoDesc>()).next_multiple_of(page_size());
        let (len, offset) = (
            bytes(depth),
            u64::from(queue) * bytes(uapi::MAX_DEPTH) as u64,
        );
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let ptr = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                offset,
            )
        }?;
        let ptr = NonNull::new(ptr).ok_or(ErrorKind::InvalidData)?;
        Ok(Descriptors { ptr, len, depth })
    }

    fn get(&self, tag: u16) -> IoDesc {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: inside the mapping, which is page-aligned. The kernel wrote it before it completed the fetch, and
        // leaves it alone until the tag's next fetch.
        unsafe {
            let first = self.ptr.as_ptr().cast::<IoDesc>().cast_const();
            first.add(usize::from(tag)).read_volatile()
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the whole of what `map` mapped; `get` gave no reference out.
        let _ = unsafe { munmap(self.ptr.as_ptr(), self.len) };
    }
}

/// One hardware queue of one device.
pub struct Port {
    file: Arc<File>,
    queue: u16,
    descriptors: Descriptors,
    /// Where each tag's data is. The memory must stay mapped while the device is there.
    addresses: Vec<u64>,
}

impl Port {
    /// Hardware queue `queue` of the device that `file` is. `buffers` are its tags', and become the kernel's to write
    /// and read whenever their tag is fetched.
    pub fn new<M: Memory>(
        file: Arc<File>,
        queue: u16,
        buffers: &mut [Buffer<M>],
    ) -> io::Result<Port> {
        let descriptors = Descriptors::map(&file, queue, buffers.len() as u16)?;
        let addresses = buffers
            .iter_mut()
            .map(|buffer| buffer.with_mut(|bytes| bytes.as_mut_ptr() as u64))
            .collect();
        Ok(Port {
            file,
            queue,
            descriptors,
            addresses,
        })
    }
}

/// One thread's.
pub struct Ring {
    ring: IoUring,
    ports: Vec<Port>,
    /// Tags that are fetched.
    fetched: usize,
}

impl Ring {
    /// Fetches every tag of `ports`; to be made by the thread that uses it.
    pub fn new(ports: Vec<Port>) -> io::Result<Ring> {
        let tags: usize = ports.iter().map(|port| port.addresses.len()).sum();
        let ring = IoUring::builder()
            // Requests come to us whenever we enter the kernel, which every turn that finds nothing does: no
            // interrupt is needed to make us.
            .setup_coop_taskrun()
            .build(tags.max(1).next_power_of_two() as u32)?;
        let mut ring = Ring {
            ring,
            ports,
            fetched: 0,
        };
        for port in 0..ring.ports.len() {
            for tag in 0..ring.ports[port].addresses.len() as u16 {
                ring.push(uapi::FETCH_REQ, Place::new(port, tag), -1);
            }
        }
        ring.submit()?;
        Ok(ring)
    }

    /// The request at `place`.
    pub fn request(&self, place: Place) -> IoDesc {
        self.ports[place.port()].descriptors.get(place.tag())
    }

    /// Ends the request at `place` with bytes moved or a negative errno, and fetches its tag's next. The kernel learns
    /// of it with the next [`submit`](Ring::submit) or [`wait`](Ring::wait).
    pub fn commit(&mut self, place: Place, result: i32) {
        self.push(uapi::COMMIT_AND_FETCH_REQ, place, result);
    }

    fn push(&mut self, number: u32, place: Place, result: i32) {
        let (port, tag) = (&self.ports[place.port()], place.tag());
        let command = IoCommand {
            q_id: port.queue,
            tag,
            result,
            addr: port.addresses[usize::from(tag)],
        };
        let mut payload = [0; 16];
        payload.copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd16::new(types::Fd(port.file.as_raw_fd()), number)
            .cmd(payload)
            .build()
            .user_data(place.0);
        // SAFETY: the file lives as long as the ring. The address is a buffer's that is in DMA memory, which outlives
        // the device; nobody reads or writes it before the fetch completes.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has an entry for every tag, and a tag is in it once");
        self.fetched += 1;
    }

    /// The next tag that was fetched; false when the kernel gave it up, because the device stops.
    pub fn next(&mut self) -> Option<(Place, bool)> {
        let done = self.ring.completion().next()?;
        self.fetched -= 1;
        Some((Place(done.user_data()), done.result() == 0))
    }

    /// Tags that are fetched, and so are the kernel's.
    pub fn fetched(&self) -> usize {
        self.fetched
    }

    /// Tells the kernel what was committed; no system call when there is nothing.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        ended(self.ring.submit())
    }

    /// As [`submit`](Ring::submit), and waits until there is something to take, for `time` at most.
    pub fn wait(&mut self, time: Option<Duration>) -> io::Result<()> {
        let Some(time) = time else {
            return ended(self.ring.submit_and_wait(1));
        };
        let time = types::Timespec::from(time);
        let arguments = types::SubmitArgs::new().timespec(&time);
        ended(self.ring.submitter().submit_with_args(1, &arguments))
    }
}

/// What ends a wait early is no error.
fn ended(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::Interrupted | ErrorKind::TimedOut | ErrorKind::WouldBlock => Ok(()),
            _ if error.raw_os_error() == Some(ETIME) => Ok(()),
            _ => Err(error),
        },
    }
}

/// What a wait with a timeout ends with.
const ETIME: i32 = 62;
