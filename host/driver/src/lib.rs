//! Drives an NVMe controller from user space: a queue a CPU, LUNs, and what a Weir card can do beyond NVMe.
//!
//! # Architecture
//! * [`Pci`] is what the driver needs of the machine: BAR0, DMA memory, interrupts, time. Back ends implement it: those
//!   of [`backend`] for real functions, and one of the simulator, in one thread with the card.
//! * [`Controller`] brings a controller up and executes admin commands: `controller.rs` (life), `info.rs` (what it is),
//!   `timeout.rs` (late commands), over `admin.rs` (the admin queue).
//! * [`Admin`] (`commands.rs`): features, logs, depths and weights, on a [`Controller`] or through the driver that has it.
//! * [`Queue`] is one CPU's: [`submit`](Queue::submit) any number of commands, make them visible with one
//!   [`ring`](Queue::ring), collect them with [`poll`](Queue::poll). What goes in and out is in `request.rs`. Over
//!   `sq.rs` (a submission queue), which joins `ring.rs`, `table.rs` (the commands in flight, CIDs), `rows.rs` (the bound
//!   a LUN) and `prp.rs`.
//! * The cheapest calls: [`read`](Queue::read), [`write`](Queue::write) and [`poll_one`](Queue::poll_one) for one
//!   command at a time, [`submit_all`](Queue::submit_all) and [`reap`](Queue::reap) for more than about four.
//! * [`Buffer`]s move into the queue on submission and come back with the completion.
//!
//! A read or write inside one page of its buffer goes a short way, whose checks are folded into few: credit (spare places
//! in the queue before the ring's end, given for many commands at once), the LUN's place in the table, blocks against the
//! bytes of the page (a closed LUN's block is too long for any), and the LUN's private counter. Everything else goes the
//! long way, which says what is wrong. [`submit_all`](Queue::submit_all) looks up once
//! what commands share. `cargo bench -p weir-driver --bench hot_path` counts the instructions of each step. The LBA
//! range is the device's to check.
//!
//! Between a call and the device a queue takes no lock, does no atomic read-modify-write, allocates nothing and reads
//! no clock. All completions are checked: a completion for a command that is not in flight stops the queue with a
//! [`QueueError`], and never touches a buffer.
//!
//! ```no_run
//! # use weir_driver::*;
//! # fn example<P: Pci>(pci: P) -> Result<(), Box<dyn std::error::Error>> {
//! let mut controller = Controller::new(pci, Options::default())?;
//! let mut queue = controller.create_queue(&QueueConfig::default())?;
//! queue.open(&controller.luns()[0])?;
//! let buffer = controller.buffer(4096)?;
//! queue.read(0, buffer, 0, 8, 42)?;
//! queue.ring();
//! while !queue.is_empty() {
//!     queue.poll(|done| println!("{} {:?}", done.user, done.status))?;
//!     controller.pci().relax();
//! }
//! controller.delete_queue(queue, |_| ())?;
//! controller.shutdown()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it leaves out
//! Metadata, SGLs, fused commands, weighted arbitration of queues, namespace management, power states. PRPs only;
//! memory pages of 4 KiB only.
//!
//! # Key constants
//! * entries of a queue: a power of two, 2 to 32768; it can hold one command less
//! * transfer: up to MDTS, at most [`Options::max_transfer`]
#![deny(unsafe_code)]

mod admin;
pub mod backend;
mod commands;
mod controller;
mod error;
mod info;
mod lun;
mod masked;
mod memory;
mod pci;
mod prp;
mod queue;
mod request;
mod ring;
mod rows;
mod sq;
mod table;
mod timeout;

pub use commands::Admin;
pub use controller::{Controller, Options};
pub use error::Error;
pub use info::Info;
pub use lun::Lun;
pub use memory::{Buffer, Memory};
pub use pci::{AllocError, Pci};
pub use queue::Queue;
pub use request::{
    Completed, Op, Outstanding, QueueConfig, QueueError, Reaped, Rejected, SubmitError,
};
pub use rows::OpenError;
pub use timeout::{Verdict, Watch};
pub use weir_nvme as nvme;
