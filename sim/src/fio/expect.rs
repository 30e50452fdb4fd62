//! What every block of every LUN may hold: the shadow that each read is checked against.
//!
//! A block that no write is changing has one right content. While writes are in flight it has several: NVMe gives no
//! order between commands in flight, so a read that overlaps a write may see either side of it, block by block, and two
//! overlapping writes leave either. The shadow keeps the candidates with the times in which each may be read:
//!
//! - a write is a candidate from its submission on;
//! - when it completes, whatever had settled before its submission is overwritten: dead from then on;
//! - a read accepts a candidate that was not dead before the read's submission;
//! - what a read saw while no write was in flight has won over the others;
//! - a write that failed leaves anything, until the next that succeeds.
//!
//! Times are a count of submissions and completions, not the clock's: no two are equal.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::block::{self, Fill, Found};
use super::generator::Op;
use crate::pattern::{BLOCK, unwritten_block};

/// A content that a block may have.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Number of the write; 0 is the pattern of a block never written.
    write: u64,
    /// Index into the fills.
    fill: u32,
    /// When its write completed; None while in flight.
    settled: Option<u64>,
    /// Since when it cannot be read any more.
    dead: Option<u64>,
    /// Its write failed: the block may hold anything, a part of the write included.
    torn: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// One content.
    Settled { write: u64, fill: u32 },
    /// Several, or writes in flight.
    Open(Vec<Candidate>),
}

/// An I/O between submission and completion, as the shadow knows it.
#[derive(Clone, Debug)]
pub struct Token {
    lun: u32,
    lba: u64,
    blocks: u32,
    /// Number of the write.
    write: u64,
    fill: u32,
    /// When it was submitted.
    since: u64,
}

/// What a read brought that it should not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The first wrong block.
    pub first: Mismatch,
    /// Wrong blocks.
    pub blocks: u64,
}

/// A block that holds what it should not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// LUN of the read.
    pub lun: u32,
    /// Block at fault.
    pub lba: u64,
    /// First byte in the block that differs from what is expected.
    pub byte: usize,
    /// How many bytes differ.
    pub differing: usize,
    /// Writes whose content was acceptable, newest first; 0 is the content before the first write.
    pub expected: Vec<u64>,
    /// What the block says it is.
    pub found: Found,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LUN {} block {}: ", self.lun, self.lba)?;
        match self.found {
            Found::Written { lun, lba, .. } | Found::Unwritten { lun, lba }
                if (lun, lba) != (self.lun, self.lba) =>
            {
                write!(f, "misplaced: holds block {lba} of LUN {lun}")?;
            }
            Found::Written {
                write,
                intact: true,
                ..
            } => write!(f, "stale: holds write {write}")?,
            Found::Written {
                write,
                intact: false,
                ..
            } => {
                write!(
                    f,
                    "corrupt: write {write}, its payload not as its CRC-32C says"
                )?;
            }
            Found::Unwritten { .. } if self.expected.contains(&0) => write!(f, "corrupt")?,
            Found::Unwritten { .. } => write!(f, "lost: holds what it did before its first write")?,
            Found::Zero => write!(f, "all zero")?,
            Found::Unknown => write!(f, "corrupt")?,
        }
        write!(
            f,
            "; {} bytes differ from byte {} on; expected ",
            self.differing, self.byte
        )?;
        for (i, write) in self.expected.iter().enumerate() {
            let or = if i > 0 { " or " } else { "" };
            match write {
                0 => write!(f, "{or}the content before its first write")?,
                write => write!(f, "{or}write {write}")?,
            }
        }
        Ok(())
    }
}

/// The shadow of all LUNs.
pub struct Shadow {
    seed: u64,
    blocks: HashMap<(u32, u64), State>,
    fills: Vec<Rc<Fill>>,
    clock: u64,
    writes: u64,
    /// Submission times of the reads in flight.
    reads: std::collections::BTreeSet<u64>,
}

impl Shadow {
    /// LUNs to which nothing was written; `seed` is the media's.
    pub fn new(seed: u64) -> Self {
        Shadow {
            seed,
            blocks: HashMap::new(),
            fills: vec![Rc::new(Fill::Random)],
            clock: 0,
            writes: 0,
            reads: std::collections::BTreeSet::new(),
        }
    }

    /// Names a fill for [`Shadow::submit`].
    pub fn add_fill(&mut self, fill: Fill) -> u32 {
        let found = self.fills.iter().position(|known| **known == fill);
        found.unwrap_or_else(|| {
            self.fills.push(Rc::new(fill));
            self.fills.len() - 1
        }) as u32
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// An I/O is about to be submitted; call before the device can act on it. `lba` and `blocks` in 512-byte blocks.
    pub fn submit(&mut self, op: Op, lun: u32, lba: u64, blocks: u32, fill: u32) -> Token {
        let since = self.tick();
        let mut write = 0;
        match op {
            Op::Read => {
                self.reads.insert(since);
            }
            Op::Write => {
                self.writes += 1;
                write = self.writes;
                let oldest_read = self.reads.first().copied().unwrap_or(since);
                for lba in lba..lba + u64::from(blocks) {
                    let state = self
                        .blocks
                        .entry((lun, lba))
                        .or_insert(State::Settled { write: 0, fill: 0 });
                    let new = Candidate {
                        write,
                        fill,
                        settled: None,
                        dead: None,
                        torn: false,
                    };
                    match state {
                        State::Settled { write, fill } => {
                            let old = Candidate {
                                write: *write,
                                fill: *fill,
                                settled: Some(0),
                                dead: None,
                                torn: false,
                            };
                            *state = State::Open(vec![old, new]);
                        }
                        State::Open(candidates) => {
                            candidates.retain(|candidate| {
                                candidate.dead.is_none_or(|dead| dead > oldest_read)
                            });
                            candidates.push(new);
                        }
                    }
                }
            }
            Op::Flush => {}
        }
        Token {
            lun,
            lba,
            blocks,
            write,
            fill,
            since,
        }
    }

    /// Fills a write's buffer.
    pub fn fill(&self, token: &Token, buffer: &mut [u8]) {
        let fill = self.fills[token.fill as usize].clone();
        for (lba, out) in (token.lba..).zip(buffer.as_chunks_mut::<BLOCK>().0) {
            block::make(&fill, token.lun, lba, token.write, self.seed, out);
        }
    }

    /// A write completed; `ok` is whether with success.
    pub fn wrote(&mut self, token: &Token, ok: bool) {
        let now = self.tick();
        for lba in token.lba..token.lba + u64::from(token.blocks) {
            let Some(state) = self.blocks.get_mut(&(token.lun, lba)) else {
                continue;
            };
            let State::Open(candidates) = state else {
                continue;
            };
            for candidate in candidates.iter_mut() {
                if candidate.write == token.write {
                    candidate.settled = Some(now);
                    candidate.torn = !ok;
                } else if ok
                    && candidate
                        .settled
                        .is_some_and(|settled| settled < token.since)
                {
                    candidate.dead.get_or_insert(now);
                }
            }
            settle(state, &self.reads, now);
        }
    }

    /// A read completed with success: is the data what it may be? Else how many blocks are not, and the first of them.
    pub fn check(&mut self, token: &Token, data: &[u8]) -> Result<(), Wrong> {
        let mut wrong: Option<Wrong> = None;
        let mut found = |mismatch| match &mut wrong {
            Some(wrong) => wrong.blocks += 1,
            None => {
                wrong = Some(Wrong {
                    first: mismatch,
                    blocks: 1,
                });
            }
        };
        let now = self.tick();
        self.reads.remove(&token.since);
        let (blocks, rest) = data.as_chunks::<BLOCK>();
        debug_assert!(rest.is_empty() && blocks.len() == token.blocks as usize);
        let mut expected = [0; BLOCK];
        for (lba, data) in (token.lba..).zip(blocks) {
            let key = (token.lun, lba);
            match self.blocks.get(&key) {
                Some(State::Open(candidates)) => {
                    let live = candidates
                        .iter()
                        .rev()
                        .filter(|c| c.dead.is_none_or(|dead| dead > token.since));
                    let live: Vec<Candidate> = live.copied().collect();
                    let seen = live.iter().find(|c| {
                        self.content(key, c.write, c.fill, &mut expected);
                        expected == *data
                    });
                    let Some(seen) = seen.copied() else {
                        if live.iter().any(|c| c.torn) {
                            continue;
                        }
                        let may = live.iter().map(|c| (c.write, c.fill)).collect();
                        found(self.mismatch(key, may, data));
                        continue;
                    };
                    self.saw(key, seen.write, token.since, now);
                }
                state => {
                    let (write, fill) = match state {
                        Some(State::Settled { write, fill }) => (*write, *fill),
                        _ => (0, 0),
                    };
                    self.content(key, write, fill, &mut expected);
                    if expected != *data {
                        found(self.mismatch(key, vec![(write, fill)], data));
                    }
                }
            }
        }
        wrong.map_or(Ok(()), Err)
    }

    /// A read failed: its data is not looked at.
    pub fn read_failed(&mut self, token: &Token) {
        self.reads.remove(&token.since);
    }

    /// A read saw this candidate. If every write had completed before the read began, the others have lost.
    fn saw(&mut self, key: (u32, u64), write: u64, since: u64, now: u64) {
        let Some(state) = self.blocks.get_mut(&key) else {
            return;
        };
        let State::Open(candidates) = state else {
            return;
        };
        if candidates
            .iter()
            .all(|candidate| candidate.settled.is_some_and(|settled| settled < since))
        {
            for candidate in candidates
                .iter_mut()
                .filter(|candidate| candidate.write != write)
            {
                candidate.dead.get_or_insert(now);
            }
        }
        settle(state, &self.reads, now);
    }

    fn content(&self, (lun, lba): (u32, u64), write: u64, fill: u32, out: &mut [u8; BLOCK]) {
        if write == 0 {
            unwritten_block(lun, lba, self.seed, out);
        } else {
            block::make(&self.fills[fill as usize], lun, lba, write, self.seed, out);
        }
    }

    fn mismatch(&self, key: (u32, u64), live: Vec<(u64, u32)>, data: &[u8; BLOCK]) -> Mismatch {
        let mut expected = [0; BLOCK];
        if let Some(&(write, fill)) = live.first() {
            self.content(key, write, fill, &mut expected);
        }
        let differs = |&i: &usize| expected[i] != data[i];
        Mismatch {
            lun: key.0,
            lba: key.1,
            byte: (0..BLOCK).find(differs).unwrap_or(0),
            differing: (0..BLOCK).filter(differs).count(),
            expected: live.into_iter().map(|(write, _)| write).collect(),
            found: block::identify(data),
        }
    }
}

/// Drops candidates that no read in flight can see, and closes a block with one left.
fn settle(state: &mut State, reads: &std::collections::BTreeSet<u64>, now: u64) {
    let State::Open(candidates) = state else {
        return;
    };
    let oldest = reads.first().copied().unwrap_or(now);
    candidates.retain(|candidate| candidate.dead.is_none_or(|dead| dead > oldest));
    if let [
        Candidate {
            write,
            fill,
            settled: Some(_),
            dead: None,
            torn: false,
        },
    ] = candidates[..]
    {
        *state = State::Settled { write, fill };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 11;

    fn write(shadow: &mut Shadow, lba: u64, blocks: u32) -> (Token, Vec<u8>) {
        let token = shadow.submit(Op::Write, 1, lba, blocks, 0);
        let mut data = vec![0; blocks as usize * BLOCK];
        shadow.fill(&token, &mut data);
        (token, data)
    }

    fn read(shadow: &mut Shadow, lba: u64, data: &[u8]) -> Result<(), Mismatch> {
        let token = shadow.submit(Op::Read, 1, lba, (data.len() / BLOCK) as u32, 0);
        shadow.check(&token, data).map_err(|wrong| wrong.first)
    }

    fn unwritten(lun: u32, lba: u64) -> Vec<u8> {
        let mut out = [0; BLOCK];
        unwritten_block(lun, lba, SEED, &mut out);
        out.to_vec()
    }

    #[test]
    fn a_block_never_written_reads_as_its_pattern() {
        let mut shadow = Shadow::new(SEED);
        assert_eq!(read(&mut shadow, 5, &unwritten(1, 5)), Ok(()));
        let wrong = read(&mut shadow, 5, &unwritten(1, 6)).unwrap_err();
        assert!(
            wrong
                .to_string()
                .contains("misplaced: holds block 6 of LUN 1"),
            "{wrong}"
        );
        let wrong = read(&mut shadow, 5, &unwritten(2, 5)).unwrap_err();
        assert!(
            wrong
                .to_string()
                .contains("misplaced: holds block 5 of LUN 2"),
            "{wrong}"
        );
    }

    #[test]
    fn flipped_stale_misplaced_lost() {
        let mut shadow = Shadow::new(SEED);
        let (first, old) = write(&mut shadow, 8, 2);
        shadow.wrote(&first, true);
        let (second, new) = write(&mut shadow, 8, 2);
        shadow.wrote(&second, true);
        assert_eq!(read(&mut shadow, 8, &new), Ok(()));

        let mut flipped = new.clone();
        flipped[BLOCK + 100] ^= 0x10;
        let wrong = read(&mut shadow, 8, &flipped).unwrap_err();
        assert_eq!((wrong.lba, wrong.byte, wrong.differing), (9, 100, 1));
        assert!(wrong.to_string().contains("corrupt: write 2"), "{wrong}");

        let wrong = read(&mut shadow, 8, &old).unwrap_err();
        assert!(
            wrong.to_string().contains("stale: holds write 1"),
            "{wrong}"
        );

        let mut swapped = new[BLOCK..].to_vec();
        swapped.extend_from_slice(&new[..BLOCK]);
        let wrong = read(&mut shadow, 8, &swapped).unwrap_err();
        assert!(
            wrong
                .to_string()
                .contains("misplaced: holds block 9 of LUN 1"),
            "{wrong}"
        );

        let wrong = read(&mut shadow, 8, &unwritten(1, 8)).unwrap_err();
        assert!(wrong.to_string().contains("lost"), "{wrong}");
        let wrong = read(&mut shadow, 8, &[0; BLOCK]).unwrap_err();
        assert!(wrong.to_string().contains("all zero"), "{wrong}");
    }

    #[test]
    fn a_read_that_overlaps_a_write_accepts_either() {
        let mut shadow = Shadow::new(SEED);
        let (before, old) = write(&mut shadow, 0, 1);
        shadow.wrote(&before, true);
        let early = shadow.submit(Op::Read, 1, 0, 1, 0);
        let early_too = shadow.submit(Op::Read, 1, 0, 1, 0);
        let (during, new) = write(&mut shadow, 0, 1);
        assert_eq!(read(&mut shadow, 0, &old), Ok(()));
        assert_eq!(read(&mut shadow, 0, &new), Ok(()));
        shadow.wrote(&during, true);
        assert_eq!(
            shadow.check(&early, &old),
            Ok(()),
            "submitted before the write"
        );
        assert!(
            read(&mut shadow, 0, &old).is_err(),
            "submitted after the write completed"
        );
        assert_eq!(shadow.check(&early_too, &new), Ok(()));
        assert_eq!(read(&mut shadow, 0, &new), Ok(()));
        assert!(read(&mut shadow, 0, &unwritten(1, 0)).is_err());
        assert!(
            matches!(shadow.blocks[&(1, 0)], State::Settled { write: 2, .. }),
            "closed: {:?}",
            shadow.blocks
        );
    }

    #[test]
    fn of_two_overlapping_writes_either_wins_but_only_one() {
        let mut shadow = Shadow::new(SEED);
        let (a, data_a) = write(&mut shadow, 0, 1);
        let (b, data_b) = write(&mut shadow, 0, 1);
        shadow.wrote(&b, true);
        shadow.wrote(&a, true);
        assert!(read(&mut shadow, 0, &unwritten(1, 0)).is_err());
        assert_eq!(read(&mut shadow, 0, &data_b), Ok(()));
        assert!(
            read(&mut shadow, 0, &data_a).is_err(),
            "the read before saw b"
        );
        assert_eq!(read(&mut shadow, 0, &data_b), Ok(()));
    }

    #[test]
    fn a_failed_write_leaves_anything_until_the_next() {
        let mut shadow = Shadow::new(SEED);
        let (failed, _) = write(&mut shadow, 0, 1);
        shadow.wrote(&failed, false);
        assert_eq!(read(&mut shadow, 0, &[7; BLOCK]), Ok(()));
        let (next, data) = write(&mut shadow, 0, 1);
        shadow.wrote(&next, true);
        assert_eq!(read(&mut shadow, 0, &data), Ok(()));
        assert!(read(&mut shadow, 0, &[7; BLOCK]).is_err());
    }
}
