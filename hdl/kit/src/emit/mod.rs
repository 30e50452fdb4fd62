//! Verilog-2005 from an analysed module: the same bytes every time.
//!
//! One pass writes the hardware, a second what exists under `WEIR_ASSERT`, a third what exists under `FORMAL`.
mod checks;
mod memory;
mod statement;
mod text;

use crate::analyze::Facts;
use crate::build::{Builder, Kind, Un};
use crate::bundle::{Dir, Role};
use crate::stmt::Stmt;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use text::{Tight, comment_lines, literal, range};

/// Longer expressions are broken into nets.
const MAX_TEXT: usize = 100;

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
    /// Nodes whose only use is a whole statement's right side: any length is readable there.
    direct: HashSet<u32>,
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
    for w in b.mems.iter().flat_map(|m| &m.writes) {
        // Lanes select from both.
        if let Some(strobe) = w.strobe {
            must.extend([strobe, w.data]);
        }
    }
    let mut direct = HashSet::new();
    Stmt::walk(&b.blocks[0], &mut |s| {
        if let Stmt::Set { value, .. } = s
            && facts.uses[*value as usize] == 1
        {
            direct.insert(*value);
        }
    });
    let n = b.nodes.len();
    let mut e = Emit {
        b,
        facts,
        text: vec![(String::new(), Tight::Atom); n],
        must,
        direct,
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

impl Emit<'_> {
    pub(super) fn name(&self, id: u32) -> String {
        self.b.nodes[id as usize].name.clone().unwrap_or_default()
    }

    /// Whether a node belongs to the part being written.
    pub(super) fn here(&self, id: usize) -> bool {
        let f = self.facts;
        match self.part {
            Part::Hardware => f.live[id],
            Part::Checks => !f.live[id] && f.checked[id] && !f.formal_only[id],
            Part::Formal => !f.live[id] && f.checked[id] && f.formal_only[id],
        }
    }

    /// Declarations and nets, in the order of the Rust source.
    pub(super) fn nets(&mut self) {
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
                && (text.len() <= MAX_TEXT || self.direct.contains(&i))
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
