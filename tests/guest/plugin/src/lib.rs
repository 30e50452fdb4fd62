//! A QEMU TCG plugin that counts the guest's instructions for each I/O, from outside: nothing in the guest's programs
//! changes, and its kernel is Debian's.
//!
//! # Architecture
//! ```text
//!   api.rs     QEMU's plugin API, the only unsafe code
//!   decode.rs  which instructions are atomic read-modify-writes, doorbell stores, or the mark
//!   lib.rs     the counting: a counter an instruction address, an event an I/O, windows of events, sections
//! ```
//! * An **event** is an I/O: an entry that a write to an I/O SQ's tail doorbell publishes, or, with `event=`, one
//!   execution of the instruction there (the kernel's `blk_mq_start_request`), for drivers that have no doorbell.
//! * A **section** lasts from one execution of the mark (`../bench/mark.rs`) to the next. Within it, counts are taken
//!   at every `window` events. What comes before the first event, a program's start, is in no window; the first window
//!   is left to the reader to drop, as a warm-up.
//! * `hold=device`: after an SQ doorbell the vCPU stands until QEMU's main loop, which runs its nvme, sleeps: so no
//!   driver idles or polls in vain, and depth is what the program asked for. `hold=N`: it stands N microseconds, for a
//!   device in another process. With one vCPU, `-icount` and this, a count repeats to under 1 %.
//!
//! Arguments: `out=FILE` (a JSON line a section), `window=N`, `hold=device|N`, `event=0xADDRESS`.
//!
//! # Output
//! A line: `{"windows": [[user, user locked, kernel, kernel locked, doorbells, events], ...], "code": [[address, count,
//! locked], ...]}`; `code` is the kernel's instructions from the end of the first window to the end of the last.
//!
//! # Left out
//! Cycles, caches, the cost of a locked instruction: a count is not a time. Instructions of one address in two
//! processes are one entry; only sums are told for user space.
#![deny(unsafe_code)]

mod api;
mod decode;

use api::{Counters, Tb, Translated};
use decode::decode;
use serde_json::json;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// Instruction addresses that have a counter of their own; further ones share the last.
const COUNTERS: usize = 1 << 20;
/// Doorbells lie in BAR0's second 4 KiB (NVMe 1.4, 3.1), a stride of 8 bytes a queue; queue 0 is the admin queue's.
const DOORBELLS: u64 = 0x1000;
const BAR_MASK: u64 = 0x3FFF;

/// How long a vCPU stands after an SQ doorbell.
enum Hold {
    No,
    /// Until the main loop's thread, whose state this file tells, sleeps.
    Device(File),
    For(Duration),
}

/// An instruction that has a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Code {
    address: u64,
    locked: bool,
}

impl Code {
    fn is_kernel(&self) -> bool {
        self.address >> 63 == 1
    }
}

struct Plugin {
    counters: Counters,
    code: Vec<Code>,
    index: HashMap<Code, usize>,
    out: File,
    hold: Hold,
    window: u64,
    event: Option<u64>,
    /// Last tail and largest tail seen of each SQ: the latter tells a queue's size once it wrapped.
    tails: HashMap<u64, (u32, u32)>,
    events: u64,
    doorbells: u64,
    section: Option<Section>,
}

/// Counts since a mark.
#[derive(Default)]
struct Section {
    /// Events at which the current window ends; None before the first event.
    end: Option<u64>,
    /// A snapshot at each boundary: totals.
    totals: Vec<[u64; 6]>,
    /// Every counter at the second boundary, and at the last.
    first: Vec<u64>,
    last: Vec<u64>,
}

static PLUGIN: OnceLock<Mutex<Plugin>> = OnceLock::new();

fn plugin() -> MutexGuard<'static, Plugin> {
    let plugin = PLUGIN.get().expect("installed before any callback");
    plugin.lock().unwrap_or_else(PoisonError::into_inner)
}

fn install(arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut out, mut window, mut hold, mut event) = (None, 1000, Hold::No, None);
    for argument in arguments {
        let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
        let number = || {
            let parsed = match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => value.parse(),
            };
            parsed.map_err(|_| format!("{name}={value}: must be a number"))
        };
        match name {
            "out" => out = Some(File::create(value).map_err(|e| format!("out={value}: {e}"))?),
            "window" => window = number()?.max(1),
            "event" => event = Some(number()?),
            "hold" if value == "device" => {
                let path = format!("/proc/self/task/{}/stat", std::process::id());
                hold = Hold::Device(File::open(&path).map_err(|e| format!("{path}: {e}"))?);
            }
            "hold" => hold = Hold::For(Duration::from_micros(number()?)),
            _ => {
                return Err(format!(
                    "{name}: no such argument; out, window, hold, event"
                ));
            }
        }
    }
    let plugin = Plugin {
        counters: Counters::new(COUNTERS),
        code: Vec::new(),
        index: HashMap::new(),
        out: out.ok_or("out=FILE must be given")?,
        hold,
        window,
        event,
        tails: HashMap::new(),
        events: 0,
        doorbells: 0,
        section: None,
    };
    PLUGIN
        .set(Mutex::new(plugin))
        .map_err(|_| "installed twice".into())
}

/// QEMU translates a block of code: every instruction gets its counter, some a callback.
extern "C" fn translate(tb: *const Tb, _: *mut c_void) {
    let mut plugin = plugin();
    let mut bytes = [0; 16];
    for insn in Translated::all(tb) {
        let kind = decode(insn.bytes(&mut bytes));
        let address = insn.address();
        let index = plugin.counter_of(Code {
            address,
            locked: kind.locked,
        });
        insn.count(&plugin.counters, index);
        if kind.mark {
            insn.on_execution(mark);
        }
        match plugin.event {
            Some(event) if event == address => insn.on_execution(event_executed),
            None if kind.store32 => insn.on_write(written),
            _ => {}
        }
    }
}

extern "C" fn mark(_vcpu: u32, _: *mut c_void) {
    let mut plugin = plugin();
    plugin.end_section();
    plugin.tails.clear(); // another driver may make other queues
    plugin.section = Some(Section::default());
}

extern "C" fn event_executed(_vcpu: u32, _: *mut c_void) {
    plugin().add_events(1);
}

extern "C" fn written(_vcpu: u32, info: u32, vaddr: u64, _: *mut c_void) {
    // Most stores go to memory: only what could be the tail doorbell of an I/O queue is looked at more closely.
    let offset = vaddr & 0xFFF;
    if offset < 8 || offset & 7 != 0 {
        return;
    }
    let Some(write) = api::io_write(info, vaddr) else {
        return;
    };
    let nvme = write.region.starts_with("nvme") || write.region.contains("BAR 0");
    if nvme && write.address & BAR_MASK & !0xFFF == DOORBELLS {
        plugin().doorbell(write.address, write.value);
    }
}

extern "C" fn exit(_: *mut c_void) {
    plugin().end_section();
}

impl Plugin {
    fn counter_of(&mut self, code: Code) -> usize {
        if let Some(index) = self.index.get(&code) {
            return *index;
        }
        let index = self.code.len();
        if index == COUNTERS {
            return COUNTERS - 1;
        }
        self.code.push(code);
        self.index.insert(code, index);
        index
    }

    fn doorbell(&mut self, queue: u64, tail: u32) {
        let (last, largest) = self.tails.entry(queue).or_default();
        *largest = tail.max(*largest);
        // Queues have a power of two of entries here, and a tail comes past their middle before it wraps.
        let size = (*largest + 1).next_power_of_two();
        let new = if tail >= *last {
            tail - *last
        } else {
            tail + size - *last
        };
        *last = tail;
        self.doorbells += 1;
        self.stand();
        self.add_events(new.into());
    }

    fn stand(&self) {
        match &self.hold {
            Hold::No => {}
            Hold::For(time) => sleep(*time),
            Hold::Device(stat) => {
                // Asleep in three looks in a row, or it never will be: then the count would be odd, not wrong.
                let (mut asleep, mut looks) = (0, 0);
                while asleep < 3 && looks < 20_000 {
                    let mut text = [0; 256];
                    let len = stat.read_at(&mut text, 0).unwrap_or(0);
                    let state = text[..len]
                        .iter()
                        .rposition(|byte| *byte == b')')
                        .map(|at| text[at + 2]);
                    asleep = if state == Some(b'S') { asleep + 1 } else { 0 };
                    looks += 1;
                    sleep(Duration::from_micros(5));
                }
            }
        }
    }

    fn add_events(&mut self, count: u64) {
        self.events += count;
        let (events, window) = (self.events, self.window);
        let Some(section) = &self.section else { return };
        if section.end.is_none_or(|end| events >= end) {
            let counts: Vec<u64> = (0..self.code.len()).map(|i| self.counters.sum(i)).collect();
            let mut totals = [0, 0, 0, 0, self.doorbells, events];
            for (code, count) in self.code.iter().zip(&counts) {
                let at = if code.is_kernel() { 2 } else { 0 };
                totals[at] += count;
                totals[at + 1] += if code.locked { *count } else { 0 };
            }
            let section = self.section.as_mut().expect("seen above");
            section.end = Some(events + window);
            section.totals.push(totals);
            if section.totals.len() == 2 {
                section.first = counts.clone();
            }
            section.last = counts;
        }
    }

    fn end_section(&mut self) {
        let Some(section) = self.section.take() else {
            return;
        };
        let less =
            |pair: &[[u64; 6]]| -> [u64; 6] { std::array::from_fn(|i| pair[1][i] - pair[0][i]) };
        let windows: Vec<_> = section.totals.windows(2).map(less).collect();
        let before = section.first.iter().copied().chain(std::iter::repeat(0));
        let code: Vec<_> = self
            .code
            .iter()
            .zip(section.last.iter().zip(before))
            .filter(|(code, (last, first))| code.is_kernel() && *last > first)
            .map(|(code, (last, first))| (code.address, last - first, code.locked))
            .collect();
        let line = json!({ "windows": windows, "code": code });
        if let Err(error) = writeln!(self.out, "{line}") {
            eprintln!("weir-count-plugin: {error}");
        }
    }
}
