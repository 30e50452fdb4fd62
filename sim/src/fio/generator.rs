//! Which I/O a job instance does next: fio's `get_io_u`, `do_io` and `do_verify` as a state machine without a clock of
//! its own.

use std::collections::BTreeMap;

use super::offsets::{BlockMap, Zipf};
use super::options::{Distribution, FileService, JobOptions, Mix, Verify};
use super::plan::{FileRange, Instance, used_directions};
use crate::pattern::BLOCK;
use crate::rng::Rng;

/// What an I/O does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// NVMe Read.
    Read,
    /// NVMe Write.
    Write,
    /// NVMe Flush: fio's fsync.
    Flush,
}

/// One I/O of a job instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// What it does.
    pub op: Op,
    /// LUN, from 0.
    pub lun: u32,
    /// First block, 512 bytes each; 0 for Flush.
    pub lba: u64,
    /// Blocks; 0 for Flush.
    pub blocks: u32,
    /// Whether it belongs to a verification phase.
    pub verify: bool,
}

/// What an instance wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To submit this.
    Io(Io),
    /// Nothing before this time, simulated ns (`rate_iops`).
    WaitUntil(u64),
    /// Nothing before one of its I/Os completes: at its depth, or draining before another phase.
    Busy,
    /// Nothing more; nothing of its own is in flight.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Passing over the range.
    Pass,
    /// The pass is over; Flushes of `end_fsync` are left to do, then what is in flight must end.
    EndPass,
    /// Reading back what the pass wrote.
    Verify,
    /// The verification reads are all issued.
    EndVerify,
    Done,
}

/// Purposes of an instance's random streams.
#[derive(Clone, Copy)]
enum Stream {
    Offset = 1,
    Size = 2,
    Mix = 3,
    File = 4,
    Zipf = 5,
}

struct Streams {
    offset: Rng,
    size: Rng,
    mix: Rng,
    file: Rng,
}

impl Streams {
    fn new(seed: u64) -> Self {
        let stream = |purpose: Stream| Rng::new(seed, purpose as u64);
        Streams {
            offset: stream(Stream::Offset),
            size: stream(Stream::Size),
            mix: stream(Stream::Mix),
            file: stream(Stream::File),
        }
    }
}

/// A file's place in the pass.
struct File {
    range: FileRange,
    /// Next sequential byte after the range's start, for reads and for writes.
    position: [u64; 2],
    map: Option<BlockMap>,
    zipf: Option<Zipf>,
    done: bool,
}

/// The state of one job instance.
pub struct Generator {
    options: std::sync::Arc<JobOptions>,
    depth: u32,
    pass_bytes: u64,
    limit_bytes: u64,
    /// Passes that are made in any case.
    loops_left: u32,
    seed: u64,
    rng: Streams,
    files: Vec<File>,
    /// The map's unit: the smallest block of the directions in use, bytes.
    unit: u64,
    phase: Phase,
    in_flight: u32,
    started_ns: u64,
    deadline_ns: Option<u64>,
    stopped: bool,
    /// Of this pass.
    bytes_in_pass: u64,
    /// Of all passes, as fio counts them for its limits: of a mixed job, verification's reads among them.
    bytes: u64,
    /// Verification's reads of a job that only writes.
    verify_bytes: u64,
    issued: u64,
    issued_in: [u64; 2],
    /// A direction drawn but waiting for its rate.
    drawn: Option<usize>,
    file: usize,
    left_on_file: u32,
    last_was_flush: bool,
    end_flushes: Vec<u32>,
    /// What the pass wrote, by file, first block and blocks.
    written: Vec<(usize, u64, u32)>,
    verified: usize,
}

impl Generator {
    /// An instance that has not started.
    pub fn new(instance: &Instance) -> Self {
        let o = &instance.options;
        let unit = used_directions(o)
            .map(|direction| o.block_size[direction].0)
            .min()
            .unwrap_or(BLOCK as u64);
        // fio: any use of blockalign turns the map off; only a uniform distribution has one.
        let mapped = o.random
            && !o.norandommap
            && o.block_align.iter().all(Option::is_none)
            && o.distribution == Distribution::Uniform;
        let mut zipf_rng = Rng::new(instance.seed, Stream::Zipf as u64);
        let files = instance
            .files
            .iter()
            .map(|&range| File {
                range,
                position: [0; 2],
                map: mapped.then(|| BlockMap::new(range.size / unit)),
                zipf: match o.distribution {
                    Distribution::Zipf(theta) if o.random => {
                        Some(Zipf::new(range.size / unit, theta, &mut zipf_rng))
                    }
                    _ => None,
                },
                done: false,
            })
            .collect();
        Generator {
            options: o.clone(),
            depth: instance.depth,
            pass_bytes: instance.pass_bytes,
            limit_bytes: instance.limit_bytes,
            loops_left: o.loops.saturating_sub(1),
            seed: instance.seed,
            rng: Streams::new(instance.seed),
            files,
            unit,
            phase: Phase::Pass,
            in_flight: 0,
            started_ns: 0,
            deadline_ns: None,
            stopped: false,
            bytes_in_pass: 0,
            bytes: 0,
            verify_bytes: 0,
            issued: 0,
            issued_in: [0; 2],
            drawn: None,
            file: 0,
            left_on_file: 0,
            last_was_flush: false,
            end_flushes: Vec::new(),
            written: Vec::new(),
            verified: 0,
        }
    }

    /// The instance starts now and may issue until the deadline (ramp and runtime from now), both simulated ns.
    pub fn start(&mut self, now_ns: u64, deadline_ns: Option<u64>) {
        self.started_ns = now_ns;
        self.deadline_ns = deadline_ns;
    }

    /// Ends the pass early (the run's count of I/Os is reached): what was written is still verified.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Ends at once, without verification (`verify_fatal`, an I/O error); what is in flight still completes.
    pub fn abort(&mut self) {
        self.phase = Phase::Done;
    }

    /// I/Os issued and not completed.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether it reads back what it wrote.
    pub fn verifying(&self) -> bool {
        matches!(self.phase, Phase::Verify | Phase::EndVerify)
    }

    /// An I/O that `next` gave has completed.
    pub fn complete(&mut self) {
        self.in_flight -= 1;
    }

    /// What the instance does at `now_ns`. An I/O given counts as in flight until [`Generator::complete`].
    pub fn next(&mut self, now_ns: u64) -> Next {
        loop {
            match self.phase {
                Phase::Pass => {
                    if self.deadline_ns.is_some_and(|deadline| now_ns >= deadline) {
                        self.stopped = true;
                    }
                    if self.stopped || self.pass_is_over() {
                        self.end_pass();
                        continue;
                    }
                    if self.in_flight >= self.depth {
                        return Next::Busy;
                    }
                    match self.pass_io(now_ns) {
                        Some(next) => return next,
                        None => self.end_pass(),
                    }
                }
                Phase::EndPass => {
                    if self.in_flight > 0 {
                        return Next::Busy;
                    }
                    if let Some(lun) = self.end_flushes.pop() {
                        return self.issue(Io {
                            op: Op::Flush,
                            lun,
                            lba: 0,
                            blocks: 0,
                            verify: false,
                        });
                    }
                    if self.options.do_verify
                        && self.options.verify != Verify::None
                        && !self.written.is_empty()
                    {
                        self.sort_written();
                        self.phase = Phase::Verify;
                    } else {
                        self.next_pass();
                    }
                }
                Phase::Verify => {
                    if self.in_flight >= self.depth {
                        return Next::Busy;
                    }
                    let Some(&(file, lba, blocks)) = self.written.get(self.verified) else {
                        self.phase = Phase::EndVerify;
                        continue;
                    };
                    self.verified += 1;
                    let bytes = u64::from(blocks) * BLOCK as u64;
                    match self.options.mix {
                        Mix::Mixed => self.bytes += bytes,
                        _ => self.verify_bytes += bytes,
                    }
                    let lun = self.files[file].range.lun;
                    return self.issue(Io {
                        op: Op::Read,
                        lun,
                        lba,
                        blocks,
                        verify: true,
                    });
                }
                Phase::EndVerify => {
                    if self.in_flight > 0 {
                        return Next::Busy;
                    }
                    self.next_pass();
                }
                Phase::Done => {
                    return if self.in_flight > 0 {
                        Next::Busy
                    } else {
                        Next::Done
                    };
                }
            }
        }
    }

    fn issue(&mut self, io: Io) -> Next {
        self.in_flight += 1;
        Next::Io(io)
    }

    /// fio's `exceeds_number_ios`.
    fn number_is_reached(&self) -> bool {
        let o = &self.options;
        o.number_ios > 0 && self.issued >= o.number_ios.saturating_mul(u64::from(o.loops))
    }

    /// fio's `io_issue_bytes_exceeded`.
    fn all_done(&self) -> bool {
        let limit = self
            .limit_bytes
            .saturating_mul(u64::from(self.options.loops));
        self.number_is_reached() || (self.bytes >= limit && !self.endless())
    }

    /// fio's time_based counts only with a runtime.
    fn endless(&self) -> bool {
        self.options.time_based && self.options.runtime > 0
    }

    fn pass_is_over(&self) -> bool {
        // A time-based pass goes on over the same range, unless there is something to verify.
        let bounded = !self.endless() || self.options.verify != Verify::None;
        self.all_done() || (bounded && self.bytes_in_pass >= self.pass_bytes)
    }

    fn end_pass(&mut self) {
        let o = &self.options;
        if (o.end_fsync || o.fsync_on_close) && o.mix != Mix::Read {
            self.end_flushes = self.files.iter().map(|file| file.range.lun).rev().collect();
        }
        self.phase = Phase::EndPass;
    }

    /// fio's `keep_running`.
    fn keeps_running(&mut self) -> bool {
        if self.endless() {
            return !self.number_is_reached();
        }
        if self.loops_left > 0 {
            self.loops_left -= 1;
            return !self.all_done();
        }
        let largest = used_directions(&self.options)
            .map(|direction| self.options.block_size[direction].1)
            .max();
        let left = self
            .limit_bytes
            .saturating_sub(self.bytes + self.verify_bytes);
        let more = self.options.io_size.is_some() || self.files.iter().any(|file| !file.done);
        !self.all_done() && left >= largest.unwrap_or(0).max(1) && more
    }

    /// fio's `log_io_piece`: with a random map, verification goes in the order written; without one, by file and place,
    /// and a write drops those before it that it overlaps.
    fn sort_written(&mut self) {
        if self.files.iter().all(|file| file.map.is_some()) {
            return;
        }
        let mut sorted: BTreeMap<(usize, u64), u32> = BTreeMap::new();
        for &(file, lba, blocks) in &self.written {
            let end = lba + u64::from(blocks);
            // Blocks of one I/O are bounded, and what is in the map does not overlap: look back until one ends before.
            while let Some((&key, &length)) = sorted.range((file, 0)..(file, end)).next_back() {
                if key.1 + u64::from(length) <= lba {
                    break;
                }
                sorted.remove(&key);
            }
            sorted.insert((file, lba), blocks);
        }
        self.written = sorted
            .into_iter()
            .map(|((file, lba), blocks)| (file, lba, blocks))
            .collect();
    }

    /// Another pass, from a clean state, while there is something left to do.
    fn next_pass(&mut self) {
        self.written.clear();
        self.verified = 0;
        if self.stopped || self.bytes_in_pass == 0 || !self.keeps_running() {
            self.phase = Phase::Done;
            return;
        }
        self.bytes_in_pass = 0;
        for file in &mut self.files {
            file.position = [0; 2];
            file.done = false;
            if let Some(map) = &mut file.map {
                map.clear();
            }
        }
        (self.file, self.left_on_file, self.drawn) = (0, 0, None);
        if self.options.randrepeat || self.options.allrandrepeat {
            self.rng = Streams::new(self.seed);
        }
        self.phase = Phase::Pass;
    }

    /// The next I/O of the pass; None when every file is done.
    fn pass_io(&mut self, now_ns: u64) -> Option<Next> {
        if self.flush_due() {
            self.last_was_flush = true;
            // fio's fsync takes its turn at the files as an I/O does.
            let file = self.pick_file()?;
            self.left_on_file = self.left_on_file.saturating_sub(1);
            let lun = self.files[file].range.lun;
            return Some(self.issue(Io {
                op: Op::Flush,
                lun,
                lba: 0,
                blocks: 0,
                verify: false,
            }));
        }
        let direction = match self.direction(now_ns) {
            Ok(direction) => direction,
            Err(until) => return Some(Next::WaitUntil(until)),
        };
        let (index, offset, length) = loop {
            let index = self.pick_file()?;
            match self.place(index, direction) {
                Some((offset, length)) => break (index, offset, length),
                None => {
                    self.files[index].done = true;
                    self.left_on_file = 0;
                }
            }
        };
        let range = self.files[index].range;
        let op = if direction == 0 { Op::Read } else { Op::Write };
        let lba = (range.offset + offset) / BLOCK as u64;
        let blocks = (length / BLOCK as u64) as u32;
        self.drawn = None;
        self.last_was_flush = false;
        self.left_on_file = self.left_on_file.saturating_sub(1);
        self.bytes += length;
        self.bytes_in_pass += length;
        self.issued += 1;
        self.issued_in[direction] += 1;
        if op == Op::Write && self.options.verify != Verify::None && self.options.do_verify {
            self.written.push((index, lba, blocks));
        }
        Some(self.issue(Io {
            op,
            lun: range.lun,
            lba,
            blocks,
            verify: false,
        }))
    }

    /// fio's `should_fsync`: while the count of writes stays a multiple, only a Flush just before holds another back; so
    /// a mixed job flushes again after a read.
    fn flush_due(&self) -> bool {
        let writes = self.issued_in[1];
        let due = |every: u64| every > 0 && writes > 0 && writes.is_multiple_of(every);
        !self.last_was_flush && (due(self.options.fsync) || due(self.options.fdatasync))
    }

    /// 0 to read, 1 to write; or when a direction's rate allows its next I/O.
    fn direction(&mut self, now_ns: u64) -> Result<usize, u64> {
        let drawn = match (self.options.mix, self.drawn) {
            (Mix::Read, _) => 0,
            (Mix::Write, _) => 1,
            (Mix::Mixed, Some(drawn)) => drawn,
            (Mix::Mixed, None) => {
                usize::from(self.rng.mix.below(100) >= u64::from(self.options.rwmixread))
            }
        };
        let due = |direction: usize| match self.options.rate_iops[direction] {
            0 => 0,
            rate => {
                let after =
                    u128::from(self.issued_in[direction]) * 1_000_000_000 / u128::from(rate);
                self.started_ns.saturating_add(after as u64)
            }
        };
        if due(drawn) <= now_ns {
            return Ok(drawn);
        }
        // As fio's rate_ddir: the other direction goes ahead if its rate has room.
        let other = 1 - drawn;
        let share = [self.options.rwmixread, 100 - self.options.rwmixread];
        if self.options.mix == Mix::Mixed && share[other] > 0 {
            if due(other) <= now_ns {
                return Ok(other);
            }
            self.drawn = Some(drawn);
            return Err(due(drawn).min(due(other)));
        }
        self.drawn = Some(drawn);
        Err(due(drawn))
    }

    fn pick_file(&mut self) -> Option<usize> {
        let open = self.files.iter().filter(|file| !file.done).count();
        if open == 0 {
            return None;
        }
        if self.left_on_file > 0 && !self.files[self.file].done {
            return Some(self.file);
        }
        match self.options.file_service {
            FileService::Sequential => {
                self.left_on_file = u32::MAX;
                self.file = self.files.iter().position(|file| !file.done)?;
            }
            FileService::RoundRobin(times) => {
                self.left_on_file = times;
                let from = if self.bytes_in_pass == 0 {
                    self.file
                } else {
                    self.file + 1
                };
                self.file = (from..from + self.files.len())
                    .map(|index| index % self.files.len())
                    .find(|&index| !self.files[index].done)?;
            }
            FileService::Random(times) => {
                self.left_on_file = times;
                let nth = self.rng.file.below(open as u64) as usize;
                self.file = self
                    .files
                    .iter()
                    .enumerate()
                    .filter(|(_, file)| !file.done)
                    .nth(nth)?
                    .0;
            }
        }
        Some(self.file)
    }

    /// Offset in the file's range and length of the next I/O there, bytes; None when the file has no more.
    fn place(&mut self, index: usize, direction: usize) -> Option<(u64, u64)> {
        if self.options.random {
            self.place_random(index, direction)
        } else {
            self.place_sequential(index, direction)
        }
    }

    fn place_sequential(&mut self, index: usize, direction: usize) -> Option<(u64, u64)> {
        let wraps = self.endless() && self.files.len() == 1;
        let file = &mut self.files[index];
        if file.position[direction] >= file.range.size && wraps {
            file.position[direction] = 0;
        }
        let offset = file.position[direction];
        if offset >= file.range.size {
            return None;
        }
        let length = self.length(index, direction, offset)?;
        self.files[index].position[direction] = offset + length;
        Some((offset, length))
    }

    fn place_random(&mut self, index: usize, direction: usize) -> Option<(u64, u64)> {
        let min = self.options.block_size[direction].0;
        let align = self.options.block_align[direction].unwrap_or(min);
        let file = &mut self.files[index];
        if let Some(zipf) = &file.zipf {
            let blocks = (file.range.size / min).max(1);
            let offset = zipf.draw(&mut self.rng.offset) % blocks * min;
            let length = self.length(index, direction, offset)?;
            return Some((offset, length));
        }
        // fio's last_block: an I/O of the smallest size still fits at the last one.
        let last = file.range.size.checked_sub(min)? / align;
        let drawn = self.rng.offset.below(last + 1) * align;
        let Some(map) = &mut file.map else {
            let length = self.length(index, direction, drawn)?;
            return Some((drawn, length));
        };
        let free = match map.next_free(drawn / self.unit) {
            Some(free) => free,
            None if self.options.time_based && self.options.runtime > 0 => {
                map.clear();
                map.next_free(drawn / self.unit)?
            }
            None => return None,
        };
        // Where the directions differ in size, the larger blocks stay on their own grid.
        let offset = (free * self.unit / align * align).min(last * align);
        let length = self.length(index, direction, offset)?;
        let unit = self.unit;
        let map = self.files[index].map.as_mut()?;
        if min > unit {
            for block in offset / unit..(offset + length).div_ceil(unit) {
                map.take(block, 1);
            }
            map.take(free, 1);
            return Some((offset, length));
        }
        let taken = map.take(free, length.div_ceil(unit));
        Some((offset, length.min(taken * unit)))
    }

    /// fio's `get_next_buflen`: a fixed size, or one drawn from the range until it fits.
    fn length(&mut self, index: usize, direction: usize, offset: u64) -> Option<u64> {
        let (min, max) = self.options.block_size[direction];
        let range = self.files[index].range;
        let room = range.capacity - range.offset - offset;
        if min == max {
            // A fixed size may reach past `size`, as in fio, but not past the LUN.
            return (min <= room).then_some(min);
        }
        let room = room.min(range.size - offset);
        if min > room {
            return None;
        }
        loop {
            let drawn = min + self.rng.size.below(max);
            let length = (drawn - drawn % min).min(max);
            let length = length - length % BLOCK as u64;
            if length <= room {
                return Some(length);
            }
        }
    }
}
