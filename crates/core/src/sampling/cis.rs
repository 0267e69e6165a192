//! `cis`, computing-oriented importance sampling: the papers' "Base".
//!
//! All ids are read and served; those that `iis` would drop carry weight 0, so the trainer can skip their
//! backward pass. This saves computing but no I/O, which is what iCache set out to change. `order=runs` and `order=auto` are those
//! of `uniform`.

use super::by_runs::{ByRuns, MIX_SHARE, ORDER, Order};
use super::selection::{FRACTION, Selection, WARMUP};
use super::{Draw, Drawn, Entry, FULL_LAST, Strategy};
use crate::bits::Bits;
use crate::settings::Parameter;

const PARAMETERS: &[Parameter] = &[FRACTION, WARMUP, FULL_LAST, ORDER, MIX_SHARE];

pub(super) const ENTRY: Entry = Entry {
    name: "cis",
    summary: "serves every sample, with weight 0 for those that `iis` would drop (the papers' Base)",
    policy: "lru",
    parameters: PARAMETERS,
    build: |setup| {
        let selection = Selection::new(setup, PARAMETERS);
        let by_runs = ByRuns::of(&selection.setup);
        Box::new(Cis { selection, by_runs })
    },
};

struct Cis {
    selection: Selection,
    by_runs: Option<ByRuns>,
}

impl Strategy for Cis {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let selection = &self.selection;
        let values = selection.values(draw);
        let ranking = selection.rank(draw, &values);
        let order = self.by_runs.as_mut().and_then(|by_runs| by_runs.draw(draw));
        let Order { ids, events } =
            order.unwrap_or_else(|| Order { ids: selection.all_samples(draw), events: Vec::new() });
        let full = selection.is_full(draw.epoch);
        let mut weights = Vec::new();
        if !full {
            let mut taken = Bits::new(selection.setup.samples);
            for id in selection.select(draw, &ranking) {
                taken.insert(id);
            }
            weights = ids.iter().map(|&id| if taken.contains(id) { 1.0 } else { 0.0 }).collect();
        }
        Drawn { ids, weights, events, keys: Some(selection.keys(values, &ranking)), ..Drawn::default() }
    }

    fn repeats(&self) -> bool {
        false
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn serves_packages(&self) -> bool {
        self.by_runs.is_some()
    }

    fn notes(&self) -> Vec<(&'static str, f64)> {
        self.by_runs.as_ref().map(ByRuns::notes).unwrap_or_default()
    }

    fn needs_losses(&self) -> bool {
        true
    }
}
