//! A card in plain Rust that does one thing: it copies between media and host memory as descriptors tell it. For tests
//! of the world without Verilator.
//!
//! A write of n to register 1000h runs descriptor n of the table whose IOVA is in registers 28h and 2Ch. A descriptor is
//! eight 64-bit words: opcode (0 media to host, 1 host to media), media address, host address, bytes (at most 4096 and
//! within 4 KiB at both ends), address of the 16-byte completion, its value's low half, and two that are not used. The
//! completion is written after the data has its B, and then message 1 is sent to the MSI address.

use std::collections::{HashMap, VecDeque};

use crate::axi::{Resp, Shape};
use crate::card::{Card, CardError, CardIn, CardOut};
use crate::host::MSI_ADDRESS;
use crate::lite::{LiteIn, LiteOut};
use crate::master::Master;

/// What the fake card does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    #[default]
    None,
    /// It ignores doorbells.
    Deaf,
    /// AWVALID falls before AWREADY, every other cycle.
    Flickers,
    /// It does not answer register reads.
    Mute,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Descriptor,
    Data,
    Copy,
    Completion,
    Message,
}

struct Job {
    step: Step,
    words: [u64; 8],
    resp: Resp,
}

#[derive(Default)]
struct Registers {
    out: LiteOut,
    values: HashMap<u32, u32>,
    doorbells: VecDeque<u32>,
}

impl Registers {
    /// Accepts an address and its data together; true when anything changed.
    fn clock(&mut self, i: &LiteIn, flaw: Flaw) {
        let before = self.out;
        self.out = LiteOut::default();
        if before.b_valid && !i.b_ready || before.r_valid && !i.r_ready {
            self.out = before;
            return;
        }
        if i.aw_valid && i.w_valid && before.aw_ready {
            self.out.b_valid = true;
            if i.aw_addr == 0x1000 {
                self.doorbells.push_back(i.w_data);
            } else {
                self.values.insert(i.aw_addr, i.w_data);
            }
        }
        if i.ar_valid && before.ar_ready && flaw != Flaw::Mute {
            self.out.r_valid = true;
            self.out.r_data = self.values.get(&i.ar_addr).copied().unwrap_or(0);
        }
        let free = !self.out.b_valid && !self.out.r_valid;
        (self.out.aw_ready, self.out.w_ready, self.out.ar_ready) = (free, free, free);
    }
}

/// The card.
pub struct FakeCard {
    flaw: Flaw,
    shape: Shape,
    regs: Registers,
    plat: Registers,
    host: Master,
    media: Master,
    jobs: HashMap<u64, Job>,
    input: CardIn,
    output: CardOut,
}

impl FakeCard {
    /// A card with two ports of this shape.
    pub fn new(shape: Shape, flaw: Flaw) -> Self {
        FakeCard {
            flaw,
            shape,
            regs: Registers::default(),
            plat: Registers::default(),
            host: Master::new(shape),
            media: Master::new(shape),
            jobs: HashMap::new(),
            input: CardIn::default(),
            output: CardOut::default(),
        }
    }

    /// Requests of a job's step are told apart by their number and port: bit 63 is the media port.
    fn begin(&mut self, job: Job, data: &[u8]) {
        let [op, media, host, bytes, completion, ..] = job.words;
        let id = (completion / 16 % 4) as u32;
        let number = match (job.step, op) {
            (Step::Descriptor, _) => self.host.read(0, host, 64),
            (Step::Data, 0) => self.media.read(id, media, bytes as usize) | 1 << 63,
            (Step::Data, _) => self.host.read(id, host, bytes as usize),
            (Step::Copy, 0) => self.host.write(id, host, data),
            (Step::Copy, _) => self.media.write(id, media, data) | 1 << 63,
            (Step::Completion, _) => self.host.write(0, completion, data),
            (Step::Message, _) => self.host.write(0, MSI_ADDRESS, data),
        };
        self.jobs.insert(number, job);
    }

    fn finished(&mut self, number: u64, resp: Resp, data: &[u8]) {
        let Some(mut job) = self.jobs.remove(&number) else {
            return;
        };
        job.resp = job.resp.max(resp);
        let mut next = data.to_vec();
        job.step = match job.step {
            Step::Descriptor => {
                for (word, bytes) in job.words.iter_mut().zip(data.chunks_exact(8)) {
                    *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
                }
                Step::Data
            }
            Step::Data => Step::Copy,
            Step::Copy => {
                next = [job.words[5].to_le_bytes(), (job.resp as u64).to_le_bytes()].concat();
                Step::Completion
            }
            Step::Completion => {
                next = 1u32.to_le_bytes().to_vec();
                Step::Message
            }
            Step::Message => return,
        };
        self.begin(job, &next);
    }
}

impl Card for FakeCard {
    fn shapes(&self) -> (Shape, Shape) {
        (self.shape, self.shape)
    }

    fn settle(&mut self, inputs: &CardIn, outputs: &mut CardOut) {
        self.input = *inputs;
        self.output = CardOut {
            bar0: self.regs.out,
            plat: self.plat.out,
            host: self.host.drive(),
            media: self.media.drive(),
            idle: false,
        };
        let o = &mut self.output;
        if self.flaw == Flaw::Flickers && inputs.cycle.is_multiple_of(2) {
            o.host.aw_valid = false;
        }
        let quiet = |l: &LiteIn, o: &LiteOut| {
            !(l.aw_valid || l.ar_valid || o.b_valid || o.r_valid) && o.aw_ready
        };
        let answers = inputs.host.b_valid
            || inputs.host.r_valid
            || inputs.media.b_valid
            || inputs.media.r_valid;
        o.idle = quiet(&inputs.bar0, &o.bar0)
            && quiet(&inputs.plat, &o.plat)
            && !answers
            && self.regs.doorbells.is_empty()
            && ![o.host.aw_valid, o.host.w_valid, o.host.ar_valid].contains(&true)
            && ![o.media.aw_valid, o.media.w_valid, o.media.ar_valid].contains(&true);
        *outputs = *o;
    }

    fn clock(&mut self) -> Result<(), CardError> {
        if self.input.rst {
            *self = FakeCard::new(self.shape, self.flaw);
            return Ok(());
        }
        let now = self.input.cycle;
        self.regs.clock(&self.input.bar0, self.flaw);
        self.plat.clock(&self.input.plat, self.flaw);
        self.host.cycle(now, &self.output.host, &self.input.host);
        self.media.cycle(now, &self.output.media, &self.input.media);
        for done in self.host.take_done() {
            self.finished(done.request, done.resp, &done.data);
        }
        for done in self.media.take_done() {
            self.finished(done.request | 1 << 63, done.resp, &done.data);
        }
        let doorbell = self
            .regs
            .doorbells
            .pop_front()
            .filter(|_| self.flaw != Flaw::Deaf);
        if let Some(n) = doorbell {
            let register = |at| u64::from(self.regs.values.get(&at).copied().unwrap_or(0));
            let table = register(0x28) | register(0x2c) << 32;
            let words = [0, 0, table + 64 * u64::from(n), 0, 0, 0, 0, 0];
            self.begin(
                Job {
                    step: Step::Descriptor,
                    words,
                    resp: Resp::Okay,
                },
                &[],
            );
        }
        Ok(())
    }

    fn skip(&mut self, _: u64) {}

    fn trace(&mut self, path: &std::path::Path) -> Result<(), CardError> {
        Err(CardError::Port {
            port: path.display().to_string(),
            problem: "a card in Rust has no trace".into(),
        })
    }
}
