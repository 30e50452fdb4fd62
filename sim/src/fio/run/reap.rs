//! The engine's other half: completions, what they count for, and the results.

use super::super::device::{Completion, Device};
use super::super::generator::Op;
use super::super::options::Mix;
use super::super::results::{FailedIo, InstanceResult, LunResult, LunSample, Results};
use super::super::stats::{DirectionStats, Stats};
use super::{Engine, Flight};
use crate::pattern::BLOCK;

/// Mismatches, and I/Os that failed, kept with their details.
const KEPT: usize = 16;

impl Engine<'_> {
    /// A pass or a verification ends: its time counts for the directions it used, as fio's update_runtime does.
    pub(super) fn account_runtime(&mut self, index: usize, now: u64) {
        let mix = self.plan.instances[index].options.mix;
        let job = &mut self.jobs[index];
        let elapsed = now.saturating_sub(job.mark_ns);
        let Stats { read, write, .. } = &mut job.stats;
        if job.verifying || mix != Mix::Write {
            read.runtime_ns += elapsed;
        }
        if !job.verifying && mix != Mix::Read {
            write.runtime_ns += elapsed;
        }
        job.verifying = job.generator.verifying();
        job.mark_ns = now.max(job.measured_from);
    }

    /// A completion is seen by a CPU.
    pub(super) fn reap(&mut self, completion: Completion<'_>, now: u64) {
        let Some(command) = self.commands.try_remove(completion.id as usize) else {
            self.unknown = Some(completion.id);
            return;
        };
        let Some(flight) = self.flights.get_mut(command.flight) else {
            return;
        };
        flight.commands -= 1;
        let io = flight.io;
        let instance = flight.instance;
        let ok = completion.status == 0;
        if !ok {
            flight.failed = true;
            if self.failures.len() < KEPT {
                self.failures.push(FailedIo {
                    job: self.plan.instances[instance].name.clone(),
                    io,
                    status: completion.status,
                    at_ns: now - self.origin_ns,
                });
            }
        }
        let mut outcome = Ok(());
        if let Some(token) = &command.token {
            match (io.op, ok) {
                (Op::Read, true) => outcome = self.shadow.check(token, completion.data),
                (Op::Read, false) => self.shadow.read_failed(token),
                _ => self.shadow.wrote(token, ok),
            }
        }
        flight.wrong |= outcome.is_err();
        self.luns[io.lun as usize].in_flight -= 1;
        if let Err(wrong) = outcome {
            self.jobs[instance].stats.mismatches += wrong.blocks;
            self.luns[io.lun as usize].stats.mismatches += wrong.blocks;
            if self.mismatches.len() < KEPT {
                self.mismatches.push(wrong.first);
            }
        }
        if flight.commands == 0
            && flight.submitted == flight.total()
            && let Some(flight) = self.flights.try_remove(command.flight)
        {
            self.finish(&flight, now);
        }
    }

    /// The last command of an I/O has completed.
    pub(super) fn finish(&mut self, flight: &Flight, now: u64) {
        let (io, plan) = (flight.io, &self.plan.instances[flight.instance]);
        self.completed += 1;
        let job = &mut self.jobs[flight.instance];
        job.generator.complete();
        self.cpus[plan.cpu as usize].active = true;
        if flight.failed || (flight.wrong && plan.options.verify_fatal) {
            // fio ends a job at an I/O error, and with verify_fatal at the first wrong block.
            job.generator.abort();
        }
        if flight.failed {
            // In the ramp, too: an error is never left out.
            for stats in [&mut job.stats, &mut self.luns[io.lun as usize].stats] {
                direction(stats, io.op).errors += 1;
            }
        }
        if now < job.measured_from || flight.failed {
            return;
        }
        let bytes = u64::from(io.blocks) * BLOCK as u64;
        let lun = &mut self.luns[io.lun as usize];
        lun.first_ns
            .get_or_insert(flight.start_ns.max(job.measured_from));
        lun.last_ns = now;
        for stats in [&mut job.stats, &mut lun.stats] {
            direction(stats, io.op).add(
                bytes,
                flight.start_ns,
                flight.issue_ns,
                now,
                self.origin_ns,
            );
            if io.op != Op::Flush {
                stats.mark_latency(now - flight.issue_ns.min(now));
            }
            if io.op == Op::Read && !flight.wrong {
                stats.checked_bytes += bytes;
                stats.verified_bytes += if io.verify { bytes } else { 0 };
            }
        }
    }

    /// Keeps LUN samples for the plots, at most 512 of them: the period doubles when there are more.
    pub(super) fn sample<D: Device + ?Sized>(&mut self, device: &mut D, now: u64) {
        if now < self.next_sample_ns {
            return;
        }
        for (number, lun) in self.luns.iter_mut().enumerate() {
            let (executing, depth) = device.sample(number as u32).unzip();
            lun.samples.push(LunSample {
                at_ns: now - self.origin_ns,
                outstanding: lun.in_flight,
                executing,
                depth,
            });
        }
        if self
            .luns
            .first()
            .is_some_and(|lun| lun.samples.len() >= 512)
        {
            self.sample_ns *= 2;
            for lun in &mut self.luns {
                let mut keep = false;
                lun.samples.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
        }
        self.next_sample_ns = now + self.sample_ns;
    }

    pub(super) fn results(self, now: u64) -> Results {
        let luns = self
            .luns
            .into_iter()
            .zip(&self.plan.luns)
            .map(|(lun, plan)| {
                let mut stats = lun.stats;
                let runtime = lun.last_ns - lun.first_ns.unwrap_or(lun.last_ns);
                for direction in [&mut stats.read, &mut stats.write, &mut stats.flush] {
                    direction.runtime_ns = if direction.ios > 0 { runtime } else { 0 };
                }
                LunResult {
                    filename: plan.filename.clone(),
                    blocks: plan.blocks,
                    stats,
                    peak_outstanding: lun.peak,
                    samples: lun.samples,
                    card: None,
                }
            })
            .collect();
        let instances = self
            .jobs
            .into_iter()
            .map(|job| InstanceResult {
                started: job.started,
                elapsed_ns: job.end_ns.saturating_sub(self.origin_ns),
                stats: job.stats,
            })
            .collect();
        let elapsed_ns = now - self.origin_ns;
        let cpu_busy = self
            .cpus
            .iter()
            .map(|cpu| cpu.busy_ns as f64 / elapsed_ns.max(1) as f64)
            .collect();
        Results {
            instances,
            luns,
            elapsed_ns,
            cpu_busy: if self.options.cpu_ns > 0 {
                cpu_busy
            } else {
                Vec::new()
            },
            mismatches: self.mismatches,
            failures: self.failures,
            events_left: self.events.len(),
            ios_reached: self.stopped,
        }
    }
}

/// An operation's part of the statistics.
fn direction(stats: &mut Stats, op: Op) -> &mut DirectionStats {
    match op {
        Op::Read => &mut stats.read,
        Op::Write => &mut stats.write,
        Op::Flush => &mut stats.flush,
    }
}
