//! A built model, its instances and their ports.

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;

use crate::raw::{Instance, Library};
use crate::{AssertError, Dir, Error, Port, Spec, Toolchain, builder};

/// A built and loaded model. Cheap to clone; threads may share it.
#[derive(Clone)]
pub struct Model(Arc<Inner>);

struct Inner {
    top: String,
    reset: String,
    asserts: bool,
    /// Names the layout: handles of another model are refused.
    id: u32,
    built: bool,
    ports: Vec<(Port, u32)>,
    memories: Vec<(String, Memory)>,
    library: Arc<Library>,
}

/// Where a port lies in every instance of its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    model: u32,
    offset: u32,
    width: u16,
    index: u16,
}

/// An input of 1 to 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct In(Place);
/// An output of 1 to 64 bits, or an input to read back (`Out::from(input)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Out(Place);
/// An input of any width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideIn(Place);
/// An output of any width, or an input to read back (`WideOut::from(input)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideOut(Place);

/// A watched memory: [`crate::Spec::watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    model: u32,
    offset: u32,
    width: u16,
    words: u32,
}

impl Memory {
    /// Width of a word in bits.
    pub fn width(self) -> u32 {
        self.width.into()
    }

    /// Number of words.
    pub fn words(self) -> u32 {
        self.words
    }
}

impl From<In> for Out {
    fn from(port: In) -> Out {
        Out(port.0)
    }
}

impl From<WideIn> for WideOut {
    fn from(port: WideIn) -> WideOut {
        WideOut(port.0)
    }
}

macro_rules! widths {
    ($($handle:ident)*) => {$(
        impl $handle {
            /// Width in bits.
            pub fn width(self) -> u32 {
                self.0.width.into()
            }

            /// Number of u64 words that hold it.
            pub fn words(self) -> usize {
                usize::from(self.0.width).div_ceil(64)
            }
        }
    )*};
}
widths!(In Out WideIn WideOut);

/// A value for a port of at most 64 bits: unsigned integers, `bool`, and literals (`i32`, not negative).
pub trait Value {
    /// The value, or None for a negative number.
    fn bits(self) -> Option<u64>;
}

macro_rules! values {
    ($($t:ty)*) => {$(
        impl Value for $t {
            #[inline]
            fn bits(self) -> Option<u64> {
                u64::try_from(self).ok()
            }
        }
    )*};
}
values!(bool u8 u16 u32 u64 usize i32);

impl Model {
    /// Builds the model with the [`Toolchain::shared`] tools, or finds it in the cache, and loads it.
    ///
    /// # Errors
    /// No tools, Verilog or a spec that is wrong, ports that differ from the spec's, files that cannot be written.
    pub fn build(spec: &Spec) -> Result<Model, Error> {
        Model::build_with(Toolchain::shared()?, spec)
    }

    /// As [`Model::build`] with given tools.
    ///
    /// # Errors
    /// As [`Model::build`].
    pub fn build_with(tools: &Toolchain, spec: &Spec) -> Result<Model, Error> {
        let done = builder::build(tools, spec)?;
        let path = done.entry.dir.join(builder::OBJECT);
        let built = done.entry.built;
        let library = Library::load(&path, done.entry)?;
        let places = library.places();
        let odd = |problem: String| Error::Load {
            path: path.clone(),
            problem,
        };
        if places.len() != done.ports.len() + done.memories.len() {
            return Err(odd(format!(
                "{} ports and memories, but {} in its lists",
                places.len(),
                done.ports.len() + done.memories.len()
            )));
        }
        let (places, memory_places) = places.split_at(done.ports.len());
        let mut ports = Vec::new();
        for (port, (offset, bytes)) in done.ports.into_iter().zip(places.iter().copied()) {
            // Reads and writes rely on this.
            if bytes != storage(port.width) || port.width > u32::from(u16::MAX) {
                return Err(odd(format!(
                    "port `{}` of {} bits has {bytes} bytes",
                    port.name, port.width
                )));
            }
            ports.push((port, offset));
        }
        let id = u32::from_str_radix(done.key.get(..8).unwrap_or_default(), 16).unwrap_or_default();
        let mut memories = Vec::new();
        for (found, &(offset, bytes)) in done.memories.into_iter().zip(memory_places) {
            // Reads rely on this.
            if u64::from(bytes) != u64::from(storage(found.width)) * u64::from(found.words) {
                return Err(odd(format!(
                    "memory `{}` of {} words of {} bits has {bytes} bytes",
                    found.name, found.words, found.width
                )));
            }
            let memory = Memory {
                model: id,
                offset,
                width: found.width as u16,
                words: found.words,
            };
            memories.push((found.name, memory));
        }
        Ok(Model(Arc::new(Inner {
            top: spec.top.clone(),
            reset: spec.reset.clone(),
            asserts: spec.asserts,
            id,
            built,
            ports,
            memories,
            library: Arc::new(library),
        })))
    }

    /// A new instance, its registers random by `seed` (with [`crate::XInit::Unique`]), its inputs 0 and evaluated.
    ///
    /// # Errors
    /// [`Error::Start`] when the first evaluation does not settle.
    pub fn instance(&self, seed: u64) -> Result<Sim, Error> {
        let inner = &self.0;
        // Verilator takes a seed of 31 bits, and 0 to mean any.
        let seed = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as i32;
        let instance = Instance::new(inner.library.clone(), seed.max(1), inner.asserts).map_err(
            |problem| Error::Start {
                top: inner.top.clone(),
                problem,
            },
        )?;
        let reset = self.input(&inner.reset).ok();
        Ok(Sim {
            model: self.clone(),
            instance,
            reset,
        })
    }

    /// Whether [`Model::build`] had to build it; false: it was in the cache.
    pub fn was_built(&self) -> bool {
        self.0.built
    }

    /// Name of the top module.
    pub fn top(&self) -> &str {
        &self.0.top
    }

    /// The ports, in the Verilog's order within each kind that Verilator sorts by.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        self.0.ports.iter().map(|(port, _)| port)
    }

    /// The input `name`, of at most 64 bits.
    ///
    /// # Errors
    /// [`Error::NoPort`], with the nearest names or what the port is instead.
    pub fn input(&self, name: &str) -> Result<In, Error> {
        self.find(name, Dir::Input, 64, "input of at most 64 bits")
            .map(In)
    }

    /// The output `name`, of at most 64 bits.
    ///
    /// # Errors
    /// As [`Model::input`].
    pub fn output(&self, name: &str) -> Result<Out, Error> {
        self.find(name, Dir::Output, 64, "output of at most 64 bits")
            .map(Out)
    }

    /// The input `name`, of any width.
    ///
    /// # Errors
    /// As [`Model::input`].
    pub fn wide_input(&self, name: &str) -> Result<WideIn, Error> {
        self.find(name, Dir::Input, u32::MAX, "input").map(WideIn)
    }

    /// The output `name`, of any width.
    ///
    /// # Errors
    /// As [`Model::input`].
    pub fn wide_output(&self, name: &str) -> Result<WideOut, Error> {
        self.find(name, Dir::Output, u32::MAX, "output")
            .map(WideOut)
    }

    /// The watched memory `name`, if the spec asked for it.
    pub fn memory(&self, name: &str) -> Option<Memory> {
        let mut memories = self.0.memories.iter();
        memories.find(|(n, _)| n == name).map(|(_, memory)| *memory)
    }

    fn find(&self, name: &str, dir: Dir, most: u32, wanted: &'static str) -> Result<Place, Error> {
        let inner = &self.0;
        let hint = match inner.ports.iter().position(|(p, _)| p.name == name) {
            Some(index) => {
                let (port, offset) = &inner.ports[index];
                if port.dir == dir && port.width <= most {
                    let (width, index) = (port.width as u16, index as u16);
                    return Ok(Place {
                        model: inner.id,
                        offset: *offset,
                        width,
                        index,
                    });
                }
                let kind = if port.dir == Dir::Input {
                    "input"
                } else {
                    "output"
                };
                let wide = if port.width > 64 {
                    format!("; use wide_{kind}")
                } else {
                    String::new()
                };
                format!(": it is an {kind} of {} bits{wide}", port.width)
            }
            None => {
                let mut near: Vec<_> = inner
                    .ports
                    .iter()
                    .map(|(p, _)| (distance(name, &p.name), &p.name))
                    .collect();
                near.sort();
                let names: Vec<_> = near.iter().take(3).map(|(_, n)| format!("`{n}`")).collect();
                format!("; nearest: {}", names.join(", "))
            }
        };
        Err(Error::NoPort {
            top: inner.top.clone(),
            wanted,
            name: name.into(),
            hint,
        })
    }
}

/// Bytes in which Verilator keeps a port of `width` bits.
fn storage(width: u32) -> u32 {
    match width {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        33..=64 => 8,
        _ => width.div_ceil(32) * 4,
    }
}

/// Edit distance, for hints.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// An instance of a model. May move between threads, used by one at a time.
///
/// One clock cycle of a test bench: set inputs; [`Sim::eval`] and read outputs that depend on them; [`Sim::tick`].
pub struct Sim {
    model: Model,
    instance: Instance,
    reset: Option<In>,
}

impl Sim {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// See [`Model::input`].
    ///
    /// # Errors
    /// As there.
    pub fn input(&self, name: &str) -> Result<In, Error> {
        self.model.input(name)
    }

    /// See [`Model::output`].
    ///
    /// # Errors
    /// As there.
    pub fn output(&self, name: &str) -> Result<Out, Error> {
        self.model.output(name)
    }

    /// See [`Model::wide_input`].
    ///
    /// # Errors
    /// As there.
    pub fn wide_input(&self, name: &str) -> Result<WideIn, Error> {
        self.model.wide_input(name)
    }

    /// See [`Model::wide_output`].
    ///
    /// # Errors
    /// As there.
    pub fn wide_output(&self, name: &str) -> Result<WideOut, Error> {
        self.model.wide_output(name)
    }

    /// Sets an input. Takes effect at the next [`Sim::eval`] or [`Sim::tick`].
    ///
    /// # Panics
    /// When the value does not fit the port's width, or the port is another model's: a mistake in the test bench.
    #[inline]
    pub fn set(&mut self, port: In, value: impl Value) {
        self.own(port.0);
        match value.bits() {
            Some(bits) if port.0.width == 64 || bits >> port.0.width == 0 => {
                self.instance.write(port.0.offset, port.0.width, bits);
            }
            bits => self.misfit(port.0, bits),
        }
    }

    /// An output's value.
    ///
    /// # Panics
    /// When the port is another model's.
    #[inline]
    pub fn get(&self, port: Out) -> u64 {
        self.own(port.0);
        self.instance.read(port.0.offset, port.0.width)
    }

    /// Whether an output of any width up to 64 is not 0: for valid, ready and their like.
    ///
    /// # Panics
    /// When the port is another model's.
    #[inline]
    pub fn is(&self, port: Out) -> bool {
        self.get(port) != 0
    }

    /// Sets an input of any width from words of 64 bits, least significant first, exactly [`WideIn::words`] of them.
    ///
    /// # Panics
    /// When the words do not fit, or the port is another model's.
    pub fn set_wide(&mut self, port: WideIn, value: &[u64]) {
        self.own(port.0);
        let top = u32::from(port.0.width) % 64;
        let last = value.last().copied().unwrap_or_default();
        if value.len() != port.words() || (top != 0 && last >> top != 0) {
            self.misfit(port.0, Some(last));
        }
        if port.0.width <= 64 {
            return self.instance.write(port.0.offset, port.0.width, value[0]);
        }
        let words = usize::from(port.0.width).div_ceil(32);
        for (at, word) in self
            .instance
            .words_mut(port.0.offset, words)
            .iter_mut()
            .enumerate()
        {
            *word = (value[at / 2] >> (32 * (at % 2))) as u32;
        }
    }

    /// Reads an output of any width into words of 64 bits, least significant first, exactly [`WideOut::words`] of
    /// them.
    ///
    /// # Panics
    /// When `value` has another length, or the port is another model's.
    pub fn get_wide(&self, port: WideOut, value: &mut [u64]) {
        self.own(port.0);
        if value.len() != port.words() {
            self.misfit(port.0, None);
        }
        if port.0.width <= 64 {
            value[0] = self.instance.read(port.0.offset, port.0.width);
            return;
        }
        let words = self
            .instance
            .words(port.0.offset, usize::from(port.0.width).div_ceil(32));
        for (to, from) in value.iter_mut().zip(words.chunks(2)) {
            *to = u64::from(from[0]) | u64::from(from.get(1).copied().unwrap_or_default()) << 32;
        }
    }

    /// A word of a watched memory as it is now; None past its end.
    ///
    /// # Panics
    /// When the memory is another model's.
    pub fn word(&self, memory: Memory, index: u32) -> Option<u64> {
        assert!(
            memory.model == self.model.0.id,
            "a memory of another model read on `{}`",
            self.model.0.top
        );
        let offset = memory.offset + index.min(memory.words) * storage(memory.width.into());
        (index < memory.words).then(|| self.instance.read(offset, memory.width))
    }

    #[inline]
    fn own(&self, place: Place) {
        assert!(
            place.model == self.model.0.id,
            "a port handle of another model used on `{}`",
            self.model.0.top
        );
    }

    #[cold]
    fn misfit(&self, place: Place, bits: Option<u64>) -> ! {
        let port = &self.model.0.ports[usize::from(place.index)].0;
        let value = bits.map_or("a value of the wrong sign or number of words".into(), |b| {
            format!("{b:#x}")
        });
        panic!(
            "port `{}` of `{}` has {} bits: {value} does not fit",
            port.name, self.model.0.top, port.width
        )
    }

    /// Settles combinational logic with the clock low.
    #[inline]
    pub fn eval(&mut self) {
        self.instance.eval();
    }

    /// One clock cycle: the rising edge with the inputs as they are, then settles. Afterwards outputs show the new
    /// state with the old inputs.
    #[inline]
    pub fn tick(&mut self) {
        self.instance.tick(1);
    }

    /// `cycles` clock cycles with inputs held.
    pub fn ticks(&mut self, cycles: u64) {
        self.instance.tick(cycles);
    }

    /// Lets `cycles` pass without clocking: for a design that says it is idle.
    pub fn skip(&mut self, cycles: u64) {
        self.instance.skip(cycles);
    }

    /// Holds the reset input high for `cycles` cycles, then low.
    ///
    /// # Errors
    /// [`Error::NoPort`] when the module has no input of [`Spec::reset`]'s name.
    pub fn reset(&mut self, cycles: u64) -> Result<(), Error> {
        let reset = match self.reset {
            Some(reset) => reset,
            None => self.model.input(&self.model.0.reset)?,
        };
        self.set(reset, true);
        self.ticks(cycles);
        self.set(reset, false);
        self.eval();
        Ok(())
    }

    /// Rising edges since creation, skipped cycles included.
    #[inline]
    pub fn cycles(&self) -> u64 {
        self.instance.cycles()
    }

    /// Starts a trace (FST, 4 ns a cycle, rising edges at multiples of 4 ns), ending one that runs.
    ///
    /// # Errors
    /// [`Error::Trace`] when the model was built without [`Spec::trace`], or the file cannot be written.
    pub fn trace(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let error = |problem| Error::Trace {
            path: path.into(),
            problem,
        };
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| error("a NUL in the name"))?;
        // Verilator says only that it failed; this says why.
        std::fs::File::create(path).map_err(Error::io("create", path))?;
        match self.instance.trace_open(&name) {
            0 => Ok(()),
            1 => Err(error(
                "the model was built without tracing: set Spec::trace",
            )),
            _ => Err(error("Verilator cannot open it")),
        }
    }

    /// Ends the trace, if one runs; dropping the instance does so too.
    pub fn trace_end(&mut self) {
        self.instance.trace_close();
    }

    /// Says whether an assertion, `$error`, `$fatal` or `$stop` has failed since creation or [`Sim::clear`].
    ///
    /// # Errors
    /// The first failure. A fatal one (a loop that does not settle) also ends evaluation for good.
    #[inline]
    pub fn check(&self) -> Result<(), AssertError> {
        match self.instance.failed() {
            false => Ok(()),
            true => self.instance.failure().map_or(Ok(()), Err),
        }
    }

    /// Whether the Verilog executed `$finish`.
    pub fn finished(&self) -> bool {
        self.instance.finished()
    }

    /// What the Verilog printed (`$display`, failures) since creation or [`Sim::clear`]; at most 1 MiB.
    pub fn printed(&self) -> String {
        self.instance.output()
    }

    /// Forgets failures and what was printed.
    pub fn clear(&mut self) {
        self.instance.clear();
    }
}
