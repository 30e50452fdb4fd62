//! Shared by the block tests: builds a block into a Verilated model and drives its ports by name.
//!
//! A test sets inputs, calls [`Bench::eval`], reads outputs, steps its plain Rust model, and calls [`Bench::tick`].
//! Models are built with assertions, random initial state and random data on RAM collisions, after a clean lint.

#![allow(dead_code)] // Each test uses its part.

pub mod lite;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use verilator_sys::{In, Model, Out, Sim, Spec, Value, WideIn, WideOut};
use weir_kit::{Dir, Module};

/// The random numbers of a test: the same for the same seed on every machine.
pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Lints a block's Verilog and builds its model.
pub fn model(module: &Module) -> Model {
    let files = module.files();
    verilator_sys::lint(files.clone(), module.name())
        .unwrap_or_else(|e| panic!("{} does not lint:\n{e}", module.name()));
    let spec = Spec::new(module.name(), files)
        .define("WEIR_RANDOM_COLLISION")
        .trace(std::env::var_os("WEIR_TRACE").is_some());
    Model::build(&spec).unwrap_or_else(|e| panic!("{} does not build:\n{e}", module.name()))
}

enum Port {
    In(In),
    WideIn(WideIn),
    Out(Out),
    WideOut(WideOut),
}

/// A block under test. Ports are named as in the Verilog.
pub struct Bench {
    /// The model's instance, for what this does not wrap.
    pub sim: Sim,
    ports: HashMap<String, Port>,
    cycle: u64,
}

impl Bench {
    /// A new instance with registers random by `seed`, then two cycles of reset.
    pub fn new(module: &Module, model: &Model, seed: u64) -> Bench {
        let sim = model.instance(seed).expect("the model starts");
        let mut ports = HashMap::new();
        let all = module
            .ports()
            .iter()
            .map(|p| (p.name.clone(), p.width, p.dir))
            .chain([("rst".to_string(), 1, Dir::In)]);
        for (name, width, dir) in all {
            let port = match (dir, width <= 64) {
                (Dir::In, true) => sim.input(&name).map(Port::In),
                (Dir::In, false) => sim.wide_input(&name).map(Port::WideIn),
                (Dir::Out, true) => sim.output(&name).map(Port::Out),
                (Dir::Out, false) => sim.wide_output(&name).map(Port::WideOut),
            };
            ports.insert(name, port.expect("the model has its module's ports"));
        }
        let mut bench = Bench {
            sim,
            ports,
            cycle: 0,
        };
        if std::env::var_os("WEIR_TRACE").is_some() {
            bench
                .sim
                .trace(format!("{}.fst", module.name()))
                .expect("the trace opens");
        }
        bench.reset();
        bench
    }

    /// Two cycles of reset.
    pub fn reset(&mut self) {
        self.set("rst", 1);
        self.tick();
        self.tick();
        self.set("rst", 0);
    }

    fn port(&self, name: &str) -> &Port {
        self.ports.get(name).unwrap_or_else(|| {
            let mut names: Vec<_> = self.ports.keys().cloned().collect();
            names.sort();
            panic!("no port {name}; there are {names:?}")
        })
    }

    /// Sets an input of at most 64 bits.
    pub fn set(&mut self, name: &str, value: impl Value) {
        let Port::In(p) = *self.port(name) else {
            panic!("{name} is no input of at most 64 bits")
        };
        self.sim.set(p, value);
    }

    /// Sets an input of more than 64 bits, least significant word first.
    pub fn set_wide(&mut self, name: &str, value: &[u64]) {
        let Port::WideIn(p) = *self.port(name) else {
            panic!("{name} is no input of more than 64 bits")
        };
        self.sim.set_wide(p, value);
    }

    /// An output of at most 64 bits, as it was at the last eval or tick.
    pub fn get(&self, name: &str) -> u64 {
        let Port::Out(p) = *self.port(name) else {
            panic!("{name} is no output of at most 64 bits")
        };
        self.sim.get(p)
    }

    /// An output of one bit.
    pub fn is(&self, name: &str) -> bool {
        self.get(name) == 1
    }

    /// An output of more than 64 bits, least significant word first.
    pub fn get_wide(&self, name: &str) -> Vec<u64> {
        let Port::WideOut(p) = *self.port(name) else {
            panic!("{name} is no output of more than 64 bits")
        };
        let mut words = vec![0; p.words()];
        self.sim.get_wide(p, &mut words);
        words
    }

    /// Lets outputs follow the inputs.
    pub fn eval(&mut self) {
        self.sim.eval();
    }

    /// One clock edge. Panics on a failed assertion.
    pub fn tick(&mut self) {
        self.sim.tick();
        self.cycle += 1;
        if let Err(e) = self.sim.check() {
            panic!("cycle {}: {e}", self.cycle);
        }
    }

    /// Clock edges so far.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }
}

/// Random stalls that change character: always, never, or at some rate for a while, so that both long waits and full speed occur.
pub struct Stall {
    rng: ChaCha8Rng,
    percent: u32,
    left: u32,
}

impl Stall {
    /// A source of stalls.
    pub fn new(seed: u64) -> Stall {
        Stall {
            rng: rng(seed),
            percent: 0,
            left: 0,
        }
    }

    /// Whether to go on in this cycle.
    pub fn go(&mut self) -> bool {
        if self.left == 0 {
            self.left = self.rng.random_range(1..200);
            self.percent = match self.rng.random_range(0..6) {
                0 => 0,
                1 | 2 => 100,
                _ => self.rng.random_range(1..100),
            };
        }
        self.left -= 1;
        self.rng.random_range(0..100) < self.percent
    }
}

/// Runs `f` over all items, on all cores.
pub fn in_threads<T: Sync>(items: &[T], f: impl Fn(&T) + Sync) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|s| {
        for _ in 0..cores {
            s.spawn(|| {
                while let Some(item) =
                    items.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    f(item);
                }
            });
        }
    });
}
