//! LUN data in a file, which outlives the simulator.
//!
//! The first 4096 bytes say in text what the file is: `weir media 1`, then `luns` and `blocks` (512-byte blocks of each
//! LUN), then zeros. Media follows, address 0 at byte 4096. The file is sparse; what was never written reads as zeros.
//!
//! A write that was answered is in the file as the kernel has it: it survives this process, however that ends, and not
//! the machine's loss of power.

use std::cell::RefCell;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{LunMedia, PAGE, end};

/// Bytes before the media.
const HEADER: u64 = PAGE;

/// Why a file cannot hold the media.
#[derive(Debug, thiserror::Error)]
pub enum MediaFileError {
    /// The file system.
    #[error("{}: cannot {what}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{}: another process serves it", .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It was not made by this.
    #[error(
        "{}: is no media file of weir, and is not overwritten: name a file that does not exist, or an empty one",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It holds other LUNs.
    #[error(
        "{}: holds {} LUNs of {} blocks, but the card has {} of {}: use the options that it was made with \
         (--luns, --lun-size), or another file",
        .path.display(), .found.0, .found.1, .wanted.0, .wanted.1
    )]
    Geometry {
        /// The file.
        path: PathBuf,
        /// Its LUNs and the blocks of each.
        found: (u64, u64),
        /// The card's.
        wanted: (u64, u64),
    },
    /// It lost its end.
    #[error("{}: has {found} bytes, but {wanted} belong there: it was cut", .path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length, bytes.
        found: u64,
        /// What its header makes it.
        wanted: u64,
    },
}

/// An open file, locked against other processes that use this.
#[derive(Debug)]
pub struct MediaFile {
    file: File,
    /// The last failure that nobody has heard of.
    failure: RefCell<Option<(&'static str, io::Error)>>,
    /// What somebody has heard of.
    told: RefCell<Vec<&'static str>>,
}

impl MediaFile {
    /// Opens the file at `path` for these LUNs of equal size; makes it when it is not there or empty.
    pub fn open(path: &Path, luns: &[LunMedia]) -> Result<Self, MediaFileError> {
        let failed = |what| {
            move |source| MediaFileError::Io {
                path: path.into(),
                what,
                source,
            }
        };
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(failed("open it"))?;
        match file.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                return Err(MediaFileError::InUse { path: path.into() });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock it")(source)),
        }
        let wanted = (luns.len() as u64, luns.first().map_or(0, |lun| lun.blocks));
        let len = HEADER + luns.iter().filter_map(end).max().unwrap_or(0);
        let found = file.metadata().map_err(failed("read its length"))?.len();
        if found == 0 {
            // The length first: a file with a header has all of it.
            file.set_len(len).map_err(failed("make it that long"))?;
            if let Err(source) = file.write_all_at(header(wanted).as_bytes(), 0) {
                // Such as a full disk. Without this it would be no media file the next time.
                let _ = file.set_len(0);
                return Err(failed("write its header")(source));
            }
            return Ok(MediaFile::of(file));
        }
        let mut bytes = vec![0; HEADER.min(found) as usize];
        file.read_exact_at(&mut bytes, 0)
            .map_err(failed("read its header"))?;
        let Some(geometry) = read_header(&bytes) else {
            return Err(MediaFileError::Foreign { path: path.into() });
        };
        if geometry != wanted {
            return Err(MediaFileError::Geometry {
                path: path.into(),
                found: geometry,
                wanted,
            });
        }
        if found < len {
            return Err(MediaFileError::Short {
                path: path.into(),
                found,
                wanted: len,
            });
        }
        Ok(MediaFile::of(file))
    }

    fn of(file: File) -> Self {
        MediaFile {
            file,
            failure: RefCell::default(),
            told: RefCell::default(),
        }
    }

    /// What went wrong: the first failure of reading, and of writing.
    pub(super) fn take_failure(&self) -> Option<String> {
        let (what, error) = self.failure.take()?;
        let mut told = self.told.borrow_mut();
        if told.contains(&what) {
            return None;
        }
        told.push(what);
        Some(format!(
            "the media file cannot be {what}: {error}; I/O fails, and more of this is not logged"
        ))
    }

    fn done(&self, what: &'static str, result: io::Result<()>) -> bool {
        match result {
            Ok(()) => true,
            Err(error) => {
                *self.failure.borrow_mut() = Some((what, error));
                false
            }
        }
    }

    /// Reads from media address `addr` on; false when the file could not be read.
    pub(super) fn read(&self, addr: u64, out: &mut [u8]) -> bool {
        self.done("read", self.file.read_exact_at(out, HEADER + addr))
    }

    /// Writes likewise: false when nothing, or not all, was written.
    pub(super) fn write(&self, addr: u64, data: &[u8]) -> bool {
        self.done("written", self.file.write_all_at(data, HEADER + addr))
    }
}

fn header((luns, blocks): (u64, u64)) -> String {
    format!("weir media 1\nluns {luns}\nblocks {blocks}\n")
}

/// LUNs and blocks of each; None when this is no header.
fn read_header(bytes: &[u8]) -> Option<(u64, u64)> {
    let text = bytes.split(|byte| *byte == 0).next()?;
    let mut lines = std::str::from_utf8(text).ok()?.lines();
    let first = lines.next()?;
    let mut number = |name| lines.next()?.strip_prefix(name)?.trim().parse().ok();
    let geometry = (number("luns ")?, number("blocks ")?);
    (first == "weir media 1").then_some(geometry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axi::Resp;
    use crate::media::Media;
    use crate::slave::Target;
    use crate::time::Latency;

    fn luns(count: u32) -> Vec<LunMedia> {
        Media::equal_luns(count, 9, Latency::Fixed(0))
    }

    fn media(path: &Path) -> Result<Media, MediaFileError> {
        let mut media = Media::new(luns(2), None, 1).unwrap();
        media.keep_in(MediaFile::open(path, &luns(2))?);
        Ok(media)
    }

    #[test]
    fn data_outlives_the_media_and_the_rest_is_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("media");
        let mut first = media(&path).unwrap();
        let base = first.luns()[1].base;
        assert_eq!(first.write(base + 8 * 512, &[7; 512]), Resp::Okay);
        assert!(matches!(media(&path), Err(MediaFileError::InUse { .. })));
        drop(first);
        let mut again = media(&path).unwrap();
        let mut block = [1; 512];
        assert_eq!(again.read(base + 8 * 512, &mut block), Resp::Okay);
        assert_eq!(block, [7; 512]);
        assert_eq!(again.peek(1, 8), Some([7; 512]));
        assert_eq!(again.read(base, &mut block), Resp::Okay);
        assert_eq!(block, [0; 512]);
        assert_eq!(again.write(base + 9 * 512, &[7; 512]), Resp::DecErr);
    }

    #[test]
    fn a_file_that_fails_is_an_error_and_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("media");
        let mut first = media(&path).unwrap();
        let base = first.luns()[1].base;
        // As when the disk is full.
        first.keep_in(MediaFile::of(File::open(&path).unwrap()));
        for _ in 0..2 {
            assert_eq!(first.write(base, &[7; 512]), Resp::SlvErr);
        }
        let failure = first.take_file_failure().unwrap();
        assert!(failure.contains("cannot be written"), "{failure}");
        assert_eq!(first.write(base, &[7; 512]), Resp::SlvErr);
        assert_eq!(first.take_file_failure(), None);
        // As when somebody cuts it.
        File::create(&path).unwrap();
        assert_eq!(first.read(base, &mut [0; 512]), Resp::SlvErr);
        let failure = first.take_file_failure().unwrap();
        assert!(failure.contains("cannot be read"), "{failure}");
    }

    #[test]
    fn other_files_are_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("media");
        std::fs::write(&path, "something dear").unwrap();
        assert!(matches!(media(&path), Err(MediaFileError::Foreign { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"something dear");
        std::fs::write(&path, "").unwrap();
        drop(media(&path).unwrap());
        let error = MediaFile::open(&path, &luns(3)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("holds 2 LUNs of 9 blocks, but the card has 3 of 9")
        );
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(9000)
            .unwrap();
        assert!(matches!(media(&path), Err(MediaFileError::Short { .. })));
        let missing = MediaFile::open(&dir.path().join("no/media"), &luns(2));
        assert!(matches!(missing, Err(MediaFileError::Io { .. })));
    }
}
