//! P0: parks a command on its LUN; takes a completed one from its CQ's list (P0 reads, P1 commits).

use super::engine::Engine;
use super::row::{Info, Link, MOST_COST};
use crate::interfaces::Op;
use weir_kit::*;

/// Appends the offered command to its LUN's list.
#[hw]
pub(super) fn park(e: &Engine) {
    let (p, row, new) = (&e.p, &e.row, &e.new_row);
    p.park.ready.set(e.turn_park);
    let cmd = &p.park.payload;
    let is_flush = cmd.op.is(Op::Flush);
    let was_empty = row.parked.none();
    let parks = p.park.fire();
    when(parks, || {
        e.row_write.set(1);
        new.parked.set(row.parked + 1);
        new.tail.set(cmd.slot);
        when(was_empty, || {
            new.head.set(cmd.slot);
            new.head_cost.set(cmd.cost);
            new.head_flush.set(is_flush);
        })
        .otherwise(|| {
            e.link_write.set(1);
            e.link_addr.set(row.tail);
            e.link_data.set(&Link {
                slot: cmd.slot,
                cost: cmd.cost,
                flush: is_flush,
                counted: lit(0, 1),
            });
        });
        e.info_write.set(1);
        e.info_addr.set(cmd.slot);
        e.info_data.set(&Info {
            sq: cmd.sq,
            cid: cmd.cid,
            op: cmd.op,
            blocks: cmd.blocks,
            parked_at: p.cycle,
        });
        e.held.set(e.held + 1);
    });
    let cost_right = cmd.cost.any() & cmd.cost.le(MOST_COST);
    assume("cost_in_range", !p.park.valid | cost_right);
    e.defer(parks & was_empty, row, lit(0, 1), e.executing);
}

/// Pops a CQ's list. Returns: a pop is under way.
#[hw]
pub(super) fn pop(e: &Engine, pop_cq: Sig) -> Sig {
    let p = &e.p;
    p.pop.ready.set(e.turn_park);
    let popping = reg(1, 0);
    let popped_slot = reg_nr(e.c.slot_bits());
    let popped_more = reg_nr(1);
    when(e.turn_park, || {
        popping.set(p.pop.valid & e.cq_row.count.any());
        popped_slot.set(e.cq_row.head);
        popped_more.set(e.cq_row.count.gt(1));
        pop_cq.set(p.pop.payload);
    });
    assume(
        "pop_of_a_list_with_entries",
        !p.pop.fire() | e.cq_row.count.any(),
    );

    p.popped_valid.set(popping & e.turn_other);
    let out = &p.popped;
    out.slot.set(popped_slot);
    out.sq.set(e.info.sq);
    out.cid.set(e.info.cid);
    out.status.set(e.status);
    out.more.set(popped_more);
    when(popping & e.turn_other, || {
        popping.set(0);
        e.cq_row_write.set(1);
        e.new_cq_row.head.set(e.link.slot);
        e.new_cq_row.count.set(e.cq_row.count - 1);
        e.held.set(e.held - 1);
    });
    popping
}
