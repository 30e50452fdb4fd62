//! Reports of a run: a text table, fio's JSON, a page with plots.

use super::parse::JobFile;
use super::plan::{Instance, Plan};
use super::results::Results;
use super::stats::Stats;

mod html;
mod json;
mod svg;
mod table;

pub use html::html;
pub use json::json;
pub use table::table;

/// How the simulation itself went, for the report's last line.
#[derive(Clone, Debug, Default)]
pub struct Simulator {
    /// What was simulated, in a few words: card, link, fairness.
    pub title: String,
    /// Clock cycles that passed, skipped ones included.
    pub cycles: u64,
    /// Cycles in which the card was idle and not clocked.
    pub skipped: u64,
    /// Wall-clock seconds; 0 leaves speeds out, and the report a function of job file and seed.
    pub wall_s: f64,
}

/// Everything that a report is made of.
#[derive(Clone, Copy)]
pub struct Report<'a> {
    /// The job file.
    pub file: &'a JobFile,
    /// Its plan.
    pub plan: &'a Plan,
    /// What the run found.
    pub results: &'a Results,
    /// The simulation.
    pub simulator: &'a Simulator,
}

/// One entry of fio's report: an instance, or all of a group with `group_reporting`.
struct Row<'a> {
    first: &'a Instance,
    instances: usize,
    stats: Stats,
    /// Latest end of its instances, from the start of the run, ns.
    elapsed_ns: u64,
}

impl Row<'_> {
    /// The job's name; which copy of it, where there are several.
    fn name(&self) -> String {
        let first = self.first;
        if self.instances > 1 {
            format!("{} ({} jobs)", first.name, self.instances)
        } else if first.options.numjobs > 1 {
            format!("{} #{}", first.name, first.subjob)
        } else {
            first.name.clone()
        }
    }
}

impl<'a> Report<'a> {
    /// As fio's `__show_run_stats` joins them: neighbours of one group that want it.
    fn rows(&self) -> Vec<Row<'a>> {
        let mut rows: Vec<Row<'a>> = Vec::new();
        for (instance, result) in self.plan.instances.iter().zip(&self.results.instances) {
            let joins = instance.options.group_reporting
                && rows.last().is_some_and(|row| {
                    row.first.group == instance.group && row.first.options.group_reporting
                });
            match rows.last_mut().filter(|_| joins) {
                Some(row) => {
                    row.instances += 1;
                    row.stats.merge(&result.stats);
                    row.elapsed_ns = row.elapsed_ns.max(result.elapsed_ns);
                }
                None => rows.push(Row {
                    first: instance,
                    instances: 1,
                    stats: result.stats.clone(),
                    elapsed_ns: result.elapsed_ns,
                }),
            }
        }
        rows
    }

    /// Instances whose turn never came.
    fn never_started(&self) -> usize {
        self.results
            .instances
            .iter()
            .filter(|instance| !instance.started)
            .count()
    }
}

/// `1.23 M` and the like: three digits, SI prefixes.
fn si(value: f64) -> String {
    scaled(value, 1000.0, &["", " k", " M", " G", " T"])
}

/// `4.00 MiB` and the like.
fn iec(bytes: f64) -> String {
    scaled(bytes, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= base && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    if unit == 0 {
        format!("{value:.0}{}", units[0])
    } else {
        let digits = if value >= 100.0 {
            0
        } else if value >= 10.0 {
            1
        } else {
            2
        };
        format!("{value:.digits$}{}", units[unit])
    }
}

/// A time in the unit that suits it.
fn time(ns: f64) -> String {
    scaled(ns, 1000.0, &[" ns", " us", " ms", " s"])
}
