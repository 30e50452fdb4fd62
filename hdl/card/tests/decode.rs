//! decode against the checks written out in plain Rust, with fields drawn around every bound.

mod common;

use common::{Bench, Stall, in_threads, model, rng};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{HashMap, VecDeque};
use weir_card::config::CardConfig;
use weir_card::decode::decode;

/// A LUN's row of the map.
#[derive(Clone, Copy)]
struct Lun {
    present: bool,
    base: u64,
    blocks: u64,
}

/// A submission queue entry by its fields.
#[derive(Clone, Debug)]
struct Sqe {
    sq: u64,
    slot: u64,
    opcode: u64,
    fuse: u64,
    psdt: u64,
    cid: u64,
    nsid: u64,
    prp1: u64,
    prp2: u64,
    slba: u64,
    nlb: u64,
    /// What no check reads.
    noise: [u64; 8],
}

impl Sqe {
    fn words(&self) -> [u64; 8] {
        let mut w = self.noise;
        w[0] = self.opcode
            | self.fuse << 8
            | (self.noise[0] & 0xf) << 10
            | self.psdt << 14
            | self.cid << 16
            | self.nsid << 32;
        w[3] = self.prp1;
        w[4] = self.prp2;
        w[5] = self.slba;
        w[6] = self.noise[6] & !0xffff | self.nlb;
        w
    }
}

/// What must come of an entry.
#[derive(Clone, Debug, PartialEq)]
enum Want {
    Admin([u64; 8]),
    Reject {
        slot: u64,
        sq: u64,
        cid: u64,
        status: u64,
    },
    Park {
        slot: u64,
        sq: u64,
        cid: u64,
        lun: u64,
        op: u64,
        cost: u64,
        blocks: u64,
        info: Info,
    },
}

/// The command RAM's row. Only `op` counts for Flush.
#[derive(Clone, Debug, PartialEq)]
struct Info {
    op: u64,
    media_block: u64,
    blocks: u64,
    prp1: u64,
    prp2: u64,
}

/// NVMe 1.4, 4.6.1.2.1: the first check that fails decides.
fn judge(s: &Sqe, luns: &[Lun], in_use: u64, dying: Option<u64>) -> Want {
    if s.sq == 0 {
        return Want::Admin(s.words());
    }
    let dnr = 1 << 14;
    let reject = |status| Want::Reject {
        slot: s.slot,
        sq: s.sq,
        cid: s.cid,
        status,
    };
    if dying == Some(s.sq) {
        return reject(0x08);
    }
    if s.opcode > 2 {
        return reject(dnr | 0x01);
    }
    if s.fuse != 0 || s.psdt != 0 {
        return reject(dnr | 0x02);
    }
    if s.nsid == 0 || s.nsid > in_use || !luns[s.nsid as usize - 1].present {
        return reject(dnr | 0x0b);
    }
    let lun = luns[s.nsid as usize - 1];
    let blocks = s.nlb + 1;
    if s.opcode != 0 {
        if blocks > 256 {
            return reject(dnr | 0x02);
        }
        if s.slba as u128 + blocks as u128 > lun.blocks as u128 {
            return reject(dnr | 0x80);
        }
        let bytes = s.prp1 % 4096 + blocks * 512;
        let second_bad = match bytes.div_ceil(4096) {
            0 | 1 => false,
            2 => !s.prp2.is_multiple_of(4096),
            _ => !s.prp2.is_multiple_of(8),
        };
        if !s.prp1.is_multiple_of(4) || second_bad {
            return reject(dnr | 0x13);
        }
    }
    let op = [2, 1, 0][s.opcode as usize];
    let (blocks, cost) = if s.opcode == 0 {
        (0, 1)
    } else {
        (blocks, blocks.div_ceil(8))
    };
    let info = Info {
        op,
        media_block: (lun.base + s.slba) & ((1 << 40) - 1),
        blocks,
        prp1: s.prp1,
        prp2: s.prp2,
    };
    Want::Park {
        slot: s.slot,
        sq: s.sq,
        cid: s.cid,
        lun: s.nsid - 1,
        op,
        cost,
        blocks,
        info,
    }
}

fn random_entry(r: &mut ChaCha8Rng, c: &CardConfig, luns: &[Lun], in_use: u64) -> Sqe {
    let rare = |r: &mut ChaCha8Rng| r.random_range(0..12) == 0;
    let nsid = if rare(r) {
        [0, in_use + 1, u32::MAX as u64, in_use | 1 << 31][r.random_range(0..4)]
    } else {
        r.random_range(1..=in_use)
    };
    let lun = luns
        .get(nsid.wrapping_sub(1) as usize)
        .copied()
        .unwrap_or(luns[0]);
    let nlb = match r.random_range(0..6) {
        0 => r.random_range(0..65536),
        1 => [255, 256, 65535][r.random_range(0..3)],
        2 => r.random_range(0..32),
        _ => r.random_range(0..256),
    };
    let slba = match r.random_range(0..8) {
        0 => r.random(),
        1 => lun.blocks.saturating_sub(nlb + 1),
        2 => lun.blocks.saturating_sub(nlb),
        3 => 1 << 40 | r.random_range(0..=lun.blocks),
        _ => r.random_range(0..lun.blocks.max(300) - 256),
    };
    let page = r.random::<u64>() & !0xfff;
    let prp1 = match r.random_range(0..4) {
        0 => page,
        1 => page | r.random_range(0..4096),
        _ => page | r.random_range(0..1024) << 2,
    };
    let prp2 = match r.random_range(0..4) {
        0 => r.random(),
        1 => r.random::<u64>() & !7,
        _ => r.random::<u64>() & !0xfff,
    };
    Sqe {
        sq: if r.random_range(0..15) == 0 {
            0
        } else {
            r.random_range(1..=c.queues as u64)
        },
        slot: 0,
        opcode: if rare(r) {
            r.random_range(0..256)
        } else {
            r.random_range(0..3)
        },
        fuse: if rare(r) { r.random_range(0..4) } else { 0 },
        psdt: if rare(r) { r.random_range(0..4) } else { 0 },
        cid: r.random_range(0..65536),
        nsid,
        prp1,
        prp2,
        slba,
        nlb,
        noise: r.random(),
    }
}

/// Runs random entries; `stall` false is full speed. Gives the cycles that `entries` took.
fn run(c: &CardConfig, seed: u64, entries: usize, stall: bool) -> u64 {
    let block = decode(c);
    let mut b = Bench::new(&block, &model(&block), seed);
    let mut r = rng(seed);
    let mut stalls: Vec<Stall> = (0..4).map(|i| Stall::new(seed * 10 + i)).collect();
    let mut go = |i: usize| !stall || stalls[i].go();
    let luns: Vec<Lun> = (0..c.luns)
        .map(|_| Lun {
            present: r.random_range(0..8) != 0,
            base: r.random_range(0..1 << 39),
            blocks: if r.random() {
                r.random_range(300..100_000)
            } else {
                r.random_range(1 << 30..1 << 39)
            },
        })
        .collect();
    let in_use = r.random_range(1..=c.luns as u64);
    let mut dying = None;
    b.set("luns", in_use);
    let mut wants: VecDeque<(Want, u64)> = VecDeque::new();
    let mut written: HashMap<u64, Info> = HashMap::new();
    let mut offered: Option<Sqe> = None;
    let (mut taken, mut seen, mut answer) = (0, HashMap::<u64, u32>::new(), 0);
    let start = b.cycle();
    while taken < entries || !wants.is_empty() {
        if offered.is_none() && wants.is_empty() && r.random_range(0..10) == 0 {
            dying = r
                .random::<bool>()
                .then(|| r.random_range(1..=c.queues as u64));
            b.set("dying", dying.is_some());
            b.set(
                "dying_sq",
                dying.unwrap_or(r.random_range(0..=c.queues as u64)),
            );
        }
        if offered.is_none() && taken < entries && go(0) {
            // Slots inside at a time differ, as the card's do.
            let slot = taken as u64 % c.slots() as u64;
            offered = Some(Sqe {
                slot,
                ..random_entry(&mut r, c, &luns, in_use)
            });
        }
        b.set("entry_valid", offered.is_some());
        if let Some(s) = &offered {
            b.set("entry_sq", s.sq);
            b.set("entry_slot", s.slot);
            b.set_wide("entry_data", &s.words());
        }
        // The map answers what was asked in the cycle before; past its end, anything.
        let row = luns.get(answer as usize).copied().unwrap_or(Lun {
            present: r.random(),
            base: 5,
            blocks: 5,
        });
        b.set("lookup_present", row.present);
        b.set("lookup_base", row.base);
        b.set("lookup_blocks", row.blocks);
        let ready = [go(1), go(2), go(3)];
        b.set("park_ready", ready[0]);
        b.set("reject_ready", ready[1]);
        b.set("admin_ready", ready[2]);
        b.eval();
        assert_eq!(
            b.is("empty"),
            wants.is_empty(),
            "empty, cycle {}",
            b.cycle()
        );
        assert_eq!(
            b.is("admin_held"),
            wants.iter().any(|(want, _)| matches!(want, Want::Admin(_))),
            "admin_held, cycle {}",
            b.cycle()
        );
        if b.is("cmd_write_valid") {
            let f = |n: &str| b.get(&format!("cmd_write_info_{n}"));
            let info = Info {
                op: f("op"),
                media_block: f("media_block"),
                blocks: f("blocks"),
                prp1: f("prp1"),
                prp2: f("prp2"),
            };
            written.insert(b.get("cmd_write_slot"), info);
        }
        let valid = ["park", "reject", "admin"].map(|s| b.is(&format!("{s}_valid")));
        assert!(
            valid.iter().filter(|v| **v).count() <= 1,
            "one way out at a time"
        );
        let out = (0..3).find(|i| valid[*i] && ready[*i]);
        let g = |n: &str| b.get(n);
        let got = match out {
            Some(0) => {
                let slot = g("park_slot");
                let info = written
                    .remove(&slot)
                    .expect("the command RAM is written before the park");
                let op = g("park_op");
                Some(Want::Park {
                    slot,
                    sq: g("park_sq"),
                    cid: g("park_cid"),
                    lun: g("park_lun"),
                    op,
                    cost: g("park_cost"),
                    blocks: g("park_blocks"),
                    info,
                })
            }
            Some(1) => Some(Want::Reject {
                slot: g("reject_slot"),
                sq: g("reject_sq"),
                cid: g("reject_cid"),
                status: g("reject_status"),
            }),
            Some(2) => Some(Want::Admin(
                b.get_wide("admin_data").try_into().expect("8 words"),
            )),
            _ => None,
        };
        if let Some(mut got) = got {
            let (mut want, since) = wants.pop_front().expect("an entry is inside");
            // A Flush moves nothing, so its row but for the operation is free.
            if let (Want::Park { op: 2, info: a, .. }, Want::Park { info: b, .. }) =
                (&mut got, &mut want)
            {
                *a = Info {
                    op: a.op,
                    ..b.clone()
                };
            }
            assert_eq!(got, want, "cycle {}", b.cycle());
            assert!(
                stall || b.cycle() - since <= 3,
                "latency {}",
                b.cycle() - since
            );
            let kind = match want {
                Want::Reject { status, .. } => status,
                Want::Park { op, .. } => 1000 + op,
                Want::Admin(_) => 2000,
            };
            *seen.entry(kind).or_default() += 1;
        }
        if let Some(s) = offered.take_if(|_| b.is("entry_ready")) {
            wants.push_back((judge(&s, &luns, in_use, dying), b.cycle()));
            taken += 1;
        }
        answer = b.get("lookup_lun");
        b.tick();
    }
    // Every status was met, and nothing was written without a park.
    assert!(written.is_empty(), "written but not parked: {written:?}");
    for kind in [
        0x08, 0x4001, 0x4002, 0x400b, 0x4080, 0x4013, 1000, 1001, 1002, 2000,
    ] {
        assert!(
            !stall || seen.contains_key(&kind),
            "nothing of kind {kind:#x} in {seen:?}"
        );
    }
    b.cycle() - start
}

#[test]
fn every_check_and_every_way_out() {
    let mut runs = vec![];
    for c in [
        CardConfig::small(),
        CardConfig {
            luns: 1,
            queues: 1,
            ..CardConfig::small()
        },
        CardConfig {
            luns: 100,
            queues: 16,
            ..CardConfig::large()
        },
    ] {
        for seed in 1..3 {
            runs.push((c.clone(), seed));
        }
    }
    in_threads(&runs, |(c, seed)| {
        run(c, *seed, 6000, true);
    });
}

#[test]
fn a_command_every_two_cycles() {
    let cycles = run(&CardConfig::default_card(), 5, 1000, false);
    assert!(
        cycles <= 2 * 1000 + 10,
        "1000 commands took {cycles} cycles"
    );
}
