//! `weir bind` and `weir unbind`: a PCI function to vfio-pci, and back to the kernel's own driver.
//!
//! A function is taken from its driver only when nothing is lost by it: see `bind/in_use.rs`. What the driver was is not
//! kept anywhere: without an override the kernel chooses it again, by the function's IDs and class.

pub mod in_use;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use weir_driver::backend::{Bdf, Function, Sysfs};
use weir_driver::nvme::weir::PCI_CLASS;

use crate::Failure;
use in_use::Users;

/// Arguments of both.
#[derive(clap::Args)]
pub struct Args {
    /// The PCI function: 0000:01:00.0, or 01:00.0 in domain 0.
    #[arg(value_name = "BDF", value_parser = |text: &str| text.parse::<Bdf>().map_err(|error| error.to_string()))]
    bdf: Bdf,
}

/// The driver for user space.
const VFIO: &str = "vfio-pci";

/// Binds the function to vfio-pci.
pub fn bind(args: &Args) -> Result<(), Failure> {
    crate::say(&(Host::new("/").bind(&args.bdf)? + "\n"))
}

/// Gives the function back to the driver that the kernel chooses.
pub fn unbind(args: &Args) -> Result<(), Failure> {
    crate::say(&(Host::new("/").unbind(&args.bdf)? + "\n"))
}

/// The files by which a kernel is asked, and how they are written.
struct Host {
    root: PathBuf,
    sysfs: Sysfs,
    write: fn(&Path, &str) -> io::Result<()>,
}

impl Host {
    /// The host whose file system begins at `root`: `/`, but in tests.
    fn new(root: impl Into<PathBuf>) -> Host {
        let root = root.into();
        Host {
            sysfs: Sysfs::new(root.join("sys")),
            root,
            write: |path, text| fs::write(path, text),
        }
    }

    fn bind(&self, bdf: &Bdf) -> Result<String, Failure> {
        let function = self.function(bdf)?;
        let refuse = |reason: String| Err(Failure::Usage(format!("{bdf} was not bound: {reason}")));
        match function.class() {
            Some(PCI_CLASS) => {}
            class => {
                let class = class.map_or("unknown".to_owned(), |class| format!("{class:06x}"));
                return refuse(format!(
                    "it is no NVMe controller: its class is {class}, not {PCI_CLASS:06x}"
                ));
            }
        }
        let Some(group) = function.iommu_group() else {
            return refuse(
                "it has no IOMMU group, and without an IOMMU a driver in user space could reach all memory; switch \
                 VT-d or AMD-Vi on in the firmware's setup, and boot with intel_iommu=on on Intel"
                    .to_owned(),
            );
        };
        let done = |what| format!("{bdf} is {what} {VFIO}: IOMMU group {group}, /dev/vfio/{group}");
        let driver = function.driver();
        if driver.as_deref() == Some(VFIO) {
            return Ok(done("already bound to"));
        }
        let others = function.group_users();
        if !others.is_empty() {
            let list: Vec<String> = others
                .iter()
                .map(|(other, driver)| format!("{other} ({driver})"))
                .collect();
            return refuse(format!(
                "IOMMU group {group} holds functions that host drivers use: {}; VFIO gives a group as a whole, so \
                 unbind them first (echo BDF > /sys/bus/pci/devices/BDF/driver/unbind)",
                list.join(", ")
            ));
        }
        let users = Users::of(&self.root, &function);
        if !users.is_empty() {
            return refuse(format!("it is in use: {users}"));
        }
        if self.sysfs.driver(VFIO).is_none() {
            return refuse(format!("{VFIO} is not loaded: run `modprobe {VFIO}`"));
        }
        self.store(&function, "driver_override", VFIO)?;
        let moved = self
            .release(&function, driver.as_deref())
            .and_then(|()| self.probe(bdf));
        if moved.is_ok() && function.driver().as_deref() == Some(VFIO) {
            return Ok(done("bound to"));
        }
        // As it was, as well as it goes; what went wrong first is what the user should hear.
        let _ = self
            .store(&function, "driver_override", "\n")
            .and_then(|()| self.probe(bdf));
        moved?;
        Err(Failure::Wrong(format!(
            "{VFIO} did not take {bdf} (dmesg says why); it is bound to {} now",
            function.driver().as_deref().unwrap_or("no driver")
        )))
    }

    fn unbind(&self, bdf: &Bdf) -> Result<String, Failure> {
        let function = self.function(bdf)?;
        let driver = function.driver();
        let path = function.path().join("driver_override");
        let overridden = fs::read_to_string(path).is_ok_and(|text| text.trim() == VFIO);
        if driver.as_deref() != Some(VFIO) {
            if overridden {
                self.store(&function, "driver_override", "\n")?;
                self.probe(bdf)?;
            }
            let driver = function.driver();
            let driver = driver.as_deref().unwrap_or("no driver");
            return Ok(format!("{bdf} is not bound to {VFIO}, but to {driver}"));
        }
        // The kernel would wait, and wait, for the process that has the group open.
        let users = Users::of_group(&self.root, &function);
        if !users.is_empty() {
            let text = format!("{bdf} was not unbound: it is in use: {users}");
            return Err(Failure::Usage(text));
        }
        if overridden {
            self.store(&function, "driver_override", "\n")?;
        }
        self.release(&function, Some(VFIO))?;
        self.probe(bdf)?;
        Ok(match function.driver() {
            Some(driver) => format!("{bdf} is bound to {driver}"),
            None => format!("{bdf} is unbound; no loaded driver takes it"),
        })
    }

    fn function(&self, bdf: &Bdf) -> Result<Function, Failure> {
        let found = self.sysfs.function(bdf);
        found.map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Takes the function from `driver`.
    fn release(&self, function: &Function, driver: Option<&str>) -> Result<(), Failure> {
        match driver.and_then(|name| self.sysfs.driver(name)) {
            Some(driver) => self.put(&driver.join("unbind"), &function.bdf().to_string()),
            None => Ok(()),
        }
    }

    /// Lets the kernel choose the function's driver.
    fn probe(&self, bdf: &Bdf) -> Result<(), Failure> {
        let path = self.sysfs.root().join("bus/pci/drivers_probe");
        self.put(&path, &bdf.to_string())
    }

    fn store(&self, function: &Function, name: &str, text: &str) -> Result<(), Failure> {
        self.put(&function.path().join(name), text)
    }

    fn put(&self, path: &Path, text: &str) -> Result<(), Failure> {
        (self.write)(path, text).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Failure::Usage(format!(
                "cannot write {}: only root may bind drivers; run it as root (sudo)",
                path.display()
            )),
            _ => Failure::Wrong(format!("writing {text:?} to {}: {error}", path.display())),
        })
    }
}

#[cfg(test)]
mod tests;
