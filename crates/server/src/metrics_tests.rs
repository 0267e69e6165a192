//! The table of metrics, as it is scraped and as it is documented.

use std::collections::HashSet;
use std::path::Path;

use super::*;

fn document() -> String {
    let mut text = String::from(
        "# Metrics\n\n`hotset serve --metrics 9464` tells these at `http://127.0.0.1:9464/metrics`, in the format that \
         Prometheus\nscrapes. It listens on loopback alone. This page is made from \
         `crates/server/src/metrics.rs`.\n\n| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for metric in METRICS {
        let labels = match metric.source {
            Source::Server(_) => String::new(),
            Source::Job(_) => "job, strategy, policy".into(),
            Source::Labelled(label, _) => format!("job, strategy, policy, {label}"),
        };
        let _ =
            writeln!(text, "| `{}` | {} | {labels} | {} |", metric.name, metric.kind.name(), metric.meaning);
    }
    text
}

#[test]
fn the_documentation_lists_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("HOTSET_BLESS").is_some() {
        std::fs::write(&path, document()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == document(),
        "docs/metrics.md is stale: run `HOTSET_BLESS=1 cargo test -p hotset-server`"
    );
}

#[test]
fn names_are_unique_and_say_what_they_count() {
    let mut seen = HashSet::new();
    for metric in METRICS {
        assert!(seen.insert(metric.name), "{}", metric.name);
        assert!(metric.name.starts_with("hotset_"));
        assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
    }
}

#[test]
fn what_is_scraped_can_be_parsed_whatever_a_job_is_called() {
    let total = EpochStats { hit: 3, single: 4, ..EpochStats::default() };
    let job = JobStats { job: "a\"b\\c\nd".into(), total: Some(total), ..JobStats::default() };
    let text = render(&Stats { server: Some(ServerStats::default()), jobs: vec![job] });
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, figure) = line.rsplit_once(' ').unwrap();
        assert!(figure.parse::<f64>().is_ok(), "{line}");
        assert!(name.starts_with("hotset_"), "{line}");
    }
    let served = "hotset_served_total{job=\"a\\\"b\\\\c\\nd\",strategy=\"\",policy=\"\",how=\"hit\"} 3";
    assert!(text.contains(served), "{text}");
}
