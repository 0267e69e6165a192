//! Names of jobs and runs.

use std::hash::{BuildHasher, RandomState};

use hotset_core::{Error, Result};

/// Digits of a run's name.
const RUN: usize = 16;

/// What a job's state and packages are kept under: a job that goes on from an earlier place is a job of its own in the
/// engine, `NAME/load-2`, so that ranks and readers that have not gone back yet do not meet it.
pub(crate) fn base_name(job: &str) -> &str {
    match job.rsplit_once("/load-") {
        Some((name, number)) if !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => job,
    }
}

/// Refuses what cannot be the name of a run, which is part of the names of files.
pub(crate) fn check_run(run: &str) -> Result<()> {
    if run.is_empty() || run.len() == RUN && run.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Ok(());
    }
    Err(Error::invalid(format!("the state is damaged: its run `{run}` is not {RUN} hexadecimal digits")))
}

/// A name that no other run has, nor another start of a server.
pub(crate) fn unique() -> String {
    format!("{:0RUN$x}", RandomState::new().hash_one(std::process::id()))
}
