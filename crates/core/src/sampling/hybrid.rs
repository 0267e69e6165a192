//! `hybrid`, importance from history and from the current model (ImPACT III-B).
//!
//! Warm-up epochs are full. They end when the set S of samples whose ranks change most, as many as fit a
//! quarter of the cache (`s_share`), shares more than 80 % of its ids with that of the previous epoch, or
//! after `warmup_max` epochs. Then S is frozen. Before each later epoch S is re-evaluated with the current
//! model, from a static buffer where the policy has one (`impact`). Losses of evaluation and of training are
//! not on one scale, so the new losses only *reorder* the IVs of the samples in S. Selection is then that of
//! `iis`. If the trainer never re-evaluates S, a warning says so once and the job continues as `iis` with
//! `icache`.
//!
//! Differs from the paper: the paper cites RHO-LOSS for the selection but describes no holdout model; here it
//! is that of `iis`. Losses of a holdout model can be subtracted from the re-evaluated ones:
//! `Sampler(irreducible=)`, and `--irreducible` in the simulator. S is bounded in bytes.

use std::sync::Arc;

use super::selection::{FRACTION, SUBSTITUTE, Selection};
use super::{Draw, Drawn, Entry, FULL_LAST, Reevaluation, Setup, Strategy, foreign};
use crate::importance::{OVERLAP, Table, Volatility};
use crate::rng::Scatter;
use crate::saved::{Reader, Writer};
use crate::settings::{Domain, Parameter};
use crate::{Id, Remark, Result};

const PARAMETERS: &[Parameter] = &[
    FRACTION,
    SUBSTITUTE,
    Parameter {
        name: "s_share",
        default: "0.25",
        domain: Domain::Number(0.0, 1.0),
        summary: "share of the cache for the samples that are re-evaluated",
    },
    Parameter {
        name: "warmup_max",
        default: "30",
        domain: Domain::Whole(1, u32::MAX as u64),
        summary: "full epochs after which the set to re-evaluate is frozen, stable or not",
    },
    FULL_LAST,
];

pub(super) const ENTRY: Entry = Entry {
    name: "hybrid",
    summary: "as `iis`, with the samples whose ranks change most re-evaluated before each epoch (ImPACT)",
    policy: "impact",
    parameters: PARAMETERS,
    build: |setup| Box::new(Hybrid::new(setup)),
};

/// What is said of a plan that was to be made with losses under the current model, and was made without any.
pub(super) fn never_reevaluated(strategy: &str) -> Remark {
    let text = format!(
        "`{strategy}` asks for losses under the current model before each epoch and got none, so it goes on as \
         `iis` does: call `sampler.reevaluate(model, loss)` before each epoch, or choose `iis`"
    );
    Remark::warning("reevaluate", text)
}

struct Hybrid {
    selection: Selection,
    volatility: Volatility,
    /// Samples whose losses under the current model the last plan was made with.
    reevaluated: usize,
    /// The epoch of the last plan, while it warms up.
    warming: Option<u64>,
    /// Whether the last plan should have had some, and had none.
    neglected: bool,
}

impl Hybrid {
    fn new(setup: Setup) -> Self {
        let volatility = Volatility::new(setup.samples);
        let selection = Selection::new(setup, PARAMETERS);
        Self { selection, volatility, reevaluated: 0, warming: None, neglected: false }
    }

    fn setup(&self) -> &Setup {
        &self.selection.setup
    }

    fn read(&mut self, saved: &[u8]) -> Option<()> {
        let samples = self.setup().samples;
        let mut saved = Reader::open(saved, ENTRY.name, samples)?;
        self.volatility = Volatility::restore(samples, &mut saved)?;
        saved.end()
    }
}

/// Gives the values of those re-evaluated to each other, so that they stand in the order of their new losses.
/// Equal losses stand in the order of a hash of seed, epoch and id, as everywhere.
fn reorder(values: &mut [f32], reevaluated: &[(Id, f32)], seed: u64, epoch: u64) {
    let mut losses = vec![f32::NAN; values.len()];
    for &(id, loss) in reevaluated {
        if let Some(place) = losses.get_mut(id as usize) {
            *place = loss;
        }
    }
    let known = |id: &Id| !losses[*id as usize].is_nan() && !values[*id as usize].is_nan();
    let scatter = Scatter::new(values.len() as u32, seed, epoch, "re-evaluated ties");
    let mut order: Vec<Id> = (0..values.len() as u32).map(|place| scatter.at(place)).filter(known).collect();
    // Stable, so that ties stay scattered. Adding zero makes the negative one equal to the other.
    order.sort_by(|a, b| (losses[*a as usize] + 0.0).total_cmp(&(losses[*b as usize] + 0.0)));
    let mut own: Vec<f32> = order.iter().map(|id| values[*id as usize]).collect();
    own.sort_unstable_by(f32::total_cmp);
    for (id, value) in order.into_iter().zip(own) {
        values[id as usize] = value;
    }
}

impl Strategy for Hybrid {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let mut values = self.selection.values(draw);
        let warm = self.volatility.frozen().is_none();
        self.reevaluated = 0;
        self.warming = warm.then_some(draw.epoch);
        if !warm && let Some(reevaluated) = draw.reevaluated {
            self.reevaluated = reevaluated.len();
            reorder(&mut values, reevaluated, self.setup().seed, draw.number());
        }
        let full = warm || self.setup().is_full_last(draw.epoch);
        self.neglected =
            !full && self.reevaluated == 0 && self.volatility.frozen().is_some_and(|set| !set.is_empty());
        Drawn { still: warm, ..self.selection.plan(draw, values, full) }
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

    fn takes_irreducible(&self) -> bool {
        true
    }

    fn close(&mut self, epoch: u64, importance: &Table) {
        if self.volatility.frozen().is_some() {
            return;
        }
        let setup = &self.selection.setup;
        let values = importance.of_epoch(u32::try_from(epoch).unwrap_or(u32::MAX));
        self.volatility.observe(&values, setup.seed, epoch);
        let bytes = (setup.capacity as f64 * setup.values.share("s_share")) as u64;
        self.volatility.settle(&*setup.sizes, bytes, setup.seed, epoch);
        if epoch + 1 >= setup.values.whole("warmup_max") {
            self.volatility.freeze();
        }
    }

    fn reevaluates(&self, _epoch: u64) -> Reevaluation {
        let set = self.volatility.frozen().map(Arc::clone);
        set.map_or(Reevaluation::Nothing, Reevaluation::Set)
    }

    /// `s`: the samples of S, once it is frozen. `reevaluated`: those of them whose new losses the last plan was
    /// made with; none if the trainer told none.
    fn notes(&self) -> Vec<(&'static str, f64)> {
        let frozen = self.volatility.frozen().map(|set| ("s", set.len() as f64));
        frozen.into_iter().chain([("reevaluated", self.reevaluated as f64)]).collect()
    }

    fn remarks(&self) -> Vec<Remark> {
        let Some(epoch) = self.warming else {
            return self.neglected.then(|| never_reevaluated(ENTRY.name)).into_iter().collect();
        };
        let most = self.setup().values.whole("warmup_max");
        let needed = (100.0 * OVERLAP).round();
        let stable = self.volatility.overlap().map_or_else(String::new, |overlap| {
            format!(
                " or until its set S is stable: {:.0} % of S stayed, more than {needed} % must",
                100.0 * overlap
            )
        });
        let text = format!(
            "`hybrid` warms up: epoch {epoch} is a full one, as with `uniform`. Warm-up epoch {} of at most {most} \
             (`warmup_max`){stable}",
            epoch + 1
        );
        // The first epoch of every strategy is a full one.
        vec![if epoch == 0 { Remark::note("warmup", text) } else { Remark::warning("warmup", text) }]
    }

    fn save(&self) -> Vec<u8> {
        let mut out = Writer::new(self.setup().samples);
        self.volatility.save(&mut out);
        out.seal(ENTRY.name)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<()> {
        self.read(saved).ok_or_else(foreign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::importance::Report;

    #[test]
    fn new_losses_reorder_old_values_and_leave_the_others_alone() {
        let mut values = vec![5.0, 1.0, 3.0, 9.0, f32::NAN];
        reorder(&mut values, &[(0, 0.01), (1, 0.03), (2, 0.02), (4, 7.0), (9, 1.0)], 0, 0);
        assert_eq!(values[..4], [1.0, 5.0, 3.0, 9.0]);
        assert!(values[4].is_nan());
    }

    #[test]
    fn equal_new_losses_favour_no_ids_and_fall_out_otherwise_each_epoch() {
        let samples = 3_000;
        let reordered = |epoch| {
            let mut values: Vec<f32> = (0..samples).map(|id| id as f32).collect();
            let equal: Vec<(Id, f32)> = (0..samples).map(|id| (id, 0.5)).collect();
            reorder(&mut values, &equal, 7, epoch);
            values
        };
        let values = reordered(1);
        for third in values.chunks(1_000) {
            let mean = third.iter().map(|&value| f64::from(value)).sum::<f64>() / 1_000.0;
            // The standard deviation of such a mean is 22.
            assert!((mean - 1_499.5).abs() < 110.0, "{mean}");
        }
        assert_ne!(values, reordered(2));
        assert_eq!(values, reordered(1));
    }

    #[test]
    fn equal_losses_warm_up_until_the_most_allowed() {
        let mut setup = Setup { capacity: 40, ..Setup::new(100, 0) };
        setup.values = ENTRY.values([("warmup_max", "4")]).unwrap();
        let mut hybrid = Hybrid::new(setup);
        for epoch in 0..4 {
            assert_eq!(hybrid.reevaluates(epoch), Reevaluation::Nothing);
            assert_eq!(hybrid.draw(&Draw { epoch, world: 1, ..Draw::default() }).ids.len(), 100);
            hybrid.close(epoch, &Table::new(100));
        }
        assert!(matches!(hybrid.reevaluates(4), Reevaluation::Set(set) if set.len() == 10));
    }

    #[test]
    fn a_warm_up_says_how_far_it_is_and_warns_from_the_second_epoch_on() {
        let mut setup = Setup { capacity: 40, ..Setup::new(100, 0) };
        setup.values = ENTRY.values([("warmup_max", "3")]).unwrap();
        let mut hybrid = Hybrid::new(setup);
        let mut said = Vec::new();
        for epoch in 0..4 {
            hybrid.draw(&Draw { epoch, world: 1, ..Draw::default() });
            said.push(hybrid.remarks());
            let mut table = Table::new(100);
            let loss = |id: Id| crate::Rng::new(id.into(), epoch, "loss").unit() as f32;
            for id in 0..100 {
                let report =
                    Report { id, value: loss(id), loss: loss(id), epoch: epoch as u32, step: 0, late: false };
                table.apply(&[report]);
            }
            hybrid.close(epoch, &table);
        }
        assert!(said[..3].iter().all(|remarks| remarks.len() == 1 && remarks[0].name == "warmup"));
        assert_eq!(said[..3].iter().map(|remarks| remarks[0].warns).collect::<Vec<_>>(), [false, true, true]);
        assert!(
            said[1][0]
                .text
                .contains("epoch 1 is a full one, as with `uniform`. Warm-up epoch 2 of at most 3")
        );
        assert!(said[2][0].text.contains("% of S stayed, more than 80 % must"), "{}", said[2][0].text);
        assert_eq!(said[3], [never_reevaluated("hybrid")], "S is frozen, and was to be re-evaluated");
    }

    #[test]
    fn how_many_were_reevaluated_is_told_and_not_how_many_should_have_been() {
        let mut setup = Setup { capacity: 40, ..Setup::new(100, 0) };
        setup.values = ENTRY.values([("warmup_max", "1")]).unwrap();
        let mut hybrid = Hybrid::new(setup);
        let drawn = hybrid.draw(&Draw { world: 1, ..Draw::default() });
        assert!(drawn.still, "residents stay");
        assert_eq!(hybrid.notes(), [("reevaluated", 0.0)], "it warms up");
        hybrid.close(0, &Table::new(100));
        let Reevaluation::Set(set) = hybrid.reevaluates(1) else { panic!("S is frozen") };
        let losses: Vec<(Id, f32)> = set.iter().map(|&id| (id, 1.0)).collect();
        hybrid.draw(&Draw { epoch: 1, world: 1, reevaluated: Some(&losses), ..Draw::default() });
        assert_eq!((hybrid.notes(), hybrid.remarks()), (vec![("s", 10.0), ("reevaluated", 10.0)], vec![]));
        let drawn = hybrid.draw(&Draw { epoch: 2, world: 1, ..Draw::default() });
        assert!(!drawn.still, "it goes on as `iis` with `icache`");
        assert_eq!(hybrid.notes(), [("s", 10.0), ("reevaluated", 0.0)], "`reevaluate` was not called");
        assert_eq!(hybrid.remarks(), [never_reevaluated("hybrid")]);
    }
}
