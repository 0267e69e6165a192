//! What a user should know of a job and is no error.
//!
//! All of it is shown by `hotset stats`. What warns is said to the trainer as well, once a run: to the client that opens
//! the job what is known then, the rest to rank 0 when it begins an epoch.

use std::collections::BTreeSet;

use hotset_core::bytes::human;
use hotset_core::cache::Cache;
use hotset_core::{Id, Remark, Result};

use super::job::Job;
use super::order::OrderWatch;
use super::pacing::Pacing;
use super::unplanned::UnplannedWatch;
use crate::config::OFF;
use crate::engine::Engine;
use crate::state::State;

/// The name of what was said when the job was opened.
const OPENING: &str = "opening";

/// What was noticed of a job, and what of it was told.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// What its strategy says of its last plan.
    figures: Vec<(&'static str, f64)>,
    of_plan: Vec<Remark>,
    /// Names of the warnings that were told.
    told: BTreeSet<&'static str>,
    /// How fast it is read and trained.
    pub(crate) pacing: Pacing,
    pub(super) unplanned: UnplannedWatch,
    pub(super) order: OrderWatch,
}

impl Notices {
    /// What a strategy says of a plan that was made.
    pub(crate) fn planned(&mut self, figures: Vec<(&'static str, f64)>, remarks: Vec<Remark>) {
        (self.figures, self.of_plan) = (figures, remarks);
    }

    /// What its strategy says of its last plan.
    pub(crate) fn figures(&self) -> &[(&'static str, f64)] {
        &self.figures
    }

    /// So many samples were served along a plan.
    pub(crate) fn served_planned(&mut self, samples: usize) {
        self.unplanned.planned(samples);
    }

    /// A reader asks for samples, of so many, that no plan serves.
    pub(crate) fn asked(&mut self, reader: u64, ids: impl Iterator<Item = Id>, samples: usize) {
        self.order.look(reader, ids, samples);
    }
}

impl Job {
    /// What a user should know of it and of its cache now.
    pub(crate) fn remarks(&self, cache: &Cache) -> Vec<Remark> {
        let mut remarks: Vec<Remark> =
            self.opened.grant.remarks.iter().map(|text| Remark::warning(OPENING, text.as_str())).collect();
        let told =
            self.opened.request.packages.as_deref().is_some_and(|place| place != OFF) || !remarks.is_empty();
        if self.packages.source().is_none()
            && !told
            && cache.policy().takes_packages()
            && self.planner.is_some()
        {
            remarks.push(Remark::note(
                "no packages",
                "no packages, so the whole cache is for hard samples: `packages=` names a place",
            ));
        }
        let (capacity, asked) = (cache.policy().capacity(), self.opened.grant.asked);
        if self.opened.grant.remarks.is_empty() && capacity < asked.min(self.dataset.catalog.bytes()) {
            let text = format!(
                "its cache may keep {} of the {} that `cache=` asks for: memory is divided between all that is \
                 trained here",
                human(capacity),
                human(asked)
            );
            remarks.push(Remark::note("divided", text));
        }
        let failed = self.packages.queue().and_then(|queue| queue.failed());
        remarks.extend(failed.map(|why| Remark::warning("packages failed", why)));
        remarks.extend(self.no_losses());
        // Readers hear of it as soon as it is noticed.
        remarks.extend(self.unplanned_remark().map(|text| Remark::note("beside", text)));
        remarks.extend(self.order_remark().map(|text| Remark::note("order", text)));
        remarks.extend(self.notices.of_plan.iter().cloned());
        remarks
    }

    /// A strategy that plans from losses, an epoch trained, and none told, or none that counts.
    fn no_losses(&self) -> Option<Remark> {
        let needs = self.planner.as_ref().is_some_and(|planner| planner.needs_losses);
        let newest = self.ranks.newest()?;
        let trained = self.run.tally().epochs().range(..newest).any(|(_, counters)| counters.served() > 0);
        if !needs || !trained {
            return None;
        }
        let (kept, rejected) = self
            .run
            .tally()
            .epochs()
            .values()
            .chain([self.run.tally().past()])
            .fold((0, 0), |(kept, rejected), some| {
                (kept + some.clock.reported, rejected + some.clock.rejected_scores)
            });
        let strategy = &self.opened.grant.strategy;
        if kept == 0 && rejected > 0 {
            let text = format!(
                "strategy `{strategy}` was told {rejected} losses, and none can be used: each is negative, infinite or not \
                 a number, so every epoch is a full one. Give `sampler.update(ids, loss)` one score of at least 0 for \
                 each sample"
            );
            return Some(Remark::warning("no losses", text));
        }
        let told = kept > 0 || self.ranks.has_told();
        (!told).then(|| {
            let text = format!(
                "strategy `{strategy}` was told no losses in its first epoch, and can choose nothing without them: every \
                 epoch is a full one. Call `sampler.update(ids, loss)` for each batch, with the ids that \
                 `with_ids=True` gives, or choose a strategy that needs no losses, such as `uniform`"
            );
            Remark::warning("no losses", text)
        })
    }
}

/// What is said to a job that gets less memory than it asks for.
pub(crate) fn less_memory(granted: u64, wanted: u64, (budget, asked): (u64, u64), is_set: bool) -> String {
    let nothing = if granted == 0 { ", so nothing of it is cached" } else { "" };
    let (limit, advice) = if is_set {
        (
            "`hotset serve --memory`",
            "Start it with more `--memory`, or ask for less with `cache=` in every job",
        )
    } else {
        ("what this machine has free", "Ask for less with `cache=` in every job")
    };
    format!(
        "the server grants {} of the {} that `cache=` asks for{nothing}: all jobs together may keep {} ({limit}) and ask \
         for {}, so each gets its part. {advice}",
        human(granted),
        human(wanted),
        human(budget),
        human(asked)
    )
}

impl Engine {
    /// Warnings of a job that were not told yet. The caller tells them.
    pub fn untold(&self, job: &str) -> Result<Vec<Remark>> {
        let mut state = self.shared.lock();
        let State { jobs, rooms, .. } = &mut *state;
        let job = jobs.named(job)?;
        let mut remarks = job.remarks(rooms.cache(job.serial)?);
        let told = &mut job.notices.told;
        remarks.retain(|remark| remark.warns && remark.name != OPENING && told.insert(remark.name));
        Ok(remarks)
    }
}
