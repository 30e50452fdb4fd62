//! What can go wrong, in words that say where and what would be right.

use std::path::PathBuf;

/// One message of Verilator's about a source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Verilator's code, as `WIDTHTRUNC`; empty when it gave none.
    pub code: String,
    /// File name as given in [`crate::Spec::files`]; empty for a message about no file.
    pub file: String,
    /// Line from 1; 0 for a message about no line.
    pub line: u32,
    /// Column from 1; 0 for a message about no column.
    pub column: u32,
    /// The message's first line.
    pub message: String,
}

/// How bad a [`Diagnostic`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Verilator could not go on.
    Error,
    /// A lint rule was broken.
    Warning,
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        }
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        match self.code.as_str() {
            "" => write!(f, "{severity}: {}", self.message),
            code => write!(f, "{severity}: {code}: {}", self.message),
        }
    }
}

/// Why a model could not be built, checked or used.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No Verilator was found.
    #[error(
        "no Verilator: looked at WEIR_VERILATOR, .tools/verilator of the current folder and those above it, and PATH; \
         run scripts/setup, or set WEIR_VERILATOR to a verilator 5 program"
    )]
    NoVerilator,
    /// The Verilator found is unusable.
    #[error("{program}: {problem}")]
    BadVerilator {
        /// The program.
        program: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The C++ compiler does not run.
    #[error(
        "C++ compiler `{compiler}` does not run ({source}); install g++ or set WEIR_CXX to a C++17 compiler"
    )]
    NoCompiler {
        /// The compiler's name or path.
        compiler: String,
        /// Why it does not run.
        source: std::io::Error,
    },
    /// The [`crate::Spec`] itself is wrong.
    #[error("model of `{top}`: {problem}")]
    Spec {
        /// Top module.
        top: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Verilator refused the Verilog, or a lint found something.
    #[error("Verilator on `{top}`: {}", list(.diagnostics, .text))]
    Verilog {
        /// Top module.
        top: String,
        /// Each message; empty when the output held none that could be read.
        diagnostics: Vec<Diagnostic>,
        /// Verilator's whole output.
        text: String,
    },
    /// The C++ compiler or the linker failed.
    #[error("C++ of `{top}` does not compile: {command}\n{text}")]
    Compile {
        /// Top module, or `Verilator's runtime`.
        top: String,
        /// The command line.
        command: String,
        /// Its output.
        text: String,
    },
    /// The module's ports are not those that [`crate::Spec::ports`] says.
    #[error("ports of `{top}`: {problem}")]
    Ports {
        /// Top module.
        top: String,
        /// The differences.
        problem: String,
    },
    /// No port of that name, direction or width.
    #[error("`{top}` has no {wanted} `{name}`{hint}")]
    NoPort {
        /// Top module.
        top: String,
        /// What was asked for, as `input of at most 64 bits`.
        wanted: &'static str,
        /// Name that was asked for.
        name: String,
        /// The port as it is, or the nearest names.
        hint: String,
    },
    /// The shared object does not load.
    #[error("{path}: {problem}")]
    Load {
        /// The shared object.
        path: PathBuf,
        /// Why it does not load.
        problem: String,
    },
    /// The model died while being constructed.
    #[error("`{top}` failed in its first evaluation: {problem}")]
    Start {
        /// Top module.
        top: String,
        /// The failure.
        problem: AssertError,
    },
    /// A trace cannot be written.
    #[error("trace {path}: {problem}")]
    Trace {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        problem: &'static str,
    },
    /// A file operation failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl Error {
    /// Makes an [`Error::Io`] of an I/O error on `path`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io {
            action,
            path,
            source,
        }
    }
}

/// A failed assertion, `$error`, `$fatal` or `$stop` in the Verilog.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: cycle {cycle}: {message}{}", more(*.failures))]
pub struct AssertError {
    /// What Verilator printed: the instance's path and the assertion's own text.
    pub message: String,
    /// File name as given in [`crate::Spec::files`].
    pub file: String,
    /// Line from 1.
    pub line: u32,
    /// [`crate::Sim::cycles`] at the failure: the rising edges seen, that of the failure included.
    pub cycle: u64,
    /// Failures up to now; the other fields describe the first.
    pub failures: u64,
}

// A test that returns an error prints its Debug form: let that be the readable one.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Debug for AssertError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

fn more(failures: u64) -> String {
    match failures {
        0 | 1 => String::new(),
        n => format!(" (first of {n})"),
    }
}

/// Messages shown of a failed run; the rest are mostly consequences of the first.
const SHOWN: usize = 20;

fn list(diagnostics: &[Diagnostic], text: &str) -> String {
    if diagnostics.is_empty() {
        return text.to_string();
    }
    let mut all: String = diagnostics
        .iter()
        .take(SHOWN)
        .map(|d| format!("\n  {d}"))
        .collect();
    if diagnostics.len() > SHOWN {
        all += &format!("\n  and {} more", diagnostics.len() - SHOWN);
    }
    all
}

/// Reads Verilator's messages out of its output: `%Error: t.v:3:5: ...`, `%Warning-WIDTHTRUNC: t.v:3:5: ...`.
pub(crate) fn parse_diagnostics(text: &str) -> Vec<Diagnostic> {
    text.lines().filter_map(parse_diagnostic).collect()
}

fn parse_diagnostic(line: &str) -> Option<Diagnostic> {
    let (severity, rest) = if let Some(rest) = line.strip_prefix("%Error") {
        (Severity::Error, rest)
    } else {
        (Severity::Warning, line.strip_prefix("%Warning")?)
    };
    let (code, rest) = rest.split_once(": ")?;
    let code = code.strip_prefix('-').unwrap_or(code).to_string();
    if rest.starts_with("Exiting due to") || rest.starts_with("Cannot continue") {
        return None;
    }
    let mut parts = rest.splitn(4, ':');
    let place = || -> Option<(String, u32, u32, String)> {
        let file = parts.next()?.to_string();
        let line = parts.next()?.trim().parse().ok()?;
        let column = parts.next()?.trim().parse().ok()?;
        Some((file, line, column, parts.next()?.trim().to_string()))
    }();
    let (file, line, column, message) =
        place.unwrap_or_else(|| (String::new(), 0, 0, rest.trim().to_string()));
    Some(Diagnostic {
        severity,
        code,
        file,
        line,
        column,
        message,
    })
}
