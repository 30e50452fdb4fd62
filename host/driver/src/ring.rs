//! The rings: a submission queue and a completion queue in DMA memory, their indices and their doorbells. One of
//! the crate's files with `unsafe` code.
#![allow(unsafe_code)]

use crate::memory::Memory;
use crate::pci::Pci;
use std::sync::atomic::{Ordering, fence};
use weir_nvme::{Command, Completion, Status};

/// A submission entry as the eight 64-bit words it lies in memory as.
pub(crate) type Entry = [u64; 8];

/// Where the next entry of a submission ring goes.
///
/// A copy of it that has pushed must be [put](SqRing::put_tail) back before any other pushes.
#[derive(Clone, Copy)]
pub(crate) struct Tail {
    base: *mut Entry,
    /// One past the last entry.
    end: *mut Entry,
    next: *mut Entry,
}

impl Tail {
    /// Writes a command that has no more than PRPs, starting LBA and dword 12: the words 0, 3, 4, 5 and 6. The others
    /// must be 0 in all of the ring: they are as long as nothing else is pushed.
    #[inline]
    pub(crate) fn push_short(&mut self, word0: u64, prp: (u64, u64), slba: u64, word6: u64) {
        // SAFETY: as in `push`.
        unsafe {
            let words = self.next.cast::<u64>();
            words.write(word0);
            words.add(3).write(prp.0);
            words.add(4).write(prp.1);
            words.add(5).write(slba);
            words.add(6).write(word6);
        }
        self.advance();
    }

    #[inline]
    fn push(&mut self, entry: Entry) {
        // SAFETY: `next` is inside the ring and aligned as `base`, which is page-aligned. The device reads this place only
        // after the doorbell, and has read what was here before, since the caller keeps fewer commands than entries in
        // the ring.
        unsafe { self.next.write(entry) };
        self.advance();
    }

    #[inline]
    fn advance(&mut self) {
        // SAFETY: one past an entry of the ring is at most `end`.
        self.next = unsafe { self.next.add(1) };
        if self.next == self.end {
            self.next = self.base;
        }
    }
}

/// The submission ring: the driver writes entries at the tail. The caller bounds what is in the ring.
pub(crate) struct SqRing<M> {
    tail: Tail,
    /// How often the tail went around, modulo 2^32.
    rounds: u32,
    mask: u32,
    /// The tail the device was last told.
    rung: u32,
    /// The head the device last reported.
    head: u32,
    doorbell: usize,
    memory: Option<M>,
}

// SAFETY: the ring is the only one that uses the memory that `tail` points into, and `memory` may be dropped where `M`
// may be sent.
unsafe impl<M: Send> Send for SqRing<M> {}

impl<M: Memory> SqRing<M> {
    /// A ring of `entries`, a power of two, in zeroed `memory`, told by the register at `doorbell`.
    ///
    /// # Panics
    /// When `memory` is too small, or `entries` no power of two: both are computed by this crate.
    pub(crate) fn new(memory: M, entries: u32, doorbell: usize) -> SqRing<M> {
        assert!(entries.is_power_of_two() && memory.len() >= entries as usize * Command::SIZE);
        let base: *mut Entry = memory.ptr().as_ptr().cast();
        SqRing {
            tail: Tail {
                base,
                // SAFETY: the memory has room for all entries.
                end: unsafe { base.add(entries as usize) },
                next: base,
            },
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
        self.tail.push(entry);
        self.count_round();
    }

    /// See [`Tail::push_short`].
    #[inline]
    pub(crate) fn push_short(&mut self, word0: u64, prp: (u64, u64), slba: u64, word6: u64) {
        self.tail.push_short(word0, prp, slba, word6);
        self.count_round();
    }

    /// After each push.
    #[inline]
    fn count_round(&mut self) {
        if self.tail.next == self.tail.base {
            self.rounds = self.rounds.wrapping_add(1);
        }
    }

    #[inline]
    pub(crate) fn tail(&self) -> Tail {
        self.tail
    }

    /// Puts back the copy that [`tail`](SqRing::tail) gave, with fewer entries pushed than the ring has.
    #[inline]
    pub(crate) fn put_tail(&mut self, tail: Tail) {
        if tail.next < self.tail.next {
            self.rounds = self.rounds.wrapping_add(1);
        }
        self.tail.next = tail.next;
    }

    /// Index of where the next entry goes, below the ring's size.
    #[inline]
    fn index(&self) -> u32 {
        // SAFETY: both point into the ring, `next` not before `base`.
        unsafe { self.tail.next.offset_from_unsigned(self.tail.base) as u32 }
    }

    /// Tells the device of all entries written since the last time.
    #[inline]
    pub(crate) fn ring(&mut self, pci: &impl Pci) {
        let tail = self.index();
        if tail != self.rung {
            fence(Ordering::Release);
            self.rung = tail;
            pci.write32(self.doorbell, tail);
        }
    }

    /// Takes the head that the device reports; false when it has not been told of as many entries.
    #[inline]
    pub(crate) fn note_head(&mut self, head: u32) -> bool {
        if head == self.rung {
            // All that the device was told of.
            self.head = head;
            return true;
        }
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
            .wrapping_add(self.index())
    }

    /// Starts anew, as after a reset of the device.
    pub(crate) fn restart(&mut self) {
        self.tail.next = self.tail.base;
        (self.rounds, self.rung, self.head) = (0, 0, 0);
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

/// The phase tag in dwords 3:2 of a completion.
const PHASE: u64 = 1 << 48;

/// Dwords 3:2 of a completion, the phase tag 0 when the entry is new and 1 when it is old.
#[derive(Clone, Copy)]
pub(crate) struct Look(u64);

impl Look {
    /// The entry is new.
    #[inline]
    pub(crate) fn is_new(self) -> bool {
        self.0 & PHASE == 0
    }

    /// The submission queue head that it reports.
    #[inline]
    pub(crate) fn sq_head(self) -> u16 {
        self.0 as u16
    }

    /// All but the head: bits 15:0 SQID, 31:16 CID, 32 as [`is_new`](Look::is_new) says, 47:33 status. For a new entry of
    /// status 0 it is SQID and CID alone.
    #[inline]
    pub(crate) fn tag(self) -> u64 {
        self.0 >> 16
    }

    pub(crate) fn sqid(self) -> u16 {
        self.tag() as u16
    }

    pub(crate) fn cid(self) -> u16 {
        (self.0 >> 32) as u16
    }

    pub(crate) fn status(self) -> Status {
        Status::from_bits((self.0 >> 49) as u16)
    }
}

/// The next entry and phase tag past the end. A function, so that the way around it is a branch that is hardly
/// ever taken, and not computed each time.
#[cold]
#[inline(never)]
fn wrapped(base: *mut Completion, phase: u64) -> (*mut Completion, u64) {
    (base, phase ^ PHASE)
}

/// The completion ring: the device writes entries, the phase tag says which are new.
pub(crate) struct CqRing<M> {
    base: *mut Completion,
    /// One past the last entry.
    end: *mut Completion,
    /// The next entry to read.
    next: *mut Completion,
    /// The phase tag of a new entry there: 0 or [`PHASE`].
    phase: u64,
    mask: u32,
    /// Entries ever read, modulo 2^32.
    read: u32,
    /// What `read` was when the device was last told.
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
            mask: entries - 1,
            read: 0,
            told: 0,
            doorbell,
            memory: Some(memory),
        }
    }

    /// Looks at the entry at the head.
    ///
    /// One aligned load of dwords 3:2, which hold all but the result: writes of a device become visible in the order of
    /// their addresses (PCIe 2.4.3), so that what comes with a new phase tag is new.
    #[inline]
    pub(crate) fn look(&self) -> Look {
        // SAFETY: `next` is inside the ring and aligned as `base`, which is page-aligned; the device writes here, hence
        // volatile.
        let word = unsafe { self.next.cast::<u64>().add(1).read_volatile() };
        Look(u64::from_le(word) ^ self.phase)
    }

    /// Dword 0 of the entry at the head, which must be new.
    #[inline]
    pub(crate) fn result(&self) -> u32 {
        fence(Ordering::Acquire);
        // SAFETY: as in `look`.
        u32::from_le(unsafe { self.next.cast::<u32>().read_volatile() })
    }

    /// Goes past the entry at the head. What the device did before it wrote the entry is visible from here on.
    #[inline]
    pub(crate) fn advance(&mut self) {
        fence(Ordering::Acquire);
        self.read = self.read.wrapping_add(1);
        // SAFETY: one past an entry of the ring is at most `end`.
        self.next = unsafe { self.next.add(1) };
        if self.next == self.end {
            (self.next, self.phase) = wrapped(self.base, self.phase);
        }
    }

    /// Tells the device what was read, once at least `batch` entries were since it was last told.
    #[inline]
    pub(crate) fn acknowledge(&mut self, pci: &impl Pci, batch: u32) {
        if self.read.wrapping_sub(self.told) >= batch {
            self.told = self.read;
            pci.write32(self.doorbell, self.head());
        }
    }

    /// Entries ever read, modulo 2^32.
    pub(crate) fn read(&self) -> u32 {
        self.read
    }

    /// Index of the next entry to read.
    #[inline]
    pub(crate) fn head(&self) -> u32 {
        // SAFETY: both point into the ring, `next` not before `base`.
        unsafe { self.next.offset_from_unsigned(self.base) as u32 }
    }

    /// Starts anew, as after a reset of the device: clears the phase tags.
    pub(crate) fn restart(&mut self) {
        for i in 0..=self.mask as usize {
            // SAFETY: `i` is below the ring's size.
            unsafe { self.base.add(i).write_volatile(Completion::default()) };
        }
        (self.next, self.phase) = (self.base, PHASE);
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
