//! Memories, registers and whole designs in simulation, beside a plain model.
mod common;
use std::collections::VecDeque;
use verilator_sys::{Model, Sim, Spec};
use weir_kit::*;

struct Rng(u64);
impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }
}

fn start(m: &Module, defines: &[&str]) -> Sim {
    verilator_sys::lint(m.files(), m.name()).expect("no warnings");
    let mut spec = Spec::new(m.name(), m.files());
    for d in defines {
        spec = spec.define(*d);
    }
    let mut sim = Model::build(&spec)
        .expect("the model builds")
        .instance(7)
        .expect("a simulation");
    sim.reset(2).expect("a reset");
    sim
}

#[derive(Clone, Bundle)]
struct RamPorts {
    /// Write enable, and of the lanes.
    #[input]
    #[bits(1)]
    we: Sig,
    #[input]
    #[bits(4)]
    lanes: Sig,
    #[input]
    #[bits(3)]
    waddr: Sig,
    #[input]
    #[bits(32)]
    data: Sig,
    /// Read enable.
    #[input]
    #[bits(1)]
    re: Sig,
    #[input]
    #[bits(3)]
    raddr: Sig,
    /// Undefined on a collision.
    #[output]
    #[bits(32)]
    block: Sig,
    /// Old data on a collision.
    #[output]
    #[bits(32)]
    old: Sig,
    /// Asynchronous.
    #[output]
    #[bits(32)]
    now: Sig,
    /// Lanes of a byte.
    #[output]
    #[bits(32)]
    bytes: Sig,
    /// Contents from the start.
    #[output]
    #[bits(70)]
    rom: Sig,
    /// A register with parts.
    #[output]
    #[bits(32)]
    parts: Sig,
}

/// Turns bits round twice, which no fold sees.
fn flip(x: Sig, ones: u64) -> Sig {
    (x ^ ones) ^ ones
}

#[hw]
fn rams() -> Module {
    module("rams", "memories of every kind.", &(), |io: RamPorts| {
        let block = Mem::new(8, 32).style(Style::Block);
        block.write(io.we, io.waddr, io.data);
        io.block
            .set(block.read(io.re, io.re.mux(io.raddr, io.waddr)));
        let old = Mem::new(8, 32).style(Style::Block).read_old();
        old.write(io.we, io.waddr, io.data);
        io.old.set(old.read(io.re, io.raddr));
        let now = Mem::new(8, 32).style(Style::Distributed);
        now.write(io.we, io.waddr, io.data);
        io.now.set(now.read_async(io.raddr));
        let bytes = Mem::new(8, 32).style(Style::Block).read_old();
        // Unnamed expressions at every port.
        bytes.write_bytes(
            io.we & (io.we ^ 0),
            flip(io.lanes, 15),
            flip(io.waddr, 7),
            flip(io.data, 0xFFFF_FFFF),
        );
        io.bytes.set(bytes.read(io.re, flip(io.raddr, 7)));
        let rom = Mem::new(8, 70).init(&[vec![1, 2], vec![u64::MAX, 63]]);
        io.rom.set(rom.read_async(io.raddr));
        let parts = reg(32, 0x1234_5678);
        when(io.we, || {
            parts.set_index(io.data.trunc(5), io.data.bit(31));
            when(io.re, || {
                parts.set_word(io.lanes.trunc(2), io.data.bits(8, 8))
            });
            parts.set_bits(30, io.lanes.trunc(2));
        });
        io.parts.set(parts);
    })
}

/// Runs the RAMs against arrays; returns how many collisions on `block` gave something else than the old or new data.
fn run_rams(defines: &[&str]) -> u32 {
    let mut sim = start(&rams(), defines);
    let port = |sim: &Sim, n: &str| sim.input(n).unwrap_or_else(|e| panic!("{e}"));
    let ins = ["we", "lanes", "waddr", "data", "re", "raddr"].map(|n| port(&sim, n));
    let outs = ["block", "old", "now", "bytes", "parts"].map(|n| sim.output(n).expect("an output"));
    let rom = sim.wide_output("rom").expect("rom");
    let mut rng = Rng(11);
    let (mut mem, mut lanes_mem) = ([0u32; 8], [0u32; 8]);
    // Fill first: power-on contents are random.
    for a in 0..8u64 {
        for (i, v) in [1, 15, a, 0, 0, 0].into_iter().enumerate() {
            sim.set(ins[i], v);
        }
        sim.tick();
    }
    sim.reset(1).expect("a reset");
    let mut parts = 0x1234_5678u32;
    let (mut q, mut known, mut odd) = ([0u32; 3], false, 0);
    for _ in 0..3000 {
        let (we, re) = (rng.below(2) == 1, rng.below(3) > 0);
        let (lanes, waddr, raddr) = (rng.below(16), rng.below(8) as usize, rng.below(8) as usize);
        let data = rng.below(1 << 31) as u32 ^ (rng.below(2) << 31) as u32;
        let v = [
            we as u64,
            lanes,
            waddr as u64,
            data as u64,
            re as u64,
            raddr as u64,
        ];
        (0..6).for_each(|i| sim.set(ins[i], v[i]));
        sim.eval();
        assert_eq!(sim.get(outs[2]), mem[raddr] as u64, "asynchronous read");
        let mut word = [0u64; 2];
        sim.get_wide(rom, &mut word);
        assert_eq!(
            word,
            [[1, 2], [u64::MAX, 63]]
                .get(raddr)
                .copied()
                .unwrap_or([0, 0]),
            "rom[{raddr}]"
        );
        let hit = we && waddr == raddr;
        if re {
            q = [mem[raddr], mem[raddr], lanes_mem[raddr]];
            known = !hit;
        }
        if we {
            mem[waddr] = data;
            let mask: u32 = (0..4)
                .filter(|i| lanes >> i & 1 == 1)
                .map(|i| 0xFF << (i * 8))
                .sum();
            lanes_mem[waddr] = lanes_mem[waddr] & !mask | data & mask;
            let bit = data % 32;
            parts = parts & !(1 << bit) | (data >> 31) << bit;
            if re {
                let at = (lanes % 4) * 8;
                parts = parts & !(0xFF << at) | (data >> 8 & 0xFF) << at;
            }
            parts = parts & !(3 << 30) | (lanes as u32 & 3) << 30;
        }
        sim.tick();
        if known {
            assert_eq!(
                sim.get(outs[0]),
                q[0] as u64,
                "block RAM without a collision"
            );
        } else if re && hit && ![q[0] as u64, data as u64].contains(&sim.get(outs[0])) {
            odd += 1;
        }
        assert_eq!(sim.get(outs[1]), q[1] as u64, "read_old");
        assert_eq!(sim.get(outs[3]), q[2] as u64, "byte lanes");
        assert_eq!(sim.get(outs[4]), parts as u64, "parts of a register");
    }
    odd
}

#[test]
fn memories_hold_what_was_written() {
    assert_eq!(
        run_rams(&[]),
        0,
        "without the define a collision gives the old data"
    );
}

#[test]
fn a_collision_gives_random_data() {
    assert!(
        run_rams(&["WEIR_RANDOM_COLLISION"]) > 50,
        "no collision gave random data"
    );
}

#[test]
fn two_fifos_keep_the_order() {
    let mut sim = start(&common::pair(&common::Config { slots: 4 }), &[]);
    let ins = ["a_valid", "a_slot", "a_blocks", "z_ready"].map(|n| sim.input(n).expect("an input"));
    let outs =
        ["a_ready", "z_valid", "z_slot", "z_blocks"].map(|n| sim.output(n).expect("an output"));
    let mut rng = Rng(5);
    let (mut queue, mut next, mut valid) = (VecDeque::new(), 0u64, false);
    for cycle in 0..2000 {
        // Once offered, an offer stays (the module assumes it).
        valid |= rng.below(if cycle % 400 < 200 { 4 } else { 1 }) == 0;
        sim.set(ins[0], valid);
        sim.set(ins[1], next % 4);
        sim.set(ins[2], next);
        let ready = rng.below(if cycle % 400 < 200 { 1 } else { 4 }) == 0;
        sim.set(ins[3], ready);
        sim.eval();
        if sim.is(outs[1]) {
            let front = queue.front().copied();
            assert_eq!(
                front,
                Some((sim.get(outs[2]), sim.get(outs[3]))),
                "cycle {cycle}"
            );
        }
        let (push, pop) = (valid && sim.is(outs[0]), ready && sim.is(outs[1]));
        if push {
            queue.push_back((next % 4, next));
            next += 1;
            valid = false;
        }
        if pop {
            queue.pop_front();
        }
        sim.tick();
        sim.check().expect("no assertion fails");
    }
    assert!(next > 500, "only {next} went through");
}

#[test]
fn a_broken_rule_is_reported() {
    let mut sim = start(&common::fifo(&common::Config { slots: 4 }), &[]);
    let valid = sim.input("push_valid").expect("push_valid");
    sim.set(sim.input("pop_ready").expect("pop_ready"), 0u64);
    sim.set(valid, 1u64);
    sim.ticks(6);
    sim.check().expect("full, and the offer stays");
    // Takes the offer back while it stalls: breaks `push_stable`.
    sim.set(valid, 0u64);
    sim.ticks(2);
    let error = sim.check().expect_err("the assumption is broken");
    assert!(error.to_string().contains("push_stable"), "{error}");
}

#[derive(Clone, Bundle)]
struct ShiftPorts {
    #[input]
    #[bits(10)]
    a: Sig,
    #[input]
    #[bits(4)]
    x: Sig,
    #[input]
    #[bits(4)]
    y: Sig,
    #[output]
    #[bits(10)]
    left: Sig,
    #[output]
    #[bits(10)]
    right: Sig,
}

/// Verilator 5.048 adds such amounts without their carry, where verilator-sys does not forbid it.
#[test]
fn shifts_of_shifts_go_out_of_the_word() {
    let m = module("shifts", "shifts of shifts.", &(), |io: ShiftPorts| {
        io.left.set((io.a << io.x) << io.y);
        io.right.set((io.a >> io.x) >> io.y);
    });
    let mut sim = start(&m, &[]);
    let ins = ["a", "x", "y"].map(|n| sim.input(n).expect("an input"));
    let outs = ["left", "right"].map(|n| sim.output(n).expect("an output"));
    for (x, y) in (0..256u64).map(|i| (i / 16, i % 16)) {
        let a = 0b11_1010_0101u64;
        (0..3).for_each(|i| sim.set(ins[i], [a, x, y][i]));
        sim.eval();
        assert_eq!(sim.get(outs[0]), a << x << y & 0x3FF, "{x} {y}");
        assert_eq!(sim.get(outs[1]), a >> x >> y, "{x} {y}");
    }
}

#[derive(Clone, Bundle)]
struct CasePorts {
    #[input]
    #[bits(2)]
    sel: Sig,
    #[output]
    #[bits(4)]
    first: Sig,
    #[output]
    #[bits(4)]
    last: Sig,
}

/// A switch over all values becomes a case that ends in `default`: which must stand for its own value alone.
#[test]
fn arms_that_do_nothing_stay() {
    let m = module("arms", "a switch over all values.", &(), |io: CasePorts| {
        let (first, last) = (var(lit(9, 4)), var(lit(9, 4)));
        switch(io.sel, |s| {
            s.is(0, || first.set(1));
            s.is(1, || ());
            s.is(2, || first.set(2));
            s.is(3, || last.set(3));
        });
        io.first.set(first);
        io.last.set(last);
    });
    let mut sim = start(&m, &[]);
    let sel = sim.input("sel").expect("sel");
    let outs = ["first", "last"].map(|n| sim.output(n).expect("an output"));
    for (v, want) in [[1, 9], [9, 9], [2, 9], [9, 3]].into_iter().enumerate() {
        sim.set(sel, v);
        sim.eval();
        assert_eq!(outs.map(|o| sim.get(o)), want, "sel {v}");
    }
}
