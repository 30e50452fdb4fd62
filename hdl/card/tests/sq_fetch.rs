//! sq_fetch against a host with rings in memory: every entry once, in order, from where it lies, and never too many.

mod common;

use common::{Bench, Stall, in_threads, model, rng};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeSet, VecDeque};
use weir_card::config::CardConfig;
use weir_card::sq_fetch::sq_fetch;

/// A submission queue as the host sees it.
#[derive(Default)]
struct Ring {
    exists: bool,
    base: u64,
    size: u64,
    /// Entries ever rung, fetched (AR), and handed out.
    rung: u64,
    asked: u64,
    out: u64,
    /// Slots held.
    held: Vec<u64>,
    /// Creations, so that old entries are told from new ones.
    life: u64,
    /// Cycles in which an entry could have come but did not.
    waited: u64,
}

impl Ring {
    /// Entries that the host may add: the ring holds size - 1 beyond the head that it knows (all that were handed out).
    fn space(&self) -> u64 {
        self.size - 1 - (self.rung - self.out)
    }
}

/// The 512 bits of an entry, different for every queue, life and position.
fn entry(sq: usize, life: u64, n: u64) -> Vec<u64> {
    (0..8)
        .map(|i| {
            (n + 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(7 * i + 1)
                ^ (sq as u64) << 56
                ^ life << 40
                ^ i as u64
        })
        .collect()
}

/// What is wrong with a doorbell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bad {
    No,
    Register,
    Value,
}

/// A burst that the host still answers.
struct Burst {
    sq: usize,
    /// The entry behind its last.
    end: u64,
    id: u64,
    beats: VecDeque<Vec<u64>>,
    error: bool,
}

struct World {
    c: CardConfig,
    r: ChaCha8Rng,
    rings: Vec<Ring>,
    bursts: Vec<Burst>,
    slots: BTreeSet<u64>,
    admin_busy: u64,
    errors: bool,
}

impl World {
    /// Takes a read address: checks it, and makes the answer.
    fn address(&mut self, id: u64, addr: u64, len: u64) {
        let beat = self.c.data_bits as u64 / 8;
        let bytes = (len + 1) * beat;
        assert!(
            bytes.is_multiple_of(64) && bytes <= 512 && addr.is_multiple_of(64),
            "burst of {bytes} bytes at {addr:x}"
        );
        assert_eq!(addr >> 12, (addr + bytes - 1) >> 12, "burst over a page");
        assert!(self.bursts.iter().all(|b| b.id != id), "context {id} twice");
        assert_eq!(id >> self.c.chunk_bits(), 0, "kind SQ");
        let c = &self.c;
        let sq = (addr >> 32) as usize - 1;
        let ring = &mut self.rings[sq];
        assert!(
            (ring.base..ring.base + ring.size * 64).contains(&addr),
            "queue {sq}: address {addr:x}"
        );
        let mut beats = VecDeque::new();
        for i in 0..bytes / 64 {
            assert_eq!(
                (addr - ring.base) / 64 + i,
                ring.asked % ring.size,
                "queue {sq}: entries in order"
            );
            assert!(ring.asked < ring.rung, "queue {sq}: fetched past the tail");
            let words = entry(sq, ring.life, ring.asked);
            beats.extend(words.chunks(beat as usize / 8).map(|w| w.to_vec()));
            ring.asked += 1;
        }
        assert!(
            self.errors
                || ring.asked - ring.out + ring.held.len() as u64
                    <= if sq == 0 { 1 } else { c.entries as u64 },
            "queue {sq} holds too many"
        );
        let error = self.errors && self.r.random_range(0..50) == 0;
        self.bursts.push(Burst {
            sq,
            end: ring.asked,
            id,
            beats,
            error,
        });
    }
}

fn set_queue(b: &mut Bench, w: &mut World, sq: usize, enable: bool) {
    let life = w.rings[sq].life + 1;
    let most = if sq == 0 { 64 } else { w.c.entries as u64 };
    if enable {
        let size = w.r.random_range(2..=most);
        w.rings[sq] = Ring {
            exists: true,
            base: ((sq as u64 + 1) << 32) + (w.r.random_range(0..9u64) << 12),
            size,
            life,
            ..Ring::default()
        };
    } else {
        w.rings[sq].exists = false;
    }
    b.set("sq_set_valid", true);
    b.set("sq_set_sq", sq as u64);
    b.set("sq_set_enable", enable);
    b.set("sq_set_base", w.rings[sq].base);
    b.set("sq_set_size", w.rings[sq].size - 1);
}

fn run(c: &CardConfig, seed: u64, cycles: u64, errors: bool) {
    let block = sq_fetch(c);
    let built = model(&block);
    let mut b = Bench::new(&block, &built, seed);
    let queues = c.queues as usize + 1;
    let mut w = World {
        c: c.clone(),
        r: rng(seed),
        rings: (0..queues)
            .map(|_| Ring {
                size: 2,
                ..Ring::default()
            })
            .collect(),
        bursts: vec![],
        slots: (0..c.slots() as u64).collect(),
        admin_busy: 0,
        errors,
    };
    let (mut entry_go, mut ar_go, mut r_go, mut slot_go, mut free_go, mut ring_go) = (
        Stall::new(seed + 1),
        Stall::new(seed + 2),
        Stall::new(seed + 3),
        Stall::new(seed + 4),
        Stall::new(seed + 5),
        Stall::new(seed + 6),
    );
    while b.is("clearing") {
        b.tick();
    }
    let mut deleting: Option<usize> = None;
    let (mut handed, mut idles) = (0, 0);
    let mut rest = 0;
    let mut late = None;
    let mut slot = None;
    let (mut discarding, mut resets) = (false, 0);
    for _ in 0..cycles {
        // A controller reset: nothing new, then everything from scratch.
        if !discarding && deleting.is_none() && w.r.random_range(0..4000) == 0 {
            discarding = true;
        }
        b.set("discard", discarding);
        b.set("clear", false);
        b.eval();
        let drained = w.bursts.is_empty() && w.rings.iter().all(|q| q.held.is_empty());
        if discarding && drained && b.is("quiet") {
            b.set("doorbell_valid", false);
            b.set("sq_set_valid", false);
            b.set("release_valid", false);
            b.set("r_valid", false);
            b.set("clear", true);
            b.tick();
            b.set("clear", false);
            while b.is("clearing") {
                b.tick();
            }
            for ring in &mut w.rings {
                *ring = Ring {
                    size: 2,
                    life: ring.life,
                    ..Ring::default()
                };
            }
            (discarding, late) = (false, None);
            resets += 1;
            b.set("discard", false);
        }
        // Creation and deletion; a deletion ends when the card holds nothing of the queue.
        b.set("sq_set_valid", false);
        let mut setting = false;
        let sq = w.r.random_range(0..queues);
        b.set("query_sq", deleting.unwrap_or(sq) as u64);
        b.eval();
        if let Some(d) = deleting {
            let in_hand = b.is("entry_valid") && b.get("entry_sq") == d as u64;
            if !b.is("query_busy") && w.rings[d].held.is_empty() && !in_hand {
                assert_eq!(w.rings[d].asked, w.rings[d].out, "queue {d} is busy");
                deleting = None;
            }
        } else if discarding || late.is_some() {
            // Admin and ctrl are silent, and never set twice running.
        } else if !w.rings[sq].exists && w.r.random_range(0..20) == 0 {
            set_queue(&mut b, &mut w, sq, true);
            setting = true;
        } else if sq != 0 && !errors && w.rings[sq].exists && w.r.random_range(0..1500) == 0 {
            set_queue(&mut b, &mut w, sq, false);
            setting = true;
            deleting = Some(sq);
        }
        // Doorbells, right and wrong ones, never in two cycles running. One that meets a creation is judged a cycle later.
        let mut bad = late.take().unwrap_or(Bad::No);
        b.set("doorbell_valid", false);
        rest = if rest > 0 { rest - 1 } else { 0 };
        if rest == 0 && ring_go.go() {
            rest = 2;
            let sq = w.r.random_range(0..queues);
            let is_cq = w.r.random_range(0..8) == 0;
            let wrong = w.r.random_range(0..40) == 0;
            let (alive, ring) = (w.rings[0].exists, &mut w.rings[sq]);
            let value = if wrong {
                w.r.random_range(ring.size..65536)
            } else {
                let more = if ring.exists && !is_cq {
                    w.r.random_range(0..=ring.space())
                } else {
                    0
                };
                ring.rung += more;
                ring.rung % ring.size
            };
            let verdict = match (is_cq, ring.exists) {
                (true, _) => Bad::No,
                (false, false) if alive => Bad::Register,
                (false, true) if wrong => Bad::Value,
                _ => Bad::No,
            };
            if setting {
                late = Some(verdict);
            } else {
                bad = verdict;
            }
            b.set("doorbell_valid", true);
            b.set("doorbell_is_cq", is_cq);
            b.set("doorbell_queue", sq as u64);
            b.set("doorbell_value", value);
        }
        // Slots, releases, admin.
        if slot.is_none() && slot_go.go() {
            slot = w.slots.pop_first();
        }
        b.set("slot_valid", slot.is_some());
        b.set("slot_data", slot.unwrap_or(0));
        let holder = w.r.random_range(1..queues);
        let free = free_go.go() && !w.rings[holder].held.is_empty();
        b.set("release_valid", free);
        b.set("release_sq", holder as u64);
        b.set("admin_quiet", w.admin_busy == 0);
        // Host answers: any outstanding burst, beat by beat.
        let answer =
            (r_go.go() && !w.bursts.is_empty()).then(|| w.r.random_range(0..w.bursts.len()));
        b.set("r_valid", answer.is_some());
        let mut error_seen = false;
        if let Some(i) = answer {
            let burst = &mut w.bursts[i];
            let data = burst.beats.pop_front().expect("beats are left");
            error_seen = burst.error && (burst.beats.is_empty() || w.r.random());
            b.set("r_id", burst.id);
            b.set_wide("r_data", &data);
            b.set(
                "r_resp",
                if error_seen {
                    2u64 + w.r.random_range(0..2)
                } else {
                    0
                },
            );
            b.set("r_last", burst.beats.is_empty());
            if burst.beats.is_empty() {
                w.bursts.swap_remove(i);
            }
        }
        let ar_ready = ar_go.go();
        b.set("ar_ready", ar_ready);
        let entry_ready = entry_go.go();
        b.set("entry_ready", entry_ready);
        let ask = w.r.random_range(0..queues);
        b.set("head_sq", ask as u64);
        b.eval();

        let at = b.cycle();
        assert_eq!(b.is("fault"), error_seen, "fault, cycle {at}");
        assert_eq!(
            b.is("doorbell_bad_value"),
            bad == Bad::Value,
            "bad value, cycle {at}"
        );
        assert_eq!(
            b.is("doorbell_bad_register"),
            bad == Bad::Register,
            "bad register, cycle {at}"
        );
        if b.is("ar_valid") && ar_ready {
            w.address(b.get("ar_id"), b.get("ar_addr"), b.get("ar_len"));
        }
        // The head that the host would be told: not behind what was handed out, and never past what has arrived.
        let ring = &w.rings[ask];
        if ring.exists && !setting && !errors && !discarding {
            let (head, in_ring) = (b.get("head"), |n: u64| n % ring.size);
            let on_the_way = w.bursts.iter().filter(|burst| burst.sq == ask);
            let beats = 512 / w.c.data_bits as usize;
            let whole = |burst: &Burst| burst.end - burst.beats.len().div_ceil(beats) as u64;
            let arrived = on_the_way.map(whole).min().unwrap_or(ring.asked);
            assert!(
                (ring.out..=arrived).any(|n| in_ring(n) == head),
                "queue {ask}: head {head}, out {}, arrived {arrived}, cycle {at}",
                ring.out
            );
        }
        if b.is("entry_valid") && entry_ready {
            let sq = b.get("entry_sq") as usize;
            let ring = &mut w.rings[sq];
            let data = b.get_wide("entry_data");
            while (errors || discarding)
                && ring.out < ring.asked
                && data != entry(sq, ring.life, ring.out)
            {
                ring.out += 1; // Dropped with its burst.
            }
            assert_eq!(
                data,
                entry(sq, ring.life, ring.out),
                "queue {sq}: entry {}, cycle {at}",
                ring.out
            );
            ring.out += 1;
            ring.waited = 0;
            if sq == 0 {
                assert_eq!(w.admin_busy, 0, "an admin entry behind another, cycle {at}");
                w.admin_busy = w.r.random_range(1..60);
            } else {
                let slot = slot.take().expect("an I/O entry comes with a slot");
                assert_eq!((b.get("entry_slot"), b.is("slot_ready")), (slot, true));
                ring.held.push(slot);
            }
            handed += 1;
        } else {
            assert!(
                slot.is_none() || !b.is("slot_ready"),
                "a slot is lost, cycle {at}"
            );
            w.admin_busy = w.admin_busy.saturating_sub(1);
        }
        if free {
            let held = &mut w.rings[holder].held;
            let i = w.r.random_range(0..held.len());
            w.slots.insert(held.swap_remove(i));
        }
        // Nothing is forgotten: whatever can be fetched comes within a time that no stall explains.
        for (sq, ring) in w.rings.iter_mut().enumerate() {
            let can = ring.exists
                && !discarding
                && if errors {
                    ring.asked < ring.rung
                } else {
                    ring.out < ring.rung
                }
                && ring.held.len() < c.entries as usize;
            ring.waited = if can { ring.waited + 1 } else { 0 };
            assert!(
                ring.waited < 6000,
                "queue {sq} waits: rung {} asked {} out {}",
                ring.rung,
                ring.asked,
                ring.out
            );
        }
        if w.bursts.is_empty() && b.is("idle") {
            idles += 1;
        }
        b.tick();
    }
    assert!(
        handed > cycles / 40,
        "only {handed} entries in {cycles} cycles"
    );
    assert!(idles > 0 || errors, "never idle");
    assert!(resets > 1, "never reset");
}

#[test]
fn every_entry_once_and_in_order() {
    let mut runs = vec![];
    // Rings of 256 entries also meet the 4 KiB boundary.
    for (queues, entries, data_bits) in [(4, 16, 128), (1, 256, 256), (16, 16, 512)] {
        for seed in 0..3 {
            let c = CardConfig {
                queues,
                entries,
                data_bits,
                ..CardConfig::small()
            };
            runs.push((c, seed));
        }
    }
    in_threads(&runs, |(c, seed)| run(c, *seed, 30_000, false));
}

#[test]
fn unreadable_entries_are_dropped_and_told() {
    for seed in 0..2 {
        run(&CardConfig::small(), seed, 20_000, true);
    }
}

/// Doorbell to AR, last beat to entry; and a command at least every 4 cycles from queues that hold one each.
#[test]
fn latency_and_rate() {
    let c = CardConfig::default_card();
    let block = sq_fetch(&c);
    let mut b = Bench::new(&block, &model(&block), 1);
    while b.is("clearing") {
        b.tick();
    }
    let queues = c.queues as u64;
    for sq in 0..=queues {
        b.set("sq_set_valid", true);
        b.set("sq_set_sq", sq);
        b.set("sq_set_enable", true);
        b.set("sq_set_base", (sq + 1) << 32);
        b.set("sq_set_size", 255);
        b.tick();
    }
    b.set("sq_set_valid", false);
    for port in ["ar_ready", "entry_ready", "slot_valid"] {
        b.set(port, true);
    }
    // One entry: doorbell to AR.
    b.set("doorbell_valid", true);
    b.set("doorbell_queue", 3);
    b.set("doorbell_value", 1);
    let start = b.cycle();
    b.tick();
    b.set("doorbell_valid", false);
    while !b.is("ar_valid") {
        b.tick();
    }
    assert_eq!(b.cycle() - start, 3, "doorbell to AR");
    let id = b.get("ar_id");
    b.tick();
    for last in [false, true] {
        b.set("r_valid", true);
        b.set("r_id", id);
        b.set("r_last", last);
        b.tick();
    }
    b.set("r_valid", false);
    let mut after = 1;
    while !b.is("entry_valid") {
        b.tick();
        after += 1;
    }
    assert_eq!(after, 2, "last beat to entry");
    // Every queue rings for one more entry whenever its last one has come; the host answers at once.
    let mut beats: VecDeque<(u64, bool)> = VecDeque::new();
    let mut rung = vec![0u64; queues as usize + 1];
    rung[3] = 1;
    let mut due: VecDeque<u64> = (1..=queues).collect();
    let mut entries = 0;
    let cycles = 2000;
    for t in 0..cycles {
        let bell = if t % 2 == 0 { due.pop_front() } else { None };
        b.set("doorbell_valid", bell.is_some());
        if let Some(sq) = bell {
            rung[sq as usize] = (rung[sq as usize] + 1) % 256;
            b.set("doorbell_queue", sq);
            b.set("doorbell_value", rung[sq as usize]);
        }
        let beat = beats.pop_front();
        b.set("r_valid", beat.is_some());
        if let Some((id, last)) = beat {
            b.set("r_id", id);
            b.set("r_last", last);
        }
        b.set("release_valid", false);
        b.eval();
        if b.is("ar_valid") {
            let (id, n) = (b.get("ar_id"), b.get("ar_len") + 1);
            beats.extend((0..n).map(|i| (id, i + 1 == n)));
        }
        if b.is("entry_valid") {
            let sq = b.get("entry_sq");
            b.set("release_valid", true);
            b.set("release_sq", sq);
            due.push_back(sq);
            entries += 1;
        }
        b.tick();
    }
    assert!(
        entries * 4 >= cycles - 40,
        "{entries} entries in {cycles} cycles"
    );
}

/// One doorbell is enough: what it left waiting, for a slot or for admin, comes without another.
#[test]
fn no_wake_up_is_lost() {
    let c = CardConfig::small();
    let block = sq_fetch(&c);
    let built = model(&block);
    for seed in 0..20 {
        let mut r = rng(seed);
        let mut b = Bench::new(&block, &built, seed);
        while b.is("clearing") {
            b.tick();
        }
        for (sq, entries) in [(0u64, 16u64), (1, 16), (2, 8)] {
            b.set("sq_set_valid", true);
            b.set("sq_set_sq", sq);
            b.set("sq_set_enable", true);
            b.set("sq_set_base", (sq + 1) << 32);
            b.set("sq_set_size", entries - 1);
            b.tick();
        }
        b.set("sq_set_valid", false);
        b.set("ar_ready", true);
        b.set("entry_ready", true);
        b.set("slot_valid", true);
        b.set("admin_quiet", true);
        let mut beats: VecDeque<(u64, bool)> = VecDeque::new();
        let (mut got, mut held, mut admin_busy) = ([0, 0, 0], 0, 0);
        let mut release_at = 0;
        // Two doorbells of 15 entries for queue 1, which holds 16; one of 6 for the admin queue; for queue 2 one of 6 and
        // one of 5 that goes around the end of its ring of 8.
        let bells = [
            (10, 1, 15),
            (12, 0, 6),
            (300, 1, 14),
            (14, 2, 6),
            (200, 2, 3),
        ];
        for t in 0..3000 {
            let bell = bells.iter().find(|bell| bell.0 == t);
            b.set("doorbell_valid", bell.is_some());
            if let Some((_, sq, value)) = bell {
                b.set("doorbell_queue", *sq as u64);
                b.set("doorbell_value", *value as u64);
            }
            let beat = beats.pop_front();
            b.set("r_valid", beat.is_some());
            if let Some((id, last)) = beat {
                b.set("r_id", id);
                b.set("r_last", last);
            }
            let release = t > 600 && t >= release_at && held > 0;
            if release {
                held -= 1;
                release_at = t + r.random_range(1..60);
            }
            b.set("release_valid", release);
            b.set("release_sq", 1);
            b.set("admin_quiet", admin_busy == 0);
            admin_busy = if admin_busy > 0 { admin_busy - 1 } else { 0 };
            b.eval();
            if b.is("ar_valid") {
                let (id, n) = (b.get("ar_id"), b.get("ar_len") + 1);
                beats.extend((0..n).map(|i| (id, i + 1 == n)));
            }
            if b.is("entry_valid") {
                let sq = b.get("entry_sq") as usize;
                got[sq] += 1;
                held += usize::from(sq == 1);
                admin_busy = if sq == 0 {
                    r.random_range(1..50)
                } else {
                    admin_busy
                };
                assert!(held <= 16, "queue 1 holds {held}");
            }
            if t == 599 {
                assert_eq!(got[1], 16, "queue 1 is at its bound");
            }
            b.tick();
        }
        assert_eq!(got, [6, 30, 11], "entries of queues 0, 1 and 2");
        assert!(b.is("idle") && b.is("quiet"));
    }
}
