//! Every option of fio 3.33 by its full name, and what becomes of it here.
//!
//! The names are those of `fio --cmdhelp` and of `fio --enghelp=ENGINE`; a test compares them with a copy of that list.

mod setters;

use std::collections::BTreeMap;

use super::value::{self, Amount};
pub(super) use setters::kb_base;
use setters::{
    block_align, block_size, cpus_policy, distribution, file_service, filenames, ioengine, pattern,
    percentiles, positive, rate_iops, rw, verify,
};

/// Bytes in a logical block; every size and offset that reaches the card is a multiple of it.
const BLOCK: u64 = crate::pattern::BLOCK as u64;

/// What a job's I/O does with data (`rw`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Reads alone.
    Read,
    /// Writes alone.
    Write,
    /// Both, by `rwmixread`.
    Mixed,
}

/// `file_service_type`: the file of the next I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileService {
    /// In turn, this many I/Os each.
    RoundRobin(u32),
    /// Uniformly at random, this many I/Os each time.
    Random(u32),
    /// One file to its end, then the next.
    Sequential,
}

/// `random_distribution`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Every block as likely as any other.
    Uniform,
    /// Zipf with this theta, above 0 and not 1.
    Zipf(f64),
}

/// `verify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// No verification phase. Reads are checked all the same: that is the simulator's own promise.
    None,
    /// Blocks with a header and a CRC-32C.
    Crc32c,
    /// Blocks that hold `verify_pattern` and nothing else.
    Pattern,
}

/// A piece of `verify_pattern`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternPart {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The block's byte offset, 8 bytes little-endian (`%o`).
    Offset,
}

impl PatternPart {
    /// Bytes that the part fills.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            PatternPart::Bytes(bytes) => bytes.len(),
            PatternPart::Offset => 8,
        }
    }
}

/// A job section's options, defaults filled in. Times are nanoseconds as written in the file, not scaled.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// `name`, when it renames the section.
    pub name: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// `filename`, split at colons; empty when not given.
    pub filenames: Vec<String>,
    /// Direction of `rw`.
    pub mix: Mix,
    /// Whether `rw` is one of the random ones.
    pub random: bool,
    /// Smallest and largest I/O for reads and for writes, bytes (`bs`, `bsrange`).
    pub block_size: [(u64, u64); 2],
    /// `blockalign` for reads and writes, bytes; None is the smallest block size.
    pub block_align: [Option<u64>; 2],
    /// Percent of I/Os that are reads, of a mixed job.
    pub rwmixread: u32,
    /// `ioengine`.
    pub ioengine: String,
    /// Whether the engine is a synchronous one: it has one I/O in flight whatever iodepth says.
    pub sync_engine: bool,
    /// `iodepth` as given.
    pub iodepth: u32,
    /// `numjobs`.
    pub numjobs: u32,
    /// `size`; None is the whole LUN.
    pub size: Option<Amount>,
    /// `io_size`; a percentage is of `size`.
    pub io_size: Option<Amount>,
    /// `offset`; a percentage is of the LUN.
    pub offset: Amount,
    /// `offset_increment` for each further instance of the job; a percentage is of the LUN.
    pub offset_increment: Amount,
    /// `offset_align`, bytes, 0 for the block size; applies to a percentage of `offset`.
    pub offset_align: u64,
    /// `number_ios`, 0 for no limit.
    pub number_ios: u64,
    /// `loops`.
    pub loops: u32,
    /// `runtime`, 0 for none.
    pub runtime: u64,
    /// `time_based`.
    pub time_based: bool,
    /// `ramp_time`.
    pub ramp_time: u64,
    /// `startdelay`, a range.
    pub startdelay: (u64, u64),
    /// `stonewall`.
    pub stonewall: bool,
    /// `new_group`.
    pub new_group: bool,
    /// `group_reporting`.
    pub group_reporting: bool,
    /// `file_service_type`.
    pub file_service: FileService,
    /// `random_distribution`.
    pub distribution: Distribution,
    /// `norandommap`.
    pub norandommap: bool,
    /// `randrepeat`: each pass over the job's range repeats its random sequence.
    pub randrepeat: bool,
    /// `allrandrepeat`.
    pub allrandrepeat: bool,
    /// `randseed`.
    pub randseed: Option<u64>,
    /// I/Os a simulated second for reads and writes (`rate_iops`), 0 for no limit.
    pub rate_iops: [u64; 2],
    /// A Flush every so many writes (`fsync`), 0 for none.
    pub fsync: u64,
    /// The same for `fdatasync`.
    pub fdatasync: u64,
    /// `end_fsync`.
    pub end_fsync: bool,
    /// `fsync_on_close`.
    pub fsync_on_close: bool,
    /// `verify`.
    pub verify: Verify,
    /// `verify_pattern`, empty when not given.
    pub verify_pattern: Vec<PatternPart>,
    /// `do_verify`.
    pub do_verify: bool,
    /// `verify_fatal`.
    pub verify_fatal: bool,
    /// `percentile_list`.
    pub percentiles: Vec<f64>,
    /// `clat_percentiles`.
    pub clat_percentiles: bool,
    /// `lat_percentiles`.
    pub lat_percentiles: bool,
    /// `slat_percentiles`.
    pub slat_percentiles: bool,
    /// `cpus_allowed` in the order given; empty for any.
    pub cpus_allowed: Vec<u32>,
    /// `cpus_allowed_policy=split`.
    pub cpus_split: bool,
    /// `kb_base`.
    pub kb_base: u64,
    /// The line that set each option, by full name.
    pub lines: BTreeMap<&'static str, u32>,
}

impl Default for JobOptions {
    fn default() -> Self {
        JobOptions {
            name: None,
            description: None,
            filenames: Vec::new(),
            mix: Mix::Read,
            random: false,
            block_size: [(4096, 4096); 2],
            block_align: [None; 2],
            rwmixread: 50,
            ioengine: "psync".into(),
            sync_engine: true,
            iodepth: 1,
            numjobs: 1,
            size: None,
            io_size: None,
            offset: Amount::Bytes(0),
            offset_increment: Amount::Bytes(0),
            offset_align: 0,
            number_ios: 0,
            loops: 1,
            runtime: 0,
            time_based: false,
            ramp_time: 0,
            startdelay: (0, 0),
            stonewall: false,
            new_group: false,
            group_reporting: false,
            file_service: FileService::RoundRobin(1),
            distribution: Distribution::Uniform,
            norandommap: false,
            randrepeat: true,
            allrandrepeat: false,
            randseed: None,
            rate_iops: [0; 2],
            fsync: 0,
            fdatasync: 0,
            end_fsync: false,
            fsync_on_close: false,
            verify: Verify::None,
            verify_pattern: Vec::new(),
            do_verify: true,
            verify_fatal: false,
            percentiles: vec![
                1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5,
                99.9, 99.95, 99.99,
            ],
            clat_percentiles: true,
            lat_percentiles: false,
            slat_percentiles: false,
            cpus_allowed: Vec::new(),
            cpus_split: false,
            kb_base: 1024,
            lines: BTreeMap::new(),
        }
    }
}

/// An option's value as the parser hands it to the option.
#[derive(Clone, Copy)]
pub struct Arg<'a> {
    /// What follows `=`, trimmed; None without `=`.
    pub text: Option<&'a str>,
    /// `kb_base` in force.
    pub kb_base: u64,
}

impl<'a> Arg<'a> {
    fn text(&self) -> Result<&'a str, String> {
        self.text
            .filter(|text| !text.is_empty())
            .ok_or_else(|| "needs a value".into())
    }

    fn int(&self, min: u64, max: u64) -> Result<u64, String> {
        value::bounded(self.text()?, self.kb_base, min, max)
    }

    fn amount(&self) -> Result<Amount, String> {
        value::amount(self.text()?, self.kb_base)
    }

    /// Bytes that must be whole blocks, or a percentage.
    fn blocks(&self) -> Result<Amount, String> {
        let amount = self.amount()?;
        if let Amount::Bytes(bytes) = amount {
            whole_blocks(bytes)?;
        }
        Ok(amount)
    }

    fn seconds(&self) -> Result<u64, String> {
        value::time(self.text()?, 1_000_000_000)
    }

    fn flag(&self) -> Result<bool, String> {
        value::boolean(self.text, true)
    }

    fn bool(&self) -> Result<bool, String> {
        value::boolean(self.text, false)
    }
}

fn whole_blocks(bytes: u64) -> Result<u64, String> {
    if bytes.is_multiple_of(BLOCK) {
        Ok(bytes)
    } else {
        Err(format!(
            "{bytes} bytes are not a multiple of the LUN's {BLOCK}-byte block{}",
            kib_hint(bytes)
        ))
    }
}

/// `4kib` is 4000 to fio, which surprises most people.
fn kib_hint(bytes: u64) -> &'static str {
    if bytes.is_multiple_of(1000) {
        " (with kb_base=1024 fio takes `k` as 1024 and `kib` as 1000)"
    } else {
        ""
    }
}

type Setter = fn(&mut JobOptions, Arg) -> Result<(), String>;

/// What becomes of an option.
pub enum Support {
    /// It shapes the simulated run.
    Set(Setter),
    /// It concerns a kernel, files or real time alone: listed once as ignored.
    Ignored,
    /// These values ask for nothing that is not so already; any other value is not supported yet.
    Only(&'static [&'static str]),
    /// Not supported yet.
    Refused,
}

/// An option of fio's.
pub struct Opt {
    /// Full name, as fio prints it.
    pub name: &'static str,
    /// The other name fio takes for it.
    pub alias: Option<&'static str>,
    /// What becomes of it.
    pub support: Support,
}

/// The option that fio knows by this name or alias.
pub fn find(name: &str) -> Option<&'static Opt> {
    TABLE
        .iter()
        .find(|opt| opt.name == name || opt.alias == Some(name))
}

/// The known name nearest to a mistyped one, if any is near (edit distance at most a third of its length, at least 1).
pub fn nearest(name: &str) -> Option<&'static str> {
    let limit = (name.len() / 3).max(1);
    TABLE
        .iter()
        .flat_map(|opt| std::iter::once(opt.name).chain(opt.alias))
        .map(|known| (edit_distance(name, known), known))
        .min()
        .filter(|&(distance, _)| distance <= limit)
        .map(|(_, known)| known)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &cb) in b.iter().enumerate() {
            let cost = (diagonal + usize::from(ca != cb))
                .min(row[j] + 1)
                .min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[b.len()]
}

const fn set(name: &'static str, setter: Setter) -> Opt {
    Opt {
        name,
        alias: None,
        support: Support::Set(setter),
    }
}

const fn ignored(name: &'static str) -> Opt {
    Opt {
        name,
        alias: None,
        support: Support::Ignored,
    }
}

const fn only(name: &'static str, values: &'static [&'static str]) -> Opt {
    Opt {
        name,
        alias: None,
        support: Support::Only(values),
    }
}

const fn refused(name: &'static str) -> Opt {
    Opt {
        name,
        alias: None,
        support: Support::Refused,
    }
}

impl Opt {
    const fn alias(self, alias: &'static str) -> Opt {
        Opt {
            alias: Some(alias),
            ..self
        }
    }
}

const ANY: u64 = u64::MAX;

/// Grouped by what they do; within a group in the order of fio's manual.
#[rustfmt::skip]
pub static TABLE: &[Opt] = &[
    // What shapes the run.
    set("name", |o, a| { o.name = Some(a.text()?.into()); Ok(()) }),
    set("description", |o, a| { o.description = Some(a.text()?.into()); Ok(()) }),
    set("filename", |o, a| { o.filenames = filenames(a.text()?)?; Ok(()) }),
    set("rw", rw).alias("readwrite"),
    set("bs", |o, a| block_size(o, a, false)).alias("blocksize"),
    set("bsrange", |o, a| block_size(o, a, true)).alias("blocksize_range"),
    set("ba", block_align).alias("blockalign"),
    set("rwmixread", |o, a| { o.rwmixread = a.int(0, 100)? as u32; Ok(()) }),
    set("rwmixwrite", |o, a| { o.rwmixread = 100 - a.int(0, 100)? as u32; Ok(()) }),
    set("ioengine", ioengine),
    set("iodepth", |o, a| { o.iodepth = a.int(1, 65536)? as u32; Ok(()) }),
    set("numjobs", |o, a| { o.numjobs = a.int(1, 65536)? as u32; Ok(()) }),
    set("size", |o, a| { o.size = Some(positive(a.amount()?)?); Ok(()) }),
    set("io_size", |o, a| { o.io_size = Some(positive(a.amount()?)?); Ok(()) }).alias("io_limit"),
    set("offset", |o, a| { o.offset = a.blocks()?; Ok(()) }).alias("fileoffset"),
    set("offset_increment", |o, a| { o.offset_increment = a.blocks()?; Ok(()) }),
    set("offset_align", |o, a| { o.offset_align = whole_blocks(a.int(0, ANY)?)?; Ok(()) }),
    set("number_ios", |o, a| { o.number_ios = a.int(0, ANY)?; Ok(()) }),
    set("loops", |o, a| { o.loops = a.int(1, u64::from(u32::MAX))? as u32; Ok(()) }),
    set("runtime", |o, a| { o.runtime = a.seconds()?; Ok(()) }).alias("timeout"),
    set("time_based", |o, a| { o.time_based = a.flag()?; Ok(()) }),
    set("ramp_time", |o, a| { o.ramp_time = a.seconds()?; Ok(()) }),
    set("startdelay", |o, a| { o.startdelay = value::range(a.text()?, |one| value::time(one, 1_000_000_000))?; Ok(()) }),
    set("stonewall", |o, a| { o.stonewall = a.flag()?; Ok(()) }).alias("wait_for_previous"),
    set("new_group", |o, a| { o.new_group = a.flag()?; Ok(()) }),
    set("group_reporting", |o, a| { o.group_reporting = a.flag()?; Ok(()) }),
    set("file_service_type", file_service),
    set("random_distribution", distribution),
    set("norandommap", |o, a| { o.norandommap = a.flag()?; Ok(()) }),
    set("randrepeat", |o, a| { o.randrepeat = a.bool()?; Ok(()) }),
    set("allrandrepeat", |o, a| { o.allrandrepeat = a.bool()?; Ok(()) }),
    set("randseed", |o, a| { o.randseed = Some(a.int(0, ANY)?); Ok(()) }),
    set("rate_iops", rate_iops),
    set("fsync", |o, a| { o.fsync = a.int(0, ANY)?; Ok(()) }),
    set("fdatasync", |o, a| { o.fdatasync = a.int(0, ANY)?; Ok(()) }),
    set("end_fsync", |o, a| { o.end_fsync = a.bool()?; Ok(()) }),
    set("fsync_on_close", |o, a| { o.fsync_on_close = a.bool()?; Ok(()) }),
    set("verify", verify),
    set("verify_pattern", |o, a| { o.verify_pattern = pattern(a.text()?)?; Ok(()) }),
    set("do_verify", |o, a| { o.do_verify = a.bool()?; Ok(()) }),
    set("verify_fatal", |o, a| { o.verify_fatal = a.bool()?; Ok(()) }),
    set("percentile_list", percentiles),
    set("clat_percentiles", |o, a| { o.clat_percentiles = a.bool()?; Ok(()) }),
    set("lat_percentiles", |o, a| { o.lat_percentiles = a.bool()?; Ok(()) }),
    set("slat_percentiles", |o, a| { o.slat_percentiles = a.bool()?; Ok(()) }),
    set("cpus_allowed", |o, a| { o.cpus_allowed = value::cpu_list(a.text()?)?; Ok(()) }),
    set("cpus_allowed_policy", cpus_policy),
    set("kb_base", |o, a| { o.kb_base = kb_base(a.text()?)?; Ok(()) }),

    // What concerns a kernel, files or real time alone.
    ignored("lockfile"), ignored("directory"), ignored("unique_filename"), ignored("fallocate"),
    ignored("fadvise_hint"), ignored("openfiles"), ignored("overwrite"), ignored("direct"), ignored("buffered"),
    ignored("sync"), ignored("sync_file_range"), ignored("write_hint"), ignored("invalidate"), ignored("pre_read"),
    ignored("create_serialize"), ignored("create_fsync"), ignored("create_on_open"), ignored("allow_file_create"),
    ignored("allow_mounted_write"), ignored("unlink"), ignored("unlink_each_loop"),
    ignored("ioscheduler"), ignored("prio"), ignored("prioclass"), ignored("nice"), ignored("lockmem"),
    ignored("mem").alias("iomem"), ignored("hugepage-size"), ignored("numa_cpu_nodes"), ignored("numa_mem_policy"),
    ignored("cgroup"), ignored("cgroup_weight"), ignored("cgroup_nodelete"), ignored("uid"), ignored("gid"),
    ignored("thread"), ignored("clocksource"), ignored("gtod_reduce"), ignored("gtod_cpu"), ignored("disable_lat"),
    ignored("disable_clat"), ignored("disable_slat"), ignored("disable_bw_measurement").alias("disable_bw"),
    ignored("bwavgtime"), ignored("iopsavgtime"), ignored("disk_util"), ignored("significant_figures"),
    ignored("unit_base"), ignored("error_dump"), ignored("verify_dump"), ignored("verify_async"),
    ignored("verify_state_save"), ignored("refill_buffers"), ignored("scramble_buffers"),
    ignored("per_job_logs"), ignored("log_entries"), ignored("log_compression"), ignored("log_compression_cpus"),
    ignored("log_store_compressed"), ignored("log_unix_epoch"), ignored("log_alternate_epoch"),
    ignored("log_alternate_epoch_clock_id"), ignored("log_prio"),
    // The same, of the engines that reach a kernel's block layer.
    ignored("hipri"), ignored("hipri_percentage"), ignored("fixedbufs"), ignored("registerfiles"),
    ignored("sqthread_poll"), ignored("sqthread_poll_cpu"), ignored("nonvectored"), ignored("uncached"),
    ignored("nowait"), ignored("force_async"), ignored("userspace_reap"), ignored("cmd_type"), ignored("thp"),
    ignored("cmdprio"), ignored("cmdprio_class"), ignored("cmdprio_percentage"), ignored("cmdprio_bssplit"),

    // Known; only the value that asks for nothing.
    only("iodepth_batch", &["1"]).alias("iodepth_batch_submit"),
    only("iodepth_batch_complete_min", &["1"]).alias("iodepth_batch_complete"),
    only("serialize_overlap", &["0"]), only("io_submit_mode", &["inline"]), only("bs_unaligned", &["0"]).alias("blocksize_unaligned"),
    only("fill_device", &["0"]).alias("fill_fs"), only("file_append", &["0"]), only("nrfiles", &["1"]).alias("nr_files"),
    only("random_generator", &["tausworthe", "tausworthe64"]), only("percentage_random", &["100"]),
    only("rw_sequencer", &["sequential"]), only("atomic", &["0"]), only("write_barrier", &["0"]),
    only("verify_only", &["0"]), only("verify_state_load", &["0"]), only("experimental_verify", &["0"]),
    only("trim_percentage", &["0"]), only("read_iolog_chunked", &["0"]), only("zonemode", &["none"]),
    only("create_only", &["0"]), only("thinktime", &["0"]), only("thinktime_spin", &["0"]),
    only("rate_process", &["linear"]), only("rate_ignore_thinktime", &["0"]), only("latency_run", &["0"]),
    only("exitall", &["0"]), only("exitall_on_error", &["0"]), only("stats", &["1"]), only("zero_buffers", &["0"]),
    only("unified_rw_reporting", &["none", "0"]), only("continue_on_error", &["none"]),
    only("dedupe_percentage", &["0"]), only("dedupe_global", &["0"]), only("buffer_compress_percentage", &["0"]),
    only("block_error_percentiles", &["0"]), only("flow", &["0"]), only("log_max_value", &["0"]),
    only("log_offset", &["0"]), only("ignore_zone_limits", &["0"]), only("read_beyond_wp", &["0"]),
    only("readfua", &["0"]), only("writefua", &["0"]),

    // Known, not supported yet.
    refused("wait_for"), refused("filename_format"), refused("opendir"), refused("bssplit"), refused("ignore_error"),
    refused("iodepth_batch_complete_max"), refused("iodepth_low"), refused("filesize"), refused("verify_interval"),
    refused("verify_offset"), refused("verify_backlog"), refused("verify_backlog_batch"), refused("trim_verify_zero"),
    refused("trim_backlog"), refused("trim_backlog_batch"), refused("write_iolog"), refused("read_iolog"),
    refused("replay_no_stall"), refused("replay_redirect"), refused("replay_scale"), refused("replay_align"),
    refused("replay_time_scale"), refused("replay_skip"), refused("merge_blktrace_file"),
    refused("merge_blktrace_scalars"), refused("merge_blktrace_iters"), refused("exec_prerun"), refused("exec_postrun"),
    refused("zonesize"), refused("zonecapacity"), refused("zonerange"), refused("zoneskip"), refused("max_open_zones"),
    refused("job_max_open_zones"), refused("zone_reset_threshold"), refused("zone_reset_frequency"),
    refused("thinktime_blocks"), refused("thinktime_blocks_type"), refused("thinktime_iotime"), refused("rate"),
    refused("rate_min").alias("ratemin"), refused("rate_cycle").alias("ratecycle"), refused("rate_iops_min"),
    refused("max_latency"), refused("latency_target"), refused("latency_window"), refused("latency_percentile"),
    refused("cpumask"), refused("exit_what"), refused("write_bw_log"), refused("write_lat_log"),
    refused("write_iops_log"), refused("write_hist_log"), refused("log_avg_msec"), refused("log_hist_msec"),
    refused("log_hist_coarseness"), refused("buffer_pattern"), refused("buffer_compress_chunk"), refused("dedupe_mode"),
    refused("dedupe_working_set_percentage"), refused("profile"), refused("flow_id"), refused("flow_sleep"),
    refused("steadystate").alias("ss"), refused("steadystate_duration").alias("ss_dur"),
    refused("steadystate_ramp_time").alias("ss_ramp"),
    // The same, of engines that are not a block device's.
    refused("arguments"), refused("bindname"), refused("brick"), refused("busy_poll"), refused("clientname"),
    refused("clustername"), refused("conf"), refused("cpuchunks"), refused("cpuload"), refused("cpumode"),
    refused("donorname"), refused("exit_on_io_done"), refused("grace_time"), refused("hostname"), refused("inplace"),
    refused("interface"), refused("listen"), refused("mss"), refused("nodelay"), refused("pingpong"), refused("pool"),
    refused("port"), refused("program"), refused("protocol"), refused("rbdname"), refused("sg_write_mode"),
    refused("single-instance"), refused("skip_bad"), refused("stat_type"), refused("std_redirect"),
    refused("stream_id"), refused("touch_objects"), refused("ttl"), refused("uri"), refused("verb"), refused("volume"),
    refused("window_size"),
];
