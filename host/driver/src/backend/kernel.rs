//! [`KernelNvme`]: admin commands through Linux's own nvme driver, while it has the controller and does I/O. One of the
//! files with `unsafe` code.
#![allow(unsafe_code)]

use super::error::DeviceError;
use super::sysfs::{Bdf, Sysfs};
use crate::commands::Admin;
use crate::error::Error;
use crate::info::{Info, discover};
use crate::lun::Lun;
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use std::ffi::c_void;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use weir_nvme::{Command, PAGE_SIZE, Status};

/// `struct nvme_passthru_cmd` of linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Default)]
struct Passthru {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<Passthru>() == 72);

/// NVME_IOCTL_ADMIN_CMD.
const ADMIN_CMD: Opcode = opcode::read_write::<Passthru>(b'N', 0x41);

// SAFETY: the kernel reads and writes a `Passthru`, and the buffer that it points to; the caller answers for the latter.
unsafe impl Ioctl for &mut Passthru {
    /// Status of the command: bits 15:1 of the completion's dword 3.
    type Output = i32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        ADMIN_CMD
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut **self).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

/// A controller that Linux's nvme driver has: only its admin commands, and those only as far as the kernel allows them
/// (root).
#[derive(Debug)]
pub struct KernelNvme {
    file: File,
    /// Such as `nvme0`.
    name: String,
    info: Info,
    luns: Vec<Lun>,
}

impl KernelNvme {
    /// The controller of the PCI function `bdf`, which is bound to nvme.
    pub fn open(bdf: &Bdf) -> Result<KernelNvme, DeviceError> {
        let function = Sysfs::default().function(bdf)?;
        let name = function
            .entries("nvme")
            .into_iter()
            .find(|name| name.starts_with("nvme"));
        let name = name.ok_or_else(|| DeviceError::NoController { bdf: bdf.clone() })?;
        KernelNvme::open_path(&Path::new("/dev").join(name))
    }

    /// The controller behind a character device such as `/dev/nvme0`.
    pub fn open_path(path: &Path) -> Result<KernelNvme, DeviceError> {
        let error = |source: io::Error| match (source.kind(), fs::metadata(path)) {
            (io::ErrorKind::PermissionDenied, Ok(file)) => DeviceError::Permission {
                path: path.to_owned(),
                uid: file.uid(),
                gid: file.gid(),
                mode: file.mode() & 0o777,
            },
            _ => DeviceError::Open {
                path: path.to_owned(),
                source,
            },
        };
        let file = File::open(path).map_err(error)?;
        let mut controller = KernelNvme {
            file,
            name: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            info: Info::default(),
            luns: Vec::new(),
        };
        let identify = |controller: &mut KernelNvme| {
            controller.info = Info::read(controller, usize::MAX)?;
            controller.luns = discover(controller)?;
            Ok(())
        };
        identify(&mut controller).map_err(|source| DeviceError::Identify {
            path: path.to_owned(),
            source,
        })?;
        Ok(controller)
    }

    /// Its block devices, as (NSID, name): the kernel numbers them in the order in which it finds them, which need not be
    /// that of the NSIDs. None with native multipath, where they are the subsystem's.
    pub fn block_devices(&self) -> Vec<(u32, String)> {
        Sysfs::default().block_devices(&self.name)
    }
}

impl Admin for KernelNvme {
    fn execute(
        &mut self,
        name: &'static str,
        command: Command,
        data: &mut [u8],
    ) -> Result<u32, Error> {
        // The kernel copies as many bytes as `data_len` says, the controller moves as many as the command says: a page
        // holds both.
        let mut page = [0; PAGE_SIZE];
        let moves = !data.is_empty();
        let mut passthru = Passthru {
            opcode: command.cdw0.opcode(),
            nsid: command.nsid,
            cdw2: command.cdw2,
            cdw3: command.cdw3,
            addr: if moves { page.as_mut_ptr() as u64 } else { 0 },
            data_len: if moves {
                data.len().min(PAGE_SIZE) as u32
            } else {
                0
            },
            cdw10: command.cdw10,
            cdw11: command.cdw11,
            cdw12: command.cdw12,
            cdw13: command.cdw13,
            cdw14: command.cdw14,
            cdw15: command.cdw15,
            ..Passthru::default()
        };
        // SAFETY: `addr` is 0 or names `page`, which has the `data_len` bytes that the kernel writes; it waits for the
        // command, so nothing uses either afterwards. The kernel bounces data through memory of its own.
        let status = unsafe { ioctl(&self.file, &mut passthru) };
        match status {
            Ok(0) => {
                let len = data.len().min(PAGE_SIZE);
                data[..len].copy_from_slice(&page[..len]);
                Ok(passthru.result)
            }
            Ok(status) => Err(Error::Command {
                command: name,
                status: Status::from_bits(status as u16),
            }),
            Err(errno) => Err(Error::Kernel {
                command: name,
                reason: match errno {
                    Errno::ACCESS | Errno::PERM => "the kernel allows it to root only".to_owned(),
                    other => io::Error::from(other).to_string(),
                },
            }),
        }
    }

    fn info(&self) -> &Info {
        &self.info
    }

    fn luns(&self) -> &[Lun] {
        &self.luns
    }
}
