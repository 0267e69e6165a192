//! A job whose home is another node.
//!
//! It is open here as it is there, so that this node decides what it owns of it, whether or not one of its ranks is here. It
//! stays open as long as its home has it: a session of the node's own is in it. A thread asks the home what has happened
//! since: that ranks of other nodes have begun epochs, and that there are plans, which it gets ahead of the ranks here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotset_core::{Error, Kind, Result};
use hotset_engine::{Role, SessionId};
use hotset_wire::nodes::{self, Begun, Event, Opened, Planned, answer, event, question};
use hotset_wire::proto::{OpenDataset, OpenJob};

use super::asking::Patience;
use super::node::Node;
use crate::lock::Lock;
use crate::opening::{JobOpening, trained};
use crate::packaging::{self, Tidying};
use crate::runs::base_name;

/// How long the home may be silent before its job is no longer followed.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a question for what has happened waits.
const WAIT: Duration = Duration::from_secs(4);
/// The pause after a question that came to nothing.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a thread looks that waits for another to open a job.
const LOOK: Duration = Duration::from_millis(100);

/// How long another node may take to be seen as home by this one.
const MOVES: Duration = Duration::from_secs(3);
/// How often, and for how long, it is tried to take in something that has happened.
const ATTEMPTS: u32 = 20;
const TRYING: Duration = Duration::from_secs(15);

/// What has been heard of a home.
#[derive(Default)]
struct Heard {
    /// The node that was asked last, and the number of the last event there: another node counts anew.
    home: String,
    last: u64,
    /// What was not taken in yet, the oldest first, and how often and since when the first one could not be.
    events: VecDeque<Event>,
    failures: u32,
    failing: Option<Instant>,
    /// The plan that could not be had: what else is heard of it is not waited for.
    given_up: Option<(u64, u64)>,
    /// Since when the home does not answer.
    silent: Option<Instant>,
}

impl Heard {
    /// A node is about to be asked: from the beginning if another was before.
    fn ask(&mut self, home: String) {
        if self.home != home {
            (self.home, self.last) = (home, 0);
        }
    }

    /// Whether to try the first one again that could not be taken in.
    fn tries_again(&mut self) -> bool {
        let plan = self.events.front().and_then(plan_of);
        let since = *self.failing.get_or_insert_with(Instant::now);
        self.failures += 1;
        let again =
            self.failures < ATTEMPTS && since.elapsed() < TRYING && (plan.is_none() || plan != self.given_up);
        if !again {
            self.given_up = plan.or(self.given_up);
        }
        again
    }

    /// Goes on with the next.
    fn done(&mut self) {
        self.events.pop_front();
        (self.failures, self.failing) = (0, None);
    }
}

/// The plan that an event is about: its epoch and digest.
fn plan_of(event: &Event) -> Option<(u64, u64)> {
    match &event.kind {
        Some(event::Kind::Begun(begun)) => Some((begun.epoch, begun.digest)),
        Some(event::Kind::Planned(planned)) => Some((planned.epoch, planned.digest)),
        _ => None,
    }
}

/// One job, from when it is followed until its home has ended it.
pub(super) struct Followed {
    pub(super) job: String,
    /// The node that is its home.
    home: Lock<String>,
    /// Since when it has none.
    pub(super) homeless: Lock<Option<Instant>>,
    pub(super) opened: Opened,
    pub(super) role: Role,
    /// The node's own part in it.
    session: SessionId,
    granted: u64,
    /// The plans that ranks of this node have begun, by their epochs.
    begun: Lock<BTreeMap<u64, u64>>,
    over: AtomicBool,
}

impl Followed {
    pub(super) fn is_of(&self, opening: &str) -> bool {
        self.opened.opening == opening
    }

    /// The node that is its home.
    pub(super) fn home(&self) -> String {
        self.home.lock().clone()
    }

    /// Another node is its home.
    pub(super) fn set_home(&self, home: &str) {
        home.clone_into(&mut self.home.lock());
        *self.homeless.lock() = None;
    }

    /// A rank of this node begins an epoch, whose plan this is.
    pub(super) fn begins(&self, epoch: u64, digest: u64) {
        self.begun.lock().insert(epoch, digest);
    }

    fn has_begun_another(&self, planned: Planned) -> bool {
        self.begun.lock().get(&planned.epoch).is_some_and(|digest| *digest != planned.digest)
    }

    /// What this node gives to it.
    pub(super) fn granted(&self) -> u64 {
        self.granted
    }

    /// The node's own part in it.
    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    /// Whether it is open here no more.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// The right to open a job that is followed from then on, until it is dropped.
struct Claim<'a>(&'a Lock<std::collections::HashSet<String>>, String);

impl<'a> Claim<'a> {
    fn take(claims: &'a Lock<std::collections::HashSet<String>>, job: &str) -> Self {
        let mut held = claims.lock();
        while !held.insert(job.to_owned()) {
            held = held.wait_for(LOOK);
        }
        Self(claims, job.to_owned())
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut held = self.0.lock();
        held.remove(&self.1);
        held.signal();
    }
}

impl Node {
    /// Has a job open here as its home has opened it, and follows it from then on.
    pub(super) fn take_part(
        self: &Arc<Self>,
        home: &str,
        dataset: OpenDataset,
        job: OpenJob,
        opened: &Opened,
    ) -> Result<Arc<Followed>> {
        let _claim = Claim::take(&self.jobs.opening, &job.job);
        self.leave_as_home(home, &job.job)?;
        let service = self.service()?;
        if let Some(followed) = self.followed_job(&job.job) {
            if followed.is_of(&opened.opening) && service.engine.has_job(&job.job) {
                return Ok(followed);
            }
            self.stop_following(&followed);
        }
        let role = Role::Follower { capacity: opened.capacity };
        let session = service.engine.attach();
        let (identity, name) = (dataset.expect.clone(), job.job.clone());
        let open = || {
            service.open_dataset_here(session, dataset, &mut |_| self.check())?;
            let opening = JobOpening::new(job)?;
            if opening.request.dataset != identity {
                return Err(Error::invalid("an invitation is of another dataset than its job"));
            }
            let place = packaging::place(&service.engine, &opening, Tidying::Elsewhere)?;
            let grant = service.engine.open_job_as(session, opening.request, place, role)?;
            if opened.packs && !grant.packs {
                service.engine.end_job(&name);
                return Err(Error::invalid(format!(
                    "node `{}` cannot use the packages of job `{name}` ({}): give `packages=` a place that all nodes reach",
                    self.name,
                    grant.remarks.join("; ")
                )));
            }
            Ok(grant)
        };
        let grant = match open() {
            Ok(grant) => grant,
            Err(error) => {
                service.engine.detach(session, Instant::now());
                return Err(error);
            }
        };
        let followed = Arc::new(Followed {
            job: name.clone(),
            home: Lock::new(home.to_owned()),
            homeless: Lock::default(),
            opened: opened.clone(),
            role,
            session,
            granted: grant.granted,
            begun: Lock::default(),
            over: AtomicBool::new(false),
        });
        let (node, own) = (Arc::downgrade(self), Arc::clone(&followed));
        let run = move || {
            let mut heard = Heard::default();
            while let Some(node) = node.upgrade()
                && node.follow(&own, &mut heard)
            {}
        };
        let thread = std::thread::Builder::new().name("hotset-follow".into()).spawn(run);
        if let Err(error) = thread {
            service.engine.end_job(&name);
            service.engine.detach(session, Instant::now());
            return Err(Error::unavailable(format!("cannot start a thread that follows a job: {error}")));
        }
        tracing::info!(job = name, home, "takes part in a job of another node");
        self.jobs.followed.lock().insert(name, Arc::clone(&followed));
        Ok(followed)
    }

    /// Gives a job up that this node is the home of as far as it knows, once etcd says that another one is.
    fn leave_as_home(&self, home: &str, job: &str) -> Result<()> {
        let until = Instant::now() + MOVES;
        while let Some(own) = self.home_job(job) {
            self.check()?;
            if self.homes.of(base_name(job)).is_some_and(|known| known.node == home) {
                self.give_up(&own);
            } else if Instant::now() >= until {
                return Err(Error::unavailable(format!("node `{}` is the home of job `{job}`", self.name)));
            } else {
                self.homes.wait(LOOK);
            }
        }
        Ok(())
    }

    /// Ends a job here that its home has ended, or begun anew.
    pub(super) fn stop_following(&self, followed: &Arc<Followed>) {
        if followed.over.swap(true, Ordering::Relaxed) {
            return;
        }
        self.forget_followed(followed);
        self.jobs.copies.forget(&followed.job);
        if let Ok(service) = self.service() {
            service.engine.end_job(&followed.job);
            service.engine.detach(followed.session, Instant::now());
        }
        tracing::info!(job = followed.job, home = followed.home(), "a job of another node is over");
    }

    /// Follows a job no more that this node is the home of now.
    pub(super) fn leave_to_home(&self, followed: &Arc<Followed>) {
        followed.over.store(true, Ordering::Relaxed);
        self.forget_followed(followed);
    }

    fn forget_followed(&self, followed: &Arc<Followed>) {
        let mut all = self.jobs.followed.lock();
        if all.get(&followed.job).is_some_and(|other| Arc::ptr_eq(other, followed)) {
            all.remove(&followed.job);
        }
    }

    /// Asks once what has happened; whether to ask again.
    fn follow(&self, followed: &Arc<Followed>, heard: &mut Heard) -> bool {
        if followed.is_over() || self.is_stopping() {
            return false;
        }
        if !heard.events.is_empty() {
            self.take_in(followed, heard);
            return true;
        }
        heard.ask(followed.home());
        let news =
            self.service().map(|service| service.engine.package_news(&followed.job)).unwrap_or_default();
        let question = question::Kind::Follow(nodes::Follow {
            job: followed.job.clone(),
            opening: followed.opened.opening.clone(),
            after: heard.last,
            granted: followed.granted,
            written: news.written.clone(),
            lost: news.lost.clone(),
        });
        let mut check = || self.check();
        // A node that has failed is asked one thing alone until it answers, so that is to be soon.
        let wait = if heard.silent.is_some() { Duration::ZERO } else { WAIT };
        let patience = Patience { silence: Duration::ZERO, wait, check: &mut check };
        let asked = Instant::now();
        let told = self.ask_for(&heard.home, question, patience, |said| match said {
            answer::Kind::Followed(followed) => Some(followed),
            _ => None,
        });
        match told {
            Ok(told) if told.over => {
                if let (Ok(service), true) = (self.service(), told.ended) {
                    service.engine.note_over(&followed.job);
                }
                self.stop_following(followed);
                false
            }
            Ok(told) => {
                if let (Ok(service), false) = (self.service(), news.is_empty()) {
                    service.engine.package_news_told(&followed.job, &news);
                }
                heard.silent = None;
                let nothing = told.events.is_empty();
                heard.events.extend(told.events);
                heard.last = told.last;
                // The home has too many waiting.
                if nothing && asked.elapsed() < PAUSE {
                    std::thread::sleep(PAUSE);
                }
                true
            }
            Err(error) => {
                let since = *heard.silent.get_or_insert_with(Instant::now);
                if since.elapsed() > SILENCE || error.kind == Kind::Invalid {
                    tracing::warn!(job = followed.job, %error, "a job is not followed any more");
                    self.stop_following(followed);
                    return false;
                }
                std::thread::sleep(PAUSE);
                true
            }
        }
    }

    /// Tells the engine of what has happened next. What it cannot take for now, a plan that does not come say, is tried again.
    fn take_in(&self, followed: &Followed, heard: &mut Heard) {
        let Some(event) = heard.events.front().cloned() else { return };
        match self.happened(followed, event) {
            Err(error) if error.kind == Kind::Unavailable && heard.tries_again() => {
                tracing::debug!(job = followed.job, %error, "what another node has begun is not known here yet");
                std::thread::sleep(PAUSE);
            }
            Err(error) => {
                tracing::debug!(job = followed.job, %error, "what another node has begun is not known here");
                heard.done();
            }
            Ok(()) => heard.done(),
        }
    }

    /// Tells the engine what has happened at the job's home.
    fn happened(&self, followed: &Followed, event: Event) -> Result<()> {
        let engine = &self.service()?.engine;
        match event.kind {
            Some(event::Kind::Begun(Begun { node, epoch, rank, world, start, digest })) => {
                if node != self.name {
                    engine.plan_ahead(&followed.job, epoch, digest)?;
                    engine.note_begun(&followed.job, epoch, (rank, world), start, false)?;
                }
                Ok(())
            }
            // What a rank of this node has begun is newer than the news of another plan of it.
            Some(event::Kind::Planned(planned)) if followed.has_begun_another(planned) => Ok(()),
            Some(event::Kind::Planned(planned)) => {
                engine.plan_ahead(&followed.job, planned.epoch, planned.digest)
            }
            Some(event::Kind::Reported(report)) => engine.scored(&followed.job, trained(&report)),
            // Of a later version.
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(epoch: u64, digest: u64) -> Event {
        Event { kind: Some(event::Kind::Planned(Planned { epoch, digest })) }
    }

    #[test]
    fn another_home_is_asked_from_the_beginning() {
        let mut heard = Heard::default();
        heard.ask("a".into());
        heard.last = 9;
        heard.ask("a".into());
        assert_eq!(heard.last, 9);
        heard.ask("b".into());
        assert_eq!((heard.last, heard.home.as_str()), (0, "b"));
    }

    #[test]
    fn what_cannot_be_taken_in_is_tried_for_a_while_and_what_comes_after_it_is_not_lost() {
        let mut heard = Heard::default();
        heard.events.extend([planned(3, 7), planned(3, 7), planned(4, 8)]);
        let tries = (1..100).find(|_| !heard.tries_again()).unwrap();
        assert_eq!(tries, ATTEMPTS);
        heard.done();
        assert!(!heard.tries_again(), "the same plan is not waited for once more");
        heard.done();
        assert!(heard.tries_again(), "another is");
        heard.failing = Instant::now().checked_sub(TRYING);
        assert!(!heard.tries_again(), "but not for long");
    }
}
