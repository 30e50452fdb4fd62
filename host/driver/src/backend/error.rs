//! Why a device cannot be opened.

use super::openers::Opener;
use super::sysfs::Bdf;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A device cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The name is no device's.
    #[error(
        "'{name}' names no device: a PCI function, such as 0000:01:00.0, or vfio-user:PATH with the path of a socket"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// There is no such PCI function.
    #[error("there is no PCI function {bdf}: no {}", .path.display())]
    NoSuchFunction {
        /// The function.
        bdf: Bdf,
        /// Its folder in sysfs, which is not there.
        path: PathBuf,
    },
    /// The function belongs to another driver, or to none.
    #[error(
        "{bdf} is bound to {}, not to vfio-pci: run `weir bind {bdf}`",
        .driver.as_deref().unwrap_or("no driver")
    )]
    NotBound {
        /// The function.
        bdf: Bdf,
        /// Its driver.
        driver: Option<String>,
    },
    /// No IOMMU guards the function.
    #[error(
        "{bdf} has no IOMMU group: VFIO needs an IOMMU (VT-d or AMD-Vi in the firmware's setup, \
         intel_iommu=on on the kernel's command line)"
    )]
    NoIommuGroup {
        /// The function.
        bdf: Bdf,
    },
    /// VFIO is not in the kernel.
    #[error("{} is not there: load VFIO with `modprobe vfio-pci`", .path.display())]
    NoVfio {
        /// The file that is missing.
        path: PathBuf,
    },
    /// This user may not open the group.
    #[error(
        "no permission to open {}, which belongs to uid {uid}, gid {gid}, mode {mode:03o}: run as root, or have root \
         give it to you with chown",
        .path.display()
    )]
    Permission {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// Another process has the function.
    #[error("{bdf} is in use: {} is open{}", .path.display(), by(.holders))]
    InUse {
        /// The function.
        bdf: Bdf,
        /// The file of its group.
        path: PathBuf,
        /// Processes that have it open, as far as this user may see them.
        holders: Vec<Opener>,
    },
    /// Other functions of the IOMMU group belong to host drivers.
    #[error(
        "IOMMU group {group} of {bdf} is shared with functions that host drivers use: {}; bind them to vfio-pci too, or \
         unbind them",
        list(.others)
    )]
    NotViable {
        /// The function.
        bdf: Bdf,
        /// Its group.
        group: u32,
        /// The others, and their drivers.
        others: Vec<(Bdf, String)>,
    },
    /// BAR0 is not what an NVMe controller has.
    #[error("BAR0 of {bdf}: {what}")]
    Bar0 {
        /// The function.
        bdf: Bdf,
        /// What is wrong.
        what: String,
    },
    /// The nvme driver has the function, but no controller came of it.
    #[error("{bdf} is bound to nvme, but the kernel shows no controller there: see dmesg")]
    NoController {
        /// The function.
        bdf: Bdf,
    },
    /// The server has a client.
    #[error("vfio-user:{}: another process has the device that is served there", .path.display())]
    Served {
        /// The socket.
        path: PathBuf,
    },
    /// The server, or the connection to it.
    #[error("vfio-user:{}: {source}", .path.display())]
    VfioUser {
        /// The socket.
        path: PathBuf,
        /// What went wrong.
        source: weir_vfio_user::Error,
    },
    /// BAR0 of what is served is too small for an NVMe controller.
    #[error(
        "vfio-user:{}: BAR0 has {bar0_len} bytes, but an NVMe controller has 8192 at least",
        .path.display()
    )]
    NoNvme {
        /// The socket.
        path: PathBuf,
        /// Bytes of BAR0.
        bar0_len: usize,
    },
    /// A device file cannot be opened.
    #[error("cannot open {}: {source}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What the kernel has there does not answer as an NVMe controller.
    #[error("{}: {source}", .path.display())]
    Identify {
        /// The file.
        path: PathBuf,
        /// Why.
        source: crate::error::Error,
    },
    /// The control socket of another process, or that process.
    #[error("control:{}: {reason}", .path.display())]
    Control {
        /// The socket.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// A system call failed.
    #[error("{bdf}: {what}: {source}")]
    Io {
        /// The function.
        bdf: Bdf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

fn by(holders: &[Opener]) -> String {
    match holders {
        [] => " in another process".to_owned(),
        some => {
            let names: Vec<String> = some.iter().map(Opener::to_string).collect();
            format!(" in {}", names.join(", "))
        }
    }
}

fn list<T: fmt::Display>(others: &[(Bdf, T)]) -> String {
    let each = others
        .iter()
        .map(|(bdf, driver)| format!("{bdf} ({driver})"));
    each.collect::<Vec<_>>().join(", ")
}
