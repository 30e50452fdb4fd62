//! `pick`: which command's chunk comes next, in one direction: the fairness rule of admission, applied again to the chunks.
//!
//! ```text
//!  insert {tag, lun, weight} ──► list of its LUN ──┐
//!                                                  ├──► out ──► take {tag}
//!  LUNs with a list (FIFO: round robin) ──► cur ────┘
//! ```
//!
//! Commands with data to move stand in a list a LUN, linked through `next` by tag. A command that has more to move comes back
//! behind the others of its LUN after each chunk. `cur` is the LUN whose turn it is; another LUN that waits gets its turn when
//! the turn of `cur` is over:
//!
//! | rule | a turn is |
//! |---|---|
//! | none | one chunk of each command that stood in the list when the turn began: commands share alike |
//! | even | one chunk: LUNs share alike |
//! | weighted | as many chunks as the weight: deficit round robin, where a chunk (at most 4 KiB) costs 1 |
//!
//! A LUN with a single command has an empty list while that command is being cut: it is `coming` for [`COMING`] cycles, in
//! which `cur` keeps credit that is left, and a LUN that has none left keeps its place among those that wait. A LUN that then
//! has no list is passed over.
//!
//! **No LUN takes all chunks.** Chunks in flight are a shared store, and a slow LUN would fill it. So a LUN is passed over
//! while it has three times as many in flight as are free (dynamic threshold, Choudhury and Hahne 1998): one slow LUN leaves a
//! quarter of the store, and one with nothing in flight always finds room while there is any. While half is free nobody can
//! be over, and nothing is checked.
//!
//! Every table has one writer: `first` (head of a list that was empty) and `tails` by inserts, `heads` by takings; the flop
//! `fresh` says whether `first` or `heads` counts. Chunks in flight are `chosen - ended`, counted in two tables likewise.
//!
//! LUNs wait in a FIFO and not in a bitmap, because find-first may pass a LUN twice before another: measured here, two to one.
//!
//! **Invariants**: a LUN with a list is `cur` or waits, never both; a tag is inside at most once.
//! **Latency**: 1 cycle when nothing waits and half the chunks are free. **Rate**: one in a cycle; one out a cycle from one
//! LUN (3 when less than half of the chunks are free), in 3 cycles from many (5 when less than half of the chunks are free).

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
    /// A chunk has ended, or none was made of what was taken; a pulse.
    #[input]
    #[bits(1)]
    pub ended_valid: Sig,
    /// Of this LUN.
    #[input]
    #[bits(p.lun_bits())]
    pub ended_lun: Sig,
    /// The command that is next.
    #[output]
    #[bits(p.tag_bits())]
    pub take: Stream<Sig>,
    /// Nothing to do but wait for chunks to end.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block for a direction with `chunks` chunks (a power of two).
pub fn pick(c: &CardConfig, chunks: u32) -> Module {
    module(
        format!("pick_{chunks}"),
        "Which command's chunk comes next, in one direction: the fairness rule over LUNs, applied to chunks.",
        c,
        |p: PickPorts| body(c, p, chunks),
    )
}

#[hw]
fn body(c: &CardConfig, p: PickPorts, chunks: u32) {
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

    let lun = p.insert_lun;
    weights.write(p.insert_valid & p.insert_new, lun, p.insert_weight);
    comment("Rule none: the turn lasts until this tag.");
    let until = reg_nr(c.tag_bits());
    let gated = reg(1, 0);
    let quantum = |lun: Sig, fresh_weight: Sig| {
        let weight = fresh_weight.mux(p.insert_weight, weights.read_async(lun));
        let counts = p.rule.is(Rule::Weighted) & weight.any();
        counts.mux(weight, 1)
    };

    comment("Chunks in flight, of all LUNs and of cur, against three times those that are free.");
    let count_bits = clog2(chunks as u64) + 1;
    let choose = wire(1);
    let choose_lun = wire(c.lun_bits());
    let used = reg(count_bits, 0);
    when(choose & !p.ended_valid, || used.set(used + 1))
        .elsewhen(p.ended_valid & !choose, || used.set(used - 1));
    let chosen = Counters::new(luns, count_bits);
    let ended = Counters::new(luns, count_bits);
    chosen.count(choose, choose_lun);
    ended.count(p.ended_valid, p.ended_lun);
    let free_chunks = used
        .gt(chunks)
        .mux(0, lit(chunks.into(), count_bits) - used);
    let w = count_bits + 2;
    let limit = free_chunks.zext(w) + cat(&[lit(0, 1), free_chunks, lit(0, 1)]);
    let plenty = reg(1, 1);
    plenty.set(used.lt(chunks / 2));
    let cur_in_flight = chosen.value(cur) - ended.value(cur);
    let below_limit = reg(1, 0);
    below_limit.set(cur_in_flight.zext(w).lt(limit));
    let cur_moves = wire(1);
    comment("A choice or another cur shows in `below_limit` after 2 cycles.");
    let unsettled = reg(2, 0);
    unsettled.set(cat(&[unsettled.bit(0), choose | cur_moves]));
    let judged = !unsettled.any();
    let may_choose = plenty | (judged & below_limit);

    comment("Fill the output from the list of cur.");
    let others = waiting.output.valid;
    let free = !out_valid | p.take.ready;
    let has_list = listed.index(cur);
    let fills = free & has_list & may_choose & (credit.any() | !others);
    let head = fresh
        .index(cur)
        .mux(first.read_async(cur), heads.read_async(cur));
    let empties = fills & head.eq(tails.read_async(cur));
    heads.write(fills, cur, next.read_async(head));

    comment(
        "Looks at LUNs that are left, after a change, until all are known to be over the limit.",
    );
    let looks = reg(bits_for((luns + 2).into()), 0);

    comment("Give the turn away: credit used up, or nothing left and nothing about to come back.");
    let comes_back = (out_valid & out_of_cur) | coming.any();
    let blocked = has_list & judged & !may_choose & looks.any();
    let may_leave = credit.eq(0) | !(has_list | comes_back) | blocked;

    comment("An insert: straight to the output when nothing waits, else to its LUN's list.");
    let nothing_waits = !listed.any() & free & plenty & !in_waiting.index(lun);
    let straight = p.insert_valid & nothing_waits & (may_leave | lun.eq(cur));
    let listing = p.insert_valid & !straight;
    let starts_list = !listed.index(lun) | (empties & lun.eq(cur));
    let old_tail = tails.read_async(lun);
    tails.write(listing, lun, p.insert_tag);
    first.write(listing & starts_list, lun, p.insert_tag);
    next.write(listing & !starts_list, old_tail, p.insert_tag);
    let joins = listing & starts_list & lun.ne(cur) & !in_waiting.index(lun);
    let switches = may_leave & others & !straight & !joins & !fills;
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

    let turn_ends = gated & head.eq(until);
    when(fills, || {
        out.set(head);
        when(empties, || listed.set_index(cur, 0));
        fresh.set_index(cur, 0);
        when(turn_ends, || credit.set(0))
            .elsewhen(!gated & credit.any(), || credit.set(credit - 1));
    });
    when(listing & starts_list, || {
        listed.set_index(lun, 1);
        fresh.set_index(lun, 1);
    });
    comment("A turn under rule none lasts until the last command that the list has now.");
    let next_cur = waiting.output.payload;
    let starts_now = listing & starts_list & lun.eq(next_cur);
    let next_until = starts_now.mux(p.insert_tag, tails.read_async(next_cur));
    let next_gated = p.rule.is(Rule::None);
    let nothing_listed = !listed.index(next_cur) & !starts_now;
    when(switches, || {
        cur.set(next_cur);
        gated.set(next_gated);
        until.set(next_until);
        let turn = quantum(next_cur, lit(0, 1));
        credit.set((next_gated & nothing_listed).mux(0, turn));
    });
    when(straight, || {
        out.set(p.insert_tag);
        cur.set(lun);
        let goes_on = lun.eq(cur) & credit.any();
        let turn = goes_on.mux(credit, quantum(lun, p.insert_new));
        credit.set(turn - 1);
        gated.set(0);
    });
    choose.set(fills | straight);
    choose_lun.set(straight.mux(lun, cur));
    cur_moves.set(leaves);
    when(p.insert_valid | p.ended_valid | choose, || {
        looks.set(luns + 2)
    })
    .elsewhen(switches & looks.any(), || looks.set(looks - 1));
    when(free, || out_valid.set(fills | straight));
    p.take.offer(out_valid, &out);
    when(fills | straight, || out_of_cur.set(1)).elsewhen(switches, || out_of_cur.set(0));
    when(leaves, || coming.set(0))
        .elsewhen(p.take.fire() & out_of_cur, || coming.set(COMING))
        .elsewhen(coming.any(), || coming.set(coming - 1));

    let moves = p.insert_valid | p.ended_valid | p.take.fire() | fills | switches;
    comment("The counts of chunks act within 3 cycles.");
    let settles = reg(2, 0);
    when(moves, || settles.set(3)).elsewhen(settles.any(), || settles.set(settles - 1));
    p.idle.set(!moves & settles.eq(0));
    assert("cur_does_not_wait_too", !in_waiting.index(cur));
    assert("a_list_is_reached", has_list | others | !listed.any());
}

/// A counter a LUN, from 0 after reset, in LUT RAM.
#[derive(Clone, Copy)]
struct Counters {
    counts: Mem,
    begun: Sig,
}

impl Counters {
    #[hw]
    fn new(luns: u32, width: u32) -> Counters {
        let counts = Mem::new(luns.into(), width).style(Style::Distributed);
        let begun = reg(luns, 0);
        Counters { counts, begun }
    }

    fn value(&self, lun: Sig) -> Sig {
        let zero = lit(0, self.counts.width);
        self.begun.index(lun).mux(self.counts.read_async(lun), zero)
    }

    fn count(&self, valid: Sig, lun: Sig) {
        self.counts.write(valid, lun, self.value(lun) + 1);
        when(valid, || self.begun.set_index(lun, 1));
    }
}
