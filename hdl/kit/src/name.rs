//! Names: unique, legal Verilog, taken from the Rust bindings by `#[hw]`.
use crate::build::{cur, try_cur};
use crate::{Bundle, Mem, Sig};
use std::collections::{HashMap, HashSet};

/// Names in use in one module.
#[derive(Default)]
pub(crate) struct Names {
    used: HashSet<String>,
    next: HashMap<String, u32>,
}

impl Names {
    /// Takes exactly this name; false when it is taken.
    pub(crate) fn claim(&mut self, name: &str) -> bool {
        self.used.insert(name.to_string())
    }

    /// Takes `base`, or `base_1`, `base_2`, ... when taken; `base_` for a reserved word.
    pub(crate) fn unique(&mut self, base: &str) -> String {
        let base = if is_reserved(base) {
            format!("{base}_")
        } else {
            base.to_string()
        };
        if self.claim(&base) {
            return base;
        }
        let mut n = self.next.get(&base).copied().unwrap_or(1);
        loop {
            let name = format!("{base}_{n}");
            n += 1;
            if self.claim(&name) {
                self.next.insert(base, n);
                return name;
            }
        }
    }
}

/// Verilog identifier: a letter, then letters, digits, underscores.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Words of SystemVerilog (Verilator reads `.v` as such) and of C++ (which it writes).
const RESERVED: &str = " accept_on alias always always_comb always_ff always_latch and assert assign assume automatic before begin bind bins \
binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle checker class clocking cmos config const constraint context \
continue cover covergroup coverpoint cross deassign default defparam design disable dist do edge else end endcase endchecker \
endclass endclocking endconfig endfunction endgenerate endgroup endinterface endmodule endpackage endprimitive endprogram \
endproperty endspecify endsequence endtable endtask enum event eventually expect export extends extern final first_match for \
force foreach forever fork forkjoin function generate genvar global highz0 highz1 if iff ifnone ignore_bins illegal_bins \
implements implies import incdir include initial inout input inside instance int integer interconnect interface intersect join \
join_any join_none large let liblist library local localparam logic longint macromodule matches medium modport module nand \
negedge nettype new nexttime nmos nor noshowcancelled not notif0 notif1 null or output package packed parameter pmos posedge \
primitive priority program property protected pull0 pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand randc \
randcase randsequence rcmos real realtime ref reg reject_on release repeat restrict return rnmos rpmos rtran rtranif0 rtranif1 \
s_always s_eventually s_nexttime s_until s_until_with scalared sequence shortint shortreal showcancelled signed small soft solve \
specify specparam static string strong strong0 strong1 struct super supply0 supply1 sync_accept_on sync_reject_on table tagged \
task this throughout time timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand trior trireg type typedef union unique \
unique0 unsigned until until_with untyped use uwire var vectored virtual void wait wait_order wand weak weak0 weak1 while \
wildcard wire with within wor xnor xor auto bool catch char delete double explicit false float friend goto inline long mutable \
namespace operator private public register short sizeof switch template throw true try typename using volatile free clk rst ";

pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&format!(" {name} "))
}

/// Something that takes a name from the binding that holds it.
pub trait Nameable {
    /// Gives `name` to the nets inside that have none yet.
    fn set_name(&self, name: &str);
}

impl Nameable for Sig {
    fn set_name(&self, name: &str) {
        try_cur(|b| b.name_node(*self, name));
    }
}

impl Nameable for Mem {
    fn set_name(&self, name: &str) {
        self.name_mem(name);
    }
}

impl<T: Nameable> Nameable for Vec<T> {
    fn set_name(&self, name: &str) {
        self.as_slice().set_name(name);
    }
}

impl<T: Nameable> Nameable for [T] {
    fn set_name(&self, name: &str) {
        for (i, x) in self.iter().enumerate() {
            x.set_name(&format!("{name}_{i}"));
        }
    }
}

impl<T: Nameable, const N: usize> Nameable for [T; N] {
    fn set_name(&self, name: &str) {
        self.as_slice().set_name(name);
    }
}

impl<T: Nameable> Nameable for Option<T> {
    fn set_name(&self, name: &str) {
        if let Some(x) = self {
            x.set_name(name);
        }
    }
}

impl<A: Nameable, B: Nameable> Nameable for (A, B) {
    fn set_name(&self, name: &str) {
        self.0.set_name(&format!("{name}_0"));
        self.1.set_name(&format!("{name}_1"));
    }
}

/// Names every leaf of a bundle `name_field`.
pub fn name_bundle<B: Bundle>(bundle: &B, name: &str) {
    bundle.each(
        &crate::At::root().field(name, None, false, ""),
        &mut |at, sig| sig.set_name(at.name()),
    );
}

/// Prefixes the names made by `body` with `name_`.
pub fn scope<R>(name: &str, body: impl FnOnce() -> R) -> R {
    cur(|b| b.scopes.push(name.into()));
    let r = body();
    cur(|b| b.scopes.pop());
    r
}

/// Gives one signal (or bundle, or memory) a name by hand, for code outside `#[hw]`.
pub fn named<T: Nameable>(name: &str, x: T) -> T {
    x.set_name(name);
    x
}

/// The target of `#[hw]`: names what can be named and passes anything else (autoref specialisation).
#[doc(hidden)]
pub struct Binding<'a, T: ?Sized>(pub &'a T);

#[doc(hidden)]
pub trait ApplyName {
    fn apply(&self, name: &str);
}
impl<T: Nameable + ?Sized> ApplyName for Binding<'_, T> {
    fn apply(&self, name: &str) {
        self.0.set_name(name);
    }
}

#[doc(hidden)]
pub trait ApplyNothing {
    fn apply(&self, _name: &str) {}
}
impl<T: ?Sized> ApplyNothing for &Binding<'_, T> {}
