//! What a loader asks a dataset for.
//!
//! Python's numbers of samples are judged as a list's indices are, and packed with the epochs that marked ones
//! (`hotset._dataset.numbers`) carry, all of a batch in one call.

use hotset_core::Index;
use hotset_core::id::LAST_EPOCH;
use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyList, PySet, PyType};

use crate::arguments::{Whole, each, shown};

/// Samples of a dataset, each with the epoch that planned it if there is one.
#[pyclass(frozen, module = "hotset._core")]
pub(crate) struct Indices {
    raw: Vec<u64>,
}

#[pymethods]
impl Indices {
    /// Judges indices of a dataset of so many samples, negative ones counted from its end. `check` is called with
    /// the class of marked ones before they are, and may refuse it.
    #[new]
    #[pyo3(signature = (asked, samples, check=None))]
    fn new(
        asked: &Bound<'_, PyAny>,
        samples: Whole<u64>,
        check: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let samples = samples.0;
        let mut marks = Marks { check, last: None };
        let mut one = |value: &Bound<'_, PyAny>| {
            let epoch = marks.epoch(value)?;
            let sample = match number(value)? {
                Some(number) if number < 0 => number.checked_add_unsigned(samples),
                number => number,
            };
            match sample.and_then(|sample| u64::try_from(sample).ok()).filter(|sample| *sample < samples) {
                Some(sample) => Ok(Index { epoch, sample }.into_raw()),
                None => {
                    let text = format!("there is no sample {} in a dataset of {samples}", shown(value));
                    Err(PyIndexError::new_err(text))
                }
            }
        };
        if let Ok(list) = asked.cast::<PyList>() {
            return list.iter().map(|value| one(&value)).collect::<PyResult<_>>().map(|raw| Self { raw });
        }
        let raw = asked.try_iter()?.map(|value| one(&value?)).collect::<PyResult<_>>()?;
        Ok(Self { raw })
    }

    fn __len__(&self) -> usize {
        self.raw.len()
    }

    /// The numbers of the samples.
    fn ids(&self) -> Vec<u64> {
        self.raw.iter().map(|&raw| Index::from_raw(raw).sample).collect()
    }

    /// The epochs that planned some of them.
    fn epochs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PySet>> {
        let epochs = PySet::empty(py)?;
        let mut last = None;
        for &raw in &self.raw {
            let epoch = Index::from_raw(raw).epoch;
            if epoch != last {
                epoch.map(|epoch| epochs.add(epoch)).transpose()?;
                last = epoch;
            }
        }
        Ok(epochs)
    }
}

/// The indices of a request: judged ones, or numbers that the server judges.
pub(crate) struct Asked(pub(crate) Vec<u64>);

impl FromPyObject<'_, '_> for Asked {
    type Error = PyErr;

    fn extract(values: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(judged) = values.cast::<Indices>() {
            return Ok(Self(judged.get().raw.clone()));
        }
        let mut marks = Marks { check: None, last: None };
        let pack = |value: &Bound<'_, PyAny>| {
            let sample = value.extract::<Whole<u64>>()?.0;
            Ok(Index { epoch: marks.epoch(value)?, sample }.into_raw())
        };
        each(&values, "whole numbers", pack).map(Self)
    }
}

/// A whole number, of whatever type; `None` for one that is beyond every dataset.
fn number(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    match value.extract::<i64>() {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds the epochs of marked numbers; those of a batch are nearly always of one type.
struct Marks<'a, 'py> {
    check: Option<&'a Bound<'py, PyAny>>,
    last: Option<(Py<PyType>, Option<u64>)>,
}

impl Marks<'_, '_> {
    fn epoch(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        if value.is_exact_instance_of::<PyInt>() {
            return Ok(None);
        }
        let class = value.get_type();
        if let Some((last, epoch)) = &self.last
            && last.is(&class)
        {
            return Ok(*epoch);
        }
        static NUMBER: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let number = NUMBER.import(value.py(), "hotset._dataset.numbers", "Number")?;
        let epoch = if class.is_subclass(number)? {
            self.check.map(|check| check.call1((&class,))).transpose()?;
            Some(class.getattr("epoch")?.extract::<u64>()?).filter(|epoch| *epoch <= LAST_EPOCH)
        } else {
            None
        };
        self.last = Some((class.unbind(), epoch));
        Ok(epoch)
    }
}
