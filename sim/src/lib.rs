//! The simulated host around the card: PCIe root, host memory, media, time, and fio jobs in simulated time.

pub mod axi;
pub mod card;
pub mod config;
pub mod device;
pub mod fake;
pub mod fio;
pub mod host;
pub mod link;
pub mod lite;
pub mod master;
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
pub mod world;
