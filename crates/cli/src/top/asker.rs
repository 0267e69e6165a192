//! Asks servers beside what is drawn.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use crate::servers::{Asked, Servers};

/// Answers that nobody has taken yet; beyond these it waits with the next question.
const AHEAD: usize = 2;

/// What the servers answer, every so often; it ends when the receiver is dropped.
///
/// The thread is not waited for: it may be waiting for a server, and the process ends.
pub(super) fn start(servers: Servers, every: Duration) -> Receiver<Vec<Asked>> {
    let (sender, receiver) = sync_channel(AHEAD);
    std::thread::spawn(move || {
        while sender.send(servers.ask()).is_ok() {
            std::thread::sleep(every);
        }
    });
    receiver
}
