//! Free ranges of an address space: taken first fit, joined again when given back.

use std::collections::BTreeMap;

/// The free ranges, none touching another.
#[derive(Debug, Default)]
pub(super) struct Extents {
    /// End (exclusive) by start.
    free: BTreeMap<u64, u64>,
}

impl Extents {
    /// `ranges` free, each (start, end exclusive); what is no whole multiple of `align` at either end is left out.
    pub(super) fn new(ranges: impl IntoIterator<Item = (u64, u64)>, align: u64) -> Extents {
        let mut extents = Extents::default();
        for (start, end) in ranges {
            let end = end - end % align;
            if let Some(start) = start.checked_next_multiple_of(align)
                && start < end
            {
                extents.give(start, end - start);
            }
        }
        extents
    }

    /// Takes `len` units that start at a multiple of `align`, from the lowest range where they fit.
    pub(super) fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let (start, end, at) = self.free.iter().find_map(|(&start, &end)| {
            let at = start.checked_next_multiple_of(align)?;
            (at < end && end - at >= len).then_some((start, end, at))
        })?;
        self.free.remove(&start);
        if start < at {
            self.free.insert(start, at);
        }
        if at + len < end {
            self.free.insert(at + len, end);
        }
        Some(at)
    }

    /// Gives back `len` units from `start` on, which were taken.
    pub(super) fn give(&mut self, start: u64, len: u64) {
        let (mut start, mut end) = (start, start + len);
        if let Some((&before, &stop)) = self.free.range(..=start).next_back()
            && stop >= start
        {
            self.free.remove(&before);
            (start, end) = (before, end.max(stop));
        }
        if let Some(stop) = self.free.remove(&end) {
            end = stop;
        }
        self.free.insert(start, end);
    }

    /// True when exactly `start..end` is free.
    pub(super) fn is_whole(&self, start: u64, end: u64) -> bool {
        self.free.len() == 1 && self.free.get(&start) == Some(&end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_alignment_and_joined() {
        let mut e = Extents::new(
            [(0x1800, 0xFEE0_0000), (0xFEF0_0000, u64::MAX), (5, 7)],
            0x1000,
        );
        assert_eq!(
            e.free.iter().map(|(a, b)| (*a, *b)).collect::<Vec<_>>(),
            [(0x2000, 0xFEE0_0000), (0xFEF0_0000, u64::MAX - 0xFFF)]
        );
        let a = e.take(0x1000, 0x1000).unwrap();
        let b = e.take(0x20_0000, 0x20_0000).unwrap();
        assert_eq!((a, b), (0x2000, 0x20_0000));
        // Larger than the first range: from the second.
        assert_eq!(e.take(0xFFF0_0000, 0x10_0000), Some(0xFEF0_0000));
        assert_eq!(e.take(u64::MAX, 1), None);
        e.give(0xFEF0_0000, 0xFFF0_0000);
        e.give(b, 0x20_0000);
        e.give(a, 0x1000);
        assert_eq!(e.free.len(), 2);
        assert!(e.free.contains_key(&0x2000));
    }

    #[test]
    fn all_that_is_taken_is_apart_and_comes_back() {
        let mut e = Extents::new([(0, 64)], 1);
        let mut taken = Vec::new();
        let mut seed = 1u32;
        for round in 0..5000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = u64::from(seed >> 28) + 1;
            if seed & 1 == 0
                && let Some(at) = e.take(len, 1 + u64::from(seed >> 8 & 3))
            {
                assert!(
                    taken.iter().all(|&(a, l)| at + len <= a || a + l <= at) && at + len <= 64,
                    "round {round}"
                );
                taken.push((at, len));
            } else if !taken.is_empty() {
                let (at, len) = taken.swap_remove(seed as usize % taken.len());
                e.give(at, len);
            }
        }
        for (at, len) in taken {
            e.give(at, len);
        }
        assert!(e.is_whole(0, 64));
    }
}
