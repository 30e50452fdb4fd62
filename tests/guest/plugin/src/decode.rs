//! As much of x86-64's instruction format as the counting needs (Intel SDM volume 2, chapter 2).

/// What the counting wants to know of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// An atomic read-modify-write: it has the LOCK prefix, or is XCHG with memory, which locks by itself.
    pub locked: bool,
    /// May be a 32-bit store of a register or a constant, as a doorbell is.
    pub store32: bool,
    /// The section mark: the 8-byte NOP whose displacement is [`MARK`].
    pub mark: bool,
}

/// Displacement of the NOP that `../bench/mark.rs` executes.
pub const MARK: [u8; 4] = *b"Weir";

/// Looks at an instruction's bytes.
pub fn decode(bytes: &[u8]) -> Kind {
    const PREFIXES: [u8; 11] = [
        0xF0, 0xF2, 0xF3, 0x2E, 0x36, 0x3E, 0x26, 0x64, 0x65, 0x66, 0x67,
    ];
    let prefixes = bytes
        .iter()
        .take_while(|byte| PREFIXES.contains(byte))
        .count();
    let (prefixes, mut rest) = bytes.split_at(prefixes);
    let wide = rest.first().is_some_and(|byte| byte & 0xF8 == 0x48);
    if rest.first().is_some_and(|byte| byte & 0xF0 == 0x40) {
        rest = &rest[1..]; // REX
    }
    let opcode = rest.first().copied().unwrap_or(0);
    let to_memory = rest.get(1).is_some_and(|modrm| modrm >> 6 != 3);
    Kind {
        locked: prefixes.contains(&0xF0) || matches!(opcode, 0x86 | 0x87) && to_memory,
        store32: matches!(opcode, 0x87 | 0x89 | 0xC7)
            && to_memory
            && !wide
            && !prefixes.contains(&0x66),
        mark: bytes.len() == 8
            && bytes.starts_with(&[0x0F, 0x1F, 0x84, 0x00])
            && bytes.ends_with(&MARK),
    }
}
