use super::*;
use crate::axi::Checker;
use crate::master::Master;

const SHAPE: Shape = Shape {
    data_bytes: 32,
    id_bits: 3,
};

struct Ram {
    bytes: Vec<u8>,
    latency: u64,
}

impl Target for Ram {
    fn read(&mut self, addr: u64, out: &mut [u8]) -> Resp {
        out.copy_from_slice(&self.bytes[addr as usize..][..out.len()]);
        Resp::Okay
    }
    fn write(&mut self, addr: u64, data: &[u8]) -> Resp {
        self.bytes[addr as usize..][..data.len()].copy_from_slice(data);
        if addr < 4096 {
            Resp::SlvErr
        } else {
            Resp::Okay
        }
    }
    fn latency(&mut self, _: u64, _: u64, _: u64, _: bool) -> u64 {
        self.latency
    }
}

struct Bench {
    master: Master,
    slave: Slave,
    checker: Checker,
    ram: Ram,
    s: SlaveOut,
    now: u64,
    m_seen: Vec<MasterOut>,
}

impl Bench {
    fn new(behaviour: Behaviour, latency: u64, seed: u64) -> Self {
        let slave = Slave::new(SHAPE, behaviour, seed);
        let s = slave.initial();
        Bench {
            master: Master::new(SHAPE),
            slave,
            checker: Checker::new("test", SHAPE),
            ram: Ram {
                bytes: (0..65536).map(|i| (i * 7 + i / 256) as u8).collect(),
                latency,
            },
            s,
            now: 0,
            m_seen: Vec::new(),
        }
    }

    fn run(&mut self) -> Vec<crate::master::Done> {
        let limit = self.now + 100_000;
        while self.master.pending() > 0 {
            let m = self.master.drive();
            self.checker.check(self.now, &m, &self.s).unwrap();
            self.master.cycle(self.now, &m, &self.s);
            self.m_seen.push(m);
            let before = self.s;
            let changed = self.slave.cycle(self.now, &m, &mut self.s, &mut self.ram);
            assert!(
                changed || format!("{before:?}") == format!("{:?}", self.s),
                "an output changed unannounced"
            );
            self.now += 1;
            assert!(
                self.now < limit,
                "{} requests never end",
                self.master.pending()
            );
        }
        self.master.take_done()
    }
}

#[test]
fn no_latency_means_r_after_ar_and_b_after_wlast() {
    let mut bench = Bench::new(Behaviour::PLAIN, 0, 0);
    bench.master.read(1, 8192, 512);
    bench.master.read(2, 8192 + 512, 512);
    let done = bench.run();
    // AR in cycles 0 and 1, 16 beats each, without a gap.
    assert_eq!(done.iter().map(|d| d.cycle).collect::<Vec<_>>(), [16, 32]);
    let start = bench.now;
    bench.master.write(1, 8192, &[3; 64]);
    bench.master.write(1, 9000, &[4; 1]);
    let done = bench.run();
    assert_eq!(
        done.iter().map(|d| d.cycle - start).collect::<Vec<_>>(),
        [2, 3]
    );
    assert_eq!(bench.ram.bytes[8192..8256], [3; 64]);
    assert_eq!(
        bench.ram.bytes[8999..9002],
        [(8999 * 7 + 35) as u8, 4, (9001 * 7 + 35) as u8]
    );
}

#[test]
fn latency_is_kept_and_announced() {
    let mut bench = Bench::new(Behaviour::PLAIN, 25, 0);
    bench.master.read(0, 4096, 32);
    let m = bench.master.drive();
    bench.slave.cycle(0, &m, &mut bench.s, &mut bench.ram);
    bench.master.cycle(0, &m, &bench.slave.initial());
    assert_eq!(bench.slave.next_event(), Some(26));
    bench.now = 1;
    assert_eq!(bench.run()[0].cycle, 26);
}

#[test]
fn errors_are_answered() {
    let mut bench = Bench::new(Behaviour::PLAIN, 0, 0);
    bench.master.write(1, 100, &[3; 64]);
    assert_eq!(bench.run()[0].resp, Resp::SlvErr);
}

#[test]
fn hostile_slaves_lose_and_mix_up_nothing() {
    for seed in 0..20 {
        let mut bench = Bench::new(Behaviour::HOSTILE, seed % 7, seed);
        let mut rng = Rng::new(seed, 1);
        let mut expected = bench.ram.bytes.clone();
        let mut order = Vec::new();
        for n in 0..100u64 {
            let id = rng.below(8) as u32;
            let (offset, bytes) = (rng.below(3000), 1 + rng.below(1000) as usize);
            // Reads from the lower half, writes to places of their own in the upper half.
            if rng.percent(50) {
                let addr = 4096 * rng.below(8) + offset;
                order.push((
                    id,
                    bench.master.read(id, addr, bytes),
                    Some((addr as usize, bytes)),
                ));
            } else {
                let addr = 32768 + n * 320;
                let data: Vec<u8> = (0..1 + bytes % 300).map(|_| rng.next_u64() as u8).collect();
                let room = (4096 - addr % 4096).min(data.len() as u64) as usize;
                expected[addr as usize..][..room].copy_from_slice(&data[..room]);
                order.push((id, bench.master.write(id, addr, &data[..room]), None));
            }
        }
        let done = bench.run();
        assert_eq!(done.len(), 100);
        for (_, request, read) in &order {
            let answer = done.iter().find(|d| d.request == *request).unwrap();
            assert_eq!(answer.resp, Resp::Okay);
            if let Some((addr, bytes)) = read {
                assert!(
                    answer.data == expected[*addr..addr + bytes],
                    "request {request}, seed {seed}"
                );
            }
        }
        assert!(bench.ram.bytes == expected, "seed {seed}");
        let reads: Vec<u64> = done
            .iter()
            .filter(|d| !d.data.is_empty())
            .map(|d| d.request)
            .collect();
        assert!(
            !reads.is_sorted(),
            "answers of different IDs were never reordered"
        );
        assert_eq!(bench.slave.outstanding(), (0, 0));
    }
}
