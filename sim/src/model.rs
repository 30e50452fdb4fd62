//! From a generated card to a Verilated one.

use verilator_sys::{Model, Spec};
use weir_card::lun_engine::row;
use weir_kit::Module;

use crate::card::{CardError, VerilatedCard};
use crate::held;

/// How a card's model is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelOptions {
    /// It can write an FST trace; slower even when it does not.
    pub trace: bool,
    /// The Verilog's assertions are checked, and registers without reset start random: for tests, slower.
    pub asserts: bool,
    /// A RAM read at the address being written gives random data: for tests.
    pub random_collisions: bool,
}

/// Builds the model of `module` for a [`VerilatedCard`], its inputs registered (see `held.rs`), or finds it in the cache.
pub fn build(module: &Module, options: ModelOptions) -> Result<Model, verilator_sys::Error> {
    let (top, text) = held::top(module);
    let mut files = module.files();
    files.push((format!("{top}.v"), text));
    let mut spec = Spec::new(top, files)
        .trace(options.trace)
        .watch(row::COUNTS);
    if !options.asserts {
        spec = spec.fast();
    }
    if options.random_collisions {
        spec = spec.define("WEIR_RANDOM_COLLISION");
    }
    Model::build(&spec)
}

/// A card of this model, not yet reset.
pub fn instance(model: &Model, seed: u64) -> Result<VerilatedCard, CardError> {
    VerilatedCard::new(model.instance(seed)?)
}
