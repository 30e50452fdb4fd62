//! The admin queue of a host that does not take its completions: it may hold up nobody but itself.

mod common;

use common::Rig;
use weir_card::config::CardConfig;
use weir_driver::Pci;
use weir_nvme::command::Command;
use weir_nvme::registers::offset;
use weir_nvme::{AdminOpcode, NvmOpcode, PAGE_SIZE};
use weir_sim::pci::SimPci;
use zerocopy::IntoBytes;

/// Entries of the admin completion queue: it is full with one less.
const ADMIN_CQ: u32 = 4;
/// Entries of every other ring: those of the small card.
const RING: u32 = 16;
/// Asynchronous Event Requests have CIDs from here on.
const EVENTS: u16 = 0x100;
/// Cycles from the admin doorbell within which a bad one is written: more than a fetch takes.
const OFFSETS: u64 = 60;
/// Cycles within which a Flush ends on an idle card.
const PATIENCE: u64 = 4000;

/// A submission queue and its completion queue, of the same identifier, by address.
struct Pair {
    id: u16,
    sq: u64,
    cq: u64,
    cq_entries: u32,
    tail: u32,
    head: u32,
    phase: bool,
}

impl Pair {
    fn new(pci: &SimPci, id: u16, cq_entries: u32) -> Pair {
        let ring = || {
            let mut world = pci.world_mut();
            world.host().memory.allocate(PAGE_SIZE).unwrap().0
        };
        Pair {
            id,
            sq: ring(),
            cq: ring(),
            cq_entries,
            tail: 0,
            head: 0,
            phase: true,
        }
    }

    /// Writes an entry and its doorbell.
    fn submit(&mut self, pci: &SimPci, command: &Command) {
        let at = self.sq + u64::from(self.tail) * 64;
        let world = &mut pci.world_mut();
        assert!(world.host().memory.write(at, command.as_bytes()));
        self.tail = (self.tail + 1) % RING;
        world.write_register(0x1000 + 8 * u32::from(self.id), self.tail);
    }

    /// The next completion's CID, and its status.
    fn take(&mut self, pci: &SimPci) -> Option<(u16, u16)> {
        let mut entry = [0; 16];
        let at = self.cq + u64::from(self.head) * 16;
        let world = &mut pci.world_mut();
        assert!(world.host().memory.read(at, &mut entry));
        let cid = u16::from_le_bytes([entry[12], entry[13]]);
        let status = u16::from_le_bytes([entry[14], entry[15]]);
        if (status & 1 == 1) != self.phase {
            return None;
        }
        self.head = (self.head + 1) % self.cq_entries;
        self.phase ^= self.head == 0;
        world.write_register(0x1004 + 8 * u32::from(self.id), self.head);
        Some((cid, status >> 1))
    }

    /// Waits for a completion.
    fn wait(&mut self, pci: &SimPci, what: &str) -> (u16, u16) {
        for _ in 0..PATIENCE {
            if let Some(done) = self.take(pci) {
                return done;
            }
            pci.world_mut().step().unwrap();
        }
        panic!("{what} does not end: {}", pci.world().state());
    }
}

fn command(opcode: u8, cid: u16) -> Command {
    let mut command = Command::default();
    command.cdw0.set_opcode(opcode);
    command.cdw0.set_cid(cid);
    command
}

fn enable(pci: &SimPci, on: bool) {
    pci.write32(offset::CC, if on { 6 << 16 | 4 << 20 | 1 } else { 0 });
    while (pci.read32(offset::CSTS) & 1 == 1) != on {
        pci.relax();
    }
}

/// The admin CQ is full, requests for events are held, and an admin entry is being fetched: an event that comes in any
/// cycle of the fetch is not answered before the entry is taken, which then would stand in decode before every I/O entry.
#[test]
fn a_full_admin_queue_holds_up_no_io() {
    let rig = Rig::new(&CardConfig::small(), 1, |_| ());
    let pci = rig.pci.clone();
    // The host of this test is another one than the driver, which shall not speak to the card again.
    std::mem::forget(rig.controller);
    for at in 0..OFFSETS {
        enable(&pci, false);
        let mut admin = Pair::new(&pci, 0, ADMIN_CQ);
        let mut io = Pair::new(&pci, 1, RING);
        pci.write32(offset::AQA, (RING - 1) | (ADMIN_CQ - 1) << 16);
        for (register, iova) in [(offset::ASQ, admin.sq), (offset::ACQ, admin.cq)] {
            pci.write32(register, iova as u32);
            pci.write32(register + 4, (iova >> 32) as u32);
        }
        enable(&pci, true);
        for (opcode, prp1, cdw11) in [
            (AdminOpcode::CREATE_IO_CQ, io.cq, 1),
            (AdminOpcode::CREATE_IO_SQ, io.sq, 1 | 1 << 16),
        ] {
            let mut create = command(opcode.0, 0);
            (create.prp1, create.cdw10, create.cdw11) = (prp1, 1 | (RING - 1) << 16, cdw11);
            admin.submit(&pci, &create);
            assert_eq!(admin.wait(&pci, "a Create"), (0, 0));
        }
        for cid in [EVENTS, EVENTS + 1] {
            admin.submit(&pci, &command(AdminOpcode::ASYNC_EVENT_REQUEST.0, cid));
        }
        // These fill the completion queue.
        let mut number = command(AdminOpcode::GET_FEATURES.0, 1);
        number.cdw10 = 7;
        for cid in 1..ADMIN_CQ as u16 {
            number.cdw0.set_cid(cid);
            admin.submit(&pci, &number);
        }
        assert!(pci.world_mut().settle(PATIENCE).unwrap());

        let mut last = number;
        last.cdw0.set_cid(ADMIN_CQ as u16);
        admin.submit(&pci, &last);
        for _ in 0..at {
            pci.world_mut().step().unwrap();
        }
        // A doorbell of no queue: an event.
        pci.world_mut().write_register(0x1000 + 8 * 40, 1);
        for _ in 0..OFFSETS {
            pci.world_mut().step().unwrap();
        }
        for cid in 0..3 {
            let mut flush = command(NvmOpcode::FLUSH.0, cid);
            flush.nsid = 1;
            io.submit(&pci, &flush);
            let what = format!("I/O, the event {at} cycles after the admin doorbell,");
            assert_eq!(io.wait(&pci, &what), (cid, 0));
        }
        // Then the host takes them: the commands in order, the event at last or before the last command.
        let mut taken: Vec<u16> = Vec::new();
        for _ in 0..ADMIN_CQ + 1 {
            let (cid, status) = admin.wait(&pci, "an admin command");
            assert_eq!(status, 0);
            taken.push(cid);
        }
        let event = taken.iter().position(|&cid| cid >= EVENTS);
        assert!(event.is_some(), "no event: {taken:?}");
        taken.retain(|&cid| cid < EVENTS);
        assert_eq!(taken, (1..=ADMIN_CQ as u16).collect::<Vec<_>>());
    }
}
