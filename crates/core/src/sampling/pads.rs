//! `pads`, SHADE's priority-based adaptive data sampling (FAST 2023, 4.2.1): hard samples are served often.
//!
//! As many draws as there are samples, with replacement, each with probability proportional to the sample's
//! rank score (the logarithm of its rank in its mini-batch). A sample never reported has the highest possible
//! score. With `repeat` r every draw of a resident is served r times, which is how the paper's figure 12 gets
//! its hit ratio; draws of non-residents, in the order drawn, fill the rest of the epoch.
//!
//! The first epoch is a plain shuffle. So is any epoch before which the mean of the samples' last reported
//! losses fell by more than a fifth since the previous plan, or accuracy, reported after each epoch, did not
//! grow on average over three epochs.
//!
//! Draws are made in order: the gaps between sorted uniform numbers are exponential, so one walk over the
//! scores finds how often each sample is drawn, using no memory but the plan's, for any number of samples.
//!
//! Differs from the paper: the paper gives no thresholds; those above are ours.

use super::selection::Selection;
use super::uniform::carried_front;
use super::{Draw, Drawn, Entry, FULL_LAST, Setup, Strategy, foreign};
use crate::importance::Score;
use crate::saved::{Reader, Writer};
use crate::settings::{Domain, Parameter};
use crate::{Id, Result, Rng};

/// A fall of the mean loss to less than this share is steep.
const STEEP: f64 = 0.8;
/// Epochs over which accuracy must grow.
const EPOCHS: usize = 3;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "repeat",
        default: "1",
        domain: Domain::Whole(1, 100),
        summary: "how often each draw of a resident is served",
    },
    FULL_LAST,
];

pub(super) const ENTRY: Entry = Entry {
    name: "pads",
    summary: "draws with replacement by rank in the mini-batch, hard samples often (SHADE)",
    policy: "app",
    parameters: PARAMETERS,
    build: |setup| Box::new(Pads::new(setup, Score::Rank)),
};

/// `pads`, and `batchloss` by another score.
pub(super) struct Pads {
    selection: Selection,
    score: Score,
    /// The mean loss when the last plan was made.
    mean: Option<f64>,
    /// The accuracies of the last epochs, the newest last.
    accuracies: Vec<f64>,
    /// Whether the epoch that is drawn is a plain shuffle.
    fell_back: bool,
}

impl Pads {
    pub(super) fn new(setup: Setup, score: Score) -> Self {
        let selection = Selection::new(setup, PARAMETERS);
        Self { selection, score, mean: None, accuracies: Vec::new(), fell_back: false }
    }

    fn name(&self) -> &'static str {
        if self.score == Score::Rank { ENTRY.name } else { super::batchloss::ENTRY.name }
    }

    fn read(&mut self, saved: &[u8]) -> Option<()> {
        let mut saved = Reader::open(saved, self.name(), self.selection.setup.samples)?;
        self.mean = Some(f64::from_bits(saved.fixed(8)?)).filter(|mean| !mean.is_nan());
        self.accuracies.clear();
        while let Some(bits) = saved.fixed(8) {
            self.accuracies.push(f64::from_bits(bits));
        }
        let finite = self.accuracies.iter().all(|accuracy| accuracy.is_finite());
        (finite && self.accuracies.len() <= EPOCHS + 1).then_some(())?;
        saved.end()
    }

    /// Whether this epoch is a plain shuffle.
    fn falls_back(&mut self, mean: Option<f64>, accuracy: Option<f64>) -> bool {
        let before = std::mem::replace(&mut self.mean, mean);
        let steep = before.zip(mean).is_some_and(|(before, mean)| mean < STEEP * before);
        self.accuracies.extend(accuracy.filter(|accuracy| accuracy.is_finite()));
        let surplus = self.accuracies.len().saturating_sub(EPOCHS + 1);
        self.accuracies.drain(..surplus);
        let stagnant = self.accuracies.len() == EPOCHS + 1 && self.accuracies[EPOCHS] <= self.accuracies[0];
        steep || stagnant
    }
}

/// `draws` ids with replacement, ascending, each as likely as its weight.
fn multinomial(weights: impl Iterator<Item = f64> + Clone, draws: usize, rng: &mut Rng) -> Vec<Id> {
    let total: f64 = weights.clone().sum();
    let exponential = |rng: &mut Rng| -(1.0 - rng.unit()).ln();
    let mut again = rng.clone();
    let mut gaps = 0.0;
    for _ in 0..=draws {
        gaps += exponential(rng);
    }
    let mut drawn = Vec::with_capacity(draws);
    let (mut reached, mut point, mut last) = (0.0, exponential(&mut again) / gaps * total, 0);
    for (id, weight) in (0..).zip(weights) {
        reached += weight;
        if weight > 0.0 {
            last = id;
        }
        while drawn.len() < draws && point < reached {
            drawn.push(id);
            point += exponential(&mut again) / gaps * total;
        }
    }
    // Rounding may leave the very last points beyond the sum.
    drawn.resize(draws, last);
    drawn
}

impl Strategy for Pads {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let values = self.selection.values(draw);
        let known = values.iter().filter(|value| !value.is_nan());
        let (known, most) =
            known.fold((0u64, 0.0), |(known, most), &value| (known + 1, f64::max(most, f64::from(value))));
        // Judged once an epoch, however often it draws.
        if draw.part == 0 {
            let mean = draw.importance.and_then(crate::importance::Table::mean_loss);
            self.fell_back = self.falls_back(mean, draw.accuracy);
        }
        let falls_back = self.fell_back;
        let setup = &self.selection.setup;
        let ranking = self.selection.rank(draw, &values);
        if known == 0 || falls_back || setup.is_full_last(draw.epoch) {
            let (ids, keys) = (self.selection.all_samples(draw), self.selection.keys(values, &ranking));
            return Drawn { ids, keys: Some(keys), ..Drawn::default() };
        }
        let unknown = if most > 0.0 { most } else { 1.0 };
        // All scores may be 0 where losses are: then all samples are as likely.
        let floor = if most > 0.0 { 0.0 } else { 1.0 };
        let weight = |value: &f32| if value.is_nan() { unknown } else { f64::from(*value).max(floor) };
        let mut rng = Rng::new(setup.seed, draw.number(), "pads");
        let mut drawn = multinomial(values.iter().map(weight), setup.samples, &mut rng);
        rng.shuffle(&mut drawn);
        let mut ids = carried_front(setup.end(), draw.carried.unwrap_or_default());
        let front = ids.len();
        let repeat = setup.values.whole("repeat") as usize;
        let is_resident = |id: &Id| draw.residents.is_some_and(|residents| residents.contains(*id));
        if repeat > 1 {
            let (residents, others): (Vec<Id>, Vec<Id>) = drawn.into_iter().partition(is_resident);
            drawn =
                residents.into_iter().flat_map(|id| std::iter::repeat_n(id, repeat)).chain(others).collect();
        }
        drawn.truncate(setup.samples.saturating_sub(front));
        ids.extend(drawn);
        if repeat > 1 {
            rng.shuffle(&mut ids[front..]);
        }
        Drawn { ids, keys: Some(self.selection.keys(values, &ranking)), ..Drawn::default() }
    }

    fn repeats(&self) -> bool {
        true
    }

    fn needs_losses(&self) -> bool {
        true
    }

    fn score(&self) -> Score {
        self.score
    }

    fn looks_at_residents(&self, _packages: bool) -> bool {
        self.selection.setup.values.whole("repeat") > 1
    }

    fn waits_for_trainer(&self) -> bool {
        true
    }

    fn save(&self) -> Vec<u8> {
        let mut out = Writer::new(self.selection.setup.samples);
        // No mean is ever not a number.
        let numbers = std::iter::once(self.mean.unwrap_or(f64::NAN)).chain(self.accuracies.iter().copied());
        numbers.for_each(|number| out.fixed(number.to_bits(), 8));
        out.seal(self.name())
    }

    fn restore(&mut self, saved: &[u8]) -> Result<()> {
        self.read(saved).ok_or_else(foreign)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::importance::{Report, Table};
    use crate::sampling::Residents;

    #[test]
    fn draws_are_as_likely_as_their_weights() {
        let weights = [1.0, 0.0, 3.0, 6.0];
        let mut counts = [0u32; 4];
        for id in multinomial(weights.iter().copied(), 100_000, &mut Rng::new(1, 0, "test")) {
            counts[id as usize] += 1;
        }
        assert_eq!((counts[1], counts.iter().sum::<u32>()), (0, 100_000));
        // Standard deviations of 95, 145 and 155.
        assert!(counts[0].abs_diff(10_000) < 475 && counts[2].abs_diff(30_000) < 725, "{counts:?}");
        assert!(counts[3].abs_diff(60_000) < 775, "{counts:?}");
    }

    /// Every third of these is resident.
    fn some_residents(samples: usize) -> Residents {
        let setup = crate::policy::Setup::new(samples as u64, Arc::new(vec![1; samples]), 0);
        let mut policy = (crate::policy::find("minio").unwrap().build)(setup);
        for id in (0..samples as Id).step_by(3) {
            policy.access(id, &crate::policy::NoDue, &mut Vec::new());
        }
        Residents::of(&*policy, samples)
    }

    fn counted(samples: usize, repeat: &str, residents: &Residents) -> Vec<u32> {
        let values = ENTRY.values([("repeat", repeat)]).unwrap();
        let mut pads = Pads::new(Setup { values, ..Setup::new(samples, 4) }, Score::Rank);
        let mut table = Table::of_scores(samples, Score::Rank);
        let report = |id| Report { id, value: 1.0 + id as f32, loss: 1.0, epoch: 0, step: 0, late: false };
        table.apply(&(0..samples as Id).map(report).collect::<Vec<_>>());
        let drawn = pads.draw(&Draw {
            epoch: 1,
            world: 1,
            importance: Some(&table),
            residents: Some(residents),
            ..Draw::default()
        });
        assert_eq!(drawn.ids.len(), samples);
        let mut counts = vec![0; samples];
        drawn.ids.iter().for_each(|&id| counts[id as usize] += 1);
        counts
    }

    #[test]
    fn every_draw_of_a_resident_is_served_so_often_and_the_others_fill_what_is_left() {
        let residents = some_residents(900);
        let (once, twice) = (counted(900, "1", &residents), counted(900, "2", &residents));
        for (id, (once, twice)) in (0..).zip(once.iter().zip(&twice)) {
            if residents.contains(id) {
                assert_eq!(*twice, 2 * once, "{id} was drawn {once} times");
            } else {
                assert!(twice <= once, "{id} was drawn {once} times and is served {twice} times");
            }
        }
        // A third of the draws are residents', so that three times as many fill the epoch.
        let often = counted(900, "5", &residents);
        let served: u32 = (0..900).filter(|id| residents.contains(*id)).map(|id| often[id as usize]).sum();
        assert_eq!(served, 900, "there is no room for others, and no epoch is longer");
    }

    #[test]
    fn the_guard_watches_losses_and_not_ranks() {
        let mut pads = Pads::new(Setup::new(100, 0), Score::Rank);
        let mut table = Table::of_scores(100, Score::Rank);
        let mut shuffles = Vec::new();
        for (epoch, loss) in (0..).zip([2.0, 1.9, 1.4, 1.3, 1.0, 0.9]) {
            let drawn = pads.draw(&Draw { epoch, world: 1, importance: Some(&table), ..Draw::default() });
            let distinct: std::collections::BTreeSet<Id> = drawn.ids.iter().copied().collect();
            shuffles.push(distinct.len() == 100);
            // Ranks are the same whatever the losses are.
            let report = |id| Report { id, value: 3.0, loss, epoch: epoch as u32, step: 0, late: false };
            table.apply(&(0..100).map(report).collect::<Vec<_>>());
        }
        assert_eq!(
            shuffles,
            [true, false, false, true, false, true],
            "1.4 and 1.0 are more than a fifth less"
        );
    }

    #[test]
    fn a_steep_fall_and_accuracy_that_stands_still_make_it_shuffle() {
        let mut pads = Pads::new(Setup::new(10, 0), Score::Rank);
        assert!(!pads.falls_back(Some(10.0), None));
        assert!(!pads.falls_back(Some(8.0), Some(0.5)));
        assert!(pads.falls_back(Some(6.0), Some(0.6)), "6 is less than four fifths of 8");
        assert!(!pads.falls_back(Some(6.0), Some(0.7)));
        assert!(pads.falls_back(Some(6.0), Some(0.5)), "no gain over three epochs");
        assert!(!pads.falls_back(Some(6.0), Some(0.8)));
    }
}
