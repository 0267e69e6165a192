//! A job's state on disk: written whole or not at all, and checked before it is believed.
//!
//! A file is a mark, the hash of what follows, and a `JobState`. It is written under another name and renamed, so
//! that a server killed at any moment leaves the old state or the new one. A file that is no such thing, or whose
//! hash does not fit, is never used.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use hotset_core::{Error, Result};
use hotset_engine::{JobRequest, ScheduleSnapshot, Snapshot};
use hotset_wire::state::{JobState, LastPlan, RankState, ScheduleState};
use prost::Message;

/// The first bytes of every state file; the last of them is the version.
const MARK: &[u8; 8] = b"hotset\0\x01";
/// Bytes of the hash.
const HASH: usize = 32;

/// Writes a job's state, replacing an older one.
pub(super) fn write(path: &Path, snapshot: &Snapshot, cache: &str, lasting: bool) -> Result<()> {
    let body = encode(snapshot, cache, lasting).encode_to_vec();
    let temporary = path.with_extension("new");
    let written = (|| -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(MARK)?;
        file.write_all(blake3::hash(&body).as_bytes())?;
        file.write_all(&body)?;
        fs::rename(&temporary, path)
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        Error::unavailable(format!("cannot write the state file `{}`: {error}", path.display()))
    })
}

/// Reads a job's state; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<JobState>> {
    let shown = path.display();
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Error::unavailable(format!("cannot read the state file `{shown}`: {error}")));
        }
    };
    let body = checked(&bytes).ok_or_else(|| {
        Error::invalid(format!("the state file `{shown}` is damaged or of another version"))
    })?;
    let state = JobState::decode(body)
        .map_err(|error| Error::invalid(format!("the state file `{shown}` is damaged: {error}")))?;
    Ok(Some(state))
}

/// What lies behind the mark and the hash, if both fit.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(MARK.as_slice())?;
    let (hash, body) = rest.split_at_checked(HASH)?;
    (blake3::hash(body).as_bytes() == hash).then_some(body)
}

fn encode(snapshot: &Snapshot, cache: &str, lasting: bool) -> JobState {
    let request = &snapshot.request;
    let schedule = |saved: &ScheduleSnapshot| ScheduleState {
        epoch: saved.epoch,
        world: saved.world,
        ids: saved.ids.clone(),
        states: saved.states.clone(),
    };
    JobState {
        job: request.job.clone(),
        dataset: request.dataset.clone(),
        cache: cache.to_owned(),
        strategy: request.strategy.clone().unwrap_or_default(),
        policy: request.policy.clone().unwrap_or_default(),
        seed: request.seed,
        prefetch: request.prefetch,
        pad: request.pad,
        samples: snapshot.samples,
        lasting,
        residents: snapshot.residents.clone(),
        scores: snapshot.scores.clone(),
        schedules: snapshot.schedules.iter().map(schedule).collect(),
        ranks: snapshot.begun.iter().map(|(&rank, &epoch)| RankState { rank, epoch }).collect(),
        last: snapshot.last.clone().map(|(epoch, world, left_out)| LastPlan { epoch, world, left_out }),
    }
}

/// The snapshot that a state holds.
pub(super) fn decode(state: JobState) -> Result<Snapshot> {
    let some = |text: String| (!text.is_empty()).then_some(text);
    let request = JobRequest {
        job: state.job,
        dataset: state.dataset,
        cache: state.cache.parse()?,
        strategy: some(state.strategy),
        policy: some(state.policy),
        seed: state.seed,
        prefetch: state.prefetch,
        pad: state.pad,
    };
    let schedule = |saved: ScheduleState| ScheduleSnapshot {
        epoch: saved.epoch,
        world: saved.world,
        ids: saved.ids,
        states: saved.states,
    };
    Ok(Snapshot {
        request,
        samples: state.samples,
        residents: state.residents,
        scores: state.scores,
        schedules: state.schedules.into_iter().map(schedule).collect(),
        begun: state.ranks.into_iter().map(|rank| (rank.rank, rank.epoch)).collect(),
        last: state.last.map(|last| (last.epoch, last.world, last.left_out)),
    })
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
