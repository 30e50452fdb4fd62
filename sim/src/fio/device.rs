//! What runs the I/O: the few calls that the engine needs of a driver and the world around it.

/// Why a device cannot go on: a hang, a lost completion, a broken rule. Ends the run.
pub type DeviceError = Box<dyn std::error::Error + Send + Sync>;

use super::generator::Op;

/// A command for a device: an I/O, or the part of one that fits a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Comes back with the completion; unique among those in flight.
    pub id: u64,
    /// What it does.
    pub op: Op,
    /// LUN, from 0.
    pub lun: u32,
    /// First block, 512 bytes each; 0 for Flush.
    pub lba: u64,
    /// Blocks; 0 for Flush.
    pub blocks: u32,
}

/// A command's end.
#[derive(Debug)]
pub struct Completion<'a> {
    /// The command's.
    pub id: u64,
    /// NVMe status (SCT and SC, bits 10:0 of the status field); 0 is success.
    pub status: u16,
    /// What a Read brought, `blocks` x 512 bytes; empty for others.
    pub data: &'a [u8],
}

/// A change at a LUN while the jobs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Its depth, tags.
    Depth {
        /// LUN, from 0.
        lun: u32,
        /// Tags.
        depth: u32,
    },
    /// Its weight.
    Weight {
        /// LUN, from 0.
        lun: u32,
        /// Weight.
        weight: u32,
    },
}

/// Queues of virtual CPUs, and the time that passes around them. CPU c submits to queue c.
pub trait Device {
    /// Simulated time, ns; never goes back.
    fn now_ns(&self) -> u64;

    /// Writes a submission entry into CPU `cpu`'s queue; a Write's buffer is filled by `fill` (`blocks` x 512 bytes),
    /// which is called exactly once, and only when the command is taken; for others it is not called.
    /// Not visible to the card before [`Device::ring`]. False when the queue has no room for it.
    ///
    /// # Errors
    /// What ends the run.
    fn try_submit(
        &mut self,
        cpu: usize,
        command: &Command,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, DeviceError>;

    /// Rings the doorbell for what was submitted on this CPU since the last time.
    ///
    /// # Errors
    /// What ends the run.
    fn ring(&mut self, cpu: usize) -> Result<(), DeviceError>;

    /// Gives every completion that is visible on CPU `cpu`'s queue by now; lets no time pass.
    ///
    /// # Errors
    /// What ends the run.
    fn poll(&mut self, cpu: usize, each: &mut dyn FnMut(Completion<'_>))
    -> Result<(), DeviceError>;

    /// Lets time pass until `until_ns`, or until a completion may be visible if that is earlier. Must let some time pass.
    ///
    /// # Errors
    /// A hang: nothing completes although commands are outstanding; the error says what is stuck where.
    fn advance(&mut self, until_ns: Option<u64>) -> Result<(), DeviceError>;

    /// Changes a LUN's depth or weight.
    ///
    /// # Errors
    /// What ends the run.
    fn control(&mut self, control: Control) -> Result<(), DeviceError>;

    /// A LUN's executing commands and depth at this moment, for plots, without disturbing the run; None if not known.
    fn sample(&mut self, _lun: u32) -> Option<(u32, u32)> {
        None
    }
}

/// What the card counted for a LUN (log page C0h, and its depth and weight).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LunCardStats {
    /// Executing now.
    pub in_flight: u64,
    /// Most that ever executed at a time.
    pub peak: u64,
    /// Depth now.
    pub depth: u64,
    /// Weight now.
    pub weight: u64,
    /// Parked now.
    pub parked: u64,
    /// Commands admitted.
    pub admitted: u64,
    /// Commands completed.
    pub completed: u64,
    /// Commands that had to wait for the LUN's depth.
    pub deferred_depth: u64,
    /// Commands that had to wait for a tag.
    pub deferred_tags: u64,
    /// Commands that had to wait for the LUN's fair share.
    pub deferred_share: u64,
    /// Cycles that commands waited, summed.
    pub cycles_waited: u64,
    /// Bytes moved.
    pub bytes: u64,
}
