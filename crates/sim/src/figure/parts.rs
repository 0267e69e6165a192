//! One technique after the other: iCache figures 10 and 11, ImPACT figure 14.

use hotset_core::Result;

use super::{Arm, Arms, Drawn, Figure, FigureInputs, percent, row, times};
use crate::report::Bars;

pub(super) const ICACHE_10: Figure = Figure {
    name: "icache-10",
    source: "iCache, figure 10",
    shows: "what each technique adds to training time",
    draw: |inputs| parts(inputs, "iis", "icache", &["1", "1.4 x", "1.7 x", "2.3 x"], &["-", "-", "-", "-"]),
};

pub(super) const ICACHE_11: Figure = Figure {
    name: "icache-11",
    source: "iCache, figure 11",
    shows: "what each technique adds to the hit ratio",
    draw: |inputs| {
        parts(inputs, "iis", "icache", &["1", "1.4 x", "1.7 x", "2.3 x"], &["2 %", "2 %", "25 %", "37 %"])
    },
};

pub(super) const IMPACT_14: Figure = Figure {
    name: "impact-14",
    source: "ImPACT, figure 14",
    shows: "what each technique adds to time and hit ratio",
    draw: |inputs| {
        parts(inputs, "hybrid", "impact", &["1", "1.9 x", "3.9 x", "4.6 x"], &["-", "-", "37 %", "43 %"])
    },
};

fn parts(
    inputs: &FigureInputs<'_>,
    strategy: &str,
    policy: &str,
    speedups: &[&str; 4],
    hits: &[&str; 4],
) -> Result<Drawn> {
    let own = format!("{strategy}+{policy}");
    let arms = [
        Arm::new("Base (cis+lru)", "cis+lru", "20%"),
        Arm::new(&format!("+{strategy} ({strategy}+lru)"), &format!("{strategy}+lru"), "20%"),
        Arm::new(&format!("+H-cache ({own})"), &own, "20%"),
        Arm::new("All (with packages)", &own, "20%").packed(),
        Arm::new("bound (belady)", &format!("{strategy}+belady"), "20%"),
    ];
    let arms = Arms::run(inputs, &arms)?;
    let rows = arms.labels.iter().zip(&arms.means).enumerate().map(|(index, (label, mean))| {
        vec![
            label.clone(),
            (*speedups.get(index).unwrap_or(&"-")).to_owned(),
            times(arms.speedup(index, 0)),
            (*hits.get(index).unwrap_or(&"-")).to_owned(),
            percent(mean.papers_hit_ratio()),
            percent(mean.hit_ratio()),
            format!("{:.0}", mean.storage_reads),
            format!("{:.0}", mean.storage_requests),
        ]
    });
    let bar = |values: &dyn Fn(usize) -> Vec<f64>| {
        arms.labels
            .iter()
            .cloned()
            .enumerate()
            .map(|(index, label)| (label, values(index)))
            .collect::<Vec<_>>()
    };
    let servings = Bars {
        title: "Where servings come from".into(),
        x: "servings an epoch".into(),
        parts: vec!["hit".into(), "packed".into(), "single".into()],
        bars: bar(&|index| vec![arms.means[index].hit, arms.means[index].packed, arms.means[index].single]),
    };
    let seconds = Bars {
        title: "Modelled time of an epoch".into(),
        x: "seconds".into(),
        parts: vec!["computing".into(), "wait".into()],
        bars: bar(&|index| vec![arms.means[index].seconds - arms.means[index].wait, arms.means[index].wait]),
    };
    Ok(Drawn {
        head: row(["step", "speedup, paper", "ours", "hit, paper", "hit (paper's), ours", "hit, ours", "reads", "requests"]),
        rows: rows.collect(),
        reasons: vec![
            "The papers' 37 % and 43 % are neither our `hit` nor our `hit (paper's)`: their code counts an L-sample \
             as a hit that costs a disk read of its own, and substitutes at the miss."
                .into(),
            "With packages every L-sample comes in a package, which the papers' ratio counts as a hit; the \
             requests, not the ratio, tell what storage had to do."
                .into(),
        ],
        plots: vec![(servings.title.clone(), servings.svg()), (seconds.title.clone(), seconds.svg())],
        ..Drawn::default()
    })
}
