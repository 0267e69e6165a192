//! Every metric: its name, kind, labels and meaning in one table.
//!
//! What a server counts is told on request in the text format that Prometheus scrapes. Nothing is counted here:
//! each metric is a name and a way to read a figure off the same [`Stats`] that `hotset stats` shows.
//! `docs/metrics.md` is made from this table.

use std::fmt::Write;

use crate::access::REASONS;
use hotset_wire::proto::{
    EpochStats, JobStats, NodeStats, PackageStats, PeerStats, RankWait, Region, ServerStats, Stats,
};

/// How a figure moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Up only, until the job or server ends.
    Counter,
    /// Up and down.
    Gauge,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// Where a figure is read.
enum Source {
    Server(fn(&ServerStats) -> f64),
    /// One figure of the server for each value of a label.
    ServerBy(&'static str, fn(&ServerStats) -> Vec<(String, f64)>),
    /// One figure of the server as a node of a cluster, where it is one.
    Node(fn(&NodeStats) -> f64),
    Job(fn(&JobStats) -> f64),
    /// One figure for each value of a further label.
    Labelled(&'static str, fn(&JobStats) -> Vec<(String, f64)>),
}

struct Metric {
    name: &'static str,
    kind: Kind,
    meaning: &'static str,
    source: Source,
}

const fn server(
    name: &'static str,
    kind: Kind,
    meaning: &'static str,
    read: fn(&ServerStats) -> f64,
) -> Metric {
    Metric { name, kind, meaning, source: Source::Server(read) }
}

const fn job(name: &'static str, kind: Kind, meaning: &'static str, read: fn(&JobStats) -> f64) -> Metric {
    Metric { name, kind, meaning, source: Source::Job(read) }
}

/// A figure of a node; `name` labels it.
const fn node(name: &'static str, kind: Kind, meaning: &'static str, read: fn(&NodeStats) -> f64) -> Metric {
    Metric { name, kind, meaning, source: Source::Node(read) }
}

const fn labelled(
    name: &'static str,
    kind: Kind,
    label: &'static str,
    meaning: &'static str,
    read: fn(&JobStats) -> Vec<(String, f64)>,
) -> Metric {
    Metric { name, kind, meaning, source: Source::Labelled(label, read) }
}

/// What went one way between nodes, by what it was.
fn peers(stats: Option<&PeerStats>) -> Vec<(String, f64)> {
    let Some(stats) = stats else { return Vec::new() };
    let figures = [
        ("requests", stats.requests),
        ("samples", stats.samples),
        ("declined", stats.declined),
        ("failed", stats.failed),
        ("wrong", stats.wrong),
        ("refused", stats.refused),
        ("busy", stats.busy),
    ];
    figures.map(|(what, figure)| (what.to_owned(), figure as f64)).into()
}

/// A figure of all of a job's servings so far, planned or not.
fn total(job: &JobStats, read: fn(&EpochStats) -> u64) -> f64 {
    job.total.as_ref().map_or(0.0, |total| read(total) as f64)
}

/// The newest epoch that was served from.
fn newest(job: &JobStats) -> Option<&EpochStats> {
    job.epochs.iter().rev().find(|epoch| epoch.served > 0)
}

use Kind::{Counter, Gauge};

static METRICS: &[Metric] = &[
    server("hotset_uptime_seconds", Gauge, "how long the server runs", |s| s.uptime_seconds),
    server("hotset_capacity_bytes", Gauge, "bytes granted to jobs", |s| s.capacity as f64),
    server("hotset_reserve_bytes", Gauge, "bytes beside them for what is only passing", |s| s.reserve as f64),
    server("hotset_arena_bytes", Gauge, "bytes in shared memory segments", |s| s.arena as f64),
    server("hotset_occupied_bytes", Gauge, "bytes of samples in the arena", |s| s.occupied as f64),
    server("hotset_passing_bytes", Gauge, "those of them that no policy keeps", |s| s.passing as f64),
    server("hotset_spared_bytes", Gauge, "bytes that several policies keep and memory has once", |s| {
        s.spared as f64
    }),
    server("hotset_moved_bytes_total", Counter, "bytes moved in the arena to make room", |s| {
        s.moved_bytes as f64
    }),
    server("hotset_leases", Gauge, "batches that readers hold", |s| s.leases as f64),
    server("hotset_readers", Gauge, "clients that have read", |s| s.readers as f64),
    server("hotset_reads_in_flight", Gauge, "storage reads in flight", |s| s.reads_in_flight as f64),
    server("hotset_concurrency", Gauge, "the most storage reads in flight", |s| s.concurrency as f64),
    Metric {
        name: "hotset_shared_total",
        kind: Counter,
        meaning: "contents that a shared cache was asked for, gave, gave wrongly, was given or was not, and times it failed",
        source: Source::ServerBy("what", |s| {
            let Some(shared) = &s.shared else { return Vec::new() };
            let figures = [
                ("asked", shared.asked),
                ("found", shared.found),
                ("wrong", shared.wrong),
                ("failed", shared.failed),
                ("offered", shared.offered),
                ("dropped", shared.dropped),
            ];
            figures.map(|(what, figure)| (what.to_owned(), figure as f64)).into()
        }),
    },
    node("hotset_nodes", Gauge, "nodes of its cluster that the server sees, itself included", |n| {
        n.nodes as f64
    }),
    node("hotset_node_member", Gauge, "1 if its lease in etcd surely lives", |n| {
        f64::from(u8::from(n.member))
    }),
    node("hotset_node_draining", Gauge, "1 if it is about to leave the cluster", |n| {
        f64::from(u8::from(n.draining))
    }),
    node("hotset_node_home_jobs", Gauge, "jobs whose plans it makes", |n| n.home_of as f64),
    node(
        "hotset_node_followed_jobs",
        Gauge,
        "jobs that it has open and another node makes the plans of",
        |n| n.follows as f64,
    ),
    Metric {
        name: "hotset_node_given_total",
        kind: Counter,
        meaning: "what other nodes asked of it: calls, samples given, samples declined or failed, calls refused or told to come back",
        source: Source::ServerBy("what", |s| peers(s.node.as_ref().and_then(|node| node.given.as_ref()))),
    },
    Metric {
        name: "hotset_node_asked_total",
        kind: Counter,
        meaning: "what it asked of other nodes, in the same words; `wrong`: samples that came with another checksum",
        source: Source::ServerBy("what", |s| peers(s.node.as_ref().and_then(|node| node.asked.as_ref()))),
    },
    node("hotset_node_given_bytes_total", Counter, "bytes of samples that it gave to other nodes", |n| {
        n.given.as_ref().map_or(0.0, |given| given.bytes as f64)
    }),
    node("hotset_node_asked_bytes_total", Counter, "bytes of samples that other nodes gave to it", |n| {
        n.asked.as_ref().map_or(0.0, |asked| asked.bytes as f64)
    }),
    Metric {
        name: "hotset_refused_total",
        kind: Counter,
        meaning: "connections and requests refused: of another user, beyond a quota, no frames of ours, or wrong content",
        source: Source::ServerBy("reason", |s| {
            let count = |reason: &str| s.refused.get(reason).copied().unwrap_or_default();
            REASONS.iter().map(|reason| ((*reason).to_owned(), count(reason) as f64)).collect()
        }),
    },
    job("hotset_dataset_samples", Gauge, "samples of the job's dataset", |j| j.samples as f64),
    job("hotset_dataset_bytes", Gauge, "bytes of the job's dataset", |j| j.bytes as f64),
    job("hotset_job_capacity_bytes", Gauge, "bytes that the job's cache may keep", |j| j.capacity as f64),
    job("hotset_cache_jobs", Gauge, "jobs that share its cache, itself included", |j| j.cache_members as f64),
    job("hotset_benefit", Gauge, "time of a batch from storage over one in memory; 0: not measured", |j| {
        j.benefit.unwrap_or(0.0)
    }),
    job("hotset_eligible", Gauge, "1 if what the job reads is kept for it, 0 if it gains too little", |j| {
        f64::from(u8::from(j.eligible))
    }),
    job("hotset_resident_samples", Gauge, "samples its policy keeps", |j| j.resident_samples as f64),
    job("hotset_resident_bytes", Gauge, "bytes its policy keeps", |j| j.resident_bytes as f64),
    labelled(
        "hotset_region_capacity_bytes",
        Gauge,
        "region",
        "parts of the capacity, by what they are for",
        |j| regions(j, |region| region.capacity),
    ),
    labelled("hotset_region_used_bytes", Gauge, "region", "bytes kept in each of them", |j| {
        regions(j, |region| region.used)
    }),
    labelled("hotset_plan_note", Gauge, "note", "what the strategy says of its last plan", |j| {
        let mut notes: Vec<(String, f64)> =
            j.notes.iter().map(|(name, note)| (name.clone(), *note)).collect();
        notes.sort_by(|a, b| a.0.cmp(&b.0));
        notes
    }),
    job("hotset_packages", Gauge, "packages with live samples", |j| packages(j, |p| p.packages)),
    job("hotset_packages_samples", Gauge, "live samples in packages", |j| packages(j, |p| p.samples)),
    job("hotset_packages_bytes", Gauge, "bytes that reading all of them would cost", |j| {
        packages(j, |p| p.bytes)
    }),
    job("hotset_packages_packing", Gauge, "packages chosen and not yet written", |j| {
        packages(j, |p| p.packing)
    }),
    job("hotset_epoch", Gauge, "the newest epoch that was served from", |j| {
        newest(j).map_or(-1.0, |epoch| epoch.epoch as f64)
    }),
    job("hotset_epoch_coverage", Gauge, "share of the dataset served in that epoch", |j| {
        newest(j).map_or(0.0, |epoch| epoch.coverage)
    }),
    labelled("hotset_served_total", Counter, "how", "servings, by how their bytes came", |j| {
        let hit = ("hit".to_owned(), total(j, |e| e.hit));
        let packed = ("packed".to_owned(), total(j, |e| e.packed));
        vec![hit, packed, ("single".to_owned(), total(j, |e| e.single))]
    }),
    job("hotset_peer_hits_total", Counter, "those of the hits that went to another node", |j| {
        total(j, |e| e.hit_peer)
    }),
    job("hotset_substituted_total", Counter, "slots that serve another sample than selected", |j| {
        total(j, |e| e.substituted)
    }),
    job("hotset_storage_reads_total", Counter, "samples fetched from storage", |j| {
        total(j, |e| e.storage_reads)
    }),
    job("hotset_shared_hits_total", Counter, "hits on samples that another job has brought", |j| {
        total(j, |e| e.shared_hits)
    }),
    job("hotset_other_reads_total", Counter, "those of them that were for no serving", |j| {
        total(j, |e| e.other_reads)
    }),
    job("hotset_storage_requests_total", Counter, "requests made to storage, repeated ones included", |j| {
        total(j, |e| e.storage_requests)
    }),
    job("hotset_storage_bytes_total", Counter, "bytes that came from storage", |j| {
        total(j, |e| e.storage_bytes)
    }),
    job("hotset_package_reads_total", Counter, "those of the requests that read a package", |j| {
        total(j, |e| e.package_reads)
    }),
    job("hotset_package_bytes_total", Counter, "bytes of samples in packages that were read", |j| {
        total(j, |e| e.package_bytes)
    }),
    job(
        "hotset_package_bytes_served_total",
        Counter,
        "those of them that were served; the rest is waste",
        |j| total(j, |e| e.package_bytes_served),
    ),
    job("hotset_packages_lost_total", Counter, "packages found torn, damaged, foreign or gone", |j| {
        total(j, |e| e.packages_lost)
    }),
    job("hotset_pack_reads_total", Counter, "samples fetched only to be packed", |j| {
        total(j, |e| e.pack_reads)
    }),
    job("hotset_pack_bytes_read_total", Counter, "bytes fetched only to be packed", |j| {
        total(j, |e| e.pack_bytes_read)
    }),
    job("hotset_pack_bytes_written_total", Counter, "bytes of packages written", |j| {
        total(j, |e| e.pack_bytes_written)
    }),
    job("hotset_overdue_total", Counter, "plans made without waiting longer for a rank", |j| {
        total(j, |e| e.overdue)
    }),
    job("hotset_recovery_reads_total", Counter, "samples fetched that no plan asked for", |j| {
        total(j, |e| e.recovery_reads)
    }),
    job(
        "hotset_recovery_requests_total",
        Counter,
        "requests that no plan asked for, repeated ones included",
        |j| total(j, |e| e.recovery_requests),
    ),
    job("hotset_recovery_bytes_total", Counter, "bytes fetched that no plan asked for", |j| {
        total(j, |e| e.recovery_bytes)
    }),
    job(
        "hotset_probe_reads_total",
        Counter,
        "samples that are kept and were read to measure the benefit",
        |j| total(j, |e| e.probe_reads),
    ),
    job("hotset_joined_total", Counter, "samples that a plan asked for and another job had", |j| {
        total(j, |e| e.joined)
    }),
    job(
        "hotset_peer_reads_total",
        Counter,
        "samples that came from a shared cache in place of storage",
        |j| total(j, |e| e.peer_reads),
    ),
    job("hotset_peer_bytes_total", Counter, "their bytes", |j| total(j, |e| e.peer_bytes)),
    job("hotset_abandoned_total", Counter, "slots that no reader asked for", |j| total(j, |e| e.abandoned)),
    job("hotset_spilled_total", Counter, "batches answered from memory of their own", |j| {
        total(j, |e| e.spilled)
    }),
    job("hotset_late_total", Counter, "servings that a reader waited for", |j| total(j, |e| e.late)),
    labelled(
        "hotset_waits_total",
        Counter,
        "reason",
        "batches that waited, and epochs begun without their plan",
        |j| {
            let counts = [
                ("storage", total(j, |e| e.storage_waits)),
                ("node", total(j, |e| e.node_waits)),
                ("memory", total(j, |e| e.memory_waits)),
                ("probe", total(j, |e| e.probe_waits)),
                ("plan", total(j, |e| e.plan_waits)),
            ];
            counts.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect()
        },
    ),
    job("hotset_failed_total", Counter, "reads that ended in an error", |j| total(j, |e| e.failed)),
    labelled("hotset_scores_total", Counter, "verdict", "scores reported, taken or refused", |j| {
        let taken = ("taken".to_owned(), total(j, |e| e.reported));
        vec![taken, ("refused".to_owned(), total(j, |e| e.rejected_scores))]
    }),
    labelled("hotset_batches_total", Counter, "rank", "batches answered", |j| {
        waits(j, |wait| wait.batches as f64)
    }),
    labelled("hotset_wait_seconds_total", Counter, "rank", "time that batches waited for storage", |j| {
        waits(j, |wait| wait.sum)
    }),
];

fn regions(job: &JobStats, read: fn(&Region) -> u64) -> Vec<(String, f64)> {
    job.regions.iter().map(|region| (region.name.clone(), read(region) as f64)).collect()
}

/// A figure of the job's packages; zero where it makes none.
fn packages(job: &JobStats, read: fn(&PackageStats) -> u64) -> f64 {
    job.packages.as_ref().map_or(0.0, |packages| read(packages) as f64)
}

fn waits(job: &JobStats, read: fn(&RankWait) -> f64) -> Vec<(String, f64)> {
    let waits = job.total.iter().flat_map(|total| &total.waits);
    waits.map(|wait| (wait.rank.to_string(), read(wait))).collect()
}

/// All figures in the text format that Prometheus scrapes.
pub(crate) fn render(stats: &Stats) -> String {
    let mut text = String::new();
    for metric in METRICS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {} {}", metric.name, metric.meaning);
        let _ = writeln!(text, "# TYPE {} {}", metric.name, metric.kind.name());
        if let Source::Server(read) = metric.source {
            if let Some(server) = &stats.server {
                let _ = writeln!(text, "{} {}", metric.name, read(server));
            }
            continue;
        }
        let node = stats.server.as_ref().and_then(|server| server.node.as_ref());
        if let Source::Node(read) = metric.source {
            if let Some(node) = node {
                let _ = writeln!(text, "{}{{node=\"{}\"}} {}", metric.name, escape(&node.name), read(node));
            }
            continue;
        }
        if let (Source::ServerBy(label, read), Some(server)) = (&metric.source, &stats.server) {
            for (value, figure) in read(server) {
                let _ = writeln!(text, "{}{{{label}=\"{}\"}} {figure}", metric.name, escape(&value));
            }
            continue;
        }
        for job in &stats.jobs {
            let labels = format!(
                "job=\"{}\",strategy=\"{}\",policy=\"{}\"",
                escape(&job.job),
                escape(&job.strategy),
                escape(&job.policy)
            );
            match &metric.source {
                Source::Server(_) | Source::ServerBy(..) | Source::Node(_) => {}
                Source::Job(read) => {
                    let _ = writeln!(text, "{}{{{labels}}} {}", metric.name, read(job));
                }
                Source::Labelled(label, read) => {
                    for (value, figure) in read(job) {
                        let value = escape(&value);
                        let _ = writeln!(text, "{}{{{labels},{label}=\"{value}\"}} {figure}", metric.name);
                    }
                }
            }
        }
    }
    text
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "dashboard_tests.rs"]
mod dashboard_tests;
