//! [`VfioPci`]: a PCI function bound to vfio-pci, over the crate `pci-driver`. One of the files with `unsafe` code.
//!
//! # Key facts
//! * The kernel resets the function when the first process opens its group, and when the last one closes it; a process
//!   that dies leaves no DMA behind.
//! * `pci-driver` gives the last byte of an IOVA range where an end is meant, so the last page of each range is not
//!   used. It drops the kernel's answer that fewer MSI-X vectors can be had; so the capability itself is read.
//! * A BAR's size is a power of two: a register's offset is masked, not checked, and cannot leave the BAR.
#![allow(unsafe_code)]

use super::dma::{Arena, Iommu};
use super::error::DeviceError;
use super::eventfd::Event;
use super::openers::openers;
use super::sysfs::{Bdf, Sysfs};
use crate::memory::Memory;
use crate::pci::{AllocError, Pci};
use pci_driver::backends::vfio::VfioPciDevice;
use pci_driver::config::caps::Capability;
use pci_driver::device::PciDevice;
use pci_driver::regions::{AsPciSubregion, MappedOwningPciRegion, PciRegion, Permissions};
use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most MSI-X vectors used; each is a file descriptor.
const MAX_VECTORS: usize = 256;
/// Turns of a waiting loop that spin, about a millisecond, before they sleep.
const SPINS: u32 = 10_000;
/// How long a turn sleeps then.
const SLEEP: Duration = Duration::from_micros(50);
/// Capability ID of MSI-X (PCIe 4.0, 7.7.2), and its Message Control's enable bit.
const MSIX_ID: u8 = 0x11;
const MSIX_ENABLE: u16 = 1 << 15;

/// A PCI function bound to vfio-pci. Dropping the last handle, and the last memory, releases it.
pub struct VfioPci {
    bar0: NonNull<u8>,
    /// BAR0's size less 4.
    mask: usize,
    /// Turns of a waiting loop since the last register write.
    turns: Cell<u32>,
    function: Arc<Open>,
}

/// The function while it is open. Fields are dropped in this order, after [`Drop`].
struct Open {
    bdf: Bdf,
    start: Instant,
    arena: Mutex<Arena>,
    events: Vec<Event>,
    bar0: MappedOwningPciRegion,
    device: VfioPciDevice,
}

// SAFETY: `bar0` points into the mapping that `function` owns, which any thread may use; the rest is Send.
unsafe impl Send for VfioPci {}

impl Clone for VfioPci {
    fn clone(&self) -> Self {
        VfioPci {
            turns: Cell::new(0),
            function: self.function.clone(),
            ..*self
        }
    }
}

impl VfioPci {
    /// Opens the function, lets it master the bus, and enables its MSI-X vectors.
    pub fn open(bdf: &Bdf) -> Result<VfioPci, DeviceError> {
        VfioPci::open_in(&Sysfs::default(), Path::new("/dev/vfio"), bdf)
    }

    fn open_in(sysfs: &Sysfs, dev: &Path, bdf: &Bdf) -> Result<VfioPci, DeviceError> {
        let path = may_open(sysfs, dev, bdf)?;
        let io = |what| {
            move |source| DeviceError::Io {
                bdf: bdf.clone(),
                what,
                source,
            }
        };
        let device = VfioPciDevice::open(path).map_err(io("opening it with VFIO"))?;
        let bar0 = map_bar0(&device, bdf)?;
        let command = device.config().command();
        command
            .bus_master_enable()
            .write(true)
            .map_err(io("enabling bus mastering"))?;
        let events = enable_msix(&device).map_err(io("enabling MSI-X"))?;
        let ranges: Vec<(u64, u64)> = device
            .iommu()
            .valid_iova_ranges()
            .iter()
            .map(|range| (range.start, range.end))
            .collect();
        let pointer = NonNull::new(bar0.as_mut_ptr());
        let function = Arc::new(Open {
            bdf: bdf.clone(),
            start: Instant::now(),
            arena: Mutex::new(Arena::new(ranges)),
            events,
            bar0,
            device,
        });
        Ok(VfioPci {
            bar0: pointer.ok_or_else(|| bar0_error(bdf, "mapped at address 0".to_owned()))?,
            mask: function.bar0.len() - 4,
            turns: Cell::new(0),
            function,
        })
    }

    /// Its address.
    pub fn bdf(&self) -> &Bdf {
        &self.function.bdf
    }

    /// Resets the function (FLR, or what the kernel has for it). Its registers are as after power-on; bus mastering and
    /// interrupts stay as they are. A [`Controller`](crate::Controller) on it must be reset afterwards.
    pub fn reset(&self) -> Result<(), DeviceError> {
        self.function
            .device
            .reset()
            .map_err(|source| DeviceError::Io {
                bdf: self.bdf().clone(),
                what: "resetting the function",
                source,
            })
    }

    #[inline]
    fn register(&self, offset: usize) -> *mut u32 {
        debug_assert!(offset & !self.mask == 0, "register at {offset:#x}");
        // SAFETY: `mask` is the BAR's size, a power of two, less 4: what is left is inside and a multiple of 4.
        unsafe { self.bar0.add(offset & self.mask) }.as_ptr().cast()
    }
}

impl Pci for VfioPci {
    type Memory = VfioMemory;

    fn bar0_len(&self) -> usize {
        self.mask + 4
    }

    #[inline]
    fn read32(&self, offset: usize) -> u32 {
        // SAFETY: inside the mapping, aligned, and device memory: volatile, one load.
        u32::from_le(unsafe { self.register(offset).read_volatile() })
    }

    #[inline]
    fn write32(&self, offset: usize, value: u32) {
        self.turns.set(0);
        before_doorbell();
        // SAFETY: as in `read32`; one store.
        unsafe { self.register(offset).write_volatile(value.to_le()) }
    }

    fn alloc(&self, len: usize) -> Result<VfioMemory, AllocError> {
        let pages = self.function.arena().alloc(&self.function.device, len)?;
        Ok(VfioMemory {
            ptr: pages.ptr,
            iova: pages.iova,
            len: pages.len,
            function: self.function.clone(),
        })
    }

    fn vectors(&self) -> u16 {
        self.function.events.len() as u16
    }

    fn take_interrupt(&self, vector: u16) -> bool {
        let event = self.function.events.get(usize::from(vector));
        event.is_some_and(Event::take)
    }

    fn wait_interrupt(&self, vector: u16, deadline_ns: u64) -> bool {
        let Some(event) = self.function.events.get(usize::from(vector)) else {
            return false;
        };
        loop {
            let left = deadline_ns.saturating_sub(self.now_ns());
            if event.wait(left) {
                return true;
            } else if left == 0 {
                return false;
            }
        }
    }

    /// Spins for about a millisecond after the last register write, then sleeps.
    fn relax(&self) {
        let turns = self.turns.get();
        if turns < SPINS {
            self.turns.set(turns + 1);
            std::hint::spin_loop();
        } else {
            std::thread::sleep(SLEEP);
        }
    }

    fn now_ns(&self) -> u64 {
        self.function.start.elapsed().as_nanos() as u64
    }
}

/// Orders a doorbell after earlier stores to memory that the device reads.
#[inline]
fn before_doorbell() {
    // x86 keeps stores in order, uncached ones too (SDM volume 3, 9.2.2): only the compiler must.
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Release);
    // What Linux's writel does; the device is outside the inner domain that Rust's fences order.
    // SAFETY: a barrier, nothing else.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags))
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    compile_error!("which barrier orders a doorbell after stores to memory here?");
}

impl Open {
    fn arena(&self) -> MutexGuard<'_, Arena> {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // First nothing goes to memory any more, then no interrupt comes, then the memory goes. A function that is gone
        // answers none of it, and needs not to.
        let _ = self
            .device
            .config()
            .command()
            .bus_master_enable()
            .write(false);
        if !self.events.is_empty() {
            let _ = self.device.interrupts().msi_x().disable();
        }
        let arena = self.arena.get_mut().unwrap_or_else(PoisonError::into_inner);
        arena.clear(&self.device);
    }
}

impl Iommu for VfioPciDevice {
    unsafe fn map(&self, iova: u64, ptr: NonNull<u8>, len: usize) -> io::Result<()> {
        // SAFETY: promised by the caller.
        unsafe {
            self.iommu()
                .map(iova, len, ptr.as_ptr(), Permissions::ReadWrite)
        }
    }

    fn unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        self.iommu().unmap(iova, len)
    }
}

/// DMA memory of a [`VfioPci`].
pub struct VfioMemory {
    ptr: NonNull<u8>,
    iova: u64,
    len: usize,
    function: Arc<Open>,
}

// SAFETY: nothing in it belongs to a thread; the arena is behind a lock.
unsafe impl Send for VfioMemory {}
// SAFETY: as above; all of it is read only.
unsafe impl Sync for VfioMemory {}

// SAFETY: whole zeroed pages of a chunk, this value's alone until it is dropped, mapped for the device as the arena
// says, for as long as `function` lives.
unsafe impl Memory for VfioMemory {
    fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    fn len(&self) -> usize {
        self.len
    }

    fn iova(&self) -> u64 {
        self.iova
    }
}

impl Drop for VfioMemory {
    fn drop(&mut self) {
        let mut arena = self.function.arena();
        arena.free(&self.function.device, self.iova, self.len);
    }
}

/// Finds out, before VFIO is asked, whether the function can be opened, and why not. Returns its folder in sysfs.
fn may_open(sysfs: &Sysfs, dev: &Path, bdf: &Bdf) -> Result<PathBuf, DeviceError> {
    let function = sysfs.function(bdf)?;
    let bdf = bdf.clone();
    match function.driver() {
        Some(driver) if driver == "vfio-pci" => {}
        driver => return Err(DeviceError::NotBound { bdf, driver }),
    }
    let Some(group) = function.iommu_group() else {
        return Err(DeviceError::NoIommuGroup { bdf });
    };
    let container = dev.join("vfio");
    if !container.exists() {
        return Err(DeviceError::NoVfio { path: container });
    }
    let others = function.group_users();
    if !others.is_empty() {
        return Err(DeviceError::NotViable { bdf, group, others });
    }
    for path in [container, dev.join(group.to_string())] {
        let Err(source) = OpenOptions::new().read(true).write(true).open(&path) else {
            continue;
        };
        return Err(match (source.kind(), fs::metadata(&path)) {
            (io::ErrorKind::PermissionDenied, Ok(file)) => DeviceError::Permission {
                path,
                uid: file.uid(),
                gid: file.gid(),
                mode: file.mode() & 0o777,
            },
            (io::ErrorKind::ResourceBusy, _) => DeviceError::InUse {
                bdf,
                holders: openers(Path::new("/proc"), std::slice::from_ref(&path)),
                path,
            },
            (io::ErrorKind::NotFound, _) => DeviceError::NoVfio { path },
            _ => DeviceError::Io {
                bdf,
                what: "opening its VFIO group",
                source,
            },
        });
    }
    Ok(function.path().to_owned())
}

fn bar0_error(bdf: &Bdf, what: String) -> DeviceError {
    DeviceError::Bar0 {
        bdf: bdf.clone(),
        what,
    }
}

fn map_bar0(device: &VfioPciDevice, bdf: &Bdf) -> Result<MappedOwningPciRegion, DeviceError> {
    let bar0 = device
        .bar(0)
        .ok_or_else(|| bar0_error(bdf, "the function has none".to_owned()))?;
    let len = bar0.len();
    if !len.is_power_of_two() || len < 0x2000 {
        let what = format!("{len} bytes, but an NVMe controller has a power of two from 8192");
        return Err(bar0_error(bdf, what));
    }
    if !bar0.is_mappable() {
        return Err(bar0_error(bdf, "VFIO does not let it be mapped".to_owned()));
    }
    bar0.map(.., Permissions::ReadWrite)
        .map_err(|error| bar0_error(bdf, format!("mapping it: {error}")))
}

/// Enables as many MSI-X vectors as the system gives; none when the function has none.
fn enable_msix(device: &VfioPciDevice) -> io::Result<Vec<Event>> {
    let interrupts = device.interrupts();
    let msix = interrupts.msi_x();
    let mut count = msix.max().min(MAX_VECTORS);
    while count > 0 {
        let events = (0..count)
            .map(|_| Event::new())
            .collect::<io::Result<Vec<_>>>()?;
        let fds: Vec<_> = events.iter().map(|e| e.as_fd().as_raw_fd()).collect();
        match msix.enable(&fds) {
            Ok(()) if msix_enabled(device) => return Ok(events),
            Err(error) if count == 1 => return Err(error),
            _ => count /= 2,
        }
    }
    Ok(Vec::new())
}

/// What the MSI-X capability says; true when it cannot be read.
fn msix_enabled(device: &VfioPciDevice) -> bool {
    let Ok(capabilities) = device.config().capabilities() else {
        return true;
    };
    let mut msix = capabilities.iter().filter(|c| {
        c.header()
            .capability_id()
            .read()
            .is_ok_and(|id| id == MSIX_ID)
    });
    let control = msix.next().map(|c| c.as_subregion().read_le_u16(2));
    !matches!(control, Some(Ok(control)) if control & MSIX_ENABLE == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Makes a function in group 5, bound to `driver`.
    fn function(root: &Path, bdf: &str, driver: Option<&str>) {
        let path = root.join("bus/pci/devices").join(bdf);
        let group = root.join("kernel/iommu_groups/5");
        fs::create_dir_all(group.join("devices")).unwrap();
        fs::create_dir_all(&path).unwrap();
        symlink(&group, path.join("iommu_group")).unwrap();
        symlink(&path, group.join("devices").join(bdf)).unwrap();
        if let Some(driver) = driver {
            symlink(Path::new("../../drivers").join(driver), path.join("driver")).unwrap();
        }
    }

    #[test]
    fn what_keeps_a_function_from_being_opened_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let (root, dev) = (dir.path().join("sys"), dir.path().join("dev"));
        let sysfs = Sysfs::new(&root);
        let bdf: Bdf = "0000:01:00.0".parse().unwrap();
        let path = root.join("bus/pci/devices/0000:01:00.0");
        let open = || may_open(&sysfs, &dev, &bdf);
        assert!(matches!(open(), Err(DeviceError::NoSuchFunction { .. })));
        function(&root, "0000:01:00.0", Some("nvme"));
        let error = open().unwrap_err();
        assert!(
            matches!(&error, DeviceError::NotBound { driver: Some(driver), .. } if driver == "nvme")
        );
        assert!(error.to_string().contains("`weir bind 0000:01:00.0`"));
        fs::remove_file(path.join("driver")).unwrap();
        assert!(matches!(
            open(),
            Err(DeviceError::NotBound { driver: None, .. })
        ));
        symlink("../../drivers/vfio-pci", path.join("driver")).unwrap();
        assert!(matches!(open(), Err(DeviceError::NoVfio { .. })));
        fs::create_dir_all(&dev).unwrap();
        fs::write(dev.join("vfio"), "").unwrap();
        assert!(matches!(open(), Err(DeviceError::NoVfio { path }) if path.ends_with("5")));
        fs::write(dev.join("5"), "").unwrap();
        assert_eq!(open().unwrap(), path);
        // A port and a function without driver may stay; what a host driver uses may not.
        function(&root, "0000:00:01.0", Some("pcieport"));
        function(&root, "0000:01:00.2", None);
        assert!(open().is_ok());
        function(&root, "0000:01:00.1", Some("e1000e"));
        let error = open().unwrap_err();
        assert!(
            error.to_string().contains("0000:01:00.1 (e1000e)"),
            "{error}"
        );
        fs::remove_file(path.join("iommu_group")).unwrap();
        assert!(matches!(open(), Err(DeviceError::NoIommuGroup { .. })));
    }
}
