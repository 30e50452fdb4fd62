//! The LUN engine, with 4 slots, 2 LUNs, 2 tags and 2 CQs; tag allocator and work set are any that keep the bitmap's promises, and the
//! engine keeps the rules for their users.

use crate::sby::{Mode, Proof};
use weir_card::config::CardConfig;
use weir_card::lun_engine::lun_engine;

/// The induction that proves the engine: every state that keeps all assertions for this many cycles keeps them in the next.
const PROOF: Mode = Mode::Induction(2);

fn engine(name: &str) -> Proof {
    let c = CardConfig {
        queues: 1,
        entries: 4,
        luns: 2,
        tags: 2,
        ..CardConfig::small()
    };
    Proof::of(&format!("engine-{name}"), &lun_engine(&c))
}

/// In every reachable state: every slot is on exactly one list; in flight is the tags held, and adds up; no tag has two owners;
/// admission never exceeds depth; who is eligible is queued, or the sweep comes within 4 turns of the wheel; who is queued and could
/// go is passed over at most 5 times. For park, admit, complete, walk, discard and Set Features at any cycle.
#[test]
fn lists_tags_and_wake_ups_are_right_in_every_state() {
    engine("proof").holds(PROOF);
}

/// The assumptions leave room for what matters.
#[test]
fn covers_are_reached() {
    engine("covers").holds(Mode::Cover(30));
}

/// A command is parked and its LUN not woken: seen from reset.
#[test]
fn a_lost_wake_up_is_reached_from_reset() {
    let mutant = engine("reached").mutant(
        "park",
        "wire new_eligible = ",
        "wire new_eligible = ~turn_park & ",
    );
    mutant.fails(Mode::Bounded(12), &["eligible_means_queued"]);
}

/// Where the engine would judge a row and does not, a wake-up is lost.
#[test]
fn mutants_that_lose_wake_ups_fail() {
    let engine = engine("lost");
    for turn in ["park", "other", "complete"] {
        let new = format!("wire new_eligible = ~turn_{turn} & ");
        let mutant = engine.mutant(turn, "wire new_eligible = ", &new);
        mutant.fails(PROOF, &["eligible_means_queued"]);
    }
    let old = "assign new_row_queued = keep_queued | new_eligible;";
    let new = "assign new_row_queued = keep_queued | (new_eligible & ~judged);";
    let broken = ["eligible_means_queued", "queued_means_in_one_place"];
    engine.mutant("admit", old, new).fails(PROOF, &broken);
    let old = "if (discard != discarding) start_recheck = 1'd1;";
    let mutant = engine.mutant("discard", old, "");
    mutant.fails(PROOF, &["eligible_means_queued"]);
}

/// A LUN that never gives way starves the other.
#[test]
fn a_mutant_that_starves_fails() {
    let old = "assign stay = admit & new_eligible & ";
    let new = "assign stay = admit & new_eligible | 1'd0 & ";
    let mutant = engine("starves").mutant("stays", old, new);
    mutant.fails(PROOF, &["wakes_up"]);
}

/// Where the tables are written wrongly, the ghosts disagree.
#[test]
fn mutants_that_lose_slots_and_tags_fail() {
    let engine = engine("wrong");
    let lists = &[
        "parked_is_the_list",
        "list_has_its_ends",
        "parked_link",
        "slot_is_somewhere",
        "two_slots_two_places",
    ];
    let counts = &["in_flight_is_tags_held", "in_flight_adds_up", "row_counts"];
    let depth = &["admission_below_depth"];
    let tags = &["two_commands_two_tags", "kept_tag_has_no_owner", "tags_"];
    let cases: [(&str, &str, &str, &[&str]); 7] = [
        (
            "depth",
            " row_in_flight >= row_depth;",
            " row_in_flight > row_depth;",
            depth,
        ),
        ("head", "if (admit) new_row_head = link_slot;", "", lists),
        (
            "count",
            "if (execute) new_row_in_flight = more_in_flight;",
            "",
            counts,
        ),
        ("tail", "if (parks) new_row_tail = park_slot;", "", lists),
        (
            "tag",
            "+ 2'd1;\n      tag_valid_1 <= 1'd0;",
            "+ 2'd1;",
            tags,
        ),
        // The walker puts a living command back at the end of its list.
        (
            "walker",
            "new_row_tail = row_head;",
            "new_row_tail = row_tail;",
            lists,
        ),
        // Every command that ends gives a tag back, those that never had one too.
        (
            "free",
            "assign tag_free_valid = ",
            "assign tag_free_valid = turn_complete & ending_valid | ",
            &["tags_puts_what_is_out", "tags_a_tag_is_in_one_place"],
        ),
    ];
    for (name, old, new, broken) in cases {
        engine.mutant(name, old, new).fails(PROOF, broken);
    }
}
