//! What came of a run over nodes: where servings came from, and how evenly nodes are loaded.

use hotset_core::cluster::PlacementKind;
use serde::Serialize;

use super::cluster::Decided;
use crate::outcome::{Mean, Outcome};

/// What an epoch's counters do not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodesEpoch {
    /// Nodes.
    pub nodes: usize,
    /// Hits on what the rank's own node keeps.
    pub hit_local: u64,
    /// Hits on what another node keeps.
    pub hit_peer: u64,
    /// Servings whose bytes came from another node, hits or not.
    pub from_peers: u64,
    /// Their bytes.
    pub peer_bytes: u64,
    /// The bytes of what the node owns that owns most, over the mean.
    pub owned: f64,
    /// The bytes of what the node keeps that keeps most, over the mean, when the epoch ends.
    pub kept: f64,
    /// Samples that were kept before the epoch and have another owner now.
    pub moved: u64,
    /// Their bytes.
    pub moved_bytes: u64,
}

impl NodesEpoch {
    pub(super) fn count(&mut self, decided: &Decided, bytes: u64) {
        if !decided.local {
            self.from_peers += 1;
            self.peer_bytes += bytes;
        }
    }
}

/// One run over nodes.
#[derive(Debug, Clone)]
pub struct NodesOutcome {
    /// Nodes at first.
    pub nodes: usize,
    /// By which rule samples had their owners.
    pub placement: PlacementKind,
    /// What was counted, on all of them together; its cache is one node's as it was asked for, its capacity the sum.
    pub outcome: Outcome,
    /// What that does not say, epoch by epoch.
    pub spread: Vec<NodesEpoch>,
}

/// Means of an epoch, over some epochs and over seeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Samples fetched from storage.
    pub reads: f64,
    /// The share of servings that hit.
    pub hit: f64,
    /// The share of hits on what the rank's own node keeps.
    pub local: f64,
    /// The share of servings whose bytes came from another node.
    pub from_peers: f64,
    /// Their bytes.
    pub peer_bytes: f64,
    /// The bytes of what the node owns that owns most, over the mean.
    pub owned: f64,
    /// The bytes of what the node keeps that keeps most, over the mean.
    pub kept: f64,
    /// Modelled seconds.
    pub seconds: f64,
    /// Modelled seconds without data to compute on.
    pub wait: f64,
}

impl Figures {
    /// Of the epochs from `first` on, of all runs together.
    pub fn of(runs: &[&NodesOutcome], first: usize) -> Self {
        let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        let (mean, spread): (Vec<Mean>, Vec<&NodesEpoch>) = (
            runs.iter().map(|run| Mean::of(&run.outcome, first)).collect(),
            runs.iter()
                .flat_map(|run| run.spread.iter().skip(first.min(run.spread.len().saturating_sub(1))))
                .collect(),
        );
        let epochs = spread.len().max(1) as f64;
        let all = Mean::over(mean);
        let of =
            |value: &dyn Fn(&NodesEpoch) -> f64| spread.iter().map(|one| value(one)).sum::<f64>() / epochs;
        Self {
            reads: all.storage_reads,
            hit: share(all.hit, all.served),
            local: share(of(&|one| one.hit_local as f64), all.hit),
            from_peers: share(of(&|one| one.from_peers as f64), all.served),
            peer_bytes: of(&|one| one.peer_bytes as f64),
            owned: of(&|one| one.owned),
            kept: of(&|one| one.kept),
            seconds: all.seconds,
            wait: all.wait,
        }
    }
}
