use super::*;
use crate::axi::Checker;
use crate::host::MSI_ADDRESS;
use crate::master::{Done, Master};
use crate::time::CYCLE_NS;

const SHAPE: Shape = Shape {
    data_bytes: 32,
    id_bits: 4,
};

struct Bench {
    master: Master,
    root: PcieRoot,
    host: Host,
    checker: Checker,
    s: SlaveOut,
    now: u64,
}

impl Bench {
    fn new(link: LinkParams) -> Self {
        let root = PcieRoot::new(link, SHAPE, 1);
        let s = root.initial();
        Bench {
            master: Master::new(SHAPE),
            root,
            host: Host::new(8),
            checker: Checker::new("host", SHAPE),
            s,
            now: 0,
        }
    }

    fn step(&mut self) {
        let m = self.master.drive();
        self.checker.check(self.now, &m, &self.s).unwrap();
        self.master.cycle(self.now, &m, &self.s);
        let announced = self.root.next_event();
        let before = format!("{:?}", self.s);
        let changed = self.root.cycle(self.now, &m, &mut self.s, &mut self.host);
        let due = announced.is_some_and(|at| at <= self.now + 1);
        let handshake = m.ar_valid || m.aw_valid || m.w_valid || before.contains("_valid: true");
        assert!(
            !changed || due || handshake,
            "cycle {}: an event that was not announced",
            self.now
        );
        assert!(
            changed || before == format!("{:?}", self.s),
            "an output changed unannounced"
        );
        self.now += 1;
    }

    fn run(&mut self) -> Vec<Done> {
        let limit = self.now + 1_000_000;
        while self.master.pending() > 0 || self.root.busy() {
            self.step();
            assert!(
                self.now < limit,
                "{} requests never end",
                self.master.pending()
            );
        }
        self.master.take_done()
    }
}

fn gen3x8() -> LinkParams {
    LinkParams::new(3, 8)
}

#[test]
fn a_read_takes_a_round_trip() {
    let mut bench = Bench::new(gen3x8());
    let (iova, _) = bench.host.memory.allocate(4096).unwrap();
    assert!(bench.host.memory.write(iova, &[1, 2, 3, 4]));
    bench.master.read(0, iova, 4);
    let done = bench.run();
    assert_eq!(
        (done[0].resp, &done[0].data[..]),
        (Resp::Okay, &[1, 2, 3, 4][..])
    );
    // 24 bytes up, 200 + 100 ns, 52 bytes down (a whole beat), 200 ns.
    let wire = gen3x8().wire_fs(24 + 20 + 32) / 1_000_000;
    let expected = 500 + wire;
    let took = done[0].cycle * CYCLE_NS;
    assert!(
        (expected..expected + 3 * CYCLE_NS).contains(&took),
        "{took} ns, not {expected}"
    );
}

#[test]
fn b_comes_at_once_and_the_data_later_and_in_order() {
    let mut bench = Bench::new(gen3x8());
    let (iova, _) = bench.host.memory.allocate(4096).unwrap();
    bench.master.write(3, iova, &[7; 1000]);
    bench.master.write(2, MSI_ADDRESS, &5u32.to_le_bytes());
    let mut seen = [0; 1000];
    while bench.master.pending() > 0 {
        bench.step();
    }
    assert_eq!(bench.master.take_done()[1].cycle, 33, "33 beats, then B");
    bench.host.memory.read(iova, &mut seen);
    assert_eq!((seen[999], bench.host.interrupt_pending(5)), (0, false));
    while !bench.host.interrupt_pending(5) {
        bench.host.memory.read(iova, &mut seen);
        bench.step();
    }
    bench.host.memory.read(iova, &mut seen);
    assert_eq!(seen, [7; 1000], "the interrupt overtook data");
    assert_eq!(
        (bench.host.take_interrupt(5), bench.host.take_interrupt(5)),
        (1, 0)
    );
    // 4 TLPs of data (the last of 232 bytes) and the message.
    assert_eq!(
        (bench.root.stats().up_tlps, bench.root.stats().up_bytes),
        (5, 1000 + 4 + 5 * 24)
    );
}

#[test]
fn a_read_does_not_pass_a_write() {
    let mut bench = Bench::new(gen3x8());
    let (iova, _) = bench.host.memory.allocate(4096).unwrap();
    bench.master.write(0, iova, &[9; 512]);
    for _ in 0..20 {
        bench.step();
    }
    bench.master.read(1, iova + 500, 12);
    assert_eq!(bench.run().last().unwrap().data, [9; 12]);
}

#[test]
fn accesses_that_no_memory_answers_are_errors() {
    let mut bench = Bench::new(gen3x8());
    let (iova, _) = bench.host.memory.allocate(4096).unwrap();
    let (gap, wrong) = (iova + 4096, iova - 32);
    bench.master.write(0, gap, &[1; 64]);
    bench.master.write(0, iova, &[1; 64]);
    bench.master.read(1, wrong, 32);
    bench.master.read(1, iova, 32);
    let mut done = bench.run();
    done.sort_by_key(|d| d.request);
    let resps: Vec<Resp> = done.iter().map(|d| d.resp).collect();
    assert_eq!(resps, [Resp::DecErr, Resp::Okay, Resp::SlvErr, Resp::Okay]);
    let bad: Vec<_> = bench
        .host
        .memory
        .bad_accesses()
        .iter()
        .map(|b| (b.iova, b.len, b.write))
        .collect();
    assert_eq!(bad, [(gap, 64, true), (wrong, 32, false)]);
}

#[test]
fn reads_reach_the_bandwidth_of_the_link_and_are_bounded_by_tags() {
    let rate = |tags: u16| {
        let mut bench = Bench::new(LinkParams { tags, ..gen3x8() });
        let (iova, _) = bench.host.memory.allocate(4096 * 256).unwrap();
        (0..256).for_each(|n| {
            bench.master.read(n % 16, iova + 4096 * u64::from(n), 4096);
        });
        bench.run();
        4096.0 * 256.0 / (bench.now * CYCLE_NS) as f64
    };
    // 7.856 GB/s on the wire; 256 of 276 bytes are data, and every fourth TLP costs 4 bytes for each.
    let bound = 7.856 * 256.0 / 276.0;
    assert!(
        (0.97 * bound..bound).contains(&rate(64)),
        "{} GB/s, bound {bound}",
        rate(64)
    );
    // Four requests of 512 bytes in a round trip of about 0.57 us.
    let few = rate(4);
    assert!((3.3..4.1).contains(&few), "{few} GB/s with 4 tags");
}

#[test]
fn writes_reach_the_bandwidth_of_the_link_and_stall_the_port() {
    let mut bench = Bench::new(gen3x8());
    let (iova, _) = bench.host.memory.allocate(4096 * 64).unwrap();
    (0..64).for_each(|n| {
        bench
            .master
            .write(n % 16, iova + 4096 * u64::from(n), &[n as u8; 4096]);
    });
    bench.run();
    // All of it had to pass the wire before the last bytes took effect.
    let rate = 4096.0 * 64.0 / (bench.now * CYCLE_NS) as f64;
    let bound = 7.856 * 256.0 / 280.0;
    assert!(
        (0.97 * bound..bound).contains(&rate),
        "{rate} GB/s, bound {bound}"
    );
    for n in 0..64 {
        let mut page = [0; 4096];
        bench.host.memory.read(iova + 4096 * n, &mut page);
        assert!(page.iter().all(|byte| u64::from(*byte) == n), "page {n}");
    }
}

#[test]
fn reordered_and_mixed_completions_lose_nothing() {
    for interleave in [false, true] {
        let mut bench = Bench::new(LinkParams {
            jitter: 2000,
            interleave,
            mps: 128,
            mrrs: 128,
            ..gen3x8()
        });
        let (iova, _) = bench.host.memory.allocate(65536).unwrap();
        let image: Vec<u8> = (0..65536u32).map(|i| (i * 31 + i / 256) as u8).collect();
        bench.host.memory.write(iova, &image);
        let mut rng = Rng::new(4, 4);
        let mut wanted = Vec::new();
        for _ in 0..300 {
            let offset = 4096 * rng.below(16) as usize + rng.below(3000) as usize;
            let bytes = 1 + rng.below(1096) as usize;
            bench
                .master
                .read(rng.below(16) as u32, iova + offset as u64, bytes);
            wanted.push((offset, bytes));
        }
        let done = bench.run();
        assert_eq!(done.len(), 300);
        for d in &done {
            let (offset, bytes) = wanted[d.request as usize - 1];
            assert!(
                d.data == image[offset..offset + bytes],
                "request {}",
                d.request
            );
        }
        assert!(
            !done.is_sorted_by_key(|d| d.request),
            "nothing was reordered"
        );
    }
}

#[test]
fn register_accesses_cross_the_link_in_order() {
    let mut bench = Bench::new(gen3x8());
    let write = Access::Write {
        addr: 0x1000,
        data: 3,
        strobe: 15,
    };
    bench.root.mmio(0, write);
    bench.root.mmio(
        0,
        Access::Read {
            addr: 0x1c,
            token: 9,
        },
    );
    let mut arrived = Vec::new();
    while arrived.len() < 2 {
        bench.step();
        arrived.extend(std::iter::from_fn(|| bench.root.pop_access()).map(|a| (bench.now, a)));
    }
    assert_eq!(arrived[0].1, write);
    assert!(
        (50..54).contains(&arrived[0].0),
        "200 ns and 28 bytes, not {} cycles",
        arrived[0].0
    );
    assert_eq!(
        arrived[1].1,
        Access::Read {
            addr: 0x1c,
            token: 9
        }
    );
    let asked = bench.now;
    bench.root.answer(asked, 9, 77);
    let answer = loop {
        bench.step();
        if let Some(answer) = bench.root.pop_answer() {
            break answer;
        }
    };
    assert_eq!(answer, (9, 77));
    assert!((50..54).contains(&(bench.now - asked)));
}
