//! Instructions an I/O of the driver's hot path: 4 KiB reads through the public API at depth 1, and with 4 and 32 under
//! one doorbell. `cargo bench -p weir-driver --bench hot_path`.
//!
//! The device is the tests' model, in the same process. callgrind counts between entry and exit of `weir_host_*`, and not
//! between entry and exit of `weir_device` (`--toggle-collect` on both), so that what is counted is the host's code
//! alone, the loop around the driver's calls included, and the count is exact and the same each time. The steps are
//! told apart by the inlined functions that the debug information names for each counted address.
//!
//! Without valgrind the loop is only run, and the bench says how to get it.
#![allow(unsafe_code)]

#[path = "../examples/common/bare.rs"]
mod bare;
#[path = "callgrind.rs"]
mod callgrind;
#[path = "../tests/mock/mod.rs"]
mod mock;

use bare::Reads;
use mock::{MockMemory, MockPci};
use std::collections::BTreeMap;
use std::hint::black_box;
use weir_driver::nvme::registers::{BAR0_SIZE, offset};
use weir_driver::{AllocError, Buffer, Controller, Options, Pci, Queue, QueueConfig};

/// No register write is pending.
const NOTHING: u32 = u32::MAX;

/// The model behind a BAR that is plain memory, as a mapped one is: a register write is one store, which the model finds
/// when it runs.
#[derive(Clone)]
struct BenchPci {
    bar: *mut u32,
    model: MockPci,
}

impl BenchPci {
    fn new() -> BenchPci {
        BenchPci {
            bar: Box::leak(vec![NOTHING; BAR0_SIZE / 4].into_boxed_slice()).as_mut_ptr(),
            model: MockPci::new(4, 4096),
        }
    }

    /// Hands the model what was written, CC last, since it makes the rest count; then runs it.
    fn turn(&self) {
        let cc = offset::CC / 4;
        for at in (0..BAR0_SIZE / 4).filter(|&at| at != cc).chain([cc]) {
            // SAFETY: below the BAR's length; one thread.
            let value = unsafe { self.bar.add(at).replace(NOTHING) };
            if value != NOTHING {
                self.model.write32(at * 4, value);
            }
        }
        self.model.relax();
    }
}

impl Pci for BenchPci {
    type Memory = MockMemory;

    fn bar0_len(&self) -> usize {
        BAR0_SIZE
    }

    fn read32(&self, offset: usize) -> u32 {
        self.model.read32(offset)
    }

    #[inline]
    fn write32(&self, offset: usize, value: u32) {
        // SAFETY: the driver writes inside the BAR, whose length it was told.
        unsafe { self.bar.byte_add(offset).write_volatile(value) }
    }

    fn alloc(&self, len: usize) -> Result<MockMemory, AllocError> {
        self.model.alloc(len)
    }

    fn vectors(&self) -> u16 {
        0
    }

    fn take_interrupt(&self, _: u16) -> bool {
        false
    }

    fn wait_interrupt(&self, _: u16, _: u64) -> bool {
        false
    }

    fn relax(&self) {
        self.turn();
    }

    fn now_ns(&self) -> u64 {
        self.model.now_ns()
    }
}

struct Rig {
    pci: BenchPci,
    queue: Queue<BenchPci>,
    buffers: Vec<Buffer<MockMemory>>,
    reads: Reads,
}

/// What is not counted.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn weir_device(pci: &BenchPci) {
    pci.turn();
}

/// What is counted: rounds of a read into each buffer.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn weir_host_reads(rig: &mut Rig, rounds: u64) {
    let mut buffers = std::mem::take(&mut rig.buffers);
    let device = || weir_device(&rig.pci);
    let done = if buffers.len() == 1
        && let Some(buffer) = buffers.pop()
    {
        bare::one(&mut rig.queue, buffer, rig.reads, rounds, device).map(|buffer| vec![buffer])
    } else {
        bare::rounds(&mut rig.queue, buffers, rig.reads, rounds, device)
    };
    rig.buffers = done.expect("the model's device reads");
}

/// Runs `rounds` rounds of `depth` reads.
fn run(depth: u32, rounds: u64) {
    let pci = BenchPci::new();
    let mut controller = Controller::new(pci.clone(), Options::default()).expect("bring-up");
    pci.model.device().latency = 1;
    let mut queue = controller
        .create_queue(&QueueConfig {
            entries: 128,
            ..QueueConfig::default()
        })
        .expect("queue");
    for lun in controller.luns() {
        queue.open(lun).expect("open");
    }
    let memory = pci.alloc(4096 * depth as usize).expect("memory");
    let mut rig = Rig {
        pci,
        queue,
        buffers: Buffer::pieces(memory, 4096),
        reads: Reads::new(0, 8, 4096),
    };
    weir_host_reads(black_box(&mut rig), rounds);
    controller.delete_queue(rig.queue, |_| ()).expect("delete");
}

/// Instructions by source function, a read, of `rounds` rounds of `depth` reads. `None` without valgrind.
fn count(depth: u32, rounds: u64) -> Option<BTreeMap<String, f64>> {
    let args = ["--run".to_owned(), depth.to_string(), rounds.to_string()];
    let counted = callgrind::count(&args, &["weir_host_*", "weir_device"])?;
    let exe = std::env::current_exe().expect("this program's path");
    let symbols = addr2line::Loader::new(exe).expect("debug information");
    let mut steps = BTreeMap::new();
    for instruction in counted {
        let step = match instruction.address {
            Some(address) => step(&symbols, address),
            None => "libraries".to_owned(),
        };
        let reads = (rounds * u64::from(depth)) as f64;
        *steps.entry(step).or_default() += instruction.times as f64 / reads;
    }
    Some(steps)
}

/// The driver's function nearest to `address` that the code there was inlined from.
fn step(symbols: &addr2line::Loader, address: u64) -> String {
    let mut frames = symbols.find_frames(address).expect("debug information");
    let mut name = "other".to_owned();
    while let Ok(Some(frame)) = frames.next() {
        let Some(function) = frame.function else {
            continue;
        };
        let function = function.demangle().unwrap_or_default().into_owned();
        let file = frame.location.and_then(|l| l.file).unwrap_or("");
        // Without what it is generic over.
        let short = |f: &str| f.split('<').next().unwrap_or(f).to_owned();
        if file.contains("driver/src") {
            let file = file.rsplit('/').next().unwrap_or(file);
            return format!("{} ({file})", short(&function));
        }
        if file.contains("hot_path.rs") || file.contains("bare.rs") {
            name = short(&function);
            break;
        }
    }
    name
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, run_word, depth, rounds] = args.as_slice()
        && run_word == "--run"
    {
        return run(
            depth.parse().expect("depth"),
            rounds.parse().expect("rounds"),
        );
    }
    println!("host instructions a 4 KiB read, the loop that calls the driver included");
    for depth in [1, 4, 32] {
        let rounds = 2048 / u64::from(depth);
        let Some(steps) = count(depth, rounds) else {
            run(depth, rounds);
            println!("{depth:2} a doorbell: ran, {}", callgrind::NEEDS);
            continue;
        };
        println!("{depth:2} a doorbell: {:6.1}", steps.values().sum::<f64>());
        let mut rows: Vec<_> = steps.into_iter().collect();
        rows.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (step, cost) in rows.iter().filter(|row| row.1 >= 0.5) {
            println!("    {cost:6.2}  {step}");
        }
    }
}
