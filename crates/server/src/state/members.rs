//! Who is in a job, and of which run it is.
//!
//! A job has one training process for each rank. A second one that begins an epoch for a rank is another run of the
//! same name, and is refused while the first lives; that a launcher started its processes over is known by their
//! attempt. A process lives as long as its connection: the kernel closes it with the process, and readers have their
//! own.

use std::collections::{BTreeMap, HashMap};

use hotset_core::{Error, Result};
use hotset_engine::{Engine, SessionId};
use hotset_wire::proto::{Launch, Report};

use super::files::{Files, Place};

/// A client's connection, and the process at its other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) session: SessionId,
    pub(crate) process: u32,
}

/// The processes of each run.
pub(super) struct Members {
    pub(super) run: String,
    /// The place it goes on from, if it does.
    pub(super) place: Option<Place>,
    /// The epoch there, where what was known is known again.
    pub(super) resumed: Option<u64>,
    /// The newest epoch of an earlier run, where it does not.
    pub(super) earlier: Option<u64>,
    pub(super) lasting: bool,
    /// Its files; `None` where nothing is written down, or another job has gone on with its run.
    pub(super) files: Option<Files>,
    launch: Launch,
    /// Training processes that are connected.
    trainers: HashMap<SessionId, u32>,
    /// The processes that came as the ranks a launcher gave them.
    came: HashMap<u32, u32>,
    /// Who has begun epochs as which rank, while connected.
    holders: BTreeMap<u32, Peer>,
}

/// What becomes of a job when somebody asks for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Join,
    /// Its run is over, and whoever asks begins another.
    Over,
}

impl Members {
    pub(super) fn new(run: String, lasting: bool, files: Option<Files>, launch: Launch) -> Self {
        Self {
            run,
            place: None,
            resumed: None,
            earlier: None,
            lasting,
            files,
            launch,
            trainers: HashMap::new(),
            came: HashMap::new(),
            holders: BTreeMap::new(),
        }
    }

    /// How a process that asks for the open job gets in. `run` is the one that it was in before, if it was.
    pub(super) fn entry(&self, job: &str, peer: Peer, run: Option<&str>, launch: &Launch) -> Result<Entry> {
        let lives = !self.trainers.is_empty();
        if let Some(run) = run {
            return match () {
                () if run == self.run => Ok(Entry::Join),
                () if lives => Err(taken(job)),
                () => Ok(Entry::Over),
            };
        }
        if lives && !self.launch.name.is_empty() && !launch.name.is_empty() && self.launch.name != launch.name
        {
            return Err(taken(job));
        }
        if let Some(before) = launch.rank.and_then(|rank| self.came.get(&rank))
            && *before != peer.process
        {
            // The same rank again, from another process: the launch was started over, or is another one.
            return if self.trainers.values().any(|process| process == before) {
                Err(taken(job))
            } else {
                Ok(Entry::Over)
            };
        }
        Ok(if lives || self.launched_with(launch) { Entry::Join } else { Entry::Over })
    }

    /// Whether a launch started the processes of this job too, however few of them live.
    fn launched_with(&self, launch: &Launch) -> bool {
        let own = &self.launch;
        !own.name.is_empty()
            && !own.parent.is_empty()
            && (&own.name, own.attempt, &own.parent) == (&launch.name, launch.attempt, &launch.parent)
    }

    /// Compares with the attempt of a process of the same launch; `None` where it is another launch's.
    pub(super) fn attempt(&self, launch: &Launch) -> Option<std::cmp::Ordering> {
        (!launch.name.is_empty() && self.launch.name == launch.name)
            .then(|| self.launch.attempt.cmp(&launch.attempt))
    }

    /// Takes a process in.
    pub(super) fn join(&mut self, peer: Peer, launch: &Launch) {
        if launch.reader {
            return;
        }
        self.trainers.insert(peer.session, peer.process);
        if let Some(rank) = launch.rank {
            self.came.insert(rank, peer.process);
        }
    }

    /// Whether epochs were begun here by processes that live, and `peer` is none of them.
    pub(super) fn is_foreign_to(&self, peer: Peer) -> bool {
        !self.holders.is_empty() && self.holders.values().all(|holder| holder.process != peer.process)
    }

    /// Notes that a process begins an epoch as `rank`, which no other may be.
    pub(super) fn begin(&mut self, job: &str, peer: Peer, rank: u32) -> Result<()> {
        if self.holders.get(&rank).is_some_and(|holder| holder.process != peer.process) {
            return Err(taken(job));
        }
        self.holders.insert(rank, peer);
        Ok(())
    }

    /// Before a training process leaves: where it reports no losses, it is written down that all of its epoch was served.
    pub(super) fn note_served(&mut self, engine: &Engine, job: &str, session: SessionId) {
        let Some(files) = self.files.as_mut().filter(|_| self.trainers.contains_key(&session)) else {
            return;
        };
        let Some(epoch) = files.untold() else { return };
        let stats = engine.job_stats(Some(job)).pop();
        let served = stats.is_some_and(|stats| {
            let counted = stats.epochs.into_iter().find(|(found, _)| *found == epoch);
            counted.is_some_and(|(_, counters)| {
                counters.plan.planned > 0 && counters.served() >= counters.plan.planned
            })
        });
        if !served {
            return;
        }
        let Ok(Some(snapshot)) = engine.snapshot(job) else { return };
        let Some(cut) = snapshot.cuts.get(&epoch) else { return };
        for rank in 0..cut.world {
            files.append(&Report {
                job: job.to_owned(),
                epoch,
                rank,
                upto: cut.rank_len,
                ..Report::default()
            });
        }
    }

    /// A connection has ended, or has left the job.
    pub(super) fn leave(&mut self, session: SessionId) {
        self.trainers.remove(&session);
        self.holders.retain(|_, holder| holder.session != session);
    }
}

pub(super) fn taken(job: &str) -> Error {
    Error::invalid(format!(
        "another training runs as job `{job}` now, and two cannot train under one name: wait for its end, or give this \
         run a `job=` of its own"
    ))
}
