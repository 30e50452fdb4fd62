//! `host_port`: shares the host's AXI port among the blocks that use it.
//!
//! ```text
//!  sq_ar, prp_ar, data_ar ──────────────►┌───────────┐──► ar
//!  sq_r, prp_r, data_r ◄── by kind ──────│           │◄── r
//!  data_aw, cq_aw, msi_aw, admin_aw ────►│ host_port │──► aw
//!  data_w, cq_w, msi_w, admin_w ── in order of AW ──►│──► w
//!  data_b, cq_b, msi_b, admin_b ◄── by kind ─────────│◄── b
//!                                        └───────────┘
//! ```
//!
//! Addresses are granted round robin. The order of the granted write addresses waits in a queue, and the write data follows
//! it: the next burst's first beat goes out the cycle after the last beat of the one before.
//! (`bus_gate`, outside, holds what may not leave).
//!
//! **Invariants**: a granted AW's data is the source's next burst; `quiet` is high only when every R and B has come. **Latency**: 0 cycles for addresses and answers; write data the cycle
//! after its address or later.

use crate::config::CardConfig;
use crate::dma::fifo::{fifo, round_robin};
use crate::interfaces::*;
use weir_kit::*;

/// Write addresses that may be granted ahead of their data.
const GRANTED_AHEAD: u64 = 8;
/// Bits that count bursts in flight.
const FLIGHT_BITS: u32 = 12;

/// Ports of [`host_port`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct HostPortPorts {
    /// Reads of submission queue entries.
    #[input]
    #[params(p.host_axi())]
    pub sq_ar: Stream<AxiAr>,
    /// Reads of PRP lists.
    #[input]
    #[params(p.host_axi())]
    pub prp_ar: Stream<AxiAr>,
    /// Reads of data.
    #[input]
    #[params(p.host_axi())]
    pub data_ar: Stream<AxiAr>,
    /// Answers of kind SQ.
    #[output]
    #[params(p.host_axi())]
    pub sq_r: Stream<AxiR>,
    /// Answers of kind PRP.
    #[output]
    #[params(p.host_axi())]
    pub prp_r: Stream<AxiR>,
    /// Answers of kind DATA.
    #[output]
    #[params(p.host_axi())]
    pub data_r: Stream<AxiR>,
    /// Addresses of data.
    #[input]
    #[params(p.host_axi())]
    pub data_aw: Stream<AxiAw>,
    /// Data.
    #[input]
    #[params(p.host_axi())]
    pub data_w: Stream<AxiW>,
    /// Answers of kind DATA.
    #[output]
    #[params(p.host_axi())]
    pub data_b: Stream<AxiB>,
    /// Addresses of completion queue entries.
    #[input]
    #[params(p.host_axi())]
    pub cq_aw: Stream<AxiAw>,
    /// Completion queue entries.
    #[input]
    #[params(p.host_axi())]
    pub cq_w: Stream<AxiW>,
    /// Answers of kind CQ.
    #[output]
    #[params(p.host_axi())]
    pub cq_b: Stream<AxiB>,
    /// Addresses of interrupt messages.
    #[input]
    #[params(p.host_axi())]
    pub msi_aw: Stream<AxiAw>,
    /// Interrupt messages.
    #[input]
    #[params(p.host_axi())]
    pub msi_w: Stream<AxiW>,
    /// Answers of kind MSI.
    #[output]
    #[params(p.host_axi())]
    pub msi_b: Stream<AxiB>,
    /// Addresses of admin data.
    #[input]
    #[params(p.host_axi())]
    pub admin_aw: Stream<AxiAw>,
    /// Admin data.
    #[input]
    #[params(p.host_axi())]
    pub admin_w: Stream<AxiW>,
    /// Answers of kind ADMIN.
    #[output]
    #[params(p.host_axi())]
    pub admin_b: Stream<AxiB>,
    /// The port's read address.
    #[output]
    #[params(p.host_axi())]
    pub ar: Stream<AxiAr>,
    /// The port's read data; may interleave.
    #[input]
    #[params(p.host_axi())]
    pub r: Stream<AxiR>,
    /// The port's write address.
    #[output]
    #[params(p.host_axi())]
    pub aw: Stream<AxiAw>,
    /// The port's write data.
    #[output]
    #[params(p.host_axi())]
    pub w: Stream<AxiW>,
    /// The port's write response.
    #[input]
    #[params(p.host_axi())]
    pub b: Stream<AxiB>,
    /// No burst is in flight.
    #[output]
    #[bits(1)]
    pub quiet: Sig,
    /// Nothing to do but wait for the host.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block.
pub fn host_port(c: &CardConfig) -> Module {
    module(
        "host_port",
        "Shares the host's AXI port among the blocks that use it.",
        c,
        |p: HostPortPorts| body(c, p),
    )
}

/// One of several streams, by a one-hot grant.
fn granted<T: Bundle>(grant: Sig, sources: &[&Stream<T>]) -> T {
    let first = sources[0].payload.clone();
    (1..sources.len()).fold(first, |rest, i| {
        T::choose(grant.bit(i as u32), &sources[i].payload, &rest)
    })
}

/// Sends `from` to the stream of its kind: the top two bits of its id.
#[hw]
fn route<T: Bundle>(kind: Sig, from: &Stream<T>, to: &[(&Stream<T>, Sig)]) {
    for (stream, which) in to {
        stream.offer(from.valid & kind.eq(*which), &from.payload);
    }
    let readies: Vec<Sig> = to
        .iter()
        .map(|(stream, which)| stream.ready & kind.eq(*which))
        .collect();
    from.ready.set(any_of(&readies));
}

/// Bursts begun and not ended.
#[hw]
fn flights(begin: Sig, end: Sig) -> Sig {
    let in_flight = reg(FLIGHT_BITS, 0);
    when(begin & !end, || in_flight.set(in_flight + 1))
        .elsewhen(end & !begin, || in_flight.set(in_flight - 1));
    assert(
        "flights_begin_before_they_end",
        !end | in_flight.any() | begin,
    );
    in_flight
}

#[hw]
fn body(c: &CardConfig, p: HostPortPorts) {
    let kind = |id: Sig| id.bits(c.chunk_bits(), 2);

    comment("Reads.");
    let readers = [&p.sq_ar, &p.prp_ar, &p.data_ar];
    let read_requests = cat(&[p.data_ar.valid, p.prp_ar.valid, p.sq_ar.valid]);
    let read_grant = round_robin("reads", read_requests, p.ar.ready);
    p.ar.offer(read_requests.any(), &granted(read_grant, &readers));
    for (i, reader) in readers.iter().enumerate() {
        reader.ready.set(read_grant.bit(i as u32) & p.ar.ready);
    }
    let r_kind = kind(p.r.payload.id);
    route(
        r_kind,
        &p.r,
        &[
            (&p.sq_r, ReadKind::Sq.lit()),
            (&p.prp_r, ReadKind::Prp.lit()),
            (&p.data_r, ReadKind::Data.lit()),
        ],
    );
    assert(
        "r_is_of_a_known_kind",
        !p.r.valid | r_kind.ne(ReadKind::Spare),
    );

    comment("Write addresses, and the order in which they were granted.");
    let writers = [
        (&p.data_aw, &p.data_w),
        (&p.cq_aw, &p.cq_w),
        (&p.msi_aw, &p.msi_w),
        (&p.admin_aw, &p.admin_w),
    ];
    let order = fifo::<Sig>("order", &2, GRANTED_AHEAD);
    let asks: Vec<Sig> = writers.iter().rev().map(|w| w.0.valid).collect();
    let write_requests = cat(&asks) & order.input.ready.repeat(4);
    let write_grant = round_robin("writes", write_requests, p.aw.ready);
    p.aw.offer(
        write_requests.any(),
        &granted(write_grant, &writers.map(|w| w.0)),
    );
    for (i, writer) in writers.iter().enumerate() {
        writer.0.ready.set(write_grant.bit(i as u32) & p.aw.ready);
    }
    let granted_kind = cat(&[
        write_grant.bit(3) | write_grant.bit(2),
        write_grant.bit(3) | write_grant.bit(1),
    ]);
    order.input.offer(p.aw.fire(), &granted_kind);

    comment("Write data follows that order.");
    let sender = order.output.payload;
    let beats = writers.map(|w| w.1);
    let beat = mux_n(sender, &beats.map(|w| w.payload.pack()));
    let beat_valid = mux_n(sender, &beats.map(|w| w.valid));
    p.w.offer(
        order.output.valid & beat_valid,
        &AxiW::unpack(&c.host_axi(), beat),
    );
    for (i, w) in beats.iter().enumerate() {
        w.ready.set(order.output.valid & sender.eq(i) & p.w.ready);
    }
    order.output.ready.set(p.w.fire() & p.w.payload.last);
    let b_kind = kind(p.b.payload.id);
    let answers = [
        (&p.data_b, WriteKind::Data.lit()),
        (&p.cq_b, WriteKind::Cq.lit()),
        (&p.msi_b, WriteKind::Msi.lit()),
        (&p.admin_b, WriteKind::Admin.lit()),
    ];
    route(b_kind, &p.b, &answers);

    let reads_in_flight = scope("reads", || {
        flights(p.ar.fire(), p.r.fire() & p.r.payload.last)
    });
    let writes_in_flight = scope("writes", || flights(p.aw.fire(), p.b.fire()));
    p.quiet
        .set(!reads_in_flight.any() & !writes_in_flight.any());
    comment("A request that has waited a cycle changes nothing until it is taken.");
    let read_waits = read_requests.any() & !p.ar.ready;
    let write_waits = write_requests.any() & !p.aw.ready;
    let reads_rest = !read_requests.any() | (read_waits & delay(read_waits));
    let writes_rest = !write_requests.any() | (write_waits & delay(write_waits));
    p.idle.set(reads_rest & writes_rest & !p.w.fire());
}
