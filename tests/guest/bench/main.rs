//! `make guest-bench`: guest instructions an I/O, and how many of them are locked, counted by the plugin beside this.
//! docs/cost.md has the method, its limits and a result.
//!
//! Three boots: QEMU's own nvme under our driver and Linux's; Linux's accounting (`scsi_debug`, `null_blk`); the card
//! under both drivers. `--only own,accounting,card` says which, and nothing runs without it, as in `make bench`;
//! `--json FILE` writes every function's count too.
#![forbid(unsafe_code)]

#[path = "../card.rs"]
#[allow(dead_code)]
mod card;
mod counts;
#[path = "../initrd.rs"]
mod initrd;
#[path = "../machine.rs"]
#[allow(dead_code)]
mod machine;
#[path = "../programs.rs"]
mod programs;
mod rows;

use card::Card;
use counts::{Cost, Section};
use machine::{Boot, Counting, Device, Guest};
use rows::Row;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A boot and its table.
struct Table {
    title: &'static str,
    devices: Vec<Device>,
    rows: Vec<Row>,
    cpus: u32,
    /// The plugin's arguments beside `out`.
    arguments: String,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    let (mut json, mut only) = (None, None);
    while let Some(name) = arguments.next() {
        match (name.as_str(), arguments.next()) {
            ("--json", Some(path)) => json = Some(PathBuf::from(path)),
            ("--only", Some(list)) => only = Some(list),
            _ => {
                eprintln!("{name}: --json FILE or --only own,accounting,card");
                return ExitCode::from(2);
            }
        }
    }
    let Some(only) = only else {
        println!("guest_cost: wants QEMU and a guest; make guest-bench runs it");
        return ExitCode::SUCCESS;
    };
    match run(&only, json.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(only: &str, json: Option<&Path>) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let plugin = build_plugin()?;
    let mut programs = programs::build(dir.path());
    programs.push(build_mark(dir.path())?);
    let mut event = None;
    let mut report = serde_json::Map::new();
    for key in only.split(',') {
        if key == "accounting" && event.is_none() {
            // A boot with no rows, for the address of the event.
            let nothing = table("symbols", dir.path(), None, None)?;
            event = count(dir.path(), &plugin, &programs, &nothing)?.event;
        }
        let card = (key == "card").then(|| Card::serve(dir.path(), None));
        let table = table(key, dir.path(), card.as_ref(), event)?;
        let counted = count(dir.path(), &plugin, &programs, &table)?;
        event = counted.event;
        print(&table, &counted.costs);
        report.insert(key.to_owned(), as_json(&table, &counted.costs));
    }
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?;
        fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn table(key: &str, dir: &Path, card: Option<&Card>, event: Option<u64>) -> Result<Table, String> {
    let drain = Device::own_nvme(dir, 1);
    Ok(match key {
        "symbols" => Table {
            title: "",
            devices: vec![drain],
            rows: Vec::new(),
            cpus: 1,
            arguments: String::new(),
        },
        "own" => Table {
            title: "QEMU's own nvme, one vCPU",
            devices: vec![Device::Null, drain],
            rows: rows::nvme("own_bdf", 10_000, None),
            cpus: 1,
            arguments: "window=200,hold=device".into(),
        },
        "accounting" => Table {
            title: "Linux's accounting: two fio jobs keep 32 in flight each, two hardware queues, two vCPUs; a command takes 1 ms of the emulator's time",
            devices: vec![drain],
            rows: rows::accounting(4000),
            cpus: 2,
            arguments: format!(
                "window=400,event={:#x}",
                event.ok_or("no symbol blk_mq_start_request")?
            ),
        },
        "card" => Table {
            title: "the simulated card, one vCPU",
            devices: vec![Device::Card(card.ok_or("no card")?.socket().into()), drain],
            rows: rows::nvme("card_bdf", 800, Some(2))
                .into_iter()
                .chain([rows::card_accounting(800)])
                .collect(),
            cpus: 1,
            // Long enough for the simulation to be done with a batch of 32: nothing polls or idles in vain.
            arguments: format!("window=64,hold={CARD_HOLD_US}"),
        },
        _ => return Err(format!("--only {key}: own, accounting or card")),
    })
}

/// How long a vCPU stands after a doorbell of the card, us of the host's time.
const CARD_HOLD_US: u32 = 20_000;

/// What a boot gave.
struct Counted {
    costs: Vec<Result<Cost, String>>,
    /// Address of `blk_mq_start_request`, which every block driver calls once an I/O.
    event: Option<u64>,
}

fn count(
    dir: &Path,
    plugin: &Path,
    programs: &[PathBuf],
    table: &Table,
) -> Result<Counted, String> {
    let out = dir.join("counts.jsonl");
    let counting = Counting {
        plugin: format!(
            "{},out={},{}",
            plugin.display(),
            out.display(),
            table.arguments
        ),
        cpus: table.cpus,
    };
    let script = rows::script(&table.rows);
    let mut guest = Guest::boot(
        dir,
        &Boot {
            name: "bench",
            devices: &table.devices,
            test: "bench.sh",
            programs,
            files: &[("rows.sh", &script)],
            counting: Some(&counting),
        },
    );
    guest.must_pass(&["symbols"]);
    guest.kill(); // every section but the one after the last mark is written
    let bytes = fs::read(dir.join("own0.raw")).map_err(|e| e.to_string())?;
    let text: Vec<u8> = bytes.into_iter().take_while(|byte| *byte != 0).collect();
    let symbols = counts::symbols(&String::from_utf8_lossy(&text));
    let event = symbols
        .iter()
        .find(|(_, name)| *name == "blk_mq_start_request");
    let text = fs::read_to_string(&out).map_err(|e| e.to_string())?;
    let sections: Vec<Section> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|e| format!("{}: {e}", out.display()))?;
    // After each row comes what lies between it and the next.
    let mut sections = sections.iter().step_by(2);
    let mut section = None;
    let mut costs = Vec::new();
    for row in &table.rows {
        if !row.same_run {
            section = sections.next();
        }
        let section = section.ok_or_else(|| format!("row '{}' was not counted", row.name))?;
        costs.push(counts::cost(section, row.batch, &symbols));
    }
    Ok(Counted {
        costs,
        event: event.map(|(address, _)| *address),
    })
}

const GROUPS: [&str; 5] = ["budget", "tags", "queue run", "spin locks", "switches"];

fn print(table: &Table, costs: &[Result<Cost, String>]) {
    println!("\n{}\n", table.title);
    println!(
        "| driver and job | instructions | user | kernel | locked | {} | windows that agree |",
        GROUPS.map(|group| format!("{group} (locked)")).join(" | ")
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (row, cost) in table.rows.iter().zip(costs) {
        match cost {
            Ok(cost) => {
                let group = |name| {
                    cost.groups
                        .get(name)
                        .map_or("-".to_owned(), |(all, locked)| {
                            format!("{all:.0} ({locked:.1})")
                        })
                };
                println!(
                    "| {} | {:.1} | {:.1} | {:.1} | {:.2} | {} | {:.0} % |",
                    row.name,
                    cost.total(),
                    cost.user,
                    cost.kernel,
                    cost.locked,
                    GROUPS.map(group).join(" | "),
                    cost.agree * 100.0
                );
            }
            Err(why) => println!("| {} | not counted: {why} |", row.name),
        }
    }
}

fn as_json(table: &Table, costs: &[Result<Cost, String>]) -> Value {
    let row = |(row, cost): (&Row, &Result<Cost, String>)| match cost {
        Ok(cost) => json!({
            "row": row.name, "ios": cost.ios, "instructions": cost.total(), "user": cost.user, "kernel": cost.kernel,
            "locked": cost.locked, "doorbells": cost.doorbells, "agree": cost.agree,
            "groups": cost.groups, "functions": cost.functions,
        }),
        Err(why) => json!({ "row": row.name, "not_counted": why }),
    };
    let rows: Vec<Value> = table.rows.iter().zip(costs).map(row).collect();
    json!({ "title": table.title, "cpus": table.cpus, "rows": rows })
}

fn build_plugin() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = root.join("target/guest");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args([
        "build",
        "--locked",
        "--quiet",
        "--release",
        "--package",
        "weir-count-plugin",
    ]);
    cargo.arg("--target-dir").arg(&target);
    succeed(&mut cargo)?;
    Ok(target.join("release/libweir_count_plugin.so"))
}

fn build_mark(dir: &Path) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/bench/mark.rs");
    let mark = dir.join("mark");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .args([
            "--edition",
            "2024",
            "-O",
            "-C",
            "target-feature=+crt-static",
            "-o",
        ])
        .arg(&mark)
        .arg(source);
    succeed(&mut rustc)?;
    Ok(mark)
}

fn succeed(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{:?}: {status}", command.get_program())),
        Err(error) => Err(format!("{:?}: {error}", command.get_program())),
    }
}
