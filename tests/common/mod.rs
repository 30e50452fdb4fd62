//! A card, its world and the driver on it, with the Verilog's assertions checked and RAM collisions random.
#![allow(dead_code)]

pub mod load;

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use verilator_sys::Model;
use weir_card::card::card;
use weir_card::config::CardConfig;
use weir_driver::{Admin, Buffer, Completed, Controller, Op, Options, Pci, Queue, QueueConfig};
use weir_nvme::StatusCode;
use weir_sim::fio::LunCardStats;
use weir_sim::media::Media;
use weir_sim::model::{ModelOptions, build, instance};
use weir_sim::pattern::unwritten_block;
use weir_sim::pci::{SimMemory, SimPci};
use weir_sim::run;
use weir_sim::time::Latency;
use weir_sim::world::{World, WorldConfig};

/// Blocks of every LUN: 1 MiB.
pub const BLOCKS: u64 = 2048;
/// Simulated time after which a test calls it a hang, ns.
const PATIENCE_NS: u64 = 20_000_000;

pub type Done = Completed<SimMemory>;

/// The model of `config`, built once a process.
pub fn model(config: &CardConfig, options: ModelOptions) -> Model {
    static MODELS: OnceLock<Mutex<BTreeMap<String, Model>>> = OnceLock::new();
    let mut models = MODELS.get_or_init(Mutex::default).lock().unwrap();
    models
        .entry(format!("{config:?} {options:?}"))
        .or_insert_with(|| build(&card(config), options).unwrap())
        .clone()
}

/// Card, world and driver.
pub struct Rig {
    pub pci: SimPci,
    pub controller: Controller<SimPci>,
    pub config: CardConfig,
}

impl Rig {
    /// A card of this configuration in a plain world, changed by `change`, with everything checked.
    pub fn new(config: &CardConfig, seed: u64, change: impl FnOnce(&mut WorldConfig)) -> Rig {
        let options = ModelOptions {
            trace: std::env::var_os("WEIR_TRACE").is_some(),
            asserts: true,
            random_collisions: true,
        };
        Self::with(config, seed, options, change)
    }

    /// The same with the model of these options.
    pub fn with(
        config: &CardConfig,
        seed: u64,
        options: ModelOptions,
        change: impl FnOnce(&mut WorldConfig),
    ) -> Rig {
        let mut world = WorldConfig::new(Media::equal_luns(config.luns, BLOCKS, Latency::Fixed(0)));
        world.vectors = config.queues as u16 + 1;
        world.seed = seed;
        change(&mut world);
        let card = instance(&model(config, options), seed).unwrap();
        let mut world = World::new(Box::new(card), &world).unwrap();
        // WEIR_TRACE=out.fst with one test shows what happened; the file is complete up to the failure's last megabyte.
        if let Some(path) = std::env::var_os("WEIR_TRACE") {
            world.trace(path.as_ref()).unwrap();
        }
        let luns = world.media().luns().len() as u32;
        run::bring_up(&mut world, config.queues, luns, config.tags).unwrap();
        let pci = SimPci::new(world);
        let controller = Self::controller(&pci);
        Rig {
            pci,
            controller,
            config: config.clone(),
        }
    }

    fn controller(pci: &SimPci) -> Controller<SimPci> {
        match Controller::new(
            pci.clone(),
            Options {
                io_queues: 64,
                ..Options::default()
            },
        ) {
            Ok(controller) => controller,
            Err(e) => panic!(
                "{e}: {}",
                pci.take_error()
                    .map_or(pci.world().state(), |e| e.to_string())
            ),
        }
    }

    /// The driver starts over, as after an FLR.
    pub fn restart(&mut self) {
        let old = std::mem::replace(&mut self.controller, Self::controller(&self.pci));
        // Its Drop would disable the controller that the new one has enabled.
        std::mem::forget(old);
    }

    /// A queue on which every LUN is open.
    pub fn queue(&mut self, config: QueueConfig) -> Queue<SimPci> {
        let mut queue = self.controller.create_queue(&config).unwrap();
        for lun in self.controller.luns() {
            queue.open(lun).unwrap();
        }
        queue
    }

    /// A queue of as many entries as the card has, all LUNs open.
    pub fn deep_queue(&mut self) -> Queue<SimPci> {
        let entries = self.config.entries;
        self.queue(QueueConfig {
            entries,
            ..QueueConfig::default()
        })
    }

    /// Time passes; fails when the world has.
    pub fn pass(&self, ns: u64) {
        let until = self.pci.now_ns() + ns;
        while self.pci.now_ns() < until {
            self.pci.advance(until);
            if let Some(error) = self.pci.take_error() {
                panic!("{error}");
            }
        }
    }

    /// Polls `queue` until it is empty.
    pub fn drain(&self, queue: &mut Queue<SimPci>) -> Vec<Done> {
        let mut done = Vec::new();
        let start = self.pci.now_ns();
        while !queue.is_empty() {
            queue.poll(|d| done.push(d)).unwrap();
            self.pass(40);
            assert!(
                self.pci.now_ns() < start + PATIENCE_NS,
                "{} left: {}",
                queue.len(),
                self.pci.world().state()
            );
        }
        done
    }

    /// One command from submission to completion.
    pub fn one(
        &self,
        queue: &mut Queue<SimPci>,
        lun: u32,
        op: Op,
        buffer: Option<Buffer<SimMemory>>,
        slba: u64,
        blocks: u32,
    ) -> Done {
        queue.submit(lun, op, buffer, slba, blocks, 0).unwrap();
        queue.ring();
        self.drain(queue).pop().unwrap()
    }

    /// A buffer of `blocks` blocks.
    pub fn buffer(&self, blocks: u32) -> Buffer<SimMemory> {
        self.controller.buffer(blocks as usize * 512).unwrap()
    }

    /// What the card has counted, LUN by LUN.
    pub fn statistics(&mut self) -> Vec<LunCardStats> {
        let luns = 0..self.config.luns;
        luns.map(|lun| {
            let counted = self.controller.lun_statistics(lun).unwrap();
            LunCardStats {
                in_flight: counted.in_flight,
                peak: counted.peak,
                parked: counted.parked,
                admitted: counted.admitted,
                completed: counted.completed,
                deferred_depth: counted.deferred_depth,
                deferred_tags: counted.deferred_tags,
                deferred_share: counted.deferred_share,
                cycles_waited: counted.cycles_waited,
                bytes: counted.bytes,
                ..LunCardStats::default()
            }
        })
        .collect()
    }

    /// Writes and reads back on every LUN; the card must be whole.
    pub fn whole(&mut self) {
        let mut queue = self.deep_queue();
        for lun in 0..self.config.luns {
            let mut buffer = self.buffer(8);
            buffer.with_mut(|d| {
                d.iter_mut()
                    .enumerate()
                    .for_each(|(i, b)| *b = (i as u32 * 7 + lun) as u8)
            });
            let wrote = self.one(&mut queue, lun, Op::Write, Some(buffer), 64, 8);
            assert!(wrote.status.is_success());
            let read = self.one(&mut queue, lun, Op::Read, Some(self.buffer(8)), 64, 8);
            assert!(read.status.is_success());
            read.buffer.unwrap().with(|d| {
                assert!(
                    d.iter()
                        .enumerate()
                        .all(|(i, b)| *b == (i as u32 * 7 + lun) as u8)
                )
            });
            let s = self.controller.lun_statistics(lun).unwrap();
            assert_eq!((s.in_flight, s.parked), (0, 0), "LUN {lun}");
            assert_eq!(s.admitted, s.completed, "LUN {lun}");
        }
        self.controller.delete_queue(queue, |_| ()).unwrap();
    }
}

/// What blocks never written read as.
pub fn unwritten(lun: u32, slba: u64, blocks: u32, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; blocks as usize * 512];
    for (i, block) in bytes.chunks_exact_mut(512).enumerate() {
        unwritten_block(lun, slba + i as u64, seed, block.try_into().unwrap());
    }
    bytes
}

/// The status of a completion.
pub fn code(done: &Done) -> StatusCode {
    done.status.code()
}
