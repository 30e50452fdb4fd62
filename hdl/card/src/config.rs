//! What is fixed when a card is built: sizes, widths and port shapes.
//!
//! Everything else (queues, LUNs and tags in use, depths, weights, the fairness rule) is set at run time.

use std::fmt;

/// The sizes of one built card. Only these decide the Verilog.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CardConfig {
    /// Name of the configuration, for messages (`small`, `default`, `large`, `custom`).
    pub name: String,
    /// I/O submission queues, and as many completion queues: 1 to 64. The admin queue is one more.
    pub queues: u32,
    /// Most entries of an I/O queue (CAP.MQES + 1), and most slots it may hold: a power of two, 16 to 4096.
    pub entries: u32,
    /// LUNs (NVMe namespaces): 1 to 256.
    pub luns: u32,
    /// Commands that may execute at a time: a power of two, 8 to 4096.
    pub tags: u32,
    /// Width of the host and media data buses in bits: 128, 256 or 512.
    pub data_bits: u32,
    /// Chunks (at most 4 KiB each) in flight from media to host: a power of two, 4 to 1024.
    pub read_chunks: u32,
    /// Chunks in flight from host to media, each with a 4 KiB buffer: a power of two, 4 to 256.
    pub write_chunks: u32,
    /// ID bits of the host AXI port, 0 to 16; 0 is one ID, answered in order.
    pub host_id_bits: u32,
    /// Most bursts in flight on the host port, in each direction: 1 to 1024.
    pub host_max_outstanding: u32,
    /// ID bits of the media AXI port, 0 to 16.
    pub media_id_bits: u32,
    /// Most bursts in flight on the media port, in each direction: 1 to 1024.
    pub media_max_outstanding: u32,
}

/// A size that no card can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field of [`CardConfig`] (also the option of that name).
    pub option: &'static str,
    /// What was asked for.
    pub value: u64,
    /// What would be right.
    pub allowed: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} = {} cannot be built: it must be {}",
            self.option, self.value, self.allowed
        )
    }
}

impl std::error::Error for ConfigError {}

/// Bits that hold the numbers `0..n`, at least 1.
pub fn index_bits(n: u32) -> u32 {
    n.max(2).next_power_of_two().trailing_zeros()
}

impl CardConfig {
    /// For tests and proofs: 4 queues x 16 entries, 4 LUNs, 32 tags, 128 bits.
    pub fn small() -> Self {
        Self {
            name: "small".into(),
            queues: 4,
            entries: 16,
            luns: 4,
            tags: 32,
            data_bits: 128,
            read_chunks: 16,
            write_chunks: 8,
            host_id_bits: 4,
            host_max_outstanding: 16,
            media_id_bits: 4,
            media_max_outstanding: 16,
        }
    }

    /// 16 queues x 256 entries, 32 LUNs, 512 tags, 256 bits.
    pub fn default_card() -> Self {
        Self {
            name: "default".into(),
            queues: 16,
            entries: 256,
            luns: 32,
            tags: 512,
            data_bits: 256,
            read_chunks: 256,
            write_chunks: 64,
            host_id_bits: 8,
            host_max_outstanding: 256,
            media_id_bits: 8,
            media_max_outstanding: 256,
        }
    }

    /// 64 queues x 256 entries, 256 LUNs, 1024 tags, 512 bits.
    pub fn large() -> Self {
        Self {
            name: "large".into(),
            queues: 64,
            entries: 256,
            luns: 256,
            tags: 1024,
            data_bits: 512,
            ..Self::default_card()
        }
    }

    /// The configuration of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "small" => Some(Self::small()),
            "default" => Some(Self::default_card()),
            "large" => Some(Self::large()),
            _ => None,
        }
    }

    /// Refuses what cannot be built.
    pub fn check(&self) -> Result<(), ConfigError> {
        let range = |option, value: u32, lo: u32, hi: u32, power: bool, allowed| {
            let ok = (lo..=hi).contains(&value) && (!power || value.is_power_of_two());
            if ok {
                Ok(())
            } else {
                Err(ConfigError {
                    option,
                    value: value.into(),
                    allowed,
                })
            }
        };
        range("queues", self.queues, 1, 64, false, "1 to 64")?;
        range(
            "entries",
            self.entries,
            16,
            4096,
            true,
            "a power of two from 16 to 4096",
        )?;
        range("luns", self.luns, 1, 256, false, "1 to 256")?;
        range(
            "tags",
            self.tags,
            8,
            4096,
            true,
            "a power of two from 8 to 4096",
        )?;
        range(
            "data_bits",
            self.data_bits,
            128,
            512,
            true,
            "128, 256 or 512",
        )?;
        range(
            "read_chunks",
            self.read_chunks,
            4,
            1024,
            true,
            "a power of two from 4 to 1024",
        )?;
        range(
            "write_chunks",
            self.write_chunks,
            4,
            256,
            true,
            "a power of two from 4 to 256",
        )?;
        range("host_id_bits", self.host_id_bits, 0, 16, false, "0 to 16")?;
        range(
            "host_max_outstanding",
            self.host_max_outstanding,
            1,
            1024,
            false,
            "1 to 1024",
        )?;
        range("media_id_bits", self.media_id_bits, 0, 16, false, "0 to 16")?;
        range(
            "media_max_outstanding",
            self.media_max_outstanding,
            1,
            1024,
            false,
            "1 to 1024",
        )
    }

    /// Slots on the card.
    pub fn slots(&self) -> u32 {
        self.queues * self.entries
    }
    /// Bits of a slot number.
    pub fn slot_bits(&self) -> u32 {
        index_bits(self.slots())
    }
    /// Bits of a LUN number (NSID - 1).
    pub fn lun_bits(&self) -> u32 {
        index_bits(self.luns)
    }
    /// Bits of a tag.
    pub fn tag_bits(&self) -> u32 {
        index_bits(self.tags)
    }
    /// Bits that count tags, 0 to `tags`.
    pub fn depth_bits(&self) -> u32 {
        self.tag_bits() + 1
    }
    /// Bits of a queue number; 0 is the admin queue.
    pub fn queue_bits(&self) -> u32 {
        index_bits(self.queues + 1)
    }
    /// Bytes of one beat of a data bus.
    pub fn beat_bytes(&self) -> u32 {
        self.data_bits / 8
    }
    /// Bits of a chunk number, of whichever direction has more.
    pub fn chunk_bits(&self) -> u32 {
        index_bits(self.read_chunks.max(self.write_chunks))
    }
    /// Bits of an internal AXI ID of the host port: kind (2 bits, on top) and index.
    pub fn host_id(&self) -> u32 {
        2 + self.chunk_bits()
    }
    /// Bits of an internal AXI ID of the media port: a chunk.
    pub fn media_id(&self) -> u32 {
        self.chunk_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_configurations_can_be_built() {
        for n in ["small", "default", "large"] {
            CardConfig::named(n).unwrap().check().unwrap();
        }
        assert_eq!(CardConfig::default_card().slot_bits(), 12);
        assert_eq!(CardConfig::large().slots(), 16384);
    }

    #[test]
    fn an_impossible_size_is_named() {
        let c = CardConfig {
            tags: 100,
            ..CardConfig::small()
        };
        assert_eq!(
            c.check().unwrap_err().to_string(),
            "tags = 100 cannot be built: it must be a power of two from 8 to 4096"
        );
    }
}
