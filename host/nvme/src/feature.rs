//! Features (section 5.21.1): identifiers and the dword each carries.

use bitfield_struct::bitfield;
use open_enum::open_enum;

/// Feature identifiers (section 5.21.1, figure 273; C0h and up are vendor specific).
#[open_enum]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FeatureId {
    /// Arbitration: [`Arbitration`].
    ARBITRATION = 0x01,
    /// Power Management: [`PowerManagement`].
    POWER_MANAGEMENT = 0x02,
    /// Temperature Threshold: [`TemperatureThreshold`].
    TEMPERATURE_THRESHOLD = 0x04,
    /// Error Recovery: dword 11 bits 15:0 Time Limited Error Recovery, in 100 ms; bit 16 DULBE.
    ERROR_RECOVERY = 0x05,
    /// Volatile Write Cache: a Weir card has none, so it answers Invalid Field.
    VOLATILE_WRITE_CACHE = 0x06,
    /// Number of Queues: [`NumberOfQueues`].
    NUMBER_OF_QUEUES = 0x07,
    /// Interrupt Coalescing: [`InterruptCoalescing`].
    INTERRUPT_COALESCING = 0x08,
    /// Interrupt Vector Configuration: [`InterruptVectorConfig`].
    INTERRUPT_VECTOR_CONFIG = 0x09,
    /// Write Atomicity Normal: bit 0 Disable Normal.
    WRITE_ATOMICITY = 0x0A,
    /// Asynchronous Event Configuration: [`AsyncEventConfig`].
    ASYNC_EVENT_CONFIG = 0x0B,
    /// Vendor, per NSID: [`LunBudget`].
    LUN_BUDGET = 0xC0,
    /// Vendor: [`TagSet`].
    TAG_SET = 0xC1,
}

/// Arbitration (section 5.21.1.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Arbitration {
    /// Arbitration Burst: 2^AB commands at a time from a queue; 7 is no limit.
    #[bits(3)]
    pub ab: u8,
    #[bits(5)]
    _reserved0: u8,
    /// Low Priority Weight, less one.
    pub lpw: u8,
    /// Medium Priority Weight, less one.
    pub mpw: u8,
    /// High Priority Weight, less one.
    pub hpw: u8,
}

/// Power Management (section 5.21.1.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct PowerManagement {
    /// Power State: 0 to NPSS.
    #[bits(5)]
    pub ps: u8,
    /// Workload Hint.
    #[bits(3)]
    pub wh: u8,
    #[bits(24)]
    _reserved0: u32,
}

/// Temperature Threshold (section 5.21.1.4).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct TemperatureThreshold {
    /// Threshold, in kelvins.
    pub tmpth: u16,
    /// Sensor: 0 composite.
    #[bits(4)]
    pub tmpsel: u8,
    /// Type: 0 over, 1 under.
    #[bits(2)]
    pub thsel: u8,
    #[bits(10)]
    _reserved0: u16,
}

/// Number of Queues (section 5.21.1.7): asked for in Set's dword 11, granted in the completion's dword 0.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct NumberOfQueues {
    /// I/O submission queues, less one; FFFFh is not allowed.
    pub nsq: u16,
    /// I/O completion queues, less one; FFFFh is not allowed.
    pub ncq: u16,
}

/// Interrupt Coalescing (section 5.21.1.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InterruptCoalescing {
    /// Aggregation Threshold: completions before an interrupt, less one.
    pub thr: u8,
    /// Aggregation Time, in 100 us; 0 is no delay.
    pub time: u8,
    _reserved0: u16,
}

/// Interrupt Vector Configuration (section 5.21.1.9).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InterruptVectorConfig {
    /// Interrupt Vector.
    pub iv: u16,
    /// Coalescing Disable, for this vector.
    pub cd: bool,
    #[bits(15)]
    _reserved0: u16,
}

/// Asynchronous Event Configuration (section 5.21.1.11).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AsyncEventConfig {
    /// SMART / Health Critical Warnings that raise an event, by bit of the log's critical warning.
    pub smart: u8,
    /// Namespace Attribute Notices.
    pub namespace_attributes: bool,
    /// Firmware Activation Notices.
    pub firmware_activation: bool,
    #[bits(22)]
    _reserved0: u32,
}

/// Vendor feature C0h, per NSID (FFFFFFFFh: all): what one LUN may hold. Not saveable. Set's dword 11, and dword 0 of
/// Get's completion. Depth 0, depth above the card's tags and weight 0 are Invalid Field.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct LunBudget {
    /// Commands of this LUN that may execute at once.
    pub depth: u16,
    /// Weight under [`Fairness::WEIGHTED`].
    pub weight: u16,
}

/// Vendor feature C1h: the tags of the card. Not saveable, not namespace specific. Set's dword 11, and dword 0 of
/// Get's completion. Tag depth 0, above the card's tags, and an unknown rule are Invalid Field.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct TagSet {
    /// Commands of all LUNs that may execute at once.
    pub depth: u16,
    /// A [`Fairness`].
    #[bits(2)]
    pub fairness: u8,
    #[bits(14)]
    _reserved0: u16,
}

/// Vendor: how LUNs share tags, media and link.
#[open_enum]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fairness {
    /// No share: first come, first served up to each LUN's depth.
    NONE = 0,
    /// Linux's rule: a LUN may hold max(ceil(tags / active LUNs), 4).
    EVEN = 1,
    /// Deficit round robin by weight.
    WEIGHTED = 2,
}

impl Fairness {
    /// The rules' names for people.
    pub const NAMES: [(&str, Fairness); 3] = [
        ("none", Fairness::NONE),
        ("even", Fairness::EVEN),
        ("weighted", Fairness::WEIGHTED),
    ];

    /// This one's; `unknown` for one that there is not.
    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, rule)| *rule == self);
        named.map_or("unknown", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dwords_lie_as_specified() {
        assert_eq!(
            u32::from(LunBudget::new().with_depth(32).with_weight(5)),
            0x0005_0020
        );
        assert_eq!(
            u32::from(
                TagSet::new()
                    .with_depth(512)
                    .with_fairness(Fairness::WEIGHTED.0)
            ),
            0x0002_0200
        );
        assert_eq!(
            u32::from(NumberOfQueues::new().with_nsq(3).with_ncq(7)),
            0x0007_0003
        );
        assert_eq!(
            u32::from(InterruptCoalescing::new().with_thr(7).with_time(1)),
            0x0107
        );
        assert_eq!(
            u32::from(InterruptVectorConfig::new().with_iv(2).with_cd(true)),
            0x0001_0002
        );
        assert_eq!(
            u32::from(Arbitration::new().with_ab(7).with_hpw(1)),
            0x0100_0007
        );
        assert_eq!(
            u32::from(TemperatureThreshold::new().with_thsel(1)),
            1 << 20
        );
        assert_eq!(u32::from(PowerManagement::new().with_wh(1)), 1 << 5);
    }
}
