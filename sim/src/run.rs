//! A whole run: a card in a world, the driver on it, a job file's plan through its queues, and what came of it.

use std::time::{Duration, Instant};

use weir_card::config::CardConfig;
use weir_card::lun_map;
use weir_driver::Admin;
use weir_driver::nvme::feature::Fairness;

use crate::card::Card;
use crate::device::{DeviceConfig, NvmeDevice, SetupError};
use crate::fio::{self, DeviceError, Plan, PlanOptions, Progress, Results, RunOptions};
use crate::link::Link;
use crate::media::LunMedia;
use crate::pattern::BLOCK;
use crate::pci::SimPci;
use crate::slave::Behaviour;
use crate::time::{Latency, cycles};
use crate::world::{World, WorldConfig, WorldError, WorldStats};

/// Everything that a run is told beside its job file and its card.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Virtual CPUs, each with a queue pair of its own.
    pub cpus: u32,
    /// I/O queues in use, of those that the card has.
    pub queues: u32,
    /// Tags in use, of those that the card has.
    pub tags: u32,
    /// Depths: of one LUN, or of all (None); later ones win.
    pub depth: Vec<(Option<u32>, u16)>,
    /// Weights, likewise.
    pub weight: Vec<(Option<u32>, u16)>,
    /// The fairness rule.
    pub fairness: Fairness,
    /// Media latencies, likewise; LUNs without one have none.
    pub media_latency: Vec<(Option<u32>, Latency)>,
    /// Bound on media, bytes/s.
    pub media_bandwidth: Option<u64>,
    /// How media's AXI slave behaves.
    pub media_behaviour: Behaviour,
    /// How the host's AXI slave behaves when there is no link.
    pub host_behaviour: Behaviour,
    /// Between card and host.
    pub link: Link,
    /// The engine's part: host cost, events, soak.
    pub run: RunOptions,
    /// Cycles without a completion that count as a hang; None chooses by media latency.
    pub hang_cycles: Option<u64>,
}

impl Settings {
    /// One CPU, all of the card, its own depths, no media latency, no link.
    pub fn new(card: &CardConfig) -> Self {
        Settings {
            cpus: 1,
            queues: card.queues,
            tags: card.tags,
            depth: Vec::new(),
            weight: Vec::new(),
            fairness: Fairness::NONE,
            media_latency: Vec::new(),
            media_bandwidth: None,
            media_behaviour: Behaviour::PLAIN,
            host_behaviour: Behaviour::PLAIN,
            link: Link::None,
            run: RunOptions::default(),
            hang_cycles: None,
        }
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The world failed: a hang, a broken rule, a failed assertion.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The driver or the card could not be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The driver, before or after the run.
    #[error(transparent)]
    Driver(#[from] weir_driver::Error),
    /// The run stopped.
    #[error("{0}")]
    Device(DeviceError),
    /// The card does not identify itself as what was built.
    #[error("the card's platform register {register:#x} reads {found:#x}, not {wanted:#x}")]
    Platform {
        /// Byte offset.
        register: u32,
        /// What it reads.
        found: u32,
        /// What it should.
        wanted: u32,
    },
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The plan that was run.
    pub plan: Plan,
    /// What the engine found, with the card's statistics at each LUN.
    pub results: Results,
    /// What was simulated, bring-up included.
    pub world: WorldStats,
    /// Cycles of the run alone, and how many of them were clocked.
    pub cycles: u64,
    /// Of these the card was clocked in; the others were skipped.
    pub clocked: u64,
    /// Wall time of the run alone.
    pub wall: Duration,
    /// What the world saw go wrong that is no error of a command: each one line.
    pub problems: Vec<String>,
}

impl Outcome {
    /// No wrong block, no failed I/O, and nothing wrong in the world.
    pub fn is_good(&self) -> bool {
        self.results.is_good() && self.problems.is_empty()
    }
}

/// Runs a planned job file on `card`. `trace` is where an FST trace goes, if one is wanted.
pub fn run(
    card: Box<dyn Card>,
    config: &CardConfig,
    plan: Plan,
    settings: &Settings,
    trace: Option<&std::path::Path>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, RunError> {
    let mut world = World::new(card, &world_config(config, &plan, settings))?;
    if let Some(path) = trace {
        world.trace(path)?;
    }
    let luns = plan.luns.len() as u32;
    bring_up(&mut world, settings.queues, luns, settings.tags)?;
    let pci = SimPci::new(world);
    // Whatever the driver says, the world's own error comes first: it is the cause.
    let result = jobs(&pci, config, &plan, settings, progress);
    if let Some(error) = pci.take_error() {
        return Err(error.into());
    }
    let (results, cycles, clocked, wall) = result?;
    let stats = pci.world().stats();
    let problems = problems(&mut pci.world_mut());
    Ok(Outcome {
        plan,
        results,
        world: stats,
        cycles,
        clocked,
        wall,
        problems,
    })
}

/// The plan of `file`; `cpus` None takes what the file's `cpus_allowed` name, else one a job, at most `most`.
pub fn plan(
    file: &fio::JobFile,
    cpus: Option<u32>,
    most: u32,
    options: &PlanOptions,
) -> Result<Plan, fio::Error> {
    let named = fio::plan::cpus_named(file) as u32;
    let cpus = match (cpus, named) {
        (Some(cpus), _) => cpus,
        (None, 0) => fio::plan(file, options)?.instances.len() as u32,
        (None, named) => named,
    };
    fio::plan(
        file,
        &PlanOptions {
            cpus: cpus.clamp(1, most.max(1)),
            ..options.clone()
        },
    )
}

fn world_config(config: &CardConfig, plan: &Plan, settings: &Settings) -> WorldConfig {
    let mut base = 0;
    let mut luns = Vec::new();
    for (n, lun) in plan.luns.iter().enumerate() {
        let latency = last(&settings.media_latency, n as u32).unwrap_or(Latency::Fixed(0));
        luns.push(LunMedia {
            base,
            blocks: lun.blocks,
            read_latency: latency,
            write_latency: latency,
        });
        base = (base + lun.blocks * BLOCK as u64).next_multiple_of(4096);
    }
    let slowest = luns
        .iter()
        .map(|lun| cycles(lun.read_latency.mean()))
        .max()
        .unwrap_or(0);
    // What all that the jobs have outstanding may take a CPU, and media with a bound on its bandwidth.
    let outstanding: u64 = plan.instances.iter().map(|i| u64::from(i.depth)).sum();
    let media_ns =
        (128u64 << 10) * 1_000_000_000 / settings.media_bandwidth.unwrap_or(u64::MAX).max(1);
    let busy_ns = outstanding.saturating_mul(2 * settings.run.cpu_ns + media_ns);
    WorldConfig {
        link: settings.link,
        host_behaviour: settings.host_behaviour,
        media_behaviour: settings.media_behaviour,
        luns,
        media_bandwidth: settings.media_bandwidth,
        vectors: config.queues as u16 + 1,
        hang_cycles: settings.hang_cycles.unwrap_or(
            (100 * slowest)
                .max(1_000_000)
                .saturating_add(cycles(busy_ns).saturating_mul(4)),
        ),
        // The engine expects unwritten blocks to read as its own seed makes them.
        seed: plan.seed,
    }
}

/// What was said last for LUN `lun`, by name or for all.
fn last<T: Copy>(list: &[(Option<u32>, T)], lun: u32) -> Option<T> {
    let found = list
        .iter()
        .rev()
        .find(|(which, _)| which.is_none_or(|n| n == lun));
    found.map(|(_, value)| *value)
}

/// Reset, limits of queues, LUNs and tags in use, the world's LUNs into the LUN map, and what an operating system does to
/// a PCI function before a driver gets it.
pub fn bring_up(world: &mut World, queues: u32, luns: u32, tags: u32) -> Result<(), RunError> {
    use lun_map::offset;
    world.reset(8)?;
    let found = world.read_platform(offset::ID)?;
    if found != lun_map::ID {
        return Err(RunError::Platform {
            register: offset::ID,
            found,
            wanted: lun_map::ID,
        });
    }
    world.write_platform(offset::QUEUES, queues);
    world.write_platform(offset::LUNS, luns);
    world.write_platform(offset::TAGS, tags);
    let places: Vec<LunMedia> = world.media().luns().to_vec();
    for (n, lun) in places.iter().enumerate() {
        let at = offset::TABLE + 16 * n as u32;
        let (base, blocks) = (lun.base / BLOCK as u64, lun.blocks);
        world.write_platform(at, base as u32);
        world.write_platform(at + 4, (base >> 32) as u32);
        world.write_platform(at + 8, blocks as u32);
        world.write_platform(at + 12, (blocks >> 32) as u32 | lun_map::PRESENT);
    }
    world.settle_platform()?;
    world.enable_function()?;
    Ok(())
}

type Ran = (Results, u64, u64, Duration);

fn jobs(
    pci: &SimPci,
    config: &CardConfig,
    plan: &Plan,
    settings: &Settings,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Ran, RunError> {
    let cpus = plan.cpus as usize;
    let mut luns = vec![Vec::new(); cpus];
    for instance in &plan.instances {
        luns[instance.cpu as usize].extend(instance.files.iter().map(|file| file.lun));
    }
    let longest = plan
        .instances
        .iter()
        .flat_map(|i| i.options.block_size)
        .map(|(_, most)| most)
        .max()
        .unwrap_or(4096);
    let max_blocks =
        (longest / BLOCK as u64).clamp(1, u64::from(settings.run.max_transfer_blocks)) as u32;
    let wanted = DeviceConfig {
        cpus,
        entries: config.entries,
        max_blocks,
        luns,
    };
    let mut device = NvmeDevice::new(pci.clone(), pci.clone(), &wanted)?;

    let controller = device.controller();
    let (tags, _) = controller.tags()?;
    controller.set_tags(tags, settings.fairness)?;
    for lun in 0..plan.luns.len() as u32 {
        let (depth, weight) = (last(&settings.depth, lun), last(&settings.weight, lun));
        if depth.is_some() || weight.is_some() {
            let now = controller.budget(lun)?;
            let depth = depth.unwrap_or(now.depth());
            controller.set_budget(Some(lun), depth, weight.unwrap_or(now.weight()))?;
        }
    }

    let (before, started) = (pci.world().stats(), Instant::now());
    let run = RunOptions {
        max_transfer_blocks: max_blocks,
        ..settings.run.clone()
    };
    let mut results = fio::run(plan, &run, &mut device, progress).map_err(RunError::Device)?;
    let (after, wall) = (pci.world().stats(), started.elapsed());
    for (n, lun) in results.luns.iter_mut().enumerate() {
        lun.card = Some(device.card_stats(n as u32)?);
    }
    device.shutdown()?;
    Ok((
        results,
        after.cycles - before.cycles,
        after.clocked - before.clocked,
        wall,
    ))
}

/// What must never happen while the card serves a correct driver.
fn problems(world: &mut World) -> Vec<String> {
    let mut problems = Vec::new();
    for bad in world.host().memory.bad_accesses() {
        let what = if bad.write { "wrote" } else { "read" };
        problems.push(format!(
            "the card {what} {} bytes at IOVA {:#x}, where no memory is",
            bad.len, bad.iova
        ));
    }
    let stray = world.host().stray_messages();
    if stray > 0 {
        problems.push(format!("{stray} interrupt messages name no vector"));
    }
    let outside = world.media().outside();
    if outside > 0 {
        problems.push(format!(
            "the card accessed media outside every LUN {outside} times"
        ));
    }
    problems
}

/// The capacity of media that the plan's LUNs take, bytes; for messages.
pub fn capacity(plan: &Plan) -> u64 {
    plan.luns.iter().map(|lun| lun.blocks * BLOCK as u64).sum()
}
