//! What `hotset.doctor` and `hotset doctor` ask of each other: storage is measured and judged natively, decoding is Python's.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use hotset_cli::doctor::{Decoded, Limits};
use hotset_core::{Error, Result};
use hotset_store::Request;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arguments::{Seconds, Whole};
use crate::errors::raised;

/// Decodes images with what this Python has, for some time at most.
pub(crate) fn decoded(images: &[&[u8]], time: Duration) -> Result<std::result::Result<Decoded, String>> {
    let asked = Python::try_attach(|py| -> PyResult<std::result::Result<Decoded, String>> {
        let images: Vec<Bound<'_, PyBytes>> = images.iter().map(|image| PyBytes::new(py, image)).collect();
        let module = py.import("hotset._doctor.decoding")?;
        let answer = module.getattr("timed")?.call1((images, time.as_secs_f64()))?;
        if let Ok(why) = answer.extract::<String>() {
            return Ok(Err(why));
        }
        let (seconds, samples, by) = answer.extract()?;
        Ok(Ok(Decoded { seconds, samples, by }))
    });
    match asked {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(error)) => Ok(Err(format!("decoding was not measured: {error}"))),
        None => Err(Error::unavailable("Python is ending")),
    }
}

/// What was found of a dataset's listing, storage and decoding, as JSON.
#[pyfunction]
#[pyo3(signature = (place, *, layout, seconds, most_bytes, extensions=Vec::new(), root=String::new(),
    storage_options=None, progress=None))]
#[allow(clippy::too_many_arguments, reason = "named in Python")]
pub(crate) fn survey(
    py: Python<'_>,
    place: String,
    layout: &str,
    seconds: Seconds,
    most_bytes: Whole<u64>,
    extensions: Vec<String>,
    root: String,
    storage_options: Option<BTreeMap<String, String>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let layout = layout.parse().map_err(|error| raised(py, error))?;
    let storage_options = storage_options.unwrap_or_default();
    let request = Request { place, layout, extensions, label: "none".into(), root, storage_options };
    let limits = Limits { time: seconds.0, bytes: most_bytes.0 };
    let (outcome, exception) = py.detach(|| {
        let exception = Cell::new(None);
        let outcome = hotset_cli::doctor::survey(&request, limits, Some(&decoded), &mut |what, gone| {
            let said = Python::try_attach(|py| match &progress {
                Some(callback) => callback.call1(py, (what, gone)).map(drop),
                None => py.check_signals(),
            });
            if let Some(Err(error)) = said {
                exception.set(Some(error));
                return Err(Error::unavailable("the measurement was interrupted"));
            }
            Ok(())
        });
        (outcome, exception.into_inner())
    });
    if let Some(exception) = exception {
        return Err(exception);
    }
    let found = outcome.map_err(|error| raised(py, error))?;
    serde_json::to_string(&found).map_err(|error| raised(py, Error::internal(error.to_string())))
}

/// The verdict on what was measured (JSON): as JSON, as text in lines of so many columns, and as a page.
#[pyfunction]
pub(crate) fn diagnose(py: Python<'_>, measured: &str, width: usize) -> PyResult<(String, String, String)> {
    py.detach(|| hotset_cli::doctor::diagnose(measured, width)).map_err(|error| raised(py, error))
}

/// What this host has: cores, bytes of free memory, free bytes of a disk, and reads that a server makes at a time.
#[pyfunction]
pub(crate) fn host(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let found = hotset_cli::doctor::host();
    let fields = PyDict::new(py);
    fields.set_item("cores", found.cores)?;
    fields.set_item("memory", found.memory)?;
    fields.set_item("disk", found.disk)?;
    fields.set_item("reads", found.reads)?;
    Ok(fields)
}
