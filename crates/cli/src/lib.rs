//! The `hotset` command line, called by the binary and by the Python wheel.
//!
//! `main` is the one place that reads the environment: `HOTSET_*` variables become flags' defaults here, and
//! everything below takes typed settings.

mod cluster;
mod digest;
pub mod doctor;
mod figures;
mod nodes;
mod pack;
mod place;
mod rates;
mod record;
mod registry;
mod runs;
mod serve;
mod servers;
mod settings;
mod simulate;
mod state;
mod stats;
mod table;
mod top;

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
Most trainings need none of these: hotset.ImageFolder starts a private server by itself.
`hotset doctor` on your data says whether storage is what your training waits for.
`hotset serve` lets several trainings of this host share one cache.
`hotset top` beside a training shows what it does, `hotset runs` afterwards what came of it.";

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Serve>),
    Stats(stats::Stats),
    Top(top::Top),
    Runs(runs::Runs),
    Nodes(nodes::Nodes),
    State(state::State),
    Pack(pack::Pack),
    Record(record::Record),
    Digest(digest::Digest),
    Doctor(Box<doctor::Doctor>),
    /// List the strategies: what is trained in an epoch
    Strategies(registry::Listing),
    /// List the policies: what stays in the cache
    Policies(registry::Listing),
    /// Compare strategies, policies and cache sizes on a training's losses, before using them
    Simulate(Box<simulate::Simulate>),
}

/// Runs the command line; the process's exit code. `decoder` is what `hotset doctor` decodes with, if there is one.
pub fn run(arguments: Vec<String>, decoder: Option<&doctor::Decoder<'_>>) -> u8 {
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
        Command::Top(command) => command.run(),
        Command::Runs(command) => command.run(),
        Command::Nodes(command) => command.run(),
        Command::State(command) => command.run(),
        Command::Pack(command) => command.run(),
        Command::Record(command) => command.run(),
        Command::Digest(command) => command.run(),
        Command::Doctor(command) => command.run(decoder),
        Command::Strategies(command) => command.strategies(),
        Command::Policies(command) => command.policies(),
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
