//! `hotset pack verify`: every package is read and every checksum checked.

use clap::Args;
use hotset_core::bytes::human;
use hotset_core::{Error, Result};
use hotset_store::package::{Damage, Name, PackagePlace, Stored};
use serde::Serialize;

use super::{Bar, Common, counted, to_json};
use crate::table;

/// Read every package and check every checksum.
///
/// Names each package that cannot be used and says why; the exit code is 1 then. Removes nothing. Jobs make the same
/// checks whenever they read, so this is for places that you do not trust, before a long run.
#[derive(Args)]
pub(super) struct Verify {
    /// A directory or prefix that `packages=` names
    #[arg(value_name = "PLACE")]
    place: String,
}

/// What was found, for showing.
#[derive(Serialize)]
struct Found {
    packages: u64,
    bytes: u64,
    damaged: Vec<Damaged>,
}

#[derive(Serialize)]
struct Damaged {
    key: String,
    why: Vec<String>,
}

impl Verify {
    /// What to print, and whether all is well.
    pub(super) fn run(self, common: &Common) -> Result<(String, Result<()>)> {
        let place = common.place(&self.place)?;
        let stored: Vec<Stored> = place.owners()?.into_iter().flat_map(|owner| owner.stored).collect();
        let mut found = Found { packages: 0, bytes: 0, damaged: Vec::new() };
        check(&place, &stored, &mut |stored, damages| {
            found.packages += 1;
            found.bytes += stored.bytes;
            if !damages.is_empty() {
                let why = damages.iter().map(Damage::to_string).collect();
                found.damaged.push(Damaged { key: stored.key.clone(), why });
            }
        })?;
        let outcome = match found.damaged.len() {
            0 => Ok(()),
            damaged => Err(Error::changed(format!(
                "{damaged} of {} at `{place}` cannot be used; `hotset pack gc --verify {place}` removes what is ours of \
                 them, and jobs pack their samples anew",
                counted(found.packages, "package"),
                place = place.place(),
            ))),
        };
        Ok((if common.json { to_json(&found)? } else { text(&found, place.place()) }, outcome))
    }
}

/// Reads all packages of `stored` and tells of each what is wrong with it.
pub(super) fn check(
    place: &PackagePlace,
    stored: &[Stored],
    tell: &mut dyn FnMut(&Stored, &[Damage]),
) -> Result<()> {
    let packages: Vec<Stored> =
        stored.iter().filter(|stored| stored.name != Name::Leftover).cloned().collect();
    let bar = Bar::new("verifying", packages.len());
    place.verify(&packages, &mut |stored, damages| {
        tell(stored, damages);
        bar.step();
    })
}

fn text(found: &Found, place: &str) -> String {
    let all = format!("{} of {} read", counted(found.packages, "package"), human(found.bytes));
    if found.packages == 0 {
        return format!("no packages in `{place}`");
    }
    if found.damaged.is_empty() {
        return format!("{all}; every checksum holds");
    }
    let rows = found.damaged.iter().map(|damaged| {
        // A package that rotted all over would fill the screen.
        let more = damaged.why.len().saturating_sub(3);
        let mut why = damaged.why[..damaged.why.len() - more].join("; ");
        if more > 0 {
            why.push_str(&format!("; and {more} more"));
        }
        vec![damaged.key.clone(), why]
    });
    format!("{}\n{all}", table::plain(rows))
}
