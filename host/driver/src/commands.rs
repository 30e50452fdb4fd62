//! [`Admin`]: the admin commands, whoever executes them; and those that need a [`Controller`]: Abort, events.

use crate::controller::Controller;
use crate::error::Error;
use crate::info::Info;
use crate::lun::Lun;
use crate::pci::Pci;
use weir_nvme::command::{
    AbortCdw10, GetFeaturesCdw10, GetLogPageCdw10, IdentifyCdw10, SetFeaturesCdw10,
};
use weir_nvme::feature::{
    Fairness, FeatureId, InterruptCoalescing, InterruptVectorConfig, LunBudget, NumberOfQueues,
    TagSet,
};
use weir_nvme::identify::{Cns, IDENTIFY_SIZE};
use weir_nvme::log::{AsyncEvent, ErrorEntry, FirmwareSlotLog, LogPage, LunStatistics, SmartLog};
use weir_nvme::{AdminOpcode, Command, NSID_ALL, PAGE_SIZE};
use zerocopy::{FromZeros, IntoBytes};

/// What executes admin commands on a controller that is up: our own [`Controller`], or the driver that has it. With that
/// come the commands themselves: Identify, features, log pages, and what a Weir card can do beyond NVMe.
pub trait Admin {
    /// Executes `command`, named `name` in errors; returns dword 0 of its completion. `data`, at most 4096 bytes, is
    /// filled with what the controller writes, wherever the command's PRP1 points; empty for a command that moves none.
    fn execute(
        &mut self,
        name: &'static str,
        command: Command,
        data: &mut [u8],
    ) -> Result<u32, Error>;

    /// What Identify Controller says.
    fn info(&self) -> &Info;

    /// The LUNs, ascending by number.
    fn luns(&self) -> &[Lun];

    /// The LUN of number `index`.
    fn lun(&self, index: u32) -> Result<&Lun, Error> {
        self.luns()
            .iter()
            .find(|lun| lun.index == index)
            .ok_or(Error::NoSuchLun(index))
    }

    /// Identify (section 5.15): the structure `cns` of `nsid`.
    fn identify(&mut self, cns: Cns, nsid: u32) -> Result<[u8; IDENTIFY_SIZE], Error> {
        let mut data = [0; IDENTIFY_SIZE];
        let cdw10 = IdentifyCdw10::new().with_cns(cns.0).into();
        self.execute(
            "Identify",
            Command {
                nsid,
                cdw10,
                ..Command::admin(AdminOpcode::IDENTIFY)
            },
            &mut data,
        )?;
        Ok(data)
    }

    /// Set Features (section 5.21), not saved: returns dword 0 of the completion.
    fn set_feature(&mut self, feature: FeatureId, nsid: u32, value: u32) -> Result<u32, Error> {
        let cdw10 = SetFeaturesCdw10::new().with_fid(feature.0).into();
        let command = Command {
            nsid,
            cdw10,
            cdw11: value,
            ..Command::admin(AdminOpcode::SET_FEATURES)
        };
        self.execute("Set Features", command, &mut [])
    }

    /// Get Features (section 5.13): the current value, or dword 11 as `cdw11` asks.
    fn get_feature(&mut self, feature: FeatureId, nsid: u32, cdw11: u32) -> Result<u32, Error> {
        let cdw10 = GetFeaturesCdw10::new().with_fid(feature.0).into();
        let command = Command {
            nsid,
            cdw10,
            cdw11,
            ..Command::admin(AdminOpcode::GET_FEATURES)
        };
        self.execute("Get Features", command, &mut [])
    }

    /// Get Log Page (section 5.14): fills `data`, a multiple of 4 and at most 4096 bytes, from the start of `page`.
    fn log_page(&mut self, page: LogPage, nsid: u32, data: &mut [u8]) -> Result<(), Error> {
        if data.is_empty() || !data.len().is_multiple_of(4) || data.len() > PAGE_SIZE {
            let want = "a multiple of 4 from 4 to 4096".to_owned();
            return Err(Error::Invalid {
                what: "bytes of a log page",
                value: data.len() as u64,
                want,
            });
        }
        let cdw10 = GetLogPageCdw10::new()
            .with_lid(page.0)
            .with_numdl((data.len() / 4 - 1) as u16)
            .into();
        let command = Command {
            nsid,
            cdw10,
            ..Command::admin(AdminOpcode::GET_LOG_PAGE)
        };
        self.execute("Get Log Page", command, data)?;
        Ok(())
    }

    /// Budget of `lun`: its depth and weight.
    fn budget(&mut self, lun: u32) -> Result<LunBudget, Error> {
        let nsid = weir_lun(self, lun, "the LUN budget")?;
        Ok(LunBudget::from(self.get_feature(
            FeatureId::LUN_BUDGET,
            nsid,
            0,
        )?))
    }

    /// Sets the budget of `lun`, or of all LUNs with `None`. A shrink cancels nothing.
    fn set_budget(&mut self, lun: Option<u32>, depth: u16, weight: u16) -> Result<(), Error> {
        let nsid = match lun {
            Some(lun) => weir_lun(self, lun, "the LUN budget")?,
            None => weir(self, "the LUN budget").map(|_| NSID_ALL)?,
        };
        tags_range(self, "depth", depth)?;
        if weight == 0 {
            return Err(Error::Invalid {
                what: "weight",
                value: 0,
                want: "1 to 65535".to_owned(),
            });
        }
        let budget = LunBudget::new().with_depth(depth).with_weight(weight);
        self.set_feature(FeatureId::LUN_BUDGET, nsid, budget.into())?;
        Ok(())
    }

    /// Sets how many commands of `lun` may execute at once, 1 to the card's tags.
    fn set_depth(&mut self, lun: u32, depth: u16) -> Result<(), Error> {
        let weight = self.budget(lun)?.weight();
        self.set_budget(Some(lun), depth, weight)
    }

    /// Sets the weight of `lun` under the weighted rule, from 1.
    fn set_weight(&mut self, lun: u32, weight: u16) -> Result<(), Error> {
        let depth = self.budget(lun)?.depth();
        self.set_budget(Some(lun), depth, weight)
    }

    /// The tags in use and how LUNs share them.
    fn tags(&mut self) -> Result<(u16, Fairness), Error> {
        weir(self, "the tag set")?;
        let tags = TagSet::from(self.get_feature(FeatureId::TAG_SET, 0, 0)?);
        Ok((tags.depth(), Fairness(tags.fairness())))
    }

    /// Sets how many commands of all LUNs may execute at once, 1 to the card's tags, and how LUNs share them.
    fn set_tags(&mut self, depth: u16, fairness: Fairness) -> Result<(), Error> {
        let weir = weir(self, "the tag set")?;
        tags_range(self, "tag depth", depth)?;
        if !weir.has(fairness) {
            let want = format!("a bit set in {:#05b}", weir.fairness);
            return Err(Error::Invalid {
                what: "fairness rule",
                value: fairness.0.into(),
                want,
            });
        }
        let tags = TagSet::new().with_depth(depth).with_fairness(fairness.0);
        self.set_feature(FeatureId::TAG_SET, 0, tags.into())?;
        Ok(())
    }

    /// What `lun` did since the card was reset: one consistent snapshot.
    fn lun_statistics(&mut self, lun: u32) -> Result<LunStatistics, Error> {
        let nsid = weir_lun(self, lun, "LUN statistics")?;
        let mut statistics = LunStatistics::default();
        self.log_page(LogPage::LUN_STATISTICS, nsid, statistics.as_mut_bytes())?;
        Ok(statistics)
    }

    /// The error log, newest first, unused entries left out; at most 64 of them.
    fn error_log(&mut self) -> Result<Vec<ErrorEntry>, Error> {
        let count = self
            .info()
            .error_log_entries
            .min(PAGE_SIZE / size_of::<ErrorEntry>());
        let mut entries = vec![ErrorEntry::default(); count];
        self.log_page(LogPage::ERROR, NSID_ALL, entries.as_mut_bytes())?;
        entries.retain(|entry| entry.error_count != 0);
        Ok(entries)
    }

    /// The SMART / Health Information log.
    fn smart_log(&mut self) -> Result<SmartLog, Error> {
        let mut log = SmartLog::new_zeroed();
        self.log_page(LogPage::SMART, NSID_ALL, log.as_mut_bytes())?;
        Ok(log)
    }

    /// The Firmware Slot Information log.
    fn firmware_log(&mut self) -> Result<FirmwareSlotLog, Error> {
        let mut log = FirmwareSlotLog::new_zeroed();
        self.log_page(LogPage::FIRMWARE_SLOT, NSID_ALL, log.as_mut_bytes())?;
        Ok(log)
    }

    /// Interrupt coalescing for all I/O vectors: an interrupt after `completions` (1 to 256) completions, or `time_100us`
    /// times 100 us; 0 is no delay.
    fn set_coalescing(&mut self, completions: u16, time_100us: u8) -> Result<(), Error> {
        let Ok(thr) = u8::try_from(completions.wrapping_sub(1)) else {
            let want = "1 to 256".to_owned();
            return Err(Error::Invalid {
                what: "completions an interrupt",
                value: completions.into(),
                want,
            });
        };
        let value = InterruptCoalescing::new()
            .with_thr(thr)
            .with_time(time_100us);
        self.set_feature(FeatureId::INTERRUPT_COALESCING, 0, value.into())?;
        Ok(())
    }

    /// Whether `vector` is exempt from coalescing.
    fn set_vector_coalescing(&mut self, vector: u16, exempt: bool) -> Result<(), Error> {
        let value = InterruptVectorConfig::new().with_iv(vector).with_cd(exempt);
        self.set_feature(FeatureId::INTERRUPT_VECTOR_CONFIG, 0, value.into())?;
        Ok(())
    }
}

impl<P: Pci> Admin for Controller<P> {
    fn execute(
        &mut self,
        name: &'static str,
        command: Command,
        data: &mut [u8],
    ) -> Result<u32, Error> {
        self.need_enabled()?;
        if data.is_empty() {
            self.admin.execute(name, command)
        } else {
            self.admin.read(name, command, data)
        }
    }

    fn info(&self) -> &Info {
        &self.info
    }

    fn luns(&self) -> &[Lun] {
        &self.luns
    }
}

impl<P: Pci> Controller<P> {
    /// Asks for `count` I/O queue pairs; returns the submission and completion queues granted.
    pub(crate) fn ask_for_queues(&mut self, count: u16) -> Result<(u16, u16), Error> {
        let n = count.clamp(1, 0xFFFE) - 1;
        let wish = NumberOfQueues::new().with_nsq(n).with_ncq(n);
        let got =
            NumberOfQueues::from(self.set_feature(FeatureId::NUMBER_OF_QUEUES, 0, wish.into())?);
        Ok((got.nsq().min(0xFFFE) + 1, got.ncq().min(0xFFFE) + 1))
    }

    /// Abort (section 5.1) of command `cid` of submission queue `sqid`: true when the controller aborted it. Its
    /// completion comes on its queue either way.
    pub fn abort(&mut self, sqid: u16, cid: u16) -> Result<bool, Error> {
        self.need_enabled()?;
        let cdw10 = AbortCdw10::new().with_sqid(sqid).with_cid(cid).into();
        let result = self.admin.execute(
            "Abort",
            Command {
                cdw10,
                ..Command::admin(AdminOpcode::ABORT)
            },
        )?;
        Ok(result & 1 == 0)
    }

    /// The next asynchronous event, when there is one. To hear of another event of its type, read its log page.
    pub fn next_event(&mut self) -> Result<Option<AsyncEvent>, Error> {
        self.need_enabled()?;
        let event = self.admin.next_event()?;
        if event.is_some() {
            self.admin.request_events(self.event_requests());
        }
        Ok(event)
    }
}

fn weir(
    admin: &(impl Admin + ?Sized),
    what: &'static str,
) -> Result<weir_nvme::weir::WeirIdentity, Error> {
    admin.info().weir.ok_or(Error::Unsupported(what))
}

fn weir_lun(admin: &(impl Admin + ?Sized), lun: u32, what: &'static str) -> Result<u32, Error> {
    weir(admin, what)?;
    Ok(admin.lun(lun)?.nsid)
}

fn tags_range(admin: &(impl Admin + ?Sized), what: &'static str, depth: u16) -> Result<(), Error> {
    let tags = admin.info().weir.map_or(0, |weir| weir.tags);
    if depth == 0 || u32::from(depth) > tags {
        return Err(Error::Invalid {
            what,
            value: depth.into(),
            want: format!("1 to {tags}"),
        });
    }
    Ok(())
}
