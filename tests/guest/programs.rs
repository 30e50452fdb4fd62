//! Our programs for the guest: the driver's examples, linked static because the guest has no libraries of the host's,
//! and `weir` as it was built for the host, with its libraries and their loader.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const EXAMPLES: [&str; 6] = ["regs", "identify", "io", "perf", "verify", "counted"];

/// All of them; `dir` is for what is made on the way.
pub fn build(dir: &Path) -> Vec<PathBuf> {
    let mut programs = examples();
    programs.extend(weir(dir));
    programs
}

/// `weir` in the guest is a script that starts the loader beside it.
const WEIR: &str = "#!/bin/sh
exec /usr/bin/ld-weir --library-path /usr/bin /usr/bin/weir-program \"$@\"
";

fn weir(dir: &Path) -> Vec<PathBuf> {
    let weir = env!("CARGO_BIN_EXE_weir");
    let output = Command::new("ldd").arg(weir).output();
    let output = output.expect("ldd did not start");
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    // "libc.so.6 => /lib/.../libc.so.6 (0x...)", and "/lib64/ld-linux-x86-64.so.2 (0x...)" for the loader.
    let mut files: Vec<PathBuf> = list
        .lines()
        .filter_map(|line| line.split_once("=> ")?.1.split(' ').next())
        .map(PathBuf::from)
        .collect();
    let loader = list.lines().find_map(|line| {
        let path = line.trim().split(' ').next()?;
        path.starts_with('/').then_some(path)
    });
    let loader = loader.unwrap_or_else(|| panic!("ldd names no loader of {weir}:\n{list}"));
    let folder = dir.join("weir");
    fs::create_dir_all(&folder).unwrap();
    for (name, source) in [("ld-weir", loader), ("weir-program", weir)] {
        fs::copy(source, folder.join(name)).unwrap();
        files.push(folder.join(name));
    }
    let script = folder.join("weir");
    fs::write(&script, WEIR).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    files.push(script);
    files
}

/// Builds them into `target/guest`, a target folder of its own: other flags than the host's build.
fn examples() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = root.join("target/guest");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root);
    cargo.args(["build", "--locked", "--quiet", "--release"]);
    cargo.args(["--package", "weir-driver", "--target", TARGET]);
    cargo.arg("--target-dir").arg(&target);
    for example in EXAMPLES {
        cargo.args(["--example", example]);
    }
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let status = cargo.status().expect("cargo did not start");
    assert!(status.success(), "the examples did not build: {status}");
    let folder = target.join(TARGET).join("release/examples");
    EXAMPLES.iter().map(|name| folder.join(name)).collect()
}
