//! Tables for people.

use std::io::Write;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use hotset_core::bytes::human;
use hotset_wire::proto::{EpochStats, JobStats, ServerStats};

use crate::stats::Found;

/// All servers, their jobs, and the last `epochs` of each.
pub(crate) fn render(found: &[Found], epochs: usize) -> String {
    if found.is_empty() {
        return "no server of yours runs".into();
    }
    let mut text = String::new();
    for one in found {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&server(&one.socket, one.stats.server.as_ref()));
        for job in &one.stats.jobs {
            text.push_str("\n\n");
            text.push_str(&self::job(job, epochs));
        }
        if one.stats.jobs.is_empty() {
            text.push_str("\n  no jobs");
        }
    }
    text
}

/// Rows without a head, in as much width as the terminal has.
pub(crate) fn plain(rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    rows.for_each(|row| {
        table.add_row(row);
    });
    table.to_string()
}

/// Writes to standard output. A reader that closed the pipe has seen enough.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn server(socket: &str, stats: Option<&ServerStats>) -> String {
    let Some(stats) = stats else { return socket.to_owned() };
    let limit =
        if stats.memory_limit > 0 { format!(" of {}", human(stats.memory_limit)) } else { String::new() };
    format!(
        "server {} at {socket}, up {:.0} s\n  cache {}{limit} + reserve {}, {} in use ({} passing), {} readers, \
         {} leases, {} of {} reads in flight",
        stats.pid,
        stats.uptime_seconds,
        human(stats.capacity),
        human(stats.reserve),
        human(stats.occupied),
        human(stats.passing),
        stats.readers,
        stats.leases,
        stats.reads_in_flight,
        stats.concurrency,
    )
}

fn job(job: &JobStats, epochs: usize) -> String {
    let what = if job.strategy.is_empty() {
        format!("kept by {}", job.policy)
    } else {
        format!("{} + {}", job.strategy, job.policy)
    };
    let head = format!(
        "job {} · {what} · {}\n  {} samples, {}; keeps {} samples, {} of {}",
        job.job,
        job.place,
        job.samples,
        human(job.bytes),
        job.resident_samples,
        human(job.resident_bytes),
        human(job.capacity),
    );
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["epoch", "served", "hit", "single", "coverage", "reads", "read", "late", "wait"]);
    let from = job.epochs.len().saturating_sub(epochs);
    for epoch in &job.epochs[from..] {
        // What is read ahead for an epoch that nobody has begun.
        let ahead = if epoch.served == 0 { " ahead" } else { "" };
        table.add_row(row(format!("{}{ahead}", epoch.epoch), epoch));
    }
    if let Some(unplanned) = job.unplanned.as_ref().filter(|stats| stats.served > 0) {
        table.add_row(row("unplanned".into(), unplanned));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if table.row_count() == 0 { head } else { format!("{head}\n{table}") }
}

fn row(name: String, epoch: &EpochStats) -> [String; 9] {
    let share = |part: u64| if epoch.served == 0 { 0.0 } else { 100.0 * part as f64 / epoch.served as f64 };
    let wait = epoch.waits.iter().fold(0.0, |sum, wait| sum + wait.sum);
    [
        name,
        epoch.served.to_string(),
        format!("{:.1} %", share(epoch.hit)),
        format!("{:.1} %", share(epoch.single)),
        format!("{:.1} %", 100.0 * epoch.coverage),
        epoch.storage_reads.to_string(),
        human(epoch.storage_bytes),
        epoch.late.to_string(),
        format!("{wait:.2} s"),
    ]
}

#[cfg(test)]
mod tests {
    use hotset_wire::proto::Stats;

    use super::*;

    #[test]
    fn a_job_shows_its_last_epochs_and_what_no_plan_asked_for() {
        let epoch = |epoch| EpochStats { epoch, served: 100, hit: 20, single: 80, ..EpochStats::default() };
        let job = JobStats {
            job: "run/train".into(),
            strategy: "uniform".into(),
            policy: "lru".into(),
            epochs: (0..9).map(epoch).collect(),
            unplanned: Some(EpochStats { served: 3, hit: 3, ..EpochStats::default() }),
            ..JobStats::default()
        };
        let stats = Stats { server: Some(ServerStats::default()), jobs: vec![job] };
        let text = render(&[Found { socket: "/run/x.sock".into(), stats }], 2);
        assert!(
            text.contains("uniform + lru") && text.contains("20.0 %") && text.contains("unplanned"),
            "{text}"
        );
        assert!(text.contains("\n 8 ") || text.contains("8 "), "{text}");
        assert!(!text.contains(" 6  "), "{text}");
    }
}
