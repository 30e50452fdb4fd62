//! `sq_fetch`: reads submission queue entries from host memory, in bursts, a queue after the other.
//!
//! ```text
//!  SQ tail doorbell ─►┌──────────┐──► ar, r ◄──    bursts of 1 to 8 entries         (host port, kind SQ)
//!  sq_set ───────────►│ sq_fetch │──► entry        {sq, slot, 64 bytes}             (decode)
//!  slot ─────────────►│          │◄── head_sq, head                                 (cq_post)
//!  release {sq} ─────►└──────────┘◄── query_sq, query_busy                          (admin)
//! ```
//!
//! `Pick ─► Look ─► Form ─► Pick`: a queue with work is picked round robin, its row is read, and one burst is issued: as many
//! entries as wait, but at most 8, not over the end of the ring or a 4 KiB boundary, and never more than the queue may still
//! hold. A queue holds at most [`CardConfig::entries`] commands, so it never takes another one's slots. Four bursts may be
//! outstanding (contexts); their data may interleave, each has a buffer. Entries go out in the order of issue.
//!
//! The admin queue holds no slot. It is fetched one entry at a time, while `admin_quiet`: an admin command that waits for
//! other commands must not have entries behind it that wait for it.
//!
//! `work` has a bit for each queue that may be able to go. It is set by a doorbell, by a release at the bound, and after a
//! burst that left entries behind; a pick that finds nothing only clears it. So a wake-up is never lost.
//!
//! An entry that cannot be read (SLVERR, DECERR) has no CID to complete: `fault` asks for CSTS.CFS, the entry is dropped.
//! While `discard`, nothing new is fetched and what arrives is dropped.
//!
//! **Invariants**: `head` never passes the tail; the head reported to the host covers only entries that have arrived; a
//! context is reused only after its last beat. At most every second cycle has a doorbell, and `sq_set` comes alone.
//!
//! **Latency**: doorbell to AR 3 cycles (5 when other queues have work); last beat of an entry to `entry` 2 cycles.
//! **Rate**: a burst every 3 cycles, an entry every cycle.

use crate::config::{CardConfig, index_bits};
use crate::find::{encode, lowest};
use crate::interfaces::*;
use weir_kit::*;

/// Bursts outstanding.
const CONTEXTS: u32 = 4;
/// Entries of a burst at most.
const BURST: u32 = 8;
/// Width of a number of entries, 0 to [`BURST`].
const BURST_BITS: u32 = 4;
/// Cards of more queues, the admin queue among them, are built without the counts of a proof.
const MOST_QUEUES: u32 = 5;
/// Entries in 4 KiB.
const PAGE: u32 = 64;

/// Ports of [`sq_fetch`].
#[derive(Clone, Bundle)]
#[bundle(params = CardConfig)]
pub struct SqFetchPorts {
    /// Fetch nothing new, drop what arrives.
    #[input]
    #[bits(1)]
    pub discard: Sig,
    /// Pulse, while `quiet`: no queue exists, pointers and counts are 0.
    #[input]
    #[bits(1)]
    pub clear: Sig,
    /// Tables are being swept.
    #[output]
    #[bits(1)]
    pub clearing: Sig,
    /// Creation and deletion of SQs.
    #[input]
    pub sq_set: SqSet,
    /// Doorbell writes (those of CQs are not for us).
    #[input]
    pub doorbell: Doorbell,
    /// Pulse: an SQ tail doorbell that its ring does not have.
    #[output]
    #[bits(1)]
    pub doorbell_bad_value: Sig,
    /// Pulse: a tail doorbell of an SQ that does not exist.
    #[output]
    #[bits(1)]
    pub doorbell_bad_register: Sig,
    /// Admin has no command, and none is between here and there.
    #[input]
    #[bits(1)]
    pub admin_quiet: Sig,
    /// Free slots.
    #[input]
    #[bits(p.slot_bits())]
    pub slot: Stream<Sig>,
    /// Pulse: a slot was freed.
    #[input]
    #[bits(1)]
    pub release_valid: Sig,
    /// The I/O queue that held it.
    #[input]
    #[bits(p.queue_bits())]
    pub release_sq: Sig,
    /// Read address.
    #[output]
    #[params(&p.host_axi())]
    pub ar: Stream<AxiAr>,
    /// Read data of kind SQ; always taken.
    #[input]
    #[bits(1)]
    pub r_valid: Sig,
    /// One beat.
    #[input]
    #[params(&p.host_axi())]
    pub r: AxiR,
    /// Fetched entries.
    #[output]
    pub entry: Stream<Entry>,
    /// Pulse: an entry could not be read.
    #[output]
    #[bits(1)]
    pub fault: Sig,
    /// Queue whose head is asked for.
    #[input]
    #[bits(p.queue_bits())]
    pub head_sq: Sig,
    /// Its head, the same cycle: entries up to there have arrived.
    #[output]
    #[bits(RING_BITS)]
    pub head: Sig,
    /// Queue that admin asks about.
    #[input]
    #[bits(p.queue_bits())]
    pub query_sq: Sig,
    /// It holds slots, or entries of it are being fetched; the same cycle.
    #[output]
    #[bits(1)]
    pub query_busy: Sig,
    /// An entry of the admin queue is being fetched, from the cycle after it was picked until it has left.
    #[output]
    #[bits(1)]
    pub admin_coming: Sig,
    /// No entry is being fetched or handed over.
    #[output]
    #[bits(1)]
    pub quiet: Sig,
    /// Nothing would change with the inputs held.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Where the issuing half is.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Picks a queue.
    Pick,
    /// Reads its row.
    Look,
    /// Forms the burst.
    Form,
}

/// Builds the block.
pub fn sq_fetch(c: &CardConfig) -> Module {
    module(
        "sq_fetch",
        "Reads submission queue entries from host memory, in bursts.",
        c,
        |p: SqFetchPorts| body(c, p),
    )
}

/// One burst under way.
#[derive(Clone, Copy, Bundle)]
#[bundle(params = CardConfig)]
struct Context {
    /// It is.
    #[bits(1)]
    used: Sig,
    /// Its queue.
    #[bits(p.queue_bits())]
    sq: Sig,
    /// Its entries.
    #[bits(BURST_BITS)]
    entries: Sig,
    /// Beats that have arrived.
    #[bits(beat_bits(p))]
    beats: Sig,
    /// One of them was an error.
    #[bits(1)]
    bad: Sig,
}

/// Beats of an entry.
fn entry_beats(c: &CardConfig) -> u32 {
    512 / c.data_bits
}

/// Width of a number of beats of a burst.
fn beat_bits(c: &CardConfig) -> u32 {
    BURST_BITS + entry_beats(c).trailing_zeros()
}

/// The lesser of `x` and [`BURST`].
fn clamp(x: Sig) -> Sig {
    let low = x.resize(BURST_BITS);
    if x.width() < BURST_BITS {
        low
    } else {
        x.ge(BURST).mux(BURST, low)
    }
}

/// The lesser of two numbers.
fn min(a: Sig, b: Sig) -> Sig {
    a.lt(b).mux(a, b)
}

#[hw]
fn body(c: &CardConfig, p: SqFetchPorts) {
    let q = c.queue_bits();
    let queues = c.queues + 1;
    let room_bits = index_bits(c.entries) + 1;
    let table = |width: u32| Mem::new(queues.into(), width).style(Style::Distributed);

    // One row a queue. Each table has one writer and what creates or sweeps.
    let base_table = table(64 - 12);
    let size_table = table(RING_BITS);
    let tail_table = table(RING_BITS);
    let head_table = table(RING_BITS);
    comment("Head as the host may know it: entries up to there have arrived.");
    let done_table = table(RING_BITS);
    comment(
        "Entries asked for, and slots released, both modulo; what the queue holds is the difference.",
    );
    let asked_table = table(room_bits);
    let released_table = table(room_bits);
    let enabled = reg(queues, 0);
    let work = reg(queues, 0);
    comment("The admin queue's one entry is being fetched.");
    let admin_out = reg(1, 0);

    // The sweep.
    let sweeping = reg(1, 1);
    let sweep_row = reg(q, 0);
    let last_row = sweep_row.eq(queues - 1);
    when(sweeping, || {
        sweep_row.set(last_row.mux(0, sweep_row + 1));
        sweeping.set(!last_row);
    });
    p.clearing.set(sweeping);

    // Creation and deletion.
    let create = p.sq_set.valid & p.sq_set.enable;
    base_table.write(create, p.sq_set.sq, p.sq_set.base.hi(64 - 12));
    size_table.write(create, p.sq_set.sq, p.sq_set.size);
    when(p.sq_set.valid, || {
        enabled.set_index(p.sq_set.sq, p.sq_set.enable)
    });
    let zero_row = sweeping.mux(sweep_row, p.sq_set.sq);
    let zero = sweeping | create;

    // A tail doorbell; one that meets a creation waits for a cycle.
    let bell_new = p.doorbell.valid & !p.doorbell.is_cq;
    let held_valid = reg(1, 0);
    let held_queue = reg_nr(q);
    let held_value = reg_nr(16);
    let bell = (bell_new | held_valid) & !p.sq_set.valid;
    let bell_queue = held_valid.mux(held_queue, p.doorbell.queue);
    let bell_value = held_valid.mux(held_value, p.doorbell.value);
    held_valid.set(held_valid.mux(bell_new | p.sq_set.valid, bell_new & p.sq_set.valid));
    when(bell_new, || {
        held_queue.set(p.doorbell.queue);
        held_value.set(p.doorbell.value);
    });
    let bell_exists = enabled.index(bell_queue);
    let bell_fits = bell_value.le(size_table.read_async(bell_queue).zext(16));
    let bell_good = bell & bell_exists & bell_fits;
    tail_table.write(
        bell_good | zero,
        zero.mux(zero_row, bell_queue),
        zero.mux(0, bell_value.trunc(RING_BITS)),
    );
    p.doorbell_bad_value.set(bell & bell_exists & !bell_fits);
    p.doorbell_bad_register
        .set(bell & !bell_exists & enabled.bit(0));

    // Contexts.
    let context = |_| Context {
        used: reg(1, 0),
        sq: reg_nr(q),
        entries: reg_nr(BURST_BITS),
        beats: reg_nr(beat_bits(c)),
        bad: reg_nr(1),
    };
    let contexts: Vec<Context> = (0..CONTEXTS).map(context).collect();
    let alloc = reg(clog2(CONTEXTS.into()), 0);
    let chosen_context = |which: Sig| {
        let packed: Vec<Sig> = contexts.iter().map(|x| x.pack()).collect();
        Context::unpack(c, mux_n(which, &packed))
    };
    let context_free = !mux_n(alloc, &contexts.iter().map(|x| x.used).collect::<Vec<_>>());

    // Pick.
    let state = State::Pick.reg();
    let row = reg_nr(q);
    let round = reg(queues, 0);
    comment("In the cycle in which an admin entry leaves here, admin_quiet does not show it yet.");
    let admin_able = work.bit(0) & p.admin_quiet & !admin_out;
    let able = cat(&[work.hi(c.queues), admin_able]);
    let ahead = able & round;
    let choice = lowest(ahead.any().mux(ahead, able));
    let picking = state.is(State::Pick) & context_free & !p.discard & !sweeping;
    let pick = picking & able.any();
    comment(
        "With nothing else to do, a doorbell is followed at once; an invalid one finds nothing.",
    );
    let follow = picking & able.none() & bell & bell_queue.any();
    when(pick, || {
        round.set(choice.above);
        row.set(encode(choice.onehot));
        state.set(State::Look);
    });
    when(follow, || {
        row.set(bell_queue);
        state.set(State::Look);
    });

    // Look.
    let tail = tail_table.read_async(row);
    let head = head_table.read_async(row);
    let size = size_table.read_async(row);
    let asked = asked_table.read_async(row);
    let held = asked - released_table.read_async(row);
    let is_admin = row.none();
    let burst_page = reg_nr(52);
    let burst_head = reg_nr(RING_BITS);
    let burst_asked = reg_nr(room_bits);
    comment("The tail is behind: the burst may go up to the end of the ring.");
    let wrapped = reg_nr(1);
    let to_tail = reg_nr(RING_BITS + 1);
    let to_page = reg_nr(7);
    let room = reg_nr(room_bits);
    let live = reg_nr(1);
    when(state.is(State::Look), || {
        let behind = tail.lt(head);
        let ring = size.add_wide(1);
        burst_page.set(base_table.read_async(row) + head.hi(6).zext(52));
        burst_head.set(head);
        burst_asked.set(asked);
        wrapped.set(behind);
        to_tail.set(behind.mux(ring, tail.zext(RING_BITS + 1)) - head.zext(RING_BITS + 1));
        to_page.set(lit(PAGE.into(), 7) - head.trunc(6).zext(7));
        room.set(is_admin.mux(
            (!admin_out).zext(room_bits),
            lit(c.entries.into(), room_bits) - held,
        ));
        live.set(enabled.index(row) & tail.ne(head));
        state.set(State::Form);
    });

    // Form.
    let ar_valid = reg(1, 0);
    let ar_addr = reg_nr(64);
    let ar_len = reg_nr(8);
    let ar_context = reg_nr(alloc.width());
    let entries = min(min(clamp(to_tail), clamp(to_page)), clamp(room));
    let forming = state.is(State::Form);
    // The queue may have been deleted since; one that was created since has another row.
    let nothing = !live | !enabled.index(row) | entries.none();
    let issue = forming & !nothing & !p.sq_set.valid & (!ar_valid | p.ar.ready);
    let takes_all = entries.zext(RING_BITS + 1).eq(to_tail);
    let left = issue & (wrapped | !takes_all);
    let next_head = (wrapped & takes_all).mux(0, burst_head + entries.zext(RING_BITS));
    when((forming & nothing) | issue, || state.set(State::Pick));
    when(p.ar.ready, || ar_valid.set(0));
    when(issue, || {
        ar_valid.set(1);
        ar_addr.set(cat(&[burst_page, burst_head.trunc(6), lit(0, 6)]));
        let beats = entries.zext(8) << entry_beats(c).trailing_zeros();
        ar_len.set(beats - 1);
        ar_context.set(alloc);
        alloc.set(alloc + 1);
    });
    head_table.write(
        issue | zero,
        zero.mux(zero_row, row),
        zero.mux(0, next_head),
    );
    let asked_write = issue & !is_admin;
    asked_table.write(
        asked_write | sweeping,
        sweeping.mux(sweep_row, row),
        sweeping.mux(0, burst_asked + entries.resize(room_bits)),
    );
    let kind = cat(&[ReadKind::Sq.lit(), ar_context.zext(c.chunk_bits())]);
    p.ar.offer(
        ar_valid,
        &AxiAr {
            id: kind,
            addr: ar_addr,
            len: ar_len,
        },
    );

    // Data: each beat into its context's buffer, one bank for each beat of an entry.
    let r_context = p.r.id.trunc(alloc.width());
    let r_row = chosen_context(r_context);
    let place = r_row.beats;
    let entry_shift = entry_beats(c).trailing_zeros();
    let buffer_row = cat(&[r_context, place.bits(entry_shift, 3)]);
    for (i, x) in contexts.iter().enumerate() {
        when(p.r_valid & r_context.eq(i), || {
            x.beats.set(x.beats + 1);
            when(p.r.resp.bit(1), || x.bad.set(1));
        });
        when(issue & alloc.eq(i), || {
            x.used.set(1);
            x.sq.set(row);
            x.entries.set(entries);
            x.beats.set(0);
            x.bad.set(0);
        });
    }
    p.fault.set(p.r_valid & p.r.resp.bit(1));
    unused(p.r.id.hi(p.r.id.width() - alloc.width()));
    unused(p.r.resp.bit(0));

    // Drain, in the order of issue.
    let drain = reg(alloc.width(), 0);
    let taken = reg(BURST_BITS, 0);
    let oldest = chosen_context(drain);
    let out_valid = reg(1, 0);
    let out_sq = reg_nr(q);
    let arrived = oldest.used & oldest.beats.bits(entry_shift, BURST_BITS).gt(taken);
    let out_free = !out_valid | p.entry.fire();
    let dropping = oldest.bad | p.discard;
    let drop = arrived & dropping & !p.release_valid & !p.sq_set.valid;
    let load = arrived & !dropping & out_free & !p.sq_set.valid;
    let take = load | drop;
    let entry_row = cat(&[drain, taken.trunc(3)]);
    let banks: Vec<Sig> = (0..entry_beats(c))
        .map(|i| {
            scope(&format!("bank_{i}"), || {
                let buffer = Mem::new((CONTEXTS * BURST).into(), c.data_bits);
                let here = if entry_shift == 0 {
                    p.r_valid
                } else {
                    p.r_valid & place.trunc(entry_shift).eq(i)
                };
                buffer.write(here, buffer_row, p.r.data);
                let data = buffer.read(load, entry_row);
                data
            })
        })
        .collect();
    let out_data = cat(&banks.into_iter().rev().collect::<Vec<_>>());
    let last_taken = (taken + 1).eq(oldest.entries);
    when(out_free, || out_valid.set(load));
    when(load, || out_sq.set(oldest.sq));
    when(take, || taken.set(last_taken.mux(0, taken + 1)));
    when(take & last_taken, || drain.set(drain + 1));
    for (i, x) in contexts.iter().enumerate() {
        when(take & last_taken & drain.eq(i), || x.used.set(0));
    }
    let done = done_table.read_async(oldest.sq);
    let done_last = done.eq(size_table.read_async(oldest.sq));
    done_table.write(
        take | zero,
        zero.mux(zero_row, oldest.sq),
        zero.mux(0, done_last.mux(0, done + 1)),
    );

    // Out: an I/O entry takes a slot as it goes.
    let out_admin = out_sq.none();
    let out_slot = p.slot.payload & (!out_admin).repeat(c.slot_bits());
    p.entry.offer(
        out_valid & (out_admin | p.slot.valid),
        &Entry {
            sq: out_sq,
            slot: out_slot,
            data: out_data,
        },
    );
    p.slot.ready.set(out_valid & !out_admin & p.entry.ready);

    // Releases: of slots, and of entries dropped without one.
    let drop_io = drop & oldest.sq.any();
    let release = p.release_valid | drop_io;
    let release_sq = p.release_valid.mux(p.release_sq, oldest.sq);
    let released = released_table.read_async(release_sq);
    let at_bound = (asked_table.read_async(release_sq) - released).eq(c.entries);
    released_table.write(
        release | sweeping,
        sweeping.mux(sweep_row, release_sq),
        sweeping.mux(0, released + 1),
    );
    let admin_done = (p.entry.fire() & out_admin) | (drop & oldest.sq.none());
    when(issue & is_admin, || admin_out.set(1));
    when(admin_done, || admin_out.set(0));

    let gate = |bit: Sig, row: Sig| onehot(row, queues) & bit.repeat(queues);
    let woken = gate(bell_good & !follow, bell_queue)
        | gate(left, row)
        | gate(release & at_bound, release_sq)
        | admin_done.zext(queues);
    work.set((work & !(choice.onehot & pick.repeat(queues))) | woken);

    // Answers.
    p.head.set(done_table.read_async(p.head_sq));
    p.query_busy.set(
        asked_table
            .read_async(p.query_sq)
            .ne(released_table.read_async(p.query_sq)),
    );
    p.admin_coming
        .set(admin_out | (state.ne(State::Pick) & is_admin));
    let used = any_of(&contexts.iter().map(|x| x.used).collect::<Vec<_>>());
    p.quiet
        .set(!used & !out_valid & !ar_valid & state.is(State::Pick));
    p.idle.set(
        !(sweeping
            | held_valid
            | state.ne(State::Pick)
            | (picking & able.any())
            | ar_valid
            | arrived
            | out_valid),
    );
    unused(p.sq_set.base.trunc(12));
    unused(p.sq_set.cq);

    when(p.clear, || {
        sweeping.set(1);
        enabled.set(0);
        work.set(0);
        held_valid.set(0);
    });

    assume(
        "doorbells_leave_room",
        !(bell_new & held_valid & p.sq_set.valid),
    );
    assume(
        "beats_were_asked_for",
        !p.r_valid | (r_row.used & place.lt(r_row.entries.zext(beat_bits(c)) << entry_shift)),
    );
    let burst_end = (place + 1).eq(r_row.entries.zext(beat_bits(c)) << entry_shift);
    assume("last_is_the_last", !p.r_valid | p.r.last.eq(burst_end));
    formal(|| {
        // A slot on offer stays while an entry waits for it.
        let waited = past_valid() & past(p.slot.stalled() & out_valid);
        let same = p.slot.valid & past(p.slot.payload).eq(p.slot.payload);
        assume("slot_stable", !waited | same);
    });
    assume("clear_only_while_quiet", !p.clear | p.quiet);
    let known = |valid: Sig, queue: Sig| !valid | queue.zext(q + 1).lt(queues);
    assume(
        "queues_exist",
        known(p.release_valid, p.release_sq)
            & known(p.sq_set.valid, p.sq_set.sq)
            & known(p.doorbell.valid, p.doorbell.queue),
    );
    // A release is of a slot that went out; larger cards are built without these counts.
    if queues <= MOST_QUEUES {
        formal(|| {
            for i in 1..queues {
                let goes = p.entry.fire() & out_sq.eq(i);
                let comes = p.release_valid & p.release_sq.eq(i);
                let outside = reg(room_bits, 0);
                outside.set(outside + goes.zext(room_bits) - comes.zext(room_bits));
                when(p.clear, || outside.set(0));
                assume(
                    &format!("a_release_is_of_a_held_slot_{i}"),
                    !comes | outside.any(),
                );
            }
        });
    }
    assume(
        "no_slot_is_the_admin_queues",
        !p.release_valid | p.release_sq.any(),
    );
    assume("clear_only_while_quiet", !p.clear | p.quiet);
    let known = |valid: Sig, queue: Sig| !valid | queue.zext(q + 1).lt(queues);
    assume(
        "queues_exist",
        known(p.release_valid, p.release_sq)
            & known(p.sq_set.valid, p.sq_set.sq)
            & known(p.doorbell.valid, p.doorbell.queue),
    );
    let released_all = asked_table
        .read_async(p.release_sq)
        .eq(released_table.read_async(p.release_sq));
    assume(
        "a_release_is_of_a_held_slot",
        !p.release_valid | (p.release_sq.any() & !released_all),
    );
    // What a burst's address and length say, and what a queue may hold.
    let first = ar_addr.bits(6, 6).zext(8);
    let burst = (ar_len.zext(9) + 1) >> entry_shift;
    assert(
        "a_burst_stays_in_its_page",
        !ar_valid | (first + burst.trunc(8)).le(PAGE),
    );
    assert(
        "a_queue_holds_at_most_its_entries",
        !forming | (asked_table.read_async(row) - released_table.read_async(row)).le(c.entries),
    );
    p.entry.assert_stable("entry_stable");
    p.ar.assert_stable("ar_stable");
}
