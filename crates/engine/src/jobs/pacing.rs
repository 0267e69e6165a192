//! How fast an epoch is: what storage can deliver, and what training consumes when it never waits.
//!
//! Storage: the reads that can be in flight, over how long one takes. A store that slows down under load shows
//! that in how long reads take, so the figure holds for the load of that epoch. Training: servings over the time
//! of the epoch, less the time that readers waited, shared out over the readers.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use hotset_core::sampling::Rates;
use hotset_core::tally::HISTORY;

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
    fn add(&mut self, other: Self) {
        (self.seconds, self.waited) = (self.seconds + other.seconds, self.waited + other.waited);
    }
}

/// How fast a job's epochs are, and how long they took.
#[derive(Debug, Default)]
pub(crate) struct Pacing {
    /// Of the last epochs.
    paces: BTreeMap<u64, Pace>,
    /// Of epochs whose paces are no longer kept.
    spans: BTreeMap<u64, Span>,
    /// Of epochs before those, together.
    past: Span,
}

impl Pacing {
    fn pace(&mut self, epoch: u64) -> &mut Pace {
        while self.paces.len() > 2 && !self.paces.contains_key(&epoch) {
            if let Some((old, pace)) = self.paces.pop_first() {
                self.spans.extend(pace.span().map(|span| (old, span)));
            }
        }
        while self.spans.len() > HISTORY {
            self.past.add(self.spans.pop_first().map_or_else(Span::default, |(_, span)| span));
        }
        self.paces.entry(epoch).or_default()
    }

    /// A reader got a batch of so many samples of an epoch, after waiting.
    pub(crate) fn served(&mut self, epoch: u64, reader: u64, samples: usize, waited: Duration, now: Instant) {
        self.pace(epoch).served(reader, samples, waited, now);
    }

    /// A request of an epoch for so many samples took so long.
    pub(crate) fn read(&mut self, epoch: u64, samples: u64, took: Duration) {
        self.pace(epoch).read(samples, took);
    }

    /// How many readers the last epochs had.
    pub(crate) fn readers(&self) -> usize {
        self.paces.values().map(|pace| pace.readers.len()).max().unwrap_or_default()
    }

    /// The rates of an epoch, if enough was seen to tell them.
    pub(crate) fn rates(&self, epoch: u64, concurrency: usize) -> Option<Rates> {
        self.paces.get(&epoch)?.rates(concurrency)
    }

    /// How long each epoch took, or has taken so far.
    pub(crate) fn spans(&self) -> BTreeMap<u64, Span> {
        let recent = self.paces.iter().filter_map(|(&epoch, pace)| Some((epoch, pace.span()?)));
        self.spans.iter().map(|(&epoch, &span)| (epoch, span)).chain(recent).collect()
    }

    /// How long all epochs together took.
    pub(crate) fn total(&self) -> Span {
        let mut total = self.past;
        self.spans().into_values().for_each(|span| total.add(span));
        total
    }

    /// An epoch is trained anew; what it took so far stays in the sum.
    pub(crate) fn forget(&mut self, epoch: u64) {
        let pace = self.paces.remove(&epoch).and_then(|pace| pace.span());
        self.past.add(pace.or(self.spans.remove(&epoch)).unwrap_or_default());
    }
}

/// One epoch's figures.
#[derive(Debug, Default)]
struct Pace {
    span: Option<(Instant, Instant)>,
    served: u64,
    waited: Duration,
    readers: HashSet<u64>,
    reads: u64,
    reading: Duration,
}

impl Pace {
    /// A reader got a batch of `served` samples now, after waiting.
    fn served(&mut self, reader: u64, served: usize, waited: Duration, now: Instant) {
        let first = self.span.map_or_else(|| now.checked_sub(waited).unwrap_or(now), |(first, _)| first);
        self.span = Some((first, now));
        self.served += served as u64;
        self.waited += waited;
        self.readers.insert(reader);
    }

    /// A request for so many samples took so long.
    fn read(&mut self, samples: u64, took: Duration) {
        self.reads += samples;
        self.reading += took;
    }

    /// How long the epoch has taken so far, and for how much of that a reader waited for storage, in seconds.
    fn span(&self) -> Option<Span> {
        let (first, last) = self.span?;
        let waited = self.waited.as_secs_f64() / self.readers.len().max(1) as f64;
        Some(Span { seconds: last.saturating_duration_since(first).as_secs_f64(), waited })
    }

    /// The rates, if enough was seen to tell them.
    fn rates(&self, concurrency: usize) -> Option<Rates> {
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
