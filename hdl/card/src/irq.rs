//! `irq`: MSI-X (PCIe 5.0, 7.7.2) with NVMe's interrupt coalescing (NVMe 1.4, 5.21.1.8 and 5.21.1.9).
//!
//! ```text
//!  event {vector, entries} ──►┌─────┐──► aw, w ◄── b    one 4-byte message (host port, kind MSI)
//!  table port (bar0) ────────►│ irq │
//!  enable, function mask ────►└─────┘
//! ```
//!
//! Flags a vector: `pending` (a message is owed; the PBA reads it), `open` (completions are being gathered by coalescing),
//! `queued` (in the work set). An event that is not gathered makes its vector pending; a scan that walks the vectors while
//! there is anything to find turns expired gatherings into pending ones and puts pending vectors that may be sent into
//! the work set. So unmasking needs no logic of its own: the scan finds what waits.
//!
//! Gathering: a vector's message is sent when THR + 1 completions are gathered or TIME x 100 us after the first. Vector 0
//! (the admin queue) and vectors whose coalescing is disabled are never gathered; TIME 0 switches gathering off.
//!
//! **Invariants**: a pending vector that may be sent is put into the work set within `vectors` cycles; a message is sent
//! only while enabled and unmasked; an event is never lost (it may be merged with others of its vector, as MSI-X does).
//! **Latency**: event to AW 4 cycles when nothing else is owed.

use crate::bitmap::{BitmapConfig, BitmapPorts, bitmap};
use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// 100 us in cycles of 250 MHz: the unit of the aggregation time.
pub const AGGREGATION_UNIT: u32 = 25_000;
/// Messages without a response, at most.
const MESSAGES: u32 = 8;
/// Bits that tell expired from not yet: 255 x 100 us fit with room for the wrap.
const TIME_BITS: u32 = 24;

/// Ports of [`irq`].
#[derive(Clone, Bundle)]
#[bundle(params = CardConfig)]
pub struct IrqPorts {
    /// Pulse: controller reset; nothing is owed or gathered any more. The MSI-X table stays.
    #[input]
    #[bits(1)]
    pub clear: Sig,
    /// Tables are being swept.
    #[output]
    #[bits(1)]
    pub clearing: Sig,
    /// Free-running time in cycles.
    #[input]
    #[bits(CYCLE_BITS)]
    pub cycle: Sig,
    /// MSI-X Enable of the PCIe capability.
    #[input]
    #[bits(1)]
    pub msix_enable: Sig,
    /// Function Mask of the PCIe capability.
    #[input]
    #[bits(1)]
    pub msix_function_mask: Sig,
    /// Pulse: entries of a vector's CQ were written.
    #[input]
    #[bits(1)]
    pub event_valid: Sig,
    /// Which vector.
    #[input]
    #[bits(p.queue_bits())]
    pub event_vector: Sig,
    /// How many entries.
    #[input]
    #[bits(3)]
    pub event_entries: Sig,
    /// Aggregation threshold, completions - 1.
    #[input]
    #[bits(8)]
    pub gather_threshold: Sig,
    /// Aggregation time in 100 us; 0 is off.
    #[input]
    #[bits(8)]
    pub gather_time: Sig,
    /// Vectors that are never gathered.
    #[input]
    #[bits(p.queues + 1)]
    pub gather_disable: Sig,
    /// MSI-X table and PBA: write this cycle.
    #[input]
    #[bits(1)]
    pub table_we: Sig,
    /// 1 in the PBA, 0 in the table (bit 10); dword in it (bits 9:0).
    #[input]
    #[bits(11)]
    pub table_addr: Sig,
    /// Write data.
    #[input]
    #[bits(32)]
    pub table_wdata: Sig,
    /// Byte strobes.
    #[input]
    #[bits(4)]
    pub table_strb: Sig,
    /// What `table_addr` holds, the cycle after.
    #[output]
    #[bits(32)]
    pub table_rdata: Sig,
    /// Write address.
    #[output]
    #[params(&p.host_axi())]
    pub aw: Stream<AxiAw>,
    /// Write data.
    #[output]
    #[params(&p.host_axi())]
    pub w: Stream<AxiW>,
    /// Write response of kind MSI; always taken, its resp does not matter.
    #[input]
    #[bits(1)]
    pub b_valid: Sig,
    /// No message is under way.
    #[output]
    #[bits(1)]
    pub quiet: Sig,
    /// Nothing would change with the inputs held. A gathering vector is not idle: its time runs.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Where the sender is.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Takes a vector.
    Idle,
    /// Offers its message.
    Send,
}

/// Builds the block.
pub fn irq(c: &CardConfig) -> Module {
    let set = bitmap(&BitmapConfig::work(c.queues + 1));
    module(
        "irq",
        "MSI-X with interrupt coalescing.",
        c,
        |p: IrqPorts| body(c, p, &set),
    )
}

#[hw]
fn body(c: &CardConfig, p: IrqPorts, set: &Module) {
    let q = c.queue_bits();
    let n = c.queues + 1;
    let u_set = instance::<BitmapPorts>("u_set", set, &BitmapConfig::work(n));
    let pending = reg(n, 0);
    let open = reg(n, 0);
    let queued = reg(n, 0);

    // The table. Vector control bit 0 (mask) is 1 after reset, the rest of that dword is 0.
    let unmasked = reg(n, 0);
    let masked = !unmasked;
    let entry = p.table_addr.bits(2, q);
    let entry_field = p.table_addr.bits(0, 2);
    let entry_bad = p.table_addr.bits(2, 8).gt(c.queues);
    let in_pba = p.table_addr.bit(10);
    let write_entry = p.table_we & !in_pba & !entry_bad;
    let mut lanes = Vec::new();
    for field in 0..3u32 {
        let lane = scope(["address", "address_hi", "message"][field as usize], || {
            let m = Mem::new(n.into(), 32).style(Style::Distributed);
            m.write_bytes(
                write_entry & entry_field.eq(field),
                p.table_strb,
                entry,
                p.table_wdata,
            );
            m
        });
        lanes.push(lane);
    }
    let write_mask = write_entry & entry_field.eq(3) & p.table_strb.bit(0);
    let entry_bit = onehot(entry, n);
    when(write_mask, || {
        unmasked.set(
            p.table_wdata
                .bit(0)
                .mux(unmasked & !entry_bit, unmasked | entry_bit),
        );
    });
    let entry_dwords = [
        lanes[0].read_async(entry),
        lanes[1].read_async(entry),
        lanes[2].read_async(entry),
        masked.index(entry).zext(32),
    ];
    let pba_dwords = n.div_ceil(32);
    let pba = pending.zext(pba_dwords * 32);
    let mut pba_word = lit(0, 32);
    for i in 0..pba_dwords {
        pba_word = p
            .table_addr
            .bits(0, 10)
            .eq(i)
            .mux(pba.bits(32 * i, 32), pba_word);
    }
    let table_word = entry_bad.mux(lit(0, 32), mux_n(entry_field, &entry_dwords));
    let rdata = reg_nr(32);
    rdata.set(in_pba.mux(pba_word, table_word));
    p.table_rdata.set(rdata);

    // An event: gathered, or owed at once.
    let now = p.cycle.trunc(TIME_BITS);
    unused(p.cycle.bits(TIME_BITS, CYCLE_BITS - TIME_BITS));
    let gathered = Mem::new(n.into(), 9 + TIME_BITS).style(Style::Distributed);
    let scan = reg(q, 0);
    let at = p.event_valid.mux(p.event_vector, scan);
    let row = gathered.read_async(at);
    let at_bit = onehot(at, n);
    let is_open = open.index(at);
    let so_far = is_open.mux(row.bits(0, 9), lit(0, 9));
    let deadline = row.bits(9, TIME_BITS);
    let gathers =
        p.gather_time.any() & p.event_vector.any() & !p.gather_disable.index(p.event_vector);
    let total = so_far + p.event_entries.zext(9);
    let enough = total.gt(p.gather_threshold.zext(9));
    let owed = p.event_valid & (!gathers | enough);
    let gather = p.event_valid & gathers & !enough;
    // TIME x 25000 = TIME x (16384 + 8192 + 256 + 128 + 32 + 8).
    let unit = |shift: u32| cat(&[p.gather_time, lit(0, shift)]).zext(TIME_BITS);
    let delay = unit(14) + unit(13) + unit(8) + unit(7) + unit(5) + unit(3);
    let first_deadline = is_open.mux(deadline, now + delay);
    gathered.write(gather, at, cat(&[first_deadline, total]));
    let late = (now - deadline).bit(TIME_BITS - 1).eq(0);
    let expired = !p.event_valid & is_open & late;
    let now_pending = (owed | expired).mux(at_bit, lit(0, n));

    // The scan owns `at` in cycles without an event.
    let sendable = p.msix_enable & !p.msix_function_mask & !masked.index(at);
    let put = !p.event_valid & pending.index(at) & sendable & !queued.index(at);
    let put_now = owed & sendable & !queued.index(at);
    u_set.put.valid.set((put | put_now) & !p.clear);
    u_set.put.index.set(at);
    let may_send = (p.msix_enable & !p.msix_function_mask).repeat(n) & !masked;
    let scanning = open.any() | (pending & may_send & !queued).any();
    when(scanning & !p.event_valid, || {
        scan.set(scan.eq(c.queues).mux(lit(0, q), scan + 1))
    });

    // The sender.
    let state = State::Idle.reg();
    let vector = reg_nr(q);
    let aw_sent = reg_nr(1);
    let w_sent = reg_nr(1);
    let out = reg(4, 0);
    let taken = u_set.take.fire();
    let take_vector = u_set.take.payload.index;
    u_set
        .take
        .ready
        .set(state.is(State::Idle) & out.lt(MESSAGES));
    let take_bit = taken.mux(onehot(take_vector, n), lit(0, n));
    let take_sendable = p.msix_enable & !p.msix_function_mask & !masked.index(take_vector);
    let starts = taken & take_sendable;
    let start_bit = starts.mux(onehot(take_vector, n), lit(0, n));
    let aw_done = aw_sent | p.aw.ready;
    let w_done = w_sent | p.w.ready;
    let sent = state.is(State::Send) & aw_done & w_done;
    switch(state, |s| {
        s.is(State::Idle, || {
            when(starts, || {
                vector.set(take_vector);
                aw_sent.set(lit(0, 1));
                w_sent.set(lit(0, 1));
                state.set(State::Send.lit());
            });
        });
        s.is(State::Send, || {
            aw_sent.set(aw_done);
            w_sent.set(w_done);
            when(sent, || state.set(State::Idle.lit()));
        });
    });
    out.set(out + starts.zext(4) - p.b_valid.zext(4));

    pending.set((pending & !start_bit) | now_pending);
    let put_bit = (put | put_now).mux(at_bit, lit(0, n));
    queued.set((queued & !take_bit) | put_bit);
    let open_set = gather.mux(at_bit, lit(0, n));
    open.set((open & !now_pending) | open_set);
    when(p.clear, || {
        pending.set(lit(0, n));
        open.set(lit(0, n));
        queued.set(lit(0, n));
    });
    u_set.clear.set(p.clear);
    u_set.limit.set(lit(n.into(), u_set.limit.width()));
    p.clearing.set(u_set.clearing);
    for output in [u_set.count, u_set.error_double_put, u_set.error_range] {
        unused(output);
    }

    let address_lo = lanes[0].read_async(vector);
    let address_hi = lanes[1].read_async(vector);
    let message = lanes[2].read_async(vector);
    unused(address_lo.bits(0, 2));
    let lane_count = c.beat_bytes() / 4;
    let lane = address_lo.bits(2, lane_count.trailing_zeros());
    p.aw.valid.set(state.is(State::Send) & !aw_sent);
    p.aw.payload
        .id
        .set(cat(&[WriteKind::Msi.lit(), lit(0, c.chunk_bits())]));
    p.aw.payload
        .addr
        .set(cat(&[address_hi, address_lo.bits(2, 30), lit(0, 2)]));
    p.aw.payload.len.set(lit(0, 8));
    p.w.valid.set(state.is(State::Send) & !w_sent);
    p.w.payload.data.set(message.repeat(lane_count));
    let lane_onehot = onehot(lane, lane_count);
    let strobes: Vec<Sig> = (0..lane_count)
        .rev()
        .map(|i| lane_onehot.bit(i).repeat(4))
        .collect();
    p.w.payload.strb.set(cat(&strobes));
    p.w.payload.last.set(lit(1, 1));

    p.quiet.set(state.is(State::Idle) & out.eq(0));
    let sender_still = (state.is(State::Idle) & !u_set.take.valid)
        | (state.is(State::Send) & !sent & !p.aw.ready & !p.w.ready);
    p.idle
        .set(sender_still & !scanning & !p.event_valid & !p.table_we & u_set.idle);
    assert("sends_only_when_allowed", !starts | p.msix_enable);
}
