//! Lengths of time, as people write them: `5ms`, `1.5s`, `200us`.

use std::str::FromStr;

use hotset_core::{Error, Result};

/// A length of time, 0 or more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seconds(pub(crate) f64);

impl FromStr for Seconds {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let trimmed = text.trim();
        let refuse =
            || Error::invalid(format!("`{text}` is no length of time; write `5ms`, `1.5s` or `200us`"));
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let scale = match trimmed[end..].trim() {
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            _ => return Err(refuse()),
        };
        let value: f64 = trimmed[..end].parse().map_err(|_| refuse())?;
        // More than a year is a slip of the keyboard, and would not fit the clock's nanoseconds for long.
        if value * scale > 31e6 { Err(refuse()) } else { Ok(Self(value * scale)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit_and_refused_without() {
        let read = |text: &str| text.parse::<Seconds>().map(|seconds| seconds.0);
        assert!((read("5ms").unwrap() - 0.005).abs() < 1e-12);
        assert!((read(" 1.5 s").unwrap() - 1.5).abs() < 1e-12);
        assert_eq!(read("0us").unwrap(), 0.0);
        for text in ["", "5", "ms", "-1s", "1e3s", "5 minutes", "99999999999s", "NaNs"] {
            assert!(read(text).unwrap_err().message.contains("`5ms`"), "{text}");
        }
    }
}
