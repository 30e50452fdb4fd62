//! What a run found.

use super::device::LunCardStats;
use super::expect::Mismatch;
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
