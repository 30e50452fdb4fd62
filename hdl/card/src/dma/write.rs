//! `dma_write`: moves chunks from host to media, each buffered whole.
//!
//! ```text
//!  chunk ──► ar (host, kind DATA, index = chunk number)
//!            r ──► 4 KiB buffer a chunk ──► full ──► realign ──► aw, w (media)
//!                                                                 b ──► ret {tag, fault}
//! ```
//!
//! Host data may come mixed between chunks and with gaps; a chunk goes to media only when all of it is there, so a gap never
//! holds media's write channel. A chunk whose host read failed writes nothing.
//!
//! **Invariants**: a buffer is filled by one chunk at a time; host R and media B are always taken: there
//! is room for every chunk's.
//! **Latency**: chunk to AR 0, last R to AW 2, to W 3 cycles. **Rate**: a beat a cycle in and out, across bursts too.

use super::fifo::{fifo, id_pool, waiting_room};
use super::realign::{RealignPorts, SourceBeat, realign};
use super::types::*;
use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// Ports of [`dma_write`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct DmaWritePorts {
    /// What to move.
    #[input]
    pub chunk: Stream<Chunk>,
    /// Host read address.
    #[output]
    #[params(p.host_axi())]
    pub ar: Stream<AxiAr>,
    /// Host read data of kind DATA.
    #[input]
    #[params(p.host_axi())]
    pub r: Stream<AxiR>,
    /// Media write address.
    #[output]
    #[params(p.media_axi())]
    pub aw: Stream<AxiAw>,
    /// Media write data.
    #[output]
    #[params(p.media_axi())]
    pub w: Stream<AxiW>,
    /// Media write response.
    #[input]
    #[params(p.media_axi())]
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

/// What a chunk in flight needs when its data is there.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
struct Flight {
    #[bits(MEDIA_BITS)]
    media: Sig,
    plan: Plan,
}

/// A chunk whose host data has ended.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
struct Full {
    #[bits(p.write_chunk_bits())]
    id: Sig,
    /// Beats in the buffer - 1.
    #[bits(p.beat_bits())]
    last_beat: Sig,
    #[bits(1)]
    fault: Sig,
}

/// Builds the block.
pub fn dma_write(c: &CardConfig) -> Module {
    let realign = realign(c);
    module(
        "dma_write",
        "Moves chunks from host to media, each buffered whole.",
        c,
        |p: DmaWritePorts| body(c, p, &realign),
    )
}

#[hw]
fn body(c: &CardConfig, p: DmaWritePorts, realign: &Module) {
    let id_bits = c.write_chunk_bits();
    let n = c.write_chunks as u64;
    let beat_bits = c.beat_bits();
    let flights = Mem::new(n, Flight::width_of(c)).style(Style::Distributed);
    let owners = Mem::new(n, Owner::width_of(c)).style(Style::Distributed);

    comment("Ask the host for a chunk.");
    let free = id_pool("free", c.write_chunks);
    let chunk = p.chunk.payload;
    let host_lane = chunk.host.trunc(c.lane_bits());
    let media_lane = chunk.media.trunc(c.lane_bits());
    p.ar.valid.set(p.chunk.valid & free.take.valid);
    p.ar.payload.id.set(cat(&[
        ReadKind::Data.lit(),
        free.take.payload.zext(c.chunk_bits()),
    ]));
    p.ar.payload.addr.set(cat(&[chunk.host, lit(0, 2)]));
    p.ar.payload.len.set(burst_len(c, host_lane, chunk.len));
    p.chunk.ready.set(p.ar.ready & free.take.valid);
    free.take.ready.set(p.ar.ready & p.chunk.valid);
    let asked = p.ar.fire();
    let flight = Flight {
        media: chunk.media,
        plan: plan(c, host_lane, media_lane, chunk.len),
    };
    flights.write(asked, free.take.payload, flight.pack());
    let owner = Owner {
        tag: chunk.tag,
        lun: chunk.lun,
    };
    owners.write(asked, free.take.payload, owner.pack());

    comment("Host data goes into its chunk's buffer; bursts may interleave.");
    let r = p.r.payload;
    let r_id = r.id.trunc(id_bits);
    unused(r.id.hi(r.id.width() - id_bits));
    unused(r.resp.bit(0));
    p.r.ready.set(1);
    let got = p.r.fire();
    let started = reg(c.write_chunks, 0);
    let beat_counts = Mem::new(n, beat_bits).style(Style::Distributed);
    let faults = Mem::new(n, 1).style(Style::Distributed);
    let was_started = started.index(r_id);
    let beat = was_started.mux(beat_counts.read_async(r_id), lit(0, beat_bits));
    let fault = r.resp.bit(1) | (was_started & faults.read_async(r_id));
    beat_counts.write(got, r_id, beat + 1);
    faults.write(got, r_id, fault);
    when(got, || started.set_index(r_id, !r.last));
    let buffers = Mem::new(n << beat_bits, c.data_bits).style(Style::Block);
    buffers.write(got, cat(&[r_id, beat]), r.data);
    let full_queue = fifo::<Full>("full_queue", c, n);
    full_queue.input.offer(
        got & r.last,
        &Full {
            id: r_id,
            last_beat: beat,
            fault,
        },
    );
    assert("full_queue_has_room", full_queue.input.ready);

    comment("Read the oldest full buffer, beat after beat; the next one follows without a gap.");
    let align = instance::<RealignPorts>("u_align", realign, c);
    let full = full_queue.output.payload;
    let at = reg(beat_bits, 0);
    let beat_valid = reg(1, 0);
    let beat_first = reg_nr(1);
    let beat_last = reg_nr(1);
    let beat_id = reg_nr(id_bits);
    let beat_flight = Flight::reg_nr(c);
    let address_sent = reg(1, 0);
    let address_ok = !beat_first | address_sent | p.aw.ready;
    let moves = beat_valid & address_ok & align.input.ready;
    let drains = full_queue.output.valid & !full.fault & (!beat_valid | moves);
    let drained = at.eq(full.last_beat);
    let flight_out = Flight::unpack(c, flights.read_async(full.id));
    let data = buffers.read(drains, cat(&[full.id, at]));
    when(drains, || {
        at.set(drained.mux(lit(0, beat_bits), at + 1));
        beat_first.set(at.eq(0));
        beat_last.set(drained);
        beat_id.set(full.id);
        beat_flight.set(&flight_out);
    });
    beat_valid.set(drains | (beat_valid & !moves));

    comment("The first beat sends the address, at once or while it waits for realign.");
    p.aw.valid.set(beat_valid & beat_first & !address_sent);
    p.aw.payload.id.set(beat_id.zext(c.chunk_bits()));
    p.aw.payload
        .addr
        .set(cat(&[beat_flight.media, lit(0, 2)]).zext(64));
    p.aw.payload.len.set(beat_flight.plan.len);
    address_sent.set((address_sent | p.aw.fire()) & !moves);
    align.input.offer(
        beat_valid & address_ok,
        &SourceBeat {
            data,
            first: beat_first,
            last: beat_last,
            plan: beat_flight.plan,
        },
    );
    p.w.set(&align.output);

    comment("Media's answer ends the chunk; so does a failed host read.");
    let b = waiting_room("b", &c.media_axi(), c.write_chunks, &p.b);
    let b_id = b.payload.id.trunc(id_bits);
    if c.chunk_bits() > id_bits {
        unused(b.payload.id.hi(c.chunk_bits() - id_bits));
    }
    unused(b.payload.resp.bit(0));
    let drop_it = full_queue.output.valid & full.fault & !b.valid;
    let ended = b.valid.mux(b_id, full.id);
    let failed = !b.valid | b.payload.resp.bit(1);
    p.ret.valid.set(b.valid | drop_it);
    let whose = Owner::unpack(c, owners.read_async(ended));
    p.ret.payload.tag.set(whose.tag);
    p.ret_lun.set(whose.lun);
    p.ret
        .payload
        .fault
        .set(failed.mux(Fault::Transfer.lit(), Fault::None.lit()));
    b.ready.set(p.ret.ready);
    free.put.set(p.ret.fire());
    free.put_id.set(ended);
    full_queue
        .output
        .ready
        .set((drains & drained) | (drop_it & p.ret.ready));

    p.idle
        .set(!p.chunk.fire() & !full_queue.output.valid & !beat_valid & !b.valid & align.idle);
}
