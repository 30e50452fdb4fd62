//! Which processes have a device file open, as `/proc` tells.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A process that has a file open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opener {
    /// The file.
    pub file: PathBuf,
    /// Its process identifier.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Opener {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// The other processes that have one of `files` open, as far as this user may see them; `proc` is `/proc`, but in
/// tests. A process is named once.
pub fn openers(proc: &Path, files: &[PathBuf]) -> Vec<Opener> {
    let mut openers = Vec::new();
    for process in fs::read_dir(proc).into_iter().flatten().flatten() {
        let pid = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        // This process may have inherited one; it goes, and whoever it came from is named.
        let Some(pid) = pid.filter(|pid| *pid != std::process::id()) else {
            continue;
        };
        let fds = fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut targets = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
        if let Some(file) = targets.find(|target| files.contains(target)) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            let name = name.trim().to_owned();
            openers.push(Opener { file, pid, name });
        }
    }
    openers.sort_by_key(|opener| opener.pid);
    openers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn processes_are_found_by_their_descriptors_but_not_this_one() {
        let proc = tempfile::tempdir().unwrap();
        let process = |name: &str, fds: &[&str]| {
            let folder = proc.path().join(name);
            fs::create_dir_all(folder.join("fd")).unwrap();
            fs::write(folder.join("comm"), "fio\n").unwrap();
            for (n, file) in fds.iter().enumerate() {
                symlink(file, folder.join("fd").join(n.to_string())).unwrap();
            }
        };
        let (a, b) = (PathBuf::from("/dev/a"), PathBuf::from("/dev/b"));
        process("7", &["/dev/null", "/dev/b", "/dev/a"]);
        process("12", &["/dev/null"]);
        process("self", &["/dev/a"]);
        process(&std::process::id().to_string(), &["/dev/a"]);
        let found = openers(proc.path(), &[a.clone(), b]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "process 7 (fio)");
        assert!(openers(Path::new("/nowhere"), &[a]).is_empty());
    }
}
