//! What it costs that a node comes or goes: what is let go of, and what is read beside runs in which nothing changes.

use hotset_core::Result;

use super::{Change, Nodes, NodesOutcome, run};
use crate::scenario::{Job, Scenario};

/// The cost of a change.
#[derive(Debug, Clone)]
pub struct Cost {
    /// What changed.
    pub change: Change,
    /// Samples that were kept and have another owner now, and their bytes.
    pub moved: (u64, u64),
    /// Reads of each epoch from the change on, less those of a run that keeps the nodes it began with.
    pub over_before: Vec<i64>,
    /// The same, less those of a run that had the nodes of the end from its start.
    pub over_after: Vec<i64>,
}

/// Replays a run over nodes of which one comes or goes, and what that costs; no cost where none does.
pub fn cost(scenario: &Scenario, job: &Job, nodes: &Nodes) -> Result<(NodesOutcome, Option<Cost>)> {
    let changed = run(scenario, job, nodes)?;
    let Some(change) = nodes.change else { return Ok((changed, None)) };
    let first = change.epoch() as usize;
    let reads = |outcome: &NodesOutcome| -> Vec<i64> {
        let epochs = outcome.outcome.epochs.iter().skip(first);
        epochs.map(|epoch| epoch.counters.plan.storage_reads as i64).collect()
    };
    let over = |count: usize| -> Result<Vec<i64>> {
        let steady = run(scenario, job, &Nodes { count, change: None, ..*nodes })?;
        Ok(reads(&changed).into_iter().zip(reads(&steady)).map(|(one, other)| one - other).collect())
    };
    let at = &changed.spread[first];
    let (over_before, over_after) = (over(nodes.count)?, over(nodes.finally())?);
    let cost = Cost { change, moved: (at.moved, at.moved_bytes), over_before, over_after };
    Ok((changed, Some(cost)))
}
