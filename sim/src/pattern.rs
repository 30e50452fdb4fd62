//! What media holds before anything was written: a pattern that names its own place.
//!
//! The first 16 bytes say which LUN and block they belong to, so that a misplaced block can be told from a corrupt one
//! in a dump; the rest is pseudo-random, so that a shifted or repeated beat inside a block is seen as well.

/// Bytes in a logical block, NVM Command Set: LBA format 0 of every LUN here.
pub const BLOCK: usize = 512;

/// Fills `out` with what block `lba` (in 512-byte blocks, relative to the LUN) of `lun` reads as before its first write.
///
/// Layout, all little-endian: bytes 0..8 `lba`; 8..12 `lun`; 12..16 `"WEIR"`; 16..512 SplitMix64 of (lun, lba, seed).
pub fn unwritten_block(lun: u32, lba: u64, seed: u64, out: &mut [u8; BLOCK]) {
    out[0..8].copy_from_slice(&lba.to_le_bytes());
    out[8..12].copy_from_slice(&lun.to_le_bytes());
    out[12..16].copy_from_slice(b"WEIR");
    let mut state = mix(seed ^ mix(lba ^ mix(u64::from(lun).wrapping_add(GAMMA))));
    for word in out[16..].chunks_exact_mut(8) {
        state = state.wrapping_add(GAMMA);
        word.copy_from_slice(&mix(state).to_le_bytes());
    }
}

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output function (Steele, Lea, Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(lun: u32, lba: u64, seed: u64) -> [u8; BLOCK] {
        let mut out = [0; BLOCK];
        unwritten_block(lun, lba, seed, &mut out);
        out
    }

    #[test]
    fn every_argument_changes_the_pattern() {
        let base = block(3, 77, 1);
        assert_eq!(base, block(3, 77, 1));
        assert_eq!(&base[0..16], b"\x4d\0\0\0\0\0\0\0\x03\0\0\0WEIR");
        for other in [block(4, 77, 1), block(3, 78, 1), block(3, 77, 2)] {
            let same = (16..BLOCK).filter(|&i| base[i] == other[i]).count();
            assert!(same < 16, "{same} of 496 bytes are the same");
        }
    }

    #[test]
    fn no_two_words_of_a_block_are_equal() {
        let base = block(0, 0, 0);
        let mut words: Vec<_> = base.chunks_exact(8).collect();
        words.sort();
        words.dedup();
        assert_eq!(words.len(), BLOCK / 8);
    }
}
