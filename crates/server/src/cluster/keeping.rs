//! What a node sees to by itself, a few times a second.
//!
//! Nodes that have come are invited to the jobs that this node is the home of. Guests leave with their node. A job that has ended
//! here gives its key back; one whose key was lost with a lease is claimed again, or is over here if another node was faster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_cluster::membership;
use hotset_core::cluster::View;
use hotset_core::{Error, Kind, Result};
use hotset_wire::nodes::{self, answer, question};

use super::asking::Patience;
use super::door::PROBE;
use super::followed::Followed;
use super::home::{HomeJob, Left};
use super::homes::Homes;
use super::node::Node;
use crate::runs::base_name;

/// How often a node looks around, at least.
const TICK: Duration = Duration::from_millis(200);
/// How long a job may be without a home before a node without a copy of it gives it up.
const HOMELESS: Duration = Duration::from_secs(10);
/// How long a node stays in a job that it has taken over, until others come.
const GRACE: Duration = Duration::from_secs(60);
/// The most jobs of which it is known that they have ended.
const ENDED: usize = 1024;
/// How long a server that ends waits until its jobs are handed over.
const LEAVING: Duration = Duration::from_secs(8);
/// How long a node that is invited may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// Has a node look around until the server stops.
pub(super) fn start(node: &Arc<Node>) -> Result<()> {
    let weak = Arc::downgrade(node);
    let run = move || {
        while let Some(node) = weak.upgrade()
            && !node.is_stopping()
        {
            node.look_around();
            node.homes.wait(TICK);
        }
    };
    let started = std::thread::Builder::new().name("hotset-node".into()).spawn(run);
    started
        .map(drop)
        .map_err(|error| Error::unavailable(format!("cannot start the thread of a node: {error}")))
}

impl Node {
    fn look_around(self: &Arc<Self>) {
        let view = self.view();
        self.answers.expire();
        self.see_guests_off(&view);
        for home in self.home_jobs().into_values() {
            self.keep_home(&home);
        }
        for followed in self.followed_jobs() {
            self.keep_following(&followed);
        }
        self.release_ended();
        self.forget_datasets();
        if self.is_draining() {
            self.hand_all_over();
        }
        for home in self.home_jobs().into_values() {
            for node in home.invite(view.nodes(), &self.name) {
                self.invite(&home, node);
            }
        }
    }

    /// Forgets how datasets were asked for that are open no more.
    fn forget_datasets(&self) {
        let Ok(service) = self.service() else { return };
        let noted: Vec<String> = self.clients.datasets.lock().keys().cloned().collect();
        let gone: Vec<String> =
            noted.into_iter().filter(|name| service.engine.catalog(name).is_err()).collect();
        let mut datasets = self.clients.datasets.lock();
        gone.iter().for_each(|name| drop(datasets.remove(name)));
    }

    fn see_guests_off(&self, view: &View) {
        let Ok(service) = self.service() else { return };
        for client in self.clients.guests.leave_where(|node| view.index_of(node).is_none()) {
            service.disconnect_here(&client);
        }
    }

    /// Sees that this node is still the home of a job, and becomes it again where nobody is.
    fn keep_home(&self, home: &HomeJob) {
        let grace = home.session.lock().take_if(|(_, since)| since.elapsed() > GRACE);
        if let (Some((session, _)), Ok(service)) = (grace, self.service()) {
            service.engine.detach(session, Instant::now());
        }
        let Some(lease) = self.lease() else { return };
        let name = base_name(&home.job);
        let known = match self.homes.of(name) {
            Some(known) => known,
            None => match self.homes.claim(name, &self.name, lease) {
                Ok(claimed) => claimed,
                Err(error) => {
                    tracing::debug!(%error, job = name, "the key of a job is not put again yet");
                    return;
                }
            },
        };
        if known.node != self.name {
            tracing::warn!(job = home.job, node = known.node, "another node is the home of a job now");
            self.give_up(home);
        } else if Homes::is_under(&known, lease) && known.fence != home.fence() {
            tracing::warn!(job = home.job, "this node is the home of a job again, whose key was lost");
            home.set_fence(known.fence);
        }
        self.tell_keeper_again(home);
    }

    /// Sees that the home of a job is known, and becomes it where that has gone.
    fn keep_following(self: &Arc<Self>, followed: &Arc<Followed>) {
        let known = self.homes.of(base_name(&followed.job));
        if let Some(home) = &known
            && home.node != self.name
        {
            if home.node != followed.home() {
                tracing::info!(job = followed.job, home = home.node, "another node is the home of a job now");
            }
            followed.set_home(&home.node);
            return;
        }
        if self.lease().is_none() {
            return;
        }
        let taken = match self.jobs.copies.of(&followed.job, &followed.opened.opening) {
            Some(kept) if kept.take_over || known.is_some() || self.is_gone(followed) => {
                self.take_over(followed, &kept)
            }
            Some(_) => return,
            None => Ok(false),
        };
        match taken {
            Ok(true) => {}
            Ok(false) => self.be_homeless(followed, known.is_some()),
            Err(error) => {
                tracing::warn!(job = followed.job, %error, "a job is not taken over");
                if error.kind != Kind::Unavailable {
                    self.stop_following(followed);
                }
            }
        }
    }

    /// Waits for the node that keeps a copy of a job, and then gives the job up.
    fn be_homeless(&self, followed: &Arc<Followed>, is_home: bool) {
        let since = *followed.homeless.lock().get_or_insert_with(Instant::now);
        if is_home || since.elapsed() > HOMELESS {
            tracing::warn!(
                job = followed.job,
                home = followed.home(),
                "the home of a job is gone and no node has a copy of all that it knew: the job goes on from what the state \
                 directory of the node has that opens it next, and afresh without"
            );
            self.stop_following(followed);
        }
    }

    /// Whether the home of a job, whose key is gone, does not answer, or does not know whether it is the home. One that has
    /// ended the job says so to whoever follows it.
    fn is_gone(&self, followed: &Followed) -> bool {
        let follow = question::Kind::Follow(nodes::Follow {
            job: followed.job.clone(),
            opening: followed.opened.opening.clone(),
            after: PROBE,
            granted: followed.granted(),
            ..nodes::Follow::default()
        });
        let mut check = || self.check();
        let patience = Patience { silence: Duration::ZERO, wait: Duration::ZERO, check: &mut check };
        !matches!(self.ask(&followed.home(), follow, patience), Ok(Ok(answer::Kind::Followed(_))))
    }

    /// Before the server ends: has other nodes be the homes of its jobs, unless all are about to leave, and the cluster know that it goes.
    pub(crate) fn leave(&self) {
        if self.view().len() < 2 || self.lease().is_none() {
            return;
        }
        if let Err(error) = membership::drain(&self.address, &self.name, true) {
            tracing::warn!(%error, "the cluster does not know that this node leaves");
            return;
        }
        let until = Instant::now() + LEAVING;
        let stays = |node: &hotset_core::cluster::Node| !node.draining && node.name != self.name;
        while !self.home_jobs().is_empty() && self.view().nodes().iter().any(stays) && Instant::now() < until
        {
            self.homes.wait(TICK);
        }
    }

    /// Has other nodes be the homes of this one's jobs.
    pub(super) fn hand_all_over(&self) {
        for home in self.home_jobs().into_values().filter(|home| home.may_be_handed_over()) {
            if let Err(error) = self.hand_over(&home) {
                tracing::warn!(job = home.job, %error, "a job is not handed over");
            }
        }
    }

    /// Ends a job here whose home is elsewhere, unless it is here anew: what is heard of an earlier time comes late.
    pub(super) fn give_up(&self, home: &HomeJob) {
        home.leave(Left::Moved);
        {
            let mut here = self.jobs.here.lock();
            if !here.get(&home.job).is_some_and(|other| std::ptr::eq(&**other, home)) {
                return;
            }
            here.remove(&home.job);
        }
        if let Ok(service) = self.service() {
            service.engine.hand_on(&home.job);
            service.end_here(&home.job);
        }
    }

    /// Gives back the keys of jobs that have ended.
    fn release_ended(&self) {
        let Ok(service) = self.service() else { return };
        let jobs = self.home_jobs();
        let names: BTreeSet<&str> = jobs.keys().map(|job| base_name(job)).collect();
        for name in names {
            let of_name = || jobs.iter().filter(|(job, _)| base_name(job) == name);
            if of_name().all(|(job, _)| service.engine.has_job(job)) {
                continue;
            }
            // Nobody opens a job of the name meanwhile.
            let _claim = service.runs.claim(name);
            let (mut fence, mut stays, mut ended) = (0, false, Vec::new());
            for (job, home) in of_name() {
                fence = home.fence();
                if service.engine.has_job(job) {
                    stays = true;
                } else {
                    ended.push(job.as_str());
                    self.note_ended(home);
                    let mut here = self.jobs.here.lock();
                    if here.get(job).is_some_and(|other| Arc::ptr_eq(other, home)) {
                        here.remove(job);
                    }
                }
            }
            if let Err(error) = self.homes.release(name, fence, &ended, stays) {
                tracing::warn!(%error, job = name, "keys of a job that has ended stay in etcd");
            }
        }
    }

    /// A job has ended here: whoever follows it is told so from now on.
    fn note_ended(&self, home: &HomeJob) {
        let mut ended = self.jobs.ended.lock();
        ended.push_back(home.opened().opening);
        if ended.len() > ENDED {
            ended.pop_front();
        }
        drop(ended);
        home.leave(Left::Ended);
    }

    /// Asks a node to take part in a job.
    fn invite(self: &Arc<Self>, home: &Arc<HomeJob>, node: String) {
        let (own, home) = (Arc::clone(self), Arc::clone(home));
        let ask = move || {
            let mut check = || own.check();
            let invite = question::Kind::Invite(home.invite.clone());
            let asked = own.ask(&node, invite, Patience::of(SILENCE, &mut check)).and_then(|said| said);
            if let Err(error) = asked {
                home.refused(&node);
                tracing::warn!(job = home.job, node, %error, "a node does not take part in a job");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("hotset-invite".into()).spawn(ask) {
            tracing::warn!(%error, "a node is not invited to a job");
        }
    }
}
