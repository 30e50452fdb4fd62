//! The job files of the repository, malformed ones, and fio's own list of options.

use super::engine::planned;
use super::model::Model;
use crate::fio::options::{TABLE, find};
use crate::fio::plan::cpus_named;
use crate::fio::report::{Report, Simulator, html, json, table};
use crate::fio::{JobFile, Plan, PlanOptions, Results, RunOptions, parse_with_env, plan, run};

fn job_files() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("jobs/ is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "fio"))
        .map(|path| {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, std::fs::read_to_string(&path).expect("text"))
        })
        .collect();
    files.sort();
    files
}

fn parsed(text: &str) -> JobFile {
    parse_with_env("test.fio", text, &|_| None).expect("parses")
}

/// Instances, LUNs and groups as fio makes them of these files (its "Starting N processes", and --showcmd).
#[test]
fn the_repository_s_jobs_expand_as_fio_s() {
    let want = [
        ("demo.fio", 6, 4),
        ("s0-one-lun-32-queues.fio", 32, 1),
        ("s1-soak-24-luns.fio", 24, 24),
        ("s1-three-luns-two-cpus.fio", 3, 3),
        ("s2-grid.fio", 16, 4),
        ("s3-many-luns.fio", 15, 8),
        ("s3-one-lun-64-jobs.fio", 64, 1),
        ("s4-depth-1.fio", 128, 1),
        ("s4-depth-2.fio", 128, 1),
    ];
    let files = job_files();
    let got: Vec<_> = files
        .iter()
        .map(|(name, text)| {
            let file =
                parse_with_env(name, text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
            let plan = plan(
                &file,
                &PlanOptions {
                    cpus: 16,
                    ..PlanOptions::default()
                },
            )
            .unwrap_or_else(|error| panic!("{error}"));
            (name.as_str(), plan.instances.len(), plan.luns.len())
        })
        .collect();
    assert_eq!(got, want);
}

/// Every job file runs on the model, and reads nothing wrong.
#[test]
fn the_repository_s_jobs_run() {
    for (name, text) in job_files() {
        let file = parse_with_env(&name, &text, &|_| None).expect("parses");
        let cpus = 4;
        let plan = plan(
            &file,
            &PlanOptions {
                cpus,
                time_ns: Some(200_000),
                ..PlanOptions::default()
            },
        )
        .expect("plans");
        let mut model = Model::new(cpus as usize, plan.luns.len(), 255, plan.seed);
        let results = run(&plan, &RunOptions::default(), &mut model, &mut |_| {}).expect("runs");
        assert!(results.is_good(), "{name}: {:?}", results.mismatches);
        assert!(
            results.instances.iter().all(|instance| instance.started),
            "{name}"
        );
        assert!(
            results.total().read.ios > 100,
            "{name}: {}",
            results.total().read.ios
        );
        if text.contains("verify=") {
            assert!(results.total().verified_bytes > 0, "{name}");
        }
    }
}

#[test]
fn sections_options_and_engines_mean_what_fio_says() {
    let s1 = job_files()
        .into_iter()
        .find(|(name, _)| name == "s1-three-luns-two-cpus.fio")
        .expect("there")
        .1;
    let file = parsed(&s1);
    assert_eq!(
        file.sections
            .iter()
            .map(|s| s.name.as_str())
            .collect::<Vec<_>>(),
        ["seqprecon"; 3]
    );
    assert_eq!(cpus_named(&file), 2);
    let ignored: Vec<_> = file.ignored.iter().map(|i| (i.option, i.line)).collect();
    assert_eq!(ignored, [("direct", 3), ("sync", 4), ("ioscheduler", 10)]);
    let plan = plan(
        &file,
        &PlanOptions {
            cpus: 2,
            ..PlanOptions::default()
        },
    )
    .expect("plans");
    assert_eq!(
        plan.instances.iter().map(|i| i.cpu).collect::<Vec<_>>(),
        [0, 1, 0]
    );
    assert!(plan.instances.iter().all(|i| i.depth == 128));
    // 60 s are 5 ms, so 20 s are 1.67 ms.
    assert_eq!(
        (plan.instances[0].runtime_ns, plan.instances[0].ramp_ns),
        (Some(5_000_000), 1_666_667)
    );

    let depth = |text: &str| planned(text, &PlanOptions::default()).instances[0].depth;
    assert_eq!(
        depth("[a]\nsize=1m\niodepth=16\n"),
        1,
        "psync is fio's default"
    );
    assert_eq!(depth("[a]\nsize=1m\niodepth=16\nioengine=pvsync2\n"), 1);
    assert_eq!(depth("[a]\nsize=1m\niodepth=16\nioengine=io_uring\n"), 16);

    let file = parsed(
        "[global]\nbs=8k\n[a]\n[global]\nbs=16k\nrw=randwrite\n[b]\nbs=,4k\n; [c]\n  # bs=3\n[d] # x\nrw=read ; y\n",
    );
    let blocks: Vec<_> = file
        .sections
        .iter()
        .map(|s| {
            (
                s.name.as_str(),
                s.options.block_size[0].0,
                s.options.block_size[1].0,
            )
        })
        .collect();
    assert_eq!(
        blocks,
        [("a", 8192, 8192), ("b", 16384, 4096), ("d", 16384, 16384)]
    );

    let env = |name: &str| (name == "SIZE").then(|| "64".to_string());
    let file =
        parse_with_env("t", "[a]\nsize=${SIZE}k\ndescription=x${NONE}y\n", &env).expect("parses");
    assert_eq!(
        file.sections[0].options.size,
        Some(crate::fio::value::Amount::Bytes(65536))
    );
    assert_eq!(file.sections[0].options.description.as_deref(), Some("xy"));

    let names = planned(
        "[a]\nsize=1m\nnumjobs=2\n[b]\nsize=1m\nfilename=p\\:q:r\n",
        &PlanOptions::default(),
    );
    let names: Vec<_> = names.luns.iter().map(|lun| lun.filename.as_str()).collect();
    assert_eq!(names, ["a.0.0", "a.1.0", "p:q", "r"]);
}

#[test]
fn luns_are_as_large_as_asked_or_needed() {
    let blocks = |text: &str, lun_bytes| {
        let plan = planned(
            text,
            &PlanOptions {
                lun_bytes,
                ..PlanOptions::default()
            },
        );
        plan.luns
            .iter()
            .map(|lun| lun.blocks * 512)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        blocks(
            "[a]\nfilename=x\nsize=1m\noffset=4k\n[b]\nfilename=x\nsize=3m\n",
            None
        ),
        [3 << 20]
    );
    assert_eq!(
        blocks(
            "[a]\nfilename=x\nsize=1m\noffset_increment=1m\nnumjobs=4\n",
            None
        ),
        [4 << 20]
    );
    assert_eq!(blocks("[a]\nfilename=x\nsize=50%\n", None), [1 << 30]);
    assert_eq!(
        blocks("[a]\nfilename=x:y\nsize=4m\n", None),
        [2 << 20, 2 << 20]
    );
    assert_eq!(
        blocks("[a]\nfilename=x\nsize=50%\n", Some(8 << 20)),
        [8 << 20]
    );
}

#[test]
fn errors_name_file_line_and_option() {
    for (text, says) in [
        (
            "[a]\nbs=4k\nbloksize=4k\n",
            "t.fio:3: bloksize: fio has no such option; did you mean `blocksize`?",
        ),
        ("[a]\nxyzzy\n", "t.fio:2: xyzzy: fio has no such option"),
        (
            "[a]\n\niodepth=0\n",
            "t.fio:3: iodepth: 0 is not in 1 to 65536",
        ),
        (
            "[a]\nrwmixread=120\n",
            "t.fio:2: rwmixread: 120 is not in 0 to 100",
        ),
        ("[a]\nbs\n", "t.fio:2: bs: needs a value"),
        ("[a]\nbs=\n", "t.fio:2: bs: needs a value"),
        (
            "[a]\nbs=4kib\n",
            "t.fio:2: bs: 4000 bytes are not a multiple of the LUN's 512-byte block (with kb_base=1024",
        ),
        ("[a]\nbs=4q\n", "unknown suffix"),
        ("[a]\nrw=foo\n", "t.fio:2: rw: `foo` is none of read, write"),
        ("[a]\nrw=trim\n", "no Dataset Management"),
        ("[a]\nrw=randread:8\n", "not supported yet"),
        (
            "[a]\ntime_based=2\n",
            "t.fio:2: time_based: `2` is not 0 or 1",
        ),
        (
            "[a]\nbssplit=4k/50\n",
            "t.fio:2: bssplit: an option of fio's that is not supported yet",
        ),
        (
            "[a]\nthinktime=5\n",
            "t.fio:2: thinktime: not supported yet, but for thinktime=0",
        ),
        (
            "[a]\nioengine=rbd\n",
            "t.fio:2: ioengine: `rbd` is not supported",
        ),
        ("[a]\nverify=md5\n", "crc32c and pattern are"),
        (
            "[a]\nverify=pattern\n",
            "t.fio:2: verify: `pattern` needs a verify_pattern",
        ),
        (
            "[a]\nverify=crc32c\nverify_pattern=\"\"\n",
            "t.fio:3: verify_pattern: the pattern is empty",
        ),
        (
            "[a]\nstartdelay=0-18446744073709551615ns\n",
            "t.fio:2: startdelay: `18446744073709551615ns` is too long: at most 100 days",
        ),
        (
            "[a]\nruntime=8641000\n",
            "t.fio:2: runtime: `8641000` is too long",
        ),
        (
            "[a]\nverify_pattern=0x1-0x2\n",
            "t.fio:2: verify_pattern: `x2` starts with none of",
        ),
        ("[a]\nrandom_distribution=zipf:1\n", "not 1"),
        (
            "[a]\npercentile_list=1:x\n",
            "t.fio:2: percentile_list: `x` is not a number",
        ),
        (
            "[a]\nsize=$ncpus*4k\n",
            "t.fio:2: size: `$ncpus` is the host's",
        ),
        ("[a]\nsize=${X\n", "has no `}`"),
        (
            "[a]\ninclude b.fio\n",
            "t.fio:2: `include` is not supported yet",
        ),
        (
            "bs=4k\n[a]\n",
            "t.fio:1: `bs=4k` stands before the first [section]",
        ),
        ("[a\n", "t.fio:1: the section header has no `]`"),
        ("[global]\nbs=4k\n", "t.fio: the file has no job section"),
        ("", "t.fio: the file has no job section"),
    ] {
        let error = parse_with_env("t.fio", text, &|_| None)
            .expect_err(text)
            .to_string();
        assert!(error.contains(says), "{text:?}: {error}");
    }
    for (text, says) in [
        (
            "[a]\nbs=64k\nsize=4k\n",
            "t.fio:3: size: 4096 bytes hold no block of 65536 bytes",
        ),
        (
            "[a]\noffset=2g\n",
            "t.fio:2: offset: job a starts at byte 2147483648 of a LUN of 1073741824 bytes",
        ),
    ] {
        let file = parse_with_env("t.fio", text, &|_| None).expect("parses");
        let error = plan(&file, &PlanOptions::default())
            .expect_err(text)
            .to_string();
        assert!(error.contains(says), "{text:?}: {error}");
    }
}

/// No input makes the parser panic, and no plan does: every prefix of every job file, and every file with a byte changed.
#[test]
fn garbage_gives_errors_not_panics() {
    let mut rng = crate::rng::Rng::new(3, 0);
    for (name, text) in job_files() {
        for end in (0..text.len()).step_by(7) {
            let _ = parse_with_env(&name, &text[..end], &|_| None);
        }
        for _ in 0..300 {
            let mut bytes = text.clone().into_bytes();
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = b"[]=:%,-0x9kgz$ \n"[rng.below(16) as usize];
            let Ok(text) = String::from_utf8(bytes) else {
                continue;
            };
            if let Ok(file) = parse_with_env(&name, &text, &|_| None)
                && file
                    .sections
                    .iter()
                    .map(|s| u64::from(s.options.numjobs))
                    .sum::<u64>()
                    < 1000
            {
                let _ = plan(&file, &PlanOptions::default());
            }
        }
    }
}

#[test]
fn the_table_is_fio_s_list_of_options() {
    let list: Vec<(&str, Option<&str>)> = include_str!("fio-3.33-options.txt")
        .lines()
        .map(|line| {
            line.split_once(' ')
                .map_or((line, None), |(name, alias)| (name, Some(alias)))
        })
        .collect();
    assert!(list.len() > 250);
    for &(name, alias) in &list {
        let option = find(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!((option.name, option.alias), (name, alias));
    }
    for option in TABLE {
        assert!(
            list.iter().any(|(name, _)| *name == option.name),
            "fio has no {}",
            option.name
        );
        assert_eq!(
            TABLE
                .iter()
                .filter(|other| other.name == option.name)
                .count(),
            1,
            "{} twice",
            option.name
        );
    }
}

fn sample() -> (JobFile, Plan, Results) {
    let file = parse_with_env("sample.fio", include_str!("sample.fio"), &|_| None).expect("parses");
    let plan = plan(&file, &PlanOptions::default()).expect("plans");
    let mut model = Model::new(1, plan.luns.len(), 32, plan.seed);
    let results = run(&plan, &RunOptions::default(), &mut model, &mut |_| {}).expect("runs");
    (file, plan, results)
}

/// Every path of keys in a JSON value, array entries counted apart.
fn paths(value: &serde_json::Value, at: &str, out: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{at}/{key}");
                paths(value, &path, out);
                out.push(path);
            }
        }
        serde_json::Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                paths(value, &format!("{at}/{index}"), out);
            }
        }
        _ => {}
    }
}

/// The same job file, run by fio 3.33 on a file of 64 KiB: the same keys in the same order, `weir` apart.
#[test]
fn json_has_fio_s_layout() {
    let (file, plan, results) = sample();
    let report = Report {
        file: &file,
        plan: &plan,
        results: &results,
        simulator: &Simulator::default(),
    };
    let mut ours = json(&report);
    assert!(
        ours.as_object_mut()
            .expect("an object")
            .remove("weir")
            .is_some()
    );
    let fio: serde_json::Value = serde_json::from_str(include_str!("fio-3.33.json")).expect("JSON");
    let (mut want, mut got) = (Vec::new(), Vec::new());
    paths(&fio, "", &mut want);
    paths(&ours, "", &mut got);
    assert!(want.len() > 400);
    for (got, want) in got.iter().zip(&want) {
        assert_eq!(got, want);
    }
    assert_eq!(got.len(), want.len());
    for key in [
        "jobname",
        "groupid",
        "error",
        "job options",
        "latency_depth",
    ] {
        for job in 0..2 {
            assert_eq!(ours["jobs"][job][key], fio["jobs"][job][key], "{key}");
        }
    }
    for key in ["io_bytes", "total_ios"] {
        assert_eq!(
            ours["jobs"][1]["read"][key], fio["jobs"][1]["read"][key],
            "{key}"
        );
    }
}

#[test]
fn reports_say_what_was_found() {
    let (file, plan, results) = sample();
    let simulator = Simulator {
        title: "a model".into(),
        cycles: 1_000_000,
        skipped: 250_000,
        wall_s: 1.5,
    };
    let report = Report {
        file: &file,
        plan: &plan,
        results: &results,
        simulator: &simulator,
    };
    let text = table(&report);
    for says in [
        "mix (group 0)",
        "group (2 jobs) (group 1)",
        "a model",
        "500 k cycles/s",
        "0 blocks wrong",
        "lun0",
    ] {
        assert!(text.contains(says), "{says} is not in\n{text}");
    }
    assert!(
        text.lines()
            .all(|line| line.trim_end() == line && line.len() < 220),
        "{text}"
    );
    let page = html(&report);
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "self-contained"
    );
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}
