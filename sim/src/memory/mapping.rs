//! A client's memory mapped into this process. `unsafe` as in `raw`, plus what makes a mapping of a foreign file safe.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// All of a file that cannot shrink, shared with whoever else has it.
///
/// A mapped page past the end of its file raises SIGBUS, so a client that shrinks its memory would kill this process.
/// Only a file sealed against that (F_SEAL_SHRINK, which cannot be taken back) is mapped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned like a `Box`; nothing in it is tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from its beginning, seen to be no longer than the file; seals it against shrinking.
    /// None when it cannot be sealed. `write`: the mapping can be written.
    pub fn new(fd: BorrowedFd<'_>, len: usize, write: bool) -> Result<Option<Self>, Errno> {
        let sealed =
            |fd| Ok::<_, Errno>(rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK));
        match sealed(fd) {
            Ok(true) => (),
            Ok(false) => {
                if rustix::fs::fcntl_add_seals(fd, SealFlags::SHRINK).is_err() {
                    return Ok(None);
                }
            }
            // No file that can have seals.
            Err(_) => return Ok(None),
        }
        // What was seen before the seal may have shrunk.
        let size = rustix::fs::fstat(fd)?.st_size;
        if len == 0 || u64::try_from(size).map_or(true, |size| size < len as u64) {
            return Err(Errno::INVAL);
        }
        let protection = if write {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Some(Mapping { start, len }))
    }

    /// Copies `out.len()` bytes from `offset`; false when they are not all inside.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, out.len()) else {
            return false;
        };
        // SAFETY: inside the mapping, whose file cannot shrink. Others may write the same bytes meanwhile, in other
        // processes: what is read then is any mixture, as it is for a device.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        true
    }

    /// Copies `data` to `offset`, in ascending order by words of 8 bytes where aligned, so that a completion entry's
    /// last word, with its phase, is seen last; false when it would not be all inside. The mapping must have been made
    /// to be written.
    pub fn write(&self, offset: u64, data: &[u8]) -> bool {
        let Some(to) = self.at(offset, data.len()) else {
            return false;
        };
        if !offset.is_multiple_of(8) || !data.len().is_multiple_of(8) {
            // SAFETY: inside the mapping, as in `read`; `data` is no part of it.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
            return true;
        }
        for (n, word) in data.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            // SAFETY: inside the mapping and aligned: it starts at a page, and `offset` is a multiple of 8. Only this
            // process's atomic accesses go through this reference.
            let place = unsafe { std::sync::atomic::AtomicU64::from_ptr(to.cast::<u64>().add(n)) };
            place.store(word, std::sync::atomic::Ordering::Release);
        }
        true
    }

    fn at(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: `offset` is inside the mapping or one past it.
        Some(unsafe { self.start.as_ptr().add(offset) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, unmapped only here, and no reference into it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
