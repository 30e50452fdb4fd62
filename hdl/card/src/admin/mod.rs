//! `admin`: serves the admin queue in gateware, with no firmware and no soft CPU (NVMe 1.4, section 5).
//!
//! ```text
//!  entry ──►┌───────┐──► cpl                        one command at a time
//!           │ admin │──► sq_set, cq_set             Create and Delete of queues
//!  events ─►│       │──► walk ◄── done, found       Delete SQ, Abort
//!           │       │──► budget ◄── reply           features C0h, C1h
//!           │       │──► snapshot ◄── reply         log C0h
//!           └───┬───┘──► coalescing                 features 08h, 09h
//!        admin_pages ──► admin_data ──► aw, w ◄── b Identify, Get Log Page
//! ```
//!
//! `Idle ─► Start ─► (Lookup | Budget | Snapshot | Walk) ─► (Data | Settle) ─► Respond ─► Idle`
//!
//! A command is checked in one place a kind, and each check that fails names its status; the first that fails decides.
//! Asynchronous Event Requests wait here, by CID, and are answered between two commands: when an entry is coming, after it.
//! So an entry is taken in the cycle in which it comes, and a host that takes no admin completions holds up no I/O.
//!
//! **Left out**: Keep Alive, Format, Firmware, Namespace Management, Security: Invalid Command Opcode. Log pages that do
//! not fit PRP1 and PRP2 (over 8 KiB less the offset): Invalid Field in Command. The error log has no LBA, the NSID of
//! admin commands only, and does not say which parameter was wrong.
//!
//! **Invariants**: each entry is answered exactly once (an Asynchronous Event Request perhaps never); a queue's `*_set`
//! is given only when its identifier is free or, to delete, in use; a CQ is not deleted while an SQ uses it; every error,
//! of admin and of I/O, is in the error log, an admin command's before its completion.
//! **Latency**: a command without data 4 cycles and what it waits for; an error one more.

mod data;
mod features;
mod pages;

pub use data::{AdminDataPorts, admin_data};
pub use pages::{AdminPagesPorts, Page, admin_pages, identity};

use crate::config::CardConfig;
use crate::interfaces::*;
use features::Features;
use weir_kit::*;
use weir_nvme::StatusCode;
use weir_nvme::log::{ErrorEntry, LunStatistics, SmartLog};
use weir_nvme::weir::AERL;

/// Asynchronous Event Requests held at a time.
const EVENTS: u32 = AERL as u32 + 1;

/// Admin opcodes (NVMe 1.4, figure 139).
#[derive(Clone, Copy)]
enum Opcode {
    DeleteSq = 0x00,
    CreateSq = 0x01,
    GetLogPage = 0x02,
    DeleteCq = 0x04,
    CreateCq = 0x05,
    Identify = 0x06,
    Abort = 0x08,
    SetFeatures = 0x09,
    GetFeatures = 0x0a,
    AsyncEvent = 0x0c,
}

/// Where the block is in a command.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Takes an entry, or answers an event.
    Idle,
    /// Checks the command and does what takes one cycle.
    Start,
    /// Looks the LUN up.
    Lookup,
    /// Asks the LUN engine for, or sets, a budget or the tag set.
    Budget,
    /// Waits for its reply.
    BudgetReply,
    /// Asks for a LUN's statistics.
    Snapshot,
    /// Waits for its reply.
    SnapshotReply,
    /// Begins the data.
    DataStart,
    /// Writes the data.
    Data,
    /// Asks the walker.
    Walk,
    /// Waits for it.
    Walking,
    /// Waits until the deleted queue holds no slot.
    Settle,
    /// Gives the completion.
    Respond,
}

/// Ports of [`admin`].
#[derive(Clone, Bundle)]
#[bundle(params = CardConfig)]
pub struct AdminPorts {
    /// Pulse: tables back to their defaults (controller reset).
    #[input]
    #[bits(1)]
    pub clear: Sig,
    /// Entries of the admin queue.
    #[input]
    #[bits(1)]
    pub entry_valid: Sig,
    /// The 64 bytes.
    #[input]
    #[bits(512)]
    pub entry_data: Sig,
    /// The entry is taken.
    #[output]
    #[bits(1)]
    pub entry_ready: Sig,
    /// An entry is on its way here, from the cycle after it was picked until it is taken. None is picked but while `quiet`.
    #[input]
    #[bits(1)]
    pub entry_coming: Sig,
    /// Completions.
    #[output]
    pub cpl: Stream<AdminCpl>,
    /// I/O submission queues created and deleted.
    #[output]
    pub sq_set: SqSet,
    /// I/O completion queues created and deleted.
    #[output]
    pub cq_set: CqSet,
    /// A queue whose commands are to be aborted; valid from the start of its deletion to its end.
    #[output]
    #[bits(1)]
    pub dying: Sig,
    /// That queue; also the one that `sq_count` speaks of.
    #[output]
    #[bits(p.queue_bits())]
    pub dying_sq: Sig,
    /// That queue holds slots, or entries of it are being fetched.
    #[input]
    #[bits(1)]
    pub sq_busy: Sig,
    /// Work for the walker.
    #[output]
    pub walk: Stream<WalkRequest>,
    /// Pulse: the walk is done.
    #[input]
    #[bits(1)]
    pub walk_done: Sig,
    /// With `walk_done`: the command to abort was found.
    #[input]
    #[bits(1)]
    pub walk_found: Sig,
    /// Budgets.
    #[output]
    pub budget: Stream<BudgetRequest>,
    /// Pulse: the answer.
    #[input]
    #[bits(1)]
    pub budget_reply_valid: Sig,
    /// What holds now.
    #[input]
    pub budget_reply: BudgetReply,
    /// Asks for a LUN's statistics.
    #[output]
    #[bits(1)]
    pub snapshot_valid: Sig,
    /// Which LUN.
    #[output]
    #[bits(p.lun_bits())]
    pub snapshot_lun: Sig,
    /// The request is taken.
    #[input]
    #[bits(1)]
    pub snapshot_ready: Sig,
    /// Pulse: the answer; it stays until the next request.
    #[input]
    #[bits(1)]
    pub stats_valid: Sig,
    /// The statistics.
    #[input]
    pub stats: LunStats,
    /// LUN map: LUN to look up.
    #[output]
    #[bits(p.lun_bits())]
    pub lookup_lun: Sig,
    /// LUN map, the cycle after: it is present.
    #[input]
    #[bits(1)]
    pub lookup_present: Sig,
    /// LUN map, the cycle after: its blocks.
    #[input]
    #[bits(MEDIA_BLOCK_BITS)]
    pub lookup_blocks: Sig,
    /// Run-time limit: I/O queues in use.
    #[input]
    #[bits(p.queue_bits())]
    pub queues: Sig,
    /// Run-time limit: LUNs in use.
    #[input]
    #[bits(9)]
    pub luns: Sig,
    /// Run-time limit: tags in use.
    #[input]
    #[bits(p.depth_bits())]
    pub tags: Sig,
    /// Interrupt coalescing: aggregation threshold, completions - 1.
    #[output]
    #[bits(8)]
    pub coalescing_threshold: Sig,
    /// Interrupt coalescing: aggregation time in 100 us; 0 is off.
    #[output]
    #[bits(8)]
    pub coalescing_time: Sig,
    /// Vectors whose coalescing is disabled.
    #[output]
    #[bits(p.queues + 1)]
    pub coalescing_disable: Sig,
    /// Pulse: a doorbell of no queue was written.
    #[input]
    #[bits(1)]
    pub doorbell_bad_register: Sig,
    /// Pulse: a doorbell was written with a value that its ring does not have.
    #[input]
    #[bits(1)]
    pub doorbell_bad_value: Sig,
    /// Pulse: an I/O command completed.
    #[input]
    #[bits(1)]
    pub io_valid: Sig,
    /// Its [`Op`].
    #[input]
    #[bits(2)]
    pub io_op: Sig,
    /// Its length in 512 B blocks.
    #[input]
    #[bits(BLOCKS_BITS)]
    pub io_blocks: Sig,
    /// Pulse: an I/O command ended with an error.
    #[input]
    pub error: Reject,
    /// It did.
    #[input]
    #[bits(1)]
    pub error_valid: Sig,
    /// Write address of admin data.
    #[output]
    #[params(&p.host_axi())]
    pub aw: Stream<AxiAw>,
    /// Write data of admin data.
    #[output]
    #[params(&p.host_axi())]
    pub w: Stream<AxiW>,
    /// Write response of kind ADMIN; always taken.
    #[input]
    #[bits(1)]
    pub b_valid: Sig,
    /// Its resp.
    #[input]
    #[bits(2)]
    pub b_resp: Sig,
    /// No command is under way (held Asynchronous Event Requests do not count), and no event is to be answered.
    #[output]
    #[bits(1)]
    pub quiet: Sig,
    /// Nothing would change with the inputs held.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block.
pub fn admin(c: &CardConfig) -> Module {
    let data = admin_data(c);
    let pages = admin_pages(c);
    module(
        "admin",
        "Serves the admin queue in gateware.",
        c,
        |p: AdminPorts| body(c, p, &data, &pages),
    )
}

/// A status that will not change on a retry (DNR), as CQE DW3 bits 31:17.
fn status(code: StatusCode) -> Sig {
    lit(1 << 14 | u128::from(code.0), STATUS_BITS)
}

/// The command's fields (NVMe 1.4, figure 104).
struct Command {
    opcode: Sig,
    flags_bad: Sig,
    cid: Sig,
    nsid: Sig,
    prp1: Sig,
    prp2: Sig,
    cdw10: Sig,
    cdw11: Sig,
    cdw12: Sig,
    cdw13: Sig,
}

/// What one command finds out: the first check that fails decides.
#[derive(Clone, Copy)]
struct Outcome {
    status: Sig,
    state: Sig,
}

impl Outcome {
    /// If `bad`, ends the command with `code`; else goes on to `good`.
    fn check(self, checks: &[(Sig, StatusCode)], good: impl FnOnce()) {
        let mut chain = None;
        for &(bad, code) in checks {
            let fail = || {
                self.status.set(status(code));
                self.state.set(State::Respond.lit());
            };
            chain = Some(match chain {
                None => when(bad, fail),
                Some(w) => elsewhen(w, bad, fail),
            });
        }
        match chain {
            None => good(),
            Some(w) => w.otherwise(good),
        }
    }

    /// Ends the command with success.
    fn succeed(self) {
        self.state.set(State::Respond.lit());
    }
}

fn elsewhen(w: When, c: Sig, f: impl FnOnce()) -> When {
    w.elsewhen(c, f)
}

#[hw]
fn body(c: &CardConfig, p: AdminPorts, data: &Module, pages: &Module) {
    let q = c.queue_bits();
    let u_data = instance::<AdminDataPorts>("u_data", data, c);
    let u_pages = instance::<AdminPagesPorts>("u_pages", pages, c);

    // The command.
    let state = State::Idle.reg();
    let command = reg_nr(512);
    let result = reg_nr(32);
    let result_status = reg_nr(STATUS_BITS);
    let e = Command {
        opcode: command.bits(0, 8),
        flags_bad: command.bits(8, 2).any() | command.bits(14, 2).any(),
        cid: command.bits(16, 16),
        nsid: command.bits(32, 32),
        prp1: command.bits(192, 64),
        prp2: command.bits(256, 64),
        cdw10: command.bits(320, 32),
        cdw11: command.bits(352, 32),
        cdw12: command.bits(384, 32),
        cdw13: command.bits(416, 32),
    };
    unused(command.bits(10, 4));
    unused(command.bits(64, 128));
    unused(command.bits(448, 64));
    let out = Outcome {
        status: result_status,
        state,
    };

    // Queues that exist; bit 0, the admin queue, stays 0.
    let sqs = reg(c.queues + 1, 0);
    let cqs = reg(c.queues + 1, 0);
    // CQ of each SQ, to know a CQ that is still in use.
    let sq_cq = scope("sq_cq", || {
        (1..=c.queues)
            .map(|n| named(&n.to_string(), reg_nr(q)))
            .collect::<Vec<Sig>>()
    });
    let qid16 = e.cdw10.bits(0, 16);
    let qid = qid16.trunc(q);
    let qid_bad = qid16.eq(0) | qid16.gt(p.queues.zext(16));
    let qsize = e.cdw10.bits(16, 16);
    let qsize_bad = qsize.eq(0) | qsize.ge(c.entries);
    let qid_onehot = onehot(qid, c.queues + 1);
    let sq_exists = sqs.index(qid);
    let cq_exists = cqs.index(qid);
    let not_contiguous = !e.cdw11.bit(0);
    let prp1_page_bad = e.prp1.bits(0, 12).any();
    let cqid16 = e.cdw11.bits(16, 16);
    let cqid = cqid16.trunc(q);
    let cqid_bad = cqid16.eq(0) | cqid16.gt(p.queues.zext(16)) | !cqs.index(cqid);
    let vector_bad = cqid16.gt(c.queues);
    let mut users = Vec::new();
    for n in 1..=c.queues {
        users.push(sqs.bit(n) & sq_cq[n as usize - 1].eq(qid));
    }
    let cq_used = cat(&users).any();

    // NSID.
    let all_luns = e.nsid.all();
    let nsid_bad = e.nsid.eq(0) | e.nsid.gt(p.luns.zext(32));
    let lun = (e.nsid - 1).trunc(c.lun_bits());

    // Data: how many dwords, and whether PRP1 and PRP2 hold them.
    let dwords = reg_nr(data::DWORDS_BITS);
    let offset = reg_nr(pages::DWORD_BITS);
    let page = reg_nr(Page::WIDTH);
    let lookup_wait = reg_nr(1);
    let prp1_offset_bad = e.prp1.bits(0, 2).any();
    let first_page = lit(1024, 13) - e.prp1.bits(2, 10).zext(13);
    let prp2_bad = |n: Sig| n.gt(first_page) & e.prp2.bits(0, 12).any();
    let too_long = |n: Sig| n.gt(first_page + lit(1024, 13));

    // Get Log Page: NUMD is 0's based over CDW10 and CDW11.
    let numd = cat(&[e.cdw11.bits(0, 16), e.cdw10.bits(16, 16)]);
    let log_dwords = numd.bits(0, 12).zext(13) + lit(1, 13);
    let log_long = numd.bits(12, 20).any() | too_long(log_dwords);
    let lpo = e.cdw12;
    let log_id = e.cdw10.bits(0, 8);
    // An offset past the end of the log is refused (5.14); at the end all is 0.
    let log_bytes = log_id.eq(0xc0).mux(
        lit(size_of::<LunStatistics>() as u128, 32),
        log_id.eq(1).mux(
            lit(
                u128::from(pages::ERROR_ENTRIES) * size_of::<ErrorEntry>() as u128,
                32,
            ),
            lit(size_of::<SmartLog>() as u128, 32),
        ),
    );
    let log_keep_event = e.cdw10.bit(15);

    let lpo_bad = lpo.bits(0, 2).any() | lpo.gt(log_bytes) | e.cdw13.any();

    // Asynchronous events: one bit a kind of error event; masked from a report until the error log is read.
    let event_cids = [reg_nr(16), reg_nr(16), reg_nr(16), reg_nr(16)];
    let event_count = reg(3, 0);
    let pending_register = reg(1, 0);
    let pending_value = reg(1, 0);
    let masked = reg(1, 0);
    let event_due = (pending_register | pending_value) & !masked & event_count.any();
    let event_cid = mux_n(event_count.bits(0, 2) - 1, &event_cids);

    let features = Features::new(c, &p);

    // Idle.
    // An entry that is coming goes before an event: it would stand in decode, before every I/O entry, as long as the
    // event's completion waits for room in the admin CQ.
    let event_now = event_due & !p.entry_coming;
    p.entry_ready.set(state.is(State::Idle) & !event_now);
    let respond_cid = reg_nr(16);

    p.sq_set.valid.set(lit(0, 1));
    p.sq_set.enable.set(lit(0, 1));
    p.sq_set.sq.set(qid);
    p.sq_set.base.set(e.prp1);
    p.sq_set.size.set(qsize.trunc(RING_BITS));
    p.sq_set.cq.set(cqid);
    p.cq_set.valid.set(lit(0, 1));
    p.cq_set.enable.set(lit(0, 1));
    p.cq_set.cq.set(qid);
    p.cq_set.base.set(e.prp1);
    p.cq_set.size.set(qsize.trunc(RING_BITS));
    p.cq_set.interrupts.set(e.cdw11.bit(1));
    p.cq_set.vector.set(cqid);

    let deleting = reg(1, 0);
    p.dying.set(deleting);
    p.dying_sq.set(qid);
    p.lookup_lun.set(u_pages.lookup_lun);

    switch(state, |s| {
        s.is(State::Idle, || {
            when(event_now, || {
                // Event type 0 (error), information 0 or 1, log page 01h.
                result.set(cat(&[
                    lit(0x01, 16),
                    lit(0, 7),
                    !pending_register,
                    lit(0, 8),
                ]));
                result_status.set(lit(0, STATUS_BITS));
                respond_cid.set(event_cid);
                event_count.set(event_count - 1);
                masked.set(lit(1, 1));
                when(pending_register, || pending_register.set(lit(0, 1)))
                    .otherwise(|| pending_value.set(lit(0, 1)));
                state.set(State::Respond.lit());
            })
            .elsewhen(p.entry_valid, || {
                command.set(p.entry_data);
                respond_cid.set(p.entry_data.bits(16, 16));
                result.set(lit(0, 32));
                result_status.set(lit(0, STATUS_BITS));
                state.set(State::Start.lit());
            });
        });

        s.is(State::Start, || {
            lookup_wait.set(lit(0, 1));
            offset.set(lit(0, pages::DWORD_BITS));
            dwords.set(lit(1024, data::DWORDS_BITS));
            when(e.flags_bad, || {
                out.status.set(status(StatusCode::INVALID_FIELD));
                out.succeed();
            })
            .otherwise(|| {
                switch(e.opcode, |op| {
                    op.is(Opcode::CreateCq as u32, || {
                        out.check(
                            &[
                                (qid_bad | cq_exists, StatusCode::INVALID_QUEUE_IDENTIFIER),
                                (qsize_bad, StatusCode::INVALID_QUEUE_SIZE),
                                (not_contiguous, StatusCode::INVALID_FIELD),
                                (prp1_page_bad, StatusCode::PRP_OFFSET_INVALID),
                                (vector_bad, StatusCode::INVALID_INTERRUPT_VECTOR),
                            ],
                            || {
                                p.cq_set.valid.set(lit(1, 1));
                                p.cq_set.enable.set(lit(1, 1));
                                cqs.set(cqs | qid_onehot);
                                out.succeed();
                            },
                        );
                    });
                    op.is(Opcode::CreateSq as u32, || {
                        out.check(
                            &[
                                (qid_bad | sq_exists, StatusCode::INVALID_QUEUE_IDENTIFIER),
                                (cqid_bad, StatusCode::COMPLETION_QUEUE_INVALID),
                                (qsize_bad, StatusCode::INVALID_QUEUE_SIZE),
                                (not_contiguous, StatusCode::INVALID_FIELD),
                                (prp1_page_bad, StatusCode::PRP_OFFSET_INVALID),
                            ],
                            || {
                                p.sq_set.valid.set(lit(1, 1));
                                p.sq_set.enable.set(lit(1, 1));
                                sqs.set(sqs | qid_onehot);
                                for n in 1..=c.queues {
                                    when(qid.eq(n), || sq_cq[n as usize - 1].set(cqid));
                                }
                                out.succeed();
                            },
                        );
                    });
                    op.is(Opcode::DeleteSq as u32, || {
                        out.check(
                            &[(qid_bad | !sq_exists, StatusCode::INVALID_QUEUE_IDENTIFIER)],
                            || {
                                deleting.set(lit(1, 1));
                                state.set(State::Walk.lit());
                            },
                        );
                    });
                    op.is(Opcode::DeleteCq as u32, || {
                        out.check(
                            &[
                                (qid_bad | !cq_exists, StatusCode::INVALID_QUEUE_IDENTIFIER),
                                (cq_used, StatusCode::INVALID_QUEUE_DELETION),
                            ],
                            || {
                                p.cq_set.valid.set(lit(1, 1));
                                cqs.set(cqs & !qid_onehot);
                                out.succeed();
                            },
                        );
                    });
                    op.is(Opcode::Identify as u32, || {
                        let cns = e.cdw10.bits(0, 8);
                        let n = lit(1024, 13);
                        let one_lun = cns.eq(0) | cns.eq(3);
                        let list_nsid_bad = cns.eq(2) & e.nsid.ge(0xffff_fffe_u32);
                        out.check(
                            &[
                                (cns.gt(3), StatusCode::INVALID_FIELD),
                                (
                                    (one_lun & nsid_bad) | list_nsid_bad,
                                    StatusCode::INVALID_NAMESPACE,
                                ),
                                (
                                    prp1_offset_bad | prp2_bad(n),
                                    StatusCode::PRP_OFFSET_INVALID,
                                ),
                            ],
                            || {
                                page.set(mux_n(
                                    cns.bits(0, 2),
                                    &[
                                        Page::Namespace.lit(),
                                        Page::Controller.lit(),
                                        Page::NamespaceList.lit(),
                                        Page::Descriptors.lit(),
                                    ],
                                ));
                                state.set(one_lun.mux(State::Lookup.lit(), State::DataStart.lit()));
                            },
                        );
                    });
                    op.is(Opcode::GetLogPage as u32, || {
                        let of_lun = log_id.eq(0xc0);
                        let known = log_id.eq(1) | log_id.eq(2) | log_id.eq(3) | of_lun;
                        out.check(
                            &[
                                (!known, StatusCode::INVALID_LOG_PAGE),
                                (of_lun & nsid_bad, StatusCode::INVALID_NAMESPACE),
                                (log_long | lpo_bad, StatusCode::INVALID_FIELD),
                                (
                                    prp1_offset_bad | prp2_bad(log_dwords),
                                    StatusCode::PRP_OFFSET_INVALID,
                                ),
                            ],
                            || {
                                dwords.set(log_dwords.trunc(data::DWORDS_BITS));
                                offset.set(lpo.bits(2, pages::DWORD_BITS));
                                when(log_id.eq(1) & !log_keep_event, || masked.set(lit(0, 1)));
                                page.set(of_lun.mux(
                                    Page::LunStats.lit(),
                                    mux_n(
                                        log_id.bits(0, 2),
                                        &[
                                            Page::Zero.lit(),
                                            Page::Errors.lit(),
                                            Page::Smart.lit(),
                                            Page::Firmware.lit(),
                                        ],
                                    ),
                                ));
                                state.set(of_lun.mux(State::Lookup.lit(), State::DataStart.lit()));
                            },
                        );
                    });
                    op.is(Opcode::Abort as u32, || {
                        // Result bit 0: not aborted, unless the walker finds it. A queue that is none holds no command;
                        // the walker, which sees only the low bits of its identifier, must not take it for another.
                        result.set(lit(1, 32));
                        when(qid_bad | !sq_exists, || out.succeed())
                            .otherwise(|| state.set(State::Walk.lit()));
                    });
                    op.is(Opcode::AsyncEvent as u32, || {
                        out.check(
                            &[(event_count.eq(EVENTS), StatusCode::AER_LIMIT_EXCEEDED)],
                            || {
                                for (i, held) in (0u32..).zip(event_cids) {
                                    when(event_count.eq(i), || held.set(e.cid));
                                }
                                event_count.set(event_count + 1);
                                state.set(State::Idle.lit());
                            },
                        );
                    });
                    op.is(Opcode::SetFeatures as u32, || {
                        features.set(c, &p, &e, out, Features::exists_any(sqs, cqs), result);
                    });
                    op.is(Opcode::GetFeatures as u32, || {
                        features.get(c, &p, &e, out, result);
                    });
                    op.default(|| {
                        out.status.set(status(StatusCode::INVALID_OPCODE));
                        out.succeed();
                    });
                });
            });
        });

        s.is(State::Lookup, || {
            p.lookup_lun.set(lun);
            lookup_wait.set(lit(1, 1));
            when(lookup_wait, || {
                let here = p.lookup_present;
                when(page.is(Page::Namespace), || {
                    // A namespace that is not active reads as zeros (5.15.2.1).
                    when(!here, || page.set(Page::Zero.lit()));
                    state.set(State::DataStart.lit());
                })
                .elsewhen(!here, || {
                    out.status.set(status(StatusCode::INVALID_NAMESPACE));
                    out.succeed();
                })
                .elsewhen(page.is(Page::LunStats), || state.set(State::Snapshot.lit()))
                .elsewhen(page.is(Page::Zero), || state.set(State::Budget.lit()))
                .otherwise(|| state.set(State::DataStart.lit()));
            });
        });

        s.is(State::Budget, || {
            when(p.budget.ready, || state.set(State::BudgetReply.lit()));
        });
        s.is(State::BudgetReply, || {
            when(p.budget_reply_valid, || {
                result.set(features.budget_result(&p, &e));
                out.succeed();
            });
        });
        s.is(State::Snapshot, || {
            when(p.snapshot_ready, || state.set(State::SnapshotReply.lit()));
        });
        s.is(State::SnapshotReply, || {
            when(p.stats_valid, || state.set(State::DataStart.lit()));
        });

        s.is(State::DataStart, || state.set(State::Data.lit()));
        s.is(State::Data, || {
            when(u_data.done, || {
                when(u_data.error, || {
                    result_status.set(lit(StatusCode::DATA_TRANSFER_ERROR.0.into(), STATUS_BITS))
                });
                out.succeed();
            });
        });

        s.is(State::Walk, || {
            when(p.walk.ready, || state.set(State::Walking.lit()));
        });
        s.is(State::Walking, || {
            when(p.walk_done, || {
                when(deleting, || state.set(State::Settle.lit())).otherwise(|| {
                    result.set(cat(&[lit(0, 31), !p.walk_found]));
                    out.succeed();
                });
            });
        });
        s.is(State::Settle, || {
            when(!p.sq_busy, || {
                p.sq_set.valid.set(lit(1, 1));
                sqs.set(sqs & !qid_onehot);
                deleting.set(lit(0, 1));
                out.succeed();
            });
        });
        s.is(State::Respond, || {
            when(p.cpl.fire(), || state.set(State::Idle.lit()));
        });
    });
    when(p.doorbell_bad_register, || pending_register.set(lit(1, 1)));
    when(p.doorbell_bad_value, || pending_value.set(lit(1, 1)));
    when(p.clear, || {
        sqs.set(lit(0, c.queues + 1));
        cqs.set(lit(0, c.queues + 1));
        event_count.set(lit(0, 3));
        pending_register.set(lit(0, 1));
        pending_value.set(lit(0, 1));
        masked.set(lit(0, 1));
        deleting.set(lit(0, 1));
    });
    features.clear(p.clear);

    // One log for both: an error is logged in the first cycle without an I/O error, and then answered.
    let logged = reg(1, 0);
    let must_log = state.is(State::Respond) & result_status.any() & !logged;
    when(must_log & !p.error_valid, || logged.set(1));
    when(p.cpl.fire(), || logged.set(0));
    p.cpl.valid.set(state.is(State::Respond) & !must_log);
    p.cpl.payload.cid.set(respond_cid);
    p.cpl.payload.result.set(result);
    p.cpl.payload.status.set(result_status);

    p.walk.valid.set(state.is(State::Walk));
    p.walk.payload.one.set(!deleting);
    // Abort names SQID in CDW10 bits 15:0 as Delete does; the CID is above it.
    p.walk.payload.sq.set(qid);
    p.walk.payload.cid.set(e.cdw10.bits(16, 16));

    features.request(&p, &e, state.is(State::Budget), lun, all_luns);
    p.snapshot_valid.set(state.is(State::Snapshot));
    p.snapshot_lun.set(lun);

    u_pages.start.set(state.is(State::DataStart));
    u_pages.stop.set(u_data.done);
    u_pages.page.set(page);
    u_pages.offset.set(offset);
    u_pages.nsid.set(e.nsid);
    u_pages.luns.set(p.luns);
    let blocks = reg_nr(MEDIA_BLOCK_BITS);
    when(state.is(State::Lookup), || blocks.set(p.lookup_blocks));
    u_pages.blocks.set(blocks);
    u_pages.stats.set(&p.stats);
    u_pages.lookup_present.set(p.lookup_present);
    u_pages.io_valid.set(p.io_valid);
    u_pages.io_op.set(p.io_op);
    u_pages.io_blocks.set(p.io_blocks);
    u_pages.error_valid.set(p.error_valid | must_log);
    u_pages
        .error_sq
        .set(p.error_valid.mux(p.error.sq, lit(0, q)));
    u_pages
        .error_cid
        .set(p.error_valid.mux(p.error.cid, respond_cid));
    u_pages.error_nsid.set(p.error_valid.mux(0, e.nsid));
    u_pages
        .error_status
        .set(p.error_valid.mux(p.error.status, result_status));
    unused(p.error.slot);

    u_data.start.set(state.is(State::DataStart));
    u_data.prp1.set(e.prp1);
    u_data.prp2.set(e.prp2);
    u_data.dwords.set(dwords);
    u_data.dword.set(u_pages.dword);
    u_data.dword_valid.set(u_pages.dword_valid);
    u_pages.dword_ready.set(u_data.dword_ready);
    u_data.b_valid.set(p.b_valid);
    u_data.b_resp.set(p.b_resp);
    p.aw.set(&u_data.aw);
    p.w.set(&u_data.w);

    p.quiet.set(state.is(State::Idle) & !event_due);
    // In every waiting state the block only waits for an input; the writer says its own, and has nothing to do while
    // the pages have.
    let waits = (state.is(State::Idle) & !event_now & !p.entry_valid)
        | (state.is(State::Settle) & p.sq_busy)
        | (state.is(State::Respond) & !must_log & !p.cpl.ready)
        | (state.is(State::Data) & u_data.idle);
    let news = p.clear | p.doorbell_bad_register | p.doorbell_bad_value;
    p.idle.set(waits & u_pages.idle & !news);
}
