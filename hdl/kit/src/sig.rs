//! `Sig`, the one value type, and its operators. Widths are strict.
use crate::build::{Bin, Kind, Un, cur, fail, module_name};
use crate::error::ErrorKind;
use crate::fold::{cut, fold, joined};
use std::fmt;
use std::ops::{Add, BitAnd, BitOr, BitXor, Not, Shl, Shr, Sub};
use std::panic::Location;

/// A signal of the module under construction: port, register, variable or expression. 1 bit or wider.
///
/// There is no `==` on it: [`Sig::eq`] makes hardware.
#[derive(Clone, Copy)]
pub struct Sig {
    pub(crate) id: u32,
    pub(crate) w: u32,
    pub(crate) m: u32,
}

impl fmt::Debug for Sig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sig#{}[{}]", self.id, self.w)
    }
}

/// The right side of an operator: a `Sig`, an enum's variant, or an integer that takes the left side's width.
pub trait Operand {
    /// The signal, at width `w` where the operand is an integer.
    #[doc(hidden)]
    #[track_caller]
    fn sig(self, w: u32) -> Sig;
    /// Own width; none for an integer.
    #[doc(hidden)]
    fn width_hint(&self) -> Option<u32> {
        None
    }
    /// The value, where known while generating.
    #[doc(hidden)]
    fn constant(&self) -> Option<u128> {
        None
    }
}

impl Operand for Sig {
    fn sig(self, _w: u32) -> Sig {
        self
    }
    fn width_hint(&self) -> Option<u32> {
        Some(self.w)
    }
}

impl Operand for &Sig {
    fn sig(self, _w: u32) -> Sig {
        *self
    }
    fn width_hint(&self) -> Option<u32> {
        Some(self.w)
    }
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Operand for $t {
            #[track_caller]
            fn sig(self, w: u32) -> Sig {
                match u128::try_from(self) {
                    Ok(v) => lit(v, w),
                    Err(_) => fail(ErrorKind::Literal, format!("literal {self} is negative: write `x - {}` or the two's complement", self.unsigned_abs())),
                }
            }
            fn constant(&self) -> Option<u128> {
                u128::try_from(*self).ok()
            }
        }
    )* };
}
integers!(i32, i64);

macro_rules! unsigned {
    ($($t:ty),*) => { $(
        impl Operand for $t {
            #[track_caller]
            fn sig(self, w: u32) -> Sig {
                lit(self as u128, w)
            }
            fn constant(&self) -> Option<u128> {
                Some(*self as u128)
            }
        }
    )* };
}
unsigned!(u8, u16, u32, u64, u128, usize);

impl Operand for bool {
    #[track_caller]
    fn sig(self, w: u32) -> Sig {
        lit(self as u128, w)
    }
    fn constant(&self) -> Option<u128> {
        Some(*self as u128)
    }
}

/// Fails when `s` is of another module than the one under construction.
#[track_caller]
pub(crate) fn own(s: Sig) {
    let here = cur(|b| b.id);
    if here != s.m {
        let message = format!(
            "a {}-bit signal of module {} is used here: pass it through a port",
            s.w,
            module_name(s.m)
        );
        fail(ErrorKind::Foreign, message);
    }
}

#[track_caller]
pub(crate) fn same(a: Sig, b: Sig, what: &str) {
    own(a);
    own(b);
    if a.w != b.w {
        let (x, y) = cur(|c| (c.describe(a.id), c.describe(b.id)));
        fail(
            ErrorKind::Width,
            format!(
                "{what}: {} bits against {}: {x} and {y}; use zext or trunc",
                a.w, b.w
            ),
        );
    }
}

#[track_caller]
pub(crate) fn one_bit(s: Sig, what: &str) {
    own(s);
    if s.w != 1 {
        let x = cur(|c| c.describe(s.id));
        fail(
            ErrorKind::Width,
            format!(
                "{what} takes 1 bit, not {}: {x}; use any(), or compare",
                s.w
            ),
        );
    }
}

#[track_caller]
pub(crate) fn expr(kind: Kind, w: u32) -> Sig {
    let loc = Location::caller();
    cur(|b| b.expr(kind, w, loc))
}

/// Words of `v` cut to `w` bits; none when `v` needs more.
fn words(v: &[u64], w: u32) -> Option<Vec<u64>> {
    let n = w.div_ceil(64) as usize;
    let mut out: Vec<u64> = (0..n).map(|i| v.get(i).copied().unwrap_or(0)).collect();
    let last = if w.is_multiple_of(64) {
        u64::MAX
    } else {
        (1 << (w % 64)) - 1
    };
    let fits = out[n - 1] & !last == 0 && v.iter().skip(n).all(|x| *x == 0);
    out[n - 1] &= last;
    fits.then_some(out)
}

/// A literal of `w` bits. Fails when `v` needs more.
#[track_caller]
pub fn lit(v: u128, w: u32) -> Sig {
    if w == 0 {
        fail(
            ErrorKind::Width,
            "a literal of 0 bits: the least is 1".into(),
        );
    }
    match words(&[v as u64, (v >> 64) as u64], w) {
        Some(v) => expr(Kind::Lit(v, None), w),
        None => fail(
            ErrorKind::Literal,
            format!("literal {v} does not fit {w} bits"),
        ),
    }
}

/// A literal of any width from 64-bit words, least significant first.
#[track_caller]
pub fn lit_words(v: &[u64], w: u32) -> Sig {
    if w == 0 {
        fail(
            ErrorKind::Width,
            "a literal of 0 bits: the least is 1".into(),
        );
    }
    match words(v, w) {
        Some(v) => expr(Kind::Lit(v, None), w),
        None => fail(
            ErrorKind::Literal,
            format!("literal {v:x?} does not fit {w} bits"),
        ),
    }
}

/// A literal that the Verilog names (an enum's variant).
#[doc(hidden)]
#[track_caller]
pub fn lit_named(v: u128, w: u32, name: &str) -> Sig {
    match words(&[v as u64, (v >> 64) as u64], w) {
        Some(v) => expr(Kind::Lit(v, Some(name.into())), w),
        None => fail(
            ErrorKind::Literal,
            format!("{name} = {v} does not fit {w} bits"),
        ),
    }
}

/// Concatenates, most significant first.
#[track_caller]
pub fn cat(parts: &[Sig]) -> Sig {
    for p in parts {
        own(*p);
    }
    let w = parts.iter().map(|p| p.w).sum();
    match parts {
        [] => fail(ErrorKind::Width, "cat of nothing".into()),
        [one] => *one,
        _ => match joined(parts, w) {
            Some(v) => expr(Kind::Lit(v, None), w),
            None => expr(Kind::Cat(parts.iter().map(|p| p.id).collect()), w),
        },
    }
}

/// The bits needed to number `n` things (at least 1).
pub const fn clog2(n: u64) -> u32 {
    if n <= 2 {
        1
    } else {
        64 - (n - 1).leading_zeros()
    }
}

/// The bits needed to hold the value `v` (at least 1).
pub const fn bits_for(v: u64) -> u32 {
    if v == 0 { 1 } else { 64 - v.leading_zeros() }
}

/// 1 bit: at least one of these is not zero.
#[track_caller]
pub fn any_of(v: &[Sig]) -> Sig {
    match v {
        [] => lit(0, 1),
        _ => cat(v).any(),
    }
}

/// 1 bit: every bit of all of these is set.
#[track_caller]
pub fn all_of(v: &[Sig]) -> Sig {
    match v {
        [] => lit(1, 1),
        _ => cat(v).all(),
    }
}

/// The item whose bit is set in `onehot` (item 0 at bit 0); zero when none is, the OR of them when several are.
#[track_caller]
pub fn select_onehot(onehot: Sig, items: &[Sig]) -> Sig {
    own(onehot);
    if items.len() != onehot.w as usize {
        fail(
            ErrorKind::Width,
            format!(
                "select_onehot: {} items for {} select bits",
                items.len(),
                onehot.w
            ),
        );
    }
    let gated = items
        .iter()
        .enumerate()
        .map(|(i, x)| onehot.bit(i as u32).repeat(x.w) & *x);
    gated.reduce(|a, b| a | b).unwrap_or(onehot)
}

/// `n` bits with bit `idx` set; zero when `idx` is `n` or more.
#[track_caller]
pub fn onehot(idx: Sig, n: u32) -> Sig {
    let one = lit(1, n);
    one << idx
}

/// Item number `sel`; past the end, the last.
#[track_caller]
pub fn mux_n(sel: Sig, items: &[Sig]) -> Sig {
    own(sel);
    let Some(first) = items.first() else {
        fail(ErrorKind::Width, "mux_n of nothing".into())
    };
    for x in items {
        same(*first, *x, "mux_n");
    }
    if sel.w < 64 && (items.len() as u64) > 1 << sel.w {
        fail(
            ErrorKind::Width,
            format!(
                "mux_n: {} bits cannot choose among {} items",
                sel.w,
                items.len()
            ),
        );
    }
    if items.len() == 1 {
        return *first;
    }
    if let Some(i) = cur(|b| b.constant(sel)) {
        return items[(i as usize).min(items.len() - 1)];
    }
    expr(
        Kind::Select(sel.id, items.iter().map(|x| x.id).collect()),
        first.w,
    )
}

#[track_caller]
pub(crate) fn bin(op: Bin, a: Sig, b: impl Operand) -> Sig {
    own(a);
    let b = b.sig(a.w);
    same(a, b, "operands differ");
    let w = if matches!(op, Bin::And | Bin::Or | Bin::Xor | Bin::Add | Bin::Sub) {
        a.w
    } else {
        1
    };
    if let Some(known) = fold(op, a, b) {
        return known;
    }
    expr(Kind::Bin(op, a.id, b.id), w)
}

#[track_caller]
fn shift(left: bool, a: Sig, n: impl Operand) -> Sig {
    own(a);
    let mut by = n.constant();
    let n = n.sig(128);
    if by.is_none() {
        own(n);
        by = cur(|b| b.constant(n));
    }
    if cur(|b| matches!(b.kind(a), Kind::Lit(v, _) if v.iter().all(|x| *x == 0))) {
        return a;
    }
    let Some(k) = by else {
        return expr(
            Kind::Bin(if left { Bin::Shl } else { Bin::Shr }, a.id, n.id),
            a.w,
        );
    };
    match (u32::try_from(k).unwrap_or(u32::MAX), left) {
        (0, _) => a,
        (k, _) if k >= a.w => lit(0, a.w),
        (k, true) => cat(&[a.bits(0, a.w - k), lit(0, k)]),
        (k, false) => cat(&[lit(0, k), a.bits(k, a.w - k)]),
    }
}

macro_rules! operators {
    ($($tr:ident $f:ident $body:expr;)*) => { $(
        impl<T: Operand> $tr<T> for Sig {
            type Output = Sig;
            #[track_caller]
            fn $f(self, r: T) -> Sig {
                #[allow(clippy::redundant_closure_call)]
                $body(self, r)
            }
        }
    )* };
}
// Function items, not closures: `track_caller` must reach them.
operators! {
    BitAnd bitand op_and;
    BitOr bitor op_or;
    BitXor bitxor op_xor;
    Add add op_add;
    Sub sub op_sub;
    Shl shl op_shl;
    Shr shr op_shr;
}
#[track_caller]
fn op_and(a: Sig, b: impl Operand) -> Sig {
    bin(Bin::And, a, b)
}
#[track_caller]
fn op_or(a: Sig, b: impl Operand) -> Sig {
    bin(Bin::Or, a, b)
}
#[track_caller]
fn op_xor(a: Sig, b: impl Operand) -> Sig {
    bin(Bin::Xor, a, b)
}
#[track_caller]
fn op_add(a: Sig, b: impl Operand) -> Sig {
    bin(Bin::Add, a, b)
}
#[track_caller]
fn op_sub(a: Sig, b: impl Operand) -> Sig {
    bin(Bin::Sub, a, b)
}
#[track_caller]
fn op_shl(a: Sig, b: impl Operand) -> Sig {
    shift(true, a, b)
}
#[track_caller]
fn op_shr(a: Sig, b: impl Operand) -> Sig {
    shift(false, a, b)
}

impl Not for Sig {
    type Output = Sig;
    #[track_caller]
    fn not(self) -> Sig {
        own(self);
        match cur(|b| b.kind(self).clone()) {
            Kind::Un(Un::Not, id) => Sig { id, ..self },
            Kind::Lit(v, _) => {
                let mut v: Vec<u64> = v.iter().map(|x| !x).collect();
                cut(&mut v, self.w);
                expr(Kind::Lit(v, None), self.w)
            }
            _ => expr(Kind::Un(Un::Not, self.id), self.w),
        }
    }
}

macro_rules! compare {
    ($($(#[$doc:meta])* $f:ident $op:ident;)*) => { impl Sig { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $f(self, r: impl Operand) -> Sig {
            bin(Bin::$op, self, r)
        }
    )* } };
}
compare! {
    /// Equal: 1 bit.
    eq Eq;
    /// Not equal: 1 bit.
    ne Ne;
    /// Less than, unsigned: 1 bit.
    lt Lt;
    /// Less or equal, unsigned: 1 bit.
    le Le;
    /// Greater than, unsigned: 1 bit.
    gt Gt;
    /// Greater or equal, unsigned: 1 bit.
    ge Ge;
}

impl Sig {
    /// Width in bits.
    pub fn width(&self) -> u32 {
        self.w
    }

    #[track_caller]
    fn reduce(self, op: Un) -> Sig {
        own(self);
        let known = match cur(|b| b.kind(self).clone()) {
            Kind::Lit(v, _) => Some(v.iter().map(|x| x.count_ones()).sum::<u32>()),
            _ => None,
        };
        match (known, op) {
            _ if self.w == 1 => self,
            (Some(n), Un::Any) => lit((n > 0) as u128, 1),
            (Some(n), Un::All) => lit((n == self.w) as u128, 1),
            (Some(n), Un::Parity) => lit((n % 2) as u128, 1),
            _ => expr(Kind::Un(op, self.id), 1),
        }
    }
    /// 1 bit: any bit is set.
    #[track_caller]
    pub fn any(self) -> Sig {
        self.reduce(Un::Any)
    }
    /// 1 bit: all bits are set.
    #[track_caller]
    pub fn all(self) -> Sig {
        self.reduce(Un::All)
    }
    /// 1 bit: no bit is set.
    #[track_caller]
    pub fn none(self) -> Sig {
        !self.any()
    }
    /// 1 bit: an odd number of bits is set.
    #[track_caller]
    pub fn parity(self) -> Sig {
        self.reduce(Un::Parity)
    }

    /// `w` bits from bit `lo` upward.
    #[track_caller]
    pub fn bits(self, lo: u32, w: u32) -> Sig {
        own(self);
        if w == 0 || lo.checked_add(w).is_none_or(|end| end > self.w) {
            let x = cur(|c| c.describe(self.id));
            fail(
                ErrorKind::Width,
                format!(
                    "bits(lo {lo}, width {w}) is outside of {} bits: {x}",
                    self.w
                ),
            );
        }
        let loc = Location::caller();
        cur(|b| b.slice(self, lo, w, loc))
    }
    /// Bit `i`.
    #[track_caller]
    pub fn bit(self, i: u32) -> Sig {
        self.bits(i, 1)
    }
    /// The top `w` bits.
    #[track_caller]
    pub fn hi(self, w: u32) -> Sig {
        self.bits(self.w.saturating_sub(w), w)
    }
    /// The low `w` bits.
    #[track_caller]
    pub fn trunc(self, w: u32) -> Sig {
        self.bits(0, w)
    }
    /// Widened to `w` bits with zeros.
    #[track_caller]
    pub fn zext(self, w: u32) -> Sig {
        own(self);
        match w.checked_sub(self.w) {
            Some(0) => self,
            Some(more) => cat(&[lit(0, more), self]),
            None => fail(
                ErrorKind::Width,
                format!("zext({w}) of {} bits would cut it: use trunc", self.w),
            ),
        }
    }
    /// Zero-extended or cut to `w` bits.
    #[track_caller]
    pub fn resize(self, w: u32) -> Sig {
        if w >= self.w {
            self.zext(w)
        } else {
            self.trunc(w)
        }
    }
    /// All single bits, bit 0 first.
    #[track_caller]
    pub fn to_bits(self) -> Vec<Sig> {
        (0..self.w).map(|i| self.bit(i)).collect()
    }
    /// Cut into parts of `w` bits, lowest first. `w` divides the width.
    #[track_caller]
    pub fn chunks(self, w: u32) -> Vec<Sig> {
        if w == 0 || !self.w.is_multiple_of(w) {
            fail(
                ErrorKind::Width,
                format!("chunks({w}) does not divide {} bits", self.w),
            );
        }
        (0..self.w / w).map(|i| self.bits(i * w, w)).collect()
    }
    /// `n` copies.
    #[track_caller]
    pub fn repeat(self, n: u32) -> Sig {
        own(self);
        match n {
            0 => fail(ErrorKind::Width, "repeat(0)".into()),
            1 => self,
            _ if cur(|b| matches!(b.kind(self), Kind::Lit(_, None))) => {
                cat(&vec![self; n as usize])
            }
            _ => expr(Kind::Rep(self.id, n), self.w * n),
        }
    }

    /// Sum with its carry: one bit wider than the operands.
    #[track_caller]
    pub fn add_wide(self, r: impl Operand) -> Sig {
        let r = r.sig(self.w);
        same(self, r, "operands differ");
        self.zext(self.w + 1) + r.zext(self.w + 1)
    }

    /// On 1 bit: `t` when set, else `f`. One of them may be an integer.
    #[track_caller]
    pub fn mux(self, t: impl Operand, f: impl Operand) -> Sig {
        one_bit(self, "the condition of mux");
        let Some(w) = t.width_hint().or(f.width_hint()) else {
            fail(
                ErrorKind::Width,
                "mux of two integers has no width: use lit(value, width) for one".into(),
            )
        };
        let (t, f) = (t.sig(w), f.sig(w));
        same(t, f, "mux");
        if t.id == f.id {
            return t;
        }
        match cur(|b| b.constant(self)) {
            Some(v) => {
                if v == 1 {
                    t
                } else {
                    f
                }
            }
            None => expr(Kind::Mux(self.id, t.id, f.id), t.w),
        }
    }

    /// The bit that `idx` chooses. `idx` has exactly `clog2(width)` bits; past the end it is undefined.
    #[track_caller]
    pub fn index(self, idx: Sig) -> Sig {
        own(self);
        own(idx);
        if self.w == 1 {
            return self;
        }
        index_width(idx, self.w as u64, "index");
        if let Some(i) = cur(|b| b.constant(idx)).filter(|i| *i < self.w as u128) {
            return self.bit(i as u32);
        }
        expr(Kind::Index(self.id, idx.id), 1)
    }

    /// The aligned part of `w` bits that `idx` chooses. `w` is a power of two that divides the width.
    #[track_caller]
    pub fn word(self, idx: Sig, w: u32) -> Sig {
        own(self);
        own(idx);
        if self.w == w {
            return self;
        }
        word_check(self.w, idx, w);
        if w == 1 {
            return self.index(idx);
        }
        match cur(|b| b.constant(idx)) {
            Some(i) if (i as u32) < self.w / w => self.bits(i as u32 * w, w),
            _ => expr(Kind::Word(self.id, idx.id), w),
        }
    }

    /// How many bits are set: `bits_for(width)` bits.
    #[track_caller]
    pub fn count_ones(self) -> Sig {
        own(self);
        let mut sums: Vec<(Sig, u32)> = self.to_bits().into_iter().map(|b| (b, 1)).collect();
        while sums.len() > 1 {
            let pairs = sums.chunks(2).map(|p| match p {
                [(a, n), (b, m)] => {
                    let w = bits_for((n + m) as u64);
                    (a.zext(w) + b.zext(w), n + m)
                }
                rest => rest[0],
            });
            sums = pairs.collect();
        }
        sums[0].0
    }
}

#[track_caller]
pub(crate) fn index_width(idx: Sig, n: u64, what: &str) {
    let want = clog2(n);
    if idx.w != want {
        let x = cur(|c| c.describe(idx.id));
        fail(
            ErrorKind::Width,
            format!(
                "{what}: {n} places take an index of {want} bits, not {}: {x}; use zext or trunc",
                idx.w
            ),
        );
    }
}

#[track_caller]
pub(crate) fn word_check(total: u32, idx: Sig, w: u32) {
    if !w.is_power_of_two() || !total.is_multiple_of(w) {
        fail(
            ErrorKind::Width,
            format!("word of {w} bits: must be a power of two that divides {total}"),
        );
    }
    index_width(idx, (total / w) as u64, "word");
}
