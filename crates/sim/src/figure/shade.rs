//! SHADE's hit ratios: figures 5, 7 and 12.
//!
//! Its strategies draw with repetition, so a serving may hit because the same epoch served it before. That
//! buys hits at the price of coverage, which stands beside them.

use hotset_core::Result;

use super::{Arm, Arms, Drawn, Figure, FigureInputs, percent, row, times};
use crate::report::{Bars, Lines, Series};

pub(super) const SHADE_5: Figure = Figure {
    name: "shade-5",
    source: "SHADE, figure 5",
    shows: "a naive priority hits no more than LRU and LFU",
    draw: naive,
};

pub(super) const SHADE_7: Figure = Figure {
    name: "shade-7",
    source: "SHADE, figure 7",
    shows: "read hit ratio by policy and cache size",
    draw: policies,
};

pub(super) const SHADE_12: Figure = Figure {
    name: "shade-12",
    source: "SHADE, figure 12",
    shows: "hit ratio at 20 %, beside CoorDL and Quiver",
    draw: beside_others,
};

const SIZES: [(&str, f64); 4] = [("10%", 10.0), ("25%", 25.0), ("50%", 50.0), ("75%", 75.0)];

/// Every pair at every size: a row a pair, a column a size.
fn sweep(inputs: &FigureInputs<'_>, pairs: &[(&str, &str)]) -> Result<(Arms, Vec<Series>)> {
    let arms: Vec<Arm> = pairs
        .iter()
        .flat_map(|(label, pair)| SIZES.iter().map(move |(size, _)| Arm::new(label, pair, size)))
        .collect();
    let arms = Arms::run(inputs, &arms)?;
    let series = pairs.iter().enumerate().map(|(index, (label, _))| Series {
        name: (*label).to_owned(),
        points: SIZES
            .iter()
            .enumerate()
            .map(|(at, (_, size))| (*size, 100.0 * arms.means[index * SIZES.len() + at].hit_ratio()))
            .collect(),
    });
    let series = series.collect();
    Ok((arms, series))
}

fn plot(series: Vec<Series>) -> (String, String) {
    let lines = Lines {
        title: "Hits by cache size".into(),
        x: "cache, % of the dataset".into(),
        y: "hits, % of servings".into(),
        series,
        markers: true,
    };
    (lines.title.clone(), lines.svg())
}

fn naive(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let pairs = [
        ("LRU", "batchloss+lru"),
        ("LFU", "batchloss+lfu"),
        ("priority", "batchloss+pq"),
        ("MIN", "batchloss+belady"),
    ];
    let (arms, series) = sweep(inputs, &pairs)?;
    let rows = pairs.iter().enumerate().map(|(index, (label, pair))| {
        let hits = (0..SIZES.len()).map(|at| percent(arms.means[index * SIZES.len() + at].hit_ratio()));
        let paper = if *label == "MIN" { "highest" } else { "the same, low" };
        [format!("{label} ({pair})"), paper.to_owned()].into_iter().chain(hits).collect()
    });
    Ok(Drawn {
        head: row(["policy", "paper", "10 %", "25 %", "50 %", "75 %"]),
        rows: rows.collect(),
        reasons: vec!["The paper's text gives no number for this figure, only its shape.".into()],
        plots: vec![plot(series)],
        ..Drawn::default()
    })
}

fn policies(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let pairs = [
        ("baseline LRU", "uniform+lru"),
        ("sh_lru", "batchloss+lru"),
        ("sh_lfu", "batchloss+lfu"),
        ("sh_rand", "batchloss+random"),
        ("sh_pq", "batchloss+pq"),
        ("sh_pqlfu", "batchloss+pq_lfu"),
        ("sh_app", "batchloss+app"),
        ("SHADE", "pads+app"),
        ("SHADE, repeat 3", "pads[repeat=3]+app"),
        ("MIN", "pads+belady"),
    ];
    let paper = |label: &str| match label {
        "baseline LRU" => "1",
        "SHADE" => "4.5 x",
        "sh_app" => "2.67 x",
        "MIN" | "SHADE, repeat 3" => "-",
        _ => "about 1.94 x",
    };
    let (arms, series) = sweep(inputs, &pairs)?;
    let base = arms.means[0].hit_ratio();
    let rows = pairs.iter().enumerate().map(|(index, (label, pair))| {
        let means = &arms.means[index * SIZES.len()..(index + 1) * SIZES.len()];
        let mut cells =
            vec![format!("{label} ({pair})"), paper(label).into(), times(means[0].hit_ratio() / base)];
        cells.extend(means.iter().map(|mean| percent(mean.hit_ratio())));
        cells.push(percent(means[0].coverage));
        cells
    });
    Ok(Drawn {
        head: row(["policy", "at 10 %, paper", "ours", "10 %", "25 %", "50 %", "75 %", "coverage"]),
        rows: rows.collect(),
        reasons: vec![
            "The ratios are to the baseline LRU's hits at 10 %, which for uniform epochs are 0.5 %: a ratio to so \
             small a number says little. Over as low a baseline the paper's 4.5 x would be 2.3 %, so its baseline \
             must be another one."
                .into(),
            "Coverage is of an epoch at 10 %: draws with repetition serve fewer different samples.".into(),
        ],
        plots: vec![plot(series)],
        ..Drawn::default()
    })
}

fn beside_others(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let systems = [
        ("SHADE (pads[repeat=3]+app)", "pads[repeat=3]+app", "72.5 %"),
        ("SHADE without repeat (pads+app)", "pads+app", "-"),
        ("Emul_Coor (batchloss+minio)", "batchloss+minio", "about 20 %"),
        ("Emul_Quiv (quiver+quiver)", "quiver+quiver", "about 20 %"),
    ];
    let arms: Vec<Arm> = systems.iter().map(|(label, pair, _)| Arm::new(label, pair, "20%")).collect();
    let arms = Arms::run(inputs, &arms)?;
    let rows = systems.iter().enumerate().map(|(index, (label, _, paper))| {
        let mean = &arms.until_full[index];
        vec![
            (*label).to_owned(),
            (*paper).to_owned(),
            percent(mean.hit_ratio()),
            percent(mean.coverage),
            format!("{:.0}", mean.storage_reads),
            arms.full[index].to_string(),
            percent(arms.means[index].hit_ratio()),
        ]
    });
    let bars = Bars {
        title: "Hits and coverage at 20 %".into(),
        x: "% of servings that hit".into(),
        parts: vec!["hit".into()],
        bars: arms
            .labels
            .iter()
            .zip(&arms.until_full)
            .map(|(label, mean)| (label.clone(), vec![100.0 * mean.hit_ratio()]))
            .collect(),
    };
    Ok(Drawn {
        head: row(["system", "hit, paper", "hit, ours", "coverage", "reads", "full epochs", "hit, all epochs"]),
        rows: rows.collect(),
        reasons: vec![
            "SHADE's hits are bought with repetition: each draw of a resident is served three times here. The paper does \
             not say how often its own repeats, and more would buy more. Coverage says what an epoch still shows \
             the model."
                .into(),
            "Ours are means from the second epoch to the first after it that is a plain shuffle: the guard of `pads` \
             shuffles when the mean loss fell by more than a fifth, which it does late, as the loss goes to nothing. \
             How many epochs after the first serve every sample, and the hits over all epochs, stand beside."
                .into(),
        ],
        plots: vec![(bars.title.clone(), bars.svg())],
        ..Drawn::default()
    })
}
