//! Samples whose bytes are in memory already, or on their way there, under another name.
//!
//! A request for samples whose hashes are all known is looked up before it is made. Either memory has the bytes of all of
//! them, and the request is over, or storage is read as if nothing had been looked for. Where some of the bytes are
//! being read by another request it waits for that one, once and not for long, and is looked up again: whatever became of
//! that, nothing but time was lost. What comes from storage is hashed by the thread that read it, and only bytes that have the hash which their
//! digest says are found by it. Packages that were written are read as they are, and what a probe measures is a read.
//!
//! Nothing here is decided: what the plan asks for is counted as ever, and what was found is counted as joined.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use hotset_core::contents::Hash;

use super::fetch::{Brought, Fetch, Giver, Part};
use super::{Begun, Cause, Fetching, Origin, Request};
use crate::residency::{ContentKey, Residency};

/// How long a request that a reader waits for waits for another: the other's store may be slower, or hang.
const PATIENCE: Duration = Duration::from_secs(1);

/// How a request stands to others that read the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Following {
    /// It did not wait for one.
    Never,
    /// It waits for one since then.
    Since(Instant),
    /// It has waited for one.
    Before,
}

/// Contents that are being read: for each the object that it is read into, and the requests that wait for it.
#[derive(Default)]
pub(super) struct Coming {
    leaders: HashMap<Hash, Leader>,
    /// Since when requests wait, the first first; those that wait no longer stay until they come to the front.
    since: VecDeque<(Instant, u64)>,
}

struct Leader {
    object: u32,
    followers: Vec<u64>,
}

/// What was found of a request's samples.
enum Look {
    /// All of them: the content of each object.
    Found(Vec<(u32, ContentKey)>),
    /// The rest of them is on its way; this is part of it.
    Coming(Hash),
    /// Too few.
    Missing,
}

impl Fetching {
    /// Begins a request whose samples are all in memory, or has it wait where they are on their way. `None` if it is to be
    /// made.
    pub(super) fn begin_equal(&mut self, number: u64, residency: &mut Residency) -> Option<Begun> {
        if self.coming.leaders.is_empty() && !residency.has_contents() {
            return None;
        }
        match self.look(number, residency) {
            Look::Missing => None,
            Look::Coming(hash) => {
                let now = Instant::now();
                self.coming.leaders.get_mut(&hash)?.followers.push(number);
                self.requests.get_mut(&number)?.following = Following::Since(now);
                while self
                    .coming
                    .since
                    .front()
                    .is_some_and(|&(since, number)| !self.follows_since(number, since))
                {
                    self.coming.since.pop_front();
                }
                self.coming.since.push_back((now, number));
                Some(Begun::Waits)
            }
            Look::Found(found) => {
                let dataset = self.pending.get(&found.first()?.0)?.dataset.clone();
                let request = self.requests.remove(&number)?;
                let part = |(object, content)| Some((Self::part(object, residency)?, content));
                let (parts, contents): (Vec<Part>, _) = found.into_iter().filter_map(part).unzip();
                let fetch = Fetch::new(dataset, request.origin, request.payer, parts);
                let bytes = fetch.extent().unwrap_or_default();
                let brought = Brought::whole(fetch.parts.len(), bytes, Giver::Memory(contents));
                Some(Begun::Found(fetch, brought))
            }
        }
    }

    fn look(&self, number: u64, residency: &Residency) -> Look {
        let Some(request) = self.requests.get(&number) else { return Look::Missing };
        if matches!(request.origin, Origin::Package(..)) || request.payer.cause == Cause::Probe {
            return Look::Missing;
        }
        let (mut found, mut awaited) = (Vec::new(), None);
        for object in &request.objects {
            let Some(pending) = self.pending.get(object).filter(|of| of.request == Some(number)) else {
                continue;
            };
            let (dataset, of) = (&pending.dataset, residency.get(*object));
            let Some(hash) = dataset.hashes.as_ref().and_then(|hashes| hashes.get(of.id())) else {
                return Look::Missing;
            };
            if let Some(content) = residency.content(hash, dataset.key, dataset.size(of.id())) {
                found.push((*object, content));
                continue;
            }
            let leader = self.coming.leaders.get(hash).map(|leader| residency.get(leader.object));
            let leads = leader.is_some_and(|leader| {
                leader.dataset() != dataset.key || residency.is_kept(dataset.key, leader.id())
            });
            if !leads || request.following != Following::Never {
                return Look::Missing;
            }
            awaited.get_or_insert(*hash);
        }
        match awaited {
            Some(hash) => Look::Coming(hash),
            None if found.is_empty() => Look::Missing,
            None => Look::Found(found),
        }
    }

    /// A read begins: others wait for what it brings.
    pub(super) fn lead(&mut self, fetch: &Fetch) {
        let Some(hashes) = fetch.dataset.hashes.as_ref().filter(|_| fetch.payer.cause != Cause::Probe) else {
            return;
        };
        for part in &fetch.parts {
            if let (Some(hash), Some(object)) = (hashes.get(part.id), part.key()) {
                let leader = || Leader { object, followers: Vec::new() };
                self.coming.leaders.entry(*hash).or_insert_with(leader);
            }
        }
    }

    /// A read has ended: what waited for it is looked up again.
    pub(super) fn led(&mut self, fetch: &Fetch) {
        let Some(hashes) = &fetch.dataset.hashes else { return };
        for part in &fetch.parts {
            let Some(hash) = hashes.get(part.id) else { continue };
            let own = self.coming.leaders.get(hash).is_some_and(|leader| Some(leader.object) == part.key());
            let leader = if own { self.coming.leaders.remove(hash) } else { None };
            leader.into_iter().flat_map(|leader| leader.followers).for_each(|number| self.unfollow(number));
        }
    }

    /// Has requests looked up again that have waited for others for too long. True if there were any.
    pub(crate) fn unfollow_slow(&mut self) -> bool {
        let (now, mut any) = (Instant::now(), false);
        let slow = |(since, _): &mut (Instant, u64)| now.saturating_duration_since(*since) >= PATIENCE;
        while let Some((since, number)) = self.coming.since.pop_front_if(slow) {
            if self.follows_since(number, since) {
                self.unfollow(number);
                any = true;
            }
        }
        any
    }

    /// Whether a request waits for another since then.
    fn follows_since(&self, number: u64, since: Instant) -> bool {
        self.requests.get(&number).is_some_and(|request| request.following == Following::Since(since))
    }

    /// A request waits for another no longer.
    fn unfollow(&mut self, number: u64) {
        let waits = |request: &&mut Request| matches!(request.following, Following::Since(_));
        let Some(request) = self.requests.get_mut(&number).filter(waits) else { return };
        request.following = Following::Before;
        let urgent = request.urgent;
        self.push(Some(number), urgent);
    }
}

impl Fetch {
    /// Looks whether what was read has the hashes that it should have.
    pub(super) fn prove(&mut self, brought: &mut Brought) {
        let Some(hashes) = self.dataset.hashes.clone().filter(|_| self.packing.is_none()) else { return };
        let whole = self.parts.iter_mut().zip(&brought.parts);
        let proof = |(part, brought): (&mut Part, &bool)| {
            if *brought { hashes.proven(part.id, part.bytes()).copied() } else { None }
        };
        brought.proofs = whole.map(proof).collect();
    }
}

#[cfg(feature = "shuttle")]
impl Fetching {
    /// Whether a request waits for a read that is under way.
    pub(super) fn follows(&self, number: u64) -> bool {
        self.coming.leaders.values().any(|leader| leader.followers.contains(&number))
    }
}
