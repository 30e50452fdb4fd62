//! `admin_data`: writes the data of an admin command, a stream of dwords, to PRP1 and then PRP2.
//!
//! ```text
//!  start {prp1, prp2, dwords} ──►┌────────────┐──► aw, w   one beat a burst (host port, kind ADMIN)
//!  dword (valid/ready) ─────────►│ admin_data │◄── b
//!                                └────────────┘──► done {error}
//! ```
//!
//! Dwords are gathered into one bus beat; a full beat, or the last one, is written with its strobes. Admin data is rare, so
//! one beat in flight is enough: no buffer, and no burst can cross a page.
//!
//! **Invariants**: `done` comes after the B of every beat; at most one burst is outstanding; no address outside the two
//! pages is written. **Latency**: a beat every `beat dwords + 4` cycles and the host's B.

use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// Most dwords of one transfer: PRP1's page and PRP2's.
pub const DWORDS_BITS: u32 = 12;

/// Ports of [`admin_data`].
#[derive(Clone, Bundle)]
#[bundle(params = CardConfig)]
pub struct AdminDataPorts {
    /// Begin; only when not busy.
    #[input]
    #[bits(1)]
    pub start: Sig,
    /// PRP Entry 1, dword aligned.
    #[input]
    #[bits(64)]
    pub prp1: Sig,
    /// PRP Entry 2, page aligned where it is needed.
    #[input]
    #[bits(64)]
    pub prp2: Sig,
    /// How many dwords, at least 1.
    #[input]
    #[bits(DWORDS_BITS)]
    pub dwords: Sig,
    /// The next dword.
    #[input]
    #[bits(32)]
    pub dword: Sig,
    /// It is there.
    #[input]
    #[bits(1)]
    pub dword_valid: Sig,
    /// It is taken.
    #[output]
    #[bits(1)]
    pub dword_ready: Sig,
    /// Write address.
    #[output]
    #[params(&p.host_axi())]
    pub aw: Stream<AxiAw>,
    /// Write data.
    #[output]
    #[params(&p.host_axi())]
    pub w: Stream<AxiW>,
    /// Write response; always taken. Valid only for this block's kind.
    #[input]
    #[bits(1)]
    pub b_valid: Sig,
    /// Its resp.
    #[input]
    #[bits(2)]
    pub b_resp: Sig,
    /// Pulse: everything is written.
    #[output]
    #[bits(1)]
    pub done: Sig,
    /// With `done`: a beat was refused.
    #[output]
    #[bits(1)]
    pub error: Sig,
    /// Nothing would change with the inputs held.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Where the writer is.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing to do.
    Idle,
    /// Gathers dwords into the beat.
    Gather,
    /// Offers address and data.
    Write,
    /// Waits for the response.
    Response,
}

/// Builds the block.
pub fn admin_data(c: &CardConfig) -> Module {
    module(
        "admin_data",
        "Writes the data of an admin command to PRP1 and PRP2, a beat a burst.",
        c,
        |p: AdminDataPorts| body(c, p),
    )
}

#[hw]
fn body(c: &CardConfig, p: AdminDataPorts) {
    let lanes = c.beat_bytes() / 4;
    let lane_bits = lanes.trailing_zeros();
    unused(p.prp1.bits(0, 2));
    unused(p.prp2.bits(0, 12));

    let state = State::Idle.reg();
    let page = reg_nr(52);
    let next_page = reg_nr(52);
    let dword_at = reg_nr(10);
    let left = reg_nr(DWORDS_BITS);
    let beat = reg_nr(c.data_bits);
    let strobes = reg_nr(lanes);
    let beat_addr = reg_nr(64);
    let failed = reg_nr(1);
    let aw_taken = reg_nr(1);
    let w_taken = reg_nr(1);

    let lane = dword_at.bits(0, lane_bits);
    let gather = state.is(State::Gather) & p.dword_valid;
    let last_lane = lane.all();
    let last_dword = left.eq(1);
    p.dword_ready.set(state.is(State::Gather));

    let aw_done = aw_taken | p.aw.ready;
    let w_done = w_taken | p.w.ready;
    p.done.set(lit(0, 1));
    p.error.set(failed | p.b_resp.bit(1));

    switch(state, |s| {
        s.is(State::Idle, || {
            when(p.start, || {
                page.set(p.prp1.bits(12, 52));
                next_page.set(p.prp2.bits(12, 52));
                dword_at.set(p.prp1.bits(2, 10));
                left.set(p.dwords);
                strobes.set(lit(0, lanes));
                failed.set(lit(0, 1));
                state.set(State::Gather.lit());
            });
        });
        s.is(State::Gather, || {
            when(gather, || {
                let mut lanes_now = Vec::new();
                for i in (0..lanes).rev() {
                    lanes_now.push(lane.eq(i).mux(p.dword, beat.bits(32 * i, 32)));
                }
                beat.set(cat(&lanes_now));
                strobes.set(strobes | onehot(lane, lanes));
                beat_addr.set(cat(&[
                    page,
                    dword_at.bits(lane_bits, 10 - lane_bits),
                    lit(0, lane_bits + 2),
                ]));
                dword_at.set(dword_at + 1);
                left.set(left - 1);
                when(dword_at.all(), || page.set(next_page));
                when(last_lane | last_dword, || {
                    aw_taken.set(lit(0, 1));
                    w_taken.set(lit(0, 1));
                    state.set(State::Write.lit());
                });
            });
        });
        s.is(State::Write, || {
            aw_taken.set(aw_done);
            w_taken.set(w_done);
            when(aw_done & w_done, || state.set(State::Response.lit()));
        });
        s.is(State::Response, || {
            when(p.b_valid, || {
                strobes.set(lit(0, lanes));
                failed.set(failed | p.b_resp.bit(1));
                when(left.eq(0), || {
                    p.done.set(lit(1, 1));
                    state.set(State::Idle.lit());
                })
                .otherwise(|| state.set(State::Gather.lit()));
            });
        });
    });
    unused(p.b_resp.bit(0));

    let moves = p.aw.fire() | p.w.fire();
    p.idle.set(
        (state.is(State::Idle) & !p.start)
            | (state.is(State::Gather) & !p.dword_valid)
            | (state.is(State::Write) & !moves)
            | (state.is(State::Response) & !p.b_valid),
    );

    p.aw.valid.set(state.is(State::Write) & !aw_taken);
    p.aw.payload
        .id
        .set(cat(&[WriteKind::Admin.lit(), lit(0, c.chunk_bits())]));
    p.aw.payload.addr.set(beat_addr);
    p.aw.payload.len.set(lit(0, 8));
    p.w.valid.set(state.is(State::Write) & !w_taken);
    p.w.payload.data.set(beat);
    let mut bytes = Vec::new();
    for i in (0..lanes).rev() {
        bytes.push(strobes.bit(i).repeat(4));
    }
    p.w.payload.strb.set(cat(&bytes));
    p.w.payload.last.set(lit(1, 1));
}
