//! `hotset simulate --nodes`: one training over the caches of several nodes.

use std::path::Path;

use clap::Args;
use hotset_core::bytes::human;
use hotset_core::cluster::PlacementKind;
use hotset_core::{Error, Result};
use hotset_sim::grid;
use hotset_sim::nodes::{self, Change, Cost, Figures, Nodes, NodesOutcome};
use hotset_sim::replay::{Job, Scenario};
use hotset_sim::report::{text_table, wrap};
use serde::Serialize;

use super::output::{self, Progress};

/// Several nodes.
#[derive(Args)]
#[command(next_help_heading = "Nodes")]
pub(super) struct NodesOptions {
    /// Train on so many nodes, each with the cache of `--cache` and the ranks of `--ranks`: one number or several
    #[arg(long, value_name = "N,..", value_delimiter = ',', conflicts_with_all = ["figure", "jobs", "log", "csv", "html"])]
    nodes: Vec<usize>,
    /// Whether ranks exchange samples so that most are their own node's
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = ["on", "off"], requires = "nodes")]
    locality: String,
    /// By which rule samples have their owners: `hash`, `directory` (whoever reads a sample keeps it), or both to compare them
    #[arg(long, value_name = "hash|directory", value_delimiter = ',', default_value = "hash", value_parser = ["hash", "directory"], requires = "nodes")]
    placement: Vec<String>,
    /// One more node comes before this epoch: what that costs
    #[arg(long, value_name = "EPOCH", requires = "nodes", conflicts_with = "lose")]
    join: Option<u64>,
    /// One node is lost before this epoch: what that costs
    #[arg(long, value_name = "EPOCH", requires = "nodes")]
    lose: Option<u64>,
}

/// One run over nodes, and what a change of them costs.
type Spread = (NodesOutcome, Option<Cost>);

impl NodesOptions {
    /// Whether several nodes are asked for.
    pub(super) fn asked(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Simulates each of `jobs` on each number of nodes; means are from epoch `first` on.
    pub(super) fn run(
        &self,
        scenario: &Scenario,
        jobs: &[Job],
        first: usize,
        threads: usize,
        json: Option<&Path>,
    ) -> Result<()> {
        let change = self.join.map(Change::Join).or(self.lose.map(Change::Lose));
        let locality = self.locality == "on";
        let placements: Vec<PlacementKind> =
            self.placement.iter().map(|name| name.parse()).collect::<Result<_>>()?;
        let over: Vec<Nodes> = self
            .nodes
            .iter()
            .flat_map(|&count| {
                placements.iter().map(move |&placement| Nodes { count, locality, placement, change })
            })
            .collect();
        let runs: Vec<(&Job, Nodes)> =
            jobs.iter().flat_map(|job| over.iter().map(move |nodes| (job, *nodes))).collect();
        let progress = Progress::new();
        let one = |(job, nodes): &(&Job, Nodes)| nodes::cost(scenario, job, nodes);
        let all = grid::each(&runs, threads, one, |done| progress.set(done, runs.len()))?;
        progress.finish();
        let rows = rows(&all, first);
        if let Some(path) = json {
            let text =
                serde_json::to_string_pretty(&rows).map_err(|error| Error::internal(error.to_string()))?;
            output::write(path, "json", &text)?;
            if output::is_standard(path) {
                return Ok(());
            }
        }
        let settings = format!(
            "means of an epoch, from epoch {first} on; `cache`, ranks and requests in flight are of each node; {}",
            output::line(&scenario.describe())
        );
        let mut text = table(&rows);
        if change.is_some() {
            text.push_str(&format!("\n\n{}", changes(&rows)));
        }
        output::print(&format!("{text}\n\n{}", wrap(&settings, "")))
    }
}

/// A pair at one cache size on so many nodes: the mean over its seeds.
#[derive(Serialize)]
struct Row {
    nodes: usize,
    placement: &'static str,
    strategy: String,
    policy: String,
    cache: String,
    seeds: usize,
    #[serde(flatten)]
    figures: Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<ChangeRow>,
}

/// What a change costs: means over seeds.
#[derive(Serialize)]
struct ChangeRow {
    event: &'static str,
    epoch: u64,
    moved: f64,
    moved_bytes: f64,
    over_before: f64,
    over_after: f64,
    over_after_in_all: f64,
}

impl ChangeRow {
    fn of(costs: &[&Cost]) -> Option<Self> {
        let first = costs.first()?;
        let mean = |value: &dyn Fn(&Cost) -> f64| {
            costs.iter().map(|cost| value(cost)).sum::<f64>() / costs.len() as f64
        };
        let at_once = |reads: &[i64]| reads.first().copied().unwrap_or_default() as f64;
        Some(Self {
            event: match first.change {
                Change::Join(_) => "join",
                Change::Lose(_) => "lose",
            },
            epoch: first.change.epoch(),
            moved: mean(&|cost| cost.moved.0 as f64),
            moved_bytes: mean(&|cost| cost.moved.1 as f64),
            over_before: mean(&|cost| at_once(&cost.over_before)),
            over_after: mean(&|cost| at_once(&cost.over_after)),
            over_after_in_all: mean(&|cost| cost.over_after.iter().sum::<i64>() as f64),
        })
    }
}

/// One row for each pair, cache size and number of nodes, in the order of the runs.
fn rows(all: &[Spread], first: usize) -> Vec<Row> {
    let key = |(run, _): &Spread| {
        let outcome = &run.outcome;
        let of_nodes = (run.nodes, run.placement.name());
        (outcome.strategy.clone(), outcome.policy.clone(), outcome.cache.clone(), of_nodes)
    };
    let mut keys: Vec<_> = all.iter().map(key).collect();
    let mut seen = Vec::new();
    keys.retain(|one| {
        !seen.contains(one) && {
            seen.push(one.clone());
            true
        }
    });
    let row = |of: (String, String, String, (usize, &'static str))| {
        let same: Vec<&Spread> = all.iter().filter(|one| key(one) == of).collect();
        let runs: Vec<&NodesOutcome> = same.iter().map(|(run, _)| run).collect();
        let costs: Vec<&Cost> = same.iter().filter_map(|(_, cost)| cost.as_ref()).collect();
        let (strategy, policy, cache, (nodes, placement)) = of;
        let (figures, change) = (Figures::of(&runs, first), ChangeRow::of(&costs));
        Row { nodes, placement, strategy, policy, cache, seeds: runs.len(), figures, change }
    };
    keys.into_iter().map(row).collect()
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn table(rows: &[Row]) -> String {
    let head = [
        "strategy+policy",
        "cache",
        "nodes",
        "placement",
        "local",
        "peers'",
        "peer bytes",
        "reads",
        "owned",
        "kept",
        "epoch",
        "wait",
    ];
    let cells = |row: &Row| {
        let Figures { reads, hit, local, peer_bytes, owned, kept, seconds, wait, .. } = row.figures;
        vec![
            format!("{}+{}", row.strategy, row.policy),
            row.cache.clone(),
            row.nodes.to_string(),
            row.placement.to_owned(),
            percent(hit * local),
            percent(hit * (1.0 - local)),
            human(peer_bytes as u64),
            format!("{reads:.0}"),
            format!("{owned:.2}"),
            format!("{kept:.2}"),
            format!("{seconds:.1} s"),
            format!("{wait:.1} s"),
        ]
    };
    by_placement(rows, &head, rows.iter().map(cells))
}

/// A table without its column of placements, the fourth, where all is by hash.
fn by_placement(rows: &[Row], head: &[&str], cells: impl Iterator<Item = Vec<String>>) -> String {
    let is_shown = |column: &usize| *column != 3 || rows.iter().any(|row| row.placement != "hash");
    let columns: Vec<usize> = (0..head.len()).filter(is_shown).collect();
    let head: Vec<&str> = columns.iter().map(|&column| head[column]).collect();
    text_table(&head, cells.map(|cells| columns.iter().map(|&column| cells[column].clone()).collect()))
}

fn changes(rows: &[Row]) -> String {
    let head = [
        "strategy+policy",
        "cache",
        "nodes",
        "placement",
        "change",
        "other owner",
        "over before",
        "over after",
        "in all",
    ];
    let cells = |row: &Row| {
        let change = row.change.as_ref()?;
        Some(vec![
            format!("{}+{}", row.strategy, row.policy),
            row.cache.clone(),
            row.nodes.to_string(),
            row.placement.to_owned(),
            format!("{} before {}", change.event, change.epoch),
            format!("{:.0}, {}", change.moved, human(change.moved_bytes as u64)),
            format!("{:+.0}", change.over_before),
            format!("{:+.0}", change.over_after),
            format!("{:+.0}", change.over_after_in_all),
        ])
    };
    by_placement(rows, &head, rows.iter().filter_map(cells))
}
