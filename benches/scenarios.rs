//! The scenarios of `tests/pressure` as tables, on the default card behind the modelled Gen3 x8 link. Everything here is
//! simulated: I/Os a simulated second, of the card; the host costs no time, so there is no CPU %.

#[path = "../tests/common/mod.rs"]
mod common;

use common::load::{Card, Load, Ran, jain, readers};
use weir_card::config::CardConfig;
use weir_driver::nvme::feature::Fairness;
use weir_sim::model::ModelOptions;
use weir_sim::run::Settings;
use weir_sim::time::Latency;

/// Sections of a job file: LUN, jobs, iodepth.
type Sections = Vec<(u32, u32, u32)>;

struct Bench(Card);

impl Bench {
    fn run(
        &self,
        bytes: u32,
        sections: Sections,
        cpus: u32,
        time_us: u64,
        change: impl FnOnce(&mut Settings),
    ) -> Ran {
        let load = Load {
            cpus,
            time_ns: time_us * 1000,
            seed: 1,
        };
        self.0.run("bench", &readers(bytes, sections), load, |s| {
            s.link = "gen3x8".parse().unwrap_or_else(|e| panic!("{e}"));
            change(s);
        })
    }

    fn grid(&self, media_us: u64) {
        println!(
            "{:>8} {:>8} {:>8} {:>8}",
            "LUNs", "1 queue", "2 queues", "4 queues"
        );
        for luns in [1, 2, 4, 8, 16] {
            print!("{luns:>8}");
            for queues in [1, 2, 4] {
                let sections = (0..luns).map(|lun| (lun, queues, 128 / queues)).collect();
                let ran = self.run(1024, sections, queues, (8 * media_us).max(200), |s| {
                    s.depth = vec![(None, 32)];
                    s.media_latency = spread(media_us);
                });
                print!(" {:>8.0}", ran.iops() / 1e3);
            }
            println!();
        }
    }

    fn shared_tags(&self, sections: Sections, rule: Fairness, time_us: u64) -> Ran {
        self.run(4096, sections, 16, time_us, |s| {
            s.tags = 128;
            s.depth = vec![(None, 128)];
            s.fairness = rule;
            s.media_latency = spread(100);
        })
    }
}

fn spread(mean_us: u64) -> Vec<(Option<u32>, Latency)> {
    vec![(None, Latency::Uniform(mean_us * 500, mean_us * 1500))]
}

fn main() {
    let card = CardConfig::default_card();
    println!(
        "Weir's scenarios, simulated: card `{}`, modelled Gen3 x8 link, random reads, media as said; the host costs no time",
        card.name
    );
    let bench = Bench(Card::new(card, ModelOptions::default()));

    println!("\nS2: 1 KiB, depth 32 a LUN, 512 tags, iodepth 128 a LUN; k IOPS, simulated");
    println!("media without latency: the link bounds every cell");
    bench.grid(0);
    println!(
        "media of 40 to 120 us: a LUN's depth allows 400 k, the card's 256 chunks in flight 3200 k in all"
    );
    bench.grid(80);

    println!(
        "\nS3: 4 KiB, 128 tags, depth 128, media of 50 to 150 us: tags allow 1280 k IOPS; simulated"
    );
    println!("every LUN wants more than it gets");
    println!(
        "{:>8} {:>10} {:>8} {:>8} {:>8} {:>18}",
        "LUNs", "rule", "k IOPS", "cost", "Jain", "deferred: tags, share"
    );
    for luns in [1, 2, 4, 8, 16, 32] {
        let mut free = 0.0;
        for (name, rule) in Fairness::NAMES {
            let jobs = (32 / luns).max(1);
            let sections = (0..luns)
                .map(|lun| (lun, jobs, 1024 / jobs / luns))
                .collect();
            let ran = bench.shared_tags(sections, rule, u64::from(luns).max(8) * 190);
            let iops = ran.iops();
            if rule == Fairness::NONE {
                free = iops;
            }
            let sum =
                |count: fn(&weir_sim::fio::LunCardStats) -> u64| ran.luns().map(count).sum::<u64>();
            println!(
                "{luns:>8} {name:>10} {:>8.0} {:>6.1} % {:>8.4} {:>12} {:>8}",
                iops / 1e3,
                100.0 * (1.0 - iops / free),
                jain(&ran.iops_by_lun()),
                sum(|l| l.deferred_tags),
                sum(|l| l.deferred_share),
            );
        }
    }
    println!("one LUN wants everything (8 jobs of 64), the others 4 commands each");
    println!(
        "{:>8} {:>10} {:>8} {:>8} {:>12} {:>12} {:>16}",
        "LUNs", "rule", "k IOPS", "cost", "heavy k IOPS", "light k IOPS", "light waits, us"
    );
    for luns in [2, 4, 8, 16] {
        let mut free = 0.0;
        for (name, rule) in Fairness::NAMES {
            let light = (1..luns).map(|lun| (lun, 1, 4));
            let sections = [(0, 8, 64)].into_iter().chain(light).collect();
            let ran = bench.shared_tags(sections, rule, 1500);
            let (iops, by_lun) = (ran.iops(), ran.iops_by_lun());
            if rule == Fairness::NONE {
                free = iops;
            }
            let (waited, admitted) = ran.luns().skip(1).fold((0, 0), |sum, lun| {
                (sum.0 + lun.cycles_waited, sum.1 + lun.admitted)
            });
            println!(
                "{luns:>8} {name:>10} {:>8.0} {:>6.1} % {:>12.0} {:>12.1} {:>16.1}",
                iops / 1e3,
                100.0 * (1.0 - iops / free),
                by_lun[0] / 1e3,
                by_lun[1..].iter().sum::<f64>() / 1e3 / f64::from(luns - 1),
                waited as f64 * 0.004 / admitted as f64,
            );
        }
    }
    println!(
        "weights 1, 2, 4, 8 on four LUNs that want more than they get, 16 tags, media of 5 to 15 us"
    );
    println!(
        "{:>8} {:>38}",
        "depth", "parts of the IOPS, to be 6.7 13.3 26.7 53.3 %"
    );
    for depth in [16, 12, 8, 4] {
        let sections = (0..4).map(|lun| (lun, 4, 48)).collect();
        let ran = bench.run(4096, sections, 16, 6000, |s| {
            s.tags = 16;
            s.depth = vec![(None, depth)];
            s.fairness = Fairness::WEIGHTED;
            s.weight = (0..)
                .zip([1, 2, 4, 8])
                .map(|(lun, w)| (Some(lun), w))
                .collect();
            s.media_latency = spread(10);
        });
        let by_lun = ran.iops_by_lun();
        let all: f64 = by_lun.iter().sum();
        let parts: Vec<_> = by_lun
            .iter()
            .map(|iops| format!("{:.1}", 100.0 * iops / all))
            .collect();
        println!("{depth:>8} {:>36} %", parts.join(" "));
    }

    println!("\nS4: 4 KiB, 128 jobs on one LUN of depth 128, media of 50 to 150 us; simulated");
    println!(
        "{:>8} {:>8} {:>8} {:>16} {:>10}",
        "iodepth", "k IOPS", "GiB/s", "deferred: depth", "of peak"
    );
    let mut peak: f64 = 0.0;
    for depth in [1, 2, 4, 8, 16] {
        let ran = bench.run(4096, vec![(0, 128, depth)], 16, 1500, |s| {
            s.depth = vec![(None, 128)];
            s.media_latency = spread(100);
        });
        let iops = ran.iops();
        peak = peak.max(iops);
        println!(
            "{depth:>8} {:>8.0} {:>8.2} {:>16} {:>8.1} %",
            iops / 1e3,
            iops * 4096.0 / f64::from(1 << 30),
            ran.luns().map(|lun| lun.deferred_depth).sum::<u64>(),
            100.0 * iops / peak
        );
    }
}
