//! What needs no logic: constants, and slices of slices and of concatenations.
use crate::build::{Bin, Builder, Kind, cur};
use crate::error::Loc;
use crate::sig::{Sig, bin, expr, lit};

/// What needs no logic: operations with constants, and comparisons that tools reject as always true or false.
#[track_caller]
pub(crate) fn fold(op: Bin, a: Sig, b: Sig) -> Option<Sig> {
    let words = |s: Sig| {
        cur(|c| match c.kind(s) {
            Kind::Lit(v, _) => Some(v.clone()),
            _ => None,
        })
    };
    let zero = |v: &[u64]| v.iter().all(|x| *x == 0);
    let ones = |v: &[u64]| v.iter().map(|x| x.count_ones()).sum::<u32>() == a.w;
    let (va, vb) = (words(a), words(b));
    if let (Some(va), Some(vb)) = (&va, &vb) {
        return constant(op, va, vb, a.w);
    }
    if let (Some(v), true) = (&va, matches!(op, Bin::And | Bin::Or | Bin::Xor | Bin::Add))
        && (zero(v) || ones(v))
    {
        return fold(op, b, a);
    }
    let mirrored = match op {
        Bin::Lt => Bin::Gt,
        Bin::Gt => Bin::Lt,
        Bin::Le => Bin::Ge,
        Bin::Ge => Bin::Le,
        same => same,
    };
    if mirrored != op && va.is_some() {
        return Some(bin(mirrored, b, a));
    }
    let v = vb?;
    match op {
        Bin::And if zero(&v) => Some(b),
        Bin::And if ones(&v) => Some(a),
        Bin::Or if zero(&v) => Some(a),
        Bin::Or if ones(&v) => Some(b),
        Bin::Xor | Bin::Add | Bin::Sub if zero(&v) => Some(a),
        Bin::Lt if zero(&v) => Some(lit(0, 1)),
        Bin::Ge if zero(&v) => Some(lit(1, 1)),
        Bin::Gt if ones(&v) => Some(lit(0, 1)),
        Bin::Le if ones(&v) => Some(lit(1, 1)),
        Bin::Eq | Bin::Ne if a.w == 1 => Some(if zero(&v) == (op == Bin::Ne) { a } else { !a }),
        _ => None,
    }
}

/// An operation on two literals.
#[track_caller]
fn constant(op: Bin, a: &[u64], b: &[u64], w: u32) -> Option<Sig> {
    let order = a.iter().rev().cmp(b.iter().rev());
    let mut carry = op == Bin::Sub;
    let mut add = |x: u64, y: u64| {
        let (s, over) = x.overflowing_add(y);
        let (s, more) = s.overflowing_add(carry as u64);
        carry = over || more;
        s
    };
    let pairs = a.iter().zip(b);
    let mut v: Vec<u64> = match op {
        Bin::And => pairs.map(|(x, y)| x & y).collect(),
        Bin::Or => pairs.map(|(x, y)| x | y).collect(),
        Bin::Xor => pairs.map(|(x, y)| x ^ y).collect(),
        Bin::Add => pairs.map(|(x, y)| add(*x, *y)).collect(),
        Bin::Sub => pairs.map(|(x, y)| add(*x, !y)).collect(),
        Bin::Eq => return Some(lit(order.is_eq() as u128, 1)),
        Bin::Ne => return Some(lit(order.is_ne() as u128, 1)),
        Bin::Lt => return Some(lit(order.is_lt() as u128, 1)),
        Bin::Le => return Some(lit(order.is_le() as u128, 1)),
        Bin::Gt => return Some(lit(order.is_gt() as u128, 1)),
        Bin::Ge => return Some(lit(order.is_ge() as u128, 1)),
        Bin::Shl | Bin::Shr => return None,
    };
    cut(&mut v, w);
    Some(expr(Kind::Lit(v, None), w))
}

/// Clears what lies above `w` bits.
pub(crate) fn cut(v: &mut [u64], w: u32) {
    if let (Some(last), true) = (v.last_mut(), !w.is_multiple_of(64)) {
        *last &= (1 << (w % 64)) - 1;
    }
}

/// The words of a concatenation of literals.
#[track_caller]
pub(crate) fn joined(parts: &[Sig], w: u32) -> Option<Vec<u64>> {
    let mut out = vec![0u64; w.div_ceil(64) as usize];
    let mut at = 0;
    for p in parts.iter().rev() {
        let Kind::Lit(v, None) = cur(|b| b.kind(*p).clone()) else {
            return None;
        };
        for i in (0..p.w).filter(|i| v[(i / 64) as usize] >> (i % 64) & 1 == 1) {
            out[((at + i) / 64) as usize] |= 1 << ((at + i) % 64);
        }
        at += p.w;
    }
    Some(out)
}

impl Builder {
    /// The value of a literal of at most 128 bits.
    pub(crate) fn constant(&self, s: Sig) -> Option<u128> {
        match self.kind(s) {
            Kind::Lit(v, _) if v.len() <= 2 => {
                Some(v[0] as u128 | (v.get(1).copied().unwrap_or(0) as u128) << 64)
            }
            _ => None,
        }
    }

    /// A slice, folded through slices, literals and concatenations.
    pub(crate) fn slice(&mut self, s: Sig, lo: u32, w: u32, loc: Loc) -> Sig {
        if lo == 0 && w == s.w {
            return s;
        }
        match self.kind(s).clone() {
            Kind::Slice(a, l) => {
                let base = Sig {
                    id: a,
                    w: self.nodes[a as usize].w,
                    m: s.m,
                };
                self.slice(base, l + lo, w, loc)
            }
            Kind::Lit(v, _) => {
                let bit = |i: u32| v[(i / 64) as usize] >> (i % 64) & 1;
                let mut out = vec![0; w.div_ceil(64) as usize];
                for i in 0..w {
                    out[(i / 64) as usize] |= bit(lo + i) << (i % 64);
                }
                self.expr(Kind::Lit(out, None), w, loc)
            }
            Kind::Cat(parts) => {
                // Keep only the parts that the range touches.
                let (mut at, mut kept) = (0, vec![]);
                for &p in parts.iter().rev() {
                    let pw = self.nodes[p as usize].w;
                    let (from, to) = (lo.max(at), (lo + w).min(at + pw));
                    if from < to {
                        let part = Sig {
                            id: p,
                            w: pw,
                            m: s.m,
                        };
                        kept.push(self.slice(part, from - at, to - from, loc).id);
                    }
                    at += pw;
                }
                kept.reverse();
                match kept[..] {
                    [one] => Sig { id: one, w, m: s.m },
                    _ => self.expr(Kind::Cat(kept), w, loc),
                }
            }
            _ => self.expr(Kind::Slice(s.id, lo), w, loc),
        }
    }
}
