//! Back ends: what implements [`Pci`](crate::Pci) for real, and how a device is named.
//!
//! | file | what |
//! |---|---|
//! | `vfio.rs` | [`VfioPci`]: a function bound to vfio-pci, over the crate `pci-driver` |
//! | `vfio_user.rs` | [`VfioUserPci`]: a function that another process serves, such as `weir serve` |
//! | `dma.rs`, `extents.rs` | DMA memory for both: chunks that the device can reach, pages cut from them |
//! | `kernel.rs` | [`KernelNvme`]: no `Pci`; admin commands through Linux's nvme driver, while that has the controller |
//! | `control.rs` | [`ControlSocket`]: no `Pci`; admin commands through a process of ours that has the controller |
//! | `sysfs.rs` | [`Sysfs`]: what the kernel says of PCI functions, drivers and IOMMU groups |
//! | `openers.rs` | [`openers`]: which processes have a device file open |
//! | `eventfd.rs` | interrupts as eventfds |
//!
//! A program that works with any back end is generic over [`Pci`](crate::Pci) and matches once:
//!
//! ```no_run
//! # use weir_driver::{Pci, backend::Device};
//! fn run<P: Pci>(pci: P) {
//!     println!("CAP {:#010x}", pci.read32(0));
//! }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! match Device::open("0000:01:00.0")? {
//!     Device::Vfio(pci) => run(pci),
//!     Device::VfioUser(pci) => run(pci),
//! }
//! # Ok(())
//! # }
//! ```

pub mod control;
mod dma;
mod error;
mod eventfd;
mod extents;
mod kernel;
mod openers;
mod sysfs;
mod vfio;
mod vfio_user;

pub use control::ControlSocket;
pub use error::DeviceError;
pub use kernel::KernelNvme;
pub use openers::{Opener, openers};
pub use sysfs::{Bdf, BdfError, Function, Sysfs};
pub use vfio::{VfioMemory, VfioPci};
pub use vfio_user::{VfioUserMemory, VfioUserPci};

/// A device by the name that a user gives, on the back end that the name asks for.
pub enum Device {
    /// A PCI function bound to vfio-pci: `0000:01:00.0`, or `01:00.0` in domain 0.
    Vfio(VfioPci),
    /// A function that another process serves: `vfio-user:PATH`, with the path of its socket.
    VfioUser(VfioUserPci),
}

/// What a name on the vfio-user back end begins with.
const VFIO_USER: &str = "vfio-user:";

impl Device {
    /// Opens the device of that name.
    pub fn open(name: &str) -> Result<Device, DeviceError> {
        if let Some(path) = name.strip_prefix(VFIO_USER) {
            return Ok(Device::VfioUser(VfioUserPci::open(path.as_ref())?));
        }
        let bdf = name.parse().map_err(|_| DeviceError::Name {
            name: name.to_owned(),
        })?;
        Ok(Device::Vfio(VfioPci::open(&bdf)?))
    }
}
