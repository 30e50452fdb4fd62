//! The commands of a submission queue that are in flight: a slot for each. One of the crate's files with `unsafe` code.
//!
//! The slots are used in the order of the ring: its entry n gets slot n, modulo their number, which is twice the ring's
//! entries, so that a command that takes longer than its neighbours rarely is in the way. When it is, its place in the
//! ring gets some other free slot, on the long way. So there is no list of free slots to keep.
//!
//! A command's CID is its slot's index plus a generation in the bits above; bit 15 marks those that are not in order.
//! With the SQID it makes the command's tag, as it lies in a completion: bits 15:0 SQID, 31:16 CID. So one comparison of
//! a new completion's words with its slot's tag tells a command that is in flight and succeeded from one that failed,
//! that never was, or that has completed before.
#![allow(unsafe_code)]

use crate::memory::Buffer;
use crate::ring::{ENTRY_WORDS, Place};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A free slot's tag. A command's ends below bit 32, [`Look::tag`](crate::ring::Look::tag) below bit 48.
const FREE: u64 = u64::MAX;
/// In a tag: its completion takes the long way, so that it equals none.
const LONG: u64 = 1 << 60;
/// In a tag: the slot has no buffer; with [`LONG`].
const BARE: u64 = 1 << 61;
/// In a tag: it is of `submit_raw`; with [`LONG`].
const RAW: u64 = 1 << 62;
/// Where the CID is in a tag.
const CID: u32 = 16;
/// CIDs in the order of the ring use bits 14:0.
const IN_ORDER: u32 = 0x7FFF;
/// The CID that stands for 'no command' in the error log.
const NO_CID: u16 = 0xFFFF;
/// The most entries a ring may have, and the most slots.
pub(crate) const MAX_SLOTS: u32 = 0x8000;
/// Where the age is in [`Slot::about`].
const AGE: u32 = 48;

/// One command in flight; half a cache line.
///
/// Invariant: `buffer` is initialised exactly while the tag is not [`FREE`] and has no [`BARE`].
#[repr(align(32))]
struct Slot<M> {
    tag: u64,
    buffer: MaybeUninit<Buffer<M>>,
    user: u64,
    /// What the caller wants back, below [`AGE`]; from there on how often [`Table::tick`] was called since.
    about: u64,
}

/// A slot is 2^SHIFT bytes.
const SHIFT: u32 = 5;
/// Bytes of slots for each 64-bit word of the ring.
const SLOT_A_WORD: usize = (1 << SHIFT) / ENTRY_WORDS;

impl<M> Slot<M> {
    fn free() -> Slot<M> {
        const { assert!(size_of::<Slot<M>>() == 1 << SHIFT) };
        Slot {
            tag: FREE,
            buffer: MaybeUninit::uninit(),
            user: 0,
            about: 0,
        }
    }

    #[inline]
    fn fill(&mut self, tag: u64, buffer: Buffer<M>, user: u64, about: u64) {
        self.tag = tag;
        self.buffer.write(buffer);
        self.user = user;
        self.about = about;
    }

    /// Frees it; the buffer, when it has one.
    fn empty(&mut self) -> Option<Buffer<M>> {
        let tag = std::mem::replace(&mut self.tag, FREE);
        // SAFETY: the invariant; it is not there any more for the tag that it has now.
        (tag != FREE && tag & BARE == 0).then(|| unsafe { self.buffer.assume_init_read() })
    }

    fn ended(&mut self) -> Ended<M> {
        Ended {
            user: self.user,
            about: self.about,
            buffer: self.empty(),
        }
    }
}

/// What a slot held of a command that has completed.
pub(crate) struct Ended<M> {
    pub(crate) user: u64,
    /// See [`Table::fill`]; bits from [`AGE`] on are anything.
    pub(crate) about: u64,
    pub(crate) buffer: Option<Buffer<M>>,
}

/// A command in flight, as [`Table::iter`] lists it.
pub(crate) struct InFlight {
    pub(crate) cid: u16,
    pub(crate) user: u64,
    pub(crate) about: u64,
    pub(crate) age: u32,
}

/// Where the next command goes, when it goes in order. A copy of it that has [advanced](Next::advance) must be put back.
pub(crate) struct Next<M> {
    /// The slot of the ring's entry 0 in this lap.
    slots: NonNull<Slot<M>>,
    /// The next command's tag.
    tag: u64,
}

impl<M> Clone for Next<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Next<M> {}

impl<M> Next<M> {
    /// The slot of the ring's entry at `place`.
    ///
    /// # Safety
    /// `place` is one of the ring that the table was made for; nothing else uses the table while the slot is used.
    #[inline]
    unsafe fn slot<'a>(self, place: Place) -> &'a mut Slot<M> {
        // SAFETY: a lap has a slot for each entry of the ring; the caller's word for the rest.
        unsafe { &mut *self.slots.as_ptr().byte_add(place.words() * SLOT_A_WORD) }
    }

    /// Whether the slot of `place` is free.
    ///
    /// # Safety
    /// As [`slot`](Next::slot).
    #[inline]
    pub(crate) unsafe fn is_free(self, place: Place) -> bool {
        // SAFETY: the caller's word.
        unsafe { self.slot(place) }.tag == FREE
    }

    /// Whether the slot of `place` has the command that goes there next.
    ///
    /// # Safety
    /// As [`slot`](Next::slot).
    pub(crate) unsafe fn is_filled(self, place: Place) -> bool {
        // SAFETY: the caller's word.
        unsafe { self.slot(place) }.tag == self.tag
    }

    /// Fills the slot of `place`, which must be free, with a command; gives its tag. `about` is less than 2^[`AGE`].
    ///
    /// # Safety
    /// As [`slot`](Next::slot).
    #[inline]
    pub(crate) unsafe fn fill(
        &mut self,
        place: Place,
        buffer: Buffer<M>,
        user: u64,
        about: u64,
    ) -> u64 {
        let tag = self.tag;
        // SAFETY: the caller's word.
        unsafe { self.slot(place) }.fill(tag, buffer, user, about);
        self.advance();
        tag
    }

    /// Goes where `next`, a copy of it, has gone.
    #[inline]
    pub(crate) fn follow(&mut self, next: Next<M>) {
        self.tag = next.tag;
    }

    /// Goes to the next place, by a command or without.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.tag += 1 << CID;
    }
}

/// The slots of one submission queue.
pub(crate) struct Table<M> {
    slots: NonNull<Slot<M>>,
    /// Bytes of all slots but one.
    mask: usize,
    entries: u32,
    sqid: u16,
    /// Commands that were not in order.
    moved: u32,
    owned: PhantomData<Slot<M>>,
}

// SAFETY: it is the only way to its slots, which may be sent where buffers may.
unsafe impl<M> Send for Table<M> where Buffer<M>: Send {}

impl<M> Table<M> {
    /// Slots for a ring of `entries`, a power of two up to [`MAX_SLOTS`].
    pub(crate) fn new(entries: u32, sqid: u16) -> Table<M> {
        assert!(entries.is_power_of_two() && entries <= MAX_SLOTS);
        let slots: Box<[Slot<M>]> = (0..Self::count(entries)).map(|_| Slot::free()).collect();
        Table {
            mask: (slots.len() - 1) << SHIFT,
            slots: NonNull::from(Box::leak(slots)).cast(),
            entries,
            sqid,
            moved: 0,
            owned: PhantomData,
        }
    }

    /// Slots of a ring of `entries`.
    pub(crate) fn count(entries: u32) -> usize {
        (2 * entries).min(MAX_SLOTS) as usize
    }

    fn all(&mut self) -> &mut [Slot<M>] {
        // SAFETY: as many as were made, and ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.slots.as_ptr(), (self.mask >> SHIFT) + 1) }
    }

    fn all_ref(&self) -> &[Slot<M>] {
        // SAFETY: as in `all`.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), (self.mask >> SHIFT) + 1) }
    }

    /// Where the first command of the ring's lap `lap` goes.
    pub(crate) fn lap(&self, lap: u32) -> Next<M> {
        let first = lap.wrapping_mul(self.entries);
        Next {
            // SAFETY: masked, and so inside; there are as many slots as entries or twice as many, so a lap does not
            // end behind the last.
            slots: unsafe { self.slots.byte_add((first as usize) << SHIFT & self.mask) },
            tag: u64::from(first & IN_ORDER) << CID | u64::from(self.sqid),
        }
    }

    /// For [`Taker::take`].
    #[inline]
    pub(crate) fn taker(&mut self) -> Taker<'_, M> {
        Taker {
            slots: self.slots,
            mask: self.mask,
            table: PhantomData,
        }
    }

    /// A free slot for the command that `next` would be, were its slot free: its index and tag.
    pub(crate) fn find(&mut self, next: Next<M>) -> Option<(usize, u64)> {
        let mask = self.mask >> SHIFT;
        let own = (next.tag >> CID) as usize & mask;
        if self.all()[own].tag == FREE {
            return Some((own, next.tag));
        }
        // The one that the ring comes to last, and from there on.
        let generation = self.moved.wrapping_mul(mask as u32 + 1) & IN_ORDER;
        let cid = |at: usize| !(IN_ORDER as u16) | generation as u16 | at as u16;
        let at = (1..=mask)
            .map(|i| (own + mask / 2 + i) & mask)
            .find(|&at| self.all_ref()[at].tag == FREE && cid(at) != NO_CID)?;
        self.moved = self.moved.wrapping_add(1);
        Some((at, u64::from(cid(at)) << CID | u64::from(self.sqid)))
    }

    /// Fills slot `at`, found with `tag`. What is `long` completes the long way, as all does that has no buffer or is
    /// `raw`.
    pub(crate) fn fill(
        &mut self,
        (at, tag): (usize, u64),
        buffer: Option<Buffer<M>>,
        (user, about): (u64, u64),
        raw: bool,
    ) {
        let slot = &mut self.all()[at];
        let raw = if raw { RAW | LONG } else { 0 };
        slot.tag = match buffer {
            Some(buffer) => {
                slot.buffer.write(buffer);
                tag | raw
            }
            None => tag | raw | BARE | LONG,
        };
        (slot.user, slot.about) = (user, about);
    }

    /// As [`Taker::take`], for every command; true for one of `submit_raw`.
    pub(crate) fn take_any(&mut self, cid: u16) -> Option<(bool, Ended<M>)> {
        let tag = u64::from(cid) << CID | u64::from(self.sqid);
        let at = usize::from(cid) & self.mask >> SHIFT;
        let slot = &mut self.all()[at];
        let is = slot.tag;
        (is != FREE && is & !(LONG | BARE | RAW) == tag).then(|| (is & RAW != 0, slot.ended()))
    }

    /// Whether the command of `cid` is in flight.
    pub(crate) fn has(&self, cid: u16) -> bool {
        let slot = &self.all_ref()[usize::from(cid) & self.mask >> SHIFT];
        slot.tag != FREE && (slot.tag >> CID) as u16 == cid
    }

    /// Lets no command complete but the long way.
    pub(crate) fn slow_down(&mut self) {
        self.all().iter_mut().for_each(|slot| slot.tag |= LONG);
    }

    /// Ages the commands in flight by one.
    pub(crate) fn age(&mut self) {
        for slot in self.all() {
            slot.about = slot.about.checked_add(1 << AGE).unwrap_or(slot.about);
        }
    }

    /// The commands in flight.
    pub(crate) fn iter(&self) -> impl Iterator<Item = InFlight> {
        let slots = self.all_ref().iter().filter(|slot| slot.tag != FREE);
        slots.map(|slot| InFlight {
            cid: (slot.tag >> CID) as u16,
            user: slot.user,
            about: slot.about & ((1 << AGE) - 1),
            age: (slot.about >> AGE) as u32,
        })
    }

    /// Forgets the commands without freeing their buffers: the device may still use them.
    pub(crate) fn leak(&mut self) {
        self.all().iter_mut().for_each(|slot| slot.tag = FREE);
    }
}

impl<M> Drop for Table<M> {
    fn drop(&mut self) {
        self.all().iter_mut().for_each(|slot| drop(slot.empty()));
        // SAFETY: the box that `new` leaked.
        drop(unsafe { Box::from_raw(self.all()) });
    }
}

/// Takes commands out of a table as they complete: a copy of what it takes to find them.
pub(crate) struct Taker<'t, M> {
    slots: NonNull<Slot<M>>,
    mask: usize,
    table: PhantomData<&'t mut Table<M>>,
}

impl<'t, M> Taker<'t, M> {
    /// The slot of the command that `tag` names; `None` when no such command is in flight, or it must complete the long
    /// way.
    #[inline]
    pub(crate) fn find(&mut self, tag: u64) -> Option<Found<'t, M>> {
        let offset = (tag >> (CID - SHIFT)) as usize & self.mask;
        // SAFETY: a masked offset is that of a slot inside.
        let slot = unsafe { &mut *self.slots.as_ptr().byte_add(offset) };
        if slot.tag == tag {
            Some(Found(slot))
        } else {
            None
        }
    }
}

/// The slot of a command that has completed with success.
pub(crate) struct Found<'t, M>(&'t mut Slot<M>);

impl<M> Found<'_, M> {
    /// Frees it, and gives the command's user token, what it is about, and its buffer.
    #[inline]
    pub(crate) fn take(self) -> (u64, u64, Buffer<M>) {
        let slot = self.0;
        slot.tag = FREE;
        // SAFETY: the invariant: the tag that it was found by is neither free nor bare.
        let buffer = unsafe { slot.buffer.assume_init_read() };
        (slot.user, slot.about, buffer)
    }
}
