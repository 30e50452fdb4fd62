//! `weir_nbd`: an nbdkit plugin that serves the LUNs of a controller over NBD, each under its name: `lun0`, `lun1` and on.
//!
//! `weir export nbd` starts nbdkit with it. The device is opened once, when nbdkit serves; each connection has a stream
//! of its own over the controller's queues, and several may write the same LUN (multi-conn): a flush on any of them
//! covers all. FUA is a write and a flush.
//!
//! Parameters: `device=` as for `weir lun --device`; `lun=N` is what the empty export name means, 0 if not given;
//! `control=PATH` makes a socket there for `weir lun --device control:PATH`.
//!
//! # What it leaves out
//! Trim, zero and extents. Block sizes are told by nbdkit's own filter blocksize-policy, which `weir export` adds.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nbdkit::{Error, Flags, FuaFlags, Result, Server, ThreadModel, plugin};
use weir_export::{Control, IoError, Luns};

/// Errnos of Linux.
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOENT: i32 = 2;

struct State {
    device: Option<String>,
    lun: u32,
    control_path: Option<PathBuf>,
    luns: Option<Arc<dyn Luns>>,
    control: Option<Control>,
}

static STATE: Mutex<State> = Mutex::new(State {
    device: None,
    lun: 0,
    control_path: None,
    luns: None,
    control: None,
});
static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refuse<T>(errno: i32, reason: impl ToString) -> Result<T> {
    Err(Error::new(errno, reason.to_string()))
}

fn io(result: std::result::Result<(), IoError>) -> Result<()> {
    result.or_else(|error| {
        let errno = match error {
            IoError::Range { .. } | IoError::NoLun(_) => EINVAL,
            _ => EIO,
        };
        refuse(errno, error)
    })
}

/// The card's own statistics, for the log.
fn report(luns: &dyn Luns) {
    let statistics = luns.statistics();
    if statistics.is_empty() {
        return;
    }
    let head = [
        "LUN",
        "commands",
        "peak",
        "deferred: depth",
        "tags",
        "share",
        "bytes",
    ];
    let [lun, commands, peak, depth, tags, share, bytes] = head;
    // Nobody need read it.
    let mut err = std::io::stderr();
    let _ = writeln!(
        err,
        "the card, since the export began:\n\
         {lun:>3} {commands:>10} {peak:>5} {depth:>16} {tags:>6} {share:>6} {bytes:>14}"
    );
    for (lun, s) in statistics.iter().filter(|(_, s)| s.admitted > 0) {
        let (admitted, peak, bytes) = (s.admitted, s.peak, s.bytes);
        let (depth, tags, share) = (s.deferred_depth, s.deferred_tags, s.deferred_share);
        let _ = writeln!(
            err,
            "{lun:>3} {admitted:>10} {peak:>5} {depth:>16} {tags:>6} {share:>6} {bytes:>14}"
        );
    }
}

/// A connection.
struct Connection {
    luns: Arc<dyn Luns>,
    lun: u32,
    bytes: u64,
    stream: usize,
}

impl Server for Connection {
    fn name() -> &'static str {
        "weir"
    }

    fn longname() -> Option<&'static str> {
        Some("LUNs of an NVMe controller")
    }

    fn config_help() -> Option<&'static str> {
        Some(
            "device=DEVICE  (required) 0000:01:00.0 or vfio-user:PATH\nlun=N          what the empty export name means\n\
             control=PATH   a socket for weir lun",
        )
    }

    fn config(key: &str, value: &str) -> Result<()> {
        match (key, value.parse()) {
            ("device", _) => state().device = Some(value.to_owned()),
            ("control", _) => state().control_path = Some(value.into()),
            ("lun", Ok(lun)) => state().lun = lun,
            ("lun", Err(_)) => return refuse(EINVAL, format!("lun={value}: must be a number")),
            _ => {
                return refuse(
                    EINVAL,
                    format!("unknown parameter {key}; device=, lun= and control= are known"),
                );
            }
        }
        Ok(())
    }

    fn config_complete() -> Result<()> {
        match state().device {
            Some(_) => Ok(()),
            None => refuse(EINVAL, "device= is missing"),
        }
    }

    /// Threads are started here: nbdkit may fork before.
    fn after_fork() -> Result<()> {
        let mut state = state();
        let device = state.device.clone().unwrap_or_default();
        match weir_export::open(&device) {
            Ok(luns) => state.luns = Some(luns),
            Err(error) => return refuse(EIO, error),
        }
        if let (Some(path), Some(luns)) = (&state.control_path, state.luns.clone()) {
            let execute =
                Box::new(move |name, command, data: &mut [u8]| luns.admin(name, command, data));
            match Control::serve(path, execute) {
                Ok(control) => state.control = Some(control),
                Err(error) => return refuse(EIO, error),
            }
        }
        Ok(())
    }

    fn unload() {
        // Used and dropped outside the lock: dropping it ends what is in flight.
        let (luns, control) = {
            let mut state = state();
            (state.luns.take(), state.control.take())
        };
        drop(control);
        if let Some(luns) = luns {
            report(luns.as_ref());
        }
    }

    fn thread_model() -> Result<ThreadModel> {
        Ok(ThreadModel::Parallel)
    }

    fn open(_readonly: bool) -> Result<Box<dyn Server>> {
        let name = nbdkit::export_name().map_err(|error| Error::new(EINVAL, error.to_string()))?;
        let state = state();
        let lun = match name.as_str() {
            "" => Some(state.lun),
            name => name.strip_prefix("lun").unwrap_or(name).parse().ok(),
        };
        let Some(luns) = state.luns.clone() else {
            return refuse(EIO, "the device is not open");
        };
        let Some(found) = luns.luns().iter().find(|l| Some(l.index) == lun) else {
            let last = luns.luns().last().map_or(0, |lun| lun.index);
            return refuse(
                ENOENT,
                format!("no export '{name}': there are lun0 to lun{last}"),
            );
        };
        let (lun, bytes) = (found.index, found.bytes());
        Ok(Box::new(Connection {
            luns,
            lun,
            bytes,
            stream: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
        }))
    }

    fn get_size(&self) -> Result<i64> {
        i64::try_from(self.bytes)
            .or_else(|_| refuse(EIO, "the LUN is larger than NBD's 2^63 bytes"))
    }

    fn can_write(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_flush(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_fua(&self) -> Result<FuaFlags> {
        Ok(FuaFlags::Emulate)
    }

    fn can_multi_conn(&self) -> Result<bool> {
        Ok(true)
    }

    fn is_rotational(&self) -> Result<bool> {
        Ok(false)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        io(self.luns.read(self.stream, self.lun, offset, buf))
    }

    fn write_at(&self, buf: &[u8], offset: u64, _flags: Flags) -> Result<()> {
        io(self.luns.write(self.stream, self.lun, offset, buf))
    }

    fn flush(&self) -> Result<()> {
        io(self.luns.flush(self.stream, self.lun))
    }
}

plugin!(Connection {
    config,
    config_complete,
    after_fork,
    unload,
    thread_model,
    can_write,
    can_flush,
    can_fua,
    can_multi_conn,
    is_rotational,
    write_at,
    flush
});
