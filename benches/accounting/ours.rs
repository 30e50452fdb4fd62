//! Our driver's path for the same I/O: submit, doorbell, poll, through its public API. The device is an echo in the same
//! thread: it reads the entries that a doorbell announces and writes a completion for each, nothing else. The tests'
//! model serves the admin queue.
#![allow(unsafe_code)]

use crate::mock::{MockMemory, MockPci};
use std::sync::atomic::{Ordering, fence};
use weir_driver::nvme::registers::{BAR0_SIZE, cq_head_doorbell, offset, sq_tail_doorbell};
use weir_driver::{AllocError, Buffer, Controller, Op, Options, Pci, Queue, QueueConfig};

/// Doorbells 128 bytes apart (CAP.DSTRD), so that the memory behind them is not shared by two threads.
const DSTRD: u8 = 5;
/// No register write is pending.
const NOTHING: u32 = u32::MAX;

/// A BAR that is plain memory, as a mapped one is: a register write is one store.
#[derive(Clone)]
pub struct EchoPci {
    bar: *mut u32,
    model: MockPci,
}

// SAFETY: the BAR is never freed; each doorbell is one thread's, and the other registers are used before the threads
// start and after they end.
unsafe impl Send for EchoPci {}

impl EchoPci {
    pub fn new() -> EchoPci {
        let model = MockPci::new(2, 4096);
        model.device().cap.set_dstrd(DSTRD);
        let bar = vec![NOTHING; BAR0_SIZE / 4].into_boxed_slice();
        EchoPci {
            bar: Box::leak(bar).as_mut_ptr(),
            model,
        }
    }
}

impl Pci for EchoPci {
    type Memory = MockMemory;

    fn bar0_len(&self) -> usize {
        BAR0_SIZE
    }

    fn read32(&self, offset: usize) -> u32 {
        self.model.read32(offset)
    }

    #[inline]
    fn write32(&self, offset: usize, value: u32) {
        // SAFETY: the driver writes inside the BAR, whose length it was told.
        unsafe { self.bar.byte_add(offset).write_volatile(value) }
    }

    fn alloc(&self, len: usize) -> Result<MockMemory, AllocError> {
        self.model.alloc(len)
    }

    fn vectors(&self) -> u16 {
        0
    }

    fn take_interrupt(&self, _: u16) -> bool {
        false
    }

    fn wait_interrupt(&self, _: u16, _: u64) -> bool {
        false
    }

    /// Hands the model what was written, CC last, since it makes the rest count; then runs it.
    fn relax(&self) {
        let cc = offset::CC / 4;
        for at in (0..BAR0_SIZE / 4).filter(|&at| at != cc).chain([cc]) {
            // SAFETY: below the BAR's length.
            let value = unsafe { self.bar.add(at).replace(NOTHING) };
            if value != NOTHING {
                self.model.write32(at * 4, value);
            }
        }
        self.model.relax();
    }

    fn now_ns(&self) -> u64 {
        self.model.now_ns()
    }
}

/// The echo of one queue.
struct Echo {
    sq: *const u32,
    cq: *mut u32,
    tail: *const u32,
    sqid: u16,
    sq_mask: u32,
    cq_entries: u32,
    sq_head: u32,
    cq_tail: u32,
    phase: u32,
}

// SAFETY: its pointers are to memory that lives as long as the queue, and that only this thread uses.
unsafe impl Send for Echo {}

/// Completes what the last doorbell announced. Not counted.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn weir_device(echo: &mut Echo) {
    // SAFETY: of the BAR.
    let tail = unsafe { echo.tail.read_volatile() };
    while echo.sq_head != tail {
        // SAFETY: `sq_head` is below the entries of the submission ring, 16 words each.
        let cid = unsafe { echo.sq.add(echo.sq_head as usize * 16).read_volatile() } >> 16;
        echo.sq_head = (echo.sq_head + 1) & echo.sq_mask;
        // SAFETY: `cq_tail` is below the entries of the completion ring, 4 words each. The last word last, as PCIe has it.
        unsafe {
            let entry = echo.cq.add(echo.cq_tail as usize * 4);
            entry.write_volatile(0);
            let dword2 = u32::from(echo.sqid) << 16 | tail;
            entry.add(2).write_volatile(dword2);
            fence(Ordering::Release);
            entry.add(3).write_volatile(echo.phase << 16 | cid);
        }
        echo.cq_tail += 1;
        if echo.cq_tail == echo.cq_entries {
            (echo.cq_tail, echo.phase) = (0, echo.phase ^ 1);
        }
    }
}

/// One CPU: a queue with a LUN open, its buffers, and the echo behind it.
pub struct Lane {
    queue: Queue<EchoPci>,
    echo: Echo,
    buffers: Vec<Buffer<MockMemory>>,
    errors: u64,
}

pub fn lanes(pci: &EchoPci, count: usize, batch: usize) -> (Controller<EchoPci>, Vec<Lane>) {
    let mut controller = Controller::new(pci.clone(), Options::default()).expect("bring-up");
    let lanes = (0..count).map(|_| {
        let mut queue = controller
            .create_queue(&QueueConfig::default())
            .expect("a queue");
        queue.open(&controller.luns()[0]).expect("LUN 0");
        let ((sq, sq_entries), (cq, cq_entries)) =
            pci.model.device().rings(queue.sqid(), queue.cqid());
        let [tail, head] = [
            sq_tail_doorbell(queue.sqid(), DSTRD),
            cq_head_doorbell(queue.cqid(), DSTRD),
        ]
        .map(|at| {
            // SAFETY: the driver has checked that the queue's doorbells are inside the BAR.
            unsafe { pci.bar.byte_add(at) }
        });
        // SAFETY: as above; nothing was submitted.
        unsafe {
            tail.write(0);
            head.write(0);
        }
        let memory = pci.alloc(batch * 4096).expect("memory");
        Lane {
            echo: Echo {
                sq: sq.cast(),
                cq: cq.cast(),
                tail,
                sqid: queue.sqid(),
                sq_mask: sq_entries - 1,
                cq_entries,
                sq_head: 0,
                cq_tail: 0,
                phase: 1,
            },
            queue,
            buffers: Buffer::pieces(memory, 4096),
            errors: 0,
        }
    });
    let lanes = lanes.collect();
    (controller, lanes)
}

impl Lane {
    /// Reads of 4 KiB, as many under a doorbell as there are buffers.
    #[inline(never)]
    pub fn account_work(&mut self, rounds: u64) {
        let batch = self.buffers.len();
        let (mut slba, mut errors) = (0, 0);
        for _ in 0..rounds {
            let buffers = &mut self.buffers;
            let put = self.queue.submit_all(0, Op::Read, 8, buffers, || {
                slba = (slba + 8) & 4095;
                (slba, 0)
            });
            put.expect("the queue has room");
            self.queue.ring();
            weir_device(&mut self.echo);
            let reaped = self.queue.reap(batch as u32, |done| {
                if let Some(buffer) = done.buffer {
                    buffers.push(buffer);
                }
            });
            let count = reaped.map(|reaped| {
                errors += u64::from(reaped.other.is_some());
                reaped.count as usize
            });
            assert_eq!(count, Ok(batch), "the echo completes all");
        }
        self.errors += errors;
    }

    pub fn end(self) {
        assert_eq!(self.errors, 0, "reads failed");
    }
}
