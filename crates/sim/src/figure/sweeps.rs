//! One setting over its range: iCache figures 15 and 16, ImPACT figures 20, 21 and 22.

use hotset_core::Result;

use super::{Arm, Arms, Drawn, Figure, FigureInputs, percent, row, times};
use crate::report::{Lines, Series};
use crate::timeline::Storage;

pub(super) const ICACHE_15: Figure = Figure {
    name: "icache-15",
    source: "iCache, figure 15",
    shows: "speedup by the number of workers",
    draw: workers,
};

pub(super) const ICACHE_16: Figure = Figure {
    name: "icache-16",
    source: "iCache, figure 16",
    shows: "speedup and hit ratio by cache size",
    draw: |inputs| {
        let paper = [
            ("1.7 x", "37 %", "2 %"),
            ("1.9 x", "55 %", "9 %"),
            ("2.1 x", "69 %", "23 %"),
            ("2.4 x", "83 %", "48 %"),
        ];
        cache_sizes(inputs, "iis+icache", &paper)
    },
};

pub(super) const IMPACT_20: Figure = Figure {
    name: "impact-20",
    source: "ImPACT, figure 20",
    shows: "speedup and hit ratio by cache size",
    draw: |inputs| {
        let paper = [
            ("2.9 x", "43 %", "2 %"),
            ("3.1 x", "61 %", "9 %"),
            ("3.3 x", "74 %", "23 %"),
            ("3.6 x", "88 %", "48 %"),
        ];
        cache_sizes(inputs, "hybrid+impact", &paper)
    },
};

pub(super) const IMPACT_21: Figure = Figure {
    name: "impact-21",
    source: "ImPACT, figure 21",
    shows: "hit ratio and time by the size of the set S",
    draw: set_sizes,
};

pub(super) const IMPACT_22: Figure =
    Figure { name: "impact-22", source: "ImPACT, figure 22", shows: "speedup on local disks", draw: disks };

const SIZES: [&str; 4] = ["20%", "40%", "60%", "80%"];

fn cache_sizes(inputs: &FigureInputs<'_>, own: &str, paper: &[(&str, &str, &str); 4]) -> Result<Drawn> {
    let mut arms = Vec::new();
    for size in SIZES {
        arms.push(Arm::new("Default", "uniform+lru", size));
        arms.push(Arm::new("with packages", own, size).packed());
        arms.push(Arm::new("without packages", own, size));
    }
    let arms = Arms::run(inputs, &arms)?;
    let rows = SIZES.iter().zip(paper).enumerate().map(|(index, (size, paper))| {
        let [default, packed, plain] = [3 * index, 3 * index + 1, 3 * index + 2];
        vec![
            (*size).to_owned(),
            paper.0.to_owned(),
            times(arms.speedup(packed, default)),
            paper.1.to_owned(),
            percent(arms.means[packed].papers_hit_ratio()),
            percent(arms.means[packed].hit_ratio()),
            percent(arms.means[plain].hit_ratio()),
            paper.2.to_owned(),
            percent(arms.means[default].hit_ratio()),
        ]
    });
    let line = |name: &str, offset: usize| Series {
        name: name.to_owned(),
        points: [20.0, 40.0, 60.0, 80.0]
            .into_iter()
            .enumerate()
            .map(|(index, size)| (size, arms.means[3 * index + offset].storage_reads))
            .collect(),
    };
    let plot = Lines {
        title: "Samples fetched from storage in an epoch".into(),
        x: "cache, % of the dataset".into(),
        y: "samples".into(),
        series: vec![line("uniform+lru", 0), line(&format!("{own}, packages"), 1), line(own, 2)],
        markers: true,
    };
    Ok(Drawn {
        head: row([
            "cache", "speedup, paper", "ours", "hit, paper", "hit (paper's), ours", "hit, ours", "hit, no packages",
            "Default, paper", "Default, ours",
        ]),
        rows: rows.collect(),
        reasons: vec![
            "Default is `uniform`+`lru`, which theory puts at c + (1 - c) ln(1 - c): 2.1, 9.3, 23.3 and 47.8 %.".into(),
            "The papers' own hit ratio counts neither as our `hit` nor as our `hit (paper's)`: their L-hits each \
             cost a disk read, and substitution at the miss serves whatever is in memory."
                .into(),
        ],
        plots: vec![(plot.title.clone(), plot.svg())],
        ..Drawn::default()
    })
}

fn workers(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let counts = [2usize, 4, 6, 8, 16];
    let mut arms = Vec::new();
    for count in counts {
        let storage = Storage { concurrency: count, ..inputs.scenario.storage };
        arms.push(Arm::new("Default", "uniform+lru", "20%").on(storage));
        arms.push(Arm::new("iCache", "iis+icache", "20%").packed().on(storage));
    }
    let arms = Arms::run(inputs, &arms)?;
    let paper = |count: usize| match count {
        2 => ("3.9 x", "96.7 %"),
        16 => ("1.2 x", "28.9 %"),
        _ => ("-", "-"),
    };
    let stall = |index: usize| arms.means[index].wait / arms.means[index].seconds;
    let rows = counts.iter().enumerate().map(|(index, &count)| {
        vec![
            count.to_string(),
            paper(count).0.to_owned(),
            times(arms.speedup(2 * index + 1, 2 * index)),
            paper(count).1.to_owned(),
            percent(stall(2 * index)),
            percent(stall(2 * index + 1)),
        ]
    });
    let line = |name: &str, offset: usize| Series {
        name: name.to_owned(),
        points: counts
            .iter()
            .enumerate()
            .map(|(index, &count)| (count as f64, arms.means[2 * index + offset].seconds))
            .collect(),
    };
    let plot = Lines {
        title: "Modelled seconds an epoch by workers".into(),
        x: "workers, each one request at a time".into(),
        y: "seconds".into(),
        series: vec![line("uniform+lru", 0), line("iis+icache with packages", 1)],
        markers: true,
    };
    Ok(Drawn {
        head: row(["workers", "speedup, paper", "ours", "stall of Default, paper", "ours", "stall of iCache, ours"]),
        rows: rows.collect(),
        reasons: vec![
            "A worker is one request in flight, and the latency does not grow with their number. The paper's stall \
             falls from 96.7 to 28.9 % between 2 and 16 workers, more than eight times as many requests in flight \
             explain; its workers may have been bound by more than storage."
                .into(),
            "Hotset itself does not tie requests in flight to workers; its reads are the server's.".into(),
        ],
        plots: vec![(plot.title.clone(), plot.svg())],
        ..Drawn::default()
    })
}

fn set_sizes(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let shares = ["0", "0.1", "0.25", "0.5", "0.75", "1"];
    let arms: Vec<Arm> = shares
        .iter()
        .map(|share| Arm::new(share, &format!("hybrid[s_share={share}]+impact"), "20%").packed())
        .collect();
    let arms = Arms::run(inputs, &arms)?;
    let rows = arms.labels.iter().zip(&arms.means).map(|(share, mean)| {
        vec![
            share.clone(),
            (if share == "0.25" { "best" } else { "-" }).to_owned(),
            percent(mean.hit_ratio()),
            percent(mean.papers_hit_ratio()),
            format!("{:.0}", mean.storage_reads),
            format!("{:.1}", mean.seconds),
        ]
    });
    let points: Vec<(f64, f64)> = arms
        .labels
        .iter()
        .zip(&arms.means)
        .map(|(share, mean)| (share.parse().unwrap_or(0.0), 100.0 * mean.hit_ratio()))
        .collect();
    let plot = Lines {
        title: "Hits by the size of S".into(),
        x: "S, share of the cache".into(),
        y: "hits, % of servings".into(),
        series: vec![Series { name: "hybrid+impact".into(), points }],
        markers: true,
    };
    Ok(Drawn {
        head: row(["S of the cache", "paper", "hit", "hit (paper's)", "reads", "epoch s"]),
        rows: rows.collect(),
        reasons: vec![
            "The paper finds the highest hit ratio and the shortest epoch at 25 %. Here shares from 10 to 75 % hardly \
             differ. Without an S the warm-up goes on to `warmup_max`, since nothing can be seen to settle; an S as \
             large as the cache leaves no room for either region."
                .into(),
        ],
        plots: vec![(plot.title.clone(), plot.svg())],
        ..Drawn::default()
    })
}

fn disks(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let ssd = Storage { latency: 1e-4, bandwidth: Some(5e8), concurrency: 6 };
    let hdd = Storage { latency: 8e-3, bandwidth: Some(1.5e8), concurrency: 1 };
    let arm = |label: &str, pair: &str, storage| Arm::new(label, pair, "20%").on(storage);
    let arms = [
        arm("SSD", "uniform+lru", ssd),
        arm("SSD", "hybrid+impact", ssd).packed(),
        arm("HDD", "uniform+lru", hdd),
        arm("HDD", "hybrid+impact", hdd).packed(),
    ];
    let arms = Arms::run(inputs, &arms)?;
    let cells = |disk: &str, paper: &str, at: usize| {
        vec![
            disk.to_owned(),
            paper.to_owned(),
            times(arms.speedup(at + 1, at)),
            format!("{:.1}", arms.means[at].seconds),
            format!("{:.1}", arms.means[at + 1].seconds),
        ]
    };
    Ok(Drawn {
        head: row(["disk", "speedup, paper (mean)", "ours", "Default s", "ImPACT s"]),
        rows: vec![cells("SSD: 0.1 ms, 500 MB/s, 6 in flight", "5.8 x", 0), cells("HDD: 8 ms, 150 MB/s, 1 in flight", "3.6 x", 2)],
        reasons: vec![
            "The disks are modelled: a seek or a flash read as latency, one head or six readers as requests in \
             flight. The modelled SSD keeps this trainer supplied even without a cache, so that what is left of the \
             speedup is the smaller epoch. The authors' code makes one RPC a sample, which this model has not."
                .into(),
        ],
        ..Drawn::default()
    })
}
