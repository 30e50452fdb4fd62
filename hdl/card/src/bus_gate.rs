//! `bus_gate`: ends bursts itself while the card must not use the bus any more, so that a reset can drain.
//!
//! ```text
//!  inner_ar, inner_aw, inner_w ──►┌──────────┐──► outer_ar, outer_aw, outer_w
//!  inner_r, inner_b ◄─────────────│ bus_gate │◄── outer_r, outer_b
//!                     closed ────►└──────────┘
//! ```
//!
//! A function level reset takes Bus Master Enable away while commands execute (PCIe 5.0, 6.6.2): no new request may leave,
//! but every block waits for the end of its bursts. Closed, the gate answers each new read with its beats and each new
//! write with its response, DECERR, one burst at a time. What left before is still answered from outside, and goes first.
//!
//! **Invariants**: every burst is answered once, by one side; no burst leaves while closed; the write data of a burst goes
//! where its address went. **Latency**: 0 cycles when open; an answer of the gate begins the cycle after the address.

use crate::interfaces::*;
use weir_kit::*;

/// Bits that count write bursts whose data has not all left.
const WRITES_BITS: u32 = 6;

/// Ports of [`bus_gate`].
#[derive(Bundle, Clone)]
#[bundle(params = AxiParams)]
pub struct BusGatePorts {
    /// New bursts are answered here.
    #[input]
    #[bits(1)]
    pub closed: Sig,
    /// Read address of the card.
    #[input]
    pub inner_ar: Stream<AxiAr>,
    /// Read data to the card.
    #[output]
    pub inner_r: Stream<AxiR>,
    /// Write address of the card.
    #[input]
    pub inner_aw: Stream<AxiAw>,
    /// Write data of the card.
    #[input]
    pub inner_w: Stream<AxiW>,
    /// Write response to the card.
    #[output]
    pub inner_b: Stream<AxiB>,
    /// Read address that leaves.
    #[output]
    pub outer_ar: Stream<AxiAr>,
    /// Read data from outside.
    #[input]
    pub outer_r: Stream<AxiR>,
    /// Write address that leaves.
    #[output]
    pub outer_aw: Stream<AxiAw>,
    /// Write data that leaves.
    #[output]
    pub outer_w: Stream<AxiW>,
    /// Write response from outside.
    #[input]
    pub outer_b: Stream<AxiB>,
    /// The gate is answering no burst.
    #[output]
    #[bits(1)]
    pub quiet: Sig,
    /// Nothing would change with the inputs held.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block.
pub fn bus_gate(a: &AxiParams) -> Module {
    module(
        "bus_gate",
        "Ends bursts itself while the card must not use the bus.",
        a,
        |p: BusGatePorts| body(a, p),
    )
}

#[hw]
fn body(a: &AxiParams, p: BusGatePorts) {
    comment("Reads: the gate's own burst, beat by beat when nothing comes from outside.");
    let read_busy = reg(1, 0);
    let read_id = reg_nr(a.id_bits);
    let read_left = reg_nr(8);
    let read_take = p.closed & !read_busy;
    p.outer_ar
        .offer(p.inner_ar.valid & !p.closed, &p.inner_ar.payload);
    p.inner_ar
        .ready
        .set(p.closed.mux(!read_busy, p.outer_ar.ready));
    // An answer that was offered stays until it is taken.
    let own_r_waits = reg(1, 0);
    let outside_r = p.outer_r.valid & !own_r_waits;
    let own_r = AxiR {
        id: read_id,
        data: lit(0, a.data_bits),
        resp: lit(3, 2),
        last: read_left.none(),
    };
    p.inner_r.offer(
        p.outer_r.valid | read_busy,
        &AxiR::choose(outside_r, &p.outer_r.payload, &own_r),
    );
    p.outer_r.ready.set(p.inner_r.ready & !own_r_waits);
    own_r_waits.set(read_busy & !outside_r & !p.inner_r.ready);
    let own_beat = read_busy & !outside_r & p.inner_r.ready;
    when(own_beat, || {
        read_left.set(read_left - 1);
        when(read_left.none(), || read_busy.set(0));
    });
    when(read_take & p.inner_ar.valid, || {
        read_busy.set(1);
        read_id.set(p.inner_ar.payload.id);
        read_left.set(p.inner_ar.payload.len);
    });

    comment(
        "Writes: data still owed outside goes first, then that of the gate's own burst is swallowed.",
    );
    let owed = reg(WRITES_BITS, 0);
    let write_busy = reg(1, 0);
    let write_end = reg(1, 0);
    let write_id = reg_nr(a.id_bits);
    let own_write = write_busy | write_end;
    let write_free = owed.none() & !own_write;
    let owed_full = owed.all();
    p.outer_aw.offer(
        p.inner_aw.valid & !p.closed & !own_write & !owed_full,
        &p.inner_aw.payload,
    );
    p.inner_aw.ready.set(
        p.closed
            .mux(write_free, p.outer_aw.ready & !own_write & !owed_full),
    );
    p.outer_w
        .offer(p.inner_w.valid & !write_busy, &p.inner_w.payload);
    p.inner_w.ready.set(write_busy | p.outer_w.ready);
    let left_one = p.outer_aw.fire();
    let paid_one = p.outer_w.fire() & p.outer_w.payload.last;
    when(left_one & !paid_one, || owed.set(owed + 1))
        .elsewhen(paid_one & !left_one, || owed.set(owed - 1));
    when(
        write_busy & p.inner_w.valid & p.inner_w.payload.last,
        || {
            write_busy.set(0);
            write_end.set(1);
        },
    );
    let own_b_waits = reg(1, 0);
    let outside_b = p.outer_b.valid & !own_b_waits;
    let own_b = AxiB {
        id: write_id,
        resp: lit(3, 2),
    };
    p.inner_b.offer(
        p.outer_b.valid | write_end,
        &AxiB::choose(outside_b, &p.outer_b.payload, &own_b),
    );
    p.outer_b.ready.set(p.inner_b.ready & !own_b_waits);
    own_b_waits.set(write_end & !outside_b & !p.inner_b.ready);
    when(write_end & !outside_b & p.inner_b.ready, || {
        write_end.set(0)
    });
    when(p.closed & write_free & p.inner_aw.valid, || {
        write_busy.set(1);
        write_id.set(p.inner_aw.payload.id);
    });

    p.quiet.set(!read_busy & !own_write);
    let asks = p.inner_ar.valid | p.inner_aw.valid | p.inner_w.valid;
    p.idle
        .set(!read_busy & !own_write & !(p.closed & asks) & !left_one & !paid_one);
    assert(
        "no_burst_leaves_while_closed",
        !p.closed | (!p.outer_ar.valid & !p.outer_aw.valid),
    );
    assert(
        "data_follows_its_address",
        !p.outer_w.fire() | owed.any() | left_one,
    );
}
