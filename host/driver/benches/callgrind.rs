//! Exact counts of executed instructions: runs this very program again under callgrind, which collects between entry and
//! exit of chosen functions only, and returns how often each of their instructions was executed.

use std::path::Path;
use std::process::Command;

/// An instruction that was executed.
pub struct Counted {
    /// Its address in the program's file; `None` when it is a library's.
    pub address: Option<u64>,
    /// How often it was executed.
    pub times: u64,
}

/// How to get what [`count`] needs.
pub const NEEDS: &str = "not counted: needs valgrind (Debian: apt-get install valgrind)";

/// Runs this program with `args`; entry and exit of each function of `toggles` (`*` stands for anything) turn collection
/// on or off. `None` when there is no valgrind.
pub fn count(args: &[String], toggles: &[&str]) -> Option<Vec<Counted>> {
    let exe = std::env::current_exe().expect("this program's path");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("callgrind.out");
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "-q", "--dump-instr=yes"])
        .args(["--compress-pos=no", "--compress-strings=no"])
        .arg("--collect-atstart=no")
        .args(
            toggles
                .iter()
                .map(|name| format!("--toggle-collect={name}")),
        )
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(&exe)
        .args(args)
        .status();
    match status {
        Ok(status) => assert!(status.success(), "valgrind: {status}"),
        Err(_) => return None,
    }
    Some(read(&out, &exe))
}

fn read(out: &Path, exe: &Path) -> Vec<Counted> {
    let text = std::fs::read_to_string(out).expect("callgrind's output");
    let mut counted = Vec::new();
    let (mut callee, mut own) = (false, false);
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            own = Path::new(object) == exe;
        } else if line.starts_with("calls=") {
            // The line after it is the callee's cost, which its own lines give too.
            callee = true;
        } else if let Some(rest) = line.strip_prefix("0x")
            && !std::mem::take(&mut callee)
        {
            let mut fields = rest.split(' ');
            let address = fields.next().map(|a| u64::from_str_radix(a, 16));
            let times = fields.nth(1).map(str::parse);
            let (Some(Ok(address)), Some(Ok(times))) = (address, times) else {
                panic!("callgrind's output is not as it was: {line}");
            };
            counted.push(Counted {
                address: own.then_some(address),
                times,
            });
        }
    }
    counted
}
