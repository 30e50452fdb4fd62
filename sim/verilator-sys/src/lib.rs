//! Builds, caches and loads Verilated models at run time; typed ports.
//!
//! # Architecture
//! - [`Toolchain`] finds Verilator and the C++ compiler. The pinned Verilator (`scripts/setup`) is called as
//!   `verilator_bin` directly: no perl, make or python takes part.
//! - [`Spec`] says what to build: Verilog texts, top module, options. [`Model::build`] has Verilator write C++, compiles
//!   it with a shim (`shim/`) into a shared object, keeps that in a cache under the hash of all that made it, and loads
//!   it. Verilator's runtime and a precompiled header are built once: a small block then builds in about half a
//!   second, and loads from the cache in a few milliseconds.
//! - [`Model::instance`] gives a [`Sim`], with its own Verilator context, random numbers by its own seed, and its own
//!   record of failed assertions, which come back as [`AssertError`] instead of ending the process. Ports are found by
//!   name once, as `Copy` handles ([`In`], [`Out`], [`WideIn`], [`WideOut`]) that are an offset into the model's memory.
//! - Unsafe code is in `raw.rs` alone.
//!
//! One model, many instances, many threads: each instance is single-threaded (`--threads 1` is the fastest for models
//! of this size), may move between threads, and its results depend on its seed and inputs alone.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use verilator_sys::{Model, Spec};
//! let text = "module add(input clk, input [7:0] a, output reg [7:0] sum); always @(posedge clk) sum <= sum + a; endmodule";
//! let mut sim = Model::build(&Spec::new("add", [("add.v", text)]))?.instance(1)?;
//! let (a, sum) = (sim.input("a")?, sim.output("sum")?);
//! let before = sim.get(sum); // random: it has no reset
//! sim.set(a, 3);
//! sim.tick();
//! assert_eq!(sim.get(sum), (before + 3) % 256);
//! sim.check()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it leaves out
//! A Verilator without random streams of its own (before about 5.020; Debian 12's 5.006 was tried) works, but there
//! `$random` is a thread's: only the initial values are by the instance's seed. Inout ports, unpacked array ports, more than one clock, delays (`#1`), DPI, VPI, coverage, save and restore.
//!
//! # Environment
//! `WEIR_VERILATOR` (program), `WEIR_CXX` (C++ compiler, default g++), `WEIR_CACHE` (folder), `WEIR_CACHE_BYTES`
//! (bound, default 2 GiB; the least recently used build goes first, one in use stays).
#![deny(unsafe_code)]

mod builder;
mod cache;
mod error;
mod raw;
mod sim;
mod spec;
mod toolchain;

pub use error::{AssertError, Diagnostic, Error, Severity};
pub use sim::{In, Memory, Model, Out, Sim, Value, WideIn, WideOut};
pub use spec::{Dir, Opt, Port, Spec, XInit};
pub use toolchain::Toolchain;

/// Lints Verilog with all of Verilator's rules (`--lint-only -Wall`), assertions off.
///
/// # Errors
/// [`Error::Verilog`] with every message, warnings included.
pub fn lint<N: Into<String>, T: Into<String>>(
    files: impl IntoIterator<Item = (N, T)>,
    top: &str,
) -> Result<(), Error> {
    builder::lint(Toolchain::shared()?, &Spec::new(top, files).asserts(false))
}
