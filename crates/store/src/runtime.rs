//! The small asynchronous runtime behind object stores.
//!
//! Reads block (see `store`); what an HTTP client does in the background needs a runtime. Two threads are enough
//! to drive sockets, since the copying into the arena happens on the threads that wait; the pages of a listing are
//! taken apart here too, on as many threads as there are cores, up to eight. It is started with the
//! first object store of a process and stays. A forked child has no threads of its parent's: it starts its own,
//! and its copy of the parent's is left as it is.

use std::sync::{Arc, Mutex, PoisonError};

use hotset_core::{Error, Result};
use tokio::runtime::{Builder, Runtime};

const FEWEST: usize = 2;
const MOST: usize = 8;

/// The runtime of this process and that process's id.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// This process's runtime, started if need be.
pub(crate) fn runtime() -> Result<Arc<Runtime>> {
    let own = std::process::id();
    let mut kept = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((process, runtime)) = kept.as_ref()
        && *process == own
    {
        return Ok(Arc::clone(runtime));
    }
    let cores = std::thread::available_parallelism().map_or(FEWEST, std::num::NonZero::get);
    let runtime = Builder::new_multi_thread()
        .worker_threads(cores.clamp(FEWEST, MOST))
        .thread_name("hotset-store")
        .enable_all()
        .build()
        .map_err(|error| Error::unavailable(format!("cannot start threads for an object store: {error}")))?;
    let runtime = Arc::new(runtime);
    // Ending a runtime waits for its threads, and an inherited one has none that could end.
    std::mem::forget(kept.replace((own, Arc::clone(&runtime))));
    Ok(runtime)
}
