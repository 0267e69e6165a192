//! `hotset strategies` and `hotset policies`.

use clap::Args;
use hotset_core::{Error, Result, policy, sampling};
use serde::Serialize;

use crate::table;

/// List what can be chosen by name.
#[derive(Args)]
pub(crate) struct Listing {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One name.
#[derive(Serialize)]
struct Line {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'static str>,
    summary: &'static str,
}

impl Listing {
    /// What can be trained in an epoch.
    pub(crate) fn strategies(&self) -> Result<()> {
        let line = |entry: &sampling::Entry| Line {
            name: entry.name,
            policy: Some(entry.policy),
            summary: entry.summary,
        };
        self.print(&sampling::REGISTRY.iter().map(line).collect::<Vec<_>>())
    }

    /// What can stay in the cache.
    pub(crate) fn policies(&self) -> Result<()> {
        let line = |entry: &policy::Entry| Line { name: entry.name, policy: None, summary: entry.summary };
        self.print(&policy::REGISTRY.iter().map(line).collect::<Vec<_>>())
    }

    fn print(&self, lines: &[Line]) -> Result<()> {
        let text = if self.json {
            serde_json::to_string(lines)
                .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?
        } else {
            let rows = lines.iter().map(|line| {
                let mut row = vec![line.name.to_owned(), line.summary.to_owned()];
                row.extend(line.policy.map(|policy| format!("with {policy}")));
                row
            });
            table::plain(rows)
        };
        table::print(&format!("{text}\n"));
        Ok(())
    }
}
