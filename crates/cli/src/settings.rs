//! The settings file of `hotset serve`.
//!
//! TOML with the names of the flags; a flag on the command line wins over the file.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use hotset_core::{Error, Result};
use serde::{Deserialize, Deserializer};

use crate::cluster::Switch;

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, Deserialize, ValueEnum, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// What a settings file may say.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) socket: Option<PathBuf>,
    pub(crate) memory: Option<String>,
    #[serde(deserialize_with = "number_or_text")]
    pub(crate) concurrency: Option<String>,
    pub(crate) retries: Option<u32>,
    pub(crate) linger: Option<u64>,
    pub(crate) listings: Option<PathBuf>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) record: Option<PathBuf>,
    #[serde(deserialize_with = "number_or_text")]
    pub(crate) metrics: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) quota: Option<String>,
    pub(crate) tenants: Option<bool>,
    pub(crate) shared: Option<PathBuf>,
    pub(crate) shared_user: Option<String>,
    pub(crate) log: Option<String>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) cluster: Option<String>,
    pub(crate) etcd_authority: Option<PathBuf>,
    pub(crate) etcd_certificate: Option<PathBuf>,
    pub(crate) etcd_key: Option<PathBuf>,
    pub(crate) node: Option<String>,
    pub(crate) listen: Option<String>,
    pub(crate) advertise: Option<String>,
    pub(crate) rack: Option<String>,
    pub(crate) peer_token_file: Option<PathBuf>,
    pub(crate) peer_certificate: Option<PathBuf>,
    pub(crate) peer_key: Option<PathBuf>,
    pub(crate) peer_authority: Option<PathBuf>,
    pub(crate) locality: Option<Switch>,
    pub(crate) placement: Option<String>,
}

/// What may be a number or a word: a port or an address, a limit or `auto`.
fn number_or_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(u64),
        Text(String),
    }
    Ok(Some(match Written::deserialize(deserializer)? {
        Written::Number(number) => number.to_string(),
        Written::Text(text) => text,
    }))
}

impl Settings {
    /// Reads a settings file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::invalid(format!("cannot read the settings file `{shown}`: {error}")))?;
        toml::from_str(&text)
            .map_err(|error| Error::invalid(format!("in the settings file `{shown}`: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_flags_say_and_a_misspelt_name_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("hotset.toml");
        std::fs::write(&path, "memory = \"8GiB\"\nconcurrency = 64\n").unwrap();
        let settings = Settings::read(&path).unwrap();
        assert_eq!(settings.memory.as_deref(), Some("8GiB"));
        assert_eq!(settings.concurrency.as_deref(), Some("64"));
        for (written, metrics) in [("9464", "9464"), ("\"127.0.0.1:9464\"", "127.0.0.1:9464")] {
            std::fs::write(&path, format!("metrics = {written}\n")).unwrap();
            assert_eq!(Settings::read(&path).unwrap().metrics.as_deref(), Some(metrics));
        }
        std::fs::write(&path, "memroy = \"8GiB\"\n").unwrap();
        let error = Settings::read(&path).unwrap_err();
        assert!(error.message.contains("memroy") && error.message.contains("memory"), "{error}");
    }
}
