//! Messages as bytes, all little-endian here: the protocol uses the host's order, and both ends are on one host, so this
//! is right on little-endian hosts only, which is all that Linux's PCI drivers of this project run on.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Commands, by number.
pub mod command {
    /// First of all: versions and capabilities.
    pub const VERSION: u16 = 1;
    /// Memory that the device may access; its file descriptor comes with it.
    pub const DMA_MAP: u16 = 2;
    /// Memory that it may not access any more.
    pub const DMA_UNMAP: u16 = 3;
    /// How many regions and kinds of interrupt there are.
    pub const DEVICE_GET_INFO: u16 = 4;
    /// How large a region is.
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    /// File descriptors to reach a region by.
    pub const DEVICE_GET_REGION_IO_FDS: u16 = 6;
    /// How many interrupts of a kind there are.
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    /// Eventfds for interrupts.
    pub const DEVICE_SET_IRQS: u16 = 8;
    /// Reads of a region.
    pub const REGION_READ: u16 = 9;
    /// Writes to a region.
    pub const REGION_WRITE: u16 = 10;
    /// Server to client: reads of memory that has no file descriptor.
    pub const DMA_READ: u16 = 11;
    /// Server to client: writes likewise.
    pub const DMA_WRITE: u16 = 12;
    /// Function reset.
    pub const DEVICE_RESET: u16 = 13;
}

/// The specification's name of a command.
pub fn command_name(number: u16) -> String {
    let name = match number {
        command::VERSION => "VFIO_USER_VERSION",
        command::DMA_MAP => "VFIO_USER_DMA_MAP",
        command::DMA_UNMAP => "VFIO_USER_DMA_UNMAP",
        command::DEVICE_GET_INFO => "VFIO_USER_DEVICE_GET_INFO",
        command::DEVICE_GET_REGION_INFO => "VFIO_USER_DEVICE_GET_REGION_INFO",
        command::DEVICE_GET_REGION_IO_FDS => "VFIO_USER_DEVICE_GET_REGION_IO_FDS",
        command::DEVICE_GET_IRQ_INFO => "VFIO_USER_DEVICE_GET_IRQ_INFO",
        command::DEVICE_SET_IRQS => "VFIO_USER_DEVICE_SET_IRQS",
        command::REGION_READ => "VFIO_USER_REGION_READ",
        command::REGION_WRITE => "VFIO_USER_REGION_WRITE",
        command::DMA_READ => "VFIO_USER_DMA_READ",
        command::DMA_WRITE => "VFIO_USER_DMA_WRITE",
        command::DEVICE_RESET => "VFIO_USER_DEVICE_RESET",
        _ => return format!("command {number}"),
    };
    name.to_string()
}

/// Header flags, bits 3:0: the type.
pub const TYPE_MASK: u32 = 0xf;
/// Type: a command.
pub const TYPE_COMMAND: u32 = 0;
/// Type: a reply.
pub const TYPE_REPLY: u32 = 1;
/// Header flag of a command: no reply is wanted.
pub const NO_REPLY: u32 = 1 << 4;
/// Header flag of a reply: the command failed; `error` says why.
pub const ERROR: u32 = 1 << 5;

macro_rules! wire {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
    };
}

wire!(
    /// Every message begins with it.
    Header {
        /// Chosen by the sender of a command, repeated in its reply.
        id: U16,
        /// A [`command`].
        command: U16,
        /// Bytes of the message, header included.
        size: U32,
        /// Type and flags.
        flags: U32,
        /// In a reply with [`ERROR`]: an errno.
        error: U32,
    }
);

wire!(
    /// VERSION, both ways; JSON with a closing NUL may follow.
    Version {
        /// Incompatible changes.
        major: U16,
        /// Compatible ones.
        minor: U16,
    }
);

wire!(
    /// DMA_MAP.
    DmaMap {
        /// Bytes of this structure.
        argsz: U32,
        /// [`DMA_READ`] and [`DMA_WRITE`].
        flags: U32,
        /// First byte in the file.
        offset: U64,
        /// First IOVA.
        iova: U64,
        /// Bytes.
        size: U64,
    }
);

/// DMA_MAP: the device may read.
pub const DMA_READ: u32 = 1 << 0;
/// DMA_MAP: the device may write.
pub const DMA_WRITE: u32 = 1 << 1;

wire!(
    /// DMA_UNMAP, both ways.
    DmaUnmap {
        /// Bytes of this structure.
        argsz: U32,
        /// [`UNMAP_ALL`] or none.
        flags: U32,
        /// First IOVA.
        iova: U64,
        /// Bytes.
        size: U64,
    }
);

/// DMA_UNMAP: everything; IOVA and size are 0.
pub const UNMAP_ALL: u32 = 1 << 1;

wire!(
    /// DEVICE_GET_INFO, both ways.
    DeviceInfo {
        /// Bytes of this structure.
        argsz: U32,
        /// [`DEVICE_RESET`] and [`DEVICE_PCI`].
        flags: U32,
        /// Regions, [`region`].
        regions: U32,
        /// Kinds of interrupt, [`irq`].
        irqs: U32,
    }
);

/// DEVICE_GET_INFO: DEVICE_RESET works.
pub const DEVICE_RESET: u32 = 1 << 0;
/// DEVICE_GET_INFO: a PCI device.
pub const DEVICE_PCI: u32 = 1 << 1;

wire!(
    /// DEVICE_GET_REGION_INFO, both ways.
    RegionInfo {
        /// Bytes of the reply's structure that the client takes; in the reply, that it has.
        argsz: U32,
        /// [`REGION_READ`] and [`REGION_WRITE`].
        flags: U32,
        /// Which [`region`].
        index: U32,
        /// Where capabilities begin; 0 without.
        cap_offset: U32,
        /// Bytes of the region.
        size: U64,
        /// For mmap, which is not offered.
        offset: U64,
    }
);

/// DEVICE_GET_REGION_INFO: reads work.
pub const REGION_READ: u32 = 1 << 0;
/// DEVICE_GET_REGION_INFO: writes work.
pub const REGION_WRITE: u32 = 1 << 1;

/// Regions of a PCI device, `<linux/vfio.h>`.
pub mod region {
    /// BAR0; BAR n has number n.
    pub const BAR0: u32 = 0;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// How many there are.
    pub const COUNT: u32 = 9;
}

wire!(
    /// DEVICE_GET_IRQ_INFO, both ways.
    IrqInfo {
        /// Bytes of this structure.
        argsz: U32,
        /// [`IRQ_EVENTFD`], [`IRQ_NORESIZE`].
        flags: U32,
        /// Which [`irq`].
        index: U32,
        /// How many there are.
        count: U32,
    }
);

/// DEVICE_GET_IRQ_INFO: by eventfd.
pub const IRQ_EVENTFD: u32 = 1 << 0;
/// DEVICE_GET_IRQ_INFO: their number does not change.
pub const IRQ_NORESIZE: u32 = 1 << 3;

/// Kinds of interrupt of a PCI device, `<linux/vfio.h>`.
pub mod irq {
    /// MSI-X vectors.
    pub const MSIX: u32 = 2;
    /// How many kinds there are.
    pub const COUNT: u32 = 5;
}

wire!(
    /// DEVICE_SET_IRQS; the eventfds come beside it, one for each interrupt, or none to take them away.
    SetIrqs {
        /// Bytes of this structure and of what follows it.
        argsz: U32,
        /// One of the `SET_DATA_*` and one of the `SET_ACTION_*`.
        flags: U32,
        /// Which [`irq`].
        index: U32,
        /// The first.
        start: U32,
        /// How many.
        count: U32,
    }
);

/// DEVICE_SET_IRQS: no data: the action is for all.
pub const SET_DATA_NONE: u32 = 1 << 0;
/// DEVICE_SET_IRQS: a byte for each follows.
pub const SET_DATA_BOOL: u32 = 1 << 1;
/// DEVICE_SET_IRQS: eventfds.
pub const SET_DATA_EVENTFD: u32 = 1 << 2;
/// DEVICE_SET_IRQS: mask.
pub const SET_ACTION_MASK: u32 = 1 << 3;
/// DEVICE_SET_IRQS: unmask.
pub const SET_ACTION_UNMASK: u32 = 1 << 4;
/// DEVICE_SET_IRQS: set the trigger, or trigger now.
pub const SET_ACTION_TRIGGER: u32 = 1 << 5;

wire!(
    /// REGION_READ and REGION_WRITE, both ways; data follows the reply or the command.
    RegionAccess {
        /// First byte in the region.
        offset: U64,
        /// Which [`region`].
        region: U32,
        /// Bytes.
        count: U32,
    }
);
