//! Labels as Python has them: `int`, `float`, or lists of either.

use hotset_wire::proto::LabelKind;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// One label for each sample; none without labels. `lengths` says how many values each list has.
pub(crate) fn list<'py>(
    py: Python<'py>,
    kind: LabelKind,
    values: &[i64],
    lengths: &[u32],
) -> PyResult<Bound<'py, PyList>> {
    let numbers = |values: &[i64]| match kind {
        LabelKind::Float | LabelKind::Floats => {
            PyList::new(py, values.iter().map(|&bits| f64::from_bits(bits as u64)))
        }
        _ => PyList::new(py, values),
    };
    if !matches!(kind, LabelKind::Wholes | LabelKind::Floats) {
        return numbers(values);
    }
    let made = PyList::empty(py);
    let mut rest = values;
    for &length in lengths {
        let (own, after) = rest.split_at((length as usize).min(rest.len()));
        made.append(numbers(own)?)?;
        rest = after;
    }
    Ok(made)
}
