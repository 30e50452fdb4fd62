//! `cq_post`: writes completion queue entries from each CQ's own list (NVMe 1.4, 4.6).
//!
//! ```text
//!  cq_work {cq} ─────►┌─────────┐──► pop {cq} ◄── popped {slot, sq, cid, status, more}   (LUN engine)
//!  CQ head doorbell ─►│ cq_post │──► head_sq ◄── head                                    (sq_fetch)
//!  admin completion ─►│         │──► aw, w ◄── b    one burst of 1 to 4 entries          (host port, kind CQ)
//!  cq_set ───────────►└─────────┘──► slot_free, release, irq
//! ```
//!
//! A CQ is served when its list holds commands and its ring has room. As many entries as wait, up to the next 64-byte
//! boundary, go in one write; none is ever delayed for it. A line that is full is handed to the output stage, so that the
//! next CQ is served while it is written. A full CQ leaves the work set until its head doorbell: it holds up nobody.
//!
//! Flags a CQ: `waiting` (its list holds commands), `full` (no room when last looked), `queued` (in the work set, or
//! being served).
//!
//! **Invariants**: `waiting & !full => queued` (no lost wake-up: whatever makes a CQ able to go puts it there in the same
//! cycle); the tail never meets the head; entries of one CQ are written in the order they were popped, and the interrupt
//! follows the write response; at most `LINES` responses are outstanding.
//!
//! **Latency**: from `cq_work` to AW, CQ idle: work set 3, load 1, pop up to 5, compose 1 cycles.

use crate::bitmap::{BitmapConfig, BitmapPorts, bitmap};
use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// Lines (bursts of up to 4 entries) written and not yet answered, at most.
const LINES: u32 = 8;

/// Ports of [`cq_post`].
#[derive(Clone, Bundle)]
#[bundle(params = CardConfig)]
pub struct CqPostPorts {
    /// Drain in silence: pop and free, write nothing.
    #[input]
    #[bits(1)]
    pub discard: Sig,
    /// Pulse: tables back to their defaults.
    #[input]
    #[bits(1)]
    pub clear: Sig,
    /// Tables are being swept.
    #[output]
    #[bits(1)]
    pub clearing: Sig,
    /// Creation and deletion of CQs.
    #[input]
    pub cq_set: CqSet,
    /// Doorbell writes (those of SQs are not for us).
    #[input]
    pub doorbell: Doorbell,
    /// Pulse: a CQ head doorbell that its ring does not have, or of a CQ that does not exist.
    #[output]
    #[bits(1)]
    pub doorbell_bad_value: Sig,
    /// Pulse: as above, the CQ does not exist.
    #[output]
    #[bits(1)]
    pub doorbell_bad_register: Sig,
    /// Pulse: a command was appended to a CQ's list.
    #[input]
    #[bits(1)]
    pub cq_work_valid: Sig,
    /// Which CQ.
    #[input]
    #[bits(p.queue_bits())]
    pub cq_work_cq: Sig,
    /// Asks for the head of a CQ's list; held until `popped_valid`.
    #[output]
    #[bits(1)]
    pub pop_valid: Sig,
    /// Which CQ.
    #[output]
    #[bits(p.queue_bits())]
    pub pop_cq: Sig,
    /// Pulse: the answer.
    #[input]
    #[bits(1)]
    pub popped_valid: Sig,
    /// The command.
    #[input]
    pub popped: Popped,
    /// Completions of admin commands, for CQ 0.
    #[input]
    pub admin_cpl: Stream<AdminCpl>,
    /// Submission queue whose head is asked for.
    #[output]
    #[bits(p.queue_bits())]
    pub head_sq: Sig,
    /// Its head, the same cycle.
    #[input]
    #[bits(RING_BITS)]
    pub head: Sig,
    /// Pulse: a slot is free.
    #[output]
    #[bits(1)]
    pub slot_free_valid: Sig,
    /// Which; its queue is in `release_sq`.
    #[output]
    #[bits(p.slot_bits())]
    pub slot_free: Sig,
    /// The submission queue that held it.
    #[output]
    #[bits(p.queue_bits())]
    pub release_sq: Sig,
    /// Write address.
    #[output]
    #[params(&p.host_axi())]
    pub aw: Stream<AxiAw>,
    /// Write data.
    #[output]
    #[params(&p.host_axi())]
    pub w: Stream<AxiW>,
    /// Write response of kind CQ; always taken.
    #[input]
    #[bits(1)]
    pub b_valid: Sig,
    /// Its resp.
    #[input]
    #[bits(2)]
    pub b_resp: Sig,
    /// Pulse: an entry could not be written.
    #[output]
    #[bits(1)]
    pub fault: Sig,
    /// Pulse: entries of an interrupting CQ are written.
    #[output]
    #[bits(1)]
    pub irq_valid: Sig,
    /// Its vector.
    #[output]
    #[bits(p.queue_bits())]
    pub irq_vector: Sig,
    /// How many entries, 1 to 4.
    #[output]
    #[bits(3)]
    pub irq_entries: Sig,
    /// No entry is under way.
    #[output]
    #[bits(1)]
    pub quiet: Sig,
    /// Nothing would change with the inputs held.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Where the serving half is.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Picks an admin completion or a CQ.
    Idle,
    /// Reads the CQ's row and finds how many entries fit.
    Load,
    /// Waits for a command of its list.
    Pop,
    /// Hands the line to the output half.
    Hand,
}

/// Builds the block.
pub fn cq_post(c: &CardConfig) -> Module {
    let work = bitmap(&BitmapConfig::work(c.queues + 1));
    module(
        "cq_post",
        "Writes completion queue entries from each CQ's own list.",
        c,
        |p: CqPostPorts| body(c, p, &work),
    )
}

#[hw]
fn body(c: &CardConfig, p: CqPostPorts, work: &Module) {
    let q = c.queue_bits();
    let n = c.queues + 1;
    let u_work = instance::<BitmapPorts>("u_work", work, &BitmapConfig::work(n));

    // Rows. Base, size and vector change only while a CQ is created.
    let table_set = Mem::new(n.into(), 52 + RING_BITS + 1 + q).style(Style::Distributed);
    unused(p.cq_set.base.bits(0, 12));
    let row_new = cat(&[
        p.cq_set.base.bits(12, 52),
        p.cq_set.size,
        p.cq_set.interrupts,
        p.cq_set.vector,
    ]);
    table_set.write(p.cq_set.valid, p.cq_set.cq, row_new);
    let table_tail = Mem::new(n.into(), RING_BITS + 1).style(Style::Distributed);
    let table_head = Mem::new(n.into(), RING_BITS).style(Style::Distributed);
    let exists = reg(n, 0);
    let waiting = reg(n, 0);
    let full = reg(n, 0);
    let queued = reg(n, 0);

    // A new CQ's pointers start at 0. The head RAM has one write port and a doorbell never waits: the start is written
    // in the next cycle without one, long before the host knows the CQ.
    let init_pending = reg(1, 0);
    let init_cq = reg_nr(q);
    let bell = p.doorbell.valid & p.doorbell.is_cq;

    // Doorbells. The head must lie in the ring; what it may not pass is not checked: a host that frees entries it has
    // not got harms its own ring alone.
    let bell_row = table_set.read_async(p.doorbell.queue);
    let bell_size = bell_row.bits(1 + q, RING_BITS);
    let bell_exists = exists.index(p.doorbell.queue);
    let bell_high = p.doorbell.value.bits(RING_BITS, 16 - RING_BITS).any();
    let bell_range = bell_high | p.doorbell.value.trunc(RING_BITS).gt(bell_size);
    let bell_good = bell & bell_exists & !bell_range;
    p.doorbell_bad_register.set(bell & !bell_exists);
    p.doorbell_bad_value.set(bell & bell_exists & bell_range);
    unused(bell_row.bits(0, 1 + q));
    unused(bell_row.bits(1 + q + RING_BITS, 52));

    let write_init = init_pending & !bell_good;
    table_head.write(
        bell_good | write_init,
        bell_good.mux(p.doorbell.queue, init_cq),
        bell_good.mux(p.doorbell.value.trunc(RING_BITS), lit(0, RING_BITS)),
    );
    when(write_init, || init_pending.set(lit(0, 1)));
    when(p.cq_set.valid, || {
        init_pending.set(lit(1, 1));
        init_cq.set(p.cq_set.cq);
    });

    // A doorbell's news for the work set waits a cycle when the engine's comes at the same time; the engine has news at
    // most every fourth cycle, the host a doorbell at most every second.
    let news = reg(1, 0);
    let news_cq = reg_nr(q);
    let news_go = news & !p.cq_work_valid;
    when(news_go, || news.set(lit(0, 1)));
    when(bell_good, || {
        news.set(lit(1, 1));
        news_cq.set(p.doorbell.queue);
    });

    // Serving half.
    let state = State::Idle.reg();
    let cq = reg_nr(q);
    let for_admin = reg_nr(1);
    let sweep_cq = reg(q, 0);
    let row = table_set.read_async(cq);
    let vector = row.bits(0, q);
    let interrupts = row.bit(q);
    let size = row.bits(1 + q, RING_BITS);
    let base = row.bits(1 + q + RING_BITS, 52);
    let tail_row = table_tail.read_async(cq);
    let head_row = table_head.read_async(cq);

    let tail = reg_nr(RING_BITS);
    let phase = reg_nr(1);
    let left = reg_nr(3);
    let entries = reg_nr(3);
    let line = reg_nr(512);
    let line_mask = reg_nr(4);
    let line_addr = reg_nr(64);

    // Entries that fit: the ring keeps one free; up to the 64-byte boundary and the ring's end.
    let tail_now = tail_row.bits(0, RING_BITS);
    let distance = head_row - tail_now - 1;
    let wrapped = head_row.le(tail_now);
    let room = wrapped.mux(distance + size + 1, distance);
    let to_boundary = lit(4, 3) - tail_now.bits(0, 2).zext(3);
    let to_end = size - tail_now;
    let end_near = to_end.lt(3);
    let limit_end = end_near.mux(to_end.trunc(3) + 1, lit(4, 3));
    let limit_room = room.lt(4).mux(room.trunc(3), lit(4, 3));
    let limit_1 = to_boundary.lt(limit_end).mux(to_boundary, limit_end);
    let limit = limit_1.lt(limit_room).mux(limit_1, limit_room);
    let no_room = limit.eq(0);
    // The row is looked at only when no doorbell is just changing it, nor its news on the way.
    let steady = !bell & !news & !init_pending;

    // An entry (figure 124): DW0 result, DW2 SQ head and id, DW3 CID, phase and status.
    let sq_now = for_admin.mux(lit(0, q), p.popped.sq);
    p.head_sq.set(sq_now);
    let cid = for_admin.mux(p.admin_cpl.payload.cid, p.popped.cid);
    let status_now = for_admin.mux(p.admin_cpl.payload.status, p.popped.status);
    let result = for_admin.mux(p.admin_cpl.payload.result, lit(0, 32));
    let entry = cat(&[
        status_now,
        phase,
        cid,
        sq_now.zext(16),
        p.head.zext(16),
        lit(0, 32),
        result,
    ]);

    let popping = state.is(State::Pop);
    let got = popping & for_admin.mux(p.admin_cpl.valid, p.popped_valid);
    let more = !for_admin & p.popped.more;
    let at = tail.bits(0, 2);
    let last = tail.eq(size);
    let end_line = !more | left.eq(1);
    p.pop_valid.set(popping & !for_admin);
    p.pop_cq.set(cq);
    p.admin_cpl.ready.set(popping & for_admin);
    p.slot_free_valid.set(popping & p.popped_valid & !for_admin);
    p.slot_free.set(p.popped.slot);
    p.release_sq.set(p.popped.sq);

    let out_busy = reg(1, 0);
    let lines_out = reg(4, 0);
    let can_hand = !out_busy & lines_out.lt(LINES);

    let admin_go = p.admin_cpl.valid & (p.discard | !full.bit(0));
    let idle_state = state.is(State::Idle);
    let take_work = idle_state & !admin_go & !p.discard;
    u_work.take.ready.set(take_work);
    let sweep_hit = waiting.index(sweep_cq);

    // Work set: one put a cycle. The serving half waits its turn.
    let serve_end = var(lit(0, 1));
    let serve_again = state.is(State::Hand) & waiting.index(cq) & !for_admin & !p.discard;
    let free_put = !p.cq_work_valid & !news_go;
    let work_put = p.cq_work_valid & !queued.index(p.cq_work_cq) & !full.index(p.cq_work_cq);
    let news_put = news_go & waiting.index(news_cq) & !queued.index(news_cq);
    let again_put = serve_end & serve_again;
    u_work.put.valid.set(work_put | news_put | again_put);
    u_work
        .put
        .index
        .set(p.cq_work_valid.mux(p.cq_work_cq, news_go.mux(news_cq, cq)));
    let queued_set = (work_put | news_put).mux(onehot(u_work.put.index, n), lit(0, n));
    let queued_clear = (serve_end & !serve_again & !for_admin).mux(onehot(cq, n), lit(0, n));
    queued.set((queued | queued_set) & !queued_clear);
    let waiting_set = p.cq_work_valid.mux(onehot(p.cq_work_cq, n), lit(0, n));
    let waiting_clear = (got & !for_admin & !more).mux(onehot(cq, n), lit(0, n));
    waiting.set((waiting & !waiting_clear) | waiting_set);
    let full_clear = news_go.mux(onehot(news_cq, n), lit(0, n));
    let full_set = var(lit(0, n));
    full.set((full & !full_clear) | full_set);

    switch(state, |s| {
        s.is(State::Idle, || {
            when(admin_go, || {
                cq.set(lit(0, q));
                for_admin.set(lit(1, 1));
                state.set(State::Load.lit());
            })
            .elsewhen(p.discard, || {
                cq.set(sweep_cq);
                for_admin.set(lit(0, 1));
                when(sweep_hit, || state.set(State::Load.lit()));
                when(!sweep_hit & waiting.any(), || {
                    sweep_cq.set(sweep_cq.eq(c.queues).mux(lit(0, q), sweep_cq + 1));
                });
            })
            .elsewhen(u_work.take.valid, || {
                cq.set(u_work.take.payload.index);
                for_admin.set(lit(0, 1));
                state.set(State::Load.lit());
            });
        });
        s.is(State::Load, || {
            tail.set(tail_now);
            phase.set(tail_row.bit(RING_BITS));
            left.set(p.discard.mux(lit(4, 3), limit));
            entries.set(lit(0, 3));
            line_mask.set(lit(0, 4));
            line_addr.set(
                cat(&[base, lit(0, 12)])
                    + cat(&[tail_now.bits(2, RING_BITS - 2), lit(0, 6)]).zext(64),
            );
            when(p.discard, || state.set(State::Pop.lit())).elsewhen(steady & free_put, || {
                when(no_room, || {
                    full_set.set(onehot(cq, n));
                    serve_end.set(!for_admin);
                    state.set(State::Idle.lit());
                })
                .otherwise(|| state.set(State::Pop.lit()));
            });
        });
        s.is(State::Pop, || {
            when(got, || {
                let mut slots = Vec::new();
                for i in (0..4).rev() {
                    slots.push(at.eq(i).mux(entry, line.bits(128 * i, 128)));
                }
                line.set(cat(&slots));
                line_mask.set(line_mask | onehot(at, 4));
                entries.set(entries + 1);
                left.set(left - 1);
                tail.set(last.mux(lit(0, RING_BITS), tail + 1));
                when(last, || phase.set(!phase));
                when(end_line, || state.set(State::Hand.lit()));
            });
        });
        s.is(State::Hand, || {
            when((can_hand | p.discard) & free_put, || {
                serve_end.set(!for_admin);
                state.set(State::Idle.lit());
            });
        });
    });
    let hand = state.is(State::Hand) & can_hand & free_put & !p.discard;
    let init_write = p.cq_set.valid;
    // The tail RAM's writers cannot meet: a CQ is created by an admin command, which is answered after.
    table_tail.write(
        hand | init_write,
        init_write.mux(p.cq_set.cq, cq),
        init_write.mux(cat(&[lit(1, 1), lit(0, RING_BITS)]), cat(&[phase, tail])),
    );

    when(p.cq_set.valid, || {
        let bit = onehot(p.cq_set.cq, n);
        exists.set(p.cq_set.enable.mux(exists | bit, exists & !bit));
        full.set(full & !bit);
    });
    when(p.clear, || {
        exists.set(lit(0, n));
        full.set(lit(0, n));
        queued.set(lit(0, n));
        news.set(lit(0, 1));
        init_pending.set(lit(0, 1));
    });
    u_work.clear.set(p.clear);
    for output in [u_work.count, u_work.error_double_put, u_work.error_range] {
        unused(output);
    }
    u_work.limit.set(lit(n.into(), u_work.limit.width()));
    p.clearing.set(u_work.clearing);

    output(
        c,
        &p,
        Line {
            hand,
            line,
            mask: line_mask,
            addr: line_addr,
            entries,
            interrupts,
            vector,
            out_busy,
            lines_out,
        },
    );

    p.quiet.set(
        state.is(State::Idle) & !waiting.any() & !p.admin_cpl.valid & !out_busy & lines_out.eq(0),
    );
    let waits = (idle_state & !admin_go & !u_work.take.valid & !(p.discard & waiting.any()))
        | (state.is(State::Hand) & !can_hand & !p.discard)
        | (popping & !got);
    p.idle.set(
        waits
            & !news
            & !init_pending
            & !bell
            & !p.cq_work_valid
            & u_work.idle
            & (!out_busy | output_waits(&p)),
    );

    assert(
        "no_lost_wake_up",
        !(waiting & !full & !queued & !waiting_set).any() | p.discard,
    );
    unused(p.b_resp.bit(0));
}

/// What the serving half hands over.
struct Line {
    hand: Sig,
    line: Sig,
    mask: Sig,
    addr: Sig,
    entries: Sig,
    interrupts: Sig,
    vector: Sig,
    out_busy: Sig,
    lines_out: Sig,
}

/// The output stage only waits for the bus.
fn output_waits(p: &CqPostPorts) -> Sig {
    (p.aw.valid & !p.aw.ready) | (p.w.valid & !p.w.ready)
}

/// The output half: one burst a line, then the interrupt after its response.
#[hw]
fn output(c: &CardConfig, p: &CqPostPorts, l: Line) {
    let q = c.queue_bits();
    let beats = 512 / c.data_bits;
    let beat_bits = beats.max(2).trailing_zeros();
    let entries_a_beat = c.data_bits / 128;
    let out_line = reg_nr(512);
    let out_mask = reg_nr(4);
    let out_addr = reg_nr(64);
    let aw_sent = reg_nr(1);
    let w_sent = reg_nr(1);
    let beat = reg_nr(beat_bits);
    let last_beat = reg_nr(beat_bits);

    // First and last beat that hold an entry.
    let beat_of = |entry: u32| entry / entries_a_beat;
    let first = var(lit(0, beat_bits));
    let last = var(lit(0, beat_bits));
    for e in (0..4).rev() {
        when(l.mask.bit(e), || {
            first.set(lit(beat_of(e).into(), beat_bits))
        });
    }
    for e in 0..4 {
        when(l.mask.bit(e), || {
            last.set(lit(beat_of(e).into(), beat_bits))
        });
    }

    let aw_done = aw_sent | p.aw.ready;
    let w_fire = p.w.valid & p.w.ready;
    let w_last = beat.eq(last_beat);
    let w_done = w_sent | (w_fire & w_last);
    when(l.out_busy, || {
        aw_sent.set(aw_done);
        w_sent.set(w_done);
        when(w_fire, || beat.set(beat + 1));
        when(aw_done & w_done, || l.out_busy.set(lit(0, 1)));
    });
    when(l.hand, || {
        out_line.set(l.line);
        out_mask.set(l.mask);
        out_addr.set(l.addr + cat(&[first, lit(0, (c.beat_bytes()).trailing_zeros())]).zext(64));
        beat.set(first);
        last_beat.set(last);
        aw_sent.set(lit(0, 1));
        w_sent.set(lit(0, 1));
        l.out_busy.set(lit(1, 1));
    });
    // The burst's length needs no subtraction at the pin.
    let burst_len = reg_nr(beat_bits);
    when(l.hand, || burst_len.set(last - first));

    p.aw.valid.set(l.out_busy & !aw_sent);
    p.aw.payload
        .id
        .set(cat(&[WriteKind::Cq.lit(), lit(0, c.chunk_bits())]));
    p.aw.payload.addr.set(out_addr);
    p.aw.payload.len.set(burst_len.zext(8));
    p.w.valid.set(l.out_busy & !w_sent);
    let (data, strobes) = if beats == 1 {
        (out_line, out_mask)
    } else {
        let lines: Vec<Sig> = (0..beats)
            .map(|i| out_line.bits(i * c.data_bits, c.data_bits))
            .collect();
        let masks: Vec<Sig> = (0..beats)
            .map(|i| out_mask.bits(i * entries_a_beat, entries_a_beat))
            .collect();
        (mux_n(beat, &lines), mux_n(beat, &masks))
    };
    p.w.payload.data.set(data);
    let strobe_bytes: Vec<Sig> = (0..entries_a_beat)
        .rev()
        .map(|i| strobes.bit(i).repeat(16))
        .collect();
    p.w.payload.strb.set(cat(&strobe_bytes));
    p.w.payload.last.set(w_last);

    // Interrupts wait for their line's response; responses of one id come in order.
    let irq_fifo = Mem::new(LINES.into(), q + 1 + 3).style(Style::Distributed);
    let irq_in = reg(3, 0);
    let irq_out = reg(3, 0);
    irq_fifo.write(l.hand, irq_in, cat(&[l.entries, l.interrupts, l.vector]));
    let irq_row = irq_fifo.read_async(irq_out);
    when(l.hand, || irq_in.set(irq_in + 1));
    when(p.b_valid, || irq_out.set(irq_out + 1));
    l.lines_out
        .set(l.lines_out + l.hand.zext(4) - p.b_valid.zext(4));
    p.irq_valid.set(p.b_valid & irq_row.bit(q));
    p.irq_vector.set(irq_row.bits(0, q));
    p.irq_entries.set(irq_row.bits(q + 1, 3));
    p.fault.set(p.b_valid & p.b_resp.bit(1));
}
