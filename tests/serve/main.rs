//! `weir serve`: our driver on the served card with no VM, clients that die, clients that send rubbish, and data that
//! outlives all of them.
//!
//! `WEIR_FUZZ_SEED=n` runs one case of the random messages; `WEIR_FUZZ_SECONDS=s` goes on with new ones (`make fuzz`).

mod lun;
mod messages;
mod server;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use server::Server;
use weir_driver::backend::{Device, DeviceError, VfioUserPci};
use weir_driver::{Admin, Controller, Op, Options, Pci, Queue, QueueConfig};
use weir_nvme::registers::ALL_ONES;
use weir_nvme::registers::offset;

/// Nothing may complete for so long; the machine may be busy.
const PATIENCE_NS: u64 = 60_000_000_000;

fn open(socket: &Path) -> VfioUserPci {
    let name = format!("vfio-user:{}", socket.display());
    let started = Instant::now();
    loop {
        match Device::open(&name) {
            Ok(Device::VfioUser(pci)) => return pci,
            // The server may still be resetting the card behind the last client.
            Err(DeviceError::Served { .. }) if started.elapsed() < Duration::from_secs(30) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(_) => panic!("another back end for {name}"),
            Err(error) => panic!("{error}"),
        }
    }
}

fn queue(controller: &mut Controller<VfioUserPci>, vector: Option<u16>) -> Queue<VfioUserPci> {
    let config = QueueConfig {
        entries: 16,
        vector,
        ..QueueConfig::default()
    };
    let mut queue = controller.create_queue(&config).unwrap();
    for lun in controller.luns() {
        queue.open(lun).unwrap();
    }
    queue
}

/// The bytes of a block: every word says where it belongs and which write it was.
fn block(lun: u32, slba: u64, version: u64) -> Vec<u8> {
    let word = u64::from(lun) << 56 | slba << 24 | version;
    word.to_le_bytes().repeat(64)
}

/// One command, from submission to completion.
fn one(
    pci: &VfioUserPci,
    queue: &mut Queue<VfioUserPci>,
    op: Op,
    (lun, slba): (u32, u64),
    data: &[u8],
) -> Vec<u8> {
    let mut buffer = weir_driver::Buffer::new(pci.alloc(data.len()).unwrap());
    buffer.with_mut(|bytes| bytes[..data.len()].copy_from_slice(data));
    let blocks = data.len() as u32 / 512;
    queue
        .submit(lun, op, Some(buffer), slba, blocks, 0)
        .unwrap();
    queue.ring();
    let (deadline, mut got) = (pci.now_ns() + PATIENCE_NS, None);
    while got.is_none() {
        queue.poll(|done| got = Some(done)).unwrap();
        assert!(pci.now_ns() < deadline, "{op:?} does not complete");
        if got.is_none() {
            queue.wait(deadline);
        }
    }
    let done = got.unwrap();
    assert!(done.status.is_success(), "{op:?}: {:?}", done.status);
    done.buffer
        .unwrap()
        .with(|bytes| bytes[..data.len()].to_vec())
}

#[test]
fn our_driver_on_a_served_card() {
    let server = Server::start(&["--config", "small"]);
    let pci = open(server.socket());
    let name = format!("vfio-user:{}", server.socket().display());
    let second = Device::open(&name).err().expect("a second client");
    assert!(
        second.to_string().contains("another process has"),
        "{second}"
    );
    let mut controller = Controller::new(pci.clone(), Options::default()).unwrap();
    for vector in [None, Some(1)] {
        let mut queue = queue(&mut controller, vector);
        for lun in 0..4 {
            let data: Vec<u8> = (0..256).flat_map(|n| block(lun, 100 + n, 1)).collect();
            one(&pci, &mut queue, Op::Write, (lun, 100), &data);
            let got = one(&pci, &mut queue, Op::Read, (lun, 100), &vec![0; data.len()]);
            assert!(got == data, "LUN {lun}");
        }
        controller.delete_queue(queue, |_| ()).unwrap();
    }
    // A function reset, and the driver starts over.
    pci.reset().unwrap();
    assert_eq!(pci.read32(offset::CC) & 1, 0);
    drop(controller);
    let mut controller = Controller::new(pci.clone(), Options::default()).unwrap();
    let mut queue = queue(&mut controller, None);
    let got = one(&pci, &mut queue, Op::Read, (3, 100), &[0; 512]);
    assert_eq!(got, block(3, 100, 1), "data survives a reset");
    controller.set_depth(1, 7).unwrap();
    assert_eq!(controller.budget(1).unwrap().depth(), 7);
    controller.delete_queue(queue, |_| ()).unwrap();
    controller.shutdown().unwrap();
    drop(pci);
    // The next client gets a card that was reset.
    let mut controller = Controller::new(open(server.socket()), Options::default()).unwrap();
    assert_eq!(controller.budget(1).unwrap().depth(), 32);
    drop(controller);
    let log = server.stop();
    assert!(log.contains("turned away"), "{log}");
}

/// Not a test of its own: the client that [`a_client_and_a_server_that_are_killed`] kills. Writes blocks, and says which
/// were acknowledged.
#[test]
#[ignore = "run by another test"]
fn client_that_writes() {
    let Some(socket) = std::env::var_os("WEIR_TEST_SOCKET") else {
        return;
    };
    let seed: u64 = std::env::var("WEIR_TEST_SEED").unwrap().parse().unwrap();
    let mut rng = StdRng::seed_from_u64(seed);
    let pci = open(Path::new(&socket));
    let mut controller = Controller::new(pci.clone(), Options::default()).unwrap();
    let mut queue = queue(&mut controller, None);
    // Versions of a later run are higher.
    let mut versions = seed << 16;
    let mut out = std::io::stdout();
    loop {
        while queue.len() < 12 {
            versions += 1;
            // A block has one write in flight at most: each version has blocks of its own.
            let slba = versions * 4 % 2000;
            let lun = rng.random_range(0..4);
            if !queue.has_room(lun) {
                break;
            }
            let mut buffer = controller.buffer(512).unwrap();
            buffer.with_mut(|bytes| bytes[..512].copy_from_slice(&block(lun, slba, versions)));
            let user = versions << 16 | slba;
            queue
                .submit(lun, Op::Write, Some(buffer), slba, 1, user)
                .unwrap();
        }
        queue.ring();
        let mut lines = String::new();
        queue
            .poll(|done| {
                assert!(done.status.is_success());
                let (slba, version) = (done.user & 0xffff, done.user >> 16);
                lines += &format!("ACK {} {slba} {version}\n", done.lun);
            })
            .unwrap();
        if lines.is_empty() {
            pci.relax();
        } else {
            out.write_all(lines.as_bytes()).unwrap();
            out.flush().unwrap();
        }
    }
}

#[test]
fn a_client_and_a_server_that_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let media = dir.path().join("media");
    let options = [
        "--config",
        "small",
        "--lun-size",
        "1m",
        "--media",
        media.to_str().unwrap(),
    ];
    let mut acknowledged: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    let mut server = Server::start(&options);
    for round in 0..4u64 {
        let mut client = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "client_that_writes"])
            .env("WEIR_TEST_SOCKET", server.socket())
            .env("WEIR_TEST_SEED", round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acks = 0;
        let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
        let mut take = |line: &str, acknowledged: &mut BTreeMap<(u32, u64), u64>| {
            if let Some(rest) = line.strip_prefix("ACK ") {
                let words: Vec<u64> = rest.split(' ').map(|w| w.parse().unwrap()).collect();
                let [lun, slba, version] = words[..] else {
                    panic!("{line}")
                };
                acknowledged.insert((lun as u32, slba), version);
                acks += 1;
            }
            acks
        };
        // In odd rounds the server goes first, in even ones the client, in the middle of its writes.
        while let Some(Ok(line)) = lines.next() {
            if take(&line, &mut acknowledged) >= 60 + 40 * round {
                break;
            }
        }
        if round % 2 == 1 {
            // An ordered end, too, in the middle of I/O.
            if round == 3 {
                server.stop();
            } else {
                server.kill();
            }
            client.kill().unwrap();
            server = Server::start(&options);
        } else {
            client.kill().unwrap();
        }
        for line in lines.map_while(Result::ok) {
            take(&line, &mut acknowledged);
        }
        client.wait().unwrap();
        assert!(acks >= 60, "the client got no further than {acks} writes");
        let pci = open(server.socket());
        let mut controller = Controller::new(pci.clone(), Options::default()).unwrap();
        let mut queue = queue(&mut controller, None);
        for (&(lun, slba), &version) in &acknowledged {
            let got = one(&pci, &mut queue, Op::Read, (lun, slba), &[0; 512]);
            let right = block(lun, slba, version);
            // A later write to the block may have been under way; never an older one, nor half of any.
            let word = u64::from_le_bytes(got[..8].try_into().unwrap());
            let newer = word & 0xff_ffff > version && got == block(lun, slba, word & 0xff_ffff);
            assert!(
                got == right || newer,
                "round {round}: LUN {lun} block {slba}: version {version} was acknowledged, {word:#x} is there"
            );
        }
        controller.delete_queue(queue, |_| ()).unwrap();
        drop((controller, pci));
    }
    server.stop();
}

#[test]
fn a_server_that_dies_is_a_function_that_is_gone() {
    let server = Server::start(&["--config", "small"]);
    let pci = open(server.socket());
    let mut controller = Controller::new(pci.clone(), Options::default()).unwrap();
    let mut queue = queue(&mut controller, None);
    server.kill();
    assert_eq!(pci.read32(offset::CSTS), ALL_ONES);
    pci.write32(offset::CC, 0);
    let buffer = controller.buffer(512);
    if let Ok(buffer) = buffer {
        let _ = queue.read(0, buffer, 0, 1, 0);
        queue.ring();
    }
    let error = controller.lun_statistics(0).unwrap_err();
    assert!(error.to_string().contains("gone"), "{error}");
}

#[test]
fn what_cannot_be_served_is_refused_with_the_reason() {
    let server = Server::start(&["--config", "small"]);
    let socket = server.socket().to_str().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "not a socket, and no media").unwrap();
    let file = file.to_str().unwrap();
    let free = dir.path().join("s");
    let free = free.to_str().unwrap();
    let long = dir.path().join("x".repeat(120));
    let folder = dir.path().to_str().unwrap();
    let cut = dir.path().join("cut");
    std::fs::write(&cut, "weir media 1\nluns 4\nblocks 2097152\n").unwrap();
    for (options, expected) in [
        (
            vec!["--socket", long.to_str().unwrap()],
            "at most 107 bytes",
        ),
        (vec!["--socket", folder], "no socket"),
        (
            vec!["--socket", free, "--media", "/nowhere/m"],
            "cannot open it: No such file",
        ),
        (
            vec!["--socket", free, "--media", folder],
            "cannot open it: Is a directory",
        ),
        (
            vec!["--socket", free, "--media", cut.to_str().unwrap()],
            "it was cut",
        ),
        (
            vec!["--socket", free, "--media", "/dev/null"],
            "cannot make it that long",
        ),
        (
            vec!["--socket", free, "--lun-size", "513"],
            "whole blocks of 512",
        ),
        (
            vec!["--socket", free, "--lun-size", "15000p"],
            "more than the 512 TiB",
        ),
        (
            vec!["--socket", free, "--media-bandwidth", "0"],
            "nothing would ever be moved",
        ),
        (vec!["--socket", socket], "another server listens there"),
        (vec!["--socket", file], "no socket"),
        (vec!["--socket", "/nowhere/s"], "cannot listen there"),
        (
            vec!["--socket", free, "--media", file],
            "no media file of weir",
        ),
        (vec!["--socket", free, "--lun-size", "0"], "--lun-size"),
        (
            vec!["--socket", free, "--media-latency", "9=1us"],
            "LUNs 0 to 3",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["serve", "--config", "small"])
            .args(&options)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(expected), "{options:?}: {said}");
    }
    // A socket that a killed server left is replaced.
    let (path, dir) = server.kill_and_keep();
    assert!(path.exists());
    Server::start_at(dir, &["--config", "small"]).stop();
    assert!(!path.exists(), "the socket is removed at the end");
}
