//! Designs that several tests share.
#![allow(dead_code)]
pub mod yosys;

use weir_kit::*;

pub struct Config {
    pub slots: u64,
}

#[derive(Clone, Copy, Bundle)]
#[bundle(params = Config)]
pub struct Cmd {
    /// Slot of the command.
    #[bits(clog2(p.slots))]
    slot: Sig,
    /// Blocks to move.
    #[bits(16)]
    blocks: Sig,
}

#[derive(Clone, Bundle)]
#[bundle(params = Config)]
pub struct FifoPorts {
    /// Commands to keep.
    #[input]
    push: Stream<Cmd>,
    /// The oldest command.
    #[output]
    pop: Stream<Cmd>,
    /// Commands held.
    #[output]
    #[bits(bits_for(p.slots))]
    used: Sig,
}

#[derive(Clone, Copy, HwEnum)]
enum State {
    Empty,
    Some,
    Full,
}

#[hw]
pub fn fifo(cfg: &Config) -> Module {
    let addr = clog2(cfg.slots);
    module(
        format!("fifo_{}", cfg.slots),
        "keeps commands in order.",
        cfg,
        |io: FifoPorts| {
            let store = Mem::new(cfg.slots, Cmd::width_of(cfg)).style(Style::Distributed);
            let head = reg(addr, 0);
            let tail = reg(addr, 0);
            let count = reg(addr + 1, 0);
            let state = State::Empty.reg();

            let push = io.push.fire();
            let pop = io.pop.fire();
            store.write(push, tail, io.push.payload.pack());
            io.push.ready.set(state.ne(State::Full));
            io.pop.offer(
                state.ne(State::Empty),
                &Cmd::unpack(cfg, store.read_async(head)),
            );
            io.used.set(count);
            when(push, || tail.set(tail + 1));
            when(pop, || head.set(head + 1));
            comment("Both at once leave the count alone.");
            when(push & !pop, || {
                count.set(count + 1);
                state.set(count.eq(cfg.slots - 1).mux(State::Full, State::Some));
            })
            .elsewhen(pop & !push, || {
                count.set(count - 1);
                state.set(count.eq(1).mux(State::Empty, State::Some));
            });
            assert("count_in_range", count.le(cfg.slots));
            assert(
                "state_agrees",
                state.is(State::Full).eq(count.eq(cfg.slots)),
            );
            cover("gets_full", state.is(State::Full));
            io.push.assume_stable("push_stable");
            io.pop.assert_stable("pop_stable");
        },
    )
}

#[derive(Clone, Bundle)]
#[bundle(params = Config)]
pub struct PairPorts {
    /// In.
    #[input]
    a: Stream<Cmd>,
    /// Out.
    #[output]
    z: Stream<Cmd>,
}

#[hw]
pub fn pair(cfg: &Config) -> Module {
    let fifo = fifo(cfg);
    module("fifo_pair", "two FIFOs in a row.", cfg, |io: PairPorts| {
        let u_first = instance::<FifoPorts>("u_first", &fifo, cfg);
        let u_second = instance::<FifoPorts>("u_second", &fifo, cfg);
        u_first.push.set(&io.a);
        u_second.push.set(&u_first.pop);
        io.z.set(&u_second.pop);
        unused(u_first.used);
        unused(u_second.used);
    })
}

#[derive(Clone, Copy, HwEnum)]
enum Phase {
    Park = 1,
    Admit = 2,
    Complete = 5,
}

#[derive(Clone, Copy, Bundle)]
pub struct Flags {
    /// Do it.
    #[bits(1)]
    go: Sig,
    /// Done, the other way.
    #[flip]
    #[bits(1)]
    done: Sig,
}

#[derive(Clone, Bundle)]
pub struct SinkPorts {
    /// Four lanes.
    #[input]
    #[count(4)]
    #[bits(8)]
    lane: Vec<Sig>,
    /// A wide word.
    #[input]
    #[bits(256)]
    wide: Sig,
    /// Which lane, bit, word.
    #[input]
    #[bits(2)]
    sel: Sig,
    /// Which bit.
    #[input]
    #[bits(8)]
    at: Sig,
    /// Address.
    #[input]
    #[bits(4)]
    addr: Sig,
    /// Write enable.
    #[input]
    #[bits(1)]
    we: Sig,
    /// Byte enables.
    #[input]
    #[bits(32)]
    strobe: Sig,
    /// Handshake with something else.
    #[input]
    #[count(2)]
    flags: [Flags; 2],
    /// A bare stream.
    #[input]
    #[bits(5)]
    num: Stream<Sig>,
    /// Everything, mixed.
    #[output]
    #[bits(256)]
    out: Sig,
    /// The lane.
    #[output]
    #[bits(8)]
    picked: Sig,
    /// Set bits.
    #[output]
    #[bits(6)]
    ones: Sig,
    /// Reserved words are only a trouble of whole names.
    #[output]
    #[bits(3)]
    reg_type: Sig,
}

#[derive(Clone, Bundle)]
pub struct BoxPorts {
    /// In.
    #[input]
    #[bits(8)]
    d: Sig,
    /// Out.
    #[output]
    #[bits(8)]
    q: Sig,
}

/// One of everything.
#[hw]
pub fn kitchen_sink() -> Module {
    module(
        "kitchen_sink",
        "one of everything that the generator can write.\nA second line.",
        &(),
        |io: SinkPorts| {
            let bram = Mem::new(16, 256).style(Style::Block);
            bram.write_bytes(io.we, io.strobe, io.addr, io.wide);
            let old = Mem::new(16, 9).style(Style::Block).read_old();
            old.write(io.we, io.addr, io.at.zext(9));
            let lut = Mem::new(12, 8).style(Style::Distributed);
            lut.write(io.we, io.addr, io.at);
            let two = Mem::new(4, 8).style(Style::Registers).write_ports(2);
            two.write(io.we, io.sel, io.lane[0]);
            two.write(io.flags[0].go, io.sel, io.lane[1]);
            let rom = Mem::new(4, 70).init(&[vec![1], vec![u64::MAX, 5], vec![0x1234_5678_9abc]]);

            let from_bram = bram.read(lit(1, 1), io.addr);
            let from_old = old.read(io.we, io.addr);
            let from_lut = lut.read_async(io.addr);
            let from_two = two.read_async(io.sel);
            let from_rom = rom.read(io.we, io.sel);

            let phase = Phase::Park.reg();
            switch(phase, |s| {
                s.is(Phase::Park, || phase.set(Phase::Admit));
                s.is_any([Phase::Admit], || {
                    when(io.we, || phase.set(Phase::Complete))
                });
                s.default(|| phase.set(Phase::Park));
            });
            io.reg_type.set(phase);

            let picked = mux_n(io.sel, &io.lane);
            let hot = onehot(io.sel, 4);
            let also = select_onehot(hot, &io.lane);
            io.picked.set(picked ^ also ^ from_lut ^ from_two);
            io.ones.set(io.strobe.count_ones());

            // Parts of a register, and a name that Verilog reserves.
            let table = reg(256, 0);
            when(io.we, || {
                table.set_index(io.at, io.strobe.parity());
                table.set_word(io.sel, io.wide.word(io.sel, 64));
                table.set_bits(3, io.at);
            });
            let bit = table.index(io.at);
            let wire_ = wire(4);
            switch(io.sel, |s| {
                s.is(0, || wire_.set(1));
                s.is(1, || wire_.set(2));
                s.is(2, || wire_.set(4));
                s.is(3, || wire_.set(8));
            });
            let level = var(lit(0, 4));
            when(io.sel.gt(1), || level.set(wire_))
                .elsewhen(io.sel.eq(1), || ())
                .otherwise(|| {
                    when(io.we, || level.set_bits(1, io.sel));
                });

            let sum = io.lane[0].add_wide(io.lane[1]);
            let top = sum.hi(1) & io.lane[2].lt(io.lane[3]) & bit;
            let shifted = (io.wide << io.at) | (io.wide >> 3) | io.wide << 250;
            let sliced = (io.wide + shifted).bits(10, 20);
            io.out.set(cat(&[
                from_bram.trunc(100) ^ from_bram.bits(156, 100),
                from_old,
                from_rom.trunc(60),
                shifted.trunc(61),
                sliced,
                top,
                level,
                io.num.fire(),
            ]));

            // Names repeat, in scopes and loops.
            for (i, f) in io.flags.iter().enumerate() {
                scope(&format!("flag{i}"), || {
                    let seen = reg(1, 0);
                    when(f.go, || seen.set(1));
                    f.done.set(seen);
                });
            }
            io.num
                .ready
                .set(io.num.payload.all() | io.num.payload.eq(3));

            let foreign = black_box::<BoxPorts>("vendor_cell", "elsewhere", &(), &[("d", "q")]);
            // `u_cell` shows that an instance's output may be driven onward inside a cycle.
            let u_cell = instance::<BoxPorts>("u_cell", &foreign, &());
            u_cell.d.set(io.at);
            let kept = reg_nr(8);
            kept.set(u_cell.q);

            formal(|| {
                let owner = reg(8, 0);
                when(io.we, || owner.set(io.at));
                let shadow = Mem::new(16, 8);
                shadow.write(io.we, io.addr, io.at);
                assert(
                    "owner_known",
                    owner.eq(kept) | shadow.read_async(io.addr).ne(owner),
                );
                let any = anyconst(4);
                let watch = reg(1, 0);
                when(io.addr.eq(any), || watch.set(1));
                assert("watched", !watch | past(io.we) | anyseq(1));
            });
            when(io.we, || {
                switch(io.sel, |s| {
                    s.is(2, || {
                        assert(
                            "past_in_when",
                            !past_valid() | past(io.at).eq(io.at) | io.we,
                        )
                    });
                    s.default(|| cover("other", io.at.is(7)));
                });
            });
            assume("phase_known", phase.is(Phase::Park) | phase.ne(3));
        },
    )
}
