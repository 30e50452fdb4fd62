//! AXI4 at the pins: what a master and a slave drive in one cycle, and the rules a master must keep.
//!
//! Everything here is one cycle wide and copied by value; nothing allocates. Signal names are the AMBA AXI
//! specification's (ARM IHI 0022) in snake case; section numbers in rules are its issue H.

use std::collections::VecDeque;
use std::fmt;

/// 64-bit words of the widest data bus (512 bits).
pub const MAX_WORDS: usize = 8;
/// Bytes that no burst may cross a multiple of (A3.4.1).
pub const BOUNDARY: u64 = 4096;

/// AWxxx or ARxxx without the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addr {
    /// Transaction ID, `id_bits` wide.
    pub id: u32,
    /// Byte address of the first transfer; need not be aligned.
    pub addr: u64,
    /// Beats in the burst less one, 0..=255.
    pub len: u8,
    /// log2 of the bytes in a beat, at most the bus width.
    pub size: u8,
    /// 1 is INCR, the only type accepted here.
    pub burst: u8,
}

impl Addr {
    /// Beats, 1..=256.
    pub fn beats(&self) -> u32 {
        u32::from(self.len) + 1
    }

    /// Byte address of beat `beat` as the bus sees it: the first as given, later ones aligned to the size (A3.4.1).
    pub fn beat_addr(&self, beat: u32) -> u64 {
        match beat {
            0 => self.addr,
            _ => (self.addr & !(self.beat_bytes() - 1)).wrapping_add(u64::from(beat) << self.size),
        }
    }

    /// Bytes from `addr` to the end of the last beat.
    pub fn bytes(&self) -> u64 {
        u64::from(self.beats()) * self.beat_bytes() - (self.addr & (self.beat_bytes() - 1))
    }

    fn beat_bytes(&self) -> u64 {
        1 << self.size
    }
}

/// BRESP and RRESP (A3.4.4). EXOKAY is never used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Resp {
    /// Success.
    #[default]
    Okay = 0,
    /// The slave was reached and failed.
    SlvErr = 2,
    /// No slave at this address.
    DecErr = 3,
}

/// What a master drives in a cycle.
#[derive(Clone, Copy, Debug, Default)]
pub struct MasterOut {
    /// AWVALID.
    pub aw_valid: bool,
    /// AW payload.
    pub aw: Addr,
    /// WVALID.
    pub w_valid: bool,
    /// WLAST.
    pub w_last: bool,
    /// WSTRB, bit n for byte n of the bus.
    pub w_strb: u64,
    /// WDATA, little-endian words.
    pub w_data: [u64; MAX_WORDS],
    /// BREADY.
    pub b_ready: bool,
    /// ARVALID.
    pub ar_valid: bool,
    /// AR payload.
    pub ar: Addr,
    /// RREADY.
    pub r_ready: bool,
}

/// What a slave drives in a cycle.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlaveOut {
    /// AWREADY.
    pub aw_ready: bool,
    /// WREADY.
    pub w_ready: bool,
    /// BVALID.
    pub b_valid: bool,
    /// BID.
    pub b_id: u32,
    /// BRESP.
    pub b_resp: Resp,
    /// ARREADY.
    pub ar_ready: bool,
    /// RVALID.
    pub r_valid: bool,
    /// RID.
    pub r_id: u32,
    /// RRESP.
    pub r_resp: Resp,
    /// RLAST.
    pub r_last: bool,
    /// RDATA, little-endian words.
    pub r_data: [u64; MAX_WORDS],
}

/// The width of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes in a beat: 16, 32 or 64.
    pub data_bytes: usize,
    /// Bits of AWID, BID, ARID, RID: 0..=16; 0 means one ID.
    pub id_bits: u32,
}

impl Shape {
    /// 64-bit words in a beat.
    pub fn words(&self) -> usize {
        self.data_bytes / 8
    }

    /// All strobes of a beat.
    pub fn full_strobe(&self) -> u64 {
        u64::MAX >> (64 - self.data_bytes)
    }

    /// IDs there are.
    pub fn ids(&self) -> usize {
        1 << self.id_bits
    }
}

/// A channel of a port, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Channel {
    Aw,
    W,
    B,
    Ar,
    R,
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Channel::Aw => "AW",
            Channel::W => "W",
            Channel::B => "B",
            Channel::Ar => "AR",
            Channel::R => "R",
        })
    }
}

/// A rule that a master broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cycle {cycle}: AXI port {port}, channel {channel}: {rule}")]
pub struct Violation {
    /// Name of the port (`host`, `media`, ...).
    pub port: &'static str,
    /// Channel of the signal at fault.
    pub channel: Channel,
    /// Cycle in which it was seen.
    pub cycle: u64,
    /// The rule, with the values that break it.
    pub rule: String,
}

/// Watches one port and reports the first broken rule of each cycle.
///
/// Beyond the AXI rules it holds the card to its own: bursts are INCR, write data does not lead its address, B is
/// accepted at once, and so is R unless [`Checker::r_may_stall`] says otherwise.
#[derive(Debug)]
pub struct Checker {
    port: &'static str,
    shape: Shape,
    stalled_aw: Option<Addr>,
    stalled_ar: Option<Addr>,
    stalled_w: Option<(bool, u64, [u64; MAX_WORDS])>,
    /// Bursts whose data is not complete, with the beats already seen of the first.
    writes: VecDeque<Addr>,
    beat: u32,
    r_may_stall: bool,
}

impl Checker {
    /// A checker for the port of this name and width, with nothing outstanding.
    pub fn new(port: &'static str, shape: Shape) -> Self {
        Checker {
            port,
            shape,
            stalled_aw: None,
            stalled_ar: None,
            stalled_w: None,
            writes: VecDeque::with_capacity(64),
            beat: 0,
            r_may_stall: false,
        }
    }

    /// The master may hold RREADY low: data that cuts through to another port waits with it.
    pub fn r_may_stall(mut self) -> Self {
        self.r_may_stall = true;
        self
    }

    /// Forgets what was outstanding: after a reset of the master.
    pub fn reset(&mut self) {
        let fresh = Checker::new(self.port, self.shape);
        *self = Checker {
            r_may_stall: self.r_may_stall,
            ..fresh
        };
    }

    /// Write bursts whose address was accepted and whose data was not yet complete.
    pub fn open_writes(&self) -> usize {
        self.writes.len()
    }

    /// No request may begin in this cycle: the card must not use the bus (PCI command register). One that stands at the pins stays.
    /// Call it before [`Checker::check`].
    pub fn none_begins(&self, cycle: u64, m: &MasterOut) -> Result<(), Violation> {
        let ar = m.ar_valid && self.stalled_ar.is_none();
        let aw = m.aw_valid && self.stalled_aw.is_none();
        if !ar && !aw {
            return Ok(());
        }
        let channel = if ar { Channel::Ar } else { Channel::Aw };
        let rule = "a request begins while bus mastering is off (PCI Local Bus 3.0, 6.2.2)";
        Err(self.broken(cycle, channel, rule.into()))
    }

    /// Checks the cycle in which master and slave drive `m` and `s`.
    #[inline]
    pub fn check(&mut self, cycle: u64, m: &MasterOut, s: &SlaveOut) -> Result<(), Violation> {
        if m.aw_valid || self.stalled_aw.is_some() {
            self.address(cycle, Channel::Aw, m.aw_valid, &m.aw, s.aw_ready)?;
            if m.aw_valid && s.aw_ready {
                self.writes.push_back(m.aw);
            }
        }
        if m.w_valid || self.stalled_w.is_some() {
            self.write_data(cycle, m, s)?;
        }
        if m.ar_valid || self.stalled_ar.is_some() {
            self.address(cycle, Channel::Ar, m.ar_valid, &m.ar, s.ar_ready)?;
        }
        if s.b_valid && !m.b_ready {
            return Err(self.broken(
                cycle,
                Channel::B,
                "BREADY low while BVALID: the card must always accept B".into(),
            ));
        }
        if s.r_valid && !m.r_ready && !self.r_may_stall {
            return Err(self.broken(
                cycle,
                Channel::R,
                "RREADY low while RVALID: the card must always accept R".into(),
            ));
        }
        Ok(())
    }

    fn address(
        &mut self,
        cycle: u64,
        channel: Channel,
        valid: bool,
        a: &Addr,
        ready: bool,
    ) -> Result<(), Violation> {
        let stalled = match channel {
            Channel::Aw => &mut self.stalled_aw,
            _ => &mut self.stalled_ar,
        };
        let before = stalled.take();
        if valid && !ready {
            *stalled = Some(*a);
        }
        let rule = match before {
            Some(was) if !valid => Some(format!(
                "valid fell before ready, with {was:x?} (A3.2.1: valid holds until the handshake)"
            )),
            Some(was) if was != *a => Some(format!(
                "payload changed before ready, from {was:x?} to {a:x?} (A3.2.1: it must be stable)"
            )),
            Some(_) => None,
            None => self.bad_burst(a),
        };
        rule.map_or(Ok(()), |rule| Err(self.broken(cycle, channel, rule)))
    }

    fn bad_burst(&self, a: &Addr) -> Option<String> {
        if a.burst != 1 {
            return Some(format!(
                "burst type {} of {a:x?}: only INCR (1) is used here",
                a.burst
            ));
        }
        if 1usize << a.size > self.shape.data_bytes {
            return Some(format!(
                "size 2^{} bytes on a bus of {} bytes (A3.4.1)",
                a.size, self.shape.data_bytes
            ));
        }
        if a.id >> self.shape.id_bits != 0 {
            return Some(format!(
                "ID {:#x} on a port of {} ID bits",
                a.id, self.shape.id_bits
            ));
        }
        if (a.addr & (BOUNDARY - 1)) + a.bytes() > BOUNDARY {
            return Some(format!(
                "burst at {:#x} of {} bytes crosses a 4 KiB boundary (A3.4.1)",
                a.addr,
                a.bytes()
            ));
        }
        None
    }

    fn write_data(&mut self, cycle: u64, m: &MasterOut, s: &SlaveOut) -> Result<(), Violation> {
        let words = self.shape.words();
        if let Some((last, strobe, data)) = self.stalled_w.take() {
            if !m.w_valid {
                return Err(self.broken(
                    cycle,
                    Channel::W,
                    "WVALID fell before WREADY (A3.2.1)".into(),
                ));
            }
            if last != m.w_last || strobe != m.w_strb || data[..words] != m.w_data[..words] {
                let rule = format!(
                    "payload changed before WREADY (A3.2.1): last {last} to {}, strobes {strobe:#x} to {:#x}, data {:x?} to {:x?}",
                    m.w_last,
                    m.w_strb,
                    &data[..words],
                    &m.w_data[..words]
                );
                return Err(self.broken(cycle, Channel::W, rule));
            }
        }
        if !s.w_ready {
            self.stalled_w = Some((m.w_last, m.w_strb, m.w_data));
            return Ok(());
        }
        let Some(burst) = self.writes.front().copied() else {
            return Err(self.broken(
                cycle,
                Channel::W,
                "data accepted before the address of its burst".into(),
            ));
        };
        let beat = self.beat;
        let last = beat + 1 == burst.beats();
        if m.w_last != last {
            let rule = format!(
                "WLAST is {} on beat {} of the {} beats of {burst:x?} (A3.4.1)",
                m.w_last,
                beat + 1,
                burst.beats()
            );
            return Err(self.broken(cycle, Channel::W, rule));
        }
        let allowed = lanes(&burst, beat, self.shape);
        if m.w_strb & !allowed != 0 {
            let rule = format!(
                "strobes {:#x} outside the lanes {allowed:#x} of beat {} of {burst:x?} (A3.4.3)",
                m.w_strb,
                beat + 1
            );
            return Err(self.broken(cycle, Channel::W, rule));
        }
        self.beat = beat + 1;
        if last {
            self.beat = 0;
            self.writes.pop_front();
        }
        Ok(())
    }

    fn broken(&self, cycle: u64, channel: Channel, rule: String) -> Violation {
        Violation {
            port: self.port,
            channel,
            cycle,
            rule,
        }
    }
}

/// The byte lanes that beat `beat` of a burst may use, one bit each (A3.4.3).
pub fn lanes(a: &Addr, beat: u32, shape: Shape) -> u64 {
    let bus = shape.data_bytes as u64;
    let start = a.beat_addr(beat);
    let end = (start & !(a.beat_bytes() - 1)) + a.beat_bytes();
    let low = start & (bus - 1);
    let count = end - start;
    (u64::MAX >> (64 - count)) << low
}

/// Collects the beats of one write into contiguous bytes.
///
/// The first byte of the buffer is at the bus-aligned address of the first beat. `low..high` is what the strobes reached;
/// `holes` says that bytes between were not enabled, and then only [`WriteBuffer::enabled`] tells which are.
#[derive(Debug)]
pub struct WriteBuffer {
    base: u64,
    low: usize,
    high: usize,
    holes: bool,
    used: usize,
    bytes: Vec<u8>,
    strobes: Vec<u64>,
}

impl WriteBuffer {
    /// Room for `capacity` bytes from a bus-aligned start.
    pub fn new(capacity: usize) -> Self {
        WriteBuffer {
            base: 0,
            low: 0,
            high: 0,
            holes: false,
            used: 0,
            bytes: vec![0; capacity.next_multiple_of(64)],
            strobes: vec![0; capacity.div_ceil(16)],
        }
    }

    /// Empties it; the next beat is at `addr`.
    pub fn start(&mut self, addr: u64, shape: Shape) {
        self.base = addr & !(shape.data_bytes as u64 - 1);
        (self.low, self.high, self.holes, self.used) = (0, 0, false, 0);
    }

    /// Appends a beat. For full-size bursts; a narrow beat appends only when it ends a bus word.
    pub fn push(&mut self, addr: u64, strobe: u64, data: &[u64; MAX_WORDS], shape: Shape) {
        let width = shape.data_bytes;
        let at = (addr.wrapping_sub(self.base) as usize) & !(width - 1);
        let narrow_again = at < self.used;
        if strobe == shape.full_strobe() && !narrow_again {
            for (out, word) in self.bytes[at..at + width].chunks_exact_mut(8).zip(data) {
                out.copy_from_slice(&word.to_le_bytes());
            }
            self.reach(at, at + width);
        } else if strobe != 0 {
            for lane in (0..width).filter(|lane| strobe >> lane & 1 != 0) {
                self.bytes[at + lane] = (data[lane / 8] >> (8 * (lane % 8))) as u8;
            }
            let low = strobe.trailing_zeros() as usize;
            let high = 64 - strobe.leading_zeros() as usize;
            self.holes |= high - low != strobe.count_ones() as usize;
            self.reach(at + low, at + high);
        }
        let before = if narrow_again {
            self.strobes[at / width]
        } else {
            0
        };
        self.strobes[at / width] = before | strobe;
        self.used = at + width;
    }

    fn reach(&mut self, low: usize, high: usize) {
        if self.low == self.high {
            (self.low, self.high) = (low, high);
        } else {
            self.holes |= low != self.high;
            self.high = high;
        }
    }

    /// Address of the first enabled byte.
    pub fn addr(&self) -> u64 {
        self.base + self.low as u64
    }

    /// From the first enabled byte to the last.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.low..self.high]
    }

    /// Bus bytes taken, enabled or not.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Calls `each(addr, bytes)` for every contiguous run of enabled bytes.
    pub fn runs(&self, shape: Shape, mut each: impl FnMut(u64, &[u8])) {
        if self.low == self.high {
            return;
        }
        if !self.holes {
            return each(self.addr(), self.data());
        }
        let mut at = self.low;
        while at < self.high {
            let end = (at..self.high)
                .find(|&i| !self.enabled(i, shape))
                .unwrap_or(self.high);
            if end > at {
                each(self.base + at as u64, &self.bytes[at..end]);
            }
            at = end.max(at + 1);
        }
    }

    /// Was byte `index` (from the bus-aligned start) enabled?
    pub fn enabled(&self, index: usize, shape: Shape) -> bool {
        index < self.used
            && self.strobes[index / shape.data_bytes] >> (index % shape.data_bytes) & 1 != 0
    }
}

/// Copies one bus word at `bytes` into `data`.
#[inline]
pub fn load_beat(bytes: &[u8], data: &mut [u64; MAX_WORDS]) {
    for (word, chunk) in data.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().unwrap_or([0; 8]));
    }
}

#[cfg(test)]
mod tests;
