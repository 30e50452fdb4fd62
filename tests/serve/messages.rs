//! Messages that no good client sends: each kind by hand, and at random.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::server::Server;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use weir_nvme::registers::VERSION_1_4;
use weir_vfio_user::wire::{self, Header, command, irq, region};
use weir_vfio_user::{Client, Connection, Error, Permissions, version};
use zerocopy::IntoBytes;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Messages of a random case.
const MESSAGES: u32 = 40;
/// Identifier of the last message of a case; the others have 1.
const LAST: u16 = 0x7777;
/// Cases of a short run.
const SHORT: u64 = 60;

fn connect(server: &Server) -> UnixStream {
    UnixStream::connect(server.socket()).unwrap()
}

/// A good client, once the server is free: its function must answer.
fn good_client(server: &Server) -> Client {
    let started = Instant::now();
    let mut client = loop {
        match Client::new(Connection::new(connect(server)).unwrap(), TIMEOUT) {
            Ok(client) => break client,
            Err(Error::Refused { .. }) if started.elapsed() < TIMEOUT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    };
    let mut vs = [0; 4];
    client.region_read(region::BAR0, 8, &mut vs).unwrap();
    assert_eq!(u32::from_le_bytes(vs), VERSION_1_4);
    client
}

fn memory(len: u64) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, len).unwrap();
    file
}

fn header(number: u16, size: usize, flags: u32) -> Header {
    Header {
        id: 1.into(),
        command: number.into(),
        size: (size as u32).into(),
        flags: flags.into(),
        error: 0.into(),
    }
}

/// The connection ends, without a message that is no error.
fn ends(mut socket: UnixStream) {
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the server keeps it: {error}"),
    }
}

#[test]
fn broken_framing_ends_the_connection_and_nothing_else() {
    let mut server = Server::start(&["--config", "small"]);
    for size in [0, 3, 15, 1 << 21, u32::MAX as usize] {
        let mut socket = connect(&server);
        let bytes = header(command::VERSION, size, 0);
        socket.write_all(bytes.as_bytes()).unwrap();
        ends(socket);
        drop(good_client(&server));
    }
    // Half a message, and the end; no message, and the end.
    for bytes in [&[1u8, 2, 3][..], &[]] {
        let mut socket = connect(&server);
        socket.write_all(bytes).unwrap();
        drop(socket);
        drop(good_client(&server));
    }
    assert!(server.alive());
    server.stop();
}

#[test]
fn who_says_nothing_holds_nothing_and_is_dropped() {
    let server = Server::start(&["--config", "small"]);
    let silent: Vec<UnixStream> = (0..3).map(|_| connect(&server)).collect();
    (&silent[0]).write_all(&[1, 0, 1]).unwrap();
    // The first that speaks is the client, at once.
    drop(Client::new(Connection::new(connect(&server)).unwrap(), TIMEOUT).unwrap());
    silent.into_iter().for_each(ends);
    // Nor does one that speaks, but never says its version; the others are told so meanwhile.
    let mut rude = connect(&server);
    let bytes = header(command::DEVICE_RESET, size_of::<Header>(), 0);
    rude.write_all(bytes.as_bytes()).unwrap();
    rude.read_exact(&mut [0; size_of::<Header>()]).unwrap();
    let second = Client::new(Connection::new(connect(&server)).unwrap(), TIMEOUT);
    assert!(matches!(second, Err(Error::Refused { .. })));
    ends(rude);
    let client = good_client(&server);
    // More of them than are taken at once only cost others time, and nothing to the client that is there.
    let many: Vec<UnixStream> = (0..5).map(|_| connect(&server)).collect();
    let second = Client::new(Connection::new(connect(&server)).unwrap(), TIMEOUT);
    assert!(matches!(second, Err(Error::Refused { .. })));
    drop((client, many));
    let log = server.stop();
    assert!(log.contains("it said nothing"), "{log}");
    assert!(log.contains("did not send VFIO_USER_VERSION"), "{log}");
}

#[test]
fn what_a_message_must_not_ask_is_refused() {
    let server = Server::start(&["--config", "small"]);
    let mut client = good_client(&server);
    fn refused<T>(what: &str, result: Result<T, Error>) {
        assert!(
            matches!(result, Err(Error::Refused { .. })),
            "{what}: not refused"
        );
    }
    refused("region", client.region_info(99));
    refused("interrupt kind", client.irq_info(99));
    for (region, offset, len) in [
        (region::BAR0, 0x4000, 4),
        (region::BAR0, u64::MAX, 4),
        (region::BAR0, 0x3ffe, 4),
        (region::CONFIG, 4095, 2),
        (3, 0, 4),
        (99, 0, 4),
    ] {
        let mut bytes = vec![0; len];
        refused("read", client.region_read(region, offset, &mut bytes));
        refused("write", client.region_write(region, offset, &bytes));
    }
    let file = memory(1 << 16);
    let mut map = |offset, iova, size| {
        client.dma_map(file.as_fd(), offset, iova, size, Permissions::ReadWrite)
    };
    map(0, 0x10_0000, 0x4000).unwrap();
    refused("overlap", map(0, 0x10_3000, 0x4000));
    refused("past the file's end", map(0xf000, 0x20_0000, 0x2000));
    refused("offset", map(u64::MAX - 0xfff, 0x20_0000, 0x1000));
    refused("wrap", map(0, u64::MAX - 0xfff, 0x2000));
    refused("nothing", map(0, 0x20_0000, 0));
    refused("a part", client.dma_unmap(0x10_1000, 0x1000));
    client.dma_unmap(0x10_0000, 0x4000).unwrap();
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    refused(
        "vectors",
        client.set_msix(4, &[event.as_fd(), event.as_fd()]),
    );
    refused("no eventfd", client.set_msix(0, &[file.as_fd()]));
    client.set_msix(1, &[event.as_fd()]).unwrap();
    client.reset().unwrap();
    server.stop();
}

#[test]
fn random_messages() {
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse().expect(name));
    let mut server = Server::start(&["--config", "small"]);
    if let Some(seed) = number("WEIR_FUZZ_SEED") {
        case(&mut server, seed);
    } else {
        let time = number("WEIR_FUZZ_SECONDS").map(Duration::from_secs);
        let (start, mut cases, mut answered) = (Instant::now(), 0, 0);
        while time.map_or(cases < SHORT, |time| start.elapsed() < time) {
            answered += u64::from(case(&mut server, cases));
            cases += 1;
        }
        println!("{cases} cases of {MESSAGES} messages, {answered} of them answered to the end");
        assert!(answered > cases / 2, "not exercised: {answered} of {cases}");
    }
    server.stop();
}

/// A client that greets, sends what it wants, and goes, perhaps in the middle of a message; then a good one.
/// True when all its messages were answered.
fn case(server: &mut Server, seed: u64) -> bool {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut answered = false;
    let socket = connect(server);
    socket
        .set_write_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut connection = Connection::new(socket.try_clone().unwrap()).unwrap();
    let file = memory(1 << 20);
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    for n in 0..MESSAGES {
        let (number, mut body) = message(&mut rng, n == 0);
        let mut fds: Vec<BorrowedFd> = match number {
            command::DMA_MAP => vec![file.as_fd()],
            command::DEVICE_SET_IRQS => vec![event.as_fd(); rng.random_range(0..4)],
            _ => Vec::new(),
        };
        let mut flags = 0;
        match rng.random_range(0..30) {
            0 => fds = vec![event.as_fd(); rng.random_range(0..8)],
            1 => fds.clear(),
            2 => body.truncate(rng.random_range(0..=body.len())),
            3 => body.extend((0..rng.random_range(0..5000)).map(|_| rng.random::<u8>())),
            4..8 if !body.is_empty() => {
                let bit = rng.random_range(0..body.len() * 8);
                body[bit / 8] ^= 1 << (bit % 8);
            }
            8 => flags = rng.random(),
            9 => flags = wire::NO_REPLY,
            10 => flags = wire::TYPE_REPLY,
            _ => {}
        }
        let sent = connection.send(header(number, 0, flags), [&body, &[]], &fds, TIMEOUT);
        if sent.is_err() {
            break;
        }
        if rng.random_range(0..8) == 0 {
            while let Ok(Some(_)) = connection.try_receive() {}
        }
    }
    // The answers after a client has gone end its connection: mostly it stays until all is answered.
    if rng.random_range(0..4) > 0 {
        let last = Header {
            id: LAST.into(),
            ..header(command::VERSION, 0, 0)
        };
        let _ = connection.send(last, [&[], &[]], &[], TIMEOUT);
        while let Ok(message) = connection.receive(TIMEOUT) {
            if message.header.id.get() == LAST {
                answered = true;
                break;
            }
        }
    }
    if rng.random_range(0..4) == 0 {
        let bytes: Vec<u8> = (0..rng.random_range(1..64)).map(|_| rng.random()).collect();
        let _ = (&socket).write_all(&bytes);
    }
    drop((connection, socket));
    assert!(
        server.alive(),
        "case {seed} ended the server; WEIR_FUZZ_SEED={seed} runs it again"
    );
    drop(good_client(server));
    answered
}

/// A command with a body that could be good.
fn message(rng: &mut StdRng, first: bool) -> (u16, Vec<u8>) {
    if first && rng.random_range(0..20) > 0 {
        return (command::VERSION, version::body(rng.random_range(0..3)));
    }
    let iova = 0x1000 * rng.random_range(0..64u64);
    let size = 0x1000 * rng.random_range(0..16u64);
    match rng.random_range(0..12) {
        0 => (command::DEVICE_GET_INFO, {
            let argsz = [16, 16, 0, u32::MAX].choose(rng).unwrap();
            [*argsz, 0, 0, 0].map(u32::to_le_bytes).concat()
        }),
        1 => (
            command::DEVICE_GET_REGION_INFO,
            wire::RegionInfo {
                argsz: 32.into(),
                index: rng.random_range(0..12).into(),
                ..Default::default()
            }
            .as_bytes()
            .to_vec(),
        ),
        2 => (
            command::DEVICE_GET_IRQ_INFO,
            wire::IrqInfo {
                argsz: 16.into(),
                index: rng.random_range(0..8).into(),
                ..Default::default()
            }
            .as_bytes()
            .to_vec(),
        ),
        3 | 4 => (
            command::DMA_MAP,
            wire::DmaMap {
                argsz: 32.into(),
                flags: rng.random_range(0..4).into(),
                offset: (0x1000 * rng.random_range(0..300u64)).into(),
                iova: iova.into(),
                size: size.into(),
            }
            .as_bytes()
            .to_vec(),
        ),
        5 => (
            command::DMA_UNMAP,
            wire::DmaUnmap {
                argsz: 24.into(),
                flags: if rng.random_range(0..4) == 0 { 2 } else { 0 }.into(),
                iova: iova.into(),
                size: size.into(),
            }
            .as_bytes()
            .to_vec(),
        ),
        6 => (
            command::DEVICE_SET_IRQS,
            wire::SetIrqs {
                argsz: 20.into(),
                flags: (1 << rng.random_range(0..3) | 8 << rng.random_range(0..3)).into(),
                index: if rng.random_range(0..4) == 0 {
                    1
                } else {
                    irq::MSIX
                }
                .into(),
                start: rng.random_range(0..6).into(),
                count: rng.random_range(0..6).into(),
            }
            .as_bytes()
            .to_vec(),
        ),
        7 => (command::DEVICE_RESET, Vec::new()),
        8 => (rng.random_range(0..20), vec![0; rng.random_range(0..64)]),
        n => {
            // Registers, doorbells, the admin queues' addresses: anything, with a controller that may run.
            let (region, offset) = match rng.random_range(0..6) {
                0 => (region::CONFIG, rng.random_range(0..0x100)),
                1 => (region::BAR0, 0x14),
                2 => (region::BAR0, 0x1000 + 4 * rng.random_range(0..12)),
                3 => (region::BAR0, 0x24 + 4 * rng.random_range(0..5)),
                4 => (region::BAR0, rng.random_range(0..0x4000)),
                _ => (rng.random_range(0..12), rng.random_range(0..0x5000)),
            };
            let count = *[4, 4, 4, 8, 1, 2, 64].choose(rng).unwrap();
            let access = wire::RegionAccess {
                offset: offset.into(),
                region: region.into(),
                count: count.into(),
            };
            let mut body = access.as_bytes().to_vec();
            if n == 9 {
                return (command::REGION_READ, body);
            }
            let enable = 0x46_0001u32.to_le_bytes();
            body.extend((0..count as usize).map(|i| match rng.random_range(0..3) {
                0 => rng.random(),
                1 => 0,
                _ => enable[i % 4],
            }));
            (command::REGION_WRITE, body)
        }
    }
}
