//! `hotset pack gc`: removes what is not used.

use std::time::{Duration, SystemTime};

use clap::Args;
use hotset_core::Result;
use hotset_core::bytes::human;
use hotset_store::package::{Name, Owner, PackagePlace, Stored};
use serde::Serialize;

use super::age::{self, Age};
use super::{Bar, Common, counted, to_json, verify};
use crate::table;

/// A package is written in seconds: a file of a writer that is older was left behind.
const WRITING: Duration = Duration::from_secs(3_600);

/// Remove what is not used.
///
/// That is: what writers left behind that were killed more than an hour ago, damaged packages, and all packages of owners
/// that have written none for `--older-than`. Nothing is removed that is not named as a package or does not begin as one,
/// nor packages of another version of Hotset whose owner still writes. A job that runs packs anew what it misses.
#[derive(Args)]
pub(super) struct Gc {
    /// A directory or prefix that `packages=` names
    #[arg(value_name = "PLACE")]
    place: String,
    /// Remove all packages of owners that have written none for so long
    #[arg(long, value_name = "AGE", default_value = "30d")]
    older_than: Age,
    /// Read every package, to find damaged samples too
    #[arg(long)]
    verify: bool,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
}

/// What is removed, and why.
#[derive(Serialize)]
struct Line {
    key: String,
    bytes: u64,
    why: String,
    #[serde(skip)]
    stored: Stored,
}

/// All of it, for showing.
#[derive(Serialize)]
struct Outcome {
    dry_run: bool,
    removed: Vec<Line>,
    bytes: u64,
}

impl Gc {
    pub(super) fn run(self, common: &Common) -> Result<String> {
        let place = common.place(&self.place)?;
        let lines = self.choose(&place, SystemTime::now())?;
        if !self.dry_run {
            place.clear(lines.iter().map(|line| &line.stored))?;
        }
        let bytes = lines.iter().map(|line| line.bytes).sum();
        let outcome = Outcome { dry_run: self.dry_run, removed: lines, bytes };
        if common.json { to_json(&outcome) } else { Ok(text(&outcome, place.place())) }
    }

    /// What is to be removed.
    fn choose(&self, place: &PackagePlace, now: SystemTime) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        let mut used: Vec<Stored> = Vec::new();
        for owner in place.owners()? {
            match idle(&owner, now).filter(|idle| *idle > self.older_than.0) {
                Some(idle) => {
                    let why = format!("its owner has written nothing for {}", age::shown(idle));
                    for stored in owner.stored {
                        if place.ours(&stored)? {
                            lines.push(Line::new(stored, why.clone()));
                        }
                    }
                }
                None => used.extend(owner.stored),
            }
        }
        let left = used
            .iter()
            .filter(|stored| stored.name == Name::Leftover && age::since(stored.modified, now) > WRITING);
        lines.extend(left.map(|stored| Line::new(stored.clone(), "left behind by a writer".into())));
        self.damaged(place, &used, &mut lines)?;
        lines.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(lines)
    }

    fn damaged(&self, place: &PackagePlace, stored: &[Stored], lines: &mut Vec<Line>) -> Result<()> {
        if self.verify {
            return verify::check(place, stored, &mut |stored, damages| {
                if let Some(damage) = damages.first().filter(|damage| damage.removable()) {
                    lines.push(Line::new(stored.clone(), damage.to_string()));
                }
            });
        }
        let bar = Bar::new("reading", stored.len());
        let scan = place.scan(stored, &mut |done| bar.set(done))?;
        let damaged = scan.damaged.into_iter().filter(|damaged| damaged.damage.removable());
        lines.extend(damaged.map(|damaged| Line::new(damaged.stored, damaged.damage.to_string())));
        Ok(())
    }
}

impl Line {
    fn new(stored: Stored, why: String) -> Self {
        Self { key: stored.key.clone(), bytes: stored.bytes, why, stored }
    }
}

/// For how long an owner has written nothing.
fn idle(owner: &Owner, now: SystemTime) -> Option<Duration> {
    owner.newest().map(|newest| age::since(newest, now))
}

fn text(outcome: &Outcome, place: &str) -> String {
    if outcome.removed.is_empty() {
        return format!("nothing to remove in `{place}`");
    }
    let rows = outcome.removed.iter().map(|line| vec![line.key.clone(), human(line.bytes), line.why.clone()]);
    let done = if outcome.dry_run { "would be removed" } else { "removed" };
    let count = counted(outcome.removed.len() as u64, "file");
    format!("{}\n{count}, {} {done}", table::plain(rows), human(outcome.bytes))
}
