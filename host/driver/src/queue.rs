//! A [`Queue`]: one or more submission queues and the completion queue they share, for one CPU.

use crate::lun::Lun;
use crate::memory::Buffer;
use crate::pci::{AllocError, Pci};
use crate::request::{
    Completed, Op, Outstanding, QueueConfig, QueueError, Reaped, Rejected, SubmitError,
};
use crate::ring::{CqRing, Look};
use crate::rows::{LunRows, OpenError};
use crate::sq::Sq;
use crate::table::Ended;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_nvme::registers::{cq_head_doorbell, sq_tail_doorbell};
use weir_nvme::{Command, Completion, Status, StatusCode};

/// What a queue needs to know of its controller.
pub(crate) struct QueueParts {
    pub(crate) config: QueueConfig,
    pub(crate) sqid: u16,
    pub(crate) cqid: u16,
    pub(crate) cq_entries: u32,
    pub(crate) dstrd: u8,
    pub(crate) max_transfer: usize,
}

/// One or more submission queues and the completion queue they share. Of one CPU: `Send` when its `Pci` is, never
/// `Sync`; no lock and no atomic read-modify-write between a call and the device.
///
/// Every open LUN always has an entry: what one LUN holds is bounded by a reserve of one entry for each other LUN open
/// on the queue that holds none.
///
/// Give it back with [`Controller::delete_queue`](crate::Controller::delete_queue). A queue that is just dropped leaks
/// its rings and the buffers in flight, since the device may still write them.
pub struct Queue<P: Pci> {
    pci: P,
    cq: CqRing<P::Memory>,
    /// The first submission queue, in place: most queues have no other.
    first: Sq<P::Memory>,
    more: Vec<Sq<P::Memory>>,
    sqid: u16,
    cqid: u16,
    max_transfer: usize,
    failed: Option<QueueError>,
    config: QueueConfig,
    retired: bool,
    abandoned: Arc<AtomicBool>,
}

impl<P: Pci> Queue<P> {
    pub(crate) fn new(pci: &P, parts: &QueueParts) -> Result<Queue<P>, AllocError> {
        let config = parts.config;
        let entries = config.entries;
        let sq = |i| {
            let sqid = parts.sqid + i;
            let doorbell = sq_tail_doorbell(sqid, parts.dstrd);
            let (most, offset) = (parts.max_transfer, config.prp_list_offset);
            Sq::new(pci, (entries, sqid), doorbell, most, offset)
        };
        let first = sq(0)?;
        let more = (1..config.submission_queues)
            .map(sq)
            .collect::<Result<Vec<_>, AllocError>>()?;
        let memory = pci.alloc(parts.cq_entries as usize * Completion::SIZE)?;
        // As many entries may go untold as the completion queue has to spare; polling tells up to 8 at a time. With an
        // interrupt the device should know at once, since it raises the next one by what is unread.
        let held = u32::from(config.submission_queues) * (entries - 1);
        let batch = match config.vector {
            Some(_) => 1,
            None => (parts.cq_entries - 1).saturating_sub(held).clamp(1, 8),
        };
        Ok(Queue {
            pci: pci.clone(),
            cq: CqRing::new(
                memory,
                parts.cq_entries,
                batch,
                cq_head_doorbell(parts.cqid, parts.dstrd),
            ),
            first,
            more,
            sqid: parts.sqid,
            cqid: parts.cqid,
            max_transfer: parts.max_transfer,
            failed: None,
            config,
            retired: false,
            abandoned: Arc::default(),
        })
    }

    /// Opens `lun` on this queue: keeps an entry of each submission queue for it. Opening twice is no error.
    pub fn open(&mut self, lun: &Lun) -> Result<(), OpenError> {
        let max_blocks = (self.max_transfer >> lun.block_shift).min(1 << 16) as u32;
        let was_open = self.first.rows.is_open(lun.index);
        let mut result = Ok(());
        for sq in self.sqs_mut() {
            result = result.and_then(|()| {
                sq.rows
                    .open(lun.index, lun.nsid, lun.block_shift, max_blocks)
            });
        }
        if result.is_err() && !was_open {
            // Some submission queues may have it open by now, and some not.
            self.sqs_mut().for_each(|sq| _ = sq.rows.close(lun.index));
        }
        result
    }

    /// Closes `lun` on this queue; it must have no command in flight there.
    pub fn close(&mut self, lun: u32) -> Result<(), OpenError> {
        let in_flight = self.in_flight(lun);
        if in_flight > 0 {
            return Err(OpenError::Busy { lun, in_flight });
        }
        self.sqs_mut().try_for_each(|sq| sq.rows.close(lun))
    }

    /// Reads `blocks` blocks of `lun` from `slba` on into `buffer`.
    #[inline(always)]
    pub fn read(
        &mut self,
        lun: u32,
        buffer: Buffer<P::Memory>,
        slba: u64,
        blocks: u32,
        user: u64,
    ) -> Result<(), Rejected<P::Memory>> {
        self.transfer(lun, Op::Read, buffer, slba, blocks, user)
    }

    /// Writes `blocks` blocks from `buffer` to `lun` from `slba` on.
    #[inline(always)]
    pub fn write(
        &mut self,
        lun: u32,
        buffer: Buffer<P::Memory>,
        slba: u64,
        blocks: u32,
        user: u64,
    ) -> Result<(), Rejected<P::Memory>> {
        self.transfer(lun, Op::Write, buffer, slba, blocks, user)
    }

    /// Flushes `lun`.
    pub fn flush(&mut self, lun: u32, user: u64) -> Result<(), Rejected<P::Memory>> {
        self.submit_on(0, lun, Op::Flush, None, 0, 0, user)
    }

    /// Puts a command into the first submission queue. The device learns of it with [`ring`](Queue::ring).
    #[inline]
    pub fn submit(
        &mut self,
        lun: u32,
        op: Op,
        buffer: Option<Buffer<P::Memory>>,
        slba: u64,
        blocks: u32,
        user: u64,
    ) -> Result<(), Rejected<P::Memory>> {
        match buffer {
            Some(buffer) if op != Op::Flush => self.transfer(lun, op, buffer, slba, blocks, user),
            buffer => self.submit_on(0, lun, op, buffer, slba, blocks, user),
        }
    }

    /// A read or write by the short way, when it can go there: see [`Sq::start`].
    #[inline(always)]
    fn transfer(
        &mut self,
        lun: u32,
        op: Op,
        buffer: Buffer<P::Memory>,
        slba: u64,
        blocks: u32,
        user: u64,
    ) -> Result<(), Rejected<P::Memory>> {
        match self.first.start(lun, op, buffer, (blocks, slba, user)) {
            Ok(()) => Ok(()),
            Err(buffer) => self.long_way(lun, op, buffer, slba, blocks, user),
        }
    }

    /// Cold, so that the short way around it has the registers.
    #[cold]
    #[inline(never)]
    fn long_way(
        &mut self,
        lun: u32,
        op: Op,
        buffer: Buffer<P::Memory>,
        slba: u64,
        blocks: u32,
        user: u64,
    ) -> Result<(), Rejected<P::Memory>> {
        self.submit_on(0, lun, op, Some(buffer), slba, blocks, user)
    }

    /// Puts commands of `blocks` blocks of `lun` into the first submission queue, one for each of `buffers`, the last
    /// ones first; `each` gives starting LBA and user token. What the commands share is looked up once. The device learns
    /// of them with [`ring`](Queue::ring).
    ///
    /// An error says why a command was refused: its buffer, and those that were not tried, are in `buffers`.
    #[inline]
    pub fn submit_all(
        &mut self,
        lun: u32,
        op: Op,
        blocks: u32,
        buffers: &mut Vec<Buffer<P::Memory>>,
        mut each: impl FnMut() -> (u64, u64),
    ) -> Result<(), SubmitError> {
        loop {
            if op != Op::Flush {
                self.first.start_all((lun, op, blocks), buffers, &mut each);
                if !buffers.is_empty() && self.first.refill() {
                    continue;
                }
            }
            let Some(buffer) = buffers.pop() else {
                return Ok(());
            };
            let (slba, user) = each();
            if let Err(rejected) = self.long_way(lun, op, buffer, slba, blocks, user) {
                if let Some(buffer) = rejected.buffer
                    && buffers.len() < buffers.capacity()
                {
                    // Always, since one came out; asked, there is no growing in the code.
                    buffers.push(buffer);
                }
                return Err(rejected.reason);
            }
        }
    }

    /// Puts a command into the submission queue of index `sq`. The device learns of it with [`ring`](Queue::ring).
    ///
    /// `user` comes back with the completion. Range and state of the LUN are the device's to check.
    // The long way: for every command, and for what the short way refuses.
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    pub fn submit_on(
        &mut self,
        sq: usize,
        lun: u32,
        op: Op,
        buffer: Option<Buffer<P::Memory>>,
        slba: u64,
        blocks: u32,
        user: u64,
    ) -> Result<(), Rejected<P::Memory>> {
        // A flush keeps the buffer that came with it, if one did, and does not use it.
        let transfer = (op != Op::Flush).then_some((blocks, slba));
        let mut buffer = buffer;
        let started = self
            .usable(sq)
            .and_then(|sq| sq.start_any(lun, op, &mut buffer, transfer, user));
        match started {
            Some(()) => Ok(()),
            None => self.refuse(sq, lun, transfer.map(|(blocks, _)| blocks), buffer),
        }
    }

    /// Puts `command` as it is, but for its CID, into the submission queue of index `sq`: for tests of what a device
    /// does with commands that this driver would not send. It is counted on `lun`, which must be open.
    ///
    /// # Safety
    /// The device must not reach, through the command's pointers, memory that anybody else uses before the completion;
    /// `buffer` is kept until then.
    #[allow(unsafe_code)]
    pub unsafe fn submit_raw(
        &mut self,
        sq: usize,
        lun: u32,
        command: Command,
        mut buffer: Option<Buffer<P::Memory>>,
        user: u64,
    ) -> Result<(), Rejected<P::Memory>> {
        let started = self
            .usable(sq)
            .and_then(|sq| sq.start_raw(lun, command, &mut buffer, user));
        match started {
            Some(()) => Ok(()),
            None => self.refuse(sq, lun, None, buffer),
        }
    }

    /// The submission queue of index `sq`, when commands may be submitted to it.
    fn usable(&mut self, sq: usize) -> Option<&mut Sq<P::Memory>> {
        if self.failed.is_some() {
            None
        } else {
            self.sq_mut(sq)
        }
    }

    /// Why a command was refused, found out again so that the ways that succeed stay short.
    #[cold]
    #[inline(never)]
    fn refuse(
        &mut self,
        sq: usize,
        lun: u32,
        blocks: Option<u32>,
        buffer: Option<Buffer<P::Memory>>,
    ) -> Result<(), Rejected<P::Memory>> {
        let len = buffer.as_ref().map_or(0, Buffer::len);
        let count = 1 + self.more.len();
        let failed = self.failed.is_some();
        let reason = match self.sq_mut(sq) {
            _ if failed => SubmitError::Failed,
            None => SubmitError::NoSuchQueue { index: sq, count },
            Some(sq) => sq.rows.refusal(lun, blocks.map(|blocks| (blocks, len))),
        };
        Err(Rejected { reason, buffer })
    }

    #[inline]
    fn sq_mut(&mut self, index: usize) -> Option<&mut Sq<P::Memory>> {
        match index {
            0 => Some(&mut self.first),
            n => self.more.get_mut(n - 1),
        }
    }

    fn sqs(&self) -> impl Iterator<Item = &Sq<P::Memory>> {
        std::iter::once(&self.first).chain(&self.more)
    }

    fn sqs_mut(&mut self) -> impl Iterator<Item = &mut Sq<P::Memory>> {
        std::iter::once(&mut self.first).chain(&mut self.more)
    }

    /// Tells the device of everything submitted since the last time: one doorbell write a submission queue.
    #[inline]
    pub fn ring(&mut self) {
        self.first.ring.ring(&self.pci);
        if !self.more.is_empty() {
            self.ring_more();
        }
    }

    #[cold]
    #[inline(never)]
    fn ring_more(&mut self) {
        for sq in &mut self.more {
            sq.ring.ring(&self.pci);
        }
    }

    /// Hands every command that has completed to `done`; returns how many there were.
    #[inline]
    pub fn poll(
        &mut self,
        mut done: impl FnMut(Completed<P::Memory>),
    ) -> Result<usize, QueueError> {
        let mut total = 0;
        loop {
            let (count, at_limit) = self.pass(u32::MAX, &mut done)?;
            total += count;
            if at_limit {
                continue;
            }
            let look = self.cq.look();
            if !look.is_new() {
                break;
            }
            done(self.unusual(look)?);
            total += 1;
        }
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.cq.acknowledge(&self.pci, total);
        Ok(total as usize)
    }

    /// Hands up to `most` commands of the first submission queue that have succeeded to `done`; ends where the completion
    /// queue goes around, or at a completion of another kind, which it returns. So the code that `done` makes has no case
    /// but success.
    #[inline]
    pub fn reap(
        &mut self,
        most: u32,
        done: impl FnMut(Completed<P::Memory>),
    ) -> Result<Reaped<P::Memory>, QueueError> {
        let (count, at_limit) = if most > 0 {
            self.pass(most, done)?
        } else {
            (0, true)
        };
        self.cq.acknowledge(&self.pci, count);
        let other = if at_limit {
            None
        } else {
            self.poll_unusual(self.cq.look())?
        };
        Ok(Reaped { count, other })
    }

    /// What [`reap`](Queue::reap) does, `most` not 0, less the device's being told: how many there were, and whether it ended
    /// for their number, or the ring's end.
    #[inline]
    fn pass(
        &mut self,
        most: u32,
        mut done: impl FnMut(Completed<P::Memory>),
    ) -> Result<(u32, bool), QueueError> {
        let reaping = Reaping { queue: self };
        let queue = &mut *reaping.queue;
        let mut slots = queue.first.table.taker();
        let mut rows = queue.first.rows.giver();
        let mut sweep = queue.cq.sweep(most);
        while let Some(found) = slots.find(sweep.look().tag()) {
            let (user, about, buffer) = found.take();
            rows.give(about);
            sweep.advance();
            done(success(user, about, buffer));
            if sweep.at_limit() {
                break;
            }
        }
        let at_limit = sweep.at_limit();
        let count = sweep.count();
        if count > 0 {
            let head = sweep.end();
            rows.end(count);
            if !queue.first.ring.note_head(head.into()) {
                std::mem::forget(reaping);
                return Err(self.fail_head(0, head));
            }
        }
        std::mem::forget(reaping);
        Ok((count, at_limit))
    }

    /// As [`poll`](Queue::poll), but for one command at most.
    #[inline(always)]
    pub fn poll_one(&mut self) -> Result<Option<Completed<P::Memory>>, QueueError> {
        let at = self.cq.at();
        let first = &mut self.first;
        if let Some(found) = first.table.taker().find(at.look().tag())
            && first.ring.note_head(at.sq_head().into())
        {
            self.cq.go_past(at);
            self.cq.acknowledge(&self.pci, 1);
            let (user, about, buffer) = found.take();
            first.rows.release(about);
            return Ok(Some(success(user, about, buffer)));
        }
        self.poll_unusual(self.cq.look())
    }

    /// Goes past the completions that were read when `done` panicked: their commands are not in flight any more.
    #[cold]
    #[inline(never)]
    fn find_head(&mut self) {
        let before = self.cq.read();
        loop {
            let look = self.cq.look();
            if !look.is_new() || self.first.table.has(look.cid()) {
                break;
            }
            self.cq.advance();
        }
        let count = self.cq.read().wrapping_sub(before);
        self.cq.acknowledge(&self.pci, count);
        self.first.rows.recount();
    }

    #[cold]
    #[inline(never)]
    fn poll_unusual(&mut self, look: Look) -> Result<Option<Completed<P::Memory>>, QueueError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if !look.is_new() {
            return Ok(None);
        }
        let completed = self.unusual(look)?;
        self.cq.acknowledge(&self.pci, 1);
        Ok(Some(completed))
    }

    /// A new completion that is not a success in the first submission queue; goes past it.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, look: Look) -> Result<Completed<P::Memory>, QueueError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let (cqid, entry, sqid, cid) = (self.cqid, self.cq.head(), look.sqid(), look.cid());
        let (index, head) = (sqid.wrapping_sub(self.sqid), self.cq.at().sq_head());
        let Some(sq) = self.sq_mut(index.into()) else {
            return Err(self.fail(QueueError::UnknownQueue {
                cqid,
                index: entry,
                sqid,
            }));
        };
        let Some((raw, ended)) = sq.end_any(cid) else {
            return Err(self.fail(QueueError::UnknownCommand {
                cqid,
                index: entry,
                sqid,
                cid,
            }));
        };
        if !sq.ring.note_head(head.into()) {
            self.fail_head(index, head);
        }
        let result = if raw { self.cq.result() } else { 0 };
        self.cq.advance();
        Ok(completed(ended, index, look.status(), result))
    }

    /// Stops the queue.
    #[cold]
    fn fail(&mut self, error: QueueError) -> QueueError {
        self.sqs_mut().for_each(|sq| sq.stop());
        *self.failed.get_or_insert(error)
    }

    #[cold]
    fn fail_head(&mut self, index: u16, head: u16) -> QueueError {
        let tail = self.sq_mut(index.into()).map_or(0, |sq| sq.ring.rung());
        let error = QueueError::SqHead {
            cqid: self.cqid,
            sqid: self.sqid + index,
            head,
            tail,
        };
        self.fail(error)
    }

    /// Waits for the queue's interrupt until [`Pci::now_ns`] reaches `deadline_ns`; true when it came. A polled queue
    /// has none: then it relaxes once and says true.
    pub fn wait(&self, deadline_ns: u64) -> bool {
        match self.config.vector {
            Some(vector) => self.pci.wait_interrupt(vector, deadline_ns),
            None => {
                self.pci.relax();
                true
            }
        }
    }

    /// True when the first submission queue would take a command of `lun` now; see
    /// [`has_room_on`](Queue::has_room_on).
    pub fn has_room(&self, lun: u32) -> bool {
        self.has_room_on(0, lun)
    }

    /// True when the submission queue of index `sq` would take a command of `lun` now: for callers that must know before
    /// they make its data. False too when the queue has failed, or the LUN is not open.
    pub fn has_room_on(&self, sq: usize, lun: u32) -> bool {
        self.failed.is_none() && self.sqs().nth(sq).is_some_and(|sq| sq.rows.has_room(lun))
    }

    /// Commands in flight.
    pub fn len(&self) -> usize {
        let written = self
            .sqs()
            .fold(0u32, |sum, sq| sum.wrapping_add(sq.ring.written()));
        written.wrapping_sub(self.cq.read()) as usize
    }

    /// True when no command is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Commands of `lun` in flight on this queue.
    pub fn in_flight(&self, lun: u32) -> u32 {
        self.sqs().map(|sq| sq.rows.in_flight(lun)).sum()
    }

    /// Commands that each submission queue can hold: one less than its entries.
    pub fn capacity(&self) -> u32 {
        self.config.entries - 1
    }

    /// Identifier of the first submission queue; the others follow.
    pub fn sqid(&self) -> u16 {
        self.sqid
    }

    /// Identifier of the completion queue.
    pub fn cqid(&self) -> u16 {
        self.cqid
    }

    /// The configuration it was built with.
    pub fn config(&self) -> &QueueConfig {
        &self.config
    }

    /// The most bytes one command moves.
    pub fn max_transfer(&self) -> usize {
        self.max_transfer
    }

    /// Why the queue stopped, when it has.
    pub fn failed(&self) -> Option<QueueError> {
        self.failed
    }

    /// Ages the commands in flight by one. How often to call it is the caller's unit of a timeout: no clock is read
    /// for an I/O.
    pub fn tick(&mut self) {
        self.sqs_mut().for_each(|sq| sq.table.age());
    }

    /// The commands in flight, for a look at which are late.
    pub fn outstanding(&self) -> impl Iterator<Item = Outstanding> {
        self.sqs().zip(self.sqid..).flat_map(|(sq, sqid)| {
            sq.table.iter().map(move |slot| Outstanding {
                sqid,
                cid: slot.cid,
                lun: LunRows::lun(slot.about),
                user: slot.user,
                age: slot.age,
            })
        })
    }

    /// Hands every command in flight to `done`, as aborted by the host. The device must have given them up.
    pub(crate) fn cancel(&mut self, mut done: impl FnMut(Completed<P::Memory>)) {
        for (sq, index) in self.sqs_mut().zip(0..) {
            let cids: Vec<u16> = sq.table.iter().map(|slot| slot.cid).collect();
            for cid in cids {
                if let Some((_, ended)) = sq.end_any(cid) {
                    done(completed(
                        ended,
                        index,
                        StatusCode::ABORTED_BY_HOST.into(),
                        0,
                    ));
                }
            }
        }
    }

    /// Empties the rings and stops the queue until [`restart`](Queue::restart). The device must have given it up.
    pub(crate) fn take_down(&mut self) {
        self.sqs_mut().for_each(|sq| sq.restart());
        self.cq.restart();
        self.failed = None;
        self.fail(QueueError::Down);
        self.retired = true;
    }

    /// The device has taken the queue again, as new.
    pub(crate) fn restart(&mut self) {
        self.failed = None;
        for sq in self.sqs_mut() {
            sq.resume();
        }
    }

    /// Whether the device has given the queue up, so that its memory may be freed.
    pub(crate) fn set_retired(&mut self, retired: bool) {
        self.retired = retired;
    }

    pub(crate) fn retired(&self) -> bool {
        self.retired
    }

    /// Set when the queue is dropped without being given back.
    pub(crate) fn abandoned(&self) -> &Arc<AtomicBool> {
        &self.abandoned
    }

    /// IOVA and entries of the completion queue.
    pub(crate) fn cq_place(&self) -> (u64, u32) {
        (self.cq.iova(), self.cq.entries())
    }

    /// IOVA and entries of each submission queue.
    pub(crate) fn sq_places(&self) -> impl Iterator<Item = (u64, u32)> {
        self.sqs().map(|sq| (sq.ring.iova(), sq.ring.entries()))
    }
}

impl<P: Pci> Drop for Queue<P> {
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Release);
        if self.retired {
            return;
        }
        self.cq.leak();
        for sq in self.sqs_mut() {
            sq.leak();
        }
    }
}

/// Completions that are read one after another. It is dropped only when that ends with a panic.
struct Reaping<'q, P: Pci> {
    queue: &'q mut Queue<P>,
}

impl<P: Pci> Drop for Reaping<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.queue.find_head();
    }
}

#[inline]
fn success<M>(user: u64, about: u64, buffer: Buffer<M>) -> Completed<M> {
    Completed {
        user,
        lun: LunRows::lun(about),
        sq: 0,
        status: Status::SUCCESS,
        result: 0,
        buffer: Some(buffer),
    }
}

fn completed<M>(ended: Ended<M>, sq: u16, status: Status, result: u32) -> Completed<M> {
    Completed {
        user: ended.user,
        lun: LunRows::lun(ended.about),
        sq,
        status,
        result,
        buffer: ended.buffer,
    }
}
