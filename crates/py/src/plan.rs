//! One rank's ids of one epoch.

use hotset_core::id::{LAST_EPOCH, MOST_SAMPLES};
use hotset_core::sampling::{self, Draw, Setup};
use hotset_core::{Error, Id, Result};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::arguments::Whole;

/// More ranks than any job has; padding makes as many slots.
const MOST_RANKS: u32 = 1 << 20;

/// Where the ids lie.
enum Ids {
    Shared(hotset_wire::Plan),
    Own(Vec<Id>),
}

/// One rank's ids of one epoch, in the server's sealed memory.
#[pyclass(frozen, module = "hotset._core")]
pub(crate) struct Plan {
    ids: Ids,
}

impl Plan {
    pub(crate) fn shared(plan: hotset_wire::Plan) -> Self {
        Self { ids: Ids::Shared(plan) }
    }

    /// The plan that a strategy makes for a rank, one that goes by its seed alone.
    pub(crate) fn of_seed(
        strategy: &str,
        samples: u64,
        seed: u64,
        epoch: u64,
        rank: u32,
        world: u32,
        pad: bool,
    ) -> Result<Self> {
        check_rank(epoch, rank, world)?;
        if samples > MOST_SAMPLES {
            return Err(Error::invalid(format!(
                "`{samples}` samples are more than the `{MOST_SAMPLES}` supported"
            )));
        }
        let setup = Setup::new(samples as usize, seed);
        let mut strategy = (sampling::find(strategy)?.build)(setup);
        // A padded plan before this one left no sample out.
        let carried = pad.then_some([].as_slice());
        let drawn = strategy.draw(&Draw { epoch, world, carried, ..Draw::default() });
        let plan = sampling::Plan::cut(epoch, world, pad, drawn);
        Ok(Self { ids: Ids::Own(plan.rank_ids(rank).collect()) })
    }

    /// The plan that a rank has of an order.
    pub(crate) fn given(order: Vec<Id>, epoch: u64, rank: u32, world: u32, pad: bool) -> Result<Self> {
        check_rank(epoch, rank, world)?;
        let plan = sampling::Plan::cut(epoch, world, pad, order);
        Ok(Self { ids: Ids::Own(plan.rank_ids(rank).collect()) })
    }
}

/// Ids from 32-bit little-endian integers.
pub(crate) fn ids_of(bytes: &[u8]) -> impl ExactSizeIterator<Item = Id> {
    bytes.as_chunks().0.iter().map(|id| Id::from_le_bytes(*id))
}

/// A rank of an epoch that there can be.
fn check_rank(epoch: u64, rank: u32, world: u32) -> Result<()> {
    check_epoch(epoch)?;
    if world > MOST_RANKS || rank >= world {
        return Err(Error::invalid(format!(
            "rank `{rank}` of `{world}`: there are `1` to `{MOST_RANKS}` ranks, counted from `0`"
        )));
    }
    Ok(())
}

/// An epoch that an index can carry.
pub(crate) fn check_epoch(epoch: u64) -> Result<()> {
    if epoch <= LAST_EPOCH {
        return Ok(());
    }
    Err(Error::invalid(format!("epoch `{epoch}` is beyond the last one, `{LAST_EPOCH}`")))
}

#[pymethods]
impl Plan {
    /// What the trainer should be told: pairs of a name, of which one warning comes a run, and a text.
    #[getter]
    fn warnings(&self) -> Vec<(String, String)> {
        match &self.ids {
            Ids::Shared(plan) => {
                plan.warnings().iter().map(|each| (each.name.clone(), each.text.clone())).collect()
            }
            Ids::Own(_) => Vec::new(),
        }
    }

    /// The weights of slots `start..stop` in the loss, clipped to the plan; `None` where all are 1.
    fn weights<'py>(
        &self,
        py: Python<'py>,
        start: Whole<u64>,
        stop: Whole<u64>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        match &self.ids {
            Ids::Shared(plan) => {
                plan.weights(start.0, stop.0).map(|weights| PyList::new(py, weights)).transpose()
            }
            Ids::Own(_) => Ok(None),
        }
    }

    fn __len__(&self) -> usize {
        match &self.ids {
            Ids::Shared(plan) => usize::try_from(plan.len()).unwrap_or(usize::MAX),
            Ids::Own(ids) => ids.len(),
        }
    }

    /// The ids of slots `start..stop`, clipped to the plan.
    fn block<'py>(
        &self,
        py: Python<'py>,
        start: Whole<u64>,
        stop: Whole<u64>,
    ) -> PyResult<Bound<'py, PyList>> {
        match &self.ids {
            Ids::Shared(plan) => PyList::new(py, plan.ids(start.0, stop.0)),
            Ids::Own(ids) => {
                let clip = |slot: u64| usize::try_from(slot).unwrap_or(usize::MAX).min(ids.len());
                let ids = ids.get(clip(start.0)..clip(stop.0)).unwrap_or_default();
                PyList::new(py, ids)
            }
        }
    }
}
