//! Blocks with their inputs free, as far as their neighbours' rules leave them.

use crate::sby::{Mode, Proof};
use weir_card::config::CardConfig;
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
