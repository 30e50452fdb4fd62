//! P2: judges the LUN at hand, admits its head, and decides who is next.

use super::engine::Engine;
use crate::interfaces::{Op, Rule};
use weir_kit::*;

/// What P2 did with the LUN at hand.
#[derive(Clone, Copy)]
pub(super) struct Admission {
    /// Its head left the list, to execute or (discard) to its CQ.
    pub admit: Sig,
    /// Its head goes to execute.
    pub execute: Sig,
    /// Its head is thrown away.
    pub discard: Sig,
    /// A command could go: there is a tag, and room before dma.
    pub open: Sig,
    /// It goes on with the rest of its quantum although others wait.
    pub in_quantum: Sig,
    /// It had its visit, which added a quantum that does not cover its head yet, and lets the next one go.
    pub saves: Sig,
}

/// One judgement of `cur`.
#[hw]
pub(super) fn admit(e: &Engine) -> Admission {
    let (p, row, new, link) = (&e.p, &e.row, &e.new_row, &e.link);
    let mine =
        e.turn_admit & e.peeked & e.cur_valid & !e.walk_turn & (e.discard_turn | !e.discarding);
    let eligible = row.eligible(&e.limits);
    let tag_left = e.tag_valid & e.executing.lt(e.tag_depth);
    let open = tag_left & !e.exec_valid;
    let can = e.discard_turn | open;

    comment(
        "deficit round robin: a new quantum when the rest does not cover the head; while that is not enough, others go first",
    );
    let weighted = e.rule.is(Rule::Weighted);
    let cost = row.head_cost.zext(row.deficit.width());
    let short = !row.in_turn();
    let refilled = row.deficit + row.weight.zext(row.deficit.width());
    let budget = short.mux(refilled, row.deficit);
    let covers = budget.ge(cost);
    let rest = covers.mux(budget - cost, 0);
    let goes = mine & eligible & can;
    let others_wait = p.work.valid;
    let saves = goes & !e.discard_turn & weighted & !covers & others_wait;
    let admit = goes & !saves;
    let execute = admit & !e.discard_turn;
    let discard = admit & e.discard_turn;
    let covers_next = rest.ge(link.cost.zext(rest.width()));
    let last = row.parked.eq(1);

    let drop = mine & !eligible;

    let is_write = e.info.op.is(Op::Write);
    let more_in_flight = row.in_flight + 1;
    let gives_way = execute & weighted & !covers_next & others_wait;
    when(admit, || {
        e.row_write.set(1);
        new.parked.set(row.parked - 1);
        new.head.set(link.slot);
        new.head_cost.set(link.cost);
        new.head_flush.set(link.flush);
    });
    when(execute, || {
        new.in_flight.set(more_in_flight);
        when(is_write, || new.writes.set(row.writes + 1));
        when(more_in_flight.gt(row.peak), || new.peak.set(more_in_flight));
        new.deficit.set((weighted & !last).mux(rest, 0));

        e.executing.set(e.executing + 1);
        e.tag_valid.set(0);
        e.exec_valid.set(1);
        e.exec.slot.set(row.head);
        e.exec.sq.set(e.info.sq);
        e.exec.lun.set(e.cur);
        e.exec.tag.set(e.tag);
        e.exec.op.set(e.info.op);
        e.exec_weight.set(row.weight);
    });
    when(drop, || e.row_write.set(1));
    when(saves, || {
        e.row_write.set(1);
        new.deficit.set(budget);
    });

    comment("cur stays while it can go on and nobody waits, or its quantum lasts");
    e.judged.set(admit | drop | saves);
    e.stay
        .set(admit & e.new_eligible & (!others_wait | (weighted & covers_next)));
    e.defer(
        admit & !last & !link.counted,
        new,
        gives_way & e.new_eligible,
        e.executing + execute.zext(e.executing.width()),
    );

    assert(
        "admission_below_depth",
        !execute | row.in_flight.lt(row.depth),
    );
    assert(
        "admission_below_tag_depth",
        !execute | e.executing.lt(e.tag_depth),
    );
    assert(
        "deficit_covers_head",
        !(execute & weighted) | covers | !others_wait,
    );
    Admission {
        admit,
        execute,
        discard,
        open,
        in_quantum: execute & weighted & covers_next,
        saves,
    }
}
