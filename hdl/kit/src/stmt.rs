//! Registers, variables, wires, and the statements that drive them.
use crate::build::{Kind, cur, fail};
use crate::error::{ErrorKind, Loc};
use crate::sig::{Operand, Sig, index_width, one_bit, own, same, word_check};
use std::panic::Location;

/// Which bits of the target a statement drives.
#[derive(Clone, Debug)]
pub(crate) enum Lhs {
    Whole,
    Bits(u32),
    Index(u32),
    Word(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CheckKind {
    Assert,
    Assume,
    Cover,
}

/// One statement as written; the Verilog keeps this tree.
#[derive(Clone, Debug)]
pub(crate) enum Stmt {
    Set {
        target: u32,
        lhs: Lhs,
        value: u32,
        loc: Loc,
        comment: Option<String>,
    },
    If {
        arms: Vec<(u32, Vec<Stmt>)>,
        otherwise: Option<Vec<Stmt>>,
        comment: Option<String>,
    },
    Case {
        sel: u32,
        arms: Vec<(Vec<u32>, Vec<Stmt>)>,
        default: Option<Vec<Stmt>>,
        comment: Option<String>,
    },
    Check {
        kind: CheckKind,
        name: String,
        cond: u32,
    },
}

/// A register of `width` bits that a reset sets to `reset` (an integer, literal or enum variant).
#[track_caller]
pub fn reg(width: u32, reset: impl Operand) -> Sig {
    let reset = reset.sig(check_width(width));
    own(reset);
    if reset.w != width {
        fail(
            ErrorKind::Width,
            format!(
                "a register of {width} bits with a reset value of {}",
                reset.w
            ),
        );
    }
    if !cur(|b| matches!(b.kind(reset), Kind::Lit(..))) {
        fail(
            ErrorKind::Literal,
            "the reset value must be a literal".into(),
        );
    }
    decl(Kind::Reg(Some(reset.id)), width)
}

/// A register without reset: for data that a reset register guards.
#[track_caller]
pub fn reg_nr(width: u32) -> Sig {
    decl(Kind::Reg(None), check_width(width))
}

/// A combinational variable that has the value `default` where nothing sets it.
#[track_caller]
pub fn var(default: Sig) -> Sig {
    own(default);
    decl(Kind::Var(default.id), default.w)
}

/// A combinational signal that must be set on every path.
#[track_caller]
pub fn wire(width: u32) -> Sig {
    decl(Kind::Wire, check_width(width))
}

/// The synchronous reset, 1 bit.
#[track_caller]
pub fn rst() -> Sig {
    cur(|b| Sig {
        id: 0,
        w: 1,
        m: b.id,
    })
}

/// A register that holds `x` as it was one cycle ago, without reset; also inside `when`.
#[track_caller]
pub fn delay(x: Sig) -> Sig {
    own(x);
    let r = reg_nr(x.w);
    let loc = Location::caller();
    cur(|b| {
        b.blocks[0].push(Stmt::Set {
            target: r.id,
            lhs: Lhs::Whole,
            value: x.id,
            loc,
            comment: None,
        })
    });
    r
}

/// Puts a comment before the next declaration or statement.
#[track_caller]
pub fn comment(text: &str) {
    cur(|b| b.pending = Some(text.into()));
}

#[track_caller]
fn check_width(width: u32) -> u32 {
    if width == 0 {
        fail(
            ErrorKind::Width,
            "a signal of 0 bits: the least is 1".into(),
        );
    }
    width
}

#[track_caller]
pub(crate) fn decl(kind: Kind, w: u32) -> Sig {
    let loc = Location::caller();
    cur(|b| b.decl(kind, w, loc))
}

#[track_caller]
fn push(target: Sig, lhs: Lhs, value: Sig) {
    own(target);
    let loc = Location::caller();
    if !cur(|b| b.kind(target).is_target()) {
        let x = cur(|b| b.describe(target.id));
        fail(
            ErrorKind::NotDrivable,
            format!(
                "cannot set {x}: only outputs, registers, variables, wires and instance inputs can be set"
            ),
        );
    }
    cur(|b| {
        let comment = b.pending.take();
        let stmt = Stmt::Set {
            target: target.id,
            lhs,
            value: value.id,
            loc,
            comment,
        };
        b.blocks
            .last_mut()
            .expect("a module has a block")
            .push(stmt);
    });
}

impl Sig {
    /// Drives this signal under the conditions around the call; the last one that holds wins.
    #[track_caller]
    pub fn set(&self, v: impl Operand) {
        own(*self);
        let v = v.sig(self.w);
        same(*self, v, "set");
        push(*self, Lhs::Whole, v);
    }

    /// Drives the bits from `lo` upward that `v` is wide; the others keep their value (register) or default (variable).
    #[track_caller]
    pub fn set_bits(&self, lo: u32, v: Sig) {
        own(*self);
        own(v);
        if lo + v.w > self.w {
            fail(
                ErrorKind::Width,
                format!(
                    "set_bits(lo {lo}) of {} bits is outside of {} bits",
                    v.w, self.w
                ),
            );
        }
        if v.w == self.w {
            return push(*self, Lhs::Whole, v);
        }
        push(*self, Lhs::Bits(lo), v);
    }

    /// Drives the bit that `idx` (exactly `clog2(width)` bits) chooses.
    #[track_caller]
    pub fn set_index(&self, idx: Sig, v: impl Operand) {
        own(*self);
        own(idx);
        let v = v.sig(1);
        one_bit(v, "set_index");
        if self.w == 1 {
            return push(*self, Lhs::Whole, v);
        }
        index_width(idx, self.w as u64, "set_index");
        push(*self, Lhs::Index(idx.id), v);
    }

    /// Drives the aligned part, as wide as `v`, that `idx` chooses. `v` is a power of two wide.
    #[track_caller]
    pub fn set_word(&self, idx: Sig, v: Sig) {
        own(*self);
        own(idx);
        own(v);
        if v.w == self.w {
            return push(*self, Lhs::Whole, v);
        }
        word_check(self.w, idx, v.w);
        let lhs = if v.w == 1 {
            Lhs::Index(idx.id)
        } else {
            Lhs::Word(idx.id)
        };
        push(*self, lhs, v);
    }
}

/// Runs `body` with its statements collected.
fn block<R>(body: impl FnOnce() -> R) -> Vec<Stmt> {
    cur(|b| b.blocks.push(vec![]));
    body();
    cur(|b| b.blocks.pop().unwrap_or_default())
}

/// Statements of `body` act while `cond` (1 bit) is set.
#[track_caller]
pub fn when<R>(cond: Sig, body: impl FnOnce() -> R) -> When {
    one_bit(cond, "when");
    let comment = cur(|b| b.pending.take());
    let arm = block(body);
    cur(|b| {
        let depth = b.blocks.len() - 1;
        let at = b.blocks[depth].len();
        b.blocks[depth].push(Stmt::If {
            arms: vec![(cond.id, arm)],
            otherwise: None,
            comment,
        });
        When { depth, at }
    })
}

/// A `when` to which more arms can be added.
#[derive(Clone, Copy)]
pub struct When {
    depth: usize,
    at: usize,
}

impl When {
    #[track_caller]
    fn add(self, arm: Option<u32>, body: Vec<Stmt>) {
        let ok = cur(|b| {
            let last = b.blocks.len() - 1 == self.depth;
            match b
                .blocks
                .get_mut(self.depth)
                .and_then(|s| s.get_mut(self.at))
            {
                Some(Stmt::If {
                    arms, otherwise, ..
                }) if last && otherwise.is_none() => {
                    match arm {
                        Some(c) => arms.push((c, body)),
                        None => *otherwise = Some(body),
                    }
                    true
                }
                _ => false,
            }
        });
        if !ok {
            fail(ErrorKind::Structure, "elsewhen/otherwise must follow its own when, in the same block, before any otherwise".into());
        }
    }

    /// Else, if `cond`.
    #[track_caller]
    pub fn elsewhen<R>(self, cond: Sig, body: impl FnOnce() -> R) -> When {
        one_bit(cond, "elsewhen");
        self.add(Some(cond.id), block(body));
        self
    }

    /// Else.
    #[track_caller]
    pub fn otherwise<R>(self, body: impl FnOnce() -> R) {
        self.add(None, block(body));
    }
}

/// A case statement on `sel`: arms by value, at most one default.
#[track_caller]
pub fn switch<R>(sel: Sig, body: impl FnOnce(&mut Switch) -> R) {
    own(sel);
    let comment = cur(|b| b.pending.take());
    let mut s = Switch {
        sel,
        arms: vec![],
        default: None,
    };
    let stray = block(|| body(&mut s));
    if !stray.is_empty() {
        fail(
            ErrorKind::Structure,
            "statements directly inside switch: put them into `s.is(..)` or `s.default(..)`".into(),
        );
    }
    let stmt = Stmt::Case {
        sel: sel.id,
        arms: s.arms,
        default: s.default,
        comment,
    };
    cur(|b| {
        b.blocks
            .last_mut()
            .expect("a module has a block")
            .push(stmt)
    });
}

/// The arms of a [`switch`].
pub struct Switch {
    sel: Sig,
    arms: Vec<(Vec<u32>, Vec<Stmt>)>,
    default: Option<Vec<Stmt>>,
}

impl Switch {
    /// Statements for one value.
    #[track_caller]
    pub fn is<R>(&mut self, v: impl Operand, body: impl FnOnce() -> R) {
        self.is_any([v], body);
    }

    /// Statements for any of several values.
    #[track_caller]
    pub fn is_any<T: Operand, R>(
        &mut self,
        values: impl IntoIterator<Item = T>,
        body: impl FnOnce() -> R,
    ) {
        let mut ids = vec![];
        for v in values {
            let v = v.sig(self.sel.w);
            same(self.sel, v, "switch");
            let Some(words) = cur(|b| match b.kind(v) {
                Kind::Lit(w, _) => Some(w.clone()),
                _ => None,
            }) else {
                fail(
                    ErrorKind::Literal,
                    "a switch value must be a literal".into(),
                )
            };
            let taken = |id: &u32| {
                cur(|b| matches!(&b.nodes[*id as usize].kind, Kind::Lit(w, _) if *w == words))
            };
            if ids.iter().any(taken) || self.arms.iter().any(|(vs, _)| vs.iter().any(taken)) {
                fail(
                    ErrorKind::Structure,
                    format!("value {words:x?} has an arm already"),
                );
            }
            ids.push(v.id);
        }
        self.arms.push((ids, block(body)));
    }

    /// Statements for every other value.
    #[track_caller]
    pub fn default<R>(&mut self, body: impl FnOnce() -> R) {
        if self.default.is_some() {
            fail(ErrorKind::Structure, "a second default".into());
        }
        self.default = Some(block(body));
    }
}

impl Stmt {
    /// Calls `f` on every statement of the tree, outer first.
    pub(crate) fn walk<'a>(stmts: &'a [Stmt], f: &mut dyn FnMut(&'a Stmt)) {
        for s in stmts {
            f(s);
            match s {
                Stmt::If {
                    arms, otherwise, ..
                } => {
                    arms.iter().for_each(|(_, b)| Stmt::walk(b, f));
                    otherwise.iter().for_each(|b| Stmt::walk(b, f));
                }
                Stmt::Case { arms, default, .. } => {
                    arms.iter().for_each(|(_, b)| Stmt::walk(b, f));
                    default.iter().for_each(|b| Stmt::walk(b, f));
                }
                _ => {}
            }
        }
    }
}
