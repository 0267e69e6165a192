//! `hotset state list` and `hotset state drop`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand};
use hotset_core::bytes::human;
use hotset_core::{Error, Result};
use hotset_server::state::{all_of_run, list};
use serde::Serialize;

use crate::{place, table};

/// List or drop what servers have written down of jobs.
///
/// A server that is killed goes on from the state of its jobs: plans, scores, and what the policy keeps. The state
/// of a `job=` stays when its process ends, for a run that resumes it: of the newest run and of the one before.
#[derive(Args)]
pub(crate) struct State {
    /// Where states are kept [default: state in $HOTSET_CACHE_DIR or ~/.cache/hotset]
    #[arg(long, global = true, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show every state: its job, what it holds, and its age
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Drop states; a job whose server runs writes a new one when its next epoch begins
    Drop {
        /// The jobs to forget
        #[arg(required_unless_present = "all", value_name = "JOB")]
        jobs: Vec<String>,
        /// Forget all, damaged ones too
        #[arg(long, conflicts_with = "jobs")]
        all: bool,
    },
}

/// One state, for showing.
#[derive(Serialize)]
struct Line {
    job: String,
    run: String,
    strategy: String,
    policy: String,
    samples: u64,
    epoch: Option<u64>,
    bytes: u64,
    age_seconds: u64,
    /// Why it cannot be used; empty if it can.
    damage: String,
    #[serde(skip)]
    path: PathBuf,
}

impl State {
    pub(crate) fn run(self) -> Result<()> {
        let directory = self
            .directory
            .or_else(place::state)
            .ok_or_else(|| Error::invalid("there is no home directory to look in: give `--directory`"))?;
        let lines = read(&directory);
        match self.command {
            Command::List { json } => show(&lines, json, &directory),
            Command::Drop { jobs, all } => drop_states(&lines, &jobs, all),
        }
    }
}

fn read(directory: &Path) -> Vec<Line> {
    let line = |(path, state): (PathBuf, Result<hotset_wire::state::JobState>)| {
        let metadata = std::fs::metadata(&path).ok();
        let age = metadata.as_ref().and_then(|m| SystemTime::now().duration_since(m.modified().ok()?).ok());
        let (state, damage) = match state {
            Ok(state) if path.extension().is_some_and(|extension| extension == "aside") => {
                (state, "set aside".to_owned())
            }
            Ok(state) => (state, String::new()),
            Err(error) => (hotset_wire::state::JobState::default(), error.message),
        };
        let settings = state.settings.unwrap_or_default();
        Line {
            epoch: state.ranks.iter().map(|rank| rank.epoch).max(),
            job: state.job,
            run: state.run,
            strategy: settings.strategy,
            policy: settings.policy,
            samples: state.samples,
            bytes: metadata.map_or(0, |metadata| metadata.len()),
            age_seconds: age.map_or(0, |age| age.as_secs()),
            damage,
            path,
        }
    };
    list(directory).into_iter().map(line).collect()
}

fn show(lines: &[Line], json: bool, directory: &Path) -> Result<()> {
    let text = if json {
        serde_json::to_string(lines)
            .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?
    } else if lines.is_empty() {
        format!("no states in `{}`", directory.display())
    } else {
        table::plain(lines.iter().map(|line| {
            if !line.damage.is_empty() {
                let name =
                    if line.job.is_empty() { line.path.display().to_string() } else { line.job.clone() };
                return vec![name, line.damage.clone()];
            }
            let epoch = line.epoch.map_or("no epoch".to_owned(), |epoch| format!("epoch {epoch}"));
            let age = format!("{} min old", line.age_seconds / 60);
            vec![line.job.clone(), line.run.clone(), line.strategy.clone(), epoch, human(line.bytes), age]
        }))
    };
    table::print(&format!("{text}\n"));
    Ok(())
}

fn drop_states(lines: &[Line], jobs: &[String], all: bool) -> Result<()> {
    if let Some(unknown) = jobs.iter().find(|job| !lines.iter().any(|line| line.job == **job)) {
        return Err(Error::invalid(format!(
            "there is no state of a job `{unknown}`; see `hotset state list`"
        )));
    }
    for line in lines.iter().filter(|line| all || jobs.contains(&line.job)) {
        for file in all_of_run(&line.path).into_iter().filter(|file| file.exists()) {
            std::fs::remove_file(&file)
                .map_err(|error| Error::invalid(format!("cannot remove `{}`: {error}", file.display())))?;
        }
    }
    Ok(())
}
