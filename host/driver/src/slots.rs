//! What a submission queue knows of its commands: a slot for each, and how many each LUN holds.
//!
//! A command's CID is its slot's index plus a generation in the bits above, so that one comparison tells a command
//! that is in flight from one that never was and from one that has completed before.

use crate::memory::Buffer;

/// One command in flight; a cache line.
#[repr(align(64))]
pub(crate) struct Slot<M> {
    pub(crate) buffer: Option<Buffer<M>>,
    pub(crate) user: u64,
    /// The CID of the command; with [`FREE`], the CID of the next.
    cid: u32,
    pub(crate) lun: u32,
    /// The queue's tick when the command was submitted.
    pub(crate) tick: u32,
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
    pub(crate) max_blocks: u32,
    /// A block is 2^shift bytes.
    pub(crate) shift: u8,
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

/// Why there is no slot for a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSlot {
    QueueFull,
    LunFull,
    NotOpen,
}

/// The slots of one submission queue.
///
/// Invariant: free slots are at least as many as open LUNs with nothing in flight, so each of them can submit.
pub(crate) struct Slots<M> {
    slots: Box<[Slot<M>]>,
    luns: Vec<LunRow>,
    first_free: u16,
    free: u32,
    /// Open LUNs with nothing in flight.
    idle: u32,
}

impl<M> Slots<M> {
    /// `entries` slots, a power of two up to [`MAX_SLOTS`], of which one stays free: that is what a ring can hold.
    pub(crate) fn new(entries: u32) -> Slots<M> {
        let slot = |i| Slot {
            buffer: None,
            user: 0,
            cid: i | FREE,
            lun: 0,
            tick: 0,
            next: (i + 1) as u16,
        };
        Slots {
            slots: (0..entries).map(slot).collect(),
            luns: Vec::new(),
            first_free: 0,
            free: entries - 1,
            idle: 0,
        }
    }

    /// Commands the slots can hold.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.len() as u32 - 1
    }

    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// What is known of `lun`.
    #[inline]
    pub(crate) fn lun(&self, lun: u32) -> Option<&LunRow> {
        self.luns.get(lun as usize)
    }

    /// Commands of `lun` in flight.
    pub(crate) fn in_flight(&self, lun: u32) -> u32 {
        self.lun(lun).map_or(0, |row| row.in_flight)
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
            if self.free <= self.idle {
                return Err(OpenError::NoEntry {
                    lun,
                    capacity: self.capacity(),
                });
            }
            self.idle += 1;
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
        self.idle -= 1;
        Ok(())
    }

    /// Takes a slot for a command of `lun`: always when the LUN holds none, else when that leaves one for each open LUN
    /// that holds none.
    #[inline]
    pub(crate) fn claim(&mut self, lun: u32) -> Result<usize, NoSlot> {
        let row = self.luns.get_mut(lun as usize).ok_or(NoSlot::NotOpen)?;
        if row.in_flight == 0 {
            if !row.open {
                return Err(NoSlot::NotOpen);
            }
            self.idle -= 1;
        } else if self.free <= self.idle {
            return Err(if self.free == 0 {
                NoSlot::QueueFull
            } else {
                NoSlot::LunFull
            });
        }
        row.in_flight += 1;
        self.free -= 1;
        let at = usize::from(self.first_free);
        self.first_free = self.slots[at].next;
        Ok(at)
    }

    /// Fills a claimed slot; returns the command's CID.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        at: usize,
        lun: u32,
        buffer: Option<Buffer<M>>,
        user: u64,
        tick: u32,
    ) -> u16 {
        let slot = &mut self.slots[at];
        slot.buffer = buffer;
        slot.user = user;
        slot.lun = lun;
        slot.tick = tick;
        slot.cid &= !FREE;
        slot.cid as u16
    }

    /// Frees the slot of the command `cid` and gives its user token, LUN and buffer; `None` when no such command is in
    /// flight.
    #[inline]
    pub(crate) fn complete(&mut self, cid: u16) -> Option<(u64, u32, Option<Buffer<M>>)> {
        let at = usize::from(cid) & (self.slots.len() - 1);
        let entries = self.slots.len() as u32;
        let slot = self.slots.get_mut(at)?;
        if slot.cid != u32::from(cid) {
            return None;
        }
        slot.cid = (slot.cid + entries) & CID_MASK | FREE;
        slot.next = self.first_free;
        self.first_free = at as u16;
        self.free += 1;
        let (user, lun, buffer) = (slot.user, slot.lun, slot.buffer.take());
        if let Some(row) = self.luns.get_mut(lun as usize) {
            row.in_flight -= 1;
            self.idle += u32::from(row.in_flight == 0);
        }
        Some((user, lun, buffer))
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
        Box::leak(std::mem::take(&mut self.slots));
    }
}
