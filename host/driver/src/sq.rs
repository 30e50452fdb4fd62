//! [`Sq`]: one submission queue with the commands in it. One of the crate's files with `unsafe` code: it keeps the ring
//! and the table of its commands in step.
#![allow(unsafe_code)]

use crate::memory::{Buffer, Memory};
use crate::pci::{AllocError, Pci};
use crate::prp::PrpLists;
use crate::request::Op;
use crate::ring::{ENTRY_WORDS, SqRing};
use crate::rows::LunRows;
use crate::table::{Ended, Next, Table};
use weir_nvme::{Command, NvmOpcode};

/// One submission queue.
pub(crate) struct Sq<M> {
    pub(crate) ring: SqRing<M>,
    pub(crate) rows: LunRows,
    /// Where the next command goes: the place of the ring's tail.
    next: Next<M>,
    /// As many slots, or twice as many, as the ring has entries.
    pub(crate) table: Table<M>,
    lists: PrpLists<M>,
    /// Entries of `submit_raw` may be in the ring.
    raw: bool,
}

// SAFETY: `next` points into `table`, and the rest may be sent where buffers and their memory may.
unsafe impl<M: Send> Send for Sq<M> where Table<M>: Send {}

/// A read or write: blocks, starting LBA, user token.
pub(crate) type Transfer = (u32, u64, u64);

impl<M: Memory> Sq<M> {
    pub(crate) fn new<P: Pci<Memory = M>>(
        pci: &P,
        (entries, sqid): (u32, u16),
        doorbell: usize,
        max_transfer: usize,
        prp_list_offset: usize,
    ) -> Result<Sq<M>, AllocError> {
        let memory = pci.alloc(entries as usize * Command::SIZE)?;
        let table = Table::new(entries, sqid);
        Ok(Sq {
            ring: SqRing::new(memory, entries, doorbell),
            rows: LunRows::new(entries - 1, sqid),
            next: table.lap(0),
            table,
            lists: PrpLists::new(
                pci,
                Table::<M>::count(entries),
                max_transfer,
                prp_list_offset,
            )?,
            raw: false,
        })
    }

    /// A read or write by the short way, when it can go there: inside one page of its buffer, the LUN open, credit for it,
    /// and the slot in order free. Else it gives the buffer back, and the command must go the long way.
    #[inline(always)]
    pub(crate) fn start(
        &mut self,
        lun: u32,
        op: Op,
        buffer: Buffer<M>,
        (blocks, slba, user): Transfer,
    ) -> Result<(), Buffer<M>> {
        if !self.rows.spend() && !self.refill_and_spend() {
            return Err(buffer);
        }
        let (tail, mut next) = (self.ring.tail(), self.next);
        let place = tail.place();
        // SAFETY: with credit, the tail is a place of the ring, for which the table was made.
        if !unsafe { next.is_free(place) } {
            self.rows.unspend();
            return Err(buffer);
        }
        let Some(word) = self.rows.admit(lun, blocks, buffer.span()) else {
            self.rows.unspend();
            return Err(buffer);
        };
        let iova = buffer.iova();
        // SAFETY: as above.
        unsafe {
            let tag = next.fill(place, buffer, user, LunRows::about(lun));
            let word0 = word.wrapping_add(tag).wrapping_add(opcode(op));
            tail.write_short(place, word0, iova, slba, u64::from(blocks - 1));
        }
        self.next.follow(next);
        self.ring.set_tail(tail.on(ENTRY_WORDS));
        Ok(())
    }

    /// The short way for many: puts in commands of `blocks` blocks of `lun` as [`start`](Sq::start) does, one for each of
    /// the last `buffers`, as many as there is credit for; `each` gives starting LBA and user token. The others stay.
    #[inline]
    pub(crate) fn start_all(
        &mut self,
        (lun, op, blocks): (u32, Op, u32),
        buffers: &mut Vec<Buffer<M>>,
        each: &mut impl FnMut() -> (u64, u64),
    ) {
        let Some(run) = self.rows.run(lun, blocks) else {
            return;
        };
        let word = run.word.wrapping_add(opcode(op));
        let word6 = u64::from(blocks.wrapping_sub(1));
        let most = buffers.len().min(run.credit as usize);
        let keep = buffers.len() - most;
        let (tail, mut next) = (self.ring.tail(), self.next);
        let unfinished = Unfinished { sq: self, lun };
        // SAFETY: it gets shorter. The buffers behind are moved out, moved down, or leak if `each` panics.
        let from = unsafe {
            buffers.set_len(keep);
            buffers.as_mut_ptr().add(keep)
        };
        // One number counts. A buffer is as many bytes as an entry has words.
        const { assert!(size_of::<Buffer<M>>() == ENTRY_WORDS) };
        let (mut words, end) = (0, most * ENTRY_WORDS);
        while words != end {
            let place = tail.on(words);
            // SAFETY: a place before the ring's end, for which the table was made; one of the buffers behind, not moved
            // out before.
            unsafe {
                let buffer = from.byte_add(words);
                if !next.is_free(place) || run.last_byte >= (*buffer).span() as u64 {
                    break;
                }
                let (slba, user) = each();
                let buffer = buffer.read();
                let iova = buffer.iova();
                let tag = next.fill(place, buffer, user, LunRows::about(lun));
                tail.write_short(place, word.wrapping_add(tag), iova, slba, word6);
            }
            words += ENTRY_WORDS;
        }
        std::mem::forget(unfinished);
        if words != end {
            // SAFETY: those up to `end` were not moved out.
            unsafe { buffers.set_len(keep + move_down(from, words, end)) };
        }
        self.put(lun, words, next);
    }

    #[inline]
    fn put(&mut self, lun: u32, words: usize, next: Next<M>) {
        self.rows.count_run(lun, (words / ENTRY_WORDS) as u32);
        self.next.follow(next);
        self.ring.set_tail(self.ring.tail().on(words));
    }

    /// Gives the short way credit when it has used up what it had; false when it has some, or there is none to give.
    #[cold]
    pub(crate) fn refill(&mut self) -> bool {
        if self.rows.has_credit() {
            return false;
        }
        self.turn_lap();
        self.rows.give_credit(self.ring.left())
    }

    #[cold]
    #[inline(never)]
    fn refill_and_spend(&mut self) -> bool {
        self.refill() && self.rows.spend()
    }

    /// Goes around when the tail is at the ring's end.
    fn turn_lap(&mut self) {
        if self.ring.left() == 0 {
            self.ring.go_around();
            self.next = self.table.lap(self.ring.laps());
        }
    }

    /// Counts commands of `lun` whose slots were filled when `each` panicked.
    #[cold]
    #[inline(never)]
    fn finish(&mut self, lun: u32) {
        let (tail, mut next, mut words) = (self.ring.tail(), self.next, 0);
        // SAFETY: a place before the ring's end.
        while words < self.ring.left() * ENTRY_WORDS && unsafe { next.is_filled(tail.on(words)) } {
            next.advance();
            words += ENTRY_WORDS;
        }
        self.put(lun, words, next);
    }

    /// The long way, for every command; a flush has no `transfer` of blocks and starting LBA. `None`, and nothing
    /// changed: see [`LunRows::refusal`].
    pub(crate) fn start_any(
        &mut self,
        lun: u32,
        op: Op,
        buffer: &mut Option<Buffer<M>>,
        transfer: Option<(u32, u64)>,
        user: u64,
    ) -> Option<()> {
        let (iova, len) = buffer.as_ref().map_or((0, 0), |b| (b.iova(), b.len()));
        let (word, slot) = self.claim(lun, transfer.map(|(blocks, _)| (blocks, len)))?;
        let word0 = word.wrapping_add(slot.1).wrapping_add(opcode(op));
        let entry = match transfer {
            Some((blocks, slba)) => {
                let bytes = self.rows.bytes(lun, blocks);
                let (prp1, prp2) = self.lists.build(slot.0, iova, bytes);
                [word0, 0, 0, prp1, prp2, slba, u64::from(blocks - 1), 0]
            }
            None => [word0, 0, 0, 0, 0, 0, 0, 0],
        };
        self.table
            .fill(slot, buffer.take(), (user, LunRows::about(lun)), false);
        self.push(entry);
        Some(())
    }

    /// Puts `command` in as it is, but for its CID.
    pub(crate) fn start_raw(
        &mut self,
        lun: u32,
        mut command: Command,
        buffer: &mut Option<Buffer<M>>,
        user: u64,
    ) -> Option<()> {
        let (_, slot) = self.claim(lun, None)?;
        command.cdw0.set_cid((slot.1 >> 16) as u16);
        self.table
            .fill(slot, buffer.take(), (user, LunRows::about(lun)), true);
        self.push(zerocopy::transmute!(command));
        // What it leaves in the ring is not what the short way expects there.
        self.raw = true;
        self.rows.allow_short(false);
        Some(())
    }

    /// Counts a command of `lun`; the first word of its entry less opcode and tag, and its slot.
    fn claim(&mut self, lun: u32, transfer: Option<(u32, usize)>) -> Option<(u64, (usize, u64))> {
        let word = self.rows.claim(lun, transfer)?;
        // It takes an entry for which there may be credit.
        self.rows.take_credit();
        self.turn_lap();
        let slot = self.table.find(self.next);
        if slot.is_none() {
            self.rows.release(LunRows::about(lun));
        }
        Some((word, slot?))
    }

    fn push(&mut self, entry: [u64; 8]) {
        self.next.advance();
        self.ring.push(entry);
    }

    /// The command of `cid` completes, however it was submitted; true for one of `submit_raw`.
    pub(crate) fn end_any(&mut self, cid: u16) -> Option<(bool, Ended<M>)> {
        let ended = self.table.take_any(cid)?;
        self.rows.release(ended.1.about);
        Some(ended)
    }

    /// Refuses commands on the short way, and lets none complete there.
    pub(crate) fn stop(&mut self) {
        self.rows.allow_short(false);
        self.table.slow_down();
    }

    /// Empties the ring, as after a reset of the device.
    pub(crate) fn restart(&mut self) {
        self.ring.restart();
        self.next = self.table.lap(0);
    }

    /// Takes commands again.
    pub(crate) fn resume(&mut self) {
        self.rows.allow_short(!self.raw);
    }

    /// Gives up all memory without freeing it: the device may still use it.
    pub(crate) fn leak(&mut self) {
        self.ring.leak();
        self.table.leak();
        self.lists.leak();
    }
}

/// Moves the buffers from byte `from` to `to` behind `base` down to it; their number. A function, so that what it needs is not
/// counted on the way that does not.
///
/// # Safety
/// They must be initialised.
#[cold]
#[inline(never)]
unsafe fn move_down<M>(base: *mut Buffer<M>, from: usize, to: usize) -> usize {
    let count = (to - from) / size_of::<Buffer<M>>();
    // SAFETY: the caller's word.
    unsafe { base.copy_from(base.byte_add(from), count) };
    count
}

/// Commands that are put in one after another. It is dropped only when that ends with a panic.
struct Unfinished<'s, M: Memory> {
    sq: &'s mut Sq<M>,
    lun: u32,
}

impl<M: Memory> Drop for Unfinished<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.sq.finish(self.lun);
    }
}

#[inline]
fn opcode(op: Op) -> u64 {
    let opcode = match op {
        Op::Read => NvmOpcode::READ,
        Op::Write => NvmOpcode::WRITE,
        Op::Flush => NvmOpcode::FLUSH,
    };
    opcode.0.into()
}
