//! The host end of the card's DMA: memory, and the addresses that are interrupts.

use std::ops::Range;

use crate::axi::Resp;
use crate::memory::{BadAccess, HostMemory};
use crate::slave::Target;

/// Writes here are message signalled interrupts (the x86 range, Intel SDM 3A 11.11).
pub const MSI_RANGE: Range<u64> = 0xfee0_0000..0xfef0_0000;
/// The address this host programs into every MSI-X table entry; the vector is in the data.
pub const MSI_ADDRESS: u64 = 0xfee0_0000;

/// Longest write, in bytes, that may be a completion entry (or four): a host that polls looks again after one.
const NOTICE_BYTES: usize = 64;

/// Memory and interrupts of the host. A [`Target`] for the zero-latency host.
#[derive(Debug, Default)]
pub struct Host {
    /// DMA memory.
    pub memory: HostMemory,
    /// Interrupts received and not yet taken, by vector.
    pending: Vec<u32>,
    received: u64,
    stray: u64,
    notices: u64,
}

impl Host {
    /// A host that listens to `vectors` MSI-X vectors.
    pub fn new(vectors: usize) -> Self {
        Host {
            pending: vec![0; vectors],
            ..Default::default()
        }
    }

    /// Takes the interrupts that vector `vector` has pending: how many came since the last call.
    pub fn take_interrupt(&mut self, vector: u16) -> u32 {
        self.pending
            .get_mut(usize::from(vector))
            .map_or(0, std::mem::take)
    }

    /// Is an interrupt of this vector pending?
    pub fn interrupt_pending(&self, vector: u16) -> bool {
        self.pending
            .get(usize::from(vector))
            .is_some_and(|count| *count > 0)
    }

    /// Vectors listened to.
    pub fn vectors(&self) -> usize {
        self.pending.len()
    }

    /// Interrupts received, of all vectors.
    pub fn interrupts(&self) -> u64 {
        self.received
    }

    /// Messages with data that names no vector, or of a length other than 4 bytes.
    pub fn stray_messages(&self) -> u64 {
        self.stray
    }

    /// Counts what a polling host would want to look at: interrupts, and writes as short as a completion entry.
    pub fn notices(&self) -> u64 {
        self.notices
    }

    /// Would a write of these bytes be taken? One that would not is recorded.
    pub fn accepts(&mut self, addr: u64, len: usize) -> bool {
        let taken = MSI_RANGE.contains(&addr) || self.memory.covers(addr, len);
        if !taken {
            self.memory.record(BadAccess {
                iova: addr,
                len,
                write: true,
            });
        }
        taken
    }

    /// A write by the card takes effect; false when no memory is there.
    pub fn deliver(&mut self, addr: u64, data: &[u8]) -> bool {
        if data.len() <= NOTICE_BYTES {
            self.notices += 1;
        }
        if !MSI_RANGE.contains(&addr) {
            return self.memory.write(addr, data);
        }
        let vector = data.try_into().map(u32::from_le_bytes).ok();
        match vector.and_then(|v| self.pending.get_mut(v as usize)) {
            Some(count) => {
                *count += 1;
                self.received += 1;
            }
            None => self.stray += 1,
        }
        true
    }
}

impl Target for Host {
    fn read(&mut self, addr: u64, out: &mut [u8]) -> Resp {
        if self.memory.read(addr, out) {
            Resp::Okay
        } else {
            Resp::SlvErr
        }
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> Resp {
        if self.deliver(addr, data) {
            Resp::Okay
        } else {
            Resp::DecErr
        }
    }

    fn latency(&mut self, _: u64, _: u64, _: u64, _: bool) -> u64 {
        0
    }
}
