//! What an option's value does to a job's options, where that is more than a number or a flag.

use super::super::value::{self, Amount};
use super::{
    Arg, BLOCK, Distribution, FileService, JobOptions, Mix, PatternPart, Verify, whole_blocks,
};

/// Colons separate names; `\:` is a colon in a name.
pub(super) fn filenames(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = text
        .replace("\\:", "\0")
        .split(':')
        .map(|name| name.trim().replace('\0', ":"))
        .collect();
    if names.iter().any(String::is_empty) {
        return Err(format!("`{text}` has an empty name between its colons"));
    }
    Ok(names)
}

pub(super) fn rw(o: &mut JobOptions, arg: Arg) -> Result<(), String> {
    let text = arg.text()?;
    if text.contains(':') {
        return Err(format!(
            "the modifier of `{text}` (I/Os per random offset, or a hole) is not supported yet"
        ));
    }
    (o.random, o.mix) = match text {
        "read" => (false, Mix::Read),
        "write" => (false, Mix::Write),
        "rw" | "readwrite" => (false, Mix::Mixed),
        "randread" => (true, Mix::Read),
        "randwrite" => (true, Mix::Write),
        "randrw" => (true, Mix::Mixed),
        "trim" | "randtrim" | "trimwrite" | "randtrimwrite" => {
            return Err(format!(
                "`{text}` is not supported yet: the card has no Dataset Management"
            ));
        }
        _ => {
            return Err(format!(
                "`{text}` is none of read, write, rw, readwrite, randread, randwrite, randrw"
            ));
        }
    };
    Ok(())
}

pub(super) fn block_size(o: &mut JobOptions, arg: Arg, ranges: bool) -> Result<(), String> {
    let text = arg.text()?;
    let one = |one: &str| value::bounded(one, arg.kb_base, 1, 1 << 30).and_then(whole_blocks);
    let given = if ranges {
        value::directions(text, &[',', '/'], |part| {
            if part.contains(['-', ':']) {
                value::range(part, one)
            } else {
                Err(format!("`{part}` is not a range"))
            }
        })?
    } else {
        value::directions(text, &[','], |part| one(part).map(|size| (size, size)))?
    };
    for (size, given) in o.block_size.iter_mut().zip(given) {
        *size = given.unwrap_or(*size);
    }
    Ok(())
}

pub(super) fn block_align(o: &mut JobOptions, arg: Arg) -> Result<(), String> {
    let given = value::directions(arg.text()?, &[','], |part| {
        value::bounded(part, arg.kb_base, 1, 1 << 30).and_then(whole_blocks)
    })?;
    o.block_align = [given[0], given[1]];
    Ok(())
}

pub(super) fn ioengine(o: &mut JobOptions, arg: Arg) -> Result<(), String> {
    let text = arg.text()?;
    o.sync_engine = match text {
        "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" | "mmap" => true,
        "libaio" | "io_uring" | "io_uring_cmd" | "posixaio" | "sg" => false,
        "nbd" => {
            return Err(
                "nbd is for real fio, on the simulated card by `make fio` or `weir export nbd`; here libaio stands for an engine \
                 that has iodepth I/Os in flight"
                    .into(),
            );
        }
        _ => {
            return Err(format!(
                "`{text}` is not supported; of fio's engines sync, psync, vsync, pvsync, pvsync2, mmap (one I/O at a \
                 time) and libaio, io_uring, io_uring_cmd, posixaio, sg (iodepth of them) mean something here"
            ));
        }
    };
    o.ioengine = text.into();
    Ok(())
}

pub(super) fn positive(amount: Amount) -> Result<Amount, String> {
    match amount {
        Amount::Bytes(0) | Amount::Percent(0) => {
            Err("0 leaves nothing to do; leave it out for the whole LUN".into())
        }
        other => Ok(other),
    }
}

pub(super) fn file_service(o: &mut JobOptions, arg: Arg) -> Result<(), String> {
    let text = arg.text()?;
    let (kind, times) = text.split_once(':').unwrap_or((text, "1"));
    let times = || value::bounded(times, arg.kb_base, 1, u64::from(u32::MAX)).map(|n| n as u32);
    o.file_service = match kind {
        "roundrobin" => FileService::RoundRobin(times()?),
        "random" => FileService::Random(times()?),
        "sequential" => FileService::Sequential,
        "zipf" | "pareto" | "normal" | "gauss" => {
            return Err(format!("`{kind}` is not supported yet"));
        }
        _ => {
            return Err(format!(
                "`{text}` is none of roundrobin, random, sequential"
            ));
        }
    };
    Ok(())
}

pub(super) fn distribution(o: &mut JobOptions, arg: Arg) -> Result<(), String> {
    let text = arg.text()?;
    let (kind, theta) = text.split_once(':').unwrap_or((text, "1.1"));
    o.distribution = match kind {
        "random" => Distribution::Uniform,
        "zipf" => {
            let theta: f64 = theta
                .parse()
                .map_err(|_| format!("zipf's theta `{theta}` is not a number"))?;
            if !(theta > 0.0 && theta < 100.0) || theta == 1.0 {
                return Err(format!(
                    "zipf's theta is {theta}; it must be above 0, below 100, and not 1"
                ));
            }
            Distribution::Zipf(theta)
        }
        "pareto" | "normal" | "gauss" | "zoned" | "zoned_abs" => {
            return Err(format!("`{kind}` is not supported yet"));
        }
        _ => return Err(format!("`{text}` is none of random, zipf:theta")),
    };
    Ok(())
}

pub(super) fn rate_iops(o: &mut JobOptions, arg: Arg) -> Result<(), String> {
    let given = value::directions(arg.text()?, &[','], |part| {
        value::bounded(part, arg.kb_base, 0, 1_000_000_000)
    })?;
    o.rate_iops = [given[0].unwrap_or(0), given[1].unwrap_or(0)];
    Ok(())
}

pub(super) fn verify(o: &mut JobOptions, arg: Arg) -> Result<(), String> {
    let text = arg.text()?;
    o.verify = match text {
        "0" => Verify::None,
        "crc32c" | "crc32c-intel" => Verify::Crc32c,
        "pattern" => Verify::Pattern,
        "md5" | "crc64" | "crc32" | "crc16" | "crc7" | "sha1" | "sha256" | "sha512"
        | "sha3-224" | "sha3-256" | "sha3-384" | "sha3-512" | "xxhash" | "meta" | "null" => {
            return Err(format!(
                "`{text}` is not supported yet; crc32c and pattern are"
            ));
        }
        _ => return Err(format!("`{text}` is none of crc32c, pattern")),
    };
    Ok(())
}

/// fio's pattern syntax: numbers (0x with any digits, else decimal, signed, 32 bits), "strings", `%o`, in any sequence.
pub(super) fn pattern(text: &str) -> Result<Vec<PatternPart>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("%o") {
            parts.push(PatternPart::Offset);
            rest = after;
        } else if let Some(after) = rest.strip_prefix('"') {
            let (string, after) = after
                .split_once('"')
                .ok_or_else(|| format!("`{rest}` has no closing quote"))?;
            parts.push(PatternPart::Bytes(string.as_bytes().to_vec()));
            rest = after;
        } else if rest.starts_with('\'') {
            return Err("a pattern from a file is not supported yet".into());
        } else if let Some(digits) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let end = digits
                .find(|c: char| !c.is_ascii_hexdigit())
                .unwrap_or(digits.len());
            if end == 0 {
                return Err(format!("`{rest}` is no hexadecimal number"));
            }
            // The number's digits in the order written; an odd count gets a leading 0.
            let even = format!("{}{}", if end % 2 == 1 { "0" } else { "" }, &digits[..end]);
            let byte = |i: usize| u8::from_str_radix(&even[i..i + 2], 16).unwrap_or(0);
            parts.push(PatternPart::Bytes(
                (0..even.len()).step_by(2).map(byte).collect(),
            ));
            rest = &digits[end..];
        } else if rest.starts_with(char::is_whitespace) {
            rest = rest.trim_start();
        } else {
            let digits = rest.strip_prefix('-').unwrap_or(rest);
            let end = rest.len() - digits.len()
                + digits
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(digits.len());
            let value: i32 = rest[..end].parse().map_err(|_| {
                format!(
                    "`{rest}` starts with none of a decimal number of 32 bits, 0x..., \"text\", %o"
                )
            })?;
            let bytes = value.to_le_bytes();
            let used = 4 - bytes.iter().rev().take_while(|&&byte| byte == 0).count();
            parts.push(PatternPart::Bytes(bytes[..used.max(1)].to_vec()));
            rest = &rest[end..];
        }
    }
    let length: usize = parts.iter().map(PatternPart::len).sum();
    if length == 0 {
        return Err("the pattern is empty".into());
    }
    if length > BLOCK as usize {
        return Err(format!(
            "the pattern is {length} bytes long; at most {BLOCK}"
        ));
    }
    Ok(parts)
}

pub(super) fn percentiles(o: &mut JobOptions, arg: Arg) -> Result<(), String> {
    /// FIO_IO_U_LIST_MAX_LEN.
    const MAX: usize = 20;
    let mut list = Vec::new();
    for part in arg.text()?.split(':') {
        let value: f64 = part
            .trim()
            .parse()
            .map_err(|_| format!("`{part}` is not a number"))?;
        if !(0.0..=100.0).contains(&value) {
            return Err(format!("{value} is not in 0 to 100"));
        }
        list.push(value);
    }
    if list.len() > MAX {
        return Err(format!(
            "{} percentiles; fio takes at most {MAX}",
            list.len()
        ));
    }
    list.sort_by(f64::total_cmp);
    o.percentiles = list;
    Ok(())
}

pub(super) fn cpus_policy(o: &mut JobOptions, arg: Arg) -> Result<(), String> {
    o.cpus_split = match arg.text()? {
        "shared" => false,
        "split" => true,
        other => return Err(format!("`{other}` is neither shared nor split")),
    };
    Ok(())
}

/// Also used by the parser, which needs it before it reads other options of the section.
pub fn kb_base(text: &str) -> Result<u64, String> {
    match text {
        "1024" => Ok(1024),
        "1000" => Ok(1000),
        other => Err(format!("`{other}` is neither 1024 nor 1000")),
    }
}
