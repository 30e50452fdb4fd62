//! Writes some blocks at the start of every LUN, reads them back and compares. **Overwrites them.**
//!
//! `verify` does the same with several threads, interrupts and resets, and looks for a device that is gone.

mod common;

use common::{Args, Failure, fail};
use weir_driver::backend::Device;
use weir_driver::{Buffer, Controller, Op, Options, Pci, Queue, QueueConfig};

const BYTES: usize = 4096;

fn main() -> Result<(), Failure> {
    let mut args = Args::new("io DEVICE [--ios N]");
    let ios = args.value("--ios", 64);
    match args.device() {
        Device::Vfio(pci) => io(pci, ios),
        Device::VfioUser(pci) => io(pci, ios),
    }
}

fn io<P: Pci>(pci: P, ios: u64) -> Result<(), Failure> {
    // The controller comes up; a queue pair is made, and the LUNs are opened on it.
    let mut controller = Controller::new(pci, Options::default())?;
    let mut queue = controller.create_queue(&QueueConfig {
        entries: 256.min(u32::from(controller.info().cap.mqes()) + 1),
        ..QueueConfig::default()
    })?;
    // A buffer is DMA memory. It moves into the queue with a command, and back out with its completion.
    let memory = controller.pci().alloc(BYTES)?;
    let mut buffer = Buffer::pieces(memory, BYTES).remove(0);
    for lun in controller.luns() {
        queue.open(lun)?;
        let blocks = (BYTES >> lun.block_shift) as u32;
        for n in 0..ios {
            let (slba, data) = (n * u64::from(blocks), [n as u8 ^ lun.index as u8; BYTES]);
            buffer.with_mut(|bytes| bytes.copy_from_slice(&data));
            buffer = one(&mut queue, lun.index, Op::Write, buffer, slba, blocks)?;
            buffer.with_mut(|bytes| bytes.fill(0xee));
            buffer = one(&mut queue, lun.index, Op::Read, buffer, slba, blocks)?;
            if !buffer.with(|bytes| bytes == data) {
                return fail(format!("LUN {}, block {slba}: other data", lun.index));
            }
        }
        println!("LUN {}: {ios} writes read back, all right", lun.index);
    }
    // In this order: the queue's memory is the controller's until it is deleted.
    controller.delete_queue(queue, |_| ())?;
    controller.shutdown()?;
    Ok(())
}

/// One command from submission to completion.
fn one<P: Pci>(
    queue: &mut Queue<P>,
    lun: u32,
    op: Op,
    buffer: Buffer<P::Memory>,
    slba: u64,
    blocks: u32,
) -> Result<Buffer<P::Memory>, Failure> {
    queue
        .submit(lun, op, Some(buffer), slba, blocks, 0)
        .map_err(|rejected| rejected.reason)?;
    queue.ring();
    loop {
        match queue.poll_one()? {
            Some(done) if done.status.is_success() => {
                return done.buffer.map_or_else(|| fail("the buffer is gone"), Ok);
            }
            Some(done) => return fail(format!("{op:?} of LUN {lun}: {:?}", done.status)),
            // Nothing yet: the device gets its time.
            None => drop(queue.wait(0)),
        }
    }
}
