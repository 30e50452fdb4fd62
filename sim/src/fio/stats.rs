//! Statistics of jobs and LUNs in simulated nanoseconds, counted as fio counts them.

/// fio's FIO_IO_U_PLAT_BITS: a bucket is at most 1/64 of its values wide.
const BITS: u32 = 6;
/// fio's FIO_IO_U_PLAT_NR.
const BUCKETS: usize = 29 << BITS;

/// fio's latency histogram (its `io_u_plat`), so that percentiles are the very values that fio would print.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u32>,
    total: u64,
}

impl Histogram {
    fn index(ns: u64) -> usize {
        let msb = ns.checked_ilog2().unwrap_or(0);
        if msb <= BITS {
            return ns as usize;
        }
        let shift = msb - BITS;
        let index = ((shift as usize + 1) << BITS) + (ns >> shift) as usize % (1 << BITS);
        index.min(BUCKETS - 1)
    }

    fn value(index: usize) -> u64 {
        if index < 2 << BITS {
            return index as u64;
        }
        let shift = (index >> BITS) - 1;
        let k = (index % (1 << BITS)) as u64;
        (1 << (shift + BITS as usize)) + (k << shift) + (1 << shift) / 2
    }

    fn add(&mut self, ns: u64) {
        let index = Self::index(ns);
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
        self.total += 1;
    }

    fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
    }

    /// The value at a percentile in 0..=100, ns; 0 when empty.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = percent / 100.0 * self.total as f64;
        let mut sum = 0u64;
        for (index, &count) in self.counts.iter().enumerate() {
            sum += u64::from(count);
            // fio's percentile 0 is the first bucket of all; ours the smallest value seen.
            if sum as f64 >= wanted && sum > 0 {
                return Self::value(index);
            }
        }
        0
    }

    /// Non-empty buckets: the bucket's value in ns, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let filled = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        filled.map(|(index, &count)| (Self::value(index), count))
    }
}

/// A latency: count, extremes, mean, deviation, distribution; ns.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// How many.
    pub n: u64,
    /// Smallest, 0 when there is none.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// Mean.
    pub mean: f64,
    /// Sum of squared differences from the mean (Welford).
    m2: f64,
    /// Distribution.
    pub histogram: Histogram,
}

impl Latency {
    /// Counts one.
    pub fn add(&mut self, ns: u64) {
        self.min = if self.n == 0 { ns } else { self.min.min(ns) };
        self.max = self.max.max(ns);
        self.n += 1;
        let delta = ns as f64 - self.mean;
        self.mean += delta / self.n as f64;
        self.m2 += delta * (ns as f64 - self.mean);
        self.histogram.add(ns);
    }

    /// Counts all of another's.
    pub fn merge(&mut self, other: &Latency) {
        if other.n == 0 {
            return;
        }
        self.min = if self.n == 0 {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = self.max.max(other.max);
        let (a, b) = (self.n as f64, other.n as f64);
        let delta = other.mean - self.mean;
        self.m2 += other.m2 + delta * delta * a * b / (a + b);
        self.mean += delta * b / (a + b);
        self.n += other.n;
        self.histogram.merge(&other.histogram);
    }

    /// Sample standard deviation, as fio's.
    pub fn stddev(&self) -> f64 {
        if self.n < 2 {
            0.0
        } else {
            (self.m2 / (self.n - 1) as f64).sqrt()
        }
    }
}

/// I/Os and bytes over time, in buckets whose width doubles when there get to be too many.
#[derive(Clone, Debug)]
pub struct Series {
    /// Width of a bucket, simulated ns.
    pub bucket_ns: u64,
    /// (I/Os, bytes) of each bucket from the start of the run.
    pub buckets: Vec<(u64, u64)>,
}

impl Series {
    const FIRST_BUCKET_NS: u64 = 1024;
    const MOST: usize = 256;

    /// Counts an I/O that completed `at_ns` after the start of the run.
    pub fn add(&mut self, at_ns: u64, bytes: u64) {
        while (at_ns / self.bucket_ns) as usize >= Self::MOST {
            self.halve();
        }
        let index = (at_ns / self.bucket_ns) as usize;
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, (0, 0));
        }
        self.buckets[index].0 += 1;
        self.buckets[index].1 += bytes;
    }

    fn halve(&mut self) {
        self.bucket_ns *= 2;
        let pair = |pair: &[(u64, u64)]| {
            pair.iter()
                .fold((0, 0), |sum, add| (sum.0 + add.0, sum.1 + add.1))
        };
        self.buckets = self.buckets.chunks(2).map(pair).collect();
    }

    /// Counts all of another's.
    pub fn merge(&mut self, other: &Series) {
        let mut other = other.clone();
        while self.bucket_ns < other.bucket_ns {
            self.halve();
        }
        while other.bucket_ns < self.bucket_ns {
            other.halve();
        }
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), (0, 0));
        }
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            bucket.0 += more.0;
            bucket.1 += more.1;
        }
    }
}

impl Default for Series {
    fn default() -> Self {
        Series {
            bucket_ns: Self::FIRST_BUCKET_NS,
            buckets: Vec::new(),
        }
    }
}

/// One direction of a job or a LUN.
#[derive(Clone, Debug, Default)]
pub struct DirectionStats {
    /// I/Os completed with success.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// I/Os completed with an error status.
    pub errors: u64,
    /// From the job being ready to issue it to the queue having taken it: what it waits for a full queue.
    pub slat: Latency,
    /// From the queue having taken it to its completion being reaped.
    pub clat: Latency,
    /// Both together.
    pub lat: Latency,
    /// Completions over time.
    pub series: Series,
    /// Time in which it was going on, ns.
    pub runtime_ns: u64,
}

impl DirectionStats {
    /// Counts one I/O. Times are simulated ns, `origin_ns` the start of the run.
    pub fn add(&mut self, bytes: u64, start_ns: u64, issue_ns: u64, end_ns: u64, origin_ns: u64) {
        self.ios += 1;
        self.bytes += bytes;
        self.slat.add(issue_ns.saturating_sub(start_ns));
        self.clat.add(end_ns.saturating_sub(issue_ns));
        self.lat.add(end_ns.saturating_sub(start_ns));
        self.series.add(end_ns.saturating_sub(origin_ns), bytes);
    }

    /// Counts all of another's; jobs of a group run at the same time, so the longest runtime is the group's.
    pub fn merge(&mut self, other: &DirectionStats) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.slat.merge(&other.slat);
        self.clat.merge(&other.clat);
        self.lat.merge(&other.lat);
        self.series.merge(&other.series);
        self.runtime_ns = self.runtime_ns.max(other.runtime_ns);
    }

    /// I/Os a simulated second.
    pub fn iops(&self) -> f64 {
        per_second(self.ios, self.runtime_ns)
    }

    /// Bytes a simulated second.
    pub fn bandwidth(&self) -> f64 {
        per_second(self.bytes, self.runtime_ns)
    }
}

fn per_second(count: u64, ns: u64) -> f64 {
    if ns == 0 {
        0.0
    } else {
        count as f64 * 1e9 / ns as f64
    }
}

/// Upper bounds, exclusive, of fio's latency levels, ns: ten below 1 us, ten below 1 ms, and up to 2 s and beyond.
#[rustfmt::skip]
pub const LEVELS: [u64; 32] = [
    2, 4, 10, 20, 50, 100, 250, 500, 750, 1_000,
    2_000, 4_000, 10_000, 20_000, 50_000, 100_000, 250_000, 500_000, 750_000, 1_000_000,
    2_000_000, 4_000_000, 10_000_000, 20_000_000, 50_000_000, 100_000_000, 250_000_000, 500_000_000, 750_000_000,
    1_000_000_000, 2_000_000_000, u64::MAX,
];

/// A job's, a group's or a LUN's statistics.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Reads, verification among them, as in fio.
    pub read: DirectionStats,
    /// Writes.
    pub write: DirectionStats,
    /// Flushes; their `lat` alone means something to fio.
    pub flush: DirectionStats,
    /// Bytes read back in verification phases, and right.
    pub verified_bytes: u64,
    /// Bytes of all reads that were compared with what they should be, and right.
    pub checked_bytes: u64,
    /// Blocks found wrong.
    pub mismatches: u64,
    /// Reads and writes by completion latency, as fio's latency_ns, latency_us and latency_ms: see [`LEVELS`].
    pub latency_levels: [u64; LEVELS.len()],
    /// I/Os submitted with this many in flight: fio's iodepth_level, 1, 2, 4, ... 32, 64 and more.
    pub depth_levels: [u64; 7],
}

impl Stats {
    /// Counts all of another's.
    pub fn merge(&mut self, other: &Stats) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        self.flush.merge(&other.flush);
        self.verified_bytes += other.verified_bytes;
        self.checked_bytes += other.checked_bytes;
        self.mismatches += other.mismatches;
        for (level, more) in self.depth_levels.iter_mut().zip(other.depth_levels) {
            *level += more;
        }
        for (level, more) in self.latency_levels.iter_mut().zip(other.latency_levels) {
            *level += more;
        }
    }

    /// Counts a read's or a write's completion latency.
    pub fn mark_latency(&mut self, clat_ns: u64) {
        let level = LEVELS.iter().take_while(|&&limit| clat_ns >= limit).count();
        self.latency_levels[level.min(LEVELS.len() - 1)] += 1;
    }

    /// I/Os of all directions that ended with an error status.
    pub fn errors(&self) -> u64 {
        self.read.errors + self.write.errors + self.flush.errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of minimum seen and lowest percentile in real output of fio 3.33.
    #[test]
    fn buckets_are_fio_s() {
        for (ns, fio) in [
            (1470, 1464),
            (110_521, 110_080),
            (382_676, 382_976),
            (606, 604),
            (230_635, 230_400),
            (639, 636),
            (205_878, 205_824),
            (100, 100),
            (127, 127),
        ] {
            assert_eq!(Histogram::value(Histogram::index(ns)), fio, "{ns} ns");
        }
    }

    #[test]
    fn percentiles_are_within_a_bucket() {
        let mut latency = Latency::default();
        (1..=100_000).for_each(|ns| latency.add(ns));
        for percent in [1.0, 50.0, 99.0, 99.99, 100.0] {
            let got = latency.histogram.percentile(percent) as f64;
            let want = percent * 1000.0;
            assert!((got - want).abs() <= want / 64.0 + 1.0, "{percent}: {got}");
        }
        assert_eq!(
            (latency.min, latency.max, latency.mean),
            (1, 100_000, 50_000.5)
        );
        assert!((latency.stddev() - 28_867.657_79).abs() < 0.01);
        assert_eq!(Latency::default().histogram.percentile(99.0), 0);
    }

    #[test]
    fn merged_is_as_if_counted_together() {
        let (mut a, mut b, mut both) = (
            DirectionStats::default(),
            DirectionStats::default(),
            DirectionStats::default(),
        );
        for i in 0..1000u64 {
            let one = if i % 3 == 0 { &mut a } else { &mut b };
            for stats in [one, &mut both] {
                stats.add(4096, i * 1000, i * 1000 + i, i * 1000 + 7 * i, 0);
            }
        }
        a.merge(&b);
        assert_eq!((a.ios, a.bytes), (both.ios, both.bytes));
        assert_eq!(
            (a.clat.min, a.clat.max, a.clat.n),
            (both.clat.min, both.clat.max, both.clat.n)
        );
        assert!(
            (a.clat.mean - both.clat.mean).abs() < 1e-6
                && (a.lat.stddev() - both.lat.stddev()).abs() < 1e-6
        );
        assert_eq!(
            a.clat.histogram.percentile(90.0),
            both.clat.histogram.percentile(90.0)
        );
        assert_eq!(a.series.buckets, both.series.buckets);
    }
}
