//! Errors as the classes of `hotset.errors`, one for each kind.

use hotset_core::{Error, Kind};
use pyo3::prelude::*;

const MODULE: &str = "hotset.errors";

/// The Python exception for `error`. Its message names the sample too: a `DataLoader` carries nothing else from
/// its workers.
pub(crate) fn raised(py: Python<'_>, error: Error) -> PyErr {
    let name = match error.kind {
        Kind::Invalid => "InvalidError",
        Kind::Changed => "ChangedError",
        Kind::Unavailable => "UnavailableError",
        Kind::Lost => "LostError",
        _ => "InternalError",
    };
    let message = error.to_string();
    let value =
        py.import(MODULE).and_then(|module| module.getattr(name)?.call1((message, error.sample, error.key)));
    value.map_or_else(|failure| failure, PyErr::from_value)
}

/// The Python exception for a wrong argument.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raised(py, Error::invalid(message))
}
