//! What to do about a late command: ask the card before aborting.
//!
//! A command that a Weir card has parked is late for a good reason, and aborting it would only add work. Its LUN's
//! statistics tell parked from stuck: as long as the LUN, or, while it holds no tag, any LUN, completes commands, the
//! late one waits its turn.

use crate::commands::Admin;
use crate::controller::Controller;
use crate::error::Error;
use crate::pci::Pci;
use crate::request::Outstanding;
use std::collections::HashMap;
use weir_nvme::log::LunStatistics;

/// What [`Controller::inquire`] found, and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits its turn on the card, which makes progress: leave it.
    Waiting(LunStatistics),
    /// The controller was asked to abort it and did; its completion comes.
    Aborted,
    /// The controller was asked to abort it and could not: when it stays late, reset the controller.
    NotAborted,
}

/// What was seen at the last inquiry, by LUN. Keep one for each controller.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    seen: HashMap<u32, LunStatistics>,
}

impl Watch {
    /// Notes `now` for `lun`; true when commands completed or were admitted since last time, or there was none.
    fn progress(&mut self, lun: u32, now: LunStatistics) -> bool {
        let before = self.seen.insert(lun, now);
        before.is_none_or(|before| {
            before.completed != now.completed || before.admitted != now.admitted
        })
    }
}

impl<P: Pci> Controller<P> {
    /// Decides about a command that is late: leaves it when the card says that it waits its turn, else aborts it. The
    /// first inquiry about a LUN only looks. An error says that the controller itself has a problem.
    pub fn inquire(&mut self, late: &Outstanding, watch: &mut Watch) -> Result<Verdict, Error> {
        self.check()?;
        if self.is_weir() {
            let statistics = self.lun_statistics(late.lun)?;
            let mut progress = watch.progress(late.lun, statistics);
            if !progress && statistics.parked > 0 && statistics.in_flight == 0 {
                // It holds no tag: others may hold them all.
                let others: Vec<u32> = self
                    .luns
                    .iter()
                    .map(|lun| lun.index)
                    .filter(|&lun| lun != late.lun)
                    .collect();
                for lun in others {
                    let now = self.lun_statistics(lun)?;
                    progress |= watch.progress(lun, now);
                }
            }
            if progress {
                return Ok(Verdict::Waiting(statistics));
            }
        }
        Ok(if self.abort(late.sqid, late.cid)? {
            Verdict::Aborted
        } else {
            Verdict::NotAborted
        })
    }
}
