//! What servers and jobs tell of themselves, in words and tables.
//!
//! A job is its settings, then what it keeps and where, then one row for each of its last epochs. What a job does
//! not have (regions, packages, notes of its strategy) takes no line.

use hotset_core::bytes::human;
use hotset_wire::proto::{
    ContentStats, EpochStats, JobStats, NodeStats, PackageStats, RankWait, ServerStats, SharedStats,
};

use crate::rates::{Progress, Rate};
use crate::runs::time;
use crate::servers::Found;
use crate::table::{Column, folded, wrapped};

/// Lines that go on are moved in behind those they go on from.
const INDENT: &str = "    ";

/// All servers, their jobs, and the last `epochs` of each, in lines of `width`.
pub(crate) fn render(found: &[Found], epochs: usize, width: usize) -> String {
    if found.is_empty() {
        return "no Hotset server is running for this user".into();
    }
    let mut texts = Vec::new();
    for one in found {
        let mut lines = server(&one.socket, one.stats.server.as_ref());
        if one.stats.jobs.is_empty() {
            lines.push("  no jobs".into());
        }
        texts.push(wrapped_all(&lines, width));
        texts.extend(one.stats.jobs.iter().map(|each| job(each, one.rates.get(&each.job), epochs, width)));
    }
    texts.join("\n\n")
}

pub(crate) fn wrapped_all(lines: &[String], width: usize) -> String {
    let lines: Vec<String> = lines.iter().map(|line| wrapped(line, INDENT, width)).collect();
    lines.join("\n")
}

/// A server: which it is, its memory and clients, and its part in what it belongs to.
pub(crate) fn server(socket: &str, stats: Option<&ServerStats>) -> Vec<String> {
    let Some(stats) = stats else { return vec![socket.to_owned()] };
    let limit =
        if stats.memory_limit > 0 { format!(" of {}", human(stats.memory_limit)) } else { String::new() };
    let spared = if stats.spared > 0 {
        format!(", {} spared by equal samples", human(stats.spared))
    } else {
        String::new()
    };
    let memory = format!(
        "  cache {}{limit} + reserve {}, {} in use ({} passing{spared}), {}, {}, {} of {} reads in flight",
        human(stats.capacity),
        human(stats.reserve),
        human(stats.occupied),
        human(stats.passing),
        counted(stats.readers, "reader"),
        counted(stats.leases, "lease"),
        stats.reads_in_flight,
        stats.concurrency,
    );
    let mut lines =
        vec![format!("server {} at {socket}, up {:.0} s", stats.pid, stats.uptime_seconds), memory];
    lines.extend(shared_cache(stats));
    lines.extend(contents(stats));
    lines.extend(node(stats));
    lines.extend(refused(stats));
    lines
}

/// The shared cache that the server asks, where it asks one.
fn shared_cache(stats: &ServerStats) -> Option<String> {
    let SharedStats { socket, asked, found, failed, wrong, offered, dropped } = stats.shared.as_ref()?;
    Some(format!(
        "  shared cache {socket}: asked for {asked}, {found} found, {wrong} wrong; offered {offered}, {dropped} dropped; {}",
        counted(*failed, "failure")
    ))
}

/// What a shared cache keeps.
fn contents(stats: &ServerStats) -> Option<String> {
    let ContentStats { contents, asked, found, put } = stats.contents.as_ref()?;
    Some(format!("  {}; asked for {asked}, {found} found; {put} put", counted(*contents, "content")))
}

/// The server's part in a cluster, where it is a node of one.
fn node(stats: &ServerStats) -> Option<String> {
    let NodeStats { name, nodes, member, draining, home_of, follows, given, asked, .. } =
        stats.node.as_ref()?;
    let state = match (member, draining) {
        (false, _) => ", NO MEMBER NOW: its lease in etcd has run out",
        (true, true) => ", drains",
        (true, false) => "",
    };
    let (given, asked) = (given.unwrap_or_default(), asked.unwrap_or_default());
    Some(format!(
        "  node {name} of {nodes}{state}: home of {}, follows {home}; gave {} ({}), got {} ({}), {}",
        counted(*home_of, "job"),
        counted(given.samples, "sample"),
        human(given.bytes),
        asked.samples,
        human(asked.bytes),
        counted(asked.failed, "failure"),
        home = follows,
    ))
}

/// What the server refused, where it did.
fn refused(stats: &ServerStats) -> Option<String> {
    let counts: Vec<String> =
        stats.refused.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    (!counts.is_empty()).then(|| format!("  refused: {}", counts.join(", ")))
}

/// So many of a thing.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// What is trained of a dataset, and what stays of it.
pub(crate) fn scheme(job: &JobStats) -> String {
    if job.strategy.is_empty() {
        format!("kept by {}", job.policy)
    } else {
        format!("{} + {}", job.strategy, job.policy)
    }
}

/// What a job does now.
fn now(job: &JobStats, rate: &Rate) -> String {
    let Rate { samples_per_second, storage_bytes_per_second, served_bytes_per_second, seconds_left } = rate;
    let epoch = Progress::of(job).map_or_else(String::new, |progress| {
        format!("; epoch {} at {} %", progress.epoch, progress.percent())
    });
    let left = seconds_left.map_or_else(String::new, |left| format!(", {} left", time(left as u64)));
    format!(
        "  now: {samples_per_second:.0} samples/s, about {}/s; {}/s from storage{epoch}{left}",
        human(*served_bytes_per_second as u64),
        human(*storage_bytes_per_second as u64),
    )
}

/// A job, and how fast it is where that is known.
pub(crate) fn job(job: &JobStats, rate: Option<&Rate>, epochs: usize, width: usize) -> String {
    let mut lines = vec![
        format!("job {} · {} · {}", job.job, scheme(job), job.place),
        format!(
            "  {} samples, {}; keeps {} samples, {} of {}{}",
            job.samples,
            human(job.bytes),
            job.resident_samples,
            human(job.resident_bytes),
            human(job.capacity),
            shared(job),
        ),
    ];
    lines.extend(rate.map(|rate| now(job, rate)));
    lines.extend(eligibility(job));
    lines.extend(regions(job));
    lines.extend(job.packages.as_ref().map(packages));
    lines.extend(notes(job));
    lines.extend(remarks(job).map(|remark| format!("  note: {remark}")));
    let head = wrapped_all(&lines, width);
    let from = job.epochs.len().saturating_sub(epochs);
    let mut rows: Vec<(String, &EpochStats)> =
        job.epochs[from..].iter().map(|epoch| (epoch.epoch.to_string(), epoch)).collect();
    rows.extend(job.ahead.iter().map(|epoch| (format!("{} ahead", epoch.epoch), epoch)));
    rows.extend(
        job.unplanned.iter().filter(|stats| stats.served > 0).map(|stats| ("unplanned".into(), stats)),
    );
    if rows.is_empty() {
        return head;
    }
    let packs = job.packages.is_some() || rows.iter().any(|(_, epoch)| epoch.package_reads > 0);
    format!("{head}\n{}", table(&rows, packs, width))
}

/// That other jobs keep samples in the same cache, where they do.
fn shared(job: &JobStats) -> String {
    if job.cache_members < 2 {
        return String::new();
    }
    let hits = job.total.as_ref().map_or(0, |total| total.shared_hits);
    format!(", shared by {} jobs ({} on what others brought)", job.cache_members, counted(hits, "hit"))
}

/// Whether what a job reads is kept for it, and why, where jobs compete.
fn eligibility(job: &JobStats) -> Option<String> {
    let when = match job.benefit_epoch {
        _ if job.probing => ", being measured now".to_owned(),
        Some(epoch) => format!(", measured in epoch {epoch}"),
        None => String::new(),
    };
    (!job.eligibility.is_empty()).then(|| format!("  {}{when}", job.eligibility))
}

/// The parts of a capacity that has several, and how it is split.
fn regions(job: &JobStats) -> Option<String> {
    let whole: u64 = job.regions.iter().map(|region| region.capacity).sum();
    let share = |part: u64| if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    let parts: Vec<String> = job
        .regions
        .iter()
        .map(|region| {
            let split = share(region.capacity);
            format!("{} {} of {} ({split:.0} %)", region.name, human(region.used), human(region.capacity))
        })
        .collect();
    (parts.len() > 1).then(|| format!("  regions: {}", parts.join(", ")))
}

fn packages(packages: &PackageStats) -> String {
    let PackageStats { packages, samples, packing, place, bytes, .. } = packages;
    let bytes = human(*bytes);
    if place.is_empty() {
        format!("  packages: {packages} runs of {samples} samples, {bytes}, in the dataset's own objects")
    } else {
        format!("  packages: {packages} with {samples} samples, {bytes}, {packing} being packed, at {place}")
    }
}

/// What the strategy says of its last plan.
fn notes(job: &JobStats) -> Option<String> {
    let mut names: Vec<(&String, f64)> = job.notes.iter().map(|(name, figure)| (name, *figure)).collect();
    names.sort_by(|a, b| a.0.cmp(b.0));
    let words = names.into_iter().filter_map(|(name, figure)| match name.as_str() {
        "still" => (figure > 0.0).then(|| "a full pass over a static cache".to_owned()),
        _ => Some(format!("{name} {}", (figure * 1000.0).round() / 1000.0)),
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| format!("  last plan: {}", words.join(", ")))
}

/// What a user should know, as the server says it and as its counters do.
fn remarks(job: &JobStats) -> impl Iterator<Item = String> + '_ {
    let total = job.total.as_ref();
    let count = |read: fn(&EpochStats) -> u64| total.map(read).filter(|&count| count > 0);
    let overdue = count(|total| total.overdue);
    let lost = count(|total| total.packages_lost);
    let overdue = overdue.map(|count| format!("plans made without waiting longer for a rank: {count}"));
    let lost =
        lost.map(|count| format!("packages found torn, damaged, foreign or gone, and dropped: {count}"));
    job.remarks.iter().cloned().chain(overdue).chain(lost)
}

fn table(rows: &[(String, &EpochStats)], packs: bool, width: usize) -> String {
    let column = |title, cell: fn(&EpochStats) -> String| {
        Column::new(title, rows.iter().map(|(_, epoch)| cell(epoch)).collect())
    };
    let name = Column::new("epoch", rows.iter().map(|(name, _)| name.clone()).collect());
    let servings = vec![
        column("served", |epoch| epoch.served.to_string()),
        column("hit", |epoch| percent(epoch, epoch.hit)),
        column("hit\n(paper's)", |epoch| percent(epoch, epoch.hit + epoch.packed)),
        column("packed", |epoch| percent(epoch, epoch.packed)),
        column("single", |epoch| percent(epoch, epoch.single)),
        column("coverage", |epoch| share(epoch, epoch.coverage)),
    ];
    let mut storage = vec![
        column("reads", |epoch| epoch.storage_reads.to_string()),
        column("read", |epoch| human(epoch.storage_bytes)),
    ];
    if packs {
        storage.push(column("requests", |epoch| epoch.storage_requests.to_string()));
        // Samples served from packages for each request that read one.
        storage.push(column("packed a\nrequest", |epoch| match (epoch.packed, epoch.package_reads) {
            (0, _) | (_, 0) => "-".into(),
            (packed, reads) => format!("{:.0}", packed as f64 / reads as f64),
        }));
        storage.push(column("waste", |epoch| share(epoch, epoch.package_waste)));
    }
    // What no plan asked for, and what a plan asked for and was at hand: both are in the reads beside it.
    if rows.iter().any(|(_, epoch)| epoch.recovery_requests > 0) {
        storage.push(column("recovery\nreads", |epoch| epoch.recovery_reads.to_string()));
        storage.push(column("recovery\nrequests", |epoch| epoch.recovery_requests.to_string()));
    }
    if rows.iter().any(|(_, epoch)| epoch.probe_reads > 0) {
        storage.push(column("probe\nreads", |epoch| epoch.probe_reads.to_string()));
    }
    if rows.iter().any(|(_, epoch)| epoch.joined > 0) {
        storage.push(column("joined", |epoch| epoch.joined.to_string()));
    }
    if rows.iter().any(|(_, epoch)| epoch.peer_reads > 0) {
        storage.push(column("peer\nreads", |epoch| epoch.peer_reads.to_string()));
    }
    let waiting =
        vec![column("late", |epoch| epoch.late.to_string()), column("wait", |epoch| seconds(waited(epoch)))];
    folded(&name, vec![servings, storage, waiting], width)
}

/// How many seconds the batches of an epoch waited in all.
pub(crate) fn waited(epoch: &EpochStats) -> f64 {
    epoch.waits.iter().fold(0.0, |sum, wait| sum + wait.sum)
}

pub(crate) fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

/// How long the batches of each rank waited in an epoch; nothing where none was answered.
pub(crate) fn ranks(epoch: &EpochStats, width: usize) -> Option<String> {
    let column =
        |title, cell: fn(&RankWait) -> String| Column::new(title, epoch.waits.iter().map(cell).collect());
    let figures = vec![
        column("batches", |wait| wait.batches.to_string()),
        column("waited", |wait| seconds(wait.sum)),
        column("p50", |wait| milliseconds(wait.p50)),
        column("p95", |wait| milliseconds(wait.p95)),
        column("p99", |wait| milliseconds(wait.p99)),
    ];
    let name = column("rank", |wait| wait.rank.to_string());
    (!epoch.waits.is_empty()).then(|| folded(&name, vec![figures], width))
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1_000.0)
}

/// A share of an epoch's servings; nothing is known of one that has served nothing.
fn share(epoch: &EpochStats, part: f64) -> String {
    if epoch.served == 0 { "-".into() } else { format!("{:.1} %", 100.0 * part) }
}

pub(crate) fn percent(epoch: &EpochStats, part: u64) -> String {
    share(epoch, part as f64 / epoch.served as f64)
}

#[cfg(test)]
#[path = "figures_tests.rs"]
mod tests;
