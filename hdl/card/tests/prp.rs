//! How commands are cut into chunks, against NVMe's words about PRPs, with lists fetched from a slow and unruly host.

#[path = "common/axi.rs"]
mod axi;
mod common;

use axi::{Manner, Memory, ReadSlave};
use common::{Bench, Stall, in_threads, model, rng};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{HashMap, VecDeque};
use weir_card::config::CardConfig;
use weir_card::dma::prp::prp;

/// Bytes: host address, media address, length.
type Chunk = (u64, u64, u64);

#[derive(Clone, Debug)]
struct Command {
    slot: u64,
    tag: u64,
    write: bool,
    media_block: u64,
    blocks: u64,
    prp1: u64,
    prp2: u64,
    chunks: VecDeque<Chunk>,
    started: bool,
}

/// Page after page from `first` on, the next one further each time; a list at `list` that chains where its page ends.
fn command(
    memory: &mut Memory,
    slot: u64,
    first: u64,
    blocks: u64,
    media_block: u64,
    list: u64,
    write: bool,
) -> Command {
    let bytes = blocks * 512;
    let mut pages = vec![first];
    let mut left = bytes.saturating_sub(4096 - first % 4096);
    while left > 0 {
        pages.push((first / 4096 + 3 * pages.len() as u64) * 4096);
        left = left.saturating_sub(4096);
    }
    let entries = &pages[1..];
    let mut at = list;
    for (i, page) in entries.iter().enumerate() {
        if at % 4096 == 4088 && i + 1 < entries.len() {
            let next = (at / 4096 + 2) * 4096;
            memory.set_u64(at, next);
            at = next;
        }
        memory.set_u64(at, *page);
        at += 8;
    }
    let prp2 = match entries {
        [] => 0xdead_beef_0bad_f00d,
        [one] => *one,
        _ => list,
    };
    let mut chunks = VecDeque::new();
    let (mut done, mut page) = (0, 0);
    while done < bytes {
        let host = if page == 0 { first } else { pages[page] };
        let mut inside = 0;
        let room = (4096 - host % 4096).min(bytes - done);
        while inside < room {
            let media = media_block * 512 + done + inside;
            let n = (room - inside).min(4096 - media % 4096);
            chunks.push_back((host + inside, media, n));
            inside += n;
        }
        done += room;
        page += 1;
    }
    Command {
        slot,
        tag: slot,
        write,
        media_block,
        blocks,
        prp1: first,
        prp2,
        chunks,
        started: false,
    }
}

struct World {
    bench: Bench,
    memory: Memory,
    list: ReadSlave,
    executing: HashMap<u64, Command>,
    /// Tags in the order of their chunks.
    order: Vec<u64>,
    /// LUNs of chunks that are about to end: reads and writes.
    ends: [VecDeque<u64>; 2],
}

impl World {
    fn new(bench: Bench, manner: Manner, seed: u64) -> World {
        let list = ReadSlave::new(&bench.sim, "list_ar", "list_r", manner, seed);
        World {
            bench,
            memory: Memory::new(seed),
            list,
            executing: HashMap::new(),
            order: vec![],
            ends: [VecDeque::new(), VecDeque::new()],
        }
    }

    fn write_slot(&mut self, c: Option<&Command>) {
        self.bench.set("cmd_write_valid", c.is_some());
        if let Some(c) = c {
            self.bench.set("cmd_write_slot", c.slot);
            self.bench.set("cmd_write_info_op", c.write as u64);
            self.bench.set("cmd_write_info_media_block", c.media_block);
            self.bench.set("cmd_write_info_blocks", c.blocks);
            self.bench.set("cmd_write_info_prp1", c.prp1);
            self.bench.set("cmd_write_info_prp2", c.prp2);
        }
    }

    /// One cycle, with this command offered; true when it was taken.
    fn cycle(&mut self, offer: Option<&Command>, ready: [bool; 2]) -> bool {
        let b = &mut self.bench;
        b.set("exec_valid", offer.is_some());
        if let Some(c) = offer {
            b.set("exec_slot", c.slot);
            b.set("exec_tag", c.tag);
            b.set("exec_op", c.write as u64);
            b.set("exec_lun", c.slot % 4);
            b.set("exec_weight", 1 + c.slot % 4);
        }
        b.set("read_chunk_ready", ready[0]);
        b.set("write_chunk_ready", ready[1]);
        b.set("failed_ready", 1);
        self.list.drive(&mut b.sim, &self.memory);
        b.set("read_ended", 0);
        b.set("write_ended", 0);
        b.eval();
        // A chunk ends, never in a cycle that makes one.
        if !b.is("issue_valid") {
            for (name, ends) in ["read_ended", "write_ended"].iter().zip(&mut self.ends) {
                let lun = ends.pop_front();
                b.set(name, lun.is_some());
                b.set(&format!("{name}_lun"), lun.unwrap_or(0));
            }
            b.eval();
        }
        let taken = offer.is_some() && b.is("exec_ready");
        if b.is("issue_valid") {
            let c = self
                .executing
                .get_mut(&b.get("issue_tag"))
                .expect("a tag that executes");
            assert_eq!(b.is("issue_first"), !c.started);
            assert!(b.is("issue_chunk"));
            assert_eq!(b.get("issue_fault"), 0);
            c.started = true;
        }
        assert!(!b.is("failed_valid"));
        for (write, name) in [(false, "read_chunk"), (true, "write_chunk")] {
            let get = |n: &str| b.get(&format!("{name}_{n}"));
            if ready[write as usize] && get("valid") == 1 {
                let tag = get("tag");
                let c = self.executing.get_mut(&tag).expect("a tag that executes");
                assert_eq!(c.write, write);
                let chunk = (get("host") * 4, get("media") * 4, (get("len") + 1) * 4);
                assert_eq!(Some(chunk), c.chunks.pop_front(), "chunk of {c:x?}");
                if c.chunks.is_empty() {
                    self.executing.remove(&tag);
                }
                self.order.push(tag);
                self.ends[write as usize].push_back(tag % 4);
            }
        }
        if taken && let Some(c) = offer {
            self.executing.insert(c.tag, c.clone());
        }
        self.list.sample(&b.sim);
        b.tick();
        taken
    }
}

fn any(random: &mut ChaCha8Rng, memory: &mut Memory, slot: u64, page: u64) -> Command {
    let offset = match random.random_range(0..4) {
        0 => 0,
        1 => 4092 - 4 * random.random_range(0..8),
        _ => 4 * random.random_range(0..1024),
    };
    let blocks = match random.random_range(0..4) {
        0 => 256,
        1 => 1,
        _ => random.random_range(1..=256),
    };
    let list_at = match random.random_range(0..3) {
        0 => 0,
        1 => 4096 - 8 * random.random_range(1..34),
        _ => 8 * random.random_range(0..512),
    };
    let media = random.random_range(0..(1u64 << 40) - 256);
    command(
        memory,
        slot,
        page * 4096 + offset,
        blocks,
        media,
        (page + 200) * 4096 + list_at,
        random.random(),
    )
}

#[test]
fn chunks_follow_the_prps() {
    let configs: Vec<(CardConfig, u64)> = [128, 256, 512]
        .into_iter()
        .flat_map(|data_bits| {
            (0..4).map(move |s| {
                (
                    CardConfig {
                        data_bits,
                        ..CardConfig::small()
                    },
                    s,
                )
            })
        })
        .collect();
    in_threads(&configs, |(c, seed)| {
        let module = prp(c);
        let model = model(&module);
        let mut random = rng(*seed);
        let manner = Manner {
            reorder: random.random(),
            interleave: random.random(),
            latency: [1, 20, 300][random.random_range(0..3)],
            stalls: random.random(),
        };
        let mut w = World::new(Bench::new(&module, &model, *seed), manner, *seed);
        w.bench.set("rule", seed % 3);
        let mut free: Vec<u64> = (0..c.tags as u64).collect();
        let mut written: VecDeque<Command> = VecDeque::new();
        let (mut arrive, mut reads, mut writes) = (
            Stall::new(seed + 1),
            Stall::new(seed + 2),
            Stall::new(seed + 3),
        );
        let mut made = 0;
        let mut offering = false;
        while made < 300 || !w.executing.is_empty() || !written.is_empty() {
            let fresh = if made < 300 && !free.is_empty() && arrive.go() {
                made += 1;
                let slot = free.swap_remove(random.random_range(0..free.len()));
                Some(any(&mut random, &mut w.memory, slot, 1000 * made))
            } else {
                None
            };
            w.write_slot(fresh.as_ref());
            offering = !written.is_empty() && (offering || arrive.go());
            let offer = if offering {
                written.front().cloned()
            } else {
                None
            };
            if w.cycle(offer.as_ref(), [reads.go(), writes.go()]) {
                written.pop_front();
                offering = false;
            }
            written.extend(fresh);
            free = (0..c.tags as u64)
                .filter(|t| !w.executing.contains_key(t) && written.iter().all(|c| c.tag != *t))
                .collect();
            assert!(
                w.bench.cycle() < 400_000,
                "nothing ends: {:x?}",
                w.executing
            );
        }
        for _ in 0..40 {
            w.cycle(None, [true; 2]);
        }
        assert!(w.bench.is("idle"));
    });
}

#[test]
fn commands_that_need_no_list_pass_those_that_wait() {
    let c = CardConfig {
        data_bits: 256,
        ..CardConfig::small()
    };
    let module = prp(&c);
    let manner = Manner {
        latency: 1,
        ..Manner::PROMPT
    };
    let mut w = World::new(Bench::new(&module, &model(&module), 1), manner, 1);
    // Nine lists, more than there are buffers, from a host that does not answer for now.
    let mut commands: Vec<Command> = (0..9)
        .map(|i| {
            command(
                &mut w.memory,
                i,
                (i + 1) << 20,
                24,
                64 * i,
                ((i + 1) << 20) + 0x8_0000,
                false,
            )
        })
        .collect();
    commands.push(command(&mut w.memory, 9, 0x200_0000, 1, 4096, 0, false));
    for c in &commands {
        w.write_slot(Some(c));
        w.cycle(None, [true; 2]);
    }
    w.write_slot(None);
    w.list.paused = true;
    for c in &commands {
        while !w.cycle(Some(c), [true; 2]) {}
    }
    for _ in 0..50 {
        w.cycle(None, [true; 2]);
    }
    assert_eq!(
        w.order,
        (0..10).collect::<Vec<u64>>(),
        "the first page of each, and the short command behind them"
    );
    w.list.paused = false;
    for _ in 0..200 {
        w.cycle(None, [true; 2]);
    }
    assert!(w.executing.is_empty());
}

#[test]
fn a_chunk_every_cycle() {
    let c = CardConfig {
        data_bits: 256,
        read_chunks: 64,
        write_chunks: 64,
        ..CardConfig::small()
    };
    let module = prp(&c);
    let mut w = World::new(Bench::new(&module, &model(&module), 1), Manner::PROMPT, 1);
    let commands: Vec<Command> = (0..32)
        .map(|i| command(&mut w.memory, i, (i + 1) << 20, 1, 64 * i, 0, i % 2 == 1))
        .collect();
    for c in &commands {
        w.write_slot(Some(c));
        w.cycle(None, [true; 2]);
    }
    w.write_slot(None);
    let begin = w.bench.cycle();
    for c in &commands {
        assert!(w.cycle(Some(c), [true; 2]), "exec waits");
    }
    while !w.executing.is_empty() {
        w.cycle(None, [true; 2]);
    }
    assert_eq!(
        w.bench.cycle() - begin,
        32 + 4,
        "a command a cycle, the last 4 cycles behind its exec"
    );
}
