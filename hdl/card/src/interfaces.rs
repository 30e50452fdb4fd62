//! The bundles that pass between blocks: what a command is at each step of its life, and the AXI channels.
//!
//! Widths follow [`CardConfig`]; a [`Stream`](weir_kit::Stream) of one of these is its valid/ready port.

use crate::config::CardConfig;
use weir_kit::*;

/// Width of a ring index or a 0's based ring size: NVMe rings have at most 4096 entries here.
pub const RING_BITS: u32 = 12;
/// Width of a command's status: CQE DW3 bits 31:17 = {DNR, M, CRD, SCT, SC} (NVMe 1.4, 4.6.1).
pub const STATUS_BITS: u32 = 15;
/// Width of a command's cost in 4 KiB units: 1 to 32 (MDTS 128 KiB).
pub const COST_BITS: u32 = 6;
/// Width of a number of 512 B blocks of media.
pub const MEDIA_BLOCK_BITS: u32 = 40;
/// Width of a command's length in 512 B blocks: 1 to 256.
pub const BLOCKS_BITS: u32 = 9;
/// Width of free-running time in cycles (4 ns): 13 days.
pub const CYCLE_BITS: u32 = 48;

/// What a command does; the two bits of `op` everywhere on the card.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Media to host.
    Read,
    /// Host to media.
    Write,
    /// Waits for the LUN's executing writes.
    Flush,
}

/// Kinds of host reads: the top two bits of an internal host AR/R ID.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadKind {
    /// Submission queue entries; index = fetch context.
    Sq,
    /// A PRP list; index = list buffer.
    Prp,
    /// Data of a Write; index = write chunk.
    Data,
    /// Not used.
    Spare,
}

/// Kinds of host writes: the top two bits of an internal host AW/B ID.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Data of a Read; index = read chunk.
    Data,
    /// Completion queue entries; index = 0.
    Cq,
    /// An MSI-X message; index = 0.
    Msi,
    /// Data of an admin command; index = 0.
    Admin,
}

/// AXI4 read address (internal id; size is the full bus width, burst INCR).
#[derive(Bundle, Clone, Copy)]
#[bundle(params = AxiParams)]
pub struct AxiAr {
    /// Internal id.
    #[bits(p.id_bits)]
    pub id: Sig,
    /// Byte address of the first byte; need not be aligned.
    #[bits(64)]
    pub addr: Sig,
    /// Beats - 1.
    #[bits(8)]
    pub len: Sig,
}

/// AXI4 write address (internal id; size is the full bus width, burst INCR).
pub type AxiAw = AxiAr;

/// AXI4 read data.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = AxiParams)]
pub struct AxiR {
    /// Internal id.
    #[bits(p.id_bits)]
    pub id: Sig,
    /// One beat.
    #[bits(p.data_bits)]
    pub data: Sig,
    /// 0 OKAY, 2 SLVERR, 3 DECERR.
    #[bits(2)]
    pub resp: Sig,
    /// Last beat of the burst.
    #[bits(1)]
    pub last: Sig,
}

/// AXI4 write data.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = AxiParams)]
pub struct AxiW {
    /// One beat.
    #[bits(p.data_bits)]
    pub data: Sig,
    /// Byte strobes.
    #[bits(p.data_bits / 8)]
    pub strb: Sig,
    /// Last beat of the burst.
    #[bits(1)]
    pub last: Sig,
}

/// AXI4 write response.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = AxiParams)]
pub struct AxiB {
    /// Internal id.
    #[bits(p.id_bits)]
    pub id: Sig,
    /// 0 OKAY, 2 SLVERR, 3 DECERR.
    #[bits(2)]
    pub resp: Sig,
}

/// Widths of one AXI4 port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxiParams {
    /// Width of the ids.
    pub id_bits: u32,
    /// Width of the data.
    pub data_bits: u32,
}

impl CardConfig {
    /// The host port inside the card.
    pub fn host_axi(&self) -> AxiParams {
        AxiParams {
            id_bits: self.host_id(),
            data_bits: self.data_bits,
        }
    }
    /// The media port inside the card.
    pub fn media_axi(&self) -> AxiParams {
        AxiParams {
            id_bits: self.media_id(),
            data_bits: self.data_bits,
        }
    }
}

/// A fetched submission queue entry.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Entry {
    /// Its submission queue; 0 is the admin queue.
    #[bits(p.queue_bits())]
    pub sq: Sig,
    /// Its slot (meaningless for the admin queue).
    #[bits(p.slot_bits())]
    pub slot: Sig,
    /// The 64 bytes, byte 0 in bits 7:0.
    #[bits(512)]
    pub data: Sig,
}

/// What the data path needs of a command; stored by slot.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct CmdInfo {
    /// [`Op`].
    #[bits(2)]
    pub op: Sig,
    /// First block on media, in 512 B.
    #[bits(MEDIA_BLOCK_BITS)]
    pub media_block: Sig,
    /// Length in 512 B blocks.
    #[bits(BLOCKS_BITS)]
    pub blocks: Sig,
    /// PRP Entry 1.
    #[bits(64)]
    pub prp1: Sig,
    /// PRP Entry 2 or pointer to the PRP list.
    #[bits(64)]
    pub prp2: Sig,
}

/// Write port of the command RAM: decode fills it before it parks the slot.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct CmdWrite {
    /// Write this cycle.
    #[bits(1)]
    pub valid: Sig,
    /// Where.
    #[bits(p.slot_bits())]
    pub slot: Sig,
    /// What.
    pub info: CmdInfo,
}

/// A decoded command on its way to its LUN's list.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Park {
    /// Its slot.
    #[bits(p.slot_bits())]
    pub slot: Sig,
    /// Its submission queue.
    #[bits(p.queue_bits())]
    pub sq: Sig,
    /// Command Identifier.
    #[bits(16)]
    pub cid: Sig,
    /// Its LUN.
    #[bits(p.lun_bits())]
    pub lun: Sig,
    /// [`Op`].
    #[bits(2)]
    pub op: Sig,
    /// Length in 4 KiB units, rounded up, at least 1.
    #[bits(COST_BITS)]
    pub cost: Sig,
    /// Length in 512 B blocks (0 for Flush), for the statistics.
    #[bits(BLOCKS_BITS)]
    pub blocks: Sig,
}

/// A command that ends without having executed.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Reject {
    /// Its slot.
    #[bits(p.slot_bits())]
    pub slot: Sig,
    /// Its submission queue.
    #[bits(p.queue_bits())]
    pub sq: Sig,
    /// Command Identifier.
    #[bits(16)]
    pub cid: Sig,
    /// Status to report.
    #[bits(STATUS_BITS)]
    pub status: Sig,
}

/// An admitted command: it holds a tag.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Exec {
    /// Its slot.
    #[bits(p.slot_bits())]
    pub slot: Sig,
    /// Its submission queue.
    #[bits(p.queue_bits())]
    pub sq: Sig,
    /// Its LUN.
    #[bits(p.lun_bits())]
    pub lun: Sig,
    /// Its tag.
    #[bits(p.tag_bits())]
    pub tag: Sig,
    /// [`Op`].
    #[bits(2)]
    pub op: Sig,
}

/// An executed command: all its AXI traffic has ended.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Done {
    /// What was admitted.
    pub exec: Exec,
    /// Status to report.
    #[bits(STATUS_BITS)]
    pub status: Sig,
}

/// A completed command taken from its CQ's list.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Popped {
    /// Its slot, to be freed.
    #[bits(p.slot_bits())]
    pub slot: Sig,
    /// Its submission queue.
    #[bits(p.queue_bits())]
    pub sq: Sig,
    /// Command Identifier.
    #[bits(16)]
    pub cid: Sig,
    /// Status to report.
    #[bits(STATUS_BITS)]
    pub status: Sig,
    /// The CQ's list holds more.
    #[bits(1)]
    pub more: Sig,
}

/// Creation or deletion of a submission queue, by admin or (for queue 0) by ctrl.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct SqSet {
    /// Write this cycle.
    #[bits(1)]
    pub valid: Sig,
    /// Which.
    #[bits(p.queue_bits())]
    pub sq: Sig,
    /// Exists from now on; its pointers start at 0.
    #[bits(1)]
    pub enable: Sig,
    /// Byte address of entry 0, 4 KiB aligned.
    #[bits(64)]
    pub base: Sig,
    /// Entries - 1.
    #[bits(RING_BITS)]
    pub size: Sig,
    /// Its completion queue.
    #[bits(p.queue_bits())]
    pub cq: Sig,
}

/// Creation or deletion of a completion queue.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct CqSet {
    /// Write this cycle.
    #[bits(1)]
    pub valid: Sig,
    /// Which.
    #[bits(p.queue_bits())]
    pub cq: Sig,
    /// Exists from now on; its pointers start at 0, its phase at 1.
    #[bits(1)]
    pub enable: Sig,
    /// Byte address of entry 0, 4 KiB aligned.
    #[bits(64)]
    pub base: Sig,
    /// Entries - 1.
    #[bits(RING_BITS)]
    pub size: Sig,
    /// Interrupts enabled (IEN).
    #[bits(1)]
    pub interrupts: Sig,
    /// MSI-X vector.
    #[bits(p.queue_bits())]
    pub vector: Sig,
}

/// A doorbell write, as a pulse.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Doorbell {
    /// Written this cycle.
    #[bits(1)]
    pub valid: Sig,
    /// A CQ head (else an SQ tail).
    #[bits(1)]
    pub is_cq: Sig,
    /// Which queue.
    #[bits(p.queue_bits())]
    pub queue: Sig,
    /// The new head or tail.
    #[bits(16)]
    pub value: Sig,
}

/// The completion of an admin command.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct AdminCpl {
    /// Command Identifier.
    #[bits(16)]
    pub cid: Sig,
    /// CQE DW0.
    #[bits(32)]
    pub result: Sig,
    /// Status to report.
    #[bits(STATUS_BITS)]
    pub status: Sig,
}

/// Set or get LUN budget and tag set; features C0h and C1h of docs/registers.md.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct BudgetRequest {
    /// 1: change it, 0: only read it.
    #[bits(1)]
    pub set: Sig,
    /// 1: the tag set (depth = tag depth, rule), 0: a LUN's budget.
    #[bits(1)]
    pub tag_set: Sig,
    /// Every LUN (NSID FFFFFFFFh); only to set.
    #[bits(1)]
    pub all: Sig,
    /// Which LUN.
    #[bits(p.lun_bits())]
    pub lun: Sig,
    /// LUN depth or tag depth, 1 to tags; checked by admin.
    #[bits(p.depth_bits())]
    pub depth: Sig,
    /// Weight, at least 1; checked by admin.
    #[bits(16)]
    pub weight: Sig,
    /// [`Rule`].
    #[bits(2)]
    pub rule: Sig,
}

/// The answer to a [`BudgetRequest`]: what holds now.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct BudgetReply {
    /// LUN depth or tag depth.
    #[bits(p.depth_bits())]
    pub depth: Sig,
    /// LUN weight.
    #[bits(16)]
    pub weight: Sig,
    /// [`Rule`].
    #[bits(2)]
    pub rule: Sig,
}

/// Fairness rules (feature C1h, bits 17:16).
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Depth alone.
    None,
    /// Linux's even share of the tags: max(ceil(tags / active LUNs), 4).
    Even,
    /// Deficit round robin by weight.
    Weighted,
}

/// Work for the walker over the LUNs' lists.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct WalkRequest {
    /// 1: end the one command {sq, cid} (Abort); 0: end all of `sq` (Delete I/O SQ).
    #[bits(1)]
    pub one: Sig,
    /// The submission queue.
    #[bits(p.queue_bits())]
    pub sq: Sig,
    /// Command Identifier.
    #[bits(16)]
    pub cid: Sig,
}

/// One LUN's statistics: a consistent snapshot, in the order of log page C0h.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct LunStats {
    /// Commands executing now.
    #[bits(p.depth_bits())]
    pub in_flight: Sig,
    /// Most that ever executed at a time.
    #[bits(p.depth_bits())]
    pub peak: Sig,
    /// Commands parked now.
    #[bits(p.slot_bits() + 1)]
    pub parked: Sig,
    /// Commands admitted.
    #[bits(48)]
    pub admitted: Sig,
    /// Commands completed.
    #[bits(48)]
    pub completed: Sig,
    /// Commands held by the LUN's depth when they came to the head of its list.
    #[bits(48)]
    pub deferred_depth: Sig,
    /// Commands held for want of a tag.
    #[bits(48)]
    pub deferred_tags: Sig,
    /// Commands held by the fairness rule.
    #[bits(48)]
    pub deferred_share: Sig,
    /// Cycles between parking and admission, summed.
    #[bits(64)]
    pub cycles_waited: Sig,
    /// Bytes of completed Reads and Writes.
    #[bits(64)]
    pub bytes: Sig,
}
