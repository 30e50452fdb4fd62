//! `pick`: which command's chunk comes next, in one direction: the fairness rule of admission, applied again to the chunks.
//!
//! ```text
//!  insert {tag, lun, weight} ──► list of its LUN ──┐
//!                                                  ├──► out ──► take {tag}
//!  LUNs with a list (FIFO: round robin) ──► cur ────┘
//! ```
//!
//! Commands with data to move stand in a list a LUN, linked through `next` by tag. A command that has more to move comes back
//! behind the others of its LUN after each chunk. `cur` is the LUN whose turn it is; it has `credit` chunks before another LUN
//! that waits gets its turn.
//!
//! | rule | list | credit of a turn |
//! |---|---|---|
//! | none | one for all | - |
//! | even | one a LUN | 1 chunk |
//! | weighted | one a LUN | its weight in chunks: deficit round robin, where a chunk (at most 4 KiB) costs 1 |
//!
//! The rule acts on what is inserted; a change leaves what stands in lists where it is. A LUN with a single command has an
//! empty list while that command is being cut: it is `coming` for [`COMING`] cycles, in which `cur` keeps credit that is left,
//! and a LUN that has none left keeps its place among those that wait. A LUN that then has no list is passed over.
//!
//! Every table has one writer: `first` (head of a list that was empty) and `tails` by inserts, `heads` by takings; the flop
//! `fresh` says whether `first` or `heads` counts.
//!
//! LUNs wait in a FIFO and not in a bitmap, because find-first may pass a LUN twice before another: measured here, two to one.
//!
//! **Invariants**: a LUN with a list is `cur` or waits, never both; a tag is inside at most once.
//! **Latency**: 1 cycle when nothing waits. **Rate**: one in a cycle; one out a cycle from one LUN, in 3 cycles from many.

use super::fifo::fifo;
use crate::config::CardConfig;
use crate::interfaces::Rule;
use weir_kit::*;

/// Width of a weight.
pub const WEIGHT_BITS: u32 = 16;
/// Cycles from a taking until the command may be back: the stages of [`prp`](super::prp).
const COMING: u32 = 3;

/// Ports of [`pick`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct PickPorts {
    /// Fairness rule: [`Rule`].
    #[input]
    #[bits(Rule::WIDTH)]
    pub rule: Sig,
    /// A command with data to move; a pulse, there is always room.
    #[input]
    #[bits(1)]
    pub insert_valid: Sig,
    /// Its tag.
    #[input]
    #[bits(p.tag_bits())]
    pub insert_tag: Sig,
    /// Its LUN.
    #[input]
    #[bits(p.lun_bits())]
    pub insert_lun: Sig,
    /// It is new, and says its LUN's weight.
    #[input]
    #[bits(1)]
    pub insert_new: Sig,
    /// That weight.
    #[input]
    #[bits(WEIGHT_BITS)]
    pub insert_weight: Sig,
    /// The command that is next.
    #[output]
    #[bits(p.tag_bits())]
    pub take: Stream<Sig>,
}

/// Builds the block.
pub fn pick(c: &CardConfig) -> Module {
    module(
        "pick",
        "Which command's chunk comes next, in one direction: the fairness rule over LUNs, applied to chunks.",
        c,
        |p: PickPorts| body(c, p),
    )
}

#[hw]
fn body(c: &CardConfig, p: PickPorts) {
    let luns = c.luns.max(2);
    let tags = c.tags as u64;
    let lists = luns as u64;
    let tails = Mem::new(lists, c.tag_bits()).style(Style::Distributed);
    let first = Mem::new(lists, c.tag_bits()).style(Style::Distributed);
    let heads = Mem::new(lists, c.tag_bits()).style(Style::Distributed);
    let weights = Mem::new(lists, WEIGHT_BITS).style(Style::Distributed);
    let next = Mem::new(tags, c.tag_bits()).style(Style::Distributed);
    let listed = reg(luns, 0);
    let fresh = reg(luns, 0);
    let cur = reg(c.lun_bits(), 0);
    let credit = reg(WEIGHT_BITS, 0);
    comment("LUNs in `waiting`.");
    let in_waiting = reg(luns, 0);
    let out_of_cur = reg(1, 0);
    let coming = reg(2, 0);
    let out_valid = reg(1, 0);
    let out = reg_nr(c.tag_bits());
    let waiting = fifo::<Sig>("waiting", &c.lun_bits(), lists.next_power_of_two());

    let lun = p.rule.is(Rule::None).mux(0, p.insert_lun);
    weights.write(p.insert_valid & p.insert_new, lun, p.insert_weight);
    let quantum = |lun: Sig, fresh_weight: Sig| {
        let weight = fresh_weight.mux(p.insert_weight, weights.read_async(lun));
        let counts = p.rule.is(Rule::Weighted) & weight.any();
        counts.mux(weight, 1)
    };

    comment("Fill the output from the list of cur.");
    let others = waiting.output.valid;
    let free = !out_valid | p.take.ready;
    let has_list = listed.index(cur);
    let fills = free & has_list & (credit.any() | !others);
    let head = fresh
        .index(cur)
        .mux(first.read_async(cur), heads.read_async(cur));
    let empties = fills & head.eq(tails.read_async(cur));
    heads.write(fills, cur, next.read_async(head));

    comment("Give the turn away: credit used up, or nothing left and nothing about to come back.");
    let comes_back = (out_valid & out_of_cur) | coming.any();
    let may_leave = credit.eq(0) | !(has_list | comes_back);

    comment("An insert: straight to the output when nothing waits, else to its LUN's list.");
    let nothing_waits = !listed.any() & free & !in_waiting.index(lun);
    let straight = p.insert_valid & nothing_waits & (may_leave | lun.eq(cur));
    let listing = p.insert_valid & !straight;
    let starts_list = !listed.index(lun) | (empties & lun.eq(cur));
    let old_tail = tails.read_async(lun);
    tails.write(listing, lun, p.insert_tag);
    first.write(listing & starts_list, lun, p.insert_tag);
    next.write(listing & !starts_list, old_tail, p.insert_tag);
    let joins = listing & starts_list & lun.ne(cur) & !in_waiting.index(lun);
    let switches = may_leave & others & !straight & !joins;
    let leaves = switches | (straight & lun.ne(cur));
    let keeps_place = leaves & (has_list | comes_back | (listing & lun.eq(cur)));
    waiting.output.ready.set(switches);
    waiting
        .input
        .offer(joins | keeps_place, &joins.mux(lun, cur));
    assert("a_lun_waits_once", waiting.input.ready);
    when(switches, || in_waiting.set_index(waiting.output.payload, 0));
    when(joins, || in_waiting.set_index(lun, 1));
    when(keeps_place, || in_waiting.set_index(cur, 1));

    when(fills, || {
        out.set(head);
        when(empties, || listed.set_index(cur, 0));
        fresh.set_index(cur, 0);
        credit.set(credit.any().mux(credit - 1, 0));
    });
    when(listing & starts_list, || {
        listed.set_index(lun, 1);
        fresh.set_index(lun, 1);
    });
    when(switches, || {
        cur.set(waiting.output.payload);
        credit.set(quantum(waiting.output.payload, lit(0, 1)));
    });
    when(straight, || {
        out.set(p.insert_tag);
        cur.set(lun);
        let goes_on = lun.eq(cur) & credit.any();
        let turn = goes_on.mux(credit, quantum(lun, p.insert_new));
        credit.set(turn - 1);
    });
    when(free, || out_valid.set(fills | straight));
    p.take.offer(out_valid, &out);
    when(fills | straight, || out_of_cur.set(1)).elsewhen(switches, || out_of_cur.set(0));
    when(leaves, || coming.set(0))
        .elsewhen(p.take.fire() & out_of_cur, || coming.set(COMING))
        .elsewhen(coming.any(), || coming.set(coming - 1));

    assert("cur_does_not_wait_too", !in_waiting.index(cur));
    assert("a_list_is_reached", has_list | others | !listed.any());
}
