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
            Source::Node(_) => "node".into(),
            Source::ServerBy(label, _) => label.into(),
            Source::Job(_) => "job, strategy, policy".into(),
            Source::Labelled(label, _) => format!("job, strategy, policy, {label}"),
        };
        let _ =
            writeln!(text, "| `{}` | {} | {labels} | {} |", metric.name, metric.kind.name(), metric.meaning);
    }
    text + DASHBOARD
}

/// How the dashboard is put into Grafana, behind the table.
const DASHBOARD: &str = r#"
## A dashboard for Grafana

[`examples/grafana/hotset.json`](../examples/grafana/hotset.json) draws these: samples a second and how they came, waiting, storage,
packages, memory, benefit and nodes, for all trainings or those chosen. A test compares it with the table above.

Have a Prometheus on the training host, or an agent that hands on to one, scrape the server. The metrics have a label `job` of
their own, the training; `honor_labels` keeps Prometheus from renaming it, and the dashboard relies on it:

```yaml
scrape_configs:
  - job_name: hotset
    honor_labels: true
    static_configs:
      - targets: ["127.0.0.1:9464"]
        labels: {instance: gpu-1} # by which the dashboard tells hosts apart
```

Then in Grafana: *Dashboards*, *New*, *Import*, and that file. The Prometheus, the servers and the trainings are chosen above the
panels.
"#;

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

#[test]
fn regions_notes_and_packages_are_scraped_where_there_are_some() {
    let region = |name: &str, capacity, used| Region { name: name.into(), capacity, used };
    let total = EpochStats {
        package_reads: 90,
        package_bytes: 400,
        package_bytes_served: 300,
        pack_reads: 7,
        pack_bytes_read: 70,
        pack_bytes_written: 700,
        packages_lost: 2,
        overdue: 1,
        ..EpochStats::default()
    };
    let job = JobStats {
        job: "run".into(),
        regions: vec![region("h", 90, 80), region("l", 10, 5)],
        notes: [("still".to_owned(), 0.0), ("fresh".to_owned(), 0.25)].into(),
        packages: Some(PackageStats {
            packages: 5,
            samples: 600,
            bytes: 7_000,
            packing: 1,
            ..Default::default()
        }),
        total: Some(total),
        ..JobStats::default()
    };
    let text = render(&Stats { server: None, jobs: vec![job, JobStats::default()] });
    let labels = "job=\"run\",strategy=\"\",policy=\"\"";
    for line in [
        format!("hotset_region_capacity_bytes{{{labels},region=\"h\"}} 90"),
        format!("hotset_region_used_bytes{{{labels},region=\"l\"}} 5"),
        format!("hotset_plan_note{{{labels},note=\"fresh\"}} 0.25"),
        format!("hotset_packages{{{labels}}} 5"),
        format!("hotset_packages_samples{{{labels}}} 600"),
        format!("hotset_packages_bytes{{{labels}}} 7000"),
        format!("hotset_packages_packing{{{labels}}} 1"),
        format!("hotset_package_reads_total{{{labels}}} 90"),
        format!("hotset_package_bytes_total{{{labels}}} 400"),
        format!("hotset_package_bytes_served_total{{{labels}}} 300"),
        format!("hotset_packages_lost_total{{{labels}}} 2"),
        format!("hotset_pack_reads_total{{{labels}}} 7"),
        format!("hotset_pack_bytes_read_total{{{labels}}} 70"),
        format!("hotset_pack_bytes_written_total{{{labels}}} 700"),
        format!("hotset_overdue_total{{{labels}}} 1"),
        "hotset_packages{job=\"\",strategy=\"\",policy=\"\"} 0".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}
