//! `alternate`, half of the samples in turn: those of even ids, then those of odd ones.

use super::uniform::{carried_front, shuffled};
use super::{Draw, Drawn, Entry, FULL_LAST, Setup, Strategy};
use crate::settings::Parameter;

const PARAMETERS: &[Parameter] = &[FULL_LAST];

pub(super) const ENTRY: Entry = Entry {
    name: "alternate",
    summary: "one half of the samples, then the other",
    policy: "lru",
    parameters: PARAMETERS,
    build: |mut setup| {
        setup.values = setup.values.or_defaults(PARAMETERS);
        Box::new(Alternate(setup))
    },
};

struct Alternate(Setup);

impl Strategy for Alternate {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let carried = carried_front(self.0.end(), draw.carried.unwrap_or_default());
        let mut ids = shuffled(self.0.end(), self.0.seed, draw.number(), &carried);
        if !self.may_be_full(draw.epoch) {
            ids.retain(|id| u64::from(*id) % 2 == draw.epoch % 2 || carried.contains(id));
        }
        ids.into()
    }

    fn repeats(&self) -> bool {
        false
    }

    fn needs_losses(&self) -> bool {
        false
    }

    fn may_be_full(&self, epoch: u64) -> bool {
        epoch == 0 || self.0.is_full_last(epoch)
    }

    fn selected(&self, samples: usize) -> usize {
        samples.div_ceil(2)
    }
}
