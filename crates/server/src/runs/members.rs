//! The clients in a job, and the run that it is.
//!
//! A job has one training process for each rank. A second one that begins an epoch for a rank is another run of the
//! same name, and is refused while the first lives; that a launcher started its processes over is known by their
//! attempt. When the first is gone the second is refused too: it was forked with a sampler that another has trained
//! with, and would go on from that one's scores. A process lives as long as its connection: the kernel closes it with the
//! process, and readers have their own.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hotset_core::{Error, Result};
use hotset_engine::SessionId;
use hotset_wire::proto::Launch;

use super::Run;
use crate::state::{Journal, Place};

/// A client's connection, and the process at its other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) session: SessionId,
    pub(crate) process: u32,
}

/// One open job: its run, and the processes in it.
pub(crate) struct Members {
    run: String,
    /// The place it goes on from, if it does.
    pub(crate) place: Option<Place>,
    /// The epoch there, where what was known is known again.
    pub(crate) resumed: Option<u64>,
    /// The newest epoch of an earlier run, where it does not.
    pub(crate) earlier: Option<u64>,
    lasting: bool,
    /// What is written down of it; `None` where nothing is, or another job has gone on with its run.
    pub(super) journal: Option<Arc<Journal>>,
    launch: Launch,
    /// The launcher on each host: how often it has started its processes over, and its own process.
    launchers: HashMap<String, (u64, String)>,
    /// Training processes that are connected.
    trainers: HashMap<SessionId, u32>,
    /// The processes that came as the ranks a launcher gave them.
    came: HashMap<u32, u32>,
    /// The clients that have begun epochs as which rank, while connected.
    holders: BTreeMap<u32, Peer>,
    /// The processes that have begun epochs as which rank, connected or not.
    trained: HashMap<u32, u32>,
}

/// What becomes of an open job when a process asks for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Join,
    /// Its run is over, and the process begins another.
    Over,
}

impl Members {
    pub(crate) fn new(run: String, lasting: bool, journal: Option<Journal>, launch: Launch) -> Self {
        Self {
            run,
            place: None,
            resumed: None,
            earlier: None,
            lasting,
            journal: journal.map(Arc::new),
            launchers: HashMap::from([(launch.node.clone(), (launch.attempt, launch.parent.clone()))]),
            launch,
            trainers: HashMap::new(),
            came: HashMap::new(),
            holders: BTreeMap::new(),
            trained: HashMap::new(),
        }
    }

    pub(super) fn run(&self) -> Run {
        Run {
            run: self.run.clone(),
            place: self.place,
            resumed: self.resumed,
            earlier: self.earlier,
            lasting: self.lasting,
            journal: self.journal.clone(),
        }
    }

    pub(super) fn is_of(&self, run: &str) -> bool {
        self.run == run
    }

    /// Whether a training process is in it on that connection.
    pub(super) fn has(&self, session: SessionId) -> bool {
        self.trainers.contains_key(&session)
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

    /// Whether a launch started the processes of this job too, however few of them live. On each host it has a launcher.
    fn launched_with(&self, launch: &Launch) -> bool {
        let is_known =
            |(attempt, parent): &(u64, String)| (attempt, parent) == (&launch.attempt, &launch.parent);
        let named = !launch.name.is_empty() && !launch.parent.is_empty() && self.launch.name == launch.name;
        named && self.launchers.get(&launch.node).is_none_or(is_known)
    }

    /// Compares with the attempt of a process of the same launch; `None` where it is another launch's. Launchers of several hosts
    /// count for themselves.
    pub(super) fn attempt(&self, launch: &Launch) -> Option<std::cmp::Ordering> {
        let same = !launch.name.is_empty() && self.launch.name == launch.name;
        let (attempt, _) = self.launchers.get(&launch.node).filter(|_| same)?;
        Some(attempt.cmp(&launch.attempt))
    }

    /// Takes a process in.
    pub(super) fn join(&mut self, peer: Peer, launch: &Launch) {
        if launch.reader {
            return;
        }
        self.trainers.insert(peer.session, peer.process);
        let launcher = (launch.attempt, launch.parent.clone());
        self.launchers.entry(launch.node.clone()).or_insert(launcher);
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
        let is_new = || self.trained.values().all(|process| *process != peer.process);
        if self.trained.contains_key(&rank) && is_new() {
            return Err(trained(job));
        }
        self.holders.insert(rank, peer);
        Ok(())
    }

    /// A process has begun an epoch as `rank`.
    pub(super) fn begun(&mut self, peer: Peer, rank: u32) {
        self.trained.insert(rank, peer.process);
    }

    /// A connection has ended, or has left the job.
    pub(super) fn leave(&mut self, session: SessionId) {
        self.trainers.remove(&session);
        self.holders.retain(|_, holder| holder.session != session);
    }

    /// Another run begins under its name, or goes on with its own.
    pub(super) fn close(self) {
        self.journal.iter().for_each(|journal| journal.close());
    }

    /// The job is over: the state of one whose name was made up cannot be asked for again.
    pub(super) fn end(self) {
        match &self.journal {
            Some(journal) if !self.lasting => journal.drop_files(),
            _ => self.close(),
        }
    }
}

pub(super) fn taken(job: &str) -> Error {
    Error::invalid(format!(
        "another training runs as job `{job}` now, and two cannot train under one name: wait for its end, or give this \
         run a `job=` of its own"
    ))
}

fn trained(job: &str) -> Error {
    Error::invalid(format!(
        "another process has trained with this sampler of job `{job}` and is gone, and one sampler is one run: make the \
         `Sampler` in the process that trains, or go on with its run from a checkpoint (`sampler.load_state_dict`)"
    ))
}
