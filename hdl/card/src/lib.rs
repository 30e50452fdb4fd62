//! The Weir card: an NVMe controller whose gateware meters every LUN. A file per block.
#![forbid(unsafe_code)]

pub mod axi_id_map;
pub mod axi_lite;
pub mod bar0;
pub mod bitmap;
pub mod config;
pub mod dma;
pub mod find;
pub mod host_port;
pub mod interfaces;
pub mod lun_engine;
pub mod lun_map;
pub mod regs;
pub mod sq_fetch;
