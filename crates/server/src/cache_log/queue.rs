//! What was noted and is not written yet, and the thread that writes it.
//!
//! A note is pushed under the engine's lock, so pushing takes one short lock and nothing else. The thread takes all that
//! is there once it is worth a write, or after a moment. What lies in memory is bounded: where events come faster than they
//! can be written for long, the log ends. To start a thread and to say something takes longer, and a log is opened under
//! the engine's lock too: both are errands of one more thread, which waits for no disk.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use hotset_core::bytes::human;
use hotset_core::log::{Event, Recorder};

use super::{Create, file};
use crate::lock::{Lock, assert_unlocked};

/// The most bytes of events that wait to be written.
pub(super) const MOST: usize = 64 << 20;
/// Events of so many bytes are worth a write of their own.
const WORTH: usize = 256 << 10;
/// How long fewer wait for more.
const MOMENT: Duration = Duration::from_millis(250);

/// What is to be done for a log, and takes longer than the engine's lock may be held.
pub(super) enum Errand {
    /// To write it.
    Write(Arc<Queue>, Create),
    /// To say that it has ended, and why.
    Tell(PathBuf, String),
}

/// Does errands until no more can come.
pub(super) fn run_errands(errands: &Receiver<Errand>) {
    errands.iter().for_each(Errand::run);
}

impl Errand {
    pub(super) fn run(self) {
        match self {
            Self::Write(queue, create) => {
                let own = Arc::clone(&queue);
                let thread = std::thread::Builder::new().name("hotset-log".into());
                if let Err(error) = thread.spawn(move || own.write(create)) {
                    queue.end(&error);
                }
            }
            Self::Tell(path, why) => tell(&path, &why),
        }
    }
}

/// Says that there is no more of a log.
fn tell(path: &Path, why: &str) {
    tracing::warn!(
        file = %path.display(),
        "the log of a cache has ended: {why}; training goes on. Give `--record` (HOTSET_RECORD) a faster disk, or one \
         with more room"
    );
}

/// The events of one log.
pub(super) struct Queue {
    path: PathBuf,
    most: usize,
    errands: Sender<Errand>,
    waiting: Lock<Waiting>,
}

#[derive(Default)]
struct Waiting {
    events: Vec<Event>,
    bytes: usize,
    /// No more come.
    closed: bool,
    /// It was given up.
    stopped: bool,
    /// All that will be written is.
    written: bool,
}

impl Queue {
    pub(super) fn new(path: PathBuf, most: usize, errands: Sender<Errand>) -> Self {
        Self { path, most, errands, waiting: Lock::default() }
    }

    /// No more comes: what is there is written, and that it is all.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.signal();
    }

    /// Returns when all is written, or the time has come.
    pub(super) fn wait_until_written(&self, until: Instant) {
        let mut waiting = self.waiting.lock();
        while !waiting.written
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            waiting = waiting.wait_for(left);
        }
    }

    #[cfg(test)]
    pub(super) fn is_stopped(&self) -> bool {
        self.waiting.lock().stopped
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.lock().events.len()
    }

    fn push(&self, event: Event) {
        let mut waiting = self.waiting.lock();
        if waiting.closed || waiting.stopped {
            return;
        }
        if waiting.events.last_mut().is_some_and(|last| last.extend(&event)) {
            return;
        }
        let before = waiting.bytes;
        waiting.bytes += event.memory();
        waiting.events.push(event);
        // One event alone is written, however large it is.
        if before > 0 && waiting.bytes > self.most {
            waiting.stopped = true;
            waiting.signal();
            drop(waiting);
            let why = format!("{} wait to be written", human(self.most as u64));
            // A server that ends has nobody left to say it.
            _ = self.errands.send(Errand::Tell(self.path.clone(), why));
        } else if before == 0 || (before < WORTH && waiting.bytes >= WORTH) {
            waiting.signal();
        }
    }

    /// What is to be written next, and whether it is the last; `None` where the log was given up.
    fn take(&self) -> Option<(Vec<Event>, bool)> {
        let mut waiting = self.waiting.lock();
        while waiting.events.is_empty() && !waiting.closed && !waiting.stopped {
            waiting = waiting.wait();
        }
        if waiting.bytes < WORTH && !waiting.closed && !waiting.stopped {
            waiting = waiting.wait_for(MOMENT);
        }
        let events = std::mem::take(&mut waiting.events);
        waiting.bytes = 0;
        let (stopped, closed) = (waiting.stopped, waiting.closed);
        drop(waiting);
        (!stopped).then_some((events, closed))
    }

    /// Writes until the end.
    fn write(&self, create: Create) {
        if let Err(error) = self.write_all(create) {
            self.end(&error);
        }
        let mut waiting = self.waiting.lock();
        waiting.written = true;
        waiting.signal();
    }

    /// It cannot be written: frees what waits, and says so unless the log was given up before.
    fn end(&self, error: &io::Error) {
        let mut waiting = self.waiting.lock();
        let first = !std::mem::replace(&mut waiting.stopped, true);
        let events = std::mem::take(&mut waiting.events);
        waiting.written = true;
        waiting.signal();
        drop(waiting);
        drop(events);
        if first {
            tell(&self.path, &error.to_string());
        }
    }

    fn write_all(&self, create: Create) -> io::Result<()> {
        let mut to = create()?;
        to.write_all(file::HEAD)?;
        while let Some((events, last)) = self.take() {
            assert_unlocked();
            let mut bytes = Vec::new();
            events
                .iter()
                .chain(last.then_some(&Event::End))
                .for_each(|event| file::append(event, &mut bytes));
            drop(events);
            to.write_all(&bytes)?;
            if last {
                return to.flush();
            }
        }
        Ok(())
    }
}

/// What tells a queue. It ends with the last that knows it.
pub(super) struct Log(pub(super) Arc<Queue>);

impl Recorder for Log {
    fn note(&self, event: Event) {
        self.0.push(event);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.close();
    }
}
