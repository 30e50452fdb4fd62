//! A plain Rust model of an NVMe controller with LUN budgets, over memory of its own: what the driver is tested
//! against. It does what is asked in the simplest way, and, on request, one thing wrong.
// Each test binary compiles this module and uses its part of it.
#![allow(dead_code, unused_imports)]

mod admin;
mod device;
mod pci;

pub use device::{Fault, SERIAL, TAGS};
pub use pci::{MockMemory, MockPci};

use weir_driver::{Completed, Controller, Options, Pci, Queue, QueueConfig};

/// Brings the device up, with a short timeout for admin commands.
pub fn start(pci: &MockPci) -> Controller<MockPci> {
    Controller::new(
        pci.clone(),
        Options {
            admin_timeout_ns: 200_000_000,
            ..Options::default()
        },
    )
    .unwrap()
}

/// A queue with all LUNs open.
pub fn queue(c: &mut Controller<MockPci>, config: QueueConfig) -> Queue<MockPci> {
    let mut q = c.create_queue(&config).unwrap();
    for lun in c.luns() {
        q.open(lun).unwrap();
    }
    q
}

/// A queue's configuration with this many entries.
pub fn entries(entries: u32) -> QueueConfig {
    QueueConfig {
        entries,
        ..QueueConfig::default()
    }
}

/// A device of `luns` LUNs of `blocks` blocks, brought up, and one queue with all of them open.
pub fn one_queue(
    luns: u32,
    blocks: u64,
    config: QueueConfig,
) -> (MockPci, Controller<MockPci>, Queue<MockPci>) {
    let pci = MockPci::new(luns, blocks);
    let mut c = start(&pci);
    let q = queue(&mut c, config);
    (pci, c, q)
}

/// Polls until nothing is in flight.
pub fn drain(pci: &MockPci, q: &mut Queue<MockPci>, mut done: impl FnMut(Completed<MockMemory>)) {
    for _ in 0..10_000 {
        q.poll(&mut done).unwrap();
        if q.is_empty() {
            return;
        }
        pci.relax();
    }
    panic!("{} commands hang", q.len());
}
