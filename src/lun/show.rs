//! A look at a controller and its LUNs, as text and as JSON.

use std::fmt::Write;
use std::time::Instant;

use serde_json::{Value, json};
use weir_driver::nvme::feature::{Fairness, LunBudget};
use weir_driver::nvme::log::LunStatistics;
use weir_driver::{Admin, Error, Info, Lun};

use super::{Holder, failed};
use crate::Failure;

/// What was seen at one moment.
pub struct Snapshot {
    holder: &'static str,
    pub info: Info,
    /// Tag depth and rule; a Weir card's.
    tags: Option<(u16, Fairness)>,
    pub luns: Vec<Row>,
    /// When the statistics were read.
    pub at: Instant,
}

/// One LUN.
pub struct Row {
    pub lun: Lun,
    /// Its block device, when the kernel has made one.
    device: Option<String>,
    /// A Weir card's.
    pub budget: Option<LunBudget>,
    pub statistics: Option<LunStatistics>,
}

impl Snapshot {
    /// Asks `admin`, whose controller `holder` has; with statistics if so wanted, which only a Weir card has.
    pub fn take(admin: &mut dyn Admin, holder: &Holder, statistics: bool) -> Result<Self, Failure> {
        let info = admin.info().clone();
        let weir = info.weir.is_some();
        if statistics && !weir {
            return Err(failed(Error::Unsupported("LUN statistics")));
        }
        let tags = weir.then(|| admin.tags()).transpose().map_err(failed)?;
        let at = Instant::now();
        let mut luns = Vec::new();
        for lun in admin.luns().to_vec() {
            let mut read = || {
                let budget = weir.then(|| admin.budget(lun.index)).transpose()?;
                let counts = statistics.then(|| admin.lun_statistics(lun.index));
                let device = holder
                    .block_devices
                    .iter()
                    .find(|(nsid, _)| *nsid == lun.nsid);
                Ok(Row {
                    lun,
                    device: device.map(|(_, name)| format!("/dev/{name}")),
                    budget,
                    statistics: counts.transpose()?,
                })
            };
            luns.push(read().map_err(failed)?);
        }
        Ok(Snapshot {
            holder: holder.name,
            info,
            tags,
            luns,
            at,
        })
    }

    /// The controller, in a line or two.
    fn controller(&self) -> String {
        let info = &self.info;
        let mut text = format!(
            "{}, serial {}, firmware {}; driven by {}\n",
            info.model, info.serial, info.firmware, self.holder
        );
        if let (Some(weir), Some((depth, fairness))) = (info.weir, self.tags) {
            let _ = writeln!(
                text,
                "{} tags, of which {depth} may be used; fairness {}; {} LUNs",
                weir.tags,
                fairness.name(),
                self.luns.len()
            );
        } else {
            text += "no Weir card: it has no depths, weights and LUN statistics\n";
        }
        text
    }

    /// `weir lun list`.
    pub fn list(&self) -> String {
        let rows = self.luns.iter().map(|row| {
            let budget = |value: fn(LunBudget) -> u16| {
                row.budget
                    .map_or("-".to_owned(), |budget| value(budget).to_string())
            };
            vec![
                row.lun.index.to_string(),
                row.lun.nsid.to_string(),
                bytes(row.lun.bytes() as f64),
                format!("{} B", row.lun.block_size()),
                budget(|budget| budget.depth()),
                budget(|budget| budget.weight()),
                row.device.clone().unwrap_or("-".to_owned()),
                id(&row.lun),
            ]
        });
        let head = [
            "LUN", "NSID", "size", "block", "depth", "weight", "device", "id",
        ];
        self.controller() + &columns(&head, rows.collect())
    }

    /// `weir lun stat`.
    pub fn statistics(&self) -> String {
        let rows = self.luns.iter().map(|row| {
            let s = row.statistics.unwrap_or_default();
            vec![
                row.lun.index.to_string(),
                s.in_flight.to_string(),
                s.peak.to_string(),
                s.parked.to_string(),
                s.admitted.to_string(),
                s.completed.to_string(),
                s.deferred_depth.to_string(),
                s.deferred_tags.to_string(),
                s.deferred_share.to_string(),
                self.wait(s.cycles_waited, s.admitted),
                bytes(s.bytes as f64),
            ]
        });
        let head = [
            "LUN",
            "executing",
            "peak",
            "parked",
            "admitted",
            "completed",
            "deferred: depth",
            "tags",
            "share",
            "mean wait",
            "moved",
        ];
        self.controller() + &columns(&head, rows.collect())
    }

    /// Mean time that `commands` spent parked, in all `cycles`.
    pub fn wait(&self, cycles: u64, commands: u64) -> String {
        let khz = self.info.weir.map_or(0, |weir| weir.clock_khz);
        if khz == 0 || commands == 0 {
            return "-".to_owned();
        }
        let us = cycles as f64 / f64::from(khz) * 1000.0 / commands as f64;
        format!("{us:.2} us")
    }

    /// Everything.
    pub fn json(&self) -> Value {
        let info = &self.info;
        let luns: Vec<Value> = self
            .luns
            .iter()
            .map(|row| {
                let mut lun = json!({
                    "lun": row.lun.index,
                    "nsid": row.lun.nsid,
                    "blocks": row.lun.blocks,
                    "block_bytes": row.lun.block_size(),
                    "device": row.device,
                    "id": row.lun.id.map(|_| id(&row.lun)),
                    "depth": row.budget.map(|budget| budget.depth()),
                    "weight": row.budget.map(|budget| budget.weight()),
                });
                if let Some(s) = row.statistics {
                    lun["statistics"] = json!({
                        "in_flight": s.in_flight,
                        "peak": s.peak,
                        "parked": s.parked,
                        "admitted": s.admitted,
                        "completed": s.completed,
                        "deferred_depth": s.deferred_depth,
                        "deferred_tags": s.deferred_tags,
                        "deferred_share": s.deferred_share,
                        "cycles_waited": s.cycles_waited,
                        "bytes": s.bytes,
                    });
                }
                lun
            })
            .collect();
        json!({
            "controller": {
                "model": info.model,
                "serial": info.serial,
                "firmware": info.firmware,
                "driven_by": self.holder,
                "weir": info.weir.is_some(),
                "tags": info.weir.map(|weir| weir.tags),
                "clock_khz": info.weir.map(|weir| weir.clock_khz),
                "tag_depth": self.tags.map(|(depth, _)| depth),
                "fairness": self.tags.map(|(_, fairness)| fairness.name()),
            },
            "luns": luns,
        })
    }
}

fn id(lun: &Lun) -> String {
    lun.id.map_or("-".to_owned(), |id| {
        id.iter().map(|byte| format!("{byte:02x}")).collect()
    })
}

/// Bytes with a unit and three digits.
pub fn bytes(count: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

/// A table, its columns to the right.
pub fn columns(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut all = vec![head.iter().map(ToString::to_string).collect::<Vec<_>>()];
    all.extend(rows);
    let width = |column: usize| {
        let cells = all.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &all {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "));
    }
    text
}
