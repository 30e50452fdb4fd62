//! What the driver needs of a PCI function: registers, DMA memory, interrupts and time.

use crate::memory::Memory;

/// A PCI function whose BAR0 is an NVMe controller's. A handle: cheap to clone, every clone names the same function.
///
/// On hardware the back end is VFIO; in the simulator the card runs in the same thread, and advances only while the
/// driver waits in [`relax`](Pci::relax) or [`wait_interrupt`](Pci::wait_interrupt).
///
/// A function that is gone (pulled out, or a simulation that failed) reads all ones everywhere and ignores writes.
/// That, or time that advances, ends every loop of the driver.
pub trait Pci: Clone {
    /// DMA memory of this function; dropping it frees it.
    type Memory: Memory;

    /// Bytes of BAR0.
    fn bar0_len(&self) -> usize;

    /// Reads the 32-bit register at byte `offset` of BAR0, a multiple of 4.
    fn read32(&self, offset: usize) -> u32;

    /// Writes the 32-bit register at byte `offset` of BAR0, a multiple of 4, as one store, after every earlier store
    /// of this thread to DMA memory.
    fn write32(&self, offset: usize, value: u32);

    /// Allocates at least `len` bytes of zeroed DMA memory: page-aligned, whole pages, contiguous in IOVA space.
    fn alloc(&self, len: usize) -> Result<Self::Memory, AllocError>;

    /// Interrupt vectors the function has; 0 when there are none to wait for.
    fn vectors(&self) -> u16;

    /// True when `vector` was raised since the last call of this or of [`wait_interrupt`](Pci::wait_interrupt) for it.
    fn take_interrupt(&self, vector: u16) -> bool;

    /// As [`take_interrupt`](Pci::take_interrupt), but waits for the interrupt until [`now_ns`](Pci::now_ns) reaches
    /// `deadline_ns`.
    fn wait_interrupt(&self, vector: u16, deadline_ns: u64) -> bool;

    /// Called in every turn of a loop that waits: pauses or sleeps on hardware, advances time in the simulator.
    fn relax(&self);

    /// Nanoseconds since some fixed moment; simulated time in the simulator. Never decreases.
    fn now_ns(&self) -> u64;
}

/// DMA memory could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot allocate {bytes} bytes of DMA memory: {reason}")]
pub struct AllocError {
    /// Bytes asked for.
    pub bytes: usize,
    /// Why not.
    pub reason: String,
}
