//! What passes between the parts of the data path.

use crate::config::CardConfig;
use crate::interfaces::MEDIA_BLOCK_BITS;
use weir_kit::*;

/// PRP lists that can be held at a time.
pub const LIST_BUFFERS: u32 = 4;
/// Bits of a list buffer's number.
pub const LIST_BITS: u32 = LIST_BUFFERS.trailing_zeros();
/// Bits of a position inside a command, in dwords: 128 KiB.
pub const POSITION_BITS: u32 = 15;
/// Bits of a host address in dwords.
pub const HOST_BITS: u32 = 62;
/// Bits of a media address in dwords.
pub const MEDIA_BITS: u32 = MEDIA_BLOCK_BITS + 7;
/// Bits of a position inside a 4 KiB page, in dwords.
pub const PAGE_BITS: u32 = 10;

impl CardConfig {
    /// Bus lanes of 4 bytes.
    pub fn lanes(&self) -> u32 {
        self.data_bits / 32
    }
    /// Bits of a lane's number.
    pub fn lane_bits(&self) -> u32 {
        self.lanes().trailing_zeros()
    }
    /// Bits of a read chunk's number.
    pub fn read_chunk_bits(&self) -> u32 {
        clog2(self.read_chunks as u64)
    }
    /// Bits of a write chunk's number.
    pub fn write_chunk_bits(&self) -> u32 {
        clog2(self.write_chunks as u64)
    }
    /// Bits of a beat's number inside a 4 KiB page.
    pub fn beat_bits(&self) -> u32 {
        PAGE_BITS - self.lane_bits()
    }
}

/// What went wrong with a command; the worst is not ranked, the first stays.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// An AXI error: Data Transfer Error.
    Transfer,
    /// A PRP list entry with an offset: PRP Offset Invalid.
    PrpOffset,
}

/// An executing command with data still to move.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Work {
    /// Its tag.
    #[bits(p.tag_bits())]
    pub tag: Sig,
    /// Its slot.
    #[bits(p.slot_bits())]
    pub slot: Sig,
    /// Its LUN.
    #[bits(p.lun_bits())]
    pub lun: Sig,
    /// Host to media.
    #[bits(1)]
    pub write: Sig,
    /// Dwords already made into chunks.
    #[bits(POSITION_BITS)]
    pub position: Sig,
    /// Its PRP list is in `list`.
    #[bits(1)]
    pub has_list: Sig,
    /// List buffer.
    #[bits(LIST_BITS)]
    pub list: Sig,
}

/// A piece of a command inside one host page and one 4 KiB page of media.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Chunk {
    /// The command.
    #[bits(p.tag_bits())]
    pub tag: Sig,
    /// Its LUN.
    #[bits(p.lun_bits())]
    pub lun: Sig,
    /// Host address in dwords.
    #[bits(HOST_BITS)]
    pub host: Sig,
    /// Media address in dwords.
    #[bits(MEDIA_BITS)]
    pub media: Sig,
    /// Dwords - 1.
    #[bits(PAGE_BITS)]
    pub len: Sig,
}

/// How one burst becomes another whose bytes lie in other lanes; see [`crate::dma::realign`].
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Plan {
    /// Lanes to rotate upward: destination lane - source lane.
    #[bits(p.lane_bits())]
    pub rotate: Sig,
    /// The destination begins in a lower lane than the source: the first beat in makes none out.
    #[bits(1)]
    pub prime: Sig,
    /// Destination beats - 1.
    #[bits(8)]
    pub len: Sig,
    /// First lane of the first destination beat.
    #[bits(p.lane_bits())]
    pub first_lane: Sig,
    /// Last lane of the last destination beat.
    #[bits(p.lane_bits())]
    pub last_lane: Sig,
}

/// Beats - 1 of a burst that begins in lane `lane` and has `len` + 1 dwords: 8 bits.
#[track_caller]
pub fn burst_len(c: &CardConfig, lane: Sig, len: Sig) -> Sig {
    let last = lane.zext(PAGE_BITS + 1) + len.zext(PAGE_BITS + 1);
    last.bits(c.lane_bits(), PAGE_BITS + 1 - c.lane_bits())
        .resize(8)
}

/// The plan for `len` + 1 dwords from lane `from` to lane `to`.
#[track_caller]
pub fn plan(c: &CardConfig, from: Sig, to: Sig, len: Sig) -> Plan {
    Plan {
        rotate: to - from,
        prime: to.lt(from),
        len: burst_len(c, to, len),
        first_lane: to,
        last_lane: to + len.trunc(c.lane_bits()),
    }
}

/// A chunk was made, or a command got no further: for the count of chunks. A pulse.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Issue {
    /// Now.
    #[bits(1)]
    pub valid: Sig,
    /// Of this command.
    #[bits(p.tag_bits())]
    pub tag: Sig,
    /// Its first: the count begins.
    #[bits(1)]
    pub first: Sig,
    /// A chunk was made.
    #[bits(1)]
    pub chunk: Sig,
    /// No more will come.
    #[bits(1)]
    pub last: Sig,
    /// [`Fault`].
    #[bits(2)]
    pub fault: Sig,
}

/// Whose a chunk is.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Owner {
    /// The command.
    #[bits(p.tag_bits())]
    pub tag: Sig,
    /// Its LUN.
    #[bits(p.lun_bits())]
    pub lun: Sig,
}

/// A chunk has ended, or a command's list has failed.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct Return {
    /// Of this command.
    #[bits(p.tag_bits())]
    pub tag: Sig,
    /// [`Fault`].
    #[bits(2)]
    pub fault: Sig,
}
