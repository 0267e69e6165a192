//! What strategies that change what is trained cost in accuracy where it was measured.
//!
//! `accuracy.json` is made from the runs in `benchmarks/train/results` by `python -m benchmarks.train.accuracy`, and a test
//! fails when it is stale. Nothing of it is known for other data.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// What one strategy cost in one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The pair, as it is written for a replay.
    pub pair: String,
    /// Its cache.
    pub cache: String,
    /// The images.
    pub dataset: String,
    /// The model.
    pub model: String,
    /// The epochs.
    pub epochs: u32,
    /// How many seeds the means are over.
    pub seeds: u32,
    /// Whether images were cropped and mirrored at random.
    pub augmented: bool,
    /// What it is held against.
    pub baseline: String,
    /// That one's top-1 accuracy, in percent.
    pub baseline_top1: f64,
    /// Points of top-1 accuracy lost.
    pub lost: f64,
    /// Half the width of its 95 % interval.
    pub half: f64,
}

const FILE: &str = include_str!("accuracy.json");

/// Everything that was measured.
pub fn costs() -> &'static [Cost] {
    static COSTS: OnceLock<Vec<Cost>> = OnceLock::new();
    COSTS.get_or_init(|| serde_json::from_str(FILE).unwrap_or_default())
}

/// What was measured of one pair with such a cache, with images augmented and not; with another cache where there is
/// nothing with this one.
pub(super) fn of(pair: &str, cache: &str) -> Vec<Cost> {
    let all = || costs().iter().filter(|cost| cost.pair == pair);
    let own: Vec<Cost> = all().filter(|cost| cost.cache == cache).cloned().collect();
    if own.is_empty() { all().cloned().collect() } else { own }
}

/// What was lost elsewhere, in words: a dataset after the other, and what all of it has in common.
pub(super) fn shown(costs: &[Cost]) -> String {
    let Some(first) = costs.first() else { return String::new() };
    let each: Vec<String> = costs
        .iter()
        .map(|cost| {
            let plain = if cost.augmented { "" } else { " not augmented" };
            format!("{}{plain} {:.2} ± {:.2}", cost.dataset, cost.lost, cost.half)
        })
        .collect();
    format!(
        "{} points of top-1 lost ({}, {} epochs, cache {}, {} seeds)",
        each.join(", "),
        first.model,
        first.epochs,
        first.cache,
        first.seeds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_every_pair_that_is_proposed_on_two_datasets() {
        for pair in crate::doctor::candidates::LOSSY {
            let known = of(pair.name, "20%");
            let datasets: std::collections::BTreeSet<&str> =
                known.iter().map(|cost| cost.dataset.as_str()).collect();
            assert_eq!(datasets.len(), 2, "{}: {known:?}", pair.name);
            assert!(known.iter().all(|cost| cost.seeds >= 5 && cost.half > 0.0), "{known:?}");
        }
    }
}
