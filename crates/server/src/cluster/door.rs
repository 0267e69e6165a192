//! Where other nodes come in: slots of plans for the engine, and questions about jobs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hotset_cluster::PeerSource;
use hotset_core::cluster::{Answer, AnswerKind, Wanted};
use hotset_core::sampling::Reevaluation;
use hotset_core::{Error, Result};
use hotset_engine::PackageNews;
use hotset_wire::nodes::{
    self, Forward, GetPlan, GetReevaluation, GetResidents, Invite, Noted, Piece, Plan, Question, answer,
    question,
};
use prost::Message;

use super::node::Node;
use super::settling::RESIDENTS;

/// The longest that a plan is waited for that its home says is there.
const PLAN: Duration = Duration::from_secs(20);
/// What a node asks after that looks whether the home of a job is there.
pub(super) const PROBE: u64 = u64::MAX;
/// The longest that a follower waits for something to happen.
const FOLLOWING: Duration = Duration::from_secs(5);
/// The most that wait at a time. Others are answered at once, and ask again after a pause.
const MOST_WAITING: usize = 256;

pub(super) struct Door(Weak<Node>);

impl Door {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self(Arc::downgrade(node))
    }

    fn node(&self) -> Result<Arc<Node>> {
        self.0.upgrade().ok_or_else(|| Error::unavailable("the server is stopping"))
    }
}

impl PeerSource for Door {
    fn give(&self, wanted: &Wanted, deadline: Instant, out: &mut dyn FnMut(Answer<'_>) -> bool) {
        let ready = self.node().and_then(|node| {
            // Another node may own its samples by now.
            node.living_lease()?;
            node.service()
        });
        match ready {
            Ok(service) => service.engine.give(wanted, deadline, out),
            Err(_) => {
                let _ = wanted.slots.iter().all(|_| out(Answer::without(AnswerKind::Stale)));
            }
        }
    }

    fn ask(&self, request: &[u8]) -> Result<Vec<u8>> {
        let node = self.node()?;
        let question =
            Question::decode(request).map_err(|_| Error::invalid("a question of another version"))?;
        let number = (question.node.clone(), question.instance, question.number);
        let wait = Duration::from_millis(question.wait_ms);
        let unknown = || Error::invalid("a question of a kind that this node does not know: use one version");
        let kind = question.kind.ok_or_else(unknown)?;
        let piece = match kind {
            // It has nothing to work on, and has no answer before something happens.
            question::Kind::Follow(follow) => {
                let answer = node.answer_follow(&question.node, &follow, wait.min(FOLLOWING));
                let answer = nodes::Answer { kind: Some(answer) }.encode_to_vec();
                Piece { pending: false, length: answer.len() as u64, piece: answer }
            }
            kind => {
                let own = Arc::clone(&node);
                let from = (number.0.clone(), number.1.clone());
                let work = move || match kind {
                    question::Kind::GetPlan(GetPlan { job, epoch }) => {
                        own.encoded_plan(&job, epoch).unwrap_or_else(failure)
                    }
                    kind => own.work_on(&from, kind).map_or_else(failure, encoded),
                };
                node.answers.answer(number, question.from, wait, work)?
            }
        };
        Ok(piece.encode_to_vec())
    }
}

/// An answer as it goes to its asker.
fn encoded(answer: answer::Kind) -> Arc<Vec<u8>> {
    Arc::new(nodes::Answer { kind: Some(answer) }.encode_to_vec())
}

fn failure(error: Error) -> Arc<Vec<u8>> {
    encoded(answer::Kind::Failure(error.into()))
}

impl Node {
    /// A plan with its layout, as an answer: one for all nodes that ask for it.
    fn encoded_plan(&self, job: &str, epoch: u64) -> Result<Arc<Vec<u8>>> {
        let Some(home) = self.home_job(job) else { return Ok(encoded(answer::Kind::Moved(Noted {}))) };
        let (placed, samples) = self.service()?.engine.await_placed(job, epoch, PLAN)?;
        let digest = placed.layout.digest();
        let plan =
            home.encoded_plan(digest, || encoded(answer::Kind::Plan(Plan { plan: placed.save(samples) })));
        self.copy_plan(&home, digest)?;
        Ok(plan)
    }

    fn answer_follow(&self, node: &str, follow: &nodes::Follow, wait: Duration) -> answer::Kind {
        // Whoever looks whether it is there, to take its place, may: its lease may have run out.
        if follow.after == PROBE && self.lease().is_none() {
            return answer::Kind::Moved(Noted {});
        }
        let over = || nodes::Followed { over: true, ..nodes::Followed::default() };
        let heard = match self.home_job(&follow.job) {
            Some(job) if job.is_of(&follow.opening) => {
                if let Ok(service) = self.service() {
                    let news = PackageNews { written: follow.written.clone(), lost: follow.lost.clone() };
                    service.engine.note_packages(&follow.job, &news);
                }
                // Each that waits has a thread, and a place that other questions need.
                let others = self.clients.waiting.fetch_add(1, Ordering::Relaxed);
                let wait = if others < MOST_WAITING { wait } else { Duration::ZERO };
                let heard = job.follow(node, follow.after, follow.granted, wait);
                self.clients.waiting.fetch_sub(1, Ordering::Relaxed);
                heard
            }
            Some(_) => Some(over()),
            None => {
                let has_ended = self.jobs.ended.lock().contains(&follow.opening);
                has_ended.then(|| nodes::Followed { ended: true, ..over() })
            }
        };
        heard.map_or(answer::Kind::Moved(Noted {}), answer::Kind::Followed)
    }

    fn work_on(self: &Arc<Self>, from: &(String, String), kind: question::Kind) -> Result<answer::Kind> {
        match kind {
            question::Kind::Forward(Forward { client, process, request, dataset }) => {
                let guest = (from.0.clone(), from.1.clone(), client);
                self.serve_guest(&guest, process, request.and_then(|request| request.kind), dataset)
            }
            question::Kind::Leave(left) => {
                let gone = self.clients.guests.leave(&(from.0.clone(), from.1.clone(), left.client));
                if let Some(client) = gone {
                    self.service()?.disconnect_here(&client);
                }
                Ok(answer::Kind::Noted(Noted {}))
            }
            question::Kind::Invite(Invite { dataset, job, opened }) => {
                let missing = || Error::internal("an invitation says too little");
                let (dataset, job) = dataset.zip(job).ok_or_else(missing)?;
                self.take_part(&from.0, dataset, job, &opened.ok_or_else(missing)?)?;
                Ok(answer::Kind::Noted(Noted {}))
            }
            question::Kind::GetResidents(GetResidents { job, after }) => {
                let residents = self.service()?.engine.residents_after(&job, after, RESIDENTS / 2)?;
                Ok(answer::Kind::Residents(nodes::Residents { residents }))
            }
            question::Kind::GetReevaluation(GetReevaluation { job, epoch }) => {
                if self.home_job(&job).is_none() {
                    return Ok(answer::Kind::Moved(Noted {}));
                }
                let (all, ids) = match self.service()?.engine.reevaluation_of(&job, epoch)? {
                    Reevaluation::Nothing => (false, Vec::new()),
                    Reevaluation::All => (true, Vec::new()),
                    Reevaluation::Set(ids) => (false, ids.iter().flat_map(|id| id.to_le_bytes()).collect()),
                };
                Ok(answer::Kind::Reevaluation(nodes::Reevaluation { all, ids }))
            }
            question::Kind::GetPlan(_) | question::Kind::Follow(_) => {
                Err(Error::internal("this is answered at once"))
            }
            question::Kind::Copy(copy) => self.take_copy(&from.0, copy),
        }
    }
}
