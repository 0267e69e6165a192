//! `iis`, I/O-oriented importance sampling (iCache III-A): the easier a sample, the less often it is read.
//!
//! Sample i is in the plan with probability percentile_i ^ beta, beta = 1/f - 1, by its last reported loss.
//! The number selected is known before the epoch, as schedulers need. The first `warmup` epochs are full; the
//! one after them is longer, because every sample not reported before its cut is certain to be selected.
//! Where the policy has a region for packages, L slots are substituted. Use it with `icache`.
//!
//! There are no weights, so training is biased towards hard and mislabelled samples.
//!
//! Differs from the paper: the paper gives no formula for the probabilities; the draw is systematic;
//! substitution is settled in the plan.

use super::selection::{PARAMETERS, Selection};
use super::{Draw, Drawn, Entry, Strategy};

pub(super) const ENTRY: Entry = Entry {
    name: "iis",
    summary: "reads easy samples more seldom, by their last loss (iCache)",
    policy: "icache",
    parameters: PARAMETERS,
    build: |setup| Box::new(Iis(Selection::new(setup, PARAMETERS))),
};

struct Iis(Selection);

impl Strategy for Iis {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        self.0.plan(draw, self.0.values(draw), self.0.is_full(draw.epoch))
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

    fn may_be_full(&self, epoch: u64) -> bool {
        self.0.may_be_full(epoch)
    }

    fn selected(&self, samples: usize) -> usize {
        self.0.selected(samples)
    }
}
