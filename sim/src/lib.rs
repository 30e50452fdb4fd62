//! The simulated host around the card: PCIe root, host memory, media, time, and fio jobs in simulated time.

pub mod axi;
pub mod memory;
pub mod pattern;
pub mod rng;
