//! A driver's end: one request at a time, each answered before the next.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::connection::{Connection, MAX_FDS, Message};
use crate::error::Error;
use crate::version::{self, Capabilities};
use crate::wire::{self, Header, command};

/// What a device may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permissions {
    /// Read only.
    Read,
    /// Read and write.
    ReadWrite,
}

/// A connection to a device, after the versions were exchanged.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    peer: Capabilities,
    id: u16,
    timeout: Duration,
}

impl Client {
    /// Connects to the server at `path`, and gives it `timeout` for each answer.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, Error> {
        let connect = |source| Error::Connect {
            path: path.into(),
            source,
        };
        let socket = UnixStream::connect(path).map_err(connect)?;
        Self::new(Connection::new(socket).map_err(connect)?, timeout)
    }

    /// Exchanges versions over a fresh connection.
    pub fn new(connection: Connection, timeout: Duration) -> Result<Self, Error> {
        let mut client = Client {
            connection,
            peer: Capabilities::default(),
            id: 0,
            timeout,
        };
        let reply = client.request(command::VERSION, [&version::body(version::MINOR), &[]], &[])?;
        let (version, data) = body::<wire::Version>(&reply)?;
        let (major, minor) = (version.major.get(), version.minor.get());
        if major != version::MAJOR || minor > version::MINOR {
            return Err(Error::Version { major, minor });
        }
        client.peer = Capabilities::read(data);
        Ok(client)
    }

    /// What the device has.
    pub fn device_info(&mut self) -> Result<wire::DeviceInfo, Error> {
        let ask = wire::DeviceInfo {
            argsz: (size_of::<wire::DeviceInfo>() as u32).into(),
            ..Default::default()
        };
        let reply = self.request(command::DEVICE_GET_INFO, [ask.as_bytes(), &[]], &[])?;
        Ok(body(&reply)?.0)
    }

    /// Size and flags of region `index`.
    pub fn region_info(&mut self, index: u32) -> Result<wire::RegionInfo, Error> {
        let ask = wire::RegionInfo {
            argsz: (size_of::<wire::RegionInfo>() as u32).into(),
            index: index.into(),
            ..Default::default()
        };
        let reply = self.request(command::DEVICE_GET_REGION_INFO, [ask.as_bytes(), &[]], &[])?;
        Ok(body(&reply)?.0)
    }

    /// Number and flags of interrupts of kind `index`.
    pub fn irq_info(&mut self, index: u32) -> Result<wire::IrqInfo, Error> {
        let ask = wire::IrqInfo {
            argsz: (size_of::<wire::IrqInfo>() as u32).into(),
            index: index.into(),
            ..Default::default()
        };
        let reply = self.request(command::DEVICE_GET_IRQ_INFO, [ask.as_bytes(), &[]], &[])?;
        Ok(body(&reply)?.0)
    }

    /// Reads `out.len()` bytes of region `index` from byte `offset` on.
    pub fn region_read(&mut self, index: u32, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let ask = access(index, offset, out.len());
        let reply = self.request(command::REGION_READ, [ask.as_bytes(), &[]], &[])?;
        let (_, data) = body::<wire::RegionAccess>(&reply)?;
        if data.len() != out.len() {
            return Err(Error::Reply {
                command: command::REGION_READ,
                problem: format!("{} bytes, not {}", data.len(), out.len()),
            });
        }
        out.copy_from_slice(data);
        Ok(())
    }

    /// Writes `data` to region `index` from byte `offset` on; done when this returns.
    pub fn region_write(&mut self, index: u32, offset: u64, data: &[u8]) -> Result<(), Error> {
        let ask = access(index, offset, data.len());
        self.request(command::REGION_WRITE, [ask.as_bytes(), data], &[])?;
        Ok(())
    }

    /// As [`Client::region_write`], posted as PCIe's writes are: this returns at once, and whether the server could do
    /// it is never known. Later accesses come after it.
    pub fn region_post(&mut self, index: u32, offset: u64, data: &[u8]) -> Result<(), Error> {
        let ask = access(index, offset, data.len());
        let header = self.header(command::REGION_WRITE, wire::NO_REPLY);
        self.connection
            .send(header, [ask.as_bytes(), data], &[], self.timeout)
    }

    /// Lets the device access `size` bytes of the file `fd`, from byte `offset` on, at `iova`. All three are multiples of
    /// 4096.
    pub fn dma_map(
        &mut self,
        fd: BorrowedFd<'_>,
        offset: u64,
        iova: u64,
        size: u64,
        permissions: Permissions,
    ) -> Result<(), Error> {
        let flags = match permissions {
            Permissions::Read => wire::DMA_READ,
            Permissions::ReadWrite => wire::DMA_READ | wire::DMA_WRITE,
        };
        let ask = wire::DmaMap {
            argsz: (size_of::<wire::DmaMap>() as u32).into(),
            flags: flags.into(),
            offset: offset.into(),
            iova: iova.into(),
            size: size.into(),
        };
        self.request(command::DMA_MAP, [ask.as_bytes(), &[]], &[fd])?;
        Ok(())
    }

    /// Takes all maps inside `iova..iova + size` away from the device.
    pub fn dma_unmap(&mut self, iova: u64, size: u64) -> Result<(), Error> {
        let ask = wire::DmaUnmap {
            argsz: (size_of::<wire::DmaUnmap>() as u32).into(),
            flags: 0.into(),
            iova: iova.into(),
            size: size.into(),
        };
        self.request(command::DMA_UNMAP, [ask.as_bytes(), &[]], &[])?;
        Ok(())
    }

    /// Has MSI-X vectors from `start` on raise these eventfds.
    pub fn set_msix(&mut self, start: u32, eventfds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let most = self.peer.max_msg_fds.clamp(1, MAX_FDS);
        for (n, fds) in eventfds.chunks(most).enumerate() {
            self.set_irqs(start + (n * most) as u32, fds.len() as u32, fds)?;
        }
        Ok(())
    }

    /// Takes the eventfds of `count` MSI-X vectors from `start` on away.
    pub fn clear_msix(&mut self, start: u32, count: u32) -> Result<(), Error> {
        self.set_irqs(start, count, &[])
    }

    fn set_irqs(&mut self, start: u32, count: u32, fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let ask = wire::SetIrqs {
            argsz: (size_of::<wire::SetIrqs>() as u32).into(),
            flags: (wire::SET_DATA_EVENTFD | wire::SET_ACTION_TRIGGER).into(),
            index: wire::irq::MSIX.into(),
            start: start.into(),
            count: count.into(),
        };
        self.request(command::DEVICE_SET_IRQS, [ask.as_bytes(), &[]], fds)?;
        Ok(())
    }

    /// Resets the function.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.request(command::DEVICE_RESET, [&[], &[]], &[])?;
        Ok(())
    }

    fn header(&mut self, command: u16, flags: u32) -> Header {
        self.id = self.id.wrapping_add(1);
        Header {
            id: self.id.into(),
            command: command.into(),
            flags: (wire::TYPE_COMMAND | flags).into(),
            ..Header::default()
        }
    }

    fn request(
        &mut self,
        command: u16,
        parts: [&[u8]; 2],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Message, Error> {
        let header = self.header(command, 0);
        self.connection.send(header, parts, fds, self.timeout)?;
        loop {
            let reply = self.connection.receive(self.timeout)?;
            let got = reply.header;
            if got.flags.get() & wire::TYPE_MASK == wire::TYPE_COMMAND {
                // A server asks for memory without a file descriptor, of which there is none.
                let refusal = Header {
                    flags: (wire::TYPE_REPLY | wire::ERROR).into(),
                    error: (Errno::OPNOTSUPP.raw_os_error() as u32).into(),
                    ..got
                };
                self.connection
                    .send(refusal, [&[], &[]], &[], self.timeout)?;
                continue;
            }
            if (got.id, got.command) != (header.id, header.command) {
                return Err(Error::Reply {
                    command,
                    problem: format!("the reply is to {}", wire::command_name(got.command.get())),
                });
            }
            if got.flags.get() & wire::ERROR != 0 {
                return Err(Error::Refused {
                    command,
                    errno: got.error.get(),
                });
            }
            return Ok(reply);
        }
    }
}

fn access(index: u32, offset: u64, count: usize) -> wire::RegionAccess {
    wire::RegionAccess {
        offset: offset.into(),
        region: index.into(),
        count: (count as u32).into(),
    }
}

fn body<T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable>(
    reply: &Message,
) -> Result<(T, &[u8]), Error> {
    reply.read().ok_or_else(|| Error::Reply {
        command: reply.header.command.get(),
        problem: format!("{} bytes are too few", reply.body.len()),
    })
}
