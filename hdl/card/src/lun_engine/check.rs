//! Ghosts of the scheduler: what the rows must agree on in every cycle, and how long a LUN that can go may wait.
//! On for cards of few LUNs, in proofs and in simulation with asserts.

use super::admit::Admission;
use super::engine::Engine;
use super::row::{Row, Rows};
use crate::bitmap::check::{Contract, OFFER_WITHIN};
use crate::keeper::Keeper;
use weir_kit::*;

/// Cards of more LUNs are built without these checks.
const MOST_LUNS: u32 = 8;

/// What is checked, beside the rows.
pub(super) struct Scheduler<'a> {
    pub rows: &'a Rows,
    pub put_valid: Sig,
    pub put_lun: Sig,
    /// Active LUNs, as counted.
    pub active: Sig,
    pub sweeps: Sig,
    pub sweep_first: Sig,
    pub phase: Sig,
    pub admission: Admission,
}

/// Most turns of the wheel in which one of two LUNs could be admitted and the other is, or none: three while the work set does not
/// offer it, one in which the other goes, and one more when that came to hand too late to be read.
const TURNS_OF_TWO: u32 = 5;

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
        let work_set = Contract {
            set: Keeper::Them,
            bits: e.c.luns.max(2),
            full: false,
            clear: clearing,
            put: t.put_valid,
            put_index: t.put_lun,
            take: &p.work,
        };
        let work = scope("work_set", || work_set.promises());
        scope("work_set", || work_set.puts_what_is_out(&work));
        let (in_set, unoffered) = (work.members, work.unoffered);
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

            let to_be_swept = waits(e, t, l, &row, unoffered);
            no_lost_wake_up.push(!row.eligible(&e.limits) | row.queued | to_be_swept);

            agrees.push(row.writes.le(row.in_flight) & row.in_flight.le(row.peak));
            total = total + row.in_flight;
            active_luns = active_luns + row.active().zext(lun_bits + 1);
        }
        p.work.assume_stable("work_set_keeps_its_offer");
        let put_alone = t.put_valid & !e.cur_valid & !p.work.valid;
        assert("what_is_put_is_not_next", clearing | !put_alone);
        if e.c.luns == 2 {
            assert("one_of_two_is_at_hand", clearing | !in_set.trunc(2).all());
        }
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
fn waits(e: &Engine, t: &Scheduler, l: u32, row: &Row, unoffered: Sig) -> Sig {
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
    let swept = t.sweeps & e.sweep_at.eq(here);
    when(!asleep | swept, || unswept.set(0)).elsewhen(e.turn_other, || unswept.set(unswept + 1));
    cover(&format!("asleep_{l}"), asleep & unswept.any());
    let to_come = cat(&[ahead, !t.sweep_first]).zext(16);
    assert(
        &format!("sweep_comes_{l}"),
        unswept.le(2 * luns) & (!asleep | (unswept + to_come).lt(2 * luns)),
    );

    comment(
        "turns in which it could go, and had no visit; by the weighted rule a visit may only save for a large command",
    );
    let passed_over = reg(16, 0);
    let counts = t.admission.open & !e.walk_turn & !t.admission.in_quantum;
    let goes = (t.admission.execute | t.admission.saves) & e.cur.eq(here);
    when(e.clearing | e.discarding, || passed_over.set(0)).elsewhen(e.turn_admit, || {
        when(!(eligible & row.queued) | goes, || passed_over.set(0))
            .elsewhen(counts, || passed_over.set(passed_over + 1));
    });
    let (bound, left) = if luns <= 2 {
        (TURNS_OF_TWO, turns_left(e, t, here, unoffered))
    } else {
        (3 * luns, lit(0, 16))
    };
    let in_time = passed_over.le(bound) & (passed_over + left).le(bound);
    let right = row.queued.mux(in_time, passed_over.none());
    assert(&format!("wakes_up_{l}"), e.clearing | e.discarding | right);
    to_be_swept
}

/// Of one or two LUNs: most turns in which a LUN that is queued and can go is still passed over. It is what makes the bound
/// inductive.
fn turns_left(e: &Engine, t: &Scheduler, here: Sig, unoffered: Sig) -> Sig {
    let n = |turns: u128| lit(turns, 16);
    let missed = t.phase.eq(2) & !e.peeked;
    let is_cur = e.cur_valid & e.cur.eq(here);
    let offered = e.p.work.valid & e.p.work.payload.eq(here);
    let other_offered = e.p.work.valid & !offered;

    comment("P2s that pass before the work set must offer it");
    let in_put = t.put_valid & t.put_lun.eq(here);
    let until_offer = in_put.mux(
        lit((OFFER_WITHIN + 2).into(), 4),
        lit((OFFER_WITHIN + 1).into(), 4) - unoffered,
    );
    let until_p2 = (lit(2, 2) - t.phase).zext(4);
    let p2s = [0, 4, 8].map(|later| until_offer.gt(until_p2 + later).zext(16));
    let p2s = p2s[0] + p2s[1] + p2s[2];

    let taken_late = t.phase.eq(1) | t.phase.eq(2);
    let in_set = offered.mux(
        e.cur_valid.mux(missed.zext(16) + 1, taken_late.zext(16)),
        (other_offered & !e.cur_valid).mux(n(5), p2s + 2),
    );
    is_cur.mux(missed.zext(16), in_set)
}
