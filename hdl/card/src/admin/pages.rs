//! `admin_pages`: the contents of Identify structures and log pages, as a stream of dwords.
//!
//! ```text
//!  start {page, offset, nsid} ──►┌─────────────┐
//!  what varies (blocks, stats) ─►│ admin_pages │──► dword (valid/ready)
//!  lookup lun ◄──────────────────│             │
//!         present ──────────────►└─────────────┘
//! ```
//!
//! The constant bytes come from `weir_nvme`'s images, so that host, tests and card share one definition; they become a
//! `case` over the dword's number (most dwords are 0). What varies is laid over them here. Past a page's end all is 0.
//!
//! The counters of SMART and the error log live through a controller reset, as the specification wants.
//!
//! **Invariants**: the stream is endless and its words depend on nothing that was taken before but their number.
//! **Latency**: a dword every 2 cycles; in the list of namespaces, 2 cycles more for each LUN that is not there.

use crate::config::CardConfig;
use crate::interfaces::*;
use weir_kit::*;
use weir_nvme::weir::{self, CardIdentity};
use zerocopy::{FromZeros, IntoBytes};

/// Entries of the error log.
pub const ERROR_ENTRIES: u32 = 4;
/// Bits of a dword's number in a page or a log: 16 KiB.
pub const DWORD_BITS: u32 = 12;

/// What is asked for.
#[derive(HwEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Nothing but zeros (a namespace that is not active).
    Zero,
    /// Identify Controller.
    Controller,
    /// Identify Namespace.
    Namespace,
    /// Active Namespace ID list.
    NamespaceList,
    /// Namespace Identification Descriptor list.
    Descriptors,
    /// Error Information.
    Errors,
    /// SMART / Health Information.
    Smart,
    /// Firmware Slot Information.
    Firmware,
    /// LUN statistics, vendor log C0h.
    LunStats,
}

/// Ports of [`admin_pages`].
#[derive(Clone, Bundle)]
#[bundle(params = CardConfig)]
pub struct AdminPagesPorts {
    /// Begin a page; what was streamed before is dropped.
    #[input]
    #[bits(1)]
    pub start: Sig,
    /// End the page.
    #[input]
    #[bits(1)]
    pub stop: Sig,
    /// [`Page`].
    #[input]
    #[bits(Page::WIDTH)]
    pub page: Sig,
    /// First dword.
    #[input]
    #[bits(DWORD_BITS)]
    pub offset: Sig,
    /// The command's NSID, less than 2^16 where it names a LUN.
    #[input]
    #[bits(32)]
    pub nsid: Sig,
    /// LUNs in use: NN.
    #[input]
    #[bits(9)]
    pub luns: Sig,
    /// Blocks of the LUN that is asked for.
    #[input]
    #[bits(MEDIA_BLOCK_BITS)]
    pub blocks: Sig,
    /// Its statistics.
    #[input]
    pub stats: LunStats,
    /// LUN to look up.
    #[output]
    #[bits(p.lun_bits())]
    pub lookup_lun: Sig,
    /// It is present; the cycle after.
    #[input]
    #[bits(1)]
    pub lookup_present: Sig,
    /// An I/O command completed: count it.
    #[input]
    #[bits(1)]
    pub io_valid: Sig,
    /// Its [`Op`].
    #[input]
    #[bits(2)]
    pub io_op: Sig,
    /// Its length in 512 B blocks.
    #[input]
    #[bits(BLOCKS_BITS)]
    pub io_blocks: Sig,
    /// A command ended with an error: log it.
    #[input]
    #[bits(1)]
    pub error_valid: Sig,
    /// Its submission queue.
    #[input]
    #[bits(p.queue_bits())]
    pub error_sq: Sig,
    /// Its CID.
    #[input]
    #[bits(16)]
    pub error_cid: Sig,
    /// Its status.
    #[input]
    #[bits(STATUS_BITS)]
    pub error_status: Sig,
    /// Its NSID, 0 where it is not known.
    #[input]
    #[bits(32)]
    pub error_nsid: Sig,
    /// The dword.
    #[output]
    #[bits(32)]
    pub dword: Sig,
    /// It is there.
    #[output]
    #[bits(1)]
    pub dword_valid: Sig,
    /// It is taken.
    #[input]
    #[bits(1)]
    pub dword_ready: Sig,
    /// Nothing would change with the inputs held.
    #[output]
    #[bits(1)]
    pub idle: Sig,
}

/// Builds the block.
pub fn admin_pages(c: &CardConfig) -> Module {
    module(
        "admin_pages",
        "Identify structures and log pages, as a stream of dwords.",
        c,
        |p: AdminPagesPorts| body(c, p),
    )
}

/// What this card says of itself; the same for the card's ROM and for tests.
pub fn identity(c: &CardConfig) -> CardIdentity<'static> {
    CardIdentity {
        luns: c.luns,
        tags: c.tags,
        queues: c.queues,
        entries: c.entries,
        error_log_entries: ERROR_ENTRIES as u16,
        ..CardIdentity::default()
    }
}

/// The dwords of `image` that are not 0, by number.
fn dwords(image: &[u8]) -> Vec<(u32, u32)> {
    let words = image
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    (0u32..).zip(words).filter(|&(_, w)| w != 0).collect()
}

/// A ROM: `image` by the number of its dword, 0 elsewhere.
#[hw]
fn rom(at: Sig, image: &[u8]) -> Sig {
    let word = var(lit(0, 32));
    switch(at, |s| {
        for (i, w) in dwords(image) {
            s.is(i, || word.set(lit(w.into(), 32)));
        }
    });
    word
}

/// The SMART log's constant part.
fn smart_image() -> [u8; 512] {
    let mut log = weir_nvme::log::SmartLog::new_zeroed();
    log.temperature = 313.into();
    log.available_spare = 100;
    log.spare_threshold = 10;
    log.power_cycles = 1.into();
    let mut image = [0; 512];
    image.copy_from_slice(log.as_bytes());
    image
}

/// The firmware slot log.
fn firmware_image(c: &CardConfig) -> [u8; 512] {
    let mut log = weir_nvme::log::FirmwareSlotLog::new_zeroed();
    log.afi = 1;
    let name = identity(c).firmware.as_bytes();
    log.revision[0].fill(b' ');
    log.revision[0][..name.len()].copy_from_slice(name);
    let mut image = [0; 512];
    image.copy_from_slice(log.as_bytes());
    image
}

#[hw]
fn body(c: &CardConfig, p: AdminPagesPorts) {
    let id = identity(c);
    let running = reg(1, 0);
    let at = reg_nr(DWORD_BITS);
    let page = reg_nr(Page::WIDTH);
    let word = reg_nr(32);
    let word_valid = reg(1, 0);

    // The list of namespaces: `cursor` is the next LUN to look at, `looked` says that its answer is due this cycle.
    let cursor = reg_nr(9);
    let looked = reg(1, 0);
    let in_list = cursor.lt(p.luns);
    p.lookup_lun.set(cursor.trunc(c.lun_bits()));

    let is_list = page.is(Page::NamespaceList);
    let room = running & !word_valid;
    let list_end = room & is_list & !in_list;
    let list_hit = room & is_list & in_list & looked & p.lookup_present;
    let list_miss = room & is_list & in_list & looked & !p.lookup_present;
    let list_look = room & is_list & in_list & !looked;
    let plain = room & !is_list;

    let controller = rom(at, &weir::identify_controller(&id));
    let nn = at.eq((weir_nvme::identify::offset::NN / 4) as u32);
    let namespace_rom = rom(at, &weir::identify_namespace(0));
    let blocks_lo = p.blocks.bits(0, 32);
    let blocks_hi = p.blocks.bits(32, MEDIA_BLOCK_BITS - 32).zext(32);
    let in_sizes = at.lt(6);
    let size_word = at.bit(0).mux(blocks_hi, blocks_lo);
    let descriptors_rom = rom(at, &weir::namespace_descriptors(id.serial, 0));
    let descriptor_nsid = at.eq((weir::DESCRIPTOR_NSID / 4) as u32);
    // Most significant byte first, as the UUID has it.
    let nsid_be = cat(&[
        p.nsid.bits(0, 8),
        p.nsid.bits(8, 8),
        p.nsid.bits(16, 8),
        p.nsid.bits(24, 8),
    ]);

    let smart = smart_log(&p, at);
    let errors = error_log(c, &p, at);
    let firmware = rom(at, &firmware_image(c));
    let stats = stats_log(&p, at);

    let value = var(lit(0, 32));
    switch(page, |s| {
        s.is(Page::Controller, || {
            value.set(nn.mux(p.luns.zext(32), controller))
        });
        s.is(Page::Namespace, || {
            value.set(in_sizes.mux(size_word, namespace_rom))
        });
        s.is(Page::NamespaceList, || {
            value.set(in_list.mux((cursor + 1).zext(32), lit(0, 32)))
        });
        s.is(Page::Descriptors, || {
            value.set(descriptor_nsid.mux(nsid_be, descriptors_rom))
        });
        s.is(Page::Errors, || value.set(errors));
        s.is(Page::Smart, || value.set(smart));
        s.is(Page::Firmware, || value.set(firmware));
        s.is(Page::LunStats, || value.set(stats));
    });

    let produce = plain | list_hit | list_end;
    when(word_valid & p.dword_ready, || word_valid.set(lit(0, 1)));
    when(produce, || {
        word.set(value);
        word_valid.set(lit(1, 1));
        at.set(at + 1);
    });
    when(list_hit | list_miss, || {
        cursor.set(cursor + 1);
        looked.set(lit(0, 1));
    });
    when(list_look, || looked.set(lit(1, 1)));
    when(p.start, || {
        running.set(lit(1, 1));
        page.set(p.page);
        at.set(p.offset);
        word_valid.set(lit(0, 1));
        looked.set(lit(0, 1));
        // NSIDs greater than the command's: LUN numbers from NSID on; beyond every LUN when it is large.
        let large = p.nsid.bits(8, 24).any();
        cursor.set(large.mux(lit(0x1ff, 9), p.nsid.bits(0, 9)));
    });
    when(p.stop, || {
        running.set(lit(0, 1));
        word_valid.set(lit(0, 1));
    });
    p.dword.set(word);
    p.dword_valid.set(word_valid);
    let rests = !running | (word_valid & !p.dword_ready);
    p.idle
        .set(rests & !p.start & !p.stop & !p.io_valid & !p.error_valid);
}

/// Counters of the SMART log over its constants. A data unit is 1000 blocks of 512 B, counted when it is begun (the
/// specification rounds up).
#[hw]
fn smart_log(p: &AdminPagesPorts, at: Sig) -> Sig {
    let constants = rom(at, &smart_image());
    let read = p.io_valid & p.io_op.is(Op::Read);
    let written = p.io_valid & p.io_op.is(Op::Write);
    let reads = reg(48, 0);
    let writes = reg(48, 0);
    let units_read = reg(48, 0);
    let units_written = reg(48, 0);
    count(read, p.io_blocks, reads, units_read);
    count(written, p.io_blocks, writes, units_written);
    let errors = reg(32, 0);
    when(p.error_valid, || errors.set(errors + 1));

    let word = var(constants);
    let counter = |s: &mut Switch, byte: u32, value: Sig| {
        s.is(byte / 4, || word.set(value.bits(0, 32)));
        s.is(byte / 4 + 1, || word.set(value.bits(32, 16).zext(32)));
    };
    switch(at, |s| {
        counter(s, 32, units_read);
        counter(s, 48, units_written);
        counter(s, 64, reads);
        counter(s, 80, writes);
        s.is(176 / 4, || word.set(errors));
    });
    word
}

/// Counts one command, and its blocks in thousands, rounded up.
#[hw]
fn count(fire: Sig, blocks: Sig, commands: Sig, units: Sig) {
    // Blocks left of the last unit begun: 0 to 999.
    let spare = reg(10, 0);
    let need = blocks.zext(10);
    let begins = spare.lt(need);
    when(fire, || {
        commands.set(commands + 1);
        spare.set(begins.mux(spare + lit(1000, 10) - need, spare - need));
        when(begins, || units.set(units + 1));
    });
}

/// The last errors, newest first. An entry says count, queue, command, status, and NSID; no LBA (0).
#[hw]
fn error_log(c: &CardConfig, p: &AdminPagesPorts, at: Sig) -> Sig {
    let q = c.queue_bits();
    let entry_bits = 32 + 32 + 16 + q + STATUS_BITS;
    let total = reg(32, 0);
    let next_total = total + 1;
    let mut newer = cat(&[
        p.error_nsid,
        next_total,
        p.error_cid,
        p.error_sq,
        p.error_status,
    ]);
    let word = var(lit(0, 32));
    let field = at.bits(0, 4);
    when(p.error_valid, || total.set(next_total));
    for i in 0..ERROR_ENTRIES {
        let entry = reg(entry_bits, 0);
        when(p.error_valid, || entry.set(newer));
        let number = entry.bits(STATUS_BITS + q + 16, 32);
        let nsid = entry.hi(32);
        let cid = entry.bits(STATUS_BITS + q, 16);
        let sq = entry.bits(STATUS_BITS, q);
        let status = entry.bits(0, STATUS_BITS);
        let here = at.bits(4, DWORD_BITS - 4).eq(i) & number.any();
        when(here, || {
            switch(field, |s| {
                s.is(0, || word.set(number));
                s.is(2, || word.set(cat(&[cid, sq.zext(16)])));
                // Parameter location: not one parameter.
                s.is(3, || word.set(cat(&[lit(0xffff, 16), status, lit(0, 1)])));
                s.is(6, || word.set(nsid));
            });
        });
        newer = entry;
    }
    word
}

/// The ten numbers of log C0h, each 64 bits.
#[hw]
fn stats_log(p: &AdminPagesPorts, at: Sig) -> Sig {
    let word = var(lit(0, 32));
    let s = &p.stats;
    let fields = [
        s.in_flight,
        s.peak,
        s.parked,
        s.admitted,
        s.completed,
        s.deferred_depth,
        s.deferred_tags,
        s.deferred_share,
        s.cycles_waited,
        s.bytes,
    ];
    switch(at, |w| {
        for (i, f) in (0u32..).zip(fields) {
            let wide = f.zext(64);
            w.is(2 * i, || word.set(wide.bits(0, 32)));
            w.is(2 * i + 1, || word.set(wide.bits(32, 32)));
        }
    });
    word
}
