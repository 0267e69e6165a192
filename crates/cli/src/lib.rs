//! The `hotset` command line, called by the binary and by the Python wheel.
//!
//! `main` is the one place that reads the environment: `HOTSET_*` variables become flags' defaults here, and
//! everything below takes typed settings.

mod place;
mod serve;
mod settings;
mod simulate;
mod stats;
mod table;

use clap::{Parser, Subcommand};
use hotset_core::Result;

/// Keeps the samples your model still learns from close to the GPU.
#[derive(Parser)]
#[command(name = "hotset", bin_name = "hotset", version, about, max_term_width = 100, after_help = AFTER)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Most trainings need neither command: hotset.ImageFolder starts a private server by itself.
Run `hotset serve` to let several trainings of this host share one cache, and `hotset stats --watch` beside a
training to see what it reads.";

#[derive(Subcommand)]
enum Command {
    /// Run one cache for all trainings of this user on this host
    Serve(serve::Serve),
    /// Show what servers and jobs of this host do
    Stats(stats::Stats),
    /// Compare strategies, policies and cache sizes on a training's losses, before using them
    Simulate(Box<simulate::Simulate>),
}

/// Runs the command line; the process's exit code.
pub fn run(arguments: Vec<String>) -> u8 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version come this way too, and go to standard output.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let done: Result<()> = match arguments.command {
        Command::Serve(command) => command.run(),
        Command::Stats(command) => command.run(),
        Command::Simulate(command) => command.run(),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("hotset: {error}");
            1
        }
    }
}
