//! `weir lun`: LUNs of a controller, their depths, weights and live statistics.
//!
//! A controller has one driver. When that is Linux's nvme driver, its admin passthrough carries the commands, while it
//! does I/O; when it is `weir export`, its control socket does; else weir brings the controller up itself, which resets it, and gives it back at the end.

mod show;
mod watch;

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use weir_driver::backend::{Bdf, ControlSocket, Device, DeviceError, KernelNvme, Sysfs};
use weir_driver::nvme::feature::Fairness;
use weir_driver::{Admin, Controller, Error, Options, Pci};

use crate::Failure;
use crate::options::{PerLun, fairness, per_lun_number};
use show::Snapshot;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// The controller and its LUNs: sizes, depths, weights.
    List(Common),
    /// What each LUN did since the card was reset.
    Stat(Common),
    /// Rates of each LUN, again and again.
    Watch {
        #[command(flatten)]
        common: Common,
        /// Time between two looks (1s, 200ms).
        #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
        interval: Duration,
        /// Looks before it ends; else it goes on until it is interrupted.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
    /// Changes depths, weights, tag depth and fairness, while I/O runs.
    Set {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        change: Change,
    },
}

#[derive(clap::Args)]
struct Common {
    /// The controller: a PCI function (0000:01:00.0), bound to nvme or to vfio-pci; /dev/nvme0; vfio-user:PATH, the
    /// socket of `weir serve`; or control:PATH, the control socket of `weir export`, while that has the controller.
    #[arg(long, value_name = "DEVICE")]
    device: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// What `set` changes.
#[derive(clap::Args)]
#[group(required = true, multiple = true)]
struct Change {
    /// Depth of one LUN or of all: commands that may execute at once.
    #[arg(long, value_name = "[LUN=]N", value_parser = per_lun_number)]
    depth: Vec<PerLun<u16>>,
    /// Weight of one LUN or of all under the weighted rule.
    #[arg(long, value_name = "[LUN=]N", value_parser = per_lun_number)]
    weight: Vec<PerLun<u16>>,
    /// Tag depth: commands of all LUNs that may execute at once.
    #[arg(long, value_name = "N")]
    tags: Option<u16>,
    /// How LUNs share tags, media and link.
    #[arg(long, value_name = "RULE", value_parser = fairness())]
    fairness: Option<Fairness>,
}

fn interval(text: &str) -> Result<Duration, String> {
    match weir_sim::time::parse_ns(text) {
        Ok(0) => Err("must be more than 0".to_owned()),
        Ok(ns) => Ok(Duration::from_nanos(ns)),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (Action::List(common)
    | Action::Stat(common)
    | Action::Watch { common, .. }
    | Action::Set { common, .. }) = &args.action;
    let device = &common.device;
    let act = |admin: &mut dyn Admin, holder: &Holder| act(&args.action, admin, holder);
    let beside = |mut kernel: KernelNvme| {
        let holder = Holder {
            name: "Linux's nvme driver",
            block_devices: kernel.block_devices(),
        };
        act(&mut kernel, &holder)
    };
    if let Some(path) = device.strip_prefix("control:") {
        let mut control = ControlSocket::open(Path::new(path)).map_err(opening)?;
        let holder = Holder {
            name: "weir export",
            block_devices: Vec::new(),
        };
        return act(&mut control, &holder);
    }
    if device.starts_with('/') {
        return beside(KernelNvme::open_path(Path::new(device)).map_err(opening)?);
    }
    if let Ok(bdf) = device.parse::<Bdf>() {
        let function = Sysfs::default().function(&bdf).map_err(opening)?;
        if function.driver().as_deref() == Some("nvme") {
            return beside(KernelNvme::open(&bdf).map_err(opening)?);
        }
    }
    match open(device).map_err(opening)? {
        Device::Vfio(pci) => own(pci, &args.action, act),
        Device::VfioUser(pci) => own(pci, &args.action, act),
    }
}

/// Opens a device that weir drives itself; a server takes a moment to reset its card behind the client before.
fn open(name: &str) -> Result<Device, DeviceError> {
    let start = Instant::now();
    loop {
        match Device::open(name) {
            Err(DeviceError::Served { .. }) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

/// How long a served device may be another's.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who drives the controller.
struct Holder {
    name: &'static str,
    /// The kernel's, as (NSID, name).
    block_devices: Vec<(u32, String)>,
}

/// This process, until it ends.
const WEIR: &str = "weir, for this command";

/// Brings the controller up, and shuts it down afterwards.
fn own<P: Pci>(
    pci: P,
    action: &Action,
    act: impl FnOnce(&mut dyn Admin, &Holder) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if matches!(action, Action::Stat(_) | Action::Watch { .. }) {
        // Nobody need read it.
        let _ = writeln!(
            io::stderr(),
            "note: nothing else does I/O on a controller that this command has brought up, so its counts are 0; beside weir export, \
             name the control socket that it prints"
        );
    }
    let mut controller = Controller::new(pci, Options::default()).map_err(failed)?;
    let holder = Holder {
        name: WEIR,
        block_devices: Vec::new(),
    };
    act(&mut controller, &holder)?;
    controller.shutdown().map_err(failed)
}

fn act(action: &Action, admin: &mut dyn Admin, holder: &Holder) -> Result<(), Failure> {
    match action {
        Action::List(common) => show(common, &Snapshot::take(admin, holder, false)?, false),
        Action::Stat(common) => show(common, &Snapshot::take(admin, holder, true)?, true),
        Action::Watch {
            common,
            interval,
            count,
        } => watch::watch(admin, holder, *interval, *count, common.json),
        Action::Set { common, change } => {
            set(admin, change)?;
            show(common, &Snapshot::take(admin, holder, false)?, false)?;
            if holder.name == WEIR {
                eprintln!(
                    "note: no driver had the controller, so this lasts until weir shuts it down, now; set it while a \
                     driver has it"
                );
            }
            Ok(())
        }
    }
}

/// Prints a snapshot, or its statistics.
fn show(common: &Common, snapshot: &Snapshot, statistics: bool) -> Result<(), Failure> {
    let text = match (common.json, statistics) {
        (true, _) => format!("{:#}\n", snapshot.json()),
        (false, true) => snapshot.statistics(),
        (false, false) => snapshot.list(),
    };
    crate::say(&text)
}

fn set(admin: &mut dyn Admin, change: &Change) -> Result<(), Failure> {
    let Some(weir) = admin.info().weir else {
        return Err(failed(Error::Unsupported("depths and weights")));
    };
    // First everything is checked, so that a mistake changes nothing.
    let luns: Vec<u32> = admin.luns().iter().map(|lun| lun.index).collect();
    let mut budgets = Vec::new();
    for lun in luns {
        let budget = admin.budget(lun).map_err(failed)?;
        budgets.push((lun, budget, budget));
    }
    let tags = u64::from(weir.tags);
    let range = |option: &str, value: u16, most: u64| match u64::from(value) {
        value if (1..=most).contains(&value) => Ok(()),
        value => Err(Failure::Usage(format!(
            "--{option} {value}: must be 1 to {most}"
        ))),
    };
    let depth = change.depth.iter().map(|each| ("depth", each));
    let weight = change.weight.iter().map(|each| ("weight", each));
    for (option, each) in depth.chain(weight) {
        range(
            option,
            each.value,
            if option == "depth" { tags } else { 65535 },
        )?;
        let mut found = false;
        for (lun, _, budget) in &mut budgets {
            if each.lun.is_none_or(|wanted| wanted == *lun) {
                found = true;
                *budget = match option {
                    "depth" => budget.with_depth(each.value),
                    _ => budget.with_weight(each.value),
                };
            }
        }
        if let (false, Some(lun)) = (found, each.lun) {
            return Err(Failure::Usage(format!("--{option}: there is no LUN {lun}")));
        }
    }
    if let Some(value) = change.tags {
        range("tags", value, tags)?;
    }
    if change.tags.is_some() || change.fairness.is_some() {
        let (depth, rule) = admin.tags().map_err(failed)?;
        let set = admin.set_tags(
            change.tags.unwrap_or(depth),
            change.fairness.unwrap_or(rule),
        );
        set.map_err(failed)?;
    }
    for (lun, before, budget) in budgets {
        if before != budget {
            let set = admin.set_budget(Some(lun), budget.depth(), budget.weight());
            set.map_err(failed)?;
        }
    }
    Ok(())
}

/// What a failed command means for the exit code.
fn failed(error: Error) -> Failure {
    match error {
        Error::Unsupported(_) | Error::Invalid { .. } | Error::NoSuchLun(_) => {
            Failure::Usage(error.to_string())
        }
        other => Failure::Wrong(other.to_string()),
    }
}

/// A device that cannot be opened, and what to do about one that another process has.
fn opening(error: DeviceError) -> Failure {
    let hint = match error {
        DeviceError::InUse { .. } | DeviceError::Served { .. } => {
            "; a controller has one driver, and only that can ask and set it: end that process first, or when it is \
             `weir export`, name its control socket (--device control:PATH). One that Linux's nvme driver has can be \
             asked and set while it does I/O"
        }
        DeviceError::Name { .. } => {
            "; or /dev/nvme0, of Linux's nvme driver, or control:PATH, of `weir export`"
        }
        _ => "",
    };
    Failure::Usage(format!("{error}{hint}"))
}

#[cfg(test)]
mod tests;
