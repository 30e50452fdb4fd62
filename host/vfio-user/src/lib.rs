//! The vfio-user protocol, by which a PCI device in one process serves another: QEMU's guest, or a driver in user space.
//!
//! # Architecture
//! * [`wire`] has the messages as bytes: header, commands, structures, and VFIO's own numbers.
//! * [`Connection`] moves messages and the file descriptors that come with them over a Unix stream socket; both ends use
//!   it. It never blocks unless asked to, and bounds what a peer can make it keep.
//! * [`version`] has what both ends tell each other first.
//! * [`Client`] is a driver's end: device, regions, interrupts, DMA memory, reset. The server's end is the device's
//!   business: `weir-sim` has one around the simulated card.
//!
//! The specification is libvfio-user's `docs/vfio-user.rst` and `include/vfio-user.h`, protocol version 0.0 and 0.1; where
//! the two differ (layout of the DMA messages, numbers of commands), the header and QEMU 11.1 agree, and so does this.
//!
//! # What it leaves out
//! Migration, dirty pages, region file descriptors (ioeventfds, mapped regions), DMA by message: memory comes with a file
//! descriptor, or cannot be reached.
//!
//! # Key constants
//! A message has at most [`MAX_MESSAGE`] bytes and [`MAX_FDS`] file descriptors.
#![forbid(unsafe_code)]

mod client;
mod connection;
mod error;
pub mod version;
pub mod wire;

pub use client::{Client, Permissions};
pub use connection::{Connection, MAX_FDS, MAX_MESSAGE, Message};
pub use error::Error;
