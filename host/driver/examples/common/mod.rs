//! What the examples share: their command line, and errors that print as text.
// Each example uses its part of it.
#![allow(dead_code)]

use std::error::Error;
use std::fmt;
use std::process::exit;
use std::str::FromStr;

use weir_driver::backend::Device;

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

/// The words of the command line. What is wrong there ends the program with exit status 2; a run that fails, with 1.
pub struct Args {
    words: Vec<String>,
    usage: &'static str,
}

impl Args {
    /// `--help` prints `usage`, and ends the program.
    pub fn new(usage: &'static str) -> Args {
        let words: Vec<String> = std::env::args().skip(1).collect();
        if words.iter().any(|word| word == "--help" || word == "-h") {
            println!(
                "usage: {usage}\nDEVICE: 0000:01:00.0, bound to vfio-pci; or vfio-user:PATH, the socket of `weir serve`"
            );
            exit(0);
        }
        Args { words, usage }
    }

    /// Ends the program: bad usage.
    pub fn wrong(&self, text: impl fmt::Display) -> ! {
        eprintln!("{text}\nusage: {}", self.usage);
        exit(2)
    }

    /// Takes `name`; true when it was there.
    pub fn flag(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|word| word == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    /// Takes `name` and the value after it.
    pub fn value<T: FromStr>(&mut self, name: &str, default: T) -> T {
        let Some(at) = self.words.iter().position(|word| word == name) else {
            return default;
        };
        let end = self.words.len().min(at + 2);
        let value = self.words.drain(at..end).nth(1).unwrap_or_default();
        match value.parse() {
            Ok(value) => value,
            Err(_) => self.wrong(format!("{name} {value}: not a value that it can have")),
        }
    }

    /// Takes `name` and the values after it, with commas between; none when it is not there.
    pub fn values<T: FromStr>(&mut self, name: &str) -> Vec<T> {
        let all = self.value(name, String::new());
        let words = all.split(',').filter(|word| !word.is_empty());
        let values = words.map(|word| match word.parse() {
            Ok(value) => value,
            Err(_) => self.wrong(format!(
                "{name} {all}: {word} is not a value that it can have"
            )),
        });
        values.collect()
    }

    /// Opens the device that the one word that is left names.
    pub fn device(self) -> Device {
        let [name] = self.words.as_slice() else {
            match self.words.iter().find(|word| word.starts_with("--")) {
                Some(option) => self.wrong(format!("{option}: no such option")),
                None => self.wrong(format!("{} devices: one must be named", self.words.len())),
            }
        };
        Device::open(name).unwrap_or_else(|error| self.wrong(error))
    }
}
