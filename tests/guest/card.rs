//! [`Card`]: `weir serve` as a child process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long the card may take to be there; the first time, it is built by Verilator and a C++ compiler.
const READY: Duration = Duration::from_secs(180);

/// A served card; killed when dropped.
pub struct Card {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Card {
    /// Serves a card of 4 LUNs on a socket in `dir`, its data in memory or in the file `media`.
    pub fn serve(dir: &Path, media: Option<&Path>) -> Card {
        let (socket, log) = (dir.join("card.sock"), dir.join("card.log"));
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.arg("serve").arg("--socket").arg(&socket);
        weir.args(["--luns", "4", "--queues", "4", "--lun-size", "64m"]);
        if let Some(media) = media {
            weir.arg("--media").arg(media);
        }
        let out = File::create(&log).unwrap();
        weir.stdin(Stdio::null());
        weir.stdout(out.try_clone().unwrap()).stderr(out);
        let child = weir.spawn().expect("weir did not start");
        let mut card = Card { child, socket, log };
        let started = Instant::now();
        while !card.log().lines().any(|line| line.starts_with("serving ")) {
            let ended = card.child.try_wait().unwrap();
            assert!(
                ended.is_none() && started.elapsed() < READY,
                "weir serve is not ready (exit {ended:?}):\n{}",
                card.log()
            );
            thread::sleep(Duration::from_millis(50));
        }
        card
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// All that it printed so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap()).into_owned()
    }

    /// SIGKILL: no chance to write anything back.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; it must end well. Returns what it printed.
    pub fn stop(mut self) -> String {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "weir serve: {status}\n{}", self.log());
        self.log()
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("---- weir serve printed ----\n{}", self.log());
        }
    }
}
