//! What became of a fetch: what is counted, which readers are woken, what is read again.
//!
//! The plan's reads were counted when they were decided; here only what came on top is. What was to come together and did
//! not is read one by one, each with attempts of its own, and a package that is not as it was written is dropped, so that
//! the next plan does without it. A failure is told to the readers of the sample that it is of.

use std::sync::Arc;
use std::time::Duration;

use hotset_core::Error;
use hotset_core::tally::Traffic;
use hotset_store::ReadError;

use super::fetch::{Brought, Fetch, Giver, PackingRead, Source, Wanted};
use super::{Cause, Payer};
use crate::jobs::Job;
use crate::packing::PackingQueue;
use crate::state::State;

fn requests_only(requests: u64) -> Traffic {
    Traffic { requests, ..Traffic::default() }
}

impl State {
    /// Notes the end of a fetch that took so many requests.
    pub(super) fn complete(
        &mut self,
        fetch: Fetch,
        requests: u64,
        took: Duration,
        outcome: Result<Brought, ReadError>,
    ) -> hotset_core::Result<()> {
        self.rooms.fetching_mut().led(&fetch);
        if let Some(queue) = &fetch.packing {
            let queue = Arc::clone(queue);
            self.complete_packing(fetch, &queue, requests, outcome);
            return Ok(());
        }
        match fetch.origin {
            Source::Samples(..) => self.complete_samples(&fetch, requests, took, outcome),
            Source::Node(ref question) => {
                self.rooms.fetching_mut().answered(question);
                self.complete_asked(&fetch, outcome)
            }
            Source::Run { samples, .. } | Source::Package { samples, .. } => {
                self.complete_package(&fetch, samples, requests, took, outcome)
            }
        }
    }

    /// A sample has come, or several that lie side by side, or none has.
    fn complete_samples(
        &mut self,
        fetch: &Fetch,
        requests: u64,
        took: Duration,
        outcome: Result<Brought, ReadError>,
    ) -> hotset_core::Result<()> {
        let objects = fetch.objects();
        match outcome {
            Ok(brought) => {
                // The first pays for the request, and for what lies between them.
                let sizes: u64 = fetch.parts.iter().map(|part| fetch.dataset.size(part.id)).sum();
                let (mut requests, mut between) = (requests, brought.bytes.saturating_sub(sizes));
                let took = took / objects.len().max(1) as u32;
                for (at, (part, object)) in fetch.parts.iter().zip(objects).enumerate() {
                    let bytes = fetch.dataset.size(part.id) + std::mem::take(&mut between);
                    let traffic = Traffic { reads: 1, requests: std::mem::take(&mut requests), bytes };
                    let took = Some(took).filter(|_| !matches!(brought.from, Giver::Memory(_)));
                    self.charge(object, traffic, took, false)?;
                    let (payer, _) = self.rooms.fetching().payer(object)?;
                    self.spare(payer, &brought.from, traffic);
                    self.arrive(object, at, &brought);
                }
            }
            Err(error) if objects.len() == 1 => {
                self.charge(objects[0], requests_only(requests), Some(took), true)?;
                let id = fetch.parts[0].id;
                let failed = Error::from(error).of_sample(id.into(), fetch.dataset.catalog.key(id));
                self.rooms.arrive(objects[0], Some(&failed));
                if let Some(job) = self.jobs.get_mut(fetch.payer.job) {
                    job.lose_copy(&mut self.rooms, objects[0]);
                    job.lose_visitor(&mut self.rooms, objects[0]);
                }
            }
            Err(_) => {
                // One of them is to blame: each is read alone, and its readers are told of its own failure.
                let (payer, _) = self.rooms.fetching().payer(objects[0])?;
                if let Some(job) = self.jobs.get_mut(payer.job) {
                    job.charge(payer, requests_only(requests));
                }
                for object in objects {
                    let cause = match self.rooms.fetching().payer(object)?.0.cause {
                        Cause::Planned => Cause::Extra,
                        cause => cause,
                    };
                    self.rooms.read_alone(object, cause)?;
                }
            }
        }
        Ok(())
    }

    /// Counts the read of an object, and the batches that wait for one that failed. One that none waits for is read
    /// again when it is asked for, and one that was a copy is served from what is kept.
    fn charge(
        &mut self,
        object: u32,
        traffic: Traffic,
        took: Option<Duration>,
        failed: bool,
    ) -> hotset_core::Result<()> {
        let (payer, waiters) = self.rooms.fetching().payer(object)?;
        // The job may have ended meanwhile.
        let Some(job) = self.jobs.get_mut(payer.job) else { return Ok(()) };
        if let (Some(epoch), Some(took)) = (payer.epoch, took) {
            job.notices.pacing.read(epoch, 1, took);
        }
        job.charge(payer, traffic);
        if failed && waiters > 0 && payer.cause != Cause::Probe {
            job.run.tally_mut().failed(payer.epoch, waiters as u64);
        }
        Ok(())
    }

    /// Counts that what was charged did not come from storage, if it did not.
    fn spare(&mut self, payer: Payer, from: &Giver, traffic: Traffic) {
        let Some(job) = self.jobs.get_mut(payer.job) else { return };
        match from {
            Giver::Storage | Giver::Node => {}
            Giver::Peer => job.run.tally_mut().came_from_peer(payer.epoch, traffic),
            Giver::Memory(_) => job.run.tally_mut().joined(payer.epoch, traffic),
        }
    }

    /// The bytes of an object, the part `at` of a fetch, have come.
    fn arrive(&mut self, object: u32, at: usize, brought: &Brought) {
        match &brought.from {
            Giver::Memory(contents) => self.rooms.adopt(object, contents[at]),
            Giver::Storage | Giver::Peer | Giver::Node => {
                let proof = brought.proofs.get(at).copied().flatten();
                proof.into_iter().for_each(|hash| self.rooms.prove(object, hash));
            }
        }
        self.rooms.arrive(object, None);
    }

    /// A package has come, or something of it.
    fn complete_package(
        &mut self,
        fetch: &Fetch,
        samples: u32,
        requests: u64,
        took: Duration,
        outcome: Result<Brought, ReadError>,
    ) -> hotset_core::Result<()> {
        let brought = outcome.unwrap_or_else(|error| {
            let damage = fetch.damage(&error);
            Brought { parts: vec![false; fetch.parts.len()], damage, ..Brought::whole(0, 0, Giver::Storage) }
        });
        let traffic = Traffic { reads: u64::from(samples), requests: 1, bytes: brought.bytes };
        self.spare(fetch.payer, &brought.from, traffic);
        if let Some(job) = self.jobs.get_mut(fetch.payer.job) {
            let epoch = fetch.payer.epoch.unwrap_or_default();
            if !matches!(brought.from, Giver::Memory(_)) {
                job.notices.pacing.read(epoch, u64::from(samples), took);
            }
            job.charge(fetch.payer, requests_only(requests));
            if let (Some(damage), Source::Package { number, .. }) = (&brought.damage, &fetch.origin) {
                job.lose_package(epoch, *number, damage);
            }
        }
        for (at, object) in fetch.objects().into_iter().enumerate() {
            if brought.parts[at] {
                self.arrive(object, at, &brought);
            } else {
                self.rooms.read_alone(object, Cause::Recovery)?;
            }
        }
        Ok(())
    }

    /// Another node has answered, or not. What did not come from it is read from storage.
    fn complete_asked(
        &mut self,
        fetch: &Fetch,
        outcome: Result<Brought, ReadError>,
    ) -> hotset_core::Result<()> {
        let brought = outcome.unwrap_or_else(|_| Brought::nothing(fetch.parts.len()));
        for (at, object) in fetch.objects().into_iter().enumerate() {
            let came = brought.parts[at];
            if let Some(job) = self.jobs.get_mut(fetch.payer.job) {
                let (epoch, tally) = (fetch.payer.epoch, job.run.tally_mut());
                if came {
                    tally.came_from_node(epoch, fetch.dataset.size(fetch.parts[at].id));
                } else {
                    tally.failed_at_node(epoch, 1);
                }
            }
            if came {
                self.arrive(object, at, &brought);
            } else {
                self.rooms.read_alone(object, Cause::Recovery)?;
            }
        }
        Ok(())
    }

    /// What packing asked for has come; what a package did not bring is read alone.
    fn complete_packing(
        &mut self,
        fetch: Fetch,
        queue: &Arc<PackingQueue>,
        requests: u64,
        outcome: Result<Brought, ReadError>,
    ) {
        let Fetch { dataset, origin, payer, parts, .. } = fetch;
        if let Some(job) = self.jobs.get_mut(payer.job) {
            let traffic = match &outcome {
                Ok(brought) => Traffic { reads: parts.len() as u64, requests, bytes: brought.bytes },
                Err(_) => requests_only(requests),
            };
            job.charge(payer, traffic);
            if matches!(outcome, Ok(Brought { from: Giver::Peer, .. })) {
                job.run.tally_mut().came_from_peer(payer.epoch, traffic);
            }
        }
        let package = if let Source::Package { number, .. } = origin { Some(number) } else { None };
        for (at, part) in parts.into_iter().enumerate() {
            let id = part.id;
            match &outcome {
                Ok(brought) if brought.parts[at] => queue.read(id, Ok(part.into_packed())),
                _ if package.is_some() => {
                    let (dataset, queue) = (dataset.clone(), queue.clone());
                    let (job, epoch, wanted) = (payer.job, payer.epoch, Wanted::Lost(id));
                    let read = PackingRead { job, epoch, dataset, queue, wanted };
                    self.rooms.fetching_mut().enqueue_packing(read);
                }
                Err(error) => queue.read(id, Err(error.to_string())),
                Ok(_) => queue.read(id, Err("its bytes are not right".into())),
            }
        }
        if let Some(number) = package {
            queue.package_read(number);
        }
    }
}

impl Job {
    /// Counts what a read cost beyond what its plan counted.
    fn charge(&mut self, payer: Payer, traffic: Traffic) {
        let tally = self.run.tally_mut();
        match payer.cause {
            Cause::Planned => {
                tally.recovered(payer.epoch, requests_only(traffic.requests.saturating_sub(1)));
            }
            Cause::Extra => tally.recovered(payer.epoch, requests_only(traffic.requests)),
            Cause::Recovery => tally.recovered(payer.epoch, traffic),
            Cause::Probe => tally.probed(payer.epoch, traffic),
            // Its owner counts it.
            Cause::Asked => {}
            Cause::Unplanned => tally.read_unplanned(traffic),
        }
    }
}
