//! The simulated card's top level: the card with a register at every input, so that a cycle is one evaluation.
//!
//! Without it a cycle evaluates what hangs on inputs twice: when the inputs change, and again after the edge, with the new
//! state and inputs that are about to change. With it the same edge that clocks the card lets the next cycle's inputs in, and
//! everything is evaluated once. The card sees the same inputs in the same cycles, and its outputs are read in the cycle that
//! they belong to: nothing of the card's timing changes.

use std::fmt::Write as _;

use weir_kit::{Dir, Module};

/// Appended to the card's name.
const SUFFIX: &str = "_held";

/// Name and Verilog of the top level around `card`: the same ports, and inputs that reach the card with the clock's edge.
/// Before the first edge the card is held in reset, with all inputs 0.
pub(crate) fn top(card: &Module) -> (String, String) {
    let name = format!("{}{SUFFIX}", card.name());
    let mut ports = String::from("  input  wire clk,\n  input  wire rst");
    let mut registers = String::from("  reg  rst_q = 1'b1;\n");
    let mut edge = String::from("    rst_q <= rst;\n");
    let mut pins = String::from("    .clk(clk),\n    .rst(rst_q)");
    for port in card.ports() {
        let (name, top) = (&port.name, port.width - 1);
        let (dir, inner) = match port.dir {
            Dir::In => ("input ", format!("{name}_q")),
            Dir::Out => ("output", name.clone()),
        };
        // Writing to a String does not fail.
        let _ = write!(ports, ",\n  {dir} wire [{top}:0] {name}");
        let _ = write!(pins, ",\n    .{name}({inner})");
        if port.dir == Dir::In {
            let _ = writeln!(registers, "  reg  [{top}:0] {inner} = {}'d0;", port.width);
            let _ = writeln!(edge, "    {inner} <= {name};");
        }
    }
    let instance = card.name();
    let text = format!(
        "// {name}: {instance} with a register at every input, for the simulator.\nmodule {name} (\n{ports}\n);\n{registers}  \
         always @(posedge clk) begin\n{edge}  end\n  {instance} u_card (\n{pins}\n  );\nendmodule\n"
    );
    (name, text)
}
