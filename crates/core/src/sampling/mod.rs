//! Strategies: what is trained this epoch.
//!
//! A strategy draws the ids of an epoch from its seed and, later, from reported importance; the same inputs
//! always give the same plan. A [`Plan`] is that sequence cut over ranks.
//!
//! Adding one is a file and a line in [`REGISTRY`]. The name there is its name in Python, in the command
//! line, in metrics and in reports. `conformance` runs over every registered one.

mod plan;
mod uniform;

#[cfg(test)]
mod conformance;

pub use plan::Plan;

use crate::{Error, Id, Result};

/// Every strategy, by name.
pub static REGISTRY: &[Entry] = &[uniform::ENTRY];

/// A registered strategy.
pub struct Entry {
    /// Its name everywhere.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The policy that belongs to it, used where none is named.
    pub policy: &'static str,
    /// Makes one, before its first epoch.
    pub build: fn(Setup) -> Box<dyn Strategy>,
}

/// The strategy of that name, or an error that lists those there are.
pub fn find(name: &str) -> Result<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<String> = REGISTRY.iter().map(|entry| format!("`{}`", entry.name)).collect();
        Error::invalid(format!("strategy `{name}` is unknown; the strategies are {}", known.join(", ")))
    })
}

/// What a strategy is made from.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many samples the catalog holds.
    pub samples: usize,
    /// The seed of all its draws.
    pub seed: u64,
}

/// What an epoch's draw may look at.
#[derive(Debug, Clone)]
pub struct Draw<'a> {
    /// The epoch to draw.
    pub epoch: u64,
    /// The number of ranks that the plan is cut over.
    pub world: u32,
    /// Ids that the plan before left out: they take the first places instead of their drawn ones. `None`
    /// when the plan before was not made here (a job that resumes): the strategy tells them from its seed if
    /// it can, as if every epoch before had been cut over the same `world` without padding. A padded plan
    /// leaves nobody out: `Some(&[])`.
    pub carried: Option<&'a [Id]>,
}

/// What is trained this epoch.
pub trait Strategy: Send {
    /// Draws the ids of an epoch, carried ones first.
    fn draw(&mut self, draw: &Draw<'_>) -> Vec<Id>;
    /// Whether a plan may hold an id twice.
    fn repeats(&self) -> bool;
    /// Whether the plan of an epoch needs losses reported in the epochs before.
    fn needs_losses(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_is_found_by_its_name_and_brings_a_policy() {
        for entry in REGISTRY {
            assert_eq!(find(entry.name).unwrap().summary, entry.summary, "two strategies share a name");
            assert!(crate::policy::find(entry.policy).is_ok());
        }
        let message = find("shuffle").err().unwrap().message;
        assert_eq!(message, "strategy `shuffle` is unknown; the strategies are `uniform`");
    }
}
