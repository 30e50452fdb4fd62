//! The engine: drives every job instance's I/O through the queues of the virtual CPUs, checks every byte read, counts.
//!
//! One thread, deterministic. At each moment every CPU that has time reaps its completions, lets its jobs submit in turn
//! (one I/O each, so that a queue that is full is shared fairly), and rings once; when nobody can go on, time passes.

mod reap;

use super::block::Fill;
use super::device::{Command, Control, Device, DeviceError};
use super::event::Event;
use super::expect::{Mismatch, Shadow, Token};
use super::generator::{Generator, Io, Next, Op};
use super::options::Verify;
use super::plan::Plan;
use super::results::{FailedIo, LunSample, Results};
use super::stats::Stats;
use crate::rng::Rng;
use slab::Slab;

/// How the run is to go, apart from the plan.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Simulated ns that a submission, and a completion, costs its CPU; 0 is a host that costs nothing.
    pub cpu_ns: u64,
    /// Changes at given times.
    pub events: Vec<Event>,
    /// At this period, simulated ns, every LUN's depth becomes a random one of 2 to `soak_most`, and completions are reaped
    /// by the submitting CPU or its neighbour in turn.
    pub soak_ns: Option<u64>,
    /// The greatest depth of the soak, at most the tags in use.
    pub soak_most: u32,
    /// Blocks of 512 bytes in one command at most (MDTS); longer I/Os become several commands.
    pub max_transfer_blocks: u32,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            cpu_ns: 0,
            events: Vec::new(),
            soak_ns: None,
            soak_most: 16,
            max_transfer_blocks: 256,
        }
    }
}

/// Where the run is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Simulated ns from the start of the run.
    pub elapsed_ns: u64,
    /// I/Os completed, ramp and verification included.
    pub ios: u64,
    /// I/Os in flight.
    pub in_flight: u64,
    /// Job instances that verify what they wrote.
    pub verifying: u32,
    /// Job instances that have ended.
    pub ended: u32,
    /// Part done by the run's own limit of time or I/Os, 0 to 1; None without a limit.
    pub fraction: Option<f64>,
}

/// Runs the plan to its end.
///
/// # Errors
/// The device's: a hang, a completion that nobody waits for. Wrong data is no error here but in the results.
pub fn run<D: Device + ?Sized>(
    plan: &Plan,
    options: &RunOptions,
    device: &mut D,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Results, DeviceError> {
    let mut engine = Engine::new(plan, options, device.now_ns());
    engine.drive(device, progress)?;
    Ok(engine.results(device.now_ns()))
}

/// An I/O from the moment its job wants to issue it.
struct Flight {
    instance: usize,
    io: Io,
    start_ns: u64,
    issue_ns: u64,
    /// Blocks handed to the device so far; Flush counts as one.
    submitted: u32,
    /// Commands not completed.
    commands: u32,
    failed: bool,
    wrong: bool,
}

impl Flight {
    fn total(&self) -> u32 {
        self.io.blocks.max(1)
    }
}

struct CommandState {
    flight: usize,
    token: Option<Token>,
}

struct Job {
    generator: Generator,
    stats: Stats,
    fill: u32,
    started: bool,
    ended: bool,
    /// When statistics begin: after the ramp.
    measured_from: u64,
    /// The I/O that waits for room in the queue.
    waiting: Option<usize>,
    /// When its rate allows the next I/O.
    wake_ns: Option<u64>,
    /// Start of the pass or the verification going on, for runtimes.
    mark_ns: u64,
    verifying: bool,
    end_ns: u64,
}

struct Cpu {
    jobs: Vec<usize>,
    /// The job whose turn it is.
    turn: usize,
    /// Whether a job here may be able to go on.
    active: bool,
    free_ns: u64,
    busy_ns: u64,
    ring: bool,
}

struct Lun {
    stats: Stats,
    in_flight: u32,
    peak: u32,
    first_ns: Option<u64>,
    last_ns: u64,
    samples: Vec<LunSample>,
}

struct Engine<'a> {
    plan: &'a Plan,
    options: &'a RunOptions,
    jobs: Vec<Job>,
    cpus: Vec<Cpu>,
    luns: Vec<Lun>,
    shadow: Shadow,
    flights: Slab<Flight>,
    commands: Slab<CommandState>,
    origin_ns: u64,
    phase: u32,
    events: Vec<Event>,
    next_soak_ns: Option<u64>,
    soak_rng: Rng,
    reap_shift: usize,
    counted: u64,
    completed: u64,
    stopped: bool,
    mismatches: Vec<Mismatch>,
    failures: Vec<FailedIo>,
    sample_ns: u64,
    next_sample_ns: u64,
    /// Completions that carried an id nobody knows.
    unknown: Option<u64>,
}

impl<'a> Engine<'a> {
    fn new(plan: &'a Plan, options: &'a RunOptions, now: u64) -> Self {
        let mut shadow = Shadow::new(plan.seed);
        let jobs = plan
            .instances
            .iter()
            .map(|instance| {
                let pattern = instance.options.verify_pattern.clone();
                let fill = match instance.options.verify {
                    Verify::Pattern => Fill::Pattern(pattern),
                    Verify::Crc32c if !pattern.is_empty() => Fill::Headed(pattern),
                    _ => Fill::Random,
                };
                Job {
                    generator: Generator::new(instance),
                    stats: Stats::default(),
                    fill: shadow.add_fill(fill),
                    started: false,
                    ended: false,
                    measured_from: 0,
                    waiting: None,
                    wake_ns: None,
                    mark_ns: now,
                    verifying: false,
                    end_ns: now,
                }
            })
            .collect();
        let mut cpus: Vec<Cpu> = (0..plan.cpus)
            .map(|_| Cpu {
                jobs: Vec::new(),
                turn: 0,
                active: true,
                free_ns: 0,
                busy_ns: 0,
                ring: false,
            })
            .collect();
        for instance in &plan.instances {
            cpus[instance.cpu as usize]
                .jobs
                .push(instance.index as usize);
        }
        let lun = |_| Lun {
            stats: Stats::default(),
            in_flight: 0,
            peak: 0,
            first_ns: None,
            last_ns: 0,
            samples: Vec::new(),
        };
        let mut events = options.events.clone();
        // Taken from the end: of two at one time the one that was given first.
        events.reverse();
        events.sort_by_key(|event| std::cmp::Reverse(event.at_ns));
        Engine {
            plan,
            options,
            jobs,
            cpus,
            luns: plan.luns.iter().map(lun).collect(),
            shadow,
            flights: Slab::new(),
            commands: Slab::new(),
            origin_ns: now,
            phase: 0,
            events,
            next_soak_ns: options.soak_ns.map(|_| now),
            soak_rng: Rng::new(plan.seed, 0x50a4),
            reap_shift: 0,
            counted: 0,
            completed: 0,
            stopped: false,
            mismatches: Vec::new(),
            failures: Vec::new(),
            sample_ns: 1024,
            next_sample_ns: now,
            unknown: None,
        }
    }

    fn drive<D: Device + ?Sized>(
        &mut self,
        device: &mut D,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(), DeviceError> {
        let mut reported = 0;
        loop {
            let now = device.now_ns();
            self.controls(device, now)?;
            self.start_jobs(now);
            self.sample(device, now);
            let ended = self.ended();
            let mut progressed = false;
            for cpu in 0..self.cpus.len() {
                progressed |= self.turn(device, cpu, now)?;
            }
            progressed |= self.ended() > ended;
            if self.ended() == self.jobs.len() && self.cpus.iter().all(|cpu| !cpu.ring) {
                break;
            }
            if self.completed >= reported + 1024 {
                reported = self.completed;
                progress(&self.progress(now));
            }
            if progressed {
                continue;
            }
            let wake = self.next_wake(now);
            if wake.is_none() && self.commands.is_empty() {
                return Err("fio engine: no job can go on, and nothing is in flight".into());
            }
            device
                .advance(wake)
                .map_err(|error| self.stuck(error, now))?;
            // A CPU whose jobs wait for time looks again.
            let now = device.now_ns();
            for cpu in &mut self.cpus {
                cpu.active |= cpu
                    .jobs
                    .iter()
                    .any(|&job| self.jobs[job].wake_ns.is_some_and(|wake| wake <= now));
            }
        }
        progress(&self.progress(device.now_ns()));
        Ok(())
    }

    /// What a device's error leaves unfinished, the oldest first.
    fn stuck(&self, error: DeviceError, now: u64) -> DeviceError {
        const SHOWN: usize = 8;
        let mut flights: Vec<&Flight> = self.flights.iter().map(|(_, flight)| flight).collect();
        flights.sort_by_key(|flight| flight.start_ns);
        let mut text = format!("{error}\n{} I/Os are not finished", flights.len());
        for flight in flights.iter().take(SHOWN) {
            let (io, plan) = (flight.io, &self.plan.instances[flight.instance]);
            let waits = if flight.commands > 0 {
                "submitted"
            } else {
                "waiting for room in its queue"
            };
            text += &format!(
                "\n  job {} #{} on CPU {}: {:?} LUN {} block {} ({} blocks), {waits}, for {} ns",
                plan.name,
                plan.subjob,
                plan.cpu,
                io.op,
                io.lun,
                io.lba,
                io.blocks,
                now - flight.start_ns
            );
        }
        if flights.len() > SHOWN {
            text += &format!("\n  and {} more", flights.len() - SHOWN);
        }
        text.into()
    }

    fn ended(&self) -> usize {
        self.jobs.iter().filter(|job| job.ended).count()
    }

    fn progress(&self, now: u64) -> Progress {
        let elapsed_ns = now - self.origin_ns;
        let time = self
            .plan
            .instances
            .iter()
            .map(|i| i.runtime_ns.map(|t| t + i.ramp_ns + i.startdelay_ns))
            .max();
        let by_time = time
            .flatten()
            .filter(|time| *time > 0)
            .map(|time| elapsed_ns as f64 / time as f64);
        let by_ios = self
            .plan
            .ios
            .filter(|ios| *ios > 0)
            .map(|ios| self.counted as f64 / ios as f64);
        let fraction = match (by_time, by_ios) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        Progress {
            elapsed_ns,
            ios: self.completed,
            in_flight: self.flights.len() as u64,
            verifying: self.jobs.iter().filter(|job| job.verifying).count() as u32,
            ended: self.ended() as u32,
            fraction: fraction.map(|part| part.min(1.0)),
        }
    }

    fn controls<D: Device + ?Sized>(
        &mut self,
        device: &mut D,
        now: u64,
    ) -> Result<(), DeviceError> {
        while let Some(event) = self
            .events
            .pop_if(|event| self.origin_ns + event.at_ns <= now)
        {
            device.control(event.control)?;
        }
        if let (Some(at), Some(period)) = (self.next_soak_ns, self.options.soak_ns)
            && at <= now
        {
            for lun in 0..self.luns.len() as u32 {
                let most = self.options.soak_most.max(1);
                let least = most.min(2);
                let depth = least + self.soak_rng.below(u64::from(most - least) + 1) as u32;
                device.control(Control::Depth { lun, depth })?;
            }
            self.reap_shift = (self.reap_shift + 1) % 2 % self.cpus.len();
            self.next_soak_ns = Some(now + period.max(1));
        }
        Ok(())
    }

    /// Starts the instances whose phase and time have come.
    fn start_jobs(&mut self, now: u64) {
        loop {
            let plans = &self.plan.instances;
            if self.stopped {
                for job in self.jobs.iter_mut().filter(|job| !job.started) {
                    job.ended = true;
                }
            }
            let in_phase = |i: &usize| plans[*i].phase == self.phase;
            for i in (0..self.jobs.len()).filter(in_phase) {
                let (job, plan) = (&mut self.jobs[i], &plans[i]);
                if job.started || job.ended {
                    continue;
                }
                let start = self.origin_ns + plan.startdelay_ns;
                if start > now {
                    job.wake_ns = Some(start);
                    continue;
                }
                job.started = true;
                job.wake_ns = None;
                job.measured_from = now + plan.ramp_ns;
                job.mark_ns = job.measured_from;
                job.generator.start(
                    now,
                    plan.runtime_ns
                        .map(|time| job.measured_from.saturating_add(time)),
                );
                self.cpus[plan.cpu as usize].active = true;
            }
            let last = plans.last().map_or(0, |plan| plan.phase);
            let over = (0..self.jobs.len())
                .filter(in_phase)
                .all(|i| self.jobs[i].ended);
            if !over || self.phase >= last {
                return;
            }
            self.phase += 1;
        }
    }

    /// One CPU's turn; whether it did anything.
    fn turn<D: Device + ?Sized>(
        &mut self,
        device: &mut D,
        cpu: usize,
        now: u64,
    ) -> Result<bool, DeviceError> {
        if self.cpus[cpu].free_ns > now {
            return Ok(false);
        }
        let mut progressed = std::mem::take(&mut self.cpus[cpu].ring);
        if progressed {
            device.ring(cpu)?;
        }
        let queue = (cpu + self.cpus.len() - self.reap_shift) % self.cpus.len();
        let mut reaped = 0;
        device.poll(queue, &mut |completion| {
            reaped += 1;
            self.reap(completion, now);
        })?;
        if let Some(id) = self.unknown {
            return Err(format!(
                "fio engine: CPU {queue}'s queue completed command {id}, which is not in flight"
            )
            .into());
        }
        if reaped > 0 {
            self.cpus[queue].active = true;
            self.charge(cpu, now, reaped);
            progressed = true;
            if self.cpus[cpu].free_ns > now {
                return Ok(true);
            }
        }
        let submitted = if self.cpus[cpu].active {
            self.submit(device, cpu, now)?
        } else {
            0
        };
        if submitted > 0 {
            self.charge(cpu, now, submitted);
            if self.cpus[cpu].free_ns > now {
                self.cpus[cpu].ring = true;
            } else {
                device.ring(cpu)?;
            }
            progressed = true;
        }
        Ok(progressed)
    }

    fn charge(&mut self, cpu: usize, now: u64, commands: u64) {
        let cost = commands * self.options.cpu_ns;
        let cpu = &mut self.cpus[cpu];
        cpu.free_ns = now + cost;
        cpu.busy_ns += cost;
    }

    /// Lets the CPU's jobs submit in turn until none can; how many commands.
    fn submit<D: Device + ?Sized>(
        &mut self,
        device: &mut D,
        cpu: usize,
        now: u64,
    ) -> Result<u64, DeviceError> {
        let mut submitted = 0;
        let jobs = self.cpus[cpu].jobs.len();
        let mut idle = 0;
        while idle < jobs {
            let turn = self.cpus[cpu].turn;
            let job = self.cpus[cpu].jobs[turn];
            // What is charged for the commands before this one delays it.
            let issue_ns = now + (submitted + 1) * self.options.cpu_ns;
            let count = self.submit_one(device, cpu, job, now, issue_ns)?;
            submitted += count;
            idle = if count > 0 { 0 } else { idle + 1 };
            self.cpus[cpu].turn = (turn + 1) % jobs;
        }
        self.cpus[cpu].active = false;
        Ok(submitted)
    }

    /// One I/O of one job, as far as the queue has room; how many commands.
    fn submit_one<D: Device + ?Sized>(
        &mut self,
        device: &mut D,
        cpu: usize,
        index: usize,
        now: u64,
        issue_ns: u64,
    ) -> Result<u64, DeviceError> {
        let flight = match self.jobs[index].waiting {
            Some(flight) => flight,
            None => match self.next_io(index, now) {
                Some(flight) => flight,
                None => return Ok(0),
            },
        };
        let mut commands = 0;
        loop {
            let Some(state) = self.flights.get_mut(flight) else {
                return Ok(commands);
            };
            let left = state.total() - state.submitted;
            if left == 0 {
                state.issue_ns = issue_ns;
                self.jobs[index].waiting = None;
                return Ok(commands);
            }
            let io = state.io;
            let blocks = io
                .blocks
                .min(left)
                .min(self.options.max_transfer_blocks.max(1));
            let lba = io.lba + u64::from(state.submitted);
            let fill = self.jobs[index].fill;
            let id = self.commands.insert(CommandState {
                flight,
                token: None,
            });
            let command = Command {
                id: id as u64,
                op: io.op,
                lun: io.lun,
                lba,
                blocks,
            };
            // The shadow learns of the command before the device can act on it, and only if the device takes it.
            let shadow = &mut self.shadow;
            let mut token = None;
            let taken = device.try_submit(cpu, &command, &mut |buffer| {
                let new = shadow.submit(io.op, io.lun, lba, blocks, fill);
                shadow.fill(&new, buffer);
                token = Some(new);
            })?;
            if !taken {
                self.commands.remove(id);
                self.jobs[index].waiting = Some(flight);
                return Ok(commands);
            }
            if io.op == Op::Read {
                token = Some(self.shadow.submit(io.op, io.lun, lba, blocks, fill));
            }
            if let Some(state) = self.commands.get_mut(id) {
                state.token = token;
            }
            if let Some(state) = self.flights.get_mut(flight) {
                state.submitted += blocks.max(1);
                state.commands += 1;
            }
            let lun = &mut self.luns[io.lun as usize];
            lun.in_flight += 1;
            lun.peak = lun.peak.max(lun.in_flight);
            commands += 1;
        }
    }

    /// The job's next I/O, as a new flight; None when it can or will do nothing now.
    fn next_io(&mut self, index: usize, now: u64) -> Option<usize> {
        let job = &mut self.jobs[index];
        if !job.started || job.ended {
            return None;
        }
        job.wake_ns = None;
        let next = job.generator.next(now);
        if job.generator.verifying() != job.verifying || next == Next::Done {
            self.account_runtime(index, now);
        }
        let job = &mut self.jobs[index];
        let io = match next {
            Next::Io(io) => io,
            Next::WaitUntil(until) => {
                job.wake_ns = Some(until);
                return None;
            }
            Next::Busy => return None,
            Next::Done => {
                job.ended = true;
                job.end_ns = now;
                return None;
            }
        };
        let level = job.generator.in_flight().max(1).ilog2().min(6);
        job.stats.depth_levels[level as usize] += 1;
        if io.op != Op::Flush && !io.verify && now >= job.measured_from {
            self.counted += 1;
            if self.plan.ios.is_some_and(|ios| self.counted >= ios) {
                self.stopped = true;
                self.jobs.iter_mut().for_each(|job| job.generator.stop());
                self.cpus.iter_mut().for_each(|cpu| cpu.active = true);
            }
        }
        let flight = Flight {
            instance: index,
            io,
            start_ns: now,
            issue_ns: now,
            submitted: 0,
            commands: 0,
            failed: false,
            wrong: false,
        };
        Some(self.flights.insert(flight))
    }

    /// The earliest time at which something happens of its own.
    fn next_wake(&self, now: u64) -> Option<u64> {
        let jobs = self.jobs.iter().filter(|job| !job.ended);
        let waiting = jobs.clone().filter_map(|job| job.wake_ns);
        // A job at its depth ends its pass at its deadline, when a completion wakes it; only time-out of the idle matters.
        let cpus = self
            .cpus
            .iter()
            .map(|cpu| cpu.free_ns)
            .filter(|free| *free > now);
        let events = self.events.last().map(|event| self.origin_ns + event.at_ns);
        let soak = self.next_soak_ns;
        waiting
            .chain(cpus)
            .chain(events)
            .chain(soak)
            .filter(|at| *at > now)
            .min()
    }
}
