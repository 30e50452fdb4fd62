//! Small hand-written Verilog through the whole path: build, load, ports, assertions, traces, threads.

use std::error::Error as StdError;

use rayon::prelude::*;
use verilator_sys::{Dir, Error, Model, Opt, Port, Severity, Spec, WideOut, lint};

type Result = std::result::Result<(), Box<dyn StdError>>;

const COUNTER: &str = "
module counter(input wire clk, input wire rst, input wire en, output reg [7:0] count, output wire next_odd);
    always @(posedge clk) if (rst) count <= 0; else if (en) count <= count + 1;
    assign next_odd = count[0] ^ en;
`ifdef WEIR_ASSERT
    always @(posedge clk) if (!rst && count == `LIMIT) $error(\"count is %0d\", count);
`endif
endmodule
";

fn counter() -> Spec {
    Spec::new("counter", [("counter.v", COUNTER)]).define("LIMIT=8'd7")
}

const WIDE: &str = "
module wide(input wire clk, input wire [255:0] a, input wire [64:0] b, output reg [255:0] swapped,
            output wire [64:0] inverted, output wire [99:0] low, input wire [63:0] q, output wire [63:0] q_out,
            input wire [16:0] s, output wire [16:0] s_out, input wire [8:0] h, output wire [8:0] h_out);
    always @(posedge clk) swapped <= {a[127:0], a[255:128]};
    assign inverted = ~b;
    assign low = a[99:0];
    assign q_out = q + 1;
    assign s_out = ~s;
    assign h_out = ~h;
endmodule
";

const MEMORIES: &str = "
module store(input wire clk, input wire [1:0] at, input wire [43:0] in, output wire [43:0] out);
    reg [43:0] words [0:2];
    always @(posedge clk) words[at] <= in;
    assign out = words[at];
endmodule
module memories(input wire clk, input wire [1:0] at, input wire [43:0] in, output wire [43:0] out);
    store u_store(.clk(clk), .at(at), .in(in), .out(out));
endmodule
";

#[test]
fn a_watched_memory_can_be_read() -> Result {
    let spec = Spec::new("memories", [("memories.v", MEMORIES)]);
    for spec in [spec.clone(), spec.clone().fast()] {
        let model = Model::build(&spec.watch("words"))?;
        assert_eq!(model.memory("others"), None);
        let words = model.memory("words").ok_or("no memory")?;
        assert_eq!((words.width(), words.words()), (44, 3));
        let mut sim = model.instance(1)?;
        let (at, input) = (sim.input("at")?, sim.input("in")?);
        for n in 0..3u32 {
            sim.set(at, n);
            sim.set(input, (1u64 << 40) + u64::from(n));
            sim.tick();
        }
        let read: Vec<_> = (0..4).map(|n| sim.word(words, n)).collect();
        let value = |n: u64| Some((1 << 40) + n);
        assert_eq!(read, [value(0), value(1), value(2), None]);
    }
    for memory in ["at", "nothing"] {
        let error = Model::build(&spec.clone().watch(memory)).err();
        let text = error.map(|e| e.to_string()).unwrap_or_default();
        let said = format!("memory `{memory}` is there 0 times");
        assert!(text.contains(&said), "{memory}: {text}");
    }
    Ok(())
}

#[test]
fn counts() -> Result {
    let mut sim = Model::build(&counter().asserts(false))?.instance(1)?;
    let (en, count, next_odd) = (
        sim.input("en")?,
        sim.output("count")?,
        sim.output("next_odd")?,
    );
    sim.reset(2)?;
    assert_eq!((sim.get(count), sim.cycles()), (0, 2));
    for n in 0..600u64 {
        let enabled = n % 3 != 0;
        sim.set(en, enabled);
        let before = sim.get(count);
        sim.eval();
        assert_eq!(sim.get(count), before, "eval is no clock edge");
        assert_eq!(sim.is(next_odd), (before % 2 == 1) ^ enabled);
        sim.tick();
        assert_eq!(sim.get(count), (before + u64::from(enabled)) % 256);
    }
    // An input that changes after eval counts, with what hangs on it.
    for enabled in [true, false, true, true] {
        sim.set(en, !enabled);
        sim.eval();
        let before = sim.get(count);
        sim.set(en, enabled);
        sim.tick();
        let after = (before + u64::from(enabled)) % 256;
        assert_eq!(sim.get(count), after);
        assert_eq!(sim.is(next_odd), (after % 2 == 1) ^ enabled);
    }
    // Without evals in between, and many at once: the same.
    sim.set(en, 1);
    let before = sim.get(count);
    for _ in 0..5 {
        sim.tick();
    }
    sim.ticks(10);
    assert_eq!(sim.get(count), (before + 15) % 256);
    sim.skip(1000);
    assert_eq!(
        (sim.get(count), sim.cycles()),
        ((before + 15) % 256, 606 + 15 + 1000)
    );
    sim.check()?;
    Ok(())
}

#[test]
fn wide_ports() -> Result {
    let mut sim = Model::build(&Spec::new("wide", [("wide.v", WIDE)]))?.instance(1)?;
    let (a, b) = (sim.wide_input("a")?, sim.wide_input("b")?);
    let (swapped, inverted, low) = (
        sim.wide_output("swapped")?,
        sim.wide_output("inverted")?,
        sim.wide_output("low")?,
    );
    assert_eq!(
        (a.width(), a.words(), b.width(), b.words()),
        (256, 4, 65, 2)
    );
    let value = [0x0123_4567_89ab_cdef, 2, 3, 0xfedc_ba98_7654_3210];
    sim.set_wide(a, &value);
    sim.set_wide(b, &[0xff, 1]);
    sim.tick();
    let mut out = [0; 4];
    sim.get_wide(swapped, &mut out);
    assert_eq!(out, [value[2], value[3], value[0], value[1]]);
    sim.get_wide(WideOut::from(a), &mut out);
    assert_eq!(out, value);
    let mut out = [0; 2];
    sim.get_wide(inverted, &mut out);
    assert_eq!(out, [!0xff, 0]);
    sim.get_wide(low, &mut out);
    assert_eq!(out, [value[0], 2]);
    for (name, width) in [("q", 64), ("s", 17), ("h", 9)] {
        let (input, output) = (sim.input(name)?, sim.output(&format!("{name}_out"))?);
        let ones = u64::MAX >> (64 - width);
        let value = 0xfedc_ba98_7654_3210 & ones;
        sim.set(input, value);
        sim.eval();
        assert_eq!(
            sim.get(output),
            if name == "q" {
                value + 1
            } else {
                !value & ones
            }
        );
        // A narrow port by the wide calls.
        let (input, output) = (
            sim.wide_input(name)?,
            sim.wide_output(&format!("{name}_out"))?,
        );
        let mut word = [0];
        sim.set_wide(input, &[1]);
        sim.eval();
        sim.get_wide(output, &mut word);
        assert_eq!(word[0], if name == "q" { 2 } else { !1 & ones });
    }
    Ok(())
}

#[test]
fn failed_assertions_are_reported() -> Result {
    let model = Model::build(&counter())?;
    let mut sim = model.instance(3)?;
    let en = sim.input("en")?;
    sim.reset(1)?;
    sim.set(en, 1);
    sim.ticks(7);
    sim.check()?;
    sim.ticks(3);
    let error = sim.check().expect_err("the counter passed 7");
    assert_eq!(
        (error.file.as_str(), error.line, error.cycle, error.failures),
        ("counter.v", 6, 9, 1)
    );
    assert!(error.message.contains("count is 7"), "{error}");
    assert!(sim.printed().contains("count is 7"));
    // It goes on, and another instance knows nothing of it.
    sim.clear();
    sim.ticks(10);
    sim.check()?;
    let mut other = model.instance(3)?;
    other.reset(1)?;
    other.check()?;
    sim.ticks(256);
    sim.check().expect_err("it comes round");
    Ok(())
}

#[test]
fn instances_print_for_themselves() -> Result {
    let text = "module p(input clk, input [7:0] id);
        always @(posedge clk) if (id == 9) begin $display(\"bye\"); $finish; end else $display(\"id %0d\", id);
    endmodule";
    let model = Model::build(&Spec::new("p", [("p.v", text)]))?;
    let mut sims = [model.instance(1)?, model.instance(2)?];
    let id = model.input("id")?;
    for n in 0..3 {
        for (at, sim) in sims.iter_mut().enumerate() {
            sim.set(id, n * 2 + at);
            sim.tick();
        }
    }
    assert_eq!(sims[0].printed(), "id 0\nid 2\nid 4\n");
    assert_eq!(sims[1].printed(), "id 1\nid 3\nid 5\n");
    sims[0].set(id, 9);
    sims[0].tick();
    assert!(sims[0].finished() && !sims[1].finished());
    sims[0].check()?;
    Ok(())
}

#[test]
fn a_loop_that_does_not_settle_is_an_error() -> Result {
    let text = "module o(input clk, input en, output wire y); wire z; assign z = en & ~y; assign y = z; endmodule";
    let mut sim = Model::build(&Spec::new("o", [("o.v", text)]))?.instance(1)?;
    let en = sim.input("en")?;
    sim.check()?;
    sim.set(en, 1);
    sim.eval();
    let error = sim.check().expect_err("y = ~y");
    assert!(error.message.contains("converge"), "{error}");
    sim.ticks(100); // dead: returns at once
    Ok(())
}

#[test]
fn registers_start_random_by_seed_alone() -> Result {
    let text = "module r(input clk, input rst, output reg [63:0] state, output reg [31:0] draw);
        always @(posedge clk) draw <= $urandom;
    endmodule";
    let model = Model::build(&Spec::new("r", [("r.v", text)]))?;
    let (state, draw) = (model.output("state")?, model.output("draw")?);
    let run = |seed| -> std::result::Result<Vec<u64>, Error> {
        let mut sim = model.instance(seed)?;
        let mut seen = vec![sim.get(state)];
        for _ in 0..20 {
            sim.tick();
            seen.push(sim.get(draw));
        }
        Ok(seen)
    };
    let alone = [run(1)?, run(2)?];
    assert_ne!(alone[0][0], alone[1][0]);
    assert!(alone.iter().all(|a| a[1] != a[2]));
    assert_eq!(run(1)?, alone[0]);
    // Two in turns on one thread, while others are created on other threads: the same draws.
    let mut pair = [model.instance(1)?, model.instance(2)?];
    let seen: Vec<_> = (0..20)
        .map(|_| {
            rayon::join(|| drop(model.instance(7)), || ());
            pair.each_mut().map(|sim| {
                sim.tick();
                sim.get(draw)
            })
        })
        .collect();
    assert_eq!(seen.iter().map(|s| s[0]).collect::<Vec<_>>(), alone[0][1..]);
    assert_eq!(seen.iter().map(|s| s[1]).collect::<Vec<_>>(), alone[1][1..]);
    let all: Vec<_> = (0..64u64)
        .into_par_iter()
        .map(|n| run(n % 2 + 1))
        .collect::<std::result::Result<_, _>>()?;
    assert!(
        all.iter()
            .enumerate()
            .all(|(n, seen)| *seen == alone[n % 2])
    );
    Ok(())
}

#[test]
fn many_threads() -> Result {
    // Different models built at once, and instances of each run and moved between threads.
    let sums: Vec<u64> = (1..=6u64)
        .into_par_iter()
        .map(|step| -> std::result::Result<u64, Error> {
            let text = format!(
                "module m(input clk, input rst, output reg [31:0] n); always @(posedge clk) n <= rst ? 0 : n + {step}; endmodule"
            );
            let model = Model::build(&Spec::new("m", [("m.v", text)]))?;
            let n = model.output("n")?;
            (0..8u64)
                .into_par_iter()
                .map(|seed| {
                    let mut sim = model.instance(seed)?;
                    sim.reset(1)?;
                    let mut sim = std::thread::spawn(move || {
                        sim.ticks(1000);
                        sim
                    })
                    .join()
                    .expect("ticking does not panic");
                    sim.ticks(seed);
                    Ok(sim.get(n))
                })
                .sum()
        })
        .collect::<std::result::Result<_, _>>()?;
    assert_eq!(
        sums,
        (1..=6)
            .map(|step| step * (8 * 1000 + 28))
            .collect::<Vec<u64>>()
    );
    Ok(())
}

#[test]
fn fst_trace() -> Result {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("t.fst");
    let mut sim =
        Model::build(&counter().trace(true).asserts(false).opt(Opt::Build))?.instance(1)?;
    let en = sim.input("en")?;
    sim.reset(1)?;
    sim.trace(&path)?;
    sim.set(en, 1);
    sim.ticks(100);
    sim.trace_end();
    let bytes = std::fs::read(&path)?;
    // FST header block: type 0, length 329 (u64, big-endian), start and end time, the endianness test e in this order.
    assert_eq!(
        bytes[..9],
        [0, 0, 0, 0, 0, 0, 0, 1, 0x49],
        "an FST header block"
    );
    let be = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    assert_eq!((be(9), be(17)), (6, 404), "cycles 1 to 101 at 4 ns");
    assert_eq!(
        f64::from_le_bytes(bytes[25..33].try_into()?),
        std::f64::consts::E
    );
    assert!(bytes.len() > 500);
    // A second trace, ended by dropping.
    let second = dir.path().join("u.fst");
    sim.trace(&second)?;
    sim.ticks(3);
    drop(sim);
    assert!(std::fs::metadata(&second)?.len() > 300);
    let mut sim = Model::build(&counter())?.instance(1)?;
    assert!(matches!(
        sim.trace(dir.path().join("v.fst")),
        Err(Error::Trace { .. })
    ));
    assert!(matches!(
        sim.trace("no/such/folder/v.fst"),
        Err(Error::Io { .. })
    ));
    Ok(())
}

#[test]
fn ports_by_name() -> Result {
    let model = Model::build(&counter())?;
    let text = |error: Error| error.to_string();
    assert_eq!(
        text(model.output("coutn").expect_err("misspelt")),
        "`counter` has no output of at most 64 bits `coutn`; nearest: `count`, `clk`, `en`"
    );
    assert!(
        text(model.input("count").expect_err("wrong way")).ends_with(": it is an output of 8 bits")
    );
    let wide = Model::build(&Spec::new("wide", [("wide.v", WIDE)]))?;
    assert!(
        text(wide.input("a").expect_err("too wide"))
            .ends_with(": it is an input of 256 bits; use wide_input")
    );
    let names: Vec<_> = model
        .ports()
        .map(|p| (p.name.as_str(), p.width, p.dir))
        .collect();
    assert!(names.contains(&("count", 8, Dir::Output)) && names.contains(&("en", 1, Dir::Input)));
    // Names that C++ or Verilator has to change.
    let odd = "module odd(input clk, input delete, input a__b, output y); assign y = delete & a__b; endmodule";
    let mut sim = Model::build(&Spec::new("odd", [("odd.v", odd)]))?.instance(1)?;
    let (delete, ab, y) = (sim.input("delete")?, sim.input("a__b")?, sim.output("y")?);
    sim.set(delete, 1);
    sim.set(ab, 1);
    sim.eval();
    assert!(sim.is(y));
    Ok(())
}

#[test]
fn the_port_list_is_checked() -> Result {
    let port = |name: &str, width, dir| Port {
        name: name.into(),
        width,
        dir,
    };
    let right = [
        port("clk", 1, Dir::Input),
        port("rst", 1, Dir::Input),
        port("en", 1, Dir::Input),
        port("count", 8, Dir::Output),
        port("next_odd", 1, Dir::Output),
    ];
    Model::build(&counter().ports(right.clone()))?;
    let mut wrong = right.to_vec();
    wrong[3].width = 9;
    wrong[4].name = "odd".into();
    let Err(Error::Ports { problem, .. }) = Model::build(&counter().ports(wrong)) else {
        panic!("it must differ")
    };
    assert_eq!(
        problem,
        "`count` is an Output of 8 bits in the Verilog, not an Output of 9; `odd` is not a port of the Verilog module; \
         the Verilog's `next_odd` is not in the port list"
    );
    Ok(())
}

#[test]
fn bad_verilog_names_file_and_line() {
    let text =
        "module bad(input clk, output y);\n    assign y = nothing;\n    assign y = ;\nendmodule\n";
    let Err(Error::Verilog { diagnostics, .. }) =
        Model::build(&Spec::new("bad", [("bad.v", text)]))
    else {
        panic!("it must not build")
    };
    let first = &diagnostics[0];
    assert_eq!(
        (first.severity, first.file.as_str(), first.line),
        (Severity::Error, "bad.v", 3),
        "{diagnostics:?}"
    );
    let Err(error) = Model::build(&Spec::new(
        "top",
        [("bad.v", "module other(input clk); endmodule")],
    )) else {
        panic!("there is no such top module")
    };
    assert!(error.to_string().contains("top"), "{error}");
    for (top, name) in [("t", "../t.v"), ("t t", "t.v"), ("t", "t.vh")] {
        let spec = Spec::new(top, [(name, "module t; endmodule")]);
        assert!(
            matches!(Model::build(&spec), Err(Error::Spec { .. })),
            "{top} {name}"
        );
    }
}

#[test]
fn lint_allows_no_warning() -> Result {
    lint(
        [(
            "ok.v",
            "module ok(input wire a, output wire y);\n    assign y = ~a;\nendmodule\n",
        )],
        "ok",
    )?;
    let text = "module w(input wire [3:0] a, output wire [1:0] y);\n    assign y = a;\nendmodule\n";
    let Err(Error::Verilog { diagnostics, .. }) = lint([("w.v", text)], "w") else {
        panic!("widths differ")
    };
    let d = &diagnostics[0];
    assert_eq!((d.severity, d.line), (Severity::Warning, 2));
    assert!(d.code.starts_with("WIDTH"), "{d}");
    Ok(())
}

#[test]
#[should_panic(expected = "port `en` of `counter` has 1 bits: 0x2 does not fit")]
fn a_value_that_does_not_fit() {
    let mut sim = Model::build(&counter())
        .and_then(|m| m.instance(1))
        .expect("builds");
    let en = sim.input("en").expect("there");
    sim.set(en, 2);
}

#[test]
#[should_panic(expected = "another model")]
fn a_handle_of_another_model() {
    let wide = Model::build(&Spec::new("wide", [("wide.v", WIDE)])).expect("builds");
    let sim = Model::build(&counter())
        .and_then(|m| m.instance(1))
        .expect("builds");
    sim.get(wide.output("q_out").expect("there"));
}

/// A model whose C++ is several translation units, fast and slow ones.
#[test]
fn a_large_model() -> Result {
    let mut text =
        String::from("module lanes(input clk, input rst, input [31:0] x, output [31:0] y);\n");
    let lanes = 400;
    for n in 0..lanes {
        let last = if n == 0 {
            "x".into()
        } else {
            format!("r{}", n - 1)
        };
        text += &format!(
            "reg [31:0] r{n}; reg [31:0] m{n} [0:15];
            always @(posedge clk) begin
                if (rst) r{n} <= {n}; else r{n} <= {last} + 1;
                if (x[{bit}]) begin m{n}[{last}[3:0]] <= r{n} ^ {last}; if ({last} == {n}) $display(\"{n}\"); end
            end\n",
            bit = n % 32
        );
    }
    text += &format!(
        "assign y = r{} + (^m{}[x[3:0]] & 0);\nendmodule\n",
        lanes - 1,
        lanes / 2
    );
    let model = Model::build(&Spec::new("lanes", [("lanes.v", text)]))?;
    let mut sim = model.instance(1)?;
    let (x, y) = (sim.input("x")?, sim.output("y")?);
    sim.reset(1)?;
    sim.set(x, 0x1_0000);
    for n in 1..=lanes {
        sim.tick();
        // r[i] after n cycles: the start value of r[i - n], and n.
        let want = if n < lanes {
            lanes - 1 - n + n
        } else {
            0x1_0000 + lanes
        };
        assert_eq!(sim.get(y), want as u64, "after {n} cycles");
    }
    Ok(())
}
