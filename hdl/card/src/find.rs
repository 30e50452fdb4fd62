//! Find-first: the lowest set bit of a word and its number. Pure logic, no state.
//!
//! Written as a subtraction, because a carry chain is the cheapest prefix network of an FPGA.

use weir_kit::*;

/// The lowest set bit of a word.
#[derive(Clone, Copy)]
pub struct Lowest {
    /// That bit alone; zero when none is set.
    pub onehot: Sig,
    /// The other set bits.
    pub rest: Sig,
    /// Every place above it, set or not; zero when none is set.
    pub above: Sig,
}

/// Finds the lowest set bit of `x`.
#[track_caller]
pub fn lowest(x: Sig) -> Lowest {
    if x.width() == 1 {
        let zero = lit(0, 1);
        return Lowest {
            onehot: x,
            rest: zero,
            above: zero,
        };
    }
    // Borrows ripple up to the lowest set bit: below it x and x - 1 differ, above it they are the same.
    let less = x - 1;
    Lowest {
        onehot: x & !less,
        rest: x & less,
        above: !(x ^ less),
    }
}

/// The number of the bit that is set in `onehot`: `clog2(width)` bits; 0 when none is.
#[track_caller]
pub fn encode(onehot: Sig) -> Sig {
    let n = onehot.width();
    let bits: Vec<Sig> = (0..clog2(n as u64))
        .rev()
        .map(|k| {
            let chosen: Vec<Sig> = (0..n)
                .filter(|i| i >> k & 1 == 1)
                .rev()
                .map(|i| onehot.bit(i))
                .collect();
            any_of(&chosen)
        })
        .collect();
    cat(&bits)
}

/// `n` bits, of which those below `limit` are set. `n` is at most 2 to the power of the width of `limit`.
///
/// Not a comparison a bit, which tools turn into a carry chain a bit: groups of 8 that are all set, none or one of 8 patterns.
#[track_caller]
pub fn thermometer(limit: Sig, n: u32) -> Sig {
    let w = limit.width();
    if w <= 3 {
        let patterns: Vec<Sig> = (0..1u128 << w).map(|v| lit((1 << v) - 1, 1 << w)).collect();
        return mux_n(limit, &patterns).trunc(n);
    }
    let high = limit.bits(3, w - 3);
    let low = thermometer(limit.trunc(3), 8);
    let groups = 1 << (w - 3);
    let (below, at) = (thermometer(high, groups), onehot(high, groups));
    let rows: Vec<Sig> = (0..groups)
        .rev()
        .map(|g| below.bit(g).repeat(8) | (low & at.bit(g).repeat(8)))
        .collect();
    cat(&rows).trunc(n)
}
