//! What a job knows of other nodes: what this one is to it, how far ranks have come, what is asked of others for its own,
//! and plans that lie over none yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hotset_core::cluster::{Layout, PlacementKind};
use hotset_core::sampling::Plan;
use hotset_core::{Error, Result};

use super::Job;
use super::reach::Reach;
use super::visitors::Visitors;
use crate::cluster::{Cluster, Role};

/// A job's other nodes.
#[derive(Default)]
pub(crate) struct JobNodes {
    role: Role,
    /// How far its ranks have come, on whichever node they are.
    pub(crate) reach: Reach,
    /// What is asked of others for the ranks of this one.
    pub(crate) visitors: Visitors,
    /// Who they are, and how long one of them is waited for.
    cluster: Option<(Arc<dyn Cluster>, Duration)>,
    /// Plans that were drawn and could not be settled.
    drawn: BTreeMap<u64, Arc<Plan>>,
    /// The epoch whose plan could not be had ahead: it is tried again when a rank begins it.
    failed_ahead: Option<u64>,
    /// How the plan lies that was put in last.
    laid: Option<Arc<Layout>>,
    /// Whether its home has ended it for good.
    over: bool,
}

impl JobNodes {
    pub(crate) fn new(role: Role, cluster: Option<(Arc<dyn Cluster>, Duration)>) -> Self {
        Self { role, cluster, ..Self::default() }
    }

    /// The other nodes, and how long one of them is waited for.
    pub(crate) fn cluster(&self) -> Result<(Arc<dyn Cluster>, Duration)> {
        self.cluster
            .clone()
            .ok_or_else(|| Error::internal("a job over several nodes is on a server that is in no cluster"))
    }

    /// What this node is to the job.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Whether whoever reads a sample keeps it, so that a plan is laid by what all nodes keep.
    pub(crate) fn keeps_directory(&self) -> bool {
        let placement = self.cluster.as_ref().map(|(cluster, _)| cluster.placement());
        !self.role.is_alone() && placement == Some(PlacementKind::Directory)
    }

    /// A plan that lies so is put in.
    pub(crate) fn laid(&mut self, layout: &Arc<Layout>) {
        self.laid = Some(Arc::clone(layout));
    }

    /// Its home has ended the job for good.
    pub(crate) fn note_over(&mut self) {
        self.over = true;
    }

    /// Whether nothing goes on elsewhere when the job ends here.
    pub(crate) fn ends_altogether(&self) -> bool {
        self.over || !self.role.is_follower()
    }

    /// Another node is the job's home from now on.
    pub(crate) fn hand_on(&mut self) {
        if let Role::Home { capacity } = self.role {
            self.role = Role::Follower { capacity };
        }
    }

    /// This node is the job's home from now on, under which so much may be kept.
    pub(crate) fn take_over(&mut self, capacity: u64) {
        self.role = Role::Home { capacity };
    }

    /// A plan was drawn and could not be settled: it is the same when it is asked for again.
    pub(crate) fn keep_drawn(&mut self, plan: Arc<Plan>) {
        self.drawn.insert(plan.epoch(), plan);
    }

    /// Training goes back: what was drawn is of a future that does not come.
    pub(crate) fn go_back(&mut self) {
        self.drawn.clear();
        self.failed_ahead = None;
    }

    /// A plan that was drawn before, for so many ranks.
    pub(crate) fn drawn(&self, epoch: u64, world: u32) -> Option<&Arc<Plan>> {
        self.drawn.get(&epoch).filter(|plan| plan.world() == world)
    }

    /// The plan of an epoch could not be had ahead.
    pub(crate) fn failed(&mut self, epoch: u64) {
        self.failed_ahead = Some(epoch);
    }

    /// Whether that was the last that could not.
    pub(crate) fn has_failed(&self, epoch: u64) -> bool {
        self.failed_ahead == Some(epoch)
    }

    /// The plan of an epoch is put in: earlier ones are not asked for any more.
    pub(crate) fn planned(&mut self, epoch: u64) {
        self.failed_ahead = None;
        self.drawn.retain(|&of, _| of > epoch);
    }
}

impl Job {
    /// How the last plan lies over nodes; after a restart, the newest of those that are gone on with.
    pub(crate) fn last_laid(&self) -> Option<Arc<Layout>> {
        let newest = || self.run.schedules().values().next_back()?.layout().cloned();
        self.nodes.laid.clone().or_else(newest)
    }
}
