//! `dma_done`: counts each command's chunks and says when the last has ended.
//!
//! ```text
//!  exec ────────────► what was admitted, by tag ───────────────────────────┐
//!  issue ───────────►┌───────┐                                             ▼
//!  flush ───────────►│ count │──► commands that are over, by tag ──► done {exec, status}
//!  failed, ret ×2 ──►└───────┘
//! ```
//!
//! One event a cycle reads, changes and writes its tag's row: {chunks outstanding, all issued, fault}. A command is over when
//! all its chunks are issued and none is outstanding. The commands that are over wait in a queue as long as the tags are
//! many, so the events never stall for the engine.
//!
//! **Invariants**: `done` comes once a tag, after every B of its chunks. **Latency**: last event to `done` 2 cycles.
//! **Rate**: an event a cycle; a chunk is two events, a flush one.

use super::fifo::fifo;
use super::types::*;
use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// Bits that count a command's chunks: at most 33 host pages, each cut once more by media.
const COUNT_BITS: u32 = 7;
/// Data Transfer Error (NVMe 1.4, 4.6.1.2.1): may be retried.
const DATA_TRANSFER_ERROR: u32 = 0x04;
/// PRP Offset Invalid, with Do Not Retry.
const PRP_OFFSET_INVALID: u32 = 0x4013;

/// Ports of [`dma_done`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct DmaDonePorts {
    /// A command was admitted: remember it. A pulse.
    #[input]
    #[bits(1)]
    pub exec_valid: Sig,
    /// Which.
    #[input]
    pub exec: Exec,
    /// A chunk was made. A pulse, taken at once.
    #[input]
    pub issue: Issue,
    /// A Flush was admitted: it has no chunks.
    #[input]
    #[bits(p.tag_bits())]
    pub flush: Stream<Sig>,
    /// A command's list failed: no more chunks.
    #[input]
    pub failed: Stream<Return>,
    /// A chunk from media to host has ended.
    #[input]
    pub read_ret: Stream<Return>,
    /// A chunk from host to media has ended.
    #[input]
    pub write_ret: Stream<Return>,
    /// A command is over.
    #[output]
    pub done: Stream<Done>,
    /// Nothing to do but wait.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// A tag's row.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
struct Row {
    /// Chunks outstanding.
    #[bits(COUNT_BITS)]
    count: Sig,
    /// All chunks are issued.
    #[bits(1)]
    issued: Sig,
    /// [`Fault`].
    #[bits(2)]
    fault: Sig,
}

/// One event.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
struct Event {
    #[bits(p.tag_bits())]
    tag: Sig,
    #[bits(1)]
    first: Sig,
    #[bits(1)]
    more: Sig,
    #[bits(1)]
    less: Sig,
    #[bits(1)]
    last: Sig,
    #[bits(2)]
    fault: Sig,
}

/// Builds the block.
pub fn dma_done(c: &CardConfig) -> Module {
    module(
        "dma_done",
        "Counts each command's chunks and says when the last has ended.",
        c,
        |p: DmaDonePorts| body(c, p),
    )
}

#[hw]
fn body(c: &CardConfig, p: DmaDonePorts) {
    let execs = Mem::new(c.tags as u64, Exec::width_of(c)).style(Style::Distributed);
    execs.write(p.exec_valid, p.exec.tag, p.exec.pack());

    comment("Choose an event; an issue cannot wait.");
    let one = lit(1, 1);
    let zero = lit(0, 1);
    let issue = p.issue;
    let ended = |r: Return| Event {
        tag: r.tag,
        first: zero,
        more: zero,
        less: one,
        last: zero,
        fault: r.fault,
    };
    let list_failed = Event {
        less: zero,
        last: one,
        ..ended(p.failed.payload)
    };
    let flushed = Event {
        tag: p.flush.payload,
        first: one,
        more: zero,
        less: zero,
        last: one,
        fault: Fault::None.lit(),
    };
    let issued = Event {
        tag: issue.tag,
        first: issue.first,
        more: issue.chunk,
        less: zero,
        last: issue.last,
        fault: issue.fault,
    };
    let sources = [
        (issue.valid, issued),
        (p.read_ret.valid, ended(p.read_ret.payload)),
        (p.write_ret.valid, ended(p.write_ret.payload)),
        (p.failed.valid, list_failed),
        (p.flush.valid, flushed),
    ];
    let chosen = sources.iter().rev().fold(flushed, |rest, (valid, event)| {
        Event::choose(*valid, event, &rest)
    });
    let event_valid = reg(1, 0);
    let event = Event::reg_nr(c);
    let any = any_of(&sources.map(|s| s.0));
    event_valid.set(any);
    event.set(&chosen);
    p.read_ret.ready.set(!issue.valid);
    p.write_ret.ready.set(!(issue.valid | p.read_ret.valid));
    p.failed
        .ready
        .set(!(issue.valid | p.read_ret.valid | p.write_ret.valid));
    p.flush
        .ready
        .set(!(issue.valid | p.read_ret.valid | p.write_ret.valid | p.failed.valid));

    comment("Count it.");
    let rows = Mem::new(c.tags as u64, Row::width_of(c)).style(Style::Distributed);
    let stored = Row::unpack(c, rows.read_async(event.tag));
    let old = Row::choose(event.first, &Row::zero(c), &stored);
    let row = Row {
        count: old.count + event.more.zext(COUNT_BITS) - event.less.zext(COUNT_BITS),
        issued: old.issued | event.last,
        fault: old.fault.any().mux(old.fault, event.fault),
    };
    rows.write(event_valid, event.tag, row.pack());
    let over = event_valid & row.issued & row.count.eq(0);
    assert(
        "no_chunk_ends_twice",
        !event_valid | !event.less | old.count.ne(0),
    );

    let overs = fifo::<Return>("overs", c, c.tags as u64);
    overs.input.offer(
        over,
        &Return {
            tag: event.tag,
            fault: row.fault,
        },
    );
    assert("overs_have_room", overs.input.ready);
    let ended_one = overs.output.payload;
    p.done.valid.set(overs.output.valid);
    overs.output.ready.set(p.done.ready);
    p.done
        .payload
        .exec
        .set(&Exec::unpack(c, execs.read_async(ended_one.tag)));
    let transfer = ended_one.fault.is(Fault::Transfer);
    let offset = ended_one.fault.is(Fault::PrpOffset);
    let status = transfer.mux(
        lit(DATA_TRANSFER_ERROR as u128, STATUS_BITS),
        offset.mux(
            lit(PRP_OFFSET_INVALID as u128, STATUS_BITS),
            lit(0, STATUS_BITS),
        ),
    );
    p.done.payload.status.set(status);

    p.idle.set(!event_valid & !overs.output.valid & !any);
}
