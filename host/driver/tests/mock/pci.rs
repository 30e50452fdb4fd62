//! The model as the driver sees it: a [`Pci`] that steps it whenever the driver relaxes.

use super::device::{Device, Fault};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use weir_driver::nvme::PAGE_SIZE;
use weir_driver::nvme::registers::BAR0_SIZE;
use weir_driver::{AllocError, Memory, Pci};

/// The mock as the driver sees it.
#[derive(Clone)]
pub struct MockPci(Arc<Mutex<Device>>);

impl MockPci {
    pub fn new(luns: u32, blocks: u64) -> MockPci {
        MockPci(Arc::new(Mutex::new(Device::new(luns, blocks))))
    }

    pub fn device(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap()
    }

    pub fn fault(&self, fault: Fault) {
        self.device().faults.push(fault);
    }

    pub fn heal(&self) {
        self.device().faults.clear();
    }

    /// Allocations that are alive.
    pub fn allocations(&self) -> usize {
        self.device().memory.len()
    }

    pub fn violations(&self) -> Vec<String> {
        self.device().violations.clone()
    }
}

impl Pci for MockPci {
    type Memory = MockMemory;

    fn bar0_len(&self) -> usize {
        BAR0_SIZE
    }

    fn read32(&self, offset: usize) -> u32 {
        self.device().read32(offset)
    }

    fn write32(&self, offset: usize, value: u32) {
        self.device().write32(offset, value);
    }

    fn alloc(&self, len: usize) -> Result<MockMemory, AllocError> {
        let len = len.next_multiple_of(PAGE_SIZE);
        if len == 0 || len > 1 << 30 {
            return Err(AllocError {
                bytes: len,
                reason: "not 1 byte to 1 GiB".into(),
            });
        }
        let layout = Layout::from_size_align(len, PAGE_SIZE).unwrap();
        // SAFETY: `len` is not 0.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
        let mut device = self.device();
        let iova = device.next_iova;
        // A page that nobody may reach after each allocation.
        device.next_iova += (len + PAGE_SIZE) as u64;
        device.memory.insert(iova, (ptr.as_ptr() as usize, len));
        Ok(MockMemory {
            ptr,
            layout,
            iova,
            pci: self.clone(),
        })
    }

    fn vectors(&self) -> u16 {
        9
    }

    fn take_interrupt(&self, vector: u16) -> bool {
        self.device().vectors.insert(vector, false).unwrap_or(false)
    }

    fn wait_interrupt(&self, vector: u16, deadline_ns: u64) -> bool {
        while !self.take_interrupt(vector) {
            if self.now_ns() >= deadline_ns {
                return false;
            }
            self.relax();
        }
        true
    }

    fn relax(&self) {
        self.device().step();
    }

    fn now_ns(&self) -> u64 {
        // Long waits should not take long here.
        let mut device = self.device();
        device.now_ns += 10_000;
        device.now_ns
    }
}

pub struct MockMemory {
    ptr: NonNull<u8>,
    layout: Layout,
    iova: u64,
    pci: MockPci,
}

// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for MockMemory {}
// SAFETY: as above; all of it is read only.
unsafe impl Sync for MockMemory {}

// SAFETY: zeroed, page-aligned memory of its own, at a fixed place until it is dropped.
unsafe impl Memory for MockMemory {
    fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    fn len(&self) -> usize {
        self.layout.size()
    }

    fn iova(&self) -> u64 {
        self.iova
    }
}

impl Drop for MockMemory {
    fn drop(&mut self) {
        self.pci.device().memory.remove(&self.iova);
        // SAFETY: allocated with this layout, and the device can no longer reach it.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}
