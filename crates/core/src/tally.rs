//! The tally of one job: the only place where counters change.
//!
//! Each function is an event, told by the run that decides slots (what the plan asks for) or by a server that carries
//! it out (what became of it). Servings that no plan asks for are counted apart. The last epochs are kept, the sum of
//! all stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Id;
use crate::bits::Bits;
use crate::counters::{Counters, PlanCounters, WaitReason};
use crate::packages::{Packages, length};
use crate::policy::Sizes;
use crate::run::{Outcome, Packing};

/// Epochs whose counters are kept.
pub const HISTORY: usize = 256;

/// What storage delivered, or would have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Samples.
    pub reads: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// All that a tally has counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Saved {
    /// The epochs that are kept.
    pub epochs: BTreeMap<u64, Counters>,
    /// Servings that no plan asked for.
    pub unplanned: Counters,
    /// The sum of epochs before those.
    pub past: Counters,
    /// The samples that were served at all.
    pub seen: Bits,
}

/// One serving.
#[derive(Debug, Clone, Copy)]
pub struct Serving {
    /// The sample.
    pub id: Id,
    /// What its plan says that it costs.
    pub outcome: Outcome,
    /// Whether it is the first of its id in its plan.
    pub first: bool,
    /// Whether another id was selected for its slot.
    pub substituted: bool,
    /// Whether its rank is on this node.
    pub local: bool,
}

/// The counters of one run.
pub struct Tally {
    sizes: Arc<dyn Sizes>,
    epochs: BTreeMap<u64, Counters>,
    /// Servings that no plan asked for.
    unplanned: Counters,
    /// The sum of epochs whose counters are no longer kept.
    past: Counters,
    /// The samples that were served at all, and how many those are.
    seen: Bits,
    distinct: u64,
}

impl Tally {
    /// Nothing counted yet, of samples of these sizes.
    pub fn new(sizes: Arc<dyn Sizes>) -> Self {
        let (epochs, unplanned, past) = Default::default();
        let seen = Bits::new(sizes.len());
        Self { sizes, epochs, unplanned, past, seen, distinct: 0 }
    }

    /// The counters of each epoch that is kept.
    pub fn epochs(&self) -> &BTreeMap<u64, Counters> {
        &self.epochs
    }

    /// The counters of servings that no plan asked for.
    pub fn unplanned(&self) -> &Counters {
        &self.unplanned
    }

    /// The sum of epochs that are no longer kept.
    pub fn past(&self) -> &Counters {
        &self.past
    }

    /// The sum of everything.
    pub fn total(&self) -> Counters {
        let mut total = self.past.clone();
        self.epochs.values().chain([&self.unplanned]).for_each(|counters| total.add(counters));
        // A sample that was served in every epoch is one.
        total.plan.distinct = self.distinct;
        total
    }

    /// All that it has counted, so that another goes on from there.
    pub fn save(&self) -> Saved {
        let (epochs, unplanned, past) = (self.epochs.clone(), self.unplanned.clone(), self.past.clone());
        Saved { epochs, unplanned, past, seen: self.seen.clone() }
    }

    /// Goes on from what another has counted.
    pub fn restore(&mut self, saved: Saved) {
        (self.epochs, self.unplanned, self.past) = (saved.epochs, saved.unplanned, saved.past);
        self.seen = Bits::new(self.sizes.len());
        let inside = |id: &Id| (*id as usize) < self.sizes.len();
        saved.seen.iter().filter(inside).for_each(|id| {
            self.seen.insert(id);
        });
        self.distinct = self.seen.count() as u64;
    }

    /// The counters of `epoch`, or those of no plan.
    fn of(&mut self, epoch: Option<u64>) -> &mut Counters {
        let Some(epoch) = epoch else { return &mut self.unplanned };
        while self.epochs.len() > HISTORY && !self.epochs.contains_key(&epoch) {
            if let Some((_, old)) = self.epochs.pop_first() {
                self.past.add(&old);
            }
        }
        self.epochs.entry(epoch).or_default()
    }

    /// Counts an epoch anew; what was counted of it stays in the sum.
    pub fn forget(&mut self, epoch: u64) {
        if let Some(old) = self.epochs.remove(&epoch) {
            self.past.add(&old);
        }
    }

    // What the plan asks for.

    /// An epoch begins whose plan has so many slots.
    pub fn begun(&mut self, epoch: u64, slots: usize) {
        self.of(Some(epoch)).plan.planned = slots as u64;
    }

    /// This is packed while `epoch` is trained, whose plan was made from `packages`.
    ///
    /// All of it is settled when the plan is made, and is counted then: when it is read and written changes nothing.
    pub fn packs(&mut self, epoch: u64, packing: &Packing, packages: Option<&Packages>) {
        if packing.is_empty() {
            return;
        }
        let sizes = Arc::clone(&self.sizes);
        for (_, ids) in &packing.packages {
            let plan = &mut self.of(Some(epoch)).plan;
            plan.pack_bytes_written += length(ids.len(), ids.iter().map(|&id| sizes.size(id)).sum());
            plan.storage_requests += 1;
        }
        let whole = packing.whole.iter().map(|&(package, _)| {
            packages
                .map_or((0, 0), |packages| (u64::from(packages.packed(package)), packages.extent(package)))
        });
        let single = packing.single.iter().map(|&id| (1, sizes.size(id)));
        for (reads, bytes) in whole.chain(single) {
            let plan = &mut self.of(Some(epoch)).plan;
            plan.pack_reads += reads;
            plan.pack_bytes_read += bytes;
            self.reads(epoch, Traffic { reads, requests: 1, bytes });
        }
    }

    /// A sample is read before `epoch` for no serving.
    pub fn reads_beside(&mut self, epoch: u64, id: Id) {
        self.of(Some(epoch)).plan.other_reads += 1;
        self.reads(epoch, Traffic { reads: 1, requests: 1, bytes: self.sizes.size(id) });
    }

    /// The plan of `epoch` reads a package.
    pub fn loads(&mut self, epoch: u64, packages: &Packages, package: u32) {
        let plan = &mut self.of(Some(epoch)).plan;
        plan.package_reads += 1;
        plan.package_bytes += packages.bytes(package);
        let (reads, bytes) = (u64::from(packages.packed(package)), packages.extent(package));
        self.reads(epoch, Traffic { reads, requests: 1, bytes });
    }

    /// The plan of `epoch` reads this.
    pub fn reads(&mut self, epoch: u64, traffic: Traffic) {
        let plan = &mut self.of(Some(epoch)).plan;
        plan.storage_reads += traffic.reads;
        plan.storage_requests += traffic.requests;
        plan.storage_bytes += traffic.bytes;
    }

    /// A slot of `epoch` needs no read because another job has brought its sample.
    pub fn hits_shared(&mut self, epoch: u64) {
        self.of(Some(epoch)).plan.shared_hits += 1;
    }

    // What is served.

    /// Slots of `epoch` were served, or samples that no plan serves.
    pub fn served(&mut self, epoch: Option<u64>, servings: impl IntoIterator<Item = Serving>) {
        let mut plan = PlanCounters::default();
        // What another node decides is counted there.
        for serving in servings.into_iter().filter(|serving| serving.outcome != Outcome::Elsewhere) {
            self.distinct += u64::from(self.seen.insert(serving.id));
            match serving.outcome {
                Outcome::Hit => {
                    plan.hit += 1;
                    plan.hit_peer += u64::from(!serving.local);
                }
                Outcome::Packed => {
                    plan.packed += 1;
                    plan.package_bytes_served += self.sizes.size(serving.id);
                }
                Outcome::Single => plan.single += 1,
                Outcome::Elsewhere => {}
            }
            plan.distinct += u64::from(serving.first);
            plan.substituted += u64::from(serving.substituted);
        }
        self.of(epoch).plan.add(&plan);
    }

    /// A slot that was served will be served once more: its rank begins the epoch over.
    pub fn taken_back(&mut self, epoch: u64, serving: Serving) {
        let size = self.sizes.size(serving.id);
        let plan = &mut self.of(Some(epoch)).plan;
        let (count, bytes) = match serving.outcome {
            Outcome::Hit => (&mut plan.hit, 0),
            Outcome::Packed => (&mut plan.packed, size),
            Outcome::Single => (&mut plan.single, 0),
            Outcome::Elsewhere => return,
        };
        // What another server has served of it may be counted there.
        *count = count.saturating_sub(1);
        if serving.outcome == Outcome::Hit && !serving.local {
            plan.hit_peer = plan.hit_peer.saturating_sub(1);
        }
        // To whom another server has served it is not known.
        plan.hit_peer = plan.hit_peer.min(plan.hit);
        plan.package_bytes_served = plan.package_bytes_served.saturating_sub(bytes);
        plan.distinct = plan.distinct.saturating_sub(u64::from(serving.first));
        plan.substituted = plan.substituted.saturating_sub(u64::from(serving.substituted));
    }

    // What became of it.

    /// Samples that no plan serves were read, or could not be.
    pub fn read_unplanned(&mut self, traffic: Traffic) {
        let plan = &mut self.unplanned.plan;
        plan.storage_reads += traffic.reads;
        plan.storage_requests += traffic.requests;
        plan.storage_bytes += traffic.bytes;
    }

    /// Storage delivered what the plan did not ask for.
    pub fn recovered(&mut self, epoch: Option<u64>, traffic: Traffic) {
        if traffic != Traffic::default() {
            let clock = &mut self.of(epoch).clock;
            clock.recovery_reads += traffic.reads;
            clock.recovery_requests += traffic.requests;
            clock.recovery_bytes += traffic.bytes;
        }
    }

    /// Storage delivered what is kept, to measure what the job gains.
    pub fn probed(&mut self, epoch: Option<u64>, traffic: Traffic) {
        let clock = &mut self.of(epoch).clock;
        clock.probe_reads += traffic.reads;
        clock.probe_requests += traffic.requests;
        clock.probe_bytes += traffic.bytes;
    }

    /// What the plan of `epoch` asked for, or what was counted as read, was at hand.
    pub fn joined(&mut self, epoch: Option<u64>, traffic: Traffic) {
        let clock = &mut self.of(epoch).clock;
        clock.joined += traffic.reads;
        clock.joined_requests += traffic.requests;
        clock.joined_bytes += traffic.bytes;
    }

    /// What was counted as read came from a shared cache, and storage did not have to deliver it.
    pub fn came_from_peer(&mut self, epoch: Option<u64>, traffic: Traffic) {
        let clock = &mut self.of(epoch).clock;
        clock.peer_reads += traffic.reads;
        clock.peer_requests += traffic.requests;
        clock.peer_bytes += traffic.bytes;
    }

    /// What another node decides and counts came from it.
    pub fn came_from_node(&mut self, epoch: Option<u64>, bytes: u64) {
        let clock = &mut self.of(epoch).clock;
        clock.node_reads += 1;
        clock.node_bytes += bytes;
    }

    /// What another node was asked for did not come from it.
    pub fn failed_at_node(&mut self, epoch: Option<u64>, samples: u64) {
        self.of(epoch).clock.node_failed += samples;
    }

    /// So many slots were left behind.
    pub fn abandoned(&mut self, epoch: u64, slots: u64) {
        if slots > 0 {
            self.of(Some(epoch)).clock.abandoned += slots;
        }
    }

    /// A batch had to be answered from memory of its own.
    pub fn spilled(&mut self, epoch: Option<u64>) {
        self.of(epoch).clock.spilled += 1;
    }

    /// A reader waited for so many servings of a batch.
    pub fn late(&mut self, epoch: Option<u64>, servings: u64) {
        self.of(epoch).clock.late += servings;
    }

    /// A batch of `rank` waited so long.
    pub fn waited(&mut self, epoch: Option<u64>, rank: u32, seconds: f64) {
        self.of(epoch).waits_of(rank).add(seconds);
    }

    /// A request waited for something.
    pub fn waited_for(&mut self, epoch: Option<u64>, reason: WaitReason) {
        let clock = &mut self.of(epoch).clock;
        *match reason {
            WaitReason::Storage => &mut clock.storage_waits,
            WaitReason::Node => &mut clock.node_waits,
            WaitReason::Memory => &mut clock.memory_waits,
            WaitReason::Probe => &mut clock.probe_waits,
            WaitReason::Plan => &mut clock.plan_waits,
        } += 1;
    }

    /// So many servings ended in an error.
    pub fn failed(&mut self, epoch: Option<u64>, servings: u64) {
        self.of(epoch).clock.failed += servings;
    }

    /// Scores came.
    pub fn reported(&mut self, epoch: u64, taken: u64, rejected: u64) {
        let clock = &mut self.of(Some(epoch)).clock;
        clock.reported += taken;
        clock.rejected_scores += rejected;
    }

    /// A rank or a package was not waited for any longer.
    pub fn overdue(&mut self, epoch: u64) {
        self.of(Some(epoch)).clock.overdue += 1;
    }

    /// A package was dropped.
    pub fn package_lost(&mut self, epoch: u64) {
        self.of(Some(epoch)).clock.packages_lost += 1;
    }
}
