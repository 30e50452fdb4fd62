//! The card and everything around it, clocked together: one thread, deterministic by seed.
//!
//! A cycle: every model has decided in the last one what it drives; the card settles on that; all take the handshakes;
//! the card sees the rising edge. When the card says `idle` and no model has anything to do, time jumps to the next event
//! ([`World::advance`]); skipped cycles count in time.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::axi::{Checker, Violation};
use crate::card::{Card, CardError, CardIn, CardOut};
use crate::config::{self, ConfigSpace};
use crate::host::{Host, MSI_ADDRESS};
use crate::link::{Link, LinkParams};
use crate::lite::{Access, LiteMaster};
use crate::media::{LunMedia, Media, MediaError};
use crate::pcie::{LinkStats, PcieRoot};
use crate::slave::{Behaviour, Slave, SlaveStats};
use crate::time::CYCLE_NS;
use weir_nvme::registers::msix;

/// How the world is made.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Between card and host.
    pub link: Link,
    /// How the host port's slave behaves when `link` is none.
    pub host_behaviour: Behaviour,
    /// How media's slave behaves.
    pub media_behaviour: Behaviour,
    /// Where the LUNs lie; LUN n at index n.
    pub luns: Vec<LunMedia>,
    /// Bound on media's reads and writes together, bytes/s.
    pub media_bandwidth: Option<u64>,
    /// MSI-X vectors, 1..=2048.
    pub vectors: u16,
    /// Cycles without progress, while the host waits for some, that count as a hang.
    pub hang_cycles: u64,
    /// Everything random follows from it.
    pub seed: u64,
}

impl WorldConfig {
    /// No link, plain slaves, these LUNs.
    pub fn new(luns: Vec<LunMedia>) -> Self {
        WorldConfig {
            link: Link::None,
            host_behaviour: Behaviour::PLAIN,
            media_behaviour: Behaviour::PLAIN,
            luns,
            media_bandwidth: None,
            vectors: 65,
            hang_cycles: 1_000_000,
            seed: 0,
        }
    }
}

/// MiB that must be free while waves are written: more than the writer holds back.
const WAVES_ROOM: u64 = 64;
/// Cycles clocked between two looks at that.
const WAVES_LOOK: u64 = 1 << 14;

/// Why the simulation cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// Media cannot be laid out like that.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The card broke a rule of AXI.
    #[error(transparent)]
    Axi(#[from] Violation),
    /// The card could not be clocked.
    #[error("cycle {cycle}: {source}")]
    Card {
        /// When.
        cycle: u64,
        /// Why.
        source: CardError,
    },
    /// The host waits, and nothing has completed for too long.
    #[error(
        "hang: nothing completed for {cycles} cycles while {outstanding} commands were outstanding\n{state}"
    )]
    Hang {
        /// Cycles since the last completion.
        cycles: u64,
        /// Commands that the host waits for.
        outstanding: u64,
        /// Where everything stands.
        state: String,
    },
    /// A register read was never answered.
    #[error(
        "the card did not answer a read of register {register:#x} within {cycles} cycles\n{state}"
    )]
    NoAnswer {
        /// Byte offset in BAR0, or in the platform's registers.
        register: u32,
        /// How long it was waited for.
        cycles: u64,
        /// Where everything stands.
        state: String,
    },
    /// A Function Level Reset did not end.
    #[error("the card was not at rest {cycles} cycles after a Function Level Reset\n{state}")]
    Reset {
        /// How long it was waited for.
        cycles: u64,
        /// Where everything stands.
        state: String,
    },
    /// Verilator's writer of waves ends the process when the disk is full, so the run ends before that.
    #[error(
        "the waves have left {free} MiB where {} is, and {WAVES_ROOM} are kept free: trace less (--ios, --time), or elsewhere",
        .path.display()
    )]
    WavesFull {
        /// The waves.
        path: PathBuf,
        /// MiB that are left.
        free: u64,
    },
    /// The simulation has failed before; its error was given then.
    #[error("the simulation has failed already")]
    Failed,
}

/// How much was simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldStats {
    /// Cycles that passed.
    pub cycles: u64,
    /// Cycles in which the card was clocked; the others were skipped.
    pub clocked: u64,
    /// What the link carried; zero without one.
    pub link: LinkStats,
    /// Bursts and beats at media.
    pub media: SlaveStats,
}

enum HostPort {
    Direct(Box<Slave>),
    Pcie(Box<PcieRoot>),
}

/// Cycles in which a register read must be answered.
const ANSWER_CYCLES: u64 = 100_000;

/// The world. Everything happens in [`World::step`] and [`World::advance`].
pub struct World {
    card: Box<dyn Card>,
    input: CardIn,
    output: CardOut,
    cycle: u64,
    clocked: u64,
    host_port: HostPort,
    host: Host,
    host_check: Checker,
    media_port: Slave,
    media: Media,
    media_check: Checker,
    bar0: LiteMaster,
    plat: LiteMaster,
    config: ConfigSpace,
    answers: HashMap<u64, u32>,
    token: u64,
    changed: bool,
    hang_cycles: u64,
    outstanding: u64,
    progress: u64,
    failed: bool,
    /// Where waves are written.
    waves: Option<PathBuf>,
    link: Link,
}

impl World {
    /// Puts `card` into a world, not yet reset.
    pub fn new(card: Box<dyn Card>, config: &WorldConfig) -> Result<Self, WorldError> {
        let (host_shape, media_shape) = card.shapes();
        let host_port = match config.link {
            Link::None => HostPort::Direct(Box::new(Slave::new(
                host_shape,
                config.host_behaviour,
                config.seed ^ 1,
            ))),
            Link::Pcie(link) => {
                HostPort::Pcie(Box::new(PcieRoot::new(link, host_shape, config.seed)))
            }
        };
        let LinkParams {
            generation,
            lanes,
            mps,
            ..
        } = match config.link {
            Link::Pcie(link) => link,
            Link::None => LinkParams::new(3, 8),
        };
        let mut world = World {
            card,
            input: CardIn::default(),
            output: CardOut::default(),
            cycle: 0,
            clocked: 0,
            host_port,
            host: Host::new(usize::from(config.vectors)),
            host_check: Checker::new("host", host_shape),
            media_port: Slave::new(media_shape, config.media_behaviour, config.seed),
            media: Media::new(config.luns.clone(), config.media_bandwidth, config.seed)?,
            // Media data cuts through to the host port, and waits with it.
            media_check: Checker::new("media", media_shape).r_may_stall(),
            bar0: LiteMaster::new(),
            plat: LiteMaster::new(),
            config: ConfigSpace::new(config.vectors, mps, generation, lanes),
            answers: HashMap::new(),
            token: 0,
            changed: true,
            hang_cycles: config.hang_cycles,
            outstanding: 0,
            progress: 0,
            failed: false,
            waves: None,
            link: config.link,
        };
        world.input.bar0 = world.bar0.initial();
        world.input.plat = world.plat.initial();
        world.input.host = match &world.host_port {
            HostPort::Direct(slave) => slave.initial(),
            HostPort::Pcie(root) => root.initial(),
        };
        world.input.media = world.media_port.initial();
        Ok(world)
    }

    /// Holds reset for `cycles`, at least 1.
    pub fn reset(&mut self, cycles: u64) -> Result<(), WorldError> {
        self.input.rst = true;
        for _ in 0..cycles.max(1) {
            self.step()?;
        }
        self.input.rst = false;
        self.host_check.reset();
        self.media_check.reset();
        Ok(())
    }

    /// Commands of LUN `lun` that execute now, and its depth: [`Card::lun`].
    pub fn lun(&self, lun: u32) -> Option<(u32, u32)> {
        self.card.lun(lun)
    }

    /// One cycle.
    pub fn step(&mut self) -> Result<(), WorldError> {
        if self.failed {
            return Err(WorldError::Failed);
        }
        let result = self.try_step();
        self.failed |= result.is_err();
        result
    }

    fn try_step(&mut self) -> Result<(), WorldError> {
        let now = self.cycle;
        let (i, o) = (&mut self.input, &mut self.output);
        i.cycle = now;
        self.card.settle(i, o);
        let mut changed = i.flr;
        if !i.rst {
            if !i.signals.bus_master_enable {
                self.host_check.none_begins(now, &o.host)?;
            }
            self.host_check.check(now, &o.host, &i.host)?;
            self.media_check.check(now, &o.media, &i.media)?;
            changed |= self
                .media_port
                .cycle(now, &o.media, &mut i.media, &mut self.media);
            match &mut self.host_port {
                HostPort::Direct(slave) => {
                    changed |= slave.cycle(now, &o.host, &mut i.host, &mut self.host);
                    while let Some(answer) = self.bar0.pop_answer() {
                        self.answers.insert(answer.token, answer.data);
                    }
                }
                HostPort::Pcie(root) => {
                    changed |= root.cycle(now, &o.host, &mut i.host, &mut self.host);
                    while let Some(access) = root.pop_access() {
                        self.bar0.push(access);
                    }
                    while let Some(answer) = self.bar0.pop_answer() {
                        root.answer(now, answer.token, answer.data);
                    }
                    while let Some((token, data)) = root.pop_answer() {
                        self.answers.insert(token, data);
                    }
                }
            }
            changed |= self.bar0.cycle(now, &mut i.bar0, &o.bar0);
            changed |= self.plat.cycle(now, &mut i.plat, &o.plat);
            while let Some(answer) = self.plat.pop_answer() {
                self.answers.insert(answer.token, answer.data);
            }
        }
        self.changed = changed || i.rst;
        self.card
            .clock()
            .map_err(|source| WorldError::Card { cycle: now, source })?;
        i.flr = false;
        self.cycle += 1;
        self.clocked += 1;
        if self.clocked.is_multiple_of(WAVES_LOOK) {
            self.waves_fit()?;
        }
        Ok(())
    }

    /// Advances to cycle `limit` at most, and stops before it when the host may have something to look at: an interrupt
    /// or a write as short as completion entries. Always advances by a cycle. True when it stopped for that.
    pub fn advance(&mut self, limit: u64) -> Result<bool, WorldError> {
        let notices = self.host.notices();
        loop {
            self.step()?;
            if self.host.notices() != notices {
                return Ok(true);
            }
            self.skip(limit);
            if self.outstanding > 0 && self.cycle - self.progress > self.hang_cycles {
                self.failed = true;
                let (cycles, outstanding) = (self.cycle - self.progress, self.outstanding);
                return Err(WorldError::Hang {
                    cycles,
                    outstanding,
                    state: self.state(),
                });
            }
            if self.cycle >= limit {
                return Ok(false);
            }
        }
    }

    /// Jumps to the cycle before the next event, when the last step changed nothing.
    fn skip(&mut self, limit: u64) {
        if self.changed || !self.output.idle {
            return;
        }
        let target = self
            .next_event()
            .map_or(limit, |at| limit.min(at.saturating_sub(1)));
        if target > self.cycle {
            self.card.skip(target - self.cycle);
            self.cycle = target;
        }
    }

    fn next_event(&self) -> Option<u64> {
        let port = match &self.host_port {
            HostPort::Direct(slave) => slave.next_event(),
            HostPort::Pcie(root) => root.next_event(),
        };
        [port, self.media_port.next_event()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The cycle that comes next.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Simulated time in ns.
    pub fn now_ns(&self) -> u64 {
        self.cycle * CYCLE_NS
    }

    /// Did the simulation fail?
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Memory and interrupts.
    pub fn host(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Media behind the card.
    pub fn media(&mut self) -> &mut Media {
        &mut self.media
    }

    /// What the card drives in the last cycle.
    pub fn output(&self) -> &CardOut {
        &self.output
    }

    /// What the card was driven with in the last cycle, or is in the next: payloads change at the end of a step.
    pub fn input(&self) -> &CardIn {
        &self.input
    }

    /// The link.
    pub fn link(&self) -> Link {
        self.link
    }

    /// The cycle in which WVALID of the last write to BAR0 rose at the card, and its offset.
    pub fn last_register_write(&self) -> Option<(u64, u32)> {
        self.bar0.last_write()
    }

    /// Counts since construction.
    pub fn stats(&self) -> WorldStats {
        let link = match &self.host_port {
            HostPort::Direct(_) => LinkStats::default(),
            HostPort::Pcie(root) => root.stats(),
        };
        WorldStats {
            cycles: self.cycle,
            clocked: self.clocked,
            link,
            media: self.media_port.stats(),
        }
    }

    /// Says how many commands the host waits for: a hang is counted only while it is not 0. `progress`: one of them has
    /// completed since the last call.
    pub fn watch(&mut self, outstanding: u64, progress: bool) {
        if progress || self.outstanding == 0 {
            self.progress = self.cycle;
        }
        self.outstanding = outstanding;
    }

    /// Is there nothing to do: no step would change anything but free-running counters?
    pub fn quiet(&self) -> bool {
        !self.changed && self.output.idle && self.next_event().is_none()
    }

    /// Advances until there is nothing to do, by `most` cycles at most. False when there still is something then.
    pub fn settle(&mut self, most: u64) -> Result<bool, WorldError> {
        let limit = self.cycle + most;
        while !self.quiet() {
            if self.cycle >= limit {
                return Ok(false);
            }
            self.advance(limit)?;
        }
        Ok(true)
    }

    /// Writes a register of BAR0: posted, arrives after the link's latency.
    pub fn write_register(&mut self, addr: u32, data: u32) {
        self.write_register_bytes(addr, data, 0xf);
    }

    /// As [`World::write_register`], only the bytes of `data` that `strobe` (bit n for byte n) enables.
    pub fn write_register_bytes(&mut self, addr: u32, data: u32, strobe: u8) {
        self.changed = true;
        let access = Access::Write { addr, data, strobe };
        match &mut self.host_port {
            HostPort::Direct(_) => self.bar0.push(access),
            HostPort::Pcie(root) => root.mmio(self.cycle, access),
        }
    }

    /// Reads a register of BAR0: steps until the answer is here.
    pub fn read_register(&mut self, addr: u32) -> Result<u32, WorldError> {
        let access = Access::Read {
            addr,
            token: self.next_token(),
        };
        match &mut self.host_port {
            HostPort::Direct(_) => self.bar0.push(access),
            HostPort::Pcie(root) => root.mmio(self.cycle, access),
        }
        self.wait_answer(addr)
    }

    /// Writes a register of the platform port.
    pub fn write_platform(&mut self, addr: u32, data: u32) {
        self.changed = true;
        self.plat.push(Access::Write {
            addr,
            data,
            strobe: 0xf,
        });
    }

    /// Reads a register of the platform port: steps until the answer is here.
    pub fn read_platform(&mut self, addr: u32) -> Result<u32, WorldError> {
        let token = self.next_token();
        self.plat.push(Access::Read { addr, token });
        self.wait_answer(addr)
    }

    /// Steps until every platform access is answered.
    pub fn settle_platform(&mut self) -> Result<(), WorldError> {
        let limit = self.cycle + ANSWER_CYCLES;
        while self.plat.busy() {
            self.step()?;
            if self.cycle > limit {
                return Err(self.no_answer(self.input.plat.aw_addr));
            }
        }
        Ok(())
    }

    fn next_token(&mut self) -> u64 {
        self.changed = true;
        self.token += 1;
        self.token
    }

    fn wait_answer(&mut self, register: u32) -> Result<u32, WorldError> {
        let limit = self.cycle + ANSWER_CYCLES;
        loop {
            self.step()?;
            if let Some(data) = self.answers.remove(&self.token) {
                return Ok(data);
            }
            if self.cycle > limit {
                return Err(self.no_answer(register));
            }
        }
    }

    fn no_answer(&mut self, register: u32) -> WorldError {
        self.failed = true;
        WorldError::NoAnswer {
            register,
            cycles: ANSWER_CYCLES,
            state: self.state(),
        }
    }

    /// Reads configuration space, without time passing.
    pub fn read_config(&self, offset: usize, out: &mut [u8]) {
        self.config.read(offset, out);
    }

    /// Writes configuration space, without time passing; the wires follow with the next cycle.
    pub fn write_config(&mut self, offset: usize, data: &[u8]) {
        self.config.write(offset, data);
        self.apply_config();
    }

    /// Sets or clears Bus Master Enable of the command register, as software may at any time.
    pub fn set_bus_master(&mut self, on: bool) {
        let bit = config::BUS_MASTER;
        let (clear, set) = if on { (0, bit) } else { (bit, 0) };
        self.config.change16(config::COMMAND, clear, set);
        self.apply_config();
    }

    fn apply_config(&mut self) {
        self.changed = true;
        self.input.flr |= self.config.take_flr();
        self.input.signals = self.config.signals();
    }

    /// Starts a Function Level Reset, as software does.
    pub fn function_level_reset(&mut self) {
        self.config.change16(config::EXPRESS + 8, 0, 1 << 15);
        self.apply_config();
    }

    /// What an operating system does before a driver gets the function: memory space, bus mastering, and MSI-X with
    /// every vector's message aimed at the vector's counter.
    pub fn enable_function(&mut self) -> Result<(), WorldError> {
        self.config.change16(
            config::COMMAND,
            0,
            config::MEMORY_ENABLE | config::BUS_MASTER,
        );
        self.config
            .change16(config::MSIX + 2, 0, config::MSIX_ENABLE);
        self.apply_config();
        for vector in 0..self.host.vectors() as u32 {
            let entry = msix::TABLE as u32 + 16 * vector;
            self.write_register(entry, MSI_ADDRESS as u32);
            self.write_register(entry + 4, (MSI_ADDRESS >> 32) as u32);
            self.write_register(entry + 8, vector);
            self.write_register(entry + 12, 0);
        }
        // The read returns when all of it has arrived.
        self.read_register(msix::TABLE as u32)?;
        Ok(())
    }

    /// Starts an FST trace of the card.
    pub fn trace(&mut self, path: &Path) -> Result<(), WorldError> {
        let cycle = self.cycle;
        self.waves = Some(path.to_owned());
        self.waves_fit()?;
        self.card
            .trace(path)
            .map_err(|source| WorldError::Card { cycle, source })
    }

    /// An error when the disk that waves are written to is nearly full.
    fn waves_fit(&self) -> Result<(), WorldError> {
        let Some(path) = &self.waves else {
            return Ok(());
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // What cannot be asked is not taken for full.
        let free = rustix::fs::statvfs(folder).map_or(u64::MAX, |disk| {
            disk.f_bavail.saturating_mul(disk.f_frsize) >> 20
        });
        match free < WAVES_ROOM {
            true => Err(WorldError::WavesFull {
                path: path.clone(),
                free,
            }),
            false => Ok(()),
        }
    }

    /// Ends the trace, if one was started, so that its file is complete even when the world is never dropped.
    pub fn trace_end(&mut self) {
        self.waves = None;
        self.card.trace_end();
    }

    /// Where everything stands, for messages: a line a part.
    pub fn state(&self) -> String {
        let mut text = String::new();
        let (i, o) = (&self.input, &self.output);
        let _ = writeln!(text, "  time: cycle {} ({} ns)", self.cycle, self.now_ns());
        let _ = writeln!(text, "  card: {}", if o.idle { "idle" } else { "busy" });
        let flags = |list: &[(&str, bool)]| {
            let on: Vec<&str> = list
                .iter()
                .filter(|(_, on)| *on)
                .map(|(name, _)| *name)
                .collect();
            if on.is_empty() {
                "no valid or ready".to_string()
            } else {
                on.join(" ")
            }
        };
        for (name, m, s) in [("host", &o.host, &i.host), ("media", &o.media, &i.media)] {
            let signals = flags(&[
                ("awvalid", m.aw_valid),
                ("awready", s.aw_ready),
                ("wvalid", m.w_valid),
                ("wready", s.w_ready),
                ("bvalid", s.b_valid),
                ("arvalid", m.ar_valid),
                ("arready", s.ar_ready),
                ("rvalid", s.r_valid),
            ]);
            let _ = writeln!(text, "  {name} port: {signals}");
        }
        let (reads, writes) = match &self.host_port {
            HostPort::Direct(slave) => slave.outstanding(),
            HostPort::Pcie(root) => root.outstanding(),
        };
        let _ = writeln!(
            text,
            "  host port bursts not answered: {reads} reads, {writes} writes"
        );
        let (reads, writes) = self.media_port.outstanding();
        let _ = writeln!(
            text,
            "  media port bursts not answered: {reads} reads, {writes} writes"
        );
        let waiting = if self.bar0.busy() {
            "an access is not answered"
        } else {
            "nothing to do"
        };
        let _ = writeln!(
            text,
            "  BAR0: {waiting}; {} error responses",
            self.bar0.errors()
        );
        let _ = writeln!(
            text,
            "  host: {} interrupts, {} stray messages, {} accesses outside memory",
            self.host.interrupts(),
            self.host.stray_messages(),
            self.host.memory.bad_count()
        );
        for bad in self.host.memory.bad_accesses().iter().take(4) {
            let what = if bad.write { "write" } else { "read" };
            let _ = writeln!(
                text,
                "    {what} of {} bytes at IOVA {:#x}",
                bad.len, bad.iova
            );
        }
        let _ = writeln!(
            text,
            "  media: {} accesses outside every LUN",
            self.media.outside()
        );
        text
    }
}

#[cfg(test)]
mod tests;
