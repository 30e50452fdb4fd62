//! Fuzz target: completions to the driver. Random entries (fields of real commands, of old ones, near ones, noise; phase
//! tags, doorbell-sized heads) on completion queues of random shape, while commands are submitted on the short and the
//! long way, in batches, and queues are reset and deleted under it.
//!
//! Never undefined behaviour, no panic, no command reported twice, no buffer freed or given back while its command is in
//! flight. What the driver accepts is checked against a model that knows what is in flight by tag.
//!
//! `WEIR_FUZZ_SEED=n` runs the one case of that seed; `WEIR_FUZZ_SECONDS=s` goes on with new seeds for that long
//! (`make fuzz`). A failure prints its seed.

mod mock;

use mock::{MockMemory, MockPci, queue, start};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};
use weir_driver::nvme::{Command, Completion, NvmOpcode};
use weir_driver::*;
use zerocopy::IntoBytes;

/// xorshift64*.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What a case came to.
#[derive(Default)]
struct Totals {
    completed: u64,
    failed_status: u64,
    stopped: BTreeMap<&'static str, u64>,
    resets: u64,
}

/// A command in flight, as the model knows it.
struct Flying {
    lun: u32,
    sq: u16,
    iova: Option<u64>,
}

/// Where the completion queue lies, and where its next entry goes.
struct Place {
    iova: u64,
    entries: u32,
    at: u32,
    phase: bool,
}

struct Case {
    rng: Rng,
    pci: MockPci,
    flying: BTreeMap<u64, Flying>,
    /// Tags (SQID, CID) seen, the last ones: repeated completions come from here.
    old: Vec<(u16, u16)>,
    next: u64,
    /// What was written since the last poll.
    written: Vec<(u16, u16)>,
    /// How rare wrong entries are: 1, or more.
    calm: u64,
}

impl Case {
    fn submit(&mut self, q: &mut Queue<MockPci>, c: &Controller<MockPci>) {
        let rng = &mut self.rng;
        let (lun, user) = (rng.below(3) as u32, self.next);
        let sq = rng.below(u64::from(q.config().submission_queues)) as usize;
        let blocks = [1, 8, 8, 16, 64][rng.below(5) as usize];
        let buffer = |rng: &mut Rng| {
            let mut whole = c.buffer(blocks as usize * 512 + 4096).unwrap();
            whole.split_off(rng.below(1024) as usize * 4).unwrap()
        };
        let buffer = match rng.below(5) {
            0 => None,
            _ => Some(buffer(rng)),
        };
        let iova = buffer.as_ref().map(Buffer::iova);
        let (result, sq) = match (rng.below(8), buffer) {
            (0..2, Some(buffer)) => {
                let mut buffers = vec![buffer];
                let put = q.submit_all(lun, Op::Write, blocks, &mut buffers, || (0, user));
                let rejected = |reason| Rejected {
                    reason,
                    buffer: buffers.pop(),
                };
                (put.map_err(rejected), 0)
            }
            (2..4, Some(buffer)) => (q.read(lun, buffer, 0, blocks, user), 0),
            (4, buffer) => {
                let command = Command::nvm(NvmOpcode(0x7F), 1);
                // SAFETY: the command names no memory.
                (unsafe { q.submit_raw(sq, lun, command, buffer, user) }, sq)
            }
            (_, Some(buffer)) => {
                let op = [Op::Read, Op::Write][user as usize % 2];
                (q.submit_on(sq, lun, op, Some(buffer), 0, blocks, user), sq)
            }
            (_, None) => (q.submit_on(sq, lun, Op::Flush, None, 0, 0, user), sq),
        };
        match result {
            Ok(()) => {
                let sq = sq as u16;
                self.flying.insert(user, Flying { lun, sq, iova });
                self.next += 1;
            }
            Err(rejected) => {
                assert_eq!(rejected.buffer.map(|b| b.iova()), iova, "buffer lost");
            }
        }
    }

    /// Writes a random entry where the driver looks next, or not quite there.
    fn complete(&mut self, q: &Queue<MockPci>, place: &mut Place) {
        let rng = &mut self.rng;
        let mut flying: Vec<(u16, u16)> = q.outstanding().map(|o| (o.sqid, o.cid)).collect();
        flying.retain(|tag| self.calm == 1 || !self.written.contains(tag));
        if flying.is_empty() && !rng.one_in(8 * self.calm) {
            return;
        }
        let pick = |rng: &mut Rng, from: &[(u16, u16)]| match from.len() {
            0 => (1, 0),
            n => from[rng.below(n as u64) as usize],
        };
        let (mut sqid, mut cid) = match rng.below(24 * self.calm) {
            0 => pick(rng, &self.old),
            1 => (rng.below(1 << 16) as u16, rng.below(1 << 16) as u16),
            _ => pick(rng, &flying),
        };
        match rng.below(60 * self.calm) {
            0 => cid ^= 1 << rng.below(16),
            1 => sqid = sqid.wrapping_add(rng.below(5) as u16).wrapping_sub(2),
            2 => cid = cid.wrapping_add(q.capacity() as u16 + 1),
            _ => {}
        }
        self.old.push((sqid, cid));
        self.written.push((sqid, cid));
        if self.old.len() > 64 {
            self.old.remove(0);
        }
        let head = match rng.below(40 * self.calm) {
            0 => rng.below(1 << 16) as u16,
            _ => self.pci.device().sq_tail(sqid),
        };
        let status = match rng.below(6) {
            0 => rng.below(1 << 15) as u16,
            _ => 0,
        };
        let stale = rng.one_in(40);
        let entry = Completion {
            result: rng.below(1 << 32) as u32,
            reserved: 0,
            sq_head: head,
            sqid,
            cid,
            status_phase: status << 1 | u16::from(place.phase != stale),
        };
        let at = place.iova + u64::from(place.at) * Completion::SIZE as u64;
        assert!(self.pci.device().dma_write(at, entry.as_bytes()));
        if !stale {
            place.at = (place.at + 1) % place.entries;
            place.phase ^= place.at == 0;
        }
    }

    fn take(&mut self, done: Completed<MockMemory>, totals: &mut Totals) {
        let flying = self.flying.remove(&done.user);
        let flying = flying.unwrap_or_else(|| panic!("{} reported twice", done.user));
        assert_eq!((done.lun, done.sq), (flying.lun, flying.sq));
        assert_eq!(done.buffer.as_ref().map(Buffer::iova), flying.iova);
        totals.completed += 1;
        totals.failed_status += u64::from(!done.status.is_success());
    }

    /// What is in flight keeps its memory: the device can still reach it.
    fn check(&self, q: &Queue<MockPci>) {
        assert_eq!(q.len(), self.flying.len());
        assert_eq!(q.outstanding().count(), self.flying.len());
        for lun in 0..3 {
            let flying = self.flying.values().filter(|f| f.lun == lun).count();
            assert_eq!(q.in_flight(lun) as usize, flying);
        }
        for iova in self.flying.values().filter_map(|f| f.iova) {
            assert!(self.pci.device().dma_read(iova, &mut [0; 4]), "freed");
        }
    }
}

fn case(seed: u64, totals: &mut Totals) {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let pci = MockPci::new(3, 64);
    let mut c = start(&pci);
    let entries = 4 << rng.below(4);
    let submission_queues = 1 + rng.below(3) as u16;
    let config = QueueConfig {
        entries,
        submission_queues,
        cq_entries: [None, Some(4 << rng.below(5))][rng.below(2) as usize],
        ..Default::default()
    };
    let mut queues = [queue(&mut c, config)];
    let mut case = Case {
        rng,
        pci: pci.clone(),
        flying: BTreeMap::new(),
        old: Vec::new(),
        next: 0,
        written: Vec::new(),
        calm: 1 + seed % 2 * 30,
    };
    for _ in 0..3 {
        let q = &mut queues[0];
        let (iova, cq_entries) = pci.device().cq_place(q.cqid());
        let mut place = Place {
            iova,
            entries: cq_entries,
            at: 0,
            phase: true,
        };
        for _ in 0..40 {
            for _ in 0..case.rng.below(6) {
                case.submit(q, &c);
            }
            if !case.rng.one_in(4) {
                q.ring();
            }
            let room = u64::from(cq_entries - 1).min(5);
            for _ in 0..case.rng.below(room + 1) {
                case.complete(q, &mut place);
                if case.rng.one_in(2) {
                    break;
                }
            }
            let polled = match case.rng.below(3) {
                0 => q.poll_one().map(|done| {
                    let none = done.is_none();
                    done.into_iter().for_each(|done| case.take(done, totals));
                    usize::from(!none)
                }),
                _ => q.poll(|done| case.take(done, totals)),
            };
            while case.rng.one_in(2)
                && q.poll_one()
                    .is_ok_and(|done| done.map(|done| case.take(done, totals)).is_some())
            {
            }
            case.written.clear();
            case.check(q);
            let result = polled.and(q.failed().map_or(Ok(0), Err));
            if let Err(error) = result {
                let kind = match error {
                    QueueError::UnknownCommand { .. } => "unknown command",
                    QueueError::UnknownQueue { .. } => "unknown queue",
                    QueueError::SqHead { .. } => "head",
                    QueueError::Down => "down",
                };
                *totals.stopped.entry(kind).or_default() += 1;
                let before = case.flying.len();
                assert_eq!(q.poll(|_| panic!("stopped")), Err(error));
                case.submit(q, &c);
                assert_eq!(case.flying.len(), before, "a stopped queue took a command");
                break;
            }
        }
        totals.resets += 1;
        c.reset(&mut queues, |done| case.take(done, totals))
            .unwrap();
        assert!(case.flying.is_empty(), "lost: {:?}", case.flying.keys());
    }
    // After all that the queue works as new.
    let [mut q] = queues;
    for user in 0..8 {
        q.read(0, c.buffer(4096).unwrap(), 0, 8, user).unwrap();
        q.ring();
        mock::drain(&pci, &mut q, |done| {
            assert!(done.status.is_success() && done.user == user)
        });
    }
    c.delete_queue(q, |_| panic!("nothing is in flight"))
        .unwrap();
    c.shutdown().unwrap();
    assert_eq!(pci.allocations(), 0);
}

/// Cases of a short run.
const SHORT: u64 = 300;

#[test]
fn random_completions_to_the_driver() {
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse().expect(name));
    let mut totals = Totals::default();
    if let Some(seed) = number("WEIR_FUZZ_SEED") {
        return case(seed, &mut totals);
    }
    let time = number("WEIR_FUZZ_SECONDS").map(Duration::from_secs);
    let (start, mut cases) = (Instant::now(), 0);
    while time.map_or(cases < SHORT, |time| start.elapsed() < time) {
        let run = AssertUnwindSafe(|| case(cases, &mut totals));
        if let Err(panic) = catch_unwind(run) {
            eprintln!("case {cases} failed; WEIR_FUZZ_SEED={cases} runs it again");
            resume_unwind(panic);
        }
        cases += 1;
    }
    println!(
        "{cases} cases: {} completed, {} of them with an error, {} resets, stopped: {:?}",
        totals.completed, totals.failed_status, totals.resets, totals.stopped
    );
    // The cases must reach what they are for.
    assert!(totals.completed > 50 * cases && totals.failed_status > cases);
    assert_eq!(totals.stopped.len(), 3, "{:?}", totals.stopped);
}
