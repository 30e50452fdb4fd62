//! What a run found.

use std::fmt;

use weir_nvme::StatusCode;

use super::device::LunCardStats;
use super::expect::Mismatch;
use super::generator::Io;
use super::stats::Stats;

/// One job instance's share.
#[derive(Clone, Debug)]
pub struct InstanceResult {
    /// Whether its turn came at all.
    pub started: bool,
    /// Its end, from the start of the run, simulated ns.
    pub elapsed_ns: u64,
    /// Its statistics, without the ramp.
    pub stats: Stats,
}

/// A LUN at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LunSample {
    /// From the start of the run, simulated ns.
    pub at_ns: u64,
    /// Commands between submission and completion, as the host sees it.
    pub outstanding: u32,
    /// Commands executing on the card, where the device tells.
    pub executing: Option<u32>,
    /// Depth, where the device tells.
    pub depth: Option<u32>,
}

/// One LUN's share.
#[derive(Clone, Debug)]
pub struct LunResult {
    /// The file name that it stands for.
    pub filename: String,
    /// Capacity, 512-byte blocks.
    pub blocks: u64,
    /// Statistics of all jobs on it.
    pub stats: Stats,
    /// Most commands between submission and completion.
    pub peak_outstanding: u32,
    /// Over time.
    pub samples: Vec<LunSample>,
    /// What the card counted; whoever owns the card fills it in.
    pub card: Option<LunCardStats>,
}

/// A command that the card failed.
#[derive(Clone, Debug)]
pub struct FailedIo {
    /// Job.
    pub job: String,
    /// The I/O that it was of.
    pub io: Io,
    /// NVMe status, SCT and SC.
    pub status: u16,
    /// When that was seen, from the start of the run, simulated ns.
    pub at_ns: u64,
}

impl fmt::Display for FailedIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Io {
            op,
            lun,
            lba,
            blocks,
            ..
        } = self.io;
        let status = StatusCode(self.status);
        let (job, at_ns) = (&self.job, self.at_ns);
        write!(
            f,
            "LUN {lun}, LBA {lba}, {blocks} blocks: {op:?} of job {job} failed at {at_ns} ns with status {:#05x}, {status:?}",
            self.status
        )
    }
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Results {
    /// By instance, as in the plan.
    pub instances: Vec<InstanceResult>,
    /// By LUN, as in the plan.
    pub luns: Vec<LunResult>,
    /// Simulated ns from start to end.
    pub elapsed_ns: u64,
    /// Part of the time that each CPU was busy, 0 to 1; empty when the host costs nothing.
    pub cpu_busy: Vec<f64>,
    /// The first wrong blocks.
    pub mismatches: Vec<Mismatch>,
    /// The first commands that failed.
    pub failures: Vec<FailedIo>,
    /// Changes (`--at`) whose time the run did not reach.
    pub events_left: usize,
    /// Whether the run ended at its count of I/Os.
    pub ios_reached: bool,
}

impl Results {
    /// All instances together.
    pub fn total(&self) -> Stats {
        let mut total = Stats::default();
        for instance in &self.instances {
            total.merge(&instance.stats);
        }
        total
    }

    /// No wrong block and no I/O that failed.
    pub fn is_good(&self) -> bool {
        let total = self.total();
        total.mismatches == 0 && total.errors() == 0
    }
}
