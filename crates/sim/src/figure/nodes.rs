//! Several nodes: iCache figure 13.

use hotset_core::Result;

use super::{Drawn, Figure, FigureInputs, percent, row, times};
use crate::grid;
use crate::nodes::{self, Figures, Nodes};
use crate::replay::Job;
use crate::report::{Lines, Series};

pub(super) const ICACHE_13: Figure = Figure {
    name: "icache-13",
    source: "iCache, figure 13",
    shows: "training time of an epoch, by nodes",
    draw,
};

const COUNTS: [usize; 4] = [1, 2, 3, 4];
const PAIRS: [&str; 2] = ["uniform+lru", "iis+icache"];

fn draw(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let mut runs = Vec::new();
    for count in COUNTS {
        for pair in PAIRS {
            runs.push((count, Job::new(&pair.parse()?, "20%", "20%".parse()?, 0)?));
        }
    }
    let mut scenario = inputs.scenario.clone();
    scenario.packages = None;
    let one = |(count, job): &(usize, Job)| nodes::run(&scenario, job, &Nodes::new(*count));
    let all = runs.len();
    let outcomes = grid::each(&runs, inputs.threads, one, |done| (inputs.progress)(done, all))?;
    let figures: Vec<Figures> = outcomes.iter().map(|outcome| Figures::of(&[outcome], 0)).collect();
    let paper = |count: usize| match count {
        2 => "8.6 x or more",
        4 => "7.6 x or more",
        _ => "-",
    };
    let rows = COUNTS.iter().zip(figures.chunks(PAIRS.len())).map(|(&count, pair)| {
        let (default, icache) = (&pair[0], &pair[1]);
        vec![
            count.to_string(),
            paper(count).to_owned(),
            times(default.seconds / icache.seconds),
            format!("{:.1}", default.seconds),
            format!("{:.1}", icache.seconds),
            percent(default.hit),
            percent(icache.hit),
            format!("{:.1} x", default.reads / icache.reads.max(1.0)),
        ]
    });
    let line = |at: usize| Series {
        name: PAIRS[at].to_owned(),
        points: COUNTS
            .iter()
            .zip(figures.chunks(PAIRS.len()))
            .map(|(&count, pair)| (count as f64, pair[at].seconds))
            .collect(),
    };
    let plot = Lines {
        title: "Modelled seconds an epoch by nodes".into(),
        x: "nodes, each with a fifth of the dataset as cache".into(),
        y: "seconds".into(),
        series: vec![line(0), line(1)],
        markers: true,
    };
    let [two, four] = [1, 3].map(|at| figures[PAIRS.len() * at + 1].seconds);
    Ok(Drawn {
        head: row([
            "nodes", "iCache over Default, paper", "ours", "Default s", "iCache s", "Default hit", "iCache hit",
            "reads",
        ]),
        rows: rows.collect(),
        reasons: vec![
            format!(
                "The paper's iCache is about 1.5 times as fast on four nodes as on two; here it is {} as fast.",
                times(two / four)
            ),
            "The paper's hits are 42 % above Default's on two nodes and 23 % on four: of a larger cache every policy \
             finds more, so that less is left to gain."
                .into(),
            "Where storage is all that is waited for, iCache is as much faster as it reads less (`reads`: Default's over \
             its own). Beyond that the paper gains by packages, which are not simulated on several nodes."
                .into(),
            "Every node has a trainer, and as many requests in flight as the scenario says; bandwidth is the storage's, \
             for all of them together. What a peer takes to answer is left out, as that of a hit is."
                .into(),
        ],
        plots: vec![(plot.title.clone(), plot.svg())],
        ..Drawn::default()
    })
}
