//! Calls that wait: without the GIL, and with Python's signal handlers run now and then.
//!
//! What Python raises on the way (Ctrl-C, an error of a progress callback) ends the call and comes out as itself.

use std::cell::Cell;

use hotset_core::{Error, Result};
use hotset_wire::{Tick, proto};
use pyo3::prelude::*;

use crate::errors::raised;

/// Runs `call` without the GIL. It gets a tick that runs signal handlers.
pub(crate) fn waiting<T: Send>(
    py: Python<'_>,
    call: impl FnOnce(Tick<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    reporting(py, None, |tick, _| call(tick))
}

/// As [`waiting`]; `call` also gets a function that passes progress to `callback`.
pub(crate) fn reporting<T: Send>(
    py: Python<'_>,
    callback: Option<Py<PyAny>>,
    call: impl FnOnce(Tick<'_>, &mut dyn FnMut(&proto::Progress) -> Result<()>) -> Result<T> + Send,
) -> PyResult<T> {
    let (outcome, exception) = py.detach(|| {
        let exception = Cell::new(None);
        let attached = |work: &dyn Fn(Python<'_>) -> PyResult<()>| match Python::try_attach(work) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                exception.set(Some(error));
                Err(Error::internal("an exception ended the call"))
            }
            None => Err(Error::unavailable("Python is shutting down")),
        };
        let outcome = call(&mut || attached(&|py| py.check_signals()), &mut |progress| match &callback {
            Some(callback) => attached(&|py| {
                py.check_signals()?;
                callback.call1(py, (&progress.what, progress.done)).map(drop)
            }),
            None => Ok(()),
        });
        (outcome, exception.into_inner())
    });
    match (outcome, exception) {
        (Ok(value), None) => Ok(value),
        (_, Some(exception)) => Err(exception),
        (Err(error), None) => Err(raised(py, error)),
    }
}
