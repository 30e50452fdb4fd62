//! Software that we did not write drives the card, and our driver drives a device that we did not write: a Debian guest
//! under QEMU, without KVM. `make guest-test` runs this after scripts/setup-guest.
//!
//! ```text
//!   this process ──► weir serve (the Verilated card) ◄── vfio-user ──┐
//!        │                                                           │
//!        └──────────► QEMU (TCG) ── guest: kernel, busybox, fio, nvme-cli, our examples built static
//!                        └─ -device nvme with 4 namespaces
//! ```
//!
//! | file | what |
//! |---|---|
//! | `machine.rs` | [`Guest`](machine::Guest): QEMU and its console, judged line by line |
//! | `initrd.rs` | the guest's files |
//! | `card.rs` | [`Card`](card::Card): `weir serve` as a child |
//! | `bench/`, `plugin/` | `make guest-bench`: instructions for an I/O |
//! | `programs.rs` | our programs, static, for the guest |
//! | `scripts/` | what runs in the guest: `init` first, then a test as `test.sh` |
//!
//! A script prints a line `WEIR-STEP what` before each step; a test names the steps that must have been taken. Nothing
//! waits for a fixed time: a test fails when the console is silent for [`machine::SILENCE`].
//!
//! Not here: KVM, which the machines that run this may not have; a guest's real speed, which is the emulator's.
#![forbid(unsafe_code)]

mod card;
mod initrd;
mod machine;
mod programs;

use card::Card;
use machine::{Boot, Device, Event, Guest};
use std::collections::BTreeMap;
use std::fs;

const LUNS: usize = 4;

/// The kernel's driver and ours, on the card and on QEMU's own nvme: one boot.
#[test]
#[ignore = "make guest-test: wants scripts/setup-guest"]
fn live() {
    let dir = tempfile::tempdir().unwrap();
    let card = Card::serve(dir.path(), None);
    let devices = [
        Device::Card(card.socket().into()),
        Device::own_nvme(dir.path(), LUNS),
    ];
    let programs = programs::build(dir.path());
    let mut guest = Guest::boot(
        dir.path(),
        &Boot {
            name: "live",
            devices: &devices,
            test: "live.sh",
            programs: &programs,
            files: &[],
            counting: None,
        },
    );
    guest.must_pass(&[
        "nvme binds",
        "nvme-cli: list",
        "nvme-cli: get-feature",
        "fio: crc32c verify on 4 LUNs",
        "vendor features",
        "vendor log",
        "depth changed",
        "weir lun",
        "ext4",
        "controller reset",
        "unbind and bind",
        "weir bind takes",
        "weir lun",
        "our driver",
        "our driver",
        "our driver",
        "ublk over our driver",
        "ublk over our driver, with fio verify",
        "weir lun beside weir export ublk",
        "an export that is killed",
        "ext4 on ublk",
        "weir export ublk does not end",
        "weir export ublk ends",
        "weir export ublk --remove-dead",
        "the kernel's nvme finds",
        "weir bind takes",
        "our driver",
        "weir unbind",
    ]);
    drop(guest);
    println!("{}", card.stop());
}

/// The same scripts on QEMU's own nvme alone: that they are right about a controller that is known to be.
#[test]
#[ignore = "make guest-test: wants scripts/setup-guest"]
fn scripts_on_qemus_own_nvme() {
    let dir = tempfile::tempdir().unwrap();
    let devices = [Device::own_nvme(dir.path(), LUNS)];
    let programs = programs::build(dir.path());
    let mut guest = Guest::boot(
        dir.path(),
        &Boot {
            name: "own",
            devices: &devices,
            test: "own.sh",
            programs: &programs,
            files: &[],
            counting: None,
        },
    );
    guest.must_pass(&[
        "nvme binds",
        "fio: crc32c verify on 4 LUNs",
        "ext4",
        "controller reset",
        "unbind and bind",
        "weir bind takes",
        "weir lun",
        "our driver",
        "weir unbind",
        "weir export ublk refuses",
        "ublk over our driver",
        "ublk over our driver, with fio verify",
        "weir lun beside weir export ublk",
        "an export that is killed",
        "ext4 on ublk",
        "weir export ublk does not end",
        "weir export ublk ends",
        "weir export ublk --remove-dead",
        "a controller that is lost",
        "the kernel's nvme finds",
    ]);
}

/// Guest and server are killed while they write; the next guest, on a new server and by the command line that docs/serve.md
/// gives, finds all that was acknowledged.
#[test]
#[ignore = "make guest-test: wants scripts/setup-guest"]
fn killed_in_the_middle() {
    /// Acknowledged writes of every LUN before the death.
    const ENOUGH: u64 = 24;
    let dir = tempfile::tempdir().unwrap();
    let media = dir.path().join("media");
    let card = Card::serve(dir.path(), Some(&media));
    let mut guest = Guest::boot(
        dir.path(),
        &Boot {
            name: "crash",
            devices: &[Device::Card(card.socket().into())],
            test: "crash.sh",
            programs: &[],
            files: &[],
            counting: None,
        },
    );
    let mut acked = BTreeMap::new();
    while acked.len() < LUNS || acked.values().any(|n| *n < ENOUGH) {
        match guest.next() {
            // Blocks of a LUN come in order, so the last says how many there are.
            Event::Ack { lun, block } => drop(acked.insert(lun, block + 1)),
            Event::Exit(status) => {
                guest.fail(&format!("crash.sh ended by itself, status {status}"))
            }
            Event::Ended => guest.fail("the guest ended by itself"),
            Event::Step | Event::Other => {}
        }
    }
    guest.kill();
    card.kill();

    let list: String = acked
        .iter()
        .map(|(lun, blocks)| format!("{lun} {blocks}\n"))
        .collect();
    let card = Card::serve(dir.path(), Some(&media));
    let mut guest = Guest::documented(
        dir.path(),
        &Boot {
            name: "found",
            // As the command line says.
            devices: &[],
            test: "found.sh",
            programs: &[],
            files: &[("acked", &list)],
            counting: None,
        },
        card.socket(),
    );
    guest.must_pass(&["what was acknowledged"]);
    drop(guest);
    card.stop();
    assert!(fs::metadata(&media).is_ok());
}
