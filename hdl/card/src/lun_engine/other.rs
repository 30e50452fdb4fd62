//! P1: budgets (features C0h and C1h), the statistics snapshot, and the sweep that rechecks every LUN.

use super::engine::Engine;
use super::stats::LunStatsPorts;
use crate::interfaces::{BudgetReply, LunStats};
use weir_kit::*;

/// What P1 leaves for the statistics and for `idle`.
#[derive(Clone, Copy)]
pub(super) struct Others {
    /// The counters are read in this cycle.
    pub snapshot: Sig,
    /// The sweep passes the row of this cycle.
    pub sweeps: Sig,
    /// The next P1 is the sweep's, whoever asks.
    pub sweep_first: Sig,
    /// An answer or a sweep is under way.
    pub busy: Sig,
}

/// P1: one request of admin or one step of the sweep, in turns when both wait.
#[hw]
pub(super) fn other(e: &Engine, other_is_sweep: Sig) -> Others {
    let (p, row, new) = (&e.p, &e.row, &e.new_row);
    let budget = &p.budget.payload;

    comment("rows that still need the depth and weight set for all");
    let all_left = reg(e.c.lun_bits() + 1, 0);
    let all_depth = reg_nr(e.c.depth_bits());
    let all_weight = reg_nr(16);
    let sweep_pending = e.recheck_left.any() | all_left.any();
    let sweep_first = reg(1, 0);
    let sweep_now =
        sweep_pending & (sweep_first | all_left.any() | !(p.budget.valid | p.snapshot.valid));
    other_is_sweep.set(sweep_now);
    let sweeps = e.turn_other & sweep_now;
    let open = e.turn_other & !sweep_now;
    p.budget.ready.set(open);
    p.snapshot.ready.set(open & !p.budget.valid);
    when(e.turn_other, || {
        sweep_first.set(p.budget.fire() | p.snapshot.fire())
    });

    let sets = p.budget.fire() & budget.set;
    let sets_lun = sets & !budget.tag_set & !budget.all;
    let sets_all = sets & !budget.tag_set & budget.all;
    when(sets_lun, || {
        e.row_write.set(1);
        new.depth.set(budget.depth);
        new.weight.set(budget.weight);
    });
    when(sets & budget.tag_set, || {
        e.tag_depth_set.set(budget.depth);
        e.rule.set(budget.rule);
        e.start_recheck.set(1);
    });
    when(sweeps, || {
        e.row_write.set(1);
        e.sweep_at.set(
            e.sweep_at
                .eq(e.c.luns - 1)
                .mux(lit(0, e.c.lun_bits()), e.sweep_at + 1),
        );
        when(e.recheck_left.any(), || {
            e.recheck_left.set(e.recheck_left - 1)
        });
        when(all_left.any(), || {
            all_left.set(all_left - 1);
            new.depth.set(all_depth);
            new.weight.set(all_weight);
        });
    });
    when(e.start_recheck, || e.recheck_left.set(e.c.luns));
    when(sets_all, || {
        all_left.set(e.c.luns);
        all_depth.set(budget.depth);
        all_weight.set(budget.weight);
    });
    when(e.clearing, || all_left.set(0));

    comment("the answer");
    let reply_valid = reg(1, 0);
    let reply = BudgetReply::reg_nr(&e.c);
    let all_done = sweeps & all_left.eq(1);
    reply_valid.set((p.budget.fire() & !sets_all) | all_done);
    when(e.turn_other, || {
        let tag_set = p.budget.valid & budget.tag_set;
        reply
            .depth
            .set(tag_set.mux(sets.mux(budget.depth, e.tag_depth), new.depth));
        reply.weight.set(new.weight);
        reply
            .rule
            .set((sets & budget.tag_set).mux(budget.rule, e.rule));
    });
    p.budget_reply_valid.set(reply_valid);
    p.budget_reply.set(&reply);

    let sets_budget = sets & !budget.tag_set;
    assume(
        "depth_in_range",
        !sets | (budget.depth.any() & budget.depth.le(e.c.tags)),
    );
    assume("weight_in_range", !sets_budget | budget.weight.any());
    assert("all_weight_in_range", !all_left.any() | all_weight.any());
    Others {
        snapshot: p.snapshot.fire(),
        sweeps,
        sweep_first,
        busy: sweep_pending | reply_valid,
    }
}

/// Joins the row's counts and the counters, read in one cycle.
#[hw]
pub(super) fn snapshot(e: &Engine, others: &Others, counters: &LunStatsPorts) {
    let p = &e.p;
    counters.read.valid.set(others.snapshot);
    counters.read.index.set(p.snapshot.payload);
    let in_flight = reg_nr(e.c.depth_bits());
    let peak = reg_nr(e.c.depth_bits());
    let parked = reg_nr(e.c.slot_bits() + 1);
    let counters_next = reg(1, 0);
    counters_next.set(others.snapshot);
    when(others.snapshot, || {
        in_flight.set(e.row.in_flight);
        peak.set(e.row.peak);
        parked.set(e.row.parked);
    });
    let stats = LunStats::reg_nr(&e.c);
    let stats_valid = reg(1, 0);
    stats_valid.set(counters_next);
    when(counters_next, || {
        stats.in_flight.set(in_flight);
        stats.peak.set(peak);
        stats.parked.set(parked);
        stats.admitted.set(counters.counts.admitted);
        stats.completed.set(counters.counts.completed);
        stats.deferred_depth.set(counters.counts.deferred_depth);
        stats.deferred_tags.set(counters.counts.deferred_tags);
        stats.deferred_share.set(counters.counts.deferred_share);
        stats.cycles_waited.set(counters.counts.cycles_waited);
        stats.bytes.set(counters.counts.bytes);
    });
    p.stats_valid.set(stats_valid);
    p.stats.set(&stats);
}
