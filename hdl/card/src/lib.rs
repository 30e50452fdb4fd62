//! The Weir card: an NVMe controller whose gateware meters every LUN. A file per block.
#![forbid(unsafe_code)]

pub mod config;
pub mod interfaces;
pub mod lun_engine;
