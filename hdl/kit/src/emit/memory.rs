//! Memories: arrays, write ports, read ports and what a collision gives.
use super::text::{Tight, comment_lines, literal, range};
use super::{Emit, Part};
use crate::mem::{MemData, Style};
use std::fmt::Write;

impl Emit<'_> {
    pub(super) fn mem_here(&self, m: &MemData) -> bool {
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

    pub(super) fn memory_arrays(&mut self) {
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

    pub(super) fn memories(&mut self) {
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
                    match strobe {
                        None => {
                            let d = self.x(d);
                            self.line(&format!("    if ({en}) {name}[{a}] <= {d};"));
                        }
                        Some(s) => {
                            self.line(&format!("    if ({en}) begin"));
                            self.lanes(&name, w, *s, &a, d);
                            self.line("    end");
                        }
                    }
                }
                self.line("  end");
            }
            for (en, addr, node) in reads {
                let (en, a, q) = (self.x(en), self.x(addr), self.name(node));
                let guard = if en == "1'd1" {
                    String::new()
                } else {
                    format!("if ({en}) ")
                };
                let plain = format!("  always @(posedge clk) {guard}{q} <= {name}[{a}];");
                if writes.is_empty() || read_old {
                    self.line(&plain);
                    continue;
                }
                let at = self.operand(addr, |t| t == Tight::Atom);
                let mut hits = vec![];
                for p in &writes {
                    let en = self.operand(p.0, |t| t == Tight::Atom);
                    let to = self.operand(p.2, |t| t == Tight::Atom);
                    let hit = format!("{en} && {to} == {at}");
                    hits.push(if writes.len() == 1 {
                        hit
                    } else {
                        format!("({hit})")
                    });
                }
                let hit = self.b.names.unique(&format!("{q}_hit"));
                let random = self.b.names.unique(&format!("{q}_random"));
                let any = self.b.names.unique(&format!("{q}_any"));
                let guarded = |value: &str| {
                    format!(
                        "  wire {hit} = {};\n  always @(posedge clk) {guard}{q} <= {hit} ? {value} : {name}[{a}];",
                        hits.join(" || ")
                    )
                };
                let words = w.div_ceil(32);
                let part = if w == 1 {
                    "[0]".into()
                } else {
                    format!("[{}:0]", w - 1)
                };
                let text = format!(
                    "`ifdef WEIR_RANDOM_COLLISION\n  // verilator lint_off UNUSEDSIGNAL\n  reg [{}:0] {random};\n  // verilator lint_on UNUSEDSIGNAL\n  \
                     always @(posedge clk) {random} <= {{{}}};\n{}\n`else\n`ifdef FORMAL\n  (* anyseq *) reg {}{any};\n{}\n`else\n{plain}\n`endif\n`endif",
                    words * 32 - 1,
                    vec!["$urandom"; words as usize].join(", "),
                    guarded(&format!("{random}{part}")),
                    range(w),
                    guarded(&any),
                );
                self.line(&text);
            }
        }
    }

    /// One conditional assignment a lane.
    pub(super) fn lanes(&mut self, name: &str, w: u32, strobe: u32, addr: &str, data: u32) {
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
}
