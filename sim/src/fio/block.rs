//! What a block written by a job holds: a header in the manner of fio's `verify_header` and a payload, both functions of
//! LUN, block and write, so that a block can be made again to check it, and a wrong one can say where it came from.

use super::options::PatternPart;
use crate::pattern::BLOCK;
use crate::rng::Rng;

/// fio's FIO_HDR_MAGIC.
const MAGIC: u16 = 0xacca;

/// Bytes of header; the payload follows.
///
/// All little-endian: 0..2 magic; 2..4 0; 4..8 bytes in the block; 8..16 write; 16..24 byte offset in the LUN;
/// 24..28 LUN; 28..32 0; 32..36 CRC-32C of the payload; 36..40 CRC-32C of bytes 0..36.
const HEADER: usize = 40;

/// What a write fills its blocks with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Header and pseudo-random payload.
    Random,
    /// Header, then the pattern over and over (`verify_pattern` with `verify=crc32c`).
    Headed(Vec<PatternPart>),
    /// The pattern alone (`verify=pattern`). It starts again in each block, and `%o` is the block's offset; a repeated
    /// write holds the same bytes, so that a stale block is not seen.
    Pattern(Vec<PatternPart>),
}

/// Fills `out` with block `lba` of `lun` as write number `write` of the run leaves it.
pub fn make(fill: &Fill, lun: u32, lba: u64, write: u64, seed: u64, out: &mut [u8; BLOCK]) {
    let offset = lba * BLOCK as u64;
    match fill {
        Fill::Pattern(parts) => return repeat(parts, offset, out),
        Fill::Headed(parts) => repeat(parts, offset, &mut out[HEADER..]),
        Fill::Random => {
            let mut rng = Rng::new(seed ^ write.rotate_left(32), (u64::from(lun) << 48) ^ lba);
            for word in out[HEADER..].chunks_exact_mut(8) {
                word.copy_from_slice(&rng.next_u64().to_le_bytes());
            }
        }
    }
    out[..HEADER].fill(0);
    out[0..2].copy_from_slice(&MAGIC.to_le_bytes());
    out[4..8].copy_from_slice(&(BLOCK as u32).to_le_bytes());
    out[8..16].copy_from_slice(&write.to_le_bytes());
    out[16..24].copy_from_slice(&offset.to_le_bytes());
    out[24..28].copy_from_slice(&lun.to_le_bytes());
    let payload = crc32c::crc32c(&out[HEADER..]);
    out[32..36].copy_from_slice(&payload.to_le_bytes());
    let header = crc32c::crc32c(&out[..36]);
    out[36..40].copy_from_slice(&header.to_le_bytes());
}

fn repeat(parts: &[PatternPart], offset: u64, out: &mut [u8]) {
    let mut once = Vec::new();
    for part in parts {
        match part {
            PatternPart::Bytes(bytes) => once.extend_from_slice(bytes),
            PatternPart::Offset => once.extend_from_slice(&offset.to_le_bytes()),
        }
    }
    for (byte, value) in out.iter_mut().zip(once.iter().cycle()) {
        *byte = *value;
    }
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A header that is whole: which write of which block it is, and whether the payload agrees with its CRC.
    Written {
        /// LUN.
        lun: u32,
        /// Block.
        lba: u64,
        /// Number of the write in the run.
        write: u64,
        /// Whether the payload's CRC-32C is right.
        intact: bool,
    },
    /// The media's pattern of a block never written, by its first 16 bytes.
    Unwritten {
        /// LUN.
        lun: u32,
        /// Block.
        lba: u64,
    },
    /// Nothing but zero bytes.
    Zero,
    /// None of these.
    Unknown,
}

/// Reads a block's header.
pub fn identify(block: &[u8; BLOCK]) -> Found {
    let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap_or_default());
    let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap_or_default());
    if block[0..2] == MAGIC.to_le_bytes() && u32_at(36) == crc32c::crc32c(&block[..36]) {
        return Found::Written {
            lun: u32_at(24),
            lba: u64_at(16) / BLOCK as u64,
            write: u64_at(8),
            intact: u32_at(32) == crc32c::crc32c(&block[HEADER..]),
        };
    }
    if &block[12..16] == b"WEIR" {
        return Found::Unwritten {
            lun: u32_at(8),
            lba: u64_at(0),
        };
    }
    if block.iter().all(|&byte| byte == 0) {
        Found::Zero
    } else {
        Found::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(fill: &Fill, lun: u32, lba: u64, write: u64) -> [u8; BLOCK] {
        let mut out = [0; BLOCK];
        make(fill, lun, lba, write, 9, &mut out);
        out
    }

    #[test]
    fn a_block_says_what_it_is() {
        let mut data = block(&Fill::Random, 3, 77, 5);
        assert_eq!(
            identify(&data),
            Found::Written {
                lun: 3,
                lba: 77,
                write: 5,
                intact: true
            }
        );
        data[511] ^= 1;
        assert_eq!(
            identify(&data),
            Found::Written {
                lun: 3,
                lba: 77,
                write: 5,
                intact: false
            }
        );
        data[17] ^= 1;
        assert_eq!(identify(&data), Found::Unknown);
        assert_eq!(identify(&[0; BLOCK]), Found::Zero);
        crate::pattern::unwritten_block(2, 9, 1, &mut data);
        assert_eq!(identify(&data), Found::Unwritten { lun: 2, lba: 9 });
    }

    #[test]
    fn every_argument_changes_the_block() {
        let base = block(&Fill::Random, 3, 77, 5);
        for other in [
            block(&Fill::Random, 4, 77, 5),
            block(&Fill::Random, 3, 78, 5),
            block(&Fill::Random, 3, 77, 6),
        ] {
            let same = (HEADER..BLOCK).filter(|&i| base[i] == other[i]).count();
            assert!(same < 16, "{same} payload bytes are the same");
        }
    }

    /// As fio 3.33 filled a file with verify_pattern=0xff%o"abcd"-12.
    #[test]
    fn patterns_repeat_in_the_block() {
        let parts = vec![
            PatternPart::Bytes(vec![0xff]),
            PatternPart::Offset,
            PatternPart::Bytes(b"abcd".to_vec()),
            PatternPart::Bytes(vec![0xf4, 0xff, 0xff, 0xff]),
        ];
        let data = block(&Fill::Pattern(parts.clone()), 0, 3, 0);
        assert_eq!(data[..9], [0xff, 0, 6, 0, 0, 0, 0, 0, 0]);
        assert_eq!(data[9..17], *b"abcd\xf4\xff\xff\xff");
        assert_eq!(data[17], 0xff);
        let headed = block(&Fill::Headed(parts), 0, 3, 8);
        assert_eq!(headed[HEADER..HEADER + 17], data[..17]);
        assert_eq!(
            identify(&headed),
            Found::Written {
                lun: 0,
                lba: 3,
                write: 8,
                intact: true
            }
        );
    }
}
