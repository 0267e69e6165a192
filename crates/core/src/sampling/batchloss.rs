//! `batchloss`, SHADE's baselines (FAST 2023, 6.2): `pads` with coarse scores.
//!
//! Every sample's score is the mean loss of the mini-batch in which it was last trained, so samples are told
//! apart by the luck of their batch. The paper's `sh_lru`, `sh_lfu`, `sh_rand`, `sh_pq`, `sh_pqlfu` and
//! `sh_app` are this strategy with the policies `lru`, `lfu`, `random`, `pq`, `pq_lfu` and `app`.

use super::Entry;
use super::pads::{PARAMETERS, Pads};
use crate::importance::Score;

pub(super) const ENTRY: Entry = Entry {
    name: "batchloss",
    summary: "as `pads`, by the mean loss of the mini-batch (SHADE's baselines)",
    policy: "pq",
    parameters: PARAMETERS,
    build: |setup| Box::new(Pads::new(setup, Score::Batch)),
};
