//! fio's JSON layout (`--output-format=json`, 3.33), and a key `weir` beside it for what fio does not know.
//!
//! fio's `runtime` is whole milliseconds, rounded up here; rates are computed from nanoseconds. Time stamps are 0: the
//! report is a function of job file and seed. `usr_cpu` is what `--cpu-ns` charged, 0 without it.

use serde_json::{Map, Value, json as value};

use super::super::options::JobOptions;
use super::super::results::LunResult;
use super::super::stats::{DirectionStats, LEVELS, Latency, Series, Stats};
use super::{Report, Row};

/// The report as JSON.
pub fn json(report: &Report) -> Value {
    let rows = report.rows();
    let mut top = Map::new();
    top.insert("fio version".into(), "fio-3.33".into());
    top.insert("timestamp".into(), 0.into());
    top.insert("timestamp_ms".into(), 0.into());
    top.insert("time".into(), "simulated".into());
    if !report.file.global.is_empty() {
        top.insert("global options".into(), options(&report.file.global));
    }
    top.insert(
        "jobs".into(),
        rows.iter().map(|row| job(report, row, &rows)).collect(),
    );
    top.insert("disk_util".into(), Value::Array(Vec::new()));
    top.insert("weir".into(), weir(report));
    Value::Object(top)
}

/// fio leaves out options without a value.
fn options(given: &[(String, String)]) -> Value {
    let kept = given.iter().filter(|(_, value)| !value.is_empty());
    Value::Object(
        kept.map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect(),
    )
}

fn job(report: &Report, row: &Row, rows: &[Row]) -> Value {
    let (first, stats) = (row.first, &row.stats);
    let o = &first.options;
    let group: Vec<&Row> = rows
        .iter()
        .filter(|other| other.first.group == first.group)
        .collect();
    let group_bandwidth = |pick: fn(&Stats) -> &DirectionStats| {
        group
            .iter()
            .map(|row| pick(&row.stats).bandwidth())
            .sum::<f64>()
    };
    let ms = |ns: u64| ns.div_ceil(1_000_000);
    let busy = report
        .results
        .cpu_busy
        .get(first.cpu as usize)
        .copied()
        .unwrap_or(0.0)
        * 100.0;
    let ios = stats.read.ios + stats.write.ios;
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.into(), value);
    put("jobname", first.name.as_str().into());
    put("groupid", first.group.into());
    // EILSEQ is what fio reports for a failed verification, EIO for an I/O error.
    put(
        "error",
        if stats.errors() > 0 {
            5
        } else if stats.mismatches > 0 {
            84
        } else {
            0
        }
        .into(),
    );
    put("eta", 2_147_483_647.into());
    put("elapsed", row.elapsed_ns.div_ceil(1_000_000_000).into());
    if let Some(description) = &o.description {
        put("desc", description.as_str().into());
    }
    put(
        "job options",
        options(&report.file.sections[first.section].given),
    );
    put(
        "read",
        direction(&stats.read, o, group_bandwidth(|stats| &stats.read)),
    );
    put(
        "write",
        direction(&stats.write, o, group_bandwidth(|stats| &stats.write)),
    );
    put("trim", direction(&DirectionStats::default(), o, 0.0));
    put(
        "sync",
        value!({ "total_ios": stats.flush.ios, "lat_ns": latency(&stats.flush.lat, &o.percentiles, true) }),
    );
    put(
        "job_runtime",
        ms(stats.read.runtime_ns.max(stats.write.runtime_ns)).into(),
    );
    put("usr_cpu", busy.into());
    put("sys_cpu", 0.0.into());
    put("ctx", 0.into());
    put("majf", 0.into());
    put("minf", 0.into());
    let depths = stats
        .depth_levels
        .map(|count| percent(count, stats.depth_levels.iter().sum()));
    put(
        "iodepth_level",
        labelled(&["1", "2", "4", "8", "16", "32", ">=64"], depths),
    );
    // A job hands over and is handed back one I/O at a time.
    let single = [
        0.0,
        if ios > 0 { 100.0 } else { 0.0 },
        0.0,
        0.0,
        0.0,
        0.0,
        0.0,
    ];
    put(
        "iodepth_submit",
        labelled(&["0", "4", "8", "16", "32", "64", ">=64"], single),
    );
    put(
        "iodepth_complete",
        labelled(&["0", "4", "8", "16", "32", "64", ">=64"], single),
    );
    let levels = stats
        .latency_levels
        .map(|count| percent(count, stats.latency_levels.iter().sum()));
    for (key, range, unit) in [
        ("latency_ns", 0..10, 1),
        ("latency_us", 10..20, 1_000),
        ("latency_ms", 20..LEVELS.len(), 1_000_000),
    ] {
        let label = |level: usize| {
            if level + 1 < LEVELS.len() {
                (LEVELS[level] / unit).to_string()
            } else {
                ">=2000".into()
            }
        };
        put(
            key,
            Value::Object(
                range
                    .map(|level| (label(level), levels[level].into()))
                    .collect(),
            ),
        );
    }
    put("latency_depth", o.iodepth.into());
    put("latency_target", 0.into());
    put("latency_percentile", 100.0.into());
    put("latency_window", 0.into());
    Value::Object(out)
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

fn labelled(labels: &[&str; 7], values: [f64; 7]) -> Value {
    Value::Object(
        labels
            .iter()
            .zip(values)
            .map(|(label, value)| (label.to_string(), value.into()))
            .collect(),
    )
}

fn direction(stats: &DirectionStats, o: &JobOptions, group_bandwidth: f64) -> Value {
    let bandwidth = Samples::of(&stats.series, |(_, bytes)| bytes as f64 / 1024.0);
    let iops = Samples::of(&stats.series, |(ios, _)| ios as f64);
    let share = if group_bandwidth > 0.0 {
        (bandwidth.mean * 1024.0 * 100.0 / group_bandwidth).min(100.0)
    } else {
        0.0
    };
    value!({
        "io_bytes": stats.bytes,
        "io_kbytes": stats.bytes / 1024,
        "bw_bytes": stats.bandwidth() as u64,
        "bw": (stats.bandwidth() / 1024.0) as u64,
        "iops": stats.iops(),
        "runtime": stats.runtime_ns.div_ceil(1_000_000),
        "total_ios": stats.ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": latency(&stats.slat, &o.percentiles, o.slat_percentiles),
        "clat_ns": latency(&stats.clat, &o.percentiles, o.clat_percentiles),
        "lat_ns": latency(&stats.lat, &o.percentiles, o.lat_percentiles),
        "bw_min": bandwidth.min as u64,
        "bw_max": bandwidth.max as u64,
        "bw_agg": share,
        "bw_mean": bandwidth.mean,
        "bw_dev": bandwidth.deviation,
        "bw_samples": bandwidth.n,
        "iops_min": iops.min as u64,
        "iops_max": iops.max as u64,
        "iops_mean": iops.mean,
        "iops_stddev": iops.deviation,
        "iops_samples": iops.n,
    })
}

/// Percentiles only where there is something to rank, as fio.
fn latency(latency: &Latency, percentiles: &[f64], wanted: bool) -> Value {
    let mut out = Map::new();
    out.insert("min".into(), latency.min.into());
    out.insert("max".into(), latency.max.into());
    out.insert("mean".into(), latency.mean.into());
    out.insert("stddev".into(), latency.stddev().into());
    out.insert("N".into(), latency.n.into());
    if wanted && latency.n > 0 {
        let entry = |percent: &f64| {
            (
                format!("{percent:.6}"),
                latency.histogram.percentile(*percent).into(),
            )
        };
        out.insert(
            "percentile".into(),
            Value::Object(percentiles.iter().map(entry).collect()),
        );
    }
    Value::Object(out)
}

/// A rate a second over the whole buckets of a series.
#[derive(Default)]
struct Samples {
    n: usize,
    min: f64,
    max: f64,
    mean: f64,
    deviation: f64,
}

impl Samples {
    fn of(series: &Series, count: fn((u64, u64)) -> f64) -> Samples {
        let first = series
            .buckets
            .iter()
            .position(|bucket| bucket.0 > 0)
            .unwrap_or(0);
        let used = &series.buckets[first..];
        // The first and last bucket are only partly in the run.
        let whole = if used.len() > 2 {
            &used[1..used.len() - 1]
        } else {
            &[]
        };
        if whole.is_empty() {
            return Samples::default();
        }
        let rates: Vec<f64> = whole
            .iter()
            .map(|&bucket| count(bucket) * 1e9 / series.bucket_ns as f64)
            .collect();
        let n = rates.len();
        let mean = rates.iter().sum::<f64>() / n as f64;
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        Samples {
            n,
            min: rates.iter().copied().fold(f64::INFINITY, f64::min),
            max: rates.iter().copied().fold(0.0, f64::max),
            mean,
            deviation: if n > 1 {
                (squares / (n - 1) as f64).sqrt()
            } else {
                0.0
            },
        }
    }
}

fn weir(report: &Report) -> Value {
    let (plan, results, simulator) = (report.plan, report.results, report.simulator);
    let total = results.total();
    let ignored: Vec<Value> = report
        .file
        .ignored
        .iter()
        .map(|ignored| value!({ "option": ignored.option, "line": ignored.line }))
        .collect();
    value!({
        "version": env!("CARGO_PKG_VERSION"),
        "title": simulator.title,
        "seed": plan.seed,
        "cpus": plan.cpus,
        "simulated_ns": results.elapsed_ns,
        "time_scale": plan.time_scale,
        "notes": plan.notes,
        "ignored_options": ignored,
        "checked_bytes": total.checked_bytes,
        "verified_bytes": total.verified_bytes,
        "wrong_blocks": total.mismatches,
        "failed_ios": total.errors(),
        "wrong": results.mismatches.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "failed": results.failures.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "cpu_busy": results.cpu_busy,
        "luns": results.luns.iter().enumerate().map(|(number, one)| lun(number, one)).collect::<Vec<_>>(),
        "simulator": { "cycles": simulator.cycles, "skipped": simulator.skipped, "wall_s": simulator.wall_s },
    })
}

fn lun(number: usize, lun: &LunResult) -> Value {
    let o = JobOptions {
        lat_percentiles: true,
        slat_percentiles: true,
        ..JobOptions::default()
    };
    let stats = &lun.stats;
    let card = lun.card.as_ref().map(|card| {
        value!({
            "in_flight": card.in_flight,
            "peak": card.peak,
            "depth": card.depth,
            "weight": card.weight,
            "parked": card.parked,
            "admitted": card.admitted,
            "completed": card.completed,
            "deferred_depth": card.deferred_depth,
            "deferred_tags": card.deferred_tags,
            "deferred_share": card.deferred_share,
            "cycles_waited": card.cycles_waited,
            "bytes": card.bytes,
        })
    });
    value!({
        "lun": number,
        "filename": lun.filename,
        "bytes": lun.blocks * crate::pattern::BLOCK as u64,
        "read": direction(&stats.read, &o, 0.0),
        "write": direction(&stats.write, &o, 0.0),
        "sync": { "total_ios": stats.flush.ios, "lat_ns": latency(&stats.flush.lat, &o.percentiles, true) },
        "peak_outstanding": lun.peak_outstanding,
        "checked_bytes": stats.checked_bytes,
        "verified_bytes": stats.verified_bytes,
        "wrong_blocks": stats.mismatches,
        "card": card,
    })
}
