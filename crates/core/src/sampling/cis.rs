//! `cis`, computing-oriented importance sampling: the papers' "Base".
//!
//! All ids are read and served; those that `iis` would drop carry weight 0, so the trainer can skip their
//! backward pass. This saves computing but no I/O, which is what iCache set out to change.

use super::selection::{FRACTION, Selection, WARMUP};
use super::{Draw, Drawn, Entry, FULL_LAST, Strategy};
use crate::bits::Bits;
use crate::settings::Parameter;

const PARAMETERS: &[Parameter] = &[FRACTION, WARMUP, FULL_LAST];

pub(super) const ENTRY: Entry = Entry {
    name: "cis",
    summary: "serves every sample, with weight 0 for those that `iis` would drop (the papers' Base)",
    policy: "lru",
    parameters: PARAMETERS,
    build: |setup| Box::new(Cis(Selection::new(setup, PARAMETERS))),
};

struct Cis(Selection);

impl Strategy for Cis {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let setup = &self.0.setup;
        let values = self.0.values(draw);
        let ranking = self.0.rank(draw, &values);
        let ids = self.0.all_samples(draw);
        let full = self.0.is_full(draw.epoch);
        let mut weights = Vec::new();
        if !full {
            let mut taken = Bits::new(setup.samples);
            for id in self.0.select(draw, &ranking) {
                taken.insert(id);
            }
            weights = ids.iter().map(|&id| if taken.contains(id) { 1.0 } else { 0.0 }).collect();
        }
        Drawn { ids, weights, keys: Some(self.0.keys(values, &ranking)), ..Drawn::default() }
    }

    fn repeats(&self) -> bool {
        false
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn needs_losses(&self) -> bool {
        true
    }
}
