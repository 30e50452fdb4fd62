//! fio's engine on the driver: a queue a virtual CPU, buffers that are used again, and simulated time.

use weir_driver::{Admin, Buffer, Controller, Op, Options, Pci, Queue, QueueConfig};

use crate::fio::{self, Command, Completion, Control, DeviceError, LunCardStats};
use crate::pattern::BLOCK;
use crate::rng::Rng;

/// Time as a [`Pci`] back end passes it.
pub trait Clock {
    /// Advances to `until_ns` at most, by some time at least; stops earlier when a completion may be there.
    fn pass(&mut self, until_ns: u64) -> Result<(), DeviceError>;
    /// Says how many commands are outstanding, and whether one has completed since the last call: for hangs.
    fn watch(&mut self, outstanding: u64, progress: bool);
    /// Executing commands and depth of LUN `lun` at this moment, at no cost and no disturbance; None if that cannot be had.
    fn lun(&self, _lun: u32) -> Option<(u32, u32)> {
        None
    }
}

/// What the engine needs of the card.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Virtual CPUs: as many queues.
    pub cpus: usize,
    /// Entries of a queue, a power of two; a queue holds one command less.
    pub entries: u32,
    /// Blocks of 512 bytes in the longest command.
    pub max_blocks: u32,
    /// For each CPU, the LUNs that its jobs use.
    pub luns: Vec<Vec<u32>>,
}

/// The card could not be used as the jobs want.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The driver.
    #[error(transparent)]
    Driver(#[from] weir_driver::Error),
    /// A LUN could not be opened on a queue.
    #[error("LUN {lun} on CPU {cpu}: {source}")]
    Open {
        /// From 0.
        lun: u32,
        /// From 0.
        cpu: usize,
        /// Why not.
        source: weir_driver::OpenError,
    },
    /// There is no such LUN.
    #[error("the jobs use LUN {wanted}, but the card shows {shown} LUNs")]
    NoLun {
        /// From 0.
        wanted: u32,
        /// How many there are.
        shown: usize,
    },
}

struct InFlight {
    id: u64,
    bytes: usize,
    op: fio::Op,
}

/// A [`fio::Device`] over a [`Controller`].
pub struct NvmeDevice<P: Pci, C> {
    controller: Controller<P>,
    clock: C,
    queues: Vec<Queue<P>>,
    buffers: Vec<Buffer<P::Memory>>,
    buffer_bytes: usize,
    /// What is in flight, by the driver's user word.
    commands: Vec<Option<InFlight>>,
    free: Vec<usize>,
    progress: bool,
    /// What a read's buffer holds before its data comes: another word each time.
    poison: Rng,
}

/// How far time goes when the engine waits for completions alone, ns.
const PATIENCE_NS: u64 = 1_000_000;

/// Buffers allocated at a time.
const BUFFER_BATCH: usize = 16;

impl<P: Pci, C: Clock> NvmeDevice<P, C> {
    /// Brings the controller up and makes the queues.
    pub fn new(pci: P, clock: C, config: &DeviceConfig) -> Result<Self, SetupError> {
        let options = Options {
            io_queues: config.cpus as u16,
            max_transfer: config.max_blocks as usize * BLOCK,
            ..Options::default()
        };
        let mut controller = Controller::new(pci, options)?;
        let mut queues = Vec::new();
        for cpu in 0..config.cpus {
            let queue = QueueConfig {
                entries: config.entries,
                ..QueueConfig::default()
            };
            let mut queue = controller.create_queue(&queue)?;
            for &lun in config.luns.get(cpu).into_iter().flatten() {
                let shown = controller.luns();
                let found = shown.iter().find(|shown| shown.index == lun);
                let found = found.ok_or(SetupError::NoLun {
                    wanted: lun,
                    shown: shown.len(),
                })?;
                queue
                    .open(found)
                    .map_err(|source| SetupError::Open { lun, cpu, source })?;
            }
            queues.push(queue);
        }
        Ok(NvmeDevice {
            controller,
            clock,
            queues,
            buffers: Vec::new(),
            buffer_bytes: (config.max_blocks as usize * BLOCK).max(BLOCK),
            commands: Vec::new(),
            free: Vec::new(),
            progress: false,
            poison: Rng::new(0, 0x7053),
        })
    }

    /// The controller, for admin commands before and after the run.
    pub fn controller(&mut self) -> &mut Controller<P> {
        &mut self.controller
    }

    /// What the card counted for LUN `lun`.
    pub fn card_stats(&mut self, lun: u32) -> Result<LunCardStats, weir_driver::Error> {
        let budget = self.controller.budget(lun)?;
        let counted = self.controller.lun_statistics(lun)?;
        Ok(LunCardStats {
            in_flight: counted.in_flight,
            peak: counted.peak,
            depth: u64::from(budget.depth()),
            weight: u64::from(budget.weight()),
            parked: counted.parked,
            admitted: counted.admitted,
            completed: counted.completed,
            deferred_depth: counted.deferred_depth,
            deferred_tags: counted.deferred_tags,
            deferred_share: counted.deferred_share,
            cycles_waited: counted.cycles_waited,
            bytes: counted.bytes,
        })
    }

    /// Ends the run: deletes the queues and shuts the controller down.
    pub fn shutdown(mut self) -> Result<(), weir_driver::Error> {
        for queue in self.queues.drain(..) {
            self.controller.delete_queue(queue, |_| ())?;
        }
        self.controller.shutdown()
    }

    /// Commands in flight.
    pub fn in_flight(&self) -> usize {
        self.commands.len() - self.free.len()
    }

    fn buffer(&mut self) -> Result<Buffer<P::Memory>, DeviceError> {
        if let Some(buffer) = self.buffers.pop() {
            return Ok(buffer);
        }
        // Whole pages each, as an aligned buffer of fio's is.
        let stride = self.buffer_bytes.next_multiple_of(weir_nvme::PAGE_SIZE);
        let memory = self.controller.pci().alloc(stride * BUFFER_BATCH)?;
        self.buffers = Buffer::pieces(memory, stride);
        self.buffers
            .pop()
            .ok_or_else(|| "no buffer could be cut".into())
    }
}

impl<P: Pci, C: Clock> fio::Device for NvmeDevice<P, C> {
    fn now_ns(&self) -> u64 {
        self.controller.pci().now_ns()
    }

    fn try_submit(
        &mut self,
        cpu: usize,
        command: &Command,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, DeviceError> {
        // A Write's data must not be made before it is known that the queue takes it.
        if !self.queues[cpu].has_room(command.lun) {
            return Ok(false);
        }
        let bytes = command.blocks as usize * BLOCK;
        let (op, mut buffer) = match command.op {
            fio::Op::Read => (Op::Read, Some(self.buffer()?)),
            fio::Op::Write => (Op::Write, Some(self.buffer()?)),
            fio::Op::Flush => (Op::Flush, None),
        };
        match (op, &mut buffer) {
            (Op::Write, Some(buffer)) => buffer.with_mut(|data| fill(&mut data[..bytes])),
            // Buffers are used again: what does not arrive must not look like what did before.
            (_, Some(buffer)) => {
                let poison = self.poison.next_u64().to_le_bytes();
                buffer.with_mut(|data| {
                    for word in data[..bytes].chunks_exact_mut(8) {
                        word.copy_from_slice(&poison);
                    }
                });
            }
            _ => (),
        }
        let user = self.free.pop().unwrap_or(self.commands.len());
        let taken = self.queues[cpu].submit(
            command.lun,
            op,
            buffer,
            command.lba,
            command.blocks,
            user as u64,
        );
        taken.map_err(|rejected| rejected.reason)?;
        let state = Some(InFlight {
            id: command.id,
            bytes,
            op: command.op,
        });
        match self.commands.get_mut(user) {
            Some(place) => *place = state,
            None => self.commands.push(state),
        }
        Ok(true)
    }

    fn ring(&mut self, cpu: usize) -> Result<(), DeviceError> {
        self.queues[cpu].ring();
        Ok(())
    }

    fn poll(
        &mut self,
        cpu: usize,
        each: &mut dyn FnMut(Completion<'_>),
    ) -> Result<(), DeviceError> {
        let (commands, free, buffers) = (&mut self.commands, &mut self.free, &mut self.buffers);
        let mut unknown = None;
        let count = self.queues[cpu].poll(|done| {
            let Some(command) = commands.get_mut(done.user as usize).and_then(Option::take) else {
                unknown = Some(done.user);
                return;
            };
            free.push(done.user as usize);
            let (id, status) = (command.id, u16::from(done.status) & 0x7ff);
            match &done.buffer {
                Some(buffer) if command.op == fio::Op::Read => {
                    buffer.with(|data| {
                        each(Completion {
                            id,
                            status,
                            data: &data[..command.bytes],
                        })
                    });
                }
                _ => each(Completion {
                    id,
                    status,
                    data: &[],
                }),
            }
            buffers.extend(done.buffer);
        })?;
        self.progress |= count > 0;
        match unknown {
            Some(user) => {
                Err(format!("a completion came back with the unknown token {user}").into())
            }
            None => Ok(()),
        }
    }

    fn advance(&mut self, until_ns: Option<u64>) -> Result<(), DeviceError> {
        let outstanding = self.in_flight() as u64;
        self.clock
            .watch(outstanding, std::mem::take(&mut self.progress));
        let now = self.now_ns();
        self.clock
            .pass(until_ns.unwrap_or(now + PATIENCE_NS).max(now + 1))
    }

    fn sample(&mut self, lun: u32) -> Option<(u32, u32)> {
        self.clock.lun(lun)
    }

    fn control(&mut self, control: Control) -> Result<(), DeviceError> {
        match control {
            Control::Depth { lun, depth } => self.controller.set_depth(lun, depth as u16)?,
            Control::Weight { lun, weight } => self.controller.set_weight(lun, weight as u16)?,
        }
        Ok(())
    }
}
