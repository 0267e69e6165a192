//! What one user may take of a server.

use hotset_core::bytes::Amount;
use hotset_core::{Error, Result};

/// The most that one user may take. `None` is as much as there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes: what the `cache=` of its jobs come to, or what it has put into a shared cache.
    pub memory: Option<u64>,
    /// Jobs that it has open.
    pub jobs: Option<u64>,
    /// Connections at a time.
    pub connections: Option<u64>,
    /// Requests a second.
    pub requests: Option<u64>,
}

impl Quota {
    /// Reads `memory=8GiB,jobs=4,connections=256,requests=5000`; any of them may be left out. A share of memory is one
    /// of `machine`'s.
    pub fn parse(text: &str, machine: u64) -> Result<Self> {
        let mut quota = Self::default();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (name.trim(), value.trim());
            let place = match name {
                "memory" => &mut quota.memory,
                "jobs" => &mut quota.jobs,
                "connections" => &mut quota.connections,
                "requests" => &mut quota.requests,
                _ => {
                    return Err(Error::invalid(format!(
                        "`quota` has no `{name}`; it takes `memory`, `jobs`, `connections` and `requests`, as in \
                         `memory=8GiB,connections=64`"
                    )));
                }
            };
            let wrong = || Error::invalid(format!("`quota`: `{name}` cannot be `{value}`"));
            let number = match name {
                "memory" => value.parse::<Amount>().map_err(|_| wrong())?.of(machine),
                _ => value.parse().ok().filter(|&number: &u64| number > 0).ok_or_else(wrong)?,
            };
            if place.replace(number).is_some() {
                return Err(Error::invalid(format!("`quota` names `{name}` twice")));
            }
        }
        Ok(quota)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_names_what_it_bounds() {
        let quota = Quota::parse("memory=25%, jobs=4,connections=64,", 1 << 30).unwrap();
        let memory = Some(256 << 20);
        assert_eq!(quota, Quota { memory, jobs: Some(4), connections: Some(64), requests: None });
        assert_eq!(Quota::parse("", 1).unwrap(), Quota::default());
    }

    #[test]
    fn a_quota_that_is_misspelt_is_refused_by_name() {
        for (text, says) in [
            ("job=4", "`quota` has no `job`"),
            ("jobs=many", "`jobs` cannot be `many`"),
            ("jobs", "`jobs` cannot be ``"),
            ("requests=0", "`requests` cannot be `0`"),
            ("memory=lots", "`memory` cannot be `lots`"),
            ("jobs=4,jobs=5", "`jobs` twice"),
        ] {
            let refused = Quota::parse(text, 1 << 30).unwrap_err().message;
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }
}
