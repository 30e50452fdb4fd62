//! Log pages (section 5.14.1) and asynchronous events (section 5.2).

use crate::Status;
use bitfield_struct::bitfield;
use open_enum::open_enum;
use zerocopy::little_endian::{U16, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Log page identifiers (section 5.14.1, figure 194; C0h and up are vendor specific).
#[open_enum]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LogPage {
    /// Error Information: [`ErrorEntry`]s, newest first.
    ERROR = 0x01,
    /// SMART / Health Information: [`SmartLog`].
    SMART = 0x02,
    /// Firmware Slot Information: [`FirmwareSlotLog`].
    FIRMWARE_SLOT = 0x03,
    /// Vendor, per NSID: [`LunStatistics`].
    LUN_STATISTICS = 0xC0,
}

/// One entry of the Error Information log: 64 bytes (section 5.14.1.1).
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct ErrorEntry {
    /// Running number of this error, from 1; 0 is an unused entry.
    pub error_count: u64,
    /// Submission queue of the command, FFFFh when it belongs to none.
    pub sqid: u16,
    /// Command identifier, FFFFh when it belongs to no command.
    pub cid: u16,
    /// Bit 0 phase tag, bits 15:1 the [`Status`].
    pub status_phase: u16,
    /// Where the wrong parameter lies in the command: byte 7:0, bit 10:8; FFFFh when not one parameter.
    pub parameter_location: u16,
    /// First LBA that had the error.
    pub lba: u64,
    /// Namespace.
    pub nsid: u32,
    /// Vendor Specific Information Available: a log page, or 0.
    pub vendor_log: u8,
    /// Transport Type.
    pub trtype: u8,
    /// Reserved.
    pub reserved0: [u8; 2],
    /// Command Specific Information.
    pub command_specific: u64,
    /// Transport Type Specific Information.
    pub transport_specific: u16,
    /// Reserved.
    pub reserved1: [u8; 22],
}

impl ErrorEntry {
    /// The status of the command.
    pub const fn status(&self) -> Status {
        Status::from_bits(self.status_phase >> 1)
    }
}

/// The SMART / Health Information log: 512 bytes (section 5.14.1.2).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct SmartLog {
    /// Critical Warning: bit 0 spare low, 1 temperature, 2 reliability, 3 read only, 4 backup failed.
    pub critical_warning: u8,
    /// Composite Temperature, kelvins.
    pub temperature: U16,
    /// Available Spare, percent.
    pub available_spare: u8,
    /// Available Spare Threshold, percent.
    pub spare_threshold: u8,
    /// Percentage Used; may exceed 100.
    pub percentage_used: u8,
    /// Endurance Group Critical Warning Summary.
    pub endurance_warning: u8,
    /// Reserved.
    pub reserved0: [u8; 25],
    /// Data Units Read, in thousands of 512 bytes, rounded up.
    pub data_units_read: U128,
    /// Data Units Written, in thousands of 512 bytes, rounded up.
    pub data_units_written: U128,
    /// Host Read Commands.
    pub host_reads: U128,
    /// Host Write Commands.
    pub host_writes: U128,
    /// Controller Busy Time, minutes.
    pub busy_time: U128,
    /// Power Cycles.
    pub power_cycles: U128,
    /// Power On Hours.
    pub power_on_hours: U128,
    /// Unsafe Shutdowns.
    pub unsafe_shutdowns: U128,
    /// Media and Data Integrity Errors.
    pub media_errors: U128,
    /// Number of Error Information Log Entries over the life of the controller.
    pub error_log_entries: U128,
    /// Minutes above the warning temperature, minutes above the critical one, eight sensors, thermal management:
    /// bytes 192 to 231, all 0 on a Weir card.
    pub thermal: [u8; 40],
    /// Reserved.
    pub reserved1: [u8; 280],
}

/// The Firmware Slot Information log: 512 bytes (section 5.14.1.3).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct FirmwareSlotLog {
    /// Active Firmware Info: bits 2:0 the slot running, 6:4 the one after reset.
    pub afi: u8,
    /// Reserved.
    pub reserved0: [u8; 7],
    /// Firmware Revision of slots 1 to 7: ASCII, or 0.
    pub revision: [[u8; 8]; 7],
    /// Reserved.
    pub reserved1: [u8; 448],
}

/// Vendor log C0h, per NSID: what one LUN did since the card was reset, one consistent snapshot. 80 bytes, each field
/// 64 bits little-endian.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct LunStatistics {
    /// Commands executing now.
    pub in_flight: u64,
    /// The most that executed at once.
    pub peak: u64,
    /// Commands waiting in the LUN's list now.
    pub parked: u64,
    /// Commands given a tag.
    pub admitted: u64,
    /// Commands completed after they had a tag.
    pub completed: u64,
    /// Commands that waited because the LUN was at its depth.
    pub deferred_depth: u64,
    /// Commands that waited because no tag was free.
    pub deferred_tags: u64,
    /// Commands that waited because the LUN was at its share.
    pub deferred_share: u64,
    /// Cycles of the card's clock that commands spent parked, summed over commands.
    pub cycles_waited: u64,
    /// Bytes moved between media and host.
    pub bytes: u64,
}

impl LunStatistics {
    /// Bytes of the page.
    pub const SIZE: usize = 80;
    /// Names of the 64-bit fields, in their order in the page.
    pub const FIELDS: [&str; 10] = [
        "in flight",
        "peak",
        "parked",
        "admitted",
        "completed",
        "deferred for depth",
        "deferred for tags",
        "deferred for share",
        "cycles waited",
        "bytes",
    ];
}

/// Dword 0 of an Asynchronous Event Request's completion (section 5.2.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AsyncEvent {
    /// Type: an [`AsyncEventType`].
    #[bits(3)]
    pub event_type: u8,
    #[bits(5)]
    _reserved0: u8,
    /// Information: for [`AsyncEventType::ERROR`] an [`ErrorEvent`].
    pub info: u8,
    /// Log page to read for more, which also re-arms events of this type.
    pub log_page: u8,
    _reserved1: u8,
}

/// Types of asynchronous events (section 5.2.1).
#[open_enum]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AsyncEventType {
    /// Error status.
    ERROR = 0,
    /// SMART / health status.
    SMART = 1,
    /// Notice.
    NOTICE = 2,
    /// I/O command set specific.
    COMMAND_SET = 6,
    /// Vendor specific.
    VENDOR = 7,
}

/// Information of error events (section 5.2.1, figure 147).
#[open_enum]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ErrorEvent {
    /// Write to Invalid Doorbell Register: of a queue that does not exist.
    INVALID_DOORBELL_REGISTER = 0,
    /// Invalid Doorbell Write Value: out of range, or more entries than the queue has.
    INVALID_DOORBELL_VALUE = 1,
    /// Diagnostic Failure.
    DIAGNOSTIC_FAILURE = 2,
    /// Persistent Internal Error.
    PERSISTENT_INTERNAL = 3,
    /// Transient Internal Error.
    TRANSIENT_INTERNAL = 4,
}

const _: () = {
    assert!(size_of::<ErrorEntry>() == 64);
    assert!(size_of::<SmartLog>() == 512);
    assert!(size_of::<FirmwareSlotLog>() == 512);
    assert!(size_of::<LunStatistics>() == LunStatistics::SIZE);
    assert!(core::mem::offset_of!(SmartLog, data_units_read) == 32);
    assert!(core::mem::offset_of!(SmartLog, error_log_entries) == 176);
    assert!(core::mem::offset_of!(ErrorEntry, lba) == 16);
    assert!(core::mem::offset_of!(ErrorEntry, command_specific) == 32);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_ten_words_in_the_order_of_their_names() {
        let mut bytes = [0u8; LunStatistics::SIZE];
        for i in 0..LunStatistics::FIELDS.len() {
            bytes[i * 8] = i as u8 + 1;
        }
        let s = LunStatistics::read_from_bytes(&bytes).unwrap();
        assert_eq!(
            (s.in_flight, s.peak, s.parked, s.admitted, s.completed),
            (1, 2, 3, 4, 5)
        );
        assert_eq!(
            (s.deferred_depth, s.deferred_tags, s.deferred_share),
            (6, 7, 8)
        );
        assert_eq!((s.cycles_waited, s.bytes), (9, 10));
    }

    #[test]
    fn an_event_lies_as_specified() {
        let e = AsyncEvent::new()
            .with_event_type(AsyncEventType::ERROR.0)
            .with_info(1)
            .with_log_page(LogPage::ERROR.0);
        assert_eq!(u32::from(e), 0x0001_0100);
    }
}
