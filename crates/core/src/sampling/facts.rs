//! What a trainer must know of a strategy before its first plan, asked of one that is made for it.

use super::{Entry, Setup, Strategy};
use crate::Result;
use crate::settings::Values;

/// What a trainer must know of a strategy, with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// [`Strategy::needs_losses`].
    pub needs_losses: bool,
    /// [`Strategy::may_reevaluate`].
    pub reevaluates: bool,
    /// [`Strategy::takes_irreducible`].
    pub takes_irreducible: bool,
    /// [`Strategy::pads`].
    pub pads: bool,
    /// [`Strategy::follows_seed`].
    pub follows_seed: bool,
    /// [`Strategy::is_whole`].
    pub is_whole: bool,
    /// [`Strategy::takes_order`].
    pub takes_order: bool,
    /// [`Strategy::shuffles`].
    pub shuffles: bool,
}

impl Facts {
    /// Those of `strategy`.
    pub fn of(strategy: &dyn Strategy) -> Self {
        Self {
            needs_losses: strategy.needs_losses(),
            reevaluates: strategy.may_reevaluate(),
            takes_irreducible: strategy.takes_irreducible(),
            pads: strategy.pads(),
            follows_seed: strategy.follows_seed(),
            is_whole: strategy.is_whole(),
            takes_order: strategy.takes_order(),
            shuffles: strategy.shuffles(),
        }
    }
}

impl Entry {
    /// [`Strategy::takes_order`].
    pub fn takes_order(&self) -> bool {
        (self.build)(Setup::new(0, 0)).takes_order()
    }

    /// One without samples, to be asked what follows from its settings alone.
    pub fn example<'a>(
        &self,
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
        epochs: Option<u64>,
    ) -> Result<Box<dyn Strategy>> {
        let values: Values = self.values(given)?;
        Ok((self.build)(Setup { values, epochs, ..Setup::new(0, 0) }))
    }
}
