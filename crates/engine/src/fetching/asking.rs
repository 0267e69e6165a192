//! Asking the node that owns a sample for it.
//!
//! What other nodes decide is queued apart from what storage is read for, and taken off by threads of its own. Questions to
//! one node that wait together become one, as far as that is not too large: nothing of it is there until all is. Those that a
//! reader waits for are put apart from the others, and have a place of their own. What does not come, because the node is dead, slow or says so, is read from
//! storage as any other sample is, and that is recovery here: the owner's plan has counted its own read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hotset_core::cluster::{AnswerKind, Layout, Wanted};

use super::fetch::{Brought, Fetch, Giver, Part};
use super::{Fetching, Origin};
use crate::cluster::Cluster;
use crate::residency::Residency;

/// The most questions that one node has to answer at a time. Others wait, and become one: a node that hangs does not take all
/// threads from those that answer.
const MOST_AT_A_TIME: usize = 4;
/// The most samples, and the most bytes, that are asked for at a time. One that is larger is asked for alone.
pub(crate) const MOST_SLOTS: usize = 4096;
pub(crate) const MOST_BYTES: u64 = 8 << 20;

/// What one node is asked for.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) cluster: Arc<dyn Cluster>,
    /// How long the node has to answer.
    pub(crate) wait: Duration,
    /// How the plan lies, and the number of the node in it.
    pub(crate) layout: Arc<Layout>,
    pub(crate) owner: usize,
    pub(crate) job: String,
    pub(crate) epoch: u64,
    /// The slot that each object is for.
    pub(crate) slots: HashMap<u32, u32>,
}

impl Question {
    /// The node's name.
    fn node(&self) -> &str {
        self.layout.view().nodes().get(self.owner).map_or("", |node| &node.name)
    }

    /// Whether another one is put to the same node about the same plan.
    fn is_like(&self, other: &Self) -> bool {
        self.owner == other.owner
            && (self.epoch, &self.job) == (other.epoch, &other.job)
            && Arc::ptr_eq(&self.layout, &other.layout)
    }

    /// Asks, and fills what comes.
    pub(super) fn ask(&self, parts: &mut [Part]) -> Brought {
        let slot = |part: &Part| part.key().and_then(|object| self.slots.get(&object)).copied();
        let slots: Vec<u32> = parts.iter().map(|part| slot(part).unwrap_or(u32::MAX)).collect();
        let wanted = Wanted {
            view: self.layout.view().id(),
            job: self.job.clone(),
            epoch: self.epoch,
            plan: self.layout.digest(),
            slots,
        };
        let Some(owner) = self.layout.view().nodes().get(self.owner) else {
            return Brought::nothing(parts.len());
        };
        let mut places: Vec<&mut [u8]> = parts.iter_mut().map(Part::bytes).collect();
        match self.cluster.fetch(owner, &wanted, self.wait, &mut places) {
            Ok(given) => {
                let bytes = places.iter().map(|place| place.len() as u64).sum();
                let came = |at: usize| given.get(at).is_some_and(|given| given.kind == AnswerKind::Given);
                let came = (0..places.len()).map(came).collect();
                Brought { parts: came, ..Brought::whole(0, bytes, Giver::Node) }
            }
            Err(error) => {
                tracing::debug!(node = owner.name, slots = places.len(), %error, "a node does not answer");
                Brought::nothing(places.len())
            }
        }
    }
}

impl Fetching {
    /// Queues a question to another node.
    pub(crate) fn enqueue_question(&mut self, question: Question, urgent: bool) {
        let objects = question.slots.keys().copied().collect();
        let request = self.add(Origin::Node(question), objects, urgent);
        self.push(request, urgent);
    }

    /// The next question that its node has time for. Those that were begun from another place in the queue, or with another,
    /// are taken out.
    fn next_question(&mut self) -> Option<u64> {
        let (requests, asked) = (&self.requests, &self.asked);
        self.asking.retain(|number| requests.contains_key(number));
        let has_time = |number: &u64| match requests.get(number).map(|request| &request.origin) {
            Some(Origin::Node(question)) => {
                let urgent = requests.get(number).is_some_and(|request| request.urgent);
                let most = MOST_AT_A_TIME + usize::from(urgent);
                asked.get(question.node()).is_none_or(|&asked| asked < most)
            }
            _ => true,
        };
        let at = self.asking.iter().position(has_time)?;
        self.asking.remove(at)
    }

    /// A question was answered, or not.
    pub(super) fn answered(&mut self, question: &Question) {
        if let Some(asked) = self.asked.get_mut(question.node()) {
            *asked -= 1;
            if *asked == 0 {
                self.asked.remove(question.node());
            }
        }
    }

    /// Takes the next question off its queue, with others that are put to the same node.
    pub(crate) fn begin_asking(&mut self, residency: &mut Residency) -> Option<Fetch> {
        while let Some(number) = self.next_question() {
            let Some(request) = self.requests.remove(&number) else { continue };
            let Origin::Node(mut question) = request.origin else { continue };
            let mut objects = self.still_pending(number, request.objects);
            let bytes = |objects: &[u32]| -> u64 {
                objects.iter().map(|&object| residency.get(object).length()).sum()
            };
            let mut all = bytes(&objects);
            let mut left = VecDeque::with_capacity(self.asking.len());
            for other in std::mem::take(&mut self.asking) {
                let Some(waiting) = self.requests.get(&other) else { continue };
                // Of those that left the numbers may be others'.
                let more = self.still_pending(other, waiting.objects.clone());
                let fits = all + bytes(&more) <= MOST_BYTES && objects.len() + more.len() <= MOST_SLOTS;
                let fits = fits && waiting.urgent == request.urgent;
                match &waiting.origin {
                    Origin::Node(like) if fits && like.is_like(&question) => {
                        let slot = |object: &u32| Some((*object, *like.slots.get(object)?));
                        question.slots.extend(more.iter().filter_map(slot));
                        all += bytes(&more);
                        objects.extend(more);
                        self.requests.remove(&other);
                    }
                    _ => left.push_back(other),
                }
            }
            self.asking = left;
            // In the order in which the owner decides them.
            objects.sort_unstable_by_key(|object| question.slots.get(object).copied());
            let Some(dataset) = objects.first().and_then(|object| self.pending.get(object)) else { continue };
            let dataset = Arc::clone(&dataset.dataset);
            let parts: Vec<Part> =
                objects.into_iter().filter_map(|object| Self::part(object, residency)).collect();
            if !parts.is_empty() {
                *self.asked.entry(question.node().to_owned()).or_default() += 1;
                return Some(Fetch::new(dataset, Origin::Node(question), request.payer, parts));
            }
        }
        None
    }
}
