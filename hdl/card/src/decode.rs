//! `decode`: checks a fetched entry and sends it on: to admin, to its LUN's list, or with its status to its CQ.
//!
//! ```text
//!  entry ──►┌────────┐──► admin           entries of queue 0
//!           │ decode │──► cmd_write, park a good command
//!           │        │──► reject          a bad one, with its status
//!           └────────┘──► lookup lun ◄── present, base, blocks (lun_map, the cycle after)
//! ```
//!
//! Two stages: `look` holds the entry while the LUN map is asked, `send` holds what came of it until it is taken. The first
//! check that fails decides the status (NVMe 1.4, 4.6.1.2.1 and 4.2); none is retryable (DNR).
//!
//! | check | status |
//! |---|---|
//! | the queue is being deleted | 08h Command Aborted due to SQ Deletion |
//! | opcode is not Flush, Write or Read | 01h Invalid Command Opcode |
//! | FUSE or PSDT is not 0 | 02h Invalid Field in Command |
//! | NSID names no LUN in use, or one that is not present | 0Bh Invalid Namespace or Format |
//! | more than MDTS (256 blocks) | 02h Invalid Field in Command |
//! | SLBA + blocks pass the LUN's end | 80h LBA Out of Range |
//! | PRP1 not dword aligned; PRP2, where it is used, not page aligned or (a list) not qword aligned | 13h PRP Offset Invalid |
//!
//! **Invariants**: each entry leaves exactly once; `cmd_write` comes in or before the cycle in which its `park` is taken.
//! **Latency**: entry to park, reject or admin valid 2 cycles; one command every 2 cycles.

use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;
use weir_nvme::StatusCode;

/// Most 512 B blocks of a command: MDTS 128 KiB.
pub const MAX_BLOCKS: u32 = 256;

/// Ports of [`decode`].
#[derive(Bundle, Clone)]
#[bundle(params = CardConfig)]
pub struct DecodePorts {
    /// Fetched entries.
    #[input]
    pub entry: Stream<Entry>,
    /// A submission queue is being deleted.
    #[input]
    #[bits(1)]
    pub dying: Sig,
    /// Which.
    #[input]
    #[bits(p.queue_bits())]
    pub dying_sq: Sig,
    /// LUNs in use.
    #[input]
    #[bits(9)]
    pub luns: Sig,
    /// LUN to look up.
    #[output]
    #[bits(p.lun_bits())]
    pub lookup_lun: Sig,
    /// The cycle after: it is present.
    #[input]
    #[bits(1)]
    pub lookup_present: Sig,
    /// The cycle after: its first block on media.
    #[input]
    #[bits(MEDIA_BLOCK_BITS)]
    pub lookup_base: Sig,
    /// The cycle after: its blocks.
    #[input]
    #[bits(MEDIA_BLOCK_BITS)]
    pub lookup_blocks: Sig,
    /// Entries of the admin queue.
    #[output]
    #[bits(1)]
    pub admin_valid: Sig,
    /// The 64 bytes.
    #[output]
    #[bits(512)]
    pub admin_data: Sig,
    /// The entry is taken.
    #[input]
    #[bits(1)]
    pub admin_ready: Sig,
    /// An entry of the admin queue is held.
    #[output]
    #[bits(1)]
    pub admin_held: Sig,
    /// Fills the command RAM.
    #[output]
    pub cmd_write: CmdWrite,
    /// Good commands.
    #[output]
    pub park: Stream<Park>,
    /// Bad commands.
    #[output]
    pub reject: Stream<Reject>,
    /// Nothing is held.
    #[output]
    #[bits(1)]
    pub empty: Sig,
    /// Nothing would change with the inputs held.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Where an entry goes.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// The admin queue.
    Admin,
    /// Its LUN's list.
    Park,
    /// Its CQ, with a status.
    Reject,
}

/// Builds the block.
pub fn decode(c: &CardConfig) -> Module {
    module(
        "decode",
        "Checks a fetched entry and sends it to admin, to its LUN or to its CQ.",
        c,
        |p: DecodePorts| body(c, p),
    )
}

#[hw]
fn body(c: &CardConfig, p: DecodePorts) {
    // Stage `look`: the LUN map is asked in the cycle in which the entry is taken.
    let look_valid = reg(1, 0);
    let look = Entry::reg_nr(c);
    let send_valid = reg(1, 0);
    let send_to = reg_nr(To::WIDTH);
    let send_ready = send_to.is(To::Admin).mux(
        p.admin_ready,
        send_to.is(To::Park).mux(p.park.ready, p.reject.ready),
    );
    let send_free = !send_valid | send_ready;
    let look_free = !look_valid | send_free;
    p.entry.ready.set(look_free);
    when(look_free, || {
        look_valid.set(p.entry.valid);
        look.set(&p.entry.payload);
    });
    // While the stage waits, its own LUN is asked again.
    let asked = look_free.mux(p.entry.payload.data.bits(32, 32), look.data.bits(32, 32));
    p.lookup_lun.set((asked - 1).trunc(c.lun_bits()));

    // The command's fields (NVMe 1.4, figures 104, 366 and following).
    let d = look.data;
    let opcode = d.bits(0, 8);
    let fuse = d.bits(8, 2);
    let psdt = d.bits(14, 2);
    let cid = d.bits(16, 16);
    let nsid = d.bits(32, 32);
    let prp1 = d.bits(192, 64);
    let prp2 = d.bits(256, 64);
    let slba = d.bits(320, 64);
    let nlb = d.bits(384, 16);

    let is_flush = opcode.eq(0);
    let is_write = opcode.eq(1);
    let is_read = opcode.eq(2);
    let moves = is_write | is_read;
    let lun_bad = nsid.eq(0) | nsid.gt(p.luns.zext(32)) | !p.lookup_present;
    let too_long = nlb.ge(MAX_BLOCKS);
    let blocks = nlb.bits(0, BLOCKS_BITS) + 1;

    // SLBA + blocks <= size, without a 64-bit adder: the upper bits of SLBA must be 0.
    let slba_high = slba.bits(MEDIA_BLOCK_BITS, 64 - MEDIA_BLOCK_BITS).any();
    let slba_low = slba.trunc(MEDIA_BLOCK_BITS);
    let end = slba_low.zext(MEDIA_BLOCK_BITS + 1) + blocks.zext(MEDIA_BLOCK_BITS + 1);
    let past_end = slba_high | end.gt(p.lookup_blocks.zext(MEDIA_BLOCK_BITS + 1));

    // Pages of memory that the transfer touches: one needs PRP1 alone, two PRP2, more a list.
    let offset = prp1.bits(0, 12);
    let last_byte = offset.zext(18) + cat(&[blocks, lit(0, 9)]);
    let two_pages = last_byte.gt(4096);
    let needs_list = last_byte.gt(8192);
    let prp1_bad = prp1.bits(0, 2).any();
    let prp2_bad = needs_list.mux(prp2.bits(0, 3).any(), two_pages & prp2.bits(0, 12).any());

    let dying = p.dying & p.dying_sq.eq(look.sq);
    let checks = [
        (dying, StatusCode::ABORTED_SQ_DELETION),
        (!is_flush & !moves, StatusCode::INVALID_OPCODE),
        (fuse.any() | psdt.any(), StatusCode::INVALID_FIELD),
        (lun_bad, StatusCode::INVALID_NAMESPACE),
        (moves & too_long, StatusCode::INVALID_FIELD),
        (moves & past_end, StatusCode::LBA_OUT_OF_RANGE),
        (
            moves & (prp1_bad | prp2_bad),
            StatusCode::PRP_OFFSET_INVALID,
        ),
    ];
    let status = var(lit(0, STATUS_BITS));
    let mut bad = lit(0, 1);
    let mut chain: Option<When> = None;
    for (fails, code) in checks {
        bad = bad | fails;
        // An aborted command may be tried on another queue: no DNR.
        let dnr = u128::from(code != StatusCode::ABORTED_SQ_DELETION) << 14;
        let fail = || status.set(lit(dnr | u128::from(code.0), STATUS_BITS));
        chain = Some(match chain {
            None => when(fails, fail),
            Some(w) => w.elsewhen(fails, fail),
        });
    }
    let any_bad = bad;

    let sector_cost = blocks.zext(BLOCKS_BITS + 1) + 7;
    let cost = is_flush.mux(1, sector_cost.bits(3, COST_BITS));
    let op = is_read.mux(
        Op::Read.lit(),
        is_write.mux(Op::Write.lit(), Op::Flush.lit()),
    );
    let media_block = p.lookup_base + slba_low;
    let lun = (nsid - 1).trunc(c.lun_bits());
    let park_now = Park {
        slot: look.slot,
        sq: look.sq,
        cid,
        lun,
        op,
        cost,
        blocks: is_flush.mux(0, blocks),
    };
    let info_now = CmdInfo {
        op,
        media_block,
        blocks,
        prp1,
        prp2,
    };

    // Stage `send`.
    let send = look_valid & send_free;
    let send_data = reg_nr(512);
    let send_status = reg_nr(STATUS_BITS);
    let send_park = Park::reg_nr(c);
    when(send_free, || send_valid.set(look_valid));
    when(send, || {
        send_data.set(look.data);
        send_status.set(status);
        send_park.set(&park_now);
        send_to.set(look.sq.eq(0).mux(
            To::Admin.lit(),
            any_bad.mux(To::Reject.lit(), To::Park.lit()),
        ));
    });
    p.cmd_write.valid.set(send & look.sq.any() & !any_bad);
    p.cmd_write.slot.set(look.slot);
    p.cmd_write.info.set(&info_now);

    p.admin_valid.set(send_valid & send_to.is(To::Admin));
    p.admin_data.set(send_data);
    p.admin_held
        .set((look_valid & look.sq.none()) | (send_valid & send_to.is(To::Admin)));
    p.park.offer(send_valid & send_to.is(To::Park), &send_park);
    let reject_now = Reject {
        slot: send_park.slot,
        sq: send_park.sq,
        cid: send_park.cid,
        status: send_status,
    };
    p.reject
        .offer(send_valid & send_to.is(To::Reject), &reject_now);
    p.empty.set(!look_valid & !send_valid);
    p.idle.set(
        (!look_valid | !send_free) & (!send_valid | !send_ready) & !(p.entry.valid & look_free),
    );
    check(c, &p);
}

/// Each entry leaves exactly once, in its turn, as what it is: from the ports alone. One entry is watched, any.
#[hw]
fn check(c: &CardConfig, p: &DecodePorts) {
    formal(|| {
        let to_admin = p.admin_valid & p.admin_ready;
        let leaves = to_admin | p.park.fire() | p.reject.fire();
        let inside = reg(2, 0);
        inside.set(inside + p.entry.fire().zext(2) - leaves.zext(2));
        assert("holds_two_at_most", inside.le(2));
        assert("empty_is_empty", p.empty.eq(inside.none()));
        let ways = p.admin_valid.zext(2) + p.park.valid.zext(2) + p.reject.valid.zext(2);
        assert("goes_one_way", ways.le(1));
        assert("holds_what_goes", ways.none() | inside.any());
        p.park.assert_stable("park_stable");
        p.reject.assert_stable("reject_stable");

        comment("the watched entry: what it was, and how many are ahead of it");
        let watched = reg(1, 0);
        let ahead = reg(2, 0);
        let slot = reg_nr(c.slot_bits());
        let sq = reg_nr(c.queue_bits());
        let (cid, nsid) = (reg_nr(16), reg_nr(32));
        let goes = watched & ahead.none() & leaves;
        let watch = anyseq(1) & p.entry.fire() & (!watched | goes);
        when(leaves, || ahead.set(ahead - 1));
        when(goes, || watched.set(0));
        when(watch, || {
            let entry = &p.entry.payload;
            watched.set(1);
            ahead.set(inside - leaves.zext(2));
            slot.set(entry.slot);
            sq.set(entry.sq);
            cid.set(entry.data.bits(16, 16));
            nsid.set(entry.data.bits(32, 32));
        });
        let (park, reject) = (&p.park.payload, &p.reject.payload);
        let park_is = park.slot.eq(slot) & park.sq.eq(sq) & park.cid.eq(cid);
        let lun_is = park.lun.eq((nsid - 1).trunc(c.lun_bits())) & nsid.any();
        let reject_is = reject.slot.eq(slot) & reject.sq.eq(sq) & reject.cid.eq(cid);
        let admin_is = p.admin_data.bits(16, 16).eq(cid) & p.admin_data.bits(32, 32).eq(nsid);
        assert(
            "goes_to_admin",
            !(goes & p.admin_valid) | (sq.none() & admin_is),
        );
        assert(
            "goes_to_its_lun",
            !(goes & p.park.valid) | (sq.any() & park_is & lun_is),
        );
        let refused = reject_is & reject.status.any();
        assert(
            "goes_with_a_status",
            !(goes & p.reject.valid) | (sq.any() & refused),
        );

        comment("a parked command's row of the command RAM is written before, and once");
        let written = reg(1, 0);
        let (written_slot, written_blocks) = (reg_nr(c.slot_bits()), reg_nr(BLOCKS_BITS));
        when(p.park.fire(), || written.set(0));
        when(p.cmd_write.valid, || {
            written.set(1);
            written_slot.set(p.cmd_write.slot);
            written_blocks.set(p.cmd_write.info.blocks);
        });
        assert(
            "row_is_written_once",
            !p.cmd_write.valid | !written | p.park.fire(),
        );
        let row_is = written & written_slot.eq(park.slot);
        let length_is = park.blocks.none() | park.blocks.eq(written_blocks);
        assert("row_is_written", !p.park.valid | (row_is & length_is));

        cover("goes_to_admin", goes & p.admin_valid & inside.eq(2));
        cover("goes_to_its_lun", goes & p.park.valid & inside.eq(2));
        cover("goes_with_a_status", goes & p.reject.valid & inside.eq(2));
    });
}
