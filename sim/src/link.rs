//! The PCIe link as arithmetic: what a byte, a TLP and an I/O cost. `docs/link-model.md` has the formula and its sources.

use std::fmt;
use std::str::FromStr;

/// Bytes around a TLP's header and payload: STP and sequence number 4, LCRC 4 (Gen3 on; 8 as well before it).
pub const FRAMING: u64 = 8;
/// Header of a memory request with a 64-bit address: 4 DW.
pub const REQUEST_HEADER: u64 = 16;
/// Header of a completion: 3 DW.
pub const COMPLETION_HEADER: u64 = 12;
/// TLPs received for which one Ack and one UpdateFC (8 bytes each) are sent the other way.
pub const TLPS_PER_DLLP_PAIR: u64 = 4;
/// Bytes of those two DLLPs.
pub const DLLP_PAIR: u64 = 16;
/// Of this many blocks one is a SKP ordered set (PCIe 4.2.7: every 370 to 375 blocks).
const SKIP_EVERY: u64 = 371;

/// A link and the root complex behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkParams {
    /// Generation, 1..=5.
    pub generation: u8,
    /// Lanes: 1, 2, 4, 8, 16.
    pub lanes: u8,
    /// Max_Payload_Size in bytes, 128..=1024.
    pub mps: u16,
    /// Max_Read_Request_Size in bytes, 128..=4096.
    pub mrrs: u16,
    /// Read requests that may be outstanding: 32 without, 256 with extended tags.
    pub tags: u16,
    /// AXI bursts the bridge accepts in each direction before it has answered them.
    pub bursts: u16,
    /// Bytes of posted writes that the bridge buffers.
    pub posted_bytes: u32,
    /// From the end of a TLP on the wire to its effect at the root (card to host), ns.
    pub up_latency: u32,
    /// From the end of a TLP on the wire to its effect at the card (host to card), ns.
    pub down_latency: u32,
    /// From a read request's arrival at the root to the start of its completion, ns.
    pub memory_latency: u32,
    /// Most ns added to `memory_latency`, drawn for each request; reorders completions between AXI IDs.
    pub jitter: u32,
    /// The bridge mixes R beats of different IDs where it can; for tests.
    pub interleave: bool,
}

impl LinkParams {
    /// The defaults of `docs/link-model.md` for this generation and number of lanes.
    pub const fn new(generation: u8, lanes: u8) -> Self {
        LinkParams {
            generation,
            lanes,
            mps: 256,
            mrrs: 512,
            tags: 64,
            bursts: 64,
            posted_bytes: 8192,
            up_latency: 200,
            down_latency: 200,
            memory_latency: 100,
            jitter: 0,
            interleave: false,
        }
    }

    /// Femtoseconds that `bytes` symbols take on the wire, encoding and SKP ordered sets included.
    pub fn wire_fs(&self, bytes: u64) -> u64 {
        // A byte on one lane: 10 bits at 2.5 or 5 GT/s, 8 * 130/128 bits at 8 GT/s and its multiples.
        let lane_byte = match self.generation {
            1 => 4_000_000,
            2 => 2_000_000,
            3 => 1_015_625,
            n => 1_015_625 >> (n - 3).min(8),
        };
        bytes * lane_byte * SKIP_EVERY / (u64::from(self.lanes) * (SKIP_EVERY - 1))
    }

    /// Bytes a second in each direction for TLPs and DLLPs.
    pub fn bytes_per_second(&self) -> f64 {
        1e15 * 1e6 / self.wire_fs(1_000_000) as f64
    }

    /// Bytes on the wire towards the host for a random read of `bytes`, with all that goes with it: data in TLPs of MPS,
    /// a quarter of a completion write of 4 entries, an eighth of a fetch of 8 entries and of an MSI-X message, and the
    /// DLLPs for what comes down (entries in completions of MPS, two doorbells for 8 commands).
    pub fn read_bytes_up(&self, bytes: u64) -> f64 {
        let request = (FRAMING + REQUEST_HEADER) as f64;
        let data = bytes as f64 + bytes.div_ceil(u64::from(self.mps)) as f64 * request;
        let completion = (64.0 + request) / 4.0;
        let fetch = request * (512.0 / f64::from(self.mrrs)).max(1.0) / 8.0;
        let message = (4.0 + request) / 8.0;
        let tlps_down = (512.0 / f64::from(self.mps) + 2.0) / 8.0;
        data + completion
            + fetch
            + message
            + tlps_down * (DLLP_PAIR as f64 / TLPS_PER_DLLP_PAIR as f64)
    }

    /// Random reads of `bytes` a second that the link bounds: the payload bound of docs/link-model.md.
    pub fn read_bound(&self, bytes: u64) -> f64 {
        self.bytes_per_second() / self.read_bytes_up(bytes)
    }
}

impl fmt::Display for LinkParams {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "gen{}x{}", self.generation, self.lanes)
    }
}

/// What stands between the card and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// No link: ready always high, R the cycle after AR, B the cycle after WLAST, MMIO at once.
    None,
    /// A PCIe link.
    Pcie(LinkParams),
}

/// Text that names no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no link: none, or gen<1-5>x<1|2|4|8|16>, such as gen3x8")]
pub struct LinkError(pub String);

impl FromStr for Link {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        if text == "none" {
            return Ok(Link::None);
        }
        let parts = text
            .strip_prefix("gen")
            .and_then(|rest| rest.split_once('x'));
        let numbers = parts.and_then(|(g, l)| Some((g.parse().ok()?, l.parse().ok()?)));
        match numbers {
            Some((g @ 1..=5, lanes @ (1 | 2 | 4 | 8 | 16))) => {
                Ok(Link::Pcie(LinkParams::new(g, lanes)))
            }
            _ => Err(LinkError(text.to_string())),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Link::None => f.write_str("none"),
            Link::Pcie(params) => params.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_table_of_the_design_comes_out() {
        // (generation, lanes, M IOPS at 512 B, at 4 KiB)
        let table = [
            (3, 4, 6.7, 0.87),
            (3, 8, 13.3, 1.74),
            (3, 16, 26.6, 3.48),
            (4, 16, 53.2, 6.96),
        ];
        for (generation, lanes, small, page) in table {
            let link = LinkParams::new(generation, lanes);
            let (s, p) = (link.read_bound(512) / 1e6, link.read_bound(4096) / 1e6);
            assert!(
                (s / small - 1.0).abs() < 0.01,
                "gen{generation}x{lanes}: {s:.3} M of 512 B, not {small}"
            );
            assert!(
                (p / page - 1.0).abs() < 0.003,
                "gen{generation}x{lanes}: {p:.4} M of 4 KiB, not {page}"
            );
        }
    }

    #[test]
    fn links_are_read() {
        assert_eq!("none".parse(), Ok(Link::None));
        assert_eq!("gen4x16".parse(), Ok(Link::Pcie(LinkParams::new(4, 16))));
        for bad in ["", "gen", "gen3", "gen6x8", "gen3x3", "gen3x8x", "Gen3x8"] {
            assert_eq!(bad.parse::<Link>(), Err(LinkError(bad.to_string())));
        }
        assert_eq!(LinkParams::new(3, 8).to_string(), "gen3x8");
    }

    #[test]
    fn a_gen3_lane_carries_982_megabytes() {
        let rate = LinkParams::new(3, 1).bytes_per_second() / 1e6;
        assert!(
            (rate - 8000.0 / 8.0 * 128.0 / 130.0 * 370.0 / 371.0).abs() < 0.01,
            "{rate}"
        );
        let old = LinkParams::new(1, 1).bytes_per_second() / 1e6;
        assert!((old - 250.0 * 370.0 / 371.0).abs() < 0.01, "{old}");
    }
}
