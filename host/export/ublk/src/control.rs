//! [`Control`] and [`Node`]: devices are made or taken back, started, stopped and deleted. One of the crate's files with
//! `unsafe` code.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Error;
use crate::uapi::{self, ControlCommand, DeviceInfo, Params};

/// `/dev/ublk-control`, and the ring by which commands go there.
pub struct Control {
    file: File,
    ring: RefCell<IoUring<squeue::Entry128>>,
}

impl Control {
    /// Opens it; says what is missing.
    pub fn open() -> Result<Rc<Control>, Error> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(uapi::CONTROL)
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => Error::NoDriver,
                ErrorKind::PermissionDenied => Error::Permission,
                _ => Error::Open {
                    path: uapi::CONTROL.into(),
                    source: error,
                },
            })?;
        let ring = IoUring::<squeue::Entry128>::builder()
            .build(4)
            .map_err(Error::Ring)?;
        let ring = RefCell::new(ring);
        Ok(Rc::new(Control { file, ring }))
    }

    /// Executes a command and waits for it. `bytes` is what the kernel reads or writes.
    fn execute<T: IntoBytes + FromBytes + Immutable>(
        &self,
        number: u32,
        mut command: ControlCommand,
        bytes: Option<&mut T>,
    ) -> io::Result<()> {
        let mut room = bytes.as_ref().map_or(Vec::new(), |b| b.as_bytes().to_vec());
        command.addr = room.as_mut_ptr() as u64;
        command.len = room.len() as u16;
        let mut payload = [0; 80];
        payload[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), number)
            .cmd(payload)
            .build();
        let mut ring = self.ring.borrow_mut();
        // SAFETY: `room`, which `addr` points to, lives until the completion was seen, and else for ever.
        unsafe { ring.submission().push(&entry) }.map_err(|_| ErrorKind::ResourceBusy)?;
        let done: cqueue::Entry = loop {
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                // A signal: the command is still under way.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    std::mem::forget(room);
                    return Err(error);
                }
            }
            if let Some(done) = ring.completion().next() {
                break done;
            }
        };
        if done.result() < 0 {
            return Err(io::Error::from_raw_os_error(-done.result()));
        }
        if let Some(bytes) = bytes {
            bytes.as_mut_bytes().copy_from_slice(&room);
        }
        Ok(())
    }
}

/// Whose a device is, as the kernel keeps it: a hash of the controller's name in bits 63:32, its LUN below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    pub fn new(controller: &str, lun: u32) -> Owner {
        // FNV-1a: the same in every build, which the standard library's need not be.
        let hash = controller.bytes().fold(0x811C_9DC5u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        Owner(u64::from(hash) << 32 | u64::from(lun))
    }

    pub fn lun(self) -> u32 {
        self.0 as u32
    }
}

/// How long the kernel may need to quiesce the device of a server that was killed.
const QUIESCE: Duration = Duration::from_secs(10);

/// The devices that exports of `controller` which died have left, by `/sys/class/ublk-char`: those that are quiesced, and
/// those that were not started yet. An error when one that lives has them.
pub fn left(control: &Rc<Control>, controller: &str) -> Result<Vec<Node>, Error> {
    let mut nodes = Vec::new();
    // Not there: there never was a device.
    for entry in fs::read_dir("/sys/class/ublk-char").into_iter().flatten() {
        let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
        let number = name.to_str().and_then(|name| name.strip_prefix("ublkc"));
        let Some(Ok(dev_id)) = number.map(str::parse) else {
            continue;
        };
        let mut node = Node {
            control: control.clone(),
            info: DeviceInfo {
                dev_id,
                ..DeviceInfo::default()
            },
            fate: Fate::Left,
        };
        // An error: it went away meanwhile, or belongs to another user.
        if node.look().is_err() || node.owner() != Owner::new(controller, node.owner().lun()) {
            continue;
        }
        let mut waited = Duration::ZERO;
        while node.info.state == uapi::STATE_LIVE {
            let pid = node.info.ublksrv_pid;
            if pid > 0 && Path::new(&format!("/proc/{pid}")).exists() {
                let path = node.block();
                return Err(Error::Served { path, pid });
            }
            if waited >= QUIESCE {
                return Err(Error::NotQuiet { path: node.block() });
            }
            sleep(Duration::from_millis(50));
            waited += Duration::from_millis(50);
            node.look()?;
        }
        nodes.push(node);
    }
    Ok(nodes)
}

/// What becomes of a device whose [`Node`] is dropped.
enum Fate {
    /// Stopped and deleted.
    Deleted,
    /// Nothing: another server may take it back.
    Left,
}

/// A device: `/dev/ublkcN`, and once it is started `/dev/ublkbN`. Stopped and deleted when dropped, but while it is one that
/// was left.
pub struct Node {
    control: Rc<Control>,
    info: DeviceInfo,
    fate: Fate,
}

impl Node {
    /// Adds a device of `queues` hardware queues of `depth` tags each.
    pub fn add(
        control: &Rc<Control>,
        owner: Owner,
        (queues, depth): (u16, u16),
        params: &Params,
    ) -> Result<Node, Error> {
        let mut info = DeviceInfo {
            nr_hw_queues: queues,
            queue_depth: depth,
            max_io_buf_bytes: params.max_sectors << 9,
            dev_id: u32::MAX,
            flags: uapi::F_CMD_IOCTL_ENCODE | uapi::F_USER_RECOVERY | uapi::F_USER_RECOVERY_REISSUE,
            ublksrv_flags: owner.0,
            ..DeviceInfo::default()
        };
        let command = ControlCommand {
            dev_id: u32::MAX,
            queue_id: u16::MAX,
            ..ControlCommand::default()
        };
        control
            .execute(uapi::ADD_DEV, command, Some(&mut info))
            .map_err(|source| match source.kind() {
                ErrorKind::PermissionDenied => Error::Permission,
                _ => Error::Control {
                    what: "add a device",
                    source,
                },
            })?;
        let node = Node {
            control: control.clone(),
            info,
            fate: Fate::Deleted,
        };
        if (info.nr_hw_queues, info.queue_depth) != (queues, depth) {
            return Err(Error::Granted {
                queues: info.nr_hw_queues,
                depth: info.queue_depth,
            });
        }
        let mut params = *params;
        node.execute("set the parameters", uapi::SET_PARAMS, 0, Some(&mut params))?;
        Ok(node)
    }

    /// Takes back a device that was [left](left), which had these parameters.
    pub fn take_back(&self, params: &Params) -> Result<(), Error> {
        let mut had = Params {
            len: size_of::<Params>() as u32,
            ..Params::default()
        };
        let what = "tell a device's parameters";
        self.execute(what, uapi::GET_PARAMS, 0, Some(&mut had))?;
        // The kernel adds what it fills in itself.
        had.types &= uapi::PARAM_BASIC;
        if had != *params {
            return Err(Error::Changed {
                path: self.block(),
                lun: self.owner().lun(),
            });
        }
        let what = "let a device that was left be taken back";
        self.execute::<u64>(what, uapi::START_USER_RECOVERY, 0, None)
    }

    /// Learns its state.
    fn look(&mut self) -> Result<(), Error> {
        let mut info = self.info;
        let what = "tell a device's state";
        self.execute(what, uapi::GET_DEV_INFO, 0, Some(&mut info))?;
        self.info = info;
        Ok(())
    }

    /// Whose it is, if it is one of ours.
    pub fn owner(&self) -> Owner {
        Owner(self.info.ublksrv_flags)
    }

    /// Hardware queues, and tags of each.
    pub fn queues(&self) -> (u16, u16) {
        (self.info.nr_hw_queues, self.info.queue_depth)
    }

    /// Was never started, or is stopped.
    pub fn is_dead(&self) -> bool {
        self.info.state == uapi::STATE_DEAD
    }

    /// Was left by an export that died, and is not started again.
    pub fn was_left(&self) -> bool {
        matches!(self.fate, Fate::Left)
    }

    /// The block device.
    pub fn block(&self) -> PathBuf {
        format!("/dev/ublkb{}", self.info.dev_id).into()
    }

    /// Opens the character device, through which requests come. udev may need a moment to make it.
    pub fn open(&self) -> Result<File, Error> {
        let path = PathBuf::from(format!("/dev/ublkc{}", self.info.dev_id));
        let mut tries = 0;
        loop {
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => return Ok(file),
                Err(error) if error.kind() == ErrorKind::NotFound && tries < 300 => tries += 1,
                Err(source) => return Err(Error::Open { path, source }),
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// The CPUs that hardware queue `queue` serves.
    pub fn cpus(&self, queue: u16) -> Result<Vec<usize>, Error> {
        let mut mask = [0u64; 128];
        self.execute(
            "ask for a queue's CPUs",
            uapi::GET_QUEUE_AFFINITY,
            queue.into(),
            Some(&mut mask),
        )?;
        let set = |cpu: &usize| mask[cpu / 64] >> (cpu % 64) & 1 == 1;
        Ok((0..mask.len() * 64).filter(set).collect())
    }

    /// Makes the block device, or goes on with one that was taken back; every tag must have been fetched, or will be by
    /// another thread.
    pub fn start(&mut self) -> Result<(), Error> {
        let number = match self.fate {
            Fate::Deleted => uapi::START_DEV,
            Fate::Left => uapi::END_USER_RECOVERY,
        };
        let pid = std::process::id().into();
        self.execute::<u64>("start the device", number, pid, None)?;
        self.fate = Fate::Deleted;
        Ok(())
    }

    /// Removes the block device, when what was written through it is on its way; all fetches are aborted.
    pub fn stop(&self) -> Result<(), Error> {
        self.execute::<u64>("stop the device", uapi::STOP_DEV, 0, None)
    }

    /// Stops and deletes a device that was left; what waits in it fails, and nobody who has it open is waited for.
    pub fn remove(&self) -> Result<(), Error> {
        self.stop()?;
        self.execute::<u64>("delete the device", uapi::DEL_DEV_ASYNC, 0, None)
    }

    /// Deletes the stopped device, which no thread may have open any more; waits for others that have.
    pub fn delete(mut self) -> Result<(), Error> {
        self.fate = Fate::Left;
        self.execute::<u64>("delete the device", uapi::DEL_DEV, 0, None)
    }

    /// `data` is the command's inline data.
    fn execute<T: IntoBytes + FromBytes + Immutable>(
        &self,
        what: &'static str,
        number: u32,
        data: u64,
        bytes: Option<&mut T>,
    ) -> Result<(), Error> {
        let command = ControlCommand {
            dev_id: self.info.dev_id,
            queue_id: u16::MAX,
            data,
            ..ControlCommand::default()
        };
        self.control
            .execute(number, command, bytes)
            .map_err(|source| Error::Control { what, source })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if matches!(self.fate, Fate::Deleted) {
            // After an error.
            let _ = self.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_by_controller_and_lun() {
        let owner = Owner::new("0000:01:00.0", 7);
        assert_eq!(owner.lun(), 7);
        // FNV-1a of the name, computed elsewhere: a later build must find it again.
        assert_eq!(owner.0 >> 32, 0x9C63_2CF6);
        assert_ne!(owner, Owner::new("0000:01:00.1", 7));
    }
}
