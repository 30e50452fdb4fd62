//! The simulated host around the card: PCIe root, host memory, media, time, and fio jobs in simulated time.

pub mod pattern;
