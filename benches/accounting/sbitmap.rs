//! A bitmap of tags as Linux's sbitmap is built: words on cache lines of their own, a hint a CPU where to look first,
//! frees that are first noted in a second word and taken over when the first is full (deferred clear), and a look for
//! waiters at each free. Waiters themselves, and so wake-up batches, are left out: nobody waits here.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// 64 bits, on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Word {
    taken: AtomicU64,
    cleared: AtomicU64,
}

pub struct Sbitmap {
    words: Box<[Word]>,
    /// Wait queues with somebody in them.
    waiting: AtomicUsize,
}

impl Sbitmap {
    /// `bits` tags, a multiple of 64.
    pub fn new(bits: usize) -> Sbitmap {
        assert!(bits > 0 && bits.is_multiple_of(64), "{bits} tags");
        Sbitmap {
            words: (0..bits / 64).map(|_| Word::default()).collect(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Takes a tag, from `hint` on, which becomes the place after it.
    #[inline]
    pub fn get(&self, hint: &mut usize) -> Option<usize> {
        let mut index = *hint / 64 % self.words.len();
        let mut from = *hint % 64;
        for _ in 0..=self.words.len() {
            let word = &self.words[index];
            loop {
                if let Some(bit) = word.take(from) {
                    let tag = index * 64 + bit;
                    *hint = (tag + 1) % (self.words.len() * 64);
                    return Some(tag);
                }
                if !word.take_over() {
                    break;
                }
            }
            index = (index + 1) % self.words.len();
            from = 0;
        }
        None
    }

    /// Gives a tag back.
    #[inline]
    pub fn put(&self, tag: usize) {
        let word = &self.words[tag / 64];
        word.cleared.fetch_or(1 << (tag % 64), Ordering::Release);
        // As sbitmap_queue_wake_up: nobody to wake.
        if self.waiting.load(Ordering::Relaxed) != 0 {
            unreachable!("nobody waits in this benchmark");
        }
    }
}

impl Word {
    /// Takes the first free bit from `from` on, then from 0 on.
    #[inline]
    fn take(&self, from: usize) -> Option<usize> {
        loop {
            let free = !self.taken.load(Ordering::Relaxed);
            let after = free & !0 << from;
            let candidates = if after != 0 { after } else { free };
            if candidates == 0 {
                return None;
            }
            let bit = candidates.trailing_zeros() as usize;
            let mask = 1 << bit;
            if self.taken.fetch_or(mask, Ordering::Acquire) & mask == 0 {
                return Some(bit);
            }
        }
    }

    /// Makes the bits free that were given back; false when there are none.
    fn take_over(&self) -> bool {
        if self.cleared.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mask = self.cleared.swap(0, Ordering::Acquire);
        self.taken.fetch_and(!mask, Ordering::Release);
        true
    }
}
