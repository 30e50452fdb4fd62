//! Counters a LUN that only grow: log page C0h without what the LUN's row knows.
//!
//! ```text
//!  admitted  {lun, waited} --> +-----------+
//!  completed {lun, blocks} --> | lun_stats | --> counts (the cycle after read)
//!  deferred  {lun, reason} --> |           |
//!  read      {lun}         --> +-----------+
//! ```
//! Three block RAMs, one for each kind of event, each with a read-modify-write of two cycles: read, then add and write. An event on
//! the LUN that is being written in the same cycle takes the written value. So events may come every cycle, and a read
//! sees every event of the cycles before it. A read takes the port of the events: the two never come in one cycle.

use crate::config::CardConfig;
use crate::interfaces::BLOCKS_BITS;
use crate::lun_engine::LunPulse;
use crate::lun_engine::row::WAIT_BITS;
use weir_kit::*;

/// A command has been admitted.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct AdmittedEvent {
    /// This cycle.
    #[bits(1)]
    pub valid: Sig,
    /// Its LUN.
    #[bits(p.lun_bits())]
    pub lun: Sig,
    /// Cycles since it was parked.
    #[bits(WAIT_BITS)]
    pub waited: Sig,
}

/// An executed command has completed.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct CompletedEvent {
    /// This cycle.
    #[bits(1)]
    pub valid: Sig,
    /// Its LUN.
    #[bits(p.lun_bits())]
    pub lun: Sig,
    /// 512 B blocks it moved; 0 when it failed.
    #[bits(BLOCKS_BITS)]
    pub blocks: Sig,
}

/// A command is held at the head of its list, for one reason.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct DeferredEvent {
    /// This cycle.
    #[bits(1)]
    pub valid: Sig,
    /// Its LUN.
    #[bits(p.lun_bits())]
    pub lun: Sig,
    /// For the LUN's depth.
    #[bits(1)]
    pub depth: Sig,
    /// For the fairness rule.
    #[bits(1)]
    pub share: Sig,
    /// For want of a tag.
    #[bits(1)]
    pub tags: Sig,
}

/// The counters of one LUN, named as in `LunStats`.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Counts {
    /// Commands admitted.
    #[bits(48)]
    pub admitted: Sig,
    /// Cycles between parking and admission, summed.
    #[bits(64)]
    pub cycles_waited: Sig,
    /// Commands completed.
    #[bits(48)]
    pub completed: Sig,
    /// Bytes of completed Reads and Writes.
    #[bits(64)]
    pub bytes: Sig,
    /// Commands held by the depth.
    #[bits(48)]
    pub deferred_depth: Sig,
    /// Commands held by the fairness rule.
    #[bits(48)]
    pub deferred_share: Sig,
    /// Commands held for want of a tag.
    #[bits(48)]
    pub deferred_tags: Sig,
}

/// Ports of [`lun_stats`].
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct LunStatsPorts {
    /// Sets the counters of one LUN to 0; no event meanwhile.
    #[input]
    pub clear: LunPulse,
    /// Admission.
    #[input]
    pub admitted: AdmittedEvent,
    /// Completion.
    #[input]
    pub completed: CompletedEvent,
    /// Deferral.
    #[input]
    pub deferred: DeferredEvent,
    /// Reads one LUN's counters; not in the cycle of an event.
    #[input]
    pub read: LunPulse,
    /// What was read, the cycle after.
    #[output]
    pub counts: Counts,
}

/// The counters; see the module's documentation.
#[hw]
pub fn lun_stats(c: &CardConfig) -> Module {
    module(
        "lun_stats",
        "Counters a LUN: a read-modify-write of two cycles in each of three RAMs, with forwarding.",
        c,
        |p: LunStatsPorts| {
            let w = |n: u32, x: Sig| x.zext(n);
            let wait = scope("admit", || {
                counters(
                    c,
                    &p,
                    p.admitted.valid,
                    p.admitted.lun,
                    &[lit(1, 48), w(64, p.admitted.waited)],
                )
            });
            let bytes = cat(&[p.completed.blocks, lit(0, 9)]);
            let done = scope("complete", || {
                counters(
                    c,
                    &p,
                    p.completed.valid,
                    p.completed.lun,
                    &[lit(1, 48), w(64, bytes)],
                )
            });
            let d = &p.deferred;
            let held = scope("defer", || {
                counters(
                    c,
                    &p,
                    d.valid,
                    d.lun,
                    &[w(48, d.depth), w(48, d.share), w(48, d.tags)],
                )
            });
            p.counts.admitted.set(wait[0]);
            p.counts.cycles_waited.set(wait[1]);
            p.counts.completed.set(done[0]);
            p.counts.bytes.set(done[1]);
            p.counts.deferred_depth.set(held[0]);
            p.counts.deferred_share.set(held[1]);
            p.counts.deferred_tags.set(held[2]);
        },
    )
}

/// One RAM of counters side by side; `add` is what an event adds to each. Returns what was read for `p.read`.
#[hw]
fn counters(c: &CardConfig, p: &LunStatsPorts, event: Sig, lun: Sig, add: &[Sig]) -> Vec<Sig> {
    let width: u32 = add.iter().map(Sig::width).sum();
    let ram = Mem::new(c.luns.max(2).into(), width).style(Style::Block);
    let lun_read = event.mux(lun, p.read.index);
    let reads = event | p.read.valid;
    let read_word = ram.read(reads, lun_read);

    let adding = reg(1, 0);
    let adding_lun = reg_nr(c.lun_bits());
    adding.set(event);
    adding_lun.set(lun_read);
    let meets_write = reg(1, 0);
    let written_word = reg_nr(width);
    meets_write.set(adding & reads & adding_lun.eq(lun_read));
    let word = meets_write.mux(written_word, read_word);

    let (mut lo, mut old, mut sums) = (0, vec![], vec![]);
    for a in add {
        let part = word.bits(lo, a.width());
        let pending = reg_nr(a.width());
        pending.set(*a);
        old.push(part);
        sums.insert(0, part + pending);
        lo += a.width();
    }
    let sum_word = cat(&sums);
    written_word.set(sum_word);
    ram.write(
        adding | p.clear.valid,
        p.clear.valid.mux(p.clear.index, adding_lun),
        p.clear.valid.mux(lit(0, width), sum_word),
    );
    assume("no_read_in_the_cycle_of_an_event", !(event & p.read.valid));
    assume(
        "no_event_while_clearing",
        !(p.clear.valid & (event | adding)),
    );
    old
}
