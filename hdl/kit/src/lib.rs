//! Weir's hardware generator: strict-width signals in Rust, out comes Verilog-2005.
//!
//! # Architecture
//! A block is a Rust function that calls [`module`]. While its body runs, a thread-local builder collects declared things
//! (ports, registers, variables, wires, memories, instances), hash-consed expressions, and the tree of statements as written.
//! When it ends, the builder is checked (undriven, multiply driven, latches, combinational loops also through instances, unread
//! inputs and bits, ready-to-valid paths) and written out. A mistake panics with the generator's `file:line`; [`try_module`]
//! returns it as an [`Error`].
//!
//! | concept | here |
//! |---|---|
//! | value | [`Sig`]: Copy, has a width in bits; `& \| ^ + - ! << >>`, [`Sig::eq`] `ne lt le gt ge`, [`Sig::bits`], [`Sig::mux`], [`cat`], [`lit`] |
//! | integers | the right side of an operator and of `set` may be an integer; it takes the left side's width |
//! | state | [`reg`]`(width, reset)`, [`reg_nr`]`(width)`; read it as a value, drive it with [`Sig::set`] |
//! | combinational | [`var`]`(default)`, [`wire`]`(width)`, output ports, inputs of instances |
//! | control | [`when`]`(c, \|\| ..).elsewhen(c, \|\| ..).otherwise(\|\| ..)`, [`switch`]`(s, \|s\| { s.is(v, \|\| ..); s.default(\|\| ..) })`; the last `set` that holds wins |
//! | structs | `#[derive(Bundle)]`, [`Stream`]; all leaves at once with the methods of [`Bundle`] |
//! | enums | `#[derive(HwEnum)]`, [`HwEnum`]; `sig.is(State::Idle)` |
//! | memory | [`Mem`] |
//! | hierarchy | [`module`], [`instance`], [`black_box`]; [`Module::files`] gives the text |
//! | checks | [`assert`], [`assume`], [`cover`], ghosts in [`formal`], [`past`], [`anyconst`] |
//! | names | `#[hw]` on a function gives what each `let` holds its Rust name; [`scope`] prefixes; [`named`] by hand |
//! | text | doc comments of port fields, [`comment`] |
//!
//! Every module has the ports `clk` and `rst` (synchronous). They are implicit in Rust; [`rst`] reads the reset.
//!
//! # Example
//! ```
//! use weir_kit::*;
//!
//! /// What the widths depend on.
//! struct Config { slots: u64 }
//!
//! #[derive(Clone, Copy, Bundle)]
//! #[bundle(params = Config)] // `p` is a &Config in the expressions below; without it Params = ()
//! struct Cmd {
//!     /// Slot of the command.
//!     #[bits(clog2(p.slots))]
//!     slot: Sig,
//!     /// Blocks to move.
//!     #[bits(16)]
//!     blocks: Sig,
//! }
//!
//! #[derive(Clone, Bundle)]
//! #[bundle(params = Config)]
//! struct FifoPorts {
//!     /// Commands to keep: push_valid, push_slot, push_blocks, and push_ready the other way.
//!     #[input]
//!     push: Stream<Cmd>,
//!     /// The oldest command.
//!     #[output]
//!     pop: Stream<Cmd>,
//!     /// Commands held.
//!     #[output]
//!     #[bits(bits_for(p.slots))]
//!     used: Sig,
//! }
//!
//! #[derive(Clone, Copy, HwEnum)]
//! enum State { Empty, Some, Full }
//!
//! #[hw] // `let x = ..` names the net x
//! fn fifo(cfg: &Config) -> Module {
//!     let addr = clog2(cfg.slots);
//!     module(format!("fifo_{}", cfg.slots), "keeps commands in order.", cfg, |io: FifoPorts| {
//!         let store = Mem::new(cfg.slots, Cmd::width_of(cfg)).style(Style::Distributed);
//!         let head = reg(addr, 0);
//!         let tail = reg(addr, 0);
//!         let count = reg(addr + 1, 0);
//!         let state = State::Empty.reg();
//!
//!         let push = io.push.fire(); // valid & ready: a net named `push`
//!         let pop = io.pop.fire();
//!         store.write(push, tail, io.push.payload.pack());
//!         io.push.ready.set(state.ne(State::Full));
//!         let oldest = Cmd::unpack(cfg, store.read_async(head));
//!         io.pop.offer(state.ne(State::Empty), &oldest);
//!         io.used.set(count);
//!
//!         when(push, || tail.set(tail + 1));
//!         when(pop, || head.set(head + 1));
//!         comment("Both at once leave the count alone.");
//!         when(push & !pop, || {
//!             count.set(count + 1);
//!             state.set(count.eq(cfg.slots - 1).mux(State::Full, State::Some));
//!         })
//!         .elsewhen(pop & !push, || {
//!             count.set(count - 1);
//!             state.set(count.eq(1).mux(State::Empty, State::Some));
//!         });
//!
//!         assert("count_in_range", count.le(cfg.slots));
//!         cover("gets_full", state.is(State::Full));
//!         io.push.assume_stable("push_stable"); // the rule for the neighbour
//!         io.pop.assert_stable("pop_stable");
//!     })
//! }
//!
//! #[derive(Clone, Bundle)]
//! #[bundle(params = Config)]
//! struct PairPorts {
//!     #[input]
//!     a: Stream<Cmd>,
//!     #[output]
//!     z: Stream<Cmd>,
//! }
//!
//! #[hw]
//! fn pair(cfg: &Config) -> Module {
//!     let fifo = fifo(cfg);
//!     module("fifo_pair", "two FIFOs in a row.", cfg, |io: PairPorts| {
//!         let u_first = instance::<FifoPorts>("u_first", &fifo, cfg);
//!         let u_second = instance::<FifoPorts>("u_second", &fifo, cfg);
//!         u_first.push.set(&io.a); // all leaves; ready goes the other way
//!         u_second.push.set(&u_first.pop);
//!         io.z.set(&u_second.pop);
//!         unused(u_first.used); // say so, or it is an error
//!         unused(u_second.used);
//!     })
//! }
//!
//! let top = pair(&Config { slots: 4 });
//! let files = top.files(); // [("fifo_4.v", ..), ("fifo_pair.v", ..)]
//! assert_eq!(files.len(), 2);
//! assert!(files[0].1.contains("wire push = push_valid & push_ready;"));
//! ```
//!
//! # More forms
//! - Lists of ports: `#[count(p.n)] #[bits(8)] lane: Vec<Sig>` gives `lane_0`, `lane_1`, ...; also `[T; N]`, and of bundles.
//! - A nested bundle gets the same `p`; `#[params(expr)]` gives it another (`#[params(())]` for one without parameters).
//!   `#[bits(n)] x: Stream<Sig>` is a stream of a bare n-bit `x_data`.
//! - `#[flip]` on a field turns its direction round inside the bundle.
//! - `T::reg(p)`, `T::reg_nr(p)`, `T::wire(p)`, `T::zero(p)`, `T::var_of(&default)`, `T::choose(c, &t, &f)`, `a.equals(&b)`.
//! - Parts of a register: `r.set_bits(lo, v)`, `r.set_index(i, bit)`, `r.set_word(i, v)`; reading: `r.index(i)`, `r.word(i, w)`.
//! - Chosen by number: [`mux_n`] (a case statement); by one-hot: [`select_onehot`].
//! - `formal(|| ..)`: registers and nets made inside exist only under `WEIR_ASSERT` or `FORMAL`.
//!
//! # Traps
//! - `let mut x` is not named; a name given first stays.
//! - `a - 1` and `a + 1` wrap; [`Sig::add_wide`] keeps the carry.
//! - Shifting by a `Sig` keeps the left width; shifting by an integer costs no logic.
//! - An index has exactly `clog2(n)` bits: `zext` or `trunc` it.
//! - Every bit of an input, register, wire and instance output is read, or passed to [`unused`].
//!
//! # Defines of the Verilog
//! `WEIR_ASSERT` compiles assertions and assumptions for simulation, `FORMAL` all checks for proofs, `WEIR_RANDOM_COLLISION`
//! makes a synchronous read that collides with a write give random data.
//!
//! # Left out
//! Clock domains, signed arithmetic, multiplication, tri-states, parameters in the Verilog (a configuration is a module of its own),
//! and simulation in Rust: Verilator runs the emitted text.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
// The derives name this crate by its path, also in here.
extern crate self as weir_kit;

mod analyze;
mod build;
mod bundle;
mod check;
mod emit;
mod error;
mod fold;
mod mem;
mod module;
mod name;
mod sig;
mod stmt;

pub use bundle::{At, Bundle, Dir, HwEnum, NewLeaf, Role, Stream, Width};
pub use check::{anyconst, anyseq, assert, assume, cover, formal, past, past_valid, unused};
pub use error::{Error, ErrorKind};
pub use mem::{Mem, Style};
pub use module::{Module, Port, black_box, instance, module, try_module};
#[doc(hidden)]
pub use name::{ApplyName, ApplyNothing, Binding};
pub use name::{Nameable, name_bundle, named, scope};
pub use sig::{
    Operand, Sig, all_of, any_of, bits_for, cat, clog2, lit, lit_named, lit_words, mux_n, onehot,
    select_onehot,
};
pub use stmt::{Switch, When, comment, delay, reg, reg_nr, rst, switch, var, when, wire};
pub use weir_kit_macros::{Bundle, HwEnum, hw};
