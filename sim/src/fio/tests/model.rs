//! A queueing model of a device: a queue a CPU, a depth a LUN, a random service time, media that takes effect at a
//! random moment of the service; and faults to be caught.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::fio::{Command, Completion, Control, Device, DeviceError, Op};
use crate::pattern::{BLOCK, unwritten_block};
use crate::rng::Rng;

/// What goes wrong, once, at the first chance after `after` commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One bit of a read's data.
    FlipBit,
    /// A write that never reaches the media.
    LoseWrite,
    /// A write that lands one block further.
    Misplace,
    /// A read that brings the neighbour LUN's data.
    WrongLun,
    /// A write that ends with an error status.
    WriteError,
    /// A command that never completes.
    Hang,
}

struct Running {
    cpu: usize,
    command: Command,
    data: Vec<u8>,
    end: u64,
}

pub struct Model {
    now: u64,
    seed: u64,
    rng: Rng,
    entries: usize,
    outstanding: Vec<usize>,
    unrung: Vec<Vec<(Command, Vec<u8>)>>,
    parked: Vec<VecDeque<(usize, Command, Vec<u8>)>>,
    executing: Vec<u32>,
    pub depth: Vec<u32>,
    /// By time of effect on the media, and a number that makes keys unique.
    effects: BTreeMap<(u64, u64), Running>,
    done: BTreeMap<(u64, u64), Running>,
    ready: Vec<VecDeque<(Command, Vec<u8>, u16)>>,
    media: HashMap<(u32, u64), [u8; BLOCK]>,
    serial: u64,
    pub service_ns: (u64, u64),
    pub fault: Option<(Fault, u64)>,
    pub controls: Vec<(u64, Control)>,
    pub log: Vec<(usize, Command)>,
    pub peak: Vec<u32>,
}

impl Model {
    pub fn new(cpus: usize, luns: usize, entries: usize, seed: u64) -> Self {
        Model {
            now: 0,
            seed,
            rng: Rng::new(seed, 99),
            entries,
            outstanding: vec![0; cpus],
            unrung: (0..cpus).map(|_| Vec::new()).collect(),
            parked: (0..luns).map(|_| VecDeque::new()).collect(),
            executing: vec![0; luns],
            depth: vec![32; luns],
            effects: BTreeMap::new(),
            done: BTreeMap::new(),
            ready: (0..cpus).map(|_| VecDeque::new()).collect(),
            media: HashMap::new(),
            serial: 0,
            service_ns: (1000, 9000),
            fault: None,
            controls: Vec::new(),
            log: Vec::new(),
            peak: vec![0; luns],
        }
    }

    fn strikes(&mut self, which: &[Fault]) -> Option<Fault> {
        let (fault, after) = self.fault?;
        if self.serial < after || !which.contains(&fault) {
            return None;
        }
        self.fault = None;
        Some(fault)
    }

    fn admit(&mut self, lun: usize) {
        while self.executing[lun] < self.depth[lun] {
            let Some((cpu, command, data)) = self.parked[lun].pop_front() else {
                return;
            };
            self.executing[lun] += 1;
            self.peak[lun] = self.peak[lun].max(self.executing[lun]);
            let (lo, hi) = self.service_ns;
            let service = lo + self.rng.below(hi - lo + 1);
            let effect = self.now + self.rng.below(service);
            self.serial += 1;
            let running = Running {
                cpu,
                command,
                data,
                end: self.now + service,
            };
            self.effects.insert((effect, self.serial), running);
        }
    }

    fn effect(&mut self, mut running: Running) {
        let command = running.command;
        match command.op {
            Op::Read => {
                let strike = self.strikes(&[Fault::FlipBit, Fault::WrongLun]);
                let lun = if strike == Some(Fault::WrongLun) {
                    command.lun ^ 1
                } else {
                    command.lun
                };
                for lba in command.lba..command.lba + u64::from(command.blocks) {
                    let mut block = [0; BLOCK];
                    match self.media.get(&(lun, lba)) {
                        Some(written) => block = *written,
                        None => unwritten_block(lun, lba, self.seed, &mut block),
                    }
                    running.data.extend_from_slice(&block);
                }
                if strike == Some(Fault::FlipBit) {
                    let last = running.data.len() - 1;
                    running.data[last] ^= 0x40;
                }
            }
            Op::Write => {
                let strike = self.strikes(&[Fault::LoseWrite, Fault::Misplace]);
                if strike != Some(Fault::LoseWrite) {
                    let shift = u64::from(strike == Some(Fault::Misplace));
                    for (lba, block) in
                        (command.lba + shift..).zip(running.data.as_chunks::<BLOCK>().0)
                    {
                        self.media.insert((command.lun, lba), *block);
                    }
                }
                running.data.clear();
            }
            Op::Flush => {}
        }
        self.serial += 1;
        self.done.insert((running.end, self.serial), running);
    }
}

impl Device for Model {
    fn now_ns(&self) -> u64 {
        self.now
    }

    fn try_submit(
        &mut self,
        cpu: usize,
        command: &Command,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, DeviceError> {
        if self.outstanding[cpu] >= self.entries {
            return Ok(false);
        }
        let mut data = Vec::new();
        if command.op == Op::Write {
            data.resize(command.blocks as usize * BLOCK, 0);
            fill(&mut data);
        }
        self.outstanding[cpu] += 1;
        self.log.push((cpu, *command));
        self.unrung[cpu].push((*command, data));
        Ok(true)
    }

    fn ring(&mut self, cpu: usize) -> Result<(), DeviceError> {
        for (command, data) in std::mem::take(&mut self.unrung[cpu]) {
            let lun = command.lun as usize;
            self.parked[lun].push_back((cpu, command, data));
            self.admit(lun);
        }
        Ok(())
    }

    fn poll(
        &mut self,
        cpu: usize,
        each: &mut dyn FnMut(Completion<'_>),
    ) -> Result<(), DeviceError> {
        while let Some((command, data, status)) = self.ready[cpu].pop_front() {
            self.outstanding[cpu] -= 1;
            each(Completion {
                id: command.id,
                status,
                data: &data,
            });
        }
        Ok(())
    }

    fn advance(&mut self, until_ns: Option<u64>) -> Result<(), DeviceError> {
        loop {
            let effect = self.effects.keys().next().copied();
            let done = self.done.keys().next().copied();
            let next = effect.into_iter().chain(done).min();
            if let (Some(until), true) = (
                until_ns,
                next.is_none_or(|(at, _)| until_ns.is_some_and(|u| u < at)),
            ) {
                self.now = until;
                return Ok(());
            }
            let Some(key) = next else {
                return Err("model: a hang".into());
            };
            self.now = self.now.max(key.0);
            if let Some(running) = self.effects.remove(&key) {
                self.effect(running);
                continue;
            }
            let Some(running) = self.done.remove(&key) else {
                continue;
            };
            let lun = running.command.lun as usize;
            self.executing[lun] -= 1;
            self.admit(lun);
            let status = match self.strikes(&[Fault::WriteError, Fault::Hang]) {
                Some(Fault::Hang) => continue,
                Some(_) => 0x281,
                None => 0,
            };
            self.ready[running.cpu].push_back((running.command, running.data, status));
            return Ok(());
        }
    }

    fn control(&mut self, control: Control) -> Result<(), DeviceError> {
        self.controls.push((self.now, control));
        if let Control::Depth { lun, depth } = control {
            self.depth[lun as usize] = depth;
            self.admit(lun as usize);
        }
        Ok(())
    }

    fn sample(&mut self, lun: u32) -> Option<(u32, u32)> {
        Some((self.executing[lun as usize], self.depth[lun as usize]))
    }
}
