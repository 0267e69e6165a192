//! `hotset runs`.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use hotset_core::bytes::human;
use hotset_core::{Error, Result};
use hotset_server::history::{Summary, summaries};

use crate::table::{self, Column};
use crate::{pack, place};

/// Show what came of the last trainings.
///
/// One line for each job that has ended: how long its epochs took and what share of that it waited, what it served and
/// what came from storage for that, in place of what plain reading would have taken (every sample, in a request of its own),
/// and what it waited for most: storage, other nodes, memory, or hardly anything (`training`). On a cluster each node has its
/// own part.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hotset runs                 # the last ten
  hotset runs -n 100 --job resnet50
  hotset runs --json | jq '.[-1].requests'")]
pub(crate) struct Runs {
    /// How many to show, the last ones
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    last: usize,
    /// Those of this job alone
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Where states of jobs are kept [default: state in $HOTSET_CACHE_DIR or ~/.cache/hotset]
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Runs {
    pub(crate) fn run(self) -> Result<()> {
        let directory = self
            .directory
            .or_else(place::state)
            .ok_or_else(|| Error::invalid("there is no home directory to look in: give `--directory`"))?;
        let mut found = summaries(&directory)?;
        found.retain(|summary| self.job.as_ref().is_none_or(|job| *job == summary.job));
        let found = &found[found.len().saturating_sub(self.last)..];
        let text = if self.json {
            pack::to_json(&found)?
        } else if found.is_empty() {
            format!("no training has ended yet that wrote to `{}`", directory.display())
        } else {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            rendered(found, now, table::width())
        };
        table::print(&format!("{text}\n"));
        Ok(())
    }
}

/// The lines, for a terminal of that width.
fn rendered(found: &[Summary], now: u64, width: usize) -> String {
    let column =
        |title, cell: &dyn Fn(&Summary) -> String| Column::new(title, found.iter().map(cell).collect());
    let share = |part: f64, all: f64| {
        if all > 0.0 { format!("{:.0} %", 100.0 * part / all) } else { "-".to_owned() }
    };
    let of = |part: u64, all: u64| share(part as f64, all as f64);
    table::folded(
        &column("job", &|summary| summary.job.clone()),
        vec![
            vec![
                column("ended", &|summary| ago(now.saturating_sub(summary.ended))),
                column("strategy+policy", &|summary| format!("{}+{}", summary.strategy, summary.policy)),
            ],
            vec![
                column("epochs", &|summary| summary.epochs.to_string()),
                column("took", &|summary| time(summary.seconds as u64)),
                column("waited", &|summary| share(summary.waited, summary.seconds)),
                column("limited by", &|summary| summary.limit.name().to_owned()),
            ],
            vec![
                column("served", &|summary| summary.served.to_string()),
                column("hit", &|summary| of(summary.hits, summary.served)),
                column("read", &|summary| human(summary.bytes)),
                column("of plain", &|summary| of(summary.bytes, summary.plain_bytes)),
                column("requests of plain", &|summary| of(summary.requests, summary.served)),
            ],
        ],
        width,
    )
}

/// How long ago, roughly.
fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// How long, roughly.
pub(crate) fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{:.1} h", seconds as f64 / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use hotset_server::history::Limit;

    use super::*;

    fn summary(job: &str) -> Summary {
        Summary {
            ended: 1_000_000,
            job: job.into(),
            strategy: "iis".into(),
            policy: "icache".into(),
            place: "s3://bucket/train".into(),
            epochs: 30,
            seconds: 9_000.0,
            waited: 900.0,
            served: 40_000,
            hits: 30_000,
            reads: 10_000,
            requests: 2_000,
            bytes: 10_000 << 10,
            plain_bytes: 40_000 << 10,
            limit: Limit::Storage,
        }
    }

    #[test]
    fn a_line_says_how_long_it_took_and_what_was_saved() {
        let shown = rendered(&[summary("resnet"), summary("vit")], 1_000_000 + 7_300, 200);
        let expected = "\
   job   ended  strategy+policy  epochs   took  waited  limited by  served   hit     read  of plain  requests of plain
resnet 2 h ago       iis+icache      30  2.5 h    10 %     storage   40000  75 %  9.8 MiB      25 %                5 %
   vit 2 h ago       iis+icache      30  2.5 h    10 %     storage   40000  75 %  9.8 MiB      25 %                5 %";
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(&shown), words(expected));
        let narrow = rendered(&[summary("resnet")], 1_000_050, 40);
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        assert!(narrow.contains("50 s ago") && narrow.contains("2.5 h"), "{narrow}");
    }

    #[test]
    fn times_are_rough() {
        assert_eq!(
            [ago(59), ago(600), ago(90_000), ago(500_000)],
            ["59 s ago", "10 min ago", "25 h ago", "5 d ago"]
        );
        assert_eq!([time(0), time(300), time(10_800)], ["0 s", "5 min", "3.0 h"]);
    }
}
