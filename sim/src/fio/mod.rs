//! fio jobs in simulated time: the job file, the I/O it asks for, the check of every byte read, statistics and reports.
//!
//! A pure function of job file and seed; nothing here knows the card. What runs the I/O is a [`Device`].
//!
//! # Architecture
//! ```text
//! job file --parse--> JobFile --plan--> Plan: instances, LUNs, scaled times
//!                                         |
//!             Run --next/complete--> Generator (one an instance): which I/O, when
//!              |  --fill/check-----> Shadow (one a LUN): what every block may hold
//!              |  --submit/poll----> Device (queues of virtual CPUs)
//!              v
//!           Results --> report::{table, json, html}
//! ```
//!
//! # What it leaves out
//! Trim, zoned devices, I/O logs, thinktime, rate in bytes, block size mixes by percentage: refused by name, see
//! [`options::TABLE`].

pub mod block;
pub mod device;
pub mod event;
pub mod expect;
pub mod generator;
pub mod offsets;
pub mod options;
pub mod parse;
pub mod plan;
pub mod report;
pub mod results;
pub mod run;
pub mod stats;
pub mod value;

#[cfg(test)]
mod tests;

pub use device::{Command, Completion, Control, Device, DeviceError, LunCardStats};
pub use event::Event;
pub use generator::{Generator, Io, Next, Op};
pub use parse::{Error, JobFile, parse, parse_with_env};
pub use plan::{Instance, Plan, PlanOptions, plan};
pub use results::Results;
pub use run::{Progress, RunOptions, run};
