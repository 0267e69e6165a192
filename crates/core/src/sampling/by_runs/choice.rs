//! How long the runs of a job are, settled before its first plan.
//!
//! The longest length from 4 KiB to 1 MiB of which at least 32 runs fit into the mixing buffer; longer ones mean fewer
//! requests. With `order=auto` plans must mix besides: what decides is labels, or runs where there are no labels. The
//! beginning of a plan is drawn for each length, from a full buffer. Where no length does, `auto` draws each sample by
//! itself and says why.

use std::sync::Arc;

use super::{ByRuns, Mixing, ORDER};
use crate::bytes::human;
use crate::packages::{BATCH, LARGE, Packages, runs};
use crate::policy::Sizes;
use crate::settings::Values;
use crate::{Error, Result};

/// The lengths that are tried, the longest first.
const LENGTHS: std::ops::RangeInclusive<u32> = 12..=20;
/// The runs that the buffer must hold.
const LEAST: u64 = 32;
/// How well plans must mix.
const ENOUGH: f64 = 0.95;
/// The slots that are drawn to find out.
const LOOK: usize = 1024 * BATCH;

/// What a job's plans by runs are made of.
#[derive(Debug)]
pub enum RunChoice {
    /// These runs.
    Runs(Arc<Packages>),
    /// Each sample is drawn by itself, for this reason.
    Exact(String),
}

impl RunChoice {
    /// Chooses for a job with these settings, if they ask for plans by runs. `asked` are the bytes of a run that its user
    /// wants, 0 where they did not say.
    pub fn of(
        values: &Values,
        sizes: &Arc<dyn Sizes>,
        (capacity, asked): (u64, u64),
        seed: u64,
    ) -> Result<Option<Self>> {
        if !super::is_asked(values.iter()) {
            return Ok(None);
        }
        let found = find(values, sizes, (capacity, asked), seed);
        match found {
            Ok(runs) => Ok(Some(Self::Runs(Arc::new(runs)))),
            Err(why) if values.text(ORDER.name) == "auto" => {
                Ok(Some(Self::Exact(format!("`order=auto` draws each sample by itself: {why}"))))
            }
            Err(why) => Err(Error::invalid(format!("`order=runs` is not possible: {why}"))),
        }
    }
}

/// The runs, or why there are none.
fn find(
    values: &Values,
    sizes: &Arc<dyn Sizes>,
    (capacity, asked): (u64, u64),
    seed: u64,
) -> std::result::Result<Packages, String> {
    if !sizes.has_neighbours() {
        return Err(
            "samples are objects of their own; write them as tar shards, or leave `order` out".to_owned()
        );
    }
    let by_runs = ByRuns::new(sizes, values, capacity, seed);
    let lengths = if asked > 0 { vec![asked] } else { LENGTHS.rev().map(|bits| 1u64 << bits).collect() };
    let (mut best, mut tried, mut too_large): (Option<Mixing>, Option<u64>, Option<u64>) = (None, None, None);
    for length in lengths {
        if length.saturating_mul(LEAST) > by_runs.mix_bytes() {
            too_large = Some(length);
            continue;
        }
        let packages = runs(&**sizes, length, |id| sizes.gap_after(id));
        tried = Some(length);
        if packages.largest().saturating_mul(LEAST) > by_runs.mix_bytes() {
            too_large = Some(packages.largest());
            continue;
        }
        if packages.largest() == 0 {
            continue;
        }
        if values.text(ORDER.name) == "runs" {
            return Ok(packages);
        }
        let drawn = by_runs.draw_from(&packages, 1, 1, Some(LOOK));
        let mixing = Mixing::of(&drawn.ids, &packages, &**sizes);
        if mixing.decisive() >= ENOUGH {
            return Ok(packages);
        }
        best = best.filter(|best| best.decisive() >= mixing.decisive()).or(Some(mixing));
    }
    let mix = human(by_runs.mix_bytes());
    Err(best.map_or_else(
        || match (too_large, tried) {
            (Some(bytes), _) => format!(
                "{LEAST} runs of {} are more than the {mix} in which runs are mixed: raise `cache` or `mix_share`{}",
                human(bytes),
                if asked > 0 { ", or lower `package_size`" } else { "" }
            ),
            (None, length) => format!(
                "nowhere do {} of samples below {} lie side by side in one object",
                human(length.unwrap_or_default()),
                human(LARGE)
            ),
        },
        |best| {
            let kinds = if best.labels.is_some() { "labels" } else { "runs" };
            format!(
                "a batch of {BATCH} by runs would hold {:.0} % of the different {kinds} of a shuffle at best, {:.0} % are \
                 enough: raise `cache`, or write the shards in random order; `order=runs` goes by runs all the same",
                best.decisive() * 100.0,
                ENOUGH * 100.0
            )
        },
    ))
}
