//! `hotset simulate --jobs`: several trainings at once over one cache.
//!
//! Each pair and cache size of the command line is a simulation of its own, of all jobs together. A job that names no pair
//! runs that of the command line, so that pairs can be compared on the same jobs.

use std::path::{Path, PathBuf};

use hotset_core::{Error, Result};
use hotset_sim::grid;
use hotset_sim::outcome::Mean;
use hotset_sim::replay::{Job, Scenario};
use hotset_sim::report::{text_table, wrap};
use hotset_sim::spec::Pair;
use hotset_sim::trainings::{self, Trained, Training};
use serde::{Deserialize, Serialize};

use super::duration::Seconds;
use super::output::{self, Progress};
use super::{Simulate, inputs};

/// A job as the file describes it; what it leaves out is as on the command line.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Described {
    name: Option<String>,
    trace: Option<PathBuf>,
    run: Option<String>,
    seed: Option<u64>,
    start: Option<String>,
    batch: Option<usize>,
    batch_time: Option<String>,
    prefetch: Option<usize>,
    benefit: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    job: Vec<Described>,
}

/// The jobs that share a cache.
pub(super) struct Jobs<'a> {
    described: Vec<(Described, Scenario)>,
    inputs: &'a inputs::Inputs,
    scenario: &'a Scenario,
}

impl<'a> Jobs<'a> {
    /// From the argument of `--jobs`.
    pub(super) fn new(command: &'a Simulate, argument: &str, scenario: &'a Scenario) -> Result<Self> {
        let described = match argument.parse::<u32>() {
            Ok(0) => return Err(Error::invalid("`jobs` is 0: simulate one at least")),
            Ok(count @ 1..=1024) => (0..count)
                .map(|at| Described {
                    start: Some(format!("{}s", command.stagger.0 * f64::from(at))),
                    seed: Some(command.seed.saturating_add(at.into())),
                    ..Described::default()
                })
                .collect(),
            Ok(count) => return Err(Error::invalid(format!("`jobs` is {count}: simulate at most 1024"))),
            Err(_) => read(Path::new(argument))?,
        };
        let mut jobs = Self { described: Vec::new(), inputs: &command.inputs, scenario };
        for (at, one) in described.into_iter().enumerate() {
            let scenario = jobs.scenario_of(&one).map_err(|error| named(&one, at, &error))?;
            jobs.described.push((one, scenario));
        }
        Ok(jobs)
    }

    fn scenario_of(&self, one: &Described) -> Result<Scenario> {
        let mut scenario = match &one.trace {
            Some(path) => self.inputs.with_trace(self.scenario, path)?,
            None => self.scenario.clone(),
        };
        let compute = &mut scenario.compute;
        if let Some(time) = &one.batch_time {
            compute.seconds_a_batch = time.parse::<Seconds>()?.0;
        }
        compute.batch = one.batch.unwrap_or(compute.batch);
        compute.prefetch = one.prefetch.unwrap_or(compute.prefetch);
        if compute.batch == 0 {
            return Err(Error::invalid("`batch` is 0: give 1 at least"));
        }
        if one.benefit.is_some_and(|benefit| !benefit.is_finite() || benefit < 0.0) {
            return Err(Error::invalid("`benefit` must be a number of 0 or more"));
        }
        Ok(scenario)
    }

    /// The jobs, each with the pair that it names or with that of `run`, and with its cache.
    fn trainings(&self, run: &Job) -> Result<Vec<Training>> {
        let training = |(at, (one, scenario)): (usize, &(Described, Scenario))| {
            let mut job = run.clone();
            if let Some(text) = &one.run {
                job = Job::new(&text.parse::<Pair>()?, run.cache.clone(), run.amount, run.seed)?;
            }
            job.seed = one.seed.unwrap_or(run.seed);
            let start = one.start.as_deref().unwrap_or("0s").parse::<Seconds>()?.0;
            let name = one.name.clone().unwrap_or_else(|| format!("job {}", at + 1));
            Ok(Training { name, scenario: scenario.clone(), job, start, benefit: one.benefit })
        };
        let all = self.described.iter().enumerate();
        all.map(|(at, one)| training((at, one)).map_err(|error| named(&one.0, at, &error))).collect()
    }

    /// Simulates them for each of `runs`.
    pub(super) fn run(&self, runs: &[Job], threads: usize, json: Option<&Path>) -> Result<()> {
        let progress = Progress::new();
        let simulate = |run: &Job| trainings::run(&self.trainings(run)?);
        let all = grid::each(runs, threads, simulate, |done| progress.set(done, runs.len()))?;
        progress.finish();
        if let Some(path) = json {
            output::write(path, "json", &as_json(&all)?)?;
            if output::is_standard(path) {
                return Ok(());
            }
        }
        let tables = all.iter().map(|trained| table(trained));
        let settings =
            format!("means of an epoch over all epochs; {}", output::line(&self.scenario.describe()));
        output::print(&format!("{}\n\n{}", tables.collect::<Vec<_>>().join("\n\n"), wrap(&settings, "")))
    }
}

fn named(one: &Described, at: usize, error: &Error) -> Error {
    let name = one.name.clone().unwrap_or_else(|| (at + 1).to_string());
    Error::invalid(format!("job {name}: {}", error.message))
}

fn read(path: &Path) -> Result<Vec<Described>> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::invalid(format!("`jobs` is neither a number nor a file that can be read, `{shown}`: {error}"))
    })?;
    let file: File =
        toml::from_str(&text).map_err(|error| Error::invalid(format!("`{shown}`: {}", error.message())))?;
    if file.job.is_empty() {
        return Err(Error::invalid(format!("`{shown}` describes no job: write a `[[job]]` for each")));
    }
    Ok(file.job)
}

/// One simulation: a line for each job, and one for all.
fn table(trained: &[Trained]) -> String {
    let cache = trained.first().map_or("", |one| one.outcome.cache.as_str());
    let head =
        ["job", "strategy+policy", "gain", "hit", "others'", "reads", "epoch", "wait", "starts", "ends"];
    let percent = |part: f64, all: f64| format!("{:.1} %", 100.0 * part / all.max(1.0));
    let row = |one: &Trained| {
        let mean = Mean::of(&one.outcome, 0);
        let shared: u64 = one.outcome.epochs.iter().map(|epoch| epoch.counters.plan.shared_hits).sum();
        let epochs = one.outcome.epochs.len().max(1) as f64;
        vec![
            one.name.clone(),
            format!("{}+{}", one.outcome.strategy, one.outcome.policy),
            format!("{:.1}", one.benefit),
            percent(mean.hit, mean.served),
            percent(shared as f64 / epochs, mean.served),
            format!("{:.0}", mean.storage_reads),
            format!("{:.2} s", mean.seconds),
            format!("{:.2} s", mean.wait),
            format!("{:.1} s", one.start),
            format!("{:.1} s", one.end),
        ]
    };
    let reads: u64 = trained.iter().map(Trained::reads).sum();
    let most = trained.iter().map(|one| one.outcome.samples * one.outcome.epochs.len()).sum::<usize>();
    let end = trained.iter().map(|one| one.end).fold(0.0, f64::max);
    format!(
        "{}\ncache {cache}: {reads} reads of all, {} of what is served without a cache; the last ends after {end:.1} s",
        text_table(&head, trained.iter().map(row)),
        percent(reads as f64, most as f64),
    )
}

fn as_json(all: &[Vec<Trained>]) -> Result<String> {
    #[derive(Serialize)]
    struct One<'a> {
        name: &'a str,
        strategy: &'a str,
        policy: &'a str,
        cache: &'a str,
        seed: u64,
        benefit: f64,
        start: f64,
        end: f64,
        reads: u64,
        mean: Mean,
        shared_hits: Vec<u64>,
    }
    let one = |trained: &Trained| {
        serde_json::to_value(One {
            name: &trained.name,
            strategy: &trained.outcome.strategy,
            policy: &trained.outcome.policy,
            cache: &trained.outcome.cache,
            seed: trained.outcome.seed,
            benefit: trained.benefit,
            start: trained.start,
            end: trained.end,
            reads: trained.reads(),
            mean: Mean::of(&trained.outcome, 0),
            shared_hits: trained.outcome.epochs.iter().map(|epoch| epoch.counters.plan.shared_hits).collect(),
        })
    };
    let simulations: std::result::Result<Vec<Vec<_>>, _> =
        all.iter().map(|trained| trained.iter().map(one).collect()).collect();
    let text = simulations.and_then(|all| serde_json::to_string_pretty(&all));
    text.map_err(|error| Error::internal(error.to_string()))
}
