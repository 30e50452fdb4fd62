//! The rules of an AXI4 port (ARM IHI 0022 H), each written once ([`AxiCheck`]): a block asserts what it keeps and assumes
//! what its neighbour keeps.
//!
//! Ghosts follow the bursts from the handshakes alone. Bursts are INCR and of the full width of the data bus. What is left
//! out: strobes, and which burst of which id an answer belongs to.

use crate::interfaces::*;
use crate::keeper::Keeper;
use weir_kit::*;

/// Bytes that no burst may cross a multiple of, as a number of bits (A3.4.1).
const BOUNDARY_BITS: u32 = 12;

/// A port, and who keeps what.
pub struct AxiCheck<'a> {
    /// Who is the master; the other side is the slave.
    pub master: Keeper,
    /// Widths.
    pub a: &'a AxiParams,
    /// Most bursts in flight in each direction, from the first offer of the address on.
    pub most: u32,
    /// Write data may be offered before its address is.
    pub data_may_lead: bool,
    /// Read address.
    pub ar: &'a Stream<AxiAr>,
    /// Read data.
    pub r: &'a Stream<AxiR>,
    /// Write address.
    pub aw: &'a Stream<AxiAw>,
    /// Write data.
    pub w: &'a Stream<AxiW>,
    /// Write response.
    pub b: &'a Stream<AxiB>,
}

/// What the ghosts count.
#[derive(Clone, Copy)]
pub struct Bursts {
    /// Read bursts whose address was offered and that have not ended.
    pub reads: Sig,
    /// Write bursts whose address was offered and whose B has not been taken.
    pub writes: Sig,
    /// Those of them whose last beat has not left.
    pub owed: Sig,
}

impl AxiCheck<'_> {
    fn bits(&self) -> u32 {
        clog2(u64::from(self.most) + 1)
    }

    #[hw]
    fn count(&self, more: Sig, less: Sig) -> Sig {
        let n = reg(self.bits(), 0);
        when(more & !less, || n.set(n + 1)).elsewhen(less & !more, || n.set(n - 1));
        n
    }

    /// What is offered stays as it is until it is taken (A3.2.1).
    #[track_caller]
    fn stays<T: Bundle>(&self, keeper: Keeper, name: &str, stream: &Stream<T>) {
        match keeper {
            Keeper::Us => stream.assert_stable(name),
            Keeper::Them => stream.assume_stable(name),
        }
    }

    /// The rules of an address; says that it is offered for the first time, and that it was offered before.
    #[hw]
    fn address(&self, name: &str, stream: &Stream<AxiAr>) -> (Sig, Sig) {
        self.stays(self.master, &format!("{name}_stays"), stream);
        let lane_bits = clog2(u64::from(self.a.data_bits / 8));
        let beat_bits = BOUNDARY_BITS - lane_bits;
        let first = stream.payload.addr.bits(lane_bits, beat_bits);
        let width = beat_bits.max(8) + 1;
        let last = first.zext(width) + stream.payload.len.zext(width);
        self.master.rule(
            &format!("{name}_stays_in_its_page"),
            !stream.valid | last.lt(1 << beat_bits),
        );
        let waited = reg(1, 0);
        waited.set(stream.stalled());
        (stream.valid & !waited, waited)
    }

    /// All rules. Call it inside `formal`.
    #[hw]
    pub fn rules(&self) -> Bursts {
        let (master, slave) = (self.master, self.master.other());
        let (read_begins, ar_waits) = scope("ar", || self.address("ar", self.ar));
        let read_ends = self.r.fire() & self.r.payload.last;
        let reads = scope("reads", || self.count(read_begins, read_ends));
        master.rule("reads_are_bounded", !read_begins | reads.lt(self.most));
        let asked = scope("asked", || self.count(self.ar.fire(), read_ends));
        self.stays(slave, "r_stays", self.r);
        slave.rule("r_follows_its_ar", !self.r.valid | asked.any());

        let (write_begins, aw_waits) = scope("aw", || self.address("aw", self.aw));
        let last_sent = self.w.fire() & self.w.payload.last;
        let answered = self.b.fire();
        let writes = scope("writes", || self.count(write_begins, answered));
        master.rule("writes_are_bounded", !write_begins | writes.lt(self.most));
        let owed = scope("owed", || self.count(write_begins, last_sent));
        self.stays(master, "w_stays", self.w);
        let addressed = owed.any() | write_begins;
        if !self.data_may_lead {
            master.rule("w_does_not_lead_its_aw", !self.w.valid | addressed);
        }
        // A slave that passes data on takes none whose address it does not know.
        if self.data_may_lead {
            slave.rule("w_is_taken_with_its_aw", !self.w.fire() | addressed);
        }
        comment("the lengths of the bursts whose data is owed, oldest first");
        let place = clog2(u64::from(self.most)).max(1);
        let lens = Mem::new(1 << place, 8).style(Style::Distributed);
        let (wr, rd) = (reg(place, 0), reg(place, 0));
        lens.write(write_begins, wr, self.aw.payload.len);
        when(write_begins, || wr.set(wr + 1));
        when(last_sent, || rd.set(rd + 1));
        let len = owed.any().mux(lens.read_async(rd), self.aw.payload.len);
        let beat = reg(8, 0);
        when(self.w.fire(), || {
            beat.set(self.w.payload.last.mux(lit(0, 8), beat + 1))
        });
        master.rule(
            "w_last_is_the_last",
            !self.w.valid | !addressed | self.w.payload.last.eq(beat.eq(len)),
        );
        let sent = scope("sent", || self.count(last_sent, answered));
        let taken = scope("taken", || self.count(self.aw.fire(), answered));
        self.stays(slave, "b_stays", self.b);
        slave.rule(
            "b_follows_its_aw_and_w",
            !self.b.valid | (sent.any() & taken.any()),
        );
        let bits = self.bits();
        assert(
            "every_burst_is_counted_once",
            reads.eq(asked + ar_waits.zext(bits))
                & writes.eq(taken + aw_waits.zext(bits))
                & writes.eq(owed + sent)
                & owed.le(writes)
                & asked.le(reads)
                & taken.le(writes)
                & writes.le(self.most)
                & reads.le(self.most)
                & (wr - rd).trunc(place).eq(owed.trunc(place)),
        );
        Bursts {
            reads,
            writes,
            owed,
        }
    }
}
