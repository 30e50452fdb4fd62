//! `dma`: moves the data of executing commands between media and host, out of order, keyed by tag.
//!
//! ```text
//!  exec ──┬─► prp ─┬─► dma_read  ─► media ar/r, host aw/w/b ─┐
//!         │   │    └─► dma_write ─► host ar/r, media aw/w/b ─┤
//!         │   └ issue, failed ──────────────────────────────┐│
//!         └─ flush ─────────────────────────────────────► dma_done ──► done
//! ```
//!
//! **Invariants**: all AXI traffic of a command has ended before its `done`; reads and writes never wait for each other;
//! no LUN holds all chunks;
//! an error ends only the command it belongs to (Data Transfer Error; PRP Offset Invalid for a list entry with an offset).
//! **Latency**: exec to media AR 4 cycles without a list; media's first R to the host's W 2; last B to `done` 2.
//! **Rate**: a data beat a cycle in each direction across commands; a Flush a cycle.

pub mod done;
pub mod fifo;
pub mod pick;
pub mod prp;
pub mod prp_list;
pub mod read;
pub mod realign;
pub mod types;
pub mod write;

use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// Ports of [`dma`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct DmaPorts {
    /// Admitted commands.
    #[input]
    pub exec: Stream<Exec>,
    /// Weight of the admitted command's LUN.
    #[input]
    #[bits(pick::WEIGHT_BITS)]
    pub exec_weight: Sig,
    /// Fairness rule over LUNs: [`Rule`].
    #[input]
    #[bits(Rule::WIDTH)]
    pub rule: Sig,
    /// Fills the slot RAM, before the slot is parked.
    #[input]
    pub cmd_write: CmdWrite,
    /// Commands whose AXI traffic has ended.
    #[output]
    pub done: Stream<Done>,
    /// Host read address, kind PRP.
    #[output]
    #[params(p.host_axi())]
    pub list_ar: Stream<AxiAr>,
    /// Host read data, kind PRP; may interleave.
    #[input]
    #[params(p.host_axi())]
    pub list_r: Stream<AxiR>,
    /// Host read address, kind DATA.
    #[output]
    #[params(p.host_axi())]
    pub host_ar: Stream<AxiAr>,
    /// Host read data, kind DATA; may interleave.
    #[input]
    #[params(p.host_axi())]
    pub host_r: Stream<AxiR>,
    /// Host write address, kind DATA.
    #[output]
    #[params(p.host_axi())]
    pub host_aw: Stream<AxiAw>,
    /// Host write data.
    #[output]
    #[params(p.host_axi())]
    pub host_w: Stream<AxiW>,
    /// Host write response, kind DATA.
    #[input]
    #[params(p.host_axi())]
    pub host_b: Stream<AxiB>,
    /// Media read address.
    #[output]
    #[params(p.media_axi())]
    pub media_ar: Stream<AxiAr>,
    /// Media read data; bursts never interleave.
    #[input]
    #[params(p.media_axi())]
    pub media_r: Stream<AxiR>,
    /// Media write address.
    #[output]
    #[params(p.media_axi())]
    pub media_aw: Stream<AxiAw>,
    /// Media write data.
    #[output]
    #[params(p.media_axi())]
    pub media_w: Stream<AxiW>,
    /// Media write response.
    #[input]
    #[params(p.media_axi())]
    pub media_b: Stream<AxiB>,
    /// Nothing to do but wait for host or media.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block.
pub fn dma(c: &CardConfig) -> Module {
    let (prp, read, write, done) = (
        prp::prp(c),
        read::dma_read(c),
        write::dma_write(c),
        done::dma_done(c),
    );
    module(
        "dma",
        "Moves the data of executing commands between media and host, out of order, keyed by tag.",
        c,
        |p: DmaPorts| {
            body(c, p, [&prp, &read, &write, &done]);
        },
    )
}

#[hw]
fn body(c: &CardConfig, p: DmaPorts, [prp, read, write, done]: [&Module; 4]) {
    let prp = instance::<prp::PrpPorts>("u_prp", prp, c);
    let read = instance::<read::DmaReadPorts>("u_read", read, c);
    let write = instance::<write::DmaWritePorts>("u_write", write, c);
    let done = instance::<done::DmaDonePorts>("u_done", done, c);

    let is_flush = p.exec.payload.op.is(Op::Flush);
    prp.exec.valid.set(p.exec.valid & !is_flush);
    prp.exec.payload.set(&p.exec.payload);
    done.flush.valid.set(p.exec.valid & is_flush);
    done.flush.payload.set(p.exec.payload.tag);
    p.exec
        .ready
        .set(is_flush.mux(done.flush.ready, prp.exec.ready));
    done.exec_valid.set(p.exec.fire());
    done.exec.set(&p.exec.payload);
    prp.exec_weight.set(p.exec_weight);
    prp.rule.set(p.rule);
    prp.cmd_write.set(&p.cmd_write);

    p.list_ar.set(&prp.list_ar);
    prp.list_r.set(&p.list_r);
    read.chunk.set(&prp.read_chunk);
    write.chunk.set(&prp.write_chunk);
    done.issue.set(&prp.issue);
    done.failed.set(&prp.failed);

    p.media_ar.set(&read.ar);
    read.r.set(&p.media_r);
    p.host_aw.set(&read.aw);
    p.host_w.set(&read.w);
    read.b.set(&p.host_b);
    done.read_ret.set(&read.ret);
    prp.read_ended.set(read.ret.fire());
    prp.read_ended_lun.set(read.ret_lun);

    p.host_ar.set(&write.ar);
    write.r.set(&p.host_r);
    p.media_aw.set(&write.aw);
    p.media_w.set(&write.w);
    write.b.set(&p.media_b);
    done.write_ret.set(&write.ret);
    prp.write_ended.set(write.ret.fire());
    prp.write_ended_lun.set(write.ret_lun);

    p.done.set(&done.done);
    p.idle
        .set(prp.idle & read.idle & write.idle & done.idle & !p.exec.fire());
}
