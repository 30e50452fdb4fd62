//! Interrupts against plain rules: every event is followed by a message of its vector, none is sent while masked, gathered ones
//! wait for their threshold or their time.

mod common;
use common::*;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use weir_card::config::CardConfig;
use weir_card::irq::{AGGREGATION_UNIT, irq};

/// Cycles from an event to its message a vector, all of which may be sent before it on the slowest bus of these tests.
const SOON: u64 = 150;

#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    address: u64,
    data: u64,
    masked: bool,
    never_gathered: bool,
    /// Completions since the last message, and when (in the card's time) the first of them came.
    entries: u64,
    first: u64,
    /// Clock edge since which a message is due: owed, unmasked and enabled.
    due_since: Option<u64>,
    messages: u64,
    events: u64,
}

struct Harness {
    c: CardConfig,
    b: Bench,
    rng: ChaCha8Rng,
    vectors: Vec<Vector>,
    threshold: u64,
    time: u64,
    enabled: bool,
    function_mask: bool,
    /// The card's time, which may run ahead of the clock.
    now: u64,
    speed: u64,
    unanswered: u64,
    aw: Option<u64>,
    w: Option<(u64, u64)>,
    bus: u32,
}

impl Harness {
    fn new(
        c: &CardConfig,
        module: &weir_kit::Module,
        model: &verilator_sys::Model,
        seed: u64,
    ) -> Harness {
        let mut h = Harness {
            c: c.clone(),
            b: Bench::new(module, model, seed),
            rng: rng(seed),
            vectors: vec![
                Vector {
                    masked: true,
                    ..Vector::default()
                };
                c.queues as usize + 1
            ],
            threshold: 0,
            time: 0,
            enabled: false,
            function_mask: false,
            now: 1000,
            speed: 1,
            unanswered: 0,
            aw: None,
            w: None,
            bus: 60,
        };
        h.b.eval();
        while h.b.is("clearing") {
            h.b.tick();
            h.b.eval();
        }
        for v in 0..h.vectors.len() {
            let address = 0xfee0_0000 + (h.rng.random_range(0..1u64 << 34) << 2);
            let data = h.rng.random_range(0..1 << 32);
            (h.vectors[v].address, h.vectors[v].data) = (address, data);
            for (field, value) in [(0, address & 0xffff_ffff), (1, address >> 32), (2, data)] {
                h.write_table(v as u64 * 4 + field, value);
                assert_eq!(
                    h.read_table(v as u64 * 4 + field),
                    value,
                    "the table reads back"
                );
            }
            assert_eq!(h.read_table(v as u64 * 4 + 3), 1, "masked after reset");
        }
        h
    }

    fn write_table(&mut self, addr: u64, value: u64) {
        for (name, v) in [("we", 1), ("addr", addr), ("wdata", value), ("strb", 15)] {
            self.b.set(&format!("table_{name}"), v);
        }
        self.cycle(None);
        self.b.set("table_we", 0u64);
    }

    fn read_table(&mut self, addr: u64) -> u64 {
        self.b.set("table_addr", addr);
        self.cycle(None);
        self.b.get("table_rdata")
    }

    fn mask(&mut self, v: usize, masked: bool) {
        self.vectors[v].masked = masked;
        if masked {
            self.vectors[v].due_since = None;
        }
        self.write_table(v as u64 * 4 + 3, masked as u64);
    }

    fn owed(&self, v: usize) -> bool {
        let x = &self.vectors[v];
        let gathers = self.time > 0 && v > 0 && !x.never_gathered;
        let late = self.now >= x.first + self.time * AGGREGATION_UNIT as u64;
        x.entries > 0 && (!gathers || x.entries > self.threshold || late)
    }

    /// A clock edge, with an event perhaps.
    fn cycle(&mut self, event: Option<(usize, u64)>) {
        let edge = self.b.cycle();
        let (aw_ready, w_ready) = (
            self.rng.random_range(0..100) < self.bus,
            self.rng.random_range(0..100) < self.bus,
        );
        let answer = self.unanswered > 0 && self.rng.random_range(0..4) == 0;
        let disable = self
            .vectors
            .iter()
            .enumerate()
            .fold(0, |m, (i, v)| m | (v.never_gathered as u64) << i);
        for (name, v) in [
            ("cycle", self.now),
            ("msix_enable", self.enabled as u64),
            ("msix_function_mask", self.function_mask as u64),
            ("gather_threshold", self.threshold),
            ("gather_time", self.time),
            ("gather_disable", disable),
            ("event_valid", event.is_some() as u64),
            ("event_vector", event.map_or(0, |e| e.0 as u64)),
            ("event_entries", event.map_or(0, |e| e.1)),
            ("aw_ready", aw_ready as u64),
            ("w_ready", w_ready as u64),
            ("b_valid", answer as u64),
        ] {
            self.b.set(name, v);
        }
        self.unanswered -= answer as u64;
        if let Some((v, n)) = event {
            let x = &mut self.vectors[v];
            x.first = if x.entries == 0 { self.now } else { x.first };
            x.entries += n;
            x.events += 1;
        }
        self.b.eval();
        if aw_ready && self.b.is("aw_valid") {
            assert_eq!(self.b.get("aw_id") >> self.c.chunk_bits(), 2, "kind MSI");
            assert_eq!(self.b.get("aw_len"), 0);
            assert!(self.aw.replace(self.b.get("aw_addr")).is_none());
        }
        if w_ready && self.b.is("w_valid") {
            let strb = self.b.get("w_strb");
            let lane = strb.trailing_zeros() as u64 / 4;
            assert_eq!(
                (strb, self.b.is("w_last")),
                (15 << (lane * 4), true),
                "4 bytes"
            );
            let word =
                self.b.get_wide("w_data")[lane as usize / 2] >> (lane % 2 * 32) & 0xffff_ffff;
            assert!(self.w.replace((lane, word)).is_none());
        }
        if let (Some(addr), Some((lane, data))) = (self.aw, self.w) {
            (self.aw, self.w) = (None, None);
            self.message(addr, lane, data);
        }
        let n = self.vectors.len() as u64;
        for v in 0..self.vectors.len() {
            let due =
                self.owed(v) && self.enabled && !self.function_mask && !self.vectors[v].masked;
            let x = &mut self.vectors[v];
            x.due_since = if due {
                x.due_since.or(Some(edge))
            } else {
                None
            };
            assert!(
                x.due_since.is_none_or(|d| edge < d + SOON * n),
                "vector {v} waits for its message: {x:?}"
            );
        }
        self.b.tick();
        self.b.eval();
        self.now += self.speed;
    }

    fn message(&mut self, addr: u64, lane: u64, data: u64) {
        let v = self
            .vectors
            .iter()
            .position(|v| v.address == addr)
            .expect("the address of a vector");
        assert_eq!(
            lane,
            addr / 4 % (self.c.beat_bytes() as u64 / 4),
            "in its lane"
        );
        let x = &mut self.vectors[v];
        assert_eq!(data, x.data);
        x.messages += 1;
        assert!(x.messages <= x.events, "a message without an event");
        // Events that came while it was on the bus get another; they are counted from now, at worst late.
        (x.entries, x.due_since) = (0, None);
        self.unanswered += 1;
    }
}

fn sizes() -> Vec<CardConfig> {
    let size = |data_bits, queues| CardConfig {
        name: format!("{data_bits}"),
        data_bits,
        queues,
        ..CardConfig::small()
    };
    vec![size(128, 3), size(256, 16), size(512, 40)]
}

/// Random events, masks and stalls without gathering: a message after each event, none while masked.
#[test]
fn every_event_gets_a_message() {
    for c in sizes() {
        let module = irq(&c);
        let model = model(&module);
        in_threads(&(0..4u64).collect::<Vec<_>>(), |seed| {
            let mut h = Harness::new(&c, &module, &model, *seed);
            h.enabled = true;
            let n = h.vectors.len();
            (0..n).for_each(|v| h.mask(v, false));
            for _ in 0..6000 {
                match h.rng.random_range(0..400) {
                    0..60 => {
                        let event = (h.rng.random_range(0..n), h.rng.random_range(1..=4));
                        h.cycle(Some(event));
                    }
                    60 => {
                        let (v, masked) = (h.rng.random_range(0..n), h.rng.random());
                        h.mask(v, masked);
                    }
                    61 => h.function_mask = !h.function_mask,
                    62 => h.bus = [5, 30, 100][h.rng.random_range(0..3)],
                    _ => h.cycle(None),
                }
            }
            h.function_mask = false;
            (0..n).for_each(|v| h.mask(v, false));
            h.bus = 100;
            (0..1000).for_each(|_| h.cycle(None));
            assert!(h.b.is("quiet") && h.vectors.iter().all(|v| v.entries == 0 || v.messages > 0));
            let (events, messages) = h
                .vectors
                .iter()
                .fold((0, 0), |t, v| (t.0 + v.events, t.1 + v.messages));
            println!("{} vectors: {events} events, {messages} messages", n);
            assert!(messages > 100 && messages <= events);
        });
    }
}

/// A masked vector's event is pending in the PBA and sent when it is unmasked, once.
#[test]
fn masked_events_wait_in_the_pba() {
    let c = &sizes()[1];
    let module = irq(c);
    let mut h = Harness::new(c, &module, &model(&module), 9);
    h.enabled = true;
    for v in [2usize, 5, 16] {
        h.cycle(Some((v, 1)));
        h.cycle(Some((v, 1)));
    }
    (0..100).for_each(|_| h.cycle(None));
    assert_eq!(
        h.read_table(1 << 10),
        1 << 2 | 1 << 5 | 1 << 16,
        "pending bits"
    );
    assert!(h.vectors.iter().all(|v| v.messages == 0), "masked");
    (0..h.vectors.len()).for_each(|v| h.mask(v, false));
    (0..SOON).for_each(|_| h.cycle(None));
    assert_eq!(h.read_table(1 << 10), 0);
    assert_eq!([2, 5, 16].map(|v| h.vectors[v].messages), [1, 1, 1]);
}

/// Gathering: by threshold, by time, not for vector 0, not for a vector that is excepted.
#[test]
fn coalescing_waits_for_threshold_or_time() {
    let c = &sizes()[1];
    let module = irq(c);
    let mut h = Harness::new(c, &module, &model(&module), 10);
    h.enabled = true;
    (0..h.vectors.len()).for_each(|v| h.mask(v, false));
    (h.threshold, h.time) = (7, 2);
    h.vectors[4].never_gathered = true;
    let quiet = |h: &mut Harness, n: u64| (0..n).for_each(|_| h.cycle(None));

    h.cycle(Some((3, 4)));
    h.cycle(Some((0, 1)));
    h.cycle(Some((4, 1)));
    quiet(&mut h, 200);
    assert_eq!(
        [0, 3, 4].map(|v| h.vectors[v].messages),
        [1, 0, 1],
        "only 3 is gathered"
    );
    assert!(!h.b.is("idle"), "a running time is not idle");
    h.cycle(Some((3, 3)));
    quiet(&mut h, 200);
    assert_eq!(h.vectors[3].messages, 0, "7 of 8");
    h.cycle(Some((3, 1)));
    quiet(&mut h, 50);
    assert_eq!(h.vectors[3].messages, 1, "8 of 8");

    h.cycle(Some((3, 1)));
    h.speed = 100;
    let until = h.now + 2 * AGGREGATION_UNIT as u64 - 500;
    while h.now < until {
        h.cycle(None);
    }
    assert_eq!(h.vectors[3].messages, 1, "not before its time");
    quiet(&mut h, 60);
    assert_eq!(h.vectors[3].messages, 2, "200 us after the first");
}
