//! A plain Rust AXI4 master: plays requests, collects answers, and checks the slave. For tests and fake cards.

use std::collections::VecDeque;

use crate::axi::{Addr, MAX_WORDS, MasterOut, Resp, Shape, SlaveOut};

/// A finished request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// What `read` or `write` returned.
    pub request: u64,
    /// The worst response of its beats.
    pub resp: Resp,
    /// Read data; empty for a write.
    pub data: Vec<u8>,
    /// Cycle of the last beat or of B.
    pub cycle: u64,
}

struct Read {
    request: u64,
    addr: Addr,
    bytes: usize,
    beat: u32,
    resp: Resp,
    data: Vec<u8>,
}

struct Write {
    request: u64,
    addr: Addr,
    data: Vec<u8>,
}

/// The master. Bursts are INCR, of full-width beats, and must stay within 4 KiB.
pub struct Master {
    shape: Shape,
    requests: u64,
    reads: VecDeque<Read>,
    /// Reads whose address was accepted, in that order.
    reading: VecDeque<Read>,
    /// Writes whose address was not accepted, and those whose data was not.
    aw: VecDeque<Addr>,
    w: VecDeque<Write>,
    beat: u32,
    /// (ID, request) of writes whose data was accepted, in that order.
    writing: VecDeque<(u32, u64)>,
    done: Vec<Done>,
}

impl Master {
    /// A master of this width with nothing to do.
    pub fn new(shape: Shape) -> Self {
        Master {
            shape,
            requests: 0,
            reads: VecDeque::new(),
            reading: VecDeque::new(),
            aw: VecDeque::new(),
            w: VecDeque::new(),
            beat: 0,
            writing: VecDeque::new(),
            done: Vec::new(),
        }
    }

    /// Queues a read of `bytes` (at least 1) from `addr`, any alignment.
    pub fn read(&mut self, id: u32, addr: u64, bytes: usize) -> u64 {
        self.requests += 1;
        let addr = self.burst(id, addr, bytes);
        let data = Vec::with_capacity(bytes);
        self.reads.push_back(Read {
            request: self.requests,
            addr,
            bytes,
            beat: 0,
            resp: Resp::Okay,
            data,
        });
        self.requests
    }

    /// Queues a write of `data` (at least a byte) to `addr`, any alignment.
    pub fn write(&mut self, id: u32, addr: u64, data: &[u8]) -> u64 {
        self.requests += 1;
        let addr = self.burst(id, addr, data.len());
        self.aw.push_back(addr);
        self.w.push_back(Write {
            request: self.requests,
            addr,
            data: data.to_vec(),
        });
        self.requests
    }

    /// Requests not finished.
    pub fn pending(&self) -> usize {
        self.reads.len() + self.reading.len() + self.w.len() + self.writing.len()
    }

    /// The requests finished since the last call.
    pub fn take_done(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.done)
    }

    /// What it drives in this cycle.
    pub fn drive(&self) -> MasterOut {
        let mut m = MasterOut {
            b_ready: true,
            r_ready: true,
            ..Default::default()
        };
        if let Some(read) = self.reads.front() {
            (m.ar_valid, m.ar) = (true, read.addr);
        }
        if let Some(aw) = self.aw.front() {
            (m.aw_valid, m.aw) = (true, *aw);
        }
        // Data never leads its address: it is offered in the same cycle or later, and slaves take it so.
        if let Some(write) = self.w.front() {
            m.w_valid = true;
            m.w_last = self.beat + 1 == write.addr.beats();
            (m.w_strb, m.w_data) = self.beat_of(write);
        }
        m
    }

    /// Takes the handshakes of cycle `now`, in which it drove `m` and the slave drove `s`. Panics on an answer that was
    /// not asked for or is out of order within its ID: the slave under test is wrong.
    pub fn cycle(&mut self, now: u64, m: &MasterOut, s: &SlaveOut) {
        if m.ar_valid && s.ar_ready {
            self.reading.extend(self.reads.pop_front());
        }
        if m.aw_valid && s.aw_ready {
            self.aw.pop_front();
        }
        if m.w_valid && s.w_ready {
            self.beat += 1;
            if m.w_last {
                self.beat = 0;
                let write = self.w.pop_front().expect("data was driven from this queue");
                self.writing.push_back((write.addr.id, write.request));
            }
        }
        if s.b_valid && m.b_ready {
            let at = self.writing.iter().position(|(id, _)| *id == s.b_id);
            let at =
                at.unwrap_or_else(|| panic!("cycle {now}: B for ID {} without a write", s.b_id));
            if let Some((_, request)) = self.writing.remove(at) {
                self.done.push(Done {
                    request,
                    resp: s.b_resp,
                    data: Vec::new(),
                    cycle: now,
                });
            }
        }
        if s.r_valid && m.r_ready {
            self.take_beat(now, s);
        }
    }

    fn take_beat(&mut self, now: u64, s: &SlaveOut) {
        let at = self.reading.iter().position(|read| read.addr.id == s.r_id);
        let at = at.unwrap_or_else(|| panic!("cycle {now}: R for ID {} without a read", s.r_id));
        let width = self.shape.data_bytes;
        let read = &mut self.reading[at];
        let skip = read.addr.beat_addr(read.beat) as usize % width;
        let take = (width - skip).min(read.bytes - read.data.len());
        let bytes: Vec<u8> = s
            .r_data
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        read.data.extend_from_slice(&bytes[skip..skip + take]);
        read.resp = read.resp.max(s.r_resp);
        read.beat += 1;
        let last = read.beat == read.addr.beats();
        assert_eq!(
            s.r_last, last,
            "cycle {now}: RLAST on beat {} of {:x?}",
            read.beat, read.addr
        );
        if last && let Some(read) = self.reading.remove(at) {
            self.done.push(Done {
                request: read.request,
                resp: read.resp,
                data: read.data,
                cycle: now,
            });
        }
    }

    fn burst(&self, id: u32, addr: u64, bytes: usize) -> Addr {
        let width = self.shape.data_bytes;
        let beats = (addr as usize % width + bytes).div_ceil(width);
        let len = u8::try_from(beats - 1).expect("a burst has at most 256 beats");
        Addr {
            id,
            addr,
            len,
            size: width.trailing_zeros() as u8,
            burst: 1,
        }
    }

    fn beat_of(&self, write: &Write) -> (u64, [u64; MAX_WORDS]) {
        let width = self.shape.data_bytes;
        let skip = write.addr.addr as usize % width;
        let mut lanes = [0u8; 8 * MAX_WORDS];
        let mut strobe = 0;
        for (lane, out) in lanes.iter_mut().enumerate().take(width) {
            let index = (self.beat as usize * width + lane).checked_sub(skip);
            if let Some(byte) = index.and_then(|i| write.data.get(i)) {
                *out = *byte;
                strobe |= 1 << lane;
            }
        }
        let mut data = [0; MAX_WORDS];
        crate::axi::load_beat(&lanes, &mut data);
        (strobe, data)
    }
}
