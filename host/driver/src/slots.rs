//! What a submission queue knows of its commands: a slot for each, and how many each LUN holds.
//!
//! A command's CID is its slot's index plus a generation in the bits above, so that one comparison tells a command
//! that is in flight from one that never was and from one that has completed before.

use crate::masked::Masked;
use crate::memory::Buffer;
use crate::request::SubmitError;

/// One command in flight; a cache line.
#[repr(align(64))]
pub(crate) struct Slot<M> {
    pub(crate) buffer: Option<Buffer<M>>,
    pub(crate) user: u64,
    /// The CID of the command; with [`FREE`], the CID of the next.
    cid: u32,
    pub(crate) lun: u32,
    /// How often [`Slots::age`] was called since it was submitted.
    pub(crate) age: u32,
    /// Next free slot.
    next: u16,
}

const FREE: u32 = 1 << 31;
/// CIDs use bits 14:0; FFFFh stands for 'no command' in the error log.
const CID_MASK: u32 = 0x7FFF;
/// The most slots there may be.
pub(crate) const MAX_SLOTS: u32 = CID_MASK + 1;

/// One LUN, as a submission queue sees it.
#[derive(Clone, Copy, Default)]
pub(crate) struct LunRow {
    pub(crate) nsid: u32,
    /// Commands this queue has of it: the private counter that bounds what it may hold.
    in_flight: u32,
    /// Blocks a command may move; 0 while the LUN is not open.
    max_blocks: u32,
    /// A block is 2^shift bytes.
    shift: u8,
    open: bool,
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

/// A slot taken for a command.
pub(crate) struct Claim {
    /// Index of the slot.
    pub(crate) at: usize,
    /// Namespace identifier of the command.
    pub(crate) nsid: u32,
    /// Bytes of the transfer.
    pub(crate) bytes: usize,
}

/// The slots of one submission queue.
///
/// Invariant: every open LUN either has a command in flight or a free slot kept for it. The free slots beyond those are
/// the spare ones; a LUN's first command takes its own slot, and every further one a spare.
pub(crate) struct Slots<M> {
    slots: Masked<Slot<M>>,
    luns: Vec<LunRow>,
    spare: u32,

    first_free: u16,
}

impl<M> Slots<M> {
    /// `entries` slots, a power of two up to [`MAX_SLOTS`], of which one stays free: that is what a ring can hold.
    pub(crate) fn new(entries: u32) -> Slots<M> {
        let slot = |i| Slot {
            buffer: None,
            user: 0,
            cid: i | FREE,
            lun: 0,
            age: 0,
            next: (i + 1) as u16,
        };
        Slots {
            slots: Masked::new((0..entries).map(slot).collect()),
            luns: Vec::new(),
            spare: entries - 1,
            first_free: 0,
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

    pub(crate) fn is_open(&self, lun: u32) -> bool {
        self.luns.get(lun as usize).is_some_and(|row| row.open)
    }

    pub(crate) fn open(
        &mut self,
        lun: u32,
        nsid: u32,
        shift: u8,
        max_blocks: u32,
    ) -> Result<(), OpenError> {
        let at = lun as usize;
        if self.luns.len() <= at {
            self.luns.resize(at + 1, LunRow::default());
        }
        if !self.luns[at].open {
            self.spare = self.spare.checked_sub(1).ok_or(OpenError::NoEntry {
                lun,
                capacity: self.capacity(),
            })?;
        }
        let in_flight = self.luns[at].in_flight;
        self.luns[at] = LunRow {
            nsid,
            in_flight,
            max_blocks,
            shift,
            open: true,
        };
        Ok(())
    }

    pub(crate) fn close(&mut self, lun: u32) -> Result<(), OpenError> {
        let row = self
            .luns
            .get_mut(lun as usize)
            .filter(|row| row.open)
            .ok_or(OpenError::NotOpen { lun })?;
        if row.in_flight > 0 {
            return Err(OpenError::Busy {
                lun,
                in_flight: row.in_flight,
            });
        }
        *row = LunRow::default();
        self.spare += 1;
        Ok(())
    }

    /// Takes a slot for a command of `lun` that moves `blocks` blocks from or to a buffer of `len` bytes. `None`: see
    /// [`refusal`](Slots::refusal).
    #[inline]
    pub(crate) fn claim_transfer(&mut self, lun: u32, blocks: u32, len: usize) -> Option<Claim> {
        let row = self.luns.get(lun as usize)?;
        let bytes = (blocks as usize) << row.shift;
        if blocks.wrapping_sub(1) >= row.max_blocks || bytes > len {
            return None;
        }
        self.claim(lun, bytes)
    }

    /// Takes a slot for a command of `lun` that moves `bytes` bytes: always when the LUN holds none, else when there is
    /// a spare one. `None`: see [`refusal`](Slots::refusal).
    #[inline]
    pub(crate) fn claim(&mut self, lun: u32, bytes: usize) -> Option<Claim> {
        let row = self.luns.get_mut(lun as usize)?;
        let first = row.in_flight == 0;
        if if first { !row.open } else { self.spare == 0 } {
            return None;
        }
        self.spare -= u32::from(!first);
        row.in_flight += 1;
        let at = usize::from(self.first_free);
        self.first_free = self.slots.at(at).next;
        Some(Claim {
            at,
            nsid: row.nsid,
            bytes,
        })
    }

    /// Whether a claim for `lun` would find a slot.
    pub(crate) fn has_room(&self, lun: u32) -> bool {
        let row = self.luns.get(lun as usize).filter(|row| row.open);
        row.is_some_and(|row| row.in_flight == 0 || self.spare > 0)
    }

    /// Why a claim was refused; `transfer` are the blocks and the buffer's length.
    pub(crate) fn refusal(&self, lun: u32, transfer: Option<(u32, usize)>) -> SubmitError {
        let Some(row) = self.luns.get(lun as usize).filter(|row| row.open) else {
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
        match self.luns.iter().any(|row| row.open && row.in_flight == 0) {
            true => SubmitError::LunFull,
            false => SubmitError::QueueFull,
        }
    }

    /// Fills a claimed slot; returns the command's CID.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        at: usize,
        lun: u32,
        buffer: Option<Buffer<M>>,
        user: u64,
    ) -> u16 {
        let slot = self.slots.at(at);
        // A free slot has no buffer, so there is none to drop.
        std::mem::forget(std::mem::replace(&mut slot.buffer, buffer));
        slot.user = user;
        slot.lun = lun;
        slot.age = 0;
        slot.cid &= !FREE;
        slot.cid as u16
    }

    /// Frees the slot of the command `cid` and gives its user token, LUN and buffer; `None` when no such command is in
    /// flight.
    #[inline]
    pub(crate) fn complete(&mut self, cid: u16) -> Option<(u64, u32, Option<Buffer<M>>)> {
        let entries = self.slots.len() as u32;
        let at = usize::from(cid) & (self.slots.len() - 1);
        let slot = self.slots.at(at);
        if slot.cid != u32::from(cid) {
            return None;
        }
        slot.cid = (slot.cid + entries) & CID_MASK | FREE;
        slot.next = self.first_free;
        self.first_free = at as u16;
        if let Some(row) = self.luns.get_mut(slot.lun as usize) {
            row.in_flight -= 1;
            // The last command of a LUN gives back the slot kept for it, any other a spare one.
            self.spare += u32::from(row.in_flight != 0);
        }
        Some((slot.user, slot.lun, slot.buffer.take()))
    }

    /// Ages the commands in flight by one.
    pub(crate) fn age(&mut self) {
        for slot in self.slots.iter_mut() {
            slot.age = slot.age.saturating_add(1);
        }
    }

    /// The commands in flight, as (CID, slot).
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Slot<M>)> {
        self.slots
            .iter()
            .filter(|slot| slot.cid & FREE == 0)
            .map(|slot| (slot.cid as u16, slot))
    }

    /// Forgets the slots without freeing their buffers: the device may still use them.
    pub(crate) fn leak(&mut self) {
        for slot in self.slots.iter_mut() {
            std::mem::forget(slot.buffer.take());
        }
    }
}
