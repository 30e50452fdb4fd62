//! The report as one self-contained page with plots: rates over time, latency percentiles, what each LUN has in flight
//! against its depth, and why commands were deferred.

use std::fmt::Write as _;

use super::super::stats::{DirectionStats, Series};
use super::svg::{Bars, COLOURS, Line, Plot, Scale, escape, legend, linear_ticks};
use super::{Report, Row, iec, si, table, time};

/// LUNs that get a plot of their own at most; a page with hundreds helps nobody.
const LUN_PLOTS: usize = 32;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1b1b;--faint:#d9d9d9;--page:#fff;--card:#f6f6f6}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--faint:#444;--page:#161616;--card:#1f1f1f}}\
body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:1180px;margin:24px auto;padding:0 16px}\
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 6px}p{margin:4px 0}\
.figures{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0}\
.figures div{background:var(--card);border-radius:6px;padding:8px 14px}.figures b{display:block;font-size:20px}\
.bad{color:#c00;font-weight:600}\
.plots{display:flex;flex-wrap:wrap;gap:10px}svg{background:var(--card);border-radius:6px;max-width:100%;height:auto}\
svg text{font:11px system-ui,sans-serif;fill:var(--ink)}svg .title{font-size:12px;font-weight:600}\
svg .mid{text-anchor:middle}svg .end{text-anchor:end}svg .grid{stroke:var(--faint)}svg .tick{stroke:var(--ink)}\
svg path{fill:none;stroke-width:1.6}svg .behind{stroke-width:4;opacity:.5}\
.legend span{margin-right:14px;white-space:nowrap}.legend i{display:inline-block;width:14px;height:3px;margin-right:5px;vertical-align:middle}\
pre{overflow-x:auto;background:var(--card);border-radius:6px;padding:12px;font-size:12px}";

/// The page.
pub fn html(report: &Report) -> String {
    let (results, plan) = (report.results, report.plan);
    let total = results.total();
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{STYLE}</style></head><body>\n<h1>{0}</h1>\n<p>{1}</p>\n",
        escape(&report.file.path),
        escape(&report.simulator.title)
    );
    let good = if results.is_good() {
        "every byte read was right".to_string()
    } else {
        format!(
            "<span class=\"bad\">{} blocks wrong, {} I/Os failed</span>",
            total.mismatches,
            total.errors()
        )
    };
    out.push_str("<div class=\"figures\">");
    for (value, what) in [
        (si(total.read.iops()), "read IOPS"),
        (si(total.write.iops()), "write IOPS"),
        (
            format!(
                "{}/s",
                iec(total.read.bandwidth() + total.write.bandwidth())
            ),
            "moved",
        ),
        (time(results.elapsed_ns as f64), "simulated"),
        (plan.instances.len().to_string(), "job instances"),
        (iec(total.verified_bytes as f64), "read back after writing"),
    ] {
        let _ = write!(out, "<div><b>{value}</b>{what}</div>");
    }
    let _ = writeln!(out, "</div>\n<p>{good}</p>");
    rates(report, &mut out);
    latencies(report, &mut out);
    budgets(report, &mut out);
    deferred(report, &mut out);
    let ignored: Vec<&str> = report
        .file
        .ignored
        .iter()
        .map(|ignored| ignored.option)
        .collect();
    let mut notes = plan.notes.clone();
    if !ignored.is_empty() {
        notes.push(format!(
            "ignored, since they concern a kernel, files or real time: {}",
            ignored.join(", ")
        ));
    }
    if !notes.is_empty() {
        out.push_str("<h2>Notes</h2>\n<ul>");
        notes
            .iter()
            .for_each(|note| out.push_str(&format!("<li>{}</li>", escape(note))));
        out.push_str("</ul>\n");
    }
    let _ = writeln!(
        out,
        "<h2>In figures</h2>\n<pre>{}</pre>\n</body></html>",
        escape(&table(report))
    );
    out
}

fn time_axis(end_ns: f64) -> Vec<(f64, String)> {
    let ticks = linear_ticks(end_ns, 6)
        .into_iter()
        .filter(|tick| *tick <= end_ns * 1.001);
    ticks.map(|tick| (tick, time(tick))).collect()
}

/// A rate over the middle of each bucket; the last one is only partly in the run.
fn points(series: &Series, pick: fn(&(u64, u64)) -> u64) -> Vec<(f64, f64)> {
    let width = series.bucket_ns as f64;
    let whole = series.buckets.len().saturating_sub(1).max(1);
    let rate = |(index, bucket): (usize, &(u64, u64))| {
        (
            (index as f64 + 0.5) * width,
            pick(bucket) as f64 * 1e9 / width,
        )
    };
    series
        .buckets
        .iter()
        .take(whole)
        .enumerate()
        .map(rate)
        .collect()
}

/// Makes buckets wide enough for about 60 points.
fn coarse(series: &Series) -> Series {
    let mut wide = series.clone();
    while wide.buckets.len() > 80 {
        let mut next = Series {
            bucket_ns: wide.bucket_ns * 2,
            buckets: Vec::new(),
        };
        next.merge(&wide);
        wide = next;
    }
    wide
}

fn rates(report: &Report, out: &mut String) {
    let total = report.results.total();
    let end = report.results.elapsed_ns as f64;
    let directions = [
        ("reads", &total.read),
        ("writes", &total.write),
        ("flushes", &total.flush),
    ];
    let used: Vec<(&str, &DirectionStats, &'static str)> = directions
        .into_iter()
        .zip(COLOURS)
        .filter(|((_, stats), _)| stats.ios > 0)
        .map(|((name, stats), colour)| (name, stats, colour))
        .collect();
    let plot = |title: &str, y_label, y_text, pick: fn(&(u64, u64)) -> u64| {
        let line = |(name, stats, colour): &(&str, &DirectionStats, &'static str)| Line {
            name: name.to_string(),
            colour,
            points: points(&coarse(&stats.series), pick),
            step: false,
            behind: false,
        };
        Plot {
            title: title.into(),
            width: 570.0,
            height: 250.0,
            x_ticks: time_axis(end),
            x_range: (0.0, end),
            x_label: "simulated time",
            y_label,
            y_scale: Scale::Linear,
            y_text,
            lines: used.iter().map(line).collect(),
        }
        .svg()
    };
    out.push_str("<h2>Over time</h2>\n");
    out.push_str(&legend(
        used.iter().map(|(name, _, colour)| (*colour, *name)),
    ));
    let _ = writeln!(
        out,
        "<div class=\"plots\">{}{}</div>",
        plot("I/Os a second, all jobs", "IOPS", si, |bucket| bucket.0),
        plot(
            "Bytes a second, all jobs",
            "bytes/s",
            |rate| si(rate) + "B",
            |bucket| bucket.1
        )
    );
}

/// Percentiles of the latency plots, spread by their distance from 100.
const PERCENTS: [f64; 9] = [1.0, 10.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 100.0];

fn latencies(report: &Report, out: &mut String) {
    let rows = report.rows();
    let shown = &rows[..rows.len().min(COLOURS.len())];
    out.push_str("<h2>Completion latency by percentile</h2>\n");
    if shown.len() < rows.len() {
        let _ = write!(
            out,
            "<p>the first {} of {} jobs</p>",
            shown.len(),
            rows.len()
        );
    }
    let names: Vec<String> = shown.iter().map(Row::name).collect();
    out.push_str(&legend(
        COLOURS.into_iter().zip(names.iter().map(String::as_str)),
    ));
    out.push_str("<div class=\"plots\">");
    for direction in ["reads", "writes"] {
        let pick = |index: usize| {
            let stats = &shown[index].stats;
            if direction == "reads" {
                &stats.read
            } else {
                &stats.write
            }
        };
        let lines: Vec<Line> = (0..shown.len())
            .filter(|&index| pick(index).ios > 0)
            .map(|index| Line {
                name: names[index].clone(),
                colour: COLOURS[index],
                points: (0..PERCENTS.len())
                    .map(|at| {
                        (
                            at as f64,
                            pick(index).clat.histogram.percentile(PERCENTS[at]) as f64,
                        )
                    })
                    .collect(),
                step: false,
                behind: false,
            })
            .collect();
        if lines.is_empty() {
            continue;
        }
        let plot = Plot {
            title: format!("{direction}, by job"),
            width: 570.0,
            height: 270.0,
            x_ticks: PERCENTS
                .iter()
                .enumerate()
                .map(|(at, percent)| (at as f64, format!("{percent} %")))
                .collect(),
            x_range: (0.0, (PERCENTS.len() - 1) as f64),
            x_label: "percentile",
            y_label: "clat",
            y_scale: Scale::Log,
            y_text: time,
            lines,
        };
        out.push_str(&plot.svg());
    }
    out.push_str("</div>\n");
}

fn budgets(report: &Report, out: &mut String) {
    let luns = &report.results.luns;
    let end = report.results.elapsed_ns as f64;
    out.push_str("<h2>In flight against depth, by LUN</h2>\n");
    if luns.len() > LUN_PLOTS {
        let _ = write!(out, "<p>the first {LUN_PLOTS} of {} LUNs</p>", luns.len());
    }
    if luns
        .iter()
        .any(|lun| lun.samples.iter().any(|s| s.executing.is_some()))
    {
        out.push_str(
            "<p>What executes, and the depth, are read from the simulated card's registers while it runs; that takes no simulated time and changes nothing.</p>",
        );
    }
    let names = [
        "submitted by the host, not completed",
        "executing on the card",
        "depth",
    ];
    out.push_str(&legend(COLOURS.into_iter().zip(names)));
    out.push_str("<div class=\"plots\">");
    for (number, lun) in luns.iter().take(LUN_PLOTS).enumerate() {
        let line = |which: usize| {
            let value = |sample: &super::super::results::LunSample| match which {
                0 => Some(sample.outstanding),
                1 => sample.executing,
                _ => sample.depth,
            };
            let points = lun
                .samples
                .iter()
                .filter_map(|sample| Some((sample.at_ns as f64, f64::from(value(sample)?))));
            Line {
                name: names[which].into(),
                colour: COLOURS[which],
                points: points.collect(),
                step: true,
                behind: which == 2,
            }
        };
        let plot = Plot {
            title: format!("LUN {number} {}", lun.filename),
            width: 375.0,
            height: 190.0,
            x_ticks: time_axis(end).into_iter().step_by(2).collect(),
            x_range: (0.0, end),
            x_label: "simulated time",
            y_label: "commands",
            y_scale: Scale::Linear,
            y_text: |value| format!("{value:.0}"),
            lines: (0..3)
                .map(line)
                .filter(|line| !line.points.is_empty())
                .collect(),
        };
        out.push_str(&plot.svg());
    }
    out.push_str("</div>\n");
}

fn deferred(report: &Report, out: &mut String) {
    let luns = &report.results.luns;
    let cards: Vec<_> = luns
        .iter()
        .enumerate()
        .filter_map(|(n, lun)| Some((n, lun.card.as_ref()?)))
        .collect();
    if cards.is_empty() {
        return;
    }
    let parts = ["for depth", "for tags", "for share"];
    let bars = Bars {
        title: "commands that had to wait on the card".into(),
        width: 1150.0,
        height: 240.0,
        x_label: "LUN",
        y_label: "commands deferred",
        y_text: si,
        parts: &parts,
        bars: cards
            .iter()
            .map(|(number, card)| {
                let values = [card.deferred_depth, card.deferred_tags, card.deferred_share];
                (
                    number.to_string(),
                    values.map(|value| value as f64).to_vec(),
                )
            })
            .collect(),
    };
    out.push_str("<h2>Deferred, and why</h2>\n");
    out.push_str(&legend(COLOURS.into_iter().zip(parts)));
    let _ = writeln!(out, "<div class=\"plots\">{}</div>", bars.svg());
}
