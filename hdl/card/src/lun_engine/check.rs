//! Ghosts: what the tables must agree on in every cycle. On for cards of few LUNs, in proofs and in simulation with asserts.

use super::engine::Engine;
use super::row::Rows;
use weir_kit::*;

/// Cards of more LUNs are simulated without these checks.
const MOST_LUNS: u32 = 8;

/// Asserts the invariants over all rows.
#[hw]
pub(super) fn check(
    e: &Engine,
    rows: &Rows,
    put_valid: Sig,
    put_lun: Sig,
    clearing: Sig,
    active: Sig,
) {
    if e.c.luns > MOST_LUNS {
        return;
    }
    formal(|| {
        let p = &e.p;
        let lun_bits = e.c.lun_bits();
        comment("the work set, as put and taken");
        let in_set = reg(e.c.luns, 0);
        let mut total = lit(0, e.c.depth_bits());
        let mut active_luns = lit(0, lun_bits + 1);
        let (mut agrees, mut queued_once, mut no_lost_wake_up) = (vec![], vec![], vec![]);
        for l in 0..e.c.luns {
            let ghost = scope(&format!("lun{l}"), || {
                rows.read(&e.c, lit(l.into(), lun_bits))
            });
            let here = lit(l.into(), lun_bits);
            let put = put_valid & put_lun.eq(here);
            let is_cur = e.cur_valid & e.cur.eq(here);
            let listed = in_set.bit(l);
            let places = listed.zext(2) + put.zext(2) + is_cur.zext(2);
            queued_once.push(places.eq(ghost.queued.zext(2)));

            comment(
                "rows still to be passed by the sweep: recheck_left of them from sweep_at, round the end",
            );
            let at = e.sweep_at.zext(lun_bits + 1);
            let ahead = e.sweep_at.gt(here).mux(
                lit((l + e.c.luns).into(), lun_bits + 1) - at,
                lit(l.into(), lun_bits + 1) - at,
            );
            let to_be_swept = ahead.lt(e.recheck_left);
            no_lost_wake_up.push(!ghost.eligible(&e.limits) | ghost.queued | to_be_swept);

            agrees.push(ghost.writes.le(ghost.in_flight) & ghost.in_flight.le(ghost.peak));
            total = total + ghost.in_flight;
            active_luns = active_luns + ghost.active().zext(lun_bits + 1);
            when(put, || in_set.set_bits(l, lit(1, 1)));
            when(p.work.fire() & p.work.payload.eq(here), || {
                in_set.set_bits(l, lit(0, 1))
            });
            assume(
                &format!("work_offers_a_lun_that_was_put_{l}"),
                !(p.work.valid & p.work.payload.eq(here)) | listed,
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
        assert("active_luns_add_up", clearing | active_luns.eq(active));
    });
}
