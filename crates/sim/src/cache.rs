//! The server's side of a replay: a policy asked slot by slot, its reads counted and timed.
//!
//! What a policy is told and when is what the engine tells it: the plan's keys before its first slot, the
//! plan's events before the slots they belong to, every slot once in plan order. Scores that a policy takes
//! at once reach it when deciding is as far ahead of training as the trainer reads ahead.

use std::collections::VecDeque;
use std::sync::Arc;

use hotset_core::bits::Bits;
use hotset_core::counters::Counters;
use hotset_core::importance::SLICE;
use hotset_core::packages::{Packages, Packer};
use hotset_core::policy::{self, Begin, Policy, Setup, Verdict};
use hotset_core::sampling::{Event, Plan, Reevaluation, Residents};
use hotset_core::{Error, Id, Result};

use crate::outcome::{Epoch, Packing};
use crate::planner::Batch;
use crate::timeline::Timeline;
use crate::upcoming::Upcoming;
use crate::world::{Job, World, texts};

/// See the module's head.
pub(crate) struct Cache<'a> {
    world: &'a World,
    policy: Box<dyn Policy>,
    upcoming: Upcoming,
    /// Whether all plans were looked over beforehand.
    knows_all: bool,
    packer: Option<Packer>,
    packages: Packages,
    /// When each package of this epoch was there.
    arrived: Vec<u64>,
    timeline: Timeline,
    seen: Bits,
    evicted: Vec<Id>,
    /// Scores on their way to the policy, a step each.
    scores: VecDeque<Vec<(Id, f32)>>,
    /// What was read for the epoch that begins, before its plan was known.
    before: Counters,
    pub(crate) notes: Vec<String>,
}

impl<'a> Cache<'a> {
    pub(crate) fn new(world: &'a World, job: &Job, capacity: u64) -> Result<Self> {
        let entry = policy::find(&job.policy.name)?;
        let policy = (entry.build)(Setup {
            capacity,
            sizes: Arc::clone(&world.sizes),
            seed: job.seed,
            values: entry.values(texts(&job.policy))?,
        });
        let wanted = world.packages.filter(|_| policy.takes_packages());
        let packer = wanted.and_then(|bytes| Packer::new(bytes, capacity, job.seed));
        let mut notes = Vec::new();
        if wanted.is_some() && packer.is_none() {
            notes.push(format!(
                "packages are off at a cache of {}: two of them are more than a quarter of it",
                job.cache
            ));
        }
        Ok(Self {
            world,
            policy,
            upcoming: Upcoming::new(world.samples()),
            knows_all: false,
            packages: Packages::new(if packer.is_some() { world.samples() } else { 0 }),
            packer,
            arrived: Vec::new(),
            timeline: Timeline::new(world.storage, world.compute),
            seen: Bits::new(world.samples()),
            evicted: Vec::new(),
            scores: VecDeque::new(),
            before: Counters::default(),
            notes,
        })
    }

    /// Who is resident now.
    pub(crate) fn residents(&self) -> Residents {
        Residents::of(&*self.policy, self.world.samples())
    }

    /// The packages that are complete, and the bytes of the region they are read into.
    pub(crate) fn packages(&self) -> Option<(&Packages, u64)> {
        self.packer.as_ref()?;
        let region = self.policy.regions().into_iter().find(|region| region.name == "l")?;
        Some((&self.packages, region.capacity))
    }

    /// Looks over all plans of the run beforehand.
    pub(crate) fn know_all(&mut self, plans: &[Plan]) -> Result<()> {
        self.knows_all = true;
        self.know(plans)
    }

    fn know(&mut self, plans: &[Plan]) -> Result<()> {
        if self.upcoming.know(plans.iter()) {
            Ok(())
        } else {
            Err(Error::invalid("the plans are too long to look ahead: replay fewer `epochs`"))
        }
    }

    /// Begins an epoch by reading what must be re-evaluated before its plan can be made.
    pub(crate) fn begin(&mut self, reevaluation: &Reevaluation) {
        let nothing = *reevaluation == Reevaluation::Nothing;
        self.timeline.begin_epoch(nothing);
        self.before = Counters::default();
        let sizes = &self.world.sizes;
        let (read, samples) = match reevaluation {
            Reevaluation::Nothing => return,
            Reevaluation::All => ((0..sizes.len() as Id).collect(), sizes.len()),
            Reevaluation::Set(ids) => {
                let mut read = Vec::new();
                for slice in ids.chunks(SLICE) {
                    self.policy.pin(slice, &mut read, &mut self.evicted);
                }
                self.evicted.clear();
                (read, ids.len())
            }
        };
        let bytes = read.iter().map(|&id| sizes.size(id)).sum::<u64>();
        let count = read.len() as u64;
        self.before = Counters {
            storage_reads: count,
            other_reads: count,
            storage_requests: count,
            storage_bytes: bytes,
            ..Counters::default()
        };
        self.timeline.evaluate(read.iter().map(|&id| sizes.size(id)), samples);
    }

    /// Carries a plan out. `begin` came before.
    pub(crate) fn epoch(&mut self, plan: &Plan) -> Result<Epoch> {
        if !self.knows_all {
            self.know(std::slice::from_ref(plan))?;
        }
        self.upcoming.begin(plan.len());
        self.policy.begin(&Begin {
            epoch: plan.epoch(),
            keys: plan.keys(),
            package: self.packer.as_ref().map(Packer::package_bytes),
            selected: (plan.selected_high(), plan.len() as u64),
        });
        let mut counters = std::mem::take(&mut self.before);
        counters.planned = plan.len() as u64;
        let mut packing = Packing::default();
        let work = self.work(plan, &mut counters, &mut packing);
        let mut work_left = work.reads.iter();
        self.arrived.clear();
        self.seen = Bits::new(self.world.samples());
        let mut events = plan.events().iter().peekable();
        let step = self.world.compute.batch * plan.world() as usize;
        for (slot, &id) in plan.ids().iter().enumerate() {
            while let Some((_, event)) = events.next_if(|(at, _)| *at as usize <= slot) {
                self.happen(*event, &mut counters, &mut packing);
            }
            if let Some(every) = work.every
                && slot % every == every - 1
                && let Some(&bytes) = work_left.next()
            {
                self.timeline.request(bytes);
            }
            self.serve(plan, slot, id, &mut counters, &mut packing);
            if (slot + 1) % step == 0 || slot + 1 == plan.len() {
                self.deliver(plan, slot / step);
            }
        }
        for &bytes in work_left {
            self.timeline.request(bytes);
        }
        for ids in work.packages {
            self.packages.add(&ids, &*self.world.sizes);
        }
        let time = self.timeline.end_epoch();
        (counters.late, counters.waits) = (time.late, time.waits.clone());
        Ok(Epoch { counters, time, packing })
    }

    fn serve(&mut self, plan: &Plan, slot: usize, id: Id, counters: &mut Counters, packing: &mut Packing) {
        self.upcoming.decide(id);
        let verdict = self.policy.access(id, &self.upcoming, &mut self.evicted);
        self.evicted.clear();
        self.upcoming.advance();
        let size = self.world.sizes.size(id);
        let ready = match verdict {
            Verdict::Hit => {
                counters.hit += 1;
                0
            }
            Verdict::Packed => {
                counters.packed += 1;
                packing.package_bytes_served += size;
                let package = self.packages.of(id).map_or(0, |package| package as usize);
                self.arrived.get(package).copied().unwrap_or(0)
            }
            Verdict::Admitted | Verdict::Bypassed => {
                counters.single += 1;
                counters.storage_reads += 1;
                counters.storage_requests += 1;
                counters.storage_bytes += size;
                self.timeline.request(size)
            }
        };
        counters.substituted += u64::from(plan.is_substituted(slot));
        counters.distinct += u64::from(!plan.is_silent(slot) && self.seen.insert(id));
        self.timeline.serve(ready, plan.weight(slot) > 0.0);
    }

    fn happen(&mut self, event: Event, counters: &mut Counters, packing: &mut Packing) {
        match event {
            Event::Leave(id) => self.policy.leave(id, &mut self.evicted),
            Event::Load(package) => {
                let bytes = self.packages.bytes(package);
                counters.storage_reads += u64::from(self.packages.packed(package));
                counters.storage_requests += 1;
                counters.storage_bytes += bytes;
                packing.package_bytes += bytes;
                let at = package as usize;
                if self.arrived.len() <= at {
                    self.arrived.resize(at + 1, 0);
                }
                self.arrived[at] = self.timeline.request(bytes);
                self.policy.load(self.packages.members(package), &mut self.evicted);
            }
        }
        self.evicted.clear();
    }

    /// What the packer does during this plan: reads what does not pass through memory anyway, and writes.
    fn work(&self, plan: &Plan, counters: &mut Counters, packing: &mut Packing) -> Work {
        let (Some(packer), Some(keys)) = (&self.packer, plan.keys()) else { return Work::default() };
        let sizes = &*self.world.sizes;
        let packages = packer.choose(plan.epoch(), &self.packages, keys, sizes, plan.unserved());
        if packages.is_empty() {
            return Work::default();
        }
        let mut passes = Bits::new(self.world.samples());
        plan.ids().iter().for_each(|&id| {
            passes.insert(id);
        });
        let mut reads = Vec::new();
        for ids in &packages {
            let mut written = 0;
            for &id in ids {
                written += sizes.size(id);
                if !passes.contains(id) && !self.policy.contains(id) {
                    reads.push(sizes.size(id));
                }
            }
            packing.bytes_written += written;
        }
        packing.reads = reads.len() as u64;
        packing.bytes_read = reads.iter().sum();
        counters.storage_reads += packing.reads;
        counters.storage_requests += packing.reads + packages.len() as u64;
        counters.storage_bytes += packing.bytes_read;
        // Writing takes the same way as reading.
        reads.extend(packages.iter().map(|ids| ids.iter().map(|&id| sizes.size(id)).sum::<u64>()));
        let every = Some((plan.len() / reads.len().max(1)).max(1));
        Work { reads, every, packages }
    }

    /// Hands the policy the scores of the steps that have been trained by the time `step` was decided.
    fn deliver(&mut self, plan: &Plan, step: usize) {
        let Some(score) = self.policy.takes() else { return };
        let mut all = Vec::new();
        let mut batch = Batch::default();
        for rank in 0..plan.world() {
            batch.collect(self.world, plan, rank, step * self.world.compute.batch);
            all.append(&mut batch.scores(score));
        }
        self.scores.push_back(all);
        while self.scores.len() > self.world.compute.prefetch {
            let Some(scores) = self.scores.pop_front() else { break };
            scores.chunks(SLICE).for_each(|slice| self.policy.scored(slice));
        }
    }
}

/// The packer's requests of an epoch, spread over its slots.
#[derive(Default)]
struct Work {
    reads: Vec<u64>,
    every: Option<usize>,
    packages: Vec<Vec<Id>>,
}
