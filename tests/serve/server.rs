//! `weir serve` as a child process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long the card may take to be there; the first time it is built.
const READY: Duration = Duration::from_secs(180);

/// A server with a folder of its own; killed when dropped.
pub struct Server {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    dir: Option<TempDir>,
}

impl Server {
    pub fn start(options: &[&str]) -> Server {
        Server::start_at(tempfile::tempdir().unwrap(), options)
    }

    pub fn start_at(dir: TempDir, options: &[&str]) -> Server {
        let (socket, log) = (dir.path().join("card.sock"), dir.path().join("log"));
        let out = File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["serve", "--asserts", "--socket"])
            .arg(&socket)
            .args(options)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let mut server = Server {
            child,
            socket,
            log,
            dir: Some(dir),
        };
        let started = Instant::now();
        while !server.log().contains("serving ") {
            assert!(
                server.alive() && started.elapsed() < READY,
                "not ready: {}",
                server.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    pub fn alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGKILL; its folder stays. The socket, and the folder.
    pub fn kill_and_keep(mut self) -> (PathBuf, TempDir) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.socket.clone(), self.dir.take().unwrap())
    }

    /// SIGTERM; it must end well. What it printed.
    pub fn stop(mut self) -> String {
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
        assert!(log.contains("cycles of the card"), "no summary: {log}");
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("---- weir serve ----\n{}", self.log());
        }
    }
}
