//! Jobs from their opening to their end: their epochs, what is reported of them, and what is written down.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hotset_core::{Error, Id, Kind, Result, sampling};
use hotset_engine::{GivenOrder, OFF, SessionId};
use hotset_wire::proto::{self, response};

use super::{Caller, Client, Reply, Service, memory};
use crate::answer;
use crate::cluster::AtHome;
use crate::opening::{JobOpening, Opener, trained};
use crate::runs::base_name;
use crate::state::{self, Journal};

/// The pause before a plan that could not be handed out is asked for again.
const AGAIN: Duration = Duration::from_millis(500);
/// The most bytes of a state: 24 a sample of the largest dataset.
const MOST_STATE: usize = 24 << 32;

impl Client {
    pub(crate) fn session(&self) -> SessionId {
        self.peer.session
    }

    pub(crate) fn process(&self) -> u32 {
        self.peer.process
    }

    /// Its number here, which no other client has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The node that it is a client of, where that is another one.
    pub(crate) fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Takes out the state that it has put.
    pub(crate) fn take_put(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.put)
    }

    /// Gives back a state that it has put.
    pub(crate) fn give_put(&mut self, put: Vec<u8>) {
        self.put = put;
    }

    /// The order that it gives for an epoch: what it has put, if it says that it has, or which one it is.
    fn take_order(&mut self, asked: &proto::BeginEpoch) -> Result<Option<GivenOrder>> {
        let Some(digest) = asked.order else { return Ok(None) };
        if !asked.put {
            return Ok(Some(GivenOrder::named(digest)));
        }
        let put = self.take_put();
        let (ids, rest) = put.as_chunks();
        let order = GivenOrder::of(ids.iter().map(|id| Id::from_le_bytes(*id)).collect::<Vec<Id>>());
        if order.digest() != digest || !rest.is_empty() {
            return Err(Error::invalid(format!(
                "the order of epoch {} did not arrive as it was sent: begin the epoch again",
                asked.epoch
            )));
        }
        Ok(Some(order))
    }

    /// Keeps a part of a state until a job is opened with it.
    pub(super) fn put_state(&mut self, part: Vec<u8>) -> Result<()> {
        if self.put.len() + part.len() > MOST_STATE {
            self.put.clear();
            return Err(Error::invalid(format!("the state is larger than {MOST_STATE} bytes")));
        }
        self.put.extend(part);
        Ok(())
    }
}

/// Refuses another user's wish to have packages written, which would be written as the server's own user.
fn check_writes(user: u32, opening: &JobOpening) -> Result<()> {
    let place = opening.request.packages.as_deref().filter(|place| *place != OFF);
    match place {
        Some(place) if user != rustix::process::geteuid().as_raw() => Err(Error::invalid(format!(
            "this server is another user's and writes no packages for you: leave out `packages=` (`{place}`), or use a server \
             of your own"
        ))),
        _ => Ok(()),
    }
}

/// Refuses orders of a trainer's own on a cluster, where a plan is made at another node than the one that was told.
fn check_order(opening: &JobOpening, is_cluster: bool) -> Result<()> {
    let strategy = opening.request.strategy.as_deref().map(sampling::find).transpose()?;
    if is_cluster && strategy.is_some_and(sampling::Entry::takes_order) {
        return Err(Error::invalid(
            "this server is a node of a cluster, and an order of your own (`ids=`) is planned on one host alone: train on \
             a server without `--cluster`, or name a `strategy=` instead of `ids=`",
        ));
    }
    Ok(())
}

impl Service {
    /// Opens a job here: as its home, on a cluster.
    pub(crate) fn open_job(
        &self,
        client: &mut Client,
        asked: proto::OpenJob,
        home: Option<&AtHome>,
    ) -> Result<proto::JobOpened> {
        let put = client.take_put();
        let checkpoint = asked.restore.then_some(put.as_slice());
        let opener = Opener {
            engine: &self.engine,
            runs: &self.runs,
            states: &self.states,
            leftovers: self.leftovers.as_ref(),
            home,
        };
        let opening = JobOpening::new(asked.clone())?;
        check_writes(client.user, &opening)?;
        check_order(&opening, home.is_some())?;
        let (grant, run) =
            self.accounted(client.user, &opening, || opener.open(client.peer, &opening, checkpoint))?;
        home.into_iter().for_each(|home| home.joined(client, &asked));
        let (resumed, earlier) = run.as_ref().map_or((None, None), |run| (run.resumed, run.earlier));
        Ok(proto::JobOpened {
            strategy: grant.strategy,
            policy: grant.policy,
            asked: grant.asked,
            granted: grant.granted,
            remarks: grant.remarks,
            one_host: grant.one_host,
            cluster: home.is_some(),
            run: run.map(|run| run.run).unwrap_or_default(),
            resumed,
            earlier,
        })
    }

    /// Opens a job on its user's account. To join the job of another user costs nothing.
    fn accounted<T>(&self, user: u32, opening: &JobOpening, open: impl FnOnce() -> Result<T>) -> Result<T> {
        let request = &opening.request;
        if self.engine.has_job(&request.job) && self.accounts.is_of_another(user, &request.job) {
            return open();
        }
        let whole = self.engine.catalog(&request.dataset)?.bytes();
        let bytes = request.cache.of(whole).min(whole);
        self.accounts.opens(user, &request.job, bytes, |job| self.engine.has_job(job))?;
        let opened = open();
        // Another process may have opened it meanwhile.
        let is_open = opened.is_ok() || self.engine.has_job(&request.job);
        self.accounts.opened(user, &request.job, is_open);
        opened
    }

    /// Begins an epoch, and writes down that it has begun before its plan is told.
    pub(super) fn begin_epoch(
        &self,
        client: &mut Client,
        asked: &proto::BeginEpoch,
        caller: &mut dyn Caller,
    ) -> Result<Reply> {
        let order = client.take_order(asked)?;
        let (peer, job, epoch) = (client.peer, &asked.job, asked.epoch);
        // One that another process trains already changes nothing.
        if !asked.join {
            self.runs.begin(peer, job, asked.rank)?;
        }
        let home = self.cluster.get().filter(|_| !asked.join).and_then(|node| node.begins(client, asked));
        let rank = (asked.rank, asked.world);
        let until = Instant::now() + Duration::from_millis(asked.wait_ms);
        let plan = loop {
            let begun = match (&client.node, &order) {
                (Some(_), _) => self.engine.note_begun(job, epoch, rank, asked.start, asked.join),
                (None, None) => self.engine.begin_epoch(job, epoch, rank, asked.start, asked.join),
                (None, Some(order)) => match self.engine.begin_given(job, epoch, rank, asked.start, order)? {
                    Some(plan) => Ok(plan),
                    None => {
                        let begun = proto::EpochBegun { wants_order: true, ..proto::EpochBegun::default() };
                        return Ok(response::Kind::EpochBegun(begun).into());
                    }
                },
            };
            match begun {
                // On a cluster a plan is handed out when etcd knows of it, which may be away.
                Err(error) if error.kind == Kind::Unavailable && home.is_some() && Instant::now() < until => {
                    caller.check()?;
                    std::thread::sleep(AGAIN);
                }
                begun => break begun?,
            }
        };
        let home = home.map(|home| home.told(plan.digest()));
        if !asked.join {
            self.runs.begun(peer, job, asked.rank);
        }
        if let Some(run) = self.runs.get(job)
            && let Some(journal) = &run.journal
        {
            let mut taken = None;
            journal.begin(epoch, run.lasting, || {
                let snapshot = self.engine.snapshot(job).ok().flatten()?;
                let home = self.cluster.get().and_then(|node| node.home_job(job));
                taken = home.map(|home| (home.next_generation(), snapshot.clone()));
                Some(snapshot)
            });
            self.copy_beginning(job, (epoch, plan.digest()), &run, taken)?;
        }
        if let Some((node, home)) = self.cluster.get().zip(home) {
            node.copy_plan(&home, plan.digest())?;
        }
        // A rank of another node has the plan there.
        let descriptors: Vec<OwnedFd> = match client.node {
            Some(_) => Vec::new(),
            None => answer::plan_memory(&plan, asked.rank)?,
        };
        // Each warning is told once, to the rank that speaks for the run.
        let untold = if asked.rank == 0 && !asked.join { self.engine.untold(job)? } else { Vec::new() };
        let warning =
            |remark: hotset_core::Remark| proto::Warning { name: remark.name.to_owned(), text: remark.text };
        let begun = proto::EpochBegun {
            length: plan.rank_len() as u64,
            weighted: plan.is_weighted(),
            warnings: untold.into_iter().map(warning).collect(),
            digest: plan.digest(),
            wants_order: false,
        };
        Ok(Reply { descriptors, ..response::Kind::EpochBegun(begun).into() })
    }

    pub(super) fn reevaluate(&self, asked: &proto::Reevaluate) -> Result<Reply> {
        let ids = self.engine.reevaluation(&asked.job, asked.epoch, (asked.rank, asked.world))?;
        memory(4 * ids.len(), ids.iter().map(|id| id.to_le_bytes()))
    }

    /// Gives a report to the engine, to the log of the run, and to the recording.
    pub(super) fn report(&self, report: &proto::Report) -> Result<proto::Reported> {
        let home = self.cluster.get().and_then(|node| node.home_job(&report.job));
        if home.as_ref().is_some_and(|home| home.is_repeated(report)) {
            return Ok(proto::Reported { accepted: report.ids.len() as u64, rejected: 0 });
        }
        let mut generation = 0;
        let mut take = || {
            let taken = self.engine.report(&report.job, trained(report))?;
            generation = home.as_ref().map_or(0, |home| home.generation());
            Ok(taken)
        };
        let run = self.runs.get(&report.job);
        let (accepted, rejected) = match run.as_ref().and_then(|run| run.journal.as_ref()) {
            Some(journal) => journal.report(report, take)?,
            None => take()?,
        };
        if let Some(node) = self.cluster.get() {
            node.reported(report, generation)?;
        }
        if let Some(run) = &run {
            self.recorder.note(&self.engine, run, report);
        }
        Ok(proto::Reported { accepted, rejected })
    }

    pub(super) fn get_memory(&self, asked: &proto::GetMemory) -> Result<Reply> {
        match asked.kind() {
            proto::MemoryKind::State => {
                let state = self.export(&asked.job)?;
                memory(state.len(), [state])
            }
            proto::MemoryKind::Scores => {
                let scores = self.engine.scores(&asked.job)?;
                memory(4 * scores.len(), scores.into_iter().map(f32::to_le_bytes))
            }
        }
    }

    /// A job's state, to be put into another server.
    fn export(&self, job: &str) -> Result<Vec<u8>> {
        let run = self.runs.get(job);
        let take = || self.engine.snapshot(job);
        let snapshot = match run.as_ref().and_then(|run| run.journal.as_ref()) {
            Some(journal) => journal.between(take),
            None => take(),
        };
        let snapshot = snapshot?
            .ok_or_else(|| Error::invalid(format!("job `{job}` has no strategy, and so no importance")))?;
        let (run, lasting) = run.as_ref().map_or(("", false), |run| (run.run.as_str(), run.lasting));
        state::export(&snapshot, base_name(job), run, lasting)
    }

    /// A process leaves a job: its state goes with the last of them if its name was made up, unless its run moves on to
    /// another job.
    pub(super) fn close_job(&self, session: SessionId, asked: &proto::CloseJob) {
        let job = &asked.job;
        for (_, journal) in self.runs.trained_by(session).iter().filter(|(trained, _)| trained == job) {
            self.note_served(job, journal);
        }
        self.engine.close_job(session, job);
        let claim = self.runs.claim(base_name(job));
        claim.leave(job, session);
        if asked.moves {
            claim.retire_job(job);
        }
        claim.end_where(|other| other == job && !self.engine.has_job(job));
    }

    /// A client has gone without a word, perhaps to come again.
    pub(super) fn leave_all(&self, session: SessionId) {
        for (job, journal) in self.runs.trained_by(session) {
            self.note_served(&job, &journal);
        }
        self.runs.leave(session);
    }

    /// Before a training process leaves: where it reports no losses, it is written down that all of its epoch was
    /// served.
    fn note_served(&self, job: &str, journal: &Journal) {
        let Some(epoch) = journal.unreported() else { return };
        let stats = self.engine.job_stats(Some(job)).pop();
        let counted = stats.and_then(|stats| stats.epochs.into_iter().find(|(found, _)| *found == epoch));
        let served = counted.is_some_and(|(_, counters)| {
            counters.plan.planned > 0 && counters.served() >= counters.plan.planned
        });
        if !served {
            return;
        }
        let Ok(Some(snapshot)) = self.engine.snapshot(job) else { return };
        let Some(cut) = snapshot.cuts.get(&epoch) else { return };
        for rank in 0..cut.world {
            let (job, upto) = (job.to_owned(), cut.rank_len);
            let served = proto::Report { job, epoch, rank, upto, ..proto::Report::default() };
            if let Err(error) = journal.report(&served, || Ok(())) {
                tracing::warn!(%error, "an epoch that was served is not known as such");
            }
        }
    }

    /// Ends the jobs whose last client went long ago, and drops what was written of those whose names were made up.
    pub(crate) fn tidy(&self, now: Instant) {
        if self.engine.tidy(now) {
            self.drop_states(|job| !self.engine.has_job(job));
            self.recorder.tidy(&self.engine);
        }
        self.note_ended();
    }

    /// Says what came of jobs that have ended.
    pub(crate) fn note_ended(&self) {
        self.history.note(&self.engine.take_ended());
    }

    /// Ends all jobs: the last process that they were for is gone.
    pub(crate) fn end(&self) {
        self.drop_states(|_| true);
        self.engine.end_jobs();
        self.note_ended();
    }

    /// Ends a job here whose home is another node now: what was written of it stays.
    pub(crate) fn end_here(&self, job: &str) {
        let claim = self.runs.claim(base_name(job));
        claim.retire_job(job);
        self.engine.drop_job(job);
        claim.end_where(|other| other == job);
    }

    fn drop_states(&self, over: impl Fn(&str) -> bool) {
        // A name that is claimed is of a job that is just being opened or ended; there will be another time.
        self.runs.claim_all().iter().for_each(|claim| claim.end_where(&over));
    }
}
