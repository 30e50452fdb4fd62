use super::*;
use std::sync::mpsc::{Receiver, channel};
use weir_driver::backend::ControlSocket;
use weir_driver::nvme::StatusCode;

/// Serves a controller that fails each command with the CDW10 it had, and tells which commands came.
fn control(dir: &Path) -> (Control, PathBuf, Receiver<(&'static str, Command, usize)>) {
    let path = dir.join("control");
    let (sender, receiver) = channel();
    let execute = move |name, command: Command, data: &mut [u8]| {
        sender.send((name, command, data.len())).unwrap();
        data.fill(0xA5);
        match command.nsid {
            7 => Err(Error::Command {
                command: name,
                status: Status::from(StatusCode::INVALID_FIELD),
            }),
            8 => Err(Error::Fatal),
            nsid => Ok(nsid * 2),
        }
    };
    let control = Control::serve(&path, Box::new(execute)).unwrap();
    (control, path, receiver)
}

fn connect(path: &Path) -> UnixStream {
    let mut socket = UnixStream::connect(path).unwrap();
    let mut greeting = [0; 16];
    socket.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting, GREETING);
    socket
}

fn ask(socket: &mut UnixStream, command: Command, len: u64) -> (u32, u32, Vec<u8>) {
    let request = Request { command, len };
    socket.write_all(request.as_bytes()).unwrap();
    let mut reply = [0; size_of::<Reply>()];
    socket.read_exact(&mut reply).unwrap();
    let reply = Reply::read_from_bytes(&reply).unwrap();
    let mut bytes = vec![0; reply.len.get() as usize];
    socket.read_exact(&mut bytes).unwrap();
    (reply.kind.get(), reply.value.get(), bytes)
}

#[test]
fn commands_go_through_without_what_is_the_drivers() {
    let dir = tempfile::tempdir().unwrap();
    let (control, path, commands) = control(dir.path());
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let mut socket = connect(&path);
    let mut command = Command {
        nsid: 3,
        cdw10: 1,
        prp1: 0x1000,
        prp2: 0x2000,
        mptr: 0x3000,
        ..Command::admin(AdminOpcode::IDENTIFY)
    };
    command.cdw0.set_cid(99);
    let (kind, value, bytes) = ask(&mut socket, command, 4096);
    assert_eq!((kind, value), (Reply::DONE, 6));
    assert!(bytes.len() == 4096 && bytes.iter().all(|byte| *byte == 0xA5));
    let (name, executed, len) = commands.try_recv().unwrap();
    assert_eq!((name, len), ("Identify", 4096));
    let clean = Command {
        nsid: 3,
        cdw10: 1,
        ..Command::admin(AdminOpcode::IDENTIFY)
    };
    assert_eq!(executed, clean);
    // The controller's refusal, and the driver's.
    let invalid = Status::from(StatusCode::INVALID_FIELD).into_bits();
    let failed = Command { nsid: 7, ..clean };
    assert_eq!(
        ask(&mut socket, failed, 4096),
        (Reply::STATUS, invalid.into(), vec![])
    );
    let (kind, _, text) = ask(&mut socket, Command { nsid: 8, ..clean }, 4096);
    assert_eq!(kind, Reply::FAILED);
    assert_eq!(text, Error::Fatal.to_string().into_bytes());
    drop(control);
    assert!(!path.exists());
    assert!(matches!(socket.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn only_what_disturbs_nobody_is_executed() {
    let dir = tempfile::tempdir().unwrap();
    let (_control, path, commands) = control(dir.path());
    let mut socket = connect(&path);
    let admin = |opcode: u8, cdw10: u32, cdw11: u32| Command {
        nsid: 1,
        cdw10,
        cdw11,
        ..Command::admin(AdminOpcode(opcode))
    };
    let page = |dwords: u32| (dwords - 1) << 16 | 0xC0;
    for (command, len) in [
        (admin(0x06, 0, 0), 4096),
        (admin(0x02, page(1), 0), 4),
        (admin(0x02, page(1024), 0), 4096),
        (admin(0x0A, 0xC0, 0), 0),
        (admin(0x0A, 0x3C1, 0), 0),
        (admin(0x09, 0xC0, 5), 0),
    ] {
        assert_eq!(ask(&mut socket, command, len).0, Reply::DONE, "{command:?}");
        assert_eq!(commands.try_recv().unwrap().2 as u64, len);
    }
    let mut refused: Vec<(Command, u64)> = (0..=255)
        .filter(|opcode| ![2, 6, 9, 10].contains(opcode))
        .map(|opcode| (admin(opcode, 0xC0, 0), 0))
        .collect();
    refused.extend(
        (0..=255)
            .filter(|fid| ![0xC0, 0xC1].contains(fid))
            .flat_map(|fid| [(admin(0x09, fid, 0), 0), (admin(0x0A, fid, 0), 0)]),
    );
    // Lengths that are not the command's: the controller would write more than there is room for.
    refused.extend([
        (admin(0x06, 0, 0), 0),
        (admin(0x06, 0, 0), 4095),
        (admin(0x06, 0, 0), u64::MAX),
        (admin(0x02, page(1024), 0), 4),
        (admin(0x02, page(1025), 0), 4100),
        (admin(0x02, page(1), 1), 4),
        (admin(0x02, u32::MAX, u32::MAX), 4096),
        (admin(0x0A, 0xC0, 0), 4),
    ]);
    for (command, len) in refused {
        let (kind, _, text) = ask(&mut socket, command, len);
        assert_eq!(kind, Reply::FAILED, "{command:?} {len}");
        assert!(!text.is_empty());
        assert!(
            commands.try_recv().is_err(),
            "{command:?} {len} reached the controller"
        );
    }
}

#[test]
fn clients_share_it_and_many_are_too_many() {
    let dir = tempfile::tempdir().unwrap();
    let (_control, path, _commands) = control(dir.path());
    let identify = Command::admin(AdminOpcode::IDENTIFY);
    let mut clients: Vec<UnixStream> = (0..CLIENTS).map(|_| connect(&path)).collect();
    // Half a request keeps nobody from anything.
    clients[0].write_all(&[6, 0, 0]).unwrap();
    for client in &mut clients[1..] {
        assert_eq!(ask(client, identify, 4096).0, Reply::DONE);
    }
    let error = ControlSocket::open(&path).unwrap_err().to_string();
    assert!(error.contains("too many clients"), "{error}");
    clients.truncate(3);
    // The places are free once the thread has seen the ends, before it takes another connection.
    assert_eq!(ask(&mut connect(&path), identify, 4096).0, Reply::DONE);
    // One that never reads its replies is let go, and the others stay.
    let request = Request {
        command: identify,
        len: 4096,
    };
    clients[1]
        .set_write_timeout(Some(std::time::Duration::from_secs(20)))
        .unwrap();
    while clients[1].write_all(request.as_bytes()).is_ok() {}
    assert_eq!(ask(&mut clients[2], identify, 4096).0, Reply::DONE);
}

#[test]
fn a_place_that_is_taken_and_what_is_no_control_socket_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (control, path, _commands) = control(dir.path());
    let again = Control::serve(&path, Box::new(|_, _, _| Ok(0)));
    let error = again.err().unwrap().to_string();
    assert!(error.contains("in use"), "{error}");
    let long = dir.path().join("x".repeat(120));
    let error = Control::serve(&long, Box::new(|_, _, _| Ok(0)))
        .err()
        .unwrap();
    assert!(error.to_string().contains("too long"), "{error}");
    drop(control);
    let error = ControlSocket::open(&path).unwrap_err().to_string();
    assert!(error.contains("no such socket"), "{error}");
    let other = UnixListener::bind(&path).unwrap();
    let talk = thread::spawn(move || {
        let (mut socket, _) = other.accept().unwrap();
        socket.write_all(b"NBDMAGICIHAVEOPT\0\0\0\0").unwrap();
        let _ = socket.read(&mut [0]);
    });
    let error = ControlSocket::open(&path).unwrap_err().to_string();
    assert!(error.contains("no control socket"), "{error}");
    talk.join().unwrap();
}
