//! The bare loop: what is counted of the driver, by `make guest-bench` in a guest and by `cargo bench -p weir-driver --bench hot_path`.

use std::error::Error;
use std::mem::ManuallyDrop;
use weir_driver::nvme::Status;
use weir_driver::{Buffer, Completed, Op, Pci, Queue};

/// What is read: blocks in order, around at the largest power of two that fits into the LUN.
#[derive(Clone, Copy)]
pub struct Reads {
    pub lun: u32,
    /// Of each read, a power of two.
    pub blocks: u32,
    /// The first LBA again, less one.
    pub mask: u64,
}

impl Reads {
    pub fn new(lun: u32, blocks: u32, lun_blocks: u64) -> Reads {
        Reads {
            lun,
            blocks,
            mask: (1 << lun_blocks.max(1).ilog2()) - 1,
        }
    }
}

/// `ios` reads, one at a time; `device` is called after each doorbell.
pub fn one<P: Pci>(
    queue: &mut Queue<P>,
    mut buffer: Buffer<P::Memory>,
    Reads { lun, blocks, mask }: Reads,
    ios: u64,
    device: impl Fn(),
) -> Result<Buffer<P::Memory>, Box<dyn Error>> {
    let mut slba = 0;
    for _ in 0..ios {
        queue
            .read(lun, buffer, slba, blocks, 0)
            .map_err(|rejected| rejected.reason)?;
        queue.ring();
        device();
        slba = (slba + u64::from(blocks)) & mask;
        buffer = loop {
            match queue.poll_one() {
                Ok(Some(Completed {
                    status: Status::SUCCESS,
                    buffer: Some(buffer),
                    ..
                })) => break buffer,
                Ok(None) => {}
                Ok(Some(failed)) => return Err(format!("a read: {:?}", failed.status).into()),
                Err(error) => return Err(error.into()),
            }
        };
    }
    Ok(buffer)
}

/// A read into each of `buffers` under one doorbell, then all their completions, and so on for `rounds` rounds; `device`
/// is called after each doorbell.
pub fn rounds<P: Pci>(
    queue: &mut Queue<P>,
    buffers: Vec<Buffer<P::Memory>>,
    Reads { lun, blocks, mask }: Reads,
    rounds: u64,
    device: impl Fn(),
) -> Result<Vec<Buffer<P::Memory>>, Box<dyn Error>> {
    let batch = buffers.len() as u32;
    let mut slba = 0;
    let mut next = || {
        let at = slba;
        slba = (at + u64::from(blocks)) & mask;
        (at, 0)
    };
    // Not dropped, but leaked when this fails: so that it may be in registers.
    let mut buffers = ManuallyDrop::new(buffers);
    for _ in 0..rounds {
        queue.submit_all(lun, Op::Read, blocks, &mut buffers, &mut next)?;
        queue.ring();
        device();
        let mut left = batch;
        while left > 0 {
            let reaped = queue.reap(left, |io| match io.buffer {
                // There is always room: so the code has no growing and no panic in it.
                Some(buffer) if buffers.len() < buffers.capacity() => buffers.push(buffer),
                other => std::mem::forget(other),
            })?;
            if reaped.other.is_some() {
                return Err("a read failed".into());
            }
            left -= reaped.count;
        }
    }
    Ok(ManuallyDrop::into_inner(buffers))
}
