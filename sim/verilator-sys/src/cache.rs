//! A folder of builds, one folder a key, shared by threads and processes.
//!
//! A build is made in a folder of its own and renamed into place, so that an entry is there whole or not at all.
//! Beside it lies `KEY.lock`: held exclusively by who builds or removes the entry, shared by who uses it. Lock files
//! stay when their entry goes: removing one could give two processes a lock each.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::Error;

/// Written last into an entry; its modification time is the entry's last use.
const MARK: &str = "used";

/// Folders that a killed build left are removed when this old.
const STALE: Duration = Duration::from_secs(3600);

/// A build in use: it is not removed while this lives.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The build's folder.
    pub dir: PathBuf,
    /// Whether this call built it.
    pub built: bool,
    _lock: File,
}

/// Gives the entry `key` of the cache in `root`, made by `build` (in the folder passed) if it is not there.
pub(crate) fn entry(
    root: &Path,
    limit: u64,
    key: &str,
    build: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<Entry, Error> {
    fs::create_dir_all(root).map_err(Error::io("create", root))?;
    let dir = root.join(key);
    let mark = dir.join(MARK);
    let lock_path = root.join(format!("{key}.lock"));
    let lock = || -> Result<File, Error> {
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(Error::io("open", &lock_path))
    };
    let mut build = Some(build);
    let mut built = false;
    loop {
        let shared = lock()?;
        shared
            .lock_shared()
            .map_err(Error::io("lock", &lock_path))?;
        if let Ok(file) = File::options().write(true).open(&mark) {
            file.set_modified(SystemTime::now())
                .map_err(Error::io("touch", &mark))?;
            if built {
                evict(root, limit)?;
            }
            return Ok(Entry {
                dir,
                built,
                _lock: shared,
            });
        }
        drop(shared);
        // Never wait for the exclusive lock: whoever found the entry built keeps the shared one as long as it likes.
        let exclusive = lock()?;
        match exclusive.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(1));
                continue; // to wait for the shared lock, until the builder is done
            }
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", &lock_path)(error)),
        }
        if mark.exists() {
            continue; // another was quicker
        }
        // Built, then removed by another process before it was ours again: the cache's limit is far too small.
        let Some(build) = build.take() else {
            return Err(Error::Io {
                action: "keep",
                path: dir,
                source: std::io::Error::other("removed at once: the cache's limit is too small"),
            });
        };
        let scratch = Scratch::new(root)?;
        build(&scratch.0)?;
        File::create(scratch.0.join(MARK)).map_err(Error::io("create", &mark))?;
        if dir.exists() {
            // A removal that was cut short.
            fs::remove_dir_all(&dir).map_err(Error::io("remove", &dir))?;
        }
        fs::rename(&scratch.0, &dir).map_err(Error::io("rename into place", &dir))?;
        built = true;
    }
}

/// A folder of this call alone, removed at the end unless renamed away.
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    pub(crate) fn new(root: &Path) -> Result<Scratch, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("tmp-{}-{n}", std::process::id()));
        let _ = fs::remove_dir_all(&path); // of an earlier process with our id
        fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the least recently used entries until `limit` bytes are left, except those in use.
fn evict(root: &Path, limit: u64) -> Result<(), Error> {
    let mut entries = Vec::new();
    for item in fs::read_dir(root)
        .map_err(Error::io("read", root))?
        .flatten()
    {
        let path = item.path();
        let name = item.file_name().to_string_lossy().into_owned();
        if name.starts_with("tmp-") {
            let age = item
                .metadata()
                .and_then(|m| m.modified())
                .ok()
                .and_then(|t| t.elapsed().ok());
            if age.is_some_and(|age| age > STALE) {
                let _ = fs::remove_dir_all(&path);
            }
        } else if let Ok(used) = fs::metadata(path.join(MARK)).and_then(|m| m.modified()) {
            entries.push((used, name, size(&path)));
        }
    }
    entries.sort();
    let mut total: u64 = entries.iter().map(|e| e.2).sum();
    for (_, name, bytes) in entries {
        if total <= limit {
            break;
        }
        let Ok(lock) = File::options()
            .write(true)
            .open(root.join(format!("{name}.lock")))
        else {
            continue;
        };
        if lock.try_lock().is_err() {
            continue; // in use
        }
        // Unmarked first: cut short, the rest is taken for no entry.
        let dir = root.join(&name);
        if fs::remove_file(dir.join(MARK))
            .and_then(|()| fs::remove_dir_all(&dir))
            .is_ok()
        {
            total -= bytes;
        }
    }
    Ok(())
}

/// Bytes in a folder's files.
fn size(dir: &Path) -> u64 {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|f| f.metadata().ok())
        .filter(|m| m.is_file())
        .map(|m| m.len())
        .sum()
}
