//! `weir regs`: registers, features and logs, from the tables that the hardware is made of.

use std::fmt::Write;

use weir_card::config::CardConfig;
use weir_card::regs::{Source, arrays, registers};
use weir_nvme::feature::{FeatureId, LunBudget, TagSet};
use weir_nvme::log::LunStatistics;

use crate::Failure;
use crate::options::CardArgs;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    card: CardArgs,
    /// As Markdown: what docs/registers.md holds.
    #[arg(long)]
    markdown: bool,
}

/// Prints the map.
pub fn run(args: &Args) -> Result<(), Failure> {
    let config = args.card.built().map_err(Failure::Usage)?;
    crate::say(&if args.markdown {
        markdown(&config)
    } else {
        text(&config)
    })
}

/// One table of the map.
struct Table {
    title: &'static str,
    note: &'static str,
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

fn bits(lo: u32, width: u32) -> String {
    if width == 1 {
        lo.to_string()
    } else {
        format!("{}:{lo}", lo + width - 1)
    }
}

/// The place of a field that is all ones in a word of zeros.
fn mask(word: impl Into<u32>) -> String {
    let word = word.into();
    bits(word.trailing_zeros(), word.count_ones())
}

fn tables(c: &CardConfig) -> Vec<Table> {
    let mut fields = Vec::new();
    for register in registers(c) {
        let name = format!("{} ({})", register.name, register.doc);
        fields.push(vec![
            format!("{:#06x}", register.offset),
            register.bits.to_string(),
            String::new(),
            String::new(),
            name,
        ]);
        for field in &register.fields {
            let (access, reset) = match field.source {
                Source::Const(value) => ("RO", format!("{value:#x}")),
                Source::Rw(value) => ("RW", format!("{value:#x}")),
                Source::Status(_) => ("RO", "0x0".into()),
            };
            fields.push(vec![
                String::new(),
                bits(field.lo, field.width),
                access.into(),
                reset,
                format!("{}: {}", field.name, field.doc),
            ]);
        }
    }
    let repeated = arrays(c)
        .iter()
        .map(|a| {
            vec![
                format!("{:#06x} + {} n", a.offset, a.stride),
                a.count.to_string(),
                a.access.into(),
                format!("{}: {}", a.name, a.doc),
            ]
        })
        .collect();
    let depth = format!("1 to {}", c.tags);
    let features = [
        (
            FeatureId::LUN_BUDGET,
            mask(LunBudget::new().with_depth(u16::MAX)),
            depth.as_str(),
            "LUN budget, by NSID (FFFFFFFFh: all): depth, commands that may execute at once",
        ),
        (
            FeatureId::LUN_BUDGET,
            mask(LunBudget::new().with_weight(u16::MAX)),
            "1 to 65535",
            "LUN budget: weight under the weighted rule",
        ),
        (
            FeatureId::TAG_SET,
            mask(TagSet::new().with_depth(u16::MAX)),
            depth.as_str(),
            "tag set: tag depth, commands of all LUNs that may execute at once",
        ),
        (
            FeatureId::TAG_SET,
            mask(TagSet::new().with_fairness(3)),
            "0 to 2",
            "tag set: fairness rule; 0 none, 1 even, 2 weighted",
        ),
    ];
    let features = features.map(|(id, bits, range, what)| {
        vec![format!("{:X}h", id.0), bits, range.into(), what.into()]
    });
    let log = LunStatistics::FIELDS
        .iter()
        .enumerate()
        .map(|(n, name)| vec![format!("{:#04x}", 8 * n), (*name).to_string()])
        .collect();
    let platform = weir_card::lun_map::REGISTERS.map(|(at, access, name, what)| {
        let per_lun = if at < weir_card::lun_map::offset::TABLE {
            String::new()
        } else {
            " + 16 n".into()
        };
        vec![
            format!("{at:#06x}{per_lun}"),
            access.into(),
            format!("{name}: {what}"),
        ]
    });
    vec![
        Table {
            title: "BAR0 registers",
            note: "NVMe 1.4, 3.1. Bits of no field read as 0.",
            head: vec!["offset", "bits", "access", "reset", "name and meaning"],
            rows: fields,
        },
        Table {
            title: "BAR0 arrays",
            note: "Doorbells (NVMe 1.4, 3.1.24, 3.1.25), MSI-X table and PBA (PCIe 4.0, 7.7.2).",
            head: vec!["offset", "count", "access", "name and meaning"],
            rows: repeated,
        },
        Table {
            title: "Vendor features",
            note: "Set Features dword 11, Get Features dword 0 of the completion. Neither is saveable.",
            head: vec!["feature", "bits", "range", "meaning"],
            rows: features.to_vec(),
        },
        Table {
            title: "Log page C0h: LUN statistics",
            note: "By NSID; 64-bit words, little-endian, one consistent snapshot.",
            head: vec!["offset", "meaning"],
            rows: log,
        },
        Table {
            title: "Platform registers",
            note: "The port `plat`; loaded before the controller is enabled.",
            head: vec!["offset", "access", "name and meaning"],
            rows: platform.to_vec(),
        },
    ]
}

/// The map of a card as Markdown.
fn markdown(c: &CardConfig) -> String {
    let mut out = String::from("# Registers, features and logs\n\n");
    let _ = writeln!(
        out,
        "Printed by `weir regs --markdown`; values that depend on it are the {} card's.",
        c.name
    );
    for table in tables(c) {
        let _ = writeln!(out, "\n## {}\n\n{}\n", table.title, table.note);
        let _ = writeln!(out, "| {} |", table.head.join(" | "));
        let _ = writeln!(out, "|{}", "---|".repeat(table.head.len()));
        for row in &table.rows {
            let _ = writeln!(out, "| {} |", row.join(" | "));
        }
    }
    out
}

/// The map of a card as text, in columns.
fn text(c: &CardConfig) -> String {
    let mut out = String::new();
    for table in tables(c) {
        let _ = writeln!(out, "{}\n  {}\n", table.title, table.note);
        let head: Vec<String> = table.head.iter().map(|s| (*s).to_string()).collect();
        let rows: Vec<&Vec<String>> = std::iter::once(&head).chain(&table.rows).collect();
        let width = |n: usize| {
            rows.iter()
                .map(|row| row[n].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for row in rows {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, w)| format!("{cell:w$}"))
                .collect();
            let _ = writeln!(out, "  {}", cells.join("  ").trim_end());
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_what_is_printed() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/registers.md");
        let text = markdown(&CardConfig::default_card());
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let document = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            document == text,
            "docs/registers.md is not what `weir regs --markdown` prints: run it into the file, or this test with WEIR_BLESS=1"
        );
    }

    #[test]
    fn every_register_is_in_the_text() {
        let c = CardConfig::small();
        let text = text(&c);
        let registers = registers(&c)
            .iter()
            .map(|r| r.name.to_string())
            .collect::<Vec<_>>();
        let arrays = arrays(&c)
            .iter()
            .map(|a| a.name.to_string())
            .collect::<Vec<_>>();
        let platform = weir_card::lun_map::REGISTERS.map(|r| r.2.to_string());
        let log = LunStatistics::FIELDS.map(String::from);
        for name in registers.iter().chain(&arrays).chain(&platform).chain(&log) {
            assert!(text.contains(name), "{name}");
        }
    }
}
