//! DMA memory and the buffers cut from it. One of the crate's files with `unsafe` code.
//!
//! While a device may write a buffer, the buffer is inside the driver and nobody can reach its bytes; they are reached
//! only through closures, so that no reference lives across a step of the device.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use weir_nvme::prp::first_len;

/// DMA memory as a [`Pci`](crate::Pci) back end hands it out.
///
/// # Safety
/// `ptr` is page-aligned and valid for reads and writes of `len` initialised bytes that belong to this value alone,
/// for as long as it lives; it does not change when the value moves. `iova` is page-aligned, and the device sees the
/// same bytes at `iova..iova + len`. Both accessors always return the same.
pub unsafe trait Memory: 'static {
    /// First byte, in this process.
    fn ptr(&self) -> NonNull<u8>;
    /// Bytes, a multiple of the page size.
    fn len(&self) -> usize;
    /// First byte, for the device.
    fn iova(&self) -> u64;
    /// True when there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A piece of DMA memory that holds an I/O's data. The memory lives until the last buffer cut from it is dropped.
///
/// It may be given only to queues of the function whose memory it is: to another, its IOVA would be any memory.
///
/// One word, no allocation to move it; its IOVA is a multiple of 4 (PRP entries need that).
pub struct Buffer<M>(Box<Piece<M>>);

/// What a [`Buffer`] is.
struct Piece<M> {
    iova: u64,
    /// Bytes from the start that are in one page, and so need no PRP but PRP1.
    span: usize,
    len: usize,
    ptr: NonNull<u8>,
    memory: Arc<M>,
}

impl<M> Piece<M> {
    fn shorten(&mut self, len: usize) {
        self.len = len;
        self.span = first_len(self.iova, len);
    }
}

// SAFETY: a buffer is the only way to its bytes, and `M` may be dropped by any thread that holds the last piece.
unsafe impl<M: Send + Sync> Send for Buffer<M> {}

impl<M: Memory> Buffer<M> {
    /// All of `memory` as one buffer.
    pub fn new(memory: M) -> Buffer<M> {
        Buffer(Box::new(Piece {
            iova: memory.iova(),
            span: first_len(memory.iova(), memory.len()),
            len: memory.len(),
            ptr: memory.ptr(),
            memory: Arc::new(memory),
        }))
    }

    /// Cuts `memory` into pieces of `len` bytes each; what is left over is not used. `len` must be a multiple of 4 and
    /// not 0, else there are no pieces.
    pub fn pieces(memory: M, len: usize) -> Vec<Buffer<M>> {
        let mut rest = Buffer::new(memory);
        let mut pieces = Vec::new();
        while len > 0 && rest.len() >= len {
            match rest.split_off(len) {
                Some(next) => pieces.push(std::mem::replace(&mut rest, next)),
                None => break,
            }
        }
        pieces
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// True when the buffer has no byte.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// First byte, for the device.
    pub fn iova(&self) -> u64 {
        self.0.iova
    }

    /// Bytes from the start that are in one page; at most [`len`](Buffer::len).
    #[inline]
    pub(crate) fn span(&self) -> usize {
        self.0.span
    }

    /// Cuts the buffer at byte `at`: it keeps what is before, the rest is returned. `None`, and no cut, when `at` is
    /// past the end or no multiple of 4.
    pub fn split_off(&mut self, at: usize) -> Option<Buffer<M>> {
        let piece = &mut *self.0;
        if at > piece.len || !at.is_multiple_of(4) {
            return None;
        }
        let mut tail = Piece {
            iova: piece.iova + at as u64,
            span: 0,
            len: 0,
            // SAFETY: `at` is at most `len`, so the result is inside the memory or one past it.
            ptr: unsafe { piece.ptr.add(at) },
            memory: piece.memory.clone(),
        };
        tail.shorten(piece.len - at);
        piece.shorten(at);
        Some(Buffer(Box::new(tail)))
    }

    /// Lets `f` read the bytes. `f` must not step a device.
    pub fn with<T>(&self, f: impl FnOnce(&[u8]) -> T) -> T {
        // SAFETY: the bytes are initialised and live as long as `memory`; pieces never overlap, and no device writes a
        // buffer that is not in flight, which it is not while we hold a reference to it.
        f(unsafe { std::slice::from_raw_parts(self.0.ptr.as_ptr(), self.0.len) })
    }

    /// Lets `f` change the bytes. `f` must not step a device.
    pub fn with_mut<T>(&mut self, f: impl FnOnce(&mut [u8]) -> T) -> T {
        // SAFETY: as in `with`, and `&mut self` makes this the only reference.
        f(unsafe { std::slice::from_raw_parts_mut(self.0.ptr.as_ptr(), self.0.len) })
    }
}

impl<M> fmt::Debug for Buffer<M> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Buffer({:#x}+{:#x})", self.0.iova, self.0.len)
    }
}

/// Memory whose words are read and written one at a time, by byte offset.
pub(crate) struct Words<M> {
    ptr: NonNull<u8>,
    iova: u64,
    len: usize,
    memory: Option<M>,
}

// SAFETY: this is the only way to the bytes, and `memory` may be dropped where `M` may be sent.
unsafe impl<M: Send> Send for Words<M> {}

impl<M: Memory> Words<M> {
    pub(crate) fn new(memory: M) -> Words<M> {
        Words {
            ptr: memory.ptr(),
            iova: memory.iova(),
            len: memory.len(),
            memory: Some(memory),
        }
    }

    pub(crate) fn iova(&self) -> u64 {
        self.iova
    }

    /// Stores `value` at byte `at`.
    ///
    /// # Panics
    /// When `at` is no multiple of 8 or past the end.
    pub(crate) fn set(&mut self, at: usize, value: u64) {
        assert!(
            at.is_multiple_of(8) && at < self.len,
            "word {at} of {} bytes",
            self.len
        );
        // SAFETY: inside the memory, which is whole pages, and aligned: `ptr` is page-aligned and `at` a multiple of 8.
        unsafe { self.ptr.add(at).cast::<u64>().write_volatile(value) }
    }

    /// Copies bytes from the start out, until `out` is full.
    ///
    /// # Panics
    /// When there are not as many.
    pub(crate) fn copy_out(&self, out: &mut [u8]) {
        assert!(out.len() <= self.len);
        for (i, byte) in out.iter_mut().enumerate() {
            // SAFETY: `i` is below `len`.
            *byte = unsafe { self.ptr.add(i).read_volatile() };
        }
    }

    /// Zeros everything, so that what a device failed to write is not taken for an answer.
    pub(crate) fn clear(&mut self) {
        for at in (0..self.len).step_by(8) {
            self.set(at, 0);
        }
    }

    /// Gives up the memory without freeing it: the device may still use it.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(self.memory.take());
    }
}
