//! Proofs on the emitted Verilog at small sizes, by Yosys with Yices and ABC (`scripts/setup formal`). Each proof has mutants that must
//! fail it, so that none passes because its assumptions cannot hold.
//!
//! | block | what | how far |
//! |---|---|---|
//! | `lun_engine` | every slot on exactly one list; no tag with two owners; in flight = tags held, and adds up; admission never above depth | every reachable state, by 2-induction |
//! | | eligible => queued, or the recheck sweep comes within 4 turns of the wheel | the same |
//! | | a LUN that is queued and could go is passed over in at most 5 turns (2 LUNs), the other's quantum aside | the same |
//! | | the assumptions leave room for full lists, waiting Flushes, walks, discards | covers, within 30 cycles of reset |
//!
//! What is assumed is a rule that simulation asserts on the neighbour: with `WEIR_ASSERT` every assumption is an assertion.

mod axi;
mod bitmap;
mod blocks;
mod engine;
mod sby;
