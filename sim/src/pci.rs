//! The simulated card as the driver's PCI function. DMA memory is the one place with `unsafe` here: the driver's trait
//! for it promises what raw pointers need.
#![allow(unsafe_code)]

use std::cell::{Ref, RefCell, RefMut};
use std::ptr::NonNull;
use std::rc::Rc;

use weir_driver::{AllocError, Memory, Pci};
use weir_nvme::registers::{ALL_ONES, BAR0_SIZE};

use crate::device::Clock;
use crate::fio::DeviceError;
use crate::memory::PAGE;
use crate::time::{CYCLE_NS, cycles};
use crate::world::{World, WorldError};

/// What a turn of a waiting loop costs, ns of simulated time, when nothing happens before.
const RELAX_NS: u64 = 100;

struct Shared {
    world: RefCell<World>,
    error: RefCell<Option<WorldError>>,
}

/// A handle of the simulated function; clones name the same one. One thread.
///
/// When the simulation fails, registers read all ones from then on, time goes on, and [`SimPci::take_error`] says why.
#[derive(Clone)]
pub struct SimPci {
    shared: Rc<Shared>,
    /// Time that passes after a failure, so that the driver's timeouts end its loops.
    after: Rc<std::cell::Cell<u64>>,
}

impl SimPci {
    /// Wraps a world whose card is out of reset and enabled ([`World::enable_function`]).
    pub fn new(world: World) -> Self {
        let shared = Shared {
            world: RefCell::new(world),
            error: RefCell::new(None),
        };
        SimPci {
            shared: Rc::new(shared),
            after: Rc::default(),
        }
    }

    /// The world, to look at.
    pub fn world(&self) -> Ref<'_, World> {
        self.shared.world.borrow()
    }

    /// The world, to change. Must not live across a call of the driver.
    pub fn world_mut(&self) -> RefMut<'_, World> {
        self.shared.world.borrow_mut()
    }

    /// Why the simulation failed, once.
    pub fn take_error(&self) -> Option<WorldError> {
        self.shared.error.borrow_mut().take()
    }

    /// Advances to `until_ns` at most; true when it stopped before, because there may be completions or interrupts.
    pub fn advance(&self, until_ns: u64) -> bool {
        let limit = cycles(until_ns);
        let result = self.world_mut().advance(limit);
        self.keep(result).unwrap_or_else(|| {
            self.after.set(self.after.get() + RELAX_NS);
            false
        })
    }

    fn keep<T>(&self, result: Result<T, WorldError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            // Only repeats what was said when it failed.
            Err(WorldError::Failed) => None,
            Err(error) => {
                self.shared.error.borrow_mut().get_or_insert(error);
                None
            }
        }
    }
}

impl Clock for SimPci {
    fn pass(&mut self, until_ns: u64) -> Result<(), DeviceError> {
        self.advance(until_ns);
        match self.take_error() {
            Some(error) => Err(error.into()),
            None if self.world().failed() => Err(WorldError::Failed.into()),
            None => Ok(()),
        }
    }

    fn watch(&mut self, outstanding: u64, progress: bool) {
        self.world_mut().watch(outstanding, progress);
    }

    fn lun(&self, lun: u32) -> Option<(u32, u32)> {
        self.world().lun(lun)
    }
}

impl Pci for SimPci {
    type Memory = SimMemory;

    fn bar0_len(&self) -> usize {
        BAR0_SIZE
    }

    fn read32(&self, offset: usize) -> u32 {
        let result = self.world_mut().read_register(offset as u32);
        self.keep(result).unwrap_or(ALL_ONES)
    }

    fn write32(&self, offset: usize, value: u32) {
        self.world_mut().write_register(offset as u32, value);
    }

    fn alloc(&self, len: usize) -> Result<SimMemory, AllocError> {
        let allocated = self.world_mut().host().memory.allocate(len);
        let (iova, pointer) = allocated.map_err(|e| AllocError {
            bytes: len,
            reason: e.to_string(),
        })?;
        let ptr = NonNull::new(pointer).ok_or_else(|| AllocError {
            bytes: len,
            reason: "the allocator gave no memory".into(),
        })?;
        Ok(SimMemory {
            shared: self.shared.clone(),
            ptr,
            iova,
            len: len.next_multiple_of(PAGE),
        })
    }

    fn vectors(&self) -> u16 {
        self.world_mut().host().vectors() as u16
    }

    fn take_interrupt(&self, vector: u16) -> bool {
        self.world_mut().host().take_interrupt(vector) > 0
    }

    fn wait_interrupt(&self, vector: u16, deadline_ns: u64) -> bool {
        loop {
            if self.take_interrupt(vector) {
                return true;
            }
            if self.now_ns() >= deadline_ns {
                return false;
            }
            self.advance(deadline_ns);
        }
    }

    fn relax(&self) {
        let until = self.world().now_ns() + RELAX_NS;
        self.advance(until);
    }

    fn now_ns(&self) -> u64 {
        self.world().cycle() * CYCLE_NS + self.after.get()
    }
}

/// DMA memory of the simulated host; dropping it unmaps it.
pub struct SimMemory {
    shared: Rc<Shared>,
    ptr: NonNull<u8>,
    iova: u64,
    len: usize,
}

// SAFETY: `ptr` and `len` are those of one allocation of `HostMemory`, page-aligned, zeroed and whole pages, which lives
// until `drop` frees it and which `HostMemory` hands out once. The world reaches it by raw copies only, in the same
// thread, at the IOVA returned with it.
unsafe impl Memory for SimMemory {
    fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    fn len(&self) -> usize {
        self.len
    }

    fn iova(&self) -> u64 {
        self.iova
    }
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        // Nothing to do when the world is borrowed: that is a panic in a step, and the memory goes with the world.
        if let Ok(mut world) = self.shared.world.try_borrow_mut() {
            let _ = world.host().memory.free(self.iova);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axi::Shape;
    use crate::fake::{FakeCard, Flaw};
    use crate::media::Media;
    use crate::time::Latency;
    use crate::world::WorldConfig;

    fn pci(flaw: Flaw) -> SimPci {
        let config = WorldConfig {
            link: "gen3x8".parse().unwrap(),
            vectors: 4,
            ..WorldConfig::new(Media::equal_luns(1, 8, Latency::Fixed(0)))
        };
        let shape = Shape {
            data_bytes: 32,
            id_bits: 4,
        };
        let mut world = World::new(Box::new(FakeCard::new(shape, flaw)), &config).unwrap();
        world.reset(2).unwrap();
        SimPci::new(world)
    }

    #[test]
    fn registers_memory_interrupts_and_time() {
        let pci = pci(Flaw::None);
        pci.world_mut().enable_function().unwrap();
        pci.write32(0x24, 5);
        assert_eq!(pci.read32(0x24), 5);
        let table = pci.alloc(100).unwrap();
        assert_eq!(table.len(), PAGE);
        // A copy from media, its descriptor written through the pointer that a driver has.
        let iova = table.iova();
        for (n, word) in [0, 0, iova + 1024, 512, iova + 2048, 77, 0, 0]
            .into_iter()
            .enumerate()
        {
            // SAFETY: eight aligned words inside the page, and no reference to it exists.
            unsafe { table.ptr().cast::<u64>().add(n).write_volatile(word) };
        }
        pci.write32(0x28, iova as u32);
        pci.write32(0x2c, (iova >> 32) as u32);
        pci.write32(0x1000, 0);
        assert!(!pci.take_interrupt(1));
        let start = pci.now_ns();
        assert!(pci.wait_interrupt(1, start + 100_000));
        assert!((1000..3000).contains(&(pci.now_ns() - start)));
        // SAFETY: inside the page, aligned, no reference.
        let completion = unsafe { table.ptr().cast::<u64>().add(2048 / 8).read_volatile() };
        assert_eq!(completion, 77);
        assert!(!pci.wait_interrupt(1, pci.now_ns() + 1000));
        drop(table);
        assert!(!pci.world_mut().host().memory.covers(iova, 1));
        assert!(pci.take_error().is_none());
    }

    #[test]
    fn a_failed_world_reads_all_ones_and_time_goes_on() {
        let pci = pci(Flaw::Mute);
        assert_eq!(pci.read32(0x1c), ALL_ONES);
        assert!(matches!(
            pci.take_error(),
            Some(WorldError::NoAnswer { .. })
        ));
        let before = pci.now_ns();
        pci.relax();
        assert!(pci.now_ns() > before);
        assert!(!pci.wait_interrupt(0, before + 10_000));
        assert_eq!(pci.read32(0), ALL_ONES);
        pci.write32(0, 0);
    }
}
