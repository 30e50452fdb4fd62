//! `pick`: which command's chunk comes next, in one direction.
//!
//! ```text
//!  insert {tag, lun} ──►┌──────┐──► take {tag}
//!                       │ pick │
//!                       └──────┘
//! ```
//!
//! First come, first served over commands: a command that has more to move is inserted again after each chunk, so commands
//! share the port chunk by chunk.
//!
//! **Invariants**: a tag is inside at most once. **Latency**: 1 cycle; one in and one out every cycle.

use super::fifo::fifo;
use crate::config::CardConfig;
use weir_kit::*;

/// Ports of [`pick`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct PickPorts {
    /// A command with data to move; a pulse, there is always room.
    #[input]
    #[bits(1)]
    pub insert_valid: Sig,
    /// Its tag.
    #[input]
    #[bits(p.tag_bits())]
    pub insert_tag: Sig,
    /// Its LUN.
    #[input]
    #[bits(p.lun_bits())]
    pub insert_lun: Sig,
    /// The command that is next.
    #[output]
    #[bits(p.tag_bits())]
    pub take: Stream<Sig>,
}

/// Builds the block.
pub fn pick(c: &CardConfig) -> Module {
    module(
        "pick",
        "Which command's chunk comes next, in one direction.",
        c,
        |p: PickPorts| body(c, p),
    )
}

#[hw]
fn body(c: &CardConfig, p: PickPorts) {
    unused(p.insert_lun);
    let waiting = fifo::<Sig>("waiting", &c.tag_bits(), c.tags as u64);
    waiting.input.offer(p.insert_valid, &p.insert_tag);
    assert("waiting_has_room", waiting.input.ready);
    p.take.set(&waiting.output);
}
