//! The simulated host around the card: PCIe root, host memory, media, time, and fio jobs in simulated time.
//!
//! # Architecture
//! ```text
//!   run::run ─▶ fio (jobs, checks) ─▶ device (driver's queues) ─▶ pci (trait Pci) ─▶ world
//!                                                                                   │
//!          ┌──────────────────────────── world::World::step: one cycle ─────────────┤
//!          │                                                                        │
//!   media ◀─ slave ◀═ AXI4 ═ card::Card (Verilated) ═════════ AXI4 ═▶ pcie, or slave ─▶ host (memory, interrupts)
//!                              ▲ AXI4-Lite: lite (BAR0, platform)    config ─▶ bus master, MSI-X, FLR wires
//! ```
//! - [`world::World`] owns a [`card::Card`] and all models; each decides in a cycle what it drives in the next, so the card
//!   settles once a cycle. When the card is idle and nothing is due, time jumps.
//! - [`axi`] has the pins and the rules ([`axi::Checker`]: a broken rule stops the run); [`slave`] is every AXI slave with
//!   a latency, [`pcie`] the one behind a link ([`link`] has its arithmetic, docs/link-model.md its sources).
//! - [`pci::SimPci`] is the driver's PCI function; [`device`] puts [`fio`]'s engine on the driver; [`run`] does a whole run.
//! - [`vfio_user`] serves the world's card to other processes instead, whose memory is [`memory::foreign`]'s.
//! - One thread, deterministic: everything random draws from [`rng::Rng`] by seed and purpose.
//!
//! # What it leaves out
//! CPUs and caches (a host access costs nothing but `--cpu-ns`), an IOMMU beyond the allocations it maps, link errors,
//! power states, hot plug. Media has latency, bandwidth and faults, but no banks, wear or garbage collection.
//!
//! # Key constants
//! A cycle is 4 ns ([`time::CYCLE_NS`]); DMA memory starts above 4 GiB ([`memory::FIRST_IOVA`]).
#![deny(unsafe_code)]

pub mod axi;
pub mod card;
pub mod config;
pub mod device;
#[cfg(test)]
mod fake;
pub mod fio;
mod held;
pub mod host;
pub mod link;
pub mod lite;
#[cfg(test)]
mod master;
pub mod media;
pub mod memory;
pub mod model;
pub mod pattern;
pub mod pci;
pub mod pcie;
pub mod rng;
pub mod run;
pub mod slave;
pub mod time;
pub mod vfio_user;
pub mod world;
