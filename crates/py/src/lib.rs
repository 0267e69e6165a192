//! PyO3 conversions, nothing else: `hotset._core`, as `python/hotset/_core.pyi` describes it.

mod arguments;
mod batch;
mod catalog;
mod client;
mod doctor;
mod errors;
mod indices;
mod job_settings;
mod labels;
mod plan;
mod strategy;
mod waiting;

/// The native part of Hotset.
#[pyo3::pymodule]
mod _core {
    use hotset_core::bytes::Amount;
    use hotset_core::policy;
    use pyo3::prelude::*;
    use pyo3::pybacked::PyBackedBytes;

    use crate::arguments::Whole;
    #[pymodule_export]
    use crate::doctor::{diagnose, host, survey};
    use crate::plan::ids_of;
    #[pymodule_export]
    use crate::{
        batch::Batch, catalog::Catalog, client::Client, indices::Indices, plan::Plan, strategy::Strategy,
    };

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's own name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// The last epoch that can be planned.
    #[pymodule_export]
    const LAST_EPOCH: u64 = hotset_core::id::LAST_EPOCH;

    /// The plan that the server makes by a strategy that goes by its seed alone, without a server.
    #[pyfunction]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn seed_plan(
        py: Python<'_>,
        strategy: &str,
        samples: Whole<u64>,
        seed: Whole<u64>,
        epoch: Whole<u64>,
        rank: Whole<u32>,
        world: Whole<u32>,
        pad: bool,
    ) -> PyResult<Plan> {
        let plan = py.detach(|| Plan::of_seed(strategy, samples.0, seed.0, epoch.0, rank.0, world.0, pad));
        plan.map_err(|error| crate::errors::raised(py, error))
    }

    /// The plan that the server makes of an order, without a server; its ids are 32-bit little-endian integers.
    #[pyfunction]
    fn given_plan(
        py: Python<'_>,
        ids: PyBackedBytes,
        epoch: Whole<u64>,
        rank: Whole<u32>,
        world: Whole<u32>,
        pad: bool,
    ) -> PyResult<Plan> {
        let plan = py.detach(|| Plan::given(ids_of(&ids).collect(), epoch.0, rank.0, world.0, pad));
        plan.map_err(|error| crate::errors::raised(py, error))
    }

    /// Tells one order from another; ids are 32-bit little-endian integers.
    #[pyfunction]
    fn order_digest(py: Python<'_>, ids: PyBackedBytes) -> u64 {
        py.detach(|| hotset_core::sampling::order_digest(ids_of(&ids)))
    }

    /// The bytes of `8GiB`, or of `20%` of `whole`.
    #[pyfunction]
    fn parse_size(py: Python<'_>, text: &str, whole: Whole<u64>) -> PyResult<u64> {
        let amount: Amount = text.parse().map_err(|error| crate::errors::raised(py, error))?;
        Ok(amount.of(whole.0))
    }

    /// Every strategy, with the defaults of its settings.
    #[pyfunction]
    fn strategies(py: Python<'_>) -> PyResult<Vec<Strategy>> {
        Strategy::all().map_err(|error| crate::errors::raised(py, error))
    }

    /// (name, one line) of every policy.
    #[pyfunction]
    fn policies() -> Vec<(&'static str, &'static str)> {
        policy::REGISTRY.iter().map(|entry| (entry.name, entry.summary)).collect()
    }

    /// The command line; the process's exit code.
    #[pyfunction]
    fn main(py: Python<'_>, arguments: Vec<String>) -> u8 {
        py.detach(|| hotset_cli::run(arguments, Some(&crate::doctor::decoded)))
    }

    /// Copies what this process leases, for the child that this thread is about to fork.
    #[pyfunction]
    fn before_fork(py: Python<'_>) {
        // Another thread may be between the two sides of a fork, and need the GIL to come out.
        py.detach(hotset_wire::before_fork);
    }

    /// Ends what `before_fork` began.
    #[pyfunction]
    fn after_fork_in_parent() {
        hotset_wire::after_fork_in_parent();
    }

    /// Closes this process's copies of its parent's connections; what the parent leases is a copy from here on.
    #[pyfunction]
    fn after_fork_in_child() {
        hotset_wire::after_fork_in_child();
    }
}
