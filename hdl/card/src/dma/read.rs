//! `dma_read`: moves chunks from media to host, cut through.
//!
//! ```text
//!  chunk ──► ar (media, id = chunk number)
//!            r ──► lookup ──► realign ──► aw, w (host, kind DATA)
//!                                          b ──► ret {tag, fault}
//! ```
//!
//! Media answers chunks in any order but never mixes two bursts. The first beat of a burst asks for the host's write
//! address, so data and address leave together and bursts follow one another without a bubble. A chunk number is free again
//! after its B.
//!
//! **Invariants**: R of media does not interleave (asserted); every AW has its W beats behind it, in order. B is always
//! taken: there is room for one a chunk. R of media waits when the host's AW or W does: data cuts through.
//! **Latency**: chunk to AR 0, first R to AW 1, to W 2 cycles. **Rate**: a beat a cycle, across bursts too.

use super::fifo::{id_pool, waiting_room};
use super::realign::{RealignPorts, SourceBeat, realign};
use super::types::*;
use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// Ports of [`dma_read`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct DmaReadPorts {
    /// What to move.
    #[input]
    pub chunk: Stream<Chunk>,
    /// Media read address.
    #[output]
    #[params(p.media_axi())]
    pub ar: Stream<AxiAr>,
    /// Media read data; bursts never interleave.
    #[input]
    #[params(p.media_axi())]
    pub r: Stream<AxiR>,
    /// Host write address.
    #[output]
    #[params(p.host_axi())]
    pub aw: Stream<AxiAw>,
    /// Host write data.
    #[output]
    #[params(p.host_axi())]
    pub w: Stream<AxiW>,
    /// Host write response of kind DATA.
    #[input]
    #[params(p.host_axi())]
    pub b: Stream<AxiB>,
    /// A chunk has ended.
    #[output]
    pub ret: Stream<Return>,
    /// With it: its LUN.
    #[output]
    #[bits(p.lun_bits())]
    pub ret_lun: Sig,
    /// Nothing to do but wait for host or media.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// What a chunk in flight needs when its data comes.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
struct Flight {
    #[bits(HOST_BITS)]
    host: Sig,
    plan: Plan,
}

/// Builds the block.
pub fn dma_read(c: &CardConfig) -> Module {
    let realign = realign(c);
    module(
        "dma_read",
        "Moves chunks from media to host, cut through.",
        c,
        |p: DmaReadPorts| body(c, p, &realign),
    )
}

#[hw]
fn body(c: &CardConfig, p: DmaReadPorts, realign: &Module) {
    let id_bits = c.read_chunk_bits();
    let n = c.read_chunks as u64;
    let flights = Mem::new(n, Flight::width_of(c)).style(Style::Distributed);
    let owners = Mem::new(n, Owner::width_of(c)).style(Style::Distributed);
    let faults = Mem::new(n, 1).style(Style::Distributed);

    comment("Ask media for a chunk.");
    let free = id_pool("free", c.read_chunks);
    let chunk = p.chunk.payload;
    let host_lane = chunk.host.trunc(c.lane_bits());
    let media_lane = chunk.media.trunc(c.lane_bits());
    p.ar.valid.set(p.chunk.valid & free.take.valid);
    p.ar.payload.id.set(free.take.payload.zext(c.chunk_bits()));
    p.ar.payload
        .addr
        .set(cat(&[chunk.media, lit(0, 2)]).zext(64));
    p.ar.payload.len.set(burst_len(c, media_lane, chunk.len));
    p.chunk.ready.set(p.ar.ready & free.take.valid);
    free.take.ready.set(p.ar.ready & p.chunk.valid);
    let asked = p.ar.fire();
    let flight = Flight {
        host: chunk.host,
        plan: plan(c, media_lane, host_lane, chunk.len),
    };
    flights.write(asked, free.take.payload, flight.pack());
    let owner = Owner {
        tag: chunk.tag,
        lun: chunk.lun,
    };
    owners.write(asked, free.take.payload, owner.pack());

    comment("Media data: look its chunk up.");
    let align = instance::<RealignPorts>("u_align", realign, c);
    let r = p.r.payload;
    unused(r.resp.bit(0));
    let beat_valid = reg(1, 0);
    let beat = SourceBeat::reg_nr(c);
    let beat_id = reg_nr(id_bits);
    let beat_host = reg_nr(HOST_BITS);
    let beat_fault = reg_nr(1);
    let inside = reg(1, 0);
    let address_sent = reg(1, 0);
    let address_ok = !beat.first | address_sent | p.aw.ready;
    let moves = beat_valid & address_ok & align.input.ready;
    let takes = !beat_valid | moves;
    p.r.ready.set(takes);
    let arrived = Flight::unpack(c, flights.read_async(r.id.trunc(id_bits)));
    when(takes, || beat_valid.set(p.r.valid));
    when(p.r.fire(), || {
        beat.set(&SourceBeat {
            data: r.data,
            first: !inside,
            last: r.last,
            plan: arrived.plan,
        });
        beat_id.set(r.id.trunc(id_bits));
        beat_host.set(arrived.host);
        beat_fault.set(r.resp.bit(1) | (inside & beat_fault));
        inside.set(!r.last);
    });
    if c.chunk_bits() > id_bits {
        unused(r.id.hi(c.chunk_bits() - id_bits));
    }
    assert(
        "media_bursts_do_not_interleave",
        !(p.r.valid & inside) | r.id.trunc(id_bits).eq(beat_id),
    );

    comment("The first beat sends the address, at once or while it waits for realign.");
    p.aw.valid.set(beat_valid & beat.first & !address_sent);
    p.aw.payload
        .id
        .set(cat(&[WriteKind::Data.lit(), beat_id.zext(c.chunk_bits())]));
    p.aw.payload.addr.set(cat(&[beat_host, lit(0, 2)]));
    p.aw.payload.len.set(beat.plan.len);
    address_sent.set((address_sent | p.aw.fire()) & !moves);
    align.input.valid.set(beat_valid & address_ok);
    align.input.payload.set(&beat);
    p.w.set(&align.output);
    faults.write(moves & beat.last, beat_id, beat_fault);

    comment("The host's answer ends the chunk.");
    let b = waiting_room("b", &c.host_axi(), c.read_chunks, &p.b);
    let ended = b.payload.id.trunc(id_bits);
    unused(b.payload.id.hi(b.payload.id.width() - id_bits));
    unused(b.payload.resp.bit(0));
    p.ret.valid.set(b.valid);
    let whose = Owner::unpack(c, owners.read_async(ended));
    p.ret.payload.tag.set(whose.tag);
    p.ret_lun.set(whose.lun);
    let failed = b.payload.resp.bit(1) | faults.read_async(ended);
    p.ret
        .payload
        .fault
        .set(failed.mux(Fault::Transfer.lit(), Fault::None.lit()));
    b.ready.set(p.ret.ready);
    free.put.set(p.ret.fire());
    free.put_id.set(ended);

    p.idle
        .set(!p.chunk.fire() & !beat_valid & !b.valid & align.idle);
}
