//! One connection to a server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hotset_core::Error;
use hotset_wire::proto;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use crate::arguments::{Numbers, Scores, Seconds, Whole};
use crate::batch::Batch;
use crate::catalog::{Description, dataset_fields};
use crate::errors::{invalid, raised};
use crate::indices::Asked;
use crate::job_settings::JobSettings;
use crate::labels;
use crate::plan::{Plan, check_epoch};
use crate::waiting::{reporting, waiting};

/// One connection. Not for two processes: open another after a fork. Usable from several threads.
#[pyclass(frozen, module = "hotset._core")]
pub(crate) struct Client {
    inner: hotset_wire::Client,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (path, *, main_pid, timeout, user=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        main_pid: Whole<u32>,
        timeout: Seconds,
        user: Option<Whole<u32>>,
    ) -> PyResult<Self> {
        let user = user.map(|user| user.0);
        let inner =
            waiting(py, |tick| hotset_wire::Client::connect_to(&path, user, main_pid.0, timeout.0, tick))?;
        Ok(Self { inner })
    }

    #[getter]
    fn instance(&self) -> &str {
        &self.inner.welcome().instance
    }

    #[getter]
    fn server_pid(&self) -> u32 {
        self.inner.welcome().pid
    }

    #[getter]
    fn closed(&self) -> bool {
        self.inner.closed()
    }

    fn close(&self) {
        self.inner.close();
    }

    /// The fields of `DatasetOpened`, as a dict.
    #[pyo3(signature = (place, *, layout, extensions=Vec::new(), storage_options=None, progress=None, expect=String::new(),
        label=String::new(), root=String::new(), select=Vec::new(), wait))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn open_dataset<'py>(
        &self,
        py: Python<'py>,
        place: String,
        layout: String,
        extensions: Vec<String>,
        storage_options: Option<BTreeMap<String, String>>,
        progress: Option<Py<PyAny>>,
        expect: String,
        label: String,
        root: String,
        select: Vec<u32>,
        wait: Seconds,
    ) -> PyResult<Bound<'py, PyDict>> {
        let storage_options = storage_options.unwrap_or_default();
        let request =
            proto::OpenDataset { place, layout, extensions, storage_options, expect, label, root, select };
        let opened = reporting(py, progress, |tick, progress| {
            self.inner.open_dataset(request, wait.0, tick, progress)
        })?;
        dataset_fields(py, opened)
    }

    /// The fields of `JobOpened`, as a dict.
    #[pyo3(signature = (job, settings, *, lasting=false, package_options=None, state=None, run=String::new(),
        launch=String::new(), attempt=Whole(0), parent=String::new(), rank=None, reader=false, resume=None, wait))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn open_job<'py>(
        &self,
        py: Python<'py>,
        job: String,
        settings: JobSettings,
        lasting: bool,
        package_options: Option<BTreeMap<String, String>>,
        state: Option<Vec<u8>>,
        run: String,
        launch: String,
        attempt: Whole<u64>,
        parent: String,
        rank: Option<Whole<u32>>,
        reader: bool,
        resume: Option<(String, Option<Whole<u64>>, Whole<u64>)>,
        wait: Seconds,
    ) -> PyResult<Bound<'py, PyDict>> {
        let request = proto::OpenJob {
            job,
            settings: Some(settings.0),
            lasting,
            package_options: package_options.unwrap_or_default(),
            restore: state.is_some(),
            run,
            launch: Some(proto::Launch {
                name: launch,
                attempt: attempt.0,
                parent,
                rank: rank.map(|rank| rank.0),
                reader,
                node: String::new(),
            }),
            resume: resume.map(|(run, epoch, position)| proto::Resume {
                run,
                epoch: epoch.map(|epoch| epoch.0),
                position: position.0,
            }),
        };
        let opened = waiting(py, |tick| {
            if let Some(state) = &state {
                self.inner.put_state(state, wait.0, tick)?;
            }
            self.inner.open_job(request, wait.0, tick)
        })?;
        let fields = PyDict::new(py);
        fields.set_item("strategy", opened.strategy)?;
        fields.set_item("policy", opened.policy)?;
        fields.set_item("asked", opened.asked)?;
        fields.set_item("granted", opened.granted)?;
        fields.set_item("remarks", opened.remarks)?;
        fields.set_item("one_host", opened.one_host)?;
        fields.set_item("cluster", opened.cluster)?;
        fields.set_item("run", opened.run)?;
        fields.set_item("resumed", opened.resumed)?;
        fields.set_item("earlier", opened.earlier)?;
        Ok(fields)
    }

    #[pyo3(signature = (job, *, moves=false, wait))]
    fn close_job(&self, py: Python<'_>, job: String, moves: bool, wait: Seconds) -> PyResult<()> {
        waiting(py, |tick| self.inner.close_job(proto::CloseJob { job, moves }, wait.0, tick))
    }

    #[pyo3(signature = (job, epoch, *, rank, world, start, join=false, wait))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn begin_epoch(
        &self,
        py: Python<'_>,
        job: String,
        epoch: Whole<u64>,
        rank: Whole<u32>,
        world: Whole<u32>,
        start: Whole<u64>,
        join: bool,
        wait: Seconds,
    ) -> PyResult<Plan> {
        let epoch = epoch.0;
        check_epoch(epoch).map_err(|error| raised(py, error))?;
        let request = proto::BeginEpoch {
            job,
            epoch,
            rank: rank.0,
            world: world.0,
            start: start.0,
            join,
            ..proto::BeginEpoch::default()
        };
        let plan = waiting(py, |tick| self.inner.begin_epoch(request, wait.0, tick))?;
        Ok(Plan::shared(plan))
    }

    /// The same in the order of that digest; its ids as 32-bit little-endian integers, if they are given. `None` where the
    /// server wants them.
    #[pyo3(signature = (job, epoch, *, rank, world, start, order, ids=None, wait))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn begin_given(
        &self,
        py: Python<'_>,
        job: String,
        epoch: Whole<u64>,
        rank: Whole<u32>,
        world: Whole<u32>,
        start: Whole<u64>,
        order: Whole<u64>,
        ids: Option<PyBackedBytes>,
        wait: Seconds,
    ) -> PyResult<Option<Plan>> {
        check_epoch(epoch.0).map_err(|error| raised(py, error))?;
        let request = proto::BeginEpoch {
            job,
            epoch: epoch.0,
            rank: rank.0,
            world: world.0,
            start: start.0,
            order: Some(order.0),
            ..proto::BeginEpoch::default()
        };
        let plan = waiting(py, |tick| self.inner.begin_given(request, ids.as_deref(), wait.0, tick))?;
        Ok(plan.map(Plan::shared))
    }

    #[pyo3(signature = (job, indices, *, rank, matched=false, reevaluation=None, wait))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn get_batch(
        &self,
        py: Python<'_>,
        job: String,
        indices: Asked,
        rank: Whole<u32>,
        matched: bool,
        reevaluation: Option<Whole<u64>>,
        wait: Seconds,
    ) -> PyResult<Batch> {
        let wait_ms = u64::try_from(wait.0.as_millis()).unwrap_or(u64::MAX);
        let reevaluation = reevaluation.map(|epoch| epoch.0);
        let (rank, indices) = (rank.0, indices.0);
        // How long ago the last one was, the connection says.
        let since_us = None;
        let request = proto::GetBatch { job, rank, indices, wait_ms, reevaluation, matched, since_us };
        Ok(Batch::new(waiting(py, |tick| self.inner.get_batch(request, tick))?))
    }

    /// (accepted, rejected)
    #[pyo3(signature = (job, epoch, *, rank, upto, ids, scores, wait))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn report(
        &self,
        py: Python<'_>,
        job: String,
        epoch: Whole<u64>,
        rank: Whole<u32>,
        upto: Whole<u64>,
        ids: Numbers,
        scores: Scores,
        wait: Seconds,
    ) -> PyResult<(u64, u64)> {
        let (ids, scores) = paired(py, ids, scores)?;
        let request = proto::Report { job, epoch: epoch.0, rank: rank.0, upto: upto.0, ids, scores };
        let reported = waiting(py, |tick| self.inner.report(request, wait.0, tick))?;
        Ok((reported.accepted, reported.rejected))
    }

    /// The ids that this rank must re-evaluate before an epoch, as 32-bit little-endian integers.
    #[pyo3(signature = (job, epoch, *, rank, world, wait))]
    fn reevaluate<'py>(
        &self,
        py: Python<'py>,
        job: String,
        epoch: Whole<u64>,
        rank: Whole<u32>,
        world: Whole<u32>,
        wait: Seconds,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let request = proto::Reevaluate { job, epoch: epoch.0, rank: rank.0, world: world.0 };
        let memory = waiting(py, |tick| self.inner.reevaluate(request, wait.0, tick))?;
        whole(py, &memory)
    }

    /// Tells losses under the current model; `last` when there are no more.
    #[pyo3(signature = (job, epoch, *, rank, ids, losses, last, wait))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn reevaluated(
        &self,
        py: Python<'_>,
        job: String,
        epoch: Whole<u64>,
        rank: Whole<u32>,
        ids: Numbers,
        losses: Scores,
        last: bool,
        wait: Seconds,
    ) -> PyResult<()> {
        let (ids, losses) = paired(py, ids, losses)?;
        let request = proto::Reevaluated { job, epoch: epoch.0, rank: rank.0, ids, losses, last };
        waiting(py, |tick| self.inner.reevaluated(request, wait.0, tick))
    }

    #[pyo3(signature = (job, epoch, *, rank, accuracy=None, wait))]
    fn end_epoch(
        &self,
        py: Python<'_>,
        job: String,
        epoch: Whole<u64>,
        rank: Whole<u32>,
        accuracy: Option<f64>,
        wait: Seconds,
    ) -> PyResult<()> {
        let request = proto::EndEpoch { job, epoch: epoch.0, rank: rank.0, accuracy };
        waiting(py, |tick| self.inner.end_epoch(request, wait.0, tick))
    }

    /// All that a job's plans are made from, to go on elsewhere.
    #[pyo3(signature = (job, *, wait))]
    fn state<'py>(&self, py: Python<'py>, job: String, wait: Seconds) -> PyResult<Bound<'py, PyBytes>> {
        self.memory(py, job, proto::MemoryKind::State, wait)
    }

    /// The last score of each sample, as 32-bit little-endian floats; not a number where there is none.
    #[pyo3(signature = (job, *, wait))]
    fn scores<'py>(&self, py: Python<'py>, job: String, wait: Seconds) -> PyResult<Bound<'py, PyBytes>> {
        self.memory(py, job, proto::MemoryKind::Scores, wait)
    }

    /// Keys, labels (empty without labels) and sizes of `count` samples from `first`.
    #[pyo3(signature = (dataset, first, count, *, wait))]
    fn describe<'py>(
        &self,
        py: Python<'py>,
        dataset: String,
        first: Whole<u64>,
        count: Whole<u64>,
        wait: Seconds,
    ) -> PyResult<Description<'py>> {
        let request = proto::Describe { dataset, first: first.0, count: count.0 };
        let described = waiting(py, |tick| self.inner.describe(request, wait.0, tick))?;
        let kind = described.label_kind();
        let labels = labels::list(py, kind, &described.labels, &described.label_lengths)?;
        Ok((described.keys, labels, described.sizes))
    }

    /// The `Stats` message as JSON.
    #[pyo3(signature = (job=String::new(), *, wait))]
    fn stats(&self, py: Python<'_>, job: String, wait: Seconds) -> PyResult<String> {
        waiting(py, |tick| {
            let stats = self.inner.stats(proto::GetStats { job }, wait.0, tick)?;
            serde_json::to_string(&stats).map_err(|error| Error::internal(error.to_string()))
        })
    }
}

impl Client {
    fn memory<'py>(
        &self,
        py: Python<'py>,
        job: String,
        kind: proto::MemoryKind,
        wait: Seconds,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let request = proto::GetMemory { job, kind: kind.into() };
        let memory = waiting(py, |tick| self.inner.get_memory(request, wait.0, tick))?;
        whole(py, &memory)
    }
}

/// All bytes of sealed memory.
fn whole<'py>(py: Python<'py>, memory: &hotset_wire::Mapping) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = memory.slice(0, memory.len() as u64).map_err(|error| raised(py, error))?;
    Ok(PyBytes::new(py, bytes))
}

/// Sample ids and as many numbers.
fn paired(py: Python<'_>, ids: Numbers, scores: Scores) -> PyResult<(Vec<u32>, Vec<f32>)> {
    let (ids, scores) = (ids.0, scores.0);
    if ids.len() != scores.len() {
        let (ids, scores) = (ids.len(), scores.len());
        return Err(invalid(py, format!("`ids` has `{ids}` values, `scores` has `{scores}`")));
    }
    let narrow = |id: u64| u32::try_from(id).map_err(|_| invalid(py, format!("`{id}` is no sample id")));
    Ok((ids.into_iter().map(narrow).collect::<PyResult<_>>()?, scores))
}
