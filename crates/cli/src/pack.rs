//! `hotset pack inspect`, `verify` and `gc`.

mod age;
mod gc;
mod inspect;
mod verify;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use clap::{Args, Subcommand};
use hotset_core::{Error, Result};
use hotset_store::package::PackagePlace;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::table;

/// Look at, check or tidy the packages that jobs have written.
///
/// A package holds many samples and is read in one request. Jobs write them to the place that `packages=` names, a
/// directory or a prefix of an object store, each below two names of 16 hex digits: one stands for the dataset, one for
/// the job that owns them. All that is in packages is in the dataset too: whatever is removed is packed anew.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hotset pack inspect /scratch/packages                  # which jobs have packages there, and how many
  hotset pack inspect /scratch/packages/3f0c…/a01b…/00000003.hotset
  hotset pack verify s3://bucket/packages --storage-option aws_region=eu-central-1
  hotset pack gc /scratch/packages --older-than 7d --dry-run")]
pub(crate) struct Pack {
    /// A setting of the store, as in `storage_options=`; others come from the environment (AWS_*, ...)
    #[arg(long = "storage-option", global = true, value_name = "KEY=VALUE", value_parser = pair)]
    storage_options: Vec<(String, String)>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Inspect(inspect::Inspect),
    Verify(verify::Verify),
    Gc(gc::Gc),
}

/// The options that all commands take.
struct Common {
    storage_options: BTreeMap<String, String>,
    json: bool,
}

impl Pack {
    pub(crate) fn run(self) -> Result<()> {
        let common = Common { storage_options: self.storage_options.into_iter().collect(), json: self.json };
        let text = match self.command {
            Command::Inspect(command) => command.run(&common)?,
            Command::Verify(command) => {
                let (text, outcome) = command.run(&common)?;
                table::print(&format!("{text}\n"));
                return outcome;
            }
            Command::Gc(command) => command.run(&common)?,
        };
        table::print(&format!("{text}\n"));
        Ok(())
    }
}

impl Common {
    fn place(&self, place: &str) -> Result<PackagePlace> {
        PackagePlace::open(place, &self.storage_options)
    }
}

pub(crate) fn pair(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it like `aws_region=eu-central-1`")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::internal(format!("cannot write JSON: {error}")))
}

/// `1 package`, `2 packages`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A bar on standard error, shown on a terminal alone.
struct Bar(ProgressBar);

impl Bar {
    fn new(doing: &'static str, all: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(all as u64), target).with_message(doing);
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} {pos} of {len} packages, {eta} left")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
