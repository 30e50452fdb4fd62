//! ublk's interface as in Linux's `include/uapi/linux/ublk_cmd.h` (6.12), as far as it is used here.

use std::mem::size_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Creates and removes devices.
pub const CONTROL: &str = "/dev/ublk-control";

/// `UBLK_U_CMD_GET_QUEUE_AFFINITY`: the CPUs of a hardware queue, as bits at `addr`.
pub const GET_QUEUE_AFFINITY: u32 = command(READ, 0x01);
/// `UBLK_U_CMD_GET_DEV_INFO`: the kernel fills a [`DeviceInfo`] at `addr`.
pub const GET_DEV_INFO: u32 = command(READ, 0x02);
/// `UBLK_U_CMD_ADD_DEV`: a [`DeviceInfo`] at `addr`, which the kernel completes.
pub const ADD_DEV: u32 = command(READ | WRITE, 0x04);
/// `UBLK_U_CMD_DEL_DEV`: waits until nobody has the device open.
pub const DEL_DEV: u32 = command(READ | WRITE, 0x05);
/// `UBLK_U_CMD_DEL_DEV_ASYNC`: as DEL_DEV, and waits for nobody; Linux 6.9 or later.
pub const DEL_DEV_ASYNC: u32 = command(READ, 0x14);
/// `UBLK_U_CMD_START_DEV`: `data` is this process; waits until every tag was fetched.
pub const START_DEV: u32 = command(READ | WRITE, 0x06);
/// `UBLK_U_CMD_STOP_DEV`: removes the block device, and aborts every fetch.
pub const STOP_DEV: u32 = command(READ | WRITE, 0x07);
/// `UBLK_U_CMD_SET_PARAMS`: [`Params`] at `addr`.
pub const SET_PARAMS: u32 = command(READ | WRITE, 0x08);
/// `UBLK_U_CMD_GET_PARAMS`: the kernel fills [`Params`] at `addr`, whose `len` is set.
pub const GET_PARAMS: u32 = command(READ, 0x09);
/// `UBLK_U_CMD_START_USER_RECOVERY`: another server begins to take over a quiesced device.
pub const START_USER_RECOVERY: u32 = command(READ | WRITE, 0x10);
/// `UBLK_U_CMD_END_USER_RECOVERY`: it has; as START_DEV.
pub const END_USER_RECOVERY: u32 = command(READ | WRITE, 0x11);
/// `UBLK_U_IO_FETCH_REQ`: completes when there is a request for the tag.
pub const FETCH_REQ: u32 = io(0x20);
/// `UBLK_U_IO_COMMIT_AND_FETCH_REQ`: ends the tag's request and waits for the next.
pub const COMMIT_AND_FETCH_REQ: u32 = io(0x21);

const READ: u32 = 2;
const WRITE: u32 = 1;

/// `_IOR` or `_IOWR` of a control command.
const fn command(direction: u32, number: u32) -> u32 {
    direction << 30 | (size_of::<ControlCommand>() as u32) << 16 | 0x7500 | number
}

/// `_IOWR` of an I/O command.
const fn io(number: u32) -> u32 {
    (READ | WRITE) << 30 | (size_of::<IoCommand>() as u32) << 16 | 0x7500 | number
}

/// `UBLK_MAX_QUEUE_DEPTH`: tags of a hardware queue.
pub const MAX_DEPTH: u16 = 4096;
/// `UBLK_F_USER_RECOVERY`: when its server dies, a device waits for another.
pub const F_USER_RECOVERY: u64 = 1 << 3;
/// `UBLK_F_USER_RECOVERY_REISSUE`: which gets the requests that the dead one had, too.
pub const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// `UBLK_S_DEV_DEAD`, a [`DeviceInfo::state`]: not started, or stopped.
pub const STATE_DEAD: u16 = 0;
/// `UBLK_S_DEV_LIVE`.
pub const STATE_LIVE: u16 = 1;
/// `UBLK_F_CMD_IOCTL_ENCODE`: commands are numbered as above; Linux 6.4 or later.
pub const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// `UBLK_PARAM_TYPE_BASIC`.
pub const PARAM_BASIC: u32 = 1;
/// `UBLK_ATTR_VOLATILE_CACHE`: Linux sends flushes.
pub const ATTR_VOLATILE_CACHE: u32 = 1 << 2;

/// `UBLK_IO_OP_*`, the low byte of [`IoDesc::op_flags`].
pub const OP_READ: u8 = 0;
/// As [`OP_READ`].
pub const OP_WRITE: u8 = 1;
/// As [`OP_READ`].
pub const OP_FLUSH: u8 = 2;

/// `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct ControlCommand {
    pub dev_id: u32,
    /// All ones where no queue is meant.
    pub queue_id: u16,
    /// Bytes at `addr`.
    pub len: u16,
    pub addr: u64,
    pub data: u64,
    pub dev_path_len: u16,
    pub pad: u16,
    pub reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceInfo {
    pub nr_hw_queues: u16,
    pub queue_depth: u16,
    pub state: u16,
    pub pad0: u16,
    pub max_io_buf_bytes: u32,
    /// All ones asks for any that is free.
    pub dev_id: u32,
    pub ublksrv_pid: i32,
    pub pad1: u32,
    pub flags: u64,
    /// The server's own, which the kernel only keeps.
    pub ublksrv_flags: u64,
    pub owner: [u32; 2],
    pub reserved: [u64; 2],
}

/// `struct ublk_params`, up to its basic part.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Params {
    pub len: u32,
    pub types: u32,
    pub attrs: u32,
    pub logical_bs_shift: u8,
    pub physical_bs_shift: u8,
    pub io_opt_shift: u8,
    pub io_min_shift: u8,
    /// Of 512 bytes, as all sectors here.
    pub max_sectors: u32,
    pub chunk_sectors: u32,
    pub dev_sectors: u64,
    pub virt_boundary_mask: u64,
}

/// `struct ublksrv_io_desc`: a request, in memory that the kernel writes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct IoDesc {
    /// Operation in bits 7:0, flags above.
    pub op_flags: u32,
    pub nr_sectors: u32,
    pub start_sector: u64,
    pub addr: u64,
}

/// `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub struct IoCommand {
    pub q_id: u16,
    pub tag: u16,
    /// Bytes moved, or a negative errno.
    pub result: i32,
    /// Where the kernel puts a write's data, and takes a read's.
    pub addr: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_header() {
        // As bindgen computes them from ublk_cmd.h.
        assert_eq!(ADD_DEV, 0xC020_7504);
        assert_eq!(GET_QUEUE_AFFINITY, 0x8020_7501);
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!(GET_PARAMS, 0x8020_7509);
        assert_eq!(START_USER_RECOVERY, 0xC020_7510);
        assert_eq!(END_USER_RECOVERY, 0xC020_7511);
        assert_eq!(DEL_DEV_ASYNC, 0x8020_7514);
        assert_eq!(FETCH_REQ, 0xC010_7520);
        assert_eq!(COMMIT_AND_FETCH_REQ, 0xC010_7521);
        assert_eq!(size_of::<DeviceInfo>(), 64);
        assert_eq!(size_of::<Params>(), 40);
        assert_eq!(size_of::<IoDesc>(), 24);
    }
}
