//! Writes that are carried out in the order they were queued, by one thread at a time and under no lock.
//!
//! The lock guards the queue, and the handle of what is written to while no thread writes. A thread that waits for its
//! write takes the handle, carries out all that is queued, and puts the handle back; those that come meanwhile queue
//! theirs and wait, and the next of them writes for all.

use crate::lock::Lock;

type Write<H> = Box<dyn FnOnce(&mut H) + Send>;

/// What is to be written, and the handle `H` of what it is written to.
pub(crate) struct WriteQueue<H>(Lock<Queue<H>>);

struct Queue<H> {
    /// `None` while a thread writes, and when the queue is closed.
    handle: Option<H>,
    queued: Vec<Write<H>>,
    /// How many writes there were, and how many of them are done.
    asked: u64,
    done: u64,
    closed: bool,
}

/// A place in the queue. The default is that of a write that is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl<H> WriteQueue<H> {
    pub(crate) fn new(handle: H) -> Self {
        Self(Lock::new(Queue { handle: Some(handle), queued: Vec::new(), asked: 0, done: 0, closed: false }))
    }

    /// Queues a write, which is left out if the queue is closed. Does not wait.
    pub(crate) fn push(&self, write: impl FnOnce(&mut H) + Send + 'static) -> Ticket {
        let mut queue = self.0.lock();
        if queue.closed {
            return Ticket::default();
        }
        queue.queued.push(Box::new(write));
        queue.asked += 1;
        Ticket(queue.asked)
    }

    /// Returns when the write with that ticket, and all before it, are done.
    pub(crate) fn finish(&self, ticket: Ticket) {
        let mut queue = self.0.lock();
        while queue.done < ticket.0 {
            let Some(mut handle) = queue.handle.take() else {
                queue = queue.wait();
                continue;
            };
            let writes = std::mem::take(&mut queue.queued);
            let count = writes.len() as u64;
            drop(queue);
            writes.into_iter().for_each(|write| write(&mut handle));
            queue = self.0.lock();
            queue.handle = Some(handle);
            queue.done += count;
            queue.signal();
        }
    }

    /// Carries out what is queued and hands out what was written to; `None` if that was done before.
    pub(crate) fn close(&self) -> Option<H> {
        loop {
            let mut queue = self.0.lock();
            if queue.closed {
                return None;
            }
            if queue.done == queue.asked
                && let Some(handle) = queue.handle.take()
            {
                queue.closed = true;
                return Some(handle);
            }
            let last = Ticket(queue.asked);
            drop(queue);
            self.finish(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::lock::assert_unlocked;

    #[test]
    fn writes_of_many_threads_are_done_in_order_under_no_lock_before_each_goes_on() {
        let queue: WriteQueue<Vec<(usize, usize)>> = WriteQueue::new(Vec::new());
        let order = Lock::new(Vec::new());
        let together = Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (queue, order, together) = (&queue, &order, &together);
                scope.spawn(move || {
                    together.wait();
                    for number in 0..50 {
                        let mut order = order.lock();
                        order.push((thread, number));
                        let ticket = queue.push(move |written| {
                            assert_unlocked();
                            written.push((thread, number));
                        });
                        drop(order);
                        queue.finish(ticket);
                        assert!(queue.0.lock().done >= ticket.0);
                    }
                });
            }
        });
        assert_eq!(queue.close().unwrap(), *order.lock());
    }

    #[test]
    fn a_queue_that_is_closed_has_done_what_was_queued_and_takes_no_more() {
        let queue = WriteQueue::new(0);
        queue.push(|sum| *sum += 1);
        let ticket = queue.push(|sum| *sum += 2);
        assert_eq!(queue.close(), Some(3));
        queue.finish(ticket);
        queue.finish(queue.push(|_: &mut i32| panic!("it is closed")));
        assert_eq!(queue.close(), None);
    }
}
