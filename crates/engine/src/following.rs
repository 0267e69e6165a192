//! What a node is told of a job by others, and tells them: plans, ranks that begin, scores, residents; and how it takes the
//! home's place.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::sampling::{Plan, Reevaluation, Residents};
use hotset_core::schedule::Schedule;
use hotset_core::{Error, Id, Result};

use crate::cluster::{Cluster, Placed, Role};
use crate::engine::{Engine, LOOK_UP};
use crate::jobs::{Joining, check_epoch};
use crate::placing::take_in;
use crate::planning::make;
use crate::read_on::read_ahead;
use crate::snapshot::Snapshot;
use crate::sync;

impl Engine {
    /// Joins the other nodes, for the engine's life and for jobs that are opened from now on. One of them that is asked for
    /// samples is waited for no longer than `wait`.
    pub fn join_cluster(&self, cluster: Arc<dyn Cluster>, wait: Duration) {
        self.shared.lock().cluster = Some((cluster, wait));
    }

    /// The plan of an epoch and how it lies over nodes, as bytes; waits until it is there, but no longer than `wait`, and not
    /// for one that all ranks have left.
    pub fn placed(&self, job: &str, epoch: u64, wait: Duration) -> Result<Vec<u8>> {
        let (placed, samples) = self.await_placed(job, epoch, wait)?;
        Ok(placed.save(samples))
    }

    /// The same as it is, and the samples of its catalog.
    pub fn await_placed(&self, job: &str, epoch: u64, wait: Duration) -> Result<(Placed, usize)> {
        let by = Instant::now() + wait;
        let mut state = self.shared.lock();
        loop {
            let known = state.jobs.planned(job)?;
            let placed = known.run.schedule(epoch).and_then(|schedule| {
                Some(Placed { plan: Arc::clone(schedule.plan()), layout: Arc::clone(schedule.layout()?) })
            });
            let (samples, left) = (known.dataset.samples(), by.saturating_duration_since(Instant::now()));
            if let Some(placed) = placed {
                return Ok((placed, samples));
            }
            if known.ranks.have_left(epoch) {
                return Err(Error::invalid(format!("epoch {epoch} of job `{job}` is over")));
            }
            if left.is_zero() || state.is_stopping() {
                return Err(Error::unavailable(format!("epoch {epoch} of job `{job}` is not planned yet")));
            }
            let (back, _) = sync::wait(&self.shared.planned, state, LOOK_UP.min(left));
            state = back;
        }
    }

    /// Gets the plan of that digest, which the home has made for an epoch, and begins to read along it. Another plan of that
    /// epoch is dropped if the home has another now: training has gone back, or begins over. One that is told of late, and
    /// was drawn anew since, drops nothing.
    pub fn plan_ahead(&self, job: &str, epoch: u64, digest: u64) -> Result<()> {
        check_epoch(epoch)?;
        let mut state = self.shared.lock();
        let serial = state.jobs.planned(job)?.serial;
        loop {
            let known = state.jobs.still(serial)?;
            let own = known.run.schedule(epoch).map(|schedule| schedule.plan().digest());
            if own == Some(digest) || (own.is_some() && !known.nodes.role().is_follower()) {
                return Ok(());
            }
            if !known.ranks.is_planning() {
                break;
            }
            if state.is_stopping() {
                return Err(Error::unavailable("the server is stopping"));
            }
            let (back, _) = sync::wait(&self.shared.planned, state, LOOK_UP);
            state = back;
        }
        state.jobs.still(serial)?.ranks.set_planning(Some(epoch));
        drop(state);
        let state = make(&self.shared, serial, epoch, None)?;
        read_ahead(&self.shared, state, serial)
    }

    /// A rank of another node begins an epoch, as [`Engine::begin_epoch`] says of one of this node. The home gathers, plans
    /// and counts as if it were its own; what it is served is read here as far as this node owns it.
    pub fn note_begun(
        &self,
        job: &str,
        epoch: u64,
        (rank, world): (u32, u32),
        start: u64,
        join: bool,
    ) -> Result<Arc<Plan>> {
        self.begin(job, epoch, (rank, world), start, Joining { join, away: true })
    }

    /// A follower makes the job's plans from now on, from where the home before it was. What it keeps, its plans under way
    /// and what it has counted stay. Plans of that home that have not come here are carried out as it has laid them: others may have
    /// been told.
    pub fn promote(&self, job: &str, snapshot: &Snapshot) -> Result<()> {
        let mut state = self.shared.lock();
        let known = state.jobs.planned(job)?;
        let (serial, samples) = (known.serial, known.dataset.samples());
        let Role::Follower { capacity } = known.nodes.role() else {
            return Err(Error::invalid(format!(
                "job `{job}` has no other home that this server could take the place of"
            )));
        };
        snapshot.check(&known.opened.request, samples)?;
        let Some(handle) = known.planner.clone() else { return Ok(()) };
        let own = known.run.schedules().values().next_back().and_then(Schedule::packages).cloned();
        let (queue, (cluster, _)) = (known.packages.queue().cloned(), known.nodes.cluster()?);
        let here: BTreeSet<u64> = known.run.schedules().keys().copied().collect();
        drop(state);

        let mut planner = handle.planner();
        planner.restore(&snapshot.planner, &[]).map_err(|error| Error::changed(error.message))?;
        let plans = snapshot.placed(&planner.table().snapshot(), cluster.name())?;
        // The newest packages that are known: the state may be one plan ahead of what has come here.
        let copied = plans.iter().filter_map(|placed| Some(Arc::clone(&placed.layout.made()?.0)));
        let newest = own.into_iter().chain(copied).max_by_key(|packages| packages.next());
        newest.iter().filter(|packages| packages.wear()).for_each(|packages| planner.adopt(packages));
        drop(planner);
        // A plan was told only once this state had it, so it is never older than one that is here. One of an epoch before those is over.
        let is_under_way = |epoch: u64| here.contains(&epoch) || here.last() < Some(&epoch);
        for placed in plans.into_iter().filter(|placed| is_under_way(placed.plan.epoch())) {
            drop(take_in(&self.shared, serial, placed)?);
        }
        let mut planner = handle.planner();
        // Others may have said so to the home before; what they have not written is found missing when it is due.
        let is_making = |number: &u32| queue.as_ref().is_some_and(|queue| queue.is_making(*number));
        let done: Vec<u32> =
            planner.pending_packages().keys().copied().filter(|number| !is_making(number)).collect();
        done.into_iter().for_each(|number| planner.written(number));
        handle.set_follows(false);
        drop(planner);

        let mut state = self.shared.lock();
        let own = state.jobs.still(serial)?;
        own.nodes.take_over(capacity);
        own.ranks.take_over(&snapshot.cuts, &snapshot.begun);
        self.shared.planned.notify_all();
        Ok(())
    }

    /// What this node keeps of a job once every slot of an epoch is decided, or at the end of that time; now, without one.
    pub fn residents_after(&self, job: &str, epoch: Option<u64>, wait: Duration) -> Result<Vec<u8>> {
        let by = Instant::now() + wait;
        let mut state = self.shared.lock();
        loop {
            let known = state.jobs.planned(job)?;
            let (serial, samples) = (known.serial, known.dataset.samples());
            let left = by.saturating_duration_since(Instant::now());
            let is_decided = epoch.is_none_or(|epoch| known.has_decided(epoch));
            if is_decided || left.is_zero() || state.is_stopping() {
                let residents = Residents::of(state.rooms.cache(serial)?.policy(), samples);
                drop(state);
                return Ok(residents.save(samples));
            }
            let (back, _) = sync::wait(&self.shared.planned, state, LOOK_UP.min(left));
            state = back;
        }
    }

    /// A rank of this node is about to re-evaluate samples before an epoch, as the job's home has told it to: this node
    /// keeps, or counts the read of, what it owns of all that is re-evaluated.
    pub fn reevaluates_here(&self, job: &str, epoch: u64, rank: u32) -> Result<()> {
        check_epoch(epoch)?;
        let mut state = self.shared.lock();
        let known = state.jobs.planned(job)?;
        let (serial, samples) = (known.serial, known.dataset.samples());
        let (cluster, _) = known.nodes.cluster()?;
        known.ranks.arrive(rank, epoch);
        drop(state);
        self.choose(serial, epoch, samples, |engine| match cluster.reevaluation(job, epoch)? {
            Reevaluation::Nothing => Ok(()),
            Reevaluation::All => engine.ask_all(serial, epoch, samples),
            Reevaluation::Set(ids) => engine.pin(serial, epoch, &ids),
        })
    }

    /// What is re-evaluated before an epoch.
    pub fn reevaluation_of(&self, job: &str, epoch: u64) -> Result<Reevaluation> {
        let planner = self.shared.lock().jobs.planned(job)?.planner.clone();
        let planner = planner.filter(|planner| planner.waits_for_trainer);
        Ok(planner.map_or(Reevaluation::Nothing, |planner| planner.reevaluation(epoch)))
    }

    /// The samples of a job that this node owns by its newest plan, for those who ask about them; all where it is alone.
    #[doc(hidden)]
    pub fn owned(&self, job: &str) -> Result<Vec<Id>> {
        let mut state = self.shared.lock();
        let known = state.jobs.named(job)?;
        let samples = known.dataset.samples() as Id;
        let schedule = known.run.schedules().values().next_back();
        Ok((0..samples).filter(|&id| schedule.is_none_or(|schedule| schedule.owns_sample(id))).collect())
    }
}
