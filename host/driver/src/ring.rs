//! The rings: a submission queue and a completion queue in DMA memory, their indices and their doorbells. The other of
//! the crate's two files with `unsafe`.
#![allow(unsafe_code)]

use crate::memory::Memory;
use crate::pci::Pci;
use std::sync::atomic::{Ordering, fence};
use weir_nvme::{Command, Completion};

/// A submission entry as the eight 64-bit words it lies in memory as.
pub(crate) type Entry = [u64; 8];

/// The submission ring: the driver writes entries at the tail. The caller bounds what is in the ring.
pub(crate) struct SqRing<M> {
    base: *mut Entry,
    mask: u32,
    /// Entries ever written, modulo 2^32; its lower bits are the tail.
    written: u32,
    /// The same, when the device was last told.
    rung: u32,
    /// The head the device last reported.
    head: u32,
    doorbell: usize,
    memory: Option<M>,
}

// SAFETY: the ring is the only one that uses `base`, and `memory` may be dropped where `M` may be sent.
unsafe impl<M: Send> Send for SqRing<M> {}

impl<M: Memory> SqRing<M> {
    /// A ring of `entries`, a power of two, in `memory`, told by the register at `doorbell`.
    ///
    /// # Panics
    /// When `memory` is too small, or `entries` no power of two: both are computed by this crate.
    pub(crate) fn new(memory: M, entries: u32, doorbell: usize) -> SqRing<M> {
        assert!(entries.is_power_of_two() && memory.len() >= entries as usize * Command::SIZE);
        SqRing {
            base: memory.ptr().as_ptr().cast(),
            mask: entries - 1,
            written: 0,
            rung: 0,
            head: 0,
            doorbell,
            memory: Some(memory),
        }
    }

    /// Writes `entry` at the tail; the device learns of it with [`ring`](SqRing::ring).
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        let tail = (self.written & self.mask) as usize;
        // SAFETY: the tail is below the ring's size; `base` is page-aligned. The device reads this place only after the
        // doorbell, and has read what was here before, since the caller keeps fewer commands than entries in the ring.
        unsafe { self.base.add(tail).write(entry) };
        self.written = self.written.wrapping_add(1);
    }

    /// Tells the device of all entries written since the last time.
    #[inline]
    pub(crate) fn ring(&mut self, pci: &impl Pci) {
        if self.written != self.rung {
            fence(Ordering::Release);
            self.rung = self.written;
            pci.write32(self.doorbell, self.written & self.mask);
        }
    }

    /// Takes the head that the device reports; false when it has not been told of as many entries.
    #[inline]
    pub(crate) fn note_head(&mut self, head: u32) -> bool {
        let legal = head.wrapping_sub(self.head) & self.mask
            <= self.rung.wrapping_sub(self.head) & self.mask;
        self.head = head;
        legal && head <= self.mask
    }

    /// The tail the device was last told.
    pub(crate) fn rung(&self) -> u32 {
        self.rung & self.mask
    }

    /// Entries ever written, modulo 2^32.
    pub(crate) fn written(&self) -> u32 {
        self.written
    }

    /// Starts anew, as after a reset of the device.
    pub(crate) fn restart(&mut self) {
        (self.written, self.rung, self.head) = (0, 0, 0);
    }

    /// Gives up the memory without freeing it: the device may still use it.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(self.memory.take());
    }

    pub(crate) fn iova(&self) -> u64 {
        self.memory.as_ref().map_or(0, Memory::iova)
    }

    pub(crate) fn entries(&self) -> u32 {
        self.mask + 1
    }
}

/// The phase tag in dword 3 of a completion.
const PHASE: u32 = 1 << 16;

/// The completion ring: the device writes entries, the phase tag says which are new.
pub(crate) struct CqRing<M> {
    base: *mut Completion,
    mask: u32,
    /// Entries ever read, modulo 2^32; its lower bits are the head, the bit above them the round.
    read: u32,
    /// The same, when the device was last told.
    told: u32,
    doorbell: usize,
    memory: Option<M>,
}

// SAFETY: as for `SqRing`.
unsafe impl<M: Send> Send for CqRing<M> {}

impl<M: Memory> CqRing<M> {
    /// A ring of `entries`, a power of two, in zeroed `memory`, told by the register at `doorbell`.
    ///
    /// # Panics
    /// As [`SqRing::new`].
    pub(crate) fn new(memory: M, entries: u32, doorbell: usize) -> CqRing<M> {
        assert!(entries.is_power_of_two() && memory.len() >= entries as usize * Completion::SIZE);
        CqRing {
            base: memory.ptr().as_ptr().cast(),
            mask: entries - 1,
            read: 0,
            told: 0,
            doorbell,
            memory: Some(memory),
        }
    }

    /// The entry at the head when it is new. Its phase tag is read first and the rest after it.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Completion> {
        // SAFETY: the head is below the ring's size and `base` page-aligned; the device writes here, hence volatile.
        // Dword 3 holds CID, phase and status, so they are of one moment; the fence keeps the other reads after it.
        unsafe {
            let words = self
                .base
                .add((self.read & self.mask) as usize)
                .cast::<u32>();
            let last = words.add(3).read_volatile();
            // The device's first round has phase tag 1, the next 0, and so on.
            if (last & PHASE == 0) != (self.read & (self.mask + 1) != 0) {
                return None;
            }
            fence(Ordering::Acquire);
            let queue = words.add(2).read_volatile();
            Some(Completion {
                result: words.read_volatile(),
                reserved: 0,
                sq_head: queue as u16,
                sqid: (queue >> 16) as u16,
                cid: last as u16,
                status_phase: (last >> 16) as u16,
            })
        }
    }

    /// Goes past the entry that [`peek`](CqRing::peek) gave.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.read = self.read.wrapping_add(1);
    }

    /// Tells the device what was read, once at least `batch` entries were.
    #[inline]
    pub(crate) fn acknowledge(&mut self, pci: &impl Pci, batch: u32) {
        if self.read.wrapping_sub(self.told) >= batch {
            self.told = self.read;
            pci.write32(self.doorbell, self.read & self.mask);
        }
    }

    /// Index of the next entry to read.
    pub(crate) fn head(&self) -> u32 {
        self.read & self.mask
    }

    /// Entries ever read, modulo 2^32.
    pub(crate) fn read(&self) -> u32 {
        self.read
    }

    /// Starts anew, as after a reset of the device: clears the phase tags.
    pub(crate) fn restart(&mut self) {
        for i in 0..=self.mask as usize {
            // SAFETY: `i` is below the ring's size.
            unsafe { self.base.add(i).write_volatile(Completion::default()) };
        }
        (self.read, self.told) = (0, 0);
    }

    /// Gives up the memory without freeing it: the device may still use it.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(self.memory.take());
    }

    pub(crate) fn iova(&self) -> u64 {
        self.memory.as_ref().map_or(0, Memory::iova)
    }

    pub(crate) fn entries(&self) -> u32 {
        self.mask + 1
    }
}
