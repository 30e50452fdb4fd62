//! Assertions, assumptions, covers, and code that exists only for them.
//!
//! Checks are clocked and off during reset. `WEIR_ASSERT` turns asserts and assumes on in simulation; `FORMAL` turns on all of
//! them, and assumes that the first cycle is a reset.
use crate::Bundle;
use crate::build::{Kind, cur};
use crate::sig::{Sig, lit, one_bit, own};
use crate::stmt::{CheckKind, Lhs, Stmt};
use std::panic::Location;

#[track_caller]
fn check(kind: CheckKind, name: &str, cond: Sig) {
    one_bit(cond, "a check");
    cur(|b| {
        let scoped = b.scoped(name);
        let name = b.names.unique(&scoped);
        b.blocks
            .last_mut()
            .expect("a module has a block")
            .push(Stmt::Check {
                kind,
                name,
                cond: cond.id,
            });
    });
}

/// `cond` holds at every clock edge out of reset, where the conditions around the call hold.
#[track_caller]
pub fn assert(name: &str, cond: Sig) {
    check(CheckKind::Assert, name, cond);
}

/// As [`assert`], but a rule for the neighbour: proofs take it as given, simulation checks it.
#[track_caller]
pub fn assume(name: &str, cond: Sig) {
    check(CheckKind::Assume, name, cond);
}

/// `cond` can come to hold (proofs only).
#[track_caller]
pub fn cover(name: &str, cond: Sig) {
    check(CheckKind::Cover, name, cond);
}

/// Registers, wires and memories made by `body` are ghosts: in the Verilog only for checks.
pub fn formal<R>(body: impl FnOnce() -> R) -> R {
    cur(|b| b.formal += 1);
    let r = body();
    cur(|b| b.formal -= 1);
    r
}

/// A ghost that follows `value` a cycle later, wherever the call stands.
#[track_caller]
fn follow(kind: Kind, base: String, value: Sig) -> Sig {
    let r = ghost(kind, value.w);
    let loc = Location::caller();
    cur(|b| {
        let name = b.names.unique(&base);
        b.nodes[r.id as usize].name = Some(name);
        b.blocks[0].push(Stmt::Set {
            target: r.id,
            lhs: Lhs::Whole,
            value: value.id,
            loc,
            comment: None,
        });
    });
    r
}

#[track_caller]
fn ghost(kind: Kind, width: u32) -> Sig {
    let loc = Location::caller();
    cur(|b| {
        b.formal += 1;
        let s = b.decl(kind, width, loc);
        b.formal -= 1;
        s
    })
}

/// Ghost: the value of `x` one cycle ago, also inside `when`. Undefined in the first cycle; see [`past_valid`].
#[track_caller]
pub fn past(x: Sig) -> Sig {
    own(x);
    let base =
        cur(|b| b.nodes[x.id as usize].name.clone()).map_or("past".into(), |n| format!("past_{n}"));
    follow(Kind::Reg(None), base, x)
}

/// Ghost: set when the cycle before this one was out of reset.
#[track_caller]
pub fn past_valid() -> Sig {
    let (zero, one) = (lit(0, 1), lit(1, 1));
    follow(Kind::Reg(Some(zero.id)), "past_valid".into(), one)
}

/// Ghost: an arbitrary value that never changes (proofs only).
#[track_caller]
pub fn anyconst(width: u32) -> Sig {
    ghost(Kind::Any(true), width)
}

/// Ghost: an arbitrary value in each cycle (proofs only).
#[track_caller]
pub fn anyseq(width: u32) -> Sig {
    ghost(Kind::Any(false), width)
}

/// Declares that these bits may stay unread.
#[track_caller]
pub fn unused<B: Bundle>(x: B) {
    x.each(&crate::At::root(), &mut |_, s| {
        own(s);
        cur(|b| {
            let entry = match b.nodes[s.id as usize].kind {
                Kind::Slice(a, lo) => (a, lo, s.w),
                _ => (s.id, 0, s.w),
            };
            b.unused.push(entry);
        });
    });
}
