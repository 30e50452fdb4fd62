//! Host memory as a device sees it: DMA allocations in an I/O virtual address space with unmapped gaps between them.
//!
//! An IOVA is never given twice, so that a device that uses a buffer after it was freed is caught like one that misses
//! a buffer's end. Every access outside an allocation is answered by an error and recorded. With a vfio-user client the
//! memory is that process's own ([`foreign`]).

pub mod foreign;
mod mapping;
pub mod raw;

use foreign::Foreign;
pub use raw::PAGE;
use raw::Pages;

/// Why memory could not be given.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The size is 0 or more than the host can give.
    #[error(
        "cannot allocate {0} bytes of DMA memory: at least 1 byte, and no more than the host has"
    )]
    Size(usize),
    /// No allocation starts at this IOVA.
    #[error("no DMA allocation starts at IOVA {0:#x}")]
    NotAllocated(u64),
}

/// An access by the device that no allocation covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAccess {
    /// First IOVA of the access.
    pub iova: u64,
    /// Bytes.
    pub len: usize,
    /// A write, not a read.
    pub write: bool,
}

/// The first IOVA given: above 4 GiB, so that 64-bit addresses and 4DW headers are always exercised.
pub const FIRST_IOVA: u64 = 0x1_0000_0000;

#[derive(Debug)]
struct Allocation {
    iova: u64,
    pages: Pages,
}

/// All DMA memory of one host.
#[derive(Debug)]
pub struct HostMemory {
    /// Sorted by IOVA, since IOVAs only grow.
    allocations: Vec<Allocation>,
    foreign: Foreign,
    next_iova: u64,
    last: usize,
    bad: Vec<BadAccess>,
    bad_count: u64,
}

impl Default for HostMemory {
    fn default() -> Self {
        HostMemory {
            allocations: Vec::new(),
            foreign: Foreign::default(),
            next_iova: FIRST_IOVA,
            last: 0,
            bad: Vec::new(),
            bad_count: 0,
        }
    }
}

/// Bad accesses kept for the report; later ones are only counted.
const BAD_KEPT: usize = 64;

impl HostMemory {
    /// No allocation yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Zeroed memory of at least `len` bytes: its IOVA (page aligned) and its address, stable until [`HostMemory::free`].
    /// A page of unmapped IOVA follows it.
    pub fn allocate(&mut self, len: usize) -> Result<(u64, *mut u8), MemoryError> {
        let pages = Pages::new(len).ok_or(MemoryError::Size(len))?;
        let (iova, pointer) = (self.next_iova, pages.as_ptr());
        self.next_iova += (pages.len() + PAGE) as u64;
        self.allocations.push(Allocation { iova, pages });
        Ok((iova, pointer))
    }

    /// Unmaps and frees the allocation that starts at `iova`.
    pub fn free(&mut self, iova: u64) -> Result<(), MemoryError> {
        let at = self
            .allocations
            .binary_search_by_key(&iova, |a| a.iova)
            .map_err(|_| MemoryError::NotAllocated(iova))?;
        self.allocations.remove(at);
        self.last = 0;
        Ok(())
    }

    /// What another process has mapped for the card; looked at where no allocation is.
    pub fn foreign(&mut self) -> &mut Foreign {
        &mut self.foreign
    }

    /// Could all of `iova..iova + len` be written: is it inside one allocation or map? Records nothing.
    pub fn covers(&mut self, iova: u64, len: usize) -> bool {
        self.find(iova, len).is_some() || self.foreign.covers(iova, len)
    }

    /// Copies from memory; false, recorded and `out` unchanged when not all of it is allocated.
    pub fn read(&mut self, iova: u64, out: &mut [u8]) -> bool {
        let Some((at, offset)) = self.find(iova, out.len()) else {
            if self.foreign.read(iova, out) {
                return true;
            }
            self.record(BadAccess {
                iova,
                len: out.len(),
                write: false,
            });
            return false;
        };
        self.allocations[at].pages.read(offset, out);
        true
    }

    /// Copies to memory; false, recorded and nothing written when not all of it is allocated.
    pub fn write(&mut self, iova: u64, data: &[u8]) -> bool {
        let Some((at, offset)) = self.find(iova, data.len()) else {
            if self.foreign.write(iova, data) {
                return true;
            }
            self.record(BadAccess {
                iova,
                len: data.len(),
                write: true,
            });
            return false;
        };
        self.allocations[at].pages.write(offset, data);
        true
    }

    /// The first accesses outside any allocation (at most 64), in order.
    pub fn bad_accesses(&self) -> &[BadAccess] {
        &self.bad
    }

    /// How many accesses were outside any allocation.
    pub fn bad_count(&self) -> u64 {
        self.bad_count
    }

    /// Forgets the recorded bad accesses: for tests that make some on purpose.
    pub fn clear_bad(&mut self) {
        self.bad.clear();
        self.bad_count = 0;
    }

    /// Records an access that was refused before it reached memory.
    pub fn record(&mut self, access: BadAccess) {
        self.bad_count += 1;
        if self.bad.len() < BAD_KEPT {
            self.bad.push(access);
        }
    }

    fn find(&mut self, iova: u64, len: usize) -> Option<(usize, usize)> {
        let inside = |a: &Allocation| {
            let offset = iova.checked_sub(a.iova)?;
            let end = offset.checked_add(len as u64)?;
            (end <= a.pages.len() as u64).then_some(offset as usize)
        };
        if let Some(offset) = self.allocations.get(self.last).and_then(inside) {
            return Some((self.last, offset));
        }
        let at = self
            .allocations
            .partition_point(|a| a.iova <= iova)
            .checked_sub(1)?;
        let offset = inside(&self.allocations[at])?;
        self.last = at;
        Some((at, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_reach_their_allocation_and_nothing_else() {
        let mut memory = HostMemory::new();
        let (a, pa) = memory.allocate(100).unwrap();
        let (b, _) = memory.allocate(2 * PAGE).unwrap();
        assert_eq!(a % PAGE as u64, 0);
        assert_eq!(pa as usize % PAGE, 0);
        assert!(
            b >= a + 2 * PAGE as u64,
            "no guard page between {a:#x} and {b:#x}"
        );
        assert!(memory.write(b + PAGE as u64 - 2, b"abcd"));
        let mut out = [0; 4];
        assert!(memory.read(b + PAGE as u64 - 2, &mut out));
        assert_eq!(&out, b"abcd");
        assert!(memory.read(a, &mut out));
        assert_eq!(out, [0; 4]);
        assert_eq!(memory.bad_count(), 0);
    }

    #[test]
    fn misses_are_refused_and_recorded() {
        let mut memory = HostMemory::new();
        let (a, _) = memory.allocate(PAGE).unwrap();
        let end = a + PAGE as u64;
        assert!(!memory.write(end - 2, b"abcd"));
        assert!(!memory.read(a - 1, &mut [0; 1]));
        assert!(!memory.read(u64::MAX, &mut [0; 2]));
        assert_eq!(
            memory.bad_accesses()[0],
            BadAccess {
                iova: end - 2,
                len: 4,
                write: true
            }
        );
        assert_eq!(memory.bad_count(), 3);
        memory.free(a).unwrap();
        assert!(!memory.covers(a, 1));
        assert!(matches!(memory.free(a), Err(MemoryError::NotAllocated(_))));
        let (b, _) = memory.allocate(1).unwrap();
        assert!(b > end, "an IOVA was given again");
    }
}
