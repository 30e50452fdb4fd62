//! What the examples share: their command line, and errors that print as text.
// Each example uses its part of it.
#![allow(dead_code)]

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// Any error; `main` prints it with `Debug`, which therefore shows the text.
pub struct Failure(String);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// A failure that is a text.
pub fn fail<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(text.into()))
}

/// The words of the command line.
pub struct Args(Vec<String>);

impl Args {
    pub fn new() -> Args {
        Args(std::env::args().skip(1).collect())
    }

    /// Takes `name`; true when it was there.
    pub fn flag(&mut self, name: &str) -> bool {
        let at = self.0.iter().position(|word| word == name);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Takes `name` and the value after it.
    pub fn value<T: FromStr>(&mut self, name: &str, default: T) -> Result<T, Failure> {
        let Some(at) = self.0.iter().position(|word| word == name) else {
            return Ok(default);
        };
        let value = self.0.drain(at..self.0.len().min(at + 2)).nth(1);
        let read = value.as_ref().and_then(|value| value.parse().ok());
        read.map_or_else(
            || fail(format!("{name}: a value must follow, not {value:?}")),
            Ok,
        )
    }

    /// The word that is left, the device; `usage` when there is not exactly one.
    pub fn device(self, usage: &str) -> Result<String, Failure> {
        match <[String; 1]>::try_from(self.0) {
            Ok([device]) => Ok(device),
            Err(_) => fail(format!("usage: {usage}")),
        }
    }
}
