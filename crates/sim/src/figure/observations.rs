//! What a trace says of importance itself: ImPACT figures 5a, 8 and 15.
//!
//! No cache takes part. Ranks, their variance and the set S are those of the strategies; S is what a quarter
//! of a cache of a fifth of the dataset holds.

use hotset_core::importance::{OVERLAP, Ranking, Volatility};
use hotset_core::{Error, Id, Result};

use super::{Drawn, Figure, FigureInputs, percent, row};
use crate::Trace;
use crate::report::{Bars, Lines, Series};
use crate::timeline::{StorageClock, Timeline};

pub(super) const IMPACT_5A: Figure = Figure {
    name: "impact-5a",
    source: "ImPACT, figure 5a",
    shows: "most samples' ranks are stable",
    draw: |inputs| variance(inputs),
};

pub(super) const IMPACT_8: Figure = Figure {
    name: "impact-8",
    source: "ImPACT, figure 8",
    shows: "the set of unstable samples settles soon",
    draw: |inputs| settling(inputs),
};

pub(super) const IMPACT_15: Figure = Figure {
    name: "impact-15",
    source: "ImPACT, figure 15",
    shows: "finding the hardest hundredth, and its cost",
    draw: |inputs| precision(inputs),
};

pub(super) const IMPACT_OBSERVATIONS: Figure = Figure {
    name: "impact-observations",
    source: "ImPACT, figures 5a, 8 and 15",
    shows: "all three observations at once",
    draw: |inputs| {
        let mut all = Drawn { head: row(["", "paper", "ours"]), ..Drawn::default() };
        for drawn in [variance(inputs)?, settling(inputs)?, precision(inputs)?] {
            all.rows.extend(drawn.rows.into_iter().map(|cells| cells.into_iter().take(3).collect()));
            all.reasons.extend(drawn.reasons);
            all.plots.extend(drawn.plots);
        }
        Ok(all)
    },
};

/// S as a share of the dataset: a quarter of a fifth.
const SET: f64 = 0.25 * 0.20;
/// Where all reports are kept, ties need some seed.
const SEED: u64 = 0;

/// The traces there are, by name.
fn traces<'a>(inputs: &'a FigureInputs<'_>) -> Vec<(&'static str, &'a Trace)> {
    let reevaluated = inputs.scenario.reevaluated.as_deref();
    [("training losses", Some(&*inputs.scenario.trace)), ("re-evaluated losses", reevaluated)]
        .into_iter()
        .filter_map(|(name, trace)| Some((name, trace?)))
        .collect()
}

fn variance(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let mut drawn = Drawn { head: row(["", "paper", "ours"]), ..Drawn::default() };
    let mut series = Vec::new();
    for (name, trace) in traces(inputs) {
        let mut volatility = Volatility::new(trace.samples());
        (0..trace.epochs()).for_each(|epoch| volatility.observe(trace.row(epoch), SEED, epoch as u64));
        let variances = volatility.variances();
        let mean =
            variances.iter().map(|&variance| f64::from(variance)).sum::<f64>() / variances.len() as f64;
        let below = variances.iter().filter(|&&variance| f64::from(variance) < mean).count();
        let share = below as f64 / variances.len() as f64;
        drawn.rows.push(vec![
            format!("samples below the mean variance, {name}"),
            "62 %".into(),
            percent(share),
        ]);
        series.push(density(name, &variances));
    }
    let plot = Lines {
        title: "Density of the variance of ranks".into(),
        x: "variance of the percentile over epochs".into(),
        y: "% of samples".into(),
        series,
        markers: false,
    };
    drawn.plots.push((plot.title.clone(), plot.svg()));
    drawn.reasons.push(
        "The paper's 62 % are of a training of its own. That most ranks are stable holds less well here: little \
         more than half lie below the mean, so the distribution is close to symmetric."
            .into(),
    );
    Ok(drawn)
}

/// The share of samples in each of sixty intervals.
fn density(name: &str, variances: &[f32]) -> Series {
    const INTERVALS: usize = 60;
    let most = variances.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    let mut counts = [0u32; INTERVALS];
    for variance in variances {
        counts[((variance / most * INTERVALS as f32) as usize).min(INTERVALS - 1)] += 1;
    }
    let middle = |at: usize| (at as f64 + 0.5) / INTERVALS as f64 * f64::from(most);
    let share = |count: u32| 100.0 * f64::from(count) / variances.len() as f64;
    let points = counts.iter().enumerate().map(|(at, &count)| (middle(at), share(count))).collect();
    Series { name: name.to_owned(), points }
}

/// The set S after each epoch.
fn sets(trace: &Trace) -> Vec<Vec<Id>> {
    let count = (trace.samples() as f64 * SET).round() as usize;
    let mut volatility = Volatility::new(trace.samples());
    (0..trace.epochs())
        .map(|epoch| {
            volatility.observe(trace.row(epoch), SEED, epoch as u64);
            let ranking = Ranking::of(&volatility.variances(), SEED, epoch as u64);
            let mut set: Vec<Id> = ranking.order().iter().rev().take(count).copied().collect();
            set.sort_unstable();
            set
        })
        .collect()
}

/// The share of `set` that is also in `other`; both are sorted.
fn overlap(set: &[Id], other: &[Id]) -> f64 {
    let shared = set.iter().filter(|id| other.binary_search(id).is_ok()).count();
    shared as f64 / set.len().max(1) as f64
}

/// The first epoch whose S is stable, and its S; the last one's if none is. Before the third epoch there is
/// nothing to compare: of one observation every variance is 0.
fn stable(sets: &[Vec<Id>]) -> (usize, &[Id]) {
    let epoch = (2..sets.len()).find(|&epoch| overlap(&sets[epoch], &sets[epoch - 1]) > OVERLAP);
    let epoch = epoch.unwrap_or(sets.len() - 1);
    (epoch, &sets[epoch])
}

fn settling(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let mut drawn = Drawn { head: row(["", "paper", "ours"]), ..Drawn::default() };
    let mut series = Vec::new();
    for (name, trace) in traces(inputs) {
        let sets = sets(trace);
        let (epoch, _) = stable(&sets);
        drawn.rows.push(vec![
            format!("epochs of warm-up, {name}"),
            "6.4 (mean of eight models)".into(),
            (epoch + 1).to_string(),
        ]);
        let points = (1..sets.len().min(30))
            .map(|epoch| (epoch as f64 + 1.0, 100.0 * overlap(&sets[epoch], &sets[epoch - 1])));
        series.push(Series { name: name.to_owned(), points: points.collect() });
    }
    let plot = Lines {
        title: "How much of S was in the S of the epoch before".into(),
        x: "epochs trained".into(),
        y: "% of S".into(),
        series,
        markers: true,
    };
    drawn.plots.push((plot.title.clone(), plot.svg()));
    drawn.reasons.push(
        "S is stable when it shares more than 80 % with the one before; epochs are counted from 1.".into(),
    );
    Ok(drawn)
}

/// The ids of the hardest hundredth, sorted.
fn hardest(losses: &[f32], epoch: usize) -> Vec<Id> {
    let losses: Vec<f32> = losses.iter().map(|&loss| if loss.is_nan() { 0.0 } else { loss }).collect();
    let ranking = Ranking::of(&losses, SEED, epoch as u64);
    let mut top: Vec<Id> = ranking.order().iter().rev().take((losses.len() / 100).max(1)).copied().collect();
    top.sort_unstable();
    top
}

/// Gives the values that the members of `set` have to them anew, in the order of `fresh`.
fn reorder(values: &mut [f32], set: &[Id], fresh: &[f32]) {
    let mut held: Vec<f32> = set.iter().map(|&id| values[id as usize]).collect();
    held.sort_unstable_by(f32::total_cmp);
    let mut order = set.to_vec();
    order.sort_by(|&a, &b| fresh[a as usize].total_cmp(&fresh[b as usize]));
    for (id, value) in order.into_iter().zip(held) {
        values[id as usize] = value;
    }
}

fn precision(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let (trace, Some(reevaluated)) = (&inputs.scenario.trace, &inputs.scenario.reevaluated) else {
        return Err(Error::invalid(
            "this figure compares with losses under the current model: give a trace that has them, as `reevaluated`",
        ));
    };
    let sets = sets(trace);
    let (warm, set) = stable(&sets);
    let mut history = vec![0.0f32; trace.samples()];
    let (mut by_history, mut by_hybrid, mut in_set) = (Vec::new(), Vec::new(), 0.0);
    for epoch in 0..trace.epochs() {
        for (last, &loss) in history.iter_mut().zip(trace.row(epoch)) {
            *last = if loss.is_nan() { *last } else { loss };
        }
        if epoch < warm {
            continue;
        }
        let fresh = reevaluated.row(epoch);
        let truth = hardest(fresh, epoch);
        let mut hybrid = history.clone();
        reorder(&mut hybrid, set, fresh);
        by_history.push((epoch as f64 + 1.0, 100.0 * overlap(&truth, &hardest(&history, epoch))));
        by_hybrid.push((epoch as f64 + 1.0, 100.0 * overlap(&truth, &hardest(&hybrid, epoch))));
        in_set += overlap(&truth, set);
    }
    let mean = |points: &[(f64, f64)]| {
        points.iter().map(|point| point.1).sum::<f64>() / points.len().max(1) as f64 / 100.0
    };
    let (seconds_set, seconds_all) =
        (costs(inputs, set, &[]), costs(inputs, &all_samples(trace), &all_samples(trace)));
    let cells = |name: &str, paper: &str, ours: f64, seconds: f64| {
        vec![name.to_owned(), paper.to_owned(), percent(ours), format!("{seconds:.2}")]
    };
    let bars = Bars {
        title: "Modelled seconds to re-evaluate, before each epoch".into(),
        x: "seconds".into(),
        parts: vec!["seconds".into()],
        bars: vec![
            ("history".into(), vec![0.0]),
            ("hybrid".into(), vec![seconds_set]),
            ("realtime".into(), vec![seconds_all]),
        ],
    };
    let share = in_set / by_history.len().max(1) as f64;
    let plot = Lines {
        title: "Top 1 % found".into(),
        x: "epochs trained".into(),
        y: "% of the hardest hundredth".into(),
        series: vec![
            Series { name: "history".into(), points: by_history.clone() },
            Series { name: "hybrid".into(), points: by_hybrid.clone() },
        ],
        markers: false,
    };
    Ok(Drawn {
        head: row(["top 1 % found by", "paper", "ours", "evaluation s"]),
        rows: vec![
            cells("top 1 % found by history", "-", mean(&by_history), 0.0),
            cells("top 1 % found by hybrid", "9 to 28 % better than history", mean(&by_hybrid), seconds_set),
            cells("top 1 % found by realtime", "100 %; 25 x slower than hybrid", 1.0, seconds_all),
        ],
        reasons: vec![
            format!(
                "The truth is the loss under the model at the end of an epoch; means over the epochs after the warm-up. \
                 S, 5 % of all samples, holds {} of the true top 1 %: chance would hold 5 %.",
                percent(share)
            ),
            format!(
                "realtime's evaluation takes {} times hybrid's; the paper has 25. Hybrid's needs no reads here, because \
                 S lies in its buffer. Re-evaluating S can find no more of the top than S holds.",
                if seconds_set > 0.0 {
                    format!("{:.0}", seconds_all / seconds_set)
                } else {
                    "infinitely many".into()
                }
            ),
        ],
        plots: vec![(plot.title.clone(), plot.svg()), (bars.title.clone(), bars.svg())],
        ..Drawn::default()
    })
}

fn all_samples(trace: &Trace) -> Vec<Id> {
    (0..trace.samples() as Id).collect()
}

/// Modelled seconds to evaluate `ids`, of which `read` come from storage.
fn costs(inputs: &FigureInputs<'_>, ids: &[Id], read: &[Id]) -> f64 {
    let mut storage = StorageClock::new(inputs.scenario.storage);
    let mut timeline = Timeline::new(inputs.scenario.compute, 0.0);
    timeline.begin_epoch(false);
    timeline.evaluate(&mut storage, read.iter().map(|&id| inputs.scenario.sizes.size(id)), ids.len());
    timeline.end_epoch().seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reordering_keeps_the_values_and_gives_them_in_the_new_order() {
        let mut values = [5.0, 1.0, 9.0, 3.0];
        reorder(&mut values, &[0, 1, 3], &[0.1, 0.3, 0.0, 0.2]);
        assert_eq!(values, [1.0, 5.0, 9.0, 3.0]);
    }

    #[test]
    fn the_hardest_are_found_and_not_a_number_is_not_among_them() {
        let mut losses = vec![1.0f32; 200];
        (losses[7], losses[150], losses[9]) = (3.0, 2.0, f32::NAN);
        assert_eq!(hardest(&losses, 0), [7, 150]);
        assert_eq!(hardest(&[4.0], 0), [0]);
        assert!((overlap(&[1, 2, 3, 4], &[2, 4, 9]) - 0.5).abs() < 1e-12);
    }
}
