//! The data structures of Identify (section 5.15.2).

use open_enum::open_enum;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes every Identify structure has.
pub const IDENTIFY_SIZE: usize = 4096;

/// Controller or Namespace Structure: which Identify structure is asked for (section 5.15.1, figure 244).
#[open_enum]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cns {
    /// [`IdentifyNamespace`] of the NSID.
    NAMESPACE = 0x00,
    /// [`IdentifyController`].
    CONTROLLER = 0x01,
    /// Active Namespace ID list: up to 1024 NSIDs greater than the command's, ascending, 0 ends it.
    ACTIVE_NAMESPACES = 0x02,
    /// Namespace Identification Descriptor list: [`DescriptorHeader`]s and their identifiers, a zero header ends it.
    NAMESPACE_DESCRIPTORS = 0x03,
}

/// NSIDs an Active Namespace ID list holds.
pub const NAMESPACE_LIST_LEN: usize = 1024;

/// Identify Controller: 4096 bytes (section 5.15.2.2, figure 247).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[allow(missing_docs)]
pub struct IdentifyController {
    /// PCI Vendor ID.
    pub vid: u16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: u16,
    /// Serial Number: ASCII, filled with spaces.
    pub sn: [u8; 20],
    /// Model Number: ASCII, filled with spaces.
    pub mn: [u8; 40],
    /// Firmware Revision: ASCII, filled with spaces.
    pub fr: [u8; 8],
    /// Recommended Arbitration Burst: 2^RAB commands.
    pub rab: u8,
    /// IEEE OUI, least significant byte first.
    pub ieee: [u8; 3],
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities.
    pub cmic: u8,
    /// Maximum Data Transfer Size: 2^MDTS memory pages (of CAP.MPSMIN); 0 is no limit.
    pub mdts: u8,
    /// Controller ID.
    pub cntlid: u16,
    /// Version, as in VS.
    pub ver: u32,
    /// RTD3 Resume Latency, microseconds.
    pub rtd3r: u32,
    /// RTD3 Entry Latency, microseconds.
    pub rtd3e: u32,
    /// Optional Asynchronous Events Supported.
    pub oaes: u32,
    /// Controller Attributes.
    pub ctratt: u32,
    /// Read Recovery Levels Supported.
    pub rrls: u16,
    pub reserved102: [u8; 9],
    /// Controller Type: 1 is an I/O controller.
    pub cntrltype: u8,
    /// FRU GUID.
    pub fguid: [u8; 16],
    /// Command Retry Delay Times 1 to 3, in 100 ms.
    pub crdt: [u16; 3],
    pub reserved134: [u8; 122],
    /// Optional Admin Command Support.
    pub oacs: u16,
    /// Abort Command Limit, less one.
    pub acl: u8,
    /// Asynchronous Event Request Limit, less one.
    pub aerl: u8,
    /// Firmware Updates: bit 0 slot 1 is read only, bits 3:1 slots.
    pub frmw: u8,
    /// Log Page Attributes.
    pub lpa: u8,
    /// Error Log Page Entries, less one.
    pub elpe: u8,
    /// Number of Power States Support, less one.
    pub npss: u8,
    /// Admin Vendor Specific Command Configuration.
    pub avscc: u8,
    /// Autonomous Power State Transition Attributes.
    pub apsta: u8,
    /// Warning Composite Temperature Threshold, kelvins.
    pub wctemp: u16,
    /// Critical Composite Temperature Threshold, kelvins.
    pub cctemp: u16,
    /// Maximum Time for Firmware Activation, in 100 ms.
    pub mtfa: u16,
    /// Host memory buffer (HMPRE, HMMIN), capacities (TNVMCAP, UNVMCAP), RPMBS, self test, FWUG: bytes 272 to 319.
    pub bytes272: [u8; 48],
    /// Keep Alive Support, in 100 ms; 0 is none.
    pub kas: u16,
    /// Thermal management, sanitize, NVM sets, endurance groups, ANA, persistent event log: bytes 322 to 511.
    pub bytes322: [u8; 190],
    /// Submission Queue Entry Size: bits 3:0 required, 7:4 maximum, as powers of two.
    pub sqes: u8,
    /// Completion Queue Entry Size: bits 3:0 required, 7:4 maximum, as powers of two.
    pub cqes: u8,
    /// Maximum Outstanding Commands; 0 is not reported.
    pub maxcmd: u16,
    /// Number of Namespaces: the greatest NSID.
    pub nn: u32,
    /// Optional NVM Command Support.
    pub oncs: u16,
    /// Fused Operation Support.
    pub fuses: u16,
    /// Format NVM Attributes.
    pub fna: u8,
    /// Volatile Write Cache: bit 0 present.
    pub vwc: u8,
    /// Atomic Write Unit Normal, blocks less one.
    pub awun: u16,
    /// Atomic Write Unit Power Fail, blocks less one.
    pub awupf: u16,
    /// NVM Vendor Specific Command Configuration.
    pub nvscc: u8,
    /// Namespace Write Protection Capabilities.
    pub nwpc: u8,
    /// Atomic Compare & Write Unit, blocks less one.
    pub acwu: u16,
    pub reserved534: u16,
    /// SGL Support: 0 is none.
    pub sgls: u32,
    /// Maximum Number of Allowed Namespaces.
    pub mnan: u32,
    pub reserved544: [u8; 224],
    /// NVM Subsystem NVMe Qualified Name: UTF-8, ended and filled with 0.
    pub subnqn: [u8; 256],
    pub reserved1024: [u8; 768],
    /// NVMe over Fabrics.
    pub fabrics: [u8; 256],
    /// Power State Descriptors 0 to 31, 32 bytes each.
    pub psd: [[u8; 32]; 32],
    /// Vendor specific: on a Weir card a [`WeirIdentity`](crate::weir::WeirIdentity) first.
    pub vendor: [u8; 1024],
}

/// Byte offsets in Identify structures of what a card fills in at run time.
pub mod offset {
    /// [`IdentifyController::sn`](super::IdentifyController): 20 bytes.
    pub const SN: usize = 4;
    /// [`IdentifyController::nn`](super::IdentifyController): 4 bytes.
    pub const NN: usize = 516;
    /// [`IdentifyController::vendor`](super::IdentifyController).
    pub const VENDOR: usize = 3072;
    /// [`IdentifyNamespace::nsze`](super::IdentifyNamespace): 8 bytes; NCAP and NUSE, the same number, follow.
    pub const NSZE: usize = 0;
}

/// LBA Format (section 5.15.2.1, figure 246): 4 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct LbaFormat {
    /// Metadata Size, bytes a block.
    pub ms: u16,
    /// LBA Data Size: a block is 2^LBADS bytes, LBADS at least 9; 0 is an unused format.
    pub lbads: u8,
    /// Relative Performance, bits 1:0: 0 best.
    pub rp: u8,
}

/// Identify Namespace: 4096 bytes (section 5.15.2.1, figure 245).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[allow(missing_docs)]
pub struct IdentifyNamespace {
    /// Namespace Size, blocks; 0 when the NSID is not active.
    pub nsze: u64,
    /// Namespace Capacity, blocks.
    pub ncap: u64,
    /// Namespace Utilization, blocks.
    pub nuse: u64,
    /// Namespace Features.
    pub nsfeat: u8,
    /// Number of LBA Formats, less one.
    pub nlbaf: u8,
    /// Formatted LBA Size: bits 3:0 index into `lbaf`.
    pub flbas: u8,
    /// Metadata Capabilities.
    pub mc: u8,
    /// End-to-end Data Protection Capabilities.
    pub dpc: u8,
    /// End-to-end Data Protection Type Settings.
    pub dps: u8,
    /// Namespace Multi-path I/O and Sharing Capabilities.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// Deallocate Logical Block Features.
    pub dlfeat: u8,
    /// Namespace Atomic Write Unit Normal, blocks less one; and four more about atomicity, NOIOB: bytes 34 to 47.
    pub atomic: [u16; 7],
    /// NVM Capacity, bytes.
    pub nvmcap: [u8; 16],
    /// NPWG, NPWA, NPDG, NPDA, NOWS: preferred granularities, blocks less one.
    pub preferred: [u16; 5],
    pub reserved74: [u8; 18],
    /// ANA Group Identifier.
    pub anagrpid: u32,
    pub reserved96: [u8; 3],
    /// Namespace Attributes.
    pub nsattr: u8,
    /// NVM Set Identifier.
    pub nvmsetid: u16,
    /// Endurance Group Identifier.
    pub endgid: u16,
    /// Namespace Globally Unique Identifier, or 0.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier, or 0.
    pub eui64: [u8; 8],
    /// LBA Formats 0 to 15.
    pub lbaf: [LbaFormat; 16],
    pub reserved192: [u8; 192],
    /// Vendor specific.
    pub vendor: [u8; 3712],
}

impl IdentifyNamespace {
    /// The LBA format in use.
    pub const fn format(&self) -> LbaFormat {
        self.lbaf[(self.flbas & 0xF) as usize]
    }
}

/// Head of one Namespace Identification Descriptor (section 5.15.2.4): 4 bytes, the identifier follows.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
#[allow(missing_docs)]
pub struct DescriptorHeader {
    /// Namespace Identifier Type: 1 EUI64, 2 NGUID, 3 UUID; 0 ends the list.
    pub nidt: u8,
    /// Namespace Identifier Length, bytes.
    pub nidl: u8,
    pub reserved: u16,
}

/// [`DescriptorHeader::nidt`] of an EUI64 (8 bytes).
pub const NIDT_EUI64: u8 = 1;
/// [`DescriptorHeader::nidt`] of an NGUID (16 bytes).
pub const NIDT_NGUID: u8 = 2;
/// [`DescriptorHeader::nidt`] of a UUID (16 bytes).
pub const NIDT_UUID: u8 = 3;

const _: () = {
    use core::mem::offset_of;
    assert!(
        size_of::<IdentifyController>() == IDENTIFY_SIZE
            && size_of::<IdentifyNamespace>() == IDENTIFY_SIZE
    );
    assert!(offset_of!(IdentifyController, sn) == offset::SN);
    assert!(offset_of!(IdentifyController, mdts) == 77);
    assert!(offset_of!(IdentifyController, ver) == 80);
    assert!(offset_of!(IdentifyController, cntrltype) == 111);
    assert!(offset_of!(IdentifyController, oacs) == 256);
    assert!(offset_of!(IdentifyController, aerl) == 259);
    assert!(offset_of!(IdentifyController, elpe) == 262);
    assert!(offset_of!(IdentifyController, kas) == 320);
    assert!(offset_of!(IdentifyController, sqes) == 512);
    assert!(offset_of!(IdentifyController, nn) == offset::NN);
    assert!(offset_of!(IdentifyController, vwc) == 525);
    assert!(offset_of!(IdentifyController, sgls) == 536);
    assert!(offset_of!(IdentifyController, subnqn) == 768);
    assert!(offset_of!(IdentifyController, psd) == 2048);
    assert!(offset_of!(IdentifyController, vendor) == offset::VENDOR);
    assert!(offset_of!(IdentifyNamespace, atomic) == 34);
    assert!(offset_of!(IdentifyNamespace, nvmcap) == 48);
    assert!(offset_of!(IdentifyNamespace, anagrpid) == 92);
    assert!(offset_of!(IdentifyNamespace, nguid) == 104);
    assert!(offset_of!(IdentifyNamespace, lbaf) == 128);
    assert!(offset_of!(IdentifyNamespace, vendor) == 384);
};
