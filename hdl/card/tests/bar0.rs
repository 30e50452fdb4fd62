//! bar0 against NVMe 1.4's registers written out by hand: every dword, every strobe, doorbells, the MSI-X window.

mod common;

use common::lite::Master;
use common::{Bench, in_threads, model, rng};
use rand::Rng;
use weir_card::bar0::bar0;
use weir_card::config::CardConfig;

/// The registers that can be written, and the status that the card drives.
#[derive(Clone, Copy, Default, Debug)]
struct Regs {
    cc: u64,
    aqa: u64,
    asq: u64,
    acq: u64,
    csts: u64,
}

impl Regs {
    fn read(&self, c: &CardConfig, addr: u64) -> u64 {
        match addr {
            // MQES, CQR, TO 1 s; NVM command set.
            0x00 => (c.entries as u64 - 1) | (1 << 16) | (2 << 24),
            0x04 => 1 << 5,
            0x08 => 0x0001_0400,
            0x14 => self.cc,
            0x1c => self.csts,
            0x24 => self.aqa,
            0x28 => self.asq & 0xffff_ffff,
            0x2c => self.asq >> 32,
            0x30 => self.acq & 0xffff_ffff,
            0x34 => self.acq >> 32,
            _ => 0,
        }
    }

    fn write(&mut self, addr: u64, data: u64, strobes: u64) {
        let bytes: u64 = (0..4)
            .filter(|i| strobes >> i & 1 == 1)
            .map(|i| 0xff << (8 * i))
            .sum();
        let put = |r: &mut u64, writable: u64, shift: u32| {
            let mask = (bytes << shift) & writable;
            *r = *r & !mask | (data << shift) & mask;
        };
        let page = 0xffff_ffff_ffff_f000;
        match addr {
            0x14 => put(&mut self.cc, 0x00ff_fff1, 0),
            0x24 => put(&mut self.aqa, 0x0fff_0fff, 0),
            0x28 => put(&mut self.asq, page, 0),
            0x2c => put(&mut self.asq, page, 32),
            0x30 => put(&mut self.acq, page, 0),
            0x34 => put(&mut self.acq, page, 32),
            _ => {}
        }
    }
}

fn random_addr(r: &mut impl Rng, c: &CardConfig) -> u64 {
    4 * match r.random_range(0..8) {
        0 => r.random_range(0..0x1000),
        1..4 => [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14][r.random_range(0..14)],
        4..6 => 0x400 + r.random_range(0..2 * (c.queues as u64 + 2)),
        6 => 0x800 + r.random_range(0..4 * (c.queues as u64 + 1)),
        _ => 0xc00 + r.random_range(0..4),
    }
}

fn run(c: &CardConfig, seed: u64) {
    let block = bar0(c);
    let mut b = Bench::new(&block, &model(&block), seed);
    let mut r = rng(seed);
    let mut m = Master::new("bar0", seed);
    let mut regs = Regs::default();
    // What irq's table holds, for the window.
    let mut table = vec![0u64; 2048];
    table
        .iter_mut()
        .for_each(|w| *w = r.random_range(0..1 << 32));
    let mut table_q = 0;
    // The write taken in the cycle before: its pulses come now, its effect is seen one cycle later.
    let mut pulse: Option<(u64, u64, u64)> = None;
    // What the read under way may give: the value at any time since it was asked for.
    let mut allowed: Vec<u64> = vec![];
    let mut asked = None;
    let (mut bells, mut reads) = (0, 0);
    for _ in 0..20_000 {
        m.eager = (b.cycle() / 500).is_multiple_of(3);
        if m.writes.len() < 3 && r.random_range(0..3) == 0 {
            let strobes = if r.random_range(0..4) == 0 {
                r.random_range(0..16)
            } else {
                15
            };
            m.writes
                .push_back((random_addr(&mut r, c), r.random_range(0..1 << 32), strobes));
        }
        if m.reads.len() < 3 && r.random_range(0..3) == 0 {
            m.reads.push_back(random_addr(&mut r, c));
        }
        if r.random_range(0..30) == 0 {
            regs.csts = r.random_range(0..16);
        }
        b.set("csts_rdy", regs.csts & 1);
        b.set("csts_cfs", regs.csts >> 1 & 1);
        b.set("csts_shst", regs.csts >> 2);
        let clear = r.random_range(0..500) == 0;
        b.set("registers_clear", clear);
        b.set("table_rdata", table_q);
        m.drive(&mut b);
        b.eval();
        let at = b.cycle();
        let e = m.events(&b);

        let (cc, g) = (regs.cc, |n: &str| b.get(n));
        assert_eq!(
            (g("cc_en"), g("cc_shn"), g("asq"), g("acq")),
            (cc & 1, cc >> 14 & 3, regs.asq, regs.acq),
            "cycle {at}"
        );
        assert_eq!(
            (g("asqs"), g("acqs")),
            (regs.aqa & 0xfff, regs.aqa >> 16),
            "cycle {at}"
        );
        assert_eq!(
            b.is("cc_supported"),
            cc >> 4 & 0x3ff == 0,
            "cycle {at}: CC {cc:x}"
        );

        let bell = pulse.filter(|(addr, _, strobes)| addr >> 12 == 1 && strobes & 3 == 3);
        let known = bell.filter(|(addr, ..)| addr % 0x1000 / 8 <= c.queues as u64);
        assert_eq!(
            b.is("doorbell_valid"),
            known.is_some(),
            "cycle {at}: {pulse:x?}"
        );
        assert_eq!(
            b.is("doorbell_bad"),
            bell.is_some() && known.is_none(),
            "cycle {at}: {pulse:x?}"
        );
        if let Some((addr, data, _)) = known {
            let got = (
                g("doorbell_queue"),
                b.is("doorbell_is_cq"),
                g("doorbell_value"),
            );
            assert_eq!(
                got,
                (addr % 0x1000 / 8, addr & 4 != 0, data & 0xffff),
                "cycle {at}"
            );
            bells += 1;
        }
        let window = pulse.filter(|(addr, ..)| addr >> 13 == 1);
        assert_eq!(b.is("table_we"), window.is_some(), "cycle {at}");
        if let Some(want) = window {
            assert_eq!(
                (
                    g("table_addr") << 2 | 0x2000,
                    g("table_wdata"),
                    g("table_strb")
                ),
                (want.0 & !3, want.1, want.2)
            );
        }

        // The table is served as irq serves it: what the address held in the cycle before, changed by writes.
        let row = g("table_addr") as usize;
        table_q = table[row];
        if let Some((_, data, strobes)) = window {
            let mask: u64 = (0..4)
                .filter(|i| strobes >> i & 1 == 1)
                .map(|i| 0xff << (8 * i))
                .sum();
            table[row] = table[row] & !mask | data & mask;
        }
        let look = |addr: u64, regs: &Regs, table: &[u64]| match addr >> 12 {
            0 => regs.read(c, addr),
            1 => 0,
            _ => table[(addr as usize & 0x1fff) / 4],
        };
        if let Some(addr) = e.read {
            (asked, allowed) = (Some(addr), vec![look(addr, &regs, &table)]);
        }
        if let Some((addr, data)) = e.data {
            assert_eq!(asked.take(), Some(addr));
            assert!(
                allowed.contains(&data),
                "cycle {at}: {addr:#x} reads {data:#x}, not one of {allowed:x?}"
            );
            reads += 1;
        }
        if let Some((addr, data, strobes)) = pulse.take() {
            regs.write(addr & !3, data, strobes);
        }
        if clear {
            regs = Regs {
                csts: regs.csts,
                ..Regs::default()
            };
        }
        pulse = e.write;
        b.tick();
        if let Some(addr) = asked {
            allowed.push(look(addr, &regs, &table));
        }
    }
    assert!(
        bells > 300 && reads > 1000,
        "{bells} doorbells, {reads} reads"
    );
}

#[test]
fn registers_doorbells_and_window() {
    let runs: Vec<_> = [
        CardConfig::small(),
        CardConfig::default_card(),
        CardConfig {
            queues: 64,
            entries: 4096,
            ..CardConfig::large()
        },
    ]
    .into_iter()
    .flat_map(|c| [(c.clone(), 1), (c, 2)])
    .collect();
    in_threads(&runs, |(c, seed)| run(c, *seed));
}
