//! The NVMe wire format: what crosses the bus between a host and an NVMe controller, and nothing that acts on it.
//!
//! Host driver, simulator, the card's ROMs and the tests all take their numbers from here, so that no constant of the
//! specification is typed twice. Section numbers refer to the NVM Express Base Specification, revision 1.4, unless
//! another document is named; "vendor" marks what only a Weir card has.
//!
//! # Architecture
//! * [`registers`]: offsets and layouts of BAR0's registers (section 3.1), doorbells, and where Weir puts MSI-X.
//! * [`command`]: the 64-byte submission entry, the 16-byte completion entry, opcodes and the dwords of each command.
//! * [`status`]: status codes as (type, code) pairs.
//! * [`feature`]: feature identifiers and their dwords, Weir's LUN budget (C0h) and tag set (C1h) among them.
//! * [`identify`]: the data structures of Identify.
//! * [`log`]: log pages, Weir's LUN statistics (C0h) among them, and asynchronous events.
//! * [`prp`]: arithmetic of Physical Region Pages and a plain walker over them.
//! * [`weir`]: what makes a controller a Weir card: the vendor bytes, and the 4096-byte Identify images of its ROMs.
//!
//! Layouts are `zerocopy` types: read one with `FromBytes::read_from_bytes`, turn one into bytes with
//! `IntoBytes::as_bytes`. Dwords are bitfields that convert to and from `u32` with `into` and `from`. Code numbers are
//! open enums: any value is representable, `.0` is the number.
//!
//! # What it leaves out
//! SGLs, metadata and end-to-end protection, namespace management, fabrics, controller memory buffers, and every
//! command Weir does not serve.
//!
//! # Key constants
//! * memory page: [`PAGE_SIZE`] (CC.MPS = 0, the only one supported)
//! * LUN n, counted from 0, is namespace n + 1: [`nsid_of_lun`]
#![no_std]
#![forbid(unsafe_code)]

pub mod command;
pub mod feature;
pub mod identify;
pub mod log;
pub mod prp;
pub mod registers;
pub mod status;
pub mod weir;

pub use command::{AdminOpcode, Command, Completion, NvmOpcode};
pub use status::{Status, StatusCode};

#[cfg(not(target_endian = "little"))]
compile_error!("weir-nvme's layouts are those of a little-endian machine");

/// Bytes of a memory page: CC.MPS = 0 (section 3.1.5).
pub const PAGE_SIZE: usize = 4096;

/// The NSID that names all namespaces (section 6.1.2).
pub const NSID_ALL: u32 = 0xFFFF_FFFF;

/// The namespace identifier of LUN `lun`, counted from 0.
pub const fn nsid_of_lun(lun: u32) -> u32 {
    lun + 1
}

/// The LUN, counted from 0, of namespace `nsid`; `None` for 0 and for [`NSID_ALL`].
pub const fn lun_of_nsid(nsid: u32) -> Option<u32> {
    match nsid {
        0 | NSID_ALL => None,
        n => Some(n - 1),
    }
}
