//! An AXI4-Lite master: register accesses to the card, in order.
//!
//! Writes follow one another without waiting for B; a read waits until every earlier write has its B, as PCIe's ordering
//! of a read behind posted writes wants.

use std::collections::VecDeque;

use crate::axi::Resp;

/// What the master drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LiteIn {
    pub aw_valid: bool,
    pub aw_addr: u32,
    pub w_valid: bool,
    pub w_data: u32,
    pub w_strb: u8,
    pub b_ready: bool,
    pub ar_valid: bool,
    pub ar_addr: u32,
    pub r_ready: bool,
}

/// What the card drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LiteOut {
    pub aw_ready: bool,
    pub w_ready: bool,
    pub b_valid: bool,
    pub b_resp: u8,
    pub ar_ready: bool,
    pub r_valid: bool,
    pub r_data: u32,
    pub r_resp: u8,
}

/// An access to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes the bytes of `data` that `strobe` (bit n for byte n) enables.
    Write {
        /// Byte offset, a multiple of 4.
        addr: u32,
        /// The value.
        data: u32,
        /// Byte enables, 4 bits.
        strobe: u8,
    },
    /// Reads; the answer carries `token`.
    Read {
        /// Byte offset, a multiple of 4.
        addr: u32,
        /// Chosen by the caller.
        token: u64,
    },
}

/// An answered read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAnswer {
    /// Of the request.
    pub token: u64,
    /// The value; all ones when `resp` is no success.
    pub data: u32,
    /// How the card answered.
    pub resp: Resp,
}

/// The master.
#[derive(Debug, Default)]
pub struct LiteMaster {
    queue: VecDeque<Access>,
    writes: u32,
    reading: Option<u64>,
    answers: VecDeque<ReadAnswer>,
    errors: u64,
    last_write: Option<(u64, u32)>,
}

impl LiteMaster {
    /// Nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// What it drives before the first cycle.
    pub fn initial(&self) -> LiteIn {
        LiteIn {
            b_ready: true,
            r_ready: true,
            ..Default::default()
        }
    }

    /// Queues an access. It starts on the bus with the next [`LiteMaster::cycle`].
    pub fn push(&mut self, access: Access) {
        self.queue.push_back(access);
    }

    /// The next answer, in the order of the reads.
    pub fn pop_answer(&mut self) -> Option<ReadAnswer> {
        self.answers.pop_front()
    }

    /// Is an access queued or not answered?
    pub fn busy(&self) -> bool {
        !self.queue.is_empty() || self.writes > 0 || self.reading.is_some()
    }

    /// Accesses that the card answered with an error.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// The cycle in which the last write's WVALID rose, and its address.
    pub fn last_write(&self) -> Option<(u64, u32)> {
        self.last_write
    }

    /// Takes the handshakes of cycle `now`; leaves in `i` what it drives in the next one. True when anything happened.
    pub fn cycle(&mut self, now: u64, i: &mut LiteIn, o: &LiteOut) -> bool {
        if self.queue.is_empty() && self.writes == 0 && self.reading.is_none() {
            return false;
        }
        let before = *i;
        if i.aw_valid && o.aw_ready {
            i.aw_valid = false;
        }
        if i.w_valid && o.w_ready {
            i.w_valid = false;
        }
        if i.ar_valid && o.ar_ready {
            i.ar_valid = false;
        }
        let mut changed = false;
        if o.b_valid && self.writes > 0 {
            changed = true;
            self.writes -= 1;
            self.errors += u64::from(o.b_resp != 0);
        }
        if o.r_valid
            && let Some(token) = self.reading.take()
        {
            changed = true;
            let resp = match o.r_resp {
                0 => Resp::Okay,
                3 => Resp::DecErr,
                _ => Resp::SlvErr,
            };
            let data = if resp == Resp::Okay {
                o.r_data
            } else {
                u32::MAX
            };
            self.errors += u64::from(resp != Resp::Okay);
            self.answers.push_back(ReadAnswer { token, data, resp });
        }
        self.start(now, i);
        changed || *i != before
    }

    fn start(&mut self, now: u64, i: &mut LiteIn) {
        if i.aw_valid || i.w_valid || self.reading.is_some() {
            return;
        }
        match self.queue.front().copied() {
            Some(Access::Write { addr, data, strobe }) => {
                (i.aw_valid, i.aw_addr) = (true, addr);
                (i.w_valid, i.w_data, i.w_strb) = (true, data, strobe);
                self.writes += 1;
                self.last_write = Some((now + 1, addr));
            }
            Some(Access::Read { addr, token }) if self.writes == 0 => {
                (i.ar_valid, i.ar_addr) = (true, addr);
                self.reading = Some(token);
            }
            _ => return,
        }
        self.queue.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn accesses_keep_their_order_against_a_slave_that_stalls() {
        let mut rng = Rng::new(3, 0);
        let mut master = LiteMaster::new();
        let mut expected = Vec::new();
        let mut model = [0u32; 4];
        for token in 0..200 {
            let addr = 4 * rng.below(4) as u32;
            if rng.percent(60) {
                let (data, strobe) = (rng.next_u64() as u32, rng.below(16) as u8);
                for byte in (0..4).filter(|b| strobe >> b & 1 != 0) {
                    let mask = 0xff << (8 * byte);
                    model[addr as usize / 4] = model[addr as usize / 4] & !mask | data & mask;
                }
                master.push(Access::Write { addr, data, strobe });
            } else {
                expected.push((token, model[addr as usize / 4]));
                master.push(Access::Read { addr, token });
            }
        }
        let (mut i, mut o) = (master.initial(), LiteOut::default());
        let mut ram = [0u32; 4];
        let (mut aw, mut w, mut owed) = (None, None, 0);
        for now in 0..100_000 {
            if !master.busy() {
                break;
            }
            if i.aw_valid && o.aw_ready {
                assert_eq!(aw.replace(i.aw_addr), None);
            }
            if i.w_valid && o.w_ready {
                assert_eq!(w.replace((i.w_data, i.w_strb)), None);
            }
            let read = (i.ar_valid && o.ar_ready).then_some(i.ar_addr);
            assert!(
                read.is_none() || owed == 0 && aw.is_none(),
                "a read passed a write"
            );
            master.cycle(now, &mut i, &o);
            if o.b_valid {
                owed -= 1;
            }
            if let (Some(addr), Some((data, strobe))) = (aw, w) {
                for byte in (0..4).filter(|b| strobe >> b & 1 != 0) {
                    let mask = 0xff << (8 * byte);
                    ram[addr as usize / 4] = ram[addr as usize / 4] & !mask | data & mask;
                }
                (aw, w) = (None, None);
                owed += 1;
            }
            o = LiteOut {
                aw_ready: aw.is_none() && rng.percent(50),
                w_ready: w.is_none() && rng.percent(50),
                ar_ready: rng.percent(50),
                b_valid: owed > 0 && rng.percent(50),
                r_valid: read.is_some(),
                r_data: read.map_or(0, |addr| ram[addr as usize / 4]),
                ..Default::default()
            };
        }
        let answers: Vec<_> = std::iter::from_fn(|| master.pop_answer())
            .map(|a| (a.token, a.data))
            .collect();
        assert_eq!(answers, expected);
        assert_eq!(ram, model);
    }
}
