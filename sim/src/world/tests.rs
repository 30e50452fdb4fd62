use super::*;
use crate::axi::{Channel, Shape};
use crate::fake::{FakeCard, Flaw};
use crate::pattern::{BLOCK, unwritten_block};
use crate::time::Latency;

const SHAPE: Shape = Shape {
    data_bytes: 32,
    id_bits: 4,
};

fn config(link: &str) -> WorldConfig {
    let luns = Media::equal_luns(2, 64, Latency::Fixed(1000));
    WorldConfig {
        link: link.parse().unwrap(),
        seed: 3,
        vectors: 4,
        ..WorldConfig::new(luns)
    }
}

fn world(config: &WorldConfig, flaw: Flaw) -> World {
    let mut world = World::new(Box::new(FakeCard::new(SHAPE, flaw)), config).unwrap();
    world.reset(4).unwrap();
    world
}

struct Bench {
    world: World,
    table: u64,
    data: u64,
    completions: u64,
    jobs: u64,
}

impl Bench {
    fn new(config: &WorldConfig, flaw: Flaw) -> Self {
        let mut world = world(config, flaw);
        world.enable_function().unwrap();
        let memory = &mut world.host().memory;
        let [table, data, completions] = [(); 3].map(|()| memory.allocate(16 * 4096).unwrap().0);
        world.write_register(0x28, table as u32);
        world.write_register(0x2c, (table >> 32) as u32);
        Bench {
            world,
            table,
            data,
            completions,
            jobs: 0,
        }
    }

    /// Starts a copy of `bytes` between media and page `page` of the data.
    fn start(&mut self, write: bool, media: u64, page: u64, bytes: u64) {
        let n = self.jobs;
        self.jobs += 1;
        let completion = self.completions + 16 * n;
        let words = [
            u64::from(write),
            media,
            self.data + 4096 * page,
            bytes,
            completion,
            n + 1,
            0,
            0,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert!(self.world.host().memory.write(self.table + 64 * n, &bytes));
        self.world.write_register(0x1000, n as u32);
    }

    /// Waits for all that was started; each completion's status.
    fn wait(&mut self) -> Result<Vec<u64>, WorldError> {
        let mut messages = 0;
        while messages < self.jobs {
            self.world.watch(self.jobs - messages, false);
            let limit = self.world.cycle() + 10_000;
            self.world.advance(limit)?;
            messages += u64::from(self.world.host().take_interrupt(1));
        }
        let mut out = Vec::new();
        for n in 0..self.jobs {
            let mut entry = [0; 16];
            assert!(
                self.world
                    .host()
                    .memory
                    .read(self.completions + 16 * n, &mut entry)
            );
            let (low, high) = entry.split_at(8);
            assert_eq!(
                u64::from_le_bytes(low.try_into().unwrap()),
                n + 1,
                "the message overtook completion {n}"
            );
            out.push(u64::from_le_bytes(high.try_into().unwrap()));
        }
        self.world.watch(0, false);
        self.jobs = 0;
        Ok(out)
    }

    fn page(&mut self, page: u64) -> Vec<u8> {
        let mut out = vec![0; 4096];
        assert!(
            self.world
                .host()
                .memory
                .read(self.data + 4096 * page, &mut out)
        );
        out
    }
}

/// Blocks of LUN 1 as never written, from `lba` on.
fn pattern(lba: u64, blocks: u64) -> Vec<u8> {
    (lba..lba + blocks)
        .flat_map(|lba| {
            let mut out = [0; BLOCK];
            unwritten_block(1, lba, 3, &mut out);
            out
        })
        .collect()
}

fn copies(link: &str) -> (u64, WorldStats) {
    let mut bench = Bench::new(&config(link), Flaw::None);
    let lun = bench.world.media().luns()[1].base;
    for n in 0..8 {
        bench.start(false, lun + 4096 * n, n, 4096);
    }
    assert_eq!(bench.wait().unwrap(), [0; 8]);
    for n in 0..8 {
        assert!(bench.page(n) == pattern(8 * n, 8), "page {n}");
    }
    // What is written is read back.
    bench.start(true, lun + 512, 3, 512);
    bench.wait().unwrap();
    bench.start(false, lun, 9, 4096);
    bench.wait().unwrap();
    let mut expected = pattern(0, 8);
    expected[512..1024].copy_from_slice(&pattern(24, 1));
    assert!(bench.page(9) == expected);
    // Outside every LUN.
    bench.start(false, lun + 64 * 512, 0, 512);
    assert_eq!(bench.wait().unwrap(), [3]);
    assert_eq!(bench.world.host().memory.bad_count(), 0);
    (bench.world.now_ns(), bench.world.stats())
}

#[test]
fn copies_run_without_a_link_and_over_one() {
    let (direct, _) = copies("none");
    let (slow, stats) = copies("gen3x8");
    assert!(
        slow > direct + 3 * 1000,
        "{slow} ns over a link, {direct} ns without"
    );
    assert!(stats.link.up_bytes > 8 * 4096 && stats.link.down_bytes > 512);
    assert!(
        3 * stats.clocked < 2 * stats.cycles,
        "idle time was not skipped: {stats:?}"
    );
    assert_eq!(copies("gen3x8"), (slow, stats), "not deterministic");
}

#[test]
fn skipping_does_not_change_time() {
    // One job at a time, so that the card is idle while it waits for media.
    let run = |behaviour| {
        let mut bench = Bench::new(
            &WorldConfig {
                media_behaviour: behaviour,
                ..config("gen3x4")
            },
            Flaw::None,
        );
        for n in 0..5 {
            bench.start(false, 512 * n, n, 512);
            bench.wait().unwrap();
        }
        (bench.world.cycle(), bench.world.stats().clocked)
    };
    let (skipped, clocked) = run(Behaviour::PLAIN);
    // A random slave has an event every cycle: nothing is skipped. 99 is rarely not ready.
    let (stepped, all) = run(Behaviour {
        ready_percent: 99,
        ..Behaviour::PLAIN
    });
    assert_eq!(stepped, all);
    assert!(clocked < skipped / 2);
    assert!(
        stepped.abs_diff(skipped) < skipped / 50,
        "{skipped} cycles with skips, {stepped} without"
    );
}

#[test]
fn hostile_slaves_change_nothing_but_time() {
    for seed in 0..10 {
        let hostile = WorldConfig {
            host_behaviour: Behaviour::HOSTILE,
            media_behaviour: Behaviour::HOSTILE,
            seed: 3,
            ..config("none")
        };
        let mut bench = Bench::new(&hostile, Flaw::None);
        for n in 0..16 {
            bench.start(false, 64 * 512 + 512 * ((n * 7 + seed) % 60), n, 512);
        }
        bench.wait().unwrap();
        for n in 0..16 {
            assert!(
                bench.page(n)[..512] == pattern((n * 7 + seed) % 60, 1),
                "page {n}"
            );
        }
    }
}

#[test]
fn a_hang_is_found_and_described() {
    let mut bench = Bench::new(
        &WorldConfig {
            hang_cycles: 5000,
            ..config("gen3x8")
        },
        Flaw::Deaf,
    );
    bench.start(false, 0, 0, 512);
    let before = bench.world.cycle();
    let error = bench.wait().unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, WorldError::Hang { outstanding: 1, .. }),
        "{text}"
    );
    assert!(
        text.contains("host port bursts not answered: 0 reads"),
        "{text}"
    );
    assert!(bench.world.cycle() - before < 30_000);
    assert!(matches!(bench.world.step(), Err(WorldError::Failed)));
}

#[test]
fn broken_rules_stop_the_world() {
    let hostile = WorldConfig {
        host_behaviour: Behaviour::HOSTILE,
        ..config("none")
    };
    let mut bench = Bench::new(&hostile, Flaw::Flickers);
    bench.start(false, 0, 0, 512);
    match bench.wait() {
        Err(WorldError::Axi(v)) => assert_eq!((v.port, v.channel), ("host", Channel::Aw)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn registers_are_reached_through_both_ports() {
    let mut world = world(&config("gen3x8"), Flaw::None);
    world.write_register(0x24, 0x1f001f);
    let start = world.now_ns();
    assert_eq!(world.read_register(0x24).unwrap(), 0x1f001f);
    assert!(
        (400..500).contains(&(world.now_ns() - start)),
        "{} ns",
        world.now_ns() - start
    );
    world.write_platform(8, 77);
    world.settle_platform().unwrap();
    assert_eq!(world.read_platform(8).unwrap(), 77);
}

#[test]
fn a_register_that_never_answers_is_an_error() {
    let mut world = world(&config("none"), Flaw::Mute);
    assert!(matches!(
        world.read_register(0x1c),
        Err(WorldError::NoAnswer { register: 0x1c, .. })
    ));
}

#[test]
fn configuration_space_drives_the_card() {
    let mut world = world(&config("none"), Flaw::None);
    assert!(!world.input().signals.bus_master_enable);
    world.enable_function().unwrap();
    assert!(world.input().signals.bus_master_enable && world.input().signals.msix_enable);
    assert_eq!(
        world
            .read_register(msix::TABLE as u32 + 16 * 3 + 8)
            .unwrap(),
        3
    );
    world.function_level_reset();
    assert!(world.input().flr && !world.input().signals.bus_master_enable);
    world.step().unwrap();
    assert!(!world.input().flr, "FLR must be a pulse");
}
