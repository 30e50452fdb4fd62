//! DMA memory: chunks of 2 MiB or more that the IOMMU maps at once, huge pages where the system offers them, and pages
//! cut from them. One of the files with `unsafe` code.
//!
//! The memory is the process's own; a [`vfio_user`](super::vfio_user) server gets a file of it.
//!
//! Mapping costs a system call, pinned memory, and an entry of the IOMMU's cache; so rings, lists and buffers share a
//! chunk, and a chunk is 2 MiB in both address spaces, which an IOMMU can map by one entry.
#![allow(unsafe_code)]

use super::extents::Extents;
use crate::pci::AllocError;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::ptr::{self, NonNull};
use weir_nvme::PAGE_SIZE;

/// A chunk is a multiple of this: what an x86 huge page, and a last-level entry of its IOMMUs, covers.
const HUGE: usize = 2 << 20;
const PAGE: u64 = PAGE_SIZE as u64;

/// What maps this process's memory for the device.
pub(super) trait Iommu {
    /// `len` bytes of zeroed memory of this process, which nobody uses, that [`map`](Iommu::map) takes; true when in huge
    /// pages. The arena unmaps it from the process.
    fn memory(&self, len: usize) -> io::Result<(NonNull<u8>, bool)> {
        anonymous(len)
    }

    /// The memory at `ptr` is about to be unmapped from the process.
    fn forget(&self, _ptr: NonNull<u8>) {}

    /// Lets the device read and write `len` bytes at `ptr`, as `iova` and up.
    ///
    /// # Safety
    /// The memory stays mapped in this process until [`unmap`](Iommu::unmap), and only raw pointers reach it.
    unsafe fn map(&self, iova: u64, ptr: NonNull<u8>, len: usize) -> io::Result<()>;

    /// Takes the whole of a mapping back.
    fn unmap(&self, iova: u64, len: usize) -> io::Result<()>;
}

/// Memory that is mapped for the device.
struct Chunk {
    ptr: NonNull<u8>,
    iova: u64,
    len: usize,
    huge: bool,
    /// Byte offsets that are free.
    free: Extents,
}

// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Chunk {}

/// All DMA memory of a function.
pub(super) struct Arena {
    iova: Extents,
    chunks: Vec<Chunk>,
    /// Chunks are multiples of this: [`HUGE`], or less once that could not be had.
    step: usize,
}

/// Pages cut from a chunk.
pub(super) struct Pages {
    pub(super) ptr: NonNull<u8>,
    pub(super) iova: u64,
    pub(super) len: usize,
}

impl Arena {
    /// `ranges` are the IOVAs that may be used, (first, end exclusive).
    pub(super) fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> Arena {
        Arena {
            iova: Extents::new(ranges, PAGE),
            chunks: Vec::new(),
            step: HUGE,
        }
    }

    /// At least `len` bytes, whole pages, zeroed.
    pub(super) fn alloc(&mut self, iommu: &impl Iommu, len: usize) -> Result<Pages, AllocError> {
        let error = |reason: String| AllocError { bytes: len, reason };
        let bytes = len
            .checked_next_multiple_of(PAGE_SIZE)
            .filter(|bytes| (1..=isize::MAX as usize / 2).contains(bytes))
            .ok_or_else(|| error("not 1 byte to a quarter of the address space".to_owned()))?;
        let take = |chunk: &mut Chunk| {
            let at = chunk.free.take(bytes as u64, PAGE)?;
            Some(Pages {
                // SAFETY: `free` only holds offsets inside the chunk.
                ptr: unsafe { chunk.ptr.add(at as usize) },
                iova: chunk.iova + at,
                len: bytes,
            })
        };
        let pages = match self.chunks.iter_mut().find_map(take) {
            Some(pages) => pages,
            None => {
                let mut chunk = self.grow(iommu, bytes).map_err(error)?;
                let pages = take(&mut chunk);
                self.chunks.push(chunk);
                pages.ok_or_else(|| error("a chunk is too small for it".to_owned()))?
            }
        };
        // SAFETY: these bytes are inside the chunk, and nobody else's while they are not free.
        unsafe { ptr::write_bytes(pages.ptr.as_ptr(), 0, bytes) };
        Ok(pages)
    }

    /// Takes pages back that [`alloc`](Arena::alloc) gave; a large chunk that is all free goes back to the system.
    pub(super) fn free(&mut self, iommu: &impl Iommu, iova: u64, len: usize) {
        let inside = |chunk: &Chunk| (chunk.iova..chunk.iova + chunk.len as u64).contains(&iova);
        let Some(index) = self.chunks.iter().position(inside) else {
            return;
        };
        let chunk = &mut self.chunks[index];
        chunk.free.give(iova - chunk.iova, len as u64);
        if chunk.len > HUGE && chunk.free.is_whole(0, chunk.len as u64) {
            let chunk = self.chunks.swap_remove(index);
            self.release(iommu, &chunk);
        }
    }

    /// Unmaps everything. Nobody may use any of the memory afterwards.
    pub(super) fn clear(&mut self, iommu: &impl Iommu) {
        for chunk in std::mem::take(&mut self.chunks) {
            self.release(iommu, &chunk);
        }
    }

    fn release(&mut self, iommu: &impl Iommu, chunk: &Chunk) {
        // While the device may reach it, memory must not go back to the system: then it leaks.
        if iommu.unmap(chunk.iova, chunk.len).is_ok() {
            self.iova.give(chunk.iova, chunk.len as u64);
            iommu.forget(chunk.ptr);
            // SAFETY: nobody uses any piece of the chunk, nor does the device.
            let _ = unsafe { munmap(chunk.ptr.as_ptr().cast(), chunk.len) };
        }
    }

    /// A chunk that holds `bytes`, a multiple of the page size; where 2 MiB may not be pinned, a smaller one.
    fn grow(&mut self, iommu: &impl Iommu, bytes: usize) -> Result<Chunk, String> {
        let mut step = self.step;
        let mut reason = loop {
            match self.map(iommu, bytes.next_multiple_of(step)) {
                Ok(chunk) => {
                    self.step = step;
                    return Ok(chunk);
                }
                Err(reason) if step == PAGE_SIZE => break reason,
                Err(_) => step /= 2,
            }
        };
        let pinned: usize = self.chunks.iter().map(|chunk| chunk.len).sum();
        let huge = self.chunks.iter().filter(|chunk| chunk.huge).count();
        if let Some(limit) = getrlimit(Resource::Memlock).current {
            reason += &format!(
                "; {pinned} bytes are pinned for DMA ({huge} of {} chunks in huge pages), and RLIMIT_MEMLOCK allows this \
                 process {limit}: raise it (ulimit -l, or memlock in limits.conf), or run as root",
                self.chunks.len()
            );
        }
        Err(reason)
    }

    fn map(&mut self, iommu: &impl Iommu, len: usize) -> Result<Chunk, String> {
        let align = if len.is_multiple_of(HUGE) {
            HUGE as u64
        } else {
            PAGE
        };
        let Some(iova) = self.iova.take(len as u64, align) else {
            return Err("no IOVA range is free that holds it".to_owned());
        };
        let result = iommu.memory(len).and_then(|(ptr, huge)| {
            // SAFETY: `ptr` was mapped just now, and `release` unmaps it after the device's mapping only.
            match unsafe { iommu.map(iova, ptr, len) } {
                Ok(()) => Ok((ptr, huge)),
                Err(error) => {
                    iommu.forget(ptr);
                    // SAFETY: mapped above, used by nobody.
                    let _ = unsafe { munmap(ptr.as_ptr().cast(), len) };
                    Err(error)
                }
            }
        });
        match result {
            Ok((ptr, huge)) => Ok(Chunk {
                ptr,
                iova,
                len,
                huge,
                free: Extents::new([(0, len as u64)], PAGE),
            }),
            Err(error) => {
                self.iova.give(iova, len as u64);
                Err(error.to_string())
            }
        }
    }
}

/// `len` bytes of zeroed memory of this process; true when in huge pages.
fn anonymous(len: usize) -> io::Result<(NonNull<u8>, bool)> {
    let map = |flags: MapFlags| {
        let (flags, access) = (
            flags | MapFlags::PRIVATE,
            ProtFlags::READ | ProtFlags::WRITE,
        );
        // SAFETY: a new mapping, at a place that the system chooses.
        let ptr = unsafe { mmap_anonymous(ptr::null_mut(), len, access, flags) }?;
        NonNull::new(ptr.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory.into())
    };
    let (ptr, huge) = match map(MapFlags::HUGETLB | MapFlags::HUGE_2MB) {
        Ok(ptr) if len.is_multiple_of(HUGE) => (ptr, true),
        Ok(ptr) => {
            // SAFETY: mapped above, used by nobody. Huge pages come whole.
            unsafe { munmap(ptr.as_ptr().cast(), len.next_multiple_of(HUGE)) }?;
            (map(MapFlags::empty())?, false)
        }
        Err::<_, io::Error>(_) => (map(MapFlags::empty())?, false),
    };
    // Both are wishes. A child process must not make the pages copy-on-write: the device would write the old ones.
    for advice in [Advice::LinuxHugepage, Advice::LinuxDontFork] {
        // SAFETY: changes neither content nor place of memory mapped above.
        let _ = unsafe { madvise(ptr.as_ptr().cast(), len, advice) };
    }
    Ok((ptr, huge))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Records mappings; refuses more than `limit` bytes.
    struct Fake {
        limit: usize,
        mapped: RefCell<Vec<(u64, usize)>>,
    }

    impl Iommu for Fake {
        unsafe fn map(&self, iova: u64, _: NonNull<u8>, len: usize) -> io::Result<()> {
            let mut mapped = self.mapped.borrow_mut();
            if mapped.iter().map(|m| m.1).sum::<usize>() + len > self.limit {
                return Err(io::Error::from_raw_os_error(12));
            }
            mapped.push((iova, len));
            Ok(())
        }

        fn unmap(&self, iova: u64, len: usize) -> io::Result<()> {
            let mut mapped = self.mapped.borrow_mut();
            let at = mapped.iter().position(|m| *m == (iova, len));
            mapped.swap_remove(at.ok_or(io::ErrorKind::NotFound)?);
            Ok(())
        }
    }

    fn fake(limit: usize) -> Fake {
        Fake {
            limit,
            mapped: RefCell::default(),
        }
    }

    #[test]
    fn pages_share_a_chunk_are_zeroed_and_come_back() {
        let iommu = fake(usize::MAX);
        let mut arena = Arena::new([(0x1000, 0xFEE0_0000)]);
        let a = arena.alloc(&iommu, 1).unwrap();
        let b = arena.alloc(&iommu, 5000).unwrap();
        assert_eq!(
            (a.len, b.len, a.iova, b.iova),
            (4096, 8192, 0x20_0000, 0x20_1000)
        );
        // SAFETY: allocated above.
        unsafe { ptr::write_bytes(b.ptr.as_ptr(), 0xFF, b.len) };
        arena.free(&iommu, b.iova, b.len);
        let c = arena.alloc(&iommu, 4096).unwrap();
        assert_eq!(c.iova, b.iova);
        // SAFETY: allocated above.
        assert_eq!(unsafe { c.ptr.read() }, 0);
        let large = arena.alloc(&iommu, 3 << 20).unwrap();
        assert_eq!(
            *iommu.mapped.borrow(),
            [(0x20_0000, 2 << 20), (0x40_0000, 4 << 20)]
        );
        arena.free(&iommu, large.iova, large.len);
        assert_eq!(*iommu.mapped.borrow(), [(0x20_0000, 2 << 20)]);
        arena.clear(&iommu);
        assert!(iommu.mapped.borrow().is_empty());
        assert!(arena.alloc(&iommu, 0).is_err() && arena.alloc(&iommu, usize::MAX).is_err());
    }

    #[test]
    fn where_little_may_be_pinned_chunks_are_small_and_the_limit_is_named() {
        let iommu = fake(64 << 10);
        let mut arena = Arena::new([(0, 1 << 30)]);
        for _ in 0..16 {
            arena.alloc(&iommu, 4096).unwrap();
        }
        let Err(error) = arena.alloc(&iommu, 4096) else {
            panic!("over the limit");
        };
        assert!(error.reason.contains("os error 12"), "{error}");
        if getrlimit(Resource::Memlock).current.is_some() {
            assert!(error.reason.contains("RLIMIT_MEMLOCK"), "{error}");
        }
        arena.clear(&iommu);
    }

    #[test]
    fn addresses_lie_in_the_ranges() {
        let iommu = fake(usize::MAX);
        let mut arena = Arena::new([(0, 0x3000), (0x10_0000, 0x10_4000)]);
        let sizes = [0x4000, 0x2000, 0x1000, 0x1000];
        let iovas: Vec<u64> = sizes
            .iter()
            .map_while(|&len| arena.alloc(&iommu, len).ok().map(|p| p.iova))
            .collect();
        assert_eq!(iovas, [0x10_0000, 0, 0x2000]);
    }
}
