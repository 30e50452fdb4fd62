//! fio jobs on the whole card, measured while they are in full swing, and the question whether the trouble that a scenario
//! is about was there at all.

use verilator_sys::Model;
use weir_card::config::CardConfig;
use weir_sim::fio::{self, LunCardStats, PlanOptions};
use weir_sim::model::{ModelOptions, instance};
use weir_sim::run::{self, Outcome, Settings};

/// What holds a command on the card.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// Its LUN's depth.
    Depth,
    /// No tag is free.
    Tags,
    /// The fairness rule.
    Share,
}

/// Commands that the card's statistics log says were held by this `trouble`. Fails as 'not exercised' when fewer than
/// `least` were: then the scenario has shown nothing.
pub fn exercised<'a>(
    what: &str,
    trouble: Trouble,
    least: u64,
    luns: impl IntoIterator<Item = &'a LunCardStats>,
) {
    let deferred = |lun: &LunCardStats| match trouble {
        Trouble::Depth => lun.deferred_depth,
        Trouble::Tags => lun.deferred_tags,
        Trouble::Share => lun.deferred_share,
    };
    let count: u64 = luns.into_iter().map(deferred).sum();
    assert!(
        count >= least,
        "{what}: not exercised: {count} commands deferred for {trouble:?}, at least {least} must be"
    );
}

/// A card to run jobs on.
pub struct Card {
    pub config: CardConfig,
    model: Model,
}

/// How a job is run on it.
#[derive(Clone, Copy)]
pub struct Load {
    /// CPUs, each with a queue.
    pub cpus: u32,
    /// Simulated time of the jobs, ns.
    pub time_ns: u64,
    pub seed: u64,
}

impl Card {
    pub fn new(config: CardConfig, options: ModelOptions) -> Card {
        let model = super::model(&config, options);
        Card { config, model }
    }

    /// Runs `job` until its last I/O has completed; panics when the card hangs or a byte is wrong.
    pub fn run(
        &self,
        what: &str,
        job: &str,
        load: Load,
        change: impl FnOnce(&mut Settings),
    ) -> Ran {
        let time_ns = load.time_ns;
        let outcome = self.outcome(what, job, load, change);
        let (problems, wrong) = (&outcome.problems, &outcome.results.mismatches);
        assert!(outcome.is_good(), "{what}: {problems:?} {wrong:?}");
        let ran = Ran { outcome, time_ns };
        for (n, lun) in ran.luns().enumerate() {
            let left = (lun.in_flight, lun.parked, lun.admitted - lun.completed);
            assert_eq!(left, (0, 0, 0), "{what}: LUN {n} holds commands");
        }
        ran
    }

    /// Runs `job`, whether or not what comes of it is right; panics when the card hangs.
    pub fn outcome(
        &self,
        what: &str,
        job: &str,
        load: Load,
        change: impl FnOnce(&mut Settings),
    ) -> Outcome {
        let file = fio::parse(what, job).unwrap_or_else(|e| panic!("{e}"));
        let options = PlanOptions {
            seed: load.seed,
            time_ns: Some(load.time_ns),
            lun_bytes: Some(1 << 20),
            ..PlanOptions::default()
        };
        let plan = run::plan(&file, Some(load.cpus), self.config.queues, &options);
        let plan = plan.unwrap_or_else(|e| panic!("{e}"));
        let mut settings = Settings::new(&self.config);
        change(&mut settings);
        let card = Box::new(instance(&self.model, load.seed).unwrap());
        run::run(card, &self.config, plan, &settings, None, &mut |_| ())
            .unwrap_or_else(|e| panic!("{what}, seed {}: {e}", load.seed))
    }
}

/// A job's end.
pub struct Ran {
    pub outcome: Outcome,
    time_ns: u64,
}

impl Ran {
    /// The card's statistics, LUN by LUN.
    pub fn luns(&self) -> impl Iterator<Item = &LunCardStats> {
        self.outcome.results.luns.iter().flat_map(|lun| &lun.card)
    }

    /// I/Os a simulated second in the last three quarters of the jobs' time, when queues have filled and none ends yet.
    fn rate(&self, stats: &fio::stats::Stats) -> f64 {
        let (from, to) = (self.time_ns / 4, self.time_ns);
        let mut ios = 0;
        let mut ns = 0;
        for direction in [&stats.read, &stats.write] {
            let series = &direction.series;
            let (first, last) = (from / series.bucket_ns, to / series.bucket_ns);
            let inside = series.buckets.iter().take(last as usize);
            ios += inside.skip(first as usize).map(|b| b.0).sum::<u64>();
            ns = ns.max((last - first) * series.bucket_ns);
        }
        ios as f64 * 1e9 / ns.max(1) as f64
    }

    /// I/Os a simulated second of all LUNs.
    pub fn iops(&self) -> f64 {
        self.rate(&self.outcome.results.total())
    }

    /// The same of each LUN.
    pub fn iops_by_lun(&self) -> Vec<f64> {
        let luns = &self.outcome.results.luns;
        luns.iter().map(|lun| self.rate(&lun.stats)).collect()
    }

    /// The same of each job instance.
    pub fn iops_by_job(&self) -> Vec<f64> {
        let jobs = &self.outcome.results.instances;
        jobs.iter().map(|job| self.rate(&job.stats)).collect()
    }
}

/// The largest over the smallest.
pub fn spread(values: &[f64]) -> f64 {
    let most = values.iter().fold(0.0, |a: f64, b| a.max(*b));
    let least = values.iter().fold(f64::INFINITY, |a, b| a.min(*b));
    most / least
}

/// Jain's index: 1 when all have alike, 1/n when one has all.
pub fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = values
        .iter()
        .fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
    sum * sum / (values.len() as f64 * squares)
}

/// A job file of reads of `bytes`: a section a LUN, each with `(LUN, jobs, iodepth)`.
pub fn readers(bytes: u32, sections: impl IntoIterator<Item = (u32, u32, u32)>) -> String {
    let mut text = format!(
        "[global]\nioengine=libaio\ndirect=1\nrw=randread\nnorandommap\nbs={bytes}\nsize=1m\nruntime=60\ntime_based\n"
    );
    for (lun, jobs, depth) in sections {
        text += &format!("[lun{lun}]\nfilename=lun{lun}\nnumjobs={jobs}\niodepth={depth}\n");
    }
    text
}
