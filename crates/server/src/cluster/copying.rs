//! What a home does so that another node can go on with its jobs, and what that node does then.
//!
//! One of the nodes that follow a job keeps a copy of it ([`copies`](super::copies)), by rendezvous hashing: the first that takes
//! the state as an epoch begins. A report is acknowledged when it is there too. A keeper that fails is none until the next epoch
//! begins, and it is said. Etcd knows who is the keeper before anything is acknowledged that only that node has, so a node with an older
//! copy never goes on from it. When the home is gone its keeper claims the job, and goes on from the copy: its engine has followed every
//! plan, and now makes them. Others see the new home in etcd and ask it; its own key is what fences off the old one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::{Error, Kind, Result};
use hotset_wire::nodes::{Copy, Noted, StatePart, answer, copy, question};
use hotset_wire::proto::Report;

use super::asking::Patience;
use super::copies::Kept;
use super::followed::Followed;
use super::home::HomeJob;
use super::homes::{Homes, Keeper};
use super::node::Node;
use crate::runs::base_name;

/// How long a node may be silent that is to keep a copy.
const SILENCE: Duration = Duration::from_secs(3);
/// The most bytes of a state that are sent at a time.
const PART: usize = 16 << 20;
/// How long a new home waits until the old one is seen to have gone.
const GONE: Duration = Duration::from_secs(5);

impl Node {
    /// Has another node keep the state of a job as an epoch began. A node that was not the keeper before gets a state of its own, and no
    /// report is acknowledged until it is: it would miss those that came after the state of the epoch's beginning.
    pub(crate) fn copy_state(
        &self,
        home: &HomeJob,
        (epoch, digest): (u64, u64),
        (generation, state): (u64, &[u8]),
    ) -> Result<()> {
        for node in self.keepers(home) {
            let sent = match home.keeper().as_deref() == Some(&node) {
                true => self.send_state(home, &node, generation, state),
                false => self.make_keeper(home, &node),
            };
            match sent {
                Ok(()) => {
                    home.copied(epoch, digest);
                    return Ok(());
                }
                Err(error) if error.kind == Kind::Lost => return Err(error),
                Err(error) => tracing::warn!(job = home.job, node, %error, "a node keeps no copy of a job"),
            }
        }
        self.tell_keeper(home, None);
        home.copied(epoch, digest);
        Ok(())
    }

    /// Makes a node the keeper of a job.
    fn make_keeper(&self, home: &HomeJob, node: &str) -> Result<()> {
        let _held = home.hold_reports();
        let taken = self.service()?.export_between(&home.job, || home.next_generation())?;
        let (generation, state) =
            taken.ok_or_else(|| Error::unavailable(format!("job `{}` has no state to copy", home.job)))?;
        self.send_state(home, node, generation, &state)?;
        self.tell_keeper(home, Some((node, generation)));
        Ok(())
    }

    /// Has etcd know which node has taken the state of that number, and so keeps a copy from now on. While etcd is away nothing can be
    /// taken over; it is told when it is back.
    fn tell_keeper(&self, home: &HomeJob, taken: Option<(&str, u64)>) {
        let _one = home.telling();
        let told = match home.next_keeper(taken) {
            None => Ok(()),
            Some(keeper) => self.put_keeper(home, keeper.as_ref()),
        };
        home.set_keeper(taken, told.is_ok());
        if let Err(error) = told {
            tracing::warn!(job = home.job, %error, "etcd is still to be told which node keeps a copy of a job");
        }
    }

    /// The same where it could not be told.
    pub(super) fn tell_keeper_again(&self, home: &HomeJob) {
        let _one = home.telling();
        if let Some(keeper) = home.untold_keeper()
            && self.put_keeper(home, keeper.as_ref()).is_ok()
        {
            home.keeper_told(keeper.as_ref());
        }
    }

    fn put_keeper(&self, home: &HomeJob, keeper: Option<&Keeper>) -> Result<()> {
        self.living_lease()?;
        match self.homes.put_keeper((base_name(&home.job), &home.job), home.fence(), keeper)? {
            true => Ok(()),
            false => Err(Error::unavailable(format!("this node is not the home of job `{}` now", home.job))),
        }
    }

    /// The keeper does not answer, and is none any more.
    fn lose_keeper(&self, home: &HomeJob, node: &str, error: &Error) {
        tracing::warn!(job = home.job, node, %error, "no node keeps a copy of a job until its next epoch begins");
        if home.keeper().as_deref() == Some(node) {
            self.tell_keeper(home, None);
        }
    }

    /// Before a plan is told, to a node or to a rank: has the node that keeps a copy know of it, of how it lies over nodes, and of what the
    /// plan after it is made from. So whoever becomes home next carries out what anybody was told.
    pub(crate) fn copy_plan(&self, home: &HomeJob, digest: u64) -> Result<()> {
        match home.is_to_be_copied(digest) {
            Some(true) => {}
            Some(false) => return Ok(()),
            None => {
                return Err(Error::new(
                    Kind::Lost,
                    format!("job `{}` has left this node: its plans come from where it goes on", home.job),
                ));
            }
        }
        let keeper = home.keeper();
        let taken =
            self.service().and_then(|service| service.export_between(&home.job, || home.next_generation()));
        let sent = taken.and_then(|taken| match (taken, &keeper) {
            (Some((generation, state)), Some(node)) => self.send_state(home, node, generation, &state),
            _ => Ok(()),
        });
        let done = match sent {
            Err(error) if error.kind != Kind::Lost => {
                self.lose_keeper(home, &keeper.unwrap_or_default(), &error);
                Ok(())
            }
            sent => sent,
        };
        home.copied_plan(digest);
        done
    }

    /// Has the node that keeps a copy of a job know of a report.
    pub(crate) fn copy_report(&self, report: &Report, generation: u64) -> Result<()> {
        let Some(home) = self.home_job(&report.job) else { return Ok(()) };
        let _passes = home.pass_report();
        let Some(node) = home.keeper() else { return Ok(()) };
        match self.send(&home, &node, generation, copy::Kind::Report(report.clone())) {
            Err(error) if error.kind != Kind::Lost => {
                self.lose_keeper(&home, &node, &error);
                Ok(())
            }
            sent => sent,
        }
    }

    /// The nodes that could keep a copy, the next home first.
    fn keepers(&self, home: &HomeJob) -> Vec<String> {
        let view = self.view();
        let stays = |name: &String| view.index_of(name).is_some_and(|at| !view.nodes()[at].draining);
        let mut nodes: Vec<String> =
            home.nodes().into_keys().filter(|node| *node != self.name).filter(stays).collect();
        let score = |node: &String| *blake3::hash(format!("{}\n{node}", home.job).as_bytes()).as_bytes();
        nodes.sort_by_cached_key(score);
        nodes
    }

    fn send_state(&self, home: &HomeJob, node: &str, generation: u64, state: &[u8]) -> Result<()> {
        let _one = home.sending();
        for (number, part) in state.chunks(PART).enumerate() {
            let kind = copy::Kind::State(StatePart {
                invite: Some(home.invite.clone()),
                length: state.len() as u64,
                from: (number * PART) as u64,
                bytes: part.to_vec(),
            });
            self.send(home, node, generation, kind)?;
        }
        Ok(())
    }

    fn send(&self, home: &HomeJob, node: &str, generation: u64, kind: copy::Kind) -> Result<()> {
        let (job, opening, fence) = (home.job.clone(), home.opened().opening, home.fence());
        let copy = Copy { job, opening, generation, fence, kind: Some(kind) };
        let mut check = || self.check();
        match self.ask(node, question::Kind::Copy(copy), Patience::of(SILENCE, &mut check))?? {
            answer::Kind::Moved(Noted {}) => {
                tracing::warn!(job = home.job, node, "another node is the home of a job now");
                self.give_up(home);
                Err(Error::new(
                    Kind::Lost,
                    format!("the node `{node}` is the home of job `{}` now", home.job),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Keeps what another node's job would be gone on with from. A node that does not follow the job could not go on.
    pub(super) fn take_copy(&self, home: &str, copy: Copy) -> Result<answer::Kind> {
        if let Some(own) = self.home_job(&copy.job) {
            if own.fence() > copy.fence {
                return Ok(answer::Kind::Moved(Noted {}));
            }
            // By etcd's word the sender is: this node has not heard of it yet.
            self.give_up(&own);
        }
        if !self.followed_job(&copy.job).is_some_and(|followed| followed.is_of(&copy.opening)) {
            return Err(Error::unavailable(format!(
                "job `{}` is not open on node `{}`",
                copy.job, self.name
            )));
        }
        match self.jobs.copies.take(home, copy)? {
            true => Ok(answer::Kind::Noted(Noted {})),
            false => Ok(answer::Kind::Moved(Noted {})),
        }
    }

    /// Lets another node be the home of a job, if one can; this node's clients open it there.
    pub(super) fn hand_over(&self, home: &Arc<HomeJob>) -> Result<bool> {
        let (keepers, service) = (self.keepers(home), self.service()?);
        if keepers.is_empty() {
            return Ok(false);
        }
        let _held = home.hold_reports();
        let Some(state) = service.export_between(&home.job, || home.next_generation())? else {
            return Ok(false);
        };
        let (generation, state) = state;
        for node in keepers {
            let sent = self.send_state(home, &node, generation, &state).and_then(|()| {
                self.tell_keeper(home, Some((&node, generation)));
                match home.untold_keeper() {
                    None => self.send(home, &node, generation, copy::Kind::TakeOver(Noted {})),
                    Some(_) => Err(Error::unavailable("etcd does not know who takes the job over")),
                }
            });
            match sent {
                Ok(()) => {
                    tracing::info!(job = home.job, node, "hands a job over");
                    // Before the job ends here, or it could be opened here once more. What is reported meanwhile is refused
                    // by the node that has it now.
                    let released = self.homes.release(base_name(&home.job), home.fence(), &[], false);
                    self.give_up(home);
                    released?;
                    return Ok(true);
                }
                Err(error) => tracing::warn!(job = home.job, node, %error, "a node does not take a job over"),
            }
        }
        Ok(false)
    }

    /// Takes over a job that this node followed and has a copy of, if no other node is its home. False: the copy is not the one that
    /// the home has told of last.
    pub(super) fn take_over(self: &Arc<Self>, followed: &Arc<Followed>, kept: &Kept) -> Result<bool> {
        let (job, lease) = ((base_name(&followed.job), followed.job.as_str()), self.living_lease()?);
        let copy = (followed.opened.opening.as_str(), kept.generation);
        let Some(claimed) = self.homes.succeed(job, copy, &self.name, lease)? else { return Ok(false) };
        if claimed.node != self.name || !Homes::is_under(&claimed, lease) {
            return Ok(true);
        }
        // The plan after is laid over nodes that are there.
        let until = Instant::now() + GONE;
        while !kept.take_over && self.address_of(&followed.home()).is_some() && Instant::now() < until {
            self.check()?;
            std::thread::sleep(Duration::from_millis(50));
        }
        let service = self.service()?;
        let launch = kept.invite.job.as_ref().and_then(|job| job.launch.clone()).unwrap_or_default();
        let lasting = kept.invite.job.as_ref().is_some_and(|job| job.lasting);
        let home = Arc::new(HomeJob::new(
            followed.job.clone(),
            kept.invite.clone(),
            claimed.fence,
            service.engine.takes_scores(&followed.job),
        ));
        kept.heard.values().for_each(|report| home.heard(report));
        *home.session.lock() = Some((followed.session(), Instant::now()));
        service.take_over(&followed.job, &kept.state, kept.reports(), (lasting, launch))?;
        self.jobs.here.lock().insert(followed.job.clone(), home);
        self.leave_to_home(followed);
        self.jobs.copies.forget(&followed.job);
        tracing::info!(job = followed.job, before = followed.home(), "this node is the home of a job now");
        Ok(true)
    }
}
