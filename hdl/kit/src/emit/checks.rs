//! Ghosts and checks.
use super::{Emit, Part};
use crate::analyze::each_leaf;
use crate::stmt::{CheckKind, Stmt};
use std::collections::HashSet;

impl Emit<'_> {
    /// Ghost declarations, nets, registers and checks of this part.
    pub(super) fn checks(&mut self) {
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
}
