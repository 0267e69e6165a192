//! The runs of a figure: labelled pairs, some with packages, some on another storage.

use hotset_core::{Result, bytes::Amount};

use super::FigureInputs;
use crate::grid;
use crate::outcome::{Mean, Outcome};
use crate::replay::{self, Job};
use crate::timeline::Storage;

/// One run of a figure.
#[derive(Debug, Clone)]
pub(crate) struct Arm {
    pub(crate) label: String,
    pair: String,
    cache: String,
    packages: bool,
    storage: Option<Storage>,
}

impl Arm {
    pub(crate) fn new(label: &str, pair: &str, cache: &str) -> Self {
        let (label, pair, cache) = (label.to_owned(), pair.to_owned(), cache.to_owned());
        Self { label, pair, cache, packages: false, storage: None }
    }

    /// The same with packages.
    pub(crate) fn packed(mut self) -> Self {
        self.packages = true;
        self
    }

    /// The same on another storage.
    pub(crate) fn on(mut self, storage: Storage) -> Self {
        self.storage = Some(storage);
        self
    }
}

/// Runs that were made, in the order of their arms.
pub(crate) struct Arms {
    pub(crate) labels: Vec<String>,
    pub(crate) means: Vec<Mean>,
    /// The same of the epochs between the first and the next that serves every sample; of all where each does.
    pub(crate) until_full: Vec<Mean>,
    /// How many epochs after the first serve every sample.
    pub(crate) full: Vec<usize>,
}

impl Arms {
    pub(crate) fn run(inputs: &FigureInputs<'_>, arms: &[Arm]) -> Result<Self> {
        let one = |arm: &Arm| {
            let mut scenario = inputs.scenario.clone();
            scenario.packages = arm.packages.then_some(scenario.packages.unwrap_or_default());
            scenario.storage = arm.storage.unwrap_or(scenario.storage);
            let amount: Amount = arm.cache.parse()?;
            replay::run(&scenario, &Job::new(&arm.pair.parse()?, arm.cache.clone(), amount, 0)?)
        };
        let all = arms.len();
        let outcomes = grid::each(arms, inputs.threads, one, |done| (inputs.progress)(done, all))?;
        Ok(Self {
            labels: arms.iter().map(|arm| arm.label.clone()).collect(),
            means: outcomes.iter().map(|outcome| Mean::of(outcome, 0)).collect(),
            until_full: outcomes.iter().map(until_full).collect(),
            full: outcomes.iter().map(|outcome| later(outcome).filter(|full| *full).count()).collect(),
        })
    }

    /// How much longer run `other` takes than run `index`.
    pub(crate) fn speedup(&self, index: usize, other: usize) -> f64 {
        self.means[other].seconds / self.means[index].seconds
    }

    /// How much longer run `other` waits for data than run `index`.
    pub(crate) fn less_wait(&self, index: usize, other: usize) -> f64 {
        self.means[other].wait / self.means[index].wait
    }
}

/// Whether each epoch after the first serves every sample.
fn later(outcome: &Outcome) -> impl Iterator<Item = bool> {
    outcome.epochs.iter().skip(1).map(|epoch| epoch.counters.plan.distinct >= outcome.samples as u64)
}

fn until_full(outcome: &Outcome) -> Mean {
    match later(outcome).take_while(|full| !full).count() {
        0 => Mean::of(outcome, 0),
        drawn => Mean::of_epochs(outcome, &outcome.epochs[1..=drawn]),
    }
}
