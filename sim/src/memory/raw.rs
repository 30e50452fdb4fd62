//! Pages that a device and a driver both reach by raw pointer. The only `unsafe` of host memory.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Bytes in a page, the unit of allocation (CAP.MPSMIN of the card is 4 KiB).
pub const PAGE: usize = 4096;

/// Zeroed, page-aligned memory whose address never changes while it lives.
///
/// Nobody ever holds a Rust reference into it: this side copies in and out, the driver uses volatile accesses.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: `Pages` owns its memory like a `Box`; nothing in it is tied to a thread.
unsafe impl Send for Pages {}

impl Pages {
    /// At least `len` bytes, rounded up to pages; `None` when `len` is 0, too large, or the host has no memory left.
    pub fn new(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len, PAGE).ok()?.pad_to_align();
        if layout.size() == 0 {
            return None;
        }
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Pages { start, layout })
    }

    /// Bytes, a multiple of [`PAGE`].
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// Never true: an allocation has at least a page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Where the memory is; valid until this value is dropped.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Copies `out.len()` bytes from `offset`. Panics when the range is not inside: callers have looked it up.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(
            offset
                .checked_add(out.len())
                .is_some_and(|end| end <= self.len())
        );
        // SAFETY: the range was checked to be inside this allocation; `out` is exclusive and cannot overlap it, since
        // no reference into the allocation is ever made.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset),
                out.as_mut_ptr(),
                out.len(),
            )
        }
    }

    /// Copies `data` to `offset`. Panics as [`Pages::read`] does.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        assert!(
            offset
                .checked_add(data.len())
                .is_some_and(|end| end <= self.len())
        );
        // SAFETY: as in `read`, with source and destination exchanged.
        unsafe {
            std::ptr::copy_nonoverlapping(
                data.as_ptr(),
                self.start.as_ptr().add(offset),
                data.len(),
            )
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this layout and is freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
