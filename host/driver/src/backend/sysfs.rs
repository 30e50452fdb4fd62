//! What the kernel says in sysfs of PCI functions: their drivers, IOMMU groups, and who shares a group.

use super::error::DeviceError;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The address of a PCI function: domain, bus, device and function, such as `0000:01:00.0`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bdf(String);

/// The text is no PCI function's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no PCI function: domain, bus, device and function in hexadecimal, such as 0000:01:00.0 or 01:00.0"
)]
pub struct BdfError(String);

impl FromStr for Bdf {
    type Err = BdfError;

    fn from_str(text: &str) -> Result<Bdf, BdfError> {
        let parse = || {
            let (rest, function) = text.split_once('.')?;
            let mut parts = rest.rsplit(':');
            let (device, bus) = (parts.next()?, parts.next()?);
            let domain = parts.next().unwrap_or("0000");
            let number = |text: &str, most: u32| {
                let digits = text.bytes().all(|b| b.is_ascii_hexdigit());
                u32::from_str_radix(text, 16)
                    .ok()
                    .filter(|n| digits && *n <= most)
            };
            let (domain, bus) = (number(domain, u32::MAX)?, number(bus, 0xFF)?);
            let (device, function) = (number(device, 0x1F)?, number(function, 7)?);
            parts
                .next()
                .is_none()
                .then(|| Bdf(format!("{domain:04x}:{bus:02x}:{device:02x}.{function}")))
        };
        parse().ok_or_else(|| BdfError(text.to_owned()))
    }
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Sysfs, under `/sys` or, for tests, elsewhere.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Sysfs::new("/sys")
    }
}

/// A PCI function that exists.
#[derive(Clone, Debug)]
pub struct Function {
    bdf: Bdf,
    path: PathBuf,
}

impl Sysfs {
    /// Sysfs as mounted at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Sysfs {
        Sysfs { root: root.into() }
    }

    /// Where it is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the driver `name` of the PCI bus, when it is loaded.
    pub fn driver(&self, name: &str) -> Option<PathBuf> {
        let path = self.root.join("bus/pci/drivers").join(name);
        path.is_dir().then_some(path)
    }

    /// The block devices of the kernel's NVMe controller `name` (`nvme0`), as (NSID, name), by NSID.
    pub fn block_devices(&self, name: &str) -> Vec<(u32, String)> {
        let controller = self.root.join("class/nvme").join(name);
        let mut devices: Vec<(u32, String)> = names(&controller)
            .into_iter()
            .filter_map(|device| {
                let nsid = fs::read_to_string(controller.join(&device).join("nsid")).ok()?;
                Some((nsid.trim().parse().ok()?, device))
            })
            .collect();
        devices.sort();
        devices
    }

    /// The function of that address.
    pub fn function(&self, bdf: &Bdf) -> Result<Function, DeviceError> {
        let path = self.root.join("bus/pci/devices").join(&bdf.0);
        let bdf = bdf.clone();
        if path.is_dir() {
            Ok(Function { bdf, path })
        } else {
            Err(DeviceError::NoSuchFunction { bdf, path })
        }
    }
}

impl Function {
    /// Its address.
    pub fn bdf(&self) -> &Bdf {
        &self.bdf
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The driver it is bound to.
    pub fn driver(&self) -> Option<String> {
        last_name(&self.path.join("driver"))
    }

    /// Class code, 24 bits: 010802h is an NVMe controller.
    pub fn class(&self) -> Option<u32> {
        let text = fs::read_to_string(self.path.join("class")).ok()?;
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    }

    /// Number of its IOMMU group; `None` without IOMMU.
    pub fn iommu_group(&self) -> Option<u32> {
        last_name(&self.path.join("iommu_group"))?.parse().ok()
    }

    /// The other functions of its IOMMU group that host drivers use, with their drivers. A PCIe port's driver uses no
    /// memory of its own and may stay, as VFIO allows.
    pub fn group_users(&self) -> Vec<(Bdf, String)> {
        let Ok(entries) = fs::read_dir(self.path.join("iommu_group/devices")) else {
            return Vec::new();
        };
        let mut users: Vec<(Bdf, String)> = entries
            .flatten()
            .filter_map(|entry| {
                let bdf: Bdf = entry.file_name().to_str()?.parse().ok()?;
                let driver = last_name(&entry.path().join("driver"))?;
                let harmless = ["vfio-pci", "pcieport", "pci-stub"].contains(&driver.as_str());
                (bdf != self.bdf && !harmless).then_some((bdf, driver))
            })
            .collect();
        users.sort();
        users
    }

    /// Names in its folder `name`, sorted: none when there is no such folder.
    pub fn entries(&self, name: &str) -> Vec<String> {
        names(&self.path.join(name))
    }
}

/// Names in a folder, sorted; none when it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// The last part of where a symbolic link points.
fn last_name(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_devices_are_found_by_nsid() {
        let dir = tempfile::tempdir().unwrap();
        for (device, nsid) in [("nvme0n1", "3"), ("nvme0n2", "1"), ("hwmon1", "")] {
            let folder = dir.path().join("class/nvme/nvme0").join(device);
            fs::create_dir_all(&folder).unwrap();
            if !nsid.is_empty() {
                fs::write(folder.join("nsid"), format!("{nsid}\n")).unwrap();
            }
        }
        let devices = Sysfs::new(dir.path()).block_devices("nvme0");
        assert_eq!(
            devices,
            [(1, "nvme0n2".to_owned()), (3, "nvme0n1".to_owned())]
        );
    }

    #[test]
    fn addresses_are_read_and_completed() {
        let read = |text: &str| text.parse().map(|bdf: Bdf| bdf.to_string());
        assert_eq!(read("01:00.0").unwrap(), "0000:01:00.0");
        assert_eq!(read("0000:A1:1f.7").unwrap(), "0000:a1:1f.7");
        assert_eq!(read("10000:e1:00.0").unwrap(), "10000:e1:00.0");
        for bad in [
            "",
            "01:00",
            "1.0",
            "01:20.0",
            "01:00.8",
            "0:0:01:00.0",
            "+1:00.0",
            "nvme0",
            "../x.0",
        ] {
            assert_eq!(read(bad), Err(BdfError(bad.to_owned())), "{bad}");
        }
    }
}
