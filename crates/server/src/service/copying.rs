//! Jobs on a cluster: states that another node keeps, and going on from one.

use std::time::Duration;

use hotset_core::Result;
use hotset_engine::Snapshot;
use hotset_wire::proto;

use super::Service;
use crate::opening::trained;
use crate::runs::{Members, Run, base_name, check_run};
use crate::state::{self, Journal};

/// How long a rank that begins an epoch waits until another node has the state that it began with.
const COPIED: Duration = Duration::from_secs(5);

impl Service {
    /// Has another node keep the state with which an epoch begins, before the epoch is begun.
    pub(super) fn copy_beginning(
        &self,
        job: &str,
        (epoch, digest): (u64, u64),
        run: &Run,
        taken: Option<(u64, Snapshot)>,
    ) -> Result<()> {
        let Some((node, home)) = self.cluster.get().and_then(|node| Some((node, node.home_job(job)?))) else {
            return Ok(());
        };
        let taken = match taken {
            Some((generation, snapshot)) => {
                Some((generation, state::export(&snapshot, base_name(job), &run.run, run.lasting)?))
            }
            // The run goes on in the middle of the epoch, whose beginning was written down elsewhere.
            None if home.generation() == 0 => self.export_between(job, || home.next_generation())?,
            None => None,
        };
        match taken {
            Some((generation, state)) => node.copy_state(&home, (epoch, digest), (generation, &state)),
            None => {
                home.await_copy(epoch, COPIED);
                Ok(())
            }
        }
    }

    /// The state of a job, and its number, which `number` gives it while no report is taken.
    pub(crate) fn export_between(
        &self,
        job: &str,
        number: impl FnOnce() -> u64,
    ) -> Result<Option<(u64, Vec<u8>)>> {
        let Some(run) = self.runs.get(job) else { return Ok(None) };
        let Some(journal) = &run.journal else { return Ok(None) };
        let (number, snapshot) = journal.between(|| (number(), self.engine.snapshot(job)));
        let Some(snapshot) = snapshot? else { return Ok(None) };
        Ok(Some((number, state::export(&snapshot, base_name(job), &run.run, run.lasting)?)))
    }

    /// Goes on with a job that this node followed, from a copy of what its home knew.
    pub(crate) fn take_over<'a>(
        &self,
        job: &str,
        state: &[u8],
        reports: impl Iterator<Item = &'a proto::Report>,
        (lasting, launch): (bool, proto::Launch),
    ) -> Result<()> {
        let (run, mut snapshot) = state::import(state)?;
        check_run(&run)?;
        job.clone_into(&mut snapshot.request.job);
        let claim = self.runs.claim(base_name(job));
        self.engine.promote(job, &snapshot)?;
        let epoch = snapshot.begun.values().max().copied().unwrap_or(0);
        let journal = self.states.files(base_name(job), &run).map(|mut files| {
            files.drop_all();
            files.write(&snapshot, lasting, epoch);
            Journal::resumed(files, epoch, false)
        });
        claim.insert(job, Members::new(run, lasting, journal, launch));
        drop(claim);
        for report in reports {
            let take = || self.engine.report(job, trained(report));
            let taken = match self.runs.get(job).and_then(|run| run.journal) {
                Some(journal) => journal.report(report, take),
                None => take(),
            };
            if let Err(error) = taken {
                tracing::warn!(job, %error, "a report of the copy does not fit its job");
            }
        }
        Ok(())
    }
}
