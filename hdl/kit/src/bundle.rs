//! Bundles: structs of signals; port structs; streams.
use crate::build::{Kind, cur, fail, fail_at};
use crate::error::ErrorKind;
use crate::error::Loc;
use crate::sig::{Operand, Sig, cat, lit};
use crate::stmt::reg;
use std::panic::Location;

/// Direction of a port, seen from its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dir {
    /// Read by the module.
    In,
    /// Driven by the module.
    Out,
}

/// Part that a leaf plays in a stream's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ordinary signal.
    Data,
    /// A stream's valid.
    Valid,
    /// A stream's ready.
    Ready,
}

/// A place inside a bundle: flattened name, direction, doc comment.
#[derive(Clone, Debug)]
pub struct At {
    name: String,
    dir: Option<Dir>,
    flip: bool,
    doc: String,
    /// The payload of a stream: has the stream's own name.
    payload: bool,
}

impl At {
    /// The outermost place: no name, no direction.
    pub fn root() -> At {
        At {
            name: String::new(),
            dir: None,
            flip: false,
            doc: String::new(),
            payload: false,
        }
    }
    /// The place of a field. `dir` replaces the direction; `flip` turns it round.
    pub fn field(&self, name: &str, dir: Option<Dir>, flip: bool, doc: &str) -> At {
        let name = match (self.name.as_str(), name) {
            ("", n) | (n, "") => n.to_string(),
            (outer, n) => format!("{outer}_{n}"),
        };
        let doc = if doc.is_empty() {
            self.doc.clone()
        } else {
            doc.to_string()
        };
        At {
            name,
            dir: dir.or(self.dir),
            flip: self.flip ^ flip,
            doc,
            payload: false,
        }
    }
    /// The place of element `i`.
    pub fn element(&self, i: usize) -> At {
        self.field(&i.to_string(), None, false, "")
    }
    /// Flattened name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Whether the direction is turned round against the outermost bundle.
    pub fn flipped(&self) -> bool {
        self.flip
    }
    /// Direction, where one was given.
    pub fn dir(&self) -> Option<Dir> {
        self.dir.map(|d| match (d, self.flip) {
            (Dir::In, false) | (Dir::Out, true) => Dir::In,
            _ => Dir::Out,
        })
    }
    /// Doc comment of the field.
    pub fn doc(&self) -> &str {
        &self.doc
    }
}

/// Makes the signal of one leaf: its place, width and role.
pub type NewLeaf<'a> = dyn FnMut(&At, u32, Role) -> Sig + 'a;

/// A struct of signals. Derive it: `#[derive(Clone, Bundle)]`.
pub trait Bundle: Sized + Clone {
    /// What the widths depend on.
    type Params;

    /// Makes every leaf, in order.
    #[track_caller]
    fn make(p: &Self::Params, at: &At, new: &mut NewLeaf<'_>) -> Self;
    /// Visits every leaf, in order.
    #[track_caller]
    fn each(&self, at: &At, f: &mut dyn FnMut(&At, Sig));
    /// The same bundle with every leaf replaced.
    #[track_caller]
    fn map(&self, f: &mut dyn FnMut(Sig) -> Sig) -> Self;

    /// The leaves in order.
    fn leaves(&self) -> Vec<Sig> {
        let mut v = vec![];
        self.each(&At::root(), &mut |_, s| v.push(s));
        v
    }

    /// Leaf by leaf with another bundle of the same shape.
    #[track_caller]
    fn zip(&self, other: &Self, f: &mut dyn FnMut(Sig, Sig) -> Sig) -> Self {
        let others = other.leaves();
        if others.len() != self.leaves().len() {
            fail(
                ErrorKind::Width,
                format!(
                    "bundles of {} and {} leaves",
                    self.leaves().len(),
                    others.len()
                ),
            );
        }
        let mut i = 0;
        self.map(&mut |s| {
            i += 1;
            f(s, others[i - 1])
        })
    }

    /// Drives every leaf from `from`; flipped leaves (a stream's ready) drive `from` instead.
    #[track_caller]
    fn set(&self, from: &Self) {
        let mut flips = vec![];
        self.each(&At::root(), &mut |at, s| flips.push((at.flipped(), s)));
        let others = from.leaves();
        if others.len() != flips.len() {
            fail(
                ErrorKind::Width,
                format!("bundles of {} and {} leaves", flips.len(), others.len()),
            );
        }
        for ((flip, to), from) in flips.into_iter().zip(others) {
            if flip {
                from.set(to);
            } else {
                to.set(from);
            }
        }
    }

    /// All leaves in one signal; the first field at bit 0.
    #[track_caller]
    fn pack(&self) -> Sig {
        let mut v = self.leaves();
        v.reverse();
        cat(&v)
    }

    /// Total width in bits.
    fn width_of(p: &Self::Params) -> u32 {
        let mut total = 0;
        Self::make(p, &At::root(), &mut |_, w, _| {
            total += w;
            Sig {
                id: 0,
                w,
                m: u32::MAX,
            }
        });
        total
    }

    /// The reverse of [`Bundle::pack`].
    #[track_caller]
    fn unpack(p: &Self::Params, packed: Sig) -> Self {
        let total = Self::width_of(p);
        if total != packed.width() {
            fail(
                ErrorKind::Width,
                format!("unpack of {} bits into a bundle of {total}", packed.width()),
            );
        }
        let mut lo = 0;
        Self::make(p, &At::root(), &mut |_, w, _| {
            lo += w;
            packed.bits(lo - w, w)
        })
    }

    /// Registers with reset value 0.
    #[track_caller]
    fn reg(p: &Self::Params) -> Self {
        let loc = Location::caller();
        Self::make(p, &At::root(), &mut |_, w, _| {
            let zero = lit(0, w);
            cur(|b| b.decl(Kind::Reg(Some(zero.id)), w, loc))
        })
    }
    /// Registers without reset.
    #[track_caller]
    fn reg_nr(p: &Self::Params) -> Self {
        declare(p, Kind::Reg(None))
    }
    /// Combinational signals, to be set on every path.
    #[track_caller]
    fn wire(p: &Self::Params) -> Self {
        declare(p, Kind::Wire)
    }
    /// All leaves zero.
    #[track_caller]
    fn zero(p: &Self::Params) -> Self {
        Self::make(p, &At::root(), &mut |_, w, _| lit(0, w))
    }
    /// Combinational variables with these defaults.
    #[track_caller]
    fn var_of(default: &Self) -> Self {
        let loc = Location::caller();
        default.map(&mut |s| cur(|b| b.decl(Kind::Var(s.id), s.w, loc)))
    }
    /// `t` while `cond` (1 bit) is set, else `f`, leaf by leaf.
    #[track_caller]
    fn choose(cond: Sig, t: &Self, f: &Self) -> Self {
        t.zip(f, &mut |a, b| cond.mux(a, b))
    }
}

/// Every leaf a new declared thing of this kind, made at the caller's place.
#[track_caller]
fn declare<B: Bundle>(p: &B::Params, kind: Kind) -> B {
    let loc = Location::caller();
    B::make(p, &At::root(), &mut |_, w, _| {
        cur(|b| b.decl(kind.clone(), w, loc))
    })
}

impl Bundle for Sig {
    /// Width in bits.
    type Params = u32;

    fn make(p: &u32, at: &At, new: &mut NewLeaf<'_>) -> Sig {
        new(&anonymous(at), *p, Role::Data)
    }
    fn each(&self, at: &At, f: &mut dyn FnMut(&At, Sig)) {
        f(&anonymous(at), *self);
    }
    fn map(&self, f: &mut dyn FnMut(Sig) -> Sig) -> Sig {
        f(*self)
    }
}

/// A bare signal as a stream's payload is called `data`.
fn anonymous(at: &At) -> At {
    if at.payload {
        at.field("data", None, false, "")
    } else {
        at.clone()
    }
}

/// A bundle of nothing, for streams that only hand over events.
impl Bundle for () {
    type Params = ();
    fn make(_: &(), _: &At, _: &mut NewLeaf<'_>) {}
    fn each(&self, _: &At, _: &mut dyn FnMut(&At, Sig)) {}
    fn map(&self, _: &mut dyn FnMut(Sig) -> Sig) {}
}

/// A handshake: the payload moves at a clock edge where `valid` and `ready` are set. Once valid, it stays so with the same
/// payload until taken (by convention; [`Stream::assert_stable`] checks it). `ready` never acts on any `valid` in the same cycle.
#[derive(Clone, Copy, Debug)]
pub struct Stream<T> {
    /// The source offers a payload.
    pub valid: Sig,
    /// What is offered; named directly after the stream.
    pub payload: T,
    /// The sink takes it in this cycle. Against the stream's direction.
    pub ready: Sig,
}

impl<T: Bundle> Bundle for Stream<T> {
    type Params = T::Params;

    fn make(p: &T::Params, at: &At, new: &mut NewLeaf<'_>) -> Self {
        let valid = new(&at.field("valid", None, false, ""), 1, Role::Valid);
        let payload = T::make(
            p,
            &At {
                payload: true,
                ..at.field("", None, false, "")
            },
            new,
        );
        let ready = new(&at.field("ready", None, true, ""), 1, Role::Ready);
        Stream {
            valid,
            payload,
            ready,
        }
    }
    fn each(&self, at: &At, f: &mut dyn FnMut(&At, Sig)) {
        f(&at.field("valid", None, false, ""), self.valid);
        self.payload.each(
            &At {
                payload: true,
                ..at.field("", None, false, "")
            },
            f,
        );
        f(&at.field("ready", None, true, ""), self.ready);
    }
    fn map(&self, f: &mut dyn FnMut(Sig) -> Sig) -> Self {
        Stream {
            valid: f(self.valid),
            payload: self.payload.map(f),
            ready: f(self.ready),
        }
    }
}

impl<T: Bundle> crate::Nameable for Stream<T> {
    fn set_name(&self, name: &str) {
        crate::name_bundle(self, name);
    }
}

impl<T: Bundle> Stream<T> {
    /// 1 bit: a payload moves at this clock edge.
    #[track_caller]
    pub fn fire(&self) -> Sig {
        self.valid & self.ready
    }
    /// 1 bit: offered, not taken.
    #[track_caller]
    pub fn stalled(&self) -> Sig {
        self.valid & !self.ready
    }
    /// Source side: drives valid and payload.
    #[track_caller]
    pub fn offer(&self, valid: Sig, payload: &T) {
        self.valid.set(valid);
        self.payload.set(payload);
    }
    /// Asserts that an offer stays until it is taken.
    #[track_caller]
    pub fn assert_stable(&self, name: &str) {
        let ok = self.stable();
        crate::assert(name, ok);
    }
    /// Assumes the same of the neighbour.
    #[track_caller]
    pub fn assume_stable(&self, name: &str) {
        let ok = self.stable();
        crate::assume(name, ok);
    }
    #[track_caller]
    fn stable(&self) -> Sig {
        crate::formal(|| {
            let mut now = self.payload.leaves();
            now.push(self.valid);
            let now = cat(&now);
            let stalled = crate::past_valid() & crate::past(self.stalled());
            !stalled | crate::past(now).eq(now)
        })
    }
}

/// A fieldless Rust enum as a hardware value. Derive it: `#[derive(Clone, Copy, HwEnum)]`.
pub trait HwEnum: Copy + Operand {
    /// The Rust name.
    const NAME: &'static str;
    /// Bits.
    const WIDTH: u32;
    /// Names and values.
    const VARIANTS: &'static [(&'static str, u64)];

    /// The value of this variant.
    fn value(self) -> u64;

    /// The literal, named in the Verilog.
    #[track_caller]
    fn lit(self) -> Sig {
        let name = Self::VARIANTS
            .iter()
            .find(|v| v.1 == self.value())
            .map_or("", |v| v.0);
        crate::sig::lit_named(
            self.value() as u128,
            Self::WIDTH,
            &localparam(Self::NAME, name),
        )
    }

    /// A register with this reset value.
    #[track_caller]
    fn reg(self) -> Sig {
        reg(Self::WIDTH, self)
    }
}

/// `State`, `FetchMore` -> `STATE_FETCH_MORE`.
fn localparam(enum_name: &str, variant: &str) -> String {
    let mut out = String::new();
    for part in [enum_name, variant] {
        if !out.is_empty() {
            out.push('_');
        }
        let mut lower = false;
        for c in part.chars() {
            if c.is_ascii_uppercase() && lower {
                out.push('_');
            }
            lower = !c.is_ascii_uppercase();
            out.push(c.to_ascii_uppercase());
        }
    }
    out
}

impl Sig {
    /// 1 bit: equal to this variant or value.
    #[track_caller]
    pub fn is(self, v: impl Operand) -> Sig {
        self.eq(v)
    }
}

/// Numbers that widths and counts are written in.
pub trait Width {
    /// As `u32`.
    fn width(self) -> u32;
}
macro_rules! width {
    ($($t:ty),*) => { $(impl Width for $t {
        #[track_caller]
        fn width(self) -> u32 {
            u32::try_from(self).unwrap_or_else(|_| fail(ErrorKind::Width, format!("{self} is no width")))
        }
    })* };
}
width!(i32, u32, u64, usize, u16, u8);

/// The ports of a module under construction.
pub(crate) fn make_ports<P: Bundle>(params: &P::Params, loc: Loc) -> P {
    P::make(params, &At::root(), &mut |at, w, role| {
        let Some(dir) = at.dir() else {
            fail_at(
                loc,
                ErrorKind::Ports,
                format!(
                    "port {} has no direction: mark it #[input] or #[output]",
                    at.name()
                ),
            )
        };
        if w == 0 {
            fail_at(
                loc,
                ErrorKind::Width,
                format!("port {} of 0 bits", at.name()),
            );
        }
        if !crate::name::is_identifier(at.name()) || crate::name::is_reserved(at.name()) {
            fail_at(
                loc,
                ErrorKind::Name,
                format!(
                    "port `{}` is a reserved word or no Verilog identifier: rename the field",
                    at.name()
                ),
            );
        }
        let name = at.name().to_string();
        if !cur(|b| b.names.claim(&name)) {
            fail_at(
                loc,
                ErrorKind::Name,
                format!("two ports are called {name}: rename a field"),
            );
        }
        cur(|b| {
            let kind = if dir == Dir::In {
                Kind::Input
            } else {
                Kind::Output
            };
            let s = b.decl(kind, w, loc);
            b.nodes[s.id as usize].name = Some(name.clone());
            b.ports.push((
                crate::Port {
                    name,
                    width: w,
                    dir,
                    doc: at.doc().into(),
                    role,
                },
                s.id,
            ));
            s
        })
    })
}
