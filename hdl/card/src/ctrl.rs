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
//! loss of EN until the sweep has ended. All are proven (`check`, docs/proofs.md).
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

    check(&p);
}

/// What the host and the other blocks see of a reset, from the ports alone.
#[hw]
fn check(p: &CtrlPorts) {
    formal(|| {
        let lives = past_valid();
        let was = |x: Sig| lives & past(x);
        let fell = |x: Sig| lives & !x & past(x);
        let (rdy, start) = (p.csts_rdy, p.sq_set.valid);
        let count = |more: Sig| {
            let cycles = reg(2, 0);
            when(!more, || cycles.set(0)).elsewhen(!cycles.all(), || cycles.set(cycles + 1));
            cycles
        };

        comment("a life: from the admin queues to the clear");
        let in_life = reg(1, 0);
        when(start, || in_life.set(1)).elsewhen(p.clear, || in_life.set(0));
        let flr_asked = reg(1, 0);
        let lived = reg(1, 0);
        when(in_life & p.clear, || lived.set(1));
        when(p.flr, || flr_asked.set(1)).elsewhen(p.clear, || flr_asked.set(0));
        assert("admin_queues_come_together", start.eq(p.cq_set.valid));
        assert(
            "queues_are_set_up_once",
            !start | !(in_life | p.discard | flr_asked),
        );
        assert("ready_is_in_a_life", !rdy | in_life);
        let ready_for =
            count(p.cc_en & p.cc_supported & !p.flr & !flr_asked & !p.csts_cfs & !p.discard & !rdy);
        assert("is_ready_in_time", ready_for.le(2));

        comment("what is quiet while everything drains stays so until the clear");
        let drained = was(p.discard & p.quiet);
        assume("quiet_stays_in_a_drain", !(drained & p.discard) | p.quiet);
        assert("clear_only_when_quiet", !p.clear | p.quiet);
        assert("ready_ends_with_a_clear", !fell(rdy) | p.clear);
        let off_for = count(rdy & (!p.cc_en | flr_asked) & p.quiet);
        assert("is_off_in_time", off_for.le(2));
        let lost = was(rdy & (!p.cc_en | p.flr));
        assert("disabled_is_drained", !lost | p.discard);
        assert(
            "discard_ends_with_the_sweep",
            !fell(p.discard) | !past(p.clearing),
        );
        assert("cleared_is_swept", !was(p.clear) | p.discard);
        assert(
            "registers_go_with_an_flr",
            p.registers_clear.eq(p.clear & flr_asked),
        );

        comment("shutdown is done once nothing executes");
        let none_left = reg(1, 0);
        let shutting = rdy & p.cc_shn.any();
        when(shutting & p.executing_none, || none_left.set(1))
            .elsewhen(!shutting, || none_left.set(0));
        assert(
            "shut_down_means_none_executes",
            p.csts_shst.ne(2) | none_left,
        );
        assert("shuts_down_when_told", p.csts_shst.none() | was(shutting));

        cover("again_ready", rdy & lived);
        cover(
            "disabled_under_load",
            rdy & p.discard & !p.quiet & !flr_asked,
        );
        cover("flr_under_load", rdy & flr_asked & !p.quiet);
        cover("flr_while_off", p.registers_clear & !in_life);
        cover("refused", p.csts_cfs & !in_life);
        cover("shut_down", p.csts_shst.eq(2) & was(p.csts_shst.eq(1)));
    });
}

#[hw]
fn mux_state(p: &CtrlPorts, state: Sig, shutdown: Sig) -> Sig {
    let off = p.cc_shn.eq(0) | !state.is(State::On);
    let target = off.mux(lit(0, 2), p.executing_none.mux(lit(2, 2), lit(1, 2)));
    (shutdown.eq(target)) | (!off & shutdown.eq(2))
}
