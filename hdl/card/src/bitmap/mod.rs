//! A set of numbers with round-robin find-first: allocator of tags and slots, and work set of queues, LUNs and CQs.
//!
//! ```text
//!              +--------------------------+
//!   put ------>| waiting words -> cur ----|--> take (stream)
//!   limit ---->|   (RAM or flops)         |--> count
//!   clear ---->|                          |--> error_double_put, error_range
//!              +--------------------------+
//! ```
//!
//! `put` sets a bit (frees a tag, says that a queue has work), `take` hands a set bit out and clears it. One put and one take
//! every cycle, sustained. A put is never refused; a put of a bit that is set, or of a number that is none, is flagged and
//! otherwise has no effect.
//!
//! # How it picks
//! By draining snapshots. `cur` is a snapshot that is drained lowest first, while new puts collect behind it; only when it is
//! empty the next is taken. So a bit waits for at most a few takings of any other: round robin without a pointer a bit.
//!
//! - Up to [`FLOP_BITS`] bits (`set_in_flops`): one snapshot of the whole set, which a put ahead of the last pick joins: strict
//!   round robin. A put into the empty set is offered in the next cycle.
//! - More (`words_in_ram`): two copies of the words in RAM, each with one read and one write port: puts read one (read, set,
//!   write), fetches the other. A fetch takes a whole word, so it writes nothing: clearing the word's flop in `has` empties it,
//!   and a word whose flop is clear reads as zero. Hence one RAM write a cycle is enough, and an empty set needs no filling.
//!   The path: `has` -> `batch` (a group of words) -> `sel` (a word) -> `fetched` (its bits) -> `cur` -> `part` (a group of
//!   bits) -> `out`. Each stage takes when it empties, so one bit moves on every cycle even when every word holds one bit only.
//!   Groups of the square root keep every search at about ten bits. A put into the empty set goes straight to `part`.
//!   Members that come back within 3 takings are taken alike often; of those that stay away longer some may miss every
//!   second snapshot of their word.
//!
//! | from put to its offer | flops | RAM |
//! |---|---|---|
//! | nothing is ahead of it | 1 cycle | 3 cycles |
//! | something is ahead of it | +1 a take | 8 cycles, +1 a take |
//!
//! `count` and the errors follow a put by 1 cycle in flops, 2 in RAM. A put and a take of the same number in one cycle: the take
//! comes first.
//!
//! # Limit
//! Only numbers below `limit` are offered; bits above stay set. When `limit` changes, an offer may be withdrawn (the one
//! exception to the rule of streams). In RAM the change first returns the words held in flops, through the put port's free
//! cycles: no offers for about two words' worth of cycles.
//!
//! # Invariants
//! Every set bit is in exactly one of: RAM (its word in `has`, `batch` or `sel`), `fetched`, `cur`, `part`, `stash`, `out`. A
//! word is in at most one of `has`, `batch`, `sel`.

pub mod check;
mod flops;
mod places;
mod words;

use flops::set_in_flops;
use weir_kit::*;
use words::words_in_ram;

/// Largest set kept wholly in flops.
pub const FLOP_BITS: u32 = 64;

/// What a bitmap is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapConfig {
    /// Numbers 0 to `bits` - 1; 2 to 16384.
    pub bits: u32,
    /// After reset and clear every bit is set, else none is.
    pub full: bool,
    /// `limit` acts; else it is ignored and costs nothing.
    pub limited: bool,
}

impl BitmapConfig {
    /// An allocator: full, without limit.
    pub fn allocator(bits: u32) -> Self {
        BitmapConfig {
            bits: bits.max(2),
            full: true,
            limited: false,
        }
    }
    /// A work set: empty, without limit.
    pub fn work(bits: u32) -> Self {
        BitmapConfig {
            bits: bits.max(2),
            full: false,
            limited: false,
        }
    }
    /// Bits of a number.
    pub fn index_bits(&self) -> u32 {
        clog2(self.bits as u64)
    }
    /// Bits that count 0 to `bits`.
    pub fn count_bits(&self) -> u32 {
        bits_for(self.bits as u64)
    }
    /// Bits of a word in RAM: about the square root of `bits`, since logic grows with words and with their width.
    fn word_bits(&self) -> u32 {
        1 << self.index_bits().div_ceil(2)
    }
    fn module_name(&self, what: &str) -> String {
        let start = if self.full { "full" } else { "empty" };
        let limit = if self.limited { "_limit" } else { "" };
        format!("{what}_{}_{start}{limit}", self.bits)
    }
}

/// A number that a set may hold.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = BitmapConfig)]
pub struct Index {
    /// 0 to bits - 1.
    #[bits(p.index_bits())]
    pub index: Sig,
}

/// A put, as a pulse.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = BitmapConfig)]
pub struct Put {
    /// Put this cycle.
    #[bits(1)]
    pub valid: Sig,
    /// What.
    #[bits(p.index_bits())]
    pub index: Sig,
}

/// Ports of [`bitmap`].
#[derive(Bundle, Clone, Copy)]
#[bundle(params = BitmapConfig)]
pub struct BitmapPorts {
    /// Pulse: back to the state after reset.
    #[input]
    #[bits(1)]
    pub clear: Sig,
    /// Not ready after reset or clear: no puts now.
    #[output]
    #[bits(1)]
    pub clearing: Sig,
    /// Sets a bit.
    #[input]
    pub put: Put,
    /// Hands a set bit out and clears it.
    #[output]
    pub take: Stream<Index>,
    /// Only numbers below this are offered; 0 to bits.
    #[input]
    #[bits(p.count_bits())]
    pub limit: Sig,
    /// Bits that are set, offered one included.
    #[output]
    #[bits(p.count_bits())]
    pub count: Sig,
    /// Pulse: a bit was put that was set already; the put had no effect.
    #[output]
    #[bits(1)]
    pub error_double_put: Sig,
    /// Pulse: a number of bits or more was put; the put had no effect.
    #[output]
    #[bits(1)]
    pub error_range: Sig,
    /// With inputs held, nothing would change.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// The bitmap: see the module's text.
#[track_caller]
pub fn bitmap(c: &BitmapConfig) -> Module {
    let name = c.module_name("bitmap");
    if c.bits <= FLOP_BITS {
        let doc = "A set of numbers in flops with round-robin find-first: one put and one take every cycle.";
        module(name, doc, c, |p: BitmapPorts| {
            set_in_flops(p, c);
            let kind = check::Kind {
                count_after: 0,
                trusts: false,
            };
            check::check(&p, c, &kind);
        })
    } else {
        in_ram(name, c)
    }
}

/// The bitmap in RAM words, of any size from 16 bits: what [`bitmap`] makes of large sets, small enough to be proven.
#[track_caller]
pub fn bitmap_in_ram(c: &BitmapConfig) -> Module {
    in_ram(c.module_name("bitmap_ram"), c)
}

#[track_caller]
fn in_ram(name: String, c: &BitmapConfig) -> Module {
    let doc = "A set of numbers in RAM words with round-robin find-first: one put and one take every cycle.";
    module(name, doc, c, |p: BitmapPorts| {
        let places = words_in_ram(p, c);
        let kind = check::Kind {
            count_after: 1,
            trusts: false,
        };
        if let Some(ghosts) = check::check(&p, c, &kind)
            && let Some(places) = places
        {
            formal(|| {
                let held = places.check(c, &ghosts);
                assert("holds_its_members", p.clearing | held.eq(ghosts.members));
            });
        }
    })
}

/// Counts the set bits.
#[hw]
fn count_set(p: &BitmapPorts, c: &BitmapConfig, added: Sig) -> Sig {
    let start = if c.full { c.bits } else { 0 };
    let set_count = reg(c.count_bits(), start);
    let taken = p.take.fire();
    when(added & !taken, || set_count.set(set_count + 1));
    when(taken & !added, || set_count.set(set_count - 1));
    when(p.clear, || set_count.set(start));
    p.count.set(set_count);
    set_count
}

/// 1 bit: the number exists.
fn in_range(c: &BitmapConfig, index: Sig) -> Sig {
    if c.bits.is_power_of_two() {
        lit(1, 1)
    } else {
        index.lt(c.bits)
    }
}

/// Low `n` bits set, of `w`.
fn ones(n: u32, w: u32) -> Sig {
    let words: Vec<u64> = (0..w.div_ceil(64))
        .map(|i| (0..64).filter(|b| i * 64 + b < n).map(|b| 1 << b).sum())
        .collect();
    lit_words(&words, w)
}
