//! What goes into a [`Queue`](crate::Queue) and comes out of it: its configuration, requests and their refusal,
//! completions, and what can go wrong.

use crate::memory::Buffer;
use std::fmt;
use weir_nvme::Status;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Move blocks from the LUN to the buffer.
    Read,
    /// Move blocks from the buffer to the LUN.
    Write,
    /// Make what was written durable; takes no buffer, and block numbers are ignored.
    Flush,
}

/// How a [`Queue`](crate::Queue) is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Entries of each submission queue: a power of two from 2, at most CAP.MQES + 1 and 32768. It can hold one
    /// command less.
    pub entries: u32,
    /// Entries of the completion queue, likewise. `None`: twice what the submission queues hold, or the most there may
    /// be.
    pub cq_entries: Option<u32>,
    /// Submission queues that share the completion queue, from 1.
    pub submission_queues: u16,
    /// Interrupt vector that completions raise. `None`: none, the queue is polled.
    pub vector: Option<u16>,
    /// Bytes into a page at which PRP lists start: a multiple of 8, below 4096. 0 packs them; near the end of the page
    /// lists chain, which real drivers hardly ever do and a controller must still serve.
    pub prp_list_offset: usize,
    /// Identifier of the first submission queue; the others follow. `None`: the lowest that are free.
    pub sqid: Option<u16>,
    /// Identifier of the completion queue. `None`: the lowest that is free.
    pub cqid: Option<u16>,
}

impl Default for QueueConfig {
    /// A polled queue of 64 entries.
    fn default() -> Self {
        QueueConfig {
            entries: 64,
            cq_entries: None,
            submission_queues: 1,
            vector: None,
            prp_list_offset: 0,
            sqid: None,
            cqid: None,
        }
    }
}

/// Why a command was not accepted. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// As many commands in flight as the submission queue holds.
    #[error("the submission queue is full")]
    QueueFull,
    /// The free entries are kept for open LUNs that have none in flight.
    #[error("the LUN holds all it may of this queue: what is free is kept for other LUNs")]
    LunFull,
    /// The LUN is not open on this queue.
    #[error("LUN {0} is not open on this queue")]
    NotOpen(u32),
    /// No block, or more than one command may move.
    #[error("{blocks} blocks in one command: must be 1 to {max}")]
    Blocks {
        /// Asked for.
        blocks: u32,
        /// The most.
        max: u32,
    },
    /// The buffer is shorter than the blocks.
    #[error("buffer of {len} bytes for a transfer of {want}")]
    Buffer {
        /// Bytes of the buffer; 0 without one.
        len: usize,
        /// Bytes of the transfer.
        want: usize,
    },
    /// There is no such submission queue.
    #[error("submission queue {index}: this queue has {count}")]
    NoSuchQueue {
        /// Asked for, from 0.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The queue has failed; see what [`Queue::poll`](crate::Queue::poll) returns.
    #[error("the queue has failed")]
    Failed,
}

/// A command that was not accepted, and its buffer.
pub struct Rejected<M> {
    /// Why.
    pub reason: SubmitError,
    /// The buffer that came with it.
    pub buffer: Option<Buffer<M>>,
}

impl<M> fmt::Debug for Rejected<M> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Rejected")
            .field("reason", &self.reason)
            .field("buffer", &self.buffer)
            .finish()
    }
}

impl<M> fmt::Display for Rejected<M> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<M> std::error::Error for Rejected<M> {}

/// A completed command.
pub struct Completed<M> {
    /// The token given on submission.
    pub user: u64,
    /// The LUN.
    pub lun: u32,
    /// Which of the [`Queue`](crate::Queue)'s submission queues, from 0.
    pub sq: u16,
    /// Status.
    pub status: Status,
    /// Dword 0 of the completion of a [`submit_raw`](crate::Queue::submit_raw); reads, writes and flushes have none, and
    /// give 0.
    pub result: u32,
    /// The buffer given on submission.
    pub buffer: Option<Buffer<M>>,
}

impl<M> fmt::Debug for Completed<M> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Completed")
            .field("user", &self.user)
            .field("lun", &self.lun)
            .field("sq", &self.sq)
            .field("status", &self.status)
            .field("result", &self.result)
            .field("buffer", &self.buffer)
            .finish()
    }
}

/// What [`Queue::reap`](crate::Queue::reap) did.
#[derive(Debug)]
pub struct Reaped<M> {
    /// Commands that had succeeded.
    pub count: u32,
    /// A command after those that did not succeed, or is of a further submission queue.
    pub other: Option<Completed<M>>,
}

/// The device broke the protocol on this queue. The queue stops: it takes no more commands and reports no more
/// completions until the controller is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(align(8))]
pub enum QueueError {
    /// The controller is down: its last reset failed.
    #[error("the controller is down: its last reset failed")]
    Down,
    /// A completion for a command that is not in flight: never submitted, or completed before.
    #[error(
        "CQ {cqid} entry {index}: completion of CID {cid:#06x} of SQ {sqid}, which is not in flight"
    )]
    UnknownCommand {
        /// Completion queue.
        cqid: u16,
        /// Index of the entry.
        index: u32,
        /// Submission queue it names.
        sqid: u16,
        /// Command it names.
        cid: u16,
    },
    /// A completion for a submission queue that does not complete here.
    #[error("CQ {cqid} entry {index}: completion for SQ {sqid}, which does not complete here")]
    UnknownQueue {
        /// Completion queue.
        cqid: u16,
        /// Index of the entry.
        index: u32,
        /// Submission queue it names.
        sqid: u16,
    },
    /// A completion that reports a submission queue head beyond the entries the device was told of.
    #[error("CQ {cqid}: SQ {sqid} head {head} reported, but the tail is {tail}")]
    SqHead {
        /// Completion queue.
        cqid: u16,
        /// Submission queue.
        sqid: u16,
        /// Head reported.
        head: u16,
        /// Tail last told.
        tail: u32,
    },
}

/// A command in flight, as [`Queue::outstanding`](crate::Queue::outstanding) lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// Submission queue identifier.
    pub sqid: u16,
    /// Command identifier.
    pub cid: u16,
    /// The LUN.
    pub lun: u32,
    /// The token given on submission.
    pub user: u64,
    /// Calls of [`Queue::tick`](crate::Queue::tick) since its submission.
    pub age: u32,
}
