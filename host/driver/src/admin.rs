//! The admin queue: one command at a time, and Asynchronous Event Requests that wait beside it.

use crate::error::Error;
use crate::memory::Words;
use crate::pci::Pci;
use crate::request::QueueError;
use crate::ring::{CqRing, Entry, SqRing};
use std::collections::VecDeque;
use weir_nvme::log::AsyncEvent;
use weir_nvme::registers::{ALL_ONES, Csts, cq_head_doorbell, offset, sq_tail_doorbell};
use weir_nvme::{AdminOpcode, Command, PAGE_SIZE, Status};
use zerocopy::IntoBytes;

/// Entries of the admin queues: one command, its Aborts, and all event requests find room.
pub(crate) const ENTRIES: u32 = 32;
/// The most event requests kept at the controller.
pub(crate) const MAX_EVENT_REQUESTS: u8 = 16;
/// CIDs from here on are those of event requests.
const EVENT_CID: u16 = 0x4000;
/// How often a wait looks whether the controller still lives: a register read costs a bus round trip.
const CHECK_NS: u64 = 1_000_000;

/// The admin submission and completion queue, and a page for the data of a command.
pub(crate) struct AdminQueue<P: Pci> {
    pci: P,
    sq: SqRing<P::Memory>,
    cq: CqRing<P::Memory>,
    data: Words<P::Memory>,
    cid: u16,
    /// Event requests at the controller, by CID less [`EVENT_CID`].
    requests: [bool; MAX_EVENT_REQUESTS as usize],
    events: VecDeque<AsyncEvent>,
    timeout_ns: u64,
}

impl<P: Pci> AdminQueue<P> {
    pub(crate) fn new(pci: &P, dstrd: u8, timeout_ns: u64) -> Result<AdminQueue<P>, Error> {
        Ok(AdminQueue {
            pci: pci.clone(),
            sq: SqRing::new(pci.alloc(PAGE_SIZE)?, ENTRIES, sq_tail_doorbell(0, dstrd)),
            cq: CqRing::new(
                pci.alloc(PAGE_SIZE)?,
                ENTRIES,
                1,
                cq_head_doorbell(0, dstrd),
            ),
            data: Words::new(pci.alloc(PAGE_SIZE)?),
            cid: 0,
            requests: [false; MAX_EVENT_REQUESTS as usize],
            events: VecDeque::new(),
            timeout_ns,
        })
    }

    /// IOVA of the submission and of the completion queue.
    pub(crate) fn places(&self) -> (u64, u64) {
        (self.sq.iova(), self.cq.iova())
    }

    /// Makes the queue as new. The controller must be disabled.
    pub(crate) fn restart(&mut self) {
        self.sq.restart();
        self.cq.restart();
        self.requests.fill(false);
        self.events.clear();
    }

    /// Gives up all memory without freeing it: the controller may still use it.
    pub(crate) fn leak(&mut self) {
        self.sq.leak();
        self.cq.leak();
        self.data.leak();
    }

    /// Executes `command`, named `name` in errors, with PRP1 at the data page when it moves `data`, which is filled with
    /// what the controller wrote.
    pub(crate) fn read(
        &mut self,
        name: &'static str,
        mut command: Command,
        data: &mut [u8],
    ) -> Result<u32, Error> {
        self.data.clear();
        command.prp1 = self.data.iova();
        let result = self.execute(name, command)?;
        self.data.copy_out(data);
        Ok(result)
    }

    /// Executes `command` and returns dword 0 of its completion.
    pub(crate) fn execute(&mut self, name: &'static str, command: Command) -> Result<u32, Error> {
        self.execute_while(name, command, || ())
    }

    /// As [`execute`](AdminQueue::execute), with `turn` called in every turn of the wait.
    pub(crate) fn execute_while(
        &mut self,
        name: &'static str,
        mut command: Command,
        mut turn: impl FnMut(),
    ) -> Result<u32, Error> {
        self.cid = (self.cid + 1) % EVENT_CID;
        let cid = self.cid;
        command.cdw0.set_cid(cid);
        self.push(&command);
        let start = self.pci.now_ns();
        let mut checked = start;
        loop {
            turn();
            if let Some((status, result)) = self.take(Some(cid))? {
                if !status.is_success() {
                    return Err(Error::Command {
                        command: name,
                        status,
                    });
                }
                return Ok(result);
            }
            self.pci.relax();
            let now = self.pci.now_ns();
            if now - start >= self.timeout_ns {
                check(&self.pci)?;
                return Err(Error::Timeout {
                    command: name,
                    ms: self.timeout_ns / 1_000_000,
                });
            }
            if now - checked >= CHECK_NS {
                checked = now;
                check(&self.pci)?;
            }
        }
    }

    /// Keeps `count` event requests at the controller.
    pub(crate) fn request_events(&mut self, count: u8) {
        for i in 0..count.min(MAX_EVENT_REQUESTS) {
            if !self.requests[usize::from(i)] {
                let mut command = Command::admin(AdminOpcode::ASYNC_EVENT_REQUEST);
                command.cdw0.set_cid(EVENT_CID + u16::from(i));
                self.requests[usize::from(i)] = true;
                self.push(&command);
            }
        }
    }

    /// The next event that the controller reported.
    pub(crate) fn next_event(&mut self) -> Result<Option<AsyncEvent>, Error> {
        self.take(None)?;
        Ok(self.events.pop_front())
    }

    fn push(&mut self, command: &Command) {
        let mut entry: Entry = [0; 8];
        entry.as_mut_bytes().copy_from_slice(command.as_bytes());
        self.sq.push(entry);
        self.sq.ring(&self.pci);
    }

    /// Reads completions until there is none or the one of `cid` has come: its status and result.
    fn take(&mut self, cid: Option<u16>) -> Result<Option<(Status, u32)>, Error> {
        let (mut found, before) = (None, self.cq.read());
        while found.is_none() {
            let look = self.cq.look();
            if !look.is_new() {
                break;
            }
            let (index, sqid, done) = (self.cq.head(), look.sqid(), look.cid());
            let request = self
                .requests
                .get_mut(usize::from(done.wrapping_sub(EVENT_CID)));
            if sqid != 0 {
                let cqid = 0;
                return Err(QueueError::UnknownQueue { cqid, index, sqid }.into());
            } else if Some(done) == cid {
                found = Some((look.status(), self.cq.result()));
            } else if let Some(request) = request.filter(|request| **request) {
                *request = false;
                if look.status().is_success() {
                    self.events.push_back(AsyncEvent::from(self.cq.result()));
                }
            } else {
                return Err(QueueError::UnknownCommand {
                    cqid: 0,
                    index,
                    sqid: 0,
                    cid: done,
                }
                .into());
            }
            self.cq.advance();
        }
        let count = self.cq.read().wrapping_sub(before);
        if count > 0 {
            self.cq.acknowledge(&self.pci, count);
        }
        Ok(found)
    }
}

/// Whether the controller lives: CSTS.
pub(crate) fn check(pci: &impl Pci) -> Result<(), Error> {
    let csts = pci.read32(offset::CSTS);
    match Csts::from(csts) {
        _ if csts == ALL_ONES => Err(Error::Gone { register: "CSTS" }),
        csts if csts.cfs() => Err(Error::Fatal),
        csts if !csts.rdy() => Err(Error::WasReset),
        _ => Ok(()),
    }
}
