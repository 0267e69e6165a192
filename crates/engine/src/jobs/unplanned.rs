//! Noticing a training that goes past its plans.
//!
//! A job with a sampler may be asked beside its plans: a sample by hand, an evaluation over the training data. Where
//! most is asked that way, and more than half an epoch of it, the sampler has no effect: a loader has `shuffle=True`
//! instead of it, or a wrapper makes numbers of its own. Where an epoch was begun and nothing of it is asked for, a few
//! batches are enough. Then rank 0 is told, once.

use super::job::Job;

/// Samples asked for beside an epoch that was begun, and none along it, before that is noticed: some batches, because a
/// loader asks for the first batch that it draws before it draws many.
const EARLY: u64 = 256;

/// What was noticed of a job.
#[derive(Debug, Default)]
pub(super) struct UnplannedWatch {
    /// Samples served along plans.
    along: u64,
    /// Samples served beside plans since a rank began an epoch.
    since_begun: u64,
    noticed: bool,
    told: bool,
}

impl UnplannedWatch {
    /// So many samples were served along a plan.
    pub(super) fn planned(&mut self, samples: usize) {
        self.along += samples as u64;
    }
}

impl Job {
    /// Looks at what was served beside the plans of so many `samples`, `asked` of it now; what to tell a reader of
    /// `rank`.
    pub(crate) fn notice_unplanned(&mut self, rank: u32, asked: usize, samples: usize) -> Option<String> {
        let beside = self.run.tally().unplanned().served();
        let begun = self.ranks.newest().is_some();
        let watch = &mut self.notices.unplanned;
        if watch.told {
            return None;
        }
        if begun {
            watch.since_begun += asked as u64;
        }
        watch.noticed |= beside * 2 > samples as u64 && beside > watch.along;
        watch.noticed |= watch.since_begun >= EARLY && watch.along == 0;
        watch.told = watch.noticed && rank == 0;
        if watch.told { self.unplanned_remark() } else { None }
    }

    /// What was noticed, in words.
    pub(crate) fn unplanned_remark(&self) -> Option<String> {
        let beside = self.run.tally().unplanned().served();
        self.notices.unplanned.noticed.then(|| {
            format!(
                "{beside} of {} samples served were asked for past the Sampler, so that no plan could prepare them: \
                 give the loader `sampler=sampler`, not `shuffle=True`; in a dataset of your own that wraps this one, \
                 index it with the number you are given; make the Sampler of the `Subset` or `ConcatDataset` that is \
                 loaded; evaluate on a dataset without a Sampler",
                beside + self.notices.unplanned.along
            )
        })
    }
}
