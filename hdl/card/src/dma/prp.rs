//! `prp`: cuts executing commands into chunks, each inside one host page and one 4 KiB page of media.
//!
//! ```text
//!  exec ───────►┌─────────────────────────────────┐──► read_chunk
//!  cmd_write ──►│ pick ─► slot RAM ─► cut ─► emit │──► write_chunk
//!  list ar/r ◄─►│   ▲ next chunk, list came │     │──► issue (counts chunks)
//!               │   └───────────────────────┘     │──► failed (a list that could not be fetched)
//!               └─────────────────────────────────┘
//! ```
//!
//! A visit takes one command from its direction's [`pick`](super::pick), reads the slot RAM, and makes one chunk; a command
//! with more to move goes back. A command that needs a PRP list makes what PRP1 covers, then waits for its list out of the
//! way: in the list queue until a buffer is free, then in [`prp_list`](super::prp_list) until the list has come. A visit
//! starts only with room for its chunk, so the three stages never stall, and reads and writes never wait for each other.
//!
//! **Invariants**: a tag is in one place: a pick, the pipeline, the list queue or `prp_list`; chunks of a command come in
//! order, each 4 to 4096 bytes; `issue.first` opens and `issue.last` closes a command.
//! **Latency**: exec to chunk 4 cycles. **Rate**: a chunk every cycle, of one command every 4 cycles, of many LUNs in turn
//! every 3 cycles in each direction.

use super::fifo::{Fifo, fifo};
use super::pick::{PickPorts, WEIGHT_BITS, pick};
use super::prp_list::{ENTRIES_BITS, ListRequest, MAX_ENTRIES, PrpListPorts, prp_list, word_bits};
use super::types::*;
use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// Chunks that may wait for their port, in each direction; also the bound on visits in flight.
const CHUNK_QUEUE: u32 = 4;

/// Ports of [`prp`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct PrpPorts {
    /// Admitted commands: Read or Write only.
    #[input]
    pub exec: Stream<Exec>,
    /// Weight of its LUN.
    #[input]
    #[bits(WEIGHT_BITS)]
    pub exec_weight: Sig,
    /// Fairness rule over LUNs: [`Rule`].
    #[input]
    #[bits(Rule::WIDTH)]
    pub rule: Sig,
    /// Fills the slot RAM.
    #[input]
    pub cmd_write: CmdWrite,
    /// Host read address, kind PRP.
    #[output]
    #[params(p.host_axi())]
    pub list_ar: Stream<AxiAr>,
    /// Host read data, kind PRP.
    #[input]
    #[params(p.host_axi())]
    pub list_r: Stream<AxiR>,
    /// A chunk from media to host has ended; a pulse, never together with `issue`.
    #[input]
    #[bits(1)]
    pub read_ended: Sig,
    /// Its LUN.
    #[input]
    #[bits(p.lun_bits())]
    pub read_ended_lun: Sig,
    /// A chunk from host to media has ended; a pulse, never together with `issue`.
    #[input]
    #[bits(1)]
    pub write_ended: Sig,
    /// Its LUN.
    #[input]
    #[bits(p.lun_bits())]
    pub write_ended_lun: Sig,
    /// Chunks from media to host.
    #[output]
    pub read_chunk: Stream<Chunk>,
    /// Chunks from host to media.
    #[output]
    pub write_chunk: Stream<Chunk>,
    /// A chunk was made.
    #[output]
    pub issue: Issue,
    /// A command ended because its list could not be fetched.
    #[output]
    pub failed: Stream<Return>,
    /// Nothing to do but wait for the host.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// A visit that reads the slot RAM.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
struct Visit {
    work: Work,
    /// To fetch its list, not to make a chunk.
    #[bits(1)]
    for_list: Sig,
}

/// A visit with its command's sums.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
struct Cut {
    visit: Visit,
    /// Position in the host page, in dwords.
    #[bits(PAGE_BITS)]
    host_offset: Sig,
    /// Media address in dwords.
    #[bits(MEDIA_BITS)]
    media: Sig,
    /// Dwords left.
    #[bits(POSITION_BITS + 1)]
    left: Sig,
    /// Still in PRP1's page.
    #[bits(1)]
    in_first_page: Sig,
    /// Three pages or more.
    #[bits(1)]
    needs_list: Sig,
    /// Entries of the list.
    #[bits(ENTRIES_BITS)]
    entries: Sig,
    /// Word of the list that holds this page.
    #[bits(word_bits(p))]
    list_word: Sig,
    /// PRP1 bits 63:12.
    #[bits(52)]
    prp1_page: Sig,
    /// PRP2 bits 63:3.
    #[bits(61)]
    prp2: Sig,
}

/// Builds the block.
pub fn prp(c: &CardConfig) -> Module {
    let (pick_read, pick_write) = (pick(c, c.read_chunks), pick(c, c.write_chunks));
    let list = prp_list(c);
    module(
        "prp",
        "Cuts executing commands into chunks, each inside one host page and one 4 KiB page of media.",
        c,
        |p: PrpPorts| body(c, p, [&pick_read, &pick_write], &list),
    )
}

/// The chunk queue of one direction, and whether a visit may start: it then surely has room.
#[hw]
fn chunk_queue(
    c: &CardConfig,
    name: &str,
    starts: Sig,
    ends_without: Sig,
    out: &Stream<Chunk>,
) -> (Fifo<Chunk>, Sig) {
    let queue = fifo::<Chunk>(name, c, CHUNK_QUEUE as u64);
    out.valid.set(queue.output.valid);
    out.payload.set(&queue.output.payload);
    queue.output.ready.set(out.ready);
    scope(name, || {
        let room = reg(clog2(CHUNK_QUEUE as u64 + 1), CHUNK_QUEUE);
        let back = out.fire();
        let w = room.width();
        room.set(room + back.zext(w) + ends_without.zext(w) - starts.zext(w));
        let may_start = room.any();
        (queue, may_start)
    })
}

#[hw]
fn body(c: &CardConfig, p: PrpPorts, [pick_read, pick_write]: [&Module; 2], list_module: &Module) {
    let list = instance::<PrpListPorts>("u_list", list_module, c);
    let pick_read = instance::<PickPorts>("u_pick_read", pick_read, c);
    let pick_write = instance::<PickPorts>("u_pick_write", pick_write, c);
    let list_queue = fifo::<Sig>("list_queue", &c.tag_bits(), c.tags as u64);
    let works = Mem::new(c.tags as u64, Work::width_of(c)).style(Style::Distributed);
    let slots = Mem::new(c.slots() as u64, CmdInfo::width_of(c)).style(Style::Block);
    slots.write(p.cmd_write.valid, p.cmd_write.slot, p.cmd_write.info.pack());

    comment("Choose a visit: a list to fetch, else a read and a write in turn.");
    let starts_read = wire(1);
    let starts_write = wire(1);
    let ends_without = wire(1);
    let ends_write = wire(1);
    let (reads, read_room) = chunk_queue(
        c,
        "reads",
        starts_read,
        ends_without & !ends_write,
        &p.read_chunk,
    );
    let (writes, write_room) = chunk_queue(
        c,
        "writes",
        starts_write,
        ends_without & ends_write,
        &p.write_chunk,
    );
    let last_was_write = reg(1, 0);
    let can_read = pick_read.take.valid & read_room;
    let can_write = pick_write.take.valid & write_room;
    let go_list = list_queue.output.valid & list.free.valid;
    let go_read = !go_list & can_read & (last_was_write | !can_write);
    let go_write = !go_list & can_write & !(can_read & last_was_write);
    let starts = go_list | go_read | go_write;
    starts_read.set(go_read);
    starts_write.set(go_write);
    when(go_read | go_write, || last_was_write.set(go_write));
    list_queue.output.ready.set(list.free.valid);
    list.free.ready.set(list_queue.output.valid);
    pick_read.take.ready.set(go_read);
    pick_write.take.ready.set(go_write);
    let tag = go_list.mux(
        list_queue.output.payload,
        go_read.mux(pick_read.take.payload, pick_write.take.payload),
    );
    let chosen = Work::unpack(c, works.read_async(tag));
    let info = CmdInfo::unpack(c, slots.read(starts, chosen.slot));

    comment("Stage 1: the slot RAM gives the command.");
    let visit_valid = reg(1, 0);
    let visit = Visit::reg_nr(c);
    visit_valid.set(starts);
    visit.for_list.set(go_list);
    visit.work.set(&Work {
        list: go_list.mux(list.free.payload, chosen.list),
        ..chosen
    });
    unused(info.op);
    unused(info.prp1.trunc(2));
    unused(info.prp2.trunc(3));
    let w = POSITION_BITS + 2;
    let start = info.prp1.bits(2, PAGE_BITS).zext(w);
    let length = cat(&[info.blocks, lit(0, 7)]);
    let position = visit.work.position;
    let host_position = start + position.zext(w);
    let host_end = start + length.zext(w);
    let page = host_position.hi(w - PAGE_BITS);
    let pages_after_first = (host_end - 1).hi(w - PAGE_BITS).trunc(ENTRIES_BITS);
    let list_room = lit(512, 10) - info.prp2.bits(3, 9).zext(10);
    let entry = (page - 1).trunc(ENTRIES_BITS);
    let behind_chain =
        pages_after_first.zext(10).gt(list_room) & (entry + 1).zext(10).ge(list_room);
    let first_word = info.prp2.bits(3, (c.data_bits / 64).trailing_zeros());
    let list_word =
        first_word.zext(word_bits(c)) + entry.zext(word_bits(c)) + behind_chain.zext(word_bits(c));

    comment("Stage 2: cut at the end of the host page, of the media page or of the command.");
    let cut_valid = reg(1, 0);
    cut_valid.set(visit_valid);
    let cut = Cut::reg_nr(c);
    cut.set(&Cut {
        visit,
        host_offset: host_position.trunc(PAGE_BITS),
        media: cat(&[info.media_block, lit(0, 7)]) + position.zext(MEDIA_BITS),
        left: length - position.zext(POSITION_BITS + 1),
        in_first_page: page.eq(0),
        needs_list: pages_after_first.gt(1),
        entries: pages_after_first,
        list_word,
        prp1_page: info.prp1.hi(52),
        prp2: info.prp2.hi(61),
    });
    let work = cut.visit.work;
    let chunk_valid = cut_valid & !cut.visit.for_list;
    let to_host_end = !cut.host_offset;
    let to_media_end = !cut.media.trunc(PAGE_BITS);
    let to_page_end = to_host_end.lt(to_media_end).mux(to_host_end, to_media_end);
    let left_less_1 = cut.left - 1;
    let last = left_less_1.le(to_page_end.zext(POSITION_BITS + 1));
    let len = last.mux(left_less_1.trunc(PAGE_BITS), to_page_end);
    list.lookup_list.set(work.list);
    list.lookup_word.set(cut.list_word);
    let from_list = cut.needs_list & !cut.in_first_page;
    let bad = from_list & list.page_bad;
    let host_page = cut.in_first_page.mux(
        cut.prp1_page,
        cut.needs_list.mux(list.page, cut.prp2.hi(52)),
    );
    let chunk = Chunk {
        tag: work.tag,
        lun: work.lun,
        host: cat(&[host_page, cut.host_offset]),
        media: cut.media,
        len,
    };
    let emits = chunk_valid & !bad;
    reads.input.offer(emits & !work.write, &chunk);
    writes.input.offer(emits & work.write, &chunk);
    ends_without.set(chunk_valid & bad);
    ends_write.set(work.write);
    assert(
        "chunks_have_room",
        !emits | work.write.mux(writes.input.ready, reads.input.ready),
    );
    assert(
        "lists_are_there",
        !(chunk_valid & from_list) | work.has_list,
    );
    assert("lists_are_short", !cut_valid | cut.entries.le(MAX_ENTRIES));

    let over = last | bad;
    p.issue.valid.set(chunk_valid);
    p.issue.tag.set(work.tag);
    p.issue.first.set(work.position.eq(0));
    p.issue.chunk.set(!bad);
    p.issue.last.set(over);
    p.issue
        .fault
        .set(bad.mux(Fault::PrpOffset.lit(), Fault::None.lit()));

    comment("What has more to move goes back; what lacks its list waits for it elsewhere.");
    let moved = Work {
        position: work.position + len.zext(POSITION_BITS) + 1,
        ..work
    };
    let waits = cut.needs_list & !work.has_list;
    let again = chunk_valid & !over;
    list_queue.input.offer(again & waits, &work.tag);
    assert("list_queue_has_room", list_queue.input.ready);
    list.request_valid.set(cut_valid & cut.visit.for_list);
    list.request.set(&ListRequest {
        work,
        addr: cut.prp2,
        entries: cut.entries,
    });

    comment("Into a pick: a command that goes on, else one whose list has come, else a new one.");
    let result = list.result.payload;
    let list_ok = result.fault.is(Fault::None);
    let fresh = p.exec.payload;
    unused(fresh.sq);
    let new_work = Work {
        tag: fresh.tag,
        slot: fresh.slot,
        lun: fresh.lun,
        write: fresh.op.is(Op::Write),
        position: lit(0, POSITION_BITS),
        has_list: lit(0, 1),
        list: lit(0, LIST_BITS),
    };
    let take_result = list.result.valid & list_ok & !again;
    let take_new = p.exec.valid & !again & !(list.result.valid & list_ok);
    p.exec.ready.set(!again & !(list.result.valid & list_ok));
    let with_list = Work {
        has_list: lit(1, 1),
        ..result.work
    };
    let inserted = Work::choose(
        again,
        &moved,
        &Work::choose(take_result, &with_list, &new_work),
    );
    unused(result.work.has_list);
    let insert = (again & !waits) | take_result | take_new;
    works.write(
        again | take_result | take_new,
        inserted.tag,
        inserted.pack(),
    );
    let fails = chunk_valid & bad;
    for (pick, write, ended, ended_lun) in [
        (&pick_read, lit(0, 1), p.read_ended, p.read_ended_lun),
        (&pick_write, lit(1, 1), p.write_ended, p.write_ended_lun),
    ] {
        pick.rule.set(p.rule);
        pick.insert_valid.set(insert & inserted.write.eq(write));
        pick.insert_tag.set(inserted.tag);
        pick.insert_lun.set(inserted.lun);
        pick.insert_new.set(take_new);
        pick.insert_weight.set(p.exec_weight);
        pick.ended_valid.set(ended | (fails & work.write.eq(write)));
        pick.ended_lun.set(ended.mux(ended_lun, work.lun));
    }
    assert(
        "one_end_at_a_time",
        !(fails & (p.read_ended | p.write_ended)),
    );

    comment("A list that failed ends its command; a buffer whose command is over is free.");
    let over_with_list = chunk_valid & over & work.has_list;
    p.failed
        .valid
        .set(list.result.valid & !list_ok & !over_with_list);
    p.failed.payload.tag.set(result.work.tag);
    p.failed.payload.fault.set(result.fault);
    let take_failed = list.result.valid & !list_ok & p.failed.ready & !over_with_list;
    list.result.ready.set(take_result | take_failed);
    list.release_valid.set(over_with_list | take_failed);
    list.release_list
        .set(over_with_list.mux(work.list, result.work.list));

    p.list_ar.set(&list.ar);
    list.r.set(&p.list_r);
    let leaves = p.read_chunk.fire() | p.write_chunk.fire();
    let moves = starts | visit_valid | cut_valid | leaves | p.exec.fire() | list.result.fire();
    p.idle
        .set(!moves & list.idle & pick_read.idle & pick_write.idle);
}
