//! `hotset pack inspect`: which jobs have packages in a place, or what lies in one.

use std::time::{Duration, SystemTime};

use clap::Args;
use hotset_core::bytes::human;
use hotset_core::{Error, Result};
use hotset_store::package::{Owner, Package, PackagePlace};
use serde::Serialize;

use super::{Bar, Common, age, counted, to_json};
use crate::table;

/// Show which jobs have packages in a place, or what lies in one package.
///
/// Reads the index of each package, not its samples: `samples` counts what jobs can find there. Of one package every
/// sample is shown, and whether its bytes are still those that were packed.
#[derive(Args)]
pub(super) struct Inspect {
    /// A directory or prefix that `packages=` names, or one package in it (`.../00000003.hotset`)
    #[arg(value_name = "PLACE")]
    place: String,
}

/// One owner's packages, for showing.
#[derive(Serialize)]
struct Line {
    dataset: String,
    owner: String,
    packages: u64,
    samples: u64,
    bytes: u64,
    age_seconds: u64,
    damaged: u64,
    leftovers: u64,
}

/// One package, for showing.
#[derive(Serialize)]
struct Content {
    number: u32,
    dataset: String,
    samples: usize,
    bytes: u64,
    index: Vec<Sample>,
}

#[derive(Serialize)]
struct Sample {
    id: u32,
    offset: u64,
    length: u32,
    damaged: bool,
}

impl Inspect {
    pub(super) fn run(self, common: &Common) -> Result<String> {
        let place = self.place.trim_end_matches('/');
        if place.ends_with(".hotset") {
            package(place, common)
        } else {
            owners(&common.place(place)?, common.json)
        }
    }
}

fn owners(place: &PackagePlace, json: bool) -> Result<String> {
    let owners = place.owners()?;
    let all = owners.iter().map(|owner| owner.stored.len()).sum();
    let bar = Bar::new("reading", all);
    let mut done = 0;
    let mut lines = Vec::new();
    for owner in owners {
        lines.push(line(place, &owner, &mut |read| bar.set(done + read))?);
        done += owner.stored.len() as u64;
    }
    drop(bar);
    if json {
        return to_json(&lines);
    }
    if lines.is_empty() {
        return Ok(format!("no packages in `{}`", place.place()));
    }
    let head = ["dataset", "owner", "packages", "samples", "bytes", "newest", ""];
    let rows = lines.iter().map(|line| {
        let trouble = [(line.damaged, "damaged"), (line.leftovers, "left behind")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"));
        vec![
            line.dataset.clone(),
            line.owner.clone(),
            line.packages.to_string(),
            line.samples.to_string(),
            human(line.bytes),
            format!("{} old", age::shown(Duration::from_secs(line.age_seconds))),
            trouble.collect::<Vec<_>>().join(", "),
        ]
    });
    Ok(table::plain(std::iter::once(head.map(str::to_owned).to_vec()).chain(rows)))
}

fn line(place: &PackagePlace, owner: &Owner, tell: &mut dyn FnMut(u64)) -> Result<Line> {
    let scan = place.scan(&owner.stored, tell)?;
    let age = owner.newest().map_or(0, |newest| age::since(newest, SystemTime::now()).as_secs());
    Ok(Line {
        dataset: owner.dataset.clone(),
        owner: owner.owner.clone(),
        packages: owner.packages(),
        samples: scan.packages.iter().map(|found| found.index.count() as u64).sum(),
        bytes: owner.bytes(),
        age_seconds: age,
        damaged: scan.damaged.len() as u64,
        leftovers: scan.leftovers.len() as u64,
    })
}

fn package(file: &str, common: &Common) -> Result<String> {
    let (place, name) = file.rsplit_once('/').unwrap_or((".", file));
    let bytes = common.place(if place.is_empty() { "/" } else { place })?.read(name)?;
    let package =
        Package::parse_any(&bytes).map_err(|damage| Error::changed(format!("`{file}`: {damage}")))?;
    let index = package.index();
    let samples = index.spans().map(|(id, offset, length)| {
        let damaged = package.sample(id).is_none_or(|sample| sample.is_err());
        Sample { id, offset, length, damaged }
    });
    let content = Content {
        number: index.number(),
        dataset: index.dataset().iter().map(|byte| format!("{byte:02x}")).collect(),
        samples: index.count(),
        bytes: index.length(),
        index: samples.collect(),
    };
    if common.json {
        return to_json(&content);
    }
    let head = format!(
        "package {} of dataset {}\n  {}, {}",
        content.number,
        content.dataset,
        counted(content.samples as u64, "sample"),
        human(content.bytes)
    );
    let rows = content.index.iter().map(|sample| {
        let state = if sample.damaged { "damaged" } else { "" };
        vec![sample.id.to_string(), sample.offset.to_string(), sample.length.to_string(), state.to_owned()]
    });
    let names = ["sample", "offset", "bytes", ""].map(str::to_owned).to_vec();
    Ok(format!("{head}\n{}", table::plain(std::iter::once(names).chain(rows))))
}
