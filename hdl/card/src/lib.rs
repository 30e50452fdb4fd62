//! The Weir card: an NVMe controller whose gateware meters every LUN. A file per block.
#![forbid(unsafe_code)]

pub mod admin;
pub mod axi_check;
pub mod axi_id_map;
pub mod axi_lite;
pub mod bar0;
pub mod bitmap;
pub mod bus_gate;
pub mod card;
pub mod config;
pub mod cq_post;
pub mod ctrl;
pub mod decode;
pub mod dma;
pub mod find;
pub mod free_list;
pub mod host_port;
pub mod interfaces;
pub mod irq;
pub mod keeper;
pub mod lun_engine;
pub mod lun_map;
pub mod regs;
pub mod sq_fetch;
