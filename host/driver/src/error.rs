//! What can go wrong between driver and controller.

use crate::pci::AllocError;
use crate::request::QueueError;
use weir_nvme::Status;

/// An error of [`Controller`](crate::Controller).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// DMA memory could not be had.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// A register reads all ones: the device is gone.
    #[error("{register} reads all ones: the device is gone")]
    Gone {
        /// The register.
        register: &'static str,
    },
    /// CSTS.CFS: the controller has failed; a reset may help.
    #[error("CSTS.CFS is set: the controller has failed")]
    Fatal,
    /// The controller left the ready state by itself.
    #[error("CSTS.RDY is 0 while CC.EN is 1: the controller was reset")]
    WasReset,
    /// A register did not become what was waited for.
    #[error("{what} did not follow within {ms} ms; CSTS reads {csts:#010x}")]
    NotReady {
        /// What was waited for.
        what: &'static str,
        /// How long, from CAP.TO.
        ms: u64,
        /// CSTS at the end.
        csts: u32,
    },
    /// The controller lacks what this driver needs.
    #[error("{what} is {found}, but must be {want}")]
    Capability {
        /// Register field, or field of an Identify structure.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What would do.
        want: &'static str,
    },
    /// An admin command got no completion. The controller must be reset.
    #[error("{command}: no completion within {ms} ms")]
    Timeout {
        /// The command.
        command: &'static str,
        /// How long.
        ms: u64,
    },
    /// The controller completed an admin command with an error.
    #[error("{command}: status {:?}{}", .status.code(), if .status.dnr() { ", do not retry" } else { "" })]
    Command {
        /// The command.
        command: &'static str,
        /// Its status.
        status: Status,
    },
    /// Linux's nvme driver, which has the controller, did not execute an admin command.
    #[error("{command} through the kernel's nvme driver: {reason}")]
    Kernel {
        /// The command.
        command: &'static str,
        /// Why not.
        reason: String,
    },
    /// Another process of ours, which has the controller, did not execute an admin command.
    #[error("{command} through the process that has the controller: {reason}")]
    Control {
        /// The command.
        command: &'static str,
        /// Why not.
        reason: String,
    },
    /// The controller broke the protocol on the admin queue.
    #[error("admin queue: {0}")]
    Protocol(#[from] QueueError),
    /// The controller is no Weir card, or not one that can do this.
    #[error("{0}: only a Weir card that has it can do this")]
    Unsupported(&'static str),
    /// An argument is out of range.
    #[error("{what} is {value}, but must be {want}")]
    Invalid {
        /// The argument.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What would do.
        want: String,
    },
    /// There is no such LUN.
    #[error("there is no LUN {0}")]
    NoSuchLun(u32),
    /// Queues exist that must be handed in or deleted first.
    #[error("completion queues {0:?} still exist: hand them in, or delete them first")]
    QueuesLeft(Vec<u16>),
    /// The queue is another controller's.
    #[error("completion queue {0} is not of this controller")]
    ForeignQueue(u16),
    /// A queue whose creation failed half-way could not be deleted: reset the controller.
    #[error("queue {0} was created in part and could not be deleted: reset the controller")]
    NotUndone(u16),
    /// The controller is not enabled: an earlier reset failed.
    #[error("the controller is not enabled: its last reset failed")]
    Disabled,
}
