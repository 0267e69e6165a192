//! A strategy as the registry has it: what a trainer must know of it before its first plan.

use hotset_core::sampling::{self, Entry, Facts};
use hotset_core::{Error, Result};
use pyo3::prelude::*;

use crate::arguments::Whole;
use crate::errors::raised;

/// A registered strategy, with its settings.
#[pyclass(frozen, module = "hotset._core")]
pub(crate) struct Strategy {
    entry: &'static Entry,
    settings: Vec<(String, String)>,
    epochs: Option<u64>,
    facts: Facts,
}

impl Strategy {
    fn of(entry: &'static Entry, settings: Vec<(String, String)>, epochs: Option<u64>) -> Result<Self> {
        let facts = Facts::of(&*example(entry, &settings, epochs)?);
        Ok(Self { entry, settings, epochs, facts })
    }

    /// Every strategy, with the defaults of its settings.
    pub(crate) fn all() -> Result<Vec<Self>> {
        sampling::REGISTRY.iter().map(|entry| Self::of(entry, Vec::new(), None)).collect()
    }

    fn example(&self, py: Python<'_>) -> PyResult<Box<dyn sampling::Strategy>> {
        example(self.entry, &self.settings, self.epochs).map_err(|error| raised(py, error))
    }
}

fn example(
    entry: &Entry,
    settings: &[(String, String)],
    epochs: Option<u64>,
) -> Result<Box<dyn sampling::Strategy>> {
    entry.example(settings.iter().map(|(name, value)| (name.as_str(), value.as_str())), epochs)
}

#[pymethods]
impl Strategy {
    /// The strategy `name` as it is set; `epochs` are those of the run, if that is known.
    #[new]
    #[pyo3(signature = (name, settings=Vec::new(), epochs=None))]
    fn new(
        py: Python<'_>,
        name: &str,
        settings: Vec<(String, String)>,
        epochs: Option<Whole<u64>>,
    ) -> PyResult<Self> {
        let found = sampling::find(name);
        let made = found.and_then(|entry| Self::of(entry, settings, epochs.map(|epochs| epochs.0)));
        made.map_err(|error: Error| raised(py, error))
    }

    /// What `__new__` is called with when it is unpickled.
    fn __getnewargs__(&self) -> (&'static str, Vec<(String, String)>, Option<u64>) {
        (self.entry.name, self.settings.clone(), self.epochs)
    }

    /// Its name everywhere.
    #[getter]
    fn name(&self) -> &'static str {
        self.entry.name
    }

    /// The policy that belongs to it, used where none is named.
    #[getter]
    fn policy(&self) -> &'static str {
        self.entry.policy
    }

    /// What it does, in one line.
    #[getter]
    fn summary(&self) -> &'static str {
        self.entry.summary
    }

    /// Whether its plans need losses.
    #[getter]
    fn needs_losses(&self) -> bool {
        self.facts.needs_losses
    }

    /// Whether its plans may need losses under the current model.
    #[getter]
    fn reevaluates(&self) -> bool {
        self.facts.reevaluates
    }

    /// Whether `irreducible` losses may be subtracted from those.
    #[getter]
    fn takes_irreducible(&self) -> bool {
        self.facts.takes_irreducible
    }

    /// Whether its plans are padded whatever the job says.
    #[getter]
    fn pads(&self) -> bool {
        self.facts.pads
    }

    /// Whether its plans follow from the seed alone, so that it has nothing to keep.
    #[getter]
    fn follows_seed(&self) -> bool {
        self.facts.follows_seed
    }

    /// Whether every epoch is of all samples.
    #[getter]
    fn is_whole(&self) -> bool {
        self.facts.is_whole
    }

    /// Whether its orders are drawn from the seed.
    #[getter]
    fn shuffles(&self) -> bool {
        self.facts.shuffles
    }

    /// Whether the trainer gives the order of each epoch.
    #[getter]
    fn takes_order(&self) -> bool {
        self.facts.takes_order
    }

    /// Whether `epoch` may be of all samples, as far as its settings tell.
    fn may_be_full(&self, py: Python<'_>, epoch: Whole<u64>) -> PyResult<bool> {
        Ok(self.example(py)?.may_be_full(epoch.0))
    }

    /// The most of `samples` that an epoch has which is not full.
    fn selected(&self, py: Python<'_>, samples: Whole<u32>) -> PyResult<usize> {
        let example = self.example(py)?;
        Ok(py.detach(move || example.selected(samples.0 as usize)))
    }
}
