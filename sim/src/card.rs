//! What the world needs of a card: its pins, a cycle at a time. The Verilated card has them, and so has any plain Rust
//! model of one.

use verilator_sys::{In, Memory, Model, Out, Sim, WideIn, WideOut};
use weir_card::lun_engine::row;

use crate::axi::{Addr, MasterOut, Shape, SlaveOut};
use crate::config::Signals;
use crate::lite::{LiteIn, LiteOut};

/// The card's inputs in a cycle.
#[derive(Clone, Copy, Debug, Default)]
pub struct CardIn {
    /// Synchronous reset.
    pub rst: bool,
    /// Free-running time in cycles, skipped ones included (48 bits are wired).
    pub cycle: u64,
    /// BAR0.
    pub bar0: LiteIn,
    /// The platform's registers: LUN map and run-time limits.
    pub plat: LiteIn,
    /// The host's side of the host port.
    pub host: SlaveOut,
    /// Media's side of the media port.
    pub media: SlaveOut,
    /// From the PCIe block.
    pub signals: Signals,
    /// Function Level Reset, a pulse.
    pub flr: bool,
}

/// The card's outputs in a cycle.
#[derive(Clone, Copy, Debug, Default)]
pub struct CardOut {
    /// BAR0.
    pub bar0: LiteOut,
    /// The platform's registers.
    pub plat: LiteOut,
    /// The card's side of the host port.
    pub host: MasterOut,
    /// The card's side of the media port.
    pub media: MasterOut,
    /// With inputs held, nothing but free-running counters would change.
    pub idle: bool,
}

/// Why a card cannot be clocked any more, or was not built.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// Building or starting the Verilated model.
    #[error(transparent)]
    Model(#[from] verilator_sys::Error),
    /// An assertion in the Verilog failed.
    #[error("the card's Verilog: {0}")]
    Assert(#[from] verilator_sys::AssertError),
    /// The top level has no port that a card must have, or one of another width.
    #[error("the card's port {port}: {problem}")]
    Port {
        /// Its name.
        port: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A card, clocked from outside. A cycle is [`Card::settle`], then [`Card::clock`].
pub trait Card {
    /// Widths of the host and of the media port.
    fn shapes(&self) -> (Shape, Shape);
    /// Applies the inputs of this cycle and gives the outputs that follow from them and from the state. Payloads are
    /// given only with their valid.
    fn settle(&mut self, inputs: &CardIn, outputs: &mut CardOut);
    /// The rising edge.
    fn clock(&mut self) -> Result<(), CardError>;
    /// `cycles` cycles pass that change nothing, because the card was idle.
    fn skip(&mut self, cycles: u64);
    /// Commands of LUN `lun` that execute now, and its depth, read out of the running model: for plots, without the card
    /// knowing. None if this card does not tell.
    fn lun(&self, _lun: u32) -> Option<(u32, u32)> {
        None
    }
    /// Starts an FST trace.
    fn trace(&mut self, path: &std::path::Path) -> Result<(), CardError>;
    /// Ends the trace, if one was started, so that its file is complete.
    fn trace_end(&mut self) {}
}

struct LitePorts {
    aw_valid: In,
    aw_addr: In,
    w_valid: In,
    w_data: In,
    w_strb: In,
    b_ready: In,
    ar_valid: In,
    ar_addr: In,
    r_ready: In,
    aw_ready: Out,
    w_ready: Out,
    b_valid: Out,
    b_resp: Out,
    ar_ready: Out,
    r_valid: Out,
    r_data: Out,
    r_resp: Out,
    last: LiteIn,
}

impl LitePorts {
    fn find(model: &Model, name: &str) -> Result<Self, CardError> {
        let input = |port| model.input(&format!("{name}_{port}"));
        let output = |port| model.output(&format!("{name}_{port}"));
        Ok(LitePorts {
            aw_valid: input("awvalid")?,
            aw_addr: input("awaddr")?,
            w_valid: input("wvalid")?,
            w_data: input("wdata")?,
            w_strb: input("wstrb")?,
            b_ready: input("bready")?,
            ar_valid: input("arvalid")?,
            ar_addr: input("araddr")?,
            r_ready: input("rready")?,
            aw_ready: output("awready")?,
            w_ready: output("wready")?,
            b_valid: output("bvalid")?,
            b_resp: output("bresp")?,
            ar_ready: output("arready")?,
            r_valid: output("rvalid")?,
            r_data: output("rdata")?,
            r_resp: output("rresp")?,
            last: LiteIn::default(),
        })
    }

    fn set(&mut self, sim: &mut Sim, i: &LiteIn) {
        if *i == self.last {
            return;
        }
        self.last = *i;
        let mask = |port: In| u32::MAX >> (32 - port.width().min(32));
        sim.set(self.aw_valid, i.aw_valid);
        sim.set(self.aw_addr, i.aw_addr & mask(self.aw_addr));
        sim.set(self.w_valid, i.w_valid);
        sim.set(self.w_data, i.w_data);
        sim.set(self.w_strb, i.w_strb);
        sim.set(self.b_ready, i.b_ready);
        sim.set(self.ar_valid, i.ar_valid);
        sim.set(self.ar_addr, i.ar_addr & mask(self.ar_addr));
        sim.set(self.r_ready, i.r_ready);
    }

    fn get(&self, sim: &Sim, o: &mut LiteOut) {
        o.aw_ready = sim.is(self.aw_ready);
        o.w_ready = sim.is(self.w_ready);
        o.ar_ready = sim.is(self.ar_ready);
        o.b_valid = sim.is(self.b_valid);
        o.r_valid = sim.is(self.r_valid);
        if o.b_valid {
            o.b_resp = sim.get(self.b_resp) as u8;
        }
        if o.r_valid {
            o.r_data = sim.get(self.r_data) as u32;
            o.r_resp = sim.get(self.r_resp) as u8;
        }
    }
}

/// Payload ports of AW or AR. Size and burst may be left out: full width and INCR then.
struct AddrPorts {
    valid: Out,
    id: Option<Out>,
    addr: Out,
    len: Out,
    size: Option<Out>,
    burst: Option<Out>,
    full_size: u8,
}

impl AddrPorts {
    fn find(model: &Model, prefix: &str, full_size: u8) -> Result<Self, CardError> {
        let output = |port| model.output(&format!("{prefix}{port}"));
        Ok(AddrPorts {
            valid: output("valid")?,
            id: output("id").ok(),
            addr: output("addr")?,
            len: output("len")?,
            size: output("size").ok(),
            burst: output("burst").ok(),
            full_size,
        })
    }

    fn get(&self, sim: &Sim, valid: &mut bool, a: &mut Addr) {
        *valid = sim.is(self.valid);
        if *valid {
            let or =
                |port: Option<Out>, default: u8| port.map_or(default, |port| sim.get(port) as u8);
            *a = Addr {
                id: self.id.map_or(0, |port| sim.get(port) as u32),
                addr: sim.get(self.addr),
                len: sim.get(self.len) as u8,
                size: or(self.size, self.full_size),
                burst: or(self.burst, 1),
            };
        }
    }
}

struct AxiPorts {
    shape: Shape,
    aw: AddrPorts,
    ar: AddrPorts,
    w_valid: Out,
    w_last: Out,
    w_strb: Out,
    w_data: WideOut,
    b_ready: Out,
    r_ready: Out,
    aw_ready: In,
    w_ready: In,
    ar_ready: In,
    b_valid: In,
    b_id: Option<In>,
    b_resp: In,
    r_valid: In,
    r_id: Option<In>,
    r_resp: In,
    r_last: In,
    r_data: WideIn,
    last: SlaveOut,
}

impl AxiPorts {
    fn find(model: &Model, name: &str) -> Result<Self, CardError> {
        let input = |port| model.input(&format!("{name}_{port}"));
        let output = |port| model.output(&format!("{name}_{port}"));
        let r_data = model.wide_input(&format!("{name}_rdata"))?;
        let r_id = input("rid").ok();
        let data_bytes = r_data.width() as usize / 8;
        if ![16, 32, 64].contains(&data_bytes) {
            let problem = format!("{} bits, not 128, 256 or 512", r_data.width());
            return Err(CardError::Port {
                port: format!("{name}_rdata"),
                problem,
            });
        }
        let shape = Shape {
            data_bytes,
            id_bits: r_id.map_or(0, |port| port.width()),
        };
        let full_size = data_bytes.trailing_zeros() as u8;
        Ok(AxiPorts {
            shape,
            aw: AddrPorts::find(model, &format!("{name}_aw"), full_size)?,
            ar: AddrPorts::find(model, &format!("{name}_ar"), full_size)?,
            w_valid: output("wvalid")?,
            w_last: output("wlast")?,
            w_strb: output("wstrb")?,
            w_data: model.wide_output(&format!("{name}_wdata"))?,
            b_ready: output("bready")?,
            r_ready: output("rready")?,
            aw_ready: input("awready")?,
            w_ready: input("wready")?,
            ar_ready: input("arready")?,
            b_valid: input("bvalid")?,
            b_id: input("bid").ok(),
            b_resp: input("bresp")?,
            r_valid: input("rvalid")?,
            r_id,
            r_resp: input("rresp")?,
            r_last: input("rlast")?,
            r_data,
            last: SlaveOut::default(),
        })
    }

    fn set(&mut self, sim: &mut Sim, s: &SlaveOut) {
        let last = &mut self.last;
        if (s.aw_ready, s.w_ready, s.ar_ready) != (last.aw_ready, last.w_ready, last.ar_ready) {
            sim.set(self.aw_ready, s.aw_ready);
            sim.set(self.w_ready, s.w_ready);
            sim.set(self.ar_ready, s.ar_ready);
        }
        if s.b_valid || last.b_valid {
            sim.set(self.b_valid, s.b_valid);
            sim.set(self.b_resp, s.b_resp as u8);
            if let Some(port) = self.b_id {
                sim.set(port, s.b_id);
            }
        }
        if s.r_valid || last.r_valid {
            sim.set(self.r_valid, s.r_valid);
            if s.r_valid {
                sim.set(self.r_resp, s.r_resp as u8);
                sim.set(self.r_last, s.r_last);
                if let Some(port) = self.r_id {
                    sim.set(port, s.r_id);
                }
                sim.set_wide(self.r_data, &s.r_data[..self.shape.words()]);
            }
        }
        last.aw_ready = s.aw_ready;
        last.w_ready = s.w_ready;
        last.ar_ready = s.ar_ready;
        last.b_valid = s.b_valid;
        last.r_valid = s.r_valid;
    }

    fn get(&self, sim: &Sim, m: &mut MasterOut) {
        self.aw.get(sim, &mut m.aw_valid, &mut m.aw);
        self.ar.get(sim, &mut m.ar_valid, &mut m.ar);
        m.w_valid = sim.is(self.w_valid);
        if m.w_valid {
            m.w_last = sim.is(self.w_last);
            m.w_strb = sim.get(self.w_strb);
            sim.get_wide(self.w_data, &mut m.w_data[..self.shape.words()]);
        }
        m.b_ready = sim.is(self.b_ready);
        m.r_ready = sim.is(self.r_ready);
    }
}

/// The card of `hdl/card` under Verilator, as [`crate::model::build`] builds it: an edge lets in the inputs of the cycle
/// that begins. So [`Card::settle`] is the edge between the cycle before and its own, and one evaluation is all of a cycle.
pub struct VerilatedCard {
    sim: Sim,
    rst: In,
    cycle: Option<In>,
    bar0: LitePorts,
    plat: LitePorts,
    host: AxiPorts,
    media: AxiPorts,
    bus_master_enable: In,
    msix_enable: In,
    msix_function_mask: In,
    flr: In,
    idle: Out,
    counts: Option<Memory>,
    cycle_mask: u64,
    last: (bool, bool, Signals),
}

impl VerilatedCard {
    /// Finds the card's ports in the model.
    pub fn new(sim: Sim) -> Result<Self, CardError> {
        let model = sim.model().clone();
        let cycle = model.input("cycle").ok();
        Ok(VerilatedCard {
            rst: model.input("rst")?,
            cycle,
            bar0: LitePorts::find(&model, "bar0")?,
            plat: LitePorts::find(&model, "plat")?,
            host: AxiPorts::find(&model, "host")?,
            media: AxiPorts::find(&model, "media")?,
            bus_master_enable: model.input("bus_master_enable")?,
            msix_enable: model.input("msix_enable")?,
            msix_function_mask: model.input("msix_function_mask")?,
            flr: model.input("flr")?,
            idle: model.output("idle")?,
            counts: model.memory(row::COUNTS),
            cycle_mask: cycle.map_or(0, |port| u64::MAX >> (64 - port.width())),
            last: (false, false, Signals::default()),
            sim,
        })
    }
}

impl Card for VerilatedCard {
    fn shapes(&self) -> (Shape, Shape) {
        (self.host.shape, self.media.shape)
    }

    fn settle(&mut self, inputs: &CardIn, outputs: &mut CardOut) {
        let sim = &mut self.sim;
        if let Some(port) = self.cycle {
            sim.set(port, inputs.cycle & self.cycle_mask);
        }
        self.bar0.set(sim, &inputs.bar0);
        self.plat.set(sim, &inputs.plat);
        self.host.set(sim, &inputs.host);
        self.media.set(sim, &inputs.media);
        let wires = (inputs.rst, inputs.flr, inputs.signals);
        if wires != self.last {
            self.last = wires;
            sim.set(self.rst, inputs.rst);
            sim.set(self.flr, inputs.flr);
            sim.set(self.bus_master_enable, inputs.signals.bus_master_enable);
            sim.set(self.msix_enable, inputs.signals.msix_enable);
            sim.set(self.msix_function_mask, inputs.signals.msix_function_mask);
        }
        sim.tick();
        self.bar0.get(sim, &mut outputs.bar0);
        self.plat.get(sim, &mut outputs.plat);
        self.host.get(sim, &mut outputs.host);
        self.media.get(sim, &mut outputs.media);
        outputs.idle = sim.is(self.idle);
    }

    fn clock(&mut self) -> Result<(), CardError> {
        // An assertion of this cycle's edge fails when the next cycle begins, which the step after it reports.
        Ok(self.sim.check()?)
    }

    fn skip(&mut self, cycles: u64) {
        self.sim.skip(cycles);
    }

    fn lun(&self, lun: u32) -> Option<(u32, u32)> {
        let word = self.sim.word(self.counts?, lun)?;
        Some(row::executing_and_depth(word, self.counts?.width()))
    }

    fn trace(&mut self, path: &std::path::Path) -> Result<(), CardError> {
        Ok(self.sim.trace(path)?)
    }

    fn trace_end(&mut self) {
        self.sim.trace_end();
    }
}
