//! Ghosts of the scheduler: what the rows must agree on in every cycle, and how long a LUN that can go may wait.
//! On for cards of few LUNs, in proofs and in simulation with asserts.

use super::admit::Admission;
use super::engine::Engine;
use super::row::{Row, Rows};
use weir_kit::*;

/// Cards of more LUNs are built without these checks.
const MOST_LUNS: u32 = 8;
/// Longest time in cycles from a put to an offer of the work set, with nothing offered in between.
const OFFER_WITHIN: u32 = 7;

/// What is checked, beside the rows.
pub(super) struct Scheduler<'a> {
    pub rows: &'a Rows,
    pub put_valid: Sig,
    pub put_lun: Sig,
    /// Active LUNs, as counted.
    pub active: Sig,
    pub sweep_first: Sig,
    pub admission: Admission,
}

/// Most turns of the wheel in which a LUN could be admitted and another is, or none: two for the work set to offer it, and
/// for each other LUN one in which it goes first and one more if it is at hand when it cannot be read in time.
fn most_turns(luns: u32) -> u32 {
    3 * luns
}

/// Asserts the invariants over all rows.
#[hw]
pub(super) fn check(e: &Engine, t: &Scheduler) {
    if e.c.luns > MOST_LUNS {
        return;
    }
    formal(|| {
        let (p, clearing) = (&e.p, e.clearing);
        let lun_bits = e.c.lun_bits();
        comment("the work set, as put and taken");
        let in_set = reg(e.c.luns, 0);
        let unoffered = reg(4, 0);
        when(in_set.any() & !p.work.valid, || {
            unoffered.set(unoffered + 1)
        })
        .otherwise(|| unoffered.set(0));
        assume("work_set_offers", unoffered.le(OFFER_WITHIN));
        let mut total = lit(0, e.c.depth_bits());
        let mut active_luns = lit(0, lun_bits + 1);
        let (mut agrees, mut queued_once, mut no_lost_wake_up) = (vec![], vec![], vec![]);
        for l in 0..e.c.luns {
            let here = lit(l.into(), lun_bits);
            let row = scope(&format!("lun{l}"), || t.rows.read(&e.c, here));
            let put = t.put_valid & t.put_lun.eq(here);
            let is_cur = e.cur_valid & e.cur.eq(here);
            let listed = in_set.bit(l);
            let places = listed.zext(2) + put.zext(2) + is_cur.zext(2);
            queued_once.push(places.eq(row.queued.zext(2)));

            let to_be_swept = waits(e, t, l, &row);
            no_lost_wake_up.push(!row.eligible(&e.limits) | row.queued | to_be_swept);

            agrees.push(row.writes.le(row.in_flight) & row.in_flight.le(row.peak));
            total = total + row.in_flight;
            active_luns = active_luns + row.active().zext(lun_bits + 1);
            when(put, || in_set.set_bits(l, lit(1, 1)));
            let offered = p.work.valid & p.work.payload.eq(here);
            when(offered & p.work.ready, || in_set.set_bits(l, lit(0, 1)));
            assume(
                &format!("work_offers_a_lun_that_was_put_{l}"),
                !offered | listed,
            );
        }
        when(clearing, || in_set.set(0));
        assert("eligible_means_queued", clearing | all_of(&no_lost_wake_up));
        assert("queued_means_in_one_place", clearing | all_of(&queued_once));
        assert(
            "in_flight_adds_up_to_tags",
            clearing | total.eq(e.executing),
        );
        assert("row_counts_agree", clearing | all_of(&agrees));
        assert("active_luns_add_up", clearing | active_luns.eq(t.active));
    });
}

/// How long `l` waits. Returns: the recheck sweep is still to pass its row.
fn waits(e: &Engine, t: &Scheduler, l: u32, row: &Row) -> Sig {
    let (luns, width) = (e.c.luns, e.c.lun_bits() + 1);
    let here = lit(l.into(), e.c.lun_bits());
    let eligible = row.eligible(&e.limits);

    comment(
        "rows still to be passed by the sweep: recheck_left of them from sweep_at, round the end",
    );
    let at = e.sweep_at.zext(width);
    let wraps = e.sweep_at.gt(here);
    let ahead = wraps.mux(
        lit((l + luns).into(), width) - at,
        lit(l.into(), width) - at,
    );
    let to_be_swept = ahead.lt(e.recheck_left);

    comment(
        "turns until the sweep wakes it: each brings the sweep one row nearer, or gives it the next turn",
    );
    let unswept = reg(16, 0);
    let asleep = eligible & !row.queued & !e.clearing;
    when(!asleep, || unswept.set(0)).elsewhen(e.turn_other, || unswept.set(unswept + 1));
    cover(&format!("asleep_{l}"), asleep & unswept.any());
    let to_come = cat(&[ahead, !t.sweep_first]).zext(16);
    assert(
        &format!("sweep_comes_{l}"),
        !asleep | (unswept + to_come).lt(2 * luns),
    );

    comment("turns in which it could go, and did not");
    let passed_over = reg(16, 0);
    let counts = t.admission.open & !e.walk_turn & !e.discarding & !t.admission.in_quantum;
    let goes = t.admission.execute & e.cur.eq(here);
    when(e.clearing, || passed_over.set(0)).elsewhen(e.turn_admit, || {
        when(!(eligible & row.queued) | goes, || passed_over.set(0))
            .elsewhen(counts, || passed_over.set(passed_over + 1));
    });
    assert(&format!("wakes_up_{l}"), passed_over.le(most_turns(luns)));
    to_be_swept
}
