//! Every epoch of every run as comma-separated values.

use std::fmt::Write;

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

/// The numbers of one epoch, in the order of [`COLUMNS`].
pub(super) fn values(outcome: &Outcome, epoch: usize) -> [f64; COLUMNS.len()] {
    let Some(epoch) = outcome.epochs.get(epoch) else { return [0.0; COLUMNS.len()] };
    let (counters, time) = (&epoch.counters, &epoch.time);
    let served = counters.served() as f64;
    [
        counters.planned as f64,
        served,
        counters.hit as f64,
        counters.packed as f64,
        counters.single as f64,
        counters.substituted as f64,
        counters.distinct as f64,
        counters.distinct as f64 / outcome.samples.max(1) as f64,
        counters.papers_hit_ratio(),
        counters.storage_reads as f64,
        counters.other_reads as f64,
        counters.pack_reads as f64,
        counters.package_waste(),
        counters.storage_requests as f64,
        counters.storage_bytes as f64,
        counters.pack_bytes_read as f64,
        counters.pack_bytes_written as f64,
        counters.reported as f64,
        time.late as f64,
        time.seconds,
        time.wait,
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
