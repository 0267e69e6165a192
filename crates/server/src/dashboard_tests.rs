//! The dashboard for Grafana, `examples/grafana/hotset.json`, beside the table of metrics: it names none that there is not.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;

use super::*;

/// What Prometheus adds to what it scrapes.
const SCRAPED: &str = "instance";

fn dashboard() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/grafana/hotset.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Every text below a key of that name.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if name == key => found.push(text),
                    _ => texts(field, key, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

/// All queries: of panels, and of the variables above them.
fn queries(dashboard: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    texts(dashboard, "expr", &mut found);
    texts(dashboard, "query", &mut found);
    found.retain(|query| *query != "prometheus");
    found
}

/// The metrics that a query names, with what is before and behind each.
fn named(query: &str) -> Vec<(&str, &str, &str)> {
    let part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let begins = query.match_indices("hotset_").map(|(at, _)| at);
    let metric = |at: usize| {
        let end = query[at..].find(|character| !part(character)).map_or(query.len(), |length| at + length);
        (&query[..at], &query[at..end], &query[end..])
    };
    begins.map(metric).collect()
}

fn metric(name: &str) -> &'static Metric {
    METRICS.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("there is no metric `{name}`"))
}

fn labels(metric: &Metric) -> Vec<&'static str> {
    match metric.source {
        Source::Server(_) => vec![],
        Source::Node(_) => vec!["node"],
        Source::ServerBy(label, _) => vec![label],
        Source::Job(_) => vec!["job", "strategy", "policy"],
        Source::Labelled(label, _) => vec!["job", "strategy", "policy", label],
    }
}

/// The labels by which `{...}` behind a metric chooses.
fn chosen(behind: &str) -> Vec<&str> {
    let inside =
        behind.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(inside, _)| inside);
    let labels = inside.split(", ").filter_map(|one| one.split_once('='));
    labels.map(|(label, _)| label.trim_end_matches('!')).collect()
}

#[test]
fn every_metric_of_the_dashboard_is_there_with_the_labels_that_it_asks_for() {
    let dashboard = dashboard();
    let mut seen = HashSet::new();
    for query in queries(&dashboard) {
        for (_, name, behind) in named(query) {
            let known = labels(metric(name));
            for label in chosen(behind) {
                assert!(
                    label == SCRAPED || known.contains(&label),
                    "`{name}` has no label `{label}`: {query}"
                );
            }
            if let Some((_, rest)) = query.split_once("sum by (") {
                let by = rest.split_once(')').unwrap().0;
                assert!(known.contains(&by), "`{name}` has no label `{by}`: {query}");
            }
            seen.insert(name);
        }
    }
    assert!(seen.len() > 30, "it shows {} metrics", seen.len());
}

#[test]
fn counters_are_shown_as_rates_and_gauges_as_they_are() {
    let dashboard = dashboard();
    let mut queries = Vec::new();
    texts(&dashboard, "expr", &mut queries);
    for query in queries {
        assert!(!named(query).is_empty(), "{query}");
        for (before, name, behind) in named(query) {
            let rate = before.ends_with("rate(") && behind.contains("[$__rate_interval]");
            assert_eq!(rate, metric(name).kind == Kind::Counter, "{query}");
        }
    }
}

#[test]
fn legends_name_labels_that_their_metrics_have() {
    let dashboard = dashboard();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let (query, legend) =
                (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
            let (_, name, _) = named(query)[0];
            for part in legend.split("{{").skip(1) {
                let label = part.split_once("}}").unwrap().0;
                let known = labels(metric(name));
                assert!(label == SCRAPED || known.contains(&label), "{legend}: {query}");
            }
        }
    }
}

#[test]
fn panels_have_numbers_of_their_own_and_say_what_they_show() {
    let dashboard = dashboard();
    let mut numbers = HashSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let said =
            panel["type"] == "row" || panel["description"].as_str().is_some_and(|text| !text.is_empty());
        assert!(said && panel["title"].is_string(), "{panel}");
        let place = &panel["gridPos"];
        let (x, w) = (place["x"].as_u64().unwrap(), place["w"].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
    }
}

#[test]
#[should_panic(expected = "there is no metric `hotset_nosuch_total`")]
fn a_metric_that_there_is_not_is_found_out() {
    for (_, name, _) in named("rate(hotset_nosuch_total[5m])") {
        metric(name);
    }
}
