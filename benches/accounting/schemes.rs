//! What software does for each I/O to keep a LUN within its budget: the schemes that Weir's card makes superfluous, written
//! anew after what Linux's block layer and SCSI midlayer do. Each hands out tags and takes them back; nothing is stubbed:
//! the bounds hold, which `check` tries.

use crate::sbitmap::Sbitmap;
use std::sync::atomic::{AtomicU32, Ordering};

/// Commands that the LUN, the host, and the queues together may hold.
pub const DEPTH: usize = 256;

/// A CPU's own: where it looks first, as sbitmap's hints a CPU are.
#[derive(Default)]
pub struct Cpu {
    index: usize,
    tag_hint: usize,
    budget_hint: usize,
}

impl Cpu {
    pub fn new(index: usize) -> Cpu {
        // Spread, as Linux seeds its hints at random.
        Cpu {
            index,
            tag_hint: index * 64,
            budget_hint: index * 64,
        }
    }
}

/// What an I/O holds.
#[derive(Clone, Copy)]
pub struct Held {
    tag: usize,
    budget: usize,
}

pub trait Scheme: Sync {
    const NAME: &'static str;
    fn new(cpus: usize) -> Self;
    /// Admits an I/O, unless a bound is reached.
    fn get(&self, cpu: &mut Cpu) -> Option<Held>;
    /// An I/O has completed.
    fn put(&self, cpu: &mut Cpu, held: Held);
}

/// On a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU32);

impl Counter {
    #[inline]
    fn get(&self, limit: usize) -> bool {
        if self.0.fetch_add(1, Ordering::Relaxed) < limit as u32 {
            return true;
        }
        self.0.fetch_sub(1, Ordering::Relaxed);
        false
    }

    #[inline]
    fn put(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// One counter a LUN, as `device_busy` was.
pub struct SharedCounter(Counter);

impl Scheme for SharedCounter {
    const NAME: &'static str = "shared counter";
    fn new(_: usize) -> Self {
        SharedCounter(Counter::default())
    }
    #[inline]
    fn get(&self, _: &mut Cpu) -> Option<Held> {
        let held = Held { tag: 0, budget: 0 };
        self.0.get(DEPTH).then_some(held)
    }
    #[inline]
    fn put(&self, _: &mut Cpu, _: Held) {
        self.0.put();
    }
}

/// One bitmap a LUN.
pub struct SharedBitmap(Sbitmap);

impl Scheme for SharedBitmap {
    const NAME: &'static str = "sbitmap";
    fn new(_: usize) -> Self {
        SharedBitmap(Sbitmap::new(DEPTH))
    }
    #[inline]
    fn get(&self, cpu: &mut Cpu) -> Option<Held> {
        let tag = self.0.get(&mut cpu.tag_hint)?;
        Some(Held { tag, budget: 0 })
    }
    #[inline]
    fn put(&self, _: &mut Cpu, held: Held) {
        self.0.put(held.tag);
    }
}

/// Tags a queue; a budget of the LUN, a bitmap, and how many tags of the queue are in use, for the even share: shared by
/// the queues (`budget_map`, `nr_active`).
pub struct QueueTags {
    tags: Box<[Sbitmap]>,
    budget: Sbitmap,
    active: Counter,
}

impl Scheme for QueueTags {
    const NAME: &'static str = "queue tags + LUN budget";
    fn new(cpus: usize) -> Self {
        QueueTags {
            tags: (0..cpus).map(|_| Sbitmap::new(DEPTH)).collect(),
            budget: Sbitmap::new(DEPTH),
            active: Counter::default(),
        }
    }
    #[inline]
    fn get(&self, cpu: &mut Cpu) -> Option<Held> {
        let budget = self.budget.get(&mut cpu.budget_hint)?;
        if let Some(tag) = self.tags[cpu.index].get(&mut cpu.tag_hint) {
            if self.active.get(DEPTH) {
                return Some(Held { tag, budget });
            }
            self.tags[cpu.index].put(tag);
        }
        self.budget.put(budget);
        None
    }
    #[inline]
    fn put(&self, cpu: &mut Cpu, held: Held) {
        self.active.put();
        self.tags[cpu.index].put(held.tag);
        self.budget.put(held.budget);
    }
}

/// As [`QueueTags`], and a count of the host adapter's commands (`host_busy`).
pub struct HostCount(QueueTags, Counter);

impl Scheme for HostCount {
    const NAME: &'static str = "the same + host count";
    fn new(cpus: usize) -> Self {
        HostCount(QueueTags::new(cpus), Counter::default())
    }
    #[inline]
    fn get(&self, cpu: &mut Cpu) -> Option<Held> {
        if self.1.get(DEPTH) {
            if let Some(held) = self.0.get(cpu) {
                return Some(held);
            }
            self.1.put();
        }
        None
    }
    #[inline]
    fn put(&self, cpu: &mut Cpu, held: Held) {
        self.0.put(cpu, held);
        self.1.put();
    }
}

/// Tries that a scheme bounds what is held, and takes back what was given.
pub fn check<S: Scheme>() {
    let (scheme, mut cpus) = (S::new(2), [Cpu::new(0), Cpu::new(1)]);
    for _ in 0..3 {
        let mut held = Vec::new();
        while let Some(got) = scheme.get(&mut cpus[held.len() % 2]) {
            held.push(got);
            assert!(held.len() <= DEPTH, "{}: more than {DEPTH}", S::NAME);
        }
        assert_eq!(held.len(), DEPTH, "{}: refused too early", S::NAME);
        for (i, held) in held.into_iter().enumerate() {
            scheme.put(&mut cpus[i % 2], held);
        }
    }
}
