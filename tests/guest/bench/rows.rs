//! What is counted: boots, and in each the rows of its table, as shell commands for `scripts/bench.sh`.

use std::fmt::Write;

/// A row of a table.
pub struct Row {
    pub name: String,
    /// Before the row is counted, and after it.
    pub prepare: String,
    /// What is counted.
    pub run: String,
    pub after: String,
    /// Which part of the run: `counted bare` has three, told apart by how many I/Os each doorbell publishes.
    pub batch: Option<u64>,
    /// Counted with the row before, by another batch.
    pub same_run: bool,
}

impl Row {
    fn new(name: impl Into<String>, run: impl Into<String>) -> Row {
        Row {
            name: name.into(),
            prepare: String::new(),
            run: run.into(),
            after: String::new(),
            batch: None,
            same_run: false,
        }
    }
}

/// The engines of fio under which block devices are compared.
const ENGINES: [(&str, &str); 3] = [
    ("psync", "--ioengine=psync"),
    ("io_uring, depth 1", "--ioengine=io_uring --iodepth=1"),
    BATCHES,
];

/// Our driver, alone and under ublk, and the kernel's on one nvme function, whose address is in the shell variable `bdf`;
/// `ios` I/Os each. With `lun_depth`, our driver also with that depth of the LUN set on the card.
pub fn nvme(bdf: &str, ios: u64, lun_depth: Option<u16>) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in [1, 4, 32] {
        let mut row = Row::new(
            match batch {
                1 => "ours, bare loop, depth 1".to_owned(),
                _ => format!("ours, bare loop, {batch} a doorbell"),
            },
            format!("quietly counted ${bdf} bare --ios {ios}"),
        );
        row.prepare = format!("take ${bdf}");
        row.batch = Some(batch);
        row.same_run = batch != 1;
        rows.push(row);
    }
    for (depth, batch) in [(1, 1), (32, 8)] {
        rows.push(Row::new(
            format!("ours, perf, depth {depth}, {batch} a doorbell"),
            format!("quietly counted ${bdf} --depth {depth} --batch {batch} --ios {ios}"),
        ));
    }
    if let Some(depth) = lun_depth {
        rows.push(Row::new(
            format!("ours, LUN depth {depth} on the card, perf, depth 32, 8 a doorbell"),
            format!(
                "quietly counted ${bdf} --depth 32 --batch 8 --luns 0 --lun-depth {depth} --ios {ios}"
            ),
        ));
    }
    let first = rows.len();
    for (name, options) in ENGINES {
        rows.push(Row::new(
            format!("ours under ublk, fio {name}"),
            format!("run_fio {options} --number_ios={ios} --filename=/dev/ublkb0"),
        ));
    }
    rows[first].prepare = format!("ublk ${bdf}");
    rows.last_mut().expect("pushed").after = format!("no_ublk; give_back ${bdf}");
    for (name, options) in ENGINES {
        let mut row = Row::new(
            format!("Linux nvme, fio {name}"),
            format!("run_fio {options} --number_ios={ios} --filename=$lun"),
        );
        row.prepare = format!("lun=$(first_lun ${bdf})");
        rows.push(row);
    }
    rows
}

/// The card's accounting in place of Linux's: its LUNs may execute 2 commands, of 32 that the host has in flight.
pub fn card_accounting(ios: u64) -> Row {
    let name = format!("Linux nvme, LUN depth 2 on the card, fio {}", BATCHES.0);
    let run = format!("run_fio {} --number_ios={ios} --filename=$lun", BATCHES.1);
    let mut row = Row::new(name, run);
    let set = "nvme set-feature /dev/$(ctrl_of $card_bdf) -f 0xc0 -n 0xffffffff -V 0x00010002";
    row.prepare = format!("quietly {set}");
    row
}

/// What it is called, and fio's options.
const BATCHES: (&str, &str) = (
    "io_uring, depth 32, batches of 8",
    "--ioengine=io_uring --iodepth=32 --iodepth_batch_submit=8 --iodepth_batch_complete_min=8",
);

/// Linux's accounting under the same fio job: `scsi_debug` and `null_blk`, two jobs of `ios`
/// I/Os with 32 in flight each.
pub fn accounting(ios: u64) -> Vec<Row> {
    let fio = format!(
        "run_fio --ioengine=io_uring --iodepth=32 --numjobs=2 --size=7m --io_size=100g --number_ios={ios} --filename=$disks"
    );
    let mut rows = Vec::new();
    for (kind, name) in [("scsi", "scsi_debug"), ("null", "null_blk, shared tags")] {
        for luns in [1, 8] {
            for depth in [2, 8, 32, 128] {
                let plural = if luns == 1 { "" } else { "s" };
                let mut row = Row::new(
                    format!("{name}, {luns} LUN{plural}, depth {depth}"),
                    fio.clone(),
                );
                row.prepare = format!("{kind} {luns} {depth}");
                row.after = format!("no_{kind}");
                rows.push(row);
            }
        }
    }
    rows
}

/// The rows as a script.
pub fn script(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|row| !row.same_run) {
        let Row {
            name,
            prepare,
            run,
            after,
            ..
        } = row;
        let _ = writeln!(text, "{prepare}\nrow \"{name}\"\n{run}\nmark\n{after}");
    }
    text
}
