//! `pq_lfu`, SHADE's `sh_pqlfu` (FAST 2023, 6.2): as `pq`, with ties broken by how often a sample was
//! requested.
//!
//! All samples of a mini-batch share a score, so ties are common; among them the one requested least often is
//! evicted. Request counts are remembered after eviction.

use super::Entry;
use super::priority::Priority;
use crate::importance::Score;

pub(super) const ENTRY: Entry = Entry {
    name: "pq_lfu",
    summary: "evicts the lowest batch-level score, among equals the one asked for least (SHADE's ablation)",
    bounded: true,
    offline: false,
    plain: false,
    shared: true,
    parameters: &[],
    build: |setup| Box::new(Priority::policy("pq_lfu", setup, Score::Batch, false, true)),
};
