//! `weir export nbd`: real fio and qemu-img on the simulated card, through nbdkit and our driver.
//!
//! scripts/setup-fio installs fio, nbdkit and qemu-img; without them these tests fail.

#[allow(dead_code)]
#[path = "serve/server.rs"]
mod server;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use server::Server;

const READY: Duration = Duration::from_secs(60);

/// The plugin that belongs to the `weir` under test; cargo builds it beside.
fn plugin() -> PathBuf {
    let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--package", "weir-nbd"]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    if weir.parent().is_some_and(|dir| dir.ends_with("release")) {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
    weir.with_file_name("libweir_nbd.so")
}

/// nbdkit as `weir export nbd` starts it; killed when dropped.
struct Export {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Export {
    fn command(device: &str, socket: &Path) -> Command {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.args(["export", "nbd", "--device", device, "--socket"])
            .arg(socket)
            .env("WEIR_NBD_PLUGIN", plugin());
        weir
    }

    fn start(server: &Server) -> Export {
        let socket = server.socket().with_file_name("nbd.sock");
        let log = server.socket().with_file_name("nbd.log");
        let out = File::create(&log).unwrap();
        let child = Export::command(&device(server), &socket)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let mut export = Export { child, socket, log };
        let started = Instant::now();
        // Which is made when the device is open.
        while !export.control().exists() {
            let ended = export.child.try_wait().unwrap();
            assert!(
                ended.is_none() && started.elapsed() < READY,
                "not ready: {}",
                export.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        export
    }

    fn control(&self) -> PathBuf {
        PathBuf::from(format!("{}.control", self.socket.display()))
    }

    fn uri(&self, lun: u32) -> String {
        format!("nbd+unix:///lun{lun}?socket={}", self.socket.display())
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap()).into_owned()
    }

    /// SIGTERM: an ordered end. What it printed.
    fn stop(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        let status = self.child.wait().unwrap();
        let log = self.log();
        assert!(status.success(), "{status}: {log}");
        log
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("---- weir export ----\n{}", self.log());
        }
    }
}

fn device(server: &Server) -> String {
    format!("vfio-user:{}", server.socket().display())
}

fn run(program: &str, args: &[&str]) -> Output {
    let output = Command::new(program).args(args).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}: run scripts/setup-fio"))
}

fn must(program: &str, args: &[&str]) {
    let output = run(program, args);
    assert!(
        output.status.success(),
        "{program} {args:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Commands that the card counted for a LUN, in the report at the end of an export.
fn commands(log: &str, lun: u32) -> u64 {
    let row = log.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(&lun.to_string())).then(|| words.next())?
    });
    row.unwrap_or_else(|| panic!("no row of LUN {lun}: {log}"))
        .parse()
        .unwrap()
}

#[test]
fn fio_verifies_and_flushes_reach_the_card() {
    let server = Server::start(&["--config", "small", "--lun-size", "8m"]);
    let export = Export::start(&server);
    let job = server.socket().with_file_name("job.fio");
    // Several connections, on several LUNs and on one; 64 writes with a flush after every eighth on LUN 1.
    let text = format!(
        "[global]\nioengine=nbd\nthread\nverify=crc32c\n\
         [a]\nuri={0}\nrw=randwrite\nbs=4k\nsize=1m\niodepth=8\n\
         [b]\nuri={0}\nrw=randwrite\nbs=512\noffset=4m\nsize=64k\niodepth=4\n\
         [c]\nuri={1}\nrw=write\nbs=8k\nsize=512k\niodepth=1\nfsync=8\n\
         [d]\nuri={2}\nrw=randwrite\nbs=256k\nsize=4m\niodepth=4\n",
        export.uri(0),
        export.uri(1),
        export.uri(2)
    );
    fs::write(&job, text).unwrap();
    must("fio", &[job.to_str().unwrap()]);
    let log = export.stop();
    assert_eq!(commands(&log, 0), 2 * (256 + 128), "{log}");
    let flushes = commands(&log, 1) - 2 * 64;
    assert!((7..=9).contains(&flushes), "{flushes} flushes: {log}");
    assert_eq!(
        commands(&log, 2),
        2 * 16 * 2,
        "256 KiB are two commands: {log}"
    );
    server.stop();
}

/// `weir lun` through the control socket of an export, while that has the controller.
fn lun(export: &Export, action: &[&str]) -> Output {
    let device = format!("control:{}", export.control().display());
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.arg("lun").args(action).args(["--device", &device]);
    weir.output().unwrap()
}

#[test]
fn weir_lun_watches_and_sets_what_an_export_has() {
    let server = Server::start(&["--config", "small", "--media-latency", "20us"]);
    let export = Export::start(&server);
    let text = |output: &[u8]| String::from_utf8_lossy(output).into_owned();
    let good = |action: &[&str]| {
        let output = lun(&export, action);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let list = good(&["list"]);
    assert!(list.contains("driven by weir export"), "{list}");
    assert!(list.contains("of which 32 may be used"), "{list}");
    let uri = format!("--uri={}", export.uri(0));
    let mut fio = Command::new("fio")
        .args(["--name=r", "--ioengine=nbd", &uri, "--rw=randread"])
        .args(["--bs=4k", "--iodepth=16", "--time_based", "--runtime=300"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Two looks of LUN 0, as JSON, between which the card completed commands.
    let counts = |name: &str| -> u64 {
        let stat = good(&["stat", "--json"]);
        let (_, rest) = stat.split_once(&format!("\"{name}\": ")).unwrap();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    let started = Instant::now();
    while counts("peak") < 3 {
        assert!(started.elapsed() < READY, "fio does nothing");
    }
    assert_eq!(counts("deferred_depth"), 0);
    let set = good(&["set", "--depth", "0=1", "--weight", "0=3"]);
    assert!(set.contains("512 B      1       3"), "{set}");
    let (deferred, started) = (counts("deferred_depth"), Instant::now());
    while counts("deferred_depth") < deferred + 10 {
        assert!(started.elapsed() < READY, "depth 1 holds nothing back");
    }
    let watch = ["watch", "--interval", "500ms", "--count", "2", "--json"];
    let watch = good(&watch);
    assert_eq!(watch.lines().count(), 2, "{watch}");
    assert!(watch.contains("\"lun\":0"), "{watch}");
    let still = "\"iops\":0.0";
    let first = |line: &str| line.find(still) == line.find("\"iops\":");
    assert!(!watch.lines().any(first), "LUN 0 does nothing: {watch}");
    // What the exporting process and the card refuse.
    let output = lun(&export, &["set", "--depth", "33"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(fio.try_wait().unwrap().is_none(), "fio has ended");
    fio.kill().unwrap();
    fio.wait().unwrap();
    let control = export.control();
    export.stop();
    assert!(!control.exists());
    server.stop();
}

#[test]
fn qemu_img_finds_what_it_wrote() {
    let server = Server::start(&["--config", "small", "--lun-size", "4m"]);
    let export = Export::start(&server);
    let image = server.socket().with_file_name("image");
    let mut bytes = vec![0; 4 << 20];
    let mut rng = StdRng::seed_from_u64(5);
    bytes
        .chunks_mut(65536)
        .step_by(3)
        .for_each(|chunk| rng.fill(chunk));
    fs::write(&image, &bytes).unwrap();
    let (image_name, uri) = (image.to_str().unwrap(), export.uri(3));
    let convert = ["convert", "-n", "-f", "raw", "-O", "raw", image_name, &uri];
    must("qemu-img", &convert);
    let compare = ["compare", "-f", "raw", "-F", "raw", image_name, &uri];
    must("qemu-img", &compare);
    // That it would find a difference: a byte of the image, then a byte of the LUN's.
    bytes[3 << 20] ^= 1;
    fs::write(&image, &bytes).unwrap();
    assert_eq!(run("qemu-img", &compare).status.code(), Some(1));
    export.stop();
    server.stop();
}

#[test]
fn what_is_in_use_or_missing_is_refused() {
    let server = Server::start(&["--config", "small"]);
    let export = Export::start(&server);
    let refused = |device: &str, socket: &Path, code: i32, expected: &str| {
        let output = Export::command(device, socket).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(expected), "{said}");
    };
    let other = server.socket().with_file_name("other.sock");
    refused(
        &device(&server),
        &export.socket,
        2,
        "an export is served there",
    );
    // So is its control socket, which a further export would need.
    let control = export.control();
    let output = Export::command(&device(&server), &other)
        .arg("--control")
        .arg(&control)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("choose another --control"), "{said}");
    // The device is opened by nbdkit, whose exit status that is.
    refused(
        &device(&server),
        &other,
        1,
        "another process has the device",
    );
    refused("vfio-user:/nowhere", &other, 2, "No such file");
    refused("vfio-user:/dev/null", &other, 2, "is no socket");
    refused("rubbish", &other, 2, "names no device");
    let long = other.with_file_name("x".repeat(120));
    refused("01:00.0", &long, 2, "at most 107 bytes");
    refused("01:00.0", Path::new("/nowhere/s"), 2, "no folder /nowhere");
    let missing = ["info", &export.uri(7).replace("lun7", "lun77")].map(String::from);
    let output = run("qemu-img", &missing.each_ref().map(String::as_str));
    assert!(!output.status.success());
    assert!(
        export.log().contains("no export 'lun77'"),
        "{}",
        export.log()
    );
    export.stop();
    server.stop();
}

#[test]
fn a_card_that_dies_fails_the_io_and_hangs_nobody() {
    let server = Server::start(&["--config", "small", "--media-latency", "2ms"]);
    let export = Export::start(&server);
    let uri = format!("--uri={}", export.uri(0));
    let mut fio = Command::new("fio")
        .args([
            "--name=w",
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            "--bs=4k",
        ])
        .args(["--size=64m", "--iodepth=8", "--time_based", "--runtime=300"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(fio.try_wait().unwrap().is_none(), "fio has ended too early");
    let (_, _folder) = server.kill_and_keep();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = fio.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > READY {
            fio.kill().unwrap();
            panic!("fio hangs: {}", export.log());
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(!status.success(), "fio saw no error");
    let log = export.stop();
    assert!(log.contains("the controller is lost"), "{log}");
}
