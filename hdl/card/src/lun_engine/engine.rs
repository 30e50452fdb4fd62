//! The wheel, the RAMs and the registers that its phases share.

use super::row::{CqRow, Info, Limits, Link, Row, Rows};
use super::stats::{LunStatsPorts, lun_stats};
use super::{LunEnginePorts, admit, check, complete, fairness, other, owner, park, walker};
use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;

/// What the phases share. Fields that phases set are variables or registers.
pub(super) struct Engine {
    pub c: CardConfig,
    pub p: LunEnginePorts,

    /// 1 bit each, one at a time, none while clearing.
    pub turn_park: Sig,
    pub turn_other: Sig,
    pub turn_admit: Sig,
    pub turn_complete: Sig,
    /// This turn of the wheel is the walker's: its P1 and P2 look at `walk.lun`.
    pub walk_turn: Sig,
    /// This turn of the wheel discards: its P2 pops without a tag.
    pub discard_turn: Sig,
    pub discarding: Sig,
    pub clearing: Sig,

    /// The LUN row of this cycle: as read, and as written where `row_write` is set.
    pub row: Row,
    pub new_row: Row,
    pub row_write: Sig,
    /// This cycle is admission's judgement of `cur`: `queued` becomes what the judgement says.
    pub judged: Sig,
    /// `new_row` is eligible.
    pub new_eligible: Sig,
    pub limits: Limits,
    /// `cur` stays although judged (else it leaves).
    pub stay: Sig,

    /// The CQ row of this cycle.
    pub cq_row: CqRow,
    pub new_cq_row: CqRow,
    pub cq_row_write: Sig,

    /// List RAM: write port, and what was read.
    pub link_write: Sig,
    pub link_addr: Sig,
    pub link_data: Link,
    pub link: Link,
    /// Info RAM.
    pub info_write: Sig,
    pub info_addr: Sig,
    pub info_data: Info,
    pub info: Info,
    /// What was read of the status RAM in P0.
    pub status: Sig,

    /// The LUN that admission looks at.
    pub cur_valid: Sig,
    pub cur: Sig,
    /// The head of this turn's candidate has been read.
    pub peeked: Sig,
    /// LUN whose list the walker is at.
    pub walk_lun: Sig,

    /// Tags in use, and how many may be.
    pub executing: Sig,
    pub tag_depth: Sig,
    /// Its part that Set Features sets.
    pub tag_depth_set: Sig,
    pub rule: Sig,
    /// A tag kept ready.
    pub tag_valid: Sig,
    pub tag: Sig,
    pub exec_valid: Sig,
    pub exec: Exec,
    pub exec_weight: Sig,
    /// Slots in the engine.
    pub held: Sig,
    /// What ends in the next P3.
    pub ending: Ending,
    /// A command came to the head of its list, and this is what holds it.
    pub deferred: Deferred,
    /// Recheck sweep: rows still to judge, and the next of them.
    pub recheck_left: Sig,
    pub sweep_at: Sig,
    pub start_recheck: Sig,
}

/// A slot on its way to its CQ's list: loaded in P2, done in P3.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub(super) struct Ending {
    /// There is one.
    #[bits(1)]
    pub valid: Sig,
    /// It has executed: it gives back `tag` and counts down `lun`.
    #[bits(1)]
    pub executed: Sig,
    /// It comes from decode: the info RAM does not know it yet.
    #[bits(1)]
    pub rejected: Sig,
    #[bits(p.slot_bits())]
    pub slot: Sig,
    #[bits(p.queue_bits())]
    pub sq: Sig,
    #[bits(p.queue_bits())]
    pub cq: Sig,
    #[bits(16)]
    pub cid: Sig,
    #[bits(p.lun_bits())]
    pub lun: Sig,
    #[bits(p.tag_bits())]
    pub tag: Sig,
    #[bits(1)]
    pub is_write: Sig,
    #[bits(STATUS_BITS)]
    pub status: Sig,
}

/// What holds a command at the moment it becomes the head of its LUN's list; at most one reason.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = ())]
pub(super) struct Deferred {
    #[bits(1)]
    pub depth: Sig,
    #[bits(1)]
    pub share: Sig,
    #[bits(1)]
    pub tags: Sig,
}

impl Engine {
    /// A new head on `row`: the first of depth, share and tags that holds it. `gives_way`: the deficit round robin does.
    pub fn defer(&self, new_head: Sig, row: &Row, gives_way: Sig, executing: Sig) {
        let depth = row.depth_full();
        let share = row.share_full(&self.limits) | gives_way;
        let tags = executing.ge(self.tag_depth);
        when(new_head & !self.discarding, || {
            self.deferred.depth.set(depth);
            self.deferred.share.set(!depth & share);
            self.deferred.tags.set(!depth & !share & tags);
        });
    }
}

const DOC: &str = "Parks commands on their LUN's list, admits them under depth, share and tags, lists them by CQ when they end. \
A wheel of four cycles owns all tables: P0 park, P1 other, P2 admit, P3 complete. \
Invariant: a LUN that is eligible is queued (in the work set, in put_*, or cur), or the recheck sweep is still to pass it.";

/// The engine; see the module's documentation.
#[hw]
pub fn lun_engine(c: &CardConfig) -> Module {
    let divider = fairness::share_divider(c);
    let stats = lun_stats(c);
    module("lun_engine", DOC, c, |p: LunEnginePorts| {
        build(c, p, &divider, &stats)
    })
}

#[hw]
fn build(c: &CardConfig, p: LunEnginePorts, divider: &Module, stats_module: &Module) {
    let lun_bits = c.lun_bits();
    let cqs = c.queues + 1;
    let rows_to_clear = c.luns.max(cqs);

    comment("the wheel");
    let phase = reg(2, 0);
    phase.set(phase + 1);
    let clearing = reg(1, 1);
    let clear_at = reg(clog2(rows_to_clear as u64), 0);
    let turn_park = phase.eq(0) & !clearing;
    let turn_other = phase.eq(1) & !clearing;
    let turn_admit = phase.eq(2) & !clearing;
    let turn_complete = phase.eq(3) & !clearing;
    let odd_turn = reg(1, 0);
    when(turn_complete, || odd_turn.set(!odd_turn));

    let discarding = reg(1, 0);
    discarding.set(p.discard);
    let walk_turn = reg(1, 0);
    let discard_turn = reg(1, 0);
    let walking = reg(1, 0);
    when(turn_park, || {
        discard_turn.set(odd_turn & discarding & p.discard);
        walk_turn.set(odd_turn & walking & !discarding);
    });

    comment("candidate of admission");
    let cur_valid = reg(1, 0);
    let cur = reg_nr(lun_bits);
    let peeked = reg(1, 0);
    let walk_lun = reg(lun_bits, 0);
    let peek_lun = walk_turn.mux(walk_lun, cur);

    let ending = Ending::reg(c);
    let sweep_at = reg(lun_bits, 0);
    let other_lun = p.budget.valid.mux(
        p.budget.payload.lun,
        p.snapshot.valid.mux(p.snapshot.payload, sweep_at),
    );
    let other_is_sweep = var(lit(0, 1));

    comment("LUN rows");
    let rows = Rows::new(c);
    let row_addr = var(p.park.payload.lun);
    switch(phase, |s| {
        s.is(1, || row_addr.set(other_is_sweep.mux(sweep_at, other_lun)));
        s.is(2, || row_addr.set(peek_lun));
        s.is(3, || row_addr.set(ending.lun));
    });
    let row = rows.read(c, row_addr);
    let new_row = Row::var_of(&row);
    let row_write = var(lit(0, 1));
    let peek_head = rows.read(c, peek_lun).head;

    comment("CQ rows");
    let cq_rows = Mem::new(cqs.into(), CqRow::width_of(c)).style(Style::Distributed);
    let pop_cq = reg_nr(c.queue_bits());
    let cq_addr = var(p.pop.payload);
    switch(phase, |s| {
        s.is(1, || cq_addr.set(pop_cq));
        s.is(3, || cq_addr.set(ending.cq));
    });
    let cq_row = CqRow::unpack(c, cq_rows.read_async(cq_addr));
    let new_cq_row = CqRow::var_of(&cq_row);
    let cq_row_write = var(lit(0, 1));

    let small = c.slots() <= owner::MOST_SLOTS;
    let slot_style = if small { Style::Auto } else { Style::Block };
    comment("by slot: the list that the slot is on, and what the command is");
    let links = Mem::new(c.slots().into(), Link::width_of(c)).style(slot_style);
    let link_write = var(lit(0, 1));
    let link_addr = var(row.tail);
    let link_data = Link::var_of(&Link::zero(c));
    links.write(link_write, link_addr, link_data.pack());
    let link_read_addr = turn_park.mux(cq_row.head, peek_head);
    let link = Link::unpack(c, links.read(turn_park | turn_other, link_read_addr));

    let infos = Mem::new(c.slots().into(), Info::width_of(c)).style(slot_style);
    let info_write = var(lit(0, 1));
    let info_addr = var(p.park.payload.slot);
    let info_data = Info::var_of(&Info::zero(c));
    infos.write(info_write, info_addr, info_data.pack());
    let info_read_addr = turn_park.mux(
        cq_row.head,
        turn_other.mux(peek_head, p.done.payload.exec.slot),
    );
    let info = Info::unpack(
        c,
        infos.read(
            turn_park | turn_other | (turn_admit & !walk_turn & !discard_turn),
            info_read_addr,
        ),
    );

    let statuses = Mem::new(c.slots().into(), STATUS_BITS).style(Style::Block);
    statuses.write(ending.valid & turn_complete, ending.slot, ending.status);
    let status = statuses.read(turn_park, cq_row.head);

    comment("tags and limits");
    let executing = reg(c.depth_bits(), 0);
    let tag_depth_set = reg(c.depth_bits(), c.tags);
    let tag_depth = tag_depth_set.gt(p.tags).mux(p.tags, tag_depth_set);
    assume("a_tag_is_in_use", p.tags.any());
    let rule = Rule::None.reg();
    let tag_valid = reg(1, 0);
    let tag = reg_nr(c.tag_bits());
    p.tag.ready.set(!tag_valid & !clearing);
    when(p.tag.fire(), || {
        tag_valid.set(1);
        tag.set(p.tag.payload);
    });
    p.executing.set(executing);
    let share = reg(c.depth_bits(), c.tags);
    let limits = Limits {
        discard: discarding,
        even: rule.is(Rule::Even),
        share,
    };

    comment(
        "the one judgement: whoever writes an eligible row leaves it queued, and wakes it when it was not",
    );
    let new_eligible = new_row.eligible(&limits);
    let judged = var(lit(0, 1));
    let stay = var(lit(0, 1));
    let keep_queued = row.queued & !judged;
    let wake = row_write & new_eligible & !keep_queued & !stay;
    new_row.queued.set(keep_queued | new_eligible);

    let put_valid = reg(1, 0);
    let put_lun = reg_nr(lun_bits);
    p.work.ready.set(!cur_valid & !clearing);
    put_valid.set(wake & (cur_valid | p.work.valid));
    put_lun.set(row_addr);
    when(judged & !stay, || cur_valid.set(0));
    when(!cur_valid & (p.work.valid | wake), || {
        cur_valid.set(1);
        cur.set(p.work.valid.mux(p.work.payload, row_addr));
    });
    p.work_put.valid.set(put_valid);
    p.work_put.index.set(put_lun);
    when(turn_other, || peeked.set(walk_turn | cur_valid));

    comment("active LUNs, and their even share of the tags");
    let active = reg(lun_bits + 1, 0);
    let was_active = row.active();
    let is_active = new_row.active();
    when(row_write & !was_active & is_active, || {
        active.set(active + 1)
    });
    when(row_write & was_active & !is_active, || {
        active.set(active - 1)
    });
    let start_recheck = var(lit(0, 1));
    let u_share = instance::<fairness::ShareDividerPorts>("u_share", divider, c);
    u_share.tag_depth.set(tag_depth);
    u_share.active.set(active);
    when(u_share.valid, || {
        share.set(u_share.share);
        when(u_share.share.gt(share), || start_recheck.set(1));
    });
    when(p.discard.ne(discarding), || start_recheck.set(1));

    let recheck_left = reg(lun_bits + 1, 0);
    let exec_valid = reg(1, 0);
    let exec = Exec::reg_nr(c);
    let exec_weight = reg_nr(16);
    p.exec_weight.set(exec_weight);
    p.rule.set(rule);
    p.exec.offer(exec_valid, &exec);
    when(p.exec.fire(), || exec_valid.set(0));
    let held = reg(c.slot_bits() + 1, 0);
    p.empty.set(held.none());

    let deferred = Deferred::var_of(&Deferred::zero(&()));
    let e = Engine {
        c: c.clone(),
        p,
        turn_park,
        turn_other,
        turn_admit,
        turn_complete,
        walk_turn,
        discard_turn,
        discarding,
        clearing,
        row,
        new_row,
        row_write,
        judged,
        new_eligible,
        limits,
        stay,
        cq_row,
        new_cq_row,
        cq_row_write,
        link_write,
        link_addr,
        link_data,
        link,
        info_write,
        info_addr,
        info_data,
        info,
        status,
        cur_valid,
        cur,
        peeked,
        walk_lun,
        executing,
        tag_depth,
        tag_depth_set,
        rule,
        tag_valid,
        tag,
        exec_valid,
        exec,
        exec_weight,
        held,
        ending,
        deferred,
        recheck_left,
        sweep_at,
        start_recheck,
    };
    park::park(&e);
    let popping = park::pop(&e, pop_cq);
    let others = other::other(&e, other_is_sweep);
    let admission = admit::admit(&e);
    let walk = walker::walker(&e, walking, admission.admit);
    complete::intake(&e, &admission, &walk);
    complete::complete(&e);

    comment("statistics");
    let u_stats = instance::<LunStatsPorts>("u_stats", stats_module, c);
    u_stats.clear.valid.set(clearing);
    u_stats.clear.index.set(clear_at.resize(lun_bits));
    u_stats.admitted.valid.set(admission.execute);
    u_stats.admitted.lun.set(cur);
    u_stats.admitted.waited.set(p.cycle - info.parked_at);
    u_stats
        .completed
        .valid
        .set(ending.valid & ending.executed & turn_complete);
    u_stats.completed.lun.set(ending.lun);
    u_stats.completed.blocks.set(
        ending
            .status
            .trunc(11)
            .any()
            .mux(lit(0, BLOCKS_BITS), info.blocks),
    );
    u_stats
        .deferred
        .valid
        .set(e.deferred.depth | e.deferred.share | e.deferred.tags);
    u_stats.deferred.lun.set(row_addr);
    u_stats.deferred.depth.set(e.deferred.depth);
    u_stats.deferred.share.set(e.deferred.share);
    u_stats.deferred.tags.set(e.deferred.tags);
    other::snapshot(&e, &others, &u_stats);

    comment("start, and back to the defaults: one row a cycle");
    let default_row = Row {
        depth: lit(c.tags.min(32).into(), c.depth_bits()),
        weight: lit(1, 16),
        ..Row::zero(c)
    };
    let lun_to_clear = clear_at.resize(lun_bits);
    let clear_lun = clearing & clear_at.zext(32).lt(c.luns);
    let clear_cq = clearing & clear_at.zext(32).lt(cqs);
    rows.write(
        row_write | clear_lun,
        clearing.mux(lun_to_clear, row_addr),
        &Row::choose(clearing, &default_row, &new_row),
    );
    let cq_to_clear = clear_at.resize(c.queue_bits());
    cq_rows.write(
        cq_row_write | clear_cq,
        clearing.mux(cq_to_clear, cq_addr),
        clearing.mux(lit(0, CqRow::width_of(c)), new_cq_row.pack()),
    );
    when(clearing, || {
        clear_at.set(clear_at + 1);
        when(clear_at.eq(rows_to_clear - 1), || clearing.set(0));
        for r in [
            cur_valid,
            put_valid,
            tag_valid,
            exec_valid,
            ending.valid,
            walking,
            walk_turn,
            discard_turn,
            peeked,
        ] {
            r.set(0);
        }
        for r in [executing, active, held, recheck_left] {
            r.set(0);
        }
        tag_depth_set.set(c.tags);
        share.set(c.tags);
        rule.set(Rule::None);
    });
    when(p.clear & !clearing, || {
        clearing.set(1);
        clear_at.set(0);
    });
    p.clearing.set(clearing);

    comment("idle: two turns of the wheel without an event, and none offered");
    let offered = any_of(&[
        p.park.valid,
        p.reject.valid,
        p.done.valid,
        p.pop.valid,
        p.walk.valid,
        p.budget.valid,
        p.snapshot.valid,
        p.sq_to_cq.valid,
        p.clear,
        p.discard ^ discarding,
        p.exec.fire(),
        p.tag.fire(),
        p.work.fire(),
    ]);
    let busy = any_of(&[
        offered,
        clearing,
        row_write,
        cq_row_write,
        ending.valid,
        put_valid,
        popping,
        walking,
        recheck_left.any(),
        others.busy,
        u_share.busy,
    ]);
    let quiet = reg(4, 0);
    when(busy, || quiet.set(0)).elsewhen(!quiet.bit(3), || quiet.set(quiet + 1));
    p.idle.set(quiet.bit(3) & !busy);

    let scheduler = check::Scheduler {
        rows: &rows,
        put_valid,
        put_lun,
        active,
        sweeps: others.sweeps,
        sweep_first: others.sweep_first,
        phase,
        admission,
    };
    check::check(&e, &scheduler);
    let tables = owner::Tables {
        rows: &rows,
        cq_rows,
        links,
        infos,
        phase,
        clear_at,
        at_lun: row_addr,
        popping,
        pop_cq,
        admission,
        walk,
        walking,
    };
    owner::owners(&e, &tables);
}
