//! Simulated time: cycles of the card's clock, nanoseconds, and latencies that vary.

use std::fmt;
use std::str::FromStr;

use crate::rng::Rng;

/// Nanoseconds in a cycle of the card's clock (250 MHz).
pub const CYCLE_NS: u64 = 4;
/// Femtoseconds in a cycle: the unit of link time, where a byte takes less than a picosecond's multiple.
pub const CYCLE_FS: u64 = CYCLE_NS * 1_000_000;

/// Longest simulated time that can be asked for: an hour.
pub const MOST_NS: u64 = 3_600_000_000_000;

/// Whole cycles that last at least `ns`.
pub fn cycles(ns: u64) -> u64 {
    ns.div_ceil(CYCLE_NS)
}

/// A latency in nanoseconds, drawn for each access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Always the same.
    Fixed(u64),
    /// Uniform from the first to the second, both included.
    Uniform(u64, u64),
    /// The first, plus an exponentially distributed part of this mean.
    Exponential(u64, u64),
}

impl Latency {
    /// One draw, in nanoseconds.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match *self {
            Latency::Fixed(ns) => ns,
            Latency::Uniform(low, high) => low + rng.below(high.saturating_sub(low) + 1),
            Latency::Exponential(low, mean) => low + rng.exponential(mean as f64) as u64,
        }
    }

    /// The mean, in nanoseconds.
    pub fn mean(&self) -> u64 {
        match *self {
            Latency::Fixed(ns) => ns,
            Latency::Uniform(low, high) => low.midpoint(high),
            Latency::Exponential(low, mean) => low.saturating_add(mean),
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Latency::Fixed(ns) => write!(f, "{ns}ns"),
            Latency::Uniform(low, high) => write!(f, "{low}ns-{high}ns"),
            Latency::Exponential(low, mean) => write!(f, "{low}ns~{mean}ns"),
        }
    }
}

/// Text that is no time or latency.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no time: a number with ns, us, ms or s (10us), at most an hour, for a latency also a range (5us-20us) or a minimum and an exponential mean (5us~20us)"
)]
pub struct TimeError(pub String);

/// A time with its unit (`ns`, `us`, `ms`, `s`), decimals allowed, as nanoseconds.
pub fn parse_ns(text: &str) -> Result<u64, TimeError> {
    let bad = || TimeError(text.to_string());
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let scale = match &text[digits..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(bad()),
    };
    let value: f64 = text[..digits].parse().map_err(|_| bad())?;
    let ns = value * scale;
    if ns > MOST_NS as f64 {
        return Err(bad());
    }
    Ok(ns.round() as u64)
}

impl FromStr for Latency {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let bad = || TimeError(text.to_string());
        let pair = |a, b| {
            Ok::<_, TimeError>((
                parse_ns(a).map_err(|_| bad())?,
                parse_ns(b).map_err(|_| bad())?,
            ))
        };
        if let Some((low, high)) = text.split_once('-') {
            let (low, high) = pair(low, high)?;
            // A range either way around is one.
            return Ok(Latency::Uniform(low.min(high), low.max(high)));
        }
        if let Some((low, mean)) = text.split_once('~') {
            let (low, mean) = pair(low, mean)?;
            return Ok(Latency::Exponential(low, mean));
        }
        Ok(Latency::Fixed(parse_ns(text)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_latencies_are_read() {
        assert_eq!(parse_ns("1.5us"), Ok(1500));
        assert_eq!("10us".parse(), Ok(Latency::Fixed(10_000)));
        assert_eq!("5us-20us".parse(), Ok(Latency::Uniform(5_000, 20_000)));
        assert_eq!(
            "1us~2ms".parse(),
            Ok(Latency::Exponential(1_000, 2_000_000))
        );
        assert_eq!("20us-5us".parse(), Ok(Latency::Uniform(5_000, 20_000)));
        for bad in ["", "10", "us", "10 us", "1.2.3us", "5us-", "1e9s"] {
            assert!(
                bad.parse::<Latency>().is_err(),
                "{bad} was taken for a time"
            );
        }
        assert_eq!((cycles(0), cycles(1), cycles(4), cycles(5)), (0, 1, 1, 2));
    }

    #[test]
    fn draws_follow_their_distribution() {
        let mut rng = Rng::new(1, 2);
        let mut mean = |l: Latency| (0..10_000).map(|_| l.draw(&mut rng)).sum::<u64>() / 10_000;
        assert_eq!(mean(Latency::Fixed(7)), 7);
        assert!((1450..1550).contains(&mean(Latency::Uniform(1000, 2000))));
        assert!((2850..3150).contains(&mean(Latency::Exponential(1000, 2000))));
    }
}
