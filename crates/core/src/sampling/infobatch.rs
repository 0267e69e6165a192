//! `infobatch` (Qin et al., ICLR 2024): half of the easy samples are left out, the other half counts double.
//!
//! Samples at or above the mean loss, and those never reported, are served with weight 1. Of the rest, a
//! random share `keep` is served with weight 1 / `keep`, so the expected gradient is that of all samples. The
//! last epochs (`full_last`: an eighth of the run, rounded down, where its length is known) are full and
//! unweighted.
//!
//! The mean gradient of each step grows by n / |plan|, because weights add up to n over fewer samples: a
//! learning rate tuned for full epochs is slightly too high.
//!
//! Differs from the paper: the share kept is exact.

use super::selection::Selection;
use super::uniform::carried_front;
use super::{Draw, Drawn, Entry, FULL_LAST, Strategy};
use crate::settings::{Domain, Parameter};
use crate::{Id, Rng};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "keep",
        default: "0.5",
        domain: Domain::Number(0.01, 1.0),
        summary: "share of the samples below the mean loss that is served",
    },
    Parameter { default: "0.125", ..FULL_LAST },
];

pub(super) const ENTRY: Entry = Entry {
    name: "infobatch",
    summary: "serves a random half of the samples below the mean loss, with weight 2 (InfoBatch)",
    policy: "minio",
    parameters: PARAMETERS,
    build: |setup| Box::new(Infobatch(Selection::new(setup, PARAMETERS))),
};

struct Infobatch(Selection);

impl Strategy for Infobatch {
    fn draw(&mut self, draw: &Draw<'_>) -> Drawn {
        let setup = &self.0.setup;
        let values = self.0.values(draw);
        let ranking = self.0.rank(draw, &values);
        let (sum, known) = values
            .iter()
            .filter(|value| !value.is_nan())
            .fold((0.0f64, 0u64), |(sum, known), &value| (sum + f64::from(value), known + 1));
        let mean = sum / known.max(1) as f64;
        let mut rng = Rng::new(setup.seed, draw.number(), "infobatch");
        let all_samples = self.0.all_samples(draw);
        if known == 0 || setup.is_full_last(draw.epoch) {
            let keys = Some(self.0.keys(values, &ranking));
            return Drawn { ids: all_samples, keys, ..Drawn::default() };
        }
        let front = carried_front(setup.end(), draw.carried.unwrap_or_default());
        let is_easy = |id: Id| f64::from(values[id as usize]) < mean;
        let mut easy: Vec<Id> =
            all_samples[front.len()..].iter().copied().filter(|&id| is_easy(id)).collect();
        rng.shuffle(&mut easy);
        let keep = setup.values.share("keep");
        easy.truncate((easy.len() as f64 * keep).round() as usize);
        easy.sort_unstable();
        let (mut ids, mut weights) = (Vec::new(), Vec::new());
        for (slot, &id) in all_samples.iter().enumerate() {
            let kept = !is_easy(id) || slot < front.len();
            if kept || easy.binary_search(&id).is_ok() {
                ids.push(id);
                weights.push(if is_easy(id) { (1.0 / keep) as f32 } else { 1.0 });
            }
        }
        Drawn { ids, weights, keys: Some(self.0.keys(values, &ranking)), ..Drawn::default() }
    }

    fn repeats(&self) -> bool {
        false
    }

    fn needs_losses(&self) -> bool {
        true
    }
}
