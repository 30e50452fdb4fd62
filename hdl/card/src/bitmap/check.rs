//! What a set promises its user and what its user keeps, each written once ([`Contract`]): the sets assert the promises, a block
//! that is proven beside free inputs assumes them.
//!
//! A ghost follows the members from puts and takings at the ports alone.

use super::{BitmapConfig, BitmapPorts, in_range, ones};
use crate::keeper::Keeper;
use weir_kit::*;

/// Larger sets are built without ghosts.
const MOST_BITS: u32 = 128;
/// Longest time in cycles in which a set that holds something offers nothing.
pub const OFFER_WITHIN: u32 = 7;
/// Most times that one number is taken while another one waits.
const MOST_OVERTAKEN: u32 = 2;

/// A set at its ports, and who has to keep its promises.
pub struct Contract<'a> {
    /// Keeps the promises; the other side keeps the rules for users.
    pub set: Keeper,
    /// Numbers 0 to `bits` - 1.
    pub bits: u32,
    /// After reset and clear every number is a member.
    pub full: bool,
    /// Back to the start, or on the way there.
    pub clear: Sig,
    /// Put this cycle, if `put_index` exists.
    pub put: Sig,
    /// What is put.
    pub put_index: Sig,
    /// What the set offers.
    pub take: &'a Stream<Sig>,
}

/// The ghosts of a [`Contract`].
#[derive(Clone, Copy)]
pub struct Members {
    /// A bit a number: put and not taken, the one on offer included.
    pub members: Sig,
    /// Cycles in which there were members and no offer.
    pub unoffered: Sig,
    /// This cycle's put is of a member.
    pub held: Sig,
    /// This cycle's put is of a member that is not taken at the same time.
    pub double: Sig,
}

impl Contract<'_> {
    /// The promises. Call it inside `formal`.
    #[hw]
    pub fn promises(&self) -> Members {
        let n = self.bits;
        let start = if self.full { ones(n, n) } else { lit(0, n) };
        let members = reg(n, start);
        let taken = onehot(self.take.payload, n) & self.take.fire().repeat(n);
        let stay = members & !taken;
        let put_bit = onehot(self.put_index, n) & self.put.repeat(n);
        members.set(stay | put_bit);
        when(self.clear, || members.set(start));
        let unoffered = reg(4, 0);
        let silent = members.any() & !self.take.valid & !self.clear;
        when(silent, || unoffered.set(unoffered + 1)).otherwise(|| unoffered.set(0));

        self.set.rule(
            "offered_is_a_member",
            !self.take.valid | (members & onehot(self.take.payload, n)).any(),
        );
        self.set.rule("offers_in_time", unoffered.le(OFFER_WITHIN));
        let held = (members & put_bit).any();
        let double = (stay & put_bit).any();
        Members {
            members,
            unoffered,
            double,
            held,
        }
    }

    /// What a user keeps that puts only what it has taken before. The bitmap flags a put of a member.
    pub fn puts_what_is_out(&self, ghosts: &Members) {
        self.set
            .other()
            .rule("puts_what_is_out", !ghosts.held | self.clear);
    }
}

/// The set is small enough for ghosts.
pub(super) fn is_checked(c: &BitmapConfig) -> bool {
    c.bits <= MOST_BITS
}

/// What differs between the kinds of sets.
pub(crate) struct Kind {
    /// Cycles from a put to its count; the errors follow a cycle later.
    pub count_after: u32,
    /// Relies on its user never to put a member.
    pub trusts: bool,
}

/// Ghosts of a set, for invariants of its own.
pub(crate) struct Checked {
    pub members: Sig,
    pub unoffered: Sig,
    /// The put that is to be counted now, if it adds a member.
    pub added_late: Sig,
    /// The same if it does not.
    pub double_late: Sig,
}

/// Asserts the promises of a set, its count and its flags.
#[hw]
pub(crate) fn check(p: &BitmapPorts, c: &BitmapConfig, kind: &Kind) -> Option<Checked> {
    if !is_checked(c) {
        return None;
    }
    formal(|| {
        let exists = in_range(c, p.put.index);
        let numbers = Stream {
            valid: p.take.valid,
            payload: p.take.payload.index,
            ready: p.take.ready,
        };
        let contract = Contract {
            set: Keeper::Us,
            bits: c.bits,
            full: c.full,
            // The free list hands numbers out while it fills.
            clear: if kind.trusts {
                p.clear
            } else {
                p.clear | p.clearing
            },
            put: p.put.valid & exists,
            put_index: p.put.index,
            take: &numbers,
        };
        assume("no_put_while_clearing", !(p.clearing & p.put.valid));
        if c.limited {
            return None;
        }
        let ghosts = contract.promises();
        if kind.trusts {
            // Into a full list it is flagged.
            let flagged = ghosts.members.all() & !p.take.fire();
            assume("puts_what_is_out", !ghosts.held | flagged | contract.clear);
        }
        let live = past_valid() & !past(p.clear);
        let stalled = live & past(p.take.stalled());
        let same = p.take.valid & past(p.take.payload.index).eq(p.take.payload.index);
        assert("keeps_its_offer", !stalled | same);

        comment("puts under way to the count and to the flags");
        let added = p.put.valid & exists & !ghosts.double;
        let later = |x: Sig, cycles: u32| {
            (0..cycles).fold(x, |x, _| {
                let stage = reg(1, 0);
                stage.set(x & !p.clear);
                stage
            })
        };
        let late = later(added, kind.count_after);
        let added_late = if kind.count_after == 0 {
            lit(0, 1)
        } else {
            late
        };
        let total = ghosts
            .members
            .to_bits()
            .into_iter()
            .fold(lit(0, c.count_bits()), |sum, b| {
                sum + b.zext(c.count_bits())
            });
        assert(
            "counts_its_members",
            total.eq(p.count + added_late.zext(c.count_bits())),
        );
        let start = if c.full {
            ones(c.bits, c.bits)
        } else {
            lit(0, c.bits)
        };
        if !kind.trusts {
            assert(
                "clearing_is_the_start",
                !p.clearing | ghosts.members.eq(start),
            );
        }
        let double_late = later(ghosts.double, kind.count_after);
        if !kind.trusts {
            let double = later(double_late, 1);
            assert("flags_a_double_put", p.error_double_put.eq(double));
            let bad = later(p.put.valid & !exists, kind.count_after + 1);
            assert("flags_a_number_that_is_none", p.error_range.eq(bad));
        }

        comment("one number that waits, another that is taken");
        let waits = anyconst(c.index_bits());
        let passes = anyconst(c.index_bits());
        let overtaken = reg(3, 0);
        let waiting = (ghosts.members & onehot(waits, c.bits)).any() & !p.clear;
        let goes = |number: Sig| p.take.fire() & p.take.payload.index.eq(number);
        when(!waiting | goes(waits), || overtaken.set(0))
            .elsewhen(goes(passes) & waits.ne(passes), || {
                overtaken.set(overtaken + 1)
            });
        if !kind.trusts && kind.count_after == 0 {
            assert("is_round_robin", overtaken.le(MOST_OVERTAKEN));
            cover("double_put", live & past(ghosts.double));
        }
        // From reset the other end of a larger set is too far for a bounded search.
        let small = c.bits <= 8;
        if small || !c.full {
            cover(
                "last_is_taken",
                live & past(ghosts.members.any()) & ghosts.members.none(),
            );
        }
        if small || c.full {
            cover(
                "all_are_in",
                live & past(!ghosts.members.all()) & ghosts.members.all(),
            );
        }
        cover("is_overtaken", overtaken.eq(1));
        Some(Checked {
            members: ghosts.members,
            unoffered: ghosts.unoffered,
            added_late,
            double_late,
        })
    })
}
