//! Noticing a training that goes past its plans.
//!
//! A job with a sampler may be asked beside its plans: a sample by hand, an evaluation over the training data. Where
//! most is asked that way, and more than half an epoch of it, the sampler has no effect: a loader has `shuffle=True`
//! instead of it, or a wrapper makes numbers of its own. Then rank 0 is told, once.

use crate::job::Job;

/// What was noticed of a job.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// Samples served along plans.
    pub(crate) along: u64,
    noticed: bool,
    told: bool,
}

impl Job {
    /// Looks at what was served beside the plans of so many `samples`; what to tell a reader of `rank`.
    pub(crate) fn notice_beside(&mut self, rank: u32, samples: usize) -> Option<String> {
        if self.beside.told {
            return None;
        }
        let beside = self.run.tally().unplanned().served();
        self.beside.noticed |= beside * 2 > samples as u64 && beside > self.beside.along;
        self.beside.told = self.beside.noticed && rank == 0;
        if self.beside.told { self.beside_remark() } else { None }
    }

    /// What was noticed, in words.
    pub(crate) fn beside_remark(&self) -> Option<String> {
        let beside = self.run.tally().unplanned().served();
        self.beside.noticed.then(|| {
            format!(
                "{beside} of {} samples served were asked for past the Sampler, so that no plan could prepare them: \
                 give the loader `sampler=sampler`, not `shuffle=True`; in a dataset of your own that wraps this one, \
                 index it with the number you are given; make the Sampler of the `Subset` or `ConcatDataset` that is \
                 loaded; evaluate on a dataset without a Sampler",
                beside + self.beside.along
            )
        })
    }
}
