//! `hotset stats`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hotset_core::{Error, Result};
use hotset_server::user_number;
use hotset_wire::Client;
use hotset_wire::proto::{GetStats, Stats as Answer};
use serde::Serialize;

use crate::{figures, place, table};

/// How long a server has to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Show what servers and jobs of this host do.
///
/// Every serving is a hit (no storage read was made for it), packed (its bytes came in a package that was read) or
/// single (a read of its own). `hit (paper's)` counts hit and packed, as papers do. `packed a request` is how many
/// servings a package that was read brought, `waste` the share of package bytes that were not served. `late` counts
/// servings that a reader waited for, `wait` how long batches waited in all. Tables are folded to the terminal's
/// width, or to `$COLUMNS`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hotset stats                # the last epochs of every job, of every server of this user
  hotset stats --watch        # again every two seconds
  hotset stats --json | jq '.[0].jobs[0].epochs[-1]'")]
pub(crate) struct Stats {
    /// The server's socket [default: all of this user's]
    #[arg(long, env = "HOTSET_SERVER", value_name = "PATH")]
    server: Option<PathBuf>,
    /// The user whose server that is, where it is not yours: a name or a number
    #[arg(long, env = "HOTSET_SERVER_USER", value_name = "USER")]
    user: Option<String>,
    /// This job alone: a name as it is shown here, or what a training has as `job=`
    #[arg(long, value_name = "NAME", default_value = "")]
    job: String,
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

/// One server's answer, and where it was asked.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    pub(crate) socket: String,
    #[serde(flatten)]
    pub(crate) stats: Answer,
}

impl Stats {
    pub(crate) fn run(self) -> Result<()> {
        let Some(seconds) = self.watch else { return self.print(false) };
        let pause =
            Duration::try_from_secs_f64(seconds).ok().filter(|pause| !pause.is_zero()).ok_or_else(|| {
                Error::invalid(format!("`watch` is {seconds}: give a number of seconds above 0"))
            })?;
        loop {
            self.print(std::io::stdout().is_terminal() && !self.json)?;
            std::thread::sleep(pause);
        }
    }

    fn print(&self, clear: bool) -> Result<()> {
        let found = self.ask()?;
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
        if let Some(server) = &self.server {
            return self.of_job(vec![self.ask_one(server)?]);
        }
        let directory = place::runtime();
        let mut sockets: Vec<PathBuf> = match std::fs::read_dir(&directory) {
            Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
            Err(_) => Vec::new(),
        };
        sockets.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
        sockets.sort();
        let found: Vec<Found> = sockets.iter().filter_map(|socket| self.ask_one(socket).ok()).collect();
        if found.is_empty() && self.watch.is_none() {
            return Err(Error::unavailable(format!(
                "no Hotset server is running for this user (looked in `{}`): start a training or `hotset serve`, or give \
                 `--server`",
                directory.display()
            )));
        }
        self.of_job(found)
    }

    /// Whether `name` is the job asked for, or of the training with that `job=`, which has one for each dataset.
    fn is_of_job(&self, name: &str) -> bool {
        name.strip_prefix(&self.job).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// What was found of the job asked for; an error that names the jobs there are, if there is no such job.
    fn of_job(&self, mut found: Vec<Found>) -> Result<Vec<Found>> {
        if self.job.is_empty() {
            return Ok(found);
        }
        let known: Vec<String> =
            found.iter().flat_map(|one| &one.stats.jobs).map(|job| format!("`{}`", job.job)).collect();
        found.iter_mut().for_each(|one| one.stats.jobs.retain(|job| self.is_of_job(&job.job)));
        found.retain(|one| !one.stats.jobs.is_empty());
        // With `--watch` a job may be about to start.
        if found.is_empty() && self.watch.is_none() {
            let jobs = match known.as_slice() {
                [] => "there are no jobs".to_owned(),
                known => format!("the jobs are {}", known.join(", ")),
            };
            return Err(Error::invalid(format!("there is no job `{}` (`--job`): {jobs}", self.job)));
        }
        Ok(found)
    }

    fn ask_one(&self, socket: &std::path::Path) -> Result<Found> {
        let mut tick = || Ok(());
        // No process is to be watched for this client: 0 is none.
        let user = self.user.as_deref().filter(|user| !user.is_empty()).map(user_number).transpose()?;
        let client = Client::connect_to(socket, user, 0, PATIENCE, &mut tick)?;
        let stats = client.stats(GetStats::default(), PATIENCE, &mut tick)?;
        Ok(Found { socket: socket.display().to_string(), stats })
    }
}

#[cfg(test)]
mod tests {
    use hotset_wire::proto::JobStats;

    use super::*;

    fn asked(job: &str, watch: Option<f64>) -> Result<Vec<Found>> {
        let stats = Stats { server: None, user: None, job: job.into(), json: false, watch, epochs: 5 };
        let jobs = ["run/train", "run/val"].map(|job| JobStats { job: job.into(), ..JobStats::default() });
        let found = Found { socket: "x".into(), stats: Answer { server: None, jobs: jobs.to_vec() } };
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
