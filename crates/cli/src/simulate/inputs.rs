//! Where a replay's losses and sizes come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use hotset_core::bytes::Amount;
use hotset_core::policy::Sizes;
use hotset_core::sampling::Equal;
use hotset_core::{Error, Result};
use hotset_sim::Trace;
use hotset_sim::replay::Scenario;
use hotset_sim::sizes::{self, Sharded};
use hotset_store::{Layout, Request};

use super::output::Listing;
use crate::place;

/// Where losses and sizes come from.
#[derive(Args)]
#[command(next_help_heading = "Losses and sizes")]
pub(super) struct Inputs {
    /// The trace: a `.npy` or `.npz` file with an array of [epochs, ids]; NaN: not trained in that epoch
    #[arg(long, value_name = "FILE", required_unless_present_any = ["figure", "synthetic", "log"])]
    trace: Option<PathBuf>,
    /// The array of a `.npz` file that holds the losses
    #[arg(long, value_name = "NAME", default_value = "loss")]
    array: String,
    /// The array with each sample's loss under the model at the end of the epoch, for strategies that
    /// re-evaluate; without it they see the last loss known before each plan [default: reeval, if it is there]
    #[arg(long, value_name = "NAME", conflicts_with = "synthetic")]
    reevaluated: Option<String>,
    /// The array of [1, ids] with the loss of each sample that no model gets rid of, which `hybrid` subtracts from
    /// what it re-evaluates [default: irreducible, if it is there]
    #[arg(long, value_name = "NAME", conflicts_with = "synthetic")]
    irreducible: Option<String>,
    /// Replay the first epochs alone [default: all]
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,
    /// The size of every sample
    #[arg(long, value_name = "BYTES", default_value = "1.5KB", value_parser = one_sample)]
    sample_size: Amount,
    /// Sizes by id, from a `.npy` file of [ids]
    #[arg(long, value_name = "FILE", conflicts_with = "sample_size")]
    sizes: Option<PathBuf>,
    /// Sizes by id, from an image folder as hotset.ImageFolder lists it
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["sample_size", "sizes"])]
    images: Option<String>,
    /// Samples lie one behind the other in shards of so many bytes, for plans by runs (`uniform[order=runs]`)
    #[arg(long, value_name = "BYTES")]
    shards: Option<Amount>,
    /// A made-up trace of so many samples instead, for measuring the simulator itself
    #[arg(long, value_name = "SAMPLES", conflicts_with = "trace", hide_short_help = true)]
    synthetic: Option<usize>,
}

/// The size of a sample, which unlike that of a cache may well be a few bytes: `3000` needs no unit.
fn one_sample(text: &str) -> Result<Amount> {
    let plain = text.trim().bytes().all(|byte| byte.is_ascii_digit());
    if plain { format!("{text}B").parse() } else { text.parse() }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into())
}

/// A second array of a trace's file: the one that is named, which must be there, or the usual one if it is.
fn other(path: &Path, setting: &str, named: Option<&str>) -> Result<Option<Trace>> {
    let usual = if setting == "reevaluated" { "reeval" } else { setting };
    let array = Trace::open_if_there(path, named.unwrap_or(usual))?;
    match (named, array) {
        (Some(name), None) => Err(Error::invalid(format!(
            "`{setting}` is `{name}`, but `{}` has no such array; leave it out, or save the arrays together with \
             `numpy.savez`",
            path.display()
        ))),
        (_, array) => Ok(array),
    }
}

impl Inputs {
    /// Reads them.
    pub(super) fn open(&self, listing: &Listing) -> Result<Scenario> {
        if self.epochs == Some(0) {
            return Err(Error::invalid("`epochs` is 0: replay one at least"));
        }
        let (name, trace, reevaluated) = self.losses()?;
        if let Some(epochs) = self.epochs.filter(|&epochs| epochs > trace.epochs()) {
            let there = trace.epochs();
            return Err(Error::invalid(format!(
                "`epochs` is {epochs}, but the trace has {there}: ask for fewer"
            )));
        }
        let sizes: Arc<dyn Sizes> = match (&self.sizes, &self.images) {
            (Some(path), _) => Arc::new(sizes::open(path)?),
            (None, Some(folder)) => {
                let request = Request {
                    place: folder.clone(),
                    layout: Layout::Images,
                    extensions: Vec::new(),
                    storage_options: BTreeMap::new(),
                    label: String::new(),
                    root: String::new(),
                };
                let opened = hotset_store::open(&request, place::listings().as_deref(), &mut |found| {
                    listing.tell(found);
                    Ok(())
                })?;
                opened.catalog
            }
            (None, None) => match self.sample_size {
                Amount::Bytes(0) => {
                    return Err(Error::invalid("`sample-size` is 0: give bytes above 0, like `110KB`"));
                }
                Amount::Bytes(bytes) => Arc::new(Equal { samples: trace.samples(), size: bytes }),
                Amount::Share(_) => {
                    return Err(Error::invalid("`sample-size` must be bytes, like `110KB`, not a share"));
                }
            },
        };
        let sizes = match self.shards {
            None => sizes,
            Some(Amount::Bytes(bytes)) if bytes > 0 => Arc::new(Sharded::new(sizes, bytes)) as Arc<dyn Sizes>,
            Some(_) => return Err(Error::invalid("`shards` must be bytes above 0, like `64MiB`")),
        };
        let epochs = self.epochs.unwrap_or(trace.epochs());
        let reevaluated = reevaluated.map(|trace| trace.shortened(epochs));
        let irreducible =
            self.trace.as_ref().map(|path| other(path, "irreducible", self.irreducible.as_deref()));
        Scenario::new(name, trace.shortened(epochs), reevaluated, sizes)?
            .with_irreducible(irreducible.transpose()?.flatten())
    }

    /// The same samples with the losses of another trace, of as many epochs as are asked for or as it has.
    pub(super) fn with_trace(&self, scenario: &Scenario, path: &Path) -> Result<Scenario> {
        let trace = Trace::open(path, &self.array)?;
        let epochs = self.epochs.unwrap_or(trace.epochs()).min(trace.epochs());
        let reevaluated = other(path, "reevaluated", self.reevaluated.as_deref())?;
        let reevaluated = reevaluated.map(|trace| trace.shortened(epochs));
        let sizes = Arc::clone(&scenario.sizes);
        let own = Scenario::new(file_name(path), trace.shortened(epochs), reevaluated, sizes)?;
        Ok(Scenario { trace: own.trace, reevaluated: own.reevaluated, name: own.name, ..scenario.clone() })
    }

    fn losses(&self) -> Result<(String, Trace, Option<Trace>)> {
        if let Some(samples) = self.synthetic {
            if samples == 0 {
                return Err(Error::invalid("`synthetic` is 0: give a number of samples above 0"));
            }
            let epochs = self.epochs.unwrap_or(2);
            return Ok((
                format!("synthetic, {samples} samples"),
                Trace::synthetic(samples, epochs, 0)?,
                None,
            ));
        }
        let path = self.trace.as_ref().ok_or_else(|| {
            Error::invalid(
                "this needs a loss trace: give `trace`, a `.npz` file with an array of [epochs, ids]",
            )
        })?;
        let trace = Trace::open(path, &self.array)?;
        let reevaluated = other(path, "reevaluated", self.reevaluated.as_deref())?;
        Ok((file_name(path), trace, reevaluated))
    }
}
