//! The messages of `peers.proto`, and what they are here.

#[allow(missing_docs, clippy::all, unreachable_pub)]
mod generated {
    tonic::include_proto!("hotset.peers");
}

pub(super) use generated::peers_client::PeersClient;
pub(super) use generated::{Answer, AskReply, AskRequest, FetchReply, FetchRequest, Kind};

use hotset_core::cluster::{AnswerKind, Wanted};

/// Paths of the calls.
pub(super) const FETCH: &str = "/hotset.peers.Peers/Fetch";
pub(super) const ASK: &str = "/hotset.peers.Peers/Ask";
/// Where a token is.
pub(super) const AUTHORIZATION: &str = "authorization";

impl From<AnswerKind> for Kind {
    fn from(kind: AnswerKind) -> Self {
        match kind {
            AnswerKind::Given => Self::Given,
            AnswerKind::Yours => Self::Yours,
            AnswerKind::Stale => Self::Stale,
            AnswerKind::Unknown => Self::Unknown,
            AnswerKind::Failed => Self::Failed,
        }
    }
}

impl From<Kind> for AnswerKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Given => Self::Given,
            Kind::Yours => Self::Yours,
            Kind::Stale => Self::Stale,
            Kind::Unknown => Self::Unknown,
            Kind::Failed => Self::Failed,
        }
    }
}

impl From<FetchRequest> for Wanted {
    fn from(request: FetchRequest) -> Self {
        let FetchRequest { view, job, epoch, plan, slots } = request;
        Self { view, job, epoch, plan, slots }
    }
}

impl FetchRequest {
    /// Asks for all but the first `answered` slots.
    pub(super) fn rest(wanted: &Wanted, answered: usize) -> Self {
        let slots = wanted.slots.get(answered..).unwrap_or_default().to_vec();
        Self { view: wanted.view, job: wanted.job.clone(), epoch: wanted.epoch, plan: wanted.plan, slots }
    }
}
