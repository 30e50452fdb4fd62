//! The register map of BAR0: the one table from which `bar0` is made and `weir regs` is printed.

use crate::config::CardConfig;
use weir_nvme::registers::{VERSION_1_4, offset};

/// What stands behind a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Read only, never changes.
    Const(u64),
    /// Read and write; the value after reset.
    Rw(u64),
    /// Read only, from the card: the status of that name.
    Status(Status),
}

/// Status fields that the card drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// CSTS.RDY.
    Ready,
    /// CSTS.CFS.
    Fatal,
    /// CSTS.SHST.
    Shutdown,
}

/// A field of a register.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name in the specification.
    pub name: &'static str,
    /// Lowest bit.
    pub lo: u32,
    /// Width in bits.
    pub width: u32,
    /// What stands behind it.
    pub source: Source,
    /// What it means, with its unit.
    pub doc: &'static str,
}

/// A register.
#[derive(Clone, Debug)]
pub struct Register {
    /// Its name in the specification.
    pub name: &'static str,
    /// Byte offset in BAR0.
    pub offset: u32,
    /// 32 or 64 bits.
    pub bits: u32,
    /// What it is.
    pub doc: &'static str,
    /// Its fields, from bit 0 up; bits of no field read as 0.
    pub fields: Vec<Field>,
}

/// Registers that repeat.
#[derive(Clone, Debug)]
pub struct Array {
    /// Name; `y` is the queue, `v` the vector.
    pub name: &'static str,
    /// Byte offset of the first.
    pub offset: u32,
    /// Bytes from one to the next.
    pub stride: u32,
    /// How many.
    pub count: u32,
    /// Read only, write only or both.
    pub access: &'static str,
    /// What it is.
    pub doc: &'static str,
}

/// CAP.TO in units of 500 ms: enable waits for the sweep of the tables, disable for the last AXI burst and the sweep.
const TIMEOUT_500MS: u64 = 2;

fn field(name: &'static str, lo: u32, width: u32, source: Source, doc: &'static str) -> Field {
    Field {
        name,
        lo,
        width,
        source,
        doc,
    }
}

/// The registers of the page at 0 (NVMe 1.4, 3.1).
pub fn registers(c: &CardConfig) -> Vec<Register> {
    use Source::{Const, Rw, Status as St};
    let reg = |name, offset: usize, bits, doc, fields| Register {
        name,
        offset: offset as u32,
        bits,
        doc,
        fields,
    };
    vec![
        reg(
            "CAP",
            offset::CAP,
            64,
            "Controller Capabilities",
            vec![
                field(
                    "MQES",
                    0,
                    16,
                    Const(u64::from(c.entries) - 1),
                    "entries of an I/O queue, less one",
                ),
                field("CQR", 16, 1, Const(1), "queues are physically contiguous"),
                field("AMS", 17, 2, Const(0), "arbitration: round robin only"),
                field(
                    "TO",
                    24,
                    8,
                    Const(TIMEOUT_500MS),
                    "longest enable or disable, in 500 ms",
                ),
                field("DSTRD", 32, 4, Const(0), "doorbell stride: 4 bytes"),
                field("NSSRS", 36, 1, Const(0), "no subsystem reset"),
                field("CSS", 37, 8, Const(1), "NVM command set"),
                field("MPSMIN", 48, 4, Const(0), "pages of 4 KiB"),
                field("MPSMAX", 52, 4, Const(0), "pages of 4 KiB"),
            ],
        ),
        reg(
            "VS",
            offset::VS,
            32,
            "Version",
            vec![
                field(
                    "TER",
                    0,
                    8,
                    Const(u64::from(VERSION_1_4) & 0xff),
                    "tertiary",
                ),
                field(
                    "MNR",
                    8,
                    8,
                    Const(u64::from(VERSION_1_4) >> 8 & 0xff),
                    "minor",
                ),
                field("MJR", 16, 16, Const(u64::from(VERSION_1_4) >> 16), "major"),
            ],
        ),
        reg(
            "INTMS",
            offset::INTMS,
            32,
            "Interrupt Mask Set: there is only MSI-X, so nothing to mask; reads as 0",
            vec![],
        ),
        reg(
            "INTMC",
            offset::INTMC,
            32,
            "Interrupt Mask Clear: as INTMS",
            vec![],
        ),
        reg(
            "CC",
            offset::CC,
            32,
            "Controller Configuration",
            vec![
                field("EN", 0, 1, Rw(0), "enable; 1 to 0 is a controller reset"),
                field("CSS", 4, 3, Rw(0), "command set: 0 (NVM), else CSTS.CFS"),
                field("MPS", 7, 4, Rw(0), "page size: 0 (4 KiB), else CSTS.CFS"),
                field(
                    "AMS",
                    11,
                    3,
                    Rw(0),
                    "arbitration: 0 (round robin), else CSTS.CFS",
                ),
                field("SHN", 14, 2, Rw(0), "shutdown: 1 normal, 2 abrupt"),
                field(
                    "IOSQES",
                    16,
                    4,
                    Rw(0),
                    "submission entries of 2^6 bytes, whatever is written",
                ),
                field(
                    "IOCQES",
                    20,
                    4,
                    Rw(0),
                    "completion entries of 2^4 bytes, whatever is written",
                ),
            ],
        ),
        reg(
            "CSTS",
            offset::CSTS,
            32,
            "Controller Status",
            vec![
                field("RDY", 0, 1, St(Status::Ready), "ready"),
                field(
                    "CFS",
                    1,
                    1,
                    St(Status::Fatal),
                    "fatal: CC asks for what CAP has not, or a queue could not be reached",
                ),
                field(
                    "SHST",
                    2,
                    2,
                    St(Status::Shutdown),
                    "shutdown: 0 none, 1 under way, 2 done",
                ),
            ],
        ),
        reg(
            "AQA",
            offset::AQA,
            32,
            "Admin Queue Attributes",
            vec![
                field(
                    "ASQS",
                    0,
                    12,
                    Rw(0),
                    "entries of the admin submission queue, less one",
                ),
                field(
                    "ACQS",
                    16,
                    12,
                    Rw(0),
                    "entries of the admin completion queue, less one",
                ),
            ],
        ),
        reg(
            "ASQ",
            offset::ASQ,
            64,
            "Admin Submission Queue Base Address",
            vec![field("ASQB", 12, 52, Rw(0), "4 KiB page")],
        ),
        reg(
            "ACQ",
            offset::ACQ,
            64,
            "Admin Completion Queue Base Address",
            vec![field("ACQB", 12, 52, Rw(0), "4 KiB page")],
        ),
    ]
}

/// The registers that repeat: doorbells, MSI-X table and PBA.
pub fn arrays(c: &CardConfig) -> Vec<Array> {
    let n = c.queues + 1;
    let array = |name, offset: usize, stride, count, access, doc| Array {
        name,
        offset: offset as u32,
        stride,
        count,
        access,
        doc,
    };
    use weir_nvme::registers::msix;
    vec![
        array(
            "SQyTDBL",
            offset::DOORBELLS,
            8,
            n,
            "WO",
            "submission queue y tail doorbell, bits 15:0",
        ),
        array(
            "CQyHDBL",
            offset::DOORBELLS + 4,
            8,
            n,
            "WO",
            "completion queue y head doorbell, bits 15:0",
        ),
        array(
            "MSIXv.ADDR",
            msix::TABLE,
            16,
            n,
            "RW",
            "message address of vector v, bits 31:2",
        ),
        array(
            "MSIXv.ADDRHI",
            msix::TABLE + 4,
            16,
            n,
            "RW",
            "message address of vector v, bits 63:32",
        ),
        array(
            "MSIXv.DATA",
            msix::TABLE + 8,
            16,
            n,
            "RW",
            "message data of vector v",
        ),
        array(
            "MSIXv.CTRL",
            msix::TABLE + 12,
            16,
            n,
            "RW",
            "bit 0: vector v is masked (1 after reset)",
        ),
        array(
            "PBA",
            msix::PBA,
            4,
            n.div_ceil(32),
            "RO",
            "pending bits, 32 vectors a dword",
        ),
    ]
}
