//! A job's planner, apart from everything that requests need.
//!
//! Making a plan takes as long as the dataset is large, and reports keep coming meanwhile. So a report is put
//! into an inbox, and taken out into the planner's table a slice at a time by the next report that finds the planner
//! free, or when the next plan begins. No request waits for a plan that is being made, except one for that plan.
//!
//! Locks are taken in this order: planner, then the engine's, then the inbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotset_core::importance::{Report, SLICE, Score};
use hotset_core::run::Planner;
use hotset_core::sampling::Reevaluation;
use hotset_core::{Id, Result};

use crate::cluster::PackageNews;
use crate::engine::Engine;
use crate::sync::{self, Mutex, MutexGuard};

/// What a trainer told before an epoch's plan was made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    pub(crate) reevaluated: BTreeMap<Id, f32>,
    pub(crate) accuracies: BTreeMap<u32, f64>,
    /// The epoch's order.
    pub(crate) order: Option<Arc<[Id]>>,
}

#[derive(Default)]
struct Inbox {
    reports: Vec<Report>,
    /// How many of them were taken out.
    taken: usize,
    /// Packages that were lost, and those whose write has ended.
    lost: Vec<u32>,
    written: Vec<u32>,
    /// What the job's home is to be told of them, where that is another node.
    news: Option<PackageNews>,
    /// The epoch to which training has gone back.
    rewind: Option<u64>,
    /// By the epoch whose plan needs it.
    told: BTreeMap<u64, Told>,
}

/// A planner behind its own lock, and the inbox of what it has not taken in.
pub(crate) struct PlannerHandle {
    planner: Mutex<Planner>,
    inbox: Mutex<Inbox>,
    /// What its strategy makes of losses.
    pub(crate) score: Score,
    /// Whether its plans need the losses of the epoch before.
    pub(crate) needs_losses: bool,
    /// Whether its plans need something that comes after the epoch before.
    pub(crate) waits_for_trainer: bool,
    /// Whether a trainer gives the order of each epoch.
    pub(crate) takes_order: bool,
    /// Whether its plans need to know what is resident, or how fast the epoch before was: then the epoch before
    /// must be decided to its end.
    pub(crate) looks_back: bool,
    /// Whether they need to know what is resident.
    pub(crate) looks_at_residents: bool,
}

impl PlannerHandle {
    pub(crate) fn new(planner: Planner, adapts: bool) -> Self {
        let strategy = planner.strategy();
        Self {
            score: planner.score(),
            needs_losses: strategy.needs_losses(),
            waits_for_trainer: strategy.waits_for_trainer(),
            takes_order: strategy.takes_order(),
            looks_back: planner.looks_at_residents() || adapts,
            looks_at_residents: planner.looks_at_residents(),
            planner: Mutex::new(planner),
            inbox: Mutex::default(),
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        sync::lock(&self.inbox)
    }

    /// The planner, with everything taken in that was reported before.
    pub(crate) fn planner(&self) -> MutexGuard<'_, Planner> {
        let mut planner = sync::lock(&self.planner);
        while self.take_in(&mut planner) > 0 {}
        planner
    }

    /// What is re-evaluated before an epoch.
    pub(crate) fn reevaluation(&self, epoch: u64) -> Reevaluation {
        let mut planner = self.planner();
        if let Some(before) = epoch.checked_sub(1) {
            planner.close(before);
        }
        planner.reevaluation(epoch)
    }

    /// Puts reports into the inbox, and takes in what it can without waiting for a plan. The most values that were
    /// applied in one hold of the planner.
    pub(crate) fn report(&self, mut reports: Vec<Report>) -> usize {
        self.inbox().reports.append(&mut reports);
        let mut most = 0;
        loop {
            let Some(mut planner) = sync::try_lock(&self.planner) else { return most };
            let applied = self.take_in(&mut planner);
            most = most.max(applied);
            if applied == 0 {
                return most;
            }
        }
    }

    /// Takes a slice out of the inbox; how many reports it held.
    fn take_in(&self, planner: &mut Planner) -> usize {
        let mut inbox = self.inbox();
        let (rewind, lost) = (inbox.rewind.take(), std::mem::take(&mut inbox.lost));
        let written = std::mem::take(&mut inbox.written);
        let from = inbox.taken;
        let until = (from + SLICE).min(inbox.reports.len());
        let slice: Vec<Report> = inbox.reports[from..until].to_vec();
        inbox.taken = until;
        if until == inbox.reports.len() {
            (inbox.reports, inbox.taken) = (Vec::new(), 0);
        }
        // Requests put things in: they must not wait for what is made of them.
        drop(inbox);
        if let Some(epoch) = rewind {
            planner.rewind(epoch);
        }
        written.into_iter().for_each(|package| planner.written(package));
        lost.into_iter().for_each(|package| planner.lost(package));
        if slice.is_empty() { 0 } else { planner.report(&slice) }
    }

    /// Training goes back to `epoch`; what was reported before and not taken in yet is of the future that it left.
    pub(crate) fn rewind(&self, epoch: u64) {
        let mut inbox = self.inbox();
        inbox.rewind = Some(inbox.rewind.map_or(epoch, |other| other.min(epoch)));
        (inbox.reports, inbox.taken) = (Vec::new(), 0);
        inbox.told.clear();
    }

    /// A package was lost: the next plan does without it.
    pub(crate) fn lost(&self, package: u32) {
        let mut inbox = self.inbox();
        match &mut inbox.news {
            Some(news) => news.lost.push(package),
            None => inbox.lost.push(package),
        }
    }

    /// The write of a package has ended.
    pub(crate) fn written(&self, package: u32) {
        let mut inbox = self.inbox();
        match &mut inbox.news {
            Some(news) => news.written.push(package),
            None => inbox.written.push(package),
        }
    }

    /// Plans are made on another node from now on, or here.
    pub(crate) fn set_follows(&self, follows: bool) {
        let mut inbox = self.inbox();
        let news = std::mem::replace(&mut inbox.news, follows.then(PackageNews::default)).unwrap_or_default();
        if !follows {
            inbox.lost.extend(news.lost);
            inbox.written.extend(news.written);
        }
    }

    /// What the job's home is to be told of packages.
    pub(crate) fn news(&self) -> PackageNews {
        self.inbox().news.clone().unwrap_or_default()
    }

    /// The home has heard of this, the first of all that there is to tell.
    pub(crate) fn news_told(&self, told: &PackageNews) {
        if let Some(news) = &mut self.inbox().news {
            news.written.drain(..told.written.len().min(news.written.len()));
            news.lost.drain(..told.lost.len().min(news.lost.len()));
        }
    }

    /// Losses under the current model, for the plan of `epoch`.
    pub(crate) fn reevaluated(&self, epoch: u64, losses: impl Iterator<Item = (Id, f32)>) {
        self.inbox().told.entry(epoch).or_default().reevaluated.extend(losses);
    }

    /// A rank's accuracy, for the plan of `epoch`.
    pub(crate) fn accuracy(&self, epoch: u64, rank: u32, accuracy: f64) {
        self.inbox().told.entry(epoch).or_default().accuracies.insert(rank, accuracy);
    }

    /// The order of an epoch, for its plan.
    pub(crate) fn give_order(&self, epoch: u64, order: Arc<[Id]>) {
        self.inbox().told.entry(epoch).or_default().order = Some(order);
    }

    /// What was told for the plan of `epoch`; what was told for earlier ones is forgotten.
    pub(crate) fn told(&self, epoch: u64) -> Told {
        let mut inbox = self.inbox();
        inbox.told = inbox.told.split_off(&epoch);
        inbox.told.get(&epoch).cloned().unwrap_or_default()
    }
}

impl Told {
    /// The mean of the ranks' accuracies.
    pub(crate) fn accuracy(&self) -> Option<f64> {
        let sum: f64 = self.accuracies.values().sum();
        (!self.accuracies.is_empty()).then(|| sum / self.accuracies.len() as f64)
    }
}

impl Engine {
    /// What became of packages of a job that the home is to be told, where that is another node.
    pub fn package_news(&self, job: &str) -> PackageNews {
        self.planner_of(job).map(|planner| planner.news()).unwrap_or_default()
    }

    /// The home was told.
    pub fn package_news_told(&self, job: &str, news: &PackageNews) {
        let planner = self.planner_of(job);
        planner.into_iter().for_each(|planner| planner.news_told(news));
    }

    fn planner_of(&self, job: &str) -> Option<Arc<PlannerHandle>> {
        self.shared.lock().jobs.named(job).ok()?.planner.clone()
    }

    /// What became of packages on another node of a job that this one is the home of.
    pub fn note_packages(&self, job: &str, news: &PackageNews) {
        if let Some(planner) = self.planner_of(job) {
            news.written.iter().for_each(|&package| planner.written(package));
            news.lost.iter().for_each(|&package| planner.lost(package));
        }
    }

    /// A job that another node is the home of has ended for good: what is not kept of its packages is removed when it ends here.
    pub fn note_over(&self, job: &str) {
        if let Ok(job) = self.shared.lock().jobs.named(job) {
            job.nodes.note_over();
        }
    }

    /// A job goes on at another node: what is written of its packages stays when it ends here.
    pub fn hand_on(&self, job: &str) {
        if let Ok(job) = self.shared.lock().jobs.named(job) {
            job.nodes.hand_on();
        }
    }

    /// Does `work` while no plan of `job` can be made, as while a long one is being made. For tests of what waits for
    /// plans.
    #[doc(hidden)]
    pub fn without_plans<T>(&self, job: &str, work: impl FnOnce() -> T) -> Result<T> {
        let planner = self.shared.lock().jobs.named(job)?.planner.clone();
        let held = planner.as_ref().map(|planner| planner.planner());
        let done = work();
        drop(held);
        Ok(done)
    }
}
