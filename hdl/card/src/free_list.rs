//! A free list with the ports of the [bitmap](crate::bitmap), for comparison: the usual FIFO of free numbers.
//!
//! ```text
//!              +------------------------------+
//!   put ------>| FIFO in RAM ---+             |
//!              |                +--> out -----|--> take (stream)
//!   clear ---->| never taken yet (counter) ---|--> count
//!              +------------------------------+
//! ```
//!
//! Numbers come out in the order in which they were put. After reset a counter hands out the numbers that were never taken, so
//! there is no initial fill either. One put and one take every cycle; a put is offered 2 cycles later.
//!
//! # What it lacks against the bitmap
//! - It cannot see a double put, unless the list overflows (`error_double_put` is that): from then on one number has two owners.
//! - `limit` has no effect: a list cannot leave out the numbers above a bound, so the depth cannot change at run time.
//! - It hands out the number that was free for longest, not a neighbour of the last: no locality in RAMs indexed by tag.
//! - A number that is put again while it is listed is listed twice, so it is no work set.
//!
//! It costs less logic: pointers and a counter, whatever the size; its RAM is wider: bits x clog2(bits) instead of 2 x bits.

use crate::bitmap::check::{Kind, check};
use crate::bitmap::{BitmapConfig, BitmapPorts, Index};
use weir_kit::*;

/// The free list: see the module's text.
#[track_caller]
pub fn free_list(c: &BitmapConfig) -> Module {
    let start = if c.full { "full" } else { "empty" };
    let name = format!("free_list_{}_{start}", c.bits);
    module(
        name,
        "A FIFO of free numbers: one put and one take every cycle.",
        c,
        |p: BitmapPorts| {
            body(p, c);
            let kind = Kind {
                count_after: 0,
                trusts: true,
            };
            check(&p, c, &kind);
        },
    )
}

#[hw]
fn body(p: BitmapPorts, c: &BitmapConfig) {
    let store = Mem::new((c.bits as u64).next_power_of_two(), c.index_bits());
    let write_at = reg(store.addr_width(), 0);
    let read_at = reg(store.addr_width(), 0);
    let start = if c.full { c.bits } else { 0 };
    let set_count = reg(c.count_bits(), start);
    let out_valid = reg(1, 0);
    unused(p.limit);

    let exists = if c.bits.is_power_of_two() {
        lit(1, 1)
    } else {
        p.put.index.lt(c.bits)
    };
    let full = set_count.eq(c.bits);
    let put = p.put.valid & exists & !full;
    store.write(put, write_at, p.put.index);
    when(put, || write_at.set(write_at + 1));

    // Out: a number never taken before, else the oldest of the list. The RAM's output register holds the latter.
    let out_free = !out_valid | p.take.ready;
    let listed = write_at.ne(read_at);
    let never_taken = c.full.then(|| {
        let next_new = reg(c.count_bits(), 0);
        next_new
    });
    let any_new = never_taken.map_or(lit(0, 1), |n| n.ne(c.bits));
    let read = out_free & !any_new & listed;
    let oldest = store.read(read, read_at);
    when(read, || read_at.set(read_at + 1));
    when(out_free, || out_valid.set(any_new | listed));
    let out_index = match never_taken {
        Some(next_new) => {
            let out_new = reg_nr(1);
            let new_index = reg_nr(c.index_bits());
            when(out_free, || {
                out_new.set(any_new);
                new_index.set(next_new.trunc(c.index_bits()));
            });
            when(out_free & any_new, || next_new.set(next_new + 1));
            when(p.clear, || next_new.set(0));
            out_new.mux(new_index, oldest)
        }
        None => oldest,
    };
    p.take.offer(out_valid, &Index { index: out_index });

    let taken = p.take.fire();
    when(put & !taken, || set_count.set(set_count + 1));
    when(taken & !put, || set_count.set(set_count - 1));
    let double_put = reg(1, 0);
    double_put.set(p.put.valid & exists & full & !p.clear);
    let bad_put = reg(1, 0);
    bad_put.set(p.put.valid & !exists & !p.clear);
    when(p.clear, || {
        write_at.set(0);
        read_at.set(0);
        set_count.set(start);
        out_valid.set(0);
    });
    p.count.set(set_count);
    p.error_double_put.set(double_put);
    p.error_range.set(bad_put);
    p.clearing.set(0);
    p.idle
        .set(!(double_put | bad_put | (!out_valid & (any_new | listed))));
}
