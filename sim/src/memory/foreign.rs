//! Memory of another process that the card may access: what a vfio-user client has mapped for DMA.
//!
//! A map is a range of IOVA, a place in a file, and permissions. An IOMMU makes a map a page of the same few files, so
//! each file is opened once, by its inode, and shared by its maps; again only when it has grown, or comes open for writing
//! and did not before. What is open is counted: the kernel bounds mappings and file descriptors of a process, and a
//! client that used them all up would take the server's own.
//!
//! | the client's file | how it is reached |
//! |---|---|
//! | a memfd sealed against shrinking, or that can be (QEMU's `memory-backend-memfd`) | mapped into this process |
//! | any other file of tmpfs (`/dev/shm`) | read and written by system calls: slower, but a file that shrinks is only an error |
//! | none | not at all: accesses are errors |
//! | anything else | refused: a file on a disk, or on FUSE, could make the card wait for as long as its server likes |

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::{Rc, Weak};

use rustix::fs::{OFlags, fcntl_getfl, fstat, fstatfs};

use super::mapping::Mapping;
use super::raw::PAGE;

/// `f_type` of tmpfs (and of a memfd), statfs(2).
const TMPFS: u64 = 0x0102_1994;

/// Most files that one client may have open here at once; one that grew, or came with other rights, counts again.
pub const MAX_FILES: usize = 256;

/// What the card may do with a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// It may read.
    pub read: bool,
    /// It may write.
    pub write: bool,
}

/// Why there is no such map.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Not whole pages, none, or past the end of the address space.
    #[error(
        "a DMA map of {size:#x} bytes at IOVA {iova:#x}, file offset {offset:#x}: must be whole pages of 4 KiB, at least one"
    )]
    Range {
        /// First IOVA.
        iova: u64,
        /// Bytes.
        size: u64,
        /// In the file.
        offset: u64,
    },
    /// Something is mapped there.
    #[error("IOVA {iova:#x}+{size:#x} overlaps the map at {other:#x}")]
    Overlap {
        /// First IOVA.
        iova: u64,
        /// Bytes.
        size: u64,
        /// First IOVA of the other map.
        other: u64,
    },
    /// Only a part of a map would be taken away.
    #[error("IOVA {iova:#x}+{size:#x} is only a part of the map at {other:#x}")]
    Part {
        /// First IOVA.
        iova: u64,
        /// Bytes.
        size: u64,
        /// First IOVA of the map.
        other: u64,
    },
    /// The file ends before the map does.
    #[error("the map needs {need:#x} bytes of a file that has {len:#x}")]
    Short {
        /// Bytes from the file's beginning to the map's end.
        need: u64,
        /// Bytes of the file.
        len: u64,
    },
    /// The card could not write it.
    #[error("the map may be written, but its file descriptor is open for reading only")]
    ReadOnly,
    /// No memory.
    #[error(
        "the file is no shared memory: use a memfd (QEMU: memory-backend-memfd,share=on) or a file in /dev/shm"
    )]
    NoMemory,
    /// Too many files.
    #[error("more than {MAX_FILES} different files are mapped")]
    Files,
    /// Too many maps.
    #[error("more than {0} maps")]
    Maps(usize),
    /// The system said no.
    #[error("cannot map the file: {0}")]
    System(#[from] rustix::io::Errno),
}

#[derive(Debug)]
enum Backing {
    Mapped(Mapping),
    File(File),
}

#[derive(Debug)]
struct Map {
    size: u64,
    offset: u64,
    access: Access,
    /// None: the client gave no file.
    file: Option<Rc<Backing>>,
}

/// Device, inode, open for writing, length: what may be shared by maps.
type FileKey = (u64, u64, bool, u64);

/// All maps of a client.
#[derive(Debug, Default)]
pub struct Foreign {
    maps: BTreeMap<u64, Map>,
    files: BTreeMap<FileKey, Weak<Backing>>,
}

impl Foreign {
    /// Maps `size` bytes of `fd` from `offset` on at `iova`; at most `most` maps. Without a file the range is taken, and
    /// accesses are errors.
    pub fn map(
        &mut self,
        iova: u64,
        size: u64,
        fd: Option<OwnedFd>,
        offset: u64,
        access: Access,
        most: usize,
    ) -> Result<(), MapError> {
        let page = PAGE as u64;
        let whole = [iova, size, offset].iter().all(|n| n.is_multiple_of(page));
        let ends = iova.checked_add(size).and(offset.checked_add(size));
        let Some(need) = ends.filter(|_| whole && size > 0) else {
            return Err(MapError::Range { iova, size, offset });
        };
        if let Some(other) = self.overlap(iova, size) {
            return Err(MapError::Overlap { iova, size, other });
        }
        if self.maps.len() >= most {
            return Err(MapError::Maps(most));
        }
        let file = fd.map(|fd| self.file(fd, need, access.write)).transpose()?;
        self.maps.insert(
            iova,
            Map {
                size,
                offset,
                access,
                file,
            },
        );
        Ok(())
    }

    /// Takes away every map inside `iova..iova + size`, any number of them; a map that is only partly inside is an
    /// error, and nothing is taken away then.
    pub fn unmap(&mut self, iova: u64, size: u64) -> Result<(), MapError> {
        // The last byte, since a range may end at 2^64.
        let Some(last) = size.checked_sub(1).and_then(|n| iova.checked_add(n)) else {
            return Err(MapError::Range {
                iova,
                size,
                offset: 0,
            });
        };
        let part = |&other| MapError::Part { iova, size, other };
        if let Some((other, map)) = self.maps.range(..iova).next_back()
            && other + (map.size - 1) >= iova
        {
            return Err(part(other));
        }
        if let Some((other, map)) = self.maps.range(iova..=last).next_back()
            && other + (map.size - 1) > last
        {
            return Err(part(other));
        }
        let inside: Vec<u64> = self
            .maps
            .range(iova..=last)
            .map(|(iova, _)| *iova)
            .collect();
        for iova in inside {
            self.maps.remove(&iova);
        }
        self.files.retain(|_, file| file.strong_count() > 0);
        Ok(())
    }

    /// Takes everything away.
    pub fn clear(&mut self) {
        *self = Foreign::default();
    }

    /// How many maps there are.
    pub fn len(&self) -> usize {
        self.maps.len()
    }

    /// No map at all?
    pub fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// May the card write all of `iova..iova + len`?
    pub fn covers(&self, iova: u64, len: usize) -> bool {
        self.find(iova, len)
            .is_some_and(|(map, ..)| map.access.write)
    }

    /// Copies from memory; false when not all of it may be read.
    pub fn read(&self, iova: u64, out: &mut [u8]) -> bool {
        match self.find(iova, out.len()) {
            Some((map, file, at)) if map.access.read => match file {
                Backing::Mapped(mapping) => mapping.read(at, out),
                Backing::File(file) => file.read_exact_at(out, at).is_ok(),
            },
            _ => false,
        }
    }

    /// Copies to memory; false when not all of it may be written.
    pub fn write(&self, iova: u64, data: &[u8]) -> bool {
        match self.find(iova, data.len()) {
            Some((map, file, at)) if map.access.write => match file {
                Backing::Mapped(mapping) => mapping.write(at, data),
                Backing::File(file) => write_file(file, file_len(file), at, data),
            },
            _ => false,
        }
    }

    fn find(&self, iova: u64, len: usize) -> Option<(&Map, &Backing, u64)> {
        let (start, map) = self.maps.range(..=iova).next_back()?;
        let at = iova - start;
        if at.checked_add(len as u64)? > map.size {
            return None;
        }
        Some((map, map.file.as_deref()?, map.offset + at))
    }

    fn overlap(&self, iova: u64, size: u64) -> Option<u64> {
        let before = self.maps.range(..iova).next_back();
        let before = before.filter(|(start, map)| *start + map.size > iova);
        let inside = || self.maps.range(iova..iova + size).next();
        before.or_else(inside).map(|(start, _)| *start)
    }

    /// The file, opened before or now; `need` bytes of it are used.
    fn file(&mut self, fd: OwnedFd, need: u64, write: bool) -> Result<Rc<Backing>, MapError> {
        let stat = fstat(&fd)?;
        let known = |write: bool| {
            let least = (stat.st_dev, stat.st_ino, write, need);
            let most = (stat.st_dev, stat.st_ino, write, u64::MAX);
            self.files
                .range(least..=most)
                .find_map(|(_, file)| file.upgrade())
        };
        let found = known(true).or_else(|| if write { None } else { known(false) });
        if let Some(file) = found {
            return Ok(file);
        }
        self.files.retain(|_, file| file.strong_count() > 0);
        if self.files.len() >= MAX_FILES {
            return Err(MapError::Files);
        }
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        if len < need {
            return Err(MapError::Short { need, len });
        }
        let mode = fcntl_getfl(&fd)? & OFlags::ACCMODE;
        if mode == OFlags::WRONLY || write && mode != OFlags::RDWR {
            return Err(MapError::ReadOnly);
        }
        let can_write = mode == OFlags::RDWR;
        let size = usize::try_from(len).map_err(|_| MapError::NoMemory)?;
        let backing = match Mapping::new(fd.as_fd(), size, can_write)? {
            Some(mapping) => Backing::Mapped(mapping),
            None if fstatfs(&fd)?.f_type as u64 == TMPFS && is_regular(&stat) => {
                Backing::File(File::from(fd))
            }
            None => return Err(MapError::NoMemory),
        };
        let shared = Rc::new(backing);
        let key = (stat.st_dev, stat.st_ino, can_write, len);
        self.files.insert(key, Rc::downgrade(&shared));
        Ok(shared)
    }
}

fn is_regular(stat: &rustix::fs::Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file()
}

fn file_len(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len())
}

/// Writes in ascending order, by words of 8 bytes where it is as short as completion entries; never past the end, where
/// it would make a file that shrank grow again.
fn write_file(file: &File, len: u64, at: u64, data: &[u8]) -> bool {
    if at
        .checked_add(data.len() as u64)
        .is_none_or(|end| end > len)
    {
        return false;
    }
    let step = if data.len() <= 64 { 8 } else { data.len() };
    data.chunks(step)
        .enumerate()
        .all(|(n, part)| file.write_all_at(part, at + (n * step) as u64).is_ok())
}

#[cfg(test)]
mod tests;
