//! [`ControlSocket`]: admin commands through a process of ours that has the controller, such as `weir export`; and the
//! messages that both ends speak.
//!
//! One command at a time on a Unix socket of the same machine, all numbers little-endian: the server sends [`GREETING`],
//! then for every [`Request`] a [`Reply`] with its bytes behind it.

use super::error::DeviceError;
use crate::commands::Admin;
use crate::error::Error;
use crate::info::{Info, discover};
use crate::lun::Lun;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use weir_nvme::{Command, PAGE_SIZE, Status};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What the server says first: what it is, and the version of these messages.
pub const GREETING: [u8; 16] = *b"weir control 1\n\0";

/// How long the server may take to answer: its controller has its own, shorter, time to execute a command.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most bytes of a text of a reply that are read.
const MAX_TEXT: usize = 1024;

/// A command to execute.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Request {
    /// As in a submission entry. CID, PRPs and metadata pointer are the server's business, and ignored.
    pub command: Command,
    /// Bytes that the controller writes: 0 to 4096.
    pub len: u64,
}

/// What became of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct Reply {
    /// [`DONE`](Reply::DONE), [`STATUS`](Reply::STATUS) or [`FAILED`](Reply::FAILED).
    pub kind: U32,
    /// Dword 0 of the completion, or the bits of a [`Status`].
    pub value: U32,
    /// Bytes that follow: what the controller wrote, or a text in UTF-8.
    pub len: U32,
}

impl Reply {
    /// The controller did it: `len` bytes as asked.
    pub const DONE: u32 = 0;
    /// The controller completed it with an error: `len` is 0.
    pub const STATUS: u32 = 1;
    /// It was not executed, or the controller gave no answer: why is the text.
    pub const FAILED: u32 = 2;
}

/// A controller that another process of ours has: only its admin commands, and those only as far as that process allows
/// them.
#[derive(Debug)]
pub struct ControlSocket {
    socket: UnixStream,
    info: Info,
    luns: Vec<Lun>,
}

impl ControlSocket {
    /// Connects to the control socket at `path`.
    pub fn open(path: &Path) -> Result<ControlSocket, DeviceError> {
        let error = |reason: String| DeviceError::Control {
            path: path.to_owned(),
            reason,
        };
        let connect = || {
            let mut socket = UnixStream::connect(path)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            let mut greeting = [0; GREETING.len()];
            socket.read_exact(&mut greeting)?;
            Ok((socket, greeting))
        };
        let (socket, greeting) = connect().map_err(|source| error(words(&source)))?;
        if greeting != GREETING {
            let text = "what listens there is no control socket of `weir export` of this version";
            return Err(error(text.to_owned()));
        }
        let mut controller = ControlSocket {
            socket,
            info: Info::default(),
            luns: Vec::new(),
        };
        let identify = |controller: &mut ControlSocket| {
            controller.info = Info::read(controller, usize::MAX)?;
            controller.luns = discover(controller)?;
            Ok(())
        };
        identify(&mut controller).map_err(|source: Error| error(source.to_string()))?;
        Ok(controller)
    }

    fn exchange(&mut self, request: &Request, data: &mut [u8]) -> io::Result<(Reply, String)> {
        self.socket.write_all(request.as_bytes())?;
        let mut reply = Reply::new_zeroed();
        self.socket.read_exact(reply.as_mut_bytes())?;
        let (len, mut text) = (reply.len.get() as usize, Vec::new());
        match reply.kind.get() {
            Reply::DONE if len == data.len() => self.socket.read_exact(data)?,
            Reply::STATUS if len == 0 => {}
            Reply::FAILED if len <= MAX_TEXT => {
                text.resize(len, 0);
                self.socket.read_exact(&mut text)?;
            }
            kind => {
                let text = format!("a reply of kind {kind} with {len} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
        Ok((reply, String::from_utf8_lossy(&text).into_owned()))
    }
}

impl Admin for ControlSocket {
    fn execute(
        &mut self,
        name: &'static str,
        command: Command,
        data: &mut [u8],
    ) -> Result<u32, Error> {
        let len = data.len().min(PAGE_SIZE);
        let request = Request {
            command,
            len: len as u64,
        };
        let failed = |reason| Error::Control {
            command: name,
            reason,
        };
        let (reply, text) = self
            .exchange(&request, &mut data[..len])
            .map_err(|source| failed(words(&source)))?;
        match reply.kind.get() {
            Reply::DONE => Ok(reply.value.get()),
            Reply::STATUS => Err(Error::Command {
                command: name,
                status: Status::from_bits(reply.value.get() as u16),
            }),
            _ => Err(failed(text)),
        }
    }

    fn info(&self) -> &Info {
        &self.info
    }

    fn luns(&self) -> &[Lun] {
        &self.luns
    }
}

/// What a failure of the socket means here.
fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => {
            "it closed the connection: it has ended, has too many clients, or is no `weir export`"
                .into()
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("no answer within {} s", PATIENCE.as_secs())
        }
        io::ErrorKind::NotFound => "there is no such socket; does `weir export` run?".into(),
        io::ErrorKind::ConnectionRefused => "no process listens there any more".into(),
        _ => error.to_string(),
    }
}
