//! The guest's initrd, and what scripts/setup-guest left.

use crate::machine::Boot;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What scripts/setup-guest left.
pub fn tools() -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/guest");
    assert!(
        tools.join("stamp").exists(),
        "no guest in .tools/guest: run scripts/setup-guest, or make guest-test"
    );
    tools
}

/// The base of setup-guest and our own files after it: the kernel unpacks one archive after the other.
pub fn initrd(dir: &Path, boot: &Boot) -> io::Result<PathBuf> {
    let tools = tools();
    let stage = dir.join("initrd");
    let _ = fs::remove_dir_all(&stage);
    fs::create_dir_all(stage.join("root"))?;
    fs::create_dir_all(stage.join("usr/bin"))?;
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/scripts");
    for entry in fs::read_dir(&scripts)? {
        let entry = entry?;
        fs::copy(entry.path(), stage.join("root").join(entry.file_name()))?;
    }
    fs::rename(stage.join("root/init"), stage.join("init"))?;
    fs::copy(scripts.join(boot.test), stage.join("root/test.sh"))?;
    for program in boot.programs {
        fs::copy(
            program,
            stage
                .join("usr/bin")
                .join(program.file_name().expect("a program has a name")),
        )?;
    }
    for (name, text) in boot.files {
        fs::write(stage.join("root").join(name), text)?;
    }
    let busybox = tools.join("root/usr/bin/busybox");
    let path = dir.join("initrd.cpio");
    let mut archive = File::create(&path)?;
    io::copy(&mut File::open(tools.join("tools.cpio"))?, &mut archive)?;
    let mut find = Command::new(&busybox)
        .arg("find")
        .arg(".")
        .current_dir(&stage)
        .stdout(Stdio::piped())
        .spawn()?;
    let names = find.stdout.take().expect("it was piped");
    let cpio = Command::new(&busybox)
        .args(["cpio", "-o", "-H", "newc"])
        .current_dir(&stage)
        .stdin(names)
        .stdout(archive)
        .stderr(Stdio::null())
        .status()?;
    if !find.wait()?.success() || !cpio.success() {
        return Err(io::Error::other("busybox find | cpio failed"));
    }
    Ok(path)
}
