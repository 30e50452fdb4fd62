//! What an I/O costs the host: software accounting of a LUN's budget, scheme by scheme, beside our driver's whole path of
//! submission, doorbell and completion, which needs none, since the card does it. `cargo bench --bench accounting`.
//!
//! Instructions and locked instructions (atomic read-modify-writes: those with a lock prefix, and `xchg` with memory) are
//! counted by callgrind, exactly, on one thread, as executed by this very program; ns are measured on this machine, the
//! best of some runs, with one and with two threads that share the LUN. Commands come 8 at a time. The software's figures
//! are what accounting costs on top of a driver's path, not instead of it. Our device is an echo in the same thread
//! (`ours.rs`): in ns its work is included, in instructions not.
//!
//! With `WEIR_BENCH_JSON=file` the table goes there as JSON too.

#[path = "../../host/driver/benches/callgrind.rs"]
mod callgrind;
#[path = "../../host/driver/tests/mock/mod.rs"]
mod mock;
mod ours;
mod sbitmap;
mod schemes;

use object::{Object, ObjectSegment};
use schemes::{Cpu, HostCount, QueueTags, Scheme, SharedBitmap, SharedCounter, check};
use serde_json::json;
use std::time::Instant;

/// Commands at a time.
const BATCH: usize = 8;
const OURS: &str = "our submit, doorbell, poll";

/// What is counted: `rounds` times [`BATCH`] I/Os in, and out.
#[inline(never)]
fn account_work<S: Scheme>(scheme: &S, cpu: &mut Cpu, rounds: u64) {
    for _ in 0..rounds {
        let mut held = [None; BATCH];
        for place in &mut held {
            *place = scheme.get(cpu);
        }
        for held in held.into_iter().flatten() {
            scheme.put(cpu, held);
        }
    }
}

fn accounting<S: Scheme>(threads: usize, rounds: u64) -> f64 {
    let scheme = S::new(threads);
    parallel((0..threads).map(Cpu::new).collect(), rounds, |mut cpu| {
        account_work(&scheme, &mut cpu, rounds);
    })
}

fn ours(threads: usize, rounds: u64) -> f64 {
    let pci = ours::EchoPci::new();
    let (controller, lanes) = ours::lanes(&pci, threads, BATCH);
    let ns = parallel(lanes, rounds, |mut lane| {
        lane.account_work(rounds);
        lane.end();
    });
    drop(controller);
    ns
}

/// Runs `work` for each of `items` in a thread of its own; ns an I/O of a thread.
fn parallel<T: Send>(items: Vec<T>, rounds: u64, work: impl Fn(T) + Sync) -> f64 {
    let barrier = std::sync::Barrier::new(items.len());
    let ns: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = items
            .into_iter()
            .map(|item| {
                scope.spawn(|| {
                    barrier.wait();
                    let start = Instant::now();
                    work(item);
                    start.elapsed().as_nanos() as f64
                })
            })
            .collect();
        let times = threads.into_iter().map(|thread| thread.join());
        times.map(|ns| ns.expect("a thread panicked")).collect()
    });
    ns.iter().sum::<f64>() / ns.len() as f64 / (rounds * BATCH as u64) as f64
}

/// One row of the table: name, and what runs it with threads and rounds.
type Row = (&'static str, fn(usize, u64) -> f64);

const ROWS: [Row; 5] = [
    (SharedCounter::NAME, accounting::<SharedCounter>),
    (SharedBitmap::NAME, accounting::<SharedBitmap>),
    (QueueTags::NAME, accounting::<QueueTags>),
    (HostCount::NAME, accounting::<HostCount>),
    (OURS, ours),
];

/// Instructions and locked instructions an I/O of row `index`.
fn count(index: usize) -> Option<(f64, f64)> {
    let rounds = 1000;
    let args = ["--run".to_owned(), index.to_string(), rounds.to_string()];
    let counted = callgrind::count(&args, &["*account_work*", "weir_device"])?;
    let exe = std::fs::read(std::env::current_exe().expect("this program's path"));
    let exe = exe.expect("this program's file");
    let exe = object::File::parse(&*exe).expect("an ELF file");
    let (mut all, mut locked) = (0, 0);
    for instruction in &counted {
        all += instruction.times;
        // What libraries are called for here (memory set or moved) locks nothing.
        if instruction
            .address
            .is_some_and(|address| is_locked(&exe, address))
        {
            locked += instruction.times;
        }
    }
    let ios = (rounds * BATCH) as f64;
    assert!(all > 0, "callgrind collected nothing");
    Some((all as f64 / ios, locked as f64 / ios))
}

/// Whether the x86 instruction at `address` of the program is an atomic read-modify-write.
fn is_locked(exe: &object::File, address: u64) -> bool {
    let bytes = exe
        .segments()
        .find_map(|segment| segment.data_range(address, 8).ok().flatten())
        .expect("an instruction of this program");
    // 66: operand size; 40 to 4F: REX. `xchg` with memory locks by itself; its ModRM mode is not 3 then.
    let rest = match bytes {
        [0x66, rest @ ..] => rest,
        _ => bytes,
    };
    match rest {
        [0xF0, ..] => true,
        [0x40..=0x4F, 0x86 | 0x87, modrm, ..] | [0x86 | 0x87, modrm, ..] => *modrm < 0xC0,
        _ => false,
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, word, index, rounds] = args.as_slice()
        && word == "--run"
    {
        let index: usize = index.parse().expect("a row");
        ROWS[index].1(1, rounds.parse().expect("rounds"));
        return;
    }
    check::<SharedCounter>();
    check::<SharedBitmap>();
    check::<QueueTags>();
    check::<HostCount>();
    println!(
        "an I/O, {BATCH} at a time             instructions  locked   ns, 1 thread   2 threads"
    );
    let mut rows = Vec::new();
    for (index, (name, run)) in ROWS.iter().enumerate() {
        let best = |threads| {
            (0..5)
                .map(|_| run(threads, 100_000))
                .fold(f64::MAX, f64::min)
        };
        let ns = [best(1), best(2)];
        let counted = if cfg!(target_arch = "x86_64") {
            count(index)
        } else {
            None
        };
        match counted {
            Some((all, locked)) => print!("{name:<32} {all:12.1} {locked:7.2}"),
            None => print!("{name:<32} {:>12} {:>7}", "-", "-"),
        }
        println!("   {:12.1} {:11.1}", ns[0], ns[1]);
        rows.push(json!({
            "name": name,
            "instructions": counted.map(|c| c.0),
            "locked": counted.map(|c| c.1),
            "ns_1_thread": ns[0],
            "ns_2_threads": ns[1],
        }));
    }
    if rows.iter().any(|row| row["instructions"].is_null()) {
        println!("-: {} on x86-64", callgrind::NEEDS);
    }
    if let Some(path) = std::env::var_os("WEIR_BENCH_JSON") {
        let text = format!("{:#}\n", json!({"batch": BATCH, "rows": rows}));
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("WEIR_BENCH_JSON={}: {error}", path.display());
            std::process::exit(1);
        }
    }
}
