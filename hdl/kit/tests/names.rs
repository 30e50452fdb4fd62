//! The Verilog carries the Rust names.
use weir_kit::*;

#[derive(Clone, Copy, Bundle)]
struct Pair {
    #[bits(4)]
    lo: Sig,
    #[bits(4)]
    hi: Sig,
}

#[derive(Clone, Bundle)]
struct Io {
    #[input]
    pair: Pair,
    #[output]
    #[bits(8)]
    z: Sig,
    #[output]
    #[count(2)]
    out: Vec<Pair>,
}

struct NotASignal;

#[hw]
fn build() -> Module {
    module("names", "names.", &(), |io: Io| {
        // Things without nets pass untouched.
        let count = 3;
        let text = format!("{count}");
        let _plain = NotASignal;
        let closure = |x: Sig| x ^ 5;
        let sum = io.pair.lo + io.pair.hi;
        let (both, either) = (io.pair.lo & io.pair.hi, io.pair.lo | io.pair.hi);
        let Pair { lo: mine, hi } = Pair {
            lo: sum ^ 1,
            hi: sum ^ 2,
        };
        let list = [mine + 1, hi + 1];
        let held = Pair::reg(&());
        held.set(&Pair {
            lo: list[0],
            hi: list[1],
        });
        let maybe = [both].iter().map(|x| *x + either).next();
        let again = sum;
        let kept = {
            let sum = closure(again);
            sum + 1
        };
        let memory = Mem::new(16, 4);
        memory.write(kept.any(), io.pair.lo, kept);
        let read = memory.read_async(io.pair.hi);
        let mut total = maybe.unwrap_or(kept);
        for i in 0..2 {
            scope(&format!("lane{i}"), || {
                let step = total ^ (i + 1);
                total = step + read;
            });
        }
        let reg = reg(4, 0);
        reg.set(total);
        io.z.set(cat(&[reg, held.lo ^ held.hi]));
        for out in &io.out {
            out.set(&held);
        }
        unused(io.pair);
        let _ = text;
    })
}

#[test]
fn bindings_name_nets() {
    let m = build();
    let text = m.verilog();
    for line in [
        "wire [3:0] sum = pair_lo + pair_hi;",
        "wire [3:0] both = pair_lo & pair_hi;",
        "wire [3:0] either = pair_lo | pair_hi;",
        "wire [3:0] mine = sum ^ 4'd1;",
        "wire [3:0] hi = sum ^ 4'd2;",
        "wire [3:0] list_0 = mine + 4'd1;",
        "wire [3:0] list_1 = hi + 4'd1;",
        "reg  [3:0] held_lo;",
        "reg  [3:0] held_hi;",
        "wire [3:0] maybe = both + either;",
        // The inner `sum` is another net, the alias `again` none.
        "wire [3:0] sum_1 = sum ^ 4'd5;",
        "wire [3:0] kept = sum_1 + 4'd1;",
        "reg [3:0] memory [0:15];",
        "wire [3:0] read = memory[pair_hi];",
        "wire [3:0] lane0_step = maybe ^ 4'd1;",
        "wire [3:0] lane1_step = ",
        // A reserved word.
        "reg  [3:0] reg_;",
    ] {
        assert!(text.contains(line), "no `{line}` in\n{text}");
    }
    verilator_sys::lint(m.files(), m.name()).expect("no warning");
}

#[test]
fn port_names_are_flat() {
    let names: Vec<String> = build()
        .ports()
        .iter()
        .map(|p| format!("{} {:?} {}", p.name, p.dir, p.width))
        .collect();
    let want = [
        "pair_lo In 4",
        "pair_hi In 4",
        "z Out 8",
        "out_0_lo Out 4",
        "out_0_hi Out 4",
        "out_1_lo Out 4",
        "out_1_hi Out 4",
    ];
    assert_eq!(names, want);
}

#[test]
fn bundles_pack_and_unpack() {
    let m = module("packing", "", &(), |io: Io| {
        let packed = io.pair.pack();
        assert_eq!(packed.width(), Pair::width_of(&()));
        let back = Pair::unpack(&(), packed);
        // First field at bit 0; a part of what was packed is the signal itself.
        io.z.set(cat(&[back.hi, packed.bits(0, 4)]));
        io.out[0].set(&Pair::choose(
            back.pack().eq(io.pair.pack()),
            &back,
            &Pair::zero(&()),
        ));
        let sums = back.zip(&io.pair, &mut |a, b| a + b);
        io.out[1].set(&sums);
    });
    assert!(
        m.verilog().contains("wire [7:0] n1 = {pair_hi, pair_lo};"),
        "{}",
        m.verilog()
    );
    assert!(
        m.verilog().contains("assign out_1_hi = pair_hi + pair_hi;"),
        "{}",
        m.verilog()
    );
}
