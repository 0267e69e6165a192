//! Batches of samples, and what they are.

use std::time::Duration;

use hotset_core::{Id, Kind, Result};
use hotset_engine::{Asked, Purpose};
use hotset_wire::proto::{self, response};

use super::{Caller, Reply, Service};
use crate::answer;
use crate::runs::Peer;

/// The most samples described in one answer.
const DESCRIBED: u64 = 1 << 16;

impl Service {
    pub(super) fn get_batch(
        &self,
        peer: Peer,
        asked: &proto::GetBatch,
        caller: &mut dyn Caller,
    ) -> Result<Reply> {
        let wait = Duration::from_millis(asked.wait_ms);
        let purpose = match asked.reevaluation {
            Some(epoch) => Purpose::Reevaluated(epoch),
            None if asked.matched => Purpose::Matched,
            None => Purpose::Served,
        };
        let samples =
            Asked { indices: &asked.indices, purpose, since: asked.since_us.map(Duration::from_micros) };
        let mut alive = || caller.check().is_ok();
        let granted =
            self.engine.grant_batch(peer.session, &asked.job, asked.rank, samples, wait, &mut alive);
        let (grant, read_on) = granted.inspect_err(|error| {
            if error.kind == Kind::Changed {
                let dataset = self.engine.dataset_of(&asked.job);
                dataset.iter().for_each(|dataset| self.catalogs.outdated(dataset));
            }
        })?;
        let batch = proto::Batch {
            lease: grant.lease,
            segment: grant.entries.iter().map(|entry| entry.segment).collect(),
            offset: grant.entries.iter().map(|entry| entry.offset).collect(),
            length: grant.entries.iter().map(|entry| entry.length).collect(),
            label: grant.labels,
            label_kind: answer::label_kind(grant.label_kind).into(),
            label_length: grant.label_lengths,
            dropped: grant.dropped,
            parts: grant.parts,
            remark: grant.remark.unwrap_or_default(),
        };
        let read_on = Some(read_on);
        Ok(Reply { segments: grant.segments, read_on, ..response::Kind::Batch(batch).into() })
    }

    pub(super) fn describe(&self, asked: &proto::Describe) -> Result<proto::Described> {
        let catalog = self.engine.catalog(&asked.dataset)?;
        let samples = catalog.len() as u64;
        let count = asked.count.min(DESCRIBED).min(samples.saturating_sub(asked.first));
        let ids = || (asked.first..asked.first.saturating_add(count)).map(|id| id as Id);
        let (mut labels, mut label_lengths) = (Vec::new(), Vec::new());
        ids().for_each(|id| catalog.append_label(id, &mut labels, &mut label_lengths));
        Ok(proto::Described {
            keys: ids().map(|id| catalog.key(id)).collect(),
            labels,
            sizes: ids().map(|id| catalog.size(id)).collect(),
            label_kind: answer::label_kind(catalog.label_kind()).into(),
            label_lengths,
        })
    }
}
