//! Selecting by importance: what `iis`, `cis`, `realtime` and `hybrid` share.
//!
//! Sample i is taken with probability percentile_i ^ beta, beta = 1/f - 1, so that a fraction f is taken on
//! average; one that was never reported is taken with certainty. The draw is *systematic*: over the ids in
//! random order the probabilities are summed up, and an id is taken where its part of the sum holds one of
//! the points u, u + 1, u + 2, ... The offset u is uniform over those that give round(sum) points, so the
//! number taken is known beforehand. Sums are whole numbers of 2^-32.

use std::sync::Arc;

use super::substitute::{Mode, substitute};
use super::uniform::{carried_front, shuffled};
use super::{Draw, Drawn, FULL_LAST, Setup};
use crate::bits::Bits;
use crate::importance::{Keys, Ranking};
use crate::settings::{Domain, Parameter};
use crate::{Id, Rng};

/// One, as sums are kept.
const ONE: u64 = 1 << 32;

pub(super) const FRACTION: Parameter = Parameter {
    name: "fraction",
    default: "0.7",
    domain: Domain::Number(0.01, 1.0),
    summary: "mean share of the samples that are selected",
};

pub(super) const WARMUP: Parameter = Parameter {
    name: "warmup",
    default: "1",
    domain: Domain::Whole(0, u32::MAX as u64),
    summary: "full epochs at the beginning",
};

pub(super) const SUBSTITUTE: Parameter = Parameter {
    name: "substitute",
    default: "l",
    domain: Domain::Word(&["l", "h", "off"]),
    summary: "what takes the slot of an L-sample that is not at hand: an L-sample, an H-sample, or nothing",
};

/// The settings of `iis`.
pub(super) const PARAMETERS: &[Parameter] = &[FRACTION, WARMUP, SUBSTITUTE, FULL_LAST];

/// A selection of samples by their losses, as iCache makes it.
pub(super) struct Selection {
    pub(super) setup: Setup,
}

impl Selection {
    pub(super) fn new(mut setup: Setup, parameters: &'static [Parameter]) -> Self {
        setup.values = std::mem::take(&mut setup.values).or_defaults(parameters);
        Self { setup }
    }

    /// Whether substitution may serve an id twice.
    pub(super) fn repeats(&self) -> bool {
        self.setup.values.text("substitute") == "h"
    }

    /// Whether substitution looks at what is resident.
    pub(super) fn looks_at_residents(&self, packages: bool) -> bool {
        match self.setup.values.text("substitute") {
            "l" => packages,
            mode => mode == "h",
        }
    }

    /// Whether `epoch` is one of all samples, at the beginning or at the end of a run.
    pub(super) fn is_full(&self, epoch: u64) -> bool {
        epoch < self.setup.values.whole("warmup") || self.setup.is_full_last(epoch)
    }

    /// Whether `epoch` may be one of nearly all samples: the second is planned while the last losses of the first are
    /// on their way, and a sample without a loss is selected with certainty.
    pub(super) fn may_be_full(&self, epoch: u64) -> bool {
        epoch < 2 || self.is_full(epoch)
    }

    /// How many of `samples` are selected where a loss of each is known.
    pub(super) fn selected(&self, samples: usize) -> usize {
        let fraction = self.setup.values.share("fraction");
        let parts = (0..samples).map(|place| part((place as f64 + 0.5) / samples as f64, fraction));
        ((parts.sum::<u64>() + ONE / 2) / ONE) as usize
    }

    /// What is known of every sample when a plan is drawn, not a number where nothing is.
    pub(super) fn values(&self, draw: &Draw<'_>) -> Vec<f32> {
        draw.importance
            .filter(|table| table.len() == self.setup.samples)
            .map_or_else(|| vec![f32::NAN; self.setup.samples], |table| table.snapshot())
    }

    pub(super) fn rank(&self, draw: &Draw<'_>, values: &[f32]) -> Ranking {
        Ranking::of(values, self.setup.seed, draw.number())
    }

    pub(super) fn keys(&self, values: Vec<f32>, ranking: &Ranking) -> Arc<Keys> {
        Arc::new(Keys::new(values, ranking, &*self.setup.sizes, self.setup.capacity))
    }

    /// Every id, carried ones first.
    pub(super) fn all_samples(&self, draw: &Draw<'_>) -> Vec<Id> {
        shuffled(self.setup.end(), self.setup.seed, draw.number(), draw.carried.unwrap_or_default())
    }

    /// A selection by `values`, carried ids first.
    pub(super) fn select(&self, draw: &Draw<'_>, ranking: &Ranking) -> Vec<Id> {
        let front = carried_front(self.setup.end(), draw.carried.unwrap_or_default());
        let mut rng = Rng::new(self.setup.seed, draw.number(), "selection");
        systematic(ranking, self.setup.values.share("fraction"), front, &mut rng)
    }

    /// The plan of `full` or selected ids, with substitution where there are packages.
    pub(super) fn plan(&self, draw: &Draw<'_>, values: Vec<f32>, full: bool) -> Drawn {
        let ranking = self.rank(draw, &values);
        let ids = if full { self.all_samples(draw) } else { self.select(draw, &ranking) };
        let keys = self.keys(values, &ranking);
        drop(ranking);
        let mode = match self.setup.values.text("substitute") {
            "l" => Mode::Low,
            "h" if !full => Mode::High,
            _ => Mode::Off,
        };
        let front = draw.carried.map_or(0, <[Id]>::len);
        substitute(ids, front, keys, draw, mode, (&*self.setup.sizes, self.setup.seed))
    }
}

/// The probability of a sample at `percentile`, in parts of [`ONE`].
fn part(percentile: f64, fraction: f64) -> u64 {
    ((percentile.powf(1.0 / fraction - 1.0) * ONE as f64).round() as u64).min(ONE)
}

/// Draws ids by the percentiles of `ranking`; `front` comes first, with certainty.
fn systematic(ranking: &Ranking, fraction: f64, front: Vec<Id>, rng: &mut Rng) -> Vec<Id> {
    let samples = ranking.order().len();
    let mut certain = Bits::new(samples);
    for &id in &front {
        certain.insert(id);
    }
    let mut places = vec![0u32; samples];
    for (place, &id) in ranking.order().iter().enumerate() {
        places[id as usize] = place as u32;
    }
    let part = |id: Id| {
        if certain.contains(id) {
            ONE
        } else {
            part(ranking.percentile(places[id as usize] as usize), fraction)
        }
    };
    let mut ids: Vec<Id> = (0..samples as Id).collect();
    rng.shuffle(&mut ids);
    let sum: u64 = ids.iter().map(|&id| part(id)).sum();
    let rest = sum % ONE;
    let offset = if rest >= ONE / 2 { rng.below(rest) } else { rest + rng.below(ONE - rest) };
    let (mut reached, mut next) = (0u64, offset);
    let taken = ids.into_iter().filter(|&id| {
        reached += part(id);
        let taken = next < reached;
        if taken {
            next += ONE;
        }
        taken && !certain.contains(id)
    });
    let mut drawn = front;
    drawn.extend(taken);
    drawn
}

#[cfg(test)]
#[path = "selection_tests.rs"]
mod tests;
