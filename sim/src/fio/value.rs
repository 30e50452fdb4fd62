//! fio's value syntax: integers with unit suffixes, times, percentages, lists for each data direction.
//!
//! Follows HOWTO "Parameter types", and fio 3.33 where the two differ; stricter where fio silently reads a
//! malformed value as something else (`4q` as 4, `1.5m` as 1): that is an error here.

/// A quantity of data that may be given as a part of something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Percent, 0 to 100, of what the option's description says.
    Percent(u32),
}

/// Splits `text` into its leading number and the rest; `0x` makes it hexadecimal.
fn number(text: &str) -> Result<(u64, &str), String> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    let end = digits
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(digits.len());
    if end == 0 {
        return Err(format!("`{text}` is not a number"));
    }
    let value = u64::from_str_radix(&digits[..end], radix)
        .map_err(|_| format!("`{text}` does not fit 64 bits"))?;
    if digits[end..].starts_with('.') {
        return Err(format!(
            "`{text}` is not a whole number (fio would read {value})"
        ));
    }
    Ok((value, &digits[end..]))
}

/// An integer with fio's optional data suffix (k, m, g, t, p; b), in bytes or units.
///
/// `kb_base` is 1024 (fio's default: `4k` is 4096, and `4ki` is 4000) or 1000 (the standards: `4k` is 4000, `4ki` 4096).
pub fn integer(text: &str, kb_base: u64) -> Result<u64, String> {
    let (value, suffix) = number(text)?;
    let suffix = suffix.to_ascii_lowercase();
    let unit = suffix.strip_suffix('b').unwrap_or(&suffix);
    let (prefix, base) = match unit.strip_suffix('i') {
        Some(prefix) => (prefix, if kb_base == 1024 { 1000 } else { 1024 }),
        None => (unit, kb_base),
    };
    let power = match prefix {
        "" if !unit.is_empty() => return Err(format!("`{text}` has an unknown suffix")),
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => {
            return Err(format!(
                "`{text}` has an unknown suffix; known are k, m, g, t, p, each with b, i or ib"
            ));
        }
    };
    u64::checked_pow(base, power)
        .and_then(|scale| value.checked_mul(scale))
        .ok_or_else(|| format!("`{text}` does not fit 64 bits"))
}

/// An integer within `min..=max`.
pub fn bounded(text: &str, kb_base: u64, min: u64, max: u64) -> Result<u64, String> {
    let value = integer(text, kb_base)?;
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{value} is not in {min} to {max}"))
    }
}

/// Bytes, or a percentage (`25%`).
pub fn amount(text: &str, kb_base: u64) -> Result<Amount, String> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let value = integer(percent, kb_base)?;
            if value > 100 {
                return Err(format!("{text} is more than all: 1% to 100%"));
            }
            Ok(Amount::Percent(value as u32))
        }
        None => integer(text, kb_base).map(Amount::Bytes),
    }
}

/// Longest time of an option: 100 days. Sums of a few of them are far from the end of 64 bits of nanoseconds.
pub const MOST_NS: u64 = 100 * 86_400_000_000_000;

/// A time in nanoseconds; without a suffix it is in units of `default_ns`.
///
/// # Errors
/// No number, an unknown suffix, or more than [`MOST_NS`].
pub fn time(text: &str, default_ns: u64) -> Result<u64, String> {
    let (value, suffix) = number(text)?;
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" => default_ns,
        "ns" | "nsec" => 1,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => {
            return Err(format!(
                "`{text}` has an unknown time suffix; known are ns, us, ms, s, m, h, d"
            ));
        }
    };
    value
        .checked_mul(unit)
        .filter(|&ns| ns <= MOST_NS)
        .ok_or_else(|| format!("`{text}` is too long: at most 100 days"))
}

/// `lo-hi` or `lo:hi`, swapped into order; one value alone is both.
pub fn range(text: &str, one: impl Fn(&str) -> Result<u64, String>) -> Result<(u64, u64), String> {
    let (lo, hi) = text.split_once(['-', ':']).unwrap_or((text, text));
    let (lo, hi) = (one(lo.trim())?, one(hi.trim())?);
    Ok((lo.min(hi), lo.max(hi)))
}

/// A value for reads, one for writes, one for trims: `a`, `a,b` (b for writes and trims), `,b`, `a,`, `a,b,c`.
/// A direction left empty is None.
pub fn directions<T: Clone>(
    text: &str,
    separators: &[char],
    one: impl Fn(&str) -> Result<T, String>,
) -> Result<[Option<T>; 3], String> {
    let parts: Vec<&str> = text.split(separators).map(str::trim).collect();
    let given = |i: usize| {
        parts
            .get(i)
            .filter(|part| !part.is_empty())
            .map(|part| one(part))
            .transpose()
    };
    let (read, write, trim) = (given(0)?, given(1)?, given(2)?);
    match parts.len() {
        1 => Ok([read.clone(), read.clone(), read]),
        2 => Ok([read, write.clone(), write]),
        3 => Ok([read, write, trim]),
        n => Err(format!("{n} values; at most 3 (read, write, trim)")),
    }
}

/// 0 or 1; an option without a value is 1 where `bare` allows it.
pub fn boolean(text: Option<&str>, bare: bool) -> Result<bool, String> {
    match text {
        None if bare => Ok(true),
        None => Err("needs a value, 0 or 1".into()),
        Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(format!("`{other}` is not 0 or 1")),
    }
}

/// CPU numbers: `0,2-4`.
pub fn cpu_list(text: &str) -> Result<Vec<u32>, String> {
    const MAX: u64 = 4095;
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (lo, hi) = range(part.trim(), |one| bounded(one, 1024, 0, MAX)).map_err(|why| {
            format!("`{text}`: {why}; CPUs from 0 on and ranges of them, such as 0,2-3")
        })?;
        cpus.extend(lo as u32..=hi as u32);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each value as fio 3.33 understood it (`bs=500 size=X`, null engine, bytes done).
    #[test]
    fn integers_are_fio_s() {
        for (text, base, want) in [
            ("64k", 1024, 65536),
            ("64kb", 1024, 65536),
            ("64kib", 1024, 64000),
            ("64KiB", 1024, 64000),
            ("1mib", 1024, 1_000_000),
            ("0x10000", 1024, 65536),
            ("65536B", 1024, 65536),
            ("010000", 1024, 10000),
            ("64k", 1000, 64000),
            ("64kib", 1000, 65536),
            ("2t", 1024, 2 << 40),
            ("1p", 1024, 1 << 50),
        ] {
            assert_eq!(integer(text, base), Ok(want), "{text}");
        }
        for bad in [
            "",
            "k",
            "4q",
            "1.5m",
            "64 k",
            "4i",
            "99999999999p",
            "-1",
            "0x",
        ] {
            assert!(integer(bad, 1024).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_have_their_own_suffixes() {
        assert_eq!(time("60", 1_000_000_000), Ok(60_000_000_000));
        assert_eq!(time("1m", 1), Ok(60_000_000_000));
        assert_eq!(time("500ms", 1), Ok(500_000_000));
        assert_eq!(time("3usec", 1), Ok(3000));
        assert!(time("5x", 1).is_err());
        assert!(time("999999999d", 1).is_err());
    }

    #[test]
    fn directions_follow_bs() {
        let bs = |text| directions(text, &[','], |one| integer(one, 1024));
        assert_eq!(bs("4k"), Ok([Some(4096); 3]));
        assert_eq!(bs("4k,8k"), Ok([Some(4096), Some(8192), Some(8192)]));
        assert_eq!(bs(",8k"), Ok([None, Some(8192), Some(8192)]));
        assert_eq!(bs("8k,"), Ok([Some(8192), None, None]));
        assert_eq!(bs(",8k,"), Ok([None, Some(8192), None]));
        assert!(bs("1,2,3,4").is_err());
    }

    #[test]
    fn ranges_and_cpu_lists() {
        assert_eq!(range("8k-1k", |x| integer(x, 1024)), Ok((1024, 8192)));
        assert_eq!(cpu_list("18,19"), Ok(vec![18, 19]));
        assert_eq!(cpu_list("0,2-4"), Ok(vec![0, 2, 3, 4]));
        assert!(cpu_list("0,").is_err());
        assert!(cpu_list("0-99999999").is_err());
    }
}
