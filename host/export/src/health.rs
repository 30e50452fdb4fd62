//! [`Health`]: whether a controller with commands in flight still works, for whoever polls a queue of it.

use std::sync::Mutex;

use weir_driver::nvme::registers::{ALL_ONES, Csts, offset};
use weir_driver::{Controller, Outstanding, Pci, Queue, Verdict, Watch};

use crate::luns::lock;

/// Nothing has completed for so long: the commands in flight are late, and asked about.
const LATE_NS: u64 = 10_000_000_000;
/// So often in a row, and the controller is given up.
const INQUIRIES: u32 = 6;

/// What is known of one queue's progress. Costs nothing while commands complete: it is asked only in turns that found
/// nothing, and not in each of these.
pub struct Health {
    progress_ns: u64,
    inquiries: u32,
    watch: Watch,
}

impl Health {
    /// Of a queue that is idle now.
    pub fn new(pci: &impl Pci) -> Health {
        Health {
            progress_ns: pci.now_ns(),
            inquiries: 0,
            watch: Watch::default(),
        }
    }

    /// Commands have completed, or the first ones were submitted.
    pub fn progress(&mut self, pci: &impl Pci) {
        (self.progress_ns, self.inquiries) = (pci.now_ns(), 0);
    }

    /// Looks at the controller; when nothing has completed for 10 s, asks it about the commands in flight and aborts
    /// those that are stuck. An error says why the controller is lost.
    pub fn check<P: Pci>(
        &mut self,
        pci: &P,
        controller: &Mutex<Option<Controller<P>>>,
        queue: &Queue<P>,
    ) -> Result<(), String> {
        let csts = pci.read32(offset::CSTS);
        if csts == ALL_ONES {
            return Err("its registers read all ones".to_owned());
        } else if Csts::from(csts).cfs() {
            return Err("it reports a fatal status (CSTS.CFS)".to_owned());
        } else if pci.now_ns() < self.progress_ns + LATE_NS {
            return Ok(());
        }
        self.progress_ns = pci.now_ns();
        let late: Vec<Outstanding> = queue.outstanding().collect();
        if inquire(controller, &late, &mut self.watch)? {
            self.inquiries = 0;
        } else {
            self.inquiries += 1;
            if self.inquiries >= INQUIRIES {
                return Err("commands neither complete nor can be aborted".to_owned());
            }
        }
        Ok(())
    }
}

/// Asks the controller about late commands, and aborts those that are stuck; true when any of them only waits its turn.
fn inquire<P: Pci>(
    controller: &Mutex<Option<Controller<P>>>,
    late: &[Outstanding],
    watch: &mut Watch,
) -> Result<bool, String> {
    let mut controller = lock(controller);
    let Some(controller) = controller.as_mut() else {
        return Ok(false);
    };
    let mut waits = false;
    for command in late {
        match controller.inquire(command, watch) {
            Ok(Verdict::Waiting(_)) => waits = true,
            Ok(Verdict::Aborted | Verdict::NotAborted) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(waits)
}
