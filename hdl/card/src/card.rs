//! `card`: the whole card; wires the blocks in the order of a command's life.
//!
//! ```text
//!             doorbells                                          host AXI4
//!  bar0_* ──► bar0 ────────┐   ┌──────────────────────────────── host_port ── host_id_map ── bus_gate ──► host_*
//!             │ table      ▼   ▼ entries                           ▲   ▲  ▲
//!             │         sq_fetch ──► decode ──► lun_engine ──► dma ┘   │  │
//!             │            ▲  slots     │ admin   │ lists      └── media_id_map ──► media_*
//!             │            └── slots ◄──┼──── cq_post ─────────────────┘  │
//!             ▼                         ▼         │ events                │
//!            irq ◄──────────────────────┼─────────┘ ───────────────────────
//!  plat_* ──► lun_map ◄──────────────── admin ◄── ctrl (enable, reset)
//! ```
//!
//! Beside the wires there is only what asks all blocks one question: are they quiet, swept, idle.
//!
//! **Invariants**: every slot is free, or in exactly one of sq_fetch, decode, lun_engine, dma; none is left after a reset.
//! **Latency**: doorbell to completion entry is measured by `make bench`, with its breakdown by stage.

use crate::admin::{AdminPorts, admin};
use crate::axi_id_map::{IdMapPorts, axi_id_map};
use crate::axi_lite::AxiLite;
use crate::bar0::{self, Bar0Ports, bar0};
use crate::bitmap::{BitmapConfig, BitmapPorts, bitmap};
use crate::bus_gate::{BusGatePorts, bus_gate};
use crate::config::CardConfig;
use crate::cq_post::{CqPostPorts, cq_post};
use crate::ctrl::{CtrlPorts, ctrl};
use crate::decode::{DecodePorts, decode};
use crate::dma::{DmaPorts, dma};
use crate::host_port::{HostPortPorts, host_port};
use crate::interfaces::*;
use crate::irq::{IrqPorts, irq};
use crate::lun_engine::{LunEnginePorts, connect_sets, lun_engine};
use crate::lun_map::{self, LunMapPorts, lun_map};
use crate::sq_fetch::{SqFetchPorts, sq_fetch};
use weir_kit::*;

/// An AXI4 port with the specification's signal names, as seen from its master. Bursts are INCR and of the full width.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = AxiParams)]
pub struct AxiMaster {
    /// Write address: id.
    #[bits(p.id_bits)]
    pub awid: Sig,
    /// Write address: byte address of the first byte.
    #[bits(64)]
    pub awaddr: Sig,
    /// Write address: beats - 1.
    #[bits(8)]
    pub awlen: Sig,
    /// Write address: bytes of a beat, as a power of two.
    #[bits(3)]
    pub awsize: Sig,
    /// Write address: 1, INCR.
    #[bits(2)]
    pub awburst: Sig,
    /// Write address is valid.
    #[bits(1)]
    pub awvalid: Sig,
    /// Write address is taken.
    #[flip]
    #[bits(1)]
    pub awready: Sig,
    /// Write data: a beat.
    #[bits(p.data_bits)]
    pub wdata: Sig,
    /// Write data: byte strobes.
    #[bits(p.data_bits / 8)]
    pub wstrb: Sig,
    /// Write data: last beat.
    #[bits(1)]
    pub wlast: Sig,
    /// Write data is valid.
    #[bits(1)]
    pub wvalid: Sig,
    /// Write data is taken.
    #[flip]
    #[bits(1)]
    pub wready: Sig,
    /// Write response: id.
    #[flip]
    #[bits(p.id_bits)]
    pub bid: Sig,
    /// Write response: 0 OKAY, 2 SLVERR, 3 DECERR.
    #[flip]
    #[bits(2)]
    pub bresp: Sig,
    /// Write response is valid.
    #[flip]
    #[bits(1)]
    pub bvalid: Sig,
    /// Write response is taken.
    #[bits(1)]
    pub bready: Sig,
    /// Read address: id.
    #[bits(p.id_bits)]
    pub arid: Sig,
    /// Read address: byte address of the first byte.
    #[bits(64)]
    pub araddr: Sig,
    /// Read address: beats - 1.
    #[bits(8)]
    pub arlen: Sig,
    /// Read address: bytes of a beat, as a power of two.
    #[bits(3)]
    pub arsize: Sig,
    /// Read address: 1, INCR.
    #[bits(2)]
    pub arburst: Sig,
    /// Read address is valid.
    #[bits(1)]
    pub arvalid: Sig,
    /// Read address is taken.
    #[flip]
    #[bits(1)]
    pub arready: Sig,
    /// Read data: id.
    #[flip]
    #[bits(p.id_bits)]
    pub rid: Sig,
    /// Read data: a beat.
    #[flip]
    #[bits(p.data_bits)]
    pub rdata: Sig,
    /// Read data: 0 OKAY, 2 SLVERR, 3 DECERR.
    #[flip]
    #[bits(2)]
    pub rresp: Sig,
    /// Read data: last beat.
    #[flip]
    #[bits(1)]
    pub rlast: Sig,
    /// Read data is valid.
    #[flip]
    #[bits(1)]
    pub rvalid: Sig,
    /// Read data is taken.
    #[bits(1)]
    pub rready: Sig,
}

/// Ports of [`card`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct CardPorts {
    /// The host's registers and doorbells.
    #[input]
    #[params(&bar0::ADDR_BITS)]
    pub bar0: AxiLite,
    /// The platform's registers: LUN map and limits.
    #[input]
    #[params(&lun_map::ADDR_BITS)]
    pub plat: AxiLite,
    /// Host memory, through the PCIe block's bridge.
    #[output]
    #[params(&p.host_id_map().outer())]
    pub host: AxiMaster,
    /// Media.
    #[output]
    #[params(&p.media_id_map().outer())]
    pub media: AxiMaster,
    /// Bus Master Enable of the PCI command register.
    #[input]
    #[bits(1)]
    pub bus_master_enable: Sig,
    /// MSI-X Enable of the PCIe capability.
    #[input]
    #[bits(1)]
    pub msix_enable: Sig,
    /// Function Mask of the PCIe capability.
    #[input]
    #[bits(1)]
    pub msix_function_mask: Sig,
    /// Function level reset.
    #[input]
    #[bits(1)]
    pub flr: Sig,
    /// Free-running time in cycles.
    #[input]
    #[bits(CYCLE_BITS)]
    pub cycle: Sig,
    /// With inputs held nothing but free-running counters would change.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// The blocks that [`card`] instantiates.
struct Blocks {
    bar0: Module,
    lun_map: Module,
    ctrl: Module,
    sq_fetch: Module,
    slots: Module,
    decode: Module,
    lun_engine: Module,
    tags: Module,
    lun_work: Module,
    dma: Module,
    cq_post: Module,
    irq: Module,
    admin: Module,
    host_port: Module,
    bus_gate: Module,
    host_id_map: Module,
    media_id_map: Module,
}

/// Builds the whole card; [`Module::files`] of it is the Verilog, a file a module.
pub fn card(c: &CardConfig) -> Module {
    let blocks = Blocks {
        bar0: bar0(c),
        lun_map: lun_map(c),
        ctrl: ctrl(c),
        sq_fetch: sq_fetch(c),
        slots: bitmap(&BitmapConfig::allocator(c.slots())),
        decode: decode(c),
        lun_engine: lun_engine(c),
        tags: bitmap(&BitmapConfig::allocator(c.tags)),
        lun_work: bitmap(&BitmapConfig::work(c.luns)),
        dma: dma(c),
        cq_post: cq_post(c),
        irq: irq(c),
        admin: admin(c),
        host_port: host_port(c),
        bus_gate: bus_gate(&c.host_id_map().outer(), c.host_max_outstanding),
        host_id_map: axi_id_map(&c.host_id_map()),
        media_id_map: axi_id_map(&c.media_id_map()),
    };
    module("card", "The Weir card.", c, |p: CardPorts| {
        body(c, p, &blocks)
    })
}

/// The channels of a port, as streams.
struct Channels<'a> {
    ar: &'a Stream<AxiAr>,
    r: &'a Stream<AxiR>,
    aw: &'a Stream<AxiAw>,
    w: &'a Stream<AxiW>,
    b: &'a Stream<AxiB>,
}

/// Connects channels to a port. Returns: something stands at the pins, waiting to be taken.
fn connect(channels: &Channels, port: &AxiMaster, size: u32) -> Sig {
    let Channels { ar, r, aw, w, b } = channels;
    port.arid.set(ar.payload.id);
    port.araddr.set(ar.payload.addr);
    port.arlen.set(ar.payload.len);
    port.arsize.set(size);
    port.arburst.set(1);
    port.arvalid.set(ar.valid);
    ar.ready.set(port.arready);
    port.awid.set(aw.payload.id);
    port.awaddr.set(aw.payload.addr);
    port.awlen.set(aw.payload.len);
    port.awsize.set(size);
    port.awburst.set(1);
    port.awvalid.set(aw.valid);
    aw.ready.set(port.awready);
    port.wdata.set(w.payload.data);
    port.wstrb.set(w.payload.strb);
    port.wlast.set(w.payload.last);
    port.wvalid.set(w.valid);
    w.ready.set(port.wready);
    b.offer(
        port.bvalid,
        &AxiB {
            id: port.bid,
            resp: port.bresp,
        },
    );
    port.bready.set(b.ready);
    r.offer(
        port.rvalid,
        &AxiR {
            id: port.rid,
            data: port.rdata,
            resp: port.rresp,
            last: port.rlast,
        },
    );
    port.rready.set(r.ready);
    ar.valid | aw.valid | w.valid
}

/// The card gives back only what it has taken: asserted here, since nothing of the card looks at a set's error flags.
#[hw]
fn puts_what_is_out(set: &BitmapPorts) {
    assert(
        "what_is_put_was_out",
        !(set.error_double_put | set.error_range),
    );
    unused(set.count);
}

#[hw]
fn body(c: &CardConfig, p: CardPorts, b: &Blocks) {
    let bar0 = instance::<Bar0Ports>("u_bar0", &b.bar0, c);
    let lun_map = instance::<LunMapPorts>("u_lun_map", &b.lun_map, c);
    let ctrl = instance::<CtrlPorts>("u_ctrl", &b.ctrl, c);
    let fetch = instance::<SqFetchPorts>("u_sq_fetch", &b.sq_fetch, c);
    let slots = instance::<BitmapPorts>("u_slots", &b.slots, &BitmapConfig::allocator(c.slots()));
    let decode = instance::<DecodePorts>("u_decode", &b.decode, c);
    let engine = instance::<LunEnginePorts>("u_lun_engine", &b.lun_engine, c);
    let tags = instance::<BitmapPorts>("u_tags", &b.tags, &BitmapConfig::allocator(c.tags));
    let lun_work = instance::<BitmapPorts>("u_lun_work", &b.lun_work, &BitmapConfig::work(c.luns));
    let dma = instance::<DmaPorts>("u_dma", &b.dma, c);
    let cq_post = instance::<CqPostPorts>("u_cq_post", &b.cq_post, c);
    let irq = instance::<IrqPorts>("u_irq", &b.irq, c);
    let admin = instance::<AdminPorts>("u_admin", &b.admin, c);
    let port = instance::<HostPortPorts>("u_host_port", &b.host_port, c);
    let host_map = instance::<IdMapPorts>("u_host_id_map", &b.host_id_map, &c.host_id_map());
    let gate = instance::<BusGatePorts>("u_bus_gate", &b.bus_gate, &c.host_id_map().outer());
    let media_map = instance::<IdMapPorts>("u_media_id_map", &b.media_id_map, &c.media_id_map());

    comment("1. registers and doorbells");
    bar0.bar0.set(&p.bar0);
    bar0.registers_clear.set(ctrl.registers_clear);
    bar0.csts_rdy.set(ctrl.csts_rdy);
    bar0.csts_cfs.set(ctrl.csts_cfs);
    bar0.csts_shst.set(ctrl.csts_shst);
    bar0.table_rdata.set(irq.table_rdata);
    lun_map.plat.set(&p.plat);

    let discard = ctrl.discard;
    let clear = ctrl.clear;
    ctrl.cc_en.set(bar0.cc_en);
    ctrl.cc_shn.set(bar0.cc_shn);
    ctrl.cc_supported.set(bar0.cc_supported);
    ctrl.asq.set(bar0.asq);
    ctrl.acq.set(bar0.acq);
    ctrl.asqs.set(bar0.asqs);
    ctrl.acqs.set(bar0.acqs);
    ctrl.flr.set(p.flr);
    ctrl.fault.set(fetch.fault | cq_post.fault);
    ctrl.executing_none.set(engine.executing.none());

    comment("2. submission queue entries; a slot for each");
    // Ctrl sets the admin queue up while admin can have no command.
    let sq_set = SqSet::choose(ctrl.sq_set.valid, &ctrl.sq_set, &admin.sq_set);
    fetch.discard.set(discard);
    fetch.clear.set(clear);
    fetch.sq_set.set(&sq_set);
    fetch.doorbell.set(&bar0.doorbell);
    // On its way through decode the entry has left sq_fetch and not come to admin.
    fetch.admin_quiet.set(admin.quiet & !decode.admin_held);
    admin
        .entry_coming
        .set(fetch.admin_coming | decode.admin_held);
    fetch.slot.valid.set(slots.take.valid);
    fetch.slot.payload.set(slots.take.payload.index);
    slots.take.ready.set(fetch.slot.ready);
    slots.clear.set(clear);
    slots.limit.set(0);
    slots.put.valid.set(cq_post.slot_free_valid);
    slots.put.index.set(cq_post.slot_free);
    puts_what_is_out(&slots);
    fetch.release_valid.set(cq_post.slot_free_valid);
    fetch.release_sq.set(cq_post.release_sq);
    fetch.head_sq.set(cq_post.head_sq);
    fetch.query_sq.set(admin.dying_sq);
    port.sq_ar.set(&fetch.ar);
    fetch.r_valid.set(port.sq_r.valid);
    fetch.r.set(&port.sq_r.payload);
    port.sq_r.ready.set(1);

    comment("3. decode");
    decode.entry.set(&fetch.entry);
    decode.dying.set(admin.dying);
    decode.dying_sq.set(admin.dying_sq);
    decode.luns.set(lun_map.luns);
    lun_map.decode_lun.set(decode.lookup_lun);
    decode.lookup_present.set(lun_map.decode_present);
    decode.lookup_base.set(lun_map.decode_base);
    decode.lookup_blocks.set(lun_map.decode_blocks);

    comment("4, 5, 7. park, admit, complete");
    engine.discard.set(discard);
    engine.clear.set(clear);
    engine.tags.set(lun_map.tags);
    engine.cycle.set(p.cycle.trunc(engine.cycle.width()));
    engine.park.set(&decode.park);
    engine.reject.set(&decode.reject);
    engine.done.set(&dma.done);
    engine.sq_to_cq.valid.set(sq_set.valid);
    engine.sq_to_cq.sq.set(sq_set.sq);
    engine.sq_to_cq.cq.set(sq_set.cq);
    engine.pop.offer(cq_post.pop_valid, &cq_post.pop_cq);
    unused(engine.pop.ready);
    engine.walk.set(&admin.walk);
    engine.budget.set(&admin.budget);
    engine
        .snapshot
        .offer(admin.snapshot_valid, &admin.snapshot_lun);
    connect_sets(&engine, &tags, &lun_work);
    for set in [&tags, &lun_work] {
        set.clear.set(clear);
        puts_what_is_out(set);
    }

    comment("6. data");
    dma.exec.set(&engine.exec);
    dma.exec_weight.set(engine.exec_weight);
    dma.rule.set(engine.rule);
    dma.cmd_write.set(&decode.cmd_write);
    port.prp_ar.set(&dma.list_ar);
    dma.list_r.set(&port.prp_r);
    port.data_ar.set(&dma.host_ar);
    dma.host_r.set(&port.data_r);
    port.data_aw.set(&dma.host_aw);
    port.data_w.set(&dma.host_w);
    dma.host_b.set(&port.data_b);
    media_map.inner_ar.set(&dma.media_ar);
    dma.media_r.set(&media_map.inner_r);
    media_map.inner_aw.set(&dma.media_aw);
    media_map.inner_w.set(&dma.media_w);
    dma.media_b.set(&media_map.inner_b);

    comment("8. completion queue entries");
    let cq_set = CqSet::choose(ctrl.cq_set.valid, &ctrl.cq_set, &admin.cq_set);
    cq_post.discard.set(discard);
    cq_post.clear.set(clear);
    cq_post.cq_set.set(&cq_set);
    cq_post.doorbell.set(&bar0.doorbell);
    cq_post.cq_work_valid.set(engine.cq_work_valid);
    cq_post.cq_work_cq.set(engine.cq_work_cq);
    cq_post.popped_valid.set(engine.popped_valid);
    cq_post.popped.set(&engine.popped);
    cq_post.admin_cpl.set(&admin.cpl);
    cq_post.head.set(fetch.head);
    port.cq_aw.set(&cq_post.aw);
    port.cq_w.set(&cq_post.w);
    cq_post.b_valid.set(port.cq_b.valid);
    cq_post.b_resp.set(port.cq_b.payload.resp);
    port.cq_b.ready.set(1);

    comment("9. interrupts");
    irq.clear.set(clear);
    irq.cycle.set(p.cycle);
    irq.msix_enable.set(p.msix_enable);
    irq.msix_function_mask.set(p.msix_function_mask);
    irq.event_valid.set(cq_post.irq_valid);
    irq.event_vector.set(cq_post.irq_vector);
    irq.event_entries.set(cq_post.irq_entries);
    irq.gather_threshold.set(admin.coalescing_threshold);
    irq.gather_time.set(admin.coalescing_time);
    irq.gather_disable.set(admin.coalescing_disable);
    irq.table_we.set(bar0.table_we);
    irq.table_addr.set(bar0.table_addr);
    irq.table_wdata.set(bar0.table_wdata);
    irq.table_strb.set(bar0.table_strb);
    port.msi_aw.set(&irq.aw);
    port.msi_w.set(&irq.w);
    irq.b_valid.set(port.msi_b.valid);
    port.msi_b.ready.set(1);

    comment("the admin queue");
    admin.clear.set(clear);
    admin.entry_valid.set(decode.admin_valid);
    admin.entry_data.set(decode.admin_data);
    decode.admin_ready.set(admin.entry_ready);
    // Behind it in decode are I/O entries; for them waits Delete, and a full admin CQ must not hold them up.
    assert(
        "admin_takes_its_entry_at_once",
        !decode.admin_valid | admin.entry_ready,
    );
    admin.sq_busy.set(fetch.query_busy);
    admin.walk_done.set(engine.walk_done);
    admin.walk_found.set(engine.walk_found);
    admin.budget_reply_valid.set(engine.budget_reply_valid);
    admin.budget_reply.set(&engine.budget_reply);
    admin.snapshot_ready.set(engine.snapshot.ready);
    admin.stats_valid.set(engine.stats_valid);
    admin.stats.set(&engine.stats);
    lun_map.admin_lun.set(admin.lookup_lun);
    admin.lookup_present.set(lun_map.admin_present);
    admin.lookup_blocks.set(lun_map.admin_blocks);
    admin.queues.set(lun_map.queues);
    admin.luns.set(lun_map.luns);
    admin.tags.set(lun_map.tags);
    admin
        .doorbell_bad_register
        .set(bar0.doorbell_bad | fetch.doorbell_bad_register | cq_post.doorbell_bad_register);
    admin
        .doorbell_bad_value
        .set(fetch.doorbell_bad_value | cq_post.doorbell_bad_value);
    admin.io_valid.set(engine.completed_valid);
    admin.io_op.set(engine.completed_op);
    admin.io_blocks.set(engine.completed_blocks);
    admin.error.set(&engine.completed);
    admin
        .error_valid
        .set(engine.completed_valid & engine.completed.status.any());
    port.admin_aw.set(&admin.aw);
    port.admin_w.set(&admin.w);
    admin.b_valid.set(port.admin_b.valid);
    admin.b_resp.set(port.admin_b.payload.resp);
    port.admin_b.ready.set(1);
    unused(port.admin_b.payload.id);
    unused(port.msi_b.payload);
    unused(port.cq_b.payload.id);

    comment("the ports");
    host_map.inner_ar.set(&port.ar);
    port.r.set(&host_map.inner_r);
    host_map.inner_aw.set(&port.aw);
    host_map.inner_w.set(&port.w);
    port.b.set(&host_map.inner_b);
    gate.enable.set(p.bus_master_enable);
    gate.draining.set(discard);
    gate.inner_ar.set(&host_map.outer_ar);
    host_map.outer_r.set(&gate.inner_r);
    gate.inner_aw.set(&host_map.outer_aw);
    gate.inner_w.set(&host_map.outer_w);
    host_map.outer_b.set(&gate.inner_b);
    let size = c.beat_bytes().ilog2();
    let host = Channels {
        ar: &gate.outer_ar,
        r: &gate.outer_r,
        aw: &gate.outer_aw,
        w: &gate.outer_w,
        b: &gate.outer_b,
    };
    let media = Channels {
        ar: &media_map.outer_ar,
        r: &media_map.outer_r,
        aw: &media_map.outer_aw,
        w: &media_map.outer_w,
        b: &media_map.outer_b,
    };
    let host_asks = connect(&host, &p.host, size);
    let media_asks = connect(&media, &p.media, size);

    comment("questions to all blocks");
    let clearing = any_of(&[
        fetch.clearing,
        slots.clearing,
        engine.clearing,
        tags.clearing,
        lun_work.clearing,
        cq_post.clearing,
        irq.clearing,
    ]);
    ctrl.clearing.set(clearing);
    let quiet = all_of(&[
        fetch.quiet,
        decode.empty,
        engine.empty,
        engine.executing.none(),
        cq_post.quiet,
        irq.quiet,
        admin.quiet,
        port.quiet,
        gate.quiet,
        host_map.quiet,
        media_map.quiet,
    ]);
    ctrl.quiet.set(quiet);
    let idle = all_of(&[
        bar0.idle,
        lun_map.idle,
        ctrl.idle,
        fetch.idle,
        slots.idle,
        decode.idle,
        engine.idle,
        tags.idle,
        lun_work.idle,
        dma.idle,
        cq_post.idle,
        irq.idle,
        admin.idle,
        port.idle,
        gate.idle,
        host_map.idle,
        media_map.idle,
        !host_asks,
        !media_asks,
    ]);
    p.idle.set(idle & !clearing);
}
