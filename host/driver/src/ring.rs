//! The rings: a submission queue and a completion queue in DMA memory, their indices and their doorbells. One of
//! the crate's files with `unsafe` code.
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
    /// One past the last entry.
    end: *mut Entry,
    /// Where the next entry goes.
    next: *mut Entry,
    /// How often `next` went around, modulo 2^32.
    rounds: u32,
    mask: u32,
    /// The tail the device was last told.
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
        let base: *mut Entry = memory.ptr().as_ptr().cast();
        SqRing {
            base,
            // SAFETY: the memory has room for all entries.
            end: unsafe { base.add(entries as usize) },
            next: base,
            rounds: 0,
            mask: entries - 1,
            rung: 0,
            head: 0,
            doorbell,
            memory: Some(memory),
        }
    }

    /// Writes `entry` at the tail; the device learns of it with [`ring`](SqRing::ring).
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        // SAFETY: `next` is inside the ring and aligned as `base`, which is page-aligned. The device reads this place only
        // after the doorbell, and has read what was here before, since the caller keeps fewer commands than entries in
        // the ring. One past `next` is at most `end`.
        unsafe {
            self.next.write(entry);
            self.next = self.next.add(1);
        }
        if self.next == self.end {
            self.next = self.base;
            self.rounds = self.rounds.wrapping_add(1);
        }
    }

    /// Where the next entry goes, below the ring's size.
    #[inline]
    fn tail(&self) -> u32 {
        // SAFETY: both point into the ring, `next` not before `base`.
        unsafe { self.next.offset_from(self.base) as u32 }
    }

    /// Tells the device of all entries written since the last time.
    #[inline]
    pub(crate) fn ring(&mut self, pci: &impl Pci) {
        let tail = self.tail();
        if tail != self.rung {
            fence(Ordering::Release);
            self.rung = tail;
            pci.write32(self.doorbell, tail);
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
        self.rung
    }

    /// Entries ever written, modulo 2^32.
    pub(crate) fn written(&self) -> u32 {
        self.rounds
            .wrapping_mul(self.mask + 1)
            .wrapping_add(self.tail())
    }

    /// Starts anew, as after a reset of the device.
    pub(crate) fn restart(&mut self) {
        (self.next, self.rounds, self.rung, self.head) = (self.base, 0, 0, 0);
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
    /// One past the last entry.
    end: *mut Completion,
    /// The next entry to read.
    next: *mut Completion,
    /// The phase tag of a new entry there: 0 or [`PHASE`].
    phase: u32,
    /// How often `next` went around, modulo 2^32.
    rounds: u32,
    mask: u32,
    /// The head the device was last told.
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
        let base: *mut Completion = memory.ptr().as_ptr().cast();
        CqRing {
            base,
            // SAFETY: the memory has room for all entries.
            end: unsafe { base.add(entries as usize) },
            next: base,
            phase: PHASE,
            rounds: 0,
            mask: entries - 1,
            told: 0,
            doorbell,
            memory: Some(memory),
        }
    }

    /// The entry at the head when it is new, its `sq_head` left 0: see [`sq_head`](CqRing::sq_head). Its phase tag is
    /// read first and the rest after it.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Completion> {
        // SAFETY: `next` is inside the ring and aligned as `base`, which is page-aligned; the device writes here, hence
        // volatile. Dword 3 holds CID, phase and status, so they are of one moment; the fence keeps the other reads
        // after it.
        unsafe {
            let words = self.next.cast::<u32>();
            let last = words.add(3).read_volatile();
            if last & PHASE != self.phase {
                return None;
            }
            fence(Ordering::Acquire);
            Some(Completion {
                result: words.read_volatile(),
                reserved: 0,
                sq_head: 0,
                sqid: words.cast::<u16>().add(5).read_volatile(),
                cid: last as u16,
                status_phase: (last >> 16) as u16,
            })
        }
    }

    /// The submission queue head that the last entry read reports.
    #[inline]
    pub(crate) fn sq_head(&self) -> u16 {
        let last = if self.next == self.base {
            self.end
        } else {
            self.next
        };
        // SAFETY: `last` is past an entry of the ring, which the device does not write before it is told.
        unsafe { last.sub(1).cast::<u16>().add(4).read_volatile() }
    }

    /// Goes past the entry that [`peek`](CqRing::peek) gave.
    #[inline]
    pub(crate) fn advance(&mut self) {
        // SAFETY: one past an entry of the ring is at most `end`.
        self.next = unsafe { self.next.add(1) };
        if self.next == self.end {
            self.next = self.base;
            self.phase ^= PHASE;
            self.rounds = self.rounds.wrapping_add(1);
        }
    }

    /// Tells the device what was read, once at least `batch` entries were.
    #[inline]
    pub(crate) fn acknowledge(&mut self, pci: &impl Pci, batch: u32) {
        let head = self.head();
        if head.wrapping_sub(self.told) & self.mask >= batch {
            self.told = head;
            pci.write32(self.doorbell, head);
        }
    }

    /// Index of the next entry to read.
    #[inline]
    pub(crate) fn head(&self) -> u32 {
        // SAFETY: both point into the ring, `next` not before `base`.
        unsafe { self.next.offset_from(self.base) as u32 }
    }

    /// Entries ever read, modulo 2^32.
    pub(crate) fn read(&self) -> u32 {
        self.rounds
            .wrapping_mul(self.mask + 1)
            .wrapping_add(self.head())
    }

    /// Starts anew, as after a reset of the device: clears the phase tags.
    pub(crate) fn restart(&mut self) {
        for i in 0..=self.mask as usize {
            // SAFETY: `i` is below the ring's size.
            unsafe { self.base.add(i).write_volatile(Completion::default()) };
        }
        (self.next, self.phase, self.rounds, self.told) = (self.base, PHASE, 0, 0);
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
