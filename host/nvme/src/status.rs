//! Status codes (section 4.6.1): a type (SCT) and a code (SC) within it.

use bitfield_struct::bitfield;
use open_enum::open_enum;

/// The status field of a completion: dword 3 bits 31:17, here bits 14:0 (section 4.6.1).
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct Status {
    /// Status Code (SC).
    pub sc: u8,
    /// Status Code Type (SCT).
    #[bits(3)]
    pub sct: u8,
    /// Command Retry Delay (CRD): which of Identify's CRDT1..3 to wait; 0 none.
    #[bits(2)]
    pub crd: u8,
    /// More (M): the error log has more about this command.
    pub more: bool,
    /// Do Not Retry (DNR).
    pub dnr: bool,
    #[bits(1)]
    _reserved0: u8,
}

impl Status {
    /// Success, with no bit set.
    pub const SUCCESS: Status = Status::new();

    /// Type and code as one number: `SCT << 8 | SC`.
    pub const fn code(self) -> StatusCode {
        StatusCode(self.into_bits() & 0x7FF)
    }

    /// True for Successful Completion.
    pub const fn is_success(self) -> bool {
        self.into_bits() & 0x7FF == 0
    }
}

impl From<StatusCode> for Status {
    fn from(code: StatusCode) -> Status {
        Status::from_bits(code.0 & 0x7FF)
    }
}

/// Type and code of a status as one 11-bit number, `SCT << 8 | SC` (section 4.6.1.2).
#[open_enum]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum StatusCode {
    /// Successful Completion.
    SUCCESS = 0x000,
    /// Invalid Command Opcode.
    INVALID_OPCODE = 0x001,
    /// Invalid Field in Command.
    INVALID_FIELD = 0x002,
    /// Command ID Conflict.
    COMMAND_ID_CONFLICT = 0x003,
    /// Data Transfer Error.
    DATA_TRANSFER_ERROR = 0x004,
    /// Commands Aborted due to Power Loss Notification.
    POWER_LOSS = 0x005,
    /// Internal Error.
    INTERNAL_ERROR = 0x006,
    /// Command Abort Requested.
    ABORT_REQUESTED = 0x007,
    /// Command Aborted due to SQ Deletion.
    ABORTED_SQ_DELETION = 0x008,
    /// Command Aborted due to Failed Fused Command.
    ABORTED_FAILED_FUSED = 0x009,
    /// Command Aborted due to Missing Fused Command.
    ABORTED_MISSING_FUSED = 0x00A,
    /// Invalid Namespace or Format.
    INVALID_NAMESPACE = 0x00B,
    /// Command Sequence Error.
    COMMAND_SEQUENCE_ERROR = 0x00C,
    /// Invalid SGL Segment Descriptor.
    INVALID_SGL_SEGMENT = 0x00D,
    /// PRP Offset Invalid.
    PRP_OFFSET_INVALID = 0x013,
    /// Operation Denied.
    OPERATION_DENIED = 0x015,
    /// Namespace is Write Protected.
    WRITE_PROTECTED = 0x020,
    /// LBA Out of Range (NVM command set).
    LBA_OUT_OF_RANGE = 0x080,
    /// Capacity Exceeded (NVM command set).
    CAPACITY_EXCEEDED = 0x081,
    /// Namespace Not Ready (NVM command set).
    NAMESPACE_NOT_READY = 0x082,

    /// Completion Queue Invalid (Create I/O Submission Queue).
    COMPLETION_QUEUE_INVALID = 0x100,
    /// Invalid Queue Identifier (Create and Delete of queues).
    INVALID_QUEUE_IDENTIFIER = 0x101,
    /// Invalid Queue Size (Create of queues).
    INVALID_QUEUE_SIZE = 0x102,
    /// Abort Command Limit Exceeded.
    ABORT_LIMIT_EXCEEDED = 0x103,
    /// Asynchronous Event Request Limit Exceeded.
    AER_LIMIT_EXCEEDED = 0x105,
    /// Invalid Interrupt Vector (Create I/O Completion Queue).
    INVALID_INTERRUPT_VECTOR = 0x108,
    /// Invalid Log Page (Get Log Page).
    INVALID_LOG_PAGE = 0x109,
    /// Invalid Queue Deletion (Delete I/O Completion Queue that a submission queue still uses).
    INVALID_QUEUE_DELETION = 0x10C,
    /// Feature Identifier Not Saveable (Set Features).
    FEATURE_NOT_SAVEABLE = 0x10D,
    /// Feature Not Changeable (Set Features).
    FEATURE_NOT_CHANGEABLE = 0x10E,
    /// Feature Not Namespace Specific (Set Features).
    FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10F,
    /// Conflicting Attributes (NVM command set).
    CONFLICTING_ATTRIBUTES = 0x180,
    /// Attempted Write to Read Only Range (NVM command set).
    WRITE_TO_READ_ONLY_RANGE = 0x182,

    /// Write Fault (media).
    WRITE_FAULT = 0x280,
    /// Unrecovered Read Error (media).
    UNRECOVERED_READ_ERROR = 0x281,

    /// Command Aborted By Host (path related): what a driver reports for a command whose queue it has taken down.
    ABORTED_BY_HOST = 0x371,
}

impl StatusCode {
    /// Status Code Type: 0 generic, 1 command specific, 2 media and data integrity, 3 path, 7 vendor.
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }

    /// Status Code within the type.
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_and_code_split() {
        let s = Status::from(StatusCode::INVALID_QUEUE_SIZE).with_dnr(true);
        assert_eq!((s.sct(), s.sc(), s.into_bits()), (1, 2, 0x4102));
        assert_eq!(s.code(), StatusCode::INVALID_QUEUE_SIZE);
        assert!(!s.is_success() && Status::SUCCESS.with_more(true).is_success());
        assert_eq!(
            (
                StatusCode::UNRECOVERED_READ_ERROR.sct(),
                StatusCode::UNRECOVERED_READ_ERROR.sc()
            ),
            (2, 0x81)
        );
    }
}
