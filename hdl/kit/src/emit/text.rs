//! Texts of expressions, literals and comments.
use super::{Emit, Part};
use crate::build::{Bin, Kind, Un};
use std::fmt::Write;

/// Longer lines are broken.
pub(super) const MAX_LINE: usize = 120;
/// Line length of comments.
const MAX_COMMENT: usize = 110;

/// How tightly a text binds, for parentheses.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Tight {
    Atom,
    /// `~atom`
    Not,
    /// A chain of this associative operator.
    Chain(Bin),
    Loose,
}

pub(super) fn range(w: u32) -> String {
    if w > 1 {
        format!("[{}:0] ", w - 1)
    } else {
        String::new()
    }
}

pub(super) fn literal(v: &[u64], w: u32) -> String {
    if v.iter().skip(1).all(|x| *x == 0) && v[0] < 1000 {
        return format!("{w}'d{}", v[0]);
    }
    let mut digits = String::new();
    for x in v.iter().rev() {
        if digits.is_empty() && *x == 0 {
            continue;
        }
        if digits.is_empty() {
            write!(digits, "{x:x}").ok()
        } else {
            write!(digits, "{x:016x}").ok()
        };
    }
    format!("{w}'h{digits}")
}

pub(super) fn comment_lines(text: &str, indent: &str) -> String {
    let mut out = String::new();
    for line in text.trim_end().lines() {
        let mut at = 0;
        let _ = write!(out, "{indent}//");
        for word in line.split_whitespace() {
            if at > 0 && at + word.len() >= MAX_COMMENT {
                let _ = write!(out, "\n{indent}//");
                at = 0;
            }
            let _ = write!(out, " {word}");
            at += word.len() + 1;
        }
        out.push('\n');
    }
    out
}

impl Emit<'_> {
    /// Writes a line, broken at spaces where it is long.
    pub(super) fn line(&mut self, s: &str) {
        if s.len() > MAX_LINE && !s.contains("//") && !s.contains('\n') {
            let indent = s.len() - s.trim_start().len();
            let mut column = indent;
            self.out.push_str(&s[..indent]);
            for (i, word) in s.trim_start().split(' ').enumerate() {
                if i > 0 && column + word.len() >= MAX_LINE {
                    let _ = write!(self.out, "\n{}", " ".repeat(indent + 4));
                    column = indent + 4;
                } else if i > 0 {
                    self.out.push(' ');
                    column += 1;
                }
                self.out.push_str(word);
                column += word.len();
            }
        } else {
            self.out.push_str(s);
        }
        self.out.push('\n');
    }

    /// Text of a node at statement level.
    pub(super) fn x(&mut self, id: u32) -> String {
        self.operand(id, |_| true)
    }

    /// Text of a node, in parentheses unless `bare` accepts how tightly it binds.
    pub(super) fn operand(&mut self, id: u32, bare: impl Fn(Tight) -> bool) -> String {
        if let Kind::Lit(v, label) = self.b.nodes[id as usize].kind.clone() {
            let net = &self.text[id as usize].0;
            return if net.is_empty() {
                self.lit(&v, self.b.nodes[id as usize].w, label)
            } else {
                net.clone()
            };
        }
        let (text, tight) = &self.text[id as usize];
        if bare(*tight) {
            text.clone()
        } else {
            format!("({text})")
        }
    }

    pub(super) fn lit(&mut self, v: &[u64], w: u32, label: Option<String>) -> String {
        let Some(label) = label else {
            return literal(v, w);
        };
        for part in [Part::Hardware, Part::Checks, Part::Formal] {
            if let Some((lw, lv, name)) = self.labels.get(&(part, label.clone())) {
                // Two enums of one name with different values: the number says it right.
                return if *lw == w && lv == v {
                    name.clone()
                } else {
                    literal(v, w)
                };
            }
        }
        let name = self.b.names.unique(&label);
        self.labels
            .insert((self.part, label), (w, v.to_vec(), name.clone()));
        name
    }

    /// Writes the text of an expression from its operands' texts.
    pub(super) fn express(&mut self, id: u32) -> (String, Tight) {
        let tight = |t: Tight| matches!(t, Tight::Atom | Tight::Not);
        let w = self.b.nodes[id as usize].w;
        match self.b.nodes[id as usize].kind.clone() {
            Kind::Un(op, a) => {
                let a = self.operand(a, |t| t == Tight::Atom);
                match op {
                    Un::Not => (format!("~{a}"), Tight::Not),
                    Un::Any => (format!("|{a}"), Tight::Loose),
                    Un::All => (format!("&{a}"), Tight::Loose),
                    Un::Parity => (format!("^{a}"), Tight::Loose),
                }
            }
            Kind::Bin(op, l, r) => {
                let chain = matches!(op, Bin::And | Bin::Or | Bin::Xor);
                let l = self.operand(l, |t| tight(t) || (chain && t == Tight::Chain(op)));
                let r = self.operand(r, tight);
                (
                    format!("{l} {} {r}", symbol(op)),
                    if chain {
                        Tight::Chain(op)
                    } else {
                        Tight::Loose
                    },
                )
            }
            Kind::Mux(c, t, f) => {
                let (c, t, f) = (
                    self.operand(c, tight),
                    self.operand(t, tight),
                    self.operand(f, tight),
                );
                (format!("{c} ? {t} : {f}"), Tight::Loose)
            }
            Kind::Cat(parts) => {
                let parts: Vec<String> = parts.iter().map(|p| self.x(*p)).collect();
                (format!("{{{}}}", parts.join(", ")), Tight::Atom)
            }
            Kind::Rep(a, n) => (format!("{{{n}{{{}}}}}", self.x(a)), Tight::Atom),
            Kind::Slice(a, lo) if w == 1 => (format!("{}[{lo}]", self.x(a)), Tight::Atom),
            Kind::Slice(a, lo) => (format!("{}[{}:{lo}]", self.x(a), lo + w - 1), Tight::Atom),
            Kind::Index(a, i) => (format!("{}[{}]", self.x(a), self.x(i)), Tight::Atom),
            Kind::Word(a, i) => (
                format!(
                    "{}[{{{}, {}}} +: {w}]",
                    self.x(a),
                    self.x(i),
                    literal(&[0], w.trailing_zeros())
                ),
                Tight::Atom,
            ),
            Kind::MemAsync(m, addr) => {
                let mem = self.b.mems[m].name.clone().unwrap_or_default();
                (format!("{mem}[{}]", self.x(addr)), Tight::Atom)
            }
            _ => (self.name(id), Tight::Atom),
        }
    }
}

pub(super) fn symbol(op: Bin) -> &'static str {
    match op {
        Bin::And => "&",
        Bin::Or => "|",
        Bin::Xor => "^",
        Bin::Add => "+",
        Bin::Sub => "-",
        Bin::Shl => "<<",
        Bin::Shr => ">>",
        Bin::Eq => "==",
        Bin::Ne => "!=",
        Bin::Lt => "<",
        Bin::Le => "<=",
        Bin::Gt => ">",
        Bin::Ge => ">=",
    }
}
