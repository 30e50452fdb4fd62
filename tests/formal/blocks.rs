//! Blocks with their inputs free, as far as their neighbours' rules leave them.

use crate::sby::{Mode, Proof};
use weir_card::config::CardConfig;
use weir_card::ctrl::ctrl;
use weir_card::decode::decode;
use weir_card::dma::pick::pick;
use weir_card::irq::irq;
use weir_card::sq_fetch::sq_fetch;

/// 2 queues of 4 entries, 2 LUNs, 4 tags.
fn small() -> CardConfig {
    CardConfig {
        queues: 2,
        entries: 4,
        luns: 2,
        tags: 4,
        ..CardConfig::small()
    }
}

/// No message while MSI-X is off; its set of vectors keeps its promises.
#[test]
fn irq_sends_only_when_allowed() {
    let proof = Proof::of("irq", &irq(&small()));
    proof.holds(Mode::Reachable);
    proof
        .mutant(
            "always",
            "wire starts = taken & take_sendable;",
            "wire starts = taken;",
        )
        .fails(Mode::Bounded(10), &["sends_only_when_allowed"]);
}

/// A LUN waits for its turn at most once, and a LUN with chunks to move is reached.
#[test]
fn pick_keeps_every_lun_in_one_place() {
    let proof = Proof::of("pick", &pick(&small(), 4));
    proof.holds(Mode::Reachable);
    proof
        .mutant(
            "twice",
            "n15 & n16 & ~in_waiting[insert_lun];",
            "n15 & n16;",
        )
        .fails(Mode::Bounded(10), &["a_lun_waits_once", "cur_does_not"]);
}

/// Bursts stay in their page, a queue holds at most its entries, what is offered stays; 11 cycles from reset.
#[test]
fn sq_fetch_asks_for_no_more_than_it_may() {
    const DEPTH: Mode = Mode::Bounded(11);
    let proof = Proof::of("sq-fetch", &sq_fetch(&small()));
    proof.holds(DEPTH);
    proof
        .mutant("room", "(3'd4 - held)", "3'd7")
        .fails(DEPTH, &["a_queue_holds_at_most_its_entries"]);
}

/// Ready, reset, function level reset and shutdown, as the host and the other blocks see them.
#[test]
fn ctrl_drains_clears_and_is_ready() {
    let proof = Proof::of("ctrl", &ctrl(&small()));
    proof.holds(Mode::Reachable);
    proof.holds(Mode::Cover(14));
    for (name, old, new, broken) in [
        (
            "quiet",
            "STATE_DRAIN: if (quiet) state",
            "STATE_DRAIN: state",
            &["clear_only_when_quiet"][..],
        ),
        (
            "flr",
            "wire want_on = cc_en & ~flr & ~flr_pending;",
            "wire want_on = cc_en;",
            &["disabled_is_drained", "queues_are_set_up_once"],
        ),
        (
            "shutdown",
            "end else if (executing_none) begin",
            "end else if (shutdown != 2'd0) begin",
            &["shut_down_means_none_executes"],
        ),
        (
            "sweep",
            "assign discard = ~n2 & ~start & ~off;",
            "assign discard = ~n2 & ~start & ~off & (state != STATE_SWEEP);",
            &["cleared_is_swept", "is_ready_in_time"],
        ),
    ] {
        let mutant = proof.mutant(name, old, new);
        mutant.fails(Mode::Bounded(14), broken);
    }
}

/// Each entry leaves once, in order, to admin, to its LUN or with its status.
#[test]
fn decode_loses_no_entry() {
    let proof = Proof::of("decode", &decode(&small()));
    proof.holds(Mode::Reachable);
    proof.holds(Mode::Cover(10));
    for (name, old, new, broken) in [
        (
            "lost",
            "if (send_free) send_valid <= look_valid;",
            "if (send_free) send_valid <= look_valid & ~entry_valid;",
            &["empty_is_empty", "row_is_written_once"][..],
        ),
        (
            "over",
            "wire send_free = ~send_valid | send_ready;",
            "wire send_free = 1'd1;",
            &["empty_is_empty", "row_is_written", "park_stable"],
        ),
        (
            "row",
            "assign cmd_write_valid = send & ",
            "assign cmd_write_valid = send & entry_valid & ",
            &["row_is_written"],
        ),
        (
            "way",
            "send_to <= (look_sq == 2'd0) ?",
            "send_to <= (look_sq != 2'd1) ?",
            &["goes_to"],
        ),
    ] {
        let mutant = proof.mutant(name, old, new);
        mutant.fails(Mode::Bounded(8), broken);
    }
}
