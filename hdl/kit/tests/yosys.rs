//! Yosys reads the emitted Verilog as Verilator does, and infers the memories. Needs `scripts/setup formal`.
mod common;
use common::yosys::yosys;
use weir_kit::*;

#[derive(Clone, Bundle)]
#[bundle(params = u32)] // address width
struct RamPorts {
    #[input]
    #[bits(1)]
    we: Sig,
    #[input]
    #[bits(4)]
    lanes: Sig,
    #[input]
    #[bits(*p)]
    waddr: Sig,
    #[input]
    #[bits(36)]
    data: Sig,
    #[input]
    #[bits(1)]
    re: Sig,
    #[input]
    #[bits(*p)]
    raddr: Sig,
    #[output]
    #[bits(36)]
    q: Sig,
}

#[hw]
fn ram(name: &str, style: Style, bytes: bool, sync: bool) -> Module {
    module(
        name,
        "one memory.",
        &if sync { 9 } else { 6 },
        |io: RamPorts| {
            let store = Mem::new(1 << io.waddr.width(), 36).style(style);
            if bytes {
                store.write_bytes(io.we, io.lanes, io.waddr, io.data);
            } else {
                store.write(io.we, io.waddr, io.data);
                unused(io.lanes);
            }
            if sync {
                io.q.set(store.read(io.re, io.raddr));
            } else {
                io.q.set(store.read_async(io.raddr));
                unused(io.re);
            }
        },
    )
}

/// How many cells of the types that start so.
fn cells(stat: &str, prefix: &str) -> u32 {
    let lines = stat
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|w| w.len() == 2 && w[1].starts_with(prefix))
        .filter_map(|w| w[0].parse::<u32>().ok())
        .sum()
}

#[test]
fn memories_are_inferred() {
    for (name, style, bytes, sync, ecp5, xcup) in [
        ("ram_block", Style::Block, false, true, "DP16KD", "RAMB"),
        ("ram_bytes", Style::Block, true, true, "DP16KD", "RAMB"),
        (
            "ram_lut",
            Style::Distributed,
            false,
            false,
            "TRELLIS_DPR16X4",
            "RAM",
        ),
    ] {
        let m = ram(name, style, bytes, sync);
        for (family, script, cell, flops) in [
            ("ecp5", "synth_ecp5", ecp5, "TRELLIS_FF"),
            ("xcup", "synth_xilinx -family xcup -flatten", xcup, "FD"),
        ] {
            let run = format!("read_verilog {name}.v; {script} -top {name}");
            let (_, stat) = yosys(&format!("{name}_{family}"), &m.files(), &run);
            assert!(
                cells(&stat, cell) > 0,
                "{family}: no {cell} for {name}\n{stat}"
            );
            assert_eq!(
                cells(&stat, flops),
                0,
                "{family}: {name} takes flip-flops\n{stat}"
            );
        }
    }
}

#[test]
fn it_reads_one_of_everything() {
    let mut files = common::kitchen_sink().files();
    let cell = "module vendor_cell (input clk, input rst, input [7:0] d, output [7:0] q); assign q = d; endmodule\n";
    files.push(("vendor_cell.v".into(), cell.into()));
    for (name, read) in [
        ("sink_plain", "read_verilog"),
        ("sink_formal", "read_verilog -formal"),
    ] {
        let script = format!(
            "{read} kitchen_sink.v vendor_cell.v; prep -top kitchen_sink; check -assert; stat"
        );
        let (_, stat) = yosys(name, &files, &script);
        assert_eq!(
            cells(&stat, "$check") > 0 || cells(&stat, "$assert") > 0,
            read.contains("formal"),
            "{stat}"
        );
    }
}
