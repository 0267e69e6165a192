//! A job that this node is the home of: who takes part in it, where its ranks are, and what has happened to it.
//!
//! Other nodes hear of that by events, which they ask for in turn: each question says the last event that the asker knows, and waits
//! for the next. A bounded number is kept. A node that has fallen behind further is told where the ranks are now, and which plans
//! there are, which is all that it needs to go on. The events are in `events.rs`, and what another node keeps of the job in
//! `copied.rs`.

mod copied;
mod events;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use hotset_core::cluster::Node;
use hotset_engine::SessionId;
use hotset_wire::nodes::{Begun, Event, Followed, Invite, Opened, Planned, event};
use hotset_wire::proto::Report;

use copied::Copied;
use events::Events;

use crate::lock::Lock;

/// How long a node that could not open a job is left alone.
const REFUSED: Duration = Duration::from_secs(30);
/// The pauses between attempts to hand a job over.
const SHORTEST_PAUSE: Duration = Duration::from_millis(300);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a node that was invited, or has a job open, may not have asked about it, before it is invited once more: longer than it
/// waits for a plan.
const UNHEARD: Duration = Duration::from_secs(60);

/// One job, from its opening here to its end.
pub(crate) struct HomeJob {
    pub(super) job: String,
    /// What other nodes are told to open.
    pub(super) invite: Invite,
    /// Whether its policy takes scores at once, on every node.
    takes_scores: bool,
    /// The plan that was told last, by its digest. Held while it is encoded: others wait for it and need not do it too.
    encoded: Mutex<(u64, Weak<Vec<u8>>)>,
    /// When it was tried last to hand it over, and how long it is not tried again.
    tried: Lock<Option<(Instant, Duration)>>,
    /// Held while a state is sent, and by reports that are; held for itself alone while the keeper changes.
    sending: Mutex<()>,
    reports: RwLock<()>,
    /// Held while etcd is told who keeps a copy: what is told last is what was meant last.
    telling: Mutex<()>,
    /// The part of the node itself in a job that it has taken over, for those who are still to come.
    pub(super) session: Lock<Option<(SessionId, Instant)>>,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    fence: i64,
    /// Whether it goes on at this node no more, and whether it goes on at all.
    left: Option<Left>,
    events: Events,
    /// The node of each rank, and of how many ranks it is one, where that is known.
    ranks: BTreeMap<u32, (String, Option<u32>)>,
    begun: BTreeMap<u32, Begun>,
    planned: BTreeMap<u64, Planned>,
    nodes: BTreeMap<String, Taking>,
    /// What is known of each node that takes part.
    known: BTreeMap<String, Known>,
    copied: Copied,
    /// The last report of each rank, which may come once more.
    heard: BTreeMap<u32, Report>,
}

/// How a job has left its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// It has ended for good.
    Ended,
    /// It has begun anew.
    Anew,
    /// It goes on elsewhere, or will.
    Moved,
}

/// What is known of a node that takes part.
struct Known {
    /// When its key was written, as it was invited: another for another start of it.
    revision: u64,
    /// When it was heard of.
    heard: Instant,
}

/// How another node takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Taking {
    /// It was asked to.
    Invited,
    /// It has the job open, and gives so many bytes to it.
    Open(u64),
    /// It could not open it.
    Refused(Instant),
}

impl HomeJob {
    pub(super) fn new(job: String, invite: Invite, fence: i64, takes_scores: bool) -> Self {
        Self {
            job,
            invite,
            takes_scores,
            encoded: Mutex::default(),
            tried: Lock::default(),
            sending: Mutex::default(),
            reports: RwLock::default(),
            telling: Mutex::default(),
            session: Lock::default(),
            state: Lock::new(State { fence, ..State::default() }),
        }
    }

    /// What other nodes are told of it.
    pub(super) fn opened(&self) -> Opened {
        self.invite.opened.clone().unwrap_or_default()
    }

    pub(super) fn is_of(&self, opening: &str) -> bool {
        self.invite.opened.as_ref().is_some_and(|opened| opened.opening == opening)
    }

    /// The fence under which its plans are handed out.
    pub(super) fn fence(&self) -> i64 {
        self.state.lock().fence
    }

    /// Its key was lost and created anew.
    pub(super) fn set_fence(&self, fence: i64) {
        self.state.lock().fence = fence;
    }

    /// Notes where a rank is.
    pub(super) fn note_rank(&self, rank: u32, world: Option<u32>, node: &str) {
        let mut state = self.state.lock();
        let world = world.or_else(|| state.ranks.get(&rank).filter(|(at, _)| at == node)?.1);
        state.ranks.insert(rank, (node.to_owned(), world));
        state.signal();
    }

    /// The node of each of `world` ranks, as soon as all are known, these nodes have the job open and none that was invited is waited
    /// for, or at the end of that time. `own` is this node, which has it open.
    pub(super) fn ranks(&self, world: u32, own: &str, patience: Duration) -> Vec<Option<String>> {
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            let at = |rank| state.ranks.get(&rank).filter(|(_, of)| of.is_none_or(|of| of == world));
            let found: Vec<Option<String>> = (0..world).map(|rank| Some(at(rank)?.0.clone())).collect();
            let settled = state.nodes.values().all(|taking| *taking != Taking::Invited);
            let is_open =
                |node: &String| node == own || matches!(state.nodes.get(node), Some(Taking::Open(_)));
            let open = found.iter().all(|node| node.as_ref().is_some_and(is_open));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.left.is_some() || (settled && open) {
                return found;
            }
            state = state.wait_for(left);
        }
    }

    /// The nodes of a view that are still to be invited, which they are from now on: those that have come, that were started again
    /// since, and that have the job open and have not asked about it for long. Those that have left the view are forgotten.
    pub(super) fn invite(&self, nodes: &[Node], own: &str) -> Vec<String> {
        let mut locked = self.state.lock();
        let state = &mut *locked;
        state.known.retain(|name, _| nodes.iter().any(|node| node.name == *name));
        state.nodes.retain(|name, taking| {
            let Some(node) = nodes.iter().find(|node| node.name == *name) else { return false };
            let now = Known { revision: node.revision, heard: Instant::now() };
            let known = state.known.entry(name.clone()).or_insert(now);
            // Its key is written anew too when it is told to drain.
            let before = std::mem::replace(&mut known.revision, node.revision);
            let has_restarted = before != node.revision && !node.draining;
            match taking {
                Taking::Open(_) => !has_restarted && known.heard.elapsed() <= UNHEARD,
                Taking::Refused(since) => !has_restarted && since.elapsed() <= REFUSED,
                Taking::Invited => known.heard.elapsed() <= UNHEARD,
            }
        });
        let mut invited = Vec::new();
        for node in nodes.iter().filter(|node| node.name != own && !node.draining) {
            if !state.nodes.contains_key(&node.name) {
                state.nodes.insert(node.name.clone(), Taking::Invited);
                let now = Known { revision: node.revision, heard: Instant::now() };
                state.known.insert(node.name.clone(), now);
                invited.push(node.name.clone());
            }
        }
        locked.signal();
        invited
    }

    /// A node could not open the job.
    pub(super) fn refused(&self, node: &str) {
        let mut state = self.state.lock();
        state.nodes.insert(node.to_owned(), Taking::Refused(Instant::now()));
        state.signal();
    }

    /// The nodes that have the job open, and what they give to it.
    pub(super) fn nodes(&self) -> BTreeMap<String, u64> {
        let state = self.state.lock();
        let open = state.nodes.iter().filter_map(|(node, taking)| match taking {
            Taking::Open(granted) => Some((node.clone(), *granted)),
            _ => None,
        });
        open.collect()
    }

    /// The plan of that digest as nodes are told it: encoded once, as long as one of them is being told.
    pub(super) fn encoded_plan(&self, digest: u64, encode: impl FnOnce() -> Arc<Vec<u8>>) -> Arc<Vec<u8>> {
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, known) = &*encoded;
        if let Some(plan) = known.upgrade().filter(|_| *of == digest) {
            return plan;
        }
        let plan = encode();
        *encoded = (digest, Arc::downgrade(&plan));
        plan
    }

    /// Whether it is time to try to hand it over, which takes a state of it each time: with pauses that double.
    pub(super) fn may_be_handed_over(&self) -> bool {
        let mut tried = self.tried.lock();
        let now = Instant::now();
        match &mut *tried {
            Some((last, pause)) if now.duration_since(*last) < *pause => false,
            Some((last, pause)) => {
                (*last, *pause) = (now, (*pause * 2).min(LONGEST_PAUSE));
                true
            }
            none => {
                *none = Some((now, SHORTEST_PAUSE));
                true
            }
        }
    }

    /// Whether a report came before: whoever did not hear the answer sends it again.
    pub(crate) fn is_repeated(&self, report: &Report) -> bool {
        self.state.lock().heard.get(&report.rank) == Some(report)
    }

    /// A report was taken.
    pub(super) fn heard(&self, report: &Report) {
        self.state.lock().heard.insert(report.rank, report.clone());
    }

    /// A rank begins an epoch over: it may report the same once more.
    pub(super) fn forget_heard(&self, rank: u32) {
        self.state.lock().heard.remove(&rank);
    }

    /// A rank has begun an epoch.
    pub(super) fn begun(&self, begun: Begun) {
        let mut state = self.state.lock();
        state.begun.insert(begun.rank, begun.clone());
        state.events.push(event::Kind::Begun(begun));
        state.signal();
    }

    /// A plan can be asked for.
    pub(super) fn planned(&self, epoch: u64, digest: u64) {
        let planned = Planned { epoch, digest };
        let mut state = self.state.lock();
        state.planned.insert(epoch, planned);
        while state.planned.len() > 2 {
            state.planned.pop_first();
        }
        state.events.push(event::Kind::Planned(planned));
        state.signal();
    }

    /// Something was reported, which other nodes hear of where the policy takes scores at once.
    pub(super) fn reported(&self, report: &Report) {
        if !self.takes_scores {
            return;
        }
        let mut state = self.state.lock();
        state.events.push(event::Kind::Reported(report.clone()));
        state.signal();
    }

    /// The job leaves this node.
    pub(super) fn leave(&self, how: Left) {
        let mut state = self.state.lock();
        state.left.get_or_insert(how);
        state.signal();
    }

    /// What has happened after an event, as soon as something has, or at the end of that time; `node` has the job open, and gives
    /// so many bytes to it. `None`: that is to be asked of another node.
    pub(super) fn follow(&self, node: &str, after: u64, granted: u64, wait: Duration) -> Option<Followed> {
        let until = Instant::now() + wait;
        let mut state = self.state.lock();
        let open = Taking::Open(granted);
        if state.nodes.insert(node.to_owned(), open.clone()).as_ref() != Some(&open) {
            state.signal();
        }
        if let Some(known) = state.known.get_mut(node) {
            known.heard = Instant::now();
        }
        loop {
            match state.left {
                Some(Left::Ended) => {
                    return Some(Followed { over: true, ended: true, ..Followed::default() });
                }
                Some(Left::Anew) => return Some(Followed { over: true, ..Followed::default() }),
                Some(Left::Moved) => return None,
                None => {}
            }
            let events = state.after(after);
            let left = until.saturating_duration_since(Instant::now());
            // One that is invited once more says at once that it is here.
            let stays = state.nodes.get(node) == Some(&open);
            if !events.is_empty() || left.is_zero() || !stays {
                let last = state.events.last();
                return Some(Followed { over: false, last, events, ended: false });
            }
            state = state.wait_for(left);
        }
    }
}

impl State {
    /// The events after one, or what they have come to.
    fn after(&self, after: u64) -> Vec<Event> {
        self.events.after(after).unwrap_or_else(|| self.now())
    }

    /// The ranks and the plans as they are.
    fn now(&self) -> Vec<Event> {
        let planned = self.planned.values().copied().map(event::Kind::Planned);
        // A node that comes now need not read what was trained before.
        let now = |begun: &Begun| {
            let heard = self.heard.get(&begun.rank).filter(|report| report.epoch == begun.epoch);
            let start = heard.map_or(begun.start, |report| report.upto.max(begun.start));
            event::Kind::Begun(Begun { start, ..begun.clone() })
        };
        let begun = self.begun.values().map(now);
        planned.chain(begun).map(|kind| Event { kind: Some(kind) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::events::EVENTS;
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    fn job() -> HomeJob {
        HomeJob::new("exp".into(), Invite::default(), 1, true)
    }

    fn follow(job: &HomeJob, after: u64) -> Followed {
        job.follow("b", after, 5, SHORT).unwrap()
    }

    fn begun(rank: u32, epoch: u64) -> Begun {
        Begun { node: "a".into(), epoch, rank, world: 2, start: 0, digest: 7 }
    }

    #[test]
    fn whoever_follows_hears_each_event_once_and_in_order() {
        let job = job();
        job.begun(begun(0, 0));
        let first = follow(&job, 0);
        assert_eq!((first.events.len(), first.last), (1, 1));
        job.planned(1, 7);
        job.begun(begun(1, 0));
        let next = follow(&job, first.last);
        let kinds = [event::Kind::Planned(Planned { epoch: 1, digest: 7 }), event::Kind::Begun(begun(1, 0))];
        assert_eq!(next.events.iter().filter_map(|event| event.kind.clone()).collect::<Vec<_>>(), kinds);
        assert!(follow(&job, next.last).events.is_empty(), "nothing has happened since");
        job.leave(Left::Ended);
        assert!(follow(&job, next.last).over);
        let moved = self::job();
        moved.leave(Left::Moved);
        assert!(moved.follow("b", 0, 5, SHORT).is_none(), "another node is to be asked");
    }

    #[test]
    fn whoever_has_fallen_behind_hears_what_is_now() {
        let job = job();
        for epoch in 0..EVENTS as u64 {
            job.planned(epoch, epoch);
            (0..2).for_each(|rank| job.begun(begun(rank, epoch)));
        }
        let heard = follow(&job, 5);
        let last = EVENTS as u64 - 1;
        let begun: Vec<u64> = heard
            .events
            .iter()
            .filter_map(|event| match &event.kind {
                Some(event::Kind::Begun(begun)) => Some(begun.epoch),
                _ => None,
            })
            .collect();
        assert_eq!((begun, heard.events.len()), (vec![last, last], 4));
        assert!(follow(&job, heard.last).events.is_empty());
    }

    #[test]
    fn ranks_are_waited_for_and_those_of_another_world_are_not_meant() {
        let job = job();
        job.note_rank(0, Some(2), "a");
        job.note_rank(1, Some(4), "b");
        assert_eq!(job.ranks(2, "a", SHORT), [Some("a".into()), None]);
        job.note_rank(1, Some(2), "b");
        let began = Instant::now();
        assert_eq!(job.ranks(2, "a", SHORT).len(), 2);
        assert!(began.elapsed() >= SHORT, "`b` has the job not open yet");
        assert!(job.follow("b", 0, 9, Duration::ZERO).is_some());
        assert_eq!(job.ranks(2, "a", Duration::from_secs(60)), [Some("a".into()), Some("b".into())]);
    }

    #[test]
    fn nodes_that_were_invited_are_waited_for_until_they_follow_or_refuse() {
        let node = |name: &str, draining| Node {
            name: name.into(),
            address: String::new(),
            capacity: 1,
            rack: None,
            draining,
            revision: 1,
        };
        let (job, view) = (job(), [node("a", false), node("b", false), node("c", true), node("d", false)]);
        assert_eq!(job.invite(&view, "a"), ["b", "d"], "not itself, nor one that is about to leave");
        assert!(job.invite(&view, "a").is_empty(), "once");
        job.refused("d");
        job.note_rank(0, Some(1), "a");
        let began = Instant::now();
        assert_eq!(job.ranks(1, "a", Duration::from_millis(50)).len(), 1);
        assert!(began.elapsed() >= Duration::from_millis(50), "`b` may still come");
        assert!(job.follow("b", 0, 9, SHORT).is_some());
        assert_eq!(job.ranks(1, "a", Duration::from_secs(60)), [Some("a".into())]);
        assert_eq!(job.nodes(), BTreeMap::from([("b".into(), 9)]));
        assert!(job.invite(&view[..1], "a").is_empty());
        assert!(job.nodes().is_empty(), "it has left the cluster");
    }

    #[test]
    fn a_node_that_was_started_again_or_is_not_heard_of_is_invited_once_more() {
        let node = |revision, draining| Node {
            name: "b".into(),
            address: String::new(),
            capacity: 1,
            rack: None,
            draining,
            revision,
        };
        let job = job();
        assert_eq!(job.invite(&[node(3, false)], "a"), ["b"]);
        follow(&job, 0);
        assert!(job.invite(&[node(3, false)], "a").is_empty(), "it has the job open");
        assert!(job.invite(&[node(4, true)], "a").is_empty(), "it is about to leave, and is the same");
        assert_eq!(job.nodes().len(), 1);
        assert_eq!(job.invite(&[node(5, false)], "a"), ["b"], "it may be another start of it");
        assert!(job.nodes().is_empty());
        follow(&job, 0);
        assert!(job.invite(&[node(5, false)], "a").is_empty());
        let unheard = Instant::now().checked_sub(UNHEARD + SHORT).unwrap();
        job.state.lock().known.get_mut("b").unwrap().heard = unheard;
        assert_eq!(job.invite(&[node(5, false)], "a"), ["b"], "it says nothing");
        // One that came by itself.
        let other = self::job();
        follow(&other, 0);
        assert!(other.invite(&[node(5, false)], "a").is_empty());
        assert_eq!(other.invite(&[node(6, false)], "a"), ["b"]);
    }

    #[test]
    fn a_job_that_is_not_handed_over_is_tried_again_after_a_pause() {
        let job = job();
        assert!(job.may_be_handed_over() && !job.may_be_handed_over());
        job.tried.lock().as_mut().unwrap().0 -= SHORTEST_PAUSE;
        assert!(job.may_be_handed_over());
        assert_eq!(job.tried.lock().unwrap().1, 2 * SHORTEST_PAUSE);
    }

    #[test]
    fn a_plan_is_encoded_once_for_all_that_ask_for_it() {
        let job = job();
        let encode = |bytes: &[u8]| job.encoded_plan(7, || Arc::new(bytes.to_vec()));
        let first = encode(b"one");
        assert!(Arc::ptr_eq(&first, &encode(b"two")));
        assert_eq!(*job.encoded_plan(8, || Arc::new(b"other".to_vec())), b"other");
        drop(first);
        assert_eq!(*encode(b"three"), b"three", "nothing is kept that no node is being told");
    }
}
