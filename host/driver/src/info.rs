//! What a controller is, and its LUNs, as Identify says.

use crate::admin::MAX_EVENT_REQUESTS;
use crate::commands::Admin;
use crate::error::Error;
use crate::lun::Lun;
use weir_nvme::identify::{
    Cns, DescriptorHeader, IdentifyController, IdentifyNamespace, NAMESPACE_LIST_LEN, NIDT_NGUID,
    NIDT_UUID,
};
use weir_nvme::registers::{Cap, IOCQES, IOSQES};
use weir_nvme::weir::WeirIdentity;
use weir_nvme::{PAGE_SIZE, lun_of_nsid};
use zerocopy::FromBytes;

/// The highest LUN number this driver takes, so that a table by LUN stays small.
const MAX_LUN: u32 = 65535;

/// What Identify Controller says, as far as this driver cares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Model Number.
    pub model: String,
    /// Serial Number.
    pub serial: String,
    /// Firmware Revision.
    pub firmware: String,
    /// PCI Vendor ID.
    pub vendor: u16,
    /// VS, or VER of Identify: the revision of NVMe it implements, as 31:16 major, 15:8 minor.
    pub version: u32,
    /// The most bytes one command moves.
    pub max_transfer: usize,
    /// The greatest NSID there may be.
    pub namespaces: u32,
    /// Entries of the error log.
    pub error_log_entries: usize,
    /// Asynchronous Event Requests it takes.
    pub event_requests: u8,
    /// I/O submission queues granted; 0 when the controller is another driver's.
    pub submission_queues: u16,
    /// I/O completion queues granted; 0 likewise.
    pub completion_queues: u16,
    /// CAP; 0 likewise.
    pub cap: Cap,
    /// Its vendor bytes, when it is a Weir card.
    pub weir: Option<WeirIdentity>,
}

impl Info {
    /// Asks `admin`; a command shall move `max_transfer` bytes at most, even if the controller allows more.
    pub(crate) fn read(
        admin: &mut (impl Admin + ?Sized),
        max_transfer: usize,
    ) -> Result<Info, Error> {
        let id: IdentifyController = zerocopy::transmute!(admin.identify(Cns::CONTROLLER, 0)?);
        let (sqes, cqes) = (id.sqes & 0xF, id.cqes & 0xF);
        if sqes != IOSQES {
            return Err(Error::Capability {
                what: "SQES",
                found: sqes.into(),
                want: "6, for entries of 64 bytes",
            });
        }
        if cqes != IOCQES {
            return Err(Error::Capability {
                what: "CQES",
                found: cqes.into(),
                want: "4, for entries of 16 bytes",
            });
        }
        let text = |field: &[u8]| {
            String::from_utf8_lossy(field)
                .trim_end_matches([' ', '\0'])
                .to_owned()
        };
        let wish = max_transfer.max(PAGE_SIZE);
        let limit = match id.mdts {
            0 => wish,
            n => PAGE_SIZE
                .checked_shl(n.into())
                .map_or(wish, |limit| limit.min(wish)),
        };
        Ok(Info {
            model: text(&id.mn),
            serial: text(&id.sn),
            firmware: text(&id.fr),
            vendor: id.vid,
            version: id.ver,
            max_transfer: limit,
            namespaces: id.nn,
            error_log_entries: usize::from(id.elpe) + 1,
            event_requests: id.aerl.saturating_add(1).min(MAX_EVENT_REQUESTS),
            weir: WeirIdentity::parse(&id),
            ..Info::default()
        })
    }
}

/// Finds the LUNs: the active namespaces whose format this driver can use.
pub(crate) fn discover(admin: &mut (impl Admin + ?Sized)) -> Result<Vec<Lun>, Error> {
    let mut luns: Vec<Lun> = Vec::new();
    loop {
        let after = luns.last().map_or(0, |lun| lun.nsid);
        let list = admin.identify(Cns::ACTIVE_NAMESPACES, after)?;
        let entries = list
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let nsids: Vec<u32> = entries.take_while(|&nsid| nsid != 0).collect();
        for &nsid in &nsids {
            let ascending = luns.last().is_none_or(|last| last.nsid < nsid);
            let index = lun_of_nsid(nsid).filter(|&lun| lun <= MAX_LUN && ascending);
            let index = index.ok_or(Error::Capability {
                what: "an NSID in the Active Namespace list",
                found: nsid.into(),
                want: "above the one before and at most 65536",
            })?;
            luns.push(identify_lun(admin, index, nsid)?);
        }
        if nsids.len() < NAMESPACE_LIST_LEN {
            return Ok(luns);
        }
    }
}

fn identify_lun(admin: &mut (impl Admin + ?Sized), index: u32, nsid: u32) -> Result<Lun, Error> {
    let namespace: IdentifyNamespace = zerocopy::transmute!(admin.identify(Cns::NAMESPACE, nsid)?);
    let format = namespace.format();
    if !(9..=16).contains(&format.lbads) {
        let (found, want) = (
            format.lbads.into(),
            "9 to 16: blocks of 512 bytes to 64 KiB",
        );
        return Err(Error::Capability {
            what: "LBADS",
            found,
            want,
        });
    }
    if format.ms != 0 {
        return Err(Error::Capability {
            what: "MS",
            found: format.ms.into(),
            want: "0: no metadata",
        });
    }
    // Controllers before revision 1.3 lack the descriptors.
    let id = match admin.identify(Cns::NAMESPACE_DESCRIPTORS, nsid) {
        Ok(list) => descriptor(&list),
        Err(Error::Command { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(Lun {
        index,
        nsid,
        blocks: namespace.nsze,
        block_shift: format.lbads,
        id,
    })
}

/// The first UUID or NGUID of a Namespace Identification Descriptor list.
fn descriptor(list: &[u8]) -> Option<[u8; 16]> {
    let mut rest = list;
    while let Ok((head, body)) = DescriptorHeader::read_from_prefix(rest) {
        let len = usize::from(head.nidl);
        if head.nidt == 0 || len == 0 || len > body.len() {
            return None;
        }
        if let (NIDT_UUID | NIDT_NGUID, Ok(id)) = (head.nidt, body[..len].try_into()) {
            return Some(id);
        }
        rest = &body[len..];
    }
    None
}
