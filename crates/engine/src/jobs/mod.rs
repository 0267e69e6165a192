//! The jobs there are, by number and by name.

mod clients;
mod epochs;
mod given;
mod job;
mod nodes;
mod order;
mod pacing;
mod packages;
mod probing;
mod ranks;
mod reach;
mod remarks;
mod unplanned;
mod visitors;
mod window;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use hotset_core::{Error, Kind, Result};

pub(crate) use epochs::{Joining, check_epoch, check_rank};
pub use given::GivenOrder;
pub(crate) use job::Job;
pub(crate) use nodes::JobNodes;
pub use pacing::Span;
pub(crate) use packages::{JobPackages, PackageSource};
pub(crate) use ranks::Choice;
pub use ranks::Cut;
pub(crate) use remarks::less_memory;
pub(crate) use visitors::Visitors;

use crate::stats::JobStats;

/// All jobs that are open.
#[derive(Default)]
pub(crate) struct Jobs {
    open: BTreeMap<u64, Job>,
    names: HashMap<String, u64>,
    /// The figures of the last ones that have ended, until they are asked for.
    figures: VecDeque<JobStats>,
}

/// The most jobs whose figures stay when they have ended.
const ENDED: usize = 256;

impl Jobs {
    /// A job ends with these figures.
    pub(crate) fn note_ended(&mut self, figures: JobStats) {
        self.figures.push_back(figures);
        if self.figures.len() > ENDED {
            self.figures.pop_front();
        }
    }

    /// The figures of jobs that have ended since this was asked last.
    pub(crate) fn take_ended(&mut self) -> Vec<JobStats> {
        std::mem::take(&mut self.figures).into()
    }

    /// Takes a job in.
    pub(crate) fn insert(&mut self, job: Job) {
        self.names.insert(job.name().to_owned(), job.serial);
        self.open.insert(job.serial, job);
    }

    /// Takes a job out.
    pub(crate) fn remove(&mut self, serial: u64) -> Option<Job> {
        let job = self.open.remove(&serial)?;
        self.names.remove(job.name());
        Some(job)
    }

    pub(crate) fn get(&self, serial: u64) -> Option<&Job> {
        self.open.get(&serial)
    }

    pub(crate) fn get_mut(&mut self, serial: u64) -> Option<&mut Job> {
        self.open.get_mut(&serial)
    }

    /// A job that was there before the lock was last taken.
    pub(crate) fn still(&mut self, serial: u64) -> Result<&mut Job> {
        self.open.get_mut(&serial).ok_or_else(|| Error::new(Kind::Lost, "the job was closed meanwhile"))
    }

    /// The job of this name.
    pub(crate) fn named(&mut self, name: &str) -> Result<&mut Job> {
        let serial = self.names.get(name).copied();
        serial.and_then(|serial| self.open.get_mut(&serial)).ok_or_else(|| {
            Error::new(Kind::Lost, format!("this server does not know job `{name}`: open it again"))
        })
    }

    /// The job of this name, which must have plans.
    pub(crate) fn planned(&mut self, name: &str) -> Result<&mut Job> {
        let job = self.named(name)?;
        if job.planner.is_none() {
            return Err(Error::invalid(format!("job `{name}` has no strategy: open it with one")));
        }
        Ok(job)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.open.values()
    }

    pub(crate) fn serials(&self) -> Vec<u64> {
        self.open.keys().copied().collect()
    }

    /// Those whose windows have moved on, and what entered them was not read.
    pub(crate) fn behind(&self) -> Vec<u64> {
        self.open.values().filter(|job| job.window.is_behind()).map(|job| job.serial).collect()
    }

    /// Those that read on when memory is let go of.
    pub(crate) fn short(&self) -> Vec<u64> {
        self.open.values().filter(|job| job.window.is_short()).map(|job| job.serial).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// The datasets that they train.
    pub(crate) fn datasets(&self) -> HashSet<u32> {
        self.open.values().map(|job| job.dataset.key).collect()
    }

    /// A job has come or gone.
    pub(crate) fn set_changed(&mut self) {
        self.open.values_mut().for_each(|job| job.probing.gauge.changed());
    }

    /// A client has gone: jobs that it was the last of begin to linger.
    pub(crate) fn leave(&mut self, client: u64, now: Instant) {
        self.open.values_mut().for_each(|job| job.clients.leave(client, now));
    }

    /// Jobs whose last client went longer ago than they linger, or has said that the run is over.
    pub(crate) fn ended(&self, linger: Duration, now: Instant) -> Vec<u64> {
        let over = self.open.iter().filter(|(_, job)| job.clients.are_gone(linger, now));
        over.map(|(&serial, _)| serial).collect()
    }
}
