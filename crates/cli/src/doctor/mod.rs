//! `hotset doctor`, and what `hotset.doctor` in Python shares with it.
//!
//! It lists the dataset, measures its storage and its decoding, and hands the figures to `hotset_sim::doctor`, which judges them.
//! What it may cost is said before it starts. Decoding is Python's: the wheel brings a decoder along, and the bare binary says
//! that it has none.

mod decoding;
mod report;
mod survey;

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use hotset_core::bytes::{Amount, human};
use hotset_core::{Error, Result};
use hotset_engine::available_memory;
use hotset_sim::doctor::{self, Loader, Measured};
use hotset_sim::grid;
use hotset_store::Request;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::serve::CONCURRENCY;
use crate::simulate::Seconds;
use crate::{digest, pack, table};

pub use decoding::{Decoded, Decoder};
pub use report::diagnose;
pub use survey::{Limits, Survey, survey};

/// Find out whether storage is what your training waits for, and what would help.
///
/// Lists the dataset, reads some of it (one request at a time, then more and more, then whole samples) and decodes what it
/// read, and says what limits an epoch: storage, decoding, or with --step the training itself. Ways of reading are compared with
/// the simulator, those that train the same samples first. Nothing is written but the listing, which trainings use
/// too. To measure your own transforms and training step, use hotset.doctor(loader, step=...) in Python.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hotset doctor /data/imagenet/train
  hotset doctor s3://bucket/train --storage-option aws_region=eu-central-1 --workers 16 --step 120ms --batch 256
  hotset doctor 's3://bucket/train-{000..146}.tar' --seconds 60 --html doctor.html
  hotset doctor train.parquet --root /data/images --json | jq .bottleneck")]
pub(crate) struct Doctor {
    /// A directory, a prefix of an object store, a pattern of shards or a manifest, as your training names it
    #[arg(value_name = "DATASET")]
    place: String,
    /// images, files, shards or manifest [default: by the ending of the place]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<String>,
    /// A file name ending to take (`extensions=` in Python), or a part of a sample of shards (`parts=`); may be given
    /// several times
    #[arg(long = "extension", value_name = "ENDING")]
    extensions: Vec<String>,
    /// Where the keys of a manifest lie [default: beside it]
    #[arg(long, value_name = "PLACE", default_value = "")]
    root: String,
    /// A setting of the store, as in `storage_options=`; others come from the environment (AWS_*, ...)
    #[arg(long = "storage-option", value_name = "KEY=VALUE", value_parser = pack::pair)]
    storage_options: Vec<(String, String)>,

    /// How long to measure, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, help_heading = "What it may cost")]
    seconds: f64,
    /// How much to read from storage at most
    #[arg(long, value_name = "BYTES", default_value = "256MiB", help_heading = "What it may cost")]
    bytes: Amount,

    /// Samples in a batch
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Your training")]
    batch: u64,
    /// Workers of the loader [default: one a core]
    #[arg(long, value_name = "N", help_heading = "Your training")]
    workers: Option<u32>,
    /// How long a step on a batch takes when it waits for nothing, like `30ms` [default: not known]
    #[arg(long, value_name = "TIME", help_heading = "Your training")]
    step: Option<Seconds>,
    /// Epochs, for strategies that learn which samples to read
    #[arg(long, value_name = "N", default_value_t = 30, help_heading = "Your training")]
    epochs: u32,
    /// Memory that a cache may have [default: what is free now]
    #[arg(long, value_name = "BYTES", help_heading = "Your training")]
    memory: Option<Amount>,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Write a page with all of it, which needs nothing else to be read
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
}

/// What this host has to do with a verdict.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// Cores.
    pub cores: u32,
    /// Bytes of memory that are free.
    pub memory: u64,
    /// Bytes that are free where temporary files lie.
    pub disk: Option<u64>,
    /// Reads that a server makes at a time unless it is told otherwise.
    pub reads: usize,
}

/// What this host has.
pub fn host() -> Host {
    Host {
        cores: grid::cores() as u32,
        memory: available_memory(),
        disk: survey::free(&std::env::temp_dir()),
        reads: CONCURRENCY,
    }
}

/// The shortest and the longest measurement, in seconds.
const SECONDS: (f64, f64) = (2.0, 3_600.0);
/// The most epochs that are replayed.
const MOST_EPOCHS: u32 = 10_000;

impl Doctor {
    pub(crate) fn run(self, decoder: Option<&Decoder<'_>>) -> Result<()> {
        let limits = self.limits()?;
        let memory = self.memory()?;
        self.check()?;
        // What lies there stays until there is something to write.
        if let Some(path) = &self.html {
            let opened = OpenOptions::new().append(true).create(true).open(path);
            opened.map_err(|error| unwritable(path, &error))?;
        }
        complain(&format!(
            "measuring `{}` for up to {:.0} s, reading up to {} of it (--seconds, --bytes)",
            self.place,
            self.seconds,
            human(limits.bytes)
        ));
        let progress = Progress::new();
        let found = survey(&self.request()?, limits, decoder, &mut |what, gone| {
            progress.set(what, gone);
            Ok(())
        })?;
        let Host { cores, reads, disk, .. } = host();
        let measured = Measured {
            name: found.place.clone(),
            samples: found.samples,
            complete: found.complete,
            mean_bytes: Some(found.mean_bytes),
            storage: found.storage,
            preparing: found.decoding.as_ref().map(|decoded| decoded.seconds),
            decoding_only: true,
            computing: self.step.map(|step| step.0 / self.batch as f64),
            loaded: None,
            starting: 0.0,
            loader: Loader { batch: self.batch, workers: self.workers.unwrap_or(cores), cores },
            memory,
            disk,
            reads,
            epochs: self.epochs,
            opening: found.opening.clone(),
            hotset: false,
            notes: found.notes.clone(),
        };
        progress.say("comparing ways of reading");
        let diagnosis = doctor::diagnose(&measured)?;
        drop(progress);
        let text = if self.json {
            format!("{}\n", pack::to_json(&report::Report::new(&diagnosis, &found))?)
        } else {
            doctor::text(&diagnosis, table::width())
        };
        table::print(&text);
        let Some(path) = &self.html else { return Ok(()) };
        std::fs::write(path, doctor::page(&diagnosis)).map_err(|error| unwritable(path, &error))
    }

    /// What would make the verdict impossible is said before anything is measured.
    fn check(&self) -> Result<()> {
        if self.batch == 0 {
            return Err(Error::invalid("`batch` must be 1 or more"));
        }
        if !(1..=MOST_EPOCHS).contains(&self.epochs) {
            return Err(Error::invalid(format!("`epochs` must be 1 to {MOST_EPOCHS}")));
        }
        if self.workers.is_some_and(|workers| workers > doctor::MOST_WORKERS) {
            return Err(Error::invalid(format!("`workers` must be {} at most", doctor::MOST_WORKERS)));
        }
        Ok(())
    }

    fn limits(&self) -> Result<Limits> {
        let (shortest, longest) = SECONDS;
        if !(shortest..=longest).contains(&self.seconds) {
            return Err(Error::invalid(format!(
                "`seconds` is {}: give a number from {shortest} to {longest}",
                self.seconds
            )));
        }
        match self.bytes {
            Amount::Bytes(bytes) if bytes > 0 => {
                Ok(Limits { time: Duration::from_secs_f64(self.seconds), bytes })
            }
            _ => Err(Error::invalid("`bytes` must be bytes above 0, like `256MiB`")),
        }
    }

    fn memory(&self) -> Result<u64> {
        match self.memory {
            None => Ok(available_memory()),
            Some(Amount::Bytes(bytes)) => Ok(bytes),
            Some(Amount::Share(_)) => Err(Error::invalid("`memory` must be bytes, like `64GiB`")),
        }
    }

    fn request(&self) -> Result<Request> {
        let layout = match &self.layout {
            Some(layout) => layout.parse()?,
            None => digest::usual_layout(&self.place),
        };
        Ok(Request {
            place: self.place.clone(),
            layout,
            extensions: self.extensions.clone(),
            label: "none".into(),
            root: self.root.clone(),
            storage_options: self.storage_options.iter().cloned().collect(),
        })
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    Error::invalid(format!("cannot write `{}`: {error}; give `html` another path", path.display()))
}

/// Writes a line to standard error. A reader that is gone has no use for it.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A bar on standard error, shown on a terminal alone.
struct Progress(ProgressBar);

/// Parts of the bar.
const PARTS: u64 = 1_000;

impl Progress {
    fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(PARTS), target);
        let wide = table::width() >= 60;
        let template = if wide { "{bar:30} {percent:>3} %  {msg}" } else { "{percent:>3} % {wide_msg}" };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    fn set(&self, what: &str, gone: f64) {
        self.0.set_position((gone * PARTS as f64) as u64);
        self.say(what);
    }

    fn say(&self, what: &str) {
        if self.0.message() != what {
            self.0.set_message(what.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
