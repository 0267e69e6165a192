//! A diagnosis with what it was made of, for programs.

use hotset_core::{Error, Result};
use hotset_sim::doctor::{self, Diagnosis, Measured};
use serde::Serialize;

use super::Survey;
use crate::pack::to_json;

/// The verdict, and all figures behind it.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    survey: &'a Survey,
}

impl<'a> Report<'a> {
    pub(super) fn new(diagnosis: &'a Diagnosis, survey: &'a Survey) -> Self {
        Self { diagnosis, survey }
    }
}

/// The verdict on what Python measured, as JSON, as text of a width and as a page.
pub fn diagnose(measured: &str, width: usize) -> Result<(String, String, String)> {
    let measured: Measured = serde_json::from_str(measured)
        .map_err(|error| Error::internal(format!("what was measured cannot be read: {error}")))?;
    let found = doctor::diagnose(&measured)?;
    Ok((to_json(&found)?, doctor::text(&found, width), doctor::page(&found)))
}
