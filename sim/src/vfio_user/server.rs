//! The socket, its one client, and the passing of time.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use weir_vfio_user::wire::{self, Header};
use weir_vfio_user::{Connection, Error, Message};

use super::device::Device;
use crate::world::WorldError;

/// Cycles between two looks at the socket while the card works: about 60 us of a fast simulator.
const CHUNK: u64 = 32;
/// Turns between two looks for new connections and for the end while the card works.
const LOOK: u32 = 64;
/// How long a client may leave an answer unread.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries to take a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a connection may be open without a completed VFIO_USER_VERSION.
const GREETING: Duration = Duration::from_secs(5);
/// Connections whose first message is not here yet; more wait in the kernel's queue.
const WAITING: usize = 4;
/// Bytes of `sun_path`, unix(7), less the zero at its end.
const MAX_PATH: usize = 107;
/// Refused messages of one client that are logged.
const LOGGED: u32 = 20;

/// Why the server cannot start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket's place is taken.
    #[error("{path}: another server listens there; end it, or choose another --socket")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is no socket is there.
    #[error("{path}: there is a file that is no socket; choose another --socket")]
    NoSocket {
        /// The socket.
        path: PathBuf,
    },
    /// The socket could not be made.
    #[error("{path}: cannot listen there: {source}")]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The system, while serving.
    #[error("cannot wait for clients: {0}")]
    Wait(Errno),
    /// The simulation failed.
    #[error(transparent)]
    World(#[from] WorldError),
}

/// A socket that listens; its file is removed with it.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl Listener {
    /// Listens at `path`. What a killed server left there is replaced; a socket at which one listens is not. Only this
    /// user may connect.
    pub fn bind(path: &Path) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Listen {
            path: path.into(),
            source,
        };
        if let Ok(found) = fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(ServeError::NoSocket { path: path.into() });
            }
            match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(failed)?;
                }
                _ => return Err(ServeError::InUse { path: path.into() }),
            }
        }
        let len = path.as_os_str().len();
        if len > MAX_PATH {
            let text = format!("a socket's path has at most {MAX_PATH} bytes, this has {len}");
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        let socket = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let inode = fs::symlink_metadata(path).map_err(failed)?.ino();
        Ok(Listener {
            socket,
            path: path.into(),
            inode,
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Not one that somebody else has put there since.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Counts of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Clients that were served.
    pub clients: u64,
    /// Messages answered or taken.
    pub messages: u64,
}

/// Serves one device to one client after another.
pub struct Server<'a> {
    listener: Listener,
    device: Device,
    client: Option<Client>,
    waiting: VecDeque<Waiting>,
    /// No connection is taken before, after one that could not be taken.
    pause: Option<Instant>,
    served: Served,
    log: &'a mut dyn FnMut(&str),
}

struct Client {
    connection: Connection,
    number: u64,
    refused: u32,
    /// When it must have said its version.
    deadline: Instant,
}

/// A connection that has said nothing yet: whoever speaks first, while the card has no client, is the client.
struct Waiting {
    connection: Connection,
    /// When it must have spoken.
    deadline: Instant,
}

impl<'a> Server<'a> {
    /// Serves `device` on `listener`; `log` gets a line an event.
    pub fn new(listener: Listener, device: Device, log: &'a mut dyn FnMut(&str)) -> Self {
        Server {
            listener,
            device,
            client: None,
            waiting: VecDeque::new(),
            pause: None,
            served: Served::default(),
            log,
        }
    }

    /// The device.
    pub fn device(&mut self) -> &mut Device {
        &mut self.device
    }

    /// Counts until now.
    pub fn served(&self) -> Served {
        self.served
    }

    /// Serves until `stop` can be read, or its other end is closed.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> Result<(), ServeError> {
        let mut turn = 0;
        loop {
            let moved = self.messages()?;
            let busy = self.device.busy();
            if busy {
                self.device.run(CHUNK)?;
            }
            turn = (turn + 1) % LOOK;
            let rest = !busy && !moved;
            if (rest || turn == 0) && self.look(stop, rest)? {
                return Ok(());
            }
        }
    }

    /// Looks after new connections; waits for something to do when `rest`. True at the end.
    fn look(&mut self, stop: BorrowedFd<'_>, rest: bool) -> Result<bool, ServeError> {
        let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        let now = Instant::now();
        self.pause = self.pause.filter(|end| *end > now);
        let room = self.waiting.len() < WAITING && self.pause.is_none();
        if room {
            fds.push(PollFd::new(&self.listener.socket, PollFlags::IN));
        }
        let connections = self.client.iter().map(|client| &client.connection);
        fds.extend(
            connections
                .chain(self.waiting.iter().map(|waiting| &waiting.connection))
                .map(|connection| PollFd::new(connection, PollFlags::IN)),
        );
        let left = match rest {
            true => self.next_deadline().map(|end| end - now.min(end)),
            false => Some(Duration::ZERO),
        };
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(error) => return Err(ServeError::Wait(error)),
        }
        if !fds[0].revents().is_empty() {
            return Ok(true);
        }
        let new = room && !fds[1].revents().is_empty();
        drop(fds);
        if new {
            self.accept();
        }
        if !self.waiting.is_empty() {
            // A client that ended before they spoke is seen to have ended before they are told anything.
            for _ in 0..LOOK {
                if !self.messages()? {
                    break;
                }
            }
            self.first_messages()?;
        }
        self.drop_silent()?;
        if let Some(failure) = self.device.world().media().take_file_failure() {
            (self.log)(&failure);
        }
        Ok(false)
    }

    fn accept(&mut self) {
        let accepted = self.listener.socket.accept();
        match accepted.and_then(|(socket, _)| Connection::new(socket)) {
            Ok(connection) => self.waiting.push_back(Waiting {
                connection,
                deadline: Instant::now() + GREETING,
            }),
            // It has gone, or there is no file descriptor left: it waits where it is, so a pause, or the log would fill.
            Err(error) => {
                (self.log)(&format!("a client could not connect: {error}"));
                self.pause = Some(Instant::now() + PAUSE);
            }
        }
    }

    /// Takes the first connection that speaks as the client; tells those that speak while there is one so.
    fn first_messages(&mut self) -> Result<(), WorldError> {
        for _ in 0..self.waiting.len() {
            let Some(mut waiting) = self.waiting.pop_front() else {
                break;
            };
            match waiting.connection.try_receive() {
                Ok(None) => self.waiting.push_back(waiting),
                Ok(Some(message)) if self.client.is_some() => {
                    let busy = Errno::BUSY.raw_os_error() as u32;
                    let _ = reply(&mut waiting.connection, &message, &[], busy);
                    (self.log)("a second client was turned away: the card has one");
                }
                Ok(Some(message)) => {
                    self.served.clients += 1;
                    let number = self.served.clients;
                    (self.log)(&format!("client {number} has connected"));
                    self.client = Some(Client {
                        connection: waiting.connection,
                        number,
                        refused: 0,
                        deadline: waiting.deadline,
                    });
                    if let Err(error) = self.message(message)? {
                        self.drop_client(&error)?;
                    }
                }
                Err(Error::Closed) => (),
                Err(error) => (self.log)(&format!("a connection is dropped: {error}")),
            }
        }
        Ok(())
    }

    /// Drops those whose time to say their version is over.
    fn drop_silent(&mut self) -> Result<(), WorldError> {
        let now = Instant::now();
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.deadline > now);
        for _ in self.waiting.len()..before {
            (self.log)("a connection is dropped: it said nothing");
        }
        let greeted = self.device.greeted();
        let late = |client: &mut Client| !greeted && client.deadline <= now;
        if self.client.as_mut().is_some_and(late) {
            self.drop_client(&Error::Timeout {
                what: "send VFIO_USER_VERSION",
                ms: GREETING.as_millis(),
            })?;
        }
        Ok(())
    }

    /// When there is something to do without any message.
    fn next_deadline(&self) -> Option<Instant> {
        let client = self.client.as_ref().filter(|_| !self.device.greeted());
        let client = client.map(|client| client.deadline);
        let waiting = self.waiting.iter().map(|waiting| waiting.deadline);
        waiting.chain(client).chain(self.pause).min()
    }

    /// Handles what the client has sent; true when there was anything.
    fn messages(&mut self) -> Result<bool, ServeError> {
        let mut moved = false;
        // A client that never stops sending must not stop the card's time.
        for _ in 0..LOOK {
            let Some(client) = &mut self.client else {
                break;
            };
            let result = match client.connection.try_receive() {
                Ok(None) => break,
                Ok(Some(message)) => self.message(message)?,
                Err(error) => Err(error),
            };
            moved = true;
            if let Err(error) = result {
                self.drop_client(&error)?;
            }
        }
        Ok(moved)
    }

    fn message(&mut self, mut message: Message) -> Result<Result<(), Error>, WorldError> {
        let flags = message.header.flags.get();
        if flags & wire::TYPE_MASK != wire::TYPE_COMMAND {
            // An answer to nothing: this server asks nothing.
            return Ok(Ok(()));
        }
        let answer = self.device.handle(&mut message)?;
        self.served.messages += 1;
        let Some(client) = &mut self.client else {
            return Ok(Ok(()));
        };
        if let Some(refusal) = answer.refusal {
            client.refused += 1;
            let number = client.number;
            match client.refused.cmp(&LOGGED) {
                std::cmp::Ordering::Less => (self.log)(&format!("client {number}: {refusal}")),
                std::cmp::Ordering::Equal => (self.log)(&format!(
                    "client {number}: {refusal}; what else is refused is not logged"
                )),
                std::cmp::Ordering::Greater => (),
            }
        }
        if flags & wire::NO_REPLY != 0 {
            return Ok(Ok(()));
        }
        Ok(reply(
            &mut client.connection,
            &message,
            &answer.body,
            answer.error,
        ))
    }

    fn drop_client(&mut self, error: &Error) -> Result<(), WorldError> {
        let Some(client) = self.client.take() else {
            return Ok(());
        };
        let number = client.number;
        drop(client);
        match error {
            Error::Closed => (self.log)(&format!("client {number} has gone")),
            error => (self.log)(&format!("client {number} is dropped: {error}")),
        }
        self.device.detach()
    }
}

fn reply(
    connection: &mut Connection,
    message: &Message,
    body: &[u8],
    error: u32,
) -> Result<(), Error> {
    let flags = match error {
        0 => wire::TYPE_REPLY,
        _ => wire::TYPE_REPLY | wire::ERROR,
    };
    let header = Header {
        flags: flags.into(),
        error: error.into(),
        ..message.header
    };
    connection.send(header, [body, &[]], &[], PATIENCE)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
