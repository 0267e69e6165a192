//! `hotset nodes`.

use std::path::PathBuf;

use clap::Args;
use hotset_cluster::{Address, membership};
use hotset_core::bytes::human;
use hotset_core::{Error, Result};
use serde::Serialize;

use crate::cluster::EtcdSettings;
use crate::settings::Settings;
use crate::table;

/// Show the nodes of a cluster, or have one take no further part.
///
/// A node that drains owns nothing from the next plans on, takes no job as its home, and still answers: when the epochs under way
/// have ended it can be stopped without anything being read again that it could have handed on.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hotset nodes --cluster etcd://etcd-0:2379/research
  hotset nodes --config /etc/hotset.toml --json | jq '.[].jobs'
  hotset nodes --drain gpu-7      # with HOTSET_CLUSTER set; before its host is restarted
  hotset nodes --undrain gpu-7")]
pub(crate) struct Nodes {
    #[command(flatten)]
    etcd: EtcdSettings,
    /// The settings file of a node, which names the cluster
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Have this node drain
    #[arg(long, value_name = "NAME", conflicts_with = "undrain")]
    drain: Option<String>,
    /// Have this node take part again
    #[arg(long, value_name = "NAME")]
    undrain: Option<String>,
    /// Print JSON: a list with one object for each node
    #[arg(long)]
    json: bool,
}

/// One node, for showing.
#[derive(Serialize)]
struct Line {
    name: String,
    address: String,
    rack: Option<String>,
    capacity: u64,
    draining: bool,
    version: String,
    /// The jobs that it makes the plans of.
    jobs: Vec<String>,
}

impl Nodes {
    pub(crate) fn run(self) -> Result<()> {
        let file = self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        let address = self.etcd.address(&file)?.ok_or_else(|| {
            Error::invalid("which cluster? give `--cluster etcd://host:2379/name`, or set HOTSET_CLUSTER")
        })?;
        let (drain, undrain) = (self.drain.iter().map(|name| (name, true)), self.undrain.iter());
        for (name, draining) in drain.chain(undrain.map(|name| (name, false))) {
            membership::drain(&address, name, draining)?;
        }
        let lines = read(&address)?;
        if self.json {
            let text = serde_json::to_string(&lines)
                .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
            table::print(&(text + "\n"));
        } else if lines.is_empty() {
            table::print(&format!("the cluster `{}` has no nodes\n", address.name));
        } else {
            table::print(&(shown(&lines) + "\n"));
        }
        Ok(())
    }
}

fn read(address: &Address) -> Result<Vec<Line>> {
    let homes = hotset_server::homes(address)?;
    let line = |member: membership::Member| {
        let jobs = homes.iter().filter(|(_, node)| **node == member.name).map(|(job, _)| job.clone());
        Line {
            jobs: jobs.collect(),
            name: member.name,
            address: member.address,
            rack: member.rack,
            capacity: member.capacity,
            draining: member.draining,
            version: member.version,
        }
    };
    Ok(membership::nodes(address)?.into_iter().map(|(_, member)| line(member)).collect())
}

fn shown(lines: &[Line]) -> String {
    let titles = ["node", "address", "rack", "gives", "state", "version", "home of"];
    let rows = lines.iter().map(|line| {
        vec![
            line.name.clone(),
            line.address.clone(),
            line.rack.clone().unwrap_or_default(),
            human(line.capacity),
            if line.draining { "drains" } else { "" }.to_owned(),
            line.version.clone(),
            line.jobs.join(", "),
        ]
    });
    table::plain(std::iter::once(titles.map(str::to_owned).to_vec()).chain(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_shown_with_the_jobs_that_it_is_home_of() {
        let line = |name: &str, draining, jobs: &[&str]| Line {
            name: name.into(),
            address: format!("{name}:7070"),
            rack: Some("r1".into()),
            capacity: 8 << 30,
            draining,
            version: "0.1.0".into(),
            jobs: jobs.iter().map(|job| (*job).to_owned()).collect(),
        };
        let text = shown(&[line("gpu-1", false, &["exp/train", "other"]), line("gpu-2", true, &[])]);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert!(rows[1].contains("gpu-1:7070") && rows[1].contains("exp/train, other"), "{text}");
        assert!(
            rows[2].contains("drains") && rows[2].contains("8 GiB") && !rows[1].contains("drains"),
            "{text}"
        );
    }
}
