//! The shared host port: every answer goes to the block that asked, write data follows its address, nothing starts while bus
//! mastering is off, and full load leaves no bubble.

#[path = "common/axi.rs"]
mod axi;
mod common;
#[path = "common/masters.rs"]
mod masters;

use axi::{Manner, Memory, ReadSlave, WriteSlave};
use common::{Bench, in_threads, model, rng};
use masters::{ReadMaster, WriteMaster};
use rand::Rng;
use weir_card::config::CardConfig;
use weir_card::host_port::host_port;

struct Port {
    readers: Vec<ReadMaster>,
    writers: Vec<WriteMaster>,
    read: ReadSlave,
    write: WriteSlave,
    memory: Memory,
    unchanging: Memory,
}

impl Port {
    fn new(bench: &Bench, c: &CardConfig, manner: Manner, stalls: bool, seed: u64) -> Port {
        let sim = &bench.sim;
        let kind = |k: u64| k << c.chunk_bits();
        let readers = ["sq", "prp", "data"].iter().enumerate().map(|(i, n)| {
            let ids = (0..6).map(|x| kind(i as u64) + x).collect();
            ReadMaster::new(
                sim,
                &format!("{n}_ar"),
                &format!("{n}_r"),
                ids,
                stalls,
                seed + i as u64,
            )
        });
        let writers = ["data", "cq", "msi", "admin"]
            .iter()
            .enumerate()
            .map(|(i, n)| {
                let (repeating, longest) = (i > 0, [8, 1, 1, 1][i]);
                let ids = (0..if repeating { 1 } else { 12 })
                    .map(|x| kind(i as u64) + x)
                    .collect();
                let ports = [format!("{n}_aw"), format!("{n}_w"), format!("{n}_b")];
                let ports = ports.each_ref().map(|s| s.as_str());
                let page = (i as u64 + 1) << 32;
                WriteMaster::new(
                    sim,
                    ports,
                    ids,
                    repeating,
                    longest,
                    page,
                    stalls,
                    seed + 10 + i as u64,
                )
            });
        let (readers, writers) = (readers.collect(), writers.collect());
        let mut write = WriteSlave::new(sim, "aw", "w", "b", manner, seed + 20);
        write.unique_ids = false;
        Port {
            readers,
            writers,
            read: ReadSlave::new(sim, "ar", "r", manner, seed + 21),
            write,
            memory: Memory::new(seed),
            unchanging: Memory::new(seed + 1),
        }
    }

    fn stop(&mut self, on: bool) {
        self.readers.iter_mut().for_each(|r| r.stop = on);
        self.writers.iter_mut().for_each(|w| w.stop = on);
    }

    fn in_flight(&self) -> usize {
        let masters: usize = self.readers.iter().map(|r| r.outstanding()).sum();
        masters + self.writers.iter().map(|w| w.outstanding()).sum::<usize>()
    }

    fn cycle(&mut self, bench: &mut Bench) {
        let sim = &mut bench.sim;
        self.readers.iter_mut().for_each(|r| r.drive(sim));
        self.writers.iter_mut().for_each(|w| w.drive(sim));
        self.read.drive(sim, &self.unchanging);
        self.write.drive(sim, &mut self.memory);
        bench.eval();
        assert_eq!(bench.is("quiet"), self.in_flight() == 0);
        let sim = &bench.sim;
        self.readers
            .iter_mut()
            .for_each(|r| r.sample(sim, &self.unchanging));
        self.writers
            .iter_mut()
            .for_each(|w| w.sample(sim, &self.memory));
        self.read.sample(sim);
        self.write.sample(sim);
        bench.tick();
    }
}

#[test]
fn every_answer_goes_to_who_asked() {
    let c = CardConfig::small();
    let module = host_port(&c);
    let model = model(&module);
    let seeds: Vec<u64> = (0..10).collect();
    in_threads(&seeds, |seed| {
        let mut bench = Bench::new(&module, &model, *seed);
        let mut random = rng(*seed);
        for round in 0..2 {
            let manner = Manner {
                reorder: random.random_range(0..4) > 0,
                interleave: random.random_range(0..4) > 0,
                latency: [1, 8, 60, 200][random.random_range(0..4)],
                stalls: random.random_range(0..4) > 0,
            };
            let mut port = Port::new(
                &bench,
                &c,
                manner,
                random.random_range(0..4) > 0,
                seed * 10 + round,
            );
            for _ in 0..2500 {
                port.cycle(&mut bench);
            }
            if round == 0 {
                // A reset in mid-run.
                bench.reset();
                continue;
            }
            port.stop(true);
            let mut left = 20_000;
            while port.in_flight() > 0 || port.write.outstanding() > 0 {
                port.cycle(&mut bench);
                left -= 1;
                assert!(left > 0, "seed {seed}: the rest never ends");
            }
            for _ in 0..3 {
                port.cycle(&mut bench);
            }
            assert!(bench.is("quiet") && bench.is("idle"));
            let served: Vec<u64> = port
                .readers
                .iter()
                .map(|r| r.ended)
                .chain(port.writers.iter().map(|w| w.ended))
                .collect();
            assert!(
                served.iter().all(|n| *n > 10),
                "seed {seed}: somebody starved: {served:?}"
            );
        }
    });
}

#[test]
fn full_load_leaves_no_bubble() {
    let c = CardConfig {
        data_bits: 256,
        ..CardConfig::small()
    };
    let module = host_port(&c);
    let mut bench = Bench::new(&module, &model(&module), 1);
    let mut port = Port::new(&bench, &c, Manner::PROMPT, false, 1);
    for _ in 0..4000 {
        port.cycle(&mut bench);
    }
    let (w, r) = (port.write.beats.len(), port.read.beats.len());
    assert!(w >= 3980, "{w} W beats in 4000 cycles");
    assert!(r >= 3980, "{r} R beats in 4000 cycles");
    // Round robin over bursts: the four writers begin as many each.
    let served: Vec<u64> = port.writers.iter().map(|w| w.ended).collect();
    assert!(
        served.iter().max().unwrap() - served.iter().min().unwrap() <= 5,
        "{served:?}"
    );
}
