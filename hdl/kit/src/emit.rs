//! Verilog-2005 from an analysed module: the same bytes every time.
use crate::analyze::{Facts, each_leaf};
use crate::build::{Bin, Builder, Kind, Un};
use crate::bundle::{Dir, Role};
use crate::mem::{MemData, Style};
use crate::stmt::{CheckKind, Lhs, Stmt};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

/// Longer expressions are broken into nets.
const MAX_TEXT: usize = 100;
/// Longer lines are broken.
const MAX_LINE: usize = 120;
/// Line length of comments.
const MAX_COMMENT: usize = 110;

/// How tightly a text binds, for parentheses.
#[derive(Clone, Copy, PartialEq)]
enum Tight {
    Atom,
    /// `~atom`
    Not,
    /// A chain of this associative operator.
    Chain(Bin),
    Loose,
}

/// Which part of the file is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Hardware,
    /// Under `WEIR_ASSERT`.
    Checks,
    /// Under `FORMAL`.
    Formal,
}

struct Emit<'a> {
    b: &'a mut Builder,
    facts: &'a Facts,
    text: Vec<(String, Tight)>,
    /// Nodes that must be nets because Verilog selects only from names.
    must: HashSet<u32>,
    /// Nodes that became nets (with their names in `text`).
    nets: Vec<u32>,
    labels: BTreeMap<(Part, String), (u32, Vec<u64>, String)>,
    generated: u32,
    part: Part,
    out: String,
}

pub(crate) fn emit(b: &mut Builder, facts: &Facts) -> String {
    name_rest(b);
    let mut must = HashSet::new();
    for (id, n) in b
        .nodes
        .iter()
        .enumerate()
        .filter(|(id, _)| facts.live[*id] || facts.checked[*id])
    {
        match n.kind {
            Kind::Slice(a, _) | Kind::Index(a, _) | Kind::Word(a, _) => {
                must.insert(a);
            }
            Kind::MemAsync(..) | Kind::Select(..) => {
                must.insert(id as u32);
            }
            _ => {}
        }
    }
    let n = b.nodes.len();
    let mut e = Emit {
        b,
        facts,
        text: vec![(String::new(), Tight::Atom); n],
        must,
        nets: vec![],
        labels: BTreeMap::new(),
        generated: 0,
        part: Part::Hardware,
        out: String::new(),
    };
    e.nets();
    e.combinational();
    e.instances();
    e.memories();
    e.registers();
    e.sink();
    let hardware = std::mem::take(&mut e.out);
    e.part = Part::Checks;
    e.checks();
    let checks = std::mem::take(&mut e.out);
    e.part = Part::Formal;
    e.checks();
    let formal = std::mem::take(&mut e.out);
    e.assemble(&hardware, &checks, &formal)
}

/// Gives every declared thing without a name one.
fn name_rest(b: &mut Builder) {
    for i in 0..b.mems.len() {
        if b.mems[i].name.is_none() {
            b.mems[i].name = Some(b.names.unique("mem"));
        }
    }
    for id in 0..b.nodes.len() {
        let base = match b.nodes[id].kind {
            _ if b.nodes[id].name.is_some() => continue,
            Kind::Reg(_) if b.nodes[id].ghost => "ghost".into(),
            Kind::Reg(_) => "r".into(),
            Kind::Var(_) => "v".into(),
            Kind::Wire => "w".into(),
            Kind::MemRead(m, _) => format!("{}_q", b.mems[m].name.as_deref().unwrap_or("mem")),
            Kind::Any(true) => "anyconst".into(),
            Kind::Any(false) => "anyseq".into(),
            _ => continue,
        };
        b.nodes[id].name = Some(b.names.unique(&base));
    }
}

fn range(w: u32) -> String {
    if w > 1 {
        format!("[{}:0] ", w - 1)
    } else {
        String::new()
    }
}

fn literal(v: &[u64], w: u32) -> String {
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

fn comment_lines(text: &str, indent: &str) -> String {
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
    fn line(&mut self, s: &str) {
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

    fn name(&self, id: u32) -> String {
        self.b.nodes[id as usize].name.clone().unwrap_or_default()
    }

    /// Text of a node at statement level.
    fn x(&mut self, id: u32) -> String {
        self.operand(id, |_| true)
    }

    /// Text of a node, in parentheses unless `bare` accepts how tightly it binds.
    fn operand(&mut self, id: u32, bare: impl Fn(Tight) -> bool) -> String {
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

    fn lit(&mut self, v: &[u64], w: u32, label: Option<String>) -> String {
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
    fn express(&mut self, id: u32) -> (String, Tight) {
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

    /// Whether a node belongs to the part being written.
    fn here(&self, id: usize) -> bool {
        let f = self.facts;
        match self.part {
            Part::Hardware => f.live[id],
            Part::Checks => !f.live[id] && f.checked[id] && !f.formal_only[id],
            Part::Formal => !f.live[id] && f.checked[id] && f.formal_only[id],
        }
    }

    /// Declarations and nets, in the order of the Rust source.
    fn nets(&mut self) {
        self.text[0] = ("rst".into(), Tight::Atom);
        self.memory_arrays();
        for id in 0..self.b.nodes.len() {
            if !self.here(id) {
                continue;
            }
            let i = id as u32;
            let (kind, w) = (self.b.nodes[id].kind.clone(), self.b.nodes[id].w);
            match kind {
                Kind::Lit(..) if !self.must.contains(&i) => continue,
                Kind::Rst => continue,
                _ => {}
            }
            if let Some(c) = self.b.nodes[id].comment.clone() {
                self.out.push_str(&comment_lines(&c, "  "));
            }
            if kind.is_decl() {
                self.text[id] = (self.name(i), Tight::Atom);
                let word = match kind {
                    Kind::Input | Kind::Output => continue,
                    Kind::Any(c) => {
                        let attribute = if c { "anyconst" } else { "anyseq" };
                        let line = format!("  (* {attribute} *) reg {}{};", range(w), self.name(i));
                        self.line(&line);
                        continue;
                    }
                    Kind::InstOut(..) => "wire",
                    Kind::Reg(_) | Kind::MemRead(..) => "reg ",
                    _ if self.facts.simple.contains_key(&i) => "wire",
                    Kind::Var(_) if !self.is_set(i) => "wire",
                    _ => "reg ",
                };
                let line = format!("  {word} {}{};", range(w), self.name(i));
                self.line(&line);
                continue;
            }
            let (text, tight) = match &kind {
                Kind::Lit(v, _) => (literal(v, w), Tight::Atom),
                _ => self.express(i),
            };
            let named = self.b.nodes[id].name.is_some();
            let plain = match kind {
                Kind::Slice(..) | Kind::Index(..) | Kind::Lit(..) => true,
                Kind::Un(Un::Not, _) => text.len() < 24,
                _ => false,
            };
            if !named
                && !self.must.contains(&i)
                && (self.facts.uses[id] <= 1 || plain)
                && text.len() <= MAX_TEXT
            {
                self.text[id] = (text, tight);
                continue;
            }
            if !named {
                self.generated += 1;
                let name = self.b.names.unique(&format!("n{}", self.generated));
                self.b.nodes[id].name = Some(name);
            }
            let name = self.name(i);
            if let Kind::Select(sel, items) = kind {
                self.select(&name, w, sel, &items);
            } else {
                let line = format!("  wire {}{name} = {text};", range(w));
                self.line(&line);
            }
            self.text[id] = (name, Tight::Atom);
            self.nets.push(i);
        }
    }

    fn select(&mut self, name: &str, w: u32, sel: u32, items: &[u32]) {
        let sw = self.b.nodes[sel as usize].w;
        let sel = self.x(sel);
        self.line(&format!("  reg  {}{name};", range(w)));
        self.line(&format!("  always @* begin\n    case ({sel})"));
        for (i, item) in items.iter().enumerate() {
            let x = self.x(*item);
            let label = if i + 1 == items.len() {
                "default".into()
            } else {
                literal(&[i as u64], sw)
            };
            self.line(&format!("      {label}: {name} = {x};"));
        }
        self.line("    endcase\n  end");
    }

    fn is_set(&self, target: u32) -> bool {
        let mut found = false;
        Stmt::walk(&self.b.blocks[0], &mut |s| {
            found |= matches!(s, Stmt::Set { target: t, .. } if *t == target)
        });
        found
    }

    /// Drivers of combinational targets, in the order of declaration.
    fn combinational(&mut self) {
        let blocks = std::mem::take(&mut self.b.blocks);
        for id in 0..self.b.nodes.len() {
            let i = id as u32;
            if !self.here(id) || !self.b.nodes[id].kind.is_comb_target() {
                continue;
            }
            let name = self.name(i);
            if let Some(v) = self.facts.simple.get(&i).copied() {
                let comment = blocks[0].iter().find_map(|s| match s {
                    Stmt::Set {
                        target, comment, ..
                    } if *target == i => comment.clone(),
                    _ => None,
                });
                if let Some(c) = comment {
                    self.out.push_str(&comment_lines(&c, "  "));
                }
                let v = self.x(v);
                self.line(&format!("  assign {name} = {v};"));
                continue;
            }
            let pick = |s: &Stmt| matches!(s, Stmt::Set { target, .. } if *target == i);
            let default = match self.b.nodes[id].kind {
                Kind::Var(d) => Some(self.x(d)),
                _ => None,
            };
            if !any(&blocks[0], &pick) {
                let d = default.unwrap_or_default();
                self.line(&format!("  assign {name} = {d};"));
                continue;
            }
            self.line("  always @* begin");
            if let Some(d) = default {
                self.line(&format!("    {name} = {d};"));
            }
            self.block(&blocks[0], &pick, "=", 4);
            self.line("  end");
        }
        self.b.blocks = blocks;
    }

    /// The statements that `pick` takes, with the `if` and `case` around them.
    fn block(&mut self, stmts: &[Stmt], pick: &dyn Fn(&Stmt) -> bool, assign: &str, indent: usize) {
        let pad = " ".repeat(indent);
        for s in stmts.iter().filter(|s| any(std::slice::from_ref(*s), pick)) {
            let (Stmt::Set { comment, .. } | Stmt::If { comment, .. } | Stmt::Case { comment, .. }) =
                s
            else {
                self.check(s, &pad);
                continue;
            };
            if let Some(c) = comment {
                self.out.push_str(&comment_lines(c, &pad));
            }
            match s {
                Stmt::Set {
                    target, lhs, value, ..
                } => {
                    let (name, v) = (self.name(*target), self.x(*value));
                    let w = self.b.nodes[*value as usize].w;
                    let lhs = match lhs {
                        Lhs::Whole => name,
                        Lhs::Bits(lo) if w == 1 => format!("{name}[{lo}]"),
                        Lhs::Bits(lo) => format!("{name}[{}:{lo}]", lo + w - 1),
                        Lhs::Index(i) => format!("{name}[{}]", self.x(*i)),
                        Lhs::Word(i) => format!(
                            "{name}[{{{}, {}}} +: {w}]",
                            self.x(*i),
                            literal(&[0], w.trailing_zeros())
                        ),
                    };
                    self.line(&format!("{pad}{lhs} {assign} {v};"));
                }
                Stmt::If {
                    arms, otherwise, ..
                } => {
                    let used = |b: &[Stmt]| any(b, pick);
                    let rest = otherwise.as_deref().filter(|b| used(b));
                    let last = arms.iter().rposition(|(_, b)| used(b)).map_or(0, |i| i + 1);
                    let arms = if rest.is_some() {
                        &arms[..]
                    } else {
                        &arms[..last]
                    };
                    // `if (c) nothing else x` reads better as `if (!c) x`.
                    if let ([(c, first)], Some(rest)) = (arms, rest)
                        && !used(first)
                    {
                        let c = self.operand(*c, |t| t == Tight::Atom);
                        self.line(&format!("{pad}if (!{c}) begin"));
                        self.block(rest, pick, assign, indent + 2);
                        self.line(&format!("{pad}end"));
                        continue;
                    }
                    for (i, (c, body)) in arms.iter().enumerate() {
                        let c = self.x(*c);
                        let lead = if i == 0 {
                            pad.clone()
                        } else {
                            format!("{pad}end else ")
                        };
                        self.line(&format!("{lead}if ({c}) begin"));
                        self.block(body, pick, assign, indent + 2);
                    }
                    if let Some(rest) = rest {
                        self.line(&format!("{pad}end else begin"));
                        self.block(rest, pick, assign, indent + 2);
                    }
                    self.line(&format!("{pad}end"));
                }
                Stmt::Case {
                    sel, arms, default, ..
                } => {
                    let w = self.b.nodes[*sel as usize].w;
                    let sel = self.x(*sel);
                    self.line(&format!("{pad}case ({sel})"));
                    let values: usize = arms.iter().map(|(v, _)| v.len()).sum();
                    let full = default.is_none() && w < 32 && values == 1 << w;
                    let rest = default.as_deref().filter(|b| any(b, pick));
                    for (i, (values, body)) in arms.iter().enumerate() {
                        let last = full && i + 1 == arms.len();
                        let used = any(body, pick);
                        if !used && rest.is_none() && !last {
                            continue;
                        }
                        let values: Vec<String> = values.iter().map(|v| self.x(*v)).collect();
                        // A full case ends in `default`, so that no tool sees a latch.
                        let label = if last {
                            "default".into()
                        } else {
                            values.join(", ")
                        };
                        let note = if last {
                            format!(" // {}", values.join(", "))
                        } else {
                            String::new()
                        };
                        if !used {
                            self.line(&format!("{pad}  {label}: ;{note}"));
                            continue;
                        }
                        self.line(&format!("{pad}  {label}: begin{note}"));
                        self.block(body, pick, assign, indent + 4);
                        self.line(&format!("{pad}  end"));
                    }
                    match rest {
                        Some(body) => {
                            self.line(&format!("{pad}  default: begin"));
                            self.block(body, pick, assign, indent + 4);
                            self.line(&format!("{pad}  end"));
                        }
                        None if !full => self.line(&format!("{pad}  default: ;")),
                        None => {}
                    }
                    self.line(&format!("{pad}endcase"));
                }
                Stmt::Check { .. } => {}
            }
        }
    }

    fn check(&mut self, s: &Stmt, pad: &str) {
        if let Stmt::Check { kind, name, cond } = s {
            let word = match kind {
                CheckKind::Assert => "assert",
                CheckKind::Assume => "assume",
                CheckKind::Cover => "cover",
            };
            let c = self.x(*cond);
            self.line(&format!("{pad}{name}: {word} ({c});"));
        }
    }

    fn instances(&mut self) {
        for i in 0..self.b.insts.len() {
            let inst = &self.b.insts[i];
            let mut text = inst
                .comment
                .as_deref()
                .map(|c| comment_lines(c, "  "))
                .unwrap_or_default();
            let _ = write!(
                text,
                "  {} {} (\n    .clk(clk),\n    .rst(rst)",
                inst.module.name(),
                inst.name
            );
            for (port, net) in inst.module.ports().iter().zip(&inst.nets) {
                let _ = write!(text, ",\n    .{}({})", port.name, self.name(*net));
            }
            self.line(&format!("{text}\n  );"));
        }
    }

    fn mem_here(&self, m: &MemData) -> bool {
        let tainted = m
            .reads
            .iter()
            .any(|r| self.facts.formal_only[r.node as usize])
            || m.writes.iter().any(|w| {
                [w.en, w.addr, w.data]
                    .iter()
                    .any(|x| self.facts.formal_only[*x as usize])
            });
        match self.part {
            Part::Hardware => !m.ghost,
            Part::Checks => m.ghost && !tainted,
            Part::Formal => m.ghost && tainted,
        }
    }

    fn memory_arrays(&mut self) {
        for i in 0..self.b.mems.len() {
            let m = &self.b.mems[i];
            if !self.mem_here(m) {
                continue;
            }
            let mut attributes = vec![];
            match m.style {
                Style::Auto => {}
                Style::Block => attributes.push("ram_style = \"block\""),
                Style::Distributed => attributes.push("ram_style = \"distributed\""),
                Style::Registers => attributes.push("ram_style = \"registers\""),
            }
            if !m.reads.is_empty() && !m.writes.is_empty() && !m.read_old {
                attributes.push("no_rw_check");
            }
            let attributes = if attributes.is_empty() {
                String::new()
            } else {
                format!("(* {} *) ", attributes.join(", "))
            };
            let comment = m
                .comment
                .as_deref()
                .map(|c| comment_lines(c, "  "))
                .unwrap_or_default();
            let name = m.name.clone().unwrap_or_default();
            let mut text = format!(
                "{comment}  {attributes}reg {}{name} [0:{}];",
                range(m.w),
                m.depth - 1
            );
            if let Some(init) = &m.init {
                text.push_str("\n  initial begin");
                for (a, w) in init.iter().enumerate() {
                    let mut w = w.clone();
                    w.resize(m.w.div_ceil(64) as usize, 0);
                    let _ = write!(text, "\n    {name}[{a}] = {};", literal(&w, m.w));
                }
                for a in init.len() as u64..m.depth {
                    let _ = write!(text, "\n    {name}[{a}] = {};", literal(&[0], m.w));
                }
                text.push_str("\n  end");
            }
            self.line(&text);
        }
    }

    fn memories(&mut self) {
        for i in 0..self.b.mems.len() {
            if !self.mem_here(&self.b.mems[i]) {
                continue;
            }
            let m = &self.b.mems[i];
            let (name, w, read_old) = (m.name.clone().unwrap_or_default(), m.w, m.read_old);
            let writes: Vec<_> = m
                .writes
                .iter()
                .map(|p| (p.en, p.strobe, p.addr, p.data, p.comment.clone()))
                .collect();
            let reads: Vec<_> = m.reads.iter().map(|p| (p.en, p.addr, p.node)).collect();
            if !writes.is_empty() {
                self.line("  always @(posedge clk) begin");
                for (en, strobe, addr, data, comment) in &writes {
                    let (en, a, d) = (self.x(*en), self.x(*addr), *data);
                    if let Some(c) = comment {
                        self.out.push_str(&comment_lines(c, "    "));
                    }
                    self.line(&format!("    if ({en}) begin"));
                    match strobe {
                        None => {
                            let d = self.x(d);
                            self.line(&format!("      {name}[{a}] <= {d};"));
                        }
                        Some(s) => self.lanes(&name, w, *s, &a, d),
                    }
                    self.line("    end");
                }
                self.line("  end");
            }
            for (en, addr, node) in reads {
                let (en, a, q) = (self.x(en), self.x(addr), self.name(node));
                let plain = format!(
                    "  always @(posedge clk) begin\n    if ({en}) {q} <= {name}[{a}];\n  end"
                );
                if writes.is_empty() || read_old {
                    self.line(&plain);
                    continue;
                }
                let hits: Vec<String> = writes
                    .iter()
                    .map(|p| {
                        format!(
                            "({} && {} == {a})",
                            self.operand(p.0, |t| t == Tight::Atom),
                            self.operand(p.2, |t| t == Tight::Atom)
                        )
                    })
                    .collect();
                let hit = hits.join(" || ");
                let guarded = |value: &str| {
                    format!(
                        "  always @(posedge clk) begin\n    if ({en}) begin\n      if ({hit}) {q} <= {value};\n      else {q} <= {name}[{a}];\n    end\n  end"
                    )
                };
                let words = w.div_ceil(32) as usize;
                let random = vec!["$urandom"; words].join(", ");
                let slice = if words == 1 && w == 1 {
                    "[0]".into()
                } else {
                    format!("[{}:0]", w - 1)
                };
                let wide = words * 32;
                let text = format!(
                    "`ifdef WEIR_RANDOM_COLLISION\n  // verilator lint_off UNUSEDSIGNAL\n  reg [{}:0] {q}_random;\n  // verilator lint_on UNUSEDSIGNAL\n  \
                     always @(posedge clk) {q}_random <= {{{random}}};\n{}\n`else\n`ifdef FORMAL\n  (* anyseq *) reg {}{q}_any;\n{}\n`else\n{plain}\n`endif\n`endif",
                    wide - 1,
                    guarded(&format!("{q}_random{slice}")),
                    range(w),
                    guarded(&format!("{q}_any")),
                );
                self.line(&text);
            }
        }
    }

    /// One conditional assignment a lane.
    fn lanes(&mut self, name: &str, w: u32, strobe: u32, addr: &str, data: u32) {
        let n = self.b.nodes[strobe as usize].w;
        let lane = w / n;
        let (s, d) = (self.x(strobe), self.x(data));
        for i in 0..n {
            let on = if n == 1 {
                s.clone()
            } else {
                format!("{s}[{i}]")
            };
            let part = if lane == 1 {
                format!("[{i}]")
            } else {
                format!("[{}:{}]", (i + 1) * lane - 1, i * lane)
            };
            let part = if n == 1 { String::new() } else { part };
            self.line(&format!(
                "      if ({on}) {name}[{addr}]{part} <= {d}{part};"
            ));
        }
    }

    /// All registers of the part: one block.
    fn registers(&mut self) {
        let regs: Vec<u32> = (0..self.b.nodes.len())
            .filter(|id| self.here(*id) && matches!(self.b.nodes[*id].kind, Kind::Reg(_)))
            .map(|id| id as u32)
            .collect();
        if regs.is_empty() {
            return;
        }
        let blocks = std::mem::take(&mut self.b.blocks);
        let set: HashSet<u32> = regs.iter().copied().collect();
        self.line("  always @(posedge clk) begin");
        self.block(
            &blocks[0],
            &|s| matches!(s, Stmt::Set { target, .. } if set.contains(target)),
            "<=",
            4,
        );
        let resets: Vec<(u32, u32)> = regs
            .iter()
            .filter_map(|r| match self.b.nodes[*r as usize].kind {
                Kind::Reg(Some(v)) => Some((*r, v)),
                _ => None,
            })
            .collect();
        if !resets.is_empty() {
            self.line("    if (rst) begin");
            for (r, v) in resets {
                let (name, v) = (self.name(r), self.x(v));
                self.line(&format!("      {name} <= {v};"));
            }
            self.line("    end");
        }
        self.line("  end");
        self.b.blocks = blocks;
    }

    /// Names what hardware leaves unread, so that lint stays quiet about just that.
    fn sink(&mut self) {
        let b = &self.b;
        let clocked = !b.insts.is_empty()
            || b.mems.iter().any(|m| !m.ghost)
            || b.nodes
                .iter()
                .any(|n| !n.ghost && matches!(n.kind, Kind::Reg(_)));
        let resets = !b.insts.is_empty()
            || b.nodes
                .iter()
                .any(|n| !n.ghost && matches!(n.kind, Kind::Reg(Some(_))))
            || self.facts.unread(0, 1).is_empty();
        let mut list = vec![];
        if !clocked {
            list.push("clk".to_string());
        }
        if !resets {
            list.push("rst".into());
        }
        let nets: HashSet<u32> = self.nets.iter().copied().collect();
        for (id, node) in b.nodes.iter().enumerate() {
            let read = match node.kind {
                Kind::Output | Kind::InstIn(_) | Kind::Rst => false,
                _ => (node.kind.is_decl() && !node.ghost) || nets.contains(&(id as u32)),
            };
            if !read || !self.facts.live[id] {
                continue;
            }
            let name = self.name(id as u32);
            for (lo, w) in self.facts.unread(id as u32, node.w) {
                list.push(match (lo, w) {
                    (0, w) if w == node.w => name.clone(),
                    (lo, 1) => format!("{name}[{lo}]"),
                    (lo, w) => format!("{name}[{}:{lo}]", lo + w - 1),
                });
            }
        }
        if !list.is_empty() {
            let name = self.b.names.unique("_unused_ok");
            self.line(&format!("  wire {name} = &{{1'b0, {}}};", list.join(", ")));
        }
    }

    /// Ghost declarations, nets, registers and checks of this part.
    fn checks(&mut self) {
        self.nets();
        self.combinational();
        self.memories();
        self.registers();
        let mut mine: HashSet<String> = HashSet::new();
        let (formal_only, part) = (&self.facts.formal_only, self.part);
        each_leaf(&self.b.blocks[0], &mut vec![], &mut |s, conds| {
            if let Stmt::Check { kind, name, cond } = s {
                let tainted = *kind == CheckKind::Cover
                    || conds.iter().chain([cond]).any(|c| formal_only[*c as usize]);
                if tainted == (part == Part::Formal) {
                    mine.insert(name.clone());
                }
            }
        });
        if mine.is_empty() {
            return;
        }
        let blocks = std::mem::take(&mut self.b.blocks);
        self.line("  always @(posedge clk) begin\n    if (!rst) begin");
        self.block(
            &blocks[0],
            &|s| matches!(s, Stmt::Check { name, .. } if mine.contains(name)),
            "",
            6,
        );
        self.line("    end\n  end");
        self.b.blocks = blocks;
    }

    fn localparams(&self, part: Part) -> String {
        let mut out = String::new();
        for ((p, _), (w, v, name)) in &self.labels {
            if *p == part {
                let _ = writeln!(
                    out,
                    "  localparam {}{name} = {};",
                    range(*w),
                    literal(v, *w)
                );
            }
        }
        out
    }

    fn assemble(&self, hardware: &str, checks: &str, formal: &str) -> String {
        let b = &self.b;
        let mut o = comment_lines(&format!("{}: {}", b.name, b.doc), "");
        let _ = writeln!(o, "// Written by weir-kit from Rust: edit that.");
        let checked = !checks.is_empty() || !formal.is_empty();
        if checked {
            o.push_str("`ifdef FORMAL\n`ifndef WEIR_ASSERT\n`define WEIR_ASSERT\n`endif\n`endif\n");
        }
        let _ = write!(
            o,
            "module {} (\n  input  wire clk,\n  // Synchronous reset.\n  input  wire rst",
            b.name
        );
        let mut last = "";
        for (p, id) in &b.ports {
            o.push_str(",\n");
            if p.role != Role::Ready && p.doc != last && !p.doc.is_empty() {
                o.push_str(&comment_lines(&p.doc, "  "));
            }
            last = &p.doc;
            let word = match p.dir {
                Dir::In => "input  wire",
                Dir::Out if self.facts.simple.contains_key(id) => "output wire",
                Dir::Out => "output reg ",
            };
            let _ = write!(o, "  {word} {}{}", range(p.width), p.name);
        }
        o.push_str("\n);\n");
        o.push_str(&self.localparams(Part::Hardware));
        o.push_str(hardware);
        if !checks.is_empty() {
            o.push_str("`ifdef WEIR_ASSERT\n  // verilator lint_off UNUSEDSIGNAL\n");
            o.push_str(&self.localparams(Part::Checks));
            o.push_str(checks);
            o.push_str("  // verilator lint_on UNUSEDSIGNAL\n`endif\n");
        }
        if checked {
            o.push_str("`ifdef FORMAL\n  // The first cycle is a reset.\n  reg _first = 1'b1;\n  always @(posedge clk) _first <= 1'b0;\n  always @* if (_first) assume (rst);\n");
            o.push_str(&self.localparams(Part::Formal));
            o.push_str(formal);
            o.push_str("`endif\n");
        }
        o.push_str("endmodule\n");
        o
    }
}

/// Whether `pick` takes a statement anywhere inside.
fn any(stmts: &[Stmt], pick: &dyn Fn(&Stmt) -> bool) -> bool {
    stmts.iter().any(|s| match s {
        Stmt::If {
            arms, otherwise, ..
        } => {
            arms.iter().any(|(_, b)| any(b, pick))
                || otherwise.as_ref().is_some_and(|b| any(b, pick))
        }
        Stmt::Case { arms, default, .. } => {
            arms.iter().any(|(_, b)| any(b, pick)) || default.as_ref().is_some_and(|b| any(b, pick))
        }
        s => pick(s),
    })
}

fn symbol(op: Bin) -> &'static str {
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
