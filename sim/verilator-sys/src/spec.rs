//! What to build a model of, and how.

use crate::Error;

/// Direction of a port, seen from the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dir {
    /// Written by the test bench.
    Input,
    /// Read by the test bench.
    Output,
}

/// A port of the top module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its Verilog name.
    pub name: String,
    /// Its width in bits, at least 1.
    pub width: u32,
    /// Its direction.
    pub dir: Dir,
}

/// What `x` and uninitialised registers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XInit {
    /// Random, by the instance's seed: finds logic that relies on reset values it does not have.
    #[default]
    Unique,
    /// Whatever is quickest: for speed.
    Fast,
}

/// What to optimise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opt {
    /// The build (`-O1`): for the tests of blocks, run for thousands of cycles.
    #[default]
    Build,
    /// The run (`-O3`): for the card, run for millions.
    Run,
}

/// A model to build: the Verilog, and the options. Two equal specs share one cached build.
///
/// `Spec::new` gives a model for tests: assertions on, random initial values, quick to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Name of the top module.
    pub top: String,
    /// File names and texts. `.v` and `.sv` are compiled; others (`.vh`, `.hex`) only lie beside them.
    pub files: Vec<(String, String)>,
    /// The ports as the generator knows them, checked against the Verilog's. Empty: take the Verilog's.
    pub ports: Vec<Port>,
    /// The clock input's name; a module without it is combinational. Default `clk`.
    pub clock: String,
    /// The reset input's name, active high, used by [`crate::Sim::reset`]. Default `rst`.
    pub reset: String,
    /// Can write FST traces: 7 times slower while one is open. Default off.
    pub trace: bool,
    /// Checks assertions, and defines `WEIR_ASSERT`. Default on.
    pub asserts: bool,
    /// Memories to look into: see [`Spec::watch`].
    pub watched: Vec<String>,
    /// Macros to define, `NAME` or `NAME=VALUE`, as `WEIR_RANDOM_COLLISION`.
    pub defines: Vec<String>,
    /// Initial values.
    pub x: XInit,
    /// Optimisation.
    pub opt: Opt,
}

impl Spec {
    /// A model of module `top` for tests.
    pub fn new<N: Into<String>, T: Into<String>>(
        top: impl Into<String>,
        files: impl IntoIterator<Item = (N, T)>,
    ) -> Spec {
        Spec {
            top: top.into(),
            files: files
                .into_iter()
                .map(|(name, text)| (name.into(), text.into()))
                .collect(),
            ports: Vec::new(),
            clock: "clk".into(),
            reset: "rst".into(),
            trace: false,
            asserts: true,
            watched: Vec::new(),
            defines: Vec::new(),
            x: XInit::Unique,
            opt: Opt::Build,
        }
    }

    /// For speed: no assertions, quickest initial values, `-O3`.
    pub fn fast(mut self) -> Spec {
        (self.asserts, self.x, self.opt) = (false, XInit::Fast, Opt::Run);
        self
    }

    /// Says the ports that the module must have.
    pub fn ports(mut self, ports: impl IntoIterator<Item = Port>) -> Spec {
        self.ports = ports.into_iter().collect();
        self
    }

    /// Makes the model able to write FST traces, or not.
    pub fn trace(mut self, on: bool) -> Spec {
        self.trace = on;
        self
    }

    /// Checks assertions, or not.
    pub fn asserts(mut self, on: bool) -> Spec {
        self.asserts = on;
        self
    }

    /// Makes a memory readable that is there once, with words of at most 64 bits: [`crate::Model::memory`].
    pub fn watch(mut self, memory: impl Into<String>) -> Spec {
        self.watched.push(memory.into());
        self
    }

    /// Defines a macro: `NAME` or `NAME=VALUE`.
    pub fn define(mut self, define: impl Into<String>) -> Spec {
        self.defines.push(define.into());
        self
    }

    /// Chooses what to optimise.
    pub fn opt(mut self, opt: Opt) -> Spec {
        self.opt = opt;
        self
    }

    pub(crate) fn error(&self, problem: String) -> Error {
        Error::Spec {
            top: self.top.clone(),
            problem,
        }
    }

    /// Checks what Verilator would not, or would only in words about its command line.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let word = |s: &str| {
            !s.is_empty()
                && s.chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
        };
        if !word(&self.top) {
            return Err(self.error(format!("`{}` is no module name", self.top)));
        }
        for (at, (name, _)) in self.files.iter().enumerate() {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-$".contains(c);
            if !name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                || !name.chars().all(plain)
            {
                return Err(self.error(format!(
                    "file name `{name}`: must be letters, digits and ._-$ without a folder, as `{}.v`",
                    self.top
                )));
            }
            if self.files[..at].iter().any(|(other, _)| other == name) {
                return Err(self.error(format!("file `{name}` is given twice")));
            }
        }
        if self.sources().next().is_none() {
            return Err(self.error("no .v or .sv file among its files".into()));
        }
        for define in &self.defines {
            let name = define.split('=').next().unwrap_or_default();
            if !word(name) {
                return Err(self.error(format!("define `{define}`: must be NAME or NAME=VALUE")));
            }
        }
        Ok(())
    }

    /// Names of the files that are compiled.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &str> {
        self.files
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|n| n.ends_with(".v") || n.ends_with(".sv"))
    }
}
