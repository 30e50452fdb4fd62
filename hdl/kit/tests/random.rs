//! Random expressions and statements: the Verilated Verilog against a plain evaluation in Rust.
mod common;
use verilator_sys::{Model, Spec};
use weir_kit::*;

/// xorshift64*: small, and the same everywhere.
struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    fn below(&mut self, n: u32) -> u32 {
        ((self.next() >> 33) % n as u64) as u32
    }
    fn bits(&mut self, w: u32) -> Bits {
        // Corners are as likely as the middle.
        let fill = self.below(4);
        (0..w)
            .map(|_| {
                if fill < 2 {
                    fill == 1
                } else {
                    self.next() >> 63 == 1
                }
            })
            .collect()
    }
}

/// A value, bit 0 first.
type Bits = Vec<bool>;

#[derive(Clone, Debug)]
enum E {
    In(usize),
    Var(usize),
    Lit(Bits),
    Not(Box<E>),
    Any(Box<E>),
    All(Box<E>),
    Parity(Box<E>),
    Ones(Box<E>),
    /// Operator number, see `binary`.
    Bin(u32, Box<E>, Box<E>),
    AddWide(Box<E>, Box<E>),
    Mux(Box<E>, Box<E>, Box<E>),
    Cat(Vec<E>),
    Rep(Box<E>, u32),
    Slice(Box<E>, u32, u32),
    Index(Box<E>, Box<E>),
    Word(Box<E>, Box<E>, u32),
    Pick(Box<E>, Vec<E>),
    Shift(bool, Box<E>, u32),
    ShiftBy(bool, Box<E>, Box<E>),
}

#[derive(Clone, Debug)]
enum S {
    Set(E),
    SetBits(u32, E),
    SetIndex(E, E),
    If(Vec<(E, Vec<S>)>, Vec<S>),
    Case(E, Vec<(u32, Vec<S>)>, Option<Vec<S>>),
}

const INPUTS: [u32; 6] = [1, 4, 8, 32, 64, 70];

struct Gen {
    rng: Rng,
    /// Widths of the variables made so far.
    vars: Vec<u32>,
}

impl Gen {
    fn expr(&mut self, w: u32, depth: u32) -> E {
        let b = |e| Box::new(e);
        if depth == 0 || self.rng.below(12) == 0 {
            return self.leaf(w);
        }
        let d = depth - 1;
        let other = 1 + self.rng.below(20);
        match self.rng.below(17) {
            0 => E::Not(b(self.expr(w, d))),
            1..=4 => E::Bin(self.rng.below(5), b(self.expr(w, d)), b(self.expr(w, d))),
            5 => E::Mux(b(self.expr(1, d)), b(self.expr(w, d)), b(self.expr(w, d))),
            6 if w == 1 => E::Bin(
                5 + self.rng.below(6),
                b(self.expr(other, d)),
                b(self.expr(other, d)),
            ),
            7 if w == 1 => match self.rng.below(3) {
                0 => E::Any(b(self.expr(other, d))),
                1 => E::All(b(self.expr(other, d))),
                _ => E::Parity(b(self.expr(other, d))),
            },
            8 if w == 1 => {
                let wide = 2 + self.rng.below(70);
                // Past the end is undefined: only powers of two have no such place.
                let wide = wide.next_power_of_two();
                E::Index(b(self.expr(wide, d)), b(self.expr(clog2(wide as u64), d)))
            }
            6 if w >= 2 => {
                let low = 1 + self.rng.below(w - 1);
                E::Cat(vec![self.expr(w - low, d), self.expr(low, d)])
            }
            7 if w >= 2 => E::AddWide(b(self.expr(w - 1, d)), b(self.expr(w - 1, d))),
            8 if w.is_multiple_of(3) => E::Rep(b(self.expr(w / 3, d)), 3),
            9 | 10 => {
                let lo = self.rng.below(9);
                let above = self.rng.below(9);
                E::Slice(b(self.expr(w + lo + above, d)), lo, w)
            }
            11 => {
                let n = 2 + self.rng.below(6);
                let sel = self.expr(clog2(n as u64), d);
                E::Pick(b(sel), (0..n).map(|_| self.expr(w, d)).collect())
            }
            12 => E::Shift(
                self.rng.below(2) == 0,
                b(self.expr(w, d)),
                self.rng.below(w + 2),
            ),
            13 => E::ShiftBy(
                self.rng.below(2) == 0,
                b(self.expr(w, d)),
                b(self.expr(1 + other % 7, d)),
            ),
            14 if w.is_power_of_two() => E::Word(b(self.expr(w * 4, d)), b(self.expr(2, d)), w),
            15 if w == 3 => E::Ones(b(self.expr(4 + self.rng.0 as u32 % 4, d))),
            _ => self.leaf(w),
        }
    }

    fn leaf(&mut self, w: u32) -> E {
        let inputs = INPUTS.iter().enumerate().map(|(i, n)| (E::In(i), *n));
        let vars = self.vars.iter().enumerate().map(|(i, n)| (E::Var(i), *n));
        let fits: Vec<(E, u32)> = inputs.chain(vars).filter(|(_, n)| *n >= w).collect();
        if fits.is_empty() || self.rng.below(6) == 0 {
            return E::Lit(self.rng.bits(w));
        }
        let (e, n) = fits[self.rng.below(fits.len() as u32) as usize].clone();
        if n == w {
            e
        } else {
            E::Slice(Box::new(e), self.rng.below(n - w + 1), w)
        }
    }

    fn block(&mut self, w: u32, depth: u32) -> Vec<S> {
        let mut out = vec![];
        for _ in 0..1 + self.rng.below(2) {
            match self.rng.below(if depth == 0 { 3 } else { 7 }) {
                // Only first: a later whole set would override, which is an error.
                0 | 1 if out.is_empty() => out.push(S::Set(self.expr(w, 2))),
                0 | 1 => {}
                2 if w > 1 && w.is_power_of_two() => {
                    out.push(S::SetIndex(self.expr(clog2(w as u64), 2), self.expr(1, 2)))
                }
                2 => {
                    let n = 1 + self.rng.below(w);
                    let lo = self.rng.below(w - n + 1);
                    if n < w {
                        out.push(S::SetBits(lo, self.expr(n, 2)));
                    }
                }
                3..=5 => {
                    let arms = (0..1 + self.rng.below(3))
                        .map(|_| (self.expr(1, 2), self.block(w, depth - 1)))
                        .collect();
                    let rest = if self.rng.below(2) == 0 {
                        self.block(w, depth - 1)
                    } else {
                        vec![]
                    };
                    out.push(S::If(arms, rest));
                }
                _ => {
                    let n = 1 + self.rng.below(4);
                    let arms = (0..n).map(|i| (i, self.block(w, depth - 1))).collect();
                    let rest = (self.rng.below(2) == 0).then(|| self.block(w, depth - 1));
                    out.push(S::Case(self.expr(2, 2), arms, rest));
                }
            }
        }
        out
    }
}

/// The expression as hardware.
fn build(e: &E, ins: &[Sig], vars: &[Sig]) -> Sig {
    let x = |e: &E| build(e, ins, vars);
    match e {
        E::In(i) => ins[*i],
        E::Var(i) => vars[*i],
        E::Lit(v) => lit_words(&words(v), v.len() as u32),
        E::Not(a) => !x(a),
        E::Any(a) => x(a).any(),
        E::All(a) => x(a).all(),
        E::Parity(a) => x(a).parity(),
        E::Ones(a) => x(a).count_ones(),
        E::Bin(op, a, b) => {
            let (a, b) = (x(a), x(b));
            match op {
                0 => a & b,
                1 => a | b,
                2 => a ^ b,
                3 => a + b,
                4 => a - b,
                5 => a.eq(b),
                6 => a.ne(b),
                7 => a.lt(b),
                8 => a.le(b),
                9 => a.gt(b),
                _ => a.ge(b),
            }
        }
        E::AddWide(a, b) => x(a).add_wide(x(b)),
        E::Mux(c, t, f) => x(c).mux(x(t), x(f)),
        E::Cat(v) => cat(&v.iter().map(x).collect::<Vec<_>>()),
        E::Rep(a, n) => x(a).repeat(*n),
        E::Slice(a, lo, w) => x(a).bits(*lo, *w),
        E::Index(a, i) => x(a).index(x(i)),
        E::Word(a, i, w) => x(a).word(x(i), *w),
        E::Pick(s, v) => mux_n(x(s), &v.iter().map(x).collect::<Vec<_>>()),
        E::Shift(true, a, n) => x(a) << *n,
        E::Shift(false, a, n) => x(a) >> *n,
        E::ShiftBy(true, a, n) => x(a) << x(n),
        E::ShiftBy(false, a, n) => x(a) >> x(n),
    }
}

fn drive(block: &[S], target: Sig, ins: &[Sig], vars: &[Sig]) {
    let x = |e: &E| build(e, ins, vars);
    for s in block {
        match s {
            S::Set(e) => target.set(x(e)),
            S::SetBits(lo, e) => target.set_bits(*lo, x(e)),
            S::SetIndex(i, e) => target.set_index(x(i), x(e)),
            S::If(arms, rest) => {
                let first = when(x(&arms[0].0), || drive(&arms[0].1, target, ins, vars));
                let last = arms[1..].iter().fold(first, |w, (c, b)| {
                    w.elsewhen(x(c), || drive(b, target, ins, vars))
                });
                last.otherwise(|| drive(rest, target, ins, vars));
            }
            S::Case(sel, arms, rest) => switch(x(sel), |s| {
                for (v, b) in arms {
                    s.is(*v, || drive(b, target, ins, vars));
                }
                if let Some(b) = rest {
                    s.default(|| drive(b, target, ins, vars));
                }
            }),
        }
    }
}

fn words(v: &Bits) -> Vec<u64> {
    let mut out = vec![0; v.len().div_ceil(64)];
    v.iter()
        .enumerate()
        .filter(|(_, b)| **b)
        .for_each(|(i, _)| out[i / 64] |= 1 << (i % 64));
    out
}

fn number(v: &Bits) -> usize {
    v.iter()
        .enumerate()
        .map(|(i, b)| if i < 20 { (*b as usize) << i } else { 0 })
        .sum()
}

fn add(a: &Bits, b: &Bits, mut carry: bool) -> Bits {
    a.iter()
        .zip(b)
        .map(|(x, y)| {
            let s = x ^ y ^ carry;
            carry = (*x && *y) || (carry && (x ^ y));
            s
        })
        .collect()
}

/// The same expression, evaluated bit by bit.
fn eval(e: &E, ins: &[Bits], vars: &[Bits]) -> Bits {
    let x = |e: &E| eval(e, ins, vars);
    let shift = |left: bool, v: Bits, n: usize| -> Bits {
        let w = v.len();
        (0..w)
            .map(|i| {
                if left {
                    i >= n && v[i - n]
                } else {
                    n < w && i < w - n && v[i + n]
                }
            })
            .collect()
    };
    match e {
        E::In(i) => ins[*i].clone(),
        E::Var(i) => vars[*i].clone(),
        E::Lit(v) => v.clone(),
        E::Not(a) => x(a).iter().map(|b| !b).collect(),
        E::Any(a) => vec![x(a).contains(&true)],
        E::All(a) => vec![!x(a).contains(&false)],
        E::Parity(a) => vec![x(a).iter().fold(false, |p, b| p ^ b)],
        E::Ones(a) => {
            let n = x(a).iter().filter(|b| **b).count();
            (0..3).map(|i| n >> i & 1 == 1).collect()
        }
        E::Bin(op, a, b) => {
            let (a, b) = (x(a), x(b));
            let bitwise =
                |f: fn(bool, bool) -> bool| a.iter().zip(&b).map(|(x, y)| f(*x, *y)).collect();
            let order = a.iter().rev().cmp(b.iter().rev());
            match op {
                0 => bitwise(|x, y| x & y),
                1 => bitwise(|x, y| x | y),
                2 => bitwise(|x, y| x ^ y),
                3 => add(&a, &b, false),
                4 => add(&a, &b.iter().map(|b| !b).collect(), true),
                5 => vec![order.is_eq()],
                6 => vec![order.is_ne()],
                7 => vec![order.is_lt()],
                8 => vec![order.is_le()],
                9 => vec![order.is_gt()],
                _ => vec![order.is_ge()],
            }
        }
        E::AddWide(a, b) => {
            let (mut a, mut b) = (x(a), x(b));
            a.push(false);
            b.push(false);
            add(&a, &b, false)
        }
        E::Mux(c, t, f) => x(if x(c)[0] { t } else { f }),
        E::Cat(v) => v.iter().rev().flat_map(x).collect(),
        E::Rep(a, n) => x(a).repeat(*n as usize),
        E::Slice(a, lo, w) => x(a)[*lo as usize..(*lo + *w) as usize].to_vec(),
        E::Index(a, i) => vec![x(a)[number(&x(i))]],
        E::Word(a, i, w) => x(a)
            .chunks(*w as usize)
            .nth(number(&x(i)))
            .expect("in range")
            .to_vec(),
        E::Pick(s, v) => x(&v[number(&x(s)).min(v.len() - 1)]),
        E::Shift(left, a, n) => shift(*left, x(a), *n as usize),
        E::ShiftBy(left, a, n) => shift(*left, x(a), number(&x(n))),
    }
}

fn run(block: &[S], target: &mut Bits, ins: &[Bits], vars: &[Bits]) {
    let x = |e: &E| eval(e, ins, vars);
    for s in block {
        match s {
            S::Set(e) => *target = x(e),
            S::SetBits(lo, e) => x(e)
                .iter()
                .enumerate()
                .for_each(|(i, b)| target[*lo as usize + i] = *b),
            S::SetIndex(i, e) => target[number(&x(i))] = x(e)[0],
            S::If(arms, rest) => {
                let taken = arms.iter().find(|(c, _)| x(c)[0]).map_or(rest, |a| &a.1);
                run(taken, target, ins, vars);
            }
            S::Case(sel, arms, rest) => {
                let v = number(&x(sel)) as u32;
                let taken = arms
                    .iter()
                    .find(|a| a.0 == v)
                    .map(|a| &a.1)
                    .or(rest.as_ref());
                if let Some(b) = taken {
                    run(b, target, ins, vars);
                }
            }
        }
    }
}

#[derive(Clone, Bundle)]
#[bundle(params = u32)]
struct Io {
    /// All inputs, joined.
    #[input]
    #[bits(INPUTS.iter().sum::<u32>())]
    ins: Sig,
    /// All results, joined.
    #[output]
    #[bits(*p)]
    outs: Sig,
}

/// No warning but of what a random constant makes useless.
fn lint(m: &Module, seed: u64) {
    let Err(error) = verilator_sys::lint(m.files(), m.name()) else {
        return;
    };
    if let verilator_sys::Error::Verilog { diagnostics, .. } = &error
        && !diagnostics.is_empty()
        && diagnostics
            .iter()
            .all(|d| ["UNUSEDSIGNAL", "CMPCONST"].contains(&d.code.as_str()))
    {
        return;
    }
    panic!("seed {seed}: {error}\n{}", m.verilog());
}

/// `WEIR_RANDOM_SEEDS` sets how many designs are tried.
#[test]
fn verilog_computes_what_rust_computes() {
    let seeds = std::env::var("WEIR_RANDOM_SEEDS").map_or(8u64, |n| n.parse().expect("a number"));
    for seed in 1..=seeds {
        compare(seed, |m| m.files());
    }
}

/// What Yosys read, written back: the same results.
#[test]
fn yosys_reads_what_verilator_reads() {
    for seed in 101..=103 {
        compare(seed, |m| {
            let script = format!(
                "read_verilog {0}.v; prep -top {0}; write_verilog -noattr netlist.v",
                m.name()
            );
            let (dir, _) = common::yosys::yosys(m.name(), &m.files(), &script);
            let text = std::fs::read_to_string(dir.join("netlist.v")).expect("the netlist");
            vec![("netlist.v".into(), text)]
        });
    }
}

/// Random design `seed`: the Verilog that `files` makes of it against the evaluation.
fn compare(seed: u64, files: impl Fn(&Module) -> Vec<(String, String)>) {
    let mut g = Gen {
        rng: Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        vars: vec![],
    };
    let mut vars: Vec<(E, Vec<S>)> = vec![];
    for _ in 0..6 {
        let w = 1 + g.rng.below(16);
        vars.push((g.expr(w, 3), g.block(w, 2)));
        g.vars.push(w);
    }
    let exprs: Vec<(u32, E)> = (0..24)
        .map(|_| {
            let w = 1 + g.rng.below(if g.rng.0 & 3 == 0 { 70 } else { 12 });
            (w, g.expr(w, 5))
        })
        .collect();
    let total = exprs.iter().map(|e| e.0).sum::<u32>() + g.vars.iter().sum::<u32>();
    let name = format!("random_{seed}");
    let m = try_module(&name, "random expressions.", &total, |io: Io| {
        unused(io.ins);
        let mut lo = 0;
        let ins: Vec<Sig> = INPUTS
            .iter()
            .map(|w| {
                lo += w;
                io.ins.bits(lo - w, *w)
            })
            .collect();
        let mut made: Vec<Sig> = vec![];
        for (default, block) in &vars {
            let v = var(build(default, &ins, &made));
            drive(block, v, &ins, &made);
            made.push(v);
        }
        // Variables first: a wrong one makes wrong results after it.
        let results = exprs.iter().map(|(_, e)| build(e, &ins, &made));
        let mut outs: Vec<Sig> = made.iter().copied().chain(results).collect();
        outs.reverse();
        io.outs.set(cat(&outs));
    });
    let m = m.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    lint(&m, seed);
    let mut sim = Model::build(&Spec::new(m.name(), files(&m)))
        .expect("the model builds")
        .instance(seed)
        .expect("a simulation");
    let (to, from) = (
        sim.wide_input("ins").expect("ins"),
        sim.wide_output("outs").expect("outs"),
    );
    for _ in 0..400 {
        let ins: Vec<Bits> = INPUTS.iter().map(|w| g.rng.bits(*w)).collect();
        let mut values: Vec<Bits> = vec![];
        for (default, block) in &vars {
            let mut v = eval(default, &ins, &values);
            run(block, &mut v, &ins, &values);
            values.push(v);
        }
        let results: Vec<Bits> = exprs.iter().map(|(_, e)| eval(e, &ins, &values)).collect();
        let want: Vec<Bits> = values.into_iter().chain(results).collect();
        sim.set_wide(to, &words(&ins.concat()));
        sim.eval();
        let mut got = vec![0u64; (total as usize).div_ceil(64)];
        sim.get_wide(from, &mut got);
        let mut at = 0;
        for (i, v) in want.iter().enumerate() {
            let seen: Bits = (at..at + v.len())
                .map(|k| got[k / 64] >> (k % 64) & 1 == 1)
                .collect();
            let what = match i.checked_sub(vars.len()) {
                None => format!("{:?}", vars[i]),
                Some(i) => format!("{:?}", exprs[i].1),
            };
            assert_eq!(
                &seen,
                v,
                "seed {seed}, result {i} (bit 0 first): {what}\ninputs {ins:?}\n{}",
                m.verilog()
            );
            at += v.len();
        }
    }
}
