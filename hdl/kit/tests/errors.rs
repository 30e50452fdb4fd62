//! Every construction error: its kind, its message, and the generator's own line.
use weir_kit::*;

#[derive(Clone, Copy, Bundle)]
struct Io {
    #[input]
    #[bits(8)]
    a: Sig,
    #[input]
    #[bits(4)]
    b: Sig,
    #[output]
    #[bits(8)]
    z: Sig,
}

/// The error of a body that is wrong; `a` and `b` count as read.
#[track_caller]
fn wrong<R>(kind: ErrorKind, part: &str, body: impl FnOnce(Io) -> R) {
    let result = try_module("m", "wrong", &(), |io: Io| {
        unused(io.a);
        unused(io.b);
        body(io);
    });
    let error = result.expect_err("this design is wrong");
    assert_eq!(error.kind, kind, "{error}");
    assert!(
        error.message.contains(part),
        "`{}` lacks `{part}`",
        error.message
    );
    assert!(
        error.at.contains("errors.rs:"),
        "no place in this file: {error}"
    );
}

/// A body that is right.
#[track_caller]
fn right(body: impl FnOnce(Io)) -> Module {
    right_named("child", body)
}

#[track_caller]
fn right_named(name: &str, body: impl FnOnce(Io)) -> Module {
    try_module(name, "right", &(), |io: Io| {
        unused(io.a);
        unused(io.b);
        body(io);
    })
    .expect("this design is right")
}

#[test]
fn the_place_is_the_callers_line() {
    let line = line!() + 3;
    let error = try_module("m", "", &(), |io: Io| {
        io.z.set(
            io.a + io.b, // here
        );
    });
    let error = error.expect_err("8 bits + 4 bits");
    assert!(error.at.ends_with(&format!("errors.rs:{line}")), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("module m: operands differ: 8 bits against 4: `a` (8 bits"),
        "{text}"
    );
}

#[test]
fn widths() {
    wrong(ErrorKind::Width, "8 bits against 4", |io| {
        io.z.set(io.a & io.b)
    });
    wrong(ErrorKind::Width, "set: 8 bits against 4", |io| {
        io.z.set(io.b)
    });
    wrong(
        ErrorKind::Width,
        "bits(lo 6, width 3) is outside of 8 bits",
        |io| io.z.set(io.a.bits(6, 3)),
    );
    wrong(ErrorKind::Width, "would cut it", |io| {
        io.z.set(io.a.zext(4))
    });
    wrong(ErrorKind::Width, "when takes 1 bit, not 8", |io| {
        when(io.a, || io.z.set(0))
    });
    wrong(ErrorKind::Width, "condition of mux", |io| {
        io.z.set(io.a.mux(io.a, 0))
    });
    wrong(ErrorKind::Width, "mux of two integers", |io| {
        io.z.set(io.a.any().mux(1, 0))
    });
    wrong(
        ErrorKind::Width,
        "8 places take an index of 3 bits, not 4",
        |io| io.z.set(io.a.index(io.b).zext(8)),
    );
    wrong(ErrorKind::Width, "power of two that divides", |io| {
        io.z.set(io.a.word(io.b, 3).zext(8))
    });
    wrong(ErrorKind::Width, "2 bits cannot choose among 5", |io| {
        io.z.set(mux_n(io.b.trunc(2), &[io.a; 5]))
    });
    wrong(ErrorKind::Width, "3 items for 4 select bits", |io| {
        io.z.set(select_onehot(io.b, &[io.a; 3]))
    });
    wrong(ErrorKind::Width, "does not divide", |io| io.a.chunks(3));
    wrong(ErrorKind::Width, "0 bits", |_| wire(0));
}

#[test]
fn literals() {
    wrong(
        ErrorKind::Literal,
        "literal 256 does not fit 8 bits",
        |io| io.z.set(io.a + 256),
    );
    wrong(ErrorKind::Literal, "negative", |io| io.z.set(io.a + -1));
    wrong(ErrorKind::Literal, "reset value must be a literal", |io| {
        io.z.set(reg(8, io.a))
    });
    wrong(ErrorKind::Literal, "does not fit 65 bits", |_| {
        lit_words(&[0, 2], 65)
    });
    right(|io| io.z.set(io.a + 255));
}

#[test]
fn what_cannot_be_driven() {
    wrong(ErrorKind::NotDrivable, "cannot set `a`", |io| io.a.set(0));
    wrong(
        ErrorKind::NotDrivable,
        "cannot set the 8-bit signal made at",
        |io| (io.a & 3).set(0),
    );
}

#[test]
fn signals_of_another_module() {
    let mut stray = None;
    right(|io| {
        stray = Some(io.a);
        io.z.set(0);
    });
    let stray = stray.expect("set above");
    wrong(
        ErrorKind::Foreign,
        "8-bit signal of module child is used here",
        |io| io.z.set(stray),
    );
    wrong(ErrorKind::Foreign, "pass it through a port", |io| {
        io.z.set(io.a + stray)
    });
}

#[test]
fn undriven() {
    wrong(ErrorKind::Undriven, "nothing drives `z`", |_| ());
    wrong(ErrorKind::Undriven, "nothing drives `kept`", |io| {
        io.z.set(named("kept", reg(8, 0)))
    });
    let child = right(|io| io.z.set(0));
    wrong(ErrorKind::Undriven, "nothing drives `u_b`", |io| {
        let u = instance::<Io>("u", &child, &());
        u.a.set(io.a);
        io.z.set(u.z);
    });
}

#[test]
fn latches() {
    wrong(ErrorKind::Latch, "`z` (8 bits", |io| {
        when(io.a.any(), || io.z.set(1))
    });
    wrong(ErrorKind::Latch, "no value on some path", |io| {
        switch(io.b, |s| s.is(1, || io.z.set(1)));
    });
    wrong(ErrorKind::Latch, "use var(default)", |io| {
        io.z.set_bits(0, io.b)
    });
    right(|io| when(io.a.any(), || io.z.set(1)).otherwise(|| io.z.set(2)));
    right(|io| {
        io.z.set(0);
        when(io.a.any(), || io.z.set(1));
    });
    right(|io| {
        switch(io.b.trunc(1), |s| {
            s.is(0, || io.z.set(1));
            s.is(1, || io.z.set(2));
        });
    });
}

#[test]
fn driven_twice() {
    wrong(ErrorKind::MultiplyDriven, "this overrides it", |io| {
        io.z.set(1);
        io.z.set(2);
    });
    wrong(ErrorKind::MultiplyDriven, "driven at", |io| {
        when(io.a.any(), || io.z.set(2));
        io.z.set(1);
    });
}

#[test]
fn loops() {
    wrong(ErrorKind::CombLoop, "`x` (8 bits", |io| {
        let x = named("x", wire(8));
        let y = named("y", wire(8));
        x.set(y + 1);
        y.set(x ^ io.a);
        io.z.set(x);
    });
    // Through an instance: its output depends on its input.
    let child = right(|io| io.z.set(io.a));
    assert_eq!(child.comb_paths()[2], [0]);
    wrong(ErrorKind::CombLoop, "`u_a`", |io| {
        let u = instance::<Io>("u", &child, &());
        u.a.set(u.z);
        u.b.set(0);
        io.z.set(0);
    });
    // Not through a register, nor through an input without such a path.
    right_named("m", |io| {
        let u = instance::<Io>("u", &child, &());
        u.a.set(0);
        u.b.set(u.z.trunc(4) ^ u.z.hi(4));
        let r = reg(8, 0);
        r.set(r + 1);
        io.z.set(r);
    });
    // A condition counts.
    wrong(ErrorKind::CombLoop, "loop", |io| {
        let x = var(lit(0, 1));
        when(!x, || x.set(io.b.any()));
        io.z.set(x.zext(8));
    });
}

#[test]
fn unread() {
    let only = |body: &dyn Fn(Io)| {
        try_module("m", "", &(), |io: Io| body(io)).expect_err("something is unread")
    };
    let e = only(&|io| io.z.set(io.a));
    assert_eq!(
        (e.kind, e.message.contains("nothing reads input `b`")),
        (ErrorKind::Unread, true),
        "{e}"
    );
    let e = only(&|io| io.z.set(io.a.bits(1, 3).zext(8) | io.b.zext(8)));
    assert!(
        e.message.contains("nothing reads bits 0, 7:4 of input `a`"),
        "{e}"
    );
    wrong(ErrorKind::Unread, "register `r`", |io| {
        let r = named("r", reg(4, 0));
        r.set(io.b);
        io.z.set(0);
    });
    wrong(ErrorKind::Unread, "memory `m_`", |io| {
        let m = named("m_", Mem::new(16, 8));
        m.write(io.a.any(), io.b, io.a);
        io.z.set(0);
    });
    let child = right(|io| io.z.set(0));
    wrong(ErrorKind::Unread, "instance output `u_z`", |io| {
        let u = instance::<Io>("u", &child, &());
        u.a.set(io.a);
        u.b.set(io.b);
        io.z.set(0);
    });
}

#[test]
fn all_errors_come_at_once() {
    let e = try_module("m", "", &(), |_: Io| ()).expect_err("all wrong");
    for part in [
        "nothing drives `z`",
        "nothing reads input `a`",
        "nothing reads input `b`",
    ] {
        assert!(e.message.contains(part), "{e}");
    }
}

#[derive(Clone, Copy, Bundle)]
struct Passing {
    #[input]
    #[bits(8)]
    up: Stream<Sig>,
    #[output]
    #[bits(8)]
    down: Stream<Sig>,
}

#[test]
fn ready_must_not_reach_valid() {
    let build = |wait: bool| {
        try_module("m", "", &(), |io: Passing| {
            let go = if wait { io.down.ready } else { lit(1, 1) };
            io.down.offer(io.up.valid & go, &io.up.payload);
            io.up.ready.set(io.down.ready);
        })
    };
    let e = build(true).expect_err("valid waits for ready");
    assert_eq!(e.kind, ErrorKind::ReadyToValid);
    assert!(
        e.message.contains("down_valid depends on down_ready"),
        "{e}"
    );
    build(false).expect("ready to ready is allowed");
}

#[derive(Clone, Copy, Bundle)]
struct Reserved {
    #[input]
    #[bits(1)]
    end: Sig,
}

#[derive(Clone, Copy, Bundle)]
struct NoDirection {
    #[bits(1)]
    x: Sig,
}

#[derive(Clone, Copy, Bundle)]
struct Twice {
    #[input]
    a: NoDirection,
    #[input]
    #[bits(1)]
    a_x: Sig,
}

#[test]
fn names_and_ports() {
    let e = try_module("m", "", &(), |io: Reserved| unused(io)).expect_err("reserved");
    assert_eq!(
        (e.kind, e.message.contains("`end` is a reserved word")),
        (ErrorKind::Name, true),
        "{e}"
    );
    let e = try_module("m", "", &(), |io: NoDirection| unused(io)).expect_err("no direction");
    assert_eq!(
        (e.kind, e.message.contains("x has no direction")),
        (ErrorKind::Ports, true),
        "{e}"
    );
    let e = try_module("m", "", &(), |io: Twice| unused(io)).expect_err("twice");
    assert_eq!(
        (e.kind, e.message.contains("two ports are called a_x")),
        (ErrorKind::Name, true),
        "{e}"
    );
    let e = try_module("2m", "", &(), |io: Io| io.z.set(0)).expect_err("no identifier");
    assert_eq!(e.kind, ErrorKind::Name);
    // The mirrored struct must be the module's own.
    let child = right(|io| io.z.set(0));
    wrong(
        ErrorKind::Ports,
        "port 0 is up_valid of 1 bits here, but a of 8 bits",
        |_| instance::<Passing>("u", &child, &()),
    );
    // One name, two contents.
    let other = right(|io| io.z.set(1));
    let e = try_module("top", "", &(), |io: Io| {
        for m in [&child, &other] {
            let u = instance::<Io>("u", m, &());
            u.a.set(io.a);
            u.b.set(io.b);
            unused(u.z);
        }
        io.z.set(0);
    });
    let e = e.expect_err("two modules called m");
    assert!(
        e.message.contains("two different modules are called child"),
        "{e}"
    );
}

#[test]
fn memories() {
    wrong(ErrorKind::Memory, "the least is 2 words", |_| {
        Mem::new(1, 8)
    });
    wrong(
        ErrorKind::Memory,
        "write port 2 of a memory declared with 1",
        |io| {
            let m = Mem::new(16, 8);
            m.write(io.a.any(), io.b, io.a);
            m.write(io.a.all(), io.b, io.a);
        },
    );
    wrong(ErrorKind::Memory, "no asynchronous read", |io| {
        Mem::new(16, 8).style(Style::Block).read_async(io.b)
    });
    wrong(ErrorKind::Memory, "3 lane enables do not divide 8", |io| {
        Mem::new(16, 8).write_bytes(io.a.any(), io.b.trunc(3), io.b, io.a);
    });
    wrong(
        ErrorKind::Width,
        "32 places take an index of 5 bits",
        |io| Mem::new(32, 8).read_async(io.b),
    );
    wrong(ErrorKind::Memory, "5 initial words for 4", |_| {
        Mem::new(4, 8).init(&vec![vec![0]; 5])
    });
    wrong(ErrorKind::Literal, "does not fit 8 bits", |_| {
        Mem::new(4, 8).init(&[vec![256]])
    });
}

#[test]
fn ghosts_stay_out_of_hardware() {
    wrong(ErrorKind::Ghost, "made inside formal", |io| {
        let g = formal(|| reg(8, 0));
        g.set(io.a);
        io.z.set(g);
    });
}

#[test]
fn statements_out_of_order() {
    wrong(ErrorKind::Structure, "a second default", |io| {
        switch(io.b, |s| {
            s.default(|| io.z.set(0));
            s.default(|| io.z.set(1));
        });
    });
    wrong(ErrorKind::Structure, "has an arm already", |io| {
        switch(io.b, |s| {
            s.is(1, || io.z.set(0));
            s.is(1, || io.z.set(1));
        });
    });
    wrong(ErrorKind::Structure, "directly inside switch", |io| {
        switch(io.b, |_| io.z.set(0))
    });
    wrong(ErrorKind::Structure, "must follow its own when", |io| {
        let w = when(io.a.any(), || io.z.set(0));
        w.otherwise(|| io.z.set(1));
        w.otherwise(|| io.z.set(2));
    });
}

#[test]
#[should_panic(expected = "module m: nothing drives `z`")]
fn without_try_it_panics_with_the_message() {
    module("m", "", &(), |io: Io| unused(io));
}

#[test]
#[should_panic(expected = "no module is under construction")]
fn outside_of_a_module() {
    lit(0, 1);
}

#[test]
fn an_error_leaves_the_builder_clean() {
    wrong(ErrorKind::Undriven, "z", |_| ());
    // Nested modules unwind together.
    let e = try_module("outer", "", &(), |_: Io| {
        module("inner", "", &(), |io: Io| io.z.set(io.b));
    });
    assert_eq!(e.expect_err("inner is wrong").module, "inner");
    right(|io| io.z.set(io.a));
}
