//! The card as VFIO's PCI device: what each message does, and what it is answered.
//!
//! As with Linux's vfio-pci, the MSI-X table belongs to the device's host: a client gives eventfds, accesses to the table in
//! BAR0 read all ones and write nothing, and a vector without an eventfd is masked, so that its interrupt stays pending.
//! BAR0 answers whatever Memory Space Enable says: a client decides itself when a driver may reach it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use weir_nvme::registers::{BAR0_SIZE, msix};
use weir_vfio_user::version::{self, MAX_DMA_MAPS};
use weir_vfio_user::wire::{self, command, irq, region};
use weir_vfio_user::{Message, wire::command_name};
use zerocopy::IntoBytes;

use crate::config;
use crate::host::MSI_ADDRESS;
use crate::memory::foreign::{Access, MapError};
use crate::world::{World, WorldError};

/// Cycles in which a reset must end: what executes, at most the card's slots of 128 KiB, ends at a beat a cycle.
const RESET_CYCLES: u64 = 20_000_000;

/// Why a message cannot be answered as it wants: an errno, and words for the log.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The message is not what its command needs.
    #[error("{0}")]
    Invalid(String),
    /// It has no command that this device knows.
    #[error("not supported")]
    Unsupported,
    /// Memory could not be mapped or unmapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Not before the versions were exchanged, or twice.
    #[error("VFIO_USER_VERSION must be the first message, and only that")]
    Order,
    /// The simulation failed; nothing can be served any more.
    #[error(transparent)]
    World(#[from] WorldError),
}

impl Refusal {
    fn errno(&self) -> Errno {
        match self {
            Refusal::Invalid(_) => Errno::INVAL,
            Refusal::Unsupported => Errno::OPNOTSUPP,
            Refusal::Order => Errno::PROTO,
            Refusal::World(_) => Errno::IO,
            Refusal::Map(error) => match error {
                MapError::Overlap { .. } => Errno::EXIST,
                MapError::ReadOnly => Errno::ACCESS,
                MapError::Files | MapError::Maps(_) => Errno::NOSPC,
                MapError::NoMemory => Errno::NODEV,
                MapError::System(errno) => *errno,
                MapError::Range { .. } | MapError::Part { .. } | MapError::Short { .. } => {
                    Errno::INVAL
                }
            },
        }
    }
}

/// What a message is answered: the bytes behind the header, or an error.
pub struct Answer {
    /// Empty with an error.
    pub body: Vec<u8>,
    /// 0, or an errno.
    pub error: u32,
    /// For the log.
    pub refusal: Option<String>,
}

/// The device, with the world in which its card is.
pub struct Device {
    world: World,
    /// A place a vector.
    eventfds: Vec<Option<OwnedFd>>,
    interrupts: u64,
    greeted: bool,
}

impl Device {
    /// Around a world whose card was brought up ([`crate::run::bring_up`]); resets the function.
    pub fn new(world: World) -> Result<Self, WorldError> {
        let mut device = Device {
            world,
            eventfds: Vec::new(),
            interrupts: 0,
            greeted: false,
        };
        let vectors = device.world.host().vectors();
        device.eventfds.resize_with(vectors, || None);
        device.detach()?;
        Ok(device)
    }

    /// The world.
    pub fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// The client is gone: drops what it gave, and resets the function.
    pub fn detach(&mut self) -> Result<(), WorldError> {
        self.world.host().memory.foreign().clear();
        self.eventfds.iter_mut().for_each(|fd| *fd = None);
        self.greeted = false;
        self.world.function_level_reset();
        self.finish_reset()
    }

    /// Has the client exchanged versions?
    pub fn greeted(&self) -> bool {
        self.greeted
    }

    /// Is there anything for the card to do?
    pub fn busy(&self) -> bool {
        !self.world.quiet()
    }

    /// Lets `cycles` pass, or fewer when the card rests before, and raises interrupts.
    pub fn run(&mut self, cycles: u64) -> Result<(), WorldError> {
        let limit = self.world.cycle() + cycles;
        while self.busy() && self.world.cycle() < limit {
            self.world.advance(limit)?;
            self.raise();
        }
        Ok(())
    }

    /// Does what a message asks. An error is the simulation's: nothing can be served any more.
    pub fn handle(&mut self, message: &mut Message) -> Result<Answer, WorldError> {
        let refusal = match self.execute(message) {
            Ok(body) => {
                return Ok(Answer {
                    body,
                    error: 0,
                    refusal: None,
                });
            }
            Err(Refusal::World(error)) => return Err(error),
            Err(refusal) => refusal,
        };
        let name = command_name(message.header.command.get());
        Ok(Answer {
            body: Vec::new(),
            error: refusal.errno().raw_os_error() as u32,
            refusal: Some(format!("{name}: {refusal}")),
        })
    }

    fn execute(&mut self, message: &mut Message) -> Result<Vec<u8>, Refusal> {
        let number = message.header.command.get();
        if self.greeted == (number == command::VERSION) {
            return Err(Refusal::Order);
        }
        let mut fds = std::mem::take(&mut message.fds);
        match number {
            command::VERSION => self.version(read(message)?.0),
            command::DMA_MAP => self.dma_map(&read(message)?.0, fds.pop()),
            command::DMA_UNMAP => self.dma_unmap(read(message)?.0),
            command::DEVICE_GET_INFO => device_info(read(message)?.0),
            command::DEVICE_GET_REGION_INFO => region_info(read(message)?.0),
            command::DEVICE_GET_IRQ_INFO => self.irq_info(read(message)?.0),
            command::DEVICE_SET_IRQS => {
                let (set, data) = read(message)?;
                self.set_irqs(&set, data, fds)
            }
            command::REGION_READ => self.region_read(&read(message)?.0),
            command::REGION_WRITE => {
                let (access, data) = read(message)?;
                self.region_write(&access, data)
            }
            command::DEVICE_RESET => {
                self.world.function_level_reset();
                self.finish_reset()?;
                Ok(Vec::new())
            }
            _ => Err(Refusal::Unsupported),
        }
    }

    fn version(&mut self, said: wire::Version) -> Result<Vec<u8>, Refusal> {
        let (major, minor) = (said.major.get(), said.minor.get());
        if major != version::MAJOR {
            return invalid(format!("version {major}.{minor}, but this is 0.1"));
        }
        self.greeted = true;
        Ok(version::body(minor.min(version::MINOR)))
    }

    fn dma_map(&mut self, map: &wire::DmaMap, fd: Option<OwnedFd>) -> Result<Vec<u8>, Refusal> {
        let flags = map.flags.get();
        let access = Access {
            read: flags & wire::DMA_READ != 0,
            write: flags & wire::DMA_WRITE != 0,
        };
        let (iova, size, offset) = (map.iova.get(), map.size.get(), map.offset.get());
        let maps = self.world.host().memory.foreign();
        maps.map(iova, size, fd, offset, access, MAX_DMA_MAPS)?;
        Ok(Vec::new())
    }

    fn dma_unmap(&mut self, unmap: wire::DmaUnmap) -> Result<Vec<u8>, Refusal> {
        let maps = self.world.host().memory.foreign();
        match (unmap.flags.get(), unmap.iova.get(), unmap.size.get()) {
            (wire::UNMAP_ALL, 0, 0) => maps.clear(),
            (0, iova, size) => maps.unmap(iova, size)?,
            (flags, ..) => return invalid(format!("flags {flags:#x}")),
        }
        Ok(unmap.as_bytes().to_vec())
    }

    fn irq_info(&mut self, ask: wire::IrqInfo) -> Result<Vec<u8>, Refusal> {
        let (flags, count) = match ask.index.get() {
            irq::MSIX => (
                wire::IRQ_EVENTFD | wire::IRQ_NORESIZE,
                self.eventfds.len() as u32,
            ),
            index if index < irq::COUNT => (0, 0),
            index => return invalid(format!("no interrupt has index {index}")),
        };
        let info = wire::IrqInfo {
            argsz: (size_of::<wire::IrqInfo>() as u32).into(),
            flags: flags.into(),
            index: ask.index,
            count: count.into(),
        };
        Ok(info.as_bytes().to_vec())
    }

    fn set_irqs(
        &mut self,
        set: &wire::SetIrqs,
        data: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<Vec<u8>, Refusal> {
        let (start, count) = (set.start.get() as usize, set.count.get() as usize);
        let vectors = if set.index.get() == irq::MSIX {
            self.eventfds.len()
        } else {
            0
        };
        let Some(end) = start.checked_add(count).filter(|end| *end <= vectors) else {
            return invalid(format!(
                "interrupts {start} to {}+{count} of index {}, which has {vectors}",
                start, set.index
            ));
        };
        const TRIGGER: u32 = wire::SET_ACTION_TRIGGER;
        match set.flags.get() {
            flags if flags == TRIGGER | wire::SET_DATA_NONE && count == 0 => {
                self.set_eventfds(0..vectors, Vec::new())?;
            }
            flags if flags == TRIGGER | wire::SET_DATA_NONE => {
                (start..end).for_each(|vector| self.trigger(vector));
            }
            flags if flags == TRIGGER | wire::SET_DATA_BOOL && data.len() >= count => {
                for (vector, _) in (start..end).zip(data).filter(|(_, on)| **on != 0) {
                    self.trigger(vector);
                }
            }
            flags if flags == TRIGGER | wire::SET_DATA_EVENTFD => {
                if !fds.is_empty() && fds.len() != count {
                    return invalid(format!("{} eventfds for {count} vectors", fds.len()));
                }
                if !fds.iter().all(is_eventfd) {
                    return invalid("a file descriptor is no eventfd".into());
                }
                self.set_eventfds(start..end, fds)?;
            }
            flags => return invalid(format!("flags {flags:#x} with {} bytes", data.len())),
        }
        Ok(Vec::new())
    }

    /// Sets the eventfds of `vectors`, or with none takes them away.
    fn set_eventfds(
        &mut self,
        vectors: std::ops::Range<usize>,
        fds: Vec<OwnedFd>,
    ) -> Result<(), WorldError> {
        let mut fds = fds.into_iter();
        for vector in vectors {
            self.eventfds[vector] = fds.next();
            self.set_entry(vector);
        }
        self.enable_msix();
        // The table's entries are in place before the client is told so.
        self.world.read_register(msix::TABLE as u32)?;
        self.raise();
        Ok(())
    }

    /// Writes a vector's entry of the MSI-X table: masked when nobody listens.
    fn set_entry(&mut self, vector: usize) {
        let masked = self.eventfds[vector].is_none();
        let entry = (msix::TABLE + 16 * vector) as u32;
        self.world.write_register(entry, MSI_ADDRESS as u32);
        self.world
            .write_register(entry + 4, (MSI_ADDRESS >> 32) as u32);
        self.world.write_register(entry + 8, vector as u32);
        self.world.write_register(entry + 12, masked.into());
    }

    /// MSI-X is on while any vector has an eventfd, as with vfio-pci.
    fn enable_msix(&mut self) {
        let on = self.eventfds.iter().any(Option::is_some);
        let mut control = [0; 2];
        self.world.read_config(config::MSIX + 2, &mut control);
        let old = u16::from_le_bytes(control);
        let new = match on {
            true => old | config::MSIX_ENABLE,
            false => old & !config::MSIX_ENABLE,
        };
        if new != old {
            self.world
                .write_config(config::MSIX + 2, &new.to_le_bytes());
        }
    }

    /// Hands the interrupts that have arrived to their eventfds.
    fn raise(&mut self) {
        if self.world.host().interrupts() == self.interrupts {
            return;
        }
        self.interrupts = self.world.host().interrupts();
        for vector in 0..self.eventfds.len() {
            if self.world.host().take_interrupt(vector as u16) > 0 {
                self.trigger(vector);
            }
        }
    }

    /// Signals a vector's eventfd, if it has one that can take it: a client that fills the counter of its own eventfd
    /// has been signalled already.
    fn trigger(&self, vector: usize) {
        let Some(fd) = &self.eventfds[vector] else {
            return;
        };
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if poll(&mut [PollFd::new(fd, PollFlags::OUT)], Some(&now)) == Ok(1) {
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }

    fn region_read(&mut self, access: &wire::RegionAccess) -> Result<Vec<u8>, Refusal> {
        let (offset, count) = inside(access)?;
        let mut body = access.as_bytes().to_vec();
        let from = body.len();
        body.resize(from + count, 0);
        let out = &mut body[from..];
        if access.region.get() == region::CONFIG {
            self.world.read_config(offset, out);
            return Ok(body);
        }
        let mut at = 0;
        while at < count {
            let (register, byte, bytes) = register(offset + at, count - at);
            let value = match self.is_table(register) {
                true => u32::MAX,
                false => self.world.read_register(register as u32)?,
            };
            out[at..at + bytes].copy_from_slice(&value.to_le_bytes()[byte..byte + bytes]);
            at += bytes;
        }
        // Time has passed.
        self.raise();
        Ok(body)
    }

    fn region_write(
        &mut self,
        access: &wire::RegionAccess,
        data: &[u8],
    ) -> Result<Vec<u8>, Refusal> {
        let (offset, count) = inside(access)?;
        if data.len() != count {
            return invalid(format!("{} bytes of data, not {count}", data.len()));
        }
        if access.region.get() == region::CONFIG {
            self.world.write_config(offset, data);
            if self.world.input().flr {
                self.finish_reset()?;
            }
            return Ok(access.as_bytes().to_vec());
        }
        let mut at = 0;
        while at < count {
            let (register, byte, bytes) = register(offset + at, count - at);
            if !self.is_table(register) {
                let mut value = [0; 4];
                value[byte..byte + bytes].copy_from_slice(&data[at..at + bytes]);
                let strobe = (((1 << bytes) - 1) << byte) as u8;
                let value = u32::from_le_bytes(value);
                self.world
                    .write_register_bytes(register as u32, value, strobe);
            }
            at += bytes;
        }
        Ok(access.as_bytes().to_vec())
    }

    fn is_table(&self, register: usize) -> bool {
        (msix::TABLE..msix::TABLE + 16 * self.eventfds.len()).contains(&register)
    }

    /// Waits until the reset that was started is over, and gives the vectors back their entries.
    fn finish_reset(&mut self) -> Result<(), WorldError> {
        if !self.world.settle(RESET_CYCLES)? {
            return Err(WorldError::Reset {
                cycles: RESET_CYCLES,
                state: self.world.state(),
            });
        }
        // What was raised before the reset is of no interest after it.
        for vector in 0..self.eventfds.len() {
            self.world.host().take_interrupt(vector as u16);
        }
        self.interrupts = self.world.host().interrupts();
        if self.eventfds.iter().any(Option::is_some) {
            for vector in 0..self.eventfds.len() {
                self.set_entry(vector);
            }
            self.enable_msix();
        }
        Ok(())
    }
}

fn invalid<T>(problem: String) -> Result<T, Refusal> {
    Err(Refusal::Invalid(problem))
}

fn read<T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable>(
    message: &Message,
) -> Result<(T, &[u8]), Refusal> {
    let short = || {
        Refusal::Invalid(format!(
            "{} bytes behind the header, but {} belong there",
            message.body.len(),
            size_of::<T>()
        ))
    };
    message.read().ok_or_else(short)
}

fn device_info(ask: wire::DeviceInfo) -> Result<Vec<u8>, Refusal> {
    let size = size_of::<wire::DeviceInfo>() as u32;
    if ask.argsz.get() < size {
        return invalid(format!("argsz {} is below {size}", ask.argsz));
    }
    let info = wire::DeviceInfo {
        argsz: size.into(),
        flags: (wire::DEVICE_PCI | wire::DEVICE_RESET).into(),
        regions: region::COUNT.into(),
        irqs: irq::COUNT.into(),
    };
    Ok(info.as_bytes().to_vec())
}

fn region_info(ask: wire::RegionInfo) -> Result<Vec<u8>, Refusal> {
    let index = ask.index.get();
    if index >= region::COUNT {
        return invalid(format!("no region has index {index}"));
    }
    let size = region_size(index);
    let flags = match size {
        0 => 0,
        _ => wire::REGION_READ | wire::REGION_WRITE,
    };
    let info = wire::RegionInfo {
        argsz: (size_of::<wire::RegionInfo>() as u32).into(),
        flags: flags.into(),
        index: ask.index,
        cap_offset: 0.into(),
        size: (size as u64).into(),
        offset: 0.into(),
    };
    Ok(info.as_bytes().to_vec())
}

fn region_size(index: u32) -> usize {
    match index {
        region::BAR0 => BAR0_SIZE,
        region::CONFIG => config::SIZE,
        _ => 0,
    }
}

/// First byte and count of an access that is inside its region.
fn inside(access: &wire::RegionAccess) -> Result<(usize, usize), Refusal> {
    let (offset, count) = (access.offset.get(), access.count.get());
    let size = region_size(access.region.get());
    match offset.checked_add(count.into()) {
        Some(end) if end <= size as u64 => Ok((offset as usize, count as usize)),
        _ => invalid(format!(
            "{count} bytes at {offset:#x} of region {}, which has {size:#x}",
            access.region
        )),
    }
}

/// The register that byte `offset` is in, which of its bytes that is, and how many of the `left` bytes are in it.
fn register(offset: usize, left: usize) -> (usize, usize, usize) {
    let byte = offset % 4;
    (offset - byte, byte, left.min(4 - byte))
}

/// Only an eventfd is known to take a write at once when it says that it can.
fn is_eventfd(fd: &OwnedFd) -> bool {
    use std::os::fd::AsRawFd;
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()));
    link.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}
