//! What a submission queue knows of its commands: a slot for each, and how many each LUN holds.
//!
//! A command's CID is its slot's index plus a generation in the bits above. With the SQID it makes the command's tag, as
//! it lies in a completion: bits 15:0 SQID, 31:16 CID. So one comparison of a new completion's words with its slot's tag
//! tells a command that is in flight and succeeded from one that failed, that never was, or that has completed before.

use crate::masked::Masked;
use crate::memory::{Buffer, Memory};
use crate::request::SubmitError;

/// One command in flight; half a cache line.
#[repr(align(32))]
pub(crate) struct Slot<M> {
    /// The command's tag, with [`RAW`] when it is one of `submit_raw`. In a free slot the tag that the next free slot's
    /// command gets, whose index is another's, so that no completion's equals it; [`NONE`] in the last.
    tag: u64,
    buffer: Option<Buffer<M>>,
    pub(crate) user: u64,
    pub(crate) lun: u32,
    /// How often [`Slots::age`] was called since it was submitted.
    pub(crate) age: u32,
}

/// No tag. A tag ends below bit 32, and [`Look::tag`](crate::ring::Look::tag) below bit 48.
const NONE: u64 = u64::MAX;
/// In a slot's tag: its completion is not to be taken on the short way, which does not read the result.
pub(crate) const RAW: u64 = 1 << 62;
/// CIDs use bits 14:0; FFFFh stands for 'no command' in the error log.
const TAG_MASK: u64 = 0x7FFF_FFFF;
/// Where the CID is in a tag.
const CID: u32 = 16;
/// The most slots there may be.
pub(crate) const MAX_SLOTS: u32 = 0x8000;
/// The shift of a LUN that is not open: no number of blocks gives a length that passes.
const CLOSED: u32 = 63;

/// One LUN, as a submission queue sees it.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(crate) struct LunRow {
    /// A submission entry's first word less opcode and tag: NSID in bits 63:32, less the SQID that the tag has and the
    /// entry has not.
    word: u64,
    /// A block is 2^shift bytes; [`CLOSED`] while the LUN is not open.
    shift: u32,
    /// Commands this queue has of it: the private counter that bounds what it may hold.
    in_flight: u32,
    /// Blocks a command may move; 0 while the LUN is not open.
    max_blocks: u32,
}

impl LunRow {
    #[inline]
    fn is_open(&self) -> bool {
        self.shift != CLOSED
    }

    #[inline]
    fn last_byte(&self, blocks: u32) -> u64 {
        last_byte(blocks, self.shift)
    }
}

/// Bytes of `blocks` blocks, less one: huge for no block, and for the shift of a LUN that is not open.
#[inline]
fn last_byte(blocks: u32, shift: u32) -> u64 {
    u64::from(blocks).wrapping_shl(shift).wrapping_sub(1)
}

impl Default for LunRow {
    fn default() -> Self {
        LunRow {
            word: 0,
            shift: CLOSED,
            in_flight: 0,
            max_blocks: 0,
        }
    }
}

/// Why a LUN could not be opened or closed on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Every open LUN has one entry kept for it, and there is none left.
    #[error(
        "LUN {lun}: the queue has {capacity} entries and as many LUNs open, or they are in use"
    )]
    NoEntry {
        /// The LUN.
        lun: u32,
        /// Commands the queue can hold.
        capacity: u32,
    },
    /// The LUN is not open on this queue.
    #[error("LUN {lun} is not open on this queue")]
    NotOpen {
        /// The LUN.
        lun: u32,
    },
    /// The LUN has commands in flight on this queue.
    #[error("LUN {lun} has {in_flight} commands in flight on this queue")]
    Busy {
        /// The LUN.
        lun: u32,
        /// Its commands.
        in_flight: u32,
    },
}

/// What a slot held of a command that has completed.
pub(crate) struct Ended<M> {
    pub(crate) user: u64,
    pub(crate) lun: u32,
    pub(crate) buffer: Option<Buffer<M>>,
}

/// Commands of one LUN that are put in one after another: what they share, taken out of the tables. It must be given
/// back to [`Slots::close_run`] before anything else is done with the slots.
pub(crate) struct Run {
    /// See [`LunRow`].
    word: u64,
    shift: u32,
    /// The LUN held none: one slot is the one kept for it.
    first: bool,
    /// Commands it may still take.
    room: u32,
    /// Commands taken.
    taken: u32,
    /// Tag of the next command.
    next: u64,
}

/// The slots of one submission queue.
///
/// Invariant: every open LUN either has a command in flight or a free slot kept for it. The free slots beyond those are
/// the spare ones; a LUN's first command takes its own slot, and every further one a spare.
pub(crate) struct Slots<M> {
    slots: Masked<Slot<M>>,
    luns: Masked<LunRow>,
    /// LUNs from here on are refused on the short way: the table's size, or 0 when every command must go the long one.
    short: u32,
    spare: u32,
    /// Tag of the next command, whose slot is the first free one.
    next: u64,
    /// What a tag grows by from a slot's command to its next.
    generation: u64,
    sqid: u16,
}

impl<M: Memory> Slots<M> {
    /// `entries` slots, a power of two up to [`MAX_SLOTS`], of which one stays free: that is what a ring can hold.
    pub(crate) fn new(entries: u32, sqid: u16) -> Slots<M> {
        let tag = |i| u64::from(i) << CID | u64::from(sqid);
        let slot = |i| Slot {
            tag: if i + 1 < entries { tag(i + 1) } else { NONE },
            buffer: None,
            user: 0,
            lun: 0,
            age: 0,
        };
        Slots {
            slots: Masked::new((0..entries).map(slot).collect()),
            luns: Masked::new(Box::new([LunRow::default()])),
            short: 1,
            spare: entries - 1,
            next: tag(0),
            generation: u64::from(entries) << CID,
            sqid,
        }
    }

    /// Commands the slots can hold.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.len() as u32 - 1
    }

    /// Commands of `lun` in flight.
    pub(crate) fn in_flight(&self, lun: u32) -> u32 {
        self.luns.get(lun as usize).map_or(0, |row| row.in_flight)
    }

    /// Whether [`start`](Slots::start) may take commands; [`claim`](Slots::claim) does either way.
    pub(crate) fn allow_short(&mut self, allow: bool) {
        self.short = if allow { self.luns.len() as u32 } else { 0 };
    }

    fn row(&self, lun: u32) -> Option<&LunRow> {
        self.luns.get(lun as usize).filter(|row| row.is_open())
    }

    pub(crate) fn is_open(&self, lun: u32) -> bool {
        self.row(lun).is_some()
    }

    pub(crate) fn open(
        &mut self,
        lun: u32,
        nsid: u32,
        shift: u8,
        max_blocks: u32,
    ) -> Result<(), OpenError> {
        let was_open = self.is_open(lun);
        if !was_open {
            self.spare = self.spare.checked_sub(1).ok_or(OpenError::NoEntry {
                lun,
                capacity: self.capacity(),
            })?;
        }
        self.luns.grow(lun as usize);
        if self.short > 0 {
            self.short = self.luns.len() as u32;
        }
        let row = self.luns.at(lun as usize);
        *row = LunRow {
            word: (u64::from(nsid) << 32).wrapping_sub(self.sqid.into()),
            shift: shift.into(),
            in_flight: row.in_flight,
            max_blocks,
        };
        Ok(())
    }

    pub(crate) fn close(&mut self, lun: u32) -> Result<(), OpenError> {
        let row = *self.row(lun).ok_or(OpenError::NotOpen { lun })?;
        if row.in_flight > 0 {
            return Err(OpenError::Busy {
                lun,
                in_flight: row.in_flight,
            });
        }
        *self.luns.at(lun as usize) = LunRow::default();
        self.spare += 1;
        Ok(())
    }

    /// The short way: takes a slot for a command of `lun` that moves `blocks` blocks from or to one page of `buffer`, and
    /// gives the first word of its entry, less the opcode. An error gives the buffer back: then the command must go the
    /// long way, which says what is wrong, if anything is.
    ///
    /// What fits the page fits the buffer, and MDTS, which is a page at least.
    #[inline]
    pub(crate) fn start(
        &mut self,
        lun: u32,
        blocks: u32,
        buffer: Buffer<M>,
        user: u64,
    ) -> Result<u64, Buffer<M>> {
        if lun >= self.short {
            return Err(buffer);
        }
        let row = self.luns.at(lun as usize);
        if row.last_byte(blocks) >= buffer.span() as u64 {
            return Err(buffer);
        }
        if row.in_flight != 0 {
            if self.spare == 0 {
                return Err(buffer);
            }
            self.spare -= 1;
        }
        row.in_flight += 1;
        let word = row.word;
        Ok(word.wrapping_add(self.fill(lun, Some(buffer), user)))
    }

    /// Begins a run of `lun`: none when the LUN is not open, or nothing may go the short way.
    #[inline]
    pub(crate) fn open_run(&mut self, lun: u32) -> Run {
        let closed = &mut LunRow::default();
        let row = match lun < self.short {
            true => self.luns.at(lun as usize),
            false => closed,
        };
        Run {
            word: row.word,
            shift: row.shift,
            first: row.in_flight == 0,
            room: self.spare + u32::from(row.in_flight == 0),
            taken: 0,
            next: self.next,
        }
    }

    /// As [`start`](Slots::start), in a run.
    #[inline]
    pub(crate) fn start_in(
        &mut self,
        run: &mut Run,
        lun: u32,
        blocks: u32,
        buffer: Buffer<M>,
        user: u64,
    ) -> Result<u64, Buffer<M>> {
        if last_byte(blocks, run.shift) >= buffer.span() as u64 || run.taken == run.room {
            return Err(buffer);
        }
        run.taken += 1;
        let tag = run.next;
        run.next = self.put(tag, lun, Some(buffer), user);
        Ok(run.word.wrapping_add(tag))
    }

    /// Ends a run.
    #[inline]
    pub(crate) fn close_run(&mut self, run: &Run, lun: u32) {
        if run.taken > 0 {
            self.next = run.next;
            self.luns.at(lun as usize).in_flight += run.taken;
            self.spare -= run.taken - u32::from(run.first);
        }
    }

    /// The long way: counts a command of `lun`, always when the LUN holds none, else when there is a spare slot; gives the
    /// first word of its entry, less opcode and tag. `None`: see [`refusal`](Slots::refusal).
    pub(crate) fn claim(&mut self, lun: u32, transfer: Option<(u32, usize)>) -> Option<u64> {
        let row = *self.row(lun)?;
        if let Some((blocks, len)) = transfer
            && (blocks.wrapping_sub(1) >= row.max_blocks || row.last_byte(blocks) >= len as u64)
        {
            return None;
        }
        if row.in_flight > 0 {
            self.spare = self.spare.checked_sub(1)?;
        }
        self.luns.at(lun as usize).in_flight += 1;
        Some(row.word)
    }

    /// Bytes of `blocks` blocks of an open LUN.
    pub(crate) fn bytes(&self, lun: u32, blocks: u32) -> usize {
        self.row(lun)
            .map_or(0, |row| (blocks as usize) << row.shift)
    }

    /// Index of the slot that the next command gets.
    pub(crate) fn next_index(&self) -> usize {
        (self.next >> CID) as usize & (self.slots.len() - 1)
    }

    /// The command of `tag` completes on the long way only.
    pub(crate) fn mark_raw(&mut self, tag: u64) {
        self.slots.at_bit::<CID>(tag).tag |= RAW;
    }

    /// Whether a claim for `lun` would find a slot.
    pub(crate) fn has_room(&self, lun: u32) -> bool {
        let row = self.row(lun);
        row.is_some_and(|row| row.in_flight == 0 || self.spare > 0)
    }

    /// Why a claim was refused; `transfer` are the blocks and the buffer's length.
    pub(crate) fn refusal(&self, lun: u32, transfer: Option<(u32, usize)>) -> SubmitError {
        let Some(row) = self.row(lun) else {
            return SubmitError::NotOpen(lun);
        };
        if let Some((blocks, len)) = transfer {
            let want = (blocks as usize) << row.shift;
            if blocks == 0 || blocks > row.max_blocks {
                return SubmitError::Blocks {
                    blocks,
                    max: row.max_blocks,
                };
            } else if want > len {
                return SubmitError::Buffer { len, want };
            }
        }
        match self
            .luns
            .iter()
            .any(|row| row.is_open() && row.in_flight == 0)
        {
            true => SubmitError::LunFull,
            false => SubmitError::QueueFull,
        }
    }

    /// Fills the slot of a claimed command; returns its tag.
    #[inline]
    pub(crate) fn fill(&mut self, lun: u32, buffer: Option<Buffer<M>>, user: u64) -> u64 {
        let tag = self.next;
        self.next = self.put(tag, lun, buffer, user);
        tag
    }

    /// Fills the slot of `tag`, the first free one; returns the tag that the next free one's command gets.
    #[inline]
    fn put(&mut self, tag: u64, lun: u32, buffer: Option<Buffer<M>>, user: u64) -> u64 {
        let slot = self.slots.at_bit::<CID>(tag);
        let next = std::mem::replace(&mut slot.tag, tag);
        // A free slot has no buffer, so there is none to drop.
        std::mem::forget(std::mem::replace(&mut slot.buffer, buffer));
        slot.user = user;
        slot.lun = lun;
        slot.age = 0;
        next
    }

    /// Frees the slot of the command that `tag` names and gives its user token, LUN and buffer; `None` when no such command
    /// is in flight.
    #[inline]
    pub(crate) fn complete(&mut self, tag: u64) -> Option<Ended<M>> {
        let slot = self.slots.at_bit::<CID>(tag);
        if slot.tag != tag {
            return None;
        }
        slot.tag = self.next;
        self.next = (tag + self.generation) & TAG_MASK;
        let row = self.luns.at(slot.lun as usize);
        row.in_flight -= 1;
        // The last command of a LUN gives back the slot kept for it, any other a spare one.
        if row.in_flight != 0 {
            self.spare += 1;
        }
        Some(Ended {
            user: slot.user,
            lun: slot.lun,
            buffer: slot.buffer.take(),
        })
    }

    /// As [`complete`](Slots::complete), for every command; true for one of `submit_raw`.
    pub(crate) fn complete_any(&mut self, cid: u16) -> Option<(bool, Ended<M>)> {
        let tag = u64::from(cid) << CID | u64::from(self.sqid);
        let slot = self.slots.at_bit::<CID>(tag);
        let raw = slot.tag == tag | RAW;
        if raw {
            slot.tag = tag;
        }
        Some((raw, self.complete(tag)?))
    }

    /// Ages the commands in flight by one.
    pub(crate) fn age(&mut self) {
        for slot in self.slots.iter_mut() {
            slot.age = slot.age.saturating_add(1);
        }
    }

    /// The commands in flight, as (CID, slot).
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Slot<M>)> {
        let mask = self.slots.len() - 1;
        self.slots
            .iter()
            .enumerate()
            .filter(move |(at, slot)| slot.tag != NONE && (slot.tag >> CID) as usize & mask == *at)
            .map(|(_, slot)| ((slot.tag >> CID) as u16, slot))
    }

    /// Forgets the slots without freeing their buffers: the device may still use them.
    pub(crate) fn leak(&mut self) {
        for slot in self.slots.iter_mut() {
            std::mem::forget(slot.buffer.take());
        }
    }
}
