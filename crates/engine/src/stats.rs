//! What an engine tells of itself.

use std::collections::BTreeMap;

use hotset_core::benefit::{Phase, Standing};
use hotset_core::cache::Cache;
use hotset_core::counters::Counters;
use hotset_core::policy::Region;
use hotset_core::{Id, Remark, Result};

use crate::engine::Engine;
use crate::jobs::{Job, Span};
use crate::state::State;

/// The server's side: memory, readers, reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Bytes that jobs may keep together, if bounded.
    pub memory: Option<u64>,
    /// Bytes granted to jobs.
    pub capacity: u64,
    /// Bytes beside them for what is only passing.
    pub reserve: u64,
    /// Bytes in segments.
    pub arena: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of samples in the arena.
    pub occupied: u64,
    /// Those of them that no policy keeps.
    pub passing: u64,
    /// Bytes that policies keep beyond those in the arena, because several keep equal samples.
    pub spared: u64,
    /// Batches that readers hold.
    pub leases: u64,
    /// Batches that wait for their bytes.
    pub waiting: u64,
    /// Clients that have read.
    pub readers: u64,
    /// Reads in flight.
    pub reads_in_flight: u64,
    /// The most reads in flight.
    pub concurrency: u64,
    /// Bytes moved to make room.
    pub moved: u64,
    /// The most reported values that were applied in one hold of a lock.
    pub most_applied: u64,
    /// The most residents that left a cache in one hold of the lock because it got smaller or went.
    pub most_left: u64,
}

/// A job's packages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageStats {
    /// Where they were written; empty: they are runs in the dataset's own objects.
    pub place: String,
    /// Those with live samples.
    pub packages: u64,
    /// Live samples in them.
    pub samples: u64,
    /// The bytes that reading all of them would cost.
    pub bytes: u64,
    /// Packages being written.
    pub packing: u64,
}

/// One job's side.
#[derive(Debug, Clone, PartialEq)]
pub struct JobStats {
    /// Its name.
    pub job: String,
    /// Its dataset's name on this server.
    pub dataset: String,
    /// Where the dataset lies.
    pub place: String,
    /// Its strategy; empty without a sampler.
    pub strategy: String,
    /// Its policy.
    pub policy: String,
    /// Samples of the dataset.
    pub samples: u64,
    /// Bytes of the dataset.
    pub bytes: u64,
    /// Bytes that its cache may keep.
    pub capacity: u64,
    /// Jobs that share its cache, itself included.
    pub cache_members: u64,
    /// What it gains from a cache, once that was measured, and the epoch in which it was last.
    pub benefit: Option<f64>,
    /// See `benefit`.
    pub benefit_epoch: Option<u64>,
    /// Whether what it reads is admitted, and why.
    pub standing: Standing,
    /// Whether it is being measured.
    pub probing: bool,
    /// Samples its policy keeps.
    pub resident_samples: u64,
    /// Bytes its policy keeps.
    pub resident_bytes: u64,
    /// The parts of its capacity.
    pub regions: Vec<Region>,
    /// What its strategy says of its last plan, by name.
    pub notes: Vec<(&'static str, f64)>,
    /// What a user should know.
    pub remarks: Vec<String>,
    /// Its packages, where it makes some.
    pub packages: Option<PackageStats>,
    /// Counters of its epochs.
    pub epochs: Vec<(u64, Counters)>,
    /// How long its epochs took.
    pub spans: BTreeMap<u64, Span>,
    /// The same of all epochs so far.
    pub total_span: Span,
    /// Counters of servings that no plan asked for.
    pub unplanned: Counters,
    /// Counters of all servings so far.
    pub total: Counters,
}

impl Engine {
    /// The engine's own figures.
    pub fn stats(&self) -> EngineStats {
        self.hear();
        let state = self.shared.lock();
        let residency = state.rooms.residency();
        let (leases, waiting, readers) = state.rooms.sessions().figures();
        EngineStats {
            memory: state.config.memory,
            capacity: state.rooms.caches().capacity(),
            reserve: if state.jobs.len() == 0 { 0 } else { state.reserve() },
            arena: residency.total(),
            segments: residency.segments() as u64,
            occupied: residency.occupied(),
            passing: residency.transient(),
            spared: residency.spared(),
            leases: leases as u64,
            waiting: waiting as u64,
            readers: readers as u64,
            reads_in_flight: state.rooms.fetching().in_flight() as u64,
            concurrency: state.rooms.fetching().limit(state.config.concurrency) as u64,
            moved: residency.moved(),
            most_applied: state.most_applied(),
            most_left: state.rooms.most_left(),
        }
    }

    /// What a job's policy keeps, by id. For tests of what is decided.
    #[doc(hidden)]
    pub fn residents(&self, job: &str) -> Result<Vec<Id>> {
        let mut ids = Vec::new();
        let mut state = self.shared.lock();
        let serial = state.jobs.named(job)?.serial;
        state.rooms.cache(serial)?.policy().residents(&mut |id| ids.push(id));
        drop(state);
        ids.sort_unstable();
        Ok(ids)
    }

    /// What a probe measures with a slot of a job's plan. For tests of what is measured.
    #[doc(hidden)]
    pub fn probed(&self, job: &str, epoch: u64, slot: usize) -> Option<Phase> {
        let mut state = self.shared.lock();
        let probe = state.jobs.named(job).ok()?.probing.gauge.probe()?;
        probe.phase(epoch, slot)
    }

    /// Notes in the logs of caches what was counted of all jobs so far.
    pub fn note_counts(&self) {
        self.shared.lock().jobs.iter().for_each(|job| job.run.note_counts(0));
    }

    /// Whether a plan of a job is being made. For tests in whose time that takes none.
    #[doc(hidden)]
    pub fn plans(&self, job: &str) -> bool {
        let mut state = self.shared.lock();
        let found = state.jobs.named(job).map(|job| (job.serial, job.ranks.is_planning()));
        found.is_ok_and(|(serial, makes)| makes || state.plans.is_queued(serial))
    }

    /// The figures of one job, or of all.
    pub fn job_stats(&self, name: Option<&str>) -> Vec<JobStats> {
        self.read_on();
        let state = self.shared.lock();
        let jobs = state.jobs.iter().filter(|job| name.is_none_or(|name| name == job.name()));
        jobs.filter_map(|job| state.figures(job)).collect()
    }

    /// The figures of jobs that have ended since this was asked last.
    pub fn take_ended(&self) -> Vec<JobStats> {
        self.shared.lock().jobs.take_ended()
    }
}

/// How a job stands. Jobs of a cache that has no memory, because all of them gain little, gain little beside those of other
/// caches.
fn standing(cache: &Cache, job: &Job) -> Standing {
    match cache.standing(job.run.member()) {
        Standing::Alone | Standing::NoneGains if cache.policy().capacity() == 0 => Standing::GainsLittle,
        standing => standing,
    }
}

impl State {
    /// The figures of a job.
    pub(crate) fn figures(&self, job: &Job) -> Option<JobStats> {
        let dataset = &job.dataset;
        let cache = self.rooms.cache(job.serial).ok()?;
        let mut remarks = job.remarks(cache);
        remarks.extend(self.remark_of_orders(job));
        Some(JobStats {
            job: job.name().to_owned(),
            dataset: dataset.name.clone(),
            place: dataset.place.clone(),
            strategy: job.opened.grant.strategy.clone(),
            policy: job.opened.grant.policy.clone(),
            samples: dataset.catalog.len() as u64,
            bytes: dataset.catalog.bytes(),
            capacity: cache.policy().capacity(),
            cache_members: cache.members() as u64,
            benefit: job.probing.gauge.benefit(),
            benefit_epoch: job.probing.gauge.measured(),
            standing: standing(cache, job),
            probing: job.probing.plan().is_some(),
            resident_samples: cache.residents(),
            resident_bytes: cache.policy().used(),
            regions: cache.policy().regions(),
            notes: job.notices.figures().to_vec(),
            remarks: remarks.into_iter().map(|remark| remark.text).collect(),
            packages: job.package_stats(),
            epochs: job
                .run
                .tally()
                .epochs()
                .iter()
                .map(|(&epoch, counters)| (epoch, counters.clone()))
                .collect(),
            spans: job.notices.pacing.spans(),
            total_span: job.notices.pacing.total(),
            unplanned: job.run.tally().unplanned().clone(),
            total: job.run.tally().total(),
        })
    }

    /// Jobs that share a cache and shuffle by seeds of their own read what is not kept once each.
    fn remark_of_orders(&self, job: &Job) -> Option<Remark> {
        let seed = |serial: u64| self.jobs.get(serial).map(|job| job.opened.request.seed);
        let shares = self.rooms.caches().sharers(job.serial);
        let others = shares.filter(|&other| seed(other) != Some(job.opened.request.seed)).count();
        (others > 0 && job.opened.grant.strategy == "uniform").then(|| {
            let text = "jobs that share its cache read in another order, so each reads for itself what is not kept: \
                        give all jobs of a sweep the same `seed=`, or the strategy `quiver`, and one read serves those \
                        that keep pace";
            Remark::note("orders", text)
        })
    }
}
