//! AXI4-Lite slave front: the channel handshakes that `bar0` and `lun_map` share.
//!
//! ```text
//!   aw, w ──► write {addr, data, strb}, a pulse      b ◄── one cycle after
//!   ar ─────► read addr, held ◄── data a cycle later r ◄──
//! ```
//!
//! A write is taken when address and data are both there, at most every second cycle; it never waits for anything else.
//! A read sees `read_addr` for at least two cycles without a write in the first, so that a block may answer from a RAM with
//! one address port. All answers are OKAY.
//!
//! **Latency**: wvalid to the write pulse 1 cycle; arvalid to rvalid 3 cycles, one more for each write that comes between.

use weir_kit::*;

/// An AXI4-Lite port of 32 bits, as seen from its master.
#[derive(Bundle, Clone, Copy)]
#[bundle(params = u32)]
pub struct AxiLite {
    /// Write address is valid.
    #[bits(1)]
    pub awvalid: Sig,
    /// Write address is taken.
    #[flip]
    #[bits(1)]
    pub awready: Sig,
    /// Byte address.
    #[bits(*p)]
    pub awaddr: Sig,
    /// Write data is valid.
    #[bits(1)]
    pub wvalid: Sig,
    /// Write data is taken.
    #[flip]
    #[bits(1)]
    pub wready: Sig,
    /// Write data.
    #[bits(32)]
    pub wdata: Sig,
    /// Byte strobes.
    #[bits(4)]
    pub wstrb: Sig,
    /// Write response is valid.
    #[flip]
    #[bits(1)]
    pub bvalid: Sig,
    /// Write response is taken.
    #[bits(1)]
    pub bready: Sig,
    /// 0: OKAY.
    #[flip]
    #[bits(2)]
    pub bresp: Sig,
    /// Read address is valid.
    #[bits(1)]
    pub arvalid: Sig,
    /// Read address is taken.
    #[flip]
    #[bits(1)]
    pub arready: Sig,
    /// Byte address.
    #[bits(*p)]
    pub araddr: Sig,
    /// Read data is valid.
    #[flip]
    #[bits(1)]
    pub rvalid: Sig,
    /// Read data is taken.
    #[bits(1)]
    pub rready: Sig,
    /// Read data.
    #[flip]
    #[bits(32)]
    pub rdata: Sig,
    /// 0: OKAY.
    #[flip]
    #[bits(2)]
    pub rresp: Sig,
}

/// What a block sees of its port.
#[derive(Clone, Copy)]
pub struct Access {
    /// Pulse: a write.
    pub write: Sig,
    /// Its dword address.
    pub write_addr: Sig,
    /// Its data.
    pub write_data: Sig,
    /// The bits of it that are meant, from the strobes.
    pub write_mask: Sig,
    /// Its strobes.
    pub write_strb: Sig,
    /// Dword address of a read.
    pub read_addr: Sig,
    /// A write or a read is under way.
    pub busy: Sig,
}

/// Makes the handshakes. `read` gets the dword address and gives its data, the cycle after the address.
#[hw]
pub fn axi_lite(io: &AxiLite, read: impl FnOnce(&Access) -> Sig) -> Access {
    let addr_bits = io.awaddr.width();
    unused(io.awaddr.bits(0, 2));
    unused(io.araddr.bits(0, 2));

    let b_pending = reg(1, 0);
    let take_write = io.awvalid & io.wvalid & !b_pending;
    io.awready.set(take_write);
    io.wready.set(take_write);
    io.bvalid.set(b_pending);
    io.bresp.set(0);
    when(b_pending & io.bready, || b_pending.set(0));
    when(take_write, || b_pending.set(1));

    let write = reg(1, 0);
    let write_addr = reg_nr(addr_bits - 2);
    let write_data = reg_nr(32);
    let write_strb = reg_nr(4);
    write.set(take_write);
    when(take_write, || {
        write_addr.set(io.awaddr.bits(2, addr_bits - 2));
        write_data.set(io.wdata);
        write_strb.set(io.wstrb);
    });
    let write_mask = cat(&[
        write_strb.bit(3).repeat(8),
        write_strb.bit(2).repeat(8),
        write_strb.bit(1).repeat(8),
        write_strb.bit(0).repeat(8),
    ]);

    // A read: `asked`, then (when no write used the address port) `answered`, then `r_valid`.
    let asked = reg(1, 0);
    let answered = reg(1, 0);
    let r_valid = reg(1, 0);
    let read_addr = reg_nr(addr_bits - 2);
    let r_data = reg_nr(32);
    let reading = asked | answered | r_valid;
    let take_read = io.arvalid & !reading;
    io.arready.set(!reading);
    when(take_read, || {
        asked.set(1);
        read_addr.set(io.araddr.bits(2, addr_bits - 2));
    });
    when(asked & !write, || {
        asked.set(0);
        answered.set(1);
    });
    let access = Access {
        write,
        write_addr,
        write_data,
        write_mask,
        write_strb,
        read_addr,
        busy: write | asked | answered,
    };
    let data = read(&access);
    when(answered, || {
        answered.set(0);
        r_valid.set(1);
        r_data.set(data);
    });
    when(r_valid & io.rready, || r_valid.set(0));
    io.rvalid.set(r_valid);
    io.rdata.set(r_data);
    io.rresp.set(0);
    access
}
