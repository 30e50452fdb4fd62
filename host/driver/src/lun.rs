//! LUNs: the namespaces of a controller.

/// A LUN. NSID n is LUN n - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lun {
    /// Number of the LUN, from 0.
    pub index: u32,
    /// Namespace identifier.
    pub nsid: u32,
    /// Size, blocks.
    pub blocks: u64,
    /// A block is 2^block_shift bytes.
    pub block_shift: u8,
    /// UUID or NGUID, when it has one.
    pub id: Option<[u8; 16]>,
}

impl Lun {
    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        1 << self.block_shift
    }

    /// Bytes of the LUN.
    pub fn bytes(&self) -> u64 {
        self.blocks << self.block_shift
    }
}
