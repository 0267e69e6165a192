//! `hotset stats`.

use std::io::IsTerminal;

use clap::Args;
use hotset_core::{Error, Result};

use crate::rates::Rates;
use crate::servers::{Found, Servers, none_is_running, pause};
use crate::{figures, table};

/// Show what servers and jobs of this host do.
///
/// Every serving is a hit (no storage read was made for it), packed (its bytes came in a package that was read) or
/// single (a read of its own). `hit (paper's)` counts hit and packed, as papers do. `packed a request` is how many
/// servings a package that was read brought, `waste` the share of package bytes that were not served. `late` counts
/// servings that a reader waited for, `wait` how long batches waited in all. Tables are folded to the terminal's
/// width, or to `$COLUMNS`.
///
/// With --watch, from the second time on, a job also says what it does now: samples a second, the bytes of these and those
/// that storage delivers, how far its epoch is and how long the rest takes at this rate, which is that of the last ten
/// seconds. JSON has the same as `rates`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hotset stats                # the last epochs of every job, of every server of this user
  hotset stats --watch        # again every two seconds, with samples a second and the time left
  hotset stats --json | jq '.[0].jobs[0].epochs[-1]'
  hotset stats --json --watch 10 | jq --unbuffered '.[].rates'
`hotset top` shows the same in a terminal, to look around in.")]
pub(crate) struct Stats {
    #[command(flatten)]
    servers: Servers,
    /// Print JSON: a list with one object for each server
    #[arg(long)]
    json: bool,
    /// Print again every so many seconds [default: 2] until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    watch: Option<f64>,
    /// Epochs to show of each job
    #[arg(long, value_name = "N", default_value_t = 5)]
    epochs: usize,
}

impl Stats {
    pub(crate) fn run(self) -> Result<()> {
        let mut rates = Rates::default();
        let Some(seconds) = self.watch else { return self.print(&mut rates, false) };
        let pause = pause("watch", seconds)?;
        loop {
            self.print(&mut rates, std::io::stdout().is_terminal() && !self.json)?;
            std::thread::sleep(pause);
        }
    }

    fn print(&self, rates: &mut Rates, clear: bool) -> Result<()> {
        let mut found = self.ask()?;
        rates.take(&mut found);
        let mut text = if self.json {
            serde_json::to_string(&found)
                .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?
        } else {
            figures::render(&found, self.epochs, table::width())
        };
        text.push('\n');
        if clear {
            text.insert_str(0, "\x1b[2J\x1b[H");
        }
        table::print(&text);
        Ok(())
    }

    /// Asks the named server, or every one of this user that answers.
    fn ask(&self) -> Result<Vec<Found>> {
        let answers = self.servers.ask().into_iter().map(|(_, answer)| answer);
        let found: Vec<Found> = if self.servers.server.is_some() {
            answers.collect::<Result<_>>()?
        } else {
            answers.flatten().collect()
        };
        if found.is_empty() && self.watch.is_none() {
            return Err(Error::unavailable(none_is_running()));
        }
        self.of_job(found)
    }

    /// What was found of the job asked for; an error that names the jobs there are, if there is no such job.
    fn of_job(&self, mut found: Vec<Found>) -> Result<Vec<Found>> {
        if self.servers.job.is_empty() {
            return Ok(found);
        }
        let known: Vec<String> =
            found.iter().flat_map(|one| &one.stats.jobs).map(|job| format!("`{}`", job.job)).collect();
        found.iter_mut().for_each(|one| one.stats.jobs.retain(|job| self.servers.is_of_job(&job.job)));
        found.retain(|one| !one.stats.jobs.is_empty());
        // With `--watch` a job may be about to start.
        if found.is_empty() && self.watch.is_none() {
            let jobs = match known.as_slice() {
                [] => "there are no jobs".to_owned(),
                known => format!("the jobs are {}", known.join(", ")),
            };
            return Err(Error::invalid(format!("there is no job `{}` (`--job`): {jobs}", self.servers.job)));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use hotset_wire::proto::{JobStats, Stats as Answer};

    use super::*;

    fn asked(job: &str, watch: Option<f64>) -> Result<Vec<Found>> {
        let servers = Servers { job: job.into(), ..Servers::default() };
        let stats = Stats { servers, json: false, watch, epochs: 5 };
        let jobs = ["run/train", "run/val"].map(|job| JobStats { job: job.into(), ..JobStats::default() });
        let answer = Answer { server: None, jobs: jobs.to_vec() };
        let found = Found { stats: answer, ..Found::default() };
        stats.of_job(vec![found])
    }

    #[test]
    fn a_job_that_is_not_there_is_an_error_that_names_those_that_are() {
        assert_eq!(asked("", None).unwrap()[0].stats.jobs.len(), 2);
        let found = asked("run/val", None).unwrap();
        assert_eq!(found[0].stats.jobs.iter().map(|job| &job.job).collect::<Vec<_>>(), ["run/val"]);
        assert_eq!(asked("run", None).unwrap()[0].stats.jobs.len(), 2);
        assert!(asked("ru", None).is_err());
        let error = asked("nosuch", None).unwrap_err().message;
        assert_eq!(error, "there is no job `nosuch` (`--job`): the jobs are `run/train`, `run/val`");
        assert!(asked("nosuch", Some(2.0)).unwrap().is_empty(), "it may come");
    }
}
