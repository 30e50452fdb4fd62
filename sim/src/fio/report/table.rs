//! The report on a terminal.

use std::fmt::Write as _;

use super::super::plan::Instance;
use super::super::results::InstanceResult;
use super::super::stats::{DirectionStats, Stats};
use super::{Report, iec, si, time};

/// The whole report as text, lines ended by `\n`. The plan's notes and the file's ignored options are not in it: a user
/// wants to read them before the run.
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    header(report, &mut out);
    jobs(report, &mut out);
    luns(report, &mut out);
    card(report, &mut out);
    footer(report, &mut out);
    out
}

fn header(report: &Report, out: &mut String) {
    let (file, plan, results) = (report.file, report.plan, report.results);
    let _ = writeln!(
        out,
        "{}: {} on {}, {}; {} simulated, seed {}",
        file.path,
        many(plan.instances.len(), "job instance"),
        many(plan.cpus as usize, "CPU"),
        many(plan.luns.len(), "LUN"),
        time(results.elapsed_ns as f64),
        plan.seed
    );
    if !report.simulator.title.is_empty() {
        let _ = writeln!(out, "{}", report.simulator.title);
    }
    match report.never_started() {
        0 => {}
        n => {
            let _ = writeln!(
                out,
                "note: the run's count of I/Os was reached before {} could start",
                many(n, "job instance")
            );
        }
    }
    if results.events_left > 0 {
        let _ = writeln!(
            out,
            "note: the run ended before the time of {}: --at counts from its start",
            many(results.events_left, "change")
        );
    }
    let counted = |stats: &Stats| stats.read.ios + stats.write.ios + stats.flush.ios > 0;
    let all_in_ramp = |(plan, result): (&Instance, &InstanceResult)| {
        result.started && plan.ramp_ns > 0 && !counted(&result.stats)
    };
    let silent = plan.instances.iter().zip(&results.instances);
    match silent.filter(|each| all_in_ramp(*each)).count() {
        0 => {}
        n => {
            let _ = writeln!(
                out,
                "note: {} had done all within the ramp (ramp_time), so that nothing of it counts",
                many(n, "job instance")
            );
        }
    }
}

/// A number of things.
fn many(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Columns of every direction's line.
const COLUMNS: [&str; 9] = [
    "IOPS",
    "BW",
    "I/Os",
    "slat avg",
    "lat avg",
    "clat 50 %",
    "99 %",
    "99.9 %",
    "max",
];

fn cells(direction: &DirectionStats) -> Vec<String> {
    let clat = &direction.clat;
    let at = |percent| time(clat.histogram.percentile(percent) as f64);
    vec![
        si(direction.iops()),
        format!("{}/s", iec(direction.bandwidth())),
        direction.ios.to_string(),
        time(direction.slat.mean),
        time(direction.lat.mean),
        at(50.0),
        at(99.0),
        at(99.9),
        time(clat.max as f64),
    ]
}

/// A line for each direction that did anything.
fn lines(name: &str, stats: &Stats, grid: &mut Vec<Vec<String>>) {
    let all = [
        ("read", &stats.read),
        ("write", &stats.write),
        ("flush", &stats.flush),
    ];
    let before = grid.len();
    for (direction, stats) in all
        .into_iter()
        .filter(|(_, stats)| stats.ios + stats.errors > 0)
    {
        let name = if grid.len() == before { name } else { "" };
        let mut line = vec![name.to_string(), direction.to_string()];
        line.extend(cells(stats));
        if direction == "flush" {
            // A flush moves nothing and has no rate of its own.
            line[2..4].fill("-".into());
        }
        grid.push(line);
    }
    if grid.len() == before {
        grid.push(vec![name.to_string(), "nothing counted".to_string()]);
    }
}

fn jobs(report: &Report, out: &mut String) {
    let mut grid = vec![head("job")];
    let rows = report.rows();
    let grouped = rows.last().is_some_and(|row| row.first.group > 0);
    for row in &rows {
        let group = if grouped {
            format!(" (group {})", row.first.group)
        } else {
            String::new()
        };
        let name = row.name() + &group;
        lines(&name, &row.stats, &mut grid);
    }
    if rows.len() > 1 {
        lines("all", &report.results.total(), &mut grid);
    }
    let _ = writeln!(out);
    print(&grid, 2, out);
}

fn luns(report: &Report, out: &mut String) {
    let mut grid = vec![head("LUN")];
    for (number, lun) in report.results.luns.iter().enumerate() {
        lines(&format!("{number} {}", lun.filename), &lun.stats, &mut grid);
    }
    let _ = writeln!(out);
    print(&grid, 2, out);
}

fn head(first: &str) -> Vec<String> {
    [first, ""]
        .into_iter()
        .chain(COLUMNS)
        .map(Into::into)
        .collect()
}

fn card(report: &Report, out: &mut String) {
    let names = [
        "LUN",
        "outstanding",
        "executing",
        "depth",
        "weight",
        "admitted",
        "deferred: depth",
        "tags",
        "share",
        "waited",
        "verified",
        "wrong",
    ];
    let mut grid: Vec<Vec<String>> = vec![names.map(String::from).to_vec()];
    for (number, lun) in report.results.luns.iter().enumerate() {
        let mut line = vec![number.to_string(), format!("peak {}", lun.peak_outstanding)];
        match &lun.card {
            Some(card) => line.extend([
                format!("peak {}", card.peak),
                card.depth.to_string(),
                card.weight.to_string(),
                card.admitted.to_string(),
                card.deferred_depth.to_string(),
                card.deferred_tags.to_string(),
                card.deferred_share.to_string(),
                format!("{} cycles", card.cycles_waited),
            ]),
            None => line.extend(std::iter::repeat_n("-".to_string(), 8)),
        }
        line.push(iec(lun.stats.verified_bytes as f64));
        line.push(lun.stats.mismatches.to_string());
        grid.push(line);
    }
    let _ = writeln!(out);
    print(&grid, 1, out);
}

fn footer(report: &Report, out: &mut String) {
    let results = report.results;
    let total = results.total();
    let _ = writeln!(out);
    let _ = writeln!(
        out,
        "verified: {} read back after writing; every read compared, {} right, {} blocks wrong, {} I/Os failed",
        iec(total.verified_bytes as f64),
        iec(total.checked_bytes as f64),
        total.mismatches,
        total.errors()
    );
    if total.write.ios > 0 && total.read.ios == 0 {
        let _ = writeln!(
            out,
            "note: nothing that was written was read back: no job reads or verifies"
        );
    }
    for mismatch in &results.mismatches {
        let _ = writeln!(out, "wrong: {mismatch}");
    }
    for failure in &results.failures {
        let _ = writeln!(out, "failed: {failure}");
    }
    if !results.cpu_busy.is_empty() {
        let list: Vec<String> = results
            .cpu_busy
            .iter()
            .map(|busy| format!("{:.0} %", busy * 100.0))
            .collect();
        let _ = writeln!(out, "CPU: {}", list.join(" "));
    }
    let simulator = report.simulator;
    if simulator.cycles > 0 {
        let _ = write!(
            out,
            "simulator: {} cycles, {} of them idle and skipped",
            si(simulator.cycles as f64),
            si(simulator.skipped as f64)
        );
        if simulator.wall_s > 0.0 {
            let clocked = simulator.cycles.saturating_sub(simulator.skipped) as f64;
            let _ = write!(
                out,
                ", in {:.1} s: {} cycles/s clocked",
                simulator.wall_s,
                si(clocked / simulator.wall_s)
            );
        }
        let _ = writeln!(out);
    }
}

/// Prints cells in columns: the first `left` to the left, the others to the right.
fn print(grid: &[Vec<String>], left: usize, out: &mut String) {
    let columns = grid.iter().map(Vec::len).max().unwrap_or(0);
    let full = |line: &&Vec<String>| line.len() == columns;
    let width = |column: usize| {
        grid.iter()
            .filter(full)
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let names = grid
        .iter()
        .map(|line| line[0].chars().count())
        .max()
        .unwrap_or(0);
    for line in grid {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let width = if column == 0 { names } else { widths[column] };
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            let gap = if column > 0 { "  " } else { "" };
            let _ = if column < left {
                write!(text, "{gap}{cell}{pad}")
            } else {
                write!(text, "{gap}{pad}{cell}")
            };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
}
