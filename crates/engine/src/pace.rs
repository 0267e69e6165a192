//! How fast an epoch is: what storage can deliver, and what training consumes when it never waits.
//!
//! Storage: the reads that can be in flight, over how long one takes. A store that slows down under load shows
//! that in how long reads take, so the figure holds for the load of that epoch. Training: servings over the time
//! of the epoch, less the time that readers waited, shared out over the readers.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use hotset_core::sampling::Rates;

/// How long an epoch took, from its first batch to its last.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Span {
    /// All of it, in seconds.
    pub seconds: f64,
    /// What its mean reader waited for storage.
    pub waited: f64,
}

impl Span {
    /// Adds another epoch's.
    pub(crate) fn add(&mut self, other: Self) {
        (self.seconds, self.waited) = (self.seconds + other.seconds, self.waited + other.waited);
    }
}

/// One epoch's figures.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    span: Option<(Instant, Instant)>,
    served: u64,
    waited: Duration,
    readers: HashSet<u64>,
    reads: u64,
    reading: Duration,
}

impl Pace {
    /// A reader got a batch of `served` samples now, after waiting.
    pub(crate) fn served(&mut self, reader: u64, served: usize, waited: Duration, now: Instant) {
        let first = self.span.map_or_else(|| now.checked_sub(waited).unwrap_or(now), |(first, _)| first);
        self.span = Some((first, now));
        self.served += served as u64;
        self.waited += waited;
        self.readers.insert(reader);
    }

    /// A request for so many samples took so long.
    pub(crate) fn read(&mut self, samples: u64, took: Duration) {
        self.reads += samples;
        self.reading += took;
    }

    /// How long the epoch has taken so far, and for how much of that a reader waited for storage, in seconds.
    pub(crate) fn span(&self) -> Option<Span> {
        let (first, last) = self.span?;
        let waited = self.waited.as_secs_f64() / self.readers.len().max(1) as f64;
        Some(Span { seconds: last.saturating_duration_since(first).as_secs_f64(), waited })
    }

    /// The rates, if enough was seen to tell them.
    pub(crate) fn rates(&self, concurrency: usize) -> Option<Rates> {
        let Span { seconds: busy, waited } = self.span()?;
        let training = (busy - waited).max(busy / 1000.0);
        if self.reads == 0 || training <= 0.0 || self.reading.is_zero() {
            return None;
        }
        Some(Rates {
            storage: concurrency as f64 * self.reads as f64 / self.reading.as_secs_f64(),
            training: self.served as f64 / training,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_not_training_and_reads_in_flight_add_up() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.rates(8), None, "nothing was seen");
        for second in 0..10 {
            let now = start + Duration::from_secs(second);
            pace.served(1 + second % 2, 100, Duration::from_millis(900), now);
            pace.read(20, Duration::from_secs(2));
        }
        let span = pace.span().unwrap();
        assert!((span.seconds - 9.9).abs() < 1e-9 && (span.waited - 4.5).abs() < 1e-9, "{span:?}");
        let rates = pace.rates(8).unwrap();
        assert!((rates.storage - 80.0).abs() < 1e-9, "{rates:?}");
        // 9.9 seconds of which two readers waited 4.5 each.
        assert!((rates.training - 1000.0 / 5.4).abs() < 1.0, "{rates:?}");
    }
}
