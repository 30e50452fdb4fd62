//! Submission entries, completion entries, opcodes, and the command dwords that are not plain numbers.

use crate::Status;
use bitfield_struct::bitfield;
use open_enum::open_enum;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Admin command opcodes (section 5).
#[open_enum]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AdminOpcode {
    /// Delete I/O Submission Queue (5.6).
    DELETE_IO_SQ = 0x00,
    /// Create I/O Submission Queue (5.4).
    CREATE_IO_SQ = 0x01,
    /// Get Log Page (5.14).
    GET_LOG_PAGE = 0x02,
    /// Delete I/O Completion Queue (5.5).
    DELETE_IO_CQ = 0x04,
    /// Create I/O Completion Queue (5.3).
    CREATE_IO_CQ = 0x05,
    /// Identify (5.15).
    IDENTIFY = 0x06,
    /// Abort (5.1).
    ABORT = 0x08,
    /// Set Features (5.21).
    SET_FEATURES = 0x09,
    /// Get Features (5.13).
    GET_FEATURES = 0x0A,
    /// Asynchronous Event Request (5.2).
    ASYNC_EVENT_REQUEST = 0x0C,
    /// Keep Alive (5.16), not served by a Weir card.
    KEEP_ALIVE = 0x18,
}

/// NVM command set opcodes (section 6).
#[open_enum]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NvmOpcode {
    /// Flush (6.8).
    FLUSH = 0x00,
    /// Write (6.15).
    WRITE = 0x01,
    /// Read (6.9).
    READ = 0x02,
    /// Write Uncorrectable (6.16), not served by a Weir card.
    WRITE_UNCORRECTABLE = 0x04,
    /// Compare (6.6), not served by a Weir card yet.
    COMPARE = 0x05,
    /// Write Zeroes (6.17), not served by a Weir card yet.
    WRITE_ZEROES = 0x08,
    /// Dataset Management (6.7), not served by a Weir card yet.
    DATASET_MANAGEMENT = 0x09,
}

/// Dword 0 of a submission entry (section 4.2, figure 104).
#[bitfield(u32)]
#[derive(PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct Cdw0 {
    /// Opcode: an [`AdminOpcode`] or [`NvmOpcode`].
    pub opcode: u8,
    /// Fused Operation: 0 is a normal command; Weir supports no other.
    #[bits(2)]
    pub fuse: u8,
    #[bits(4)]
    _reserved0: u8,
    /// PRP or SGL for Data Transfer: 0 is PRP; Weir supports no other.
    #[bits(2)]
    pub psdt: u8,
    /// Command Identifier.
    pub cid: u16,
}

/// A submission queue entry: 64 bytes (section 4.2, figure 105).
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct Command {
    /// Opcode, fuse, PSDT, CID.
    pub cdw0: Cdw0,
    /// Namespace identifier.
    pub nsid: u32,
    /// Reserved, or command specific.
    pub cdw2: u32,
    /// Reserved, or command specific.
    pub cdw3: u32,
    /// Metadata pointer.
    pub mptr: u64,
    /// First PRP entry.
    pub prp1: u64,
    /// Second PRP entry, or pointer to the PRP list.
    pub prp2: u64,
    /// Command specific.
    pub cdw10: u32,
    /// Command specific.
    pub cdw11: u32,
    /// Command specific.
    pub cdw12: u32,
    /// Command specific.
    pub cdw13: u32,
    /// Command specific.
    pub cdw14: u32,
    /// Command specific.
    pub cdw15: u32,
}

impl Command {
    /// Bytes of an entry.
    pub const SIZE: usize = 64;

    /// An admin command, CID 0, everything else 0.
    pub fn admin(opcode: AdminOpcode) -> Command {
        Command {
            cdw0: Cdw0::new().with_opcode(opcode.0),
            ..Default::default()
        }
    }

    /// An NVM command for `nsid`, CID 0, everything else 0.
    pub fn nvm(opcode: NvmOpcode, nsid: u32) -> Command {
        Command {
            cdw0: Cdw0::new().with_opcode(opcode.0),
            nsid,
            ..Default::default()
        }
    }

    /// A Read or Write of `blocks` (1 to 65536) blocks from `slba`, PRPs 0.
    pub fn io(opcode: NvmOpcode, nsid: u32, slba: u64, blocks: u32) -> Command {
        Command {
            cdw10: slba as u32,
            cdw11: (slba >> 32) as u32,
            cdw12: blocks.wrapping_sub(1) & 0xFFFF,
            ..Command::nvm(opcode, nsid)
        }
    }

    /// Starting LBA of a Read or Write: dwords 11:10.
    pub fn slba(&self) -> u64 {
        u64::from(self.cdw11) << 32 | u64::from(self.cdw10)
    }

    /// Blocks of a Read or Write: dword 12 bits 15:0, plus one.
    pub fn blocks(&self) -> u32 {
        (self.cdw12 & 0xFFFF) + 1
    }
}

/// A completion queue entry: 16 bytes (section 4.6, figure 121).
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct Completion {
    /// Dword 0: command specific result.
    pub result: u32,
    /// Dword 1: reserved.
    pub reserved: u32,
    /// Submission queue head, as of the completion.
    pub sq_head: u16,
    /// Submission queue the command came from.
    pub sqid: u16,
    /// Command identifier.
    pub cid: u16,
    /// Bit 0 phase tag, bits 15:1 the [`Status`].
    pub status_phase: u16,
}

impl Completion {
    /// Bytes of an entry.
    pub const SIZE: usize = 16;

    /// The phase tag.
    pub const fn phase(&self) -> bool {
        self.status_phase & 1 != 0
    }

    /// The status field.
    pub const fn status(&self) -> Status {
        Status::from_bits(self.status_phase >> 1)
    }

    /// `status` and `phase` as they lie in the entry.
    pub const fn pack_status(status: Status, phase: bool) -> u16 {
        status.into_bits() << 1 | phase as u16
    }
}

/// Read and Write dword 12 (section 6.9, figure 386).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct IoCdw12 {
    /// Number of Logical Blocks, less one.
    pub nlb: u16,
    #[bits(10)]
    _reserved0: u16,
    /// Protection Information Field.
    #[bits(4)]
    pub prinfo: u8,
    /// Force Unit Access.
    pub fua: bool,
    /// Limited Retry.
    pub lr: bool,
}

/// Create I/O Submission/Completion Queue dword 10; Delete uses `qid` alone (sections 5.3 to 5.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct QueueCdw10 {
    /// Queue Identifier: 1 and up.
    pub qid: u16,
    /// Queue Size, less one: 0 is not allowed.
    pub qsize: u16,
}

/// Create I/O Completion Queue dword 11 (section 5.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CreateCqCdw11 {
    /// Physically Contiguous.
    pub pc: bool,
    /// Interrupts Enabled.
    pub ien: bool,
    #[bits(14)]
    _reserved0: u16,
    /// Interrupt Vector.
    pub iv: u16,
}

/// Create I/O Submission Queue dword 11 (section 5.4).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CreateSqCdw11 {
    /// Physically Contiguous.
    pub pc: bool,
    /// Queue Priority: 0 urgent to 3 low; only with weighted round robin.
    #[bits(2)]
    pub qprio: u8,
    #[bits(13)]
    _reserved0: u16,
    /// Completion Queue Identifier.
    pub cqid: u16,
}

/// Abort dword 10 (section 5.1). Bit 0 of the completion's dword 0 is 1 when the command was **not** aborted.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AbortCdw10 {
    /// Submission Queue Identifier.
    pub sqid: u16,
    /// Command Identifier.
    pub cid: u16,
}

/// Get Log Page dword 10 (section 5.14).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GetLogPageCdw10 {
    /// Log Page Identifier: a [`LogPage`](crate::log::LogPage).
    pub lid: u8,
    /// Log Specific Field.
    #[bits(4)]
    pub lsp: u8,
    #[bits(3)]
    _reserved0: u8,
    /// Retain Asynchronous Event.
    pub rae: bool,
    /// Number of Dwords, less one, lower 16 bits.
    pub numdl: u16,
}

/// Identify dword 10 (section 5.15).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct IdentifyCdw10 {
    /// Controller or Namespace Structure: a [`Cns`](crate::identify::Cns).
    pub cns: u8,
    _reserved0: u8,
    /// Controller Identifier, for the structures that name one.
    pub cntid: u16,
}

/// Set Features dword 10 (section 5.21).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SetFeaturesCdw10 {
    /// Feature Identifier: a [`FeatureId`](crate::feature::FeatureId).
    pub fid: u8,
    #[bits(23)]
    _reserved0: u32,
    /// Save.
    pub sv: bool,
}

/// Get Features dword 10 (section 5.13).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GetFeaturesCdw10 {
    /// Feature Identifier: a [`FeatureId`](crate::feature::FeatureId).
    pub fid: u8,
    /// Select: 0 current, 1 default, 2 saved, 3 supported capabilities.
    #[bits(3)]
    pub sel: u8,
    #[bits(21)]
    _reserved0: u32,
}

const _: () =
    assert!(size_of::<Command>() == Command::SIZE && size_of::<Completion>() == Completion::SIZE);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StatusCode;

    #[test]
    fn an_entry_lies_in_memory_as_specified() {
        let mut c = Command::io(NvmOpcode::READ, 7, 0x1234_5678_9ABC_DEF0, 65536);
        c.cdw0.set_cid(0xABCD);
        c.prp1 = 0x1111;
        c.prp2 = 0x2222;
        let b = c.as_bytes();
        assert_eq!(b[0..8], [2, 0, 0xCD, 0xAB, 7, 0, 0, 0]);
        assert_eq!(b[24..26], [0x11, 0x11]);
        assert_eq!(b[32..34], [0x22, 0x22]);
        assert_eq!(b[40..48], 0x1234_5678_9ABC_DEF0u64.to_le_bytes());
        assert_eq!(b[48..52], [0xFF, 0xFF, 0, 0]);
        assert_eq!((c.slba(), c.blocks()), (0x1234_5678_9ABC_DEF0, 65536));
    }

    #[test]
    fn a_completion_lies_in_memory_as_specified() {
        let status = Status::from(StatusCode::LBA_OUT_OF_RANGE).with_dnr(true);
        let c = Completion {
            result: 5,
            sq_head: 0x1234,
            sqid: 3,
            cid: 9,
            status_phase: Completion::pack_status(status, true),
            ..Default::default()
        };
        assert_eq!(
            c.as_bytes(),
            [5, 0, 0, 0, 0, 0, 0, 0, 0x34, 0x12, 3, 0, 9, 0, 0x01, 0x81]
        );
        assert!(c.phase() && c.status() == status);
    }

    #[test]
    fn dwords_lie_as_specified() {
        assert_eq!(
            u32::from(CreateCqCdw11::new().with_pc(true).with_ien(true).with_iv(5)),
            0x0005_0003
        );
        assert_eq!(
            u32::from(
                CreateSqCdw11::new()
                    .with_pc(true)
                    .with_qprio(2)
                    .with_cqid(5)
            ),
            0x0005_0005
        );
        assert_eq!(
            u32::from(
                GetLogPageCdw10::new()
                    .with_lid(0xC0)
                    .with_rae(true)
                    .with_numdl(19)
            ),
            0x0013_80C0
        );
        assert_eq!(
            u32::from(SetFeaturesCdw10::new().with_fid(7).with_sv(true)),
            0x8000_0007
        );
        assert_eq!(
            u32::from(GetFeaturesCdw10::new().with_fid(7).with_sel(3)),
            0x0000_0307
        );
        assert_eq!(
            u32::from(IoCdw12::new().with_nlb(7).with_fua(true)),
            0x4000_0007
        );
    }
}
