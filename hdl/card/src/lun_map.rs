//! `lun_map`: where each LUN lies in media, and how much of the card is in use; loaded at run time by the platform.
//!
//! ```text
//!              ┌─────────┐──► queues, luns, tags      run-time limits
//!   plat_* ───►│ lun_map │◄── lookup lun (decode)     ──► present, base, blocks, the cycle after
//!              └─────────┘◄── lookup lun (admin)      ──► present, blocks, the cycle after
//! ```
//!
//! [`REGISTERS`] says which registers there are (`weir regs` prints them).
//!
//! A limit that is 0 or more than is built is taken as what is built. Change a LUN only while it is not present.
//!
//! **Invariants**: a lookup answers what was last written. **Latency**: 1 cycle.

use crate::axi_lite::{AxiLite, axi_lite};
use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// Bits of a byte address of the platform port.
pub const ADDR_BITS: u32 = 13;
/// Byte offsets of the platform registers.
pub mod offset {
    /// "WEIR".
    pub const ID: u32 = 0x000;
    /// Version of this map.
    pub const VERSION: u32 = 0x004;
    /// What is built.
    pub const BUILT: u32 = 0x008;
    /// I/O queues in use.
    pub const QUEUES: u32 = 0x010;
    /// LUNs in use.
    pub const LUNS: u32 = 0x014;
    /// Tags in use.
    pub const TAGS: u32 = 0x018;
    /// The LUN table: 16 bytes a LUN.
    pub const TABLE: u32 = 0x1000;
}
/// The platform registers: byte offset, access, name, meaning. Those of the table stand at + 16 n for LUN n.
pub const REGISTERS: [(u32, &str, &str, &str); 10] = [
    (offset::ID, "RO", "ID", "\"WEIR\", little-endian"),
    (offset::VERSION, "RO", "VERSION", "of this map: 1"),
    (
        offset::BUILT,
        "RO",
        "BUILT",
        "queues 7:0, LUNs - 1 15:8, log2(tags) 23:16, log2(data bits) 31:24",
    ),
    (
        offset::QUEUES,
        "RW",
        "QUEUES",
        "I/O queues in use, 1 to what is built",
    ),
    (
        offset::LUNS,
        "RW",
        "LUNS",
        "LUNs in use, 1 to what is built",
    ),
    (
        offset::TAGS,
        "RW",
        "TAGS",
        "tags in use, 1 to what is built; bounds the tag depth, whatever Feature C1h says and through resets",
    ),
    (
        offset::TABLE,
        "RW",
        "BASE",
        "LUN n's first block in media, bits 31:0 (blocks of 512 bytes)",
    ),
    (offset::TABLE + 4, "RW", "BASEHI", "bits 39:32 of it"),
    (
        offset::TABLE + 8,
        "RW",
        "BLOCKS",
        "LUN n's blocks, bits 31:0",
    ),
    (
        offset::TABLE + 12,
        "RW",
        "BLOCKSHI",
        "bits 39:32 of them; bit 31: LUN n is present (0 after reset)",
    ),
];
/// "WEIR", little-endian.
pub const ID: u32 = u32::from_le_bytes(*b"WEIR");
/// BLOCKSHI bit 31: the LUN is present.
pub const PRESENT: u32 = 1 << 31;

/// Ports of [`lun_map`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct LunMapPorts {
    /// The platform's accesses.
    #[input]
    #[params(&ADDR_BITS)]
    pub plat: AxiLite,
    /// LUN that decode looks up.
    #[input]
    #[bits(p.lun_bits())]
    pub decode_lun: Sig,
    /// It is present, the cycle after.
    #[output]
    #[bits(1)]
    pub decode_present: Sig,
    /// Its first block, the cycle after.
    #[output]
    #[bits(MEDIA_BLOCK_BITS)]
    pub decode_base: Sig,
    /// Its blocks, the cycle after.
    #[output]
    #[bits(MEDIA_BLOCK_BITS)]
    pub decode_blocks: Sig,
    /// LUN that admin looks up.
    #[input]
    #[bits(p.lun_bits())]
    pub admin_lun: Sig,
    /// It is present, the cycle after.
    #[output]
    #[bits(1)]
    pub admin_present: Sig,
    /// Its blocks, the cycle after.
    #[output]
    #[bits(MEDIA_BLOCK_BITS)]
    pub admin_blocks: Sig,
    /// I/O queues in use.
    #[output]
    #[bits(p.queue_bits())]
    pub queues: Sig,
    /// LUNs in use.
    #[output]
    #[bits(9)]
    pub luns: Sig,
    /// Tags in use.
    #[output]
    #[bits(p.depth_bits())]
    pub tags: Sig,
    /// Nothing would change with the inputs held.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block.
pub fn lun_map(c: &CardConfig) -> Module {
    module(
        "lun_map",
        "Where each LUN lies in media, and run-time limits.",
        c,
        |p: LunMapPorts| body(c, p),
    )
}

#[hw]
fn body(c: &CardConfig, p: LunMapPorts) {
    let queues = reg(c.queue_bits(), c.queues);
    let luns = reg(9, c.luns);
    let tags = reg(c.depth_bits(), c.tags);
    let limits = [
        (offset::QUEUES, queues, c.queues),
        (offset::LUNS, luns, c.luns),
        (offset::TAGS, tags, c.tags),
    ];
    // At least 2 rows, as a RAM has.
    let rows = c.luns.max(2);
    let present = reg(rows, 0);
    let high_bits = MEDIA_BLOCK_BITS - 32;
    let base_lo = Mem::new(rows.into(), 32).style(Style::Distributed);
    let base_hi = Mem::new(rows.into(), high_bits).style(Style::Distributed);
    let blocks_lo = Mem::new(rows.into(), 32).style(Style::Distributed);
    let blocks_hi = Mem::new(rows.into(), high_bits).style(Style::Distributed);
    // Numbers past the last LUN are not present and not written.
    let lun_of = |addr: Sig| addr.bits(2, c.lun_bits());
    let known = |addr: Sig| addr.bits(2, 8).zext(9).lt(c.luns);

    let access = axi_lite(&p.plat, |a| {
        let at = a.read_addr;
        let lun = lun_of(at);
        let fields = [
            base_lo.read_async(lun),
            base_hi.read_async(lun).zext(32),
            blocks_lo.read_async(lun),
            cat(&[
                present.index(lun),
                lit(0, 31 - high_bits),
                blocks_hi.read_async(lun),
            ]),
        ];
        let table_word = known(at).mux(mux_n(at.bits(0, 2), &fields), 0);
        let built = c.queues | (c.luns - 1) << 8 | c.tags.ilog2() << 16 | c.data_bits.ilog2() << 24;
        let limit_word = var(lit(0, 32));
        switch(at.bits(0, 10), |s| {
            s.is(offset::ID / 4, || limit_word.set(ID));
            s.is(offset::VERSION / 4, || limit_word.set(1));
            s.is(offset::BUILT / 4, || limit_word.set(built));
            for (offset, limit, _) in limits {
                s.is(offset / 4, || limit_word.set(limit.zext(32)));
            }
        });
        let read_word = reg_nr(32);
        read_word.set(at.bit(10).mux(table_word, limit_word));
        read_word
    });

    let at = access.write_addr;
    let data = access.write_data;
    let whole = access.write & access.write_strb.all();
    unused(access.write_mask);
    for (offset, limit, built) in limits {
        let hit = whole & !at.bit(10) & at.bits(0, 10).eq(offset / 4);
        let bad = data.eq(0) | data.gt(built);
        when(hit, || limit.set(bad.mux(built, data.trunc(limit.width()))));
    }
    let write_row = whole & at.bit(10) & known(at);
    let row = lun_of(at);
    let field = at.bits(0, 2);
    base_lo.write(write_row & field.eq(0), row, data);
    base_hi.write(write_row & field.eq(1), row, data.trunc(high_bits));
    blocks_lo.write(write_row & field.eq(2), row, data);
    blocks_hi.write(write_row & field.eq(3), row, data.trunc(high_bits));
    let row_bit = onehot(row, rows);
    when(write_row & field.eq(3), || {
        present.set(data.bit(31).mux(present | row_bit, present & !row_bit))
    });

    let decode_present = reg_nr(1);
    let decode_base = reg_nr(MEDIA_BLOCK_BITS);
    let decode_blocks = reg_nr(MEDIA_BLOCK_BITS);
    let in_use = |lun: Sig| lun.zext(9).lt(luns);
    decode_present.set(present.index(p.decode_lun) & in_use(p.decode_lun));
    decode_base.set(cat(&[
        base_hi.read_async(p.decode_lun),
        base_lo.read_async(p.decode_lun),
    ]));
    decode_blocks.set(cat(&[
        blocks_hi.read_async(p.decode_lun),
        blocks_lo.read_async(p.decode_lun),
    ]));
    p.decode_present.set(decode_present);
    p.decode_base.set(decode_base);
    p.decode_blocks.set(decode_blocks);
    let admin_present = reg_nr(1);
    let admin_blocks = reg_nr(MEDIA_BLOCK_BITS);
    admin_present.set(present.index(p.admin_lun) & in_use(p.admin_lun));
    admin_blocks.set(cat(&[
        blocks_hi.read_async(p.admin_lun),
        blocks_lo.read_async(p.admin_lun),
    ]));
    p.admin_present.set(admin_present);
    p.admin_blocks.set(admin_blocks);

    p.queues.set(queues);
    p.luns.set(luns);
    p.tags.set(tags);
    p.idle.set(
        !access.busy
            & !(p.plat.awvalid & p.plat.wvalid)
            & !p.plat.arvalid
            & !p.plat.bvalid
            & !p.plat.rvalid,
    );
}
