//! Storage options: what a user sets about a store, as text.
//!
//! Names with a dot are ours; the others belong to the client of an object store.

use std::collections::BTreeMap;
use std::time::Duration;

use hotset_core::bytes::Amount;
use hotset_core::{Error, Result};

use crate::fault::Fault;
use crate::throttle::Throttle;

/// Every option, with an example of its value.
const KNOWN: [(&str, &str); 10] = [
    ("fault.rate", "0.05"),
    ("fault.seed", "7"),
    ("fault.stall", "0.01"),
    ("fault.stall_for", "200ms"),
    ("fault.swap", "0.01"),
    ("fault.truncate", "0.01"),
    ("listing.max_age", "1h"),
    ("throttle.bandwidth", "100MB/s"),
    ("throttle.latency", "5ms"),
    ("throttle.requests", "64"),
];

/// How long the kept listing of an object store is trusted.
const MAX_AGE: Duration = Duration::from_secs(3_600);

/// Storage options, read. What is not set is not wrapped around the store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    pub(crate) throttle: Option<Throttle>,
    pub(crate) fault: Option<Fault>,
    /// How long the kept listing of an object store is trusted.
    pub(crate) max_age: Duration,
    /// Those of the client of an object store.
    pub(crate) client: BTreeMap<String, String>,
    /// Whether the store has answered before; no option of a user's.
    pub(crate) known: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { throttle: None, fault: None, max_age: MAX_AGE, client: BTreeMap::new(), known: false }
    }
}

impl Options {
    pub(crate) fn parse(options: &BTreeMap<String, String>) -> Result<Self> {
        let mut parsed = Self::default();
        for (name, value) in options {
            let refuse = |why: &str| refuse(name, value, why);
            match name.as_str() {
                "throttle.latency" => parsed.throttle().latency = duration(value).map_err(refuse)?,
                "throttle.bandwidth" => parsed.throttle().bandwidth = Some(rate(value).map_err(refuse)?),
                "fault.seed" => {
                    parsed.fault().seed =
                        value.trim().parse().map_err(|_| refuse("it is no whole number"))?;
                }
                "throttle.requests" => {
                    let requests = value.trim().parse().ok().filter(|requests| *requests > 0);
                    parsed.throttle().requests =
                        Some(requests.ok_or_else(|| refuse("it is no number from 1 on"))?);
                }
                "listing.max_age" => parsed.max_age = duration(value).map_err(refuse)?,
                "fault.swap" => parsed.fault().swap = share(value).map_err(refuse)?,
                "fault.rate" => parsed.fault().rate = share(value).map_err(refuse)?,
                "fault.truncate" => parsed.fault().truncate = share(value).map_err(refuse)?,
                "fault.stall" => parsed.fault().stall = share(value).map_err(refuse)?,
                "fault.stall_for" => parsed.fault().stall_for = duration(value).map_err(refuse)?,
                _ if name.contains('.') => return Err(unknown(name)),
                _ => {
                    parsed.client.insert(name.clone(), value.clone());
                }
            }
        }
        if parsed.fault.is_some_and(|fault| fault.stall > 0.0 && fault.stall_for.is_zero()) {
            return Err(Error::invalid(
                "`fault.stall` in `storage_options` needs `fault.stall_for`, like `200ms`",
            ));
        }
        Ok(parsed)
    }

    /// Refuses options that only the client of an object store has a use for.
    pub(crate) fn local(&self) -> Result<()> {
        self.client.keys().next().map_or(Ok(()), |name| Err(unknown(name)))
    }

    fn throttle(&mut self) -> &mut Throttle {
        self.throttle.get_or_insert_default()
    }

    fn fault(&mut self) -> &mut Fault {
        self.fault.get_or_insert_default()
    }
}

fn unknown(name: &str) -> Error {
    let known = KNOWN.map(|(name, _)| format!("`{name}`")).join(", ");
    Error::invalid(format!("unknown name `{name}` in `storage_options`; the known ones here are {known}"))
}

fn refuse(name: &str, value: &str, why: &str) -> Error {
    let example = KNOWN.iter().find(|(known, _)| *known == name).map_or("", |(_, example)| example);
    Error::invalid(format!("`{value}` for `{name}` in `storage_options`: {why}; write it like `{example}`"))
}

/// A number and `h`, `m`, `s`, `ms` or `us`.
fn duration(text: &str) -> std::result::Result<Duration, &'static str> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| "it does not begin with a number")?;
    let seconds = match text[end..].trim() {
        "h" => 3_600.0,
        "m" => 60.0,
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        _ => return Err("its unit is none of `h`, `m`, `s`, `ms` and `us`"),
    };
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "it is too long")
}

/// Bytes a second; the `/s` may be left out.
fn rate(text: &str) -> std::result::Result<u64, &'static str> {
    let amount = text.trim().trim_end_matches("/s");
    match amount.parse() {
        Ok(Amount::Bytes(bytes)) if bytes > 0 => Ok(bytes),
        Ok(Amount::Bytes(_)) => Err("nothing would ever be read"),
        Ok(Amount::Share(_)) => Err("it is a share of nothing"),
        Err(_) => Err("it is no number of bytes a second"),
    }
}

/// A number from 0 to 1.
fn share(text: &str) -> std::result::Result<f64, &'static str> {
    let share: f64 = text.trim().parse().map_err(|_| "it is no number")?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("it is not between 0 and 1") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[(&str, &str)]) -> Result<Options> {
        Options::parse(&options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn options_are_read_as_people_write_them() {
        assert_eq!(parse(&[]), Ok(Options::default()));
        let options = parse(&[("throttle.latency", "250us"), ("throttle.bandwidth", "100MB/s")]).unwrap();
        let latency = Duration::from_micros(250);
        let throttle = Throttle { latency, bandwidth: Some(100_000_000), requests: None };
        assert_eq!(options, Options { throttle: Some(throttle), ..Options::default() });
        assert_eq!(parse(&[("listing.max_age", "2h")]).unwrap().max_age, Duration::from_secs(7_200));
        assert_eq!(
            parse(&[("throttle.bandwidth", "1MiB")]).unwrap().throttle.unwrap().bandwidth,
            Some(1 << 20)
        );
        let options = parse(&[
            ("fault.seed", "7"),
            ("fault.rate", "0.05"),
            ("fault.stall", "1"),
            ("fault.stall_for", "1.5s"),
        ]);
        let stall_for = Duration::from_millis(1_500);
        let fault = Fault { seed: 7, rate: 0.05, stall: 1.0, stall_for, ..Fault::default() };
        assert_eq!(options.unwrap().fault, Some(fault));
    }

    #[test]
    fn every_known_option_takes_its_own_example() {
        for (name, example) in KNOWN {
            assert!(parse(&[(name, example), ("fault.stall_for", "1s")]).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_name_and_an_example() {
        for (name, value) in [
            ("throttle.latency", "5"),
            ("throttle.latency", "ms"),
            ("throttle.latency", "-5ms"),
            ("throttle.latency", "1e300s"),
            ("throttle.bandwidth", "0"),
            ("throttle.bandwidth", "20%"),
            ("throttle.bandwidth", "fast"),
            ("throttle.requests", "0"),
            ("listing.max_age", "soon"),
            ("fault.seed", "-1"),
            ("fault.rate", "1.5"),
            ("fault.rate", "NaN"),
        ] {
            let error = parse(&[(name, value)]).unwrap_err();
            assert!(error.message.contains(&format!("`{value}` for `{name}`")), "{}", error.message);
            assert!(error.message.contains("write it like"), "{}", error.message);
        }
        assert!(parse(&[("fault.stall", "0.5")]).unwrap_err().message.contains("`fault.stall_for`"));
    }

    #[test]
    fn an_unknown_option_lists_the_known_ones() {
        let error = parse(&[("throttle.latancy", "5ms")]).unwrap_err();
        assert!(KNOWN.iter().all(|(name, _)| error.message.contains(name)), "{}", error.message);
        let options = parse(&[("aws_region", "x")]).unwrap();
        assert!(options.local().unwrap_err().message.contains("`aws_region`"));
    }
}
