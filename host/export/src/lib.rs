//! LUNs of a controller for programs that know nothing of NVMe: blocking reads, writes and flushes from any thread.
//!
//! # Architecture
//! ```text
//!  threads of nbdkit ─► [`Luns`] ──request──► worker thread ─► driver queue ─► card
//!                          ▲                      │
//!                          └──────completion──────┘
//! ```
//! * [`open`] brings a controller up on any of the driver's back ends, with a queue and a worker thread a CPU.
//! * [`Luns`] takes requests. A stream of requests (an NBD connection) stays on one worker, so on one queue.
//! * `worker.rs` has the loop; [`Health`] sees to late commands: asked about at the card, aborted, at last given up.
//! * [`Control`] lets `weir lun` of another process list, watch and set while this one has the controller.
//! * `nbd/` is the nbdkit plugin over it; `ublk/` (crate `weir-ublk`) has queues of its own, and shares [`Health`].
//!
//! The last handle, when dropped, ends what is in flight, deletes the queues and shuts the controller down.
//!
//! # What it leaves out
//! Trim and write zeroes, which the card has not yet. The hand-over between threads costs locks and copies: what needs
//! the driver's own path (no atomic, no copy) uses `weir-driver`.
#![forbid(unsafe_code)]

mod control;
mod health;
mod luns;
mod worker;

pub use control::{Control, ControlError, Execute};
pub use health::Health;
pub use luns::{IoError, Luns, OpenError, open};
