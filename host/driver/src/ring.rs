//! The rings: a submission queue and a completion queue in DMA memory, their indices and their doorbells. One of
//! the crate's files with `unsafe` code.
#![allow(unsafe_code)]

use crate::memory::Memory;
use crate::pci::Pci;
use std::sync::atomic::{Ordering, fence};
use weir_nvme::{Command, Completion, Status};

/// 64-bit words of a submission entry.
pub(crate) const ENTRY_WORDS: usize = 8;
/// A submission entry as the words it lies in memory as.
pub(crate) type Entry = [u64; ENTRY_WORDS];

/// A place in a submission ring, by the number of 64-bit words before it: what an address is made of with no further
/// instruction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(usize);

impl Place {
    #[inline]
    pub(crate) fn words(self) -> usize {
        self.0
    }

    #[inline]
    fn index(self) -> u32 {
        (self.0 / ENTRY_WORDS) as u32
    }
}

/// Where the next entry of a submission ring goes.
#[derive(Clone, Copy)]
pub(crate) struct Tail {
    base: *mut u64,
    next: Place,
}

impl Tail {
    #[inline]
    pub(crate) fn place(&self) -> Place {
        self.next
    }

    /// Writes, to `place`, a command that has no more than PRPs, starting LBA and dword 12: the words 0, 3, 4, 5 and 6. The others
    /// must be 0 in all of the ring: they are as long as nothing else is pushed.
    ///
    /// # Safety
    /// The place is inside the ring, at the tail or behind.
    #[inline]
    pub(crate) unsafe fn write_short(
        &self,
        place: Place,
        word0: u64,
        prp1: u64,
        slba: u64,
        word6: u64,
    ) {
        // SAFETY: the caller's word, and as in `push`.
        unsafe {
            let words = self.base.add(place.0);
            words.write(word0);
            words.add(3).write(prp1);
            words.add(4).write(0);
            words.add(5).write(slba);
            words.add(6).write(word6);
        }
    }

    /// The place `words` words on, and so that many divided by [`ENTRY_WORDS`] entries.
    #[inline]
    pub(crate) fn on(&self, words: usize) -> Place {
        Place(self.next.0 + words)
    }
}

/// The submission ring: the driver writes entries at the tail. The caller bounds what is in the ring.
pub(crate) struct SqRing<M> {
    /// Inside the ring, or at its end: then it must [go around](SqRing::go_around) before an entry is written.
    tail: Tail,
    /// How often the tail went around, modulo 2^32.
    laps: u32,
    /// The tail the device was last told.
    rung: u32,
    /// The head the device last reported.
    head: u32,
    mask: u32,
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
        SqRing {
            tail: Tail {
                base: memory.ptr().as_ptr().cast(),
                next: Place(0),
            },
            laps: 0,
            mask: entries - 1,
            rung: 0,
            head: 0,
            doorbell,
            memory: Some(memory),
        }
    }

    /// Writes `entry` at the tail, around the ring's end; the device learns of it with [`ring`](SqRing::ring).
    pub(crate) fn push(&mut self, entry: Entry) {
        if self.left() == 0 {
            self.go_around();
        }
        // SAFETY: the tail is inside the ring and aligned as `base`, which is page-aligned. The device reads this place only
        // after the doorbell, and has read what was here before, since the caller keeps fewer commands than entries in
        // the ring.
        unsafe {
            self.tail
                .base
                .add(self.tail.next.0)
                .cast::<Entry>()
                .write(entry)
        };
        self.set_tail(self.tail.on(ENTRY_WORDS));
    }

    #[inline]
    pub(crate) fn tail(&self) -> Tail {
        self.tail
    }

    /// Entries before the ring's end.
    pub(crate) fn left(&self) -> usize {
        self.mask as usize + 1 - self.tail.next.0 / ENTRY_WORDS
    }

    /// Moves the tail past what was written, up to the end at most.
    #[inline]
    pub(crate) fn set_tail(&mut self, place: Place) {
        self.tail.next = place;
    }

    /// Moves the tail from the end to the beginning.
    pub(crate) fn go_around(&mut self) {
        self.tail.next = Place(0);
        self.laps = self.laps.wrapping_add(1);
    }

    /// How often the tail went around, modulo 2^32.
    pub(crate) fn laps(&self) -> u32 {
        self.laps
    }

    /// Tells the device of all entries written since the last time.
    #[inline]
    pub(crate) fn ring(&mut self, pci: &impl Pci) {
        let tail = self.tail.next.index() & self.mask;
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
        let ahead = |of: u32| of.wrapping_sub(self.head) & self.mask;
        let legal = ahead(head) <= ahead(self.rung) && head <= self.mask;
        if legal {
            self.head = head;
        }
        legal
    }

    /// The tail the device was last told.
    pub(crate) fn rung(&self) -> u32 {
        self.rung
    }

    /// Entries ever written, modulo 2^32.
    pub(crate) fn written(&self) -> u32 {
        self.laps
            .wrapping_mul(self.mask + 1)
            .wrapping_add(self.tail.next.index())
    }

    /// Starts anew, as after a reset of the device.
    pub(crate) fn restart(&mut self) {
        self.tail.next = Place(0);
        (self.laps, self.rung, self.head) = (0, 0, 0);
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
    #[inline]
    fn new(word: u64, phase: u64) -> Look {
        Look(u64::from_le(word) ^ phase)
    }

    /// The entry is new.
    #[inline]
    pub(crate) fn is_new(self) -> bool {
        self.0 & PHASE == 0
    }

    /// Bits 15:0 SQID, 31:16 CID, 32 phase tag, 47:33 status: for a new entry of status 0 it is SQID and CID alone.
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

/// The completion ring: the device writes entries, the phase tag says which are new.
pub(crate) struct CqRing<M> {
    head: Head,
    base: *mut Completion,
    /// How often the head went around, modulo 2^32.
    laps: u32,
    mask: u32,
    /// Entries that may be read with the device not told, so that a carry out of it tells when it is time.
    untold: u32,
    batch: u32,
    doorbell: usize,
    memory: Option<M>,
}

/// Where the next completion is read.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    /// Always inside the ring.
    next: *mut Completion,
    /// One past the last entry.
    end: *mut Completion,
    /// The phase tag of a new entry there: 0 or [`PHASE`].
    phase: u64,
}

impl Head {
    /// Looks at the entry there.
    ///
    /// One aligned load of dwords 3:2, which hold all but the result: writes of a device become visible in the order of
    /// their addresses (PCIe 2.4.3), so that what comes with a new phase tag is new.
    #[inline]
    pub(crate) fn look(self) -> Look {
        // SAFETY: `next` is inside the ring and aligned as its base, which is page-aligned; the device writes here, hence
        // volatile.
        let word = unsafe { self.next.cast::<u64>().add(1).read_volatile() };
        Look::new(word, self.phase)
    }
}

impl Head {
    /// The submission queue head that the entry there reports.
    #[inline]
    pub(crate) fn sq_head(self) -> u16 {
        // SAFETY: as in `look`.
        u16::from_le(unsafe { self.next.cast::<u16>().add(4).read_volatile() })
    }
}

// SAFETY: as for `SqRing`.
unsafe impl<M: Send> Send for CqRing<M> {}

impl<M: Memory> CqRing<M> {
    /// A ring of `entries`, a power of two, in zeroed `memory`, told by the register at `doorbell` once `batch` (1 to
    /// `entries` - 1) were read.
    ///
    /// # Panics
    /// As [`SqRing::new`].
    pub(crate) fn new(memory: M, entries: u32, batch: u32, doorbell: usize) -> CqRing<M> {
        assert!(entries.is_power_of_two() && memory.len() >= entries as usize * Completion::SIZE);
        let base: *mut Completion = memory.ptr().as_ptr().cast();
        CqRing {
            head: Head {
                next: base,
                // SAFETY: the memory has room for all entries.
                end: unsafe { base.add(entries as usize) },
                phase: PHASE,
            },
            base,
            laps: 0,
            mask: entries - 1,
            untold: batch - 1,
            batch,
            doorbell,
            memory: Some(memory),
        }
    }

    /// Where the next entry is read: a copy, so that it may be in a register.
    #[inline]
    pub(crate) fn at(&self) -> Head {
        self.head
    }

    /// Looks at the entry at the head.
    #[inline]
    pub(crate) fn look(&self) -> Look {
        self.head.look()
    }

    /// Dword 0 of the entry at the head, which must be new.
    #[inline]
    pub(crate) fn result(&self) -> u32 {
        fence(Ordering::Acquire);
        // SAFETY: as in `look`.
        u32::from_le(unsafe { self.head.next.cast::<u32>().read_volatile() })
    }

    /// Goes past the entry at `at`, the head. What the device did before it wrote the entry is visible from here on.
    #[inline]
    pub(crate) fn go_past(&mut self, at: Head) {
        fence(Ordering::Acquire);
        // SAFETY: one past an entry of the ring is at most its end.
        self.set_head(unsafe { at.next.add(1) });
    }

    /// Goes past the entry at the head.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.go_past(self.head);
    }

    /// Goes to `next`, an entry of this lap or its end.
    #[inline]
    fn set_head(&mut self, next: *mut Completion) {
        self.head.next = next;
        if next == self.head.end {
            self.go_around();
        }
    }

    /// Inlined, so that nothing need be saved for a call.
    #[inline]
    fn go_around(&mut self) {
        (self.head.next, self.head.phase) = (self.base, self.head.phase ^ PHASE);
        self.laps = self.laps.wrapping_add(1);
    }

    /// For a loop that reads one entry after another, at most `most`, which is not 0, and not around the ring's end.
    #[inline]
    pub(crate) fn sweep(&mut self, most: u32) -> Sweep<'_, M> {
        Sweep {
            next: self.head.next,
            limit: self
                .head
                .next
                .wrapping_add(most as usize)
                .min(self.head.end),
            phase: self.head.phase,
            ring: self,
        }
    }

    /// `count` entries more were read; tells the device when it is time.
    #[inline]
    pub(crate) fn acknowledge(&mut self, pci: &impl Pci, count: u32) {
        let now;
        (self.untold, now) = self.untold.overflowing_sub(count);
        if now {
            self.untold = self.batch - 1;
            pci.write32(self.doorbell, self.head());
        }
    }

    /// Entries ever read, modulo 2^32.
    pub(crate) fn read(&self) -> u32 {
        self.laps
            .wrapping_mul(self.mask + 1)
            .wrapping_add(self.head())
    }

    /// Index of the next entry to read.
    #[inline]
    pub(crate) fn head(&self) -> u32 {
        // SAFETY: both point into the ring, `next` not before `base`.
        unsafe { self.head.next.offset_from_unsigned(self.base) as u32 }
    }

    /// Starts anew, as after a reset of the device: clears the phase tags.
    pub(crate) fn restart(&mut self) {
        for i in 0..=self.mask as usize {
            // SAFETY: `i` is below the ring's size.
            unsafe { self.base.add(i).write_volatile(Completion::default()) };
        }
        (self.head.next, self.head.phase) = (self.base, PHASE);
        (self.laps, self.untold) = (0, self.batch - 1);
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

/// Reads one entry after another, its place in registers; the ring has it after [`end`](Sweep::end).
pub(crate) struct Sweep<'c, M> {
    /// Inside the ring and before `limit`, or [there](Sweep::at_limit).
    next: *mut Completion,
    /// Where the ring ends, or the sweep.
    limit: *mut Completion,
    phase: u64,
    ring: &'c mut CqRing<M>,
}

impl<M: Memory> Sweep<'_, M> {
    /// As [`CqRing::look`].
    #[inline]
    pub(crate) fn look(&self) -> Look {
        Head {
            next: self.next,
            end: self.limit,
            phase: self.phase,
        }
        .look()
    }

    /// As [`CqRing::advance`]; not at the limit.
    #[inline]
    pub(crate) fn advance(&mut self) {
        fence(Ordering::Acquire);
        // SAFETY: one past an entry before `limit` is at most the ring's end.
        self.next = unsafe { self.next.add(1) };
    }

    /// At the end of the sweep.
    #[inline]
    pub(crate) fn at_limit(&self) -> bool {
        self.next == self.limit
    }

    /// Entries read.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        ((self.next.addr() - self.ring.head.next.addr()) / Completion::SIZE) as u32
    }

    /// Ends the sweep, in which entries were read: the submission queue head that the last one reports.
    #[inline]
    pub(crate) fn end(self) -> u16 {
        // SAFETY: the entry before, which was read; as in `look`.
        let sq_head = unsafe { self.next.sub(1).cast::<u16>().add(4).read_volatile() };
        self.ring.set_head(self.next);
        u16::from_le(sq_head)
    }
}
