//! What can go wrong between two ends.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::wire::command_name;

fn why(source: &std::io::Error) -> String {
    match source.kind() {
        ErrorKind::NotFound => "there is no such socket".to_owned(),
        ErrorKind::ConnectionRefused => {
            "nobody listens there: it is no socket, or its server has ended".to_owned()
        }
        _ => source.to_string(),
    }
}

/// Why a connection, or a request on it, failed. All but [`Error::Refused`] end the connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody serves there.
    #[error("cannot connect to {path}: {}", why(source))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer closed the connection, or stopped sending, inside a message.
    #[error("the connection ended inside a message, after {0} bytes of it")]
    Partial(usize),
    /// The socket.
    #[error("cannot {what}: {source}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: rustix::io::Errno,
    },
    /// The header names a size that no message has.
    #[error("a message of {size} bytes: must be {least} to {most}")]
    Size {
        /// The size named.
        size: usize,
        /// The header alone.
        least: usize,
        /// The bound on a message.
        most: usize,
    },
    /// More file descriptors than a message may carry.
    #[error("a message came with more than {most} file descriptors")]
    TooManyFds {
        /// How many may.
        most: usize,
    },
    /// The peer did not take, or give, a message in time.
    #[error("the peer did not {what} within {ms} ms")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        ms: u128,
    },
    /// The peer's reply says that it could not do it.
    #[error("{} was refused: {}", command_name(*.command), std::io::Error::from_raw_os_error(*.errno as i32))]
    Refused {
        /// The command.
        command: u16,
        /// What the peer says, an errno of Linux.
        errno: u32,
    },
    /// A reply that does not belong to the request.
    #[error("{}: {problem}", command_name(*.command))]
    Reply {
        /// The command.
        command: u16,
        /// What is wrong with the reply.
        problem: String,
    },
    /// The peer speaks another version.
    #[error("the peer speaks vfio-user {major}.{minor}; this end speaks 0.0 and 0.1")]
    Version {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
}
