//! A [`Queue`]: one or more submission queues and the completion queue they share, for one CPU.

use crate::lun::Lun;
use crate::memory::Buffer;
use crate::pci::{AllocError, Pci};
use crate::prp::PrpLists;
use crate::request::{Completed, Op, Outstanding, QueueConfig, QueueError, Rejected, SubmitError};
use crate::ring::{CqRing, Entry, SqRing};
use crate::slots::{OpenError, Slots};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_nvme::registers::{cq_head_doorbell, sq_tail_doorbell};
use weir_nvme::{Command, Completion, NvmOpcode, StatusCode};

/// One submission queue.
struct Sq<M> {
    ring: SqRing<M>,
    slots: Slots<M>,
    lists: PrpLists<M>,
}

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
    /// Completions read before the device is told.
    batch: u32,
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
            let memory = pci.alloc(entries as usize * Command::SIZE)?;
            Ok(Sq {
                ring: SqRing::new(
                    memory,
                    entries,
                    sq_tail_doorbell(parts.sqid + i, parts.dstrd),
                ),
                slots: Slots::new(entries),
                lists: PrpLists::new(
                    pci,
                    entries as usize,
                    parts.max_transfer,
                    config.prp_list_offset,
                )?,
            })
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
                cq_head_doorbell(parts.cqid, parts.dstrd),
            ),
            first,
            more,
            sqid: parts.sqid,
            cqid: parts.cqid,
            batch,
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
        let was_open = self.first.slots.is_open(lun.index);
        let mut result = Ok(());
        for sq in self.sqs_mut() {
            result = result.and_then(|()| {
                sq.slots
                    .open(lun.index, lun.nsid, lun.block_shift, max_blocks)
            });
        }
        if result.is_err() && !was_open {
            // Some submission queues may have it open by now, and some not.
            self.sqs_mut().for_each(|sq| _ = sq.slots.close(lun.index));
        }
        result
    }

    /// Closes `lun` on this queue; it must have no command in flight there.
    pub fn close(&mut self, lun: u32) -> Result<(), OpenError> {
        let in_flight = self.in_flight(lun);
        if in_flight > 0 {
            return Err(OpenError::Busy { lun, in_flight });
        }
        self.sqs_mut().try_for_each(|sq| sq.slots.close(lun))
    }

    /// Reads `blocks` blocks of `lun` from `slba` on into `buffer`.
    #[inline]
    pub fn read(
        &mut self,
        lun: u32,
        buffer: Buffer<P::Memory>,
        slba: u64,
        blocks: u32,
        user: u64,
    ) -> Result<(), Rejected<P::Memory>> {
        self.submit(lun, Op::Read, Some(buffer), slba, blocks, user)
    }

    /// Writes `blocks` blocks from `buffer` to `lun` from `slba` on.
    #[inline]
    pub fn write(
        &mut self,
        lun: u32,
        buffer: Buffer<P::Memory>,
        slba: u64,
        blocks: u32,
        user: u64,
    ) -> Result<(), Rejected<P::Memory>> {
        self.submit(lun, Op::Write, Some(buffer), slba, blocks, user)
    }

    /// Flushes `lun`.
    #[inline]
    pub fn flush(&mut self, lun: u32, user: u64) -> Result<(), Rejected<P::Memory>> {
        self.submit(lun, Op::Flush, None, 0, 0, user)
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
        self.submit_on(0, lun, op, buffer, slba, blocks, user)
    }

    /// Puts a command into the submission queue of index `sq`. The device learns of it with [`ring`](Queue::ring).
    ///
    /// `user` comes back with the completion. Range and state of the LUN are the device's to check.
    #[inline]
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
        let opcode = match op {
            Op::Read => NvmOpcode::READ,
            Op::Write => NvmOpcode::WRITE,
            Op::Flush => {
                return self.submit_with(sq, lun, buffer, user, |nsid, cid| {
                    [first_word(NvmOpcode::FLUSH, nsid, cid), 0, 0, 0, 0, 0, 0, 0]
                });
            }
        };
        let Some(buffer) = buffer else {
            return self.refuse(sq, lun, Some(blocks), None);
        };
        let Some((sq, claim)) = self.usable(sq).and_then(|sq| {
            sq.slots
                .claim_transfer(lun, blocks, buffer.len())
                .map(|claim| (sq, claim))
        }) else {
            return self.refuse(sq, lun, Some(blocks), Some(buffer));
        };
        let iova = buffer.iova();
        let cid = sq.slots.fill(claim.at, lun, Some(buffer), user);
        let (prp1, prp2) = sq.lists.build(claim.at, iova, claim.bytes);
        sq.ring.push([
            first_word(opcode, claim.nsid, cid),
            0,
            0,
            prp1,
            prp2,
            slba,
            u64::from(blocks - 1),
            0,
        ]);
        Ok(())
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
        mut command: Command,
        buffer: Option<Buffer<P::Memory>>,
        user: u64,
    ) -> Result<(), Rejected<P::Memory>> {
        self.submit_with(sq, lun, buffer, user, |_, cid| {
            command.cdw0.set_cid(cid);
            zerocopy::transmute!(command)
        })
    }

    /// Puts the entry that `entry` makes of namespace and command identifier into the submission queue of index `sq`.
    #[inline]
    fn submit_with(
        &mut self,
        sq: usize,
        lun: u32,
        buffer: Option<Buffer<P::Memory>>,
        user: u64,
        entry: impl FnOnce(u32, u16) -> Entry,
    ) -> Result<(), Rejected<P::Memory>> {
        let Some((sq, claim)) = self
            .usable(sq)
            .and_then(|sq| sq.slots.claim(lun, 0).map(|claim| (sq, claim)))
        else {
            return self.refuse(sq, lun, None, buffer);
        };
        let cid = sq.slots.fill(claim.at, lun, buffer, user);
        sq.ring.push(entry(claim.nsid, cid));
        Ok(())
    }

    /// The submission queue of index `sq`, when commands may be submitted to it.
    #[inline]
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
            Some(sq) => sq.slots.refusal(lun, blocks.map(|blocks| (blocks, len))),
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
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut count = 0;
        let mut last = None;
        while let Some(entry) = self.cq.peek() {
            let index = entry.sqid.wrapping_sub(self.sqid);
            let Some(sq) = self.sq_mut(index.into()) else {
                return Err(self.fail_entry(entry, true));
            };
            let Some((user, lun, buffer)) = sq.slots.complete(entry.cid) else {
                return Err(self.fail_entry(entry, false));
            };
            self.cq.advance();
            count += 1;
            last = Some(index);
            done(Completed {
                user,
                lun,
                sq: index,
                status: entry.status(),
                result: entry.result,
                buffer,
            });
        }
        if let Some(index) = last {
            let head = self.cq.sq_head();
            if self
                .sq_mut(index.into())
                .is_some_and(|sq| !sq.ring.note_head(head.into()))
            {
                return Err(self.fail_head(index, head));
            }
            self.cq.acknowledge(&self.pci, self.batch);
        }
        Ok(count)
    }

    #[cold]
    fn fail_entry(&mut self, entry: Completion, queue: bool) -> QueueError {
        let (cqid, index, sqid) = (self.cqid, self.cq.head(), entry.sqid);
        let error = if queue {
            QueueError::UnknownQueue { cqid, index, sqid }
        } else {
            QueueError::UnknownCommand {
                cqid,
                index,
                sqid,
                cid: entry.cid,
            }
        };
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
        *self.failed.get_or_insert(error)
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
        self.failed.is_none() && self.sqs().nth(sq).is_some_and(|sq| sq.slots.has_room(lun))
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
        self.sqs().map(|sq| sq.slots.in_flight(lun)).sum()
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
        self.sqs_mut().for_each(|sq| sq.slots.age());
    }

    /// The commands in flight, for a look at which are late.
    pub fn outstanding(&self) -> impl Iterator<Item = Outstanding> {
        self.sqs().zip(self.sqid..).flat_map(|(sq, sqid)| {
            sq.slots.iter().map(move |(cid, slot)| Outstanding {
                sqid,
                cid,
                lun: slot.lun,
                user: slot.user,
                age: slot.age,
            })
        })
    }

    /// Hands every command in flight to `done`, as aborted by the host. The device must have given them up.
    pub(crate) fn cancel(&mut self, mut done: impl FnMut(Completed<P::Memory>)) {
        for (sq, index) in self.sqs_mut().zip(0..) {
            let cids: Vec<u16> = sq.slots.iter().map(|(cid, _)| cid).collect();
            for cid in cids {
                if let Some((user, lun, buffer)) = sq.slots.complete(cid) {
                    let status = StatusCode::ABORTED_BY_HOST.into();
                    done(Completed {
                        user,
                        lun,
                        sq: index,
                        status,
                        result: 0,
                        buffer,
                    });
                }
            }
        }
    }

    /// Empties the rings and stops the queue until [`restart`](Queue::restart). The device must have given it up.
    pub(crate) fn take_down(&mut self) {
        self.sqs_mut().for_each(|sq| sq.ring.restart());
        self.cq.restart();
        self.failed = Some(QueueError::Down);
        self.retired = true;
    }

    /// The device has taken the queue again, as new.
    pub(crate) fn restart(&mut self) {
        self.failed = None;
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
            sq.ring.leak();
            sq.slots.leak();
            sq.lists.leak();
        }
    }
}

/// Dwords 1:0 of a submission entry.
#[inline]
fn first_word(opcode: NvmOpcode, nsid: u32, cid: u16) -> u64 {
    u64::from(nsid) << 32 | u64::from(cid) << 16 | u64::from(opcode.0)
}
