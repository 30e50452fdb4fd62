//! `prp_list`: fetches PRP lists from host memory and holds them while their commands are cut into chunks (NVMe 1.4, 4.3).
//!
//! ```text
//!  request {buffer, work, list} ──►┌──────────┐──► ar   (host port, kind PRP)
//!                                  │ prp_list │◄── r    may interleave between buffers
//!  lookup {buffer, entry} ────────►│          │──► entry, bad offset   (same cycle)
//!                                  └──────────┘──► ready {work} or failed {work, fault}
//! ```
//!
//! A list that does not fit before the end of its page ends there with a pointer to the next page: then a second burst
//! follows the first. Both are kept one behind the other: the first ends at a beat's end and the second begins at a beat's
//! start. Entry n of the list is word `first word + n` of the buffer, counted from the start of the first beat, the chain
//! pointer among them.
//!
//! **Invariants**: at most one burst a buffer is outstanding; bursts stay inside a page; R is always taken.
//! **Latency**: request to AR 1 cycle, last R to `ready` 1 cycle.

use super::fifo::{fifo, id_pool, round_robin};
use super::types::*;
use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// Most entries of a list: 128 KiB at an offset, less the page of PRP1.
pub const MAX_ENTRIES: u32 = 32;
/// Bits that count list entries.
pub const ENTRIES_BITS: u32 = 6;

/// 8-byte words of a beat.
fn words(c: &CardConfig) -> u32 {
    c.data_bits / 64
}

/// Beats kept for one buffer: the entries, the chain pointer, and words in front of the first entry.
fn beats(c: &CardConfig) -> u32 {
    (MAX_ENTRIES + words(c))
        .div_ceil(words(c))
        .next_power_of_two()
}

/// Bits of a word's number inside a buffer.
pub fn word_bits(c: &CardConfig) -> u32 {
    clog2((beats(c) * words(c)) as u64)
}

/// A list to be fetched.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct ListRequest {
    /// Whose it is; `work.list` is the buffer, taken from `free`.
    pub work: Work,
    /// Address of the first entry in 8-byte words: PRP2 bits 63:3.
    #[bits(61)]
    pub addr: Sig,
    /// Entries wanted, 1 to 32, chain pointer not counted.
    #[bits(ENTRIES_BITS)]
    pub entries: Sig,
}

/// What the second burst needs.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
struct Context {
    work: Work,
    #[bits(1)]
    chained: Sig,
    /// Beats - 1 of the second burst.
    #[bits(8)]
    next_len: Sig,
}

/// A burst to ask for.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
struct Burst {
    #[bits(LIST_BITS)]
    buffer: Sig,
    #[bits(61)]
    addr: Sig,
    #[bits(8)]
    len: Sig,
}

/// A list that has come, or failed.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct ListResult {
    /// Whose it is.
    pub work: Work,
    /// [`Fault`].
    #[bits(2)]
    pub fault: Sig,
}

#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
struct Outcome {
    #[bits(LIST_BITS)]
    buffer: Sig,
    #[bits(2)]
    fault: Sig,
}

/// Ports of [`prp_list`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct PrpListPorts {
    /// A buffer that is free.
    #[output]
    #[bits(LIST_BITS)]
    pub free: Stream<Sig>,
    /// Fetch a list; a pulse, `free` was taken for it.
    #[input]
    #[bits(1)]
    pub request_valid: Sig,
    /// Which list.
    #[input]
    pub request: ListRequest,
    /// The buffer is needed no more; a pulse.
    #[input]
    #[bits(1)]
    pub release_valid: Sig,
    /// Which.
    #[input]
    #[bits(LIST_BITS)]
    pub release_list: Sig,
    /// Lists that came or failed.
    #[output]
    pub result: Stream<ListResult>,
    /// Look up in this buffer.
    #[input]
    #[bits(LIST_BITS)]
    pub lookup_list: Sig,
    /// This word.
    #[input]
    #[bits(word_bits(p))]
    pub lookup_word: Sig,
    /// Its page: bits 63:12.
    #[output]
    #[bits(52)]
    pub page: Sig,
    /// It has an offset, which it must not have.
    #[output]
    #[bits(1)]
    pub page_bad: Sig,
    /// Host read address.
    #[output]
    #[params(p.host_axi())]
    pub ar: Stream<AxiAr>,
    /// Host read data of kind PRP.
    #[input]
    #[params(p.host_axi())]
    pub r: Stream<AxiR>,
    /// Nothing to do but wait for the host.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block.
pub fn prp_list(c: &CardConfig) -> Module {
    module(
        "prp_list",
        "Fetches PRP lists from host memory and holds them while their commands are cut into chunks.",
        c,
        |p: PrpListPorts| body(c, p),
    )
}

/// Beats - 1 that hold `entries` (at least 1) from word `first` on.
fn list_len(c: &CardConfig, first: Sig, entries: Sig) -> Sig {
    let w = ENTRIES_BITS + 1;
    let last = first.zext(w) + entries.zext(w) - 1;
    let beat = words(c).trailing_zeros();
    last.bits(beat, w - beat).zext(8)
}

#[hw]
fn body(c: &CardConfig, p: PrpListPorts) {
    let word = words(c).trailing_zeros();
    let beat_bits = clog2(beats(c) as u64);

    let pool = id_pool("buffers", LIST_BUFFERS);
    pool.put.set(p.release_valid);
    pool.put_id.set(p.release_list);
    p.free.set(&pool.take);

    comment("The first burst ends with the list or with its page, whichever comes first.");
    let request = p.request;
    let room = lit(512, 10) - request.addr.trunc(9).zext(10);
    let chained = request.entries.zext(10).gt(room);
    let short_room = room.trunc(ENTRIES_BITS);
    let first_entries = chained.mux(short_room, request.entries);
    let first_burst = Burst {
        buffer: request.work.list,
        addr: request.addr,
        len: list_len(c, request.addr.trunc(word), first_entries),
    };
    let next_entries = request.entries - short_room + 1;
    let context = Context {
        work: request.work,
        chained,
        next_len: list_len(c, lit(0, 1), next_entries),
    };
    let contexts = Mem::new(LIST_BUFFERS as u64, Context::width_of(c)).style(Style::Distributed);
    contexts.write(p.request_valid, request.work.list, context.pack());

    let first_bursts = fifo::<Burst>("first_bursts", c, LIST_BUFFERS as u64);
    first_bursts.input.offer(p.request_valid, &first_burst);
    let next_bursts = fifo::<Burst>("next_bursts", c, LIST_BUFFERS as u64);
    let offered = cat(&[next_bursts.output.valid, first_bursts.output.valid]);
    let next = round_robin("bursts", offered, p.ar.ready).bit(1);
    let burst = Burst::choose(
        next,
        &next_bursts.output.payload,
        &first_bursts.output.payload,
    );
    p.ar.valid.set(offered.any());
    p.ar.payload.id.set(cat(&[
        ReadKind::Prp.lit(),
        burst.buffer.zext(c.chunk_bits()),
    ]));
    p.ar.payload.addr.set(cat(&[burst.addr, lit(0, 3)]));
    p.ar.payload.len.set(burst.len);
    next_bursts.output.ready.set(p.ar.ready & next);
    first_bursts.output.ready.set(p.ar.ready & !next);
    assert(
        "first_burst_fits",
        !p.request_valid | first_bursts.input.ready,
    );

    comment("Host data: 52 page bits and a flag are kept of each word.");
    let r = p.r.payload;
    let got = p.r.fire();
    p.r.ready.set(1);
    unused(r.id.hi(2));
    unused(r.resp.bit(0));
    let buffer = r.id.trunc(LIST_BITS);
    if c.chunk_bits() > LIST_BITS {
        unused(r.id.bits(LIST_BITS, c.chunk_bits() - LIST_BITS));
    }
    let started = reg(LIST_BUFFERS, 0);
    let second = reg(LIST_BUFFERS, 0);
    let failed = reg(LIST_BUFFERS, 0);
    let beat_counts = Mem::new(LIST_BUFFERS as u64, beat_bits).style(Style::Distributed);
    let beat = started
        .index(buffer)
        .mux(beat_counts.read_async(buffer), lit(0, beat_bits));
    beat_counts.write(got, buffer, beat + 1);
    let kept: Vec<Sig> = r
        .data
        .chunks(64)
        .iter()
        .rev()
        .map(|x| cat(&[x.trunc(12).any(), x.hi(52)]))
        .collect();
    let store = Mem::new((LIST_BUFFERS * beats(c)) as u64, 53 * words(c)).style(Style::Distributed);
    store.write(got, cat(&[buffer, beat]), cat(&kept));

    let its = Context::unpack(c, contexts.read_async(buffer));
    unused(its.work);
    let any_failed = failed.index(buffer) | r.resp.bit(1);
    let pointer = r.data.hi(64);
    let follow = its.chained & !second.index(buffer) & !any_failed;
    let pointer_bad = follow & pointer.trunc(12).any();
    let ends = got & r.last;
    let goes_on = ends & follow & !pointer_bad;
    when(got, || {
        started.set_index(buffer, 1);
        failed.set_index(buffer, any_failed);
    });
    next_bursts.input.offer(
        goes_on,
        &Burst {
            buffer,
            addr: cat(&[pointer.hi(52), lit(0, 9)]),
            len: its.next_len,
        },
    );
    assert("next_burst_fits", !goes_on | next_bursts.input.ready);
    let outcomes = fifo::<Outcome>("outcomes", c, LIST_BUFFERS as u64);
    let fault = any_failed.mux(
        Fault::Transfer.lit(),
        pointer_bad.mux(Fault::PrpOffset.lit(), Fault::None.lit()),
    );
    outcomes
        .input
        .offer(ends & !goes_on, &Outcome { buffer, fault });
    assert("outcome_fits", !ends | goes_on | outcomes.input.ready);
    when(goes_on, || second.set_index(buffer, 1)).elsewhen(ends, || {
        started.set_index(buffer, 0);
        second.set_index(buffer, 0);
        failed.set_index(buffer, 0);
    });

    let outcome = outcomes.output.payload;
    let whose = Context::unpack(c, contexts.read_async(outcome.buffer));
    unused(whose.chained);
    unused(whose.next_len);
    p.result.valid.set(outcomes.output.valid);
    p.result.payload.set(&ListResult {
        work: whose.work,
        fault: outcome.fault,
    });
    outcomes.output.ready.set(p.result.ready);

    let looked_up = store.read_async(cat(&[p.lookup_list, p.lookup_word.hi(beat_bits)]));
    let entry = mux_n(p.lookup_word.trunc(word), &looked_up.chunks(53));
    p.page.set(entry.trunc(52));
    p.page_bad.set(entry.bit(52));

    p.idle.set(!offered.any() & !outcomes.output.valid);
}
