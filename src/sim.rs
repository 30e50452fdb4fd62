//! `weir sim`: a fio job file on the simulated card.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use weir_card::config::CardConfig;
use weir_driver::nvme::feature::Fairness;
use weir_sim::fio::report::{Report, Simulator};
use weir_sim::fio::{self, Plan, PlanOptions, Progress};
use weir_sim::link::Link;
use weir_sim::model::{self, ModelOptions};
use weir_sim::run::{self, Outcome, Settings};
use weir_sim::time::Latency;

use crate::Failure;
use crate::options::{
    CardArgs, PerLun, bandwidth, fairness, per_lun_latency, per_lun_number, size,
};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// fio job file.
    job: PathBuf,
    #[command(flatten)]
    card: CardArgs,
    /// Capacity of every LUN (4m, 1g); else what the jobs need, else 1 GiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    lun_size: Option<u64>,
    /// Virtual CPUs, each with its queue; else as many as the job file's cpus_allowed name, else one a job.
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// I/Os of the whole run after the ramp.
    #[arg(long, value_name = "N", conflicts_with = "time", value_parser = clap::value_parser!(u64).range(1..))]
    ios: Option<u64>,
    /// Simulated time that stands for the jobs' runtime (5ms).
    #[arg(long, value_name = "TIME", value_parser = time)]
    time: Option<u64>,
    /// Depth of one LUN or of all: commands that may execute at once.
    #[arg(long, value_name = "[LUN=]N", value_parser = per_lun_number)]
    depth: Vec<PerLun<u16>>,
    /// A change at a simulated time from the start: 200us lun3.depth=4, or lun3.weight=2.
    #[arg(long, num_args = 2, value_names = ["TIME", "CHANGE"])]
    at: Vec<String>,
    /// At this period each LUN's depth becomes a random 2 to 16, or the tags in use if fewer, and completions are reaped on the submitting CPU or its
    /// neighbour in turn.
    #[arg(long, value_name = "TIME", value_parser = time)]
    soak_period: Option<u64>,
    /// How LUNs share tags, media and link.
    #[arg(long, value_name = "RULE", value_parser = fairness(), default_value = "none")]
    fairness: Fairness,
    /// Weight of one LUN or of all under the weighted rule.
    #[arg(long, value_name = "[LUN=]N", value_parser = per_lun_number)]
    weight: Vec<PerLun<u16>>,
    /// Media latency of one LUN or of all: 10us, 5us-20us (uniform), 5us~20us (5us and an exponential part of mean 20us).
    #[arg(long, value_name = "[LUN=]TIME", value_parser = per_lun_latency)]
    media_latency: Vec<PerLun<Latency>>,
    /// Bound on media's bandwidth, reads and writes together, bytes a second (8g).
    #[arg(long, value_name = "SIZE", value_parser = bandwidth)]
    media_bandwidth: Option<u64>,
    /// Between card and host: none, or gen<1-5>x<lanes>.
    #[arg(long, value_name = "LINK", default_value = "gen3x8")]
    link: Link,
    /// What a submission, and a completion, costs its CPU, ns.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    cpu_ns: u64,
    /// Everything random follows from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Checks the Verilog's assertions and starts registers without reset at random; slower.
    #[arg(long)]
    asserts: bool,
    /// A RAM read at the address that is being written gives random data, as hardware may.
    #[arg(long)]
    collisions: bool,
    /// Waveforms of the whole run; much slower.
    #[arg(long, value_name = "OUT.FST")]
    trace: Option<PathBuf>,
    /// The report as fio's JSON, the card's statistics beside it.
    #[arg(long, value_name = "OUT.JSON")]
    json: Option<PathBuf>,
    /// The report as a page with plots.
    #[arg(long, value_name = "OUT.HTML")]
    html: Option<PathBuf>,
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("cannot write {}: {error}", path.display()))
}

fn time(text: &str) -> Result<u64, String> {
    match weir_sim::time::parse_ns(text) {
        Ok(0) => Err("at least 1ns".into()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

/// Runs the job file and prints the report.
pub fn run(args: &Args) -> Result<(), Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let path = args.job.display().to_string();
    let bytes =
        fs::read(&args.job).map_err(|e| Failure::Usage(format!("cannot read {path}: {e}")))?;
    // As fio, which knows no encoding: such bytes stand in comments and names.
    let text = String::from_utf8_lossy(&bytes);
    let file = fio::parse(&path, &text).map_err(|e| usage(&e))?;
    let options = PlanOptions {
        seed: args.seed,
        time_ns: args.time,
        ios: args.ios,
        lun_bytes: args.lun_size,
        ..PlanOptions::default()
    };
    // The queues of the configuration bound the CPUs, and the job file's LUNs the card.
    let queues = args
        .card
        .queues
        .unwrap_or(args.card.card(1).map_err(Failure::Usage)?.queues);
    if args.cpus.is_some_and(|cpus| cpus == 0 || cpus > queues) {
        return Err(Failure::Usage(format!(
            "--cpus: 1 to {queues}, since each has a queue of its own; see --queues"
        )));
    }
    let plan = run::plan(&file, args.cpus, queues, &options).map_err(|e| usage(&e))?;
    let card = args
        .card
        .card(plan.luns.len() as u32)
        .map_err(Failure::Usage)?;
    let luns = plan.luns.len() as u32;
    if let Some(in_use) = args.card.luns.filter(|n| *n < luns) {
        return Err(Failure::Usage(format!(
            "--luns {in_use}: the job file has {luns} LUNs (distinct filenames)"
        )));
    }
    let settings = settings(args, &card, &plan)?;
    for path in [&args.json, &args.html, &args.trace].into_iter().flatten() {
        // Told before the run, not after it.
        let opened = fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|e| cannot_write(path, &e))?;
    }

    for note in notes(&file, &plan, args, &card) {
        crate::say(&format!("note: {note}\n"))?;
    }
    let bar = bar(&plan);
    bar.set_message("building the card");
    let module = weir_card::card::card(&card);
    let trace = args.trace.is_some();
    let built = model::build(
        &module,
        ModelOptions {
            trace,
            asserts: args.asserts,
            random_collisions: args.collisions,
        },
    )
    .map_err(|e| usage(&e))?;
    let verilated = model::instance(&built, args.seed).map_err(|e| usage(&e))?;
    bar.set_message("bringing the card up");
    let mut last = Instant::now();
    let mut show = |progress: &Progress| {
        if last.elapsed() >= Duration::from_millis(100) {
            last = Instant::now();
            bar.set_position((progress.fraction.unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0) as u64);
            bar.set_message(message(progress));
        }
    };
    let result = run::run(
        Box::new(verilated),
        &card,
        plan,
        &settings,
        args.trace.as_deref(),
        &mut show,
    );
    bar.finish_and_clear();
    let outcome = result.map_err(|error| Failure::Wrong(error.to_string()))?;
    report(args, &file, &card, &settings, &outcome)
}

fn settings(args: &Args, card: &CardConfig, plan: &Plan) -> Result<Settings, Failure> {
    let luns = plan.luns.len() as u32;
    let known = |option: &str, lun: Option<u32>| match lun {
        Some(lun) if lun >= luns => Err(Failure::Usage(format!(
            "--{option}: the job file has LUNs 0 to {}, not {lun}",
            luns - 1
        ))),
        _ => Ok(()),
    };
    let tags = args.card.tags.unwrap_or(card.tags);
    let fits = |option: &str, depth: bool, value: u32| match (depth, value) {
        (true, value) if value == 0 || value > tags => Err(Failure::Usage(format!(
            "--{option}: a depth of {value}; 1 to {tags}, the tags in use"
        ))),
        (false, 0) => Err(Failure::Usage(format!(
            "--{option}: a weight of 0; 1 to 65535"
        ))),
        _ => Ok(()),
    };
    let mut settings = Settings::new(card);
    for (option, list, out) in [
        ("depth", &args.depth, &mut settings.depth),
        ("weight", &args.weight, &mut settings.weight),
    ] {
        for each in list {
            known(option, each.lun)?;
            fits(option, option == "depth", each.value.into())?;
            out.push((each.lun, each.value));
        }
    }
    for each in &args.media_latency {
        known("media-latency", each.lun)?;
        settings.media_latency.push((each.lun, each.value));
    }
    for pair in args.at.chunks_exact(2) {
        let event = fio::Event::parse(&pair[0], &pair[1]);
        let event =
            event.map_err(|e| Failure::Usage(format!("--at {} {}: {e}", pair[0], pair[1])))?;
        let (lun, depth, value) = match event.control {
            fio::Control::Depth { lun, depth } => (lun, true, depth),
            fio::Control::Weight { lun, weight } => (lun, false, weight),
        };
        known("at", Some(lun))?;
        fits("at", depth, value)?;
        settings.run.events.push(event);
    }
    settings.fairness = args.fairness;
    settings.queues = args.card.queues.unwrap_or(card.queues);
    settings.tags = tags;
    settings.media_bandwidth = args.media_bandwidth;
    settings.link = args.link;
    settings.run.cpu_ns = args.cpu_ns;
    settings.run.soak_ns = args.soak_period;
    settings.run.soak_most = settings.run.soak_most.min(tags);
    Ok(settings)
}

/// What the user should know before the run.
fn notes(file: &fio::JobFile, plan: &Plan, args: &Args, card: &CardConfig) -> Vec<String> {
    let mut notes = plan.notes.clone();
    if !file.ignored.is_empty() {
        let mut names: Vec<&str> = file.ignored.iter().map(|i| i.option).collect();
        names.sort_unstable();
        names.dedup();
        notes.push(format!(
            "ignored, since they concern a kernel, files or real time: {}",
            names.join(", ")
        ));
    }
    if card.name == "custom" {
        notes.push(format!(
            "a card of its own is built from {}: {} queues x {} entries, {} LUNs, {} tags, {} bits",
            args.card.config, card.queues, card.entries, card.luns, card.tags, card.data_bits
        ));
    }
    notes
}

fn bar(plan: &Plan) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = if plan.ios.is_some() || plan.instances.iter().any(|i| i.runtime_ns.is_some()) {
        let style = ProgressStyle::with_template("{elapsed} [{bar:32}] {msg}");
        ProgressBar::new(1000).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    } else {
        ProgressBar::new_spinner()
    };
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn message(progress: &Progress) -> String {
    let phase = if progress.verifying > 0 {
        ", verifying"
    } else {
        ""
    };
    format!(
        "{:.3} ms simulated, {} I/Os, {} in flight{phase}",
        progress.elapsed_ns as f64 / 1e6,
        progress.ios,
        progress.in_flight
    )
}

fn report(
    args: &Args,
    file: &fio::JobFile,
    card: &CardConfig,
    settings: &Settings,
    outcome: &Outcome,
) -> Result<(), Failure> {
    let simulator = Simulator {
        title: format!(
            "{} card, {} queues, {} tags, link {}, fairness {}",
            card.name,
            settings.queues,
            settings.tags,
            settings.link,
            args.fairness.name()
        ),
        cycles: outcome.cycles,
        skipped: outcome.cycles - outcome.clocked,
        wall_s: outcome.wall.as_secs_f64(),
    };
    let report = Report {
        file,
        plan: &outcome.plan,
        results: &outcome.results,
        simulator: &simulator,
    };
    let write = |path: &Option<PathBuf>, text: &dyn Fn() -> String| match path {
        Some(path) => fs::write(path, text()).map_err(|e| cannot_write(path, &e)),
        None => Ok(()),
    };
    let json = || format!("{:#}\n", fio::report::json(&report));
    let written = write(&args.json, &json).and(write(&args.html, &|| fio::report::html(&report)));
    let said = crate::say(&fio::report::table(&report));
    if outcome.is_good() {
        return written.and(said);
    }
    let mut lines = outcome.problems.clone();
    lines.extend(outcome.results.mismatches.iter().map(ToString::to_string));
    lines.extend(outcome.results.failures.iter().map(ToString::to_string));
    let total = outcome.results.total();
    lines.push(format!(
        "{} wrong blocks, {} failed I/Os",
        total.mismatches,
        total.errors()
    ));
    Err(Failure::Wrong(format!(
        "the run found errors:\n  {}",
        lines.join("\n  ")
    )))
}
