//! `bus_gate`: the last block before the host's pins: lets no request start while bus mastering is off, and ends bursts itself
//! then, so that a reset can drain.
//!
//! ```text
//!  inner_ar, inner_aw, inner_w ──►┌──────────┐──► outer_ar, outer_aw, outer_w
//!  inner_r, inner_b ◄─────────────│ bus_gate │◄── outer_r, outer_b
//!       enable, draining ────────►└──────────┘
//! ```
//!
//! Without `enable` a request waits, unless it stands at the pins already: AXI forbids to withdraw it (A3.2.1), so it stays until
//! it is taken, and its write data follows. A function level reset takes Bus Master Enable away while commands execute (PCIe 5.0,
//! 6.6.2), but every block waits for the end of its bursts: so while `draining` too, the gate answers each burst that waits,
//! reads with their beats and writes with their response, DECERR, one burst a direction at a time, after all that has left is
//! answered from outside. So the order of answers with one id is the order of their addresses.
//!
//! **Invariants**: every burst is answered once, by one side; no burst begins to leave while `enable` is low; what is offered stays
//! until it is taken; the write data of a burst goes where its address went. **Latency**: 0 cycles; an answer of the gate begins
//! the cycle after the address.

use crate::axi_check::AxiCheck;
use crate::interfaces::*;
use crate::keeper::Keeper;
use weir_kit::*;

/// Ports of [`bus_gate`].
#[derive(Bundle, Clone)]
#[bundle(params = AxiParams)]
pub struct BusGatePorts {
    /// Bus mastering is allowed (PCI command register).
    #[input]
    #[bits(1)]
    pub enable: Sig,
    /// Without `enable`: bursts are answered here.
    #[input]
    #[bits(1)]
    pub draining: Sig,
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

/// Builds the block. The card has at most `most` bursts in flight in each direction, 1 to 1024.
pub fn bus_gate(a: &AxiParams, most: u32) -> Module {
    module(
        "bus_gate",
        "Lets no request start while the card must not use the bus, and ends bursts itself then.",
        a,
        |p: BusGatePorts| body(a, most, p),
    )
}

/// Bursts that have left and are not answered.
#[hw]
fn flights(most: u32, begin: Sig, end: Sig) -> Sig {
    let in_flight = reg(clog2(u64::from(most) + 1), 0);
    when(begin & !end, || in_flight.set(in_flight + 1))
        .elsewhen(end & !begin, || in_flight.set(in_flight - 1));
    in_flight
}

#[hw]
fn body(a: &AxiParams, most: u32, p: BusGatePorts) {
    let closed = p.draining & !p.enable;

    comment(
        "Reads: what stands at the pins stays; the gate's own burst comes when nothing is in flight outside.",
    );
    let read_busy = reg(1, 0);
    let read_id = reg_nr(a.id_bits);
    let read_left = reg_nr(8);
    let ar_stands = reg(1, 0);
    let read_leaves = ar_stands | (p.enable & !read_busy);
    p.outer_ar
        .offer(p.inner_ar.valid & read_leaves, &p.inner_ar.payload);
    let ar_waits = p.outer_ar.valid & !p.outer_ar.ready;
    ar_stands.set(ar_waits);
    let reads_out = scope("reads", || {
        flights(
            most,
            p.outer_ar.fire(),
            p.outer_r.fire() & p.outer_r.payload.last,
        )
    });
    let own_read = closed & !ar_stands & !read_busy & reads_out.none();
    p.inner_ar
        .ready
        .set(read_leaves.mux(p.outer_ar.ready, own_read));
    when(own_read & p.inner_ar.valid, || {
        read_busy.set(1);
        read_id.set(p.inner_ar.payload.id);
        read_left.set(p.inner_ar.payload.len);
    });
    let own_r = AxiR {
        id: read_id,
        data: lit(0, a.data_bits),
        resp: lit(3, 2),
        last: read_left.none(),
    };
    p.inner_r.offer(
        p.outer_r.valid | read_busy,
        &AxiR::choose(read_busy, &own_r, &p.outer_r.payload),
    );
    p.outer_r.ready.set(p.inner_r.ready & !read_busy);
    when(read_busy & p.inner_r.ready, || {
        read_left.set(read_left - 1);
        when(read_left.none(), || read_busy.set(0));
    });

    comment(
        "Writes: likewise; the data of what has begun to leave is owed outside, that of the gate's own burst is swallowed.",
    );
    let owed = reg(clog2(u64::from(most) + 1), 0);
    let write_busy = reg(1, 0);
    let write_end = reg(1, 0);
    let write_id = reg_nr(a.id_bits);
    let own_busy = write_busy | write_end;
    let aw_stands = reg(1, 0);
    let write_leaves = aw_stands | (p.enable & !own_busy);
    p.outer_aw
        .offer(p.inner_aw.valid & write_leaves, &p.inner_aw.payload);
    let aw_waits = p.outer_aw.valid & !p.outer_aw.ready;
    aw_stands.set(aw_waits);
    let writes_out = scope("writes", || {
        flights(most, p.outer_aw.fire(), p.outer_b.fire())
    });
    let own_write = closed & !aw_stands & !own_busy & owed.none() & writes_out.none();
    p.inner_aw
        .ready
        .set(write_leaves.mux(p.outer_aw.ready, own_write));
    when(own_write & p.inner_aw.valid, || {
        write_busy.set(1);
        write_id.set(p.inner_aw.payload.id);
    });
    let begins = p.outer_aw.valid & !aw_stands;
    let data_leaves = owed.any() | begins;
    p.outer_w
        .offer(p.inner_w.valid & data_leaves, &p.inner_w.payload);
    p.inner_w
        .ready
        .set(write_busy | (data_leaves & p.outer_w.ready));
    let paid = p.outer_w.fire() & p.outer_w.payload.last;
    when(begins & !paid, || owed.set(owed + 1)).elsewhen(paid & !begins, || owed.set(owed - 1));
    when(
        write_busy & p.inner_w.valid & p.inner_w.payload.last,
        || {
            write_busy.set(0);
            write_end.set(1);
        },
    );
    let own_b = AxiB {
        id: write_id,
        resp: lit(3, 2),
    };
    p.inner_b.offer(
        p.outer_b.valid | write_end,
        &AxiB::choose(write_end, &own_b, &p.outer_b.payload),
    );
    p.outer_b.ready.set(p.inner_b.ready & !write_end);
    when(write_end & p.inner_b.ready, || write_end.set(0));

    p.quiet.set(!read_busy & !own_busy);
    let at_pins = p.outer_ar.valid | p.outer_aw.valid | p.outer_w.valid;
    let answers = p.outer_r.valid | p.outer_b.valid;
    let asks = p.inner_ar.valid | p.inner_aw.valid | p.inner_w.valid;
    p.idle
        .set(!read_busy & !own_busy & !at_pins & !answers & !(closed & asks));
    assert(
        "no_answer_from_outside_in_the_middle_of_an_own_one",
        !(read_busy & p.outer_r.valid) & !(own_busy & p.outer_b.valid),
    );
    assert(
        "data_goes_where_its_address_went",
        !(write_busy & p.outer_w.valid),
    );
    formal(|| {
        let inner = AxiCheck {
            master: Keeper::Them,
            a,
            most,
            data_may_lead: true,
            ar: &p.inner_ar,
            r: &p.inner_r,
            aw: &p.inner_aw,
            w: &p.inner_w,
            b: &p.inner_b,
        };
        let outer = AxiCheck {
            master: Keeper::Us,
            data_may_lead: false,
            ar: &p.outer_ar,
            r: &p.outer_r,
            aw: &p.outer_aw,
            w: &p.outer_w,
            b: &p.outer_b,
            ..inner
        };
        let inside = scope("inner", || inner.rules());
        let outside = scope("outer", || outer.rules());
        let stands = |x: Sig| x.zext(clog2(u64::from(most) + 1));
        assert(
            "it_knows_what_is_outside",
            (outside.reads - stands(ar_stands)).eq(reads_out)
                & (outside.writes - stands(aw_stands)).eq(writes_out)
                & outside.owed.eq(owed),
        );
        assert(
            "nothing_is_outside_that_is_not_inside",
            outside.reads.le(inside.reads) & outside.writes.le(inside.writes),
        );
        let stayed = |s: &Stream<AxiAr>| past_valid() & past(s.stalled());
        assert(
            "no_read_begins_without_bus_mastering",
            p.enable | !p.outer_ar.valid | stayed(&p.outer_ar),
        );
        assert(
            "no_write_begins_without_bus_mastering",
            p.enable | !p.outer_aw.valid | stayed(&p.outer_aw),
        );
        cover(
            "an_address_stays_while_not_enabled",
            !p.enable & p.outer_aw.fire(),
        );
        cover("an_own_read_after_one_outside", {
            let was_outside = reg(1, 0);
            when(p.outer_r.fire() & p.outer_r.payload.last, || {
                was_outside.set(1)
            });
            was_outside & read_busy & p.inner_r.fire() & p.inner_r.payload.last
        });
        cover("an_own_write_ends", write_end & p.inner_b.fire());
        cover(
            "both_directions_full",
            reads_out.eq(most) & writes_out.eq(most),
        );
    });
}
