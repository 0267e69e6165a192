//! `hotset digest`.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use hotset_core::bytes::human;
use hotset_core::{Error, Result};
use hotset_store::digest::{Digest as Kept, Outcome, digest};
use hotset_store::{Layout, Opened, Request, open};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::{pack, place, table};

/// Failures that are shown; the rest is counted.
const SHOWN: usize = 5;

/// Hash every sample of a dataset, so that it can be shared with other users by content.
///
/// Reads all samples once, many at a time, and keeps the BLAKE3 of each in a file of yours, beside listings. A server
/// that is started with --shared asks the shared cache by these hashes before it reads from storage. What is hashed stays
/// hashed: run it again after a change, or after it was broken off, and only what is new is read. A sample that
/// was written since has no hash until then, and is read from storage.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hotset digest /data/imagenet/train
  hotset digest 's3://bucket/train-{000..146}.tar' --storage-option aws_region=eu-central-1
  hotset digest train.parquet --layout manifest --root /data/images --json")]
pub(crate) struct Digest {
    /// A directory, a prefix of an object store, a pattern of shards or a manifest, as your training names it
    #[arg(value_name = "PLACE")]
    place: String,
    /// images, files, shards or manifest [default: by the ending of the place]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<String>,
    /// A file name ending to take, or for shards a part of a sample, as in `extensions=`; may be given several times
    #[arg(long = "extension", value_name = "ENDING")]
    extensions: Vec<String>,
    /// Where the keys of a manifest lie [default: beside it]
    #[arg(long, value_name = "PLACE", default_value = "")]
    root: String,
    /// A setting of the store, as in `storage_options=`; others come from the environment (AWS_*, ...)
    #[arg(long = "storage-option", value_name = "KEY=VALUE", value_parser = pack::pair)]
    storage_options: Vec<(String, String)>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done, for showing.
#[derive(Serialize)]
struct Done<'a> {
    place: &'a str,
    file: String,
    samples: u64,
    hashed: u64,
    bytes: u64,
    known: u64,
    unversioned: u64,
    failed: Vec<Failed<'a>>,
}

#[derive(Serialize)]
struct Failed<'a> {
    key: &'a str,
    why: &'a str,
}

impl Digest {
    pub(crate) fn run(self) -> Result<()> {
        let digests = place::digests().ok_or_else(|| {
            Error::invalid("there is no directory to keep a digest in: set HOTSET_CACHE_DIR to one")
        })?;
        let opened = self.open()?;
        let mut kept = Kept::open(&digests, &opened.place);
        let bar = bar(opened.catalog.len() as u64);
        let outcome = digest(&opened, &mut kept, &mut |count| {
            bar.inc(count);
            Ok(())
        });
        bar.finish_and_clear();
        let outcome = outcome?;
        let done = Done::new(&opened, &kept, &outcome);
        let text = if self.json { pack::to_json(&done)? } else { done.text() };
        table::print(&format!("{text}\n"));
        match outcome.failed.len() {
            0 => Ok(()),
            failed => Err(Error::changed(format!(
                "{failed} of {} samples of `{}` could not be read and have no hash; mend them and run it again",
                opened.catalog.len(),
                opened.place
            ))),
        }
    }

    fn open(&self) -> Result<Opened> {
        let layout = match &self.layout {
            Some(layout) => layout.parse()?,
            None => usual_layout(&self.place),
        };
        let request = Request {
            place: self.place.clone(),
            layout,
            extensions: self.extensions.clone(),
            label: "none".into(),
            root: self.root.clone(),
            storage_options: self.storage_options.iter().cloned().collect(),
        };
        open(&request, None, &mut |_| Ok(()))
    }
}

/// How files become samples, as far as the name of a place tells.
pub(crate) fn usual_layout(place: &str) -> Layout {
    let place = place.to_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| place.ends_with(ending));
    if ends(&[".tar"]) {
        Layout::Shards
    } else if ends(&[".csv", ".tsv", ".jsonl", ".parquet"]) {
        Layout::Manifest
    } else {
        Layout::Files
    }
}

fn bar(samples: u64) -> ProgressBar {
    let terminal = std::io::stderr().is_terminal();
    let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(samples), target);
    if let Ok(style) = ProgressStyle::with_template("hashing {bar:40} {pos} of {len} samples, {eta} left") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

impl<'a> Done<'a> {
    fn new(opened: &'a Opened, kept: &Kept, outcome: &'a Outcome) -> Self {
        let failed = outcome.failed.iter().map(|failed| Failed { key: &failed.key, why: &failed.why });
        Self {
            place: &opened.place,
            file: kept.file().display().to_string(),
            samples: opened.catalog.len() as u64,
            hashed: outcome.hashed,
            bytes: outcome.bytes,
            known: outcome.known,
            unversioned: outcome.unversioned,
            failed: failed.collect(),
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![format!(
            "{}: {} hashed ({}), {} known before; kept in {}",
            self.place,
            pack::counted(self.hashed, "sample"),
            human(self.bytes),
            self.known,
            self.file
        )];
        if self.unversioned > 0 {
            lines.push(format!(
                "{} cannot be hashed: their store tells no versions, so nothing would show that they changed",
                pack::counted(self.unversioned, "sample")
            ));
        }
        lines.extend(self.failed.iter().take(SHOWN).map(|failed| format!("{}: {}", failed.key, failed.why)));
        if self.failed.len() > SHOWN {
            lines.push(format!("and {} more", self.failed.len() - SHOWN));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_tells_its_layout_by_its_ending() {
        for (place, layout) in [
            ("/data/train", Layout::Files),
            ("s3://bucket/train-{000..146}.tar", Layout::Shards),
            ("train.PARQUET", Layout::Manifest),
            ("labels.csv", Layout::Manifest),
        ] {
            assert_eq!(usual_layout(place), layout, "{place}");
        }
    }

    #[test]
    fn what_was_done_is_told_with_what_was_not() {
        let failed = [("a", "gone"); 7].map(|(key, why)| Failed { key, why });
        let done = Done {
            place: "/data",
            file: "/cache/x.digest".into(),
            samples: 12,
            hashed: 1,
            bytes: 2048,
            known: 3,
            unversioned: 1,
            failed: failed.into(),
        };
        let text = done.text();
        let told =
            ["1 sample hashed (2 KiB), 3 known before", "1 sample cannot be hashed", "a: gone", "and 2 more"];
        assert!(told.iter().all(|part| text.contains(part)), "{text}");
    }
}
