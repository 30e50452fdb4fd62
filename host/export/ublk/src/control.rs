//! [`Control`] and [`Node`]: devices are made, started, stopped and deleted. One of the crate's files with `unsafe` code.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
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

/// A device: `/dev/ublkcN`, and once it is started `/dev/ublkbN`. Stopped and deleted when dropped.
pub struct Node {
    control: Rc<Control>,
    info: DeviceInfo,
    deleted: bool,
}

impl Node {
    /// Adds a device of `queues` hardware queues of `depth` tags each.
    pub fn add(
        control: &Rc<Control>,
        queues: u16,
        depth: u16,
        params: &Params,
    ) -> Result<Node, Error> {
        let mut info = DeviceInfo {
            nr_hw_queues: queues,
            queue_depth: depth,
            max_io_buf_bytes: params.max_sectors << 9,
            dev_id: u32::MAX,
            flags: uapi::F_CMD_IOCTL_ENCODE,
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
            deleted: false,
        };
        if (info.nr_hw_queues, info.queue_depth) != (queues, depth) {
            return Err(Error::Granted {
                queues: info.nr_hw_queues,
                depth: info.queue_depth,
            });
        }
        let mut params = Params {
            len: size_of::<Params>() as u32,
            types: uapi::PARAM_BASIC,
            ..*params
        };
        node.execute("set the parameters", uapi::SET_PARAMS, 0, Some(&mut params))?;
        Ok(node)
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

    /// Makes the block device; every tag must have been fetched, or will be by another thread.
    pub fn start(&self) -> Result<(), Error> {
        let pid = std::process::id().into();
        self.execute::<u64>("start the device", uapi::START_DEV, pid, None)
    }

    /// Removes the block device, when what was written through it is on its way; all fetches are aborted.
    pub fn stop(&self) -> Result<(), Error> {
        self.execute::<u64>("stop the device", uapi::STOP_DEV, 0, None)
    }

    /// Deletes the stopped device, which no thread may have open any more; waits for others that have.
    pub fn delete(mut self) -> Result<(), Error> {
        self.deleted = true;
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
        if !self.deleted {
            // After an error: others may have it open, and are not waited for.
            let _ = self.stop();
            let _ = self.execute::<u64>("delete", uapi::DEL_DEV_ASYNC, 0, None);
        }
    }
}
