//! `realign`: moves the bytes of a burst into other lanes, a beat a cycle.
//!
//! ```text
//!  input {data, first, last, plan} ──►┌─────────┐──► output {data, strb, last}
//!                                     │ realign │
//!                                     └─────────┘
//! ```
//!
//! Every beat is rotated by `plan.rotate` lanes of 4 bytes and merged with the lanes that the beat before carried over:
//!
//! ```text
//!   in      . . 0 1 | 2 3 4 5 | 6 7 . .      source lane 2, 8 dwords
//!   out     . 0 1 2 | 3 4 5 6 | 7 . . .      destination lane 1: rotate 3, prime
//! ```
//!
//! With `prime` the first beat in makes none out; when the destination needs a beat more than the source gives, one cycle
//! flushes the carry. A burst that keeps its lanes costs neither, so such bursts run back to back without a bubble.
//!
//! **Invariants**: beats out = `plan.len` + 1; strobes cover exactly the lanes from `first_lane` to `last_lane`.
//! **Latency**: 1 cycle. The plan may change only at a first beat.

use super::types::*;
use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// A beat on its way in.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct SourceBeat {
    /// One beat.
    #[bits(p.data_bits)]
    pub data: Sig,
    /// First of its burst.
    #[bits(1)]
    pub first: Sig,
    /// Last of its burst.
    #[bits(1)]
    pub last: Sig,
    /// What to do with the burst; the same in all of its beats.
    pub plan: Plan,
}

/// Ports of [`realign`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct RealignPorts {
    /// Source beats.
    #[input]
    pub input: Stream<SourceBeat>,
    /// Destination beats.
    #[output]
    #[params(p.host_axi())]
    pub output: Stream<AxiW>,
    /// Nothing changes while no source beat comes.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block.
pub fn realign(c: &CardConfig) -> Module {
    module(
        "realign",
        "Moves the bytes of a burst into other lanes, a beat a cycle.",
        c,
        |p: RealignPorts| body(c, p),
    )
}

/// `x` rotated upward by `by` lanes.
fn rotate_lanes(x: Sig, by: Sig) -> Sig {
    let w = x.width();
    by.to_bits().into_iter().enumerate().fold(x, |x, (i, bit)| {
        let shift = 32 << i;
        bit.mux(cat(&[x.trunc(w - shift), x.hi(shift)]), x)
    })
}

/// A bit a lane, each `copies` times: set where `test(lane)` is.
fn lane_mask(c: &CardConfig, copies: u32, test: impl Fn(u32) -> Sig) -> Sig {
    let mut lanes: Vec<Sig> = (0..c.lanes()).map(|l| test(l).repeat(copies)).collect();
    lanes.reverse();
    cat(&lanes)
}

#[hw]
fn body(c: &CardConfig, p: RealignPorts) {
    let beat = p.input.payload;
    let carry = reg_nr(c.data_bits);
    let held = Plan::reg_nr(c);
    let flushing = reg(1, 0);
    let begun = reg(1, 0);
    let left = reg_nr(8);
    let out_valid = reg(1, 0);
    let out = AxiW::reg_nr(&c.host_axi());

    let free = !out_valid | p.output.ready;
    let plan = Plan::choose(flushing, &held, &beat.plan);
    let takes = p.input.valid & !flushing;
    let emits = flushing | (takes & !(beat.first & plan.prime));
    p.input.ready.set(free & !flushing);

    let rotated = rotate_lanes(beat.data, beat.plan.rotate);
    let from_current = lane_mask(c, 32, |l| plan.rotate.le(l));
    let merged = (rotated & from_current) | (carry & !from_current);
    let left_now = begun.mux(left, plan.len);
    let ends = left_now.eq(0);
    let from_first = lane_mask(c, 4, |l| begun | plan.first_lane.le(l));
    let to_last = lane_mask(c, 4, |l| !ends | plan.last_lane.ge(l));

    when(free, || {
        out_valid.set(emits);
        out.data.set(merged);
        out.strb.set(from_first & to_last);
        out.last.set(ends);
        flushing.set(takes & beat.last & !(emits & ends));
        when(takes, || {
            carry.set(rotated);
            held.set(&plan);
        });
        when(emits, || {
            begun.set(!ends);
            left.set(left_now - 1);
        });
    });
    p.output.offer(out_valid, &out);
    // A burst that waits for its next source beat is idle: nothing changes until it comes.
    p.idle.set(!out_valid & !flushing);

    assert("a_flush_ends_the_burst", !flushing | ends);
    assert(
        "the_burst_ends_with_its_source",
        !(takes & emits & ends & free) | beat.last,
    );
}
