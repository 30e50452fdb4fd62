//! `bar0`: the registers and doorbells of the host (NVMe 1.4, 3.1), an AXI4-Lite slave of 16 KiB.
//!
//! ```text
//!            ┌──────┐──► cc, aqa, asq, acq
//!  bar0_* ──►│ bar0 │◄── csts
//!            │      │──► doorbell {is_cq, queue, value}, a pulse
//!            └──────┘──► table port of irq (MSI-X table and PBA)
//! ```
//!
//! Made from the table in [`crate::regs`]. Accesses are of 32 bits, also to the halves of 64-bit registers. A write is
//! answered whatever the rest of the card does: nothing behind it can refuse.
//!
//! **Invariants**: a doorbell write of a queue that the card has gives one `doorbell` pulse, of another one
//! `doorbell_bad`. **Latency**: wvalid of a doorbell to its pulse 1 cycle; a read 3 cycles.

use crate::axi_lite::{AxiLite, axi_lite};
use crate::config::CardConfig;
use crate::interfaces::*;
use crate::regs::{self, Source, Status};
use weir_kit::*;

/// Bits of a byte address in BAR0.
pub const ADDR_BITS: u32 = 14;

/// Ports of [`bar0`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct Bar0Ports {
    /// The host's accesses.
    #[input]
    #[params(&ADDR_BITS)]
    pub bar0: AxiLite,
    /// Pulse: registers back to their defaults (FLR).
    #[input]
    #[bits(1)]
    pub registers_clear: Sig,
    /// CSTS.RDY.
    #[input]
    #[bits(1)]
    pub csts_rdy: Sig,
    /// CSTS.CFS.
    #[input]
    #[bits(1)]
    pub csts_cfs: Sig,
    /// CSTS.SHST.
    #[input]
    #[bits(2)]
    pub csts_shst: Sig,
    /// CC.EN.
    #[output]
    #[bits(1)]
    pub cc_en: Sig,
    /// CC.SHN.
    #[output]
    #[bits(2)]
    pub cc_shn: Sig,
    /// CC.CSS, MPS and AMS are what CAP offers.
    #[output]
    #[bits(1)]
    pub cc_supported: Sig,
    /// AQA.ASQS.
    #[output]
    #[bits(RING_BITS)]
    pub asqs: Sig,
    /// AQA.ACQS.
    #[output]
    #[bits(RING_BITS)]
    pub acqs: Sig,
    /// ASQ.
    #[output]
    #[bits(64)]
    pub asq: Sig,
    /// ACQ.
    #[output]
    #[bits(64)]
    pub acq: Sig,
    /// A doorbell was written.
    #[output]
    pub doorbell: Doorbell,
    /// Pulse: a doorbell of a queue that the card has not was written.
    #[output]
    #[bits(1)]
    pub doorbell_bad: Sig,
    /// MSI-X table and PBA: write this cycle.
    #[output]
    #[bits(1)]
    pub table_we: Sig,
    /// 1 in the PBA, 0 in the table (bit 10); dword in it (bits 9:0).
    #[output]
    #[bits(11)]
    pub table_addr: Sig,
    /// Write data.
    #[output]
    #[bits(32)]
    pub table_wdata: Sig,
    /// Byte strobes.
    #[output]
    #[bits(4)]
    pub table_strb: Sig,
    /// What `table_addr` held in the cycle before.
    #[input]
    #[bits(32)]
    pub table_rdata: Sig,
    /// Nothing would change with the inputs held.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block.
pub fn bar0(c: &CardConfig) -> Module {
    module(
        "bar0",
        "NVMe registers, doorbells and the way to the MSI-X table.",
        c,
        |p: Bar0Ports| body(c, p),
    )
}

/// The value of a register's field, by name.
struct Values(Vec<(&'static str, &'static str, Sig)>);

impl Values {
    fn get(&self, register: &str, field: &str) -> Sig {
        let found = self
            .0
            .iter()
            .find(|(r, f, _)| *r == register && *f == field);
        found
            .unwrap_or_else(|| panic!("the register map has no {register}.{field}"))
            .2
    }
}

#[hw]
fn body(c: &CardConfig, p: Bar0Ports) {
    let page_of = |addr: Sig| addr.bits(10, 2);
    let mut values = Values(Vec::new());
    let access = axi_lite(&p.bar0, |a| {
        // One 32-bit word at a time: its constant, stored and status bits.
        let word = reg_nr(32);
        let read_page = page_of(a.read_addr);
        let read_word = var(lit(0, 32));
        let mut words = Vec::new();
        for r in regs::registers(c) {
            let mut bits = vec![lit(0, 1); r.bits as usize];
            for f in &r.fields {
                let value = match f.source {
                    Source::Const(v) => lit(v.into(), f.width),
                    Source::Rw(reset) => named(
                        &format!("{}_{}", r.name.to_lowercase(), f.name.to_lowercase()),
                        reg(f.width, reset),
                    ),
                    Source::Status(Status::Ready) => p.csts_rdy,
                    Source::Status(Status::Fatal) => p.csts_cfs,
                    Source::Status(Status::Shutdown) => p.csts_shst,
                };
                for (i, b) in value.to_bits().into_iter().enumerate() {
                    bits[f.lo as usize + i] = b;
                }
                if let Source::Rw(reset) = f.source {
                    write_field(a, page_of(a.write_addr), r.offset, f, value);
                    when(p.registers_clear, || value.set(lit(reset.into(), f.width)));
                }
                values.0.push((r.name, f.name, value));
            }
            for (i, dword) in (0u32..).zip(bits.chunks(32)) {
                let mut dword = dword.to_vec();
                dword.reverse();
                words.push((r.offset / 4 + i, cat(&dword)));
            }
        }
        switch(a.read_addr.bits(0, 10), |s| {
            for (at, value) in words {
                s.is(at, || read_word.set(value));
            }
        });
        word.set(read_page.eq(0).mux(read_word, 0));
        read_page.bit(1).mux(p.table_rdata, word)
    });

    p.cc_en.set(values.get("CC", "EN"));
    p.cc_shn.set(values.get("CC", "SHN"));
    let unsupported = values.get("CC", "CSS").any()
        | values.get("CC", "MPS").any()
        | values.get("CC", "AMS").any();
    p.cc_supported.set(!unsupported);
    p.asqs.set(values.get("AQA", "ASQS"));
    p.acqs.set(values.get("AQA", "ACQS"));
    p.asq.set(cat(&[values.get("ASQ", "ASQB"), lit(0, 12)]));
    p.acq.set(cat(&[values.get("ACQ", "ACQB"), lit(0, 12)]));

    let page = page_of(access.write_addr);
    let index = access.write_addr.bits(0, 10);
    let bell = access.write & page.eq(1) & access.write_strb.bits(0, 2).all();
    let bell_queue = index.bits(1, 9);
    let bell_known = bell_queue.le(c.queues);
    p.doorbell.valid.set(bell & bell_known);
    p.doorbell.is_cq.set(index.bit(0));
    p.doorbell.queue.set(bell_queue.trunc(c.queue_bits()));
    p.doorbell.value.set(access.write_data.bits(0, 16));
    p.doorbell_bad.set(bell & !bell_known);

    let table_write = access.write & page.bit(1);
    p.table_we.set(table_write);
    let table_at = access.write.mux(access.write_addr, access.read_addr);
    p.table_addr.set(table_at.bits(0, 11));
    p.table_wdata.set(access.write_data);
    p.table_strb.set(access.write_strb);
    p.idle.set(
        !access.busy
            & !(p.bar0.awvalid & p.bar0.wvalid)
            & !p.bar0.arvalid
            & !p.bar0.bvalid
            & !p.bar0.rvalid,
    );
}

/// The part of a write that falls on a field, in one or two dwords.
fn write_field(a: &crate::axi_lite::Access, page: Sig, offset: u32, f: &regs::Field, value: Sig) {
    let (lo, hi) = (f.lo, f.lo + f.width);
    for dword in lo / 32..hi.div_ceil(32) {
        let from = lo.max(32 * dword);
        let to = hi.min(32 * dword + 32);
        let (here, width) = (from - 32 * dword, to - from);
        let hit = a.write & page.eq(0) & a.write_addr.bits(0, 10).eq(offset / 4 + dword);
        let mask = a.write_mask.bits(here, width);
        let old = value.bits(from - lo, width);
        let new = (old & !mask) | (a.write_data.bits(here, width) & mask);
        when(hit, || value.set_bits(from - lo, new));
    }
}
