//! The admin commands of a [`Controller`]: Identify, features, log pages, Abort, events.

use crate::controller::Controller;
use crate::error::Error;
use crate::lun::Lun;
use crate::pci::Pci;
use weir_nvme::command::{
    AbortCdw10, GetFeaturesCdw10, GetLogPageCdw10, IdentifyCdw10, SetFeaturesCdw10,
};
use weir_nvme::feature::{
    Fairness, FeatureId, InterruptCoalescing, InterruptVectorConfig, LunBudget, NumberOfQueues,
    TagSet,
};
use weir_nvme::identify::{
    Cns, DescriptorHeader, IDENTIFY_SIZE, IdentifyController, IdentifyNamespace,
};
use weir_nvme::identify::{NAMESPACE_LIST_LEN, NIDT_NGUID, NIDT_UUID};
use weir_nvme::log::{AsyncEvent, ErrorEntry, FirmwareSlotLog, LogPage, LunStatistics, SmartLog};
use weir_nvme::{AdminOpcode, Command, NSID_ALL, PAGE_SIZE, lun_of_nsid};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The highest LUN number this driver takes, so that a table by LUN stays small.
const MAX_LUN: u32 = 65535;

impl<P: Pci> Controller<P> {
    /// Identify (section 5.15): the structure `cns` of `nsid`.
    pub fn identify(&mut self, cns: Cns, nsid: u32) -> Result<[u8; IDENTIFY_SIZE], Error> {
        self.need_enabled()?;
        let mut data = [0; IDENTIFY_SIZE];
        let cdw10 = IdentifyCdw10::new().with_cns(cns.0).into();
        self.admin.read(
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

    pub(crate) fn identify_controller(&mut self) -> Result<IdentifyController, Error> {
        Ok(zerocopy::transmute!(self.identify(Cns::CONTROLLER, 0)?))
    }

    /// Finds the LUNs: the active namespaces whose format this driver can use.
    pub(crate) fn discover(&mut self) -> Result<Vec<Lun>, Error> {
        let mut luns: Vec<Lun> = Vec::new();
        loop {
            let after = luns.last().map_or(0, |lun| lun.nsid);
            let list = self.identify(Cns::ACTIVE_NAMESPACES, after)?;
            let entries = list
                .chunks_exact(4)
                .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            let nsids: Vec<u32> = entries.take_while(|&nsid| nsid != 0).collect();
            for &nsid in &nsids {
                let ascending = luns.last().is_none_or(|last| last.nsid < nsid);
                let index = lun_of_nsid(nsid).filter(|&lun| lun <= MAX_LUN && ascending);
                let index = index.ok_or(Error::Capability {
                    what: "an NSID in the Active Namespace list",
                    found: nsid.into(),
                    want: "above the one before and at most 65536",
                })?;
                luns.push(self.identify_lun(index, nsid)?);
            }
            if nsids.len() < NAMESPACE_LIST_LEN {
                return Ok(luns);
            }
        }
    }

    fn identify_lun(&mut self, index: u32, nsid: u32) -> Result<Lun, Error> {
        let namespace: IdentifyNamespace =
            zerocopy::transmute!(self.identify(Cns::NAMESPACE, nsid)?);
        let format = namespace.format();
        if !(9..=16).contains(&format.lbads) {
            let (found, want) = (
                format.lbads.into(),
                "9 to 16: blocks of 512 bytes to 64 KiB",
            );
            return Err(Error::Capability {
                what: "LBADS",
                found,
                want,
            });
        }
        if format.ms != 0 {
            return Err(Error::Capability {
                what: "MS",
                found: format.ms.into(),
                want: "0: no metadata",
            });
        }
        // Controllers before revision 1.3 lack the descriptors.
        let id = match self.identify(Cns::NAMESPACE_DESCRIPTORS, nsid) {
            Ok(list) => descriptor(&list),
            Err(Error::Command { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Lun {
            index,
            nsid,
            blocks: namespace.nsze,
            block_shift: format.lbads,
            id,
        })
    }

    /// Set Features (section 5.21), not saved: returns dword 0 of the completion.
    pub fn set_feature(&mut self, feature: FeatureId, nsid: u32, value: u32) -> Result<u32, Error> {
        self.need_enabled()?;
        let cdw10 = SetFeaturesCdw10::new().with_fid(feature.0).into();
        let command = Command {
            nsid,
            cdw10,
            cdw11: value,
            ..Command::admin(AdminOpcode::SET_FEATURES)
        };
        self.admin.execute("Set Features", command)
    }

    /// Get Features (section 5.13): the current value, or dword 11 as `cdw11` asks.
    pub fn get_feature(&mut self, feature: FeatureId, nsid: u32, cdw11: u32) -> Result<u32, Error> {
        self.need_enabled()?;
        let cdw10 = GetFeaturesCdw10::new().with_fid(feature.0).into();
        let command = Command {
            nsid,
            cdw10,
            cdw11,
            ..Command::admin(AdminOpcode::GET_FEATURES)
        };
        self.admin.execute("Get Features", command)
    }

    /// Get Log Page (section 5.14): fills `data`, a multiple of 4 and at most 4096 bytes, from the start of `page`.
    pub fn log_page(&mut self, page: LogPage, nsid: u32, data: &mut [u8]) -> Result<(), Error> {
        self.need_enabled()?;
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
        self.admin.read("Get Log Page", command, data)?;
        Ok(())
    }

    /// Asks for `count` I/O queue pairs; returns the submission and completion queues granted.
    pub(crate) fn ask_for_queues(&mut self, count: u16) -> Result<(u16, u16), Error> {
        let n = count.clamp(1, 0xFFFE) - 1;
        let wish = NumberOfQueues::new().with_nsq(n).with_ncq(n);
        let got =
            NumberOfQueues::from(self.set_feature(FeatureId::NUMBER_OF_QUEUES, 0, wish.into())?);
        Ok((got.nsq().min(0xFFFE) + 1, got.ncq().min(0xFFFE) + 1))
    }

    /// Budget of `lun`: its depth and weight.
    pub fn budget(&mut self, lun: u32) -> Result<LunBudget, Error> {
        let nsid = self.weir_lun(lun, "the LUN budget")?;
        Ok(LunBudget::from(self.get_feature(
            FeatureId::LUN_BUDGET,
            nsid,
            0,
        )?))
    }

    /// Sets the budget of `lun`, or of all LUNs with `None`. A shrink cancels nothing.
    pub fn set_budget(&mut self, lun: Option<u32>, depth: u16, weight: u16) -> Result<(), Error> {
        let nsid = match lun {
            Some(lun) => self.weir_lun(lun, "the LUN budget")?,
            None => self.weir("the LUN budget").map(|_| NSID_ALL)?,
        };
        self.tags_range("depth", depth)?;
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
    pub fn set_depth(&mut self, lun: u32, depth: u16) -> Result<(), Error> {
        let weight = self.budget(lun)?.weight();
        self.set_budget(Some(lun), depth, weight)
    }

    /// Sets the weight of `lun` under the weighted rule, from 1.
    pub fn set_weight(&mut self, lun: u32, weight: u16) -> Result<(), Error> {
        let depth = self.budget(lun)?.depth();
        self.set_budget(Some(lun), depth, weight)
    }

    /// The tags in use and how LUNs share them.
    pub fn tags(&mut self) -> Result<(u16, Fairness), Error> {
        self.weir("the tag set")?;
        let tags = TagSet::from(self.get_feature(FeatureId::TAG_SET, 0, 0)?);
        Ok((tags.depth(), Fairness(tags.fairness())))
    }

    /// Sets how many commands of all LUNs may execute at once, 1 to the card's tags, and how LUNs share them.
    pub fn set_tags(&mut self, depth: u16, fairness: Fairness) -> Result<(), Error> {
        let weir = self.weir("the tag set")?;
        self.tags_range("tag depth", depth)?;
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
    pub fn lun_statistics(&mut self, lun: u32) -> Result<LunStatistics, Error> {
        let nsid = self.weir_lun(lun, "LUN statistics")?;
        let mut statistics = LunStatistics::default();
        self.log_page(LogPage::LUN_STATISTICS, nsid, statistics.as_mut_bytes())?;
        Ok(statistics)
    }

    /// The error log, newest first, unused entries left out; at most 64 of them.
    pub fn error_log(&mut self) -> Result<Vec<ErrorEntry>, Error> {
        let count = self
            .info
            .error_log_entries
            .min(PAGE_SIZE / size_of::<ErrorEntry>());
        let mut entries = vec![ErrorEntry::default(); count];
        self.log_page(LogPage::ERROR, NSID_ALL, entries.as_mut_bytes())?;
        entries.retain(|entry| entry.error_count != 0);
        Ok(entries)
    }

    /// The SMART / Health Information log.
    pub fn smart_log(&mut self) -> Result<SmartLog, Error> {
        let mut log = SmartLog::new_zeroed();
        self.log_page(LogPage::SMART, NSID_ALL, log.as_mut_bytes())?;
        Ok(log)
    }

    /// The Firmware Slot Information log.
    pub fn firmware_log(&mut self) -> Result<FirmwareSlotLog, Error> {
        let mut log = FirmwareSlotLog::new_zeroed();
        self.log_page(LogPage::FIRMWARE_SLOT, NSID_ALL, log.as_mut_bytes())?;
        Ok(log)
    }

    /// Interrupt coalescing for all I/O vectors: an interrupt after `completions` (1 to 256) completions, or `time_100us`
    /// times 100 us; 0 is no delay.
    pub fn set_coalescing(&mut self, completions: u16, time_100us: u8) -> Result<(), Error> {
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
    pub fn set_vector_coalescing(&mut self, vector: u16, exempt: bool) -> Result<(), Error> {
        let value = InterruptVectorConfig::new().with_iv(vector).with_cd(exempt);
        self.set_feature(FeatureId::INTERRUPT_VECTOR_CONFIG, 0, value.into())?;
        Ok(())
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

    fn weir(&self, what: &'static str) -> Result<weir_nvme::weir::WeirIdentity, Error> {
        self.info.weir.ok_or(Error::Unsupported(what))
    }

    fn weir_lun(&self, lun: u32, what: &'static str) -> Result<u32, Error> {
        self.weir(what)?;
        Ok(self.lun(lun)?.nsid)
    }

    fn tags_range(&self, what: &'static str, depth: u16) -> Result<(), Error> {
        let tags = self.info.weir.map_or(0, |weir| weir.tags);
        if depth == 0 || u32::from(depth) > tags {
            return Err(Error::Invalid {
                what,
                value: depth.into(),
                want: format!("1 to {tags}"),
            });
        }
        Ok(())
    }
}

/// The first UUID or NGUID of a Namespace Identification Descriptor list.
fn descriptor(list: &[u8]) -> Option<[u8; 16]> {
    let mut rest = list;
    while let Ok((head, body)) = DescriptorHeader::read_from_prefix(rest) {
        let len = usize::from(head.nidl);
        if head.nidt == 0 || len == 0 || len > body.len() {
            return None;
        }
        if let (NIDT_UUID | NIDT_NGUID, Ok(id)) = (head.nidt, body[..len].try_into()) {
            return Some(id);
        }
        rest = &body[len..];
    }
    None
}
