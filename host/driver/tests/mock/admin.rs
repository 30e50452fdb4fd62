//! The model's admin commands.

use super::device::*;
use weir_driver::nvme::command::*;
use weir_driver::nvme::feature::*;
use weir_driver::nvme::identify::Cns;
use weir_driver::nvme::log::*;
use weir_driver::nvme::weir::*;
use weir_driver::nvme::*;
use zerocopy::IntoBytes;

impl Device {
    pub(super) fn admin(&mut self, command: &Command) {
        let cid = command.cdw0.cid();
        let opcode = AdminOpcode(command.cdw0.opcode());
        if opcode == AdminOpcode::ASYNC_EVENT_REQUEST {
            self.requests.push(cid);
            return;
        }
        if self.has(Fault::AdminStuck) {
            return;
        }
        if opcode == AdminOpcode::DELETE_IO_SQ
            && self.delete_sq(QueueCdw10::from(command.cdw10).qid())
        {
            self.deleting
                .push((QueueCdw10::from(command.cdw10).qid(), cid));
            return;
        }
        let (status, result) = match self.admin_result(opcode, command) {
            Ok(result) => (StatusCode::SUCCESS, result),
            Err(status) => (status, 0),
        };
        self.complete(0, cid, status, result);
    }

    fn admin_result(&mut self, opcode: AdminOpcode, c: &Command) -> Result<u32, StatusCode> {
        let ok = |status| {
            if status == StatusCode::SUCCESS {
                Ok(0)
            } else {
                Err(status)
            }
        };
        let lun = (c.nsid as usize).wrapping_sub(1);
        match opcode {
            AdminOpcode::IDENTIFY => {
                let data = match Cns(IdentifyCdw10::from(c.cdw10).cns()) {
                    Cns::CONTROLLER => self.identify(),
                    Cns::NAMESPACE if lun < self.luns.len() => {
                        identify_namespace((self.luns[lun].data.len() / BLOCK) as u64)
                    }
                    Cns::ACTIVE_NAMESPACES => {
                        active_namespaces(self.luns.len() as u32, c.nsid, |_| true)
                    }
                    Cns::NAMESPACE_DESCRIPTORS if lun < self.luns.len() => {
                        namespace_descriptors(SERIAL, c.nsid)
                    }
                    Cns::NAMESPACE | Cns::NAMESPACE_DESCRIPTORS => {
                        return Err(StatusCode::INVALID_NAMESPACE);
                    }
                    _ => return Err(StatusCode::INVALID_FIELD),
                };
                ok(self.send_page(c, &data))
            }
            AdminOpcode::CREATE_IO_CQ => {
                let (q, how) = (QueueCdw10::from(c.cdw10), CreateCqCdw11::from(c.cdw11));
                if q.qid() == 0 || self.cqs.contains_key(&q.qid()) {
                    return Err(StatusCode::INVALID_QUEUE_IDENTIFIER);
                }
                self.check_size(q)?;
                self.cqs.insert(
                    q.qid(),
                    Cq::new(c.prp1, q.qsize() + 1, how.ien().then_some(how.iv())),
                );
                Ok(0)
            }
            AdminOpcode::CREATE_IO_SQ => {
                let (q, how) = (QueueCdw10::from(c.cdw10), CreateSqCdw11::from(c.cdw11));
                if q.qid() == 0
                    || self.sqs.contains_key(&q.qid())
                    || self.has(Fault::NoSubmissionQueues)
                {
                    return Err(StatusCode::INVALID_QUEUE_IDENTIFIER);
                }
                if how.cqid() == 0 || !self.cqs.contains_key(&how.cqid()) {
                    return Err(StatusCode::COMPLETION_QUEUE_INVALID);
                }
                self.check_size(q)?;
                let sq = Sq {
                    base: c.prp1,
                    entries: q.qsize() + 1,
                    head: 0,
                    tail: 0,
                    cqid: how.cqid(),
                };
                self.sqs.insert(q.qid(), sq);
                Ok(0)
            }
            AdminOpcode::DELETE_IO_SQ => Err(StatusCode::INVALID_QUEUE_IDENTIFIER),
            AdminOpcode::DELETE_IO_CQ => {
                let qid = QueueCdw10::from(c.cdw10).qid();
                if self.sqs.values().any(|sq| sq.cqid == qid) {
                    return Err(StatusCode::INVALID_QUEUE_DELETION);
                }
                self.cqs
                    .remove(&qid)
                    .map(|_| 0)
                    .ok_or(StatusCode::INVALID_QUEUE_IDENTIFIER)
            }
            AdminOpcode::ABORT => {
                let a = AbortCdw10::from(c.cdw10);
                let found = self
                    .ios
                    .iter()
                    .position(|io| io.sqid == a.sqid() && io.command.cdw0.cid() == a.cid());
                match found.filter(|_| self.abortable) {
                    Some(i) => {
                        let io = self.ios.remove(i);
                        self.forget(&io);
                        self.complete(a.sqid(), a.cid(), StatusCode::ABORT_REQUESTED, 0);
                        Ok(0)
                    }
                    None => Ok(1),
                }
            }
            AdminOpcode::SET_FEATURES => self.set_feature(c),
            AdminOpcode::GET_FEATURES => match FeatureId(GetFeaturesCdw10::from(c.cdw10).fid()) {
                FeatureId::LUN_BUDGET if self.weir && lun < self.luns.len() => {
                    Ok(self.luns[lun].budget.into())
                }
                FeatureId::TAG_SET if self.weir => Ok(self.tags.into()),
                FeatureId::INTERRUPT_COALESCING => Ok(self.coalescing),
                _ => Err(StatusCode::INVALID_FIELD),
            },
            AdminOpcode::GET_LOG_PAGE => self.log(c),
            _ => Err(StatusCode::INVALID_OPCODE),
        }
    }

    /// Aborts the commands of a submission queue and deletes it; false when there is none.
    fn delete_sq(&mut self, qid: u16) -> bool {
        if qid == 0 || !self.sqs.contains_key(&qid) {
            return false;
        }
        let (dying, living) = std::mem::take(&mut self.ios)
            .into_iter()
            .partition(|io| io.sqid == qid);
        self.ios = living;
        let dying: Vec<Io> = dying;
        for io in dying {
            self.forget(&io);
            self.complete(
                qid,
                io.command.cdw0.cid(),
                StatusCode::ABORTED_SQ_DELETION,
                0,
            );
        }
        self.sqs.remove(&qid);
        true
    }

    /// Sends the data of an admin command.
    fn send_page(&mut self, c: &Command, data: &[u8]) -> StatusCode {
        match self.has(Fault::NoData) {
            true => StatusCode::SUCCESS,
            false => self.send(c, data),
        }
    }

    /// Takes an I/O off its LUN's counts.
    fn forget(&mut self, io: &Io) {
        if let Some(lun) = self
            .luns
            .get_mut((io.command.nsid as usize).wrapping_sub(1))
        {
            match io.executing {
                true => lun.statistics.in_flight -= 1,
                false => lun.statistics.parked -= 1,
            }
        }
    }

    fn check_size(&self, q: QueueCdw10) -> Result<(), StatusCode> {
        let ok = q.qsize() > 0 && q.qsize() <= self.cap.mqes();
        if ok {
            Ok(())
        } else {
            Err(StatusCode::INVALID_QUEUE_SIZE)
        }
    }

    fn identify(&self) -> [u8; 4096] {
        let card = CardIdentity {
            serial: SERIAL,
            luns: self.luns.len() as u32,
            tags: TAGS.into(),
            ..Default::default()
        };
        let mut data = identify_controller(&card);
        if !self.weir {
            data[3072] = 0;
        }
        data
    }

    fn set_feature(&mut self, c: &Command) -> Result<u32, StatusCode> {
        let tags = 1..=TAGS;
        match FeatureId(SetFeaturesCdw10::from(c.cdw10).fid()) {
            FeatureId::NUMBER_OF_QUEUES => {
                let wish = NumberOfQueues::from(c.cdw11);
                Ok(NumberOfQueues::new()
                    .with_nsq(wish.nsq().min(7))
                    .with_ncq(wish.ncq().min(7))
                    .into())
            }
            FeatureId::INTERRUPT_COALESCING => {
                self.coalescing = c.cdw11;
                Ok(0)
            }
            FeatureId::INTERRUPT_VECTOR_CONFIG => Ok(0),
            FeatureId::LUN_BUDGET if self.weir => {
                let budget = LunBudget::from(c.cdw11);
                if !tags.contains(&budget.depth()) || budget.weight() == 0 {
                    return Err(StatusCode::INVALID_FIELD);
                }
                for (lun, nsid) in self.luns.iter_mut().zip(1..) {
                    if c.nsid == nsid || c.nsid == NSID_ALL {
                        lun.budget = budget;
                    }
                }
                Ok(0)
            }
            FeatureId::TAG_SET if self.weir => {
                let set = TagSet::from(c.cdw11);
                if !tags.contains(&set.depth()) || set.fairness() > 2 {
                    return Err(StatusCode::INVALID_FIELD);
                }
                self.tags = set;
                Ok(0)
            }
            _ => Err(StatusCode::INVALID_FIELD),
        }
    }

    fn log(&mut self, c: &Command) -> Result<u32, StatusCode> {
        let cdw10 = GetLogPageCdw10::from(c.cdw10);
        let len = (usize::from(cdw10.numdl()) + 1) * 4;
        let mut data = match LogPage(cdw10.lid()) {
            LogPage::LUN_STATISTICS if self.weir => {
                let lun = (c.nsid as usize).wrapping_sub(1);
                self.luns
                    .get(lun)
                    .ok_or(StatusCode::INVALID_NAMESPACE)?
                    .statistics
                    .as_bytes()
                    .to_vec()
            }
            LogPage::ERROR => {
                let entry = ErrorEntry {
                    error_count: 7,
                    sqid: 1,
                    lba: 9,
                    ..Default::default()
                };
                [entry, ErrorEntry::default()].as_bytes().to_vec()
            }
            LogPage::SMART | LogPage::FIRMWARE_SLOT => vec![1; 512],
            _ => return Err(StatusCode::INVALID_LOG_PAGE),
        };
        data.resize(len, 0);
        let status = self.send_page(c, &data);
        if status == StatusCode::SUCCESS {
            Ok(0)
        } else {
            Err(status)
        }
    }
}
