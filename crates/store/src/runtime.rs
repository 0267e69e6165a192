//! The small asynchronous runtime behind object stores.
//!
//! Reads block (see `store`); what an HTTP client does in the background needs a runtime, and two threads are
//! enough to drive sockets: the copying into the arena happens on the threads that wait. It is started with the
//! first object store of a process and stays. A forked child has no threads of its parent's: it starts its own,
//! and its copy of the parent's is left as it is.
//!
//! A listing has a runtime of its own, with a thread for each core up to eight, since its pages are taken apart
//! there. It ends with the listing, and with it everything that was allocated on its threads: what they share with
//! nothing that stays can be given back.

use std::sync::{Arc, Mutex, PoisonError};

use hotset_core::{Error, Result};
use tokio::runtime::{Builder, Runtime};

const THREADS: usize = 2;
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
    let runtime = Arc::new(started("hotset-store", THREADS)?);
    // Ending a runtime waits for its threads, and an inherited one has none that could end.
    std::mem::forget(kept.replace((own, Arc::clone(&runtime))));
    Ok(runtime)
}

/// A runtime for one listing.
pub(crate) fn for_a_listing() -> Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(THREADS, std::num::NonZero::get);
    started("hotset-list", cores.clamp(THREADS, MOST))
}

fn started(name: &str, threads: usize) -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(name)
        .enable_all()
        .build()
        .map_err(|error| Error::unavailable(format!("cannot start threads for an object store: {error}")))
}
