//! Statements: combinational drivers, registers, and the tree around them.
use super::Emit;
use super::text::{MAX_LINE, Tight, comment_lines, literal};
use crate::build::Kind;
use crate::stmt::{CheckKind, Lhs, Stmt};
use std::collections::HashSet;

impl Emit<'_> {
    /// Drivers of combinational targets, in the order of declaration.
    pub(super) fn combinational(&mut self) {
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

    /// All registers of the part: one block.
    pub(super) fn registers(&mut self) {
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

    /// The statements that `pick` takes, with the `if` and `case` around them.
    pub(super) fn block(
        &mut self,
        stmts: &[Stmt],
        pick: &dyn Fn(&Stmt) -> bool,
        assign: &str,
        indent: usize,
    ) {
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
                        let head = format!("{pad}if (!{c})");
                        self.body(&head, rest, pick, assign, indent);
                        continue;
                    }
                    if let ([(c, body)], None) = (arms, rest) {
                        let head = format!("{pad}if ({})", self.x(*c));
                        self.body(&head, body, pick, assign, indent);
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
                        if !used && rest.is_none() && !full {
                            continue;
                        }
                        let values: Vec<String> = values.iter().map(|v| self.x(*v)).collect();
                        // A full case ends in `default`, so that no tool sees a latch.
                        let label = if last {
                            format!("/* {} */ default", values.join(", "))
                        } else {
                            values.join(", ")
                        };
                        let label = format!("{pad}  {label}:");
                        if used {
                            self.body(&label, body, pick, assign, indent + 2);
                        } else {
                            self.line(&format!("{label} ;"));
                        }
                    }
                    match rest {
                        Some(body) => {
                            let label = format!("{pad}  default:");
                            self.body(&label, body, pick, assign, indent + 2);
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

    /// `head` and the statements after it, on one line when there is only one assignment.
    pub(super) fn body(
        &mut self,
        head: &str,
        stmts: &[Stmt],
        pick: &dyn Fn(&Stmt) -> bool,
        assign: &str,
        indent: usize,
    ) {
        let before = std::mem::take(&mut self.out);
        self.block(stmts, pick, assign, indent + 2);
        let inner = std::mem::replace(&mut self.out, before);
        let single = !assign.is_empty()
            && inner.lines().count() == 1
            && head.len() + inner.trim().len() < MAX_LINE;
        if single {
            self.line(&format!("{head} {}", inner.trim()));
        } else {
            self.line(&format!("{head} begin"));
            self.out.push_str(&inner);
            self.line(&format!("{}end", " ".repeat(indent)));
        }
    }

    pub(super) fn check(&mut self, s: &Stmt, pad: &str) {
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
}

/// Whether `pick` takes a statement anywhere inside.
pub(super) fn any(stmts: &[Stmt], pick: &dyn Fn(&Stmt) -> bool) -> bool {
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
