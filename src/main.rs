//! `weir`: simulates the Weir card, writes its Verilog, prints its registers. A file a subcommand.
//!
//! Exit codes: 0 all is well; 1 the run found something wrong (data, a hang, a broken rule); 2 it could not be started
//! (command line, job file, configuration, tools).
#![forbid(unsafe_code)]

mod bind;
mod export;
mod lun;
mod options;
mod regs;
mod rtl;
mod serve;
mod sim;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// An NVMe card whose gateware meters every LUN, simulated.
#[derive(Parser)]
#[command(name = "weir", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a fio job file on the simulated card.
    Sim(Box<sim::Args>),
    /// Serves the simulated card as a PCI device over vfio-user: to QEMU, or to a driver in another process.
    Serve(Box<serve::Args>),
    /// Writes the card's Verilog, a file a module.
    Rtl(rtl::Args),
    /// Exports LUNs to programs that know nothing of NVMe.
    Export(export::Args),
    /// Prints the card's registers, features and logs.
    Regs(regs::Args),
    /// LUNs of a controller: their depths, weights and live statistics.
    Lun(Box<lun::Args>),
    /// Binds a PCI function to vfio-pci, for drivers in user space.
    Bind(bind::Args),
    /// Gives a PCI function back to the kernel's driver.
    Unbind(bind::Args),
}

/// Why a command ended without success.
enum Failure {
    /// What was run is not as it should be: exit code 1.
    Wrong(String),
    /// It could not be run: exit code 2.
    Usage(String),
}

/// Writes to standard output. A reader that went away has seen what it wanted to see.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::Usage(
            format!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Sim(args) => sim::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Rtl(args) => rtl::run(&args),
        Command::Regs(args) => regs::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Lun(args) => lun::run(&args),
        Command::Bind(args) => bind::bind(&args),
        Command::Unbind(args) => bind::unbind(&args),
    };
    let (message, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Wrong(message)) => (message, 1),
        Err(Failure::Usage(message)) => (message, 2),
    };
    // Nobody need read it.
    let _ = writeln!(std::io::stderr(), "weir: {message}");
    ExitCode::from(code)
}
