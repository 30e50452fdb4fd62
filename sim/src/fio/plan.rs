//! From sections to job instances: `numjobs`, LUNs, CPUs, groups, ranges, and times scaled to the simulated run.

use std::collections::HashMap;
use std::sync::Arc;

use super::options::{JobOptions, Mix};
use super::parse::{Error, JobFile, Section};
use super::value::Amount;
use crate::media::MOST_BYTES;
use crate::pattern::BLOCK;
use crate::rng::Rng;
use crate::time::MOST_NS;

/// Simulated time that stands for a job's `runtime` when neither a time nor a count of I/Os is asked for, ns.
pub const DEFAULT_TIME_NS: u64 = 5_000_000;

/// The runtime that the simulated time is taken to stand for when no job has one, ns: it scales `ramp_time` and
/// `startdelay` alone. A minute, as in nearly every published job file.
const DEFAULT_RUNTIME_NS: u64 = 60_000_000_000;
/// Blocks of one random map: a bit each for what is used, in chunks, and 8 bytes for each chunk of 4096.
const MOST_MAP_BLOCKS: u64 = 1 << 33;

/// Capacity of a LUN whose jobs do not say how much of it they need, bytes.
pub const DEFAULT_LUN_BYTES: u64 = 1 << 30;

/// What the command line says about the run.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Virtual CPUs, each with a queue of its own; at least 1.
    pub cpus: u32,
    /// Seed of every random choice.
    pub seed: u64,
    /// Simulated time that stands for `runtime`, ns (`--time`).
    pub time_ns: Option<u64>,
    /// I/Os of the whole run after the ramp (`--ios`).
    pub ios: Option<u64>,
    /// Capacity of each LUN, bytes, a multiple of 512 (`--lun-size`); None is what the jobs need.
    pub lun_bytes: Option<u64>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions {
            cpus: 1,
            seed: 1,
            time_ns: None,
            ios: None,
            lun_bytes: None,
        }
    }
}

/// A LUN of the run: one for each distinct file name, in order of appearance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedLun {
    /// The file name that it stands for.
    pub filename: String,
    /// Capacity, 512-byte blocks.
    pub blocks: u64,
}

/// The part of a LUN that a job instance works on; bytes from the LUN's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// LUN, from 0.
    pub lun: u32,
    /// First byte, a multiple of 512.
    pub offset: u64,
    /// Bytes after `offset` in which an I/O may start.
    pub size: u64,
    /// The LUN's capacity, bytes: no I/O reaches past it.
    pub capacity: u64,
}

/// One running copy of a job section (`numjobs` of them).
#[derive(Clone, Debug)]
pub struct Instance {
    /// Its place in [`Plan::instances`].
    pub index: u32,
    /// The job's name.
    pub name: String,
    /// Its section's place in the job file.
    pub section: usize,
    /// Which copy of its section, from 0.
    pub subjob: u32,
    /// Virtual CPU.
    pub cpu: u32,
    /// fio's group id: jobs between stonewalls (or `new_group`s).
    pub group: u32,
    /// It starts when every instance of a lower phase has ended.
    pub phase: u32,
    /// The options.
    pub options: Arc<JobOptions>,
    /// Its files, never empty.
    pub files: Vec<FileRange>,
    /// I/Os in flight at most.
    pub depth: u32,
    /// Bytes of one pass over its range.
    pub pass_bytes: u64,
    /// Bytes of all passes of one loop: `io_size`, else those of a pass.
    pub limit_bytes: u64,
    /// Earliest start, from the start of the run, simulated ns.
    pub startdelay_ns: u64,
    /// Time before statistics count, simulated ns.
    pub ramp_ns: u64,
    /// Time after the ramp, simulated ns; None is unlimited.
    pub runtime_ns: Option<u64>,
    /// Seed of its random sequences.
    pub seed: u64,
}

/// Everything that a run needs to know of its job file.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Job instances in fio's order.
    pub instances: Vec<Instance>,
    /// LUNs in order.
    pub luns: Vec<PlannedLun>,
    /// Virtual CPUs.
    pub cpus: u32,
    /// The seed.
    pub seed: u64,
    /// A second of the job file is this many simulated seconds.
    pub time_scale: f64,
    /// I/Os after which the run ends, if so limited.
    pub ios: Option<u64>,
    /// Remarks for the user: how time was scaled, what fio would say.
    pub notes: Vec<String>,
}

/// How many distinct CPUs the file's `cpus_allowed` name; 0 when it names none.
pub fn cpus_named(file: &JobFile) -> usize {
    cpu_order(file).len()
}

/// Virtual CPU of each CPU number, in order of first appearance.
fn cpu_order(file: &JobFile) -> HashMap<u32, u32> {
    let mut order = HashMap::new();
    for cpu in file
        .sections
        .iter()
        .flat_map(|section| &section.options.cpus_allowed)
    {
        let next = order.len() as u32;
        order.entry(*cpu).or_insert(next);
    }
    order
}

/// Makes the plan of a run.
///
/// # Errors
/// A range that does not fit its LUN or holds no block of the job's size, with the line of the option at fault.
pub fn plan(file: &JobFile, options: &PlanOptions) -> Result<Plan, Error> {
    let cpus = options.cpus.max(1);
    let mut notes = file.notes.clone();
    let longest = file
        .sections
        .iter()
        .map(|section| section.options.runtime)
        .max()
        .unwrap_or(0);
    let simulated = options
        .time_ns
        .or(options.ios.is_none().then_some(DEFAULT_TIME_NS));
    let stands_for = if longest > 0 {
        longest
    } else {
        DEFAULT_RUNTIME_NS
    };
    let time_scale = simulated.unwrap_or(DEFAULT_TIME_NS) as f64 / stands_for as f64;
    let scaled = |section: &Section, option: &str, ns: u64| {
        let ns = ns as f64 * time_scale;
        if ns <= MOST_NS as f64 {
            return Ok(ns.round() as u64);
        }
        let lines = &section.options.lines;
        Err(Error {
            file: file.path.clone(),
            line: lines.get(option).copied().unwrap_or(section.line),
            option: Some(option.into()),
            what: format!(
                "scaled by {time_scale} it is {:.0} s simulated; at most an hour. The longest runtime stands for --time",
                ns / 1e9
            ),
        })
    };
    if simulated.is_some() && options.time_ns.is_none() {
        notes.push(format!(
            "neither --time nor --ios given: {} ms simulated {}",
            DEFAULT_TIME_NS / 1_000_000,
            if longest > 0 {
                "stand for the runtime"
            } else {
                "at most"
            }
        ));
    }

    let mut names: Vec<String> = Vec::new();
    let mut drafts = Vec::new();
    for (section_index, section) in file.sections.iter().enumerate() {
        for subjob in 0..section.options.numjobs {
            let luns = filenames(section, subjob)
                .into_iter()
                .map(|name| lun_of(&mut names, name))
                .collect();
            drafts.push(Draft {
                section_index,
                section,
                subjob,
                luns,
            });
        }
    }
    let capacities = capacities(&drafts, names.len(), options.lun_bytes);
    let all = capacities
        .iter()
        .map(|bytes| u128::from(*bytes))
        .sum::<u128>();
    if all > u128::from(MOST_BYTES) {
        return Err(Error {
            file: file.path.clone(),
            line: 0,
            option: Some("size".into()),
            what: format!(
                "the LUNs take {all} bytes together, and the card addresses {MOST_BYTES} (512 TiB); a smaller size, offset or \
                 --lun-size"
            ),
        });
    }

    let cpu_order = cpu_order(file);
    let mut instances: Vec<Instance> = Vec::new();
    let (mut group, mut phase) = (0, 0);
    for draft in drafts {
        let section = draft.section;
        let o = &section.options;
        let index = instances.len() as u32;
        if draft.subjob == 0 && index > 0 {
            group += u32::from(o.stonewall || o.new_group);
            phase += u32::from(o.stonewall);
        }
        let files = ranges(file, &draft, &capacities)?;
        let reachable: u64 = files.iter().map(|range| range.size).sum();
        if let Some(Amount::Bytes(size)) = o.size
            && size > reachable
            && draft.subjob == 0
        {
            notes.push(format!(
                "{}: size={size}, and the LUN holds {reachable} bytes from there on: it is cut to that",
                section.name
            ));
        }
        let pass_bytes = match o.size {
            Some(Amount::Bytes(size)) => size.min(reachable),
            _ => reachable,
        };
        let limit = match o.io_size {
            Some(Amount::Bytes(bytes)) => bytes,
            Some(Amount::Percent(percent)) => percent_of(pass_bytes, percent),
            None => pass_bytes,
        };
        // As fio: random overwriting goes on to io_size before it is verified.
        let pass_bytes = if o.random && o.norandommap && o.mix != Mix::Read {
            pass_bytes.max(limit)
        } else {
            pass_bytes
        };
        let seed = o.randseed.unwrap_or(options.seed);
        let (delay_lo, delay_hi) = o.startdelay;
        let delay = delay_lo
            + Rng::new(options.seed, 0x5747 + u64::from(index)).below(delay_hi - delay_lo + 1);
        let cpu = match o.cpus_allowed.len() {
            0 => index,
            n => cpu_order
                .get(&o.cpus_allowed[index as usize % n])
                .copied()
                .unwrap_or(index),
        };
        instances.push(Instance {
            index,
            name: section.name.clone(),
            section: draft.section_index,
            subjob: draft.subjob,
            cpu: cpu % cpus,
            group,
            phase,
            depth: if o.sync_engine { 1 } else { o.iodepth },
            pass_bytes,
            limit_bytes: limit,
            startdelay_ns: scaled(section, "startdelay", delay)?,
            ramp_ns: scaled(section, "ramp_time", o.ramp_time)?,
            runtime_ns: match simulated {
                Some(_) if o.runtime > 0 => Some(scaled(section, "runtime", o.runtime)?),
                all => all,
            },
            seed: Rng::new(seed, 0x10b5 + u64::from(index)).next_u64(),
            files,
            options: Arc::new(o.clone()),
        });
    }
    let luns = names
        .into_iter()
        .zip(capacities)
        .map(|(filename, bytes)| PlannedLun {
            filename,
            blocks: bytes / BLOCK as u64,
        })
        .collect();
    Ok(Plan {
        instances,
        luns,
        cpus,
        seed: options.seed,
        time_scale,
        ios: options.ios,
        notes,
    })
}

/// An instance before the LUNs' capacities are known.
struct Draft<'a> {
    section_index: usize,
    section: &'a Section,
    subjob: u32,
    luns: Vec<u32>,
}

impl Draft<'_> {
    /// Bytes of each file where `size` says so in bytes: an even share, what does not divide going to the first files.
    fn share(&self, file: usize) -> Option<u64> {
        let Some(Amount::Bytes(size)) = self.section.options.size else {
            return None;
        };
        let files = self.luns.len() as u64;
        let unit = min_block(&self.section.options);
        let share = size / files;
        let extra = (size - share * files) / unit;
        Some(share + if (file as u64) < extra { unit } else { 0 })
    }
}

/// fio's made-up name is `$jobname.$jobnum.$filenum`.
fn filenames(section: &Section, subjob: u32) -> Vec<String> {
    if section.options.filenames.is_empty() {
        vec![format!("{}.{subjob}.0", section.name)]
    } else {
        section.options.filenames.clone()
    }
}

fn lun_of(names: &mut Vec<String>, name: String) -> u32 {
    let found = names.iter().position(|known| *known == name);
    found.unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    }) as u32
}

/// The smallest block of the directions that the job uses, bytes.
fn min_block(o: &JobOptions) -> u64 {
    used_directions(o)
        .map(|direction| o.block_size[direction].0)
        .min()
        .unwrap_or(BLOCK as u64)
}

fn max_block(o: &JobOptions) -> u64 {
    used_directions(o)
        .map(|direction| o.block_size[direction].1)
        .max()
        .unwrap_or(BLOCK as u64)
}

/// 0 for reads, 1 for writes.
pub(super) fn used_directions(o: &JobOptions) -> std::ops::Range<usize> {
    match o.mix {
        Mix::Read => 0..1,
        Mix::Write => 1..2,
        Mix::Mixed => 0..2,
    }
}

fn percent_of(bytes: u64, percent: u32) -> u64 {
    (u128::from(bytes) * u128::from(percent) / 100) as u64
}

/// `--lun-size`, else what the jobs need, else [`DEFAULT_LUN_BYTES`]; whole 4 KiB.
fn capacities(drafts: &[Draft], luns: usize, given: Option<u64>) -> Vec<u64> {
    if let Some(bytes) = given {
        return vec![bytes / BLOCK as u64 * BLOCK as u64; luns];
    }
    let mut need = vec![0u64; luns];
    for draft in drafts {
        let o = &draft.section.options;
        for (file, &lun) in draft.luns.iter().enumerate() {
            let absolute = match (o.offset, o.offset_increment, draft.share(file)) {
                (Amount::Bytes(offset), Amount::Bytes(step), Some(size)) => {
                    let block = max_block(o);
                    Some(
                        offset
                            .saturating_add(step.saturating_mul(u64::from(draft.subjob)))
                            .saturating_add(size.div_ceil(block).saturating_mul(block)),
                    )
                }
                _ => None,
            };
            let need = &mut need[lun as usize];
            *need = (*need).max(absolute.unwrap_or(DEFAULT_LUN_BYTES));
        }
    }
    need.into_iter()
        .map(|bytes| bytes.div_ceil(4096).saturating_mul(4096))
        .collect()
}

/// What fio's `setup_files` and `get_start_offset` make of offset, size and the device's capacity.
fn ranges(file: &JobFile, draft: &Draft, capacities: &[u64]) -> Result<Vec<FileRange>, Error> {
    let o = &draft.section.options;
    let at = |option: &'static str, what: String| Error {
        file: file.path.clone(),
        line: o.lines.get(option).copied().unwrap_or(draft.section.line),
        option: Some(option.into()),
        what,
    };
    let unit = min_block(o);
    let mut files = Vec::new();
    for (index, &lun) in draft.luns.iter().enumerate() {
        let capacity = capacities[lun as usize];
        let bytes = |amount| match amount {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => percent_of(capacity, percent),
        };
        let step = bytes(o.offset_increment).checked_mul(u64::from(draft.subjob));
        let mut offset = step
            .and_then(|step| bytes(o.offset).checked_add(step))
            .ok_or_else(|| at("offset_increment", "the offset does not fit 64 bits".into()))?;
        if matches!(o.offset, Amount::Percent(_))
            || matches!(o.offset_increment, Amount::Percent(_))
        {
            let align = if o.offset_align > 0 {
                o.offset_align
            } else {
                unit
            };
            offset = offset.next_multiple_of(align);
        }
        if offset >= capacity {
            let what = format!(
                "job {} starts at byte {offset} of a LUN of {capacity} bytes; a smaller offset or a larger --lun-size",
                draft.section.name
            );
            return Err(at("offset", what));
        }
        let room = capacity - offset;
        let size = match o.size {
            None | Some(Amount::Percent(100)) => room,
            Some(Amount::Percent(percent)) => {
                let part = percent_of(capacity, percent).min(room);
                part - part % unit
            }
            Some(Amount::Bytes(_)) => draft.share(index).unwrap_or(room).min(room),
        };
        if o.random && !o.norandommap && size / unit > MOST_MAP_BLOCKS {
            let what = format!(
                "a random map of {} blocks; at most {MOST_MAP_BLOCKS}: norandommap=1, a smaller size or larger blocks",
                size / unit
            );
            return Err(at("size", what));
        }
        files.push(FileRange {
            lun,
            offset,
            size,
            capacity,
        });
    }
    // Of a size that is shared, a file's part may be smaller than a block; the whole may not.
    let reachable = files.iter().map(|file| file.size).sum();
    let total: u64 = match o.size {
        Some(Amount::Bytes(size)) => size.min(reachable),
        _ => reachable,
    };
    if total < unit {
        return Err(at(
            "size",
            format!("{total} bytes hold no block of {unit} bytes"),
        ));
    }
    Ok(files)
}
