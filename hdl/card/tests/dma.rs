//! The data path against memories in plain Rust: every byte, every status, every AXI rule; then its rates and latencies.

#[path = "common/axi.rs"]
mod axi;
mod common;

use axi::{Manner, Memory, ReadSlave, WriteSlave};
use common::{Bench, Stall, in_threads, model, rng};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use weir_card::config::CardConfig;
use weir_card::dma::{DmaPorts, dma};
use weir_kit::{Bundle, Module};

const TRANSFER_ERROR: u64 = 0x04;
const PRP_OFFSET: u64 = 0x4013;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Read,
    Write,
    Flush,
}

/// What is made wrong in a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Nothing,
    EntryOffset,
    ChainOffset,
    ListRead,
    HostPage,
    MediaPage,
}

#[derive(Clone, Debug)]
struct Command {
    op: Op,
    slot: u64,
    tag: u64,
    lun: u64,
    sq: u64,
    media_block: u64,
    blocks: u64,
    prp1: u64,
    prp2: u64,
    /// Host byte ranges in order.
    host: Vec<(u64, u64)>,
    wrong: Wrong,
    /// The host page that answers with an error.
    bad_page: Option<u64>,
    status: u64,
}

/// Makes commands, each on host pages and media pages of its own, and knows what memory must hold in the end.
struct Maker {
    rng: ChaCha8Rng,
    next_page: u64,
    next_media: u64,
    host: Memory,
    media: Memory,
    /// Bytes that a failed command may or may not have written.
    any_host: Vec<Range<u64>>,
    any_media: Vec<Range<u64>>,
    faults: bool,
    written: Vec<(u64, u64)>,
    /// Operation, blocks and offset of the next commands; at random when there are none.
    wanted: VecDeque<(Op, u64, u64)>,
}

impl Maker {
    fn new(seed: u64, faults: bool) -> Maker {
        Maker {
            rng: rng(seed),
            next_page: 0x10_0000,
            next_media: 8,
            host: Memory::new(seed),
            media: Memory::new(seed + 1),
            any_host: vec![],
            any_media: vec![],
            faults,
            written: vec![],
            wanted: VecDeque::new(),
        }
    }

    fn page(&mut self) -> u64 {
        self.next_page += self.rng.random_range(1..3);
        self.next_page * 4096
    }

    /// A command; lists, contents and faults are put into the memories of the run.
    fn make(
        &mut self,
        c: &CardConfig,
        slot: u64,
        tag: u64,
        host: &mut Memory,
        media: &mut Memory,
    ) -> Command {
        let r = |rng: &mut ChaCha8Rng, n: u64| rng.random_range(0..n);
        let op = match r(&mut self.rng, 10) {
            0 => Op::Flush,
            1..=5 => Op::Read,
            _ => Op::Write,
        };
        let blocks = match r(&mut self.rng, 8) {
            0 | 1 => 1,
            2 | 3 => 8,
            4 => 256,
            5 => 1 + r(&mut self.rng, 24),
            _ => 1 + r(&mut self.rng, 256),
        };
        let offset = match r(&mut self.rng, 6) {
            0..=2 => 0,
            3 => 512 * r(&mut self.rng, 8),
            4 => 4092 - 4 * r(&mut self.rng, 20),
            _ => 4 * r(&mut self.rng, 1024),
        };
        let (op, blocks, offset) = self.wanted.pop_front().unwrap_or((op, blocks, offset));
        let bytes = blocks * 512;
        let pages = (offset + bytes).div_ceil(4096);
        let first = self.page() + offset;
        let mut ranges = vec![(first, bytes.min(4096 - offset))];
        let mut left = bytes - ranges[0].1;
        while left > 0 {
            let n = left.min(4096);
            ranges.push((self.page(), n));
            left -= n;
        }
        assert_eq!(ranges.len() as u64, pages);
        let mut wrong = Wrong::Nothing;
        if self.faults && op != Op::Flush && r(&mut self.rng, 4) == 0 {
            wrong = [
                Wrong::EntryOffset,
                Wrong::ChainOffset,
                Wrong::ListRead,
                Wrong::HostPage,
                Wrong::MediaPage,
            ][r(&mut self.rng, 5) as usize];
        }
        let prp2 = match pages {
            1 => self.rng.random(),
            2 => ranges[1].0,
            _ => self.list(&ranges[1..], &mut wrong, host),
        };
        if pages <= 2
            && matches!(
                wrong,
                Wrong::EntryOffset | Wrong::ChainOffset | Wrong::ListRead
            )
        {
            wrong = Wrong::Nothing;
        }
        // Media: pages of its own, or a read of what an earlier command wrote.
        let media_pages = blocks.div_ceil(8) + 1;
        let mut media_block = self.next_media * 8 + r(&mut self.rng, 8) * (r(&mut self.rng, 2));
        self.next_media += media_pages + 1;
        if op == Op::Read
            && wrong == Wrong::Nothing
            && !self.written.is_empty()
            && r(&mut self.rng, 2) == 0
        {
            let (at, n) = self.written[r(&mut self.rng, self.written.len() as u64) as usize];
            if n >= blocks {
                media_block = at;
            }
        }
        let mut bad_page = None;
        match wrong {
            Wrong::HostPage => {
                let page = ranges[r(&mut self.rng, pages) as usize].0 / 4096;
                bad_page = Some(page);
                if op == Op::Write {
                    host.bad_reads.insert(page)
                } else {
                    host.bad_writes.insert(page)
                };
            }
            Wrong::MediaPage => {
                let page = (media_block + r(&mut self.rng, blocks)) / 8;
                if op == Op::Write {
                    media.bad_writes.insert(page)
                } else {
                    media.bad_reads.insert(page)
                };
            }
            _ => {}
        }
        let status = match wrong {
            Wrong::Nothing => 0,
            Wrong::EntryOffset | Wrong::ChainOffset => PRP_OFFSET,
            _ => TRANSFER_ERROR,
        };
        let command = Command {
            op,
            slot,
            tag,
            lun: r(&mut self.rng, c.luns as u64),
            sq: 1 + r(&mut self.rng, c.queues as u64),
            media_block,
            blocks,
            prp1: first,
            prp2,
            host: ranges,
            wrong,
            bad_page,
            status,
        };
        self.expect(&command);
        command
    }

    /// Writes the list into host memory.
    fn list(&mut self, pages: &[(u64, u64)], wrong: &mut Wrong, host: &mut Memory) -> u64 {
        let n = pages.len() as u64;
        let page = self.page();
        let at = match self.rng.random_range(0..3) {
            0 => 0,
            1 => 8 * self.rng.random_range(0..512),
            _ => 4096 - 8 * self.rng.random_range(1..=(n + 1).min(512)),
        };
        let room = (4096 - at) / 8;
        let mut place = page + at;
        let mut bad = if *wrong == Wrong::EntryOffset {
            Some(self.rng.random_range(0..n))
        } else {
            None
        };
        let mut chained = false;
        for (i, (addr, _)) in pages.iter().enumerate() {
            if n > room && i as u64 == room - 1 {
                let next = self.page();
                let offset = if *wrong == Wrong::ChainOffset {
                    8 * self.rng.random_range(1..512)
                } else {
                    0
                };
                self.put(host, place, next + offset);
                chained = true;
                if *wrong == Wrong::ListRead && self.rng.random_range(0..2) == 0 {
                    host.bad_reads.insert(next / 4096);
                }
                place = next;
            }
            let offset = match bad.take_if(|b| *b == i as u64) {
                Some(_) => 8 * self.rng.random_range(1..512),
                None => 0,
            };
            self.put(host, place, addr + offset);
            place += 8;
        }
        match *wrong {
            Wrong::ChainOffset if !chained => *wrong = Wrong::Nothing,
            Wrong::ListRead if host.bad_reads.contains(&((place - 8) / 4096)) => {}
            Wrong::ListRead => {
                host.bad_reads.insert(page / 4096);
            }
            _ => {}
        }
        page + at
    }

    fn put(&mut self, host: &mut Memory, at: u64, value: u64) {
        host.set_u64(at, value);
        self.host.set_u64(at, value);
    }

    /// Applies the command to the expected memories.
    fn expect(&mut self, c: &Command) {
        let mut at = c.media_block * 512;
        for (start, n) in &c.host {
            match (c.op, c.wrong) {
                (Op::Flush, _) => {}
                (Op::Read, Wrong::Nothing) => {
                    self.host.write(*start, &self.media.read(at, *n as usize))
                }
                (Op::Write, Wrong::Nothing) => {
                    self.media.write(at, &self.host.read(*start, *n as usize))
                }
                (Op::Read, _) => self.any_host.push(*start..start + n),
                // What could not be read is not written.
                (Op::Write, _) if c.bad_page == Some(start / 4096) => {}
                (Op::Write, _) => self.any_media.push(at..at + n),
            }
            at += n;
        }
    }

    /// The bytes of a command that is over.
    fn check(&self, c: &Command, host: &Memory, media: &Memory) {
        if c.wrong != Wrong::Nothing || c.op == Op::Flush {
            return;
        }
        let mut at = c.media_block * 512;
        for (start, n) in &c.host {
            let (h, m) = (host.read(*start, *n as usize), media.read(at, *n as usize));
            let differs = h.iter().zip(&m).position(|(a, b)| a != b);
            assert!(
                differs.is_none(),
                "byte {differs:?} at host {start:#x}, media {at:#x} of {c:x?}"
            );
            at += n;
        }
    }

    /// All of both memories, so that nothing else was written.
    fn check_all(&self, host: &Memory, media: &Memory) {
        for (name, have, want, any) in [
            ("host", host, &self.host, &self.any_host),
            ("media", media, &self.media, &self.any_media),
        ] {
            let pages: HashSet<u64> = have.written().into_iter().chain(want.written()).collect();
            for page in pages {
                let (a, b) = (have.read(page * 4096, 4096), want.read(page * 4096, 4096));
                for addr in (0..4096)
                    .filter(|i| a[*i] != b[*i])
                    .map(|i| page * 4096 + i as u64)
                {
                    assert!(
                        any.iter().any(|r| r.contains(&addr)),
                        "{name} byte {addr:#x}"
                    );
                }
            }
        }
    }
}

/// The block with its slaves.
struct World {
    bench: Bench,
    host: Memory,
    media: Memory,
    list: ReadSlave,
    host_read: ReadSlave,
    media_read: ReadSlave,
    host_write: WriteSlave,
    media_write: WriteSlave,
}

impl World {
    fn new(mut bench: Bench, host: Manner, media: Manner, seed: u64) -> World {
        // Media bursts never interleave.
        let media = Manner {
            interleave: false,
            ..media
        };
        bench.set("cmd_write_valid", 0);
        bench.set("exec_valid", 0);
        bench.set("done_ready", 1);
        bench.set("rule", seed % 3);
        let s = &bench.sim;
        let mut world = World {
            list: ReadSlave::new(s, "list_ar", "list_r", host, seed),
            host_read: ReadSlave::new(s, "host_ar", "host_r", host, seed + 1),
            media_read: ReadSlave::new(s, "media_ar", "media_r", media, seed + 2),
            host_write: WriteSlave::new(s, "host_aw", "host_w", "host_b", host, seed + 3),
            media_write: WriteSlave::new(s, "media_aw", "media_w", "media_b", media, seed + 4),
            host: Memory::new(seed),
            media: Memory::new(seed + 1),
            bench,
        };
        // Only media R may wait: data cuts through to the host.
        (world.list.always_taken, world.host_read.always_taken) = (true, true);
        (
            world.host_write.always_taken,
            world.media_write.always_taken,
        ) = (true, true);
        world
    }

    fn cmd_write(&mut self, c: &Command) {
        let b = &mut self.bench;
        b.set("cmd_write_valid", 1);
        b.set("cmd_write_slot", c.slot);
        b.set("cmd_write_info_op", c.op as u64);
        b.set("cmd_write_info_media_block", c.media_block);
        b.set("cmd_write_info_blocks", c.blocks);
        b.set("cmd_write_info_prp1", c.prp1);
        b.set("cmd_write_info_prp2", c.prp2);
    }

    fn exec(&mut self, c: &Command) {
        let b = &mut self.bench;
        b.set("exec_valid", 1);
        b.set("exec_slot", c.slot);
        b.set("exec_sq", c.sq);
        b.set("exec_lun", c.lun);
        b.set("exec_tag", c.tag);
        b.set("exec_op", c.op as u64);
        b.set("exec_weight", 1 + c.lun);
    }

    fn drive(&mut self) {
        let sim = &mut self.bench.sim;
        self.list.drive(sim, &self.host);
        self.host_read.drive(sim, &self.host);
        self.media_read.drive(sim, &self.media);
        self.host_write.drive(sim, &mut self.host);
        self.media_write.drive(sim, &mut self.media);
        self.bench.eval();
    }

    fn tick(&mut self) {
        let sim = &self.bench.sim;
        self.list.sample(sim);
        self.host_read.sample(sim);
        self.media_read.sample(sim);
        self.host_write.sample(sim);
        self.media_write.sample(sim);
        self.bench.tick();
    }

    fn input_is_low(&self, stream: &str) -> bool {
        let valid = self.bench.sim.input(&format!("{stream}_valid"));
        self.bench.sim.get(valid.expect("port").into()) == 0
    }

    fn outstanding(&self) -> usize {
        self.list.outstanding()
            + self.host_read.outstanding()
            + self.media_read.outstanding()
            + self.host_write.outstanding()
            + self.media_write.outstanding()
    }
}

/// While the block says that it is idle and no input is valid, clocking it changes no output.
fn idle_means_still(w: &mut World) {
    let inputs = [
        "exec",
        "cmd_write",
        "list_r",
        "host_r",
        "media_r",
        "host_b",
        "media_b",
    ];
    let quiet = inputs.iter().all(|i| w.input_is_low(i));
    w.bench.eval();
    if !quiet || !w.bench.is("idle") {
        return;
    }
    let outputs = [
        "done", "list_ar", "host_ar", "media_ar", "host_aw", "media_aw", "host_w", "media_w",
    ];
    let see = |w: &World| outputs.map(|o| w.bench.get(&format!("{o}_valid")));
    let before = see(w);
    for _ in 0..12 {
        w.bench.tick();
        assert!(w.bench.is("idle"), "idle ends by itself");
        assert_eq!(see(w), before, "an output changes while idle");
    }
}

/// What a run does.
#[derive(Clone, Default)]
struct Run {
    seed: u64,
    /// A quarter of the commands have something wrong.
    faults: bool,
    /// The first commands, then random ones.
    wanted: VecDeque<(Op, u64, u64)>,
    /// Commands, all of which must end well; 0: until `stop`.
    count: usize,
    /// Cycle.
    stop: u64,
}

/// Runs commands against slaves of random manners and checks all of them.
fn run_commands(module: &Module, bench: Bench, c: &CardConfig, run: Run) -> Bench {
    let Run {
        seed,
        faults,
        wanted,
        count,
        stop,
    } = run;
    let mut rng = rng(seed);
    let mut manner = || Manner {
        reorder: rng.random_range(0..3) > 0,
        interleave: rng.random_range(0..3) > 0,
        latency: [1, 10, 100, 600][rng.random_range(0..4)],
        stalls: rng.random_range(0..4) > 0,
    };
    let (host, media) = (manner(), manner());
    let mut w = World::new(bench, host, media, seed);
    let mut maker = Maker::new(seed, faults);
    maker.wanted = wanted;
    let mut free_tags: Vec<u64> = (0..c.tags as u64).collect();
    let mut free_slots: Vec<u64> = (0..c.slots() as u64).collect();
    let mut to_exec: VecDeque<Command> = VecDeque::new();
    let mut executing: HashMap<u64, Command> = HashMap::new();
    let (mut made, mut over, mut last_done) = (0, 0, 0);
    let (mut arrive, mut accept) = (Stall::new(seed + 7), Stall::new(seed + 8));
    let mut offered = false;
    while over < count || count == 0 {
        let cycle = w.bench.cycle();
        if rng.random_range(0..8) == 0 {
            idle_means_still(&mut w);
        }
        if count == 0 && cycle >= stop {
            break;
        }
        assert!(
            cycle - last_done < 60_000,
            "seed {seed} {module:?}: nothing ends, executing {executing:#x?}",
            module = module.name()
        );
        w.bench.set("cmd_write_valid", 0);
        w.bench.set("exec_valid", 0);
        if !offered && !to_exec.is_empty() {
            offered = arrive.go();
        }
        if offered {
            let next = to_exec[0].clone();
            w.exec(&next);
        }
        let mut fresh = None;
        if (made < count || count == 0) && !free_tags.is_empty() && arrive.go() {
            let tag = free_tags.swap_remove(rng.random_range(0..free_tags.len()));
            let slot = free_slots.swap_remove(rng.random_range(0..free_slots.len()));
            let command = maker.make(c, slot, tag, &mut w.host, &mut w.media);
            w.cmd_write(&command);
            fresh = Some(command);
            made += 1;
        }
        let ready = accept.go();
        w.bench.set("done_ready", ready);
        w.drive();
        if offered && w.bench.is("exec_ready") {
            let command = to_exec.pop_front().expect("offered");
            executing.insert(command.tag, command);
            offered = false;
        }
        to_exec.extend(fresh);
        if ready && w.bench.is("done_valid") {
            let tag = w.bench.get("done_exec_tag");
            let command = executing
                .remove(&tag)
                .unwrap_or_else(|| panic!("done of tag {tag}, which does not execute"));
            let got = |n: &str| w.bench.get(n);
            assert_eq!(got("done_exec_slot"), command.slot);
            assert_eq!(got("done_exec_sq"), command.sq);
            assert_eq!(got("done_exec_lun"), command.lun);
            assert_eq!(got("done_exec_op"), command.op as u64);
            assert_eq!(got("done_status"), command.status, "{command:x?}");
            maker.check(&command, &w.host, &w.media);
            if command.op == Op::Write && command.status == 0 {
                maker.written.push((command.media_block, command.blocks));
            }
            free_tags.push(tag);
            free_slots.push(command.slot);
            over += 1;
            last_done = cycle;
        }
        w.tick();
    }
    if count > 0 {
        // Everything has ended with the last command, and stays so.
        w.bench.set("exec_valid", 0);
        w.bench.set("cmd_write_valid", 0);
        assert_eq!(w.outstanding(), 0, "AXI traffic goes on after done");
        for _ in 0..5 {
            w.drive();
            w.tick();
        }
        assert!(w.bench.is("idle"));
        maker.check_all(&w.host, &w.media);
    }
    for s in ["list_r", "host_r", "media_r", "host_b", "media_b"] {
        w.bench.set(&format!("{s}_valid"), 0);
    }
    w.bench
}

fn sizes() -> Vec<CardConfig> {
    let small = CardConfig::small();
    let wide = |bits| CardConfig {
        data_bits: bits,
        ..small.clone()
    };
    vec![
        small.clone(),
        wide(256),
        wide(512),
        CardConfig {
            read_chunks: 4,
            write_chunks: 4,
            tags: 8,
            luns: 1,
            queues: 1,
            ..small.clone()
        },
    ]
}

#[test]
fn every_byte_and_status_of_random_commands() {
    let work: Vec<(CardConfig, u64)> = sizes()
        .into_iter()
        .flat_map(|c| (0..4).map(move |s| (c.clone(), s)))
        .collect();
    let built: Vec<_> = sizes()
        .into_iter()
        .map(|c| (c.clone(), dma(&c)))
        .map(|(c, m)| (c, model(&m), m))
        .collect();
    in_threads(&work, |(c, seed)| {
        let (_, model, module) = built.iter().find(|b| b.0 == *c).expect("built");
        let bench = Bench::new(module, model, *seed);
        let run = Run {
            seed: 1000 + seed,
            faults: seed % 2 == 1,
            count: 150,
            ..Run::default()
        };
        run_commands(module, bench, c, run);
    });
}

#[test]
fn every_legal_offset() {
    let widths = [128, 256, 512].map(|data_bits| CardConfig {
        data_bits,
        ..CardConfig::small()
    });
    in_threads(&widths, |c| {
        let module = dma(c);
        let bench = Bench::new(&module, &model(&module), 1);
        let offsets = (0..1024).flat_map(|i| [(Op::Read, 1, 4 * i), (Op::Write, 1, 4 * i)]);
        let run = Run {
            seed: 4000,
            wanted: offsets.collect(),
            count: 2048,
            ..Run::default()
        };
        run_commands(&module, bench, c, run);
    });
}

#[test]
fn a_reset_in_mid_run_leaves_nothing_behind() {
    let c = CardConfig {
        data_bits: 256,
        ..CardConfig::small()
    };
    let module = dma(&c);
    let model = model(&module);
    let seeds: Vec<u64> = (0..4).collect();
    in_threads(&seeds, |seed| {
        let bench = Bench::new(&module, &model, *seed);
        let first = Run {
            seed: 2000 + seed,
            stop: 500 + 377 * seed,
            ..Run::default()
        };
        let mut bench = run_commands(&module, bench, &c, first);
        bench.reset();
        let second = Run {
            seed: 3000 + seed,
            faults: true,
            count: 60,
            ..Run::default()
        };
        run_commands(&module, bench, &c, second);
    });
}

/// Runs `n` commands of one kind back to back with prompt slaves. Returns the cycles from the first to the last done,
/// and the world.
fn rate(c: &CardConfig, op: Op, blocks: u64, offset: u64, n: u64) -> (u64, World) {
    let module = dma(c);
    let bench = Bench::new(&module, &model(&module), 1);
    let mut w = World::new(bench, Manner::PROMPT, Manner::PROMPT, 1);
    let mut free: VecDeque<u64> = (0..c.tags as u64).collect();
    let (mut sent, mut dones) = (0, vec![]);
    let command = |i: u64, tag: u64| Command {
        op,
        slot: tag,
        tag,
        lun: 0,
        sq: 1,
        media_block: 4096 + i * blocks.next_multiple_of(8),
        blocks,
        prp1: 0x100_0000 + i * 8192 + offset,
        prp2: 0x100_0000 + i * 8192 + 4096,
        host: vec![],
        wrong: Wrong::Nothing,
        bad_page: None,
        status: 0,
    };
    let mut next: Option<Command> = None;
    while dones.len() < n as usize {
        assert!(w.bench.cycle() < n * 1000 + 1000);
        w.bench.set("cmd_write_valid", 0);
        w.bench.set("exec_valid", 0);
        if let Some(c) = next.clone() {
            w.exec(&c);
        }
        // The slot RAM is filled a cycle ahead of the offer, while the one before is offered.
        let fresh = match free.front() {
            Some(&tag) if sent < n => Some(command(sent, tag)),
            _ => None,
        };
        if let Some(c) = &fresh {
            w.cmd_write(c);
        }
        w.drive();
        if next.is_none() || w.bench.is("exec_ready") {
            next = fresh;
            if next.is_some() {
                free.pop_front();
                sent += 1;
            }
        }
        if w.bench.is("done_valid") {
            dones.push(w.bench.cycle());
            free.push_back(w.bench.get("done_exec_tag"));
        }
        w.tick();
    }
    (dones[n as usize - 1] - dones[0], w)
}

/// LUN 1 reads 128 KiB commands from media that take 5000 cycles, all tags but four are its own; LUN 0 reads 4 KiB from
/// prompt media. Returns LUN 0's chunks in `cycles` cycles, from when LUN 1 has taken all it gets.
fn beside_a_slow_lun(rule: u64, slow: bool, cycles: u64) -> u64 {
    let c = CardConfig {
        data_bits: 256,
        ..CardConfig::small()
    };
    let module = dma(&c);
    let bench = Bench::new(&module, &model(&module), 1);
    let media = Manner {
        reorder: true,
        ..Manner::PROMPT
    };
    let mut w = World::new(bench, Manner::PROMPT, media, 1);
    w.bench.set("rule", rule);
    w.media_read.slow = Some((1 << 30, 5000));
    let command = |tag: u64, lun: u64, blocks: u64| Command {
        op: Op::Read,
        slot: tag,
        tag,
        lun,
        sq: 1,
        media_block: (lun << 21) + tag * 256,
        blocks,
        prp1: (1 << 32) + (tag << 20),
        prp2: (1 << 32) + (tag << 20) + 0x8_0000,
        host: vec![],
        wrong: Wrong::Nothing,
        bad_page: None,
        status: 0,
    };
    for tag in 0..32 {
        for page in 0..31 {
            let at = (1 << 32) + (tag << 20);
            w.host
                .set_u64(at + 0x8_0000 + 8 * page, at + 4096 * (page + 1));
        }
    }
    let mut again: VecDeque<Command> = (4..32)
        .filter(|_| slow)
        .map(|t| command(t, 1, 256))
        .collect();
    again.extend((0..4).map(|t| command(t, 0, 8)));
    let mut offer: Option<Command> = None;
    let (mut done, mut from) = (0, None);
    loop {
        w.bench.set("cmd_write_valid", 0);
        w.bench.set("exec_valid", 0);
        if let Some(c) = &offer {
            w.exec(&c.clone());
        }
        let next = if offer.is_none() {
            again.pop_front()
        } else {
            None
        };
        if let Some(c) = &next {
            w.cmd_write(c);
        }
        w.drive();
        if offer.is_none() || w.bench.is("exec_ready") {
            offer = next;
        }
        if w.bench.is("done_valid") {
            let (tag, lun) = (w.bench.get("done_exec_tag"), w.bench.get("done_exec_lun"));
            again.push_back(command(tag, lun, if lun == 0 { 8 } else { 256 }));
            done += (lun == 0 && from.is_some()) as u64;
        }
        w.tick();
        let now = w.bench.cycle();
        if from.is_none() && now > 1500 {
            from = Some(now);
        }
        if from.is_some_and(|f| now >= f + cycles) {
            return done;
        }
    }
}

#[test]
fn a_slow_lun_does_not_slow_another() {
    for rule in 0..3 {
        let alone = beside_a_slow_lun(rule, false, 3000);
        let beside = beside_a_slow_lun(rule, true, 3000);
        println!("rule {rule}: {alone} commands alone, {beside} beside a slow LUN");
        assert!(
            alone >= 22,
            "rule {rule}: {alone} commands of 128 beats in 3000 cycles"
        );
        assert!(
            beside * 10 >= alone * 9,
            "rule {rule}: {alone} alone, {beside} beside a slow LUN"
        );
    }
}

#[test]
fn rates_with_prompt_slaves() {
    let c = CardConfig {
        data_bits: 256,
        ..CardConfig::small()
    };
    let n = 200;
    for (op, blocks, offset, most) in [
        (Op::Read, 1, 0, 16.01),
        (Op::Read, 8, 0, 128.01),
        (Op::Write, 1, 0, 16.01),
        (Op::Write, 8, 0, 128.01),
        (Op::Flush, 1, 0, 1.01),
        // An offset that moves lanes costs a beat a burst more.
        (Op::Read, 1, 4, 17.01),
        (Op::Write, 1, 4, 17.01),
        // Two chunks: a beat more on the side that is cut, and one for each that moves lanes.
        (Op::Read, 8, 512 + 4, 131.01),
    ] {
        let (cycles, w) = rate(&c, op, blocks, offset, n);
        let each = cycles as f64 / (n - 1) as f64;
        println!(
            "{op:?} of {} B at offset {offset}: {each:.2} cycles",
            blocks * 512
        );
        assert!(
            each <= most,
            "{op:?} of {blocks} blocks at offset {offset}: {each:.2} cycles each, at most {most}"
        );
        assert_eq!(w.outstanding(), 0);
    }
}

#[test]
fn latencies_with_prompt_slaves() {
    let c = CardConfig {
        data_bits: 256,
        ..CardConfig::small()
    };
    let module = dma(&c);
    let mut w = World::new(
        Bench::new(&module, &model(&module), 1),
        Manner::PROMPT,
        Manner::PROMPT,
        1,
    );
    let command = Command {
        op: Op::Read,
        slot: 3,
        tag: 5,
        lun: 0,
        sq: 1,
        media_block: 64,
        blocks: 1,
        prp1: 0x10_0000,
        prp2: 0,
        host: vec![],
        wrong: Wrong::Nothing,
        bad_page: None,
        status: 0,
    };
    w.cmd_write(&command);
    w.drive();
    w.tick();
    w.bench.set("cmd_write_valid", 0);
    w.exec(&command);
    let start = w.bench.cycle();
    let slave_start = w.media_read.requests.len();
    assert_eq!(slave_start, 0);
    let mut done = 0;
    let mut first_aw_cycle = 0;
    for _ in 0..60 {
        w.drive();
        if first_aw_cycle == 0 && w.bench.is("host_aw_valid") {
            first_aw_cycle = w.bench.cycle();
        }
        if w.bench.is("done_valid") {
            done = w.bench.cycle();
        }
        w.tick();
        w.bench.set("exec_valid", 0);
    }
    // Slaves count their own cycles: they began with the first drive.
    let slave = |cycle: u64| cycle as i64 - 1;
    let ar = slave(w.media_read.requests[0].0);
    let r = slave(w.media_read.beats[0]);
    let data = slave(w.host_write.beats[0]);
    let b = slave(w.host_write.responses[0]);
    let done = done as i64 - start as i64;
    println!("exec 0, media AR {ar}, first R {r}, host W {data}, B {b}, done {done}");
    assert!(ar <= 4, "exec to media AR {ar}");
    assert!(data - r <= 2, "first R to host W {}", data - r);
    assert!(done - b <= 2, "B to done {}", done - b);
    let _ = first_aw_cycle;
    assert_eq!(
        DmaPorts::width_of(&c),
        module.ports().iter().map(|p| p.width).sum::<u32>()
    );
}
