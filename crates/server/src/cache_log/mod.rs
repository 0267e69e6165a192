//! The log of each cache as a file, beside the recordings of reports: what `hotset simulate --log` plays back.
//!
//! The engine notes what happens while it holds its locks, so a note is put into a queue and written behind, by a
//! thread of the log's own, which another starts. A disk that is too slow or full ends the log, which is said once; training
//! goes on. A file begins with its version; each event follows behind its length, with a checksum in it, so that a log that
//! was cut short by a kill is told from a whole one, and read as far as it goes.

mod file;
mod queue;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hotset_core::log::Recorder;
use hotset_core::{Error, Result};
use hotset_engine::Logs;
use hotset_store::regular;

pub use self::file::{Ending, read};
use self::queue::{Errand, Log, Queue};
use crate::lock::{Lock, assert_unlocked};
use crate::record::file_word;
use crate::runs::{base_name, unique};

/// How long a server that stops waits for what is not written.
const FAREWELL: Duration = Duration::from_secs(3);

/// What ends a file's name.
pub const EXTENSION: &str = "log";

/// The logs of a server's caches, in a directory.
pub(crate) struct CacheLogs {
    directory: PathBuf,
    errands: Sender<Errand>,
    open: Lock<Vec<Weak<Queue>>>,
}

impl CacheLogs {
    /// Logs in a directory that is there.
    pub(crate) fn new(directory: PathBuf) -> Result<Self> {
        let (errands, receiver) = channel();
        let thread = std::thread::Builder::new().name("hotset-logs".into());
        thread.spawn(move || queue::run_errands(&receiver)).map_err(|error| {
            Error::unavailable(format!("cannot start a thread for the logs of caches: {error}"))
        })?;
        Ok(Self { directory, errands, open: Lock::default() })
    }

    /// Ends all logs, and waits for their last bytes, but not for long.
    pub(crate) fn finish(&self) {
        let queues: Vec<Arc<Queue>> = self.open.lock().iter().filter_map(Weak::upgrade).collect();
        queues.iter().for_each(|queue| queue.close());
        let until = Instant::now() + FAREWELL;
        queues.iter().for_each(|queue| queue.wait_until_written(until));
    }
}

impl Logs for CacheLogs {
    fn open(&self, job: &str, policy: &str) -> Option<Arc<dyn Recorder>> {
        let name = format!("{}-{policy}-{}.{EXTENSION}", file_word(base_name(job)), unique());
        let path = self.directory.join(name);
        let queue = Arc::new(Queue::new(path.clone(), queue::MOST, self.errands.clone()));
        let create = move || {
            assert_unlocked();
            regular::create(&path).map(|file| Box::new(file) as Box<dyn Write + Send>)
        };
        self.errands.send(Errand::Write(Arc::clone(&queue), Box::new(create))).ok()?;
        let mut open = self.open.lock();
        open.retain(|queue| queue.strong_count() > 0);
        open.push(Arc::downgrade(&queue));
        Some(Arc::new(Log(queue)))
    }
}

/// Where a log is written, opened when its thread has begun.
type Create = Box<dyn FnOnce() -> io::Result<Box<dyn Write + Send>> + Send>;

#[cfg(test)]
mod tests;
