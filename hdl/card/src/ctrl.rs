//! `ctrl`: enables, disables and shuts the controller down (NVMe 1.4, 3.1.5, 3.1.6, 7.3, 7.6).
//!
//! ```text
//!  CC.EN, CC.SHN ──►┌──────┐──► CSTS.RDY, CFS, SHST
//!  flr ────────────►│ ctrl │──► discard (drain in silence)   ──► all blocks
//!  quiet ──────────►│      │──► clear (tables to defaults)   ──► all blocks
//!  clearing ───────►└──────┘──► admin SQ and CQ set up
//! ```
//!
//! `Sweep ─► Off ─► Start ─► On ─► Drain ─► Clear ─► Sweep`
//!
//! A disable never cuts: `discard` sends every parked command through the normal pipes without executing or posting it,
//! executing ones end their AXI bursts, and only when `quiet` says that every slot is free and no burst is outstanding
//! are the tables cleared and RDY lowered. `flr` is the same path; it also resets the registers (`registers_clear`).
//!
//! **Invariants**: RDY is high only in `On` and `Drain`; `clear` is given only while `quiet`; `discard` holds from the
//! loss of EN until the sweep has ended.
//!
//! **Latency**: from `clearing` low and EN high to RDY 2 cycles; from `quiet` to RDY low the sweep of the longest table
//! (slots / bitmap word) cycles.

use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// Where the controller is between reset and ready.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for every block's sweep to end.
    Sweep,
    /// Disabled: CSTS.RDY is 0.
    Off,
    /// Sets the admin queues up.
    Start,
    /// Ready.
    On,
    /// Disabling: waits until nothing is left.
    Drain,
    /// Gives the `clear` pulse.
    Clear,
}

/// Ports of [`ctrl`].
#[derive(Clone, Bundle)]
#[bundle(params = CardConfig)]
pub struct CtrlPorts {
    /// CC.EN.
    #[input]
    #[bits(1)]
    pub cc_en: Sig,
    /// CC.SHN.
    #[input]
    #[bits(2)]
    pub cc_shn: Sig,
    /// CC.CSS, MPS and AMS ask only for what CAP offers.
    #[input]
    #[bits(1)]
    pub cc_supported: Sig,
    /// ASQ: byte address of the admin submission queue.
    #[input]
    #[bits(64)]
    pub asq: Sig,
    /// ACQ: byte address of the admin completion queue.
    #[input]
    #[bits(64)]
    pub acq: Sig,
    /// AQA.ASQS: entries - 1.
    #[input]
    #[bits(RING_BITS)]
    pub asqs: Sig,
    /// AQA.ACQS: entries - 1.
    #[input]
    #[bits(RING_BITS)]
    pub acqs: Sig,
    /// Function level reset, a pulse or a level.
    #[input]
    #[bits(1)]
    pub flr: Sig,
    /// A fault that no command can carry (a queue entry that could not be read or posted).
    #[input]
    #[bits(1)]
    pub fault: Sig,
    /// No slot is in use and no AXI burst is outstanding.
    #[input]
    #[bits(1)]
    pub quiet: Sig,
    /// No command executes.
    #[input]
    #[bits(1)]
    pub executing_none: Sig,
    /// Some block still sweeps its tables.
    #[input]
    #[bits(1)]
    pub clearing: Sig,
    /// CSTS.RDY.
    #[output]
    #[bits(1)]
    pub csts_rdy: Sig,
    /// CSTS.CFS.
    #[output]
    #[bits(1)]
    pub csts_cfs: Sig,
    /// CSTS.SHST: 0 normal, 1 shutting down, 2 done.
    #[output]
    #[bits(2)]
    pub csts_shst: Sig,
    /// Drain everything in silence.
    #[output]
    #[bits(1)]
    pub discard: Sig,
    /// Pulse: tables back to their defaults.
    #[output]
    #[bits(1)]
    pub clear: Sig,
    /// Pulse: FLR has ended its drain, registers back to their defaults.
    #[output]
    #[bits(1)]
    pub registers_clear: Sig,
    /// Admin submission queue.
    #[output]
    pub sq_set: SqSet,
    /// Admin completion queue.
    #[output]
    pub cq_set: CqSet,
    /// Nothing would change with the inputs held.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block.
pub fn ctrl(c: &CardConfig) -> Module {
    module(
        "ctrl",
        "Enables, disables and shuts the controller down.",
        c,
        |p: CtrlPorts| body(c, p),
    )
}

#[hw]
fn body(c: &CardConfig, p: CtrlPorts) {
    let state = State::Sweep.reg();
    let flr_pending = reg(1, 0);
    let fatal = reg(1, 0);
    let want_on = p.cc_en & !p.flr & !flr_pending;

    when(p.flr, || flr_pending.set(lit(1, 1)));
    p.registers_clear.set(state.is(State::Clear) & flr_pending);

    switch(state, |s| {
        s.is(State::Sweep, || {
            when(!p.clearing, || state.set(State::Off.lit()));
        });
        s.is(State::Off, || {
            // A function level reset also resets the registers of a controller that was never enabled. A doorbell of
            // one is looked after, and must not be met by the clear.
            when(flr_pending & p.quiet, || state.set(State::Clear.lit())).elsewhen(
                want_on & p.cc_supported & !fatal,
                || {
                    state.set(State::Start.lit());
                },
            );
            when(want_on & !p.cc_supported, || fatal.set(lit(1, 1)));
            when(!p.cc_en & !flr_pending, || fatal.set(lit(0, 1)));
        });
        s.is(State::Start, || state.set(State::On.lit()));
        s.is(State::On, || {
            when(p.fault, || fatal.set(lit(1, 1)));
            when(!want_on, || state.set(State::Drain.lit()));
        });
        s.is(State::Drain, || {
            when(p.quiet, || state.set(State::Clear.lit()));
        });
        s.is(State::Clear, || {
            fatal.set(lit(0, 1));
            flr_pending.set(p.flr);
            state.set(State::Sweep.lit());
        });
    });

    p.clear.set(state.is(State::Clear));
    let off = state.is(State::Off) & !flr_pending;
    p.discard
        .set(!state.is(State::On) & !state.is(State::Start) & !off);
    p.csts_rdy.set(state.is(State::On) | state.is(State::Drain));
    p.csts_cfs.set(fatal);

    let shutdown = reg(2, 0);
    when(p.cc_shn.eq(0) | !state.is(State::On), || {
        shutdown.set(lit(0, 2))
    })
    .elsewhen(p.executing_none, || shutdown.set(lit(2, 2)))
    .elsewhen(shutdown.eq(0), || shutdown.set(lit(1, 2)));
    p.csts_shst.set(shutdown);

    let start = state.is(State::Start);
    let q = c.queue_bits();
    p.sq_set.valid.set(start);
    p.sq_set.sq.set(lit(0, q));
    p.sq_set.enable.set(lit(1, 1));
    p.sq_set.base.set(p.asq);
    p.sq_set.size.set(p.asqs);
    p.sq_set.cq.set(lit(0, q));
    p.cq_set.valid.set(start);
    p.cq_set.cq.set(lit(0, q));
    p.cq_set.enable.set(lit(1, 1));
    p.cq_set.base.set(p.acq);
    p.cq_set.size.set(p.acqs);
    p.cq_set.interrupts.set(lit(1, 1));
    p.cq_set.vector.set(lit(0, q));

    // Off: `fatal` follows EN, and a controller that may start does.
    let off_still = want_on.mux(fatal, !p.cc_en & !fatal);
    let still = (state.is(State::Off) & !flr_pending & off_still)
        | (state.is(State::On) & want_on & (fatal | !p.fault))
        | (state.is(State::Drain) & !p.quiet)
        | (state.is(State::Sweep) & p.clearing);
    // The shutdown field settles within two cycles of CC.SHN or of the last command's end.
    let shutdown_still = mux_state(&p, state, shutdown);
    p.idle.set(still & shutdown_still & !p.flr);

    assert("clear_only_when_quiet", !state.is(State::Clear) | p.quiet);
}

#[hw]
fn mux_state(p: &CtrlPorts, state: Sig, shutdown: Sig) -> Sig {
    let off = p.cc_shn.eq(0) | !state.is(State::On);
    let target = off.mux(lit(0, 2), p.executing_none.mux(lit(2, 2), lit(1, 2)));
    (shutdown.eq(target)) | (!off & shutdown.eq(2))
}
