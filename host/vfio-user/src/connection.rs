//! Messages over a Unix stream socket, with the file descriptors that ride on them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Error;
use crate::version::MAX_DATA;
use crate::wire::{Header, RegionAccess};

/// Bytes of a header.
const HEADER: usize = size_of::<Header>();
/// Most bytes of a message: what moves [`MAX_DATA`] bytes of a region.
pub const MAX_MESSAGE: usize = HEADER + size_of::<RegionAccess>() + MAX_DATA;
/// Most file descriptors of a message.
pub const MAX_FDS: usize = 8;

/// A message as it was received.
#[derive(Debug)]
pub struct Message {
    /// Its header; the size is that of `body` and itself.
    pub header: Header,
    /// What follows the header.
    pub body: Vec<u8>,
    /// What came with it.
    pub fds: Vec<OwnedFd>,
}

impl Message {
    /// The structure at the beginning of the body, and the bytes behind it; None when the body is too short.
    pub fn read<T: FromBytes + KnownLayout + Immutable>(&self) -> Option<(T, &[u8])> {
        T::read_from_prefix(&self.body).ok()
    }
}

/// One end of a connection.
///
/// A file descriptor belongs to the message with whose bytes it was sent, so a read never goes past the end of the
/// current message.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
    /// The current message, header first; `have` bytes of it are here.
    bytes: Vec<u8>,
    have: usize,
    fds: Vec<OwnedFd>,
}

impl Connection {
    /// Over this socket, which becomes non-blocking.
    pub fn new(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Connection {
            socket,
            bytes: vec![0; HEADER],
            have: 0,
            fds: Vec::new(),
        })
    }

    /// The next message, if all of it is here. Never blocks.
    pub fn try_receive(&mut self) -> Result<Option<Message>, Error> {
        loop {
            if self.have == self.bytes.len()
                && let Some(message) = self.complete()?
            {
                return Ok(Some(message));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The next message; waits for it up to `timeout`.
    pub fn receive(&mut self, timeout: Duration) -> Result<Message, Error> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(message) = self.try_receive()? {
                return Ok(message);
            }
            self.wait(PollFlags::IN, end, timeout, "answer")?;
        }
    }

    /// Sends a message: `parts` one after another behind the header, whose size is set here. Waits up to `timeout` for
    /// a peer that does not read. After an error nothing more can be sent.
    pub fn send(
        &mut self,
        mut header: Header,
        parts: [&[u8]; 2],
        fds: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<(), Error> {
        let size = HEADER + parts[0].len() + parts[1].len();
        header.size = (size as u32).into();
        let end = Instant::now() + timeout;
        let (mut sent, mut fds) = (0, fds);
        while sent < size {
            let mut skip = sent;
            let left = [header.as_bytes(), parts[0], parts[1]].map(|part| {
                let from = skip.min(part.len());
                skip -= from;
                IoSlice::new(&part[from..])
            });
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(Error::TooManyFds { most: MAX_FDS });
            }
            match sendmsg(&self.socket, &left, &mut control, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    sent += count;
                    fds = &[];
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, end, timeout, "read")?,
                Err(Errno::INTR) => (),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Error::Closed),
                Err(source) => {
                    return Err(Error::Socket {
                        what: "send",
                        source,
                    });
                }
            }
        }
        Ok(())
    }

    /// What `bytes` begin, once they are all here: the message, or None when only its header was complete.
    fn complete(&mut self) -> Result<Option<Message>, Error> {
        // There are HEADER bytes at least.
        let Ok((header, _)) = Header::read_from_prefix(&self.bytes) else {
            return Ok(None);
        };
        let size = header.size.get() as usize;
        if !(HEADER..=MAX_MESSAGE).contains(&size) {
            return Err(Error::Size {
                size,
                least: HEADER,
                most: MAX_MESSAGE,
            });
        }
        if self.bytes.len() < size {
            self.bytes.resize(size, 0);
            return Ok(None);
        }
        let mut body = std::mem::replace(&mut self.bytes, vec![0; HEADER]);
        body.drain(..HEADER);
        self.have = 0;
        Ok(Some(Message {
            header,
            body,
            fds: std::mem::take(&mut self.fds),
        }))
    }

    /// Receives some of what is missing; false when there is nothing.
    fn fill(&mut self) -> Result<bool, Error> {
        // Room for one more than may come: that too many were sent is told from as many as allowed.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut iov = [IoSliceMut::new(&mut self.bytes[self.have..])];
        let received = recvmsg(
            &self.socket,
            &mut iov,
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        );
        let received = match received {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(Errno::CONNRESET) => return Err(self.end()),
            Err(source) => {
                return Err(Error::Socket {
                    what: "receive",
                    source,
                });
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if self.fds.len() > MAX_FDS || received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Error::TooManyFds { most: MAX_FDS });
        }
        if received.bytes == 0 {
            return Err(self.end());
        }
        self.have += received.bytes;
        Ok(true)
    }

    fn end(&self) -> Error {
        match self.have {
            0 => Error::Closed,
            bytes => Error::Partial(bytes),
        }
    }

    fn wait(
        &self,
        flags: PollFlags,
        end: Instant,
        timeout: Duration,
        what: &'static str,
    ) -> Result<(), Error> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Timeout {
                what,
                ms: timeout.as_millis(),
            });
        }
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&self.socket, flags)];
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(source) => Err(Error::Socket {
                what: "wait",
                source,
            }),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn pair() -> (Connection, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        (Connection::new(a).unwrap(), b)
    }

    fn header(size: u32) -> Header {
        Header {
            size: size.into(),
            ..Header::default()
        }
    }

    #[test]
    fn descriptors_stay_with_their_message() {
        let (mut a, b) = pair();
        let mut b = Connection::new(b).unwrap();
        let wait = Duration::from_secs(1);
        for count in [0, 1, MAX_FDS, 0] {
            let fds = vec![a.as_fd(); count];
            let fds: Vec<_> = fds
                .iter()
                .map(|fd| fd.try_clone_to_owned().unwrap())
                .collect();
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            let body = vec![count as u8; count * 1000];
            a.send(Header::default(), [b"ab", &body], &fds, wait)
                .unwrap();
        }
        for count in [0, 1, MAX_FDS, 0] {
            let message = b.receive(wait).unwrap();
            assert_eq!(message.fds.len(), count);
            assert_eq!(message.body.len(), 2 + count * 1000);
            assert!(message.body[2..].iter().all(|byte| *byte == count as u8));
        }
        assert!(b.try_receive().unwrap().is_none());
    }

    #[test]
    fn halves_wait_and_ends_are_told_apart() {
        let (mut a, mut b) = pair();
        b.write_all(&header(20).as_bytes()[..7]).unwrap();
        assert!(a.try_receive().unwrap().is_none());
        b.write_all(&header(20).as_bytes()[7..]).unwrap();
        b.write_all(b"abcd").unwrap();
        assert_eq!(a.try_receive().unwrap().unwrap().body, b"abcd");
        b.write_all(b"xyz").unwrap();
        drop(b);
        assert!(matches!(a.try_receive(), Err(Error::Partial(3))));
        let (mut a, b) = pair();
        drop(b);
        assert!(matches!(a.try_receive(), Err(Error::Closed)));
    }

    #[test]
    fn sizes_and_descriptors_are_bounded() {
        for size in [0, 15, MAX_MESSAGE as u32 + 1, u32::MAX] {
            let (mut a, mut b) = pair();
            b.write_all(header(size).as_bytes()).unwrap();
            assert!(matches!(a.try_receive(), Err(Error::Size { .. })), "{size}");
        }
        let (mut a, b) = pair();
        let files = [b.as_fd(); 40];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(40))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        sendmsg(&b, &[IoSlice::new(&[1])], &mut control, SendFlags::empty()).unwrap();
        assert!(matches!(a.try_receive(), Err(Error::TooManyFds { .. })));
    }

    #[test]
    fn a_peer_that_does_not_read_is_given_up() {
        let (mut a, _b) = pair();
        let body = vec![0; MAX_MESSAGE / 2];
        let error = loop {
            if let Err(error) = a.send(
                Header::default(),
                [&body, &[]],
                &[],
                Duration::from_millis(50),
            ) {
                break error;
            }
        };
        assert!(matches!(error, Error::Timeout { .. }));
    }
}
