//! A LUN's row, what makes a LUN eligible, and the words of the shared RAMs.

use crate::config::CardConfig;
use crate::interfaces::{BLOCKS_BITS, COST_BITS};
use weir_kit::*;

/// Width of a LUN's deficit in 4 KiB units: a rest below the largest command (31) on top of the largest quantum (65535).
pub const DEFICIT_BITS: u32 = 17;
/// Largest command in 4 KiB units: 128 KiB.
pub const MOST_COST: u32 = 32;
/// Width of a park time: the low bits of the card's cycle count (17 s).
pub const WAIT_BITS: u32 = 32;

/// What the engine knows of one LUN.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Row {
    /// First slot of the list (meaningless while `parked` is 0, as are `tail`, `head_cost` and `head_flush`).
    #[bits(p.slot_bits())]
    pub head: Sig,
    /// Last slot of the list.
    #[bits(p.slot_bits())]
    pub tail: Sig,
    /// Slots on the list.
    #[bits(p.slot_bits() + 1)]
    pub parked: Sig,
    /// Cost of the head in 4 KiB units.
    #[bits(COST_BITS)]
    pub head_cost: Sig,
    /// The head is a Flush: it waits for `writes` to be 0.
    #[bits(1)]
    pub head_flush: Sig,
    /// Executing commands: tags held.
    #[bits(p.depth_bits())]
    pub in_flight: Sig,
    /// Executing Writes.
    #[bits(p.depth_bits())]
    pub writes: Sig,
    /// Most tags the LUN may hold.
    #[bits(p.depth_bits())]
    pub depth: Sig,
    /// Most tags the LUN ever held.
    #[bits(p.depth_bits())]
    pub peak: Sig,
    /// Weight of the deficit round robin: a quantum in 4 KiB units.
    #[bits(16)]
    pub weight: Sig,
    /// What is left of the quantum, in 4 KiB units.
    #[bits(DEFICIT_BITS)]
    pub deficit: Sig,
    /// The LUN is in the work set, on its way there, or the one that admission looks at.
    #[bits(1)]
    pub queued: Sig,
}

/// Name of the memory that holds the counts of every LUN's row, for who looks into a running model.
pub const COUNTS: &str = "row_counts";

/// Executing commands and depth of a LUN, from its word of [`COUNTS`], `width` bits wide.
pub fn executing_and_depth(word: u64, width: u32) -> (u32, u32) {
    // in_flight, writes, depth, peak: alike wide, the first lowest.
    let bits = width / 4;
    let field = |n: u32| (word >> (n * bits) & ((1 << bits) - 1)) as u32;
    (field(0), field(2))
}

/// The LUNs' rows, in three memories side by side: none wider than a machine word, which is what a simulator is quick with.
#[derive(Clone, Copy)]
pub(super) struct Rows([Mem; 3]);

impl Rows {
    /// Where the leaves of [`Row`] are cut.
    const CUTS: [usize; 4] = [0, 5, 9, 12];

    /// Memories for `c.luns` rows.
    pub fn new(c: &CardConfig) -> Rows {
        let widths: Vec<u32> = Row::zero(c).leaves().iter().map(Sig::width).collect();
        let mem = |i: usize| {
            let width = widths[Self::CUTS[i]..Self::CUTS[i + 1]].iter().sum();
            let mem = Mem::new(c.luns.max(2).into(), width).style(Style::Distributed);
            named(["row_lists", COUNTS, "row_budgets"][i], mem)
        };
        Rows([mem(0), mem(1), mem(2)])
    }

    /// The row of LUN `lun`, in the same cycle.
    pub fn read(&self, c: &CardConfig, lun: Sig) -> Row {
        let parts = self.0.map(|m| m.read_async(lun));
        Row::unpack(c, cat(&[parts[2], parts[1], parts[0]]))
    }

    /// Writes the row of LUN `lun`.
    pub fn write(&self, enable: Sig, lun: Sig, row: &Row) {
        let leaves = row.leaves();
        for (i, mem) in self.0.iter().enumerate() {
            let mut part = leaves[Self::CUTS[i]..Self::CUTS[i + 1]].to_vec();
            part.reverse();
            mem.write(enable, lun, cat(&part));
        }
    }
}

/// What holds for all LUNs when eligibility is judged.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The controller is being disabled: everything parked may go, without tags.
    pub discard: Sig,
    /// The even share binds.
    pub even: Sig,
    /// The share of one LUN in tags.
    pub share: Sig,
}

impl Row {
    /// 1 bit: executing commands fill the depth.
    pub fn depth_full(&self) -> Sig {
        self.in_flight.ge(self.depth)
    }

    /// 1 bit: executing commands fill the even share.
    pub fn share_full(&self, limits: &Limits) -> Sig {
        limits.even & self.in_flight.ge(limits.share)
    }

    /// 1 bit: the head may go, as far as this LUN decides it. Tags and the data path are not asked: they are everybody's.
    pub fn eligible(&self, limits: &Limits) -> Sig {
        let flush_waits = self.head_flush & self.writes.any();
        let may = !self.depth_full() & !self.share_full(limits) & !flush_waits;
        self.parked.any() & (limits.discard | may)
    }

    /// 1 bit: the rest of its quantum covers its head.
    pub fn in_turn(&self) -> Sig {
        let cost = self.head_cost.zext(self.deficit.width());
        self.parked.any() & self.deficit.ge(cost)
    }

    /// 1 bit: has a parked or an executing command.
    pub fn active(&self) -> Sig {
        self.parked.any() | self.in_flight.any()
    }
}

/// A word of the list RAM, by slot: what follows it. LUN lists and CQ lists share the RAM; CQ lists use only `slot`.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Link {
    /// The next slot.
    #[bits(p.slot_bits())]
    pub slot: Sig,
    /// Its cost in 4 KiB units.
    #[bits(COST_BITS)]
    pub cost: Sig,
    /// It is a Flush.
    #[bits(1)]
    pub flush: Sig,
    /// It has been the head before (the walker put it back): what holds it up has been counted.
    #[bits(1)]
    pub counted: Sig,
}

/// A word of the info RAM, by slot.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Info {
    /// Its submission queue.
    #[bits(p.queue_bits())]
    pub sq: Sig,
    /// Command Identifier.
    #[bits(16)]
    pub cid: Sig,
    /// `Op`.
    #[bits(2)]
    pub op: Sig,
    /// Length in 512 B blocks.
    #[bits(BLOCKS_BITS)]
    pub blocks: Sig,
    /// When it was parked, in cycles.
    #[bits(WAIT_BITS)]
    pub parked_at: Sig,
}

/// A completion queue's list of completed slots.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct CqRow {
    /// First slot (meaningless while `count` is 0, as is `tail`).
    #[bits(p.slot_bits())]
    pub head: Sig,
    /// Last slot.
    #[bits(p.slot_bits())]
    pub tail: Sig,
    /// Slots on the list.
    #[bits(p.slot_bits() + 1)]
    pub count: Sig,
}
