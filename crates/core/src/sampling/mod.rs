//! Strategies: what is trained this epoch.
//!
//! A strategy draws the ids of an epoch from its seed and from reported importance; the same inputs always
//! give the same plan. A [`Plan`] is that sequence cut over ranks.
//!
//! Everything that the papers do "at a miss" (iCache's substitution, Quiver's substitutable hits) is done here,
//! when the plan is made, from what will be resident when. A strategy that looks at residents is asked once
//! the plan before was decided to its last slot.
//!
//! Adding one is a file and a line in [`REGISTRY`]. The name there is its name in Python, in the command
//! line, in metrics and in reports. What others must know of one, Python included, it says by the methods of
//! [`Strategy`] ([`Facts`]): nothing else goes by names. `conformance` runs over every registered one.

mod batchloss;
mod by_runs;
mod carousel;
mod chunks;
mod cis;
mod draw_stream;
mod facts;
mod given;
mod hybrid;
mod iis;
mod infobatch;
mod pads;
mod plan;
mod quiver;
mod realtime;
mod residents;
mod selection;
mod sequential;
mod substitute;
mod uniform;

// The example of CONTRIBUTING.md.
#[cfg(test)]
mod alternate;
#[cfg(test)]
mod conformance;

pub use by_runs::{RunChoice, is_asked as asks_for_runs};
pub use chunks::{Chunks, two_chunks};
pub use draw_stream::{DrawStream, under_way};
pub use facts::Facts;
pub use given::order_digest;
pub use plan::{Drawn, Event, Plan};
pub use residents::Residents;

use std::sync::Arc;

use crate::importance::{Score, Table};
use crate::packages::Packages;
use crate::policy::{self, Sizes};
use crate::settings::{Domain, Parameter, Values};
use crate::{Error, Id, Remark, Result};

/// Every strategy, by name.
pub static REGISTRY: &[Entry] = &[
    uniform::ENTRY,
    cis::ENTRY,
    iis::ENTRY,
    realtime::ENTRY,
    hybrid::ENTRY,
    pads::ENTRY,
    batchloss::ENTRY,
    quiver::ENTRY,
    infobatch::ENTRY,
    carousel::ENTRY,
    given::ENTRY,
    sequential::ENTRY,
    #[cfg(test)]
    alternate::ENTRY,
];

/// A registered strategy.
pub struct Entry {
    /// Its name everywhere.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The policy that belongs to it, used where none is named.
    pub policy: &'static str,
    /// The settings it takes.
    pub parameters: &'static [Parameter],
    /// Makes one, before its first epoch.
    pub build: fn(Setup) -> Box<dyn Strategy>,
}

impl Entry {
    /// The values of its settings, those given and the defaults of the others.
    pub fn values<'a>(&self, given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Values> {
        Values::resolve_with(self.name, self.parameters, COMMON, given)
    }

    /// The policy where none is named: its own, or that of plans by runs where its settings ask for those.
    pub fn policy_for<'a>(&self, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> &'static str {
        if by_runs::is_asked(settings) { policy::RUNS } else { self.policy }
    }

    /// An error where its settings ask for plans by runs, and `policy` cannot carry them out.
    pub fn check_policy<'a>(
        &self,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
        policy: &str,
    ) -> Result<()> {
        if !by_runs::is_asked(settings) || policy == policy::RUNS {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "plans by runs say what stays, so they have a policy of their own and cannot have `{policy}`: leave `policy` \
             out, or set `order=exact`"
        )))
    }
}

/// Every strategy that draws its epochs by itself: those that a trainer gives no order.
pub fn drawing() -> impl Iterator<Item = &'static Entry> {
    REGISTRY.iter().filter(|entry| !entry.takes_order())
}

/// The strategy of that name, or an error that lists those there are.
pub fn find(name: &str) -> Result<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<String> = REGISTRY.iter().map(|entry| format!("`{}`", entry.name)).collect();
        Error::invalid(format!("strategy `{name}` is unknown; the strategies are {}", known.join(", ")))
    })
}

/// Settings that every strategy takes beside its own. They are the planner's: strategies do not look at them.
pub const COMMON: &[Parameter] = &[draw_stream::EPOCH_LENGTH];

/// A setting of every strategy.
const FULL_LAST: Parameter = Parameter {
    name: "full_last",
    default: "0",
    domain: Domain::Number(0.0, 1.0),
    summary: "share of the run's epochs, the last ones and rounded down, that are uniform; needs `epochs`",
};

/// What a strategy is made from.
#[derive(Clone)]
pub struct Setup {
    /// How many samples the catalog holds.
    pub samples: usize,
    /// The seed of all its draws.
    pub seed: u64,
    /// The size of every sample; equal ones where they do not matter.
    pub sizes: Arc<dyn Sizes>,
    /// The bytes of the cache.
    pub capacity: u64,
    /// How many epochs the run has, if that is known.
    pub epochs: Option<u64>,
    /// Its settings; one that is not there has its default.
    pub values: Values,
}

impl Setup {
    /// Of samples of one byte each and no cache, with the defaults of the strategy that is made from it.
    pub fn new(samples: usize, seed: u64) -> Self {
        let sizes = Arc::new(Equal { samples, size: 1 });
        Self { samples, seed, sizes, capacity: 0, epochs: None, values: Values::default() }
    }

    /// The ids end before this one.
    fn end(&self) -> Id {
        self.samples.try_into().unwrap_or(Id::MAX)
    }

    /// Whether `epoch` is among the last that `full_last` makes uniform.
    fn is_full_last(&self, epoch: u64) -> bool {
        // Rounded down; the small number makes up for shares such as 0.29, of which 100 are a little less than 29.
        let last = |epochs: u64| (self.values.share("full_last") * epochs as f64 + 1e-9) as u64;
        self.epochs.is_some_and(|epochs| last(epochs) > 0 && epoch.saturating_add(last(epochs)) >= epochs)
    }
}

/// Sizes that are all the same.
#[derive(Debug, Clone, Copy)]
pub struct Equal {
    /// How many samples there are.
    pub samples: usize,
    /// The bytes of each.
    pub size: u64,
}

impl Sizes for Equal {
    fn len(&self) -> usize {
        self.samples
    }

    fn size(&self, _id: Id) -> u64 {
        self.size
    }
}

/// How fast the last epoch was, in samples a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// What storage can deliver.
    pub storage: f64,
    /// What training consumes when it never waits.
    pub training: f64,
}

/// What an epoch's draw may look at.
#[derive(Clone, Default)]
pub struct Draw<'a> {
    /// The epoch to draw.
    pub epoch: u64,
    /// How many draws of this epoch were made before: beyond 0 only where epochs have a length of their own.
    pub part: u32,
    /// The number of ranks that the plan is cut over.
    pub world: u32,
    /// Ids that the plan before left out: they take the first places instead of their drawn ones. `None`
    /// when the plan before was not made here (a job that resumes): the strategy tells them from its seed if
    /// it can, as if every epoch before had been cut over the same `world` without padding. A padded plan
    /// leaves none out: `Some(&[])`.
    pub carried: Option<&'a [Id]>,
    /// What was reported of each sample before the cut.
    pub importance: Option<&'a Table>,
    /// Losses under the current model, of those that [`Strategy::reevaluates`] asked for.
    pub reevaluated: Option<&'a [(Id, f32)]>,
    /// The accuracy after the epoch before, if the trainer told it.
    pub accuracy: Option<f64>,
    /// How fast the epoch before was, if it was measured.
    pub rates: Option<Rates>,
    /// The samples that are resident before the plan's first slot.
    pub residents: Option<&'a Residents>,
    /// Where jobs are that share the cache: a sample that one of them has just reached.
    pub others_at: Option<Id>,
    /// The order that the trainer gives for the epoch, where the strategy [takes one](Strategy::takes_order).
    pub order: Option<&'a [Id]>,
    /// The packages that are complete, where the policy has a region for them, and that region's bytes.
    pub packages: Option<(&'a Packages, u64)>,
}

impl Draw<'_> {
    /// What tells this draw from all others of the run, for its random numbers: the epoch, where it is drawn once.
    pub fn number(&self) -> u64 {
        u64::from(self.part) << 32 | self.epoch
    }
}

/// Whose losses are needed under the current model before a plan can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reevaluation {
    /// Of none.
    Nothing,
    /// Those of these ids.
    Set(Arc<[Id]>),
    /// Of all samples.
    All,
}

/// What is trained this epoch.
pub trait Strategy: Send {
    /// Draws the ids of an epoch, carried ones first. The first epoch is one of every sample.
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn;
    /// Whether a plan may hold an id twice.
    fn repeats(&self) -> bool;
    /// Whether the plan of an epoch needs losses reported in the epochs before.
    fn needs_losses(&self) -> bool {
        self.may_reevaluate()
    }
    /// What is kept of reported losses.
    fn score(&self) -> Score {
        Score::Loss
    }
    /// Whether plans depend on what is resident, with packages or without, so that the plan before must be
    /// decided to its last slot first.
    fn looks_at_residents(&self, _packages: bool) -> bool {
        false
    }
    /// Whether plans serve samples from packages, as it is set.
    fn serves_packages(&self) -> bool {
        self.looks_at_residents(true) && !self.looks_at_residents(false)
    }
    /// Whether a plan needs something that comes after the epoch before has ended (re-evaluated losses, an
    /// accuracy), so that it is made when the next epoch begins and not ahead.
    fn waits_for_trainer(&self) -> bool {
        self.may_reevaluate()
    }
    /// Whether plans depend on how fast the epoch before was.
    fn adapts(&self) -> bool {
        false
    }
    /// Whether plans are padded whatever the job says, with padded slots of weight 0.
    fn pads(&self) -> bool {
        false
    }
    /// Whether plans follow from the seed alone, so that there is nothing a checkpoint must keep.
    fn follows_seed(&self) -> bool {
        false
    }
    /// Whether every epoch draws as many ids as there are samples, so that its length is known before its plan.
    fn is_whole(&self) -> bool {
        false
    }
    /// Whether its orders are drawn, so that they differ by the seed and from epoch to epoch.
    fn shuffles(&self) -> bool {
        true
    }
    /// Whether the trainer gives the order of each epoch when it begins, and there is no plan without it.
    fn takes_order(&self) -> bool {
        false
    }
    /// Whether some plans need losses under the current model ([`Self::reevaluates`]).
    fn may_reevaluate(&self) -> bool {
        false
    }
    /// Whether the losses of a model trained on other data may be subtracted from those under the current one, which
    /// makes some of them negative.
    fn takes_irreducible(&self) -> bool {
        false
    }
    /// Whether `epoch` may draw every sample, as far as settings tell. The others draw at most [`Self::selected`].
    fn may_be_full(&self, _epoch: u64) -> bool {
        true
    }
    /// How many of `samples` an epoch draws that is not full, once a loss of every sample is known.
    fn selected(&self, samples: usize) -> usize {
        samples
    }
    /// What a user wants to know of the last plan, by name.
    fn notes(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    /// What a user should know of the last plan, and of what it lacked.
    fn remarks(&self) -> Vec<Remark> {
        Vec::new()
    }
    /// `epoch` is over and all its reports are in, late ones too. Called before the next plan, once.
    fn close(&mut self, _epoch: u64, _importance: &Table) {}
    /// Whose losses under the current model the plan of `epoch` needs; asked after [`Self::close`].
    fn reevaluates(&self, _epoch: u64) -> Reevaluation {
        Reevaluation::Nothing
    }
    /// What cannot be told from the seed and the table, so that a restored strategy goes on the same.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }
    /// Takes what [`Self::save`] wrote for a strategy of the same setup.
    fn restore(&mut self, saved: &[u8]) -> Result<()> {
        if saved.is_empty() { Ok(()) } else { Err(foreign()) }
    }
}

/// The error of a saved state that is not this strategy's.
fn foreign() -> Error {
    Error::invalid(
        "the saved state is damaged, or of another strategy or dataset: drop it, and the job begins anew",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_ends_with_as_many_uniform_epochs_as_were_asked_for() {
        let takes =
            |entry: &&Entry| entry.parameters.iter().any(|parameter| parameter.name == FULL_LAST.name);
        for entry in REGISTRY.iter().filter(takes) {
            for (share, epochs, full) in [("0.125", 60, 7), ("0.125", 64, 8), ("0.29", 100, 29), ("1", 5, 5)]
            {
                let values = entry.values([("full_last", share)]).unwrap();
                let setup = Setup { values, epochs: Some(epochs), capacity: 5, ..Setup::new(40, 1) };
                assert_eq!((0..epochs).filter(|&epoch| setup.is_full_last(epoch)).count(), full);
                let mut strategy = (entry.build)(setup);
                let last = strategy.draw(&Draw { epoch: epochs - 1, world: 1, ..Draw::default() });
                let mut ids = last.ids;
                assert_eq!(ids, uniform::shuffled(40, 1, epochs - 1, &[]), "{}", entry.name);
                ids.sort_unstable();
                assert_eq!(ids, Vec::from_iter(0..40), "{}", entry.name);
            }
        }
    }

    #[test]
    fn a_strategy_is_found_by_its_name_and_brings_a_policy() {
        for entry in REGISTRY {
            assert_eq!(find(entry.name).unwrap().summary, entry.summary, "two strategies share a name");
            assert!(crate::policy::find(entry.policy).is_ok());
        }
        let message = find("shuffle").err().unwrap().message;
        assert!(message.starts_with("strategy `shuffle` is unknown; the strategies are `uniform`"));
    }
}
