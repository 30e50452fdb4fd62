//! A [`Controller`]: bring-up, reset, shutdown, and the queues that exist on it.

use crate::admin::{self, AdminQueue};
use crate::error::Error;
use crate::info::{Info, discover};
use crate::lun::Lun;
use crate::memory::Buffer;
use crate::pci::Pci;
use crate::queue::{Queue, QueueParts};
use crate::request::{Completed, QueueConfig};
use crate::table::MAX_SLOTS;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_nvme::command::{CreateCqCdw11, CreateSqCdw11, QueueCdw10};
use weir_nvme::registers::cq_head_doorbell;
use weir_nvme::registers::{
    ALL_ONES, Aqa, Cap, Cc, Csts, IOCQES, IOSQES, SHN_NORMAL, SHST_COMPLETE, offset,
};
use weir_nvme::{AdminOpcode, Command, PAGE_SIZE};

/// How a [`Controller`] is brought up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// I/O queue pairs to ask for, from 1; the controller may grant less.
    pub io_queues: u16,
    /// How long an admin command may take, nanoseconds.
    pub admin_timeout_ns: u64,
    /// Asynchronous Event Requests to keep at the controller, up to its AERL + 1; 0 is none.
    pub event_requests: u8,
    /// The most bytes an I/O may move, when the controller allows more: bounds the room for PRP lists.
    pub max_transfer: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            io_queues: 64,
            admin_timeout_ns: 10_000_000_000,
            event_requests: 4,
            max_transfer: 1 << 20,
        }
    }
}

/// A queue that exists on the controller.
struct Live {
    cqid: u16,
    sqid: u16,
    submission_queues: u16,
    abandoned: Arc<AtomicBool>,
}

/// An NVMe controller that has been brought up.
///
/// Dropping it disables the controller; queues that still exist leak their memory then, so delete them first.
pub struct Controller<P: Pci> {
    pub(crate) pci: P,
    pub(crate) admin: AdminQueue<P>,
    pub(crate) info: Info,
    pub(crate) luns: Vec<Lun>,
    options: Options,
    live: Vec<Live>,
    /// CC.EN is 1, or may be.
    enabled: bool,
}

impl Live {
    /// Whether this is `queue`: its number alone could be another controller's.
    fn is<P: Pci>(&self, queue: &Queue<P>) -> bool {
        Arc::ptr_eq(&self.abandoned, queue.abandoned())
    }
}

impl<P: Pci> Controller<P> {
    /// Resets the controller behind `pci`, enables it, and finds its LUNs.
    pub fn new(pci: P, options: Options) -> Result<Controller<P>, Error> {
        let low = pci.read32(offset::CAP);
        let cap = Cap::from(u64::from(pci.read32(offset::CAP + 4)) << 32 | u64::from(low));
        if low == ALL_ONES {
            return Err(Error::Gone { register: "CAP" });
        }
        let need = |ok: bool, what, found: u64, want| match ok {
            true => Ok(()),
            false => Err(Error::Capability { what, found, want }),
        };
        need(
            cap.css() & 1 == 1,
            "CAP.CSS",
            cap.css().into(),
            "one with bit 0, the NVM command set",
        )?;
        need(
            cap.mpsmin() == 0,
            "CAP.MPSMIN",
            cap.mpsmin().into(),
            "0, for pages of 4 KiB",
        )?;
        need(cap.mqes() > 0, "CAP.MQES", cap.mqes().into(), "at least 1")?;
        let admin = AdminQueue::new(&pci, cap.dstrd(), options.admin_timeout_ns)?;
        let version = pci.read32(offset::VS);
        let mut controller = Controller {
            pci,
            admin,
            info: Info {
                cap,
                version,
                ..Info::default()
            },
            luns: Vec::new(),
            options,
            live: Vec::new(),
            enabled: true,
        };
        controller.disable()?;
        controller.enable()?;
        Ok(controller)
    }

    /// What Identify Controller says.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// True on a Weir card.
    pub fn is_weir(&self) -> bool {
        self.info.weir.is_some()
    }

    /// The PCI function.
    pub fn pci(&self) -> &P {
        &self.pci
    }

    /// The LUNs, ascending by number.
    pub fn luns(&self) -> &[Lun] {
        &self.luns
    }

    /// A buffer of at least `len` bytes, whole pages.
    pub fn buffer(&self, len: usize) -> Result<Buffer<P::Memory>, Error> {
        Ok(Buffer::new(self.pci.alloc(len)?))
    }

    /// Whether the controller lives, by CSTS. Costs one register read.
    pub fn check(&self) -> Result<(), Error> {
        admin::check(&self.pci)
    }

    /// Creates a queue and opens no LUN on it.
    pub fn create_queue(&mut self, config: &QueueConfig) -> Result<Queue<P>, Error> {
        self.need_enabled()?;
        let parts = self.plan(config)?;
        let mut queue = Queue::new(&self.pci, &parts)?;
        self.live.push(Live {
            cqid: parts.cqid,
            sqid: parts.sqid,
            submission_queues: config.submission_queues,
            abandoned: queue.abandoned().clone(),
        });
        match self.announce(&mut queue) {
            Ok(()) => Ok(queue),
            Err(error) => {
                if queue.retired() {
                    self.live.pop();
                }
                Err(error)
            }
        }
    }

    /// Deletes a queue: commands in flight are completed or aborted by the controller, and handed to `done`.
    pub fn delete_queue(
        &mut self,
        mut queue: Queue<P>,
        mut done: impl FnMut(Completed<P::Memory>),
    ) -> Result<(), Error> {
        self.need_enabled()?;
        self.need_own(&queue)?;
        for sqid in (queue.sqid()..).take(queue.config().submission_queues.into()) {
            // The controller may need room in the completion queue to finish, so it is emptied meanwhile. A queue that
            // has failed stays silent; deleting it is right all the same.
            let command = queue_command(AdminOpcode::DELETE_IO_SQ, sqid, 0);
            self.admin
                .execute_while("Delete I/O Submission Queue", command, || {
                    let _ = queue.poll(&mut done);
                })?;
        }
        let _ = queue.poll(&mut done);
        let command = queue_command(AdminOpcode::DELETE_IO_CQ, queue.cqid(), 0);
        self.admin.execute("Delete I/O Completion Queue", command)?;
        queue.cancel(done);
        queue.set_retired(true);
        self.live.retain(|live| !live.is(&queue));
        Ok(())
    }

    /// Resets the controller and creates all `queues` anew, empty, with their LUNs still open. Every queue that exists
    /// must be among them, but for those that were dropped. Commands in flight are handed to `done` as aborted by the
    /// host. Depths, weights, tags and other features are at their defaults afterwards.
    ///
    /// After an error the controller is down, and so are the queues: reset again, or drop all.
    pub fn reset(
        &mut self,
        queues: &mut [Queue<P>],
        mut done: impl FnMut(Completed<P::Memory>),
    ) -> Result<(), Error> {
        self.live
            .retain(|live| !live.abandoned.load(Ordering::Acquire));
        queues.iter().try_for_each(|queue| self.need_own(queue))?;
        let missing = |live: &&Live| !queues.iter().any(|queue| live.is(queue));
        let missing: Vec<u16> = self
            .live
            .iter()
            .filter(missing)
            .map(|live| live.cqid)
            .collect();
        if !missing.is_empty() {
            return Err(Error::QueuesLeft(missing));
        }
        self.enabled = true;
        self.disable()?;
        for queue in queues.iter_mut() {
            queue.cancel(&mut done);
            queue.take_down();
        }
        self.enable()?;
        for queue in queues {
            self.announce(queue)?;
            queue.restart();
        }
        Ok(())
    }

    /// Shuts the controller down normally and disables it. All queues must have been deleted.
    pub fn shutdown(mut self) -> Result<(), Error> {
        self.live
            .retain(|live| !live.abandoned.load(Ordering::Acquire));
        if !self.live.is_empty() {
            return Err(Error::QueuesLeft(
                self.live.iter().map(|live| live.cqid).collect(),
            ));
        }
        let cc = Cc::from(self.pci.read32(offset::CC));
        self.pci.write32(offset::CC, cc.with_shn(SHN_NORMAL).into());
        self.wait_csts("CSTS.SHST of shutdown complete", |csts| {
            csts.shst() == SHST_COMPLETE
        })?;
        self.disable()
    }

    /// CC.EN = 0 and waits for CSTS.RDY = 0: afterwards the controller uses no memory.
    fn disable(&mut self) -> Result<(), Error> {
        let cc = self.pci.read32(offset::CC);
        if cc == ALL_ONES {
            return Err(Error::Gone { register: "CC" });
        }
        if Cc::from(cc).en() {
            // Section 3.1.5: EN may only be cleared when RDY has followed it, else behaviour is undefined. A controller
            // that never gets ready, or has failed, is reset all the same.
            let _ = self.wait_csts("CSTS.RDY = 1", |csts| csts.rdy() || csts.cfs());
            self.pci
                .write32(offset::CC, Cc::from(cc).with_en(false).with_shn(0).into());
        }
        self.wait_csts("CSTS.RDY = 0", |csts| !csts.rdy())?;
        self.enabled = false;
        Ok(())
    }

    /// Enables the disabled controller and learns what it is.
    fn enable(&mut self) -> Result<(), Error> {
        self.admin.restart();
        let (asq, acq) = self.admin.places();
        let size = (admin::ENTRIES - 1) as u16;
        self.pci.write32(
            offset::AQA,
            Aqa::new().with_asqs(size).with_acqs(size).into(),
        );
        for (register, address) in [(offset::ASQ, asq), (offset::ACQ, acq)] {
            self.pci.write32(register, address as u32);
            self.pci.write32(register + 4, (address >> 32) as u32);
        }
        let cc = Cc::new()
            .with_en(true)
            .with_iosqes(IOSQES)
            .with_iocqes(IOCQES);
        self.enabled = true;
        self.pci.write32(offset::CC, cc.into());
        self.wait_csts("CSTS.RDY = 1", |csts| csts.rdy())?;
        self.info = Info {
            cap: self.info.cap,
            version: self.info.version,
            ..Info::read(self, self.options.max_transfer)?
        };
        let granted = self.ask_for_queues(self.options.io_queues)?;
        (self.info.submission_queues, self.info.completion_queues) = granted;
        self.luns = discover(self)?;
        self.admin.request_events(self.event_requests());
        Ok(())
    }

    pub(crate) fn event_requests(&self) -> u8 {
        self.options.event_requests.min(self.info.event_requests)
    }

    pub(crate) fn need_enabled(&self) -> Result<(), Error> {
        if self.enabled {
            Ok(())
        } else {
            Err(Error::Disabled)
        }
    }

    /// Checks `config` and chooses what it leaves open.
    fn plan(&mut self, config: &QueueConfig) -> Result<QueueParts, Error> {
        let cap = self.info.cap;
        let most = (u32::from(cap.mqes()) + 1).min(MAX_SLOTS);
        let entries = |what, value: u32| {
            if value.is_power_of_two() && (2..=most).contains(&value) {
                return Ok(value);
            }
            let want = format!("a power of two from 2 to {most}");
            Err(Error::Invalid {
                what,
                value: value.into(),
                want,
            })
        };
        entries("QueueConfig::entries", config.entries)?;
        let held = u32::from(config.submission_queues) * (config.entries - 1);
        let most = 1 << most.ilog2();
        let cq_entries = match config.cq_entries {
            Some(value) => entries("QueueConfig::cq_entries", value)?,
            None => (2 * held).next_power_of_two().clamp(2, most),
        };
        let invalid = |what, value: u64, want: String| Err(Error::Invalid { what, value, want });
        let offset = config.prp_list_offset;
        if !offset.is_multiple_of(8) || offset >= PAGE_SIZE {
            let want = "a multiple of 8 below 4096".to_owned();
            return invalid("QueueConfig::prp_list_offset", offset as u64, want);
        }
        if let Some(vector) = config.vector
            && vector >= self.pci.vectors()
        {
            return invalid(
                "QueueConfig::vector",
                vector.into(),
                format!("below {}", self.pci.vectors()),
            );
        }
        let (sqs, cqs) = (self.info.submission_queues, self.info.completion_queues);
        let count = config.submission_queues;
        if count == 0 || count > sqs {
            return invalid(
                "QueueConfig::submission_queues",
                count.into(),
                format!("1 to {sqs}"),
            );
        }
        let sq_free = |first: u16| {
            let end = u32::from(first) + u32::from(count);
            let apart = |l: &Live| {
                end <= l.sqid.into()
                    || u32::from(l.sqid) + u32::from(l.submission_queues) <= first.into()
            };
            first >= 1 && end <= u32::from(sqs) + 1 && self.live.iter().all(apart)
        };
        let cq_free = |id: u16| (1..=cqs).contains(&id) && self.live.iter().all(|l| l.cqid != id);
        let sqid = match config.sqid {
            Some(id) => sq_free(id).then_some(id),
            None => (1..=sqs).find(|&id| sq_free(id)),
        };
        let cqid = match config.cqid {
            Some(id) => cq_free(id).then_some(id),
            None => (1..=cqs).find(|&id| cq_free(id)),
        };
        let (Some(sqid), Some(cqid)) = (sqid, cqid) else {
            let what = if sqid.is_none() {
                "QueueConfig::sqid"
            } else {
                "QueueConfig::cqid"
            };
            let asked = if sqid.is_none() {
                config.sqid
            } else {
                config.cqid
            };
            let want =
                format!("free: the controller grants {sqs} submission and {cqs} completion queues");
            return invalid(what, asked.unwrap_or(0).into(), want);
        };
        let last = cq_head_doorbell(cqid.max(sqid + count - 1), cap.dstrd());
        if last + 4 > self.pci.bar0_len() {
            return invalid(
                "doorbell offset",
                last as u64,
                format!("inside BAR0 of {} bytes", self.pci.bar0_len()),
            );
        }
        Ok(QueueParts {
            config: *config,
            sqid,
            cqid,
            cq_entries,
            dstrd: cap.dstrd(),
            max_transfer: self.info.max_transfer,
        })
    }

    /// Whether `queue` exists on this controller.
    fn need_own(&self, queue: &Queue<P>) -> Result<(), Error> {
        let own = self.live.iter().any(|live| live.is(queue));
        if own {
            Ok(())
        } else {
            Err(Error::ForeignQueue(queue.cqid()))
        }
    }

    /// Creates `queue` on the controller. When that refuses, it holds nothing of the queue, which is retired then; after
    /// any other error it might, and the queue's memory leaks when it is dropped.
    fn announce(&mut self, queue: &mut Queue<P>) -> Result<(), Error> {
        queue.set_retired(false);
        let result = self.announce_rings(queue);
        queue.set_retired(matches!(result, Err(Error::Command { .. })));
        result
    }

    fn announce_rings(&mut self, queue: &Queue<P>) -> Result<(), Error> {
        let config = *queue.config();
        let (iova, entries) = queue.cq_place();
        let mut command = queue_command(AdminOpcode::CREATE_IO_CQ, queue.cqid(), entries - 1);
        command.prp1 = iova;
        let interrupt = CreateCqCdw11::new()
            .with_ien(config.vector.is_some())
            .with_iv(config.vector.unwrap_or(0));
        command.cdw11 = interrupt.with_pc(true).into();
        self.admin.execute("Create I/O Completion Queue", command)?;
        let mut made = Vec::new();
        for ((iova, entries), sqid) in queue.sq_places().zip(queue.sqid()..) {
            let mut command = queue_command(AdminOpcode::CREATE_IO_SQ, sqid, entries - 1);
            command.prp1 = iova;
            command.cdw11 = CreateSqCdw11::new()
                .with_pc(true)
                .with_cqid(queue.cqid())
                .into();
            if let Err(error) = self.admin.execute("Create I/O Submission Queue", command) {
                // Undo, so that a refusal leaves nothing.
                for sqid in made {
                    self.undo(AdminOpcode::DELETE_IO_SQ, sqid)?;
                }
                self.undo(AdminOpcode::DELETE_IO_CQ, queue.cqid())?;
                return Err(error);
            }
            made.push(sqid);
        }
        Ok(())
    }

    /// Deletes a queue that was just created.
    fn undo(&mut self, opcode: AdminOpcode, qid: u16) -> Result<(), Error> {
        match self
            .admin
            .execute("Delete I/O Queue", queue_command(opcode, qid, 0))
        {
            Ok(_) => Ok(()),
            Err(Error::Command { .. }) => Err(Error::NotUndone(qid)),
            Err(error) => Err(error),
        }
    }

    /// Waits until `done(CSTS)`, at most as long as CAP.TO says.
    fn wait_csts(&self, what: &'static str, done: impl Fn(Csts) -> bool) -> Result<(), Error> {
        let ms = u64::from(self.info.cap.to().max(1)) * 500;
        let deadline = self.pci.now_ns() + ms * 1_000_000;
        loop {
            let late = self.pci.now_ns() >= deadline;
            let csts = self.pci.read32(offset::CSTS);
            if csts == ALL_ONES {
                return Err(Error::Gone { register: "CSTS" });
            }
            if done(Csts::from(csts)) {
                return Ok(());
            }
            if Csts::from(csts).cfs() && what != "CSTS.RDY = 0" {
                return Err(Error::Fatal);
            }
            if late {
                return Err(Error::NotReady { what, ms, csts });
            }
            self.pci.relax();
        }
    }
}

impl<P: Pci> Drop for Controller<P> {
    fn drop(&mut self) {
        // In a panic the device may be what panicked: it is not asked again.
        if self.enabled && (std::thread::panicking() || self.disable().is_err()) {
            self.admin.leak();
        }
    }
}

/// A queue command on `qid`; `size` is the entries less one.
fn queue_command(opcode: AdminOpcode, qid: u16, size: u32) -> Command {
    let cdw10 = QueueCdw10::new().with_qid(qid).with_qsize(size as u16);
    Command {
        cdw10: cdw10.into(),
        ..Command::admin(opcode)
    }
}
