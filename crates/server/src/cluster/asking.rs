//! Asks other nodes about jobs, until they have answered.
//!
//! A question is asked again, under its number, while its answer is not there, and while the other node does not answer at all; for
//! as long as its asker is patient. So a node that is started over, or a connection that breaks, is no error by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hotset_cluster::Peers;
use hotset_core::{Error, Kind, Result};
use hotset_wire::nodes::{Answer, Piece, Question, answer, question};
use prost::Message;

/// How long the other node may wait before it says that there is no answer yet.
const WAIT: Duration = Duration::from_secs(2);
/// How long a call may last beyond that.
const LEEWAY: Duration = Duration::from_secs(5);
/// The pause before a node that did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// What a node said; or why nothing came of it.
pub(super) type Asked = std::result::Result<Result<answer::Kind>, Error>;

/// This node as it asks others.
pub(super) struct Asking {
    pub(super) peers: Peers,
    node: String,
    instance: String,
    next: AtomicU64,
}

/// How long an answer is waited for.
pub(super) struct Patience<'a> {
    /// How long a node may be silent.
    pub(super) silence: Duration,
    /// The longest that a node may wait before it answers.
    pub(super) wait: Duration,
    /// An error once the answer is of no use.
    pub(super) check: &'a mut dyn FnMut() -> Result<()>,
}

impl<'a> Patience<'a> {
    /// With a node that is silent for no longer than that.
    pub(super) fn of(silence: Duration, check: &'a mut dyn FnMut() -> Result<()>) -> Self {
        Self { silence, wait: WAIT, check }
    }
}

impl Asking {
    pub(super) fn new(peers: Peers, node: String, instance: String) -> Self {
        Self { peers, node, instance, next: AtomicU64::new(1) }
    }

    /// Asks a node, which is where `address` says; an error if it does not answer, and in it what it answered.
    pub(super) fn ask(
        &self,
        node: &str,
        address: &dyn Fn() -> Option<String>,
        kind: question::Kind,
        patience: &mut Patience<'_>,
    ) -> Asked {
        crate::lock::assert_unlocked();
        let mut question = Question {
            node: self.node.clone(),
            instance: self.instance.clone(),
            number: self.next.fetch_add(1, Ordering::Relaxed),
            from: 0,
            wait_ms: patience.wait.as_millis() as u64,
            kind: Some(kind),
        };
        let mut answer = Vec::new();
        let mut heard = Instant::now();
        loop {
            (patience.check)()?;
            match self.piece(address, &question, patience.wait) {
                Ok(piece) => {
                    heard = Instant::now();
                    answer.extend(piece.piece);
                    question.from = answer.len() as u64;
                    if !piece.pending && question.from >= piece.length {
                        return Ok(decoded(node, &answer));
                    }
                }
                Err(error) if error.kind != Kind::Unavailable => return Err(error),
                Err(error) if heard.elapsed() >= patience.silence => {
                    let why = error.message;
                    return Err(Error::unavailable(format!("the node `{node}` does not answer: {why}")));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn piece(
        &self,
        address: &dyn Fn() -> Option<String>,
        question: &Question,
        wait: Duration,
    ) -> Result<Piece> {
        let address = address().ok_or_else(|| Error::unavailable("it has left the cluster"))?;
        let piece = self.peers.ask(&address, &question.encode_to_vec(), wait + LEEWAY)?;
        Piece::decode(piece.as_slice()).map_err(|_| Error::unavailable("it answers what is no answer"))
    }
}

fn decoded(node: &str, answer: &[u8]) -> Result<answer::Kind> {
    let strange = || {
        Error::internal(format!(
            "the node `{node}` answers what this one does not understand: use one version"
        ))
    };
    match Answer::decode(answer).map_err(|_| strange())?.kind.ok_or_else(strange)? {
        answer::Kind::Failure(failure) => Err(failure.into()),
        said => Ok(said),
    }
}
