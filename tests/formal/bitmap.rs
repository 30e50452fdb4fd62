//! The sets: the bitmap in flops (5 bits) and in RAM words (13 bits: 4 words, the last one partial), and the free list (3 numbers).
//! Any put at any time, of members and of numbers that are none too; takings and clears at any time.

use crate::sby::{Mode, Proof};
use weir_card::bitmap::{BitmapConfig, bitmap, bitmap_in_ram};
use weir_card::free_list::free_list;
use weir_kit::Module;

/// Invariants by hand for the RAM variant: where each bit is (`places.rs`).
const RAM: Mode = Mode::Induction(2);

fn flops(full: bool) -> Module {
    bitmap(&config(5, full))
}

fn ram(full: bool) -> Module {
    bitmap_in_ram(&config(13, full))
}

fn config(bits: u32, full: bool) -> BitmapConfig {
    if full {
        BitmapConfig::allocator(bits)
    } else {
        BitmapConfig::work(bits)
    }
}

/// Offers only members, each until it is taken, within 7 cycles; counts and flags exactly; no number is overtaken more than twice
/// by another one.
#[test]
fn a_set_in_flops_keeps_its_promises() {
    for full in [false, true] {
        let proof = Proof::of(&format!("bitmap-flops-{full}"), &flops(full));
        proof.holds(Mode::Reachable);
        proof.holds(Mode::Cover(12));
    }
}

/// The same but the last.
#[test]
fn a_set_in_ram_keeps_its_promises() {
    for full in [false, true] {
        let proof = Proof::of(&format!("bitmap-ram-{full}"), &ram(full));
        proof.holds(RAM);
        let proof = Proof::of(&format!("bitmap-ram-covers-{full}"), &ram(full));
        proof.holds(Mode::Cover(if full { 24 } else { 14 }));
    }
}

/// The free list keeps them towards a user that puts only what it has taken.
#[test]
fn a_free_list_keeps_its_promises() {
    for full in [false, true] {
        let list = free_list(&config(3, full));
        let proof = Proof::of(&format!("free-list-{full}"), &list);
        proof.holds(Mode::Reachable);
        proof.holds(Mode::Cover(12));
    }
}

#[test]
fn mutants_of_the_sets_fail() {
    let set = Proof::of("bitmap-wrong", &flops(false));
    let cases = [
        (
            "double",
            "wire is_set = n1[put_index] | in_out;",
            "wire is_set = n1[put_index];",
            "a_bit_is",
        ),
        (
            "lost",
            "waiting <= pool & {5{n7}};",
            "waiting <= stays & {5{n7}};",
            "counts",
        ),
    ];
    for (name, old, new, broken) in cases {
        set.mutant(name, old, new)
            .fails(Mode::Bounded(12), &[broken, "offered", "flags", "is_round"]);
    }
    let unfair = set
        .mutant(
            "unfair-1",
            "wire [4:0] joins = put_bit & ahead_now;",
            "wire [4:0] joins = put_bit;",
        )
        .mutant(
            "unfair-2",
            "wire [4:0] stays = put_bit & ~ahead_now;",
            "wire [4:0] stays = 5'd0;",
        );
    unfair.fails(Mode::Bounded(12), &["is_round_robin"]);

    let set = Proof::of("bitmap-ram-wrong", &ram(true));
    let places = [
        "holds",
        "a_bit_is",
        "a_put",
        "no_empty",
        "live_words",
        "what_was",
        "moves",
    ];
    for (name, old, new) in [
        ("forward", "forwarded <= again;", "forwarded <= 1'd0;"),
        (
            "join",
            "extra_group <= n2 & {2{join_ & is_bit}};",
            "extra_group <= 2'd0;",
        ),
        ("empty", " & ~straight & adds;", " & ~straight;"),
        (
            "double",
            "double_put <= n26 & ~clear;",
            "double_put <= 1'd0;",
        ),
    ] {
        let broken = [&places[..], &["flags"]].concat();
        set.mutant(name, old, new).fails(RAM, &broken);
    }

    let list = Proof::of("free-list-wrong", &free_list(&config(3, false)));
    let old = "if (put) write_at <= write_at + 2'd1;";
    list.mutant("kept", old, "if (put & ~read) write_at <= write_at + 2'd1;")
        .fails(Mode::Bounded(16), &["offered", "counts", "offers"]);
}
