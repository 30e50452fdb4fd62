//! P2 takes in what has ended, P3 counts it down and puts it on its CQ's list.

use super::admit::Admission;
use super::engine::Engine;
use super::row::{Info, Link};
use super::walker::Walk;
use super::{ABORT_REQUESTED, ABORTED_SQ_DELETION};
use crate::interfaces::{BLOCKS_BITS, Op, Reject, STATUS_BITS};
use weir_kit::*;

/// P2: one of an executed command, a rejected one, or one that the walker or a discard took from its LUN's list.
#[hw]
pub(super) fn intake(e: &Engine, admission: &Admission, walk: &Walk) {
    let p = &e.p;
    let sq_cqs = Mem::new((e.c.queues + 1).into(), e.c.queue_bits()).style(Style::Distributed);
    sq_cqs.write(p.sq_to_cq.valid, p.sq_to_cq.sq, p.sq_to_cq.cq);

    comment("executed and rejected commands take turns");
    let open = e.turn_admit & !e.walk_turn & !e.discard_turn;
    let reject_first = reg(1, 0);
    let take_reject = p.reject.valid & (reject_first | !p.done.valid);
    p.done.ready.set(open & !take_reject);
    p.reject.ready.set(open & take_reject);
    when(p.done.fire(), || reject_first.set(1));
    when(p.reject.fire(), || {
        reject_first.set(0);
        e.held.set(e.held + 1);
    });

    let exec = &p.done.payload.exec;
    let reject = &p.reject.payload;
    let inside = e.walk_turn | e.discard_turn;
    let sq = inside.mux(e.info.sq, take_reject.mux(reject.sq, exec.sq));
    let aborted = walk.one.mux(
        lit(ABORT_REQUESTED.into(), STATUS_BITS),
        lit(ABORTED_SQ_DELETION.into(), STATUS_BITS),
    );
    when(e.turn_admit, || {
        let end = &e.ending;
        end.valid
            .set(p.done.fire() | p.reject.fire() | walk.ends | admission.discard);
        end.executed.set(p.done.fire());
        end.rejected.set(p.reject.fire());
        end.slot
            .set(inside.mux(e.row.head, take_reject.mux(reject.slot, exec.slot)));
        end.sq.set(sq);
        end.cq.set(sq_cqs.read_async(sq));
        end.cid.set(reject.cid);
        end.lun.set(exec.lun);
        end.tag.set(exec.tag);
        end.is_write.set(exec.op.is(Op::Write));
        end.status.set(inside.mux(
            aborted,
            take_reject.mux(reject.status, p.done.payload.status),
        ));
    });
}

/// P3.
#[hw]
pub(super) fn complete(e: &Engine) {
    let (p, row, new, end) = (&e.p, &e.row, &e.new_row, &e.ending);
    let ends = end.valid & e.turn_complete;
    let counts_down = ends & end.executed;
    when(counts_down, || {
        e.row_write.set(1);
        new.in_flight.set(row.in_flight - 1);
        when(end.is_write, || new.writes.set(row.writes - 1));
        e.executing.set(e.executing - 1);
    });
    p.tag_free.valid.set(counts_down);
    p.tag_free.index.set(end.tag);

    let list_was_empty = e.cq_row.count.none();
    when(ends, || {
        end.valid.set(0);
        e.cq_row_write.set(1);
        e.new_cq_row.tail.set(end.slot);
        e.new_cq_row.count.set(e.cq_row.count + 1);
        when(list_was_empty, || e.new_cq_row.head.set(end.slot)).otherwise(|| {
            e.link_write.set(1);
            e.link_addr.set(e.cq_row.tail);
            e.link_data.set(&Link {
                slot: end.slot,
                ..Link::zero(&e.c)
            });
        });
        when(end.rejected, || {
            e.info_write.set(1);
            e.info_addr.set(end.slot);
            e.info_data.set(&Info {
                sq: end.sq,
                cid: end.cid,
                ..Info::zero(&e.c)
            });
        });
    });
    comment("for the logs; the info RAM still shows what ends, unless decode rejected it");
    let told = Reject::reg_nr(&e.c);
    let told_valid = reg(1, 0);
    let told_op = reg_nr(2);
    let told_blocks = reg_nr(BLOCKS_BITS);
    told_valid.set(ends & !e.discarding);
    when(ends, || {
        told.slot.set(end.slot);
        told.sq.set(end.sq);
        told.cid.set(end.rejected.mux(end.cid, e.info.cid));
        told.status.set(end.status);
        told_op.set(end.rejected.mux(lit(0, 2), e.info.op));
        told_blocks.set(end.rejected.mux(lit(0, BLOCKS_BITS), e.info.blocks));
    });
    p.completed_valid.set(told_valid);
    p.completed_op.set(told_op);
    p.completed_blocks.set(told_blocks);
    p.completed.set(&told);

    p.cq_work_valid.set(ends & list_was_empty);
    p.cq_work_cq.set(end.cq);

    assert(
        "a_completion_was_in_flight",
        !counts_down | row.in_flight.any(),
    );
    assert(
        "a_write_was_counted",
        !(counts_down & end.is_write) | row.writes.any(),
    );
}
