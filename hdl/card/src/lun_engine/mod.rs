//! The heart of Weir: parks commands on their LUN, admits them under depth, share and tags, and lists them for completion.
//!
//! ```text
//!                 +------------------- lun_engine --------------------+
//!  park    =====> | P0 park     LUN list append                       |
//!  reject  =====> |                                                   | =====> exec    (holds a tag)
//!  done    =====> | P2 admit    LUN list pop, in flight + 1           | -----> cq_work (a CQ's list is no longer empty)
//!  pop     =====> | P3 complete in flight - 1, CQ list append         | -----> popped
//!  walk    =====> |                                                   | -----> walk_done
//!  budget  =====> | P1 other    features, statistics, recheck sweep   | -----> budget_reply
//!  snapshot =====>|                                                   | -----> stats
//!                 +---^----------|------------------^---------|-------+
//!             tag ====+          +--> tag_free      |         +--> work_put
//!                (tag allocator)               work ====  (work set of LUNs)
//! ```
//!
//! # Architecture
//! A wheel of four cycles owns the tables, so every read-modify-write is done within its cycle and nothing is forwarded:
//!
//! | cycle | LUN rows (LUT RAM) | list RAM read / write | info RAM read / write | CQ rows |
//! |---|---|---|---|---|
//! | P0 park | append | head of the popped CQ / LUN tail | popped slot / parked slot | read |
//! | P1 other | budget, statistics or sweep (peek: head of the candidate) | candidate's head / - | candidate's head / - | pop |
//! | P2 admit | pop, or one step of the walker | - / walker's re-append | slot that completes / - | - |
//! | P3 complete | count down | - / CQ tail | - / rejected slot | append |
//!
//! A slot is on exactly one list, so a read and a write of the shared RAMs in one cycle never meet in one word that matters.
//!
//! **No lost wake-up.** One expression ([`row::Row::eligible`]) judges the row that any cycle is about to write. Whoever writes a row
//! that comes out eligible leaves it `queued`; only admission, which has just judged the row, clears `queued`. So
//! `eligible(l) => queued(l)`, by construction, for every order of park, admit, complete and Set Features. What changes for
//! all LUNs at once (share grows, rule changes, discard) starts a sweep over the rows, and the rule holds for the rows behind it.
//! `queued(l)` means: in the work set, in the register before it, or `cur`, the LUN that admission looks at.
//!
//! **Weights.** By the weighted rule (deficit round robin) a LUN's turn is a quantum of `weight` x 4 KiB of commands. A visit that
//! does not cover the head yet (at most 32 / weight of them a command) saves its quantum and lets the next LUN go, unless none waits.
//!
//! # Latency in cycles
//! park.valid to park.ready 0 to 3; from there to exec.valid 3 when admission looks at no other LUN. done 0 to 3, then to cq_work 1.
//! pop 0 to 3, then to popped 1. One command every 4 cycles through each of these, on one LUN or on many.
//!
//! # What it leaves out
//! The two bitmaps (tag allocator, work set of LUNs) are beside it. Order between commands of one LUN is kept except where the walker
//! passes: the commands that it puts back stand behind those that were parked meanwhile (NVMe promises no order).

mod admit;
mod check;
mod complete;
mod engine;
mod fairness;
mod other;
mod owner;
mod park;
pub mod row;
pub mod stats;
mod walker;

use crate::bitmap::BitmapPorts;
use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

pub use engine::lun_engine;
pub use fairness::{ShareDividerPorts, share_divider};

/// Status of a command whose SQ was deleted while it was parked: Command Aborted due to SQ Deletion, may be tried again.
pub const ABORTED_SQ_DELETION: u32 = 0x08;
/// Status of a parked command that an Abort met: Command Abort Requested, may be tried again.
pub const ABORT_REQUESTED: u32 = 0x07;

/// Which completion queue a submission queue reports to.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct SqToCq {
    /// Write this cycle.
    #[bits(1)]
    pub valid: Sig,
    /// Submission queue.
    #[bits(p.queue_bits())]
    pub sq: Sig,
    /// Its completion queue.
    #[bits(p.queue_bits())]
    pub cq: Sig,
}

/// A pulse with the number of a LUN.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct LunPulse {
    /// This cycle.
    #[bits(1)]
    pub valid: Sig,
    /// The LUN.
    #[bits(p.lun_bits())]
    pub index: Sig,
}

/// A pulse with a tag.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct TagPulse {
    /// This cycle.
    #[bits(1)]
    pub valid: Sig,
    /// The tag.
    #[bits(p.tag_bits())]
    pub index: Sig,
}

/// Ports of [`lun_engine`].
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct LunEnginePorts {
    /// The controller is being disabled: every slot goes to its CQ list without tag; stays set until `empty`.
    #[input]
    #[bits(1)]
    pub discard: Sig,
    /// Pulse: tables back to their defaults. Only while `empty`.
    #[input]
    #[bits(1)]
    pub clear: Sig,
    /// Tags in use, 1 to what is built: a bound on the tag depth, whatever Set Features and a reset make of that.
    #[input]
    #[bits(p.depth_bits())]
    pub tags: Sig,
    /// The tables are being swept (after rst and after `clear`); no stream moves.
    #[output]
    #[bits(1)]
    pub clearing: Sig,
    /// The engine holds no slot.
    #[output]
    #[bits(1)]
    pub empty: Sig,
    /// With inputs held nothing but the wheel would change.
    #[output]
    #[bits(1)]
    pub idle: Sig,
    /// Free-running time in cycles, low bits.
    #[input]
    #[bits(row::WAIT_BITS)]
    pub cycle: Sig,
    /// Commands from decode. Ready in P0.
    #[input]
    pub park: Stream<Park>,
    /// Commands that end without executing, from decode.
    #[input]
    pub reject: Stream<Reject>,
    /// Admitted commands, to dma.
    #[output]
    pub exec: Stream<Exec>,
    /// With it: the weight of its LUN.
    #[output]
    #[bits(16)]
    pub exec_weight: Sig,
    /// The fairness rule in force: [`Rule`].
    #[output]
    #[bits(Rule::WIDTH)]
    pub rule: Sig,
    /// Executed commands, from dma.
    #[input]
    pub done: Stream<Done>,
    /// Creation of a submission queue.
    #[input]
    pub sq_to_cq: SqToCq,
    /// Pulse: the list of this CQ was empty and is no longer; until a pop says `more` = 0, cq_post knows that it has entries.
    #[output]
    #[bits(1)]
    pub cq_work_valid: Sig,
    /// Which CQ.
    #[output]
    #[bits(p.queue_bits())]
    pub cq_work_cq: Sig,
    /// Takes one command from a CQ's list; only asked of a CQ whose list is not empty. Ready in P0.
    #[input]
    #[params(p.queue_bits())]
    pub pop: Stream<Sig>,
    /// Pulse: the answer, the cycle after.
    #[output]
    #[bits(1)]
    pub popped_valid: Sig,
    /// The command.
    #[output]
    pub popped: Popped,
    /// Pulse: a command has come to its CQ's list, whatever ended it (not while discarding).
    #[output]
    #[bits(1)]
    pub completed_valid: Sig,
    /// `Op`; 0 when decode rejected it.
    #[output]
    #[bits(2)]
    pub completed_op: Sig,
    /// Its length in 512 B blocks; 0 when decode rejected it.
    #[output]
    #[bits(BLOCKS_BITS)]
    pub completed_blocks: Sig,
    /// The command.
    #[output]
    pub completed: Reject,
    /// Work for the walker, from admin.
    #[input]
    pub walk: Stream<WalkRequest>,
    /// Pulse: the walk has ended.
    #[output]
    #[bits(1)]
    pub walk_done: Sig,
    /// With `walk_done`: at least one command was ended.
    #[output]
    #[bits(1)]
    pub walk_found: Sig,
    /// Features C0h and C1h, from admin.
    #[input]
    pub budget: Stream<BudgetRequest>,
    /// Pulse: the answer; after all LUNs are set when the request says `all`.
    #[output]
    #[bits(1)]
    pub budget_reply_valid: Sig,
    /// What holds now.
    #[output]
    pub budget_reply: BudgetReply,
    /// Asks for one LUN's statistics, from admin.
    #[input]
    #[params(p.lun_bits())]
    pub snapshot: Stream<Sig>,
    /// Pulse: `stats` is what held in one cycle; it stays until the next answer.
    #[output]
    #[bits(1)]
    pub stats_valid: Sig,
    /// One LUN's statistics.
    #[output]
    pub stats: LunStats,
    /// Tags in use.
    #[output]
    #[bits(p.depth_bits())]
    pub executing: Sig,
    /// Free tags, from the tag allocator.
    #[input]
    #[params(p.tag_bits())]
    pub tag: Stream<Sig>,
    /// Tags to the allocator.
    #[output]
    pub tag_free: TagPulse,
    /// The next LUN, from the work set.
    #[input]
    #[params(p.lun_bits())]
    pub work: Stream<Sig>,
    /// A LUN into the work set.
    #[output]
    pub work_put: LunPulse,
}

/// Wires the engine's tag allocator ([`BitmapConfig::allocator`](crate::bitmap::BitmapConfig::allocator) of `c.tags`) and work set
/// of LUNs ([`BitmapConfig::work`](crate::bitmap::BitmapConfig::work) of `c.luns`), except for their `clear` and what they report.
pub fn connect_sets(engine: &LunEnginePorts, tags: &BitmapPorts, work: &BitmapPorts) {
    for (set, stream, put, index) in [
        (
            tags,
            &engine.tag,
            engine.tag_free.valid,
            engine.tag_free.index,
        ),
        (
            work,
            &engine.work,
            engine.work_put.valid,
            engine.work_put.index,
        ),
    ] {
        stream.valid.set(set.take.valid);
        stream.payload.set(set.take.payload.index);
        set.take.ready.set(stream.ready);
        set.put.valid.set(put);
        set.put.index.set(index);
        set.limit.set(0);
    }
}
