//! Ghost owners: which one list each slot is on, and where. They make "every slot is on exactly one list" and "in flight equals
//! the tags held" inductive. Built only for cards of few slots.
//!
//! A ghost follows what happened at the ports and in the wheel, never the tables; the assertions say that the tables agree.

use super::admit::Admission;
use super::engine::Engine;
use super::row::{CqRow, Info, Link, MOST_COST, Row, Rows};
use super::walker::Walk;
use crate::bitmap::check::Contract;
use crate::interfaces::Op;
use crate::keeper::Keeper;
use weir_kit::*;

/// Larger cards are built without ghost owners.
pub(super) const MOST_SLOTS: u32 = 8;

/// Where a slot is.
#[derive(HwEnum, Clone, Copy)]
enum Place {
    Free,
    Parked,
    Executing,
    Ending,
    Listed,
}

/// The ghost of one slot.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = crate::config::CardConfig)]
struct Ghost {
    /// `Place`.
    #[bits(3)]
    place: Sig,
    #[bits(p.lun_bits())]
    lun: Sig,
    #[bits(p.queue_bits())]
    cq: Sig,
    /// Commands in front of it on its list.
    #[bits(p.slot_bits() + 1)]
    position: Sig,
    #[bits(p.tag_bits())]
    tag: Sig,
    #[bits(2)]
    op: Sig,
}

/// The tables and the steps that the ghosts are compared with.
pub(super) struct Tables<'a> {
    pub rows: &'a Rows,
    pub cq_rows: Mem,
    pub links: Mem,
    pub infos: Mem,
    pub phase: Sig,
    pub clear_at: Sig,
    /// The LUN of this cycle's row.
    pub at_lun: Sig,
    pub popping: Sig,
    pub pop_cq: Sig,
    pub admission: Admission,
    pub walk: Walk,
    pub walking: Sig,
}

fn sum(bits: &[Sig], width: u32) -> Sig {
    bits.iter()
        .fold(lit(0, width), |total, bit| total + bit.zext(width))
}

/// Asserts that all tables agree with the ghosts.
#[hw]
pub(super) fn owners(e: &Engine, t: &Tables) {
    if e.c.slots() > MOST_SLOTS {
        return;
    }
    formal(|| {
        let slots = e.c.slots();
        let ghosts: Vec<Ghost> = (0..slots)
            .map(|s| scope(&format!("slot{s}"), || Ghost::reg(&e.c)))
            .collect();
        follow(e, t, &ghosts);
        neighbours(e, &ghosts);
        lists(e, t, &ghosts);
        between(e, t, &ghosts);
        reached(e, t);
    });
}

/// The ghost of a slot chosen by a signal.
fn of(ghosts: &[Ghost], slot: Sig) -> Ghost {
    let field = |f: fn(&Ghost) -> Sig| mux_n(slot, &ghosts.iter().map(f).collect::<Vec<_>>());
    Ghost {
        place: field(|g| g.place),
        lun: field(|g| g.lun),
        cq: field(|g| g.cq),
        position: field(|g| g.position),
        tag: field(|g| g.tag),
        op: field(|g| g.op),
    }
}

impl Ghost {
    fn is(&self, place: Place) -> Sig {
        self.place.is(place)
    }
    fn parked_on(&self, lun: Sig) -> Sig {
        self.is(Place::Parked) & self.lun.eq(lun)
    }
    fn listed_on(&self, cq: Sig) -> Sig {
        self.is(Place::Listed) & self.cq.eq(cq)
    }
    /// It holds a tag.
    fn holds_tag(&self, e: &Engine) -> Sig {
        self.is(Place::Executing) | (self.is(Place::Ending) & e.ending.executed)
    }
}

/// What each slot goes through.
fn follow(e: &Engine, t: &Tables, ghosts: &[Ghost]) {
    let p = &e.p;
    let leaves = t.admission.admit | t.walk.takes;
    let ends_inside = t.admission.discard | t.walk.ends;
    let listed = e.ending.valid & e.turn_complete;
    let popped = t.popping & e.turn_other;
    for (s, g) in ghosts.iter().enumerate() {
        let here = |slot: Sig| slot.eq(s as u64);
        let to = |place: Place| g.place.set(place);
        when(p.park.fire() & here(p.park.payload.slot), || {
            to(Place::Parked);
            g.lun.set(p.park.payload.lun);
            g.op.set(p.park.payload.op);
            g.position.set(e.row.parked);
        });
        when(leaves & here(e.row.head), || {
            when(t.admission.execute, || {
                to(Place::Executing);
                g.tag.set(e.tag);
            })
            .elsewhen(ends_inside, || to(Place::Ending))
            .otherwise(|| g.position.set(e.row.parked - 1));
        })
        .elsewhen(leaves & g.parked_on(t.at_lun), || {
            g.position.set(g.position - 1)
        });
        when(p.done.fire() & here(p.done.payload.exec.slot), || {
            to(Place::Ending)
        });
        when(p.reject.fire() & here(p.reject.payload.slot), || {
            to(Place::Ending);
            g.op.set(Op::Read);
        });
        when(listed & here(e.ending.slot), || {
            to(Place::Listed);
            g.cq.set(e.ending.cq);
            g.position.set(e.cq_row.count);
        });
        when(popped & here(p.popped.slot), || to(Place::Free))
            .elsewhen(popped & g.listed_on(t.pop_cq), || {
                g.position.set(g.position - 1)
            });
    }
}

/// What the neighbours promise: slots from the allocator are free, tags too, and only what executes is done.
fn neighbours(e: &Engine, ghosts: &[Ghost]) {
    let p = &e.p;
    let free = |slot: Sig| of(ghosts, slot).is(Place::Free);
    let both = p.park.valid & p.reject.valid & p.park.payload.slot.eq(p.reject.payload.slot);
    assume(
        "parked_slot_is_free",
        !p.park.valid | free(p.park.payload.slot),
    );
    assume(
        "rejected_slot_is_free",
        !p.reject.valid | free(p.reject.payload.slot),
    );
    assume("a_slot_comes_once", !both);
    assume(
        "parked_lun_exists",
        !p.park.valid | p.park.payload.lun.zext(32).lt(e.c.luns),
    );
    let exec = &p.done.payload.exec;
    let done = of(ghosts, exec.slot);
    let as_admitted = done.is(Place::Executing)
        & done.lun.eq(exec.lun)
        & done.tag.eq(exec.tag)
        & done.op.eq(exec.op);
    let not_yet_sent = e.exec_valid & e.exec.slot.eq(exec.slot);
    assume(
        "done_was_admitted",
        !p.done.valid | (as_admitted & !not_yet_sent),
    );
    tags(e, ghosts);
    let nothing_comes = !p.park.valid & !p.reject.valid;
    assume(
        "clear_only_while_empty",
        !p.clear | (e.held.none() & nothing_comes),
    );
    let ended_early = e.discarding & !p.discard & !e.held.none();
    assume("discard_until_empty", !ended_early);
}

/// The tag allocator: it offers what is in it, the engine gives back what is not, and every tag is in it, kept or held.
#[hw]
fn tags(e: &Engine, ghosts: &[Ghost]) {
    let p = &e.p;
    let allocator = Contract {
        set: Keeper::Them,
        bits: e.c.tags,
        full: true,
        clear: e.clearing,
        put: p.tag_free.valid,
        put_index: p.tag_free.index,
        take: &p.tag,
    };
    scope("tags", || {
        let free = allocator.promises();
        allocator.puts_what_is_out(&free);
        for tag in 0..e.c.tags {
            let holders = ghosts.iter().map(|g| g.holds_tag(e) & g.tag.eq(tag));
            let kept = e.tag_valid & e.tag.eq(tag);
            let places: Vec<Sig> = holders.chain([kept, free.members.bit(tag)]).collect();
            let once = sum(&places, e.c.slot_bits() + 2).eq(1);
            assert("a_tag_is_in_one_place", e.clearing | once);
        }
    });
}

/// Rows, CQ rows, links and the ghosts say the same.
fn lists(e: &Engine, t: &Tables, ghosts: &[Ghost]) {
    let c = &e.c;
    let width = c.slot_bits() + 1;
    let count = |f: &dyn Fn(&Ghost) -> Sig| sum(&ghosts.iter().map(f).collect::<Vec<_>>(), width);
    let rows: Vec<Row> = (0..c.luns)
        .map(|l| {
            scope(&format!("owner_lun{l}"), || {
                t.rows.read(c, lit(l.into(), c.lun_bits()))
            })
        })
        .collect();
    let links: Vec<Link> = (0..c.slots())
        .map(|s| Link::unpack(c, t.links.read_async(lit(s.into(), c.slot_bits()))))
        .collect();
    for (l, row) in rows.iter().enumerate() {
        let here = lit(l as u128, c.lun_bits());
        let swept = !e.clearing | t.clear_at.zext(32).gt(l as u64);
        let (head, tail) = (of(ghosts, row.head), of(ghosts, row.tail));
        let head_right = head.parked_on(here) & head.position.none();
        let flush_right = row.head_flush.eq(head.op.is(Op::Flush));
        let tail_right = tail.parked_on(here) & tail.position.eq(row.parked - 1);
        let ends_right = row.parked.none() | (head_right & flush_right & tail_right);
        let in_flight = count(&|g| g.holds_tag(e) & g.lun.eq(here));
        let writes = count(&|g| g.holds_tag(e) & g.lun.eq(here) & g.op.is(Op::Write));
        assert(
            &format!("parked_is_the_list_{l}"),
            !swept | row.parked.eq(count(&|g| g.parked_on(here))),
        );
        let cost_right = row.parked.none() | row.head_cost.le(MOST_COST);
        assert(
            &format!("cost_and_weight_in_range_{l}"),
            !swept | (cost_right & row.weight.any()),
        );
        assert(&format!("list_has_its_ends_{l}"), !swept | ends_right);
        assert(
            &format!("in_flight_is_tags_held_{l}"),
            !swept | row.in_flight.zext(16).eq(in_flight.zext(16)),
        );
        assert(
            &format!("writes_are_counted_{l}"),
            !swept | row.writes.zext(16).eq(writes.zext(16)),
        );
        assert(
            &format!("cleared_row_waits_{l}"),
            !(e.clearing & swept) | !row.queued,
        );
    }
    for q in 0..=c.queues {
        let here = lit(q.into(), c.queue_bits());
        let swept = !e.clearing | t.clear_at.zext(32).gt(q);
        let row = scope(&format!("owner_cq{q}"), || {
            CqRow::unpack(c, t.cq_rows.read_async(here))
        });
        let (head, tail) = (of(ghosts, row.head), of(ghosts, row.tail));
        let ends_right = head.listed_on(here)
            & head.position.none()
            & tail.listed_on(here)
            & tail.position.eq(row.count - 1);
        assert(
            &format!("cq_count_is_the_list_{q}"),
            !swept | row.count.eq(count(&|g| g.listed_on(here))),
        );
        assert(
            &format!("cq_list_has_its_ends_{q}"),
            !swept | row.count.none() | ends_right,
        );
    }
    for (s, g) in ghosts.iter().enumerate() {
        let next = of(ghosts, links[s].slot);
        let follows = next.position.eq(g.position + 1);
        let row = Row {
            parked: mux_n(g.lun, &rows.iter().map(|r| r.parked).collect::<Vec<_>>()),
            ..rows[0]
        };
        let last = g.position.eq(row.parked - 1);
        let parked_right = next.parked_on(g.lun)
            & follows
            & links[s].flush.eq(next.op.is(Op::Flush))
            & links[s].cost.le(MOST_COST);
        assert(
            &format!("parked_link_{s}"),
            !g.is(Place::Parked) | (g.position.lt(row.parked) & (last | parked_right)),
        );
        let on_cq = count(&|o| o.listed_on(g.cq));
        let last = g.position.eq(on_cq - 1);
        let listed_right = next.listed_on(g.cq) & follows;
        assert(
            &format!("cq_link_{s}"),
            !g.is(Place::Listed) | (g.position.lt(on_cq) & (last | listed_right)),
        );
        let info = Info::unpack(c, t.infos.read_async(lit(s as u128, c.slot_bits())));
        assert(
            &format!("info_is_kept_{s}"),
            !g.is(Place::Parked) | info.op.eq(g.op),
        );
        assert(
            &format!("ending_is_one_{s}"),
            g.is(Place::Ending)
                .eq(e.ending.valid & e.ending.slot.eq(s as u64)),
        );
        assert(
            &format!("slot_is_somewhere_{s}"),
            g.place.le(Place::Listed) & (!e.clearing | g.is(Place::Free)),
        );
        for o in &ghosts[s + 1..] {
            let same_lun = g.is(Place::Parked) & o.parked_on(g.lun);
            let same_cq = g.is(Place::Listed) & o.listed_on(g.cq);
            let apart = g.position.ne(o.position);
            assert("two_slots_two_places", !(same_lun | same_cq) | apart);
            let both_hold = g.holds_tag(e) & o.holds_tag(e);
            assert("two_commands_two_tags", !both_hold | g.tag.ne(o.tag));
        }
        assert(
            &format!("kept_tag_has_no_owner_{s}"),
            !(e.tag_valid & g.holds_tag(e) & g.tag.eq(e.tag)),
        );
    }
    assert("held_is_counted", e.held.eq(count(&|g| !g.is(Place::Free))));
}

/// What one phase leaves for the next.
fn between(e: &Engine, t: &Tables, ghosts: &[Ghost]) {
    let c = &e.c;
    let (p1, p2, p3) = (t.phase.eq(1), t.phase.eq(2), t.phase.eq(3));
    let looking = p2 & e.peeked;
    let stored = Link::unpack(c, t.links.read_async(e.row.head));
    let info = Info::unpack(c, t.infos.read_async(e.row.head));
    let link_right =
        e.link.slot.eq(stored.slot) & e.link.flush.eq(stored.flush) & e.link.cost.eq(stored.cost);
    assert("peeked_link", !looking | e.row.parked.le(1) | link_right);
    assert(
        "peeked_info",
        !looking | e.row.parked.none() | e.info.op.eq(info.op),
    );
    assert("peeked_is_cur", !looking | t.walk_turn_or_cur(e));
    assert("walk_turn_peeks", !(p2 & e.walk_turn) | e.peeked);
    assert("walk_turn_walks", !((p1 | p2) & e.walk_turn) | t.walking);
    let stale = e.discard_turn & !e.discarding & !t.phase.eq(0);
    assert("discard_turn_discards", !stale | e.held.none());
    let row = t.rows.read(c, e.walk_lun);
    let left = t.walk.left;
    assert(
        "left_is_parked",
        !t.walk.taking | e.clearing | (left.any() & left.le(row.parked)),
    );
    assert(
        "walker_is_at_a_lun",
        !t.walking | e.walk_lun.zext(32).lt(c.luns),
    );

    let cq_row = CqRow::unpack(c, t.cq_rows.read_async(t.pop_cq));
    let head_link = Link::unpack(c, t.links.read_async(cq_row.head));
    let slot = e.p.popped.slot;
    let right = cq_row.count.any()
        & slot.eq(cq_row.head)
        & e.p.popped.more.eq(cq_row.count.gt(1))
        & (!e.p.popped.more | e.link.slot.eq(head_link.slot));
    assert("pop_has_its_list", !t.popping | (p1 & right & !e.clearing));

    let end = &e.ending;
    let ending = of(ghosts, end.slot);
    let right =
        ending.lun.eq(end.lun) & ending.tag.eq(end.tag) & end.is_write.eq(ending.op.is(Op::Write));
    assert("ending_in_p3", !end.valid | (p3 & !e.clearing));
    assert("ending_is_as_admitted", !(end.valid & end.executed) | right);
    let sent = of(ghosts, e.exec.slot);
    let as_sent = sent.is(Place::Executing) & sent.tag.eq(e.exec.tag) & sent.lun.eq(e.exec.lun);
    assert("exec_is_as_admitted", !e.exec_valid | as_sent);
}

/// What the proofs must not have assumed away.
fn reached(e: &Engine, t: &Tables) {
    let row = t.rows.read(&e.c, lit(0, e.c.lun_bits()));
    let running = !e.clearing;
    cover("three_parked", running & row.parked.eq(3));
    cover(
        "depth_holds_a_lun",
        running & row.parked.any() & row.depth_full() & row.in_flight.any(),
    );
    cover(
        "flush_waits",
        running & row.parked.any() & row.head_flush & row.writes.any(),
    );
    cover("all_tags_out", e.executing.eq(e.c.tags));
    cover(
        "walker_puts_back",
        t.walk.takes & !t.walk.ends & row.parked.gt(1),
    );
    cover("walker_ends_one", t.walk.ends);
    cover("discards_one", t.admission.discard);
    cover("pops_one_of_two", e.p.popped_valid & e.p.popped.more);
}

impl Tables<'_> {
    fn walk_turn_or_cur(&self, e: &Engine) -> Sig {
        e.walk_turn | e.cur_valid
    }
}
