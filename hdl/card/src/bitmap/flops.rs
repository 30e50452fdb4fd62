//! The small bitmap: the whole set in flops, in one round (`cur`) and what collects behind it (`waiting`).
//!
//! A put ahead of the round's last pick joins the round. Else those picked last, which come back when the next round has
//! begun, would miss every second one.

use super::{BitmapConfig, BitmapPorts, Index, count_set, in_range, ones};
use crate::find::{encode, lowest, thermometer};
use weir_kit::*;

#[hw]
pub(super) fn set_in_flops(p: BitmapPorts, c: &BitmapConfig) {
    let n = c.bits;
    let start = if c.full { ones(n, n) } else { lit(0, n) };
    comment("Bits not in cur or out.");
    let waiting = reg(n, 0);
    comment("Bits of this round, taken lowest first.");
    let cur = reg(n, start);
    comment("Places that this round has still to pass.");
    let ahead = reg(n, ones(n, n));
    let out_valid = reg(1, 0);
    let out_index = reg_nr(c.index_bits());

    // The limit, as a mask of what may be offered.
    let mask = c.limited.then(|| {
        let allowed = reg(n, lit(0, n));
        allowed.set(thermometer(p.limit, n));
        allowed
    });
    let may_offer = |index: Sig| mask.map_or(lit(1, 1), |m| m.index(index));
    let offered = if c.limited {
        out_valid & may_offer(out_index)
    } else {
        out_valid
    };
    p.take.offer(offered, &Index { index: out_index });
    let out_free = !offered | p.take.ready;

    // A put: of a bit that is not set.
    let exists = in_range(c, p.put.index);
    let in_out = out_valid & out_index.eq(p.put.index) & !p.take.fire();
    let is_set = (waiting | cur).index(p.put.index) | in_out;
    let added = p.put.valid & exists & !is_set;
    let straight = added & cur.none() & out_free & may_offer(p.put.index);
    let put_bit = onehot(p.put.index, n) & (added & !straight).repeat(n);

    // Out takes the lowest of cur, a put ahead of it joins; an emptied cur takes what waits.
    let first = lowest(cur);
    let first_index = encode(first.onehot);
    let offer = cur.any() | straight;
    when(out_free, || out_valid.set(offer));
    when(out_free & offer, || {
        out_index.set(cur.any().mux(first_index, p.put.index))
    });
    let remaining = out_free.mux(first.rest, cur);
    let ahead_now = (out_free & cur.any()).mux(first.above, ahead);
    let (joins, stays) = (put_bit & ahead_now, put_bit & !ahead_now);
    let pool = waiting | stays;
    let ends = match mask {
        Some(mask) => {
            let returned = onehot(out_index, n) & (out_valid & !offered).repeat(n);
            let ends = (remaining & mask).none();
            let round = remaining | joins;
            let behind = pool | (round & !mask) | returned;
            let refill = ends.repeat(n) & mask;
            cur.set((round & mask) | (behind & refill));
            waiting.set(behind & !refill);
            ends
        }
        None => {
            unused(p.limit);
            let ends = remaining.none();
            cur.set(remaining | joins | (pool & ends.repeat(n)));
            waiting.set(pool & (!ends).repeat(n));
            ends
        }
    };
    ahead.set(ends.mux(ones(n, n), ahead_now));
    when(p.clear, || {
        waiting.set(0);
        cur.set(start);
        ahead.set(ones(n, n));
        out_valid.set(0);
    });

    count_set(&p, c, added);
    let double_put = reg(1, 0);
    double_put.set(p.put.valid & exists & is_set & !p.clear);
    p.error_double_put.set(double_put);
    let bad_put = reg(1, 0);
    bad_put.set(p.put.valid & !exists & !p.clear);
    p.error_range.set(bad_put);
    p.clearing.set(lit(0, 1));
    let moves = match mask {
        Some(mask) => {
            let limit_moves =
                (out_valid & !offered) | (cur & !mask).any() | mask.ne(thermometer(p.limit, n));
            (cur.any() & !out_valid) | (cur.none() & (waiting & mask).any()) | limit_moves
        }
        None => cur.any() & !out_valid,
    };
    p.idle.set(!(moves | double_put | bad_put));

    assert(
        "a_bit_is_in_one_place",
        (waiting & cur).none() & !(out_valid & (waiting | cur).index(out_index)),
    );
}
