//! The walker: takes every parked command off its LUN's list once, ends those that match, puts the others back.
//!
//! It has every other turn of the wheel. New commands are parked behind the ones it puts back, so `left` counts the ones still
//! to see, and they are always in front: an admission from the same LUN takes one of them.

use super::engine::Engine;
use super::row::Link;
use weir_kit::*;

/// What the walker does in this P2.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    /// The head it has taken ends.
    pub ends: Sig,
    /// It takes a head in this P2.
    pub takes: Sig,
    /// It looks for one command (Abort), not for all of a queue.
    pub one: Sig,
    /// It is in the middle of a list, of which `left` are still to see.
    pub taking: Sig,
    pub left: Sig,
}

/// `admitted`: P2 admits a command of `cur`.
#[hw]
pub(super) fn walker(e: &Engine, walking: Sig, admitted: Sig) -> Walk {
    let (p, row, new, link) = (&e.p, &e.row, &e.new_row, &e.link);
    let walk_one = reg_nr(1);
    let walk_sq = reg_nr(e.c.queue_bits());
    let walk_cid = reg_nr(16);
    let walk_found = reg(1, 0);
    comment(
        "the next step counts the list; else it takes one of the `walk_left` commands still to see",
    );
    let walk_count = reg(1, 0);
    let walk_left = reg(e.c.slot_bits() + 1, 0);

    p.walk
        .ready
        .set(!walking & (e.turn_park | e.turn_other | e.turn_admit | e.turn_complete));
    let step = e.turn_admit & e.walk_turn & walking;
    let takes = step & !walk_count;
    let matches = e.info.sq.eq(walk_sq) & (!walk_one | e.info.cid.eq(walk_cid));
    let ends = takes & matches;
    let last = row.parked.eq(1);

    when(takes, || {
        e.row_write.set(1);
        when(matches | !last, || {
            new.head.set(link.slot);
            new.head_cost.set(link.cost);
            new.head_flush.set(link.flush);
        });
        when(matches, || {
            new.parked.set(row.parked - 1);
            walk_found.set(1);
        })
        .elsewhen(!last, || {
            new.tail.set(row.head);
            e.link_write.set(1);
            e.link_addr.set(row.tail);
            e.link_data.set(&Link {
                slot: row.head,
                cost: row.head_cost,
                flush: row.head_flush,
                counted: lit(1, 1),
            });
        });
        when(matches & last, || new.deficit.set(0));
    });
    e.defer(takes & !last & !link.counted, new, lit(0, 1), e.executing);

    let seen = takes | (admitted & walking & !walk_count & e.cur.eq(e.walk_lun));
    let next_lun = var(lit(0, 1));
    when(step & walk_count, || {
        walk_left.set(row.parked);
        walk_count.set(0);
        next_lun.set(row.parked.none());
    });
    when(seen, || {
        walk_left.set(walk_left - 1);
        next_lun.set(walk_left.eq(1));
    });
    let at_end = e.walk_lun.eq(e.c.luns - 1);
    when(next_lun, || {
        walk_count.set(1);
        e.walk_lun.set(e.walk_lun + 1);
    });
    comment("a discard ends every command: nothing is left to walk for");
    let finished = walking & ((next_lun & at_end) | (e.turn_complete & e.discarding));
    let walk_done = reg(1, 0);
    walk_done.set(finished);
    p.walk_done.set(walk_done);
    p.walk_found.set(walk_found);
    when(finished, || walking.set(0));
    when(p.walk.fire(), || {
        walking.set(1);
        walk_one.set(p.walk.payload.one);
        walk_sq.set(p.walk.payload.sq);
        walk_cid.set(p.walk.payload.cid);
        walk_found.set(0);
        walk_count.set(1);
        e.walk_lun.set(0);
    });
    assert("walker_sees_parked_commands", !takes | row.parked.any());
    Walk {
        ends,
        takes,
        one: walk_one,
        taking: walking & !walk_count,
        left: walk_left,
    }
}
