//! The servers that a command asks for their figures: one that is named, or all of this user that answer.
//!
//! A socket of which no server answers may have been left by one that was killed, so it says nothing by itself. Whoever asks
//! decides what an error means: `hotset stats` passes it over, `hotset top` says of a server it knew that it is gone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use hotset_core::{Error, Result};
use hotset_server::user_number;
use hotset_wire::Client;
use hotset_wire::proto::{GetStats, Stats as Answer};
use serde::Serialize;

use crate::place;
use crate::rates::Rate;

/// How long a server has to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which servers and jobs are asked for.
#[derive(Args, Clone, Default)]
pub(crate) struct Servers {
    /// The server's socket [default: all of this user's]
    #[arg(long, env = "HOTSET_SERVER", value_name = "PATH")]
    pub(crate) server: Option<PathBuf>,
    /// The user whose server that is, where it is not yours: a name or a number
    #[arg(long, env = "HOTSET_SERVER_USER", value_name = "USER")]
    pub(crate) user: Option<String>,
    /// This job alone: a name as it is shown here, or what a training has as `job=`
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) job: String,
}

/// One server's answer, and where it was asked.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Found {
    pub(crate) socket: String,
    #[serde(flatten)]
    pub(crate) stats: Answer,
    /// How fast its jobs are, by their names, from the second time that it is asked.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) rates: BTreeMap<String, Rate>,
}

/// A socket that was asked, and what came of it.
pub(crate) type Asked = (String, Result<Found>);

impl Servers {
    /// Asks the named server, or every socket of this user.
    pub(crate) fn ask(&self) -> Vec<Asked> {
        let sockets = self.server.as_ref().map_or_else(sockets, |server| vec![server.clone()]);
        sockets.iter().map(|socket| (socket.display().to_string(), self.ask_one(socket))).collect()
    }

    /// Whether `name` is the job asked for, or of the training with that `job=`, which has one for each dataset.
    pub(crate) fn is_of_job(&self, name: &str) -> bool {
        self.job.is_empty()
            || name.strip_prefix(&self.job).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn ask_one(&self, socket: &Path) -> Result<Found> {
        let mut tick = || Ok(());
        // No process is to be watched for this client: 0 is none.
        let user = self.user.as_deref().filter(|user| !user.is_empty()).map(user_number).transpose()?;
        let client = Client::connect_to(socket, user, 0, PATIENCE, &mut tick)?;
        let stats = client.stats(GetStats::default(), PATIENCE, &mut tick)?;
        Ok(Found { socket: socket.display().to_string(), stats, rates: BTreeMap::new() })
    }
}

/// The sockets in this user's runtime directory.
fn sockets() -> Vec<PathBuf> {
    let mut sockets: Vec<PathBuf> = match std::fs::read_dir(place::runtime()) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
        Err(_) => Vec::new(),
    };
    sockets.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
    sockets.sort();
    sockets
}

/// What is said where no server answers.
pub(crate) fn none_is_running() -> String {
    format!(
        "no Hotset server is running for this user (looked in `{}`): start a training or `hotset serve`, or give `--server`",
        place::runtime().display()
    )
}

/// How long to wait between two questions, as a flag says it.
pub(crate) fn pause(flag: &str, seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|pause| !pause.is_zero())
        .ok_or_else(|| Error::invalid(format!("`{flag}` is {seconds}: give a number of seconds above 0")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_training_is_asked_for_by_its_name_or_by_that_of_one_of_its_datasets() {
        let servers = |job: &str| Servers { job: job.into(), ..Servers::default() };
        for (asked, found) in
            [("", true), ("run", true), ("run/train", true), ("ru", false), ("run/val", false)]
        {
            assert_eq!(servers(asked).is_of_job("run/train"), found, "`{asked}`");
        }
    }

    #[test]
    fn a_server_that_does_not_answer_is_an_error_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let servers = Servers { server: Some(place.path().join("none.sock")), ..Servers::default() };
        let asked = servers.ask();
        assert!(asked.len() == 1 && asked[0].1.is_err());
    }

    #[test]
    fn a_pause_is_longer_than_nothing() {
        assert_eq!(pause("watch", 0.5).unwrap(), Duration::from_millis(500));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let refused = pause("every", wrong).unwrap_err().message;
            assert!(refused.starts_with("`every` is "), "{refused}");
        }
    }
}
