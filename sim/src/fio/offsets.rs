//! Where random I/O goes: the random map (each block once) and Zipf's distribution.

use crate::rng::Rng;

/// Bits in a chunk of the map.
const CHUNK: u64 = 4096;

/// Which blocks of a range were used: fio's axmap. A block drawn twice becomes the next free one, so that a pass
/// touches each block exactly once. Chunks are made when first used: a short run over a large LUN costs little memory.
pub struct BlockMap {
    blocks: u64,
    used: u64,
    chunks: Vec<Option<Box<[u64; CHUNK as usize / 64]>>>,
    /// A bit for each chunk without a free block.
    full: Vec<u64>,
}

impl BlockMap {
    /// An empty map of `blocks` blocks.
    pub fn new(blocks: u64) -> Self {
        let chunks = blocks.div_ceil(CHUNK) as usize;
        BlockMap {
            blocks,
            used: 0,
            chunks: vec![None; chunks],
            full: vec![0; chunks.div_ceil(64)],
        }
    }

    /// Forgets all use.
    pub fn clear(&mut self) {
        *self = BlockMap::new(self.blocks);
    }

    /// Whether the block is free.
    pub fn is_free(&self, block: u64) -> bool {
        block < self.blocks
            && self.chunks[(block / CHUNK) as usize]
                .as_ref()
                .is_none_or(|chunk| chunk[(block % CHUNK / 64) as usize] >> (block % 64) & 1 == 0)
    }

    /// The first free block from `start` on, beginning again at 0 at the end; None when every block is used.
    pub fn next_free(&self, start: u64) -> Option<u64> {
        if self.used == self.blocks {
            return None;
        }
        let first = start / CHUNK;
        let chunks = self.chunks.len() as u64;
        // The first chunk is looked at twice: from `start`, and from its beginning after all the others.
        self.free_in_chunk(first, start % CHUNK)
            .or_else(|| {
                self.next_open_chunk(first + 1, chunks)
                    .and_then(|chunk| self.free_in_chunk(chunk, 0))
            })
            .or_else(|| {
                self.next_open_chunk(0, first + 1)
                    .and_then(|chunk| self.free_in_chunk(chunk, 0))
            })
    }

    fn next_open_chunk(&self, from: u64, to: u64) -> Option<u64> {
        let mut chunk = from;
        while chunk < to {
            let open = !self.full[(chunk / 64) as usize] >> (chunk % 64);
            if open == 0 {
                chunk = (chunk / 64 + 1) * 64;
                continue;
            }
            chunk += u64::from(open.trailing_zeros());
            return (chunk < to).then_some(chunk);
        }
        None
    }

    fn free_in_chunk(&self, chunk: u64, from: u64) -> Option<u64> {
        let base = chunk * CHUNK;
        let Some(words) = self.chunks.get(chunk as usize)?.as_ref() else {
            return (base + from < self.blocks).then_some(base + from);
        };
        let mut mask = !0u64 << (from % 64);
        for word in (from / 64) as usize..words.len() {
            let free = !words[word] & mask;
            if free != 0 {
                let block = base + word as u64 * 64 + u64::from(free.trailing_zeros());
                return (block < self.blocks).then_some(block);
            }
            mask = !0;
        }
        None
    }

    /// Marks up to `count` blocks from `start` as used, stopping at the first that already is (but taking `start`
    /// itself in any case); how many it took.
    pub fn take(&mut self, start: u64, count: u64) -> u64 {
        let mut taken = 0;
        while taken < count
            && start + taken < self.blocks
            && (taken == 0 || self.is_free(start + taken))
        {
            self.mark(start + taken);
            taken += 1;
        }
        taken
    }

    fn mark(&mut self, block: u64) {
        let index = (block / CHUNK) as usize;
        let chunk = self.chunks[index].get_or_insert_with(|| Box::new([0; CHUNK as usize / 64]));
        let word = &mut chunk[(block % CHUNK / 64) as usize];
        let bit = 1 << (block % 64);
        if *word & bit != 0 {
            return;
        }
        *word |= bit;
        self.used += 1;
        let in_chunk = (self.blocks - index as u64 * CHUNK).min(CHUNK);
        if *word == !0 || in_chunk < CHUNK {
            let used: u64 = chunk.iter().map(|word| u64::from(word.count_ones())).sum();
            if used == in_chunk {
                self.full[index / 64] |= 1 << (index % 64);
            }
        }
    }
}

/// Zipf's distribution over blocks, as fio's lib/zipf.c draws it (Gray et al., "Quickly generating billion-record
/// synthetic databases", 1994), the ranks spread over the range by a hash.
#[derive(Clone)]
pub struct Zipf {
    blocks: u64,
    theta: f64,
    zetan: f64,
    eta: f64,
    /// Where in the range the first rank lies.
    shift: u64,
}

impl Zipf {
    /// `theta` is above 0 and not 1.
    pub fn new(blocks: u64, theta: f64, rng: &mut Rng) -> Self {
        let blocks = blocks.max(1);
        let zetan = zeta(blocks, theta);
        let zeta2 = zeta(2, theta);
        let eta = (1.0 - (2.0 / blocks as f64).powf(1.0 - theta)) / (1.0 - zeta2 / zetan);
        Zipf {
            blocks,
            theta,
            zetan,
            eta,
            shift: rng.next_u64(),
        }
    }

    /// A block in `0..blocks`.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        self.rank(rng)
            .wrapping_mul(0x61c8_8646_80b5_83eb)
            .wrapping_add(self.shift)
            % self.blocks
    }

    /// The rank drawn, 0 the most frequent.
    fn rank(&self, rng: &mut Rng) -> u64 {
        let uniform = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let z = uniform * self.zetan;
        if z < 1.0 {
            0
        } else if z < 1.0 + 0.5f64.powf(self.theta) {
            1
        } else {
            let alpha = 1.0 / (1.0 - self.theta);
            let rank = self.blocks as f64 * (self.eta * uniform - self.eta + 1.0).powf(alpha);
            (rank as u64).min(self.blocks - 1)
        }
    }
}

/// The sum of i^-theta over 1..=n: term by term at first, the rest by Euler and Maclaurin's formula (error below 1e-9).
fn zeta(n: u64, theta: f64) -> f64 {
    const EXACT: u64 = 10_000;
    let head: f64 = (1..=n.min(EXACT)).map(|i| (i as f64).powf(-theta)).sum();
    if n <= EXACT {
        return head;
    }
    let (a, b) = (EXACT as f64, n as f64);
    let power = 1.0 - theta;
    head + (b.powf(power) - a.powf(power)) / power + (b.powf(-theta) - a.powf(-theta)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_gives_every_block_once() {
        for blocks in [1, 63, 64, 65, 4095, 4096, 4097, 20_000] {
            let mut map = BlockMap::new(blocks);
            let mut rng = Rng::new(blocks, 0);
            let mut seen = vec![false; blocks as usize];
            for _ in 0..blocks {
                let block = map.next_free(rng.below(blocks)).expect("a block is free");
                assert_eq!(map.take(block, 1), 1);
                assert!(
                    !std::mem::replace(&mut seen[block as usize], true),
                    "block {block} of {blocks} twice"
                );
            }
            assert_eq!(map.next_free(0), None);
            map.clear();
            assert_eq!(map.next_free(blocks - 1), Some(blocks - 1));
        }
    }

    #[test]
    fn the_next_free_block_is_the_one_after() {
        let mut map = BlockMap::new(10_000);
        map.take(100, 8000);
        assert_eq!(map.next_free(100), Some(8100));
        assert_eq!(map.next_free(99), Some(99));
        map.take(8100, 1900);
        assert_eq!(map.next_free(5000), Some(0), "wraps");
        assert_eq!(map.take(90, 100), 10, "stops at the first used block");
    }

    #[test]
    fn zeta_s_tail_agrees_with_the_sum() {
        for theta in [0.5, 0.99, 1.2, 2.0] {
            let exact: f64 = (1..=200_000u64).map(|i| (i as f64).powf(-theta)).sum();
            assert!(
                (zeta(200_000, theta) - exact).abs() < 1e-6 * exact,
                "theta {theta}"
            );
        }
    }

    /// The share of rank 0 is 1/zeta(n), of rank 1 2^-theta/zeta(n): within 5 sigma of 100,000 draws.
    #[test]
    fn zipf_has_its_frequencies() {
        for theta in [0.8, 1.2] {
            let mut rng = Rng::new(7, 0);
            let zipf = Zipf::new(1000, theta, &mut rng);
            let mut counts = [0u32; 2];
            let draws = 100_000;
            for _ in 0..draws {
                if let Some(count) = counts.get_mut(zipf.rank(&mut rng) as usize) {
                    *count += 1;
                }
            }
            for (rank, count) in counts.into_iter().enumerate() {
                let p = ((rank + 1) as f64).powf(-theta) / zeta(1000, theta);
                let sigma = (f64::from(draws) * p * (1.0 - p)).sqrt();
                let want = f64::from(draws) * p;
                assert!(
                    (f64::from(count) - want).abs() < 5.0 * sigma,
                    "theta {theta} rank {rank}: {count} for {want}"
                );
            }
        }
    }
}
