//! Every epoch of every run as comma-separated values.

use std::fmt::{self, Write};

use crate::outcome::Outcome;

/// The numbers of an epoch, by column.
pub(super) const COLUMNS: [&str; 21] = [
    "planned",
    "served",
    "hit",
    "packed",
    "single",
    "substituted",
    "distinct",
    "coverage",
    "hit_papers",
    "storage_reads",
    "other_reads",
    "pack_reads",
    "package_waste",
    "storage_requests",
    "storage_bytes",
    "pack_bytes_read",
    "pack_bytes_written",
    "reported",
    "late",
    "seconds",
    "wait",
];

/// A number of an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// A count, which is whole.
    Count(u64),
    /// A share or a time.
    Measure(f64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Measure(measure) => measure.fmt(f),
        }
    }
}

impl From<Number> for serde_json::Value {
    fn from(number: Number) -> Self {
        match number {
            Number::Count(count) => count.into(),
            Number::Measure(measure) => measure.into(),
        }
    }
}

/// The numbers of one epoch, in the order of [`COLUMNS`].
pub(super) fn values(outcome: &Outcome, epoch: usize) -> [Number; COLUMNS.len()] {
    use Number::{Count, Measure};
    let Some(epoch) = outcome.epochs.get(epoch) else { return [Count(0); COLUMNS.len()] };
    let (counters, time) = (&epoch.counters, &epoch.time);
    [
        Count(counters.plan.planned),
        Count(counters.served()),
        Count(counters.plan.hit),
        Count(counters.plan.packed),
        Count(counters.plan.single),
        Count(counters.plan.substituted),
        Count(counters.plan.distinct),
        Measure(counters.plan.distinct as f64 / outcome.samples.max(1) as f64),
        Measure(counters.papers_hit_ratio()),
        Count(counters.plan.storage_reads),
        Count(counters.plan.other_reads),
        Count(counters.plan.pack_reads),
        Measure(counters.package_waste()),
        Count(counters.plan.storage_requests),
        Count(counters.plan.storage_bytes),
        Count(counters.plan.pack_bytes_read),
        Count(counters.plan.pack_bytes_written),
        Count(counters.clock.reported),
        Count(time.late),
        Measure(time.seconds),
        Measure(time.wait),
    ]
}

/// One line for each epoch of each run.
pub fn csv(outcomes: &[Outcome]) -> String {
    let mut text = format!("strategy,policy,cache,capacity,seed,epoch,{}\n", COLUMNS.join(","));
    for outcome in outcomes {
        for epoch in 0..outcome.epochs.len() {
            let _ = write!(
                text,
                "{},{},{},{},{},{epoch}",
                quoted(&outcome.strategy),
                quoted(&outcome.policy),
                quoted(&outcome.cache),
                outcome.capacity,
                outcome.seed
            );
            for value in values(outcome, epoch) {
                let _ = write!(text, ",{value}");
            }
            text.push('\n');
        }
    }
    text
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_with_commas_are_quoted() {
        assert_eq!(quoted("iis[fraction=0.5,warmup=2]"), "\"iis[fraction=0.5,warmup=2]\"");
        assert_eq!((quoted("iis"), quoted("a\"b")), ("iis".to_owned(), "\"a\"\"b\"".to_owned()));
    }
}
