//! BAR0: the controller registers (section 3.1), the doorbells, and MSI-X where Weir puts it.

use bitfield_struct::bitfield;

/// Byte offsets of the registers in BAR0 (section 3.1, figure 68).
pub mod offset {
    /// Controller Capabilities, 64 bits, read only.
    pub const CAP: usize = 0x00;
    /// Version, 32 bits, read only.
    pub const VS: usize = 0x08;
    /// Interrupt Mask Set, 32 bits; must not be touched when MSI-X is in use.
    pub const INTMS: usize = 0x0C;
    /// Interrupt Mask Clear, 32 bits; must not be touched when MSI-X is in use.
    pub const INTMC: usize = 0x10;
    /// Controller Configuration, 32 bits.
    pub const CC: usize = 0x14;
    /// Controller Status, 32 bits.
    pub const CSTS: usize = 0x1C;
    /// NVM Subsystem Reset, 32 bits; optional (CAP.NSSRS), Weir has none.
    pub const NSSR: usize = 0x20;
    /// Admin Queue Attributes, 32 bits.
    pub const AQA: usize = 0x24;
    /// Admin Submission Queue Base Address, 64 bits, page aligned.
    pub const ASQ: usize = 0x28;
    /// Admin Completion Queue Base Address, 64 bits, page aligned.
    pub const ACQ: usize = 0x30;
    /// First doorbell (section 3.1.24).
    pub const DOORBELLS: usize = 0x1000;
}

/// Where a Weir card has its MSI-X structures in BAR0: on 4 KiB pages of their own, so that a hypervisor can map the
/// doorbells of a guest directly and still trap these.
pub mod msix {
    /// Byte offset in BAR0 of the MSI-X table: one [`TableEntry`](super::MsixTableEntry) a vector.
    pub const TABLE: usize = 0x2000;
    /// Byte offset in BAR0 of the pending bit array: bit `v % 64` of the 64-bit word `v / 64` for vector `v`.
    pub const PBA: usize = 0x3000;
}

/// Bytes of a Weir card's BAR0.
pub const BAR0_SIZE: usize = 0x4000;

/// What VS reads on a Weir card: revision 1.4.0.
pub const VERSION_1_4: u32 = 0x0001_0400;

/// What a 32-bit read returns when no device answers any more.
pub const ALL_ONES: u32 = 0xFFFF_FFFF;

/// Byte offset of the tail doorbell of submission queue `qid` (section 3.1.24); `dstrd` is CAP.DSTRD.
pub const fn sq_tail_doorbell(qid: u16, dstrd: u8) -> usize {
    offset::DOORBELLS + (2 * qid as usize) * (4 << dstrd)
}

/// Byte offset of the head doorbell of completion queue `qid` (section 3.1.25); `dstrd` is CAP.DSTRD.
pub const fn cq_head_doorbell(qid: u16, dstrd: u8) -> usize {
    offset::DOORBELLS + (2 * qid as usize + 1) * (4 << dstrd)
}

/// Controller Capabilities (section 3.1.1).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Cap {
    /// Maximum Queue Entries Supported, less one: 0 is not allowed.
    #[bits(16)]
    pub mqes: u16,
    /// Contiguous Queues Required.
    pub cqr: bool,
    /// Arbitration Mechanism Supported beside round robin: bit 0 weighted round robin with urgent class.
    #[bits(2)]
    pub ams: u8,
    #[bits(5)]
    _reserved0: u8,
    /// Worst time for CSTS.RDY to follow CC.EN, and for shutdown to end, in units of 500 ms.
    #[bits(8)]
    pub to: u8,
    /// Doorbell Stride: doorbells lie 4 << DSTRD bytes apart.
    #[bits(4)]
    pub dstrd: u8,
    /// NVM Subsystem Reset Supported.
    pub nssrs: bool,
    /// Command Sets Supported: bit 0 is the NVM command set.
    #[bits(8)]
    pub css: u8,
    /// Boot Partition Support.
    pub bps: bool,
    #[bits(2)]
    _reserved1: u8,
    /// Memory Page Size Minimum: 2^(12 + MPSMIN) bytes.
    #[bits(4)]
    pub mpsmin: u8,
    /// Memory Page Size Maximum: 2^(12 + MPSMAX) bytes.
    #[bits(4)]
    pub mpsmax: u8,
    /// Persistent Memory Region Supported.
    pub pmrs: bool,
    /// Controller Memory Buffer Supported.
    pub cmbs: bool,
    #[bits(6)]
    _reserved2: u8,
}

/// Controller Configuration (section 3.1.5).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cc {
    /// Enable: 0 to 1 starts the controller, 1 to 0 resets it.
    pub en: bool,
    #[bits(3)]
    _reserved0: u8,
    /// I/O Command Set Selected: 0 is NVM.
    #[bits(3)]
    pub css: u8,
    /// Memory Page Size: 2^(12 + MPS) bytes.
    #[bits(4)]
    pub mps: u8,
    /// Arbitration Mechanism Selected: 0 is round robin.
    #[bits(3)]
    pub ams: u8,
    /// Shutdown Notification: [`SHN_NONE`], [`SHN_NORMAL`], [`SHN_ABRUPT`].
    #[bits(2)]
    pub shn: u8,
    /// I/O submission entries are 2^IOSQES bytes: 6.
    #[bits(4)]
    pub iosqes: u8,
    /// I/O completion entries are 2^IOCQES bytes: 4.
    #[bits(4)]
    pub iocqes: u8,
    #[bits(8)]
    _reserved1: u8,
}

/// CC.SHN: no shutdown.
pub const SHN_NONE: u8 = 0;
/// CC.SHN: normal shutdown.
pub const SHN_NORMAL: u8 = 1;
/// CC.SHN: abrupt shutdown.
pub const SHN_ABRUPT: u8 = 2;
/// CSTS.SHST: no shutdown asked for.
pub const SHST_NORMAL: u8 = 0;
/// CSTS.SHST: shutdown going on.
pub const SHST_OCCURRING: u8 = 1;
/// CSTS.SHST: shutdown complete.
pub const SHST_COMPLETE: u8 = 2;

/// CC.IOSQES of 64-byte submission entries.
pub const IOSQES: u8 = 6;
/// CC.IOCQES of 16-byte completion entries.
pub const IOCQES: u8 = 4;

/// Controller Status (section 3.1.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Csts {
    /// Ready: follows CC.EN.
    pub rdy: bool,
    /// Controller Fatal Status.
    pub cfs: bool,
    /// Shutdown Status: [`SHST_NORMAL`], [`SHST_OCCURRING`], [`SHST_COMPLETE`].
    #[bits(2)]
    pub shst: u8,
    /// NVM Subsystem Reset Occurred.
    pub nssro: bool,
    /// Processing Paused.
    pub pp: bool,
    #[bits(26)]
    _reserved0: u32,
}

/// Admin Queue Attributes (section 3.1.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Aqa {
    /// Entries of the admin submission queue, less one (1 to 4095).
    #[bits(12)]
    pub asqs: u16,
    #[bits(4)]
    _reserved0: u8,
    /// Entries of the admin completion queue, less one (1 to 4095).
    #[bits(12)]
    pub acqs: u16,
    #[bits(4)]
    _reserved1: u8,
}

/// One entry of the MSI-X table (PCI Local Bus Specification 3.0, section 6.8.2.6): 16 bytes.
#[repr(C)]
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    zerocopy::IntoBytes,
    zerocopy::FromBytes,
    zerocopy::Immutable,
    zerocopy::KnownLayout,
)]
pub struct MsixTableEntry {
    /// Message Address, lower half; bits 1:0 are 0.
    pub address_lo: u32,
    /// Message Address, upper half.
    pub address_hi: u32,
    /// Message Data.
    pub data: u32,
    /// Vector Control: bit 0 masks the vector, and is 1 after reset.
    pub control: u32,
}

impl MsixTableEntry {
    /// Bytes of an entry.
    pub const SIZE: usize = 16;
    /// The mask bit of `control`.
    pub const MASKED: u32 = 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_specification_puts_them() {
        assert_eq!(u64::from(Cap::new().with_mqes(0xFFFF)), 0xFFFF);
        assert_eq!(u64::from(Cap::new().with_cqr(true)), 1 << 16);
        assert_eq!(u64::from(Cap::new().with_to(0xFF)), 0xFF << 24);
        assert_eq!(u64::from(Cap::new().with_dstrd(0xF)), 0xF << 32);
        assert_eq!(u64::from(Cap::new().with_css(1)), 1 << 37);
        assert_eq!(u64::from(Cap::new().with_mpsmin(0xF)), 0xF << 48);
        assert_eq!(u64::from(Cap::new().with_mpsmax(0xF)), 0xF << 52);
        assert_eq!(u64::from(Cap::new().with_cmbs(true)), 1 << 57);
        assert_eq!(u32::from(Cc::new().with_mps(1)), 1 << 7);
        assert_eq!(u32::from(Cc::new().with_shn(1)), 1 << 14);
        assert_eq!(u32::from(Cc::new().with_iosqes(1)), 1 << 16);
        assert_eq!(u32::from(Cc::new().with_iocqes(1)), 1 << 20);
        assert_eq!(u32::from(Csts::new().with_shst(3)), 3 << 2);
        assert_eq!(u32::from(Csts::new().with_pp(true)), 1 << 5);
        assert_eq!(u32::from(Aqa::new().with_acqs(0xFFF)), 0xFFF << 16);
    }

    #[test]
    fn doorbells_alternate_by_queue_and_stride() {
        assert_eq!(sq_tail_doorbell(0, 0), 0x1000);
        assert_eq!(cq_head_doorbell(0, 0), 0x1004);
        assert_eq!(sq_tail_doorbell(3, 0), 0x1018);
        assert_eq!(cq_head_doorbell(3, 2), 0x1000 + 7 * 16);
    }
}
