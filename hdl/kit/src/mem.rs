//! Memories with declared ports.
use crate::build::{Kind, cur, fail};
use crate::error::{ErrorKind, Loc};
use crate::sig::{Operand, Sig, index_width, lit, one_bit, own, same};
use std::panic::Location;

/// What a memory is built of (`ram_style`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The tool decides.
    Auto,
    /// Block RAM: synchronous reads only.
    Block,
    /// LUT RAM.
    Distributed,
    /// Flip-flops.
    Registers,
}

pub(crate) struct WritePort {
    pub en: u32,
    /// Lane enables; none writes the whole word.
    pub strobe: Option<u32>,
    pub addr: u32,
    pub data: u32,
    pub comment: Option<String>,
}

pub(crate) struct ReadPort {
    pub en: u32,
    pub addr: u32,
    /// The register that holds the data.
    pub node: u32,
}

pub(crate) struct MemData {
    pub name: Option<String>,
    pub depth: u64,
    pub w: u32,
    pub style: Style,
    pub max_writes: usize,
    pub read_old: bool,
    pub init: Option<Vec<Vec<u64>>>,
    pub writes: Vec<WritePort>,
    pub reads: Vec<ReadPort>,
    pub asyncs: u32,
    pub ghost: bool,
    pub loc: Loc,
    pub comment: Option<String>,
}

/// A memory of the module under construction.
///
/// A synchronous read of an address that is written in the same cycle gives undefined data, random in tests and free in
/// proofs, unless [`Mem::read_old`] declares the old data. Asynchronous reads always see the old data.
#[derive(Clone, Copy, Debug)]
pub struct Mem {
    index: usize,
    m: u32,
    /// Words.
    pub depth: u64,
    /// Bits a word.
    pub width: u32,
}

impl Mem {
    /// `depth` words (2 or more) of `width` bits. One write port, style `Auto`.
    #[track_caller]
    pub fn new(depth: u64, width: u32) -> Mem {
        let loc = Location::caller();
        if depth < 2 || width == 0 {
            fail(
                ErrorKind::Memory,
                format!(
                    "a memory of {depth} words of {width} bits: the least is 2 words of 1 bit (use a register)"
                ),
            );
        }
        cur(|b| {
            let comment = b.pending.take();
            b.mems.push(MemData {
                name: None,
                depth,
                w: width,
                style: Style::Auto,
                max_writes: 1,
                read_old: false,
                init: None,
                writes: vec![],
                reads: vec![],
                asyncs: 0,
                ghost: b.formal > 0,
                loc,
                comment,
            });
            Mem {
                index: b.mems.len() - 1,
                m: b.id,
                depth,
                width,
            }
        })
    }

    /// Address width in bits.
    pub fn addr_width(&self) -> u32 {
        crate::clog2(self.depth)
    }

    #[track_caller]
    fn data<R>(self, f: impl FnOnce(&mut MemData) -> R) -> R {
        if cur(|b| b.id) != self.m {
            fail(
                ErrorKind::Foreign,
                format!(
                    "a memory of module {} is used here",
                    crate::build::module_name(self.m)
                ),
            );
        }
        cur(|b| f(&mut b.mems[self.index]))
    }

    pub(crate) fn name_mem(self, name: &str) {
        crate::build::try_cur(|b| {
            if b.id == self.m && b.mems[self.index].name.is_none() {
                let scoped = b.scoped(name);
                let name = b.names.unique(&scoped);
                b.mems[self.index].name = Some(name);
            }
        });
    }

    /// Chooses what it is built of.
    #[track_caller]
    pub fn style(self, style: Style) -> Mem {
        self.data(|d| d.style = style);
        self
    }

    /// Allows `n` write ports. Two writes of one address in one cycle: the later port wins (where the memory is built of
    /// registers; a block RAM gives undefined data).
    #[track_caller]
    pub fn write_ports(self, n: usize) -> Mem {
        self.data(|d| d.max_writes = n);
        self
    }

    /// Declares that a synchronous read during a write of the same address gives the old data.
    #[track_caller]
    pub fn read_old(self) -> Mem {
        self.data(|d| d.read_old = true);
        self
    }

    /// Contents at power-on: word by word, each as 64-bit words, least significant first; the rest is zero. A ROM has no write port.
    #[track_caller]
    pub fn init(self, words: &[Vec<u64>]) -> Mem {
        if words.len() as u64 > self.depth {
            fail(
                ErrorKind::Memory,
                format!("{} initial words for {}", words.len(), self.depth),
            );
        }
        for w in words {
            crate::lit_words(w, self.width);
        }
        self.data(|d| d.init = Some(words.to_vec()));
        self
    }

    #[track_caller]
    fn port(self, en: Sig, addr: Sig) {
        one_bit(en, "a memory's enable");
        own(addr);
        index_width(addr, self.depth, "memory address");
    }

    #[track_caller]
    fn add_write(self, port: WritePort) {
        let (n, max) = self.data(|d| {
            d.writes.push(port);
            (d.writes.len(), d.max_writes)
        });
        if n > max {
            fail(
                ErrorKind::Memory,
                format!("write port {n} of a memory declared with {max}: use write_ports({n})"),
            );
        }
    }

    /// Writes `data` to `addr` while `en`.
    #[track_caller]
    pub fn write(self, en: Sig, addr: Sig, data: impl Operand) {
        self.port(en, addr);
        let data = data.sig(self.width);
        same(lit(0, self.width), data, "memory data");
        let comment = cur(|b| b.pending.take());
        self.add_write(WritePort {
            en: en.id,
            strobe: None,
            addr: addr.id,
            data: data.id,
            comment,
        });
    }

    /// Writes the lanes of `data` whose bit of `strobe` is set. A lane is width / strobe bits.
    #[track_caller]
    pub fn write_bytes(self, en: Sig, strobe: Sig, addr: Sig, data: Sig) {
        self.port(en, addr);
        own(strobe);
        same(lit(0, self.width), data, "memory data");
        if !self.width.is_multiple_of(strobe.w) {
            fail(
                ErrorKind::Memory,
                format!(
                    "{} lane enables do not divide {} bits",
                    strobe.w, self.width
                ),
            );
        }
        let comment = cur(|b| b.pending.take());
        self.add_write(WritePort {
            en: en.id,
            strobe: Some(strobe.id),
            addr: addr.id,
            data: data.id,
            comment,
        });
    }

    /// Synchronous read: the data of `addr` at the next cycle, held while `en` is low.
    #[track_caller]
    pub fn read(self, en: Sig, addr: Sig) -> Sig {
        self.port(en, addr);
        let port = self.data(|d| d.reads.len());
        let loc = Location::caller();
        let q = cur(|b| b.decl(Kind::MemRead(self.index, port), self.width, loc));
        self.data(|d| {
            d.reads.push(ReadPort {
                en: en.id,
                addr: addr.id,
                node: q.id,
            })
        });
        q
    }

    /// Asynchronous read: the data of `addr` in the same cycle. Not for block RAM.
    #[track_caller]
    pub fn read_async(self, addr: Sig) -> Sig {
        own(addr);
        index_width(addr, self.depth, "memory address");
        if self.data(|d| d.style) == Style::Block {
            fail(
                ErrorKind::Memory,
                "a block RAM has no asynchronous read: use read, or style(Distributed)".into(),
            );
        }
        self.data(|d| d.asyncs += 1);
        crate::sig::expr(Kind::MemAsync(self.index, addr.id), self.width)
    }
}
