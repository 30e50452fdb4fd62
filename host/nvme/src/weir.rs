//! What makes an NVMe controller a Weir card: vendor bytes in Identify Controller, and the Identify images that the
//! card keeps in ROM.
//!
//! The images are complete except for what depends on run-time limits and the LUN map; the card overlays those bytes
//! while it streams an image, and [`crate::identify::offset`] says where they lie.

use crate::feature::Fairness;
use crate::identify::{
    DescriptorHeader, IDENTIFY_SIZE, IdentifyController, IdentifyNamespace, LbaFormat, NIDT_UUID,
};
use crate::registers::VERSION_1_4;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Model Number of a Weir card.
pub const MODEL: &str = "Weir NVMe LUN card";

/// PCI Vendor ID of a simulated Weir card. The project has none of its own from PCI-SIG; 1234h is unassigned and what
/// QEMU uses for its own teaching devices. A board in a slot carries the id of its maker.
pub const PCI_VENDOR: u16 = 0x1234;
/// PCI Device ID of a simulated Weir card: ASCII "We".
pub const PCI_DEVICE: u16 = 0x5765;
/// PCI class code of an NVMe I/O controller (NVMe over PCIe Transport 1.0, section 3.8.1.3).
pub const PCI_CLASS: u32 = 0x01_08_02;

/// MDTS of a Weir card: 2^5 pages, 128 KiB.
pub const MDTS: u8 = 5;
/// The most bytes one Read or Write of a Weir card moves.
pub const MAX_TRANSFER: usize = crate::PAGE_SIZE << MDTS;
/// Base two logarithm of a Weir card's block size.
pub const LBADS: u8 = 9;
/// Bytes of a Weir card's block.
pub const BLOCK_SIZE: usize = 1 << LBADS;
/// ACL of a Weir card: four Aborts at a time.
pub const ACL: u8 = 3;
/// AERL of a Weir card: four Asynchronous Event Requests at a time.
pub const AERL: u8 = 3;

/// The depth a LUN has after reset: min(tags, 32).
pub const fn default_depth(tags: u16) -> u16 {
    if tags < 32 { tags } else { 32 }
}

/// First bytes of Identify Controller's vendor specific area on a Weir card: 32 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct WeirIdentity {
    /// [`WeirIdentity::MAGIC`].
    pub magic: [u8; 4],
    /// Version of the vendor interface: [`WeirIdentity::VERSION`].
    pub version: u16,
    /// Fairness rules the card has: bit n is rule n of [`Fairness`].
    pub fairness: u8,
    /// Reserved.
    pub reserved: u8,
    /// Tags.
    pub tags: u32,
    /// LUNs.
    pub luns: u32,
    /// I/O queue pairs.
    pub queues: u32,
    /// Commands a queue may have on the card: the greatest queue size.
    pub entries: u32,
    /// Clock of the card, kHz: the unit of [`LunStatistics::cycles_waited`](crate::log::LunStatistics).
    pub clock_khz: u32,
    /// Depth of a LUN after reset.
    pub default_depth: u16,
    /// Reserved.
    pub reserved1: u16,
}

impl WeirIdentity {
    /// What tells a Weir card from others.
    pub const MAGIC: [u8; 4] = *b"WEIR";
    /// The version of the vendor interface described here.
    pub const VERSION: u16 = 1;

    /// Reads the vendor area of Identify Controller; `None` when it is no Weir card's.
    pub fn parse(controller: &IdentifyController) -> Option<WeirIdentity> {
        let (id, _) = WeirIdentity::read_from_prefix(&controller.vendor).ok()?;
        (id.magic == Self::MAGIC).then_some(id)
    }

    /// True when the card has fairness rule `rule`.
    pub const fn has(&self, rule: Fairness) -> bool {
        rule.0 < 8 && self.fairness >> rule.0 & 1 != 0
    }
}

/// What varies between the Identify data of two Weir cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardIdentity<'a> {
    /// Serial number: printable ASCII, at most 20 characters; what does not fit is cut, what is not printable becomes
    /// '?'.
    pub serial: &'a str,
    /// Firmware revision: printable ASCII, at most 8 characters.
    pub firmware: &'a str,
    /// PCI Vendor ID and Subsystem Vendor ID.
    pub vendor: u16,
    /// LUNs.
    pub luns: u32,
    /// Tags.
    pub tags: u32,
    /// I/O queue pairs.
    pub queues: u32,
    /// Greatest queue size, entries.
    pub entries: u32,
    /// Entries of the error log, 1 to 256.
    pub error_log_entries: u16,
    /// Fairness rules, bit n is rule n of [`Fairness`].
    pub fairness: u8,
    /// Clock, kHz.
    pub clock_khz: u32,
}

impl Default for CardIdentity<'_> {
    /// The `default` configuration: 16 queues of 256 entries, 32 LUNs, 512 tags, 250 MHz.
    fn default() -> Self {
        CardIdentity {
            serial: "WEIR0001",
            firmware: "1.0",
            vendor: PCI_VENDOR,
            luns: 32,
            tags: 512,
            queues: 16,
            entries: 256,
            error_log_entries: 4,
            fairness: 1 << Fairness::NONE.0 | 1 << Fairness::EVEN.0 | 1 << Fairness::WEIGHTED.0,
            clock_khz: 250_000,
        }
    }
}

/// Prefix of a Weir card's NVMe Qualified Name (section 7.9); the serial number follows. "weir.example" is a name that
/// RFC 2606 keeps free.
pub const NQN_PREFIX: &str = "nqn.2026-11.example.weir:";

/// The image of Identify Controller (CNS 01h).
pub fn identify_controller(card: &CardIdentity) -> [u8; IDENTIFY_SIZE] {
    let mut id = IdentifyController::new_zeroed();
    id.vid = card.vendor;
    id.ssvid = card.vendor;
    ascii(&mut id.sn, card.serial);
    ascii(&mut id.mn, MODEL);
    ascii(&mut id.fr, card.firmware);
    id.rab = 3;
    // Locally administered (bit 1 of the first byte), as QEMU's: the project has no OUI.
    id.ieee = [0x00, 0x54, 0x52];
    id.mdts = MDTS;
    id.ver = VERSION_1_4;
    id.cntrltype = 1;
    id.acl = ACL;
    id.aerl = AERL;
    id.frmw = 1 << 1 | 1;
    // Get Log Page takes an offset and a length of 32 bits.
    id.lpa = 1 << 2;
    id.elpe = (card.error_log_entries.clamp(1, 256) - 1) as u8;
    id.sqes = 6 << 4 | 6;
    id.cqes = 4 << 4 | 4;
    // Set Features knows Save, Get Features Select.
    id.oncs = 1 << 4;
    id.nn = card.luns;
    let prefix = NQN_PREFIX.len();
    id.subnqn[..prefix].copy_from_slice(NQN_PREFIX.as_bytes());
    let name = &mut id.subnqn[prefix..prefix + 20];
    ascii(name, card.serial);
    let used = card.serial.len().min(20);
    name[used..].fill(0);
    let weir = WeirIdentity {
        magic: WeirIdentity::MAGIC,
        version: WeirIdentity::VERSION,
        fairness: card.fairness,
        reserved: 0,
        tags: card.tags,
        luns: card.luns,
        queues: card.queues,
        entries: card.entries,
        clock_khz: card.clock_khz,
        default_depth: default_depth(card.tags.min(u16::MAX.into()) as u16),
        reserved1: 0,
    };
    id.vendor[..size_of::<WeirIdentity>()].copy_from_slice(weir.as_bytes());
    let mut image = [0; IDENTIFY_SIZE];
    image.copy_from_slice(id.as_bytes());
    image
}

/// The image of Identify Namespace (CNS 00h) for a LUN of `blocks` blocks of [`BLOCK_SIZE`] bytes. With `blocks` 0 it
/// is the card's ROM: the card overlays NSZE, NCAP and NUSE.
pub fn identify_namespace(blocks: u64) -> [u8; IDENTIFY_SIZE] {
    let mut id = IdentifyNamespace::new_zeroed();
    id.nsze = blocks;
    id.ncap = blocks;
    id.nuse = blocks;
    id.lbaf[0] = LbaFormat {
        ms: 0,
        lbads: LBADS,
        rp: 0,
    };
    let mut image = [0; IDENTIFY_SIZE];
    image.copy_from_slice(id.as_bytes());
    image
}

/// The Active Namespace ID list (CNS 02h) of the `luns` that are present, after NSID `after`: `present(lun)` says so
/// for LUN 0 to `luns` - 1.
pub fn active_namespaces(
    luns: u32,
    after: u32,
    present: impl Fn(u32) -> bool,
) -> [u8; IDENTIFY_SIZE] {
    let mut image = [0; IDENTIFY_SIZE];
    let nsids = (after..luns)
        .filter(|&lun| present(lun))
        .map(crate::nsid_of_lun);
    for (entry, nsid) in image.chunks_exact_mut(4).zip(nsids) {
        entry.copy_from_slice(&nsid.to_le_bytes());
    }
    image
}

/// The Namespace Identification Descriptor list (CNS 03h) of `nsid`: one UUID. Its last four bytes are the NSID, most
/// significant first, at [`DESCRIPTOR_NSID`], so that one ROM serves every LUN.
pub fn namespace_descriptors(serial: &str, nsid: u32) -> [u8; IDENTIFY_SIZE] {
    let mut image = [0; IDENTIFY_SIZE];
    let head = DescriptorHeader {
        nidt: NIDT_UUID,
        nidl: 16,
        reserved: 0,
    };
    image[..4].copy_from_slice(head.as_bytes());
    image[4..20].copy_from_slice(&namespace_uuid(serial, nsid));
    image
}

/// Byte offset of the NSID, big-endian, in the image of [`namespace_descriptors`].
pub const DESCRIPTOR_NSID: usize = 16;

/// UUID of a namespace, in the byte order of RFC 9562: version 8 (custom), 90 bits of a hash of the serial number,
/// then the NSID.
pub fn namespace_uuid(serial: &str, nsid: u32) -> [u8; 16] {
    // FNV-1a with 128 bits: no secret, only unlikely to meet another serial's.
    let hash = serial
        .bytes()
        .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |h, b| {
            (h ^ u128::from(b)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B)
        });
    let mut uuid = hash.to_be_bytes();
    uuid[6] = uuid[6] & 0x0F | 0x80;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid[12..].copy_from_slice(&nsid.to_be_bytes());
    uuid
}

/// `text` as an Identify string: cut or filled with spaces, '?' for what is not printable ASCII.
fn ascii(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (byte, char) in field.iter_mut().zip(text.bytes()) {
        *byte = if (0x20..0x7F).contains(&char) {
            char
        } else {
            b'?'
        };
    }
}

const _: () = assert!(size_of::<WeirIdentity>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_image_reads_back() {
        let card = CardIdentity {
            serial: "S1",
            luns: 5,
            tags: 16,
            ..Default::default()
        };
        let image = identify_controller(&card);
        let id = IdentifyController::read_from_bytes(&image).unwrap();
        assert_eq!(&id.sn, b"S1                  ");
        assert_eq!(&image[24..64], b"Weir NVMe LUN card                      ");
        assert_eq!(
            (image[77], image[512], image[513], image[525]),
            (5, 0x66, 0x44, 0)
        );
        assert_eq!(image[516..520], [5, 0, 0, 0]);
        assert_eq!(&image[768..796], b"nqn.2026-11.example.weir:S1\0");
        let weir = WeirIdentity::parse(&id).unwrap();
        assert_eq!(
            (weir.tags, weir.luns, weir.default_depth, weir.queues),
            (16, 5, 16, 16)
        );
        assert!(weir.has(Fairness::EVEN) && !weir.has(Fairness(3)) && !weir.has(Fairness(9)));
        let mut other = id;
        other.vendor[0] = b'X';
        assert_eq!(WeirIdentity::parse(&other), None);
    }

    #[test]
    fn strings_are_cut_and_cleaned() {
        let long = identify_controller(&CardIdentity {
            serial: "abcdefghijklmnopqrstuvwxyz\u{1}",
            ..Default::default()
        });
        assert_eq!(&long[4..24], b"abcdefghijklmnopqrst");
        let odd = identify_controller(&CardIdentity {
            serial: "a\tb",
            ..Default::default()
        });
        assert_eq!(&odd[4..8], b"a?b ");
    }

    #[test]
    fn namespaces_are_listed_in_order_and_cut_at_the_end() {
        let list = active_namespaces(6, 2, |lun| lun != 3);
        let nsids: [u32; 5] = core::array::from_fn(|i| {
            u32::from_le_bytes(list[4 * i..4 * i + 4].try_into().unwrap())
        });
        assert_eq!(nsids, [3, 5, 6, 0, 0]);
        let full = active_namespaces(5000, 0, |_| true);
        assert_eq!(full[4092..], 1024u32.to_le_bytes());
    }

    #[test]
    fn descriptors_differ_by_nsid_in_one_place_only() {
        let (a, b) = (
            namespace_descriptors("X", 1),
            namespace_descriptors("X", 0x0102_0304),
        );
        assert_eq!(a[..4], [3, 16, 0, 0]);
        assert_eq!(b[DESCRIPTOR_NSID..DESCRIPTOR_NSID + 4], [1, 2, 3, 4]);
        assert_eq!(a[4..DESCRIPTOR_NSID], b[4..DESCRIPTOR_NSID]);
        assert_eq!((a[10] >> 4, a[12] >> 6), (8, 2));
        assert_ne!(a[4..16], namespace_descriptors("Y", 1)[4..16]);
        assert!(a[20..].iter().all(|&b| b == 0));
        let ns = identify_namespace(77);
        assert_eq!((ns[0], ns[8], ns[16], ns[130]), (77, 77, 77, 9));
    }
}
