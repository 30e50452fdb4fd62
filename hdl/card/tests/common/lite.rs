//! An AXI4-Lite master that skews its channels: address and data apart, responses taken late, reads beside writes.

use super::{Bench, Stall};
use std::collections::VecDeque;

/// What happened at the edge that comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Address and data of a write were taken: {byte address, data, strobes}.
    pub write: Option<(u64, u64, u64)>,
    /// A read address was taken.
    pub read: Option<u64>,
    /// Read data came: {byte address, data}.
    pub data: Option<(u64, u64)>,
}

/// The master of the port `prefix`.
pub struct Master {
    prefix: &'static str,
    /// Writes to do: {byte address, data, strobes}.
    pub writes: VecDeque<(u64, u64, u64)>,
    /// Reads to do.
    pub reads: VecDeque<u64>,
    aw: bool,
    w: bool,
    ar: bool,
    b_due: bool,
    b_ready: bool,
    r_ready: bool,
    asked: Option<u64>,
    stalls: [Stall; 5],
    /// Never stalls.
    pub eager: bool,
}

impl Master {
    /// A master with nothing to do.
    pub fn new(prefix: &'static str, seed: u64) -> Master {
        let stalls = [0, 1, 2, 3, 4].map(|i| Stall::new(seed * 100 + i));
        Master {
            prefix,
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            aw: false,
            w: false,
            ar: false,
            b_due: false,
            b_ready: false,
            r_ready: false,
            asked: None,
            stalls,
            eager: false,
        }
    }

    /// Nothing is under way or to be done.
    pub fn quiet(&self) -> bool {
        self.writes.is_empty() && self.reads.is_empty() && !self.b_due && self.asked.is_none()
    }

    /// Before eval: drives the channels.
    pub fn drive(&mut self, b: &mut Bench) {
        let n = |s: &str| format!("{}_{s}", self.prefix);
        let eager = self.eager;
        let mut go = |i: usize| self.stalls[i].go() || eager;
        self.aw |= !self.writes.is_empty() && go(0);
        self.w |= !self.writes.is_empty() && go(1);
        self.ar |= !self.reads.is_empty() && self.asked.is_none() && go(2);
        b.set(&n("awvalid"), self.aw);
        b.set(&n("wvalid"), self.w);
        b.set(&n("arvalid"), self.ar);
        if let Some(&(addr, data, strobes)) = self.writes.front() {
            b.set(&n("awaddr"), addr);
            b.set(&n("wdata"), data);
            b.set(&n("wstrb"), strobes);
        }
        if let Some(&addr) = self.reads.front() {
            b.set(&n("araddr"), addr);
        }
        (self.b_ready, self.r_ready) = (go(3), go(4));
        b.set(&n("bready"), self.b_ready);
        b.set(&n("rready"), self.r_ready);
    }

    /// After eval: what moves at the edge.
    pub fn events(&mut self, b: &Bench) -> Events {
        let is = |s: &str| b.is(&format!("{}_{s}", self.prefix));
        let mut e = Events::default();
        if self.b_due && is("bvalid") && self.b_ready {
            assert_eq!(b.get(&format!("{}_bresp", self.prefix)), 0);
            self.b_due = false;
        } else {
            assert!(self.b_due || !is("bvalid"), "a response to nothing");
        }
        assert_eq!(
            is("awready") && self.aw,
            is("wready") && self.w,
            "address and data are taken together"
        );
        if self.aw && is("awready") {
            e.write = self.writes.pop_front();
            (self.aw, self.w, self.b_due) = (false, false, true);
        }
        if is("rvalid") && self.r_ready {
            let addr = self.asked.take().expect("data of nothing");
            e.data = Some((addr, b.get(&format!("{}_rdata", self.prefix))));
        }
        if self.ar && is("arready") {
            self.asked = self.reads.pop_front();
            (e.read, self.ar) = (self.asked, false);
        }
        e
    }
}
