//! `hotset simulate`.

mod duration;
mod inputs;
mod jobs;
mod nodes;
mod output;
mod playback;

use std::path::PathBuf;

use clap::Args;
use hotset_core::bytes::Amount;
use hotset_core::{Error, Result};
use hotset_sim::spec::{Named, Pair, split};
use hotset_sim::{figure, grid, outcome, replay};

pub(crate) use duration::Seconds;
use output::Progress;

/// Compare strategies, policies and cache sizes on a training's losses, before using them.
///
/// Replays a loss trace, an array of [epochs, ids] saved by NumPy, over any set of strategies, policies, cache
/// sizes and seeds, with the very code that a server runs. Every serving is a hit (no storage read was made for
/// it), packed (it came in a package) or single (a read of its own); times are modelled from the storage and
/// the trainer described.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hotset simulate --trace losses.npz                              # the usual pairs at a fifth of the dataset
  hotset simulate --trace losses.npz --run uniform+lru,iis+icache --cache 20%,40% --seeds 3 --html report.html
  hotset simulate --trace losses.npz --strategy uniform,iis --policy lru,minio,belady --csv runs.csv
  hotset simulate --trace losses.npz --images /data/train --latency 5ms --concurrency 16 --batch-time 30ms
  hotset simulate --trace losses.npz --jobs 4 --run quiver,uniform --stagger 30s      # a sweep on one cache
  hotset simulate --trace losses.npz --nodes 1,2,4 --run uniform+lru,iis+icache       # one cache over hosts
  hotset simulate --log runs/NAME.log                             # a live run once more (HOTSET_RECORD=runs)
  hotset simulate --figure list                                   # the papers' figures that a trace can give
  hotset simulate --figure icache-16 --trace losses.npz --html figure.html")]
pub(crate) struct Simulate {
    #[command(flatten)]
    inputs: inputs::Inputs,

    /// Pairs to run, separated by commas: `iis+icache`, `iis[fraction=0.5]+icache[strict=true]`, or a strategy alone
    #[arg(long, value_name = "PAIRS", help_heading = "What to run", conflicts_with_all = ["strategies", "policies"])]
    run: Option<String>,
    /// Strategies, each with every policy of `--policy`
    #[arg(long = "strategy", value_name = "NAMES", help_heading = "What to run")]
    strategies: Option<String>,
    /// Policies, each with every strategy of `--strategy`
    #[arg(long = "policy", value_name = "NAMES", help_heading = "What to run")]
    policies: Option<String>,
    /// Cache sizes: bytes, or shares of the dataset
    #[arg(long, value_name = "SIZES", default_value = "20%", help_heading = "What to run")]
    cache: String,
    /// Seeds to average over, from `--seed` on
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "What to run")]
    seeds: u32,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "What to run")]
    seed: u64,
    /// Repeat samples rather than leave a remainder of the ranks out
    #[arg(long, help_heading = "What to run")]
    pad: bool,
    /// Read samples of low importance in packages of at least so many bytes [without a value: 1MiB, or an eighth of
    /// the cache where that is less], where a policy has a place for them
    #[arg(long, value_name = "BYTES", num_args = 0..=1, help_heading = "What to run")]
    packages: Option<Option<Amount>>,
    /// Train several jobs at once over one cache: how many of each pair, with seeds of their own, or a TOML file that
    /// describes each (`[[job]]` with any of name, trace, run, seed, start, batch, batch_time, prefetch, benefit)
    #[arg(long, value_name = "N|FILE", help_heading = "What to run", conflicts_with_all = ["figure", "packages", "seeds", "csv", "html"])]
    jobs: Option<String>,
    /// From one start of `--jobs N` to the next
    #[arg(long, value_name = "TIME", default_value = "0s", help_heading = "What to run")]
    stagger: Seconds,
    /// Play back the log of a recorded run (`hotset serve --record`) and compare what it counts with what the live run
    /// counted; fails if that is not the same
    #[arg(long, value_name = "FILE", help_heading = "What to run", conflicts_with_all = ["trace", "synthetic", "run", "strategies", "policies", "jobs", "packages", "figure", "csv", "html"])]
    log: Option<PathBuf>,
    /// A figure of the papers, its numbers beside ours; `list` shows all
    #[arg(long, value_name = "NAME", help_heading = "What to run")]
    figure: Option<String>,

    #[command(flatten)]
    nodes: nodes::NodesOptions,

    /// From the request to the first byte
    #[arg(long, value_name = "TIME", default_value = "5ms", help_heading = "Storage")]
    latency: Seconds,
    /// Bytes a second for all requests together [default: no limit]
    #[arg(long, value_name = "BYTES", help_heading = "Storage")]
    bandwidth: Option<Amount>,
    /// Requests in flight at a time
    #[arg(long, value_name = "N", default_value_t = 16, help_heading = "Storage")]
    concurrency: usize,

    /// Samples in a batch of each rank
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Trainer")]
    batch: usize,
    /// Computing of a batch
    #[arg(long, value_name = "TIME", default_value = "30ms", help_heading = "Trainer")]
    batch_time: Seconds,
    /// Batches read ahead
    #[arg(long, value_name = "N", default_value_t = 12, help_heading = "Trainer")]
    prefetch: usize,
    /// Ranks that train in step
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Trainer")]
    ranks: u32,

    /// The first epoch that means are taken from [default: half of them]
    #[arg(long, value_name = "N", help_heading = "Output")]
    measure_from: Option<usize>,
    /// Write every epoch of every run as comma-separated values (`-`: to standard output)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    csv: Option<PathBuf>,
    /// Write settings, means and every epoch as JSON (`-`: to standard output)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
    /// Write a page with tables and plots, which needs nothing else to be read
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Threads to run on [default: one a core]
    #[arg(long, value_name = "N", help_heading = "Output")]
    threads: Option<usize>,
}

/// What is compared where nothing is named: the baselines, and each strategy with its own policy.
const USUAL: &str = "uniform+lru,uniform,iis,hybrid,pads,infobatch,carousel,iis+belady";

impl Simulate {
    pub(crate) fn run(self) -> Result<()> {
        if self.figure.as_deref() == Some("list") {
            return output::print(&figure::list());
        }
        if let Some(log) = &self.log {
            return playback::run(log, self.json.as_deref());
        }
        let scenario = self.scenario()?;
        if let Some(first) = self.measure_from.filter(|&first| first >= scenario.epochs()) {
            return Err(Error::invalid(format!(
                "`measure-from` is {first}, but the epochs are 0 to {}: there would be nothing to take means of",
                scenario.epochs() - 1
            )));
        }
        let threads = self.threads.unwrap_or_else(grid::cores);
        if let Some(name) = &self.figure {
            let progress = Progress::new();
            let drawn = figure::find(name)?.draw(&scenario, threads, &|done, all| progress.set(done, all))?;
            progress.finish();
            if let Some(path) = &self.html {
                output::write(path, "html", &drawn.page())?;
            }
            return output::print(&drawn.text());
        }
        let jobs = self.runs()?;
        if let Some(shared) = &self.jobs {
            return jobs::Jobs::new(&self, shared, &scenario)?.run(&jobs, threads, self.json.as_deref());
        }
        if self.nodes.asked() {
            let first = self.measure_from.unwrap_or(scenario.epochs() / 2);
            return self.nodes.run(&scenario, &jobs, first, threads, self.json.as_deref());
        }
        let progress = Progress::new();
        let all = jobs.len();
        let outcomes =
            grid::each(&jobs, threads, |job| replay::run(&scenario, job), |done| progress.set(done, all))?;
        progress.finish();
        self.report(&scenario, &outcomes)
    }

    fn report(&self, scenario: &replay::Scenario, outcomes: &[outcome::Outcome]) -> Result<()> {
        let first = self.measure_from.unwrap_or(scenario.epochs() / 2);
        let settings = scenario.describe();
        if let Some(path) = &self.csv {
            output::write(path, "csv", &hotset_sim::report::csv(outcomes))?;
        }
        if let Some(path) = &self.json {
            output::write(path, "json", &hotset_sim::report::json(&settings, outcomes, first))?;
        }
        if let Some(path) = &self.html {
            output::write(path, "html", &hotset_sim::report::compare(&settings, outcomes, first))?;
        }
        let notes: String = output::notes(outcomes)
            .into_iter()
            .map(|note| format!("\n{}", hotset_sim::report::wrap(&format!("note: {note}"), "  ")))
            .collect();
        if [&self.csv, &self.json].iter().any(|path| path.as_deref().is_some_and(output::is_standard)) {
            output::complain(&notes);
            return Ok(());
        }
        let mut text = hotset_sim::report::table(&outcome::rows(outcomes, first), crate::table::width());
        let means = format!("means of an epoch, from epoch {first} on; {}", output::line(&settings));
        text.push_str(&format!("\n\n{}{notes}", hotset_sim::report::wrap(&means, "")));
        output::print(&text)
    }

    fn scenario(&self) -> Result<replay::Scenario> {
        let bandwidth = match self.bandwidth {
            None => None,
            Some(Amount::Bytes(bytes)) if bytes > 0 => Some(bytes as f64),
            Some(_) => {
                return Err(Error::invalid("`bandwidth` must be bytes a second above 0, like `100MB`"));
            }
        };
        for (name, value) in [
            ("concurrency", self.concurrency),
            ("batch", self.batch),
            ("ranks", self.ranks as usize),
            ("seeds", self.seeds as usize),
            ("threads", self.threads.unwrap_or(1)),
        ] {
            if value == 0 || value > 1 << 20 {
                return Err(Error::invalid(format!(
                    "`{name}` is {value}: give a number from 1 to {}",
                    1 << 20
                )));
            }
        }
        let storage = hotset_sim::timeline::Storage {
            latency: self.latency.0,
            bandwidth,
            concurrency: self.concurrency,
        };
        let compute = hotset_sim::timeline::Compute {
            seconds_a_batch: self.batch_time.0,
            batch: self.batch,
            prefetch: self.prefetch,
            ranks: self.ranks,
        };
        let packages = match self.packages {
            None => None,
            Some(None) => Some(0),
            Some(Some(Amount::Bytes(bytes))) if bytes > 0 => Some(bytes),
            Some(Some(_)) => return Err(Error::invalid("`packages` must be bytes above 0, like `1MiB`")),
        };
        let inputs = self.inputs.open(&output::Listing::new())?;
        if self.ranks as usize > inputs.samples() && !self.pad {
            return Err(Error::invalid(format!(
                "`ranks` is {}, but there are {} samples: give fewer, or repeat samples with `pad`",
                self.ranks,
                inputs.samples()
            )));
        }
        Ok(replay::Scenario { storage, compute, pad: self.pad, packages, ..inputs })
    }

    fn runs(&self) -> Result<Vec<replay::Job>> {
        let pairs = match (&self.run, &self.strategies, &self.policies) {
            (Some(run), _, _) => split(run).into_iter().map(str::parse).collect::<Result<Vec<Pair>>>()?,
            (None, None, None) => split(USUAL).into_iter().map(str::parse).collect::<Result<_>>()?,
            (None, strategies, policies) => {
                let named =
                    |text: &str| split(text).into_iter().map(str::parse).collect::<Result<Vec<Named>>>();
                let strategies = named(strategies.as_deref().unwrap_or("uniform"))?;
                let policies: Vec<Option<Named>> = match policies {
                    Some(policies) => named(policies)?.into_iter().map(Some).collect(),
                    None => vec![None],
                };
                let pair = |strategy: &Named, policy: &Option<Named>| Pair {
                    strategy: strategy.clone(),
                    policy: policy.clone(),
                };
                strategies.iter().flat_map(|one| policies.iter().map(move |two| pair(one, two))).collect()
            }
        };
        let mut jobs = Vec::new();
        for cache in split(&self.cache) {
            let amount: Amount = cache
                .parse()
                .map_err(|error: Error| Error::invalid(format!("`cache`: {}", error.message)))?;
            for pair in &pairs {
                for seed in self.seed..self.seed.saturating_add(u64::from(self.seeds)) {
                    jobs.push(replay::Job::new(pair, cache.trim(), amount, seed)?);
                }
            }
        }
        if jobs.is_empty() {
            return Err(Error::invalid("there is nothing to run: name pairs in `run` and sizes in `cache`"));
        }
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests;
