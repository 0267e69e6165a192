//! `pq`, SHADE's `sh_pq` (FAST 2023, 6.2): the lowest batch-level score is evicted.
//!
//! Every sample is admitted, and evicts the resident whose last mini-batch had the lowest mean loss; one that
//! was never scored stays, and among equal scores the lowest id is evicted. An ablation of `app`: coarse
//! scores, and no ghost table that would keep new samples out.

use super::Entry;
use super::priority::Priority;
use crate::importance::Score;

pub(super) const ENTRY: Entry = Entry {
    name: "pq",
    summary: "evicts the lowest batch-level score (SHADE's ablation)",
    bounded: true,
    offline: false,
    plain: false,
    shared: true,
    parameters: &[],
    build: |setup| Box::new(Priority::policy("pq", setup, Score::Batch, false, false)),
};
