//! Interrupts as eventfds: the kernel, or a vfio-user server, adds to one whenever a vector is raised.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One vector's.
pub(super) struct Event(OwnedFd);

impl Event {
    pub(super) fn new() -> io::Result<Event> {
        Ok(Event(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// True when the vector was raised since the last call.
    pub(super) fn take(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }

    /// Waits until the vector is raised, `ns` nanoseconds at most; false when it was not.
    pub(super) fn wait(&self, ns: u64) -> bool {
        let timeout = Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        };
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            // A signal: the caller looks at its deadline and comes back.
            Ok(_) | Err(Errno::INTR) => self.take(),
            Err(_) => false,
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_taken_once() {
        let event = Event::new().unwrap();
        assert!(!event.take() && !event.wait(1000));
        for _ in 0..2 {
            rustix::io::write(&event, &1u64.to_ne_bytes()).unwrap();
        }
        assert!(event.wait(1 << 40));
        assert!(!event.take());
    }
}
