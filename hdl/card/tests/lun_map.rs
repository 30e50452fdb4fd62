//! lun_map against a plain table: what the platform wrote is what decode and admin look up.

mod common;

use common::lite::Master;
use common::{Bench, in_threads, model, rng};
use rand::Rng;
use weir_card::config::CardConfig;
use weir_card::lun_map::lun_map;

/// Whether a LUN is there, its base and its blocks; none where nothing was written.
type Row = (bool, Option<u64>, Option<u64>);

#[derive(Clone)]
struct Map {
    limits: [u64; 3],
    /// Base and blocks; none until written.
    rows: Vec<[Option<u64>; 4]>,
}

impl Map {
    fn built(c: &CardConfig) -> [u64; 3] {
        [c.queues as u64, c.luns as u64, c.tags as u64]
    }

    fn new(c: &CardConfig) -> Map {
        Map {
            limits: Map::built(c),
            rows: vec![[None; 4]; c.luns as usize],
        }
    }

    fn write(&mut self, c: &CardConfig, addr: u64, data: u64, strobes: u64) {
        if strobes != 15 {
            return;
        }
        if let (0x10..0x1c, i) = (addr, (addr as usize / 4).wrapping_sub(4)) {
            let built = Map::built(c)[i];
            self.limits[i] = if data == 0 || data > built {
                built
            } else {
                data
            };
        }
        if let Some(row) = addr
            .checked_sub(0x1000)
            .and_then(|at| self.rows.get_mut(at as usize / 16))
        {
            let kept = [0xffff_ffff, 0xff, 0xffff_ffff, 0x8000_00ff];
            let i = addr as usize / 4 % 4;
            row[i] = Some(data & kept[i]);
        }
    }

    /// What a register reads as; none when it holds what it did at power-on.
    fn read(&self, c: &CardConfig, addr: u64) -> Option<u64> {
        match addr {
            0x00 => Some(0x5249_4557),
            0x04 => Some(1),
            0x08 => Some(
                c.queues as u64
                    | (c.luns as u64 - 1) << 8
                    | (c.tags.ilog2() as u64) << 16
                    | (c.data_bits.ilog2() as u64) << 24,
            ),
            0x10..0x1c => Some(self.limits[addr as usize / 4 - 4]),
            0x1000.. => match self.rows.get((addr as usize - 0x1000) / 16) {
                Some(row) => row[addr as usize / 4 % 4],
                None => Some(0),
            },
            _ => Some(0),
        }
    }

    /// Whether a LUN is there, its base and its blocks.
    fn lookup(&self, lun: u64) -> Row {
        let Some(row) = self.rows.get(lun as usize) else {
            return (false, None, None);
        };
        let present = lun < self.limits[1] && row[3].is_some_and(|w| w >> 31 == 1);
        let both = |lo: Option<u64>, hi: Option<u64>| Some(lo? | (hi? & 0xff) << 32);
        (present, both(row[0], row[1]), both(row[2], row[3]))
    }
}

fn run(c: &CardConfig, seed: u64) {
    let block = lun_map(c);
    let mut b = Bench::new(&block, &model(&block), seed);
    let mut r = rng(seed);
    let mut m = Master::new("plat", seed);
    let mut map = Map::new(c);
    let mut pulse: Option<(u64, u64, u64)> = None;
    let mut asked: Option<(u64, Vec<Option<u64>>)> = None;
    let mut looked: Option<[Row; 2]> = None;
    let lun_max = 1u64 << c.lun_bits();
    let (mut found, mut reads) = (0, 0);
    for _ in 0..12_000 {
        m.eager = (b.cycle() / 500).is_multiple_of(3);
        let mut addr = || {
            4 * match r.random_range(0..6) {
                0 => r.random_range(0..0x800),
                1 => r.random_range(0..8),
                _ => 0x400 + r.random_range(0..4 * c.luns as u64 + 2) % 0x400,
            }
        };
        let (write_at, read_at) = (addr(), addr());
        if m.writes.len() < 3 && r.random_range(0..3) == 0 {
            let strobes = if r.random_range(0..6) == 0 {
                r.random_range(0..16)
            } else {
                15
            };
            let data = if write_at < 0x1000 {
                r.random_range(0..300)
            } else {
                r.random_range(0..1 << 32)
            };
            m.writes.push_back((write_at, data, strobes));
        }
        if m.reads.len() < 3 && r.random_range(0..3) == 0 {
            m.reads.push_back(read_at);
        }
        let luns = [r.random_range(0..lun_max), r.random_range(0..lun_max)];
        b.set("decode_lun", luns[0]);
        b.set("admin_lun", luns[1]);
        m.drive(&mut b);
        b.eval();
        let at = b.cycle();
        let e = m.events(&b);
        assert_eq!(
            [b.get("queues"), b.get("luns"), b.get("tags")],
            map.limits,
            "cycle {at}"
        );
        if let Some([d, a]) = looked {
            assert_eq!(
                (b.is("decode_present"), b.is("admin_present")),
                (d.0, a.0),
                "cycle {at}"
            );
            let same = |port: &str, want: Option<u64>| want.is_none_or(|w| w == b.get(port));
            assert!(
                !d.0 || same("decode_base", d.1) && same("decode_blocks", d.2),
                "cycle {at}"
            );
            assert!(!a.0 || same("admin_blocks", a.2), "cycle {at}");
            found += (d.0 && d.1.is_some()) as u32;
        }
        looked = Some([map.lookup(luns[0]), map.lookup(luns[1])]);
        if let Some(addr) = e.read {
            asked = Some((addr, vec![map.read(c, addr)]));
        }
        if let Some((addr, data)) = e.data {
            let (want_addr, allowed) = asked.take().expect("a read is under way");
            assert_eq!(addr, want_addr);
            assert!(
                allowed.iter().any(|v| v.is_none_or(|v| v == data)),
                "cycle {at}: {addr:#x} reads {data:#x}, not {allowed:x?}"
            );
            reads += 1;
        }
        if let Some((addr, data, strobes)) = pulse.take() {
            map.write(c, addr, data, strobes);
        }
        pulse = e.write;
        b.tick();
        if let Some((addr, allowed)) = &mut asked {
            allowed.push(map.read(c, *addr));
        }
    }
    assert!(
        found > 300 && reads > 500,
        "{found} LUNs found, {reads} reads"
    );
}

#[test]
fn lookups_and_limits() {
    let runs: Vec<_> = [
        CardConfig::small(),
        CardConfig {
            luns: 1,
            ..CardConfig::small()
        },
        CardConfig {
            luns: 5,
            ..CardConfig::small()
        },
        CardConfig::large(),
    ]
    .into_iter()
    .flat_map(|c| [(c.clone(), 1), (c, 2)])
    .collect();
    in_threads(&runs, |(c, seed)| run(c, *seed));
}
