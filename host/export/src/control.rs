//! [`Control`]: a socket at which other processes look at a controller that this one has, and set depths.
//!
//! One thread waits for all clients and executes what they ask, one command after another. It takes only commands that
//! cannot disturb the driver (see [`allowed`]), so what a client sends never reaches the card as it is.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use weir_driver::Error;
use weir_driver::backend::control::{GREETING, Reply, Request};
use weir_driver::nvme::command::{GetFeaturesCdw10, GetLogPageCdw10, SetFeaturesCdw10};
use weir_driver::nvme::feature::FeatureId;
use weir_driver::nvme::{AdminOpcode, Command, PAGE_SIZE, Status};
use zerocopy::{FromBytes, IntoBytes};

/// Clients at once; another is let go without a word.
const CLIENTS: usize = 16;

/// Executes an admin command as [`weir_driver::Admin::execute`] does.
pub type Execute = dyn FnMut(&'static str, Command, &mut [u8]) -> Result<u32, Error> + Send;

/// The socket cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("control socket {}: {source}", .path.display())]
pub struct ControlError {
    /// Where.
    path: PathBuf,
    /// Why not.
    source: io::Error,
}

/// A control socket, and the thread that serves it; both end when it is dropped.
pub struct Control {
    path: PathBuf,
    /// The thread ends when this is closed.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens at `path`, where nothing may be; only this user may connect. `execute` is dropped when the socket is.
    pub fn serve(path: &Path, execute: Box<Execute>) -> Result<Control, ControlError> {
        let start = || {
            let listener = private(path)?;
            listener.set_nonblocking(true)?;
            let (stop, stopped) = UnixStream::pair()?;
            let thread = thread::Builder::new().name("weir-control".to_owned());
            let thread = thread.spawn(move || serve(&listener, &stopped, execute))?;
            Ok((stop, thread))
        };
        let (stop, thread) = start().map_err(|source| ControlError {
            path: path.to_owned(),
            source,
        })?;
        Ok(Control {
            path: path.to_owned(),
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Listens at `path`. The mode is set before anybody can connect.
fn private(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listen(&socket, 16)?;
    Ok(socket.into())
}

/// A client, and what of its next request is here.
struct Client {
    socket: UnixStream,
    bytes: [u8; size_of::<Request>()],
    have: usize,
}

fn serve(listener: &UnixListener, stop: &UnixStream, mut execute: Box<Execute>) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let sockets = clients.iter().map(|client| client.socket.as_fd());
        let all = [stop.as_fd(), listener.as_fd()].into_iter().chain(sockets);
        let mut fds: Vec<_> = all
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            return;
        }
        let mut ready_clients = ready[2..].iter();
        clients.retain_mut(|client| {
            !ready_clients.next().is_some_and(|ready| *ready) || client.turn(&mut *execute).is_ok()
        });
        if ready[1] {
            match listener
                .accept()
                .and_then(|(socket, _)| Client::new(socket))
            {
                Ok(client) if clients.len() < CLIENTS => clients.push(client),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Such as no file descriptor left: the connection stays where it is, and would be tried in a loop.
                Err(_) => thread::sleep(std::time::Duration::from_millis(100)),
            }
        }
    }
}

impl Client {
    fn new(mut socket: UnixStream) -> io::Result<Client> {
        socket.set_nonblocking(true)?;
        socket.write_all(&GREETING)?;
        Ok(Client {
            socket,
            bytes: [0; size_of::<Request>()],
            have: 0,
        })
    }

    /// Takes what is there, and answers one request at most. An error: the client is gone, or does not read its replies,
    /// of which a socket holds many.
    fn turn(&mut self, execute: &mut Execute) -> io::Result<()> {
        match self.socket.read(&mut self.bytes[self.have..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.have += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        if self.have < self.bytes.len() {
            return Ok(());
        }
        self.have = 0;
        let mut data = [0; PAGE_SIZE];
        let (kind, value, bytes) = match request(&self.bytes, &mut data, execute) {
            Ok((value, len)) => (Reply::DONE, value, data[..len].to_vec()),
            Err(Denied::Status(status)) => (Reply::STATUS, status.into_bits().into(), vec![]),
            Err(Denied::Reason(reason)) => (Reply::FAILED, 0, reason.into_bytes()),
        };
        let reply = Reply {
            kind: kind.into(),
            value: value.into(),
            len: (bytes.len() as u32).into(),
        };
        self.socket.write_all(&[reply.as_bytes(), &bytes].concat())
    }
}

/// Why a client gets no data.
enum Denied {
    /// The controller's word.
    Status(Status),
    /// This process's, or the driver's.
    Reason(String),
}

/// Executes a request: dword 0, and the bytes of `data` that it filled.
fn request(bytes: &[u8], data: &mut [u8], execute: &mut Execute) -> Result<(u32, usize), Denied> {
    let request = Request::read_from_bytes(bytes);
    let request = request.map_err(|_| Denied::Reason("a request of another size".to_owned()))?;
    let (name, command, len) = allowed(&request).map_err(Denied::Reason)?;
    match execute(name, command, &mut data[..len]) {
        Ok(result) => Ok((result, len)),
        Err(Error::Command { status, .. }) => Err(Denied::Status(status)),
        Err(error) => Err(Denied::Reason(error.to_string())),
    }
}

/// The command of `request`, its name, and the bytes that it moves, when it is one of
/// * Identify;
/// * Get Log Page, from the page's beginning, of at most 4096 bytes;
/// * Get Features and Set Features of Weir's own features, which move no data.
///
/// Everything else, such as creating queues, is for the process that drives the controller.
fn allowed(request: &Request) -> Result<(&'static str, Command, usize), String> {
    let asked = &request.command;
    let ours = |fid: u8| match FeatureId(fid) {
        FeatureId::LUN_BUDGET | FeatureId::TAG_SET => Ok(0),
        _ => Err(format!(
            "feature {fid:#04x} is the exporting process's: only C0h and C1h may be asked and set"
        )),
    };
    let opcode = AdminOpcode(asked.cdw0.opcode());
    let (name, len) = match opcode {
        AdminOpcode::IDENTIFY => ("Identify", PAGE_SIZE),
        AdminOpcode::GET_LOG_PAGE => {
            let low = GetLogPageCdw10::from(asked.cdw10).numdl();
            let high = asked.cdw11 & 0xFFFF;
            let dwords = u64::from(high << 16 | u32::from(low)) + 1;
            if dwords * 4 > PAGE_SIZE as u64 {
                return Err(format!("{dwords} dwords of a log page: at most 1024"));
            }
            ("Get Log Page", dwords as usize * 4)
        }
        AdminOpcode::GET_FEATURES => {
            let fid = GetFeaturesCdw10::from(asked.cdw10).fid();
            ("Get Features", ours(fid)?)
        }
        AdminOpcode::SET_FEATURES => {
            let fid = SetFeaturesCdw10::from(asked.cdw10).fid();
            ("Set Features", ours(fid)?)
        }
        AdminOpcode(opcode) => {
            return Err(format!(
                "opcode {opcode:#04x} is the exporting process's: only Identify, Get Log Page, Get Features and Set \
                 Features are taken"
            ));
        }
    };
    if request.len != len as u64 {
        return Err(format!("{name} moves {len} bytes, not {}", request.len));
    }
    let command = Command {
        nsid: asked.nsid,
        cdw10: asked.cdw10,
        cdw11: asked.cdw11,
        ..Command::admin(opcode)
    };
    Ok((name, command, len))
}

#[cfg(test)]
mod tests;
