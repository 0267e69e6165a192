//! When the packages of an epoch's plan are there: each is asked for at its place in the plan, and what lies in it comes with it.

use hotset_core::Id;
use hotset_core::packages::Packages;
use hotset_core::sampling::{Event, Plan};

/// The packages of one plan, as they come.
pub(crate) struct Arrivals {
    /// When each was there, by its number.
    at: Vec<u64>,
    /// How many of the plan's events have happened.
    events: usize,
}

impl Arrivals {
    /// Before a plan's first slot.
    pub(crate) fn new() -> Self {
        Self { at: Vec::new(), events: 0 }
    }

    /// Asks for the packages that come before a slot; `request` says when so many bytes are there.
    pub(crate) fn pass(
        &mut self,
        plan: &Plan,
        slot: usize,
        packages: Option<&Packages>,
        mut request: impl FnMut(u64) -> u64,
    ) {
        while let Some((_, event)) = plan.events().get(self.events).filter(|(at, _)| *at as usize <= slot) {
            self.events += 1;
            let (Event::Load(package), Some(packages)) = (event, packages) else { continue };
            let number = *package as usize;
            if self.at.len() <= number {
                self.at.resize(number + 1, 0);
            }
            self.at[number] = request(packages.extent(*package));
        }
    }

    /// When a sample is there that comes in a package.
    pub(crate) fn ready(&self, id: Id, packages: Option<&Packages>) -> u64 {
        let package = packages.and_then(|packages| packages.of(id));
        package.and_then(|package| self.at.get(package as usize).copied()).unwrap_or(0)
    }
}
