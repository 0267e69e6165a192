//! A job's settings as the message, from a dict with the message's names, so that none is listed here.

use hotset_wire::proto;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use serde_json::Value;

use crate::arguments::{Whole, shown};
use crate::errors::invalid;

/// The message; settings that the dict does not name are the message's defaults.
#[derive(Debug)]
pub(crate) struct JobSettings(pub(crate) proto::JobSettings);

impl FromPyObject<'_, '_> for JobSettings {
    type Error = PyErr;

    fn extract(settings: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let wrong = |why: &dyn std::fmt::Display| invalid(settings.py(), format!("settings of a job: {why}"));
        let fields =
            settings.cast::<PyDict>().map_err(|_| wrong(&format!("`{}` are none", shown(&settings))))?;
        serde_json::from_value(named(&fields)?).map(Self).map_err(|error| wrong(&error))
    }
}

fn named(fields: &Bound<'_, PyDict>) -> PyResult<Value> {
    let field = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((name.extract()?, written(&value)?));
    fields.iter().map(field).collect::<PyResult<_>>().map(Value::Object)
}

/// A setting is text, a truth value, a whole number, or some of them by name.
fn written(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(text) = value.cast::<PyString>() {
        // Not by `Display`, which loses what a signal's handler raises meanwhile.
        return Ok(Value::String(text.to_string_lossy().into_owned()));
    }
    if let Ok(fields) = value.cast::<PyDict>() {
        return named(fields);
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(Value::Bool(truth.is_true()));
    }
    value.extract::<Whole<u64>>().map(|number| Value::Number(number.0.into()))
}
