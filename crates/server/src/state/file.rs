//! A job's state on disk: written whole or not at all, and checked before it is believed.
//!
//! A file is a mark, the hash of what follows, and a `JobState`. It is written under another name and renamed, so
//! that a server killed at any moment leaves the old state or the new one. A file that is no such thing, or whose
//! hash does not fit, is never used.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use hotset_core::bits::Bits;
use hotset_core::counters::Counters;
use hotset_core::packages::Draft;
use hotset_core::run::{PendingPackage, Saved, SavedPacking, SavedSchedule};
use hotset_core::{Error, Result, tally};
use hotset_engine::{Cut, Snapshot};
use hotset_store::regular;
use hotset_wire::state::{
    CountedState, CutState, JobState, LastPlan, PackagesState, PackingState, RankState, ScheduleState,
};
use prost::Message;

use super::reading;
use crate::lock::assert_unlocked;
use crate::settings;

/// The first bytes of every state file; the last of them is the version.
const MARK: &[u8; 8] = b"hotset\0\x0b";
/// Bytes of the hash.
const HASH: usize = 32;

/// What a state is of.
pub(super) struct Of<'a> {
    /// The job, as its state is kept.
    pub(super) job: &'a str,
    pub(super) run: &'a str,
    /// Whether its name outlives its training process.
    pub(super) lasting: bool,
}

/// Writes a job's state, replacing an older one.
pub(super) fn write(path: &Path, snapshot: &Snapshot, of: &Of<'_>) -> Result<()> {
    assert_unlocked();
    let body = encode(snapshot, of)?.encode_to_vec();
    let temporary = path.with_extension("new");
    let written = (|| -> io::Result<()> {
        let mut file = regular::create(&temporary)?;
        file.write_all(&head(&body))?;
        file.write_all(&body)?;
        fs::rename(&temporary, path)
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        Error::unavailable(format!("cannot write the state file `{}`: {error}", path.display()))
    })
}

/// A job's state as a file holds it.
pub(super) fn bytes(snapshot: &Snapshot, of: &Of<'_>) -> Result<Vec<u8>> {
    let body = encode(snapshot, of)?.encode_to_vec();
    Ok([&head(&body)[..], &body].concat())
}

/// What comes before the body: the mark and its hash.
fn head(body: &[u8]) -> [u8; MARK.len() + HASH] {
    let mut head = [0; MARK.len() + HASH];
    head[..MARK.len()].copy_from_slice(MARK);
    head[MARK.len()..].copy_from_slice(blake3::hash(body).as_bytes());
    head
}

/// The state that such bytes hold, wherever they come from.
pub(super) fn parse(bytes: &[u8]) -> Result<JobState> {
    let body = checked(bytes)
        .ok_or_else(|| Error::invalid("the state is damaged or of another version of Hotset"))?;
    JobState::decode(body).map_err(|error| Error::invalid(format!("the state is damaged: {error}")))
}

/// Reads a job's state; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<JobState>> {
    let shown = path.display();
    let bytes = match reading::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Error::unavailable(format!("cannot read the state file `{shown}`: {error}")));
        }
    };
    parse(&bytes).map(Some).map_err(|error| Error::invalid(format!("`{shown}`: {error}")))
}

/// What lies behind the mark and the hash, if both fit.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(MARK.as_slice())?;
    let (hash, body) = rest.split_at_checked(HASH)?;
    (blake3::hash(body).as_bytes() == hash).then_some(body)
}

fn encode(snapshot: &Snapshot, of: &Of<'_>) -> Result<JobState> {
    let schedule = |saved: &SavedSchedule| ScheduleState {
        plan: saved.plan.clone(),
        package: saved.package,
        packages: saved.packages.clone(),
        states: saved.states.clone(),
        told: saved.told,
        layout: saved.layout.clone(),
    };
    let planner = &snapshot.planner;
    let packing = &planner.packing;
    Ok(JobState {
        job: of.job.to_owned(),
        run: of.run.to_owned(),
        settings: Some(settings::message(&snapshot.request)?),
        lasting: of.lasting,
        samples: snapshot.samples,
        policy_state: snapshot.policy.clone(),
        table: planner.table.clone(),
        strategy_state: planner.strategy.clone(),
        closed: planner.closed,
        cuts: snapshot
            .cuts
            .iter()
            .map(|(&epoch, cut)| CutState { epoch, rank_len: cut.rank_len, world: cut.world })
            .collect(),
        schedules: snapshot.schedules.iter().map(schedule).collect(),
        ranks: snapshot.begun.iter().map(|(&rank, &epoch)| RankState { rank, epoch }).collect(),
        packing: packing
            .pending
            .iter()
            .map(|(&number, pending)| PackingState {
                number,
                ids: pending.draft.ids.clone(),
                epoch: pending.epoch,
                early: pending.draft.early,
                complete: pending.complete,
            })
            .collect(),
        rest: planner.rest.clone(),
        moved: packing.moved.iter().copied().collect(),
        packed: packing.packed,
        living: packing
            .living
            .as_ref()
            .map(|living| PackagesState { numbers: living.iter().copied().collect() }),
        counted: snapshot
            .counted
            .epochs
            .iter()
            .map(|(&epoch, counters)| CountedState { epoch, counters: named(counters) })
            .collect(),
        unplanned: named(&snapshot.counted.unplanned),
        past: named(&snapshot.counted.past),
        seen: snapshot.counted.seen.to_bytes(),
        last: planner.last.clone().map(|(epoch, world, left_out)| LastPlan { epoch, world, left_out }),
    })
}

/// By name, those that are not 0.
fn named(counters: &Counters) -> BTreeMap<String, u64> {
    counters.named().filter(|(_, value)| *value > 0).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn of_named(named: &BTreeMap<String, u64>) -> Counters {
    Counters::of_named(named.iter().map(|(name, value)| (name.as_str(), *value)))
}

/// The snapshot that a state holds.
pub(super) fn decode(state: JobState) -> Result<Snapshot> {
    let request = settings::request(state.job, &state.settings.unwrap_or_default())?;
    let schedule = |saved: ScheduleState| SavedSchedule {
        plan: saved.plan,
        package: saved.package,
        packages: saved.packages,
        states: saved.states,
        told: saved.told,
        layout: saved.layout,
    };
    Ok(Snapshot {
        request,
        samples: state.samples,
        policy: state.policy_state,
        planner: Saved {
            table: state.table,
            strategy: state.strategy_state,
            last: state.last.map(|last| (last.epoch, last.world, last.left_out)),
            closed: state.closed,
            packing: SavedPacking {
                pending: state
                    .packing
                    .into_iter()
                    .map(|packing| {
                        let draft = Draft { ids: packing.ids, early: packing.early };
                        let (epoch, complete) = (packing.epoch, packing.complete);
                        (packing.number, PendingPackage { epoch, draft, complete, written: false })
                    })
                    .collect(),
                moved: state.moved.into_iter().collect(),
                packed: state.packed,
                living: state.living.map(|living| living.numbers.into_iter().collect()),
            },
            rest: state.rest,
        },
        cuts: state
            .cuts
            .into_iter()
            .map(|cut| (cut.epoch, Cut { rank_len: cut.rank_len, world: cut.world }))
            .collect(),
        schedules: state.schedules.into_iter().map(schedule).collect(),
        begun: state.ranks.into_iter().map(|rank| (rank.rank, rank.epoch)).collect(),
        counted: tally::Saved {
            epochs: state
                .counted
                .iter()
                .map(|counted| (counted.epoch, of_named(&counted.counters)))
                .collect(),
            unplanned: of_named(&state.unplanned),
            past: of_named(&state.past),
            seen: Bits::from_bytes(&state.seen),
        },
    })
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
