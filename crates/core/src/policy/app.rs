//! `app`, SHADE's adaptive priority-aware prediction (FAST 2023, 4.3, algorithm 1).
//!
//! While there is room every sample is admitted. After that a sample is admitted only if its score is known
//! and not below the lowest score of a resident, which it evicts; among equal scores the lowest id is
//! evicted, and a resident that was never scored stays. The *ghost table* knows the last score of every id
//! that was ever scored. Scores change the moment they are reported, not with a plan, so a run repeats only
//! if its events are replayed.
//!
//! Differs from the paper: its text says the ghost table knows every id ever cached, its algorithm every id
//! ever scored; this is the algorithm. Capacity is bytes.

use super::Entry;
use super::priority::Priority;
use crate::importance::Score;

pub(super) const ENTRY: Entry = Entry {
    name: "app",
    summary: "keeps the highest scores, and admits only samples that are known and not below them (SHADE)",
    bounded: true,
    offline: false,
    plain: false,
    shared: true,
    parameters: &[],
    build: |setup| Box::new(Priority::policy("app", setup, Score::Rank, true, false)),
};
