//! The troubles of a multi-queue host's shared accounting, each driven through the driver on the whole card and each shown
//! to be harmless there; a scenario whose trouble the card's own statistics do not show fails as 'not exercised'.
//!
//! | file | trouble | shown |
//! |---|---|---|
//! | `one_lun` (S0) | every queue counts on one LUN | the depth is full and kept, and as quick with 32 queues as with one |
//! | `restarts` (S1) | LUNs run out of budget all the time, depths and completing CPUs change | nothing hangs, all is verified |
//! | `grid` (S2) | more LUNs, more queues | throughput grows with LUNs to the port's bound and stays there |
//! | `shared_tags` (S3) | LUNs share too few tags | fair by each rule, at no cost in throughput |
//! | `past_saturation` (S4) | far more commands than depth | throughput stays at its peak |
//!
//! Times are simulated; the host costs none. `benches/scenarios.rs` prints the same on the default card.

#[path = "../common/mod.rs"]
mod common;

mod grid;
mod one_lun;
mod past_saturation;
mod restarts;
mod shared_tags;

use common::load::{Card, Load};
use weir_card::config::CardConfig;
use weir_sim::model::ModelOptions;
use weir_sim::time::Latency;

/// One model for all scenarios: 32 queues, 32 LUNs, 256 tags; what is in use is set at run time. Assertions are checked.
fn card() -> Card {
    let config = CardConfig {
        name: "custom".into(),
        queues: 32,
        entries: 64,
        luns: 32,
        tags: 256,
        // One LUN may have three quarters of the chunks in flight: 256 of them and more.
        read_chunks: 512,
        host_id_bits: 8,
        host_max_outstanding: 256,
        media_id_bits: 8,
        media_max_outstanding: 256,
        ..CardConfig::small()
    };
    let options = ModelOptions {
        trace: false,
        asserts: true,
        random_collisions: true,
    };
    Card::new(config, options)
}

/// Media that answers after `mean_ns`, half of it at random, so that commands do not go in step.
fn media(mean_ns: u64) -> Vec<(Option<u32>, Latency)> {
    let spread = Latency::Uniform(mean_ns / 2, mean_ns * 3 / 2);
    vec![(None, spread)]
}

fn load(cpus: u32, time_us: u64) -> Load {
    Load {
        cpus,
        time_ns: time_us * 1000,
        seed: 1,
    }
}
