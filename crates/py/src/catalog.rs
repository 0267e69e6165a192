//! A listing made and read in this process, past the server.

use std::cell::Cell;
use std::collections::BTreeMap;

use hotset_core::{Error, Id, Result};
use hotset_store::{LabelKind, Opened, Request};
use hotset_wire::proto::{self, DatasetOpened};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::arguments::Whole;
use crate::errors::raised;
use crate::labels;

/// A listing made and read in this process, past the server (`HOTSET=off`).
#[pyclass(frozen, module = "hotset._core")]
pub(crate) struct Catalog {
    opened: Opened,
}

/// Keys, labels (empty without labels) and sizes.
pub(crate) type Description<'py> = (Vec<String>, Bound<'py, PyList>, Vec<u64>);

impl Catalog {
    fn id(&self, sample: u64) -> Result<Id> {
        let samples = self.opened.catalog.len();
        Id::try_from(sample).ok().filter(|&id| (id as usize) < samples).ok_or_else(|| {
            let place = &self.opened.place;
            Error::invalid(format!("sample `{sample}` is not one of the `{samples}` of `{place}`"))
        })
    }
}

#[pymethods]
impl Catalog {
    #[new]
    #[pyo3(signature = (place, *, layout, extensions=Vec::new(), storage_options=None, progress=None,
        label=String::new(), root=String::new(), select=Vec::new()))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn new(
        py: Python<'_>,
        place: String,
        layout: &str,
        extensions: Vec<String>,
        storage_options: Option<BTreeMap<String, String>>,
        progress: Option<Py<PyAny>>,
        label: String,
        root: String,
        select: Vec<u32>,
    ) -> PyResult<Self> {
        let layout = layout.parse().map_err(|error| raised(py, error))?;
        let storage_options = storage_options.unwrap_or_default();
        let request = Request { place, layout, extensions, label, root, storage_options };
        let (outcome, exception) = py.detach(|| {
            let exception = Cell::new(None);
            // What Python raises ends the listing, and is raised.
            let outcome = hotset_store::open(&request, None, &mut |done| {
                let said = Python::try_attach(|py| match &progress {
                    Some(callback) => callback.call1(py, ("listing", done)).map(drop),
                    None => py.check_signals(),
                });
                if let Some(Err(error)) = said {
                    exception.set(Some(error));
                    return Err(Error::unavailable("the listing was interrupted"));
                }
                Ok(())
            });
            (outcome, exception.into_inner())
        });
        match exception {
            Some(exception) => Err(exception),
            None => {
                let opened = outcome.and_then(|opened| match select.as_slice() {
                    [] => Ok(opened),
                    ids => opened.select(ids),
                });
                Ok(Self { opened: opened.map_err(|error| raised(py, error))? })
            }
        }
    }

    fn __len__(&self) -> usize {
        self.opened.catalog.len()
    }

    /// As `Client.open_dataset` answers.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let catalog = &self.opened.catalog;
        let opened = DatasetOpened {
            dataset: self.opened.identity.clone(),
            samples: catalog.len() as u64,
            bytes: catalog.bytes(),
            largest: catalog.largest(),
            classes: catalog.classes().to_vec(),
            labelled: catalog.labelled(),
            cached: self.opened.cached,
            parts: catalog.parts().to_vec(),
        };
        dataset_fields(py, opened)
    }

    /// The bytes of one sample, read from the store (throttled as `storage_options` says).
    fn read<'py>(&self, py: Python<'py>, sample: Whole<u64>) -> PyResult<Bound<'py, PyBytes>> {
        let id = self.id(sample.0).map_err(|error| raised(py, error))?;
        let Opened { catalog, store, .. } = &self.opened;
        PyBytes::new_with(py, catalog.size(id) as usize, |into| {
            let outcome = py.detach(|| catalog.with_location(id, |location| store.read(location, into)));
            outcome.map_err(|error| raised(py, Error::from(error).of_sample(sample.0, catalog.key(id))))
        })
    }

    /// Begin and length of every part of a sample; empty unless there are several.
    fn parts(&self, py: Python<'_>, sample: Whole<u64>) -> PyResult<Vec<u32>> {
        let id = self.id(sample.0).map_err(|error| raised(py, error))?;
        Ok(self.opened.catalog.spans(id).to_vec())
    }

    fn label<'py>(&self, py: Python<'py>, sample: Whole<u64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let id = self.id(sample.0).map_err(|error| raised(py, error))?;
        let labels = self.labels(py, id..id + 1)?;
        if labels.is_empty() { Ok(None) } else { labels.get_item(0).map(Some) }
    }

    /// Keys, labels (empty without labels) and sizes of `count` samples from `first`, clipped to the listing.
    fn describe<'py>(
        &self,
        py: Python<'py>,
        first: Whole<u64>,
        count: Whole<u64>,
    ) -> PyResult<Description<'py>> {
        let catalog = &self.opened.catalog;
        let samples = catalog.len() as u64;
        let ids = first.0.min(samples) as Id..first.0.saturating_add(count.0).min(samples) as Id;
        let (keys, sizes) = py.detach(|| {
            let keys = ids.clone().map(|id| catalog.key(id)).collect();
            (keys, ids.clone().map(|id| catalog.size(id)).collect())
        });
        Ok((keys, self.labels(py, ids)?, sizes))
    }
}

impl Catalog {
    fn labels<'py>(&self, py: Python<'py>, ids: std::ops::Range<Id>) -> PyResult<Bound<'py, PyList>> {
        let catalog = &self.opened.catalog;
        let (mut values, mut lengths) = (Vec::new(), Vec::new());
        ids.for_each(|id| catalog.append_label(id, &mut values, &mut lengths));
        let kind = match catalog.label_kind() {
            LabelKind::None => proto::LabelKind::Unlabelled,
            LabelKind::Whole => proto::LabelKind::Whole,
            LabelKind::Float => proto::LabelKind::Float,
            LabelKind::Wholes => proto::LabelKind::Wholes,
            LabelKind::Floats => proto::LabelKind::Floats,
        };
        labels::list(py, kind, &values, &lengths)
    }
}

/// The fields of `DatasetOpened`, by name.
pub(crate) fn dataset_fields(py: Python<'_>, opened: DatasetOpened) -> PyResult<Bound<'_, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("dataset", opened.dataset)?;
    fields.set_item("samples", opened.samples)?;
    fields.set_item("bytes", opened.bytes)?;
    fields.set_item("largest", opened.largest)?;
    fields.set_item("classes", opened.classes)?;
    fields.set_item("labelled", opened.labelled)?;
    fields.set_item("cached", opened.cached)?;
    fields.set_item("parts", opened.parts)?;
    Ok(fields)
}
