//! The blocks of the host's AXI4 port, with the rules of `axi_check` on both sides.

use crate::sby::{Mode, Proof};
use weir_card::bus_gate::bus_gate;
use weir_card::interfaces::AxiParams;

/// 1 id bit, 32 data bits.
const NARROW: AxiParams = AxiParams {
    id_bits: 1,
    data_bits: 32,
};

fn gate(name: &str) -> Proof {
    Proof::of(&format!("bus-gate-{name}"), &bus_gate(&NARROW, 2))
}

/// The gate keeps AXI's rules for a master whatever Bus Master Enable does, and begins nothing without it.
#[test]
fn bus_gate_neither_begins_nor_withdraws() {
    gate("proof").holds(Mode::Reachable);
}

/// The assumptions leave room for what matters.
#[test]
fn bus_gate_covers_are_reached() {
    gate("covers").holds(Mode::Cover(16));
}

#[test]
fn a_bad_bus_gate_fails() {
    let proof = gate("bad");
    let mutants: [(&str, &str, &str, &[&str]); 5] = [
        (
            "withdraws",
            "wire write_leaves = aw_stands | (enable & ~own_busy);",
            "wire write_leaves = enable & ~own_busy;",
            &["outer_aw_aw_stays"],
        ),
        (
            "begins",
            "wire read_leaves = ar_stands | (enable & ~read_busy);",
            "wire read_leaves = ~read_busy;",
            &["no_read_begins_without_bus_mastering"],
        ),
        (
            "data-leads",
            "assign outer_w_valid = inner_w_valid & data_leaves;",
            "assign outer_w_valid = inner_w_valid & ~write_busy;",
            &["outer_w_does_not_lead_its_aw"],
        ),
        (
            "overtakes",
            "wire own_read = closed & ~ar_stands & ~read_busy & ~(|reads_in_flight);",
            "wire own_read = closed & ~ar_stands & ~read_busy;",
            &[
                "no_answer_from_outside_in_the_middle_of_an_own_one",
                "inner_r_stays",
            ],
        ),
        (
            "no-answer",
            "assign inner_b_valid = outer_b_valid | write_end;",
            "assign inner_b_valid = outer_b_valid | write_busy;",
            &["inner_b_follows_its_aw_and_w", "inner_b_stays"],
        ),
    ];
    for (name, old, new, broken) in mutants {
        proof.mutant(name, old, new).fails(Mode::Bounded(8), broken);
    }
}
