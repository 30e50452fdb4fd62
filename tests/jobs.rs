//! Every job file of `jobs/` runs through `weir sim`, as a user runs it, for a short simulated time; none is refused, no byte
//! is wrong.

use std::path::Path;
use std::process::Command;

/// One card that has what every job needs; the link's model would only make it slower here.
const CARD: [&str; 12] = [
    "--config",
    "small",
    "--queues",
    "32",
    "--luns",
    "24",
    "--entries",
    "64",
    "--tags",
    "256",
    "--link",
    "none",
];

/// File, and the settings of `jobs/README.md` that fit this card.
const JOBS: [(&str, &[&str]); 9] = [
    ("demo.fio", &["--depth", "0=8"]),
    (
        "s0-one-lun-32-queues.fio",
        &["--depth", "256", "--ios", "2500"],
    ),
    (
        "s1-soak-24-luns.fio",
        &["--soak-period", "5us", "--media-latency", "1us-4us"],
    ),
    ("s1-three-luns-two-cpus.fio", &["--depth", "64"]),
    ("s2-grid.fio", &["--depth", "32"]),
    (
        "s3-many-luns.fio",
        &["--depth", "128", "--fairness", "even"],
    ),
    ("s3-one-lun-64-jobs.fio", &["--depth", "32"]),
    ("s4-depth-1.fio", &["--depth", "128"]),
    ("s4-depth-2.fio", &["--depth", "128"]),
];

#[test]
fn every_job_file_runs() {
    let jobs = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs");
    let named = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.ends_with(".fio").then_some(name)
    };
    let mut files: Vec<String> = jobs.read_dir().unwrap().filter_map(named).collect();
    files.sort();
    assert_eq!(
        files,
        JOBS.map(|(file, _)| file),
        "each job file is run here"
    );
    for (file, settings) in JOBS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .arg("sim")
            .arg(jobs.join(file))
            .args(CARD)
            .args(settings);
        if !settings.contains(&"--ios") {
            command.args(["--time", "20us"]);
        }
        let run = command.output().unwrap();
        let (out, error) = (
            String::from_utf8_lossy(&run.stdout),
            String::from_utf8_lossy(&run.stderr),
        );
        assert!(
            run.status.success(),
            "{file}: {:?}: {error}\n{out}",
            run.status
        );
        assert!(
            out.contains("0 blocks wrong, 0 I/Os failed"),
            "{file}: {out}"
        );
    }
}
