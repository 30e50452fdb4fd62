//! The `weir` program: exit codes, messages, reports and Verilog, as a user gets them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn weir(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder of this test's own, empty.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

const JOB: &str = "[global]\nioengine=libaio\nsize=64k\n[a]\nfilename=x\nrw=randrw\nbs=4k\niodepth=8\nverify=crc32c\n\
                   [b]\nfilename=y\nrw=randread\nbs=512\niodepth=4\n";

fn job(dir: &std::path::Path, text: &str) -> String {
    let path = dir.join("job.fio");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn a_good_run_reports_and_repeats() {
    let dir = folder("good");
    let job = job(&dir, JOB);
    let json = |name: &str, seed: &str| {
        let out = dir.join(name);
        let out = out.to_str().unwrap();
        let run = weir(&[
            "sim",
            &job,
            "--config",
            "small",
            "--ios",
            "100",
            "--depth",
            "3",
            "--depth",
            "1=2",
            "--seed",
            seed,
            "--media-latency",
            "2us",
            "--json",
            out,
        ]);
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
        assert!(
            text(&run.stdout).contains("0 blocks wrong, 0 I/Os failed"),
            "{}",
            text(&run.stdout)
        );
        // The clock on the wall is the only thing that may differ.
        let lines = fs::read_to_string(out).unwrap();
        let same = |line: &&str| !line.contains("\"wall_s\"");
        lines.lines().filter(same).collect::<Vec<_>>().join("\n")
    };
    let first = json("one.json", "5");
    assert_eq!(first, json("two.json", "5"));
    assert_ne!(first, json("three.json", "6"));
    for key in ["\"jobs\"", "\"jobname\": \"a\"", "\"clat_ns\"", "\"weir\""] {
        assert!(first.contains(key), "no {key}");
    }
}

#[test]
fn what_cannot_be_run_is_said_and_is_exit_code_2() {
    let dir = folder("usage");
    let usage = |args: &[&str], part: &str| {
        let run = weir(args);
        assert_eq!(
            run.status.code(),
            Some(2),
            "{args:?}: {}",
            text(&run.stderr)
        );
        assert!(
            text(&run.stderr).contains(part),
            "{args:?}: {} does not say {part}",
            text(&run.stderr)
        );
    };
    usage(&["sim", "not-there.fio"], "not-there.fio");
    let wrong = job(&dir, "[a]\nfilename=x\nrw=sideways\n");
    usage(&["sim", &wrong], "job.fio:3:");
    let good = job(&dir, JOB);
    usage(
        &["sim", &good, "--config", "tiny"],
        "small, default or large",
    );
    usage(&["sim", &good, "--cpus", "99"], "1 to 16");
    for (wrong, says) in [
        (&["--depth", "0"][..], "a depth of 0; 1 to 512"),
        (&["--depth", "1=600"], "a depth of 600; 1 to 512"),
        (&["--depth", "9", "--tags", "8"], "a depth of 9; 1 to 8"),
        (&["--weight", "0"], "a weight of 0"),
        (&["--at", "1us", "lun0.depth=0"], "a depth of 0"),
        (&["--at", "1x", "lun0.depth=1"], "'1x' is no time"),
        (&["--luns", "1"], "--luns 1: the job file has 2 LUNs"),
        (&["--lun-size", "1p"], "512 TiB"),
        (&["--time", "3601s"], "at most an hour"),
        (&["--media-latency", "1000000000s"], "at most an hour"),
        (&["--cpu-ns", "1000000001"], "--cpu-ns"),
        (&["--json", "/dev/null/x"], "cannot write /dev/null/x"),
        (&["--trace", "/dev/null/x"], "cannot write /dev/null/x"),
        (&["--weight", "0:4"], "LUN=N"),
        (&["--tags", "100000"], "tags = 100000 cannot be built"),
    ] {
        usage(&[&["sim", &good], wrong].concat(), says);
    }
    usage(&["sim", &good, "--depth", "7=3"], "LUNs 0 to 1");
    usage(
        &["sim", &good, "--at", "200us", "lun9.depth=4"],
        "LUNs 0 to 1",
    );
    usage(&["sim", &good, "--link", "gen9x8"], "gen3x8");
    usage(&["rtl", "-o", "/dev/null/x"], "cannot make");
    usage(
        &["rtl", "-o", "/dev/null/x", "--tags", "3"],
        "built with 512",
    );
    usage(&["regs", "--luns", "3"], "built with 32");
    for (line, says) in [
        ("size=200%", "200% is more than all"),
        ("cpus_allowed=-1", "CPUs from 0 on"),
        ("ioengine=nbd", "make fio"),
    ] {
        let wrong = job(&dir, &format!("[a]\nfilename=x\n{line}\n"));
        usage(&["sim", &wrong], says);
    }
    let good = job(&dir, JOB);
    usage(
        &["sim", &good, "--media-bandwidth", "0"],
        "nothing would ever be moved",
    );
    // Devices that are none: every way to name one.
    for name in ["", "rubbish", "99:99.9", "../../x", "0000:01:00.0/../x"] {
        usage(&["bind", name], "is no PCI function");
        usage(&["unbind", name], "is no PCI function");
        usage(&["lun", "list", "--device", name], "names no device");
        let socket = dir.join("s");
        let socket = socket.to_str().unwrap();
        usage(
            &["export", "nbd", "--device", name, "--socket", socket],
            "names no device",
        );
    }
    usage(&["bind", "ffff:ff:1f.7"], "there is no PCI function");
    usage(&["unbind", "ffff:ff:1f.7"], "there is no PCI function");
    for (name, part) in [
        ("ffff:ff:1f.7", "there is no PCI function"),
        ("/nowhere", "cannot open /nowhere"),
        ("/dev/null", "/dev/null: Identify"),
        ("vfio-user:/nowhere", "/nowhere: there is no such socket"),
        ("vfio-user:/dev/null", "/dev/null: nobody listens there"),
        ("control:/nowhere", "there is no such socket"),
    ] {
        usage(&["lun", "list", "--device", name], part);
        usage(&["lun", "set", "--tags", "1", "--device", name], part);
    }
    for (option, value, part) in [
        ("--depth", "x", "no number"),
        ("--depth", "lun=1", "no LUN"),
        ("--weight", "65536", "no number"),
        ("--tags", "-1", "unexpected argument"),
        ("--fairness", "fair", "none, even, weighted"),
    ] {
        usage(&["lun", "set", "--device", "/nowhere", option, value], part);
    }
}

#[test]
fn the_verilog_is_the_same_every_time_and_without_a_warning() {
    let dir = folder("rtl");
    let write = |name: &str| {
        let out = dir.join(name);
        let run = weir(&["rtl", "--config", "small", "-o", out.to_str().unwrap()]);
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
        let list = fs::read_to_string(out.join("card.f")).unwrap();
        let read = |name: &str| {
            (
                name.to_string(),
                fs::read_to_string(out.join(name)).unwrap(),
            )
        };
        list.lines().map(read).collect::<Vec<_>>()
    };
    let files = write("one");
    assert!(files == write("two"), "two runs wrote different Verilog");
    assert_eq!(
        files.last().map(|(name, _)| name.as_str()),
        Some("card.v"),
        "the top comes last"
    );
    verilator_sys::lint(files, "card").unwrap();
    // Where another card's modules were, only this one's are afterwards; what is not ours stays.
    let two = dir.join("two");
    fs::write(two.join("mine.v"), "").unwrap();
    fs::write(two.join("old.v"), "").unwrap();
    fs::write(two.join("card.f"), "old.v\n../one/card.v\n").unwrap();
    write("two");
    assert!(two.join("mine.v").exists() && !two.join("old.v").exists());
    assert!(dir.join("one/card.v").exists());
}

#[test]
fn fewer_tags_in_use_than_built_bound_what_executes() {
    let dir = folder("tags");
    let job = job(&dir, JOB);
    let out = dir.join("out.json");
    let run = weir(&[
        "sim",
        &job,
        "--config",
        "small",
        "--ios",
        "100",
        "--tags",
        "4",
        "--media-latency",
        "5us",
        "--json",
        out.to_str().unwrap(),
    ]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let report = fs::read_to_string(&out).unwrap();
    let numbers = |key: &str| {
        let key = format!("\"{key}\": ");
        let found = report.split(&key).skip(1);
        found
            .map(|rest| {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                digits.parse::<u64>().unwrap()
            })
            .collect::<Vec<_>>()
    };
    assert!(numbers("deferred_tags").iter().sum::<u64>() > 0, "{report}");
    let peaks = numbers("peak");
    assert!(
        !peaks.is_empty() && peaks.iter().all(|&peak| peak <= 4),
        "{peaks:?}"
    );
}
