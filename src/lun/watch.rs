//! `weir lun watch`: the difference of two looks, as rates.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use weir_driver::Admin;
use weir_driver::nvme::log::LunStatistics;

use super::Holder;
use super::show::{Row, Snapshot, bytes, columns};
use crate::Failure;
use crate::say;

/// Home, and clear to the end of the screen.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Looks every `interval`, `count` times or for ever; a terminal is redrawn, JSON is a line a look.
pub fn watch(
    admin: &mut dyn Admin,
    holder: &Holder,
    interval: Duration,
    count: Option<u64>,
    json: bool,
) -> Result<(), Failure> {
    let redraw = !json && io::stdout().is_terminal();
    let mut before = Snapshot::take(admin, holder, true)?;
    let mut looks = 0;
    while count.is_none_or(|count| looks < count) {
        thread::sleep(interval);
        let now = Snapshot::take(admin, holder, true)?;
        let rates = Rates::between(&before, &now);
        match (json, redraw) {
            (true, _) => say(&format!("{}\n", rates.json(&now)))?,
            (false, true) => say(&format!("{REDRAW}{}", rates.table(&now)))?,
            (false, false) => say(&format!("{}\n", rates.table(&now)))?,
        }
        before = now;
        looks += 1;
    }
    Ok(())
}

/// What happened between two looks.
pub struct Rates {
    seconds: f64,
    luns: Vec<LunStatistics>,
}

impl Rates {
    /// Of the LUNs that both have. Counters that went back started anew with a reset.
    pub fn between(before: &Snapshot, now: &Snapshot) -> Rates {
        let delta = |row: &Row| {
            let same = before
                .luns
                .iter()
                .find(|old| old.lun.index == row.lun.index);
            let old = same.and_then(|old| old.statistics).unwrap_or_default();
            let new = row.statistics.unwrap_or_default();
            let old = if new.completed < old.completed || new.admitted < old.admitted {
                LunStatistics::default()
            } else {
                old
            };
            LunStatistics {
                in_flight: new.in_flight,
                peak: new.peak,
                parked: new.parked,
                admitted: new.admitted - old.admitted,
                completed: new.completed - old.completed,
                deferred_depth: new.deferred_depth.saturating_sub(old.deferred_depth),
                deferred_tags: new.deferred_tags.saturating_sub(old.deferred_tags),
                deferred_share: new.deferred_share.saturating_sub(old.deferred_share),
                cycles_waited: new.cycles_waited.saturating_sub(old.cycles_waited),
                bytes: new.bytes.saturating_sub(old.bytes),
            }
        };
        Rates {
            seconds: now.at.duration_since(before.at).as_secs_f64().max(1e-9),
            luns: now.luns.iter().map(delta).collect(),
        }
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    /// The table, with what `now` shows.
    pub fn table(&self, now: &Snapshot) -> String {
        let head = [
            "LUN",
            "depth",
            "weight",
            "executing",
            "parked",
            "IOPS",
            "BW",
            "deferred/s: depth",
            "tags",
            "share",
            "mean wait",
        ];
        let rows = now.luns.iter().zip(&self.luns).map(|(row, d)| {
            let rate = |count| format!("{:.0}", self.per_second(count));
            let budget = row.budget.unwrap_or_default();
            vec![
                row.lun.index.to_string(),
                budget.depth().to_string(),
                budget.weight().to_string(),
                d.in_flight.to_string(),
                d.parked.to_string(),
                rate(d.completed),
                format!("{}/s", bytes(self.per_second(d.bytes))),
                rate(d.deferred_depth),
                rate(d.deferred_tags),
                rate(d.deferred_share),
                now.wait(d.cycles_waited, d.admitted),
            ]
        });
        let all: u64 = self.luns.iter().map(|d| d.completed).sum();
        let moved: u64 = self.luns.iter().map(|d| d.bytes).sum();
        columns(&head, rows.collect())
            + &format!(
                "all: {:.0} IOPS, {}/s\n",
                self.per_second(all),
                bytes(self.per_second(moved))
            )
    }

    /// One look as a JSON object.
    pub fn json(&self, now: &Snapshot) -> Value {
        let luns = now.luns.iter().zip(&self.luns).map(|(row, d)| {
            json!({
                "lun": row.lun.index,
                "depth": row.budget.map(|budget| budget.depth()),
                "weight": row.budget.map(|budget| budget.weight()),
                "in_flight": d.in_flight,
                "parked": d.parked,
                "iops": self.per_second(d.completed),
                "bytes_per_s": self.per_second(d.bytes),
                "deferred_depth_per_s": self.per_second(d.deferred_depth),
                "deferred_tags_per_s": self.per_second(d.deferred_tags),
                "deferred_share_per_s": self.per_second(d.deferred_share),
                "cycles_waited": d.cycles_waited,
                "admitted": d.admitted,
            })
        });
        json!({ "seconds": self.seconds, "luns": luns.collect::<Vec<_>>() })
    }
}
