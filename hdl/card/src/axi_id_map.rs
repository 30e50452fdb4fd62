//! `axi_id_map`: the boundary of an AXI4 port: few or many port ids for the card's own, a bound on bursts in flight, and
//! register slices on what leaves.
//!
//! ```text
//!  inner ar ──► id of the port ──► slice ──► outer ar       inner aw, w likewise; w leaves behind its aw
//!  inner r ◄── its own id back ◄──────────── outer r        inner b likewise
//! ```
//!
//! Three ways, chosen when the card is built, for reads and for writes alike:
//! - **direct**: the port has as many id bits as the card's own ids need. They go out unchanged.
//! - **pool**: at least as many port ids as bursts in flight. Each burst takes a free one, and a table keeps whose it is.
//! - **in order**: fewer port ids than bursts in flight, down to one. Bursts take them in turn; AXI answers one id in order,
//!   so a queue for each id keeps whose the answers are.
//!
//! AXI orders bursts of one id. The card relies on that for kinds that use one id again while it is in flight (completion
//! queue entries, messages): [`IdMap::repeating`] names them, and they keep to port id 0.
//!
//! **Invariants**: at most `max_outstanding` bursts in flight a direction; R and B pass in the same cycle.
//! **Latency**: ar, aw, w 1 cycle; r, b 0. **Rate**: a beat or an address a cycle.

use crate::config::CardConfig;
use crate::dma::fifo::{fifo, id_pool};
use crate::interfaces::*;
use weir_kit::*;

/// What one port maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// Name of the module.
    pub name: String,
    /// The card's side.
    pub inner: AxiParams,
    /// ID bits of the port, 0 to 16. With 0 the port still has one id bit, always 0.
    pub id_bits: u32,
    /// Most bursts in flight in each direction, 1 to 1024.
    pub max_outstanding: u32,
    /// Write ids at and above this may be in flight more than once; none if 0.
    pub repeating_from: u32,
}

impl IdMap {
    /// The card's side of the port.
    pub fn inner(&self) -> AxiParams {
        self.inner.clone()
    }
    /// The outer side of the port.
    pub fn outer(&self) -> AxiParams {
        AxiParams {
            id_bits: self.id_bits.max(1),
            data_bits: self.inner.data_bits,
        }
    }
}

impl CardConfig {
    /// The host port: all kinds of writes but data repeat their id.
    pub fn host_id_map(&self) -> IdMap {
        IdMap {
            name: "host_id_map".into(),
            inner: self.host_axi(),
            id_bits: self.host_id_bits,
            max_outstanding: self.host_max_outstanding,
            repeating_from: 1 << self.chunk_bits(),
        }
    }
    /// The media port.
    pub fn media_id_map(&self) -> IdMap {
        IdMap {
            name: "media_id_map".into(),
            inner: self.media_axi(),
            id_bits: self.media_id_bits,
            max_outstanding: self.media_max_outstanding,
            repeating_from: 0,
        }
    }
}

/// Ports of [`axi_id_map`].
#[derive(Bundle, Clone)]
#[bundle(params = IdMap)]
pub struct IdMapPorts {
    /// Read address of the card.
    #[input]
    #[params(p.inner())]
    pub inner_ar: Stream<AxiAr>,
    /// Read data to the card.
    #[output]
    #[params(p.inner())]
    pub inner_r: Stream<AxiR>,
    /// Write address of the card.
    #[input]
    #[params(p.inner())]
    pub inner_aw: Stream<AxiAw>,
    /// Write data of the card.
    #[input]
    #[params(p.inner())]
    pub inner_w: Stream<AxiW>,
    /// Write response to the card.
    #[output]
    #[params(p.inner())]
    pub inner_b: Stream<AxiB>,
    /// Read address at the port.
    #[output]
    #[params(p.outer())]
    pub outer_ar: Stream<AxiAr>,
    /// Read data at the port.
    #[input]
    #[params(p.outer())]
    pub outer_r: Stream<AxiR>,
    /// Write address at the port.
    #[output]
    #[params(p.outer())]
    pub outer_aw: Stream<AxiAw>,
    /// Write data at the port.
    #[output]
    #[params(p.outer())]
    pub outer_w: Stream<AxiW>,
    /// Write response at the port.
    #[input]
    #[params(p.outer())]
    pub outer_b: Stream<AxiB>,
    /// No burst is in flight.
    #[output]
    #[bits(1)]
    pub quiet: Sig,
    /// With inputs held nothing would change.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block.
pub fn axi_id_map(m: &IdMap) -> Module {
    module(
        &m.name,
        "The boundary of an AXI4 port: maps ids, bounds the bursts in flight, registers what leaves.",
        m,
        |p: IdMapPorts| body(m, p),
    )
}

/// One direction: which port id a burst gets, and whose an answer is.
struct Ids {
    /// A burst may start.
    free: Sig,
    /// Its port id.
    outer: Sig,
    /// Whose the answer is.
    inner: Sig,
    /// Bursts are in flight.
    busy: Sig,
}

/// `starts`: the burst of `inner` starts now. `ends`: the burst of port id `outer` ends now.
#[hw]
fn ids(m: &IdMap, inner: Sig, repeats: Option<Sig>, starts: Sig, outer: Sig, ends: Sig) -> Ids {
    let port_bits = m.id_bits.max(1);
    let max = m.max_outstanding;
    let in_flight = reg(clog2(max as u64 + 1), 0);
    when(starts & !ends, || in_flight.set(in_flight + 1))
        .elsewhen(ends & !starts, || in_flight.set(in_flight - 1));
    assert("answers_have_a_burst", !ends | in_flight.any());
    let below_max = in_flight.lt(max);
    let busy = in_flight.any();
    let ids = if m.id_bits >= m.inner.id_bits {
        unused(outer);
        Ids {
            free: lit(1, 1),
            outer: inner.zext(port_bits),
            inner: outer.trunc(m.inner.id_bits),
            busy,
        }
    } else if m.id_bits > 1 && max <= 1 << m.id_bits {
        pooled(m, inner, repeats, starts, outer, ends)
    } else {
        in_order(m, inner, repeats, starts, outer, ends)
    };
    let free = ids.free & below_max;
    Ids { free, busy, ..ids }
}

/// A queue of own ids for port id 0, and a pool of the others.
#[hw]
fn pooled(m: &IdMap, inner: Sig, repeats: Option<Sig>, starts: Sig, outer: Sig, ends: Sig) -> Ids {
    let port_ids = 1u32 << m.id_bits;
    let reserved = repeats.is_some() as u32;
    let size = m.max_outstanding.min(port_ids - reserved).max(2);
    let bits = clog2(size as u64);
    let pool = id_pool("pool", size);
    let repeats = repeats.unwrap_or(lit(0, 1));
    let outer_number = outer.trunc(m.id_bits);
    let of_pool = if reserved == 1 {
        outer_number.any()
    } else {
        lit(1, 1)
    };
    let pool_id = (outer_number - reserved).trunc(bits);
    pool.take.ready.set(starts & !repeats);
    pool.put.set(ends & of_pool);
    pool.put_id.set(pool_id);
    let owners = Mem::new(size as u64, m.inner.id_bits).style(Style::Distributed);
    owners.write(starts & !repeats, pool.take.payload, inner);
    let pool_owner = owners.read_async(pool_id);
    let pool_outer = pool.take.payload.zext(m.id_bits) + reserved;
    if reserved == 0 {
        return Ids {
            free: pool.take.valid,
            outer: pool_outer,
            inner: pool_owner,
            busy: starts,
        };
    }
    let queue = fifo::<Sig>(
        "repeating",
        &m.inner.id_bits,
        (m.max_outstanding as u64).next_power_of_two().max(2),
    );
    queue.input.offer(starts & repeats, &inner);
    queue.output.ready.set(ends & !of_pool);
    let free = repeats.mux(queue.input.ready, pool.take.valid);
    let outer_id = repeats.mux(lit(0, m.id_bits), pool_outer);
    let owner = of_pool.mux(pool_owner, queue.output.payload);
    Ids {
        free,
        outer: outer_id,
        inner: owner,
        busy: starts,
    }
}

/// A queue of own ids for every port id, which are taken in turn.
#[hw]
fn in_order(
    m: &IdMap,
    inner: Sig,
    repeats: Option<Sig>,
    starts: Sig,
    outer: Sig,
    ends: Sig,
) -> Ids {
    let port_ids = 1u64 << m.id_bits;
    let depth = (m.max_outstanding as u64)
        .div_ceil(port_ids)
        .next_power_of_two()
        .max(2);
    let queues = Mem::new(port_ids.max(1) * depth, m.inner.id_bits).style(Style::Distributed);
    let place_bits = clog2(depth);
    let port_bits = m.id_bits;
    // Heads, tails and counts of all queues side by side, a power of two apart so that one is an aligned part.
    let field = (place_bits + 1).next_power_of_two();
    let all = field * port_ids as u32;
    let heads = reg(all, 0);
    let tails = reg(all, 0);
    if port_bits == 0 {
        unused(outer);
        let head = heads.trunc(place_bits);
        let tail = tails.trunc(place_bits);
        queues.write(starts, tail, inner);
        when(starts, || tails.set(tails + 1));
        when(ends, || heads.set(heads + 1));
        return Ids {
            free: lit(1, 1),
            outer: lit(0, 1),
            inner: queues.read_async(head),
            busy: starts,
        };
    }
    let turn = reg(port_bits, 0);
    let repeats = repeats.unwrap_or(lit(0, 1));
    let chosen = repeats.mux(lit(0, port_bits), turn);
    when(starts & !repeats, || turn.set(turn + 1));
    let tail = tails.word(chosen, field);
    let full = (tail - heads.word(chosen, field))
        .trunc(place_bits + 1)
        .bit(place_bits);
    let from = outer.trunc(port_bits);
    let head = heads.word(from, field);
    queues.write(starts, cat(&[chosen, tail.trunc(place_bits)]), inner);
    when(starts, || tails.set_word(chosen, tail + 1));
    when(ends, || heads.set_word(from, head + 1));
    let owner = queues.read_async(cat(&[from, head.trunc(place_bits)]));
    Ids {
        free: !full,
        outer: chosen,
        inner: owner,
        busy: starts,
    }
}

#[hw]
fn body(m: &IdMap, p: IdMapPorts) {
    let outer = m.outer();

    comment("Reads.");
    let ar = fifo::<AxiAr>("ar", &outer, 2);
    let starts_read = wire(1);
    let r = p.outer_r.payload;
    let read = scope("read", || {
        ids(
            m,
            p.inner_ar.payload.id,
            None,
            starts_read,
            r.id,
            p.outer_r.fire() & r.last,
        )
    });
    let may_read = read.free & ar.input.ready;
    starts_read.set(p.inner_ar.valid & may_read);
    p.inner_ar.ready.set(may_read);
    ar.input.offer(
        starts_read,
        &AxiAr {
            id: read.outer,
            ..p.inner_ar.payload
        },
    );
    p.outer_ar.set(&ar.output);
    p.inner_r.offer(
        p.outer_r.valid,
        &AxiR {
            id: read.inner,
            ..r
        },
    );
    p.outer_r.ready.set(p.inner_r.ready);

    comment("Writes.");
    let aw = fifo::<AxiAw>("aw", &outer, 2);
    let starts_write = wire(1);
    let b = p.outer_b.payload;
    let aw_id = p.inner_aw.payload.id;
    let repeats = (m.repeating_from > 0).then(|| aw_id.ge(m.repeating_from));
    let write = scope("write", || {
        ids(m, aw_id, repeats, starts_write, b.id, p.outer_b.fire())
    });
    let may_write = write.free & aw.input.ready;
    starts_write.set(p.inner_aw.valid & may_write);
    p.inner_aw.ready.set(may_write);
    aw.input.offer(
        starts_write,
        &AxiAw {
            id: write.outer,
            ..p.inner_aw.payload
        },
    );
    p.outer_aw.set(&aw.output);
    p.inner_b.offer(
        p.outer_b.valid,
        &AxiB {
            id: write.inner,
            ..b
        },
    );
    p.outer_b.ready.set(p.inner_b.ready);

    comment(
        "Write data waits until its address is in the slice, but not for AWREADY: AXI forbids that.",
    );
    let w = fifo::<AxiW>("w", &outer, 2);
    w.input.set(&p.inner_w);
    let addressed = reg(clog2(m.max_outstanding as u64 + 1), 0);
    let burst_sent = p.outer_w.fire() & w.output.payload.last;
    when(starts_write & !burst_sent, || addressed.set(addressed + 1))
        .elsewhen(burst_sent & !starts_write, || addressed.set(addressed - 1));
    p.outer_w
        .offer(w.output.valid & addressed.any(), &w.output.payload);
    w.output.ready.set(p.outer_w.ready & addressed.any());

    p.quiet.set(!read.busy & !write.busy);
    comment("What has waited a cycle changes nothing until it is taken.");
    let rests = |waits: Sig, taken: Sig| !waits | (!taken & delay(waits & !taken));
    let all_rest = [
        rests(ar.output.valid, p.outer_ar.ready),
        rests(aw.output.valid, p.outer_aw.ready),
        rests(w.output.valid, w.output.ready),
    ];
    let comes = starts_read | starts_write | p.inner_w.fire();
    p.idle.set(all_of(&all_rest) & !comes);
}
