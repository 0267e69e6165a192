//! Samples in the arena, as memoryviews.
//!
//! A `Window` shows a whole segment through the buffer protocol and holds the lease. One memoryview is made of it
//! for each segment of a batch, and a sample's view is a slice of that: two small objects a sample, no copy, and
//! the lease lives as long as any slice does. No Python code runs here, so that no signal's handler does: asking whether
//! an object is a sequence would run some, and take what a handler raises for a no.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use hotset_wire::{Lease, Mapping};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyIndexError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PySequence};

use crate::errors::invalid;
use crate::labels;

/// A segment, for as long as something looks into it.
#[pyclass(frozen, module = "hotset._core")]
struct Window {
    mapping: Arc<Mapping>,
    // Held for its end.
    _lease: Arc<Lease>,
}

#[pymethods]
impl Window {
    // SAFETY: called by Python with a `view` to fill, as the buffer protocol has it.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let mapping = &slf.get().mapping;
        // SAFETY: `view` is valid to write (see above), and holds a reference to `slf`, which keeps the mapping. The
        // buffer is declared read-only, so nothing writes through the pointer. A length never exceeds `isize::MAX`.
        let outcome = unsafe {
            let bytes = mapping.as_ptr().cast_mut().cast();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes, mapping.len() as isize, 1, flags)
        };
        if outcome == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Samples in the arena. Its bytes stay until the last view of it is dropped.
#[pyclass(frozen, sequence, module = "hotset._core")]
pub(crate) struct Batch {
    inner: hotset_wire::Batch,
    /// A memoryview of each of its segments; made when the first view is asked for.
    segments: PyOnceLock<Vec<Py<PySequence>>>,
}

impl Batch {
    pub(crate) fn new(inner: hotset_wire::Batch) -> Self {
        Self { inner, segments: PyOnceLock::new() }
    }

    fn segments(&self, py: Python<'_>) -> PyResult<&Vec<Py<PySequence>>> {
        self.segments.get_or_try_init(py, || {
            let segment = |mapping: &Arc<Mapping>| {
                let window = Window { mapping: Arc::clone(mapping), _lease: Arc::clone(&self.inner.lease) };
                let view = PyMemoryView::from(Bound::new(py, window)?.as_any())?.into_any();
                // SAFETY: a memoryview can be sliced, which is all that is asked of it. To look whether it is a sequence
                // would run Python code, and a signal handler with it.
                Ok(unsafe { view.cast_into_unchecked::<PySequence>() }.unbind())
            };
            self.inner.lease.mappings.iter().map(segment).collect()
        })
    }

    fn view<'py>(
        &self,
        py: Python<'py>,
        segments: &[Py<PySequence>],
        position: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let entry = self.inner.lease.entries[position];
        match segments.get(entry.mapping) {
            Some(segment) if entry.length > 0 => {
                let begin = entry.offset as usize;
                Ok(segment.bind(py).get_slice(begin, begin + entry.length as usize)?.into_any())
            }
            _ => Ok(PyMemoryView::from(PyBytes::new(py, b"").as_any())?.into_any()),
        }
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, position: isize) -> PyResult<Bound<'py, PyAny>> {
        let count = self.inner.len();
        let position = if position < 0 { position.checked_add_unsigned(count) } else { Some(position) };
        match position
            .and_then(|position| usize::try_from(position).ok())
            .filter(|&position| position < count)
        {
            Some(position) => self.view(py, self.segments(py)?, position),
            None => Err(PyIndexError::new_err(format!("the batch has `{count}` samples"))),
        }
    }

    fn views<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let segments = self.segments(py)?;
        let views = (0..self.inner.len()).map(|position| self.view(py, segments, position));
        PyList::new(py, views.collect::<PyResult<Vec<_>>>()?)
    }

    fn bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let samples = (0..self.inner.len()).map(|position| self.inner.get(position).unwrap_or_default());
        PyList::new(py, samples.map(|sample| PyBytes::new(py, sample)).collect::<Vec<_>>())
    }

    /// Copies all samples one after the other into a writable buffer; the (offset, length) of each.
    fn copy_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Vec<(usize, usize)>> {
        let buffer = PyUntypedBuffer::get(buffer)
            .map_err(|error| invalid(py, format!("`buffer` gives no access to its memory: {error}")))?;
        if buffer.readonly() {
            return Err(invalid(py, "`buffer` is read-only; give a writable one, like a `bytearray`"));
        }
        if !buffer.is_c_contiguous() {
            return Err(invalid(py, "`buffer` is not contiguous; give one whose bytes lie side by side"));
        }
        let mut end = 0;
        let place = |length: u64| {
            let begin = end;
            end += length as usize;
            (begin, length as usize)
        };
        let places: Vec<_> = self.inner.lease.entries.iter().map(|entry| entry.length).map(place).collect();
        let room = buffer.len_bytes();
        if end > room {
            return Err(invalid(py, format!("`buffer` has `{room}` bytes, the batch has `{end}`")));
        }
        let target = Target(buffer.buf_ptr().cast());
        py.detach(|| {
            for (position, &(offset, _)) in places.iter().enumerate() {
                let sample = self.inner.get(position).unwrap_or_default();
                // SAFETY: `offset + sample.len() <= end <= room`: it lies in the buffer, which is writable,
                // contiguous and held until after this. It is no part of the arena, which is mapped read-only.
                unsafe { ptr::copy_nonoverlapping(sample.as_ptr(), target.at(offset), sample.len()) };
            }
        });
        Ok(places)
    }

    /// Empty when the dataset has no labels.
    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let found = &self.inner.labels;
        labels::list(py, found.kind, &found.values, &found.lengths)
    }

    /// What the user should be told; mostly empty.
    #[getter]
    fn remark(&self) -> &str {
        &self.inner.remark
    }

    /// Begin and length of every part of every sample; empty unless samples have several parts.
    #[getter]
    fn parts(&self) -> Vec<u32> {
        self.inner.parts.clone()
    }
}

/// Where a copy goes.
struct Target(*mut u8);

// SAFETY: the memory belongs to a buffer that Python holds still until it is released, in whatever thread.
unsafe impl Sync for Target {}

impl Target {
    fn at(&self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}
