//! What can be wrong in a design, said with the generator's own file and line.
use std::cell::Cell;
use std::fmt;
use std::panic::Location;

/// The class of a construction error, for tests and tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Two operands, or a value and what it drives, differ in width; a slice is out of range.
    Width,
    /// A literal does not fit its width, or is negative.
    Literal,
    /// `set` on an expression, an input or another thing that cannot be driven.
    NotDrivable,
    /// A signal used in a module that it does not belong to.
    Foreign,
    /// A wire, output or instance input that nothing drives.
    Undriven,
    /// Two unconditional drivers of one signal in one block.
    MultiplyDriven,
    /// A combinational signal that some path leaves without a value.
    Latch,
    /// A combinational signal that depends on itself.
    CombLoop,
    /// An input, register, wire or instance output whose bits nothing reads.
    Unread,
    /// A combinational path from a stream's ready input to a stream's valid output.
    ReadyToValid,
    /// A name that Verilog reserves, or that is used twice.
    Name,
    /// Ports that lack a direction, or differ from the instantiated module's.
    Ports,
    /// A memory used against its declaration.
    Memory,
    /// Formal-only code that hardware depends on.
    Ghost,
    /// Statements in an impossible order, such as a second `default`.
    Structure,
}

/// A construction error: class, module, place in the generator, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The class.
    pub kind: ErrorKind,
    /// The module under construction; empty outside of any.
    pub module: String,
    /// `file:line` in the generator.
    pub at: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.module.is_empty() {
            write!(f, "{}: {}", self.at, self.message)
        } else {
            write!(f, "{}: module {}: {}", self.at, self.module, self.message)
        }
    }
}

impl std::error::Error for Error {}

pub(crate) type Loc = &'static Location<'static>;

pub(crate) fn place(loc: Loc) -> String {
    format!("{}:{}", loc.file(), loc.line())
}

thread_local! {
    /// How many `try_module` calls are open: then errors unwind quietly to the innermost.
    static TRYING: Cell<u32> = const { Cell::new(0) };
}

/// Raises a construction error: a panic that names the place, or a value for `try_module`.
#[track_caller]
pub(crate) fn raise(error: Error) -> ! {
    if TRYING.get() > 0 {
        std::panic::resume_unwind(Box::new(error));
    }
    panic!("{error}");
}

/// Runs `f` and gives back the construction error it raises.
pub(crate) fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Error> {
    TRYING.set(TRYING.get() + 1);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    TRYING.set(TRYING.get() - 1);
    result.map_err(|payload| match payload.downcast::<Error>() {
        Ok(error) => *error,
        Err(other) => std::panic::resume_unwind(other),
    })
}
