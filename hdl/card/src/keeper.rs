//! Rules between neighbours, each written once: asserted on the side that keeps it, assumed on the side that relies on it.

use weir_kit::*;

/// Who keeps a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The block under construction: the rule is asserted.
    Us,
    /// Its neighbour: the rule is assumed in proofs and asserted in simulation.
    Them,
}

impl Keeper {
    /// The other side.
    pub fn other(self) -> Keeper {
        match self {
            Keeper::Us => Keeper::Them,
            Keeper::Them => Keeper::Us,
        }
    }

    /// `cond` holds at every clock edge out of reset.
    #[track_caller]
    pub fn rule(self, name: &str, cond: Sig) {
        match self {
            Keeper::Us => assert(name, cond),
            Keeper::Them => assume(name, cond),
        }
    }
}
