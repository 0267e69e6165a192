//! What a user should know of a job and is no error.
//!
//! All of it is shown by `hotset stats`. What warns is said to the trainer as well, once a run: to the client that opens
//! the job what is known then, the rest to rank 0 when it begins an epoch.

use hotset_core::bytes::human;
use hotset_core::{Remark, Result};

use crate::config::OFF;
use crate::engine::Engine;
use crate::job::Job;

/// The name of what was said when the job was opened.
const OPENING: &str = "opening";

impl Job {
    /// What a user should know of it now.
    pub(crate) fn remarks(&self) -> Vec<Remark> {
        let mut remarks: Vec<Remark> =
            self.grant.remarks.iter().map(|text| Remark::warning(OPENING, text.as_str())).collect();
        let told = self.request.packages.as_deref().is_some_and(|place| place != OFF) || !remarks.is_empty();
        if self.source.is_none() && !told && self.run.cache().policy().takes_packages() && self.mind.is_some()
        {
            remarks.push(Remark::note(
                "no packages",
                "no packages, so the whole cache is for hard samples: `packages=` names a place",
            ));
        }
        let failed = self.press.as_ref().and_then(|press| press.failed());
        remarks.extend(failed.map(|why| Remark::warning("packages failed", why)));
        remarks.extend(self.no_losses());
        // Readers hear of it as soon as it is noticed.
        remarks.extend(self.beside_remark().map(|text| Remark::note("beside", text)));
        remarks.extend(self.order_remark().map(|text| Remark::note("order", text)));
        remarks.extend(self.plan_remarks.iter().cloned());
        remarks
    }

    /// A strategy that plans from losses, an epoch trained, and none told, or none that counts.
    fn no_losses(&self) -> Option<Remark> {
        let needs = self.mind.as_ref().is_some_and(|mind| mind.needs_losses);
        let newest = *self.begun.values().max()?;
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
        let strategy = &self.grant.strategy;
        if kept == 0 && rejected > 0 {
            let text = format!(
                "strategy `{strategy}` was told {rejected} losses, and none can be used: each is negative, infinite or not \
                 a number, so every epoch is a full one. Give `sampler.update(ids, loss)` one score of at least 0 for \
                 each sample"
            );
            return Some(Remark::warning("no losses", text));
        }
        let told = kept > 0 || !self.reported.is_empty() || !self.gathering.evaluated.is_empty();
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
pub(crate) fn less_memory(granted: u64, wanted: u64, memory: u64, taken: u64) -> String {
    let nothing = if granted == 0 { ", so nothing of it is cached" } else { "" };
    format!(
        "the server grants {} of the {} that `cache=` asks for{nothing}: all jobs together may keep {} (`hotset serve \
         --memory`), and others have {}. Start it with more `--memory`, or ask for less with `cache=` in every job",
        human(granted),
        human(wanted),
        human(memory),
        human(taken)
    )
}

impl Engine {
    /// Warnings of a job that nobody was told yet. Whoever asks tells them.
    pub fn untold(&self, job: &str) -> Result<Vec<Remark>> {
        let mut state = self.shared.lock();
        let serial = state.job(job)?;
        let Some(job) = state.jobs.get_mut(&serial) else { return Ok(Vec::new()) };
        let mut remarks = job.remarks();
        remarks.retain(|remark| remark.warns && remark.name != OPENING && job.told.insert(remark.name));
        Ok(remarks)
    }
}
