//! `realtime`, importance under the current model for every sample: ImPACT's comparison.
//!
//! After warm-up every sample is read and re-evaluated before each epoch, and those losses select as in
//! `iis`. It finds the hardest samples best and pays the full price: every sample that is not resident is
//! read once more. If the trainer never re-evaluates, a warning says so once and the job continues as `iis`.

use super::hybrid::never_reevaluated;
use super::selection::{PARAMETERS, Selection};
use super::{Draw, Drawn, Entry, Reevaluation, Strategy};
use crate::Remark;

pub(super) const ENTRY: Entry = Entry {
    name: "realtime",
    summary: "as `iis`, with every sample read and re-evaluated before each epoch (ImPACT's comparison)",
    policy: "icache",
    parameters: PARAMETERS,
    build: |setup| Box::new(Realtime { selection: Selection::new(setup, PARAMETERS), neglected: false }),
};

struct Realtime {
    selection: Selection,
    /// Whether the last plan should have had losses under the current model, and had none.
    neglected: bool,
}

impl Strategy for Realtime {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let mut values = self.selection.values(draw);
        self.neglected = self.reevaluates(draw.epoch) == Reevaluation::All
            && draw.reevaluated.unwrap_or_default().is_empty()
            && !values.is_empty();
        for &(id, loss) in draw.reevaluated.unwrap_or_default() {
            if let Some(value) = values.get_mut(id as usize)
                && loss.is_finite()
                && loss >= 0.0
            {
                *value = loss;
            }
        }
        self.selection.plan(draw, values, self.selection.is_full(draw.epoch))
    }

    fn repeats(&self) -> bool {
        self.selection.repeats()
    }

    fn looks_at_residents(&self, packages: bool) -> bool {
        self.selection.looks_at_residents(packages)
    }

    fn may_reevaluate(&self) -> bool {
        true
    }

    fn may_be_full(&self, epoch: u64) -> bool {
        self.selection.may_be_full(epoch)
    }

    fn selected(&self, samples: usize) -> usize {
        self.selection.selected(samples)
    }

    fn remarks(&self) -> Vec<Remark> {
        self.neglected.then(|| never_reevaluated(ENTRY.name)).into_iter().collect()
    }

    fn reevaluates(&self, epoch: u64) -> Reevaluation {
        if epoch == 0 || self.selection.is_full(epoch) { Reevaluation::Nothing } else { Reevaluation::All }
    }
}
