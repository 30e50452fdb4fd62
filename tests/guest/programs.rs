//! Our programs for the guest: the driver's examples, linked static because the guest has no libraries of the host's.

use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const EXAMPLES: [&str; 4] = ["regs", "identify", "io", "perf"];

/// Builds them into `target/guest`, a target folder of its own: other flags than the host's build.
pub fn build() -> Vec<PathBuf> {
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
