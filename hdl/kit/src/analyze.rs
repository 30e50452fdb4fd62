//! Checks on a finished body, and the facts that emission needs.
use crate::build::{Builder, Kind};
use crate::bundle::{Dir, Role};
use crate::error::{Error, ErrorKind, Loc, place};
use crate::stmt::{Lhs, Stmt};
use std::collections::{HashMap, HashSet};

/// What analysis found out, by node id.
pub(crate) struct Facts {
    /// Hardware reads it (or it is declared hardware).
    pub live: Vec<bool>,
    /// Checks read it.
    pub checked: Vec<bool>,
    /// Depends on a free formal value.
    pub formal_only: Vec<bool>,
    /// References from hardware and checks.
    pub uses: Vec<u32>,
    /// Combinational targets with one unconditional driver.
    pub simple: HashMap<u32, u32>,
    /// Bits that hardware reads.
    read: Vec<Bits>,
    /// Per output port the input ports it depends on combinationally.
    pub paths: Vec<Vec<usize>>,
}

#[derive(Clone, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn add(&mut self, lo: u32, w: u32) {
        let need = (lo + w).div_ceil(64) as usize;
        if self.0.len() < need {
            self.0.resize(need, 0);
        }
        for i in lo..lo + w {
            self.0[(i / 64) as usize] |= 1 << (i % 64);
        }
    }
    fn has(&self, i: u32) -> bool {
        self.0
            .get((i / 64) as usize)
            .is_some_and(|x| x >> (i % 64) & 1 == 1)
    }
    /// Unset ranges below `w`: (lo, width).
    fn gaps(&self, w: u32) -> Vec<(u32, u32)> {
        let mut out: Vec<(u32, u32)> = vec![];
        for i in (0..w).filter(|i| !self.has(*i)) {
            match out.last_mut() {
                Some((lo, n)) if *lo + *n == i => *n += 1,
                _ => out.push((i, 1)),
            }
        }
        out
    }
}

impl Facts {
    /// Bit ranges of a net that hardware leaves unread.
    pub(crate) fn unread(&self, id: u32, w: u32) -> Vec<(u32, u32)> {
        self.read[id as usize].gaps(w)
    }
}

/// Calls `f(statement, conditions it stands under)` for every `Set` and `Check`.
pub(crate) fn each_leaf(stmts: &[Stmt], conds: &mut Vec<u32>, f: &mut dyn FnMut(&Stmt, &[u32])) {
    let depth = conds.len();
    for s in stmts {
        match s {
            Stmt::If {
                arms, otherwise, ..
            } => {
                for (c, body) in arms {
                    conds.push(*c);
                    each_leaf(body, conds, f);
                }
                otherwise.iter().for_each(|body| each_leaf(body, conds, f));
            }
            Stmt::Case {
                sel, arms, default, ..
            } => {
                conds.push(*sel);
                arms.iter().for_each(|(_, body)| each_leaf(body, conds, f));
                default.iter().for_each(|body| each_leaf(body, conds, f));
            }
            _ => f(s, conds),
        }
        conds.truncate(depth);
    }
}

struct Analysis<'a> {
    b: &'a Builder,
    errors: Vec<Error>,
    /// Target -> what its value depends on.
    deps: HashMap<u32, Vec<u32>>,
}

pub(crate) fn analyze(b: &Builder) -> (Vec<Error>, Facts) {
    let mut a = Analysis {
        b,
        errors: vec![],
        deps: HashMap::new(),
    };
    let top = &b.blocks[0];
    each_leaf(top, &mut vec![], &mut |s, conds| {
        if let Stmt::Set {
            target, lhs, value, ..
        } = s
        {
            let d = a.deps.entry(*target).or_default();
            d.push(*value);
            d.extend(conds);
            if let Lhs::Index(i) | Lhs::Word(i) = lhs {
                d.push(*i);
            }
        }
    });
    a.drivers(top);
    let paths = a.paths();
    let facts = a.liveness(paths);
    a.reads(&facts);
    (a.errors, facts)
}

impl Analysis<'_> {
    fn error(&mut self, kind: ErrorKind, loc: Loc, message: String) {
        self.errors.push(Error {
            kind,
            module: self.b.name.clone(),
            at: place(loc),
            message,
        });
    }

    /// Undriven, latched and multiply driven signals.
    fn drivers(&mut self, top: &[Stmt]) {
        self.twice(top);
        for (id, node) in self.b.nodes.iter().enumerate() {
            let id = id as u32;
            if !node.kind.is_target() {
                continue;
            }
            if !self.deps.contains_key(&id) {
                if !matches!(node.kind, Kind::Var(_)) {
                    self.error(
                        ErrorKind::Undriven,
                        node.loc,
                        format!("nothing drives {}", self.b.describe(id)),
                    );
                }
            } else if !matches!(node.kind, Kind::Var(_) | Kind::Reg(_)) && !self.covers(top, id) {
                let message = format!(
                    "{} has no value on some path (a latch): set it before the conditions, or use var(default)",
                    self.b.describe(id)
                );
                self.error(ErrorKind::Latch, node.loc, message);
            }
        }
    }

    /// Whether every path through the block gives `target` a value.
    fn covers(&self, block: &[Stmt], target: u32) -> bool {
        block.iter().any(|s| match s {
            Stmt::Set {
                target: t,
                lhs: Lhs::Whole,
                ..
            } => *t == target,
            Stmt::If {
                arms,
                otherwise: Some(other),
                ..
            } => arms.iter().all(|(_, b)| self.covers(b, target)) && self.covers(other, target),
            Stmt::Case {
                sel, arms, default, ..
            } => {
                let w = self.b.nodes[*sel as usize].w;
                let values: usize = arms.iter().map(|(v, _)| v.len()).sum();
                let rest = match default {
                    Some(d) => self.covers(d, target),
                    None => w < 32 && values == 1 << w,
                };
                rest && arms.iter().all(|(_, b)| self.covers(b, target))
            }
            _ => false,
        })
    }

    /// A whole, unconditional set after another driver in the same block makes the first one dead.
    fn twice(&mut self, block: &[Stmt]) {
        let mut seen: HashMap<u32, Loc> = HashMap::new();
        for s in block {
            if let Stmt::Set {
                target,
                lhs: Lhs::Whole,
                loc,
                ..
            } = s
                && let Some(first) = seen.get(target)
            {
                let message = format!(
                    "{} is driven at {} already: this overrides it",
                    self.b.describe(*target),
                    place(first)
                );
                self.error(ErrorKind::MultiplyDriven, loc, message);
            }
            Stmt::walk(std::slice::from_ref(s), &mut |inner| {
                if let Stmt::Set { target, loc, .. } = inner {
                    seen.entry(*target).or_insert(loc);
                }
            });
            match s {
                Stmt::If {
                    arms, otherwise, ..
                } => {
                    arms.iter().for_each(|(_, b)| self.twice(b));
                    otherwise.iter().for_each(|b| self.twice(b));
                }
                Stmt::Case { arms, default, .. } => {
                    arms.iter().for_each(|(_, b)| self.twice(b));
                    default.iter().for_each(|b| self.twice(b));
                }
                _ => {}
            }
        }
    }

    /// What `id` depends on within the cycle.
    fn comb_deps(&self, id: u32) -> Vec<u32> {
        let node = &self.b.nodes[id as usize];
        let mut out = vec![];
        node.operands(&self.b.nodes, |x, _, _| out.push(x));
        match node.kind {
            Kind::InstOut(inst, port) => {
                let inst = &self.b.insts[inst];
                out.extend(inst.module.comb_paths()[port].iter().map(|p| inst.nets[*p]));
            }
            ref k if k.is_comb_target() => out.extend(self.deps.get(&id).into_iter().flatten()),
            _ => {}
        }
        out
    }

    /// Combinational loops; then per output port the input ports it depends on.
    fn paths(&mut self) -> Vec<Vec<usize>> {
        let n = self.b.nodes.len();
        let port_of: HashMap<u32, usize> = self
            .b
            .ports
            .iter()
            .enumerate()
            .map(|(i, (_, id))| (*id, i))
            .collect();
        let words = self.b.ports.len().div_ceil(64);
        let mut reach: Vec<Vec<u64>> = vec![vec![]; n];
        let mut state = vec![0u8; n];
        for root in 0..n as u32 {
            if state[root as usize] != 0 {
                continue;
            }
            let mut stack = vec![(root, self.comb_deps(root), 0usize)];
            state[root as usize] = 1;
            while let Some((id, deps, next)) = stack.last_mut() {
                let id = *id;
                if let Some(&d) = deps.get(*next) {
                    *next += 1;
                    match state[d as usize] {
                        0 => {
                            state[d as usize] = 1;
                            let deps = self.comb_deps(d);
                            stack.push((d, deps, 0));
                        }
                        1 => {
                            let from = stack.iter().position(|s| s.0 == d).unwrap_or(0);
                            let on: Vec<u32> = stack[from..].iter().map(|s| s.0).collect();
                            self.comb_loop(&on);
                            return vec![vec![]; self.b.ports.len()];
                        }
                        _ => {}
                    }
                    continue;
                }
                let mut set = vec![0u64; words];
                for d in deps.iter() {
                    for (a, x) in set.iter_mut().zip(&reach[*d as usize]) {
                        *a |= x;
                    }
                }
                if let (Kind::Input, Some(p)) = (&self.b.nodes[id as usize].kind, port_of.get(&id))
                {
                    set[p / 64] |= 1 << (p % 64);
                }
                reach[id as usize] = set;
                state[id as usize] = 2;
                stack.pop();
            }
        }
        let ports = &self.b.ports;
        let paths: Vec<Vec<usize>> = ports
            .iter()
            .map(|(p, id)| match p.dir {
                Dir::In => vec![],
                Dir::Out => (0..ports.len())
                    .filter(|i| reach[*id as usize][i / 64] >> (i % 64) & 1 == 1)
                    .collect(),
            })
            .collect();
        for (i, (port, _)) in ports
            .iter()
            .enumerate()
            .filter(|(_, p)| p.0.role == Role::Valid)
        {
            for from in paths[i]
                .iter()
                .map(|p| &ports[*p].0)
                .filter(|p| p.role == Role::Ready)
            {
                let message = format!(
                    "{} depends on {} in the same cycle: a valid must not wait for a ready",
                    port.name, from.name
                );
                self.error(ErrorKind::ReadyToValid, self.b.loc, message);
            }
        }
        paths
    }

    fn comb_loop(&mut self, on: &[u32]) {
        let named: Vec<String> = on
            .iter()
            .filter(|id| {
                self.b.nodes[**id as usize].name.is_some()
                    || self.b.nodes[**id as usize].kind.is_decl()
            })
            .map(|id| self.b.describe(*id))
            .collect();
        let loc = self.b.nodes[on[0] as usize].loc;
        self.error(
            ErrorKind::CombLoop,
            loc,
            format!(
                "combinational loop, each depends on the next: {}",
                named.join(" -> ")
            ),
        );
    }

    /// Marks all that is reached from `roots`.
    fn reach(&self, roots: &[u32], marked: &mut [bool]) {
        let mut stack = roots.to_vec();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut marked[id as usize], true) {
                self.b.nodes[id as usize].operands(&self.b.nodes, |x, _, _| stack.push(x));
            }
        }
    }

    fn liveness(&mut self, paths: Vec<Vec<usize>>) -> Facts {
        let b = self.b;
        let n = b.nodes.len();
        let ghost = |id: &u32| b.nodes[*id as usize].ghost;
        // Roots with how often emission writes them.
        let (mut hard, mut soft) = (vec![], vec![]);
        for (id, node) in b
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, n)| n.kind.is_decl() && !matches!(n.kind, Kind::Rst))
        {
            if node.ghost {
                soft.push(id as u32)
            } else {
                hard.push(id as u32)
            }
        }
        let decls = (hard.len(), soft.len());
        let mut seen: HashSet<(u32, u32)> = HashSet::new();
        each_leaf(&b.blocks[0], &mut vec![], &mut |s, conds| {
            let (list, key) = match s {
                Stmt::Set { target, .. } if ghost(target) => (&mut soft, u32::MAX - 1),
                // All registers share one block; each combinational target has its own.
                Stmt::Set { target, .. }
                    if matches!(b.nodes[*target as usize].kind, Kind::Reg(_)) =>
                {
                    (&mut hard, u32::MAX)
                }
                Stmt::Set { target, .. } => (&mut hard, *target),
                _ => (&mut soft, u32::MAX - 2),
            };
            match s {
                Stmt::Set { lhs, value, .. } => {
                    list.push(*value);
                    if let Lhs::Index(i) | Lhs::Word(i) = lhs {
                        list.push(*i);
                    }
                }
                Stmt::Check { cond, .. } => list.push(*cond),
                _ => {}
            }
            list.extend(conds.iter().filter(|c| seen.insert((**c, key))));
        });
        for m in &b.mems {
            let list = if m.ghost { &mut soft } else { &mut hard };
            for w in &m.writes {
                list.extend([w.en, w.addr, w.data]);
                list.extend(w.strobe);
            }
            m.reads.iter().for_each(|r| list.extend([r.en, r.addr]));
        }
        let (mut live, mut checked) = (vec![false; n], vec![false; n]);
        self.reach(&hard, &mut live);
        self.reach(&soft, &mut checked);

        let mut uses = vec![0u32; n];
        let mut read = vec![Bits::default(); n];
        hard[decls.0..]
            .iter()
            .chain(&soft[decls.1..])
            .for_each(|id| uses[*id as usize] += 1);
        hard[decls.0..]
            .iter()
            .for_each(|id| read[*id as usize].add(0, b.nodes[*id as usize].w));
        for (id, node) in b
            .nodes
            .iter()
            .enumerate()
            .filter(|(id, _)| live[*id] || checked[*id])
        {
            node.operands(&b.nodes, |x, lo, w| {
                uses[x as usize] += 1;
                if live[id] {
                    read[x as usize].add(lo, w);
                }
            });
        }
        for (id, node) in b.nodes.iter().enumerate() {
            if live[id] && node.ghost {
                let message = format!(
                    "hardware depends on {}, which is made inside formal(..)",
                    b.describe(id as u32)
                );
                self.error(ErrorKind::Ghost, node.loc, message);
            }
        }
        let formal_only = self.formal_only();
        let simple = self.simple();
        Facts {
            live,
            checked,
            formal_only,
            uses,
            simple,
            read,
            paths,
        }
    }

    /// Fixpoint: what depends on a free formal value, also through ghost registers and memories.
    fn formal_only(&self) -> Vec<bool> {
        let b = self.b;
        let mut on = vec![false; b.nodes.len()];
        loop {
            let mut changed = false;
            for (id, node) in b.nodes.iter().enumerate() {
                let mut tainted = matches!(node.kind, Kind::Any(_));
                node.operands(&b.nodes, |x, _, _| tainted |= on[x as usize]);
                if node.ghost {
                    tainted |= self
                        .deps
                        .get(&(id as u32))
                        .into_iter()
                        .flatten()
                        .any(|d| on[*d as usize]);
                }
                if let Kind::MemRead(m, _) | Kind::MemAsync(m, _) = node.kind
                    && b.mems[m].ghost
                {
                    tainted |= b.mems[m]
                        .writes
                        .iter()
                        .any(|w| on[w.en as usize] || on[w.addr as usize] || on[w.data as usize]);
                    tainted |= b.mems[m]
                        .reads
                        .iter()
                        .any(|r| on[r.en as usize] || on[r.addr as usize]);
                }
                changed |= tainted && !std::mem::replace(&mut on[id], tainted);
            }
            if !changed {
                return on;
            }
        }
    }

    /// Combinational targets whose only driver is one unconditional whole set.
    fn simple(&self) -> HashMap<u32, u32> {
        let mut count: HashMap<u32, u32> = HashMap::new();
        Stmt::walk(&self.b.blocks[0], &mut |s| {
            if let Stmt::Set { target, .. } = s {
                *count.entry(*target).or_default() += 1;
            }
        });
        let top = self.b.blocks[0].iter().filter_map(|s| match s {
            Stmt::Set {
                target,
                lhs: Lhs::Whole,
                value,
                ..
            } if count[target] == 1 => Some((*target, *value)),
            _ => None,
        });
        top.filter(|(t, _)| self.b.nodes[*t as usize].kind.is_comb_target())
            .collect()
    }

    /// Declared things that nothing reads, in whole or in part.
    fn reads(&mut self, facts: &Facts) {
        let b = self.b;
        let mut read = facts.read.clone();
        for (id, node) in b
            .nodes
            .iter()
            .enumerate()
            .filter(|(id, _)| facts.checked[*id])
        {
            let _ = id;
            node.operands(&b.nodes, |x, lo, w| read[x as usize].add(lo, w));
        }
        each_leaf(&b.blocks[0], &mut vec![], &mut |s, conds| {
            let value = match s {
                Stmt::Set { value, .. } => value,
                Stmt::Check { cond, .. } => cond,
                _ => return,
            };
            conds
                .iter()
                .chain([value])
                .for_each(|c| read[*c as usize].add(0, b.nodes[*c as usize].w));
        });
        for m in b.mems.iter().filter(|m| m.ghost) {
            for x in m
                .writes
                .iter()
                .flat_map(|w| [w.en, w.addr, w.data])
                .chain(m.reads.iter().flat_map(|r| [r.en, r.addr]))
            {
                read[x as usize].add(0, b.nodes[x as usize].w);
            }
        }
        for (id, lo, w) in &b.unused {
            read[*id as usize].add(*lo, *w);
        }
        for (id, node) in b.nodes.iter().enumerate().filter(|(_, n)| !n.ghost) {
            let what = match node.kind {
                Kind::Input => "input",
                Kind::Reg(_) => "register",
                Kind::Var(_) => "variable",
                Kind::Wire => "wire",
                Kind::InstOut(..) => "instance output",
                Kind::MemRead(..) => "memory read",
                _ => continue,
            };
            let gaps = read[id].gaps(node.w);
            let all = gaps == [(0, node.w)];
            if gaps.is_empty() || (matches!(node.kind, Kind::MemRead(..)) && !all) {
                continue;
            }
            let ranges: Vec<String> = gaps
                .iter()
                .map(|(lo, w)| {
                    if *w == 1 {
                        format!("{lo}")
                    } else {
                        format!("{}:{lo}", lo + w - 1)
                    }
                })
                .collect();
            let which = if all {
                String::new()
            } else {
                format!("bits {} of ", ranges.join(", "))
            };
            let message = format!(
                "nothing reads {which}{what} {}: use it, remove it, or call unused(..)",
                b.describe(id as u32)
            );
            self.error(ErrorKind::Unread, node.loc, message);
        }
        for m in b
            .mems
            .iter()
            .filter(|m| m.reads.is_empty() && m.asyncs == 0)
        {
            self.error(
                ErrorKind::Unread,
                m.loc,
                format!(
                    "nothing reads memory `{}`",
                    m.name.as_deref().unwrap_or("mem")
                ),
            );
        }
        for m in b
            .mems
            .iter()
            .filter(|m| m.writes.is_empty() && m.init.is_none())
        {
            self.error(
                ErrorKind::Undriven,
                m.loc,
                format!(
                    "nothing writes memory `{}`",
                    m.name.as_deref().unwrap_or("mem")
                ),
            );
        }
    }
}
