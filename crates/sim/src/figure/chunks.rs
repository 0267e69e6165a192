//! Chunks over time: Quiver figure 7.
//!
//! Four jobs walk a dataset with a cache of two of the paper's chunks, and three more start later. Every slot is watched: what
//! is resident, where each job is, and when batches are trained. A resident that leaves before the end has *passed through*.

use std::collections::HashMap;

use hotset_core::bytes::Amount;
use hotset_core::run::{Change, Outcome};
use hotset_core::sampling::{Chunks, two_chunks};
use hotset_core::{Id, Result};

use super::{Drawn, Figure, FigureInputs, percent, row};
use crate::report::{Lines, Series};
use crate::scenario::{Job, Scenario};
use crate::trainings::{Dataset, Step, Stop, Training, run_datasets};

pub(super) const QUIVER_7: Figure = Figure {
    name: "quiver-7",
    source: "Quiver, figure 7",
    shows: "two chunks of cache: what is resident over time",
    draw,
};

/// Jobs that start at once, and all.
const JOBS: (u64, u64) = (4, 7);
const EPOCHS: usize = 2;
/// The others start after this part of the first epoch, as storage and trainer bound it.
const LATER: f64 = 0.3;
/// Lines of the table.
const SLICES: usize = 12;

fn draw(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let scenario = inputs.scenario.shortened(EPOCHS)?;
    let capacity = two_chunks(scenario.bytes);
    let rates = scenario.rates();
    let later = LATER * scenario.samples() as f64 / rates.storage.min(rates.training);
    let training = |seed: u64| {
        let job = Job::new(&"quiver+quiver".parse()?, "two chunks", Amount::Bytes(capacity), seed)?;
        let start = if seed < JOBS.0 { 0.0 } else { later };
        let (name, scenario) = (format!("job {}", seed + 1), scenario.clone());
        Ok(Training { name, scenario, job, start, benefit: Some(f64::from(u16::MAX)) })
    };
    let trainings = (0..JOBS.1).map(training).collect::<Result<Vec<_>>>()?;
    let mut watched = Watched::new(&scenario, capacity);
    let trained =
        run_datasets(vec![Dataset::new(&trainings)?], Stop::Epochs, &mut |step| watched.hear(step))?;
    (inputs.progress)(1, 1);
    let ends = trained.iter().flatten().map(|one| one.end);
    let end = ends.clone().fold(0.0, f64::max);
    let starts: Vec<f64> = trainings.iter().map(|one| one.start).collect();
    let spans: Vec<(f64, f64)> = starts.into_iter().zip(ends).collect();
    let rows = watched.rows(end, &spans);
    let most = watched.resident.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let (chunk, hits) = watched.arrival(JOBS.0 as usize);
    Ok(Drawn {
        head: row([
            "from, s",
            "jobs",
            "chunks resident, paper",
            "at most",
            "of it passing through",
            "batches a second",
            "read",
        ]),
        rows,
        reasons: vec![
            format!(
                "Two chunks are {} bytes, a fifth of the dataset; at no slot was more resident than {:.3} chunks. `read` is of what is \
                 served.",
                capacity,
                2.0 * most as f64 / capacity.max(1) as f64
            ),
            format!(
                "The three jobs that start after {later:.1} s begin with chunk {} of {} in the order of the walk, where the others \
                 are, and {} of their first batches' samples are hits; in the paper they begin with the third of its chunks, for the \
                 first two have left.",
                chunk + 1,
                watched.chunks.count(),
                percent(hits)
            ),
            "Here jobs walk smaller chunks, of a sixteenth of the cache, samples leave one by one, and most of the cache stands still: \
             an eighth of it passes through. In the paper both chunks pass through, whole."
                .into(),
            "More jobs make the paper's faster, for each fetches a part of what is missing. Here storage is asked by one queue: jobs \
             that come later add batches without adding reads."
                .into(),
        ],
        plots: watched.plots(end),
        ..Drawn::default()
    })
}

/// What was seen.
struct Watched<'a> {
    scenario: &'a Scenario,
    chunks: Chunks,
    /// The chunk of every sample.
    chunk: Vec<usize>,
    capacity: u64,
    now: f64,
    used: u64,
    /// When what is resident came.
    came: HashMap<Id, f64>,
    /// When what has left came and left, and its bytes.
    passed: Vec<(f64, f64, u64)>,
    /// The bytes resident after each change.
    resident: Vec<(f64, u64)>,
    /// Of every job when each slot was asked for, what it serves, and whether that was a hit.
    walks: Vec<Vec<(f64, Id, bool)>>,
    /// When batches were trained, by job.
    batches: Vec<Vec<f64>>,
}

impl<'a> Watched<'a> {
    fn new(scenario: &'a Scenario, capacity: u64) -> Self {
        let chunks = Chunks::new(&*scenario.sizes, scenario.samples() as Id, capacity, false);
        let mut chunk = vec![0; scenario.samples()];
        for number in 0..chunks.count() {
            chunks.units(number).flatten().for_each(|id| chunk[id as usize] = number);
        }
        Self {
            scenario,
            chunks,
            chunk,
            capacity,
            now: 0.0,
            used: 0,
            came: HashMap::new(),
            passed: Vec::new(),
            resident: Vec::new(),
            walks: vec![Vec::new(); JOBS.1 as usize],
            batches: vec![Vec::new(); JOBS.1 as usize],
        }
    }

    fn hear(&mut self, step: &Step<'_>) {
        let (_, job) = step.training;
        self.now = self.now.max(step.now);
        for change in step.changes {
            match *change {
                Change::Evicted(id) => {
                    let bytes = self.scenario.sizes.size(id);
                    self.used -= bytes;
                    if let Some(came) = self.came.remove(&id) {
                        self.passed.push((came, self.now, bytes));
                    }
                }
                Change::Decided { id, outcome, admitted, .. } => {
                    self.walks[job].push((self.now, id, outcome == Outcome::Hit));
                    if admitted {
                        self.used += self.scenario.sizes.size(id);
                        self.came.insert(id, self.now);
                    }
                }
                Change::Loaded { .. } | Change::Requested { .. } => {}
            }
        }
        // A sample takes the place of another at once.
        self.resident.push((self.now, self.used));
        if self.batches[job].last().map_or(step.trained > 0.0, |last| *last < step.trained) {
            self.batches[job].push(step.trained);
        }
    }

    /// The most bytes at a time between two times of those that pass through.
    fn passing(&self, (from, until): (f64, f64)) -> u64 {
        let overlap = self.passed.iter().filter(|(came, left, _)| *came < until && *left >= from);
        let mut moves: Vec<(f64, i64)> = overlap
            .flat_map(|&(came, left, bytes)| [(came.max(from), bytes as i64), (left, -(bytes as i64))])
            .collect();
        // What leaves makes room for what comes at the same time.
        moves.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (mut now, mut most) = (0, 0);
        for (_, bytes) in moves.into_iter().take_while(|(at, _)| *at < until) {
            now += bytes;
            most = most.max(now);
        }
        most as u64
    }

    fn rows(&self, end: f64, spans: &[(f64, f64)]) -> Vec<Vec<String>> {
        let slice = |number: usize| {
            let at = |number: usize| end * number as f64 / SLICES as f64;
            let (from, until) =
                (at(number), if number + 1 == SLICES { f64::INFINITY } else { at(number + 1) });
            let within = |time: f64| (from..until).contains(&time);
            let jobs = spans.iter().filter(|(start, end)| *start < until && *end > from).count();
            let most = self.resident.iter().filter(|(at, _)| within(*at)).map(|(_, bytes)| *bytes).max();
            let batches = self.batches.iter().flatten().filter(|at| within(**at)).count();
            let (mut served, mut reads) = (0u64, 0u64);
            for (at, _, hit) in self.walks.iter().flatten() {
                served += u64::from(within(*at));
                reads += u64::from(within(*at) && !hit);
            }
            vec![
                format!("{from:.1}"),
                jobs.to_string(),
                "2".into(),
                most.map_or("-".into(), |most| {
                    format!("{:.2}", 2.0 * most as f64 / self.capacity.max(1) as f64)
                }),
                percent(self.passing((from, until)) as f64 / self.capacity.max(1) as f64),
                format!("{:.1}", batches as f64 * SLICES as f64 / end),
                percent(reads as f64 / served.max(1) as f64),
            ]
        };
        (0..SLICES).map(slice).collect()
    }

    /// Where a job begins in the walk of the first, and how much of its first chunk's worth was hit.
    fn arrival(&self, job: usize) -> (usize, f64) {
        let walk = &self.walks[job];
        let first = walk.len().min(self.scenario.samples() / self.chunks.count().max(1));
        let hits = walk[..first].iter().filter(|(.., hit)| *hit).count() as f64 / first.max(1) as f64;
        let places = self.places();
        let chunk = walk.first().map_or(0, |(_, id, _)| self.chunk[*id as usize]);
        (places.get(&chunk).copied().unwrap_or(0), hits)
    }

    /// The place of each chunk in the walk of the first job.
    fn places(&self) -> HashMap<usize, usize> {
        let mut places = HashMap::new();
        for (_, id, _) in &self.walks[0] {
            let next = places.len();
            places.entry(self.chunk[*id as usize]).or_insert(next);
        }
        places
    }

    fn plots(&self, end: f64) -> Vec<(String, String)> {
        let places = self.places();
        let every = (self.scenario.samples() * EPOCHS).div_ceil(400).max(1);
        let place = |id: Id| places.get(&self.chunk[id as usize]).copied().unwrap_or(0) as f64;
        let walk = |(job, walk): (usize, &Vec<(f64, Id, bool)>)| Series {
            name: format!("job {}", job + 1),
            points: walk.iter().step_by(every).map(|&(at, id, _)| (at, place(id))).collect(),
        };
        let walks = Lines {
            title: "The chunk that each job walks".into(),
            x: "seconds".into(),
            y: "chunk, in the order of the walk".into(),
            series: self.walks.iter().enumerate().map(walk).collect(),
            markers: false,
        };
        let slices = 60;
        let rate = |number: usize| {
            let (from, until) =
                (end * number as f64 / slices as f64, end * (number + 1) as f64 / slices as f64);
            let batches = self.batches.iter().flatten().filter(|at| (from..until).contains(*at)).count();
            (from, batches as f64 / (until - from).max(1e-9))
        };
        let throughput = Lines {
            title: "Batches a second of all jobs".into(),
            x: "seconds".into(),
            y: "batches a second".into(),
            series: vec![Series { name: "all jobs".into(), points: (0..slices).map(rate).collect() }],
            markers: false,
        };
        [walks, throughput].into_iter().map(|lines| (lines.title.clone(), lines.svg())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hotset_core::sampling::Equal;

    use super::*;
    use crate::Trace;

    #[test]
    fn never_more_than_two_chunks_are_resident_and_jobs_that_come_later_begin_where_the_others_are() {
        let trace = Trace::synthetic(20_000, 2, 3).unwrap();
        let sizes = Arc::new(Equal { samples: 20_000, size: 1000 });
        let mut scenario = Scenario::new("made", trace, None, sizes).unwrap();
        (scenario.compute.batch, scenario.compute.prefetch) = (50, 4);
        let drawn = QUIVER_7.draw(&scenario, 1, &|_, _| ()).unwrap();
        let number = |row: &Vec<String>, column: usize| -> f64 {
            row[column].split(' ').next().unwrap().parse().unwrap()
        };
        assert_eq!(drawn.rows.len(), SLICES);
        let text = drawn.text();
        assert!(drawn.rows.iter().all(|row| number(row, 3) <= 2.0), "{text}");
        assert!(drawn.rows.iter().any(|row| number(row, 3) == 2.0), "{text}");
        assert!(drawn.rows[SLICES / 2..].iter().all(|row| number(row, 4) <= 12.6), "{text}");
        // Seven read what one would.
        assert!(drawn.rows[6..11].iter().all(|row| number(row, 6) <= 25.0), "{text}");
    }
}
