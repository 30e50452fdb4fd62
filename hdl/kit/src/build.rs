//! The module under construction: nodes, names, statements; kept in a thread-local stack.
use crate::error::{Error, ErrorKind, Loc, place, raise};
use crate::mem::MemData;
use crate::name::Names;
use crate::sig::Sig;
use crate::stmt::Stmt;
use crate::{Module, Port};
use std::cell::RefCell;
use std::collections::HashMap;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Un {
    Not,
    Any,
    All,
    Parity,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Bin {
    And,
    Or,
    Xor,
    Add,
    Sub,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// What a node is. Operands are node ids of the same module; expressions only refer to older nodes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    /// Words, least significant first; the label names an enum's variant.
    Lit(Vec<u64>, Option<String>),
    Un(Un, u32),
    Bin(Bin, u32, u32),
    Mux(u32, u32, u32),
    Cat(Vec<u32>),
    Rep(u32, u32),
    Slice(u32, u32),
    /// One bit, chosen by a signal.
    Index(u32, u32),
    /// An aligned power-of-two part, chosen by a signal.
    Word(u32, u32),
    /// One of many by number; past the end, the last.
    Select(u32, Vec<u32>),
    Rst,
    Input,
    Output,
    /// Register; the reset value is a literal node.
    Reg(Option<u32>),
    /// Combinational variable with a default.
    Var(u32),
    Wire,
    /// Input of instance `.0`, to be driven.
    InstIn(usize),
    /// Output number `.1` of instance `.0`.
    InstOut(usize, usize),
    /// Read port `.1` of memory `.0`: a register.
    MemRead(usize, usize),
    /// Asynchronous read of memory `.0` at address `.1`.
    MemAsync(usize, u32),
    /// Formal-only free value: constant over time, or not.
    Any(bool),
}

impl Kind {
    /// Declared things are unique and always have a net of their own.
    pub(crate) fn is_decl(&self) -> bool {
        use Kind::*;
        matches!(
            self,
            Rst | Input
                | Output
                | Reg(_)
                | Var(_)
                | Wire
                | InstIn(_)
                | InstOut(..)
                | MemRead(..)
                | Any(_)
        )
    }
    pub(crate) fn is_comb_target(&self) -> bool {
        matches!(
            self,
            Kind::Output | Kind::Var(_) | Kind::Wire | Kind::InstIn(_)
        )
    }
    pub(crate) fn is_target(&self) -> bool {
        self.is_comb_target() || matches!(self, Kind::Reg(_))
    }
}

pub(crate) struct Node {
    pub kind: Kind,
    pub w: u32,
    pub name: Option<String>,
    pub loc: Loc,
    /// Made inside `formal`; declared things only.
    pub ghost: bool,
    pub comment: Option<String>,
}

impl Node {
    /// Calls `f(operand, lowest bit read, bits read)` for what the expression reads.
    pub(crate) fn operands(&self, nodes: &[Node], mut f: impl FnMut(u32, u32, u32)) {
        let mut whole = |id: u32| f(id, 0, nodes[id as usize].w);
        match &self.kind {
            Kind::Un(_, a) | Kind::Rep(a, _) | Kind::Var(a) | Kind::MemAsync(_, a) => whole(*a),
            Kind::Bin(_, a, b) | Kind::Index(a, b) | Kind::Word(a, b) => {
                whole(*a);
                whole(*b);
            }
            Kind::Mux(c, t, e) => {
                whole(*c);
                whole(*t);
                whole(*e);
            }
            Kind::Cat(parts) => parts.iter().for_each(|p| whole(*p)),
            Kind::Select(sel, items) => {
                whole(*sel);
                items.iter().for_each(|i| whole(*i));
            }
            Kind::Slice(a, lo) => f(*a, *lo, self.w),
            _ => {}
        }
    }
}

pub(crate) struct Inst {
    pub module: Module,
    pub name: String,
    /// Node of each port, in the module's order.
    pub nets: Vec<u32>,
    pub comment: Option<String>,
}

pub(crate) struct Builder {
    pub id: u32,
    pub name: String,
    pub doc: String,
    pub nodes: Vec<Node>,
    pub cons: HashMap<(Kind, u32), u32>,
    pub names: Names,
    pub ports: Vec<(Port, u32)>,
    /// Open statement blocks, outermost first.
    pub blocks: Vec<Vec<Stmt>>,
    pub mems: Vec<MemData>,
    pub insts: Vec<Inst>,
    pub scopes: Vec<String>,
    /// Depth of open `formal` scopes.
    pub formal: u32,
    pub pending: Option<String>,
    /// Nodes (and bit ranges) that may stay unread.
    pub unused: Vec<(u32, u32, u32)>,
    pub loc: Loc,
}

thread_local! {
    static STACK: RefCell<Vec<Builder>> = const { RefCell::new(Vec::new()) };
    /// Name of every module ever begun in this thread, by id, for messages.
    static STARTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` on the module under construction, if any.
pub(crate) fn try_cur<R>(f: impl FnOnce(&mut Builder) -> R) -> Option<R> {
    STACK.with_borrow_mut(|s| s.last_mut().map(f))
}

/// Runs `f` on the module under construction.
#[track_caller]
pub(crate) fn cur<R>(f: impl FnOnce(&mut Builder) -> R) -> R {
    match try_cur(f) {
        Some(r) => r,
        None => fail(
            ErrorKind::Structure,
            "no module is under construction here: call this inside `module(..)`".into(),
        ),
    }
}

/// Raises an error at the caller's place, in the module under construction.
#[track_caller]
pub(crate) fn fail(kind: ErrorKind, message: String) -> ! {
    fail_at(std::panic::Location::caller(), kind, message)
}

/// As [`fail`], for code in closures, where the caller's place does not reach.
#[track_caller]
pub(crate) fn fail_at(loc: Loc, kind: ErrorKind, message: String) -> ! {
    let at = place(loc);
    let module = STACK
        .with(|s| {
            s.try_borrow()
                .ok()
                .and_then(|s| s.last().map(|b| b.name.clone()))
        })
        .unwrap_or_default();
    raise(Error {
        kind,
        module,
        at,
        message,
    })
}

pub(crate) fn module_name(id: u32) -> String {
    STARTED.with_borrow(|s| s.get(id as usize).cloned().unwrap_or_default())
}

/// Pops the builder also when construction unwinds.
struct Guard;
impl Drop for Guard {
    fn drop(&mut self) {
        STACK.with_borrow_mut(|s| s.pop());
    }
}

/// Runs `body` with a fresh builder and then `finish` on it.
pub(crate) fn construct<R>(
    name: &str,
    doc: &str,
    loc: Loc,
    body: impl FnOnce(),
    finish: impl FnOnce(&mut Builder) -> R,
) -> R {
    let id = STARTED.with_borrow_mut(|s| {
        s.push(name.into());
        s.len() as u32 - 1
    });
    let mut builder = Builder {
        id,
        name: name.into(),
        doc: doc.into(),
        nodes: vec![],
        cons: HashMap::new(),
        names: Names::default(),
        ports: vec![],
        blocks: vec![vec![]],
        mems: vec![],
        insts: vec![],
        scopes: vec![],
        formal: 0,
        pending: None,
        unused: vec![],
        loc,
    };
    builder.names.claim("clk");
    builder.names.claim("rst");
    let rst = builder.decl(Kind::Rst, 1, loc);
    builder.nodes[rst.id as usize].name = Some("rst".into());
    STACK.with_borrow_mut(|s| s.push(builder));
    let _guard = Guard;
    body();
    cur(finish)
}

impl Builder {
    fn sig(&self, id: u32) -> Sig {
        Sig {
            id,
            w: self.nodes[id as usize].w,
            m: self.id,
        }
    }

    /// The node of this expression, made once.
    pub(crate) fn expr(&mut self, kind: Kind, w: u32, loc: Loc) -> Sig {
        let key = (kind, w);
        if let Some(&id) = self.cons.get(&key) {
            return self.sig(id);
        }
        let id = self.nodes.len() as u32;
        self.nodes.push(Node {
            kind: key.0.clone(),
            w,
            name: None,
            loc,
            ghost: false,
            comment: None,
        });
        self.cons.insert(key, id);
        self.sig(id)
    }

    /// A new declared thing.
    pub(crate) fn decl(&mut self, kind: Kind, w: u32, loc: Loc) -> Sig {
        let id = self.nodes.len() as u32;
        let comment = if matches!(
            kind,
            Kind::Reg(_) | Kind::Var(_) | Kind::Wire | Kind::Any(_)
        ) {
            self.pending.take()
        } else {
            None
        };
        self.nodes.push(Node {
            kind,
            w,
            name: None,
            loc,
            ghost: self.formal > 0,
            comment,
        });
        self.sig(id)
    }

    pub(crate) fn kind(&self, s: Sig) -> &Kind {
        &self.nodes[s.id as usize].kind
    }

    /// `base` under the open scopes.
    pub(crate) fn scoped(&self, base: &str) -> String {
        let mut name = self.scopes.join("_");
        if !name.is_empty() {
            name.push('_');
        }
        name + base
    }

    /// Names a node that has no name yet. Literals stay literals.
    pub(crate) fn name_node(&mut self, s: Sig, base: &str) {
        let node = &self.nodes[s.id as usize];
        if s.m != self.id || node.name.is_some() || matches!(node.kind, Kind::Lit(..)) {
            return;
        }
        let scoped = self.scoped(base);
        let name = self.names.unique(&scoped);
        let comment = self.pending.take();
        let node = &mut self.nodes[s.id as usize];
        node.name = Some(name);
        if comment.is_some() {
            node.comment = comment;
        }
    }

    /// What to call a node in a message.
    pub(crate) fn describe(&self, id: u32) -> String {
        let node = &self.nodes[id as usize];
        match &node.name {
            Some(n) => format!("`{n}` ({} bits, made at {})", node.w, place(node.loc)),
            None => format!("the {}-bit signal made at {}", node.w, place(node.loc)),
        }
    }
}
