//! What a submission queue knows of its LUNs: how many commands each holds, and how many it may hold.

use crate::masked::Masked;
use crate::request::SubmitError;

/// One LUN, as a submission queue sees it.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(crate) struct LunRow {
    /// A submission entry's first word less opcode and tag: NSID in bits 63:32, less the SQID that the tag has and the
    /// entry has not.
    word: u64,
    /// Bytes of a block, below 2^32; 0 while the LUN is not open.
    block: u64,
    /// Commands this queue has of it, less one: the private counter that bounds what it may hold. So a carry out of it
    /// tells that it held none, or holds none any more.
    held: u32,
    /// Blocks a command may move; 0 while the LUN is not open.
    max_blocks: u32,
}

/// [`LunRow::held`] of a LUN that holds no command.
const IDLE: u32 = u32::MAX;

impl Default for LunRow {
    fn default() -> Self {
        LunRow {
            word: 0,
            block: 0,
            held: IDLE,
            max_blocks: 0,
        }
    }
}

impl LunRow {
    #[inline]
    fn is_open(&self) -> bool {
        self.block != 0
    }

    fn in_flight(&self) -> u32 {
        self.held.wrapping_add(1)
    }

    /// A command has completed. The last one of a LUN gives back the place kept for it: true. Any other gives a spare one.
    #[inline]
    fn give(&mut self) -> bool {
        let idle;
        (self.held, idle) = self.held.overflowing_sub(1);
        idle
    }
}

/// Makes a way a branch, and not a value that is computed each time.
#[cold]
#[inline(always)]
pub(crate) fn hardly_ever() {}

/// Bytes of `blocks` blocks of `block` bytes, less one: huge for no block, and for the block of a LUN that is not open.
#[inline]
fn last_byte(blocks: u32, block: u64) -> u64 {
    (u64::from(blocks) * block).wrapping_sub(1)
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

/// Commands of one LUN and size that are put in one after another: what they share.
pub(crate) struct Run {
    /// See [`LunRow`].
    pub(crate) word: u64,
    /// Bytes of each, less one.
    pub(crate) last_byte: u64,
    /// Commands there is credit for.
    pub(crate) credit: u32,
}

/// The LUNs of one submission queue.
///
/// Invariant: every open LUN either has a command in flight or a place in the queue kept for it. The places beyond those
/// are the spare ones, of which some are the short way's credit; a LUN's first command takes its own, and every further
/// one a spare.
pub(crate) struct LunRows {
    rows: Masked<LunRow>,
    /// Commands that the short way may put in with nothing asked but this: spare places, at most as many as entries before
    /// the ring's end.
    credit: u32,
    /// The other spare places.
    spare: u32,
    /// The short way may have credit.
    short: bool,
    capacity: u32,
    sqid: u16,
}

/// Where the LUN is in what a slot's command is [about](LunRows::about).
const LUN: u32 = Masked::<LunRow>::SHIFT;

impl LunRows {
    /// For a queue that holds `capacity` commands.
    pub(crate) fn new(capacity: u32, sqid: u16) -> LunRows {
        LunRows {
            rows: Masked::new(Box::new([LunRow::default()])),
            credit: 0,
            spare: capacity,
            short: true,
            capacity,
            sqid,
        }
    }

    /// Commands of `lun` in flight.
    pub(crate) fn in_flight(&self, lun: u32) -> u32 {
        self.rows.get(lun).map_or(0, LunRow::in_flight)
    }

    /// Whether the short way may take commands; [`claim`](LunRows::claim) does either way.
    pub(crate) fn allow_short(&mut self, allow: bool) {
        self.take_credit();
        self.short = allow;
    }

    /// Gives the short way credit anew, for as many commands as there are entries `left` before the ring's end at most;
    /// false when there is none.
    pub(crate) fn give_credit(&mut self, left: usize) -> bool {
        self.take_credit();
        if self.short {
            self.credit = self.spare.min(left as u32);
            self.spare -= self.credit;
        }
        self.credit > 0
    }

    /// Takes the short way's credit back.
    pub(crate) fn take_credit(&mut self) {
        self.spare += std::mem::take(&mut self.credit);
    }

    fn row(&self, lun: u32) -> Option<&LunRow> {
        self.rows.get(lun).filter(|row| row.is_open())
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
            self.take_credit();
            self.spare = self.spare.checked_sub(1).ok_or(OpenError::NoEntry {
                lun,
                capacity: self.capacity,
            })?;
        }
        self.rows.grow(lun);
        let row = self.rows.offset(LunRows::about(lun) as usize);
        *row = LunRow {
            word: (u64::from(nsid) << 32).wrapping_sub(self.sqid.into()),
            block: 1 << shift,
            held: row.held,
            max_blocks,
        };
        Ok(())
    }

    pub(crate) fn close(&mut self, lun: u32) -> Result<(), OpenError> {
        let row = *self.row(lun).ok_or(OpenError::NotOpen { lun })?;
        if row.held != IDLE {
            return Err(OpenError::Busy {
                lun,
                in_flight: row.in_flight(),
            });
        }
        *self.rows.offset(LunRows::about(lun) as usize) = LunRow::default();
        self.spare += 1;
        Ok(())
    }

    /// What a slot keeps of a command of `lun`.
    #[inline]
    pub(crate) fn about(lun: u32) -> u64 {
        u64::from(lun) << LUN
    }

    /// The LUN of such; bits from 48 on are anything.
    #[inline]
    pub(crate) fn lun(about: u64) -> u32 {
        (about >> LUN) as u32
    }

    /// Takes the credit for one command of the short way; false when there is none.
    #[inline]
    pub(crate) fn spend(&mut self) -> bool {
        let none;
        (self.credit, none) = self.credit.overflowing_sub(1);
        if none {
            self.unspend();
        }
        !none
    }

    /// Gives back what [`spend`](LunRows::spend) took. A function, so that spending is one instruction.
    #[cold]
    #[inline(never)]
    pub(crate) fn unspend(&mut self) {
        self.credit = self.credit.wrapping_add(1);
    }

    /// The short way: counts a command of `lun`, for which credit was [spent](LunRows::spend), that moves `blocks` blocks
    /// from or to a buffer of which `span` bytes from the start on are in one page; gives the first word of its entry, less
    /// opcode and tag. `None`: the command must go the long way, which says what is wrong, if anything is.
    ///
    /// What fits the page fits the buffer, and MDTS, which is a page at least.
    #[inline]
    pub(crate) fn admit(&mut self, lun: u32, blocks: u32, span: usize) -> Option<u64> {
        let row = self.rows.get_mut(lun)?;
        if last_byte(blocks, row.block) >= span as u64 {
            return None;
        }
        let idle;
        (row.held, idle) = row.held.overflowing_add(1);
        if idle {
            hardly_ever();
            self.spare += 1;
        }
        Some(row.word)
    }

    pub(crate) fn has_credit(&self) -> bool {
        self.credit > 0
    }

    /// Counts the spare places anew.
    pub(crate) fn recount(&mut self) {
        self.credit = 0;
        let open = self.rows.iter().filter(|row| row.is_open());
        self.spare = self.capacity - open.map(|row| row.in_flight().max(1)).sum::<u32>();
    }

    /// What a run of `lun` needs; `None` when there is no such LUN.
    #[inline]
    pub(crate) fn run(&mut self, lun: u32, blocks: u32) -> Option<Run> {
        let row = self.rows.get_mut(lun)?;
        Some(Run {
            word: row.word,
            last_byte: last_byte(blocks, row.block),
            credit: self.credit,
        })
    }

    /// Counts `taken` commands of a run of `lun`, at most its credit.
    #[inline]
    pub(crate) fn count_run(&mut self, lun: u32, taken: u32) {
        let Some(row) = self.rows.get_mut(lun) else {
            return;
        };
        self.credit -= taken;
        let idle;
        (row.held, idle) = row.held.overflowing_add(taken);
        if idle {
            hardly_ever();
            self.spare += 1;
        }
    }

    /// The long way: counts a command of `lun`, always when the LUN holds none, else when there is a spare place; gives the
    /// first word of its entry, less opcode and tag. `None`: see [`refusal`](LunRows::refusal).
    pub(crate) fn claim(&mut self, lun: u32, transfer: Option<(u32, usize)>) -> Option<u64> {
        let row = *self.row(lun)?;
        if let Some((blocks, len)) = transfer
            && (blocks.wrapping_sub(1) >= row.max_blocks
                || last_byte(blocks, row.block) >= len as u64)
        {
            return None;
        }
        if row.held != IDLE {
            self.take_credit();
            self.spare = self.spare.checked_sub(1)?;
        }
        self.rows.offset(LunRows::about(lun) as usize).held = row.held.wrapping_add(1);
        Some(row.word)
    }

    /// Takes a claim back, or a command that has completed, which is `about` its LUN.
    #[inline]
    pub(crate) fn release(&mut self, about: u64) {
        if self.rows.offset(about as usize).give() {
            hardly_ever();
        } else {
            self.spare += 1;
        }
    }

    /// For commands that complete one after another.
    #[inline]
    pub(crate) fn giver(&mut self) -> Giver<'_> {
        Giver {
            rows: self.rows.view(),
            spare: &mut self.spare,
        }
    }

    /// Bytes of `blocks` blocks of an open LUN.
    pub(crate) fn bytes(&self, lun: u32, blocks: u32) -> usize {
        self.row(lun)
            .map_or(0, |row| blocks as usize * row.block as usize)
    }

    /// Whether a claim for `lun` would find a place.
    pub(crate) fn has_room(&self, lun: u32) -> bool {
        let row = self.row(lun);
        row.is_some_and(|row| row.held == IDLE || self.spare + self.credit > 0)
    }

    /// Why a claim was refused; `transfer` are the blocks and the buffer's length.
    pub(crate) fn refusal(&self, lun: u32, transfer: Option<(u32, usize)>) -> SubmitError {
        let Some(row) = self.row(lun) else {
            return SubmitError::NotOpen(lun);
        };
        if let Some((blocks, len)) = transfer {
            let want = blocks as usize * row.block as usize;
            if blocks == 0 || blocks > row.max_blocks {
                return SubmitError::Blocks {
                    blocks,
                    max: row.max_blocks,
                };
            } else if want > len {
                return SubmitError::Buffer { len, want };
            }
        }
        let kept = |row: &LunRow| row.is_open() && row.held == IDLE;
        match self.rows.iter().any(kept) {
            true => SubmitError::LunFull,
            false => SubmitError::QueueFull,
        }
    }
}

/// Counts commands that have completed; ends with [`end`](Giver::end).
pub(crate) struct Giver<'r> {
    rows: crate::masked::View<'r, LunRow>,
    /// Less, until the end, the commands counted.
    spare: &'r mut u32,
}

impl Giver<'_> {
    /// A command is `about` its LUN.
    #[inline]
    pub(crate) fn give(&mut self, about: u64) {
        if self.rows.offset(about as usize).give() {
            hardly_ever();
            *self.spare = self.spare.wrapping_sub(1);
        }
    }

    /// There were `count`.
    #[inline]
    pub(crate) fn end(self, count: u32) {
        *self.spare = self.spare.wrapping_add(count);
    }
}
