//! Arguments that Python gives, and what is said of wrong ones: always `InvalidError`, always naming the value.

use std::time::Duration;

use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::errors::invalid;

/// The most characters of a value that a message shows.
const SHOWN: usize = 60;

/// A whole number that fits `T`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole<T>(pub(crate) T);

macro_rules! whole {
    ($($type:ty),*) => {
        $(impl FromPyObject<'_, '_> for Whole<$type> {
            type Error = PyErr;

            fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
                value.extract().map(Self).map_err(|_| {
                    let most = <$type>::MAX;
                    invalid(value.py(), format!("`{}` is no whole number from `0` to `{most}`", shown(&value)))
                })
            }
        })*
    };
}

whole!(u32, u64);

/// A time to wait, given in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

impl FromPyObject<'_, '_> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let seconds = value.extract::<f64>().ok();
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).map(Self).ok_or_else(|| {
            invalid(value.py(), format!("`{}` is no time to wait; write seconds, like `600`", shown(&value)))
        })
    }
}

/// Sample numbers: a list, another sequence, or an array of 64-bit integers.
#[derive(Debug)]
pub(crate) struct Numbers(pub(crate) Vec<u64>);

impl FromPyObject<'_, '_> for Numbers {
    type Error = PyErr;

    fn extract(values: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let one = |value: &Bound<'_, PyAny>| Ok(value.extract::<Whole<u64>>()?.0);
        if let Some(array) = array::<i64>(&values) {
            let negative = |number: i64| format!("`{number}` is no whole number from `0` to `{}`", u64::MAX);
            let convert = |number| u64::try_from(number).map_err(|_| invalid(values.py(), negative(number)));
            return Ok(Self(array.into_iter().map(convert).collect::<PyResult<_>>()?));
        }
        each(&values, "whole numbers", one).map(Self)
    }
}

/// Scores: a list, another sequence, or an array of floats.
#[derive(Debug)]
pub(crate) struct Scores(pub(crate) Vec<f32>);

impl FromPyObject<'_, '_> for Scores {
    type Error = PyErr;

    fn extract(values: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Some(array) = array::<f32>(&values) {
            return Ok(Self(array));
        }
        if let Some(array) = array::<f64>(&values) {
            return Ok(Self(array.into_iter().map(|score| score as f32).collect()));
        }
        let one = |value: &Bound<'_, PyAny>| {
            let wrong = |_| invalid(value.py(), format!("`{}` is no score; write a number", shown(value)));
            value.extract::<f64>().map(|score| score as f32).map_err(wrong)
        };
        each(&values, "numbers", one).map(Self)
    }
}

/// The values of a one-dimensional array of exactly this type.
fn array<T: Element>(values: &Bound<'_, PyAny>) -> Option<Vec<T>> {
    // The usual case, and asking it for a buffer would make an exception.
    if values.is_instance_of::<PyList>() {
        return None;
    }
    let buffer = PyBuffer::<T>::get(values).ok()?;
    (buffer.dimensions() == 1).then(|| buffer.to_vec(values.py()).ok()).flatten()
}

/// Converts every item of anything that can be iterated.
pub(crate) fn each<T>(
    values: &Bound<'_, PyAny>,
    what: &str,
    mut one: impl FnMut(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    if let Ok(list) = values.cast::<PyList>() {
        return list.iter().map(|value| one(&value)).collect();
    }
    let wrong = |_| invalid(values.py(), format!("`{}` are no {what}", shown(values)));
    values.try_iter().map_err(wrong)?.map(|value| one(&value?)).collect()
}

/// A value as a message shows it.
pub(crate) fn shown(value: &Bound<'_, PyAny>) -> String {
    // Python refuses to write integers of thousands of digits.
    let text = value.repr().map_or_else(|_| value.get_type().to_string(), |text| text.to_string());
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
