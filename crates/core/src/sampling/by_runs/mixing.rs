//! How well a plan mixes: what its batches hold beside what those of a shuffle would.
//!
//! Two figures. `mix_runs` is the mean number of different runs in a batch over that of a shuffle, `mix_labels` the same
//! of labels. Both are counted in batches that are spread over the plan, and in as many that are drawn at random.

use std::collections::BTreeSet;

use crate::packages::{BATCH, Packages};
use crate::policy::Sizes;
use crate::{Id, Rng};

/// Batches that are looked at.
const BATCHES: usize = 256;

/// Figures of one plan; 1 is as good as a shuffle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::sampling) struct Mixing {
    pub(in crate::sampling) runs: f64,
    /// `None` where some sample has no label.
    pub(in crate::sampling) labels: Option<f64>,
}

impl Mixing {
    /// Of a plan, or of the beginning of one, over samples that lie in `packages`.
    pub(super) fn of(ids: &[Id], packages: &Packages, sizes: &dyn Sizes) -> Self {
        // A sample in no run is one of its own.
        let run = |id: Id| Some(packages.of(id).map_or(-1 - i64::from(id), i64::from));
        Self {
            runs: beside_shuffle(ids, sizes.len(), run).unwrap_or(1.0),
            labels: beside_shuffle(ids, sizes.len(), |id| sizes.label(id)),
        }
    }

    /// What decides whether it is good enough.
    pub(super) fn decisive(&self) -> f64 {
        self.labels.unwrap_or(self.runs)
    }
}

/// The mean number of different kinds in a batch over that of batches drawn at random.
fn beside_shuffle(ids: &[Id], samples: usize, kind: impl Fn(Id) -> Option<i64>) -> Option<f64> {
    let batch = BATCH.min(ids.len());
    if batch == 0 {
        return None;
    }
    let different = |of: &mut dyn Iterator<Item = Id>| -> Option<usize> {
        of.map(&kind).collect::<Option<BTreeSet<i64>>>().map(|kinds| kinds.len())
    };
    let (whole, mut rng) = (ids.len() / batch, Rng::new(0, 0, "mixing of a plan"));
    let looked_at = whole.min(BATCHES);
    let (mut planned, mut shuffled) = (0, 0);
    for place in 0..looked_at {
        let from = place * whole / looked_at * batch;
        planned += different(&mut ids[from..from + batch].iter().copied())?;
        let mut drawn = BTreeSet::new();
        while drawn.len() < batch {
            drawn.insert(rng.below(samples as u64) as Id);
        }
        shuffled += different(&mut drawn.into_iter())?;
    }
    Some(planned as f64 / shuffled as f64)
}
