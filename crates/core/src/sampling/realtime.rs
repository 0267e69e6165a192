//! `realtime`, importance of the current model for every sample: ImPACT's comparison.
//!
//! Before each epoch after warm-up every sample is read and re-evaluated, and then it selects as `iis` does, by
//! those losses. It finds the hardest samples best and pays for it in full: every sample that is not resident
//! is read once more.

use super::selection::{PARAMETERS, Selection};
use super::{Draw, Drawn, Entry, Reevaluation, Strategy};

pub(super) const ENTRY: Entry = Entry {
    name: "realtime",
    summary: "as `iis`, with every sample read and re-evaluated before each epoch (ImPACT's comparison)",
    policy: "icache",
    parameters: PARAMETERS,
    build: |setup| Box::new(Realtime(Selection::new(setup, PARAMETERS))),
};

struct Realtime(Selection);

impl Realtime {
    fn is_full(&self, epoch: u64) -> bool {
        epoch < self.0.setup.values.whole("warmup") || self.0.setup.is_full_last(epoch)
    }
}

impl Strategy for Realtime {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let mut values = self.0.values(draw);
        for &(id, loss) in draw.reevaluated.unwrap_or_default() {
            if let Some(value) = values.get_mut(id as usize)
                && loss.is_finite()
                && loss >= 0.0
            {
                *value = loss;
            }
        }
        self.0.plan(draw, values, self.is_full(draw.epoch))
    }

    fn repeats(&self) -> bool {
        self.0.repeats()
    }

    fn needs_losses(&self) -> bool {
        true
    }

    fn looks_at_residents(&self, packages: bool) -> bool {
        self.0.looks_at_residents(packages)
    }

    fn waits_for_trainer(&self) -> bool {
        true
    }

    fn reevaluates(&self, epoch: u64) -> Reevaluation {
        if epoch == 0 || self.is_full(epoch) { Reevaluation::Nothing } else { Reevaluation::All }
    }
}
