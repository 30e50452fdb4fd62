//! What the plugin wrote, and the kernel's symbols: instructions an I/O, by group of functions.

use serde::Deserialize;
use std::collections::BTreeMap;

/// A line of the plugin's output (`plugin/src/lib.rs`).
#[derive(Deserialize)]
pub struct Section {
    /// User, of these locked, kernel, of these locked, doorbells, events.
    pub windows: Vec<[u64; 6]>,
    /// Address, executions, whether locked: the kernel's code, from the end of the first window to that of the last.
    pub code: Vec<(u64, u64, bool)>,
}

/// An I/O's share of a row.
#[derive(Debug, Default)]
pub struct Cost {
    pub ios: u64,
    pub user: f64,
    pub kernel: f64,
    pub locked: f64,
    pub doorbells: f64,
    /// The part of the windows whose sum is within 2 % of the middle one, which is what is told.
    pub agree: f64,
    /// Instructions and locked ones, by group and by function.
    pub groups: BTreeMap<&'static str, (f64, f64)>,
    pub functions: BTreeMap<String, (f64, f64)>,
}

impl Cost {
    pub fn total(&self) -> f64 {
        self.user + self.kernel
    }
}

/// The functions that hold a budget, hand out tags, or run queues again, and what goes with waiting for those: by
/// prefix of the name, the first that fits.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "budget",
        &[
            "scsi_mq_get_budget",
            "scsi_mq_put_budget",
            "scsi_mq_set_rq_budget",
            "scsi_mq_get_rq_budget",
            "scsi_dev_queue_ready",
            "scsi_target_queue_ready",
            "scsi_host_queue_ready",
            "scsi_device_unbusy",
            "scsi_dec_host_busy",
            "scsi_device_busy",
            "scsi_host_busy",
            "scsi_host_check_in_flight",
        ],
    ),
    (
        "tags",
        &[
            "sbitmap",
            "__sbitmap",
            "blk_mq_get_tag",
            "__blk_mq_get_tag",
            "blk_mq_put_tag",
            "__blk_mq_tag_",
            "blk_mq_tag_",
            "__blk_mq_alloc_driver_tag",
            "__blk_mq_get_driver_tag",
            "blk_mq_get_driver_tag",
            "blk_mq_mark_tag_wait",
            "blk_mq_dispatch_wake",
            "hctx_may_queue",
            "blk_mq_queue_tag_busy",
        ],
    ),
    (
        "queue run",
        &[
            "blk_mq_run_hw_queue",
            "__blk_mq_run_hw_queue",
            "blk_mq_delay_",
            "__blk_mq_delay",
            "blk_mq_run_work",
            "blk_mq_sched_",
            "__blk_mq_sched",
            "blk_mq_do_dispatch",
            "__blk_mq_do_dispatch",
            "blk_mq_dispatch_rq_list",
            "blk_mq_hctx_",
            "blk_mq_flush_busy_ctxs",
            "flush_busy_ctx",
            "dispatch_rq_from_ctx",
            "blk_mq_dequeue",
            "blk_mq_requeue",
            "__blk_mq_requeue",
            "blk_mq_insert_request",
            "blk_mq_request_bypass",
            "blk_mq_kick_",
            "scsi_run_queue",
            "scsi_run_host_queues",
            "scsi_kick",
            "scsi_requeue",
            "scsi_mq_requeue",
            "scsi_start_queue",
            "kblockd_",
            "mod_delayed_work",
            "queue_work_on",
            "__queue_work",
            "insert_work",
            "process_one_work",
            "worker_thread",
            "kick_pool",
            "move_linked_works",
        ],
    ),
    (
        "spin locks",
        &[
            "native_queued_spin_lock",
            "_raw_spin_lock",
            "_raw_spin_unlock",
            "_raw_spin_trylock",
        ],
    ),
    (
        "switches",
        &[
            "schedule",
            "__schedule",
            "__switch_to",
            "finish_task_switch",
            "prepare_task_switch",
            "psi_",
            "pick_",
            "__pick",
            "update_load_avg",
            "__update_load_avg",
            "update_curr",
            "update_rq_clock",
            "update_entity_lag",
            "enqueue_entit",
            "__enqueue_entity",
            "enqueue_task",
            "dequeue_entit",
            "__dequeue_entity",
            "dequeue_task",
            "set_next_",
            "put_prev_",
            "try_to_wake_up",
            "ttwu_",
            "select_task_rq",
            "vruntime_eligible",
            "avg_vruntime",
            "sched_",
            "native_sched_clock",
            "do_idle",
            "cpu_startup_entry",
            "cpuidle",
            "default_idle",
            "tick_nohz",
            "rcu_note_context_switch",
            "entity_eligible",
            "place_entity",
            "check_preempt",
            "wakeup_preempt",
        ],
    ),
];

/// The kernel's symbols by address, from /proc/kallsyms (address, type, name).
pub fn symbols(text: &str) -> BTreeMap<u64, String> {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((address, words.nth(1)?.to_owned()))
    };
    text.lines().filter_map(parse).collect()
}

/// The cost of a row in its section; with `batch`, of the windows in which every doorbell published that many.
pub fn cost(
    section: &Section,
    batch: Option<u64>,
    symbols: &BTreeMap<u64, String>,
) -> Result<Cost, String> {
    // The first window has the start of the run in it.
    let measured: Vec<&[u64; 6]> = section.windows.iter().skip(1).collect();
    let fits = |window: &&[u64; 6]| {
        batch.is_none_or(|batch| {
            let (published, expected) = (window[5] as f64, (window[4] * batch) as f64);
            (published - expected).abs() <= published * 0.002
        })
    };
    let windows: Vec<&[u64; 6]> = measured.iter().copied().filter(fits).collect();
    if windows.len() < 2 {
        return Err(format!(
            "{} of {} windows are of this row: too few",
            windows.len(),
            measured.len()
        ));
    }
    let share = |at: usize| {
        let mut each: Vec<f64> = windows.iter().map(|w| w[at] as f64 / w[5] as f64).collect();
        each.sort_by(f64::total_cmp);
        each[each.len() / 2]
    };
    let mut sums: Vec<f64> = windows
        .iter()
        .map(|w| (w[0] + w[2]) as f64 / w[5] as f64)
        .collect();
    sums.sort_by(f64::total_cmp);
    let middle = sums[sums.len() / 2];
    let near = sums
        .iter()
        .filter(|sum| (*sum / middle - 1.0).abs() < 0.02)
        .count();
    let mut cost = Cost {
        ios: windows.iter().map(|w| w[5]).sum(),
        user: share(0),
        kernel: share(2),
        locked: share(1) + share(3),
        doorbells: share(4),
        agree: near as f64 / sums.len() as f64,
        ..Cost::default()
    };
    if batch.is_none() {
        let ios: u64 = measured.iter().map(|w| w[5]).sum();
        for (address, count, locked) in &section.code {
            let name = symbols
                .range(..=*address)
                .next_back()
                .map_or("?", |(_, name)| name.as_str());
            let share = *count as f64 / ios as f64;
            let add = |entry: &mut (f64, f64)| {
                entry.0 += share;
                entry.1 += if *locked { share } else { 0.0 };
            };
            add(cost.functions.entry(name.to_owned()).or_default());
            let group = GROUPS
                .iter()
                .find(|(_, names)| names.iter().any(|prefix| name.starts_with(prefix)));
            add(cost
                .groups
                .entry(group.map_or("rest", |(group, _)| group))
                .or_default());
        }
    }
    Ok(cost)
}
