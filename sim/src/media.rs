//! Media behind the card: LUNs laid out in one address space, sparse, each with a latency of its own.
//!
//! Only pages that were written take memory. Blocks never written read as [`crate::pattern::unwritten_block`], so that
//! every read of a LUN can be checked. With [`Media::keep_in`] the data is in a [`file`], and such blocks read as zeros. An access outside every LUN is answered DECERR and counted; injected faults are
//! answered SLVERR.

pub mod file;

use std::collections::HashMap;
use std::ops::Range;

use crate::axi::Resp;
use crate::pattern::{BLOCK, unwritten_block};
use crate::rng::Rng;
use crate::slave::Target;
use crate::time::{CYCLE_FS, CYCLE_NS, Latency};
use file::MediaFile;

/// Where a LUN lies and how fast it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LunMedia {
    /// Media address of its first block, in bytes: a multiple of 512.
    pub base: u64,
    /// Its capacity, in 512-byte blocks.
    pub blocks: u64,
    /// From the acceptance of a read's address to its first beat.
    pub read_latency: Latency,
    /// From the acceptance of a write's last beat to B.
    pub write_latency: Latency,
}

/// A layout that media cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// Two LUNs share bytes, or one wraps around the address space.
    #[error("LUN {0} overlaps LUN {1} in media, or does not fit the 64-bit address space")]
    Overlap(usize, usize),
    /// The base is no multiple of a block.
    #[error("LUN {0} starts at {1:#x} in media, which is no multiple of 512")]
    Unaligned(usize, u64),
}

/// Which accesses an injected fault hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Media addresses, in bytes.
    pub bytes: Range<u64>,
    /// Reads are answered SLVERR.
    pub reads: bool,
    /// Writes are answered SLVERR and change nothing.
    pub writes: bool,
}

/// Bytes that were moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Read.
    pub read: u64,
    /// Written.
    pub written: u64,
}

/// What the card addresses on media, bytes: 512 TiB.
pub const MOST_BYTES: u64 = (BLOCK as u64) << weir_card::interfaces::MEDIA_BLOCK_BITS;

const PAGE: u64 = 4096;
/// Where the last page of the address space begins.
const LAST_PAGE: u64 = !(PAGE - 1);

struct Page {
    /// Bit n: block n of the page was written.
    written: u8,
    bytes: [u8; PAGE as usize],
}

/// The media model; a [`Target`] for [`crate::slave::Slave`].
pub struct Media {
    luns: Vec<LunMedia>,
    /// Indices into `luns`, by base.
    order: Vec<usize>,
    last: usize,
    pages: HashMap<u64, Box<Page>>,
    /// Instead of `pages`.
    file: Option<MediaFile>,
    faults: Vec<Fault>,
    seed: u64,
    rng: Rng,
    /// Femtoseconds a byte takes, 0 for no bound.
    byte_fs: u64,
    free_fs: u64,
    outside: u64,
    moved: Moved,
}

impl Media {
    /// Media that holds these LUNs, LUN n at index n. `bandwidth` bounds reads and writes together, in bytes/s.
    pub fn new(luns: Vec<LunMedia>, bandwidth: Option<u64>, seed: u64) -> Result<Self, MediaError> {
        let mut order: Vec<usize> = (0..luns.len()).collect();
        order.sort_by_key(|&n| luns[n].base);
        for (n, lun) in luns.iter().enumerate() {
            if lun.base % BLOCK as u64 != 0 {
                return Err(MediaError::Unaligned(n, lun.base));
            }
            if end(lun).is_none() {
                return Err(MediaError::Overlap(n, n));
            }
        }
        for pair in order.windows(2) {
            if end(&luns[pair[0]]).is_none_or(|end| end > luns[pair[1]].base) {
                return Err(MediaError::Overlap(pair[1], pair[0]));
            }
        }
        Ok(Media {
            luns,
            order,
            last: 0,
            pages: HashMap::new(),
            file: None,
            faults: Vec::new(),
            seed,
            rng: Rng::new(seed, 0x3ed1a),
            byte_fs: bandwidth.map_or(0, |rate| 1_000_000_000_000_000 / rate.max(1)),
            free_fs: 0,
            outside: 0,
            moved: Moved::default(),
        })
    }

    /// Keeps the data in `file`, which was opened for these LUNs, from now on.
    pub fn keep_in(&mut self, file: MediaFile) {
        self.file = Some(file);
    }

    /// Why the file could not be read, or written, each of them once.
    pub fn take_file_failure(&self) -> Option<String> {
        self.file.as_ref()?.take_failure()
    }

    /// LUNs of equal capacity one after another, each on a page of its own.
    pub fn equal_luns(luns: u32, blocks: u64, latency: Latency) -> Vec<LunMedia> {
        // What does not fit 64 bits is refused when media is made of it.
        let bytes = blocks.saturating_mul(BLOCK as u64);
        let stride = bytes.checked_next_multiple_of(PAGE).unwrap_or(LAST_PAGE);
        (0..u64::from(luns))
            .map(|n| LunMedia {
                base: n.saturating_mul(stride) & LAST_PAGE,
                blocks,
                read_latency: latency,
                write_latency: latency,
            })
            .collect()
    }

    /// The LUNs, LUN n at index n.
    pub fn luns(&self) -> &[LunMedia] {
        &self.luns
    }

    /// Adds a fault.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Bytes moved without error since construction.
    pub fn moved(&self) -> Moved {
        self.moved
    }

    /// Accesses that were outside every LUN.
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// What a block holds now, without time passing; for tests and final checks. None outside the LUN,
    /// and where a file cannot be read.
    pub fn peek(&self, lun: u32, lba: u64) -> Option<[u8; BLOCK]> {
        let place = self
            .luns
            .get(lun as usize)
            .filter(|place| lba < place.blocks)?;
        let (mut out, address) = ([0; BLOCK], place.base + lba * BLOCK as u64);
        match &self.file {
            Some(file) => return file.read(address, &mut out).then_some(out),
            None => self.copy_block(lun as usize, address, 0, &mut out),
        }
        Some(out)
    }

    fn find(&mut self, addr: u64, len: u64) -> Option<usize> {
        let inside = |lun: &LunMedia| {
            addr >= lun.base
                && addr
                    .checked_add(len)
                    .zip(end(lun))
                    .is_some_and(|(last, end)| last <= end)
        };
        if self.luns.get(self.last).is_some_and(inside) {
            return Some(self.last);
        }
        let at = self
            .order
            .partition_point(|&n| self.luns[n].base <= addr)
            .checked_sub(1)?;
        let lun = self.order[at];
        if !inside(&self.luns[lun]) {
            return None;
        }
        self.last = lun;
        Some(lun)
    }

    fn faulty(&self, addr: u64, len: u64, write: bool) -> bool {
        self.faults.iter().any(|fault| {
            let chosen = if write { fault.writes } else { fault.reads };
            chosen && addr < fault.bytes.end && fault.bytes.start < addr + len
        })
    }

    /// Copies from one block, from byte `from` of it on, as much as `out` takes.
    fn copy_block(&self, lun: usize, block_addr: u64, from: usize, out: &mut [u8]) {
        let within = (block_addr % PAGE) as usize;
        let page = self.pages.get(&(block_addr / PAGE));
        match page.filter(|page| page.written >> (within / BLOCK) & 1 != 0) {
            Some(page) => out.copy_from_slice(&page.bytes[within + from..][..out.len()]),
            None => {
                let mut block = [0; BLOCK];
                unwritten_block(lun as u32, self.lba(lun, block_addr), self.seed, &mut block);
                out.copy_from_slice(&block[from..from + out.len()]);
            }
        }
    }

    fn lba(&self, lun: usize, block_addr: u64) -> u64 {
        (block_addr - self.luns[lun].base) / BLOCK as u64
    }

    fn write_block(&mut self, lun: usize, block_addr: u64, from: usize, data: &[u8]) {
        let within = (block_addr % PAGE) as usize;
        let bit = 1 << (within / BLOCK);
        let (lba, seed) = (self.lba(lun, block_addr), self.seed);
        let page = self.pages.entry(block_addr / PAGE).or_insert_with(|| {
            Box::new(Page {
                written: 0,
                bytes: [0; PAGE as usize],
            })
        });
        if page.written & bit == 0 && data.len() < BLOCK {
            let mut block = [0; BLOCK];
            unwritten_block(lun as u32, lba, seed, &mut block);
            page.bytes[within..within + BLOCK].copy_from_slice(&block);
        }
        page.written |= bit;
        page.bytes[within + from..][..data.len()].copy_from_slice(data);
    }
}

fn end(lun: &LunMedia) -> Option<u64> {
    lun.blocks
        .checked_mul(BLOCK as u64)
        .and_then(|bytes| lun.base.checked_add(bytes))
}

/// Calls `each(block address, first byte in it, range of the access)` for every block that an access touches.
fn blocks(addr: u64, len: usize, mut each: impl FnMut(u64, usize, Range<usize>)) {
    let mut at = 0;
    while at < len {
        let here = addr + at as u64;
        let from = (here % BLOCK as u64) as usize;
        let count = (BLOCK - from).min(len - at);
        each(here - from as u64, from, at..at + count);
        at += count;
    }
}

impl Target for Media {
    fn read(&mut self, addr: u64, out: &mut [u8]) -> Resp {
        let Some(lun) = self.find(addr, out.len() as u64) else {
            self.outside += 1;
            return Resp::DecErr;
        };
        if self.faulty(addr, out.len() as u64, false) {
            return Resp::SlvErr;
        }
        if let Some(file) = &self.file
            && !file.read(addr, out)
        {
            return Resp::SlvErr;
        }
        self.moved.read += out.len() as u64;
        if self.file.is_some() {
            return Resp::Okay;
        }
        blocks(addr, out.len(), |block, from, range| {
            self.copy_block(lun, block, from, &mut out[range])
        });
        Resp::Okay
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> Resp {
        let Some(lun) = self.find(addr, data.len() as u64) else {
            self.outside += 1;
            return Resp::DecErr;
        };
        if self.faulty(addr, data.len() as u64, true) {
            return Resp::SlvErr;
        }
        if let Some(file) = &self.file
            && !file.write(addr, data)
        {
            return Resp::SlvErr;
        }
        self.moved.written += data.len() as u64;
        if self.file.is_some() {
            return Resp::Okay;
        }
        blocks(addr, data.len(), |block, from, range| {
            self.write_block(lun, block, from, &data[range])
        });
        Resp::Okay
    }

    fn latency(&mut self, now: u64, addr: u64, bytes: u64, write: bool) -> u64 {
        let lun = self.find(addr, 1).map(|n| self.luns[n]);
        let ns = lun.map_or(0, |lun| {
            let latency = if write {
                lun.write_latency
            } else {
                lun.read_latency
            };
            latency.draw(&mut self.rng)
        });
        let mut wait = 0;
        if self.byte_fs > 0 {
            let now_fs = now * CYCLE_FS;
            self.free_fs = self.free_fs.max(now_fs) + bytes * self.byte_fs;
            wait = (self.free_fs - now_fs).div_ceil(CYCLE_FS);
        }
        wait + ns.div_ceil(CYCLE_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media() -> Media {
        Media::new(Media::equal_luns(3, 9, Latency::Fixed(100)), None, 5).unwrap()
    }

    fn pattern(lun: u32, lba: u64) -> [u8; BLOCK] {
        let mut out = [0; BLOCK];
        unwritten_block(lun, lba, 5, &mut out);
        out
    }

    #[test]
    fn unwritten_blocks_read_as_their_pattern_and_written_ones_as_written() {
        let mut media = media();
        let base = media.luns()[1].base;
        assert_eq!(base, 8192);
        assert_eq!(media.write(base + 512 + 500, &[9; 600]), Resp::Okay);
        let mut out = [0; 2048];
        assert_eq!(media.read(base + 512, &mut out), Resp::Okay);
        let mut expected: Vec<u8> = (1..5).flat_map(|lba| pattern(1, lba)).collect();
        expected[500..1100].fill(9);
        assert!(out[..] == expected[..]);
        assert_eq!(media.peek(1, 1).unwrap()[..], expected[..512]);
        assert_eq!(media.peek(2, 0), Some(pattern(2, 0)));
        assert_eq!(media.peek(2, 9), None);
        // A read within a block.
        assert_eq!(media.read(base + 16, &mut out[..8]), Resp::Okay);
        assert_eq!(out[..8], pattern(1, 0)[16..24]);
    }

    #[test]
    fn outside_and_faults_are_errors() {
        let mut media = media();
        let base = media.luns()[1].base;
        assert_eq!(media.read(base + 9 * 512, &mut [0; 16]), Resp::DecErr);
        assert_eq!(media.write(base + 9 * 512 - 8, &[0; 16]), Resp::DecErr);
        assert_eq!(media.outside(), 2);
        media.inject(Fault {
            bytes: base + 512..base + 1024,
            reads: true,
            writes: false,
        });
        assert_eq!(media.read(base + 1000, &mut [0; 8]), Resp::SlvErr);
        assert_eq!(media.read(base + 1024, &mut [0; 8]), Resp::Okay);
        assert_eq!(media.write(base + 600, &[1; 8]), Resp::Okay);
        media.clear_faults();
        assert_eq!(media.read(base + 1000, &mut [0; 8]), Resp::Okay);
    }

    #[test]
    fn layouts_are_checked() {
        let lun = |base, blocks| LunMedia {
            base,
            blocks,
            read_latency: Latency::Fixed(0),
            write_latency: Latency::Fixed(0),
        };
        let error = |luns| Media::new(luns, None, 0).err();
        assert_eq!(
            error(vec![lun(1024, 2), lun(0, 3)]),
            Some(MediaError::Overlap(0, 1))
        );
        assert_eq!(
            error(vec![lun(100, 2)]),
            Some(MediaError::Unaligned(0, 100))
        );
        assert_eq!(
            error(vec![lun(0, u64::MAX)]),
            Some(MediaError::Overlap(0, 0))
        );
        assert_eq!(error(vec![lun(512, 2), lun(0, 1)]), None);
    }

    #[test]
    fn luns_that_do_not_fit_are_refused() {
        for blocks in [u64::MAX, 1 << 55, (1 << 54) + 1] {
            let luns = Media::equal_luns(2, blocks, Latency::Fixed(0));
            let error = Media::new(luns, None, 0).err().expect("they do not fit");
            assert!(error.to_string().contains("does not fit"), "{error}");
        }
    }

    #[test]
    fn bandwidth_adds_to_latency() {
        let luns = Media::equal_luns(1, 100, Latency::Fixed(100));
        let mut media = Media::new(luns, Some(1_000_000_000), 0).unwrap();
        assert_eq!(media.latency(0, 0, 4096, false), 4096 / 4 + 25);
        assert_eq!(media.latency(0, 0, 4096, true), 2 * 4096 / 4 + 25);
        assert_eq!(media.latency(100_000, 0, 4096, true), 4096 / 4 + 25);
    }
}
