//! Ages, as people write and read them: `30d`, `5 h`.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use hotset_core::{Error, Result};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// How old something is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Age(pub(super) Duration);

impl FromStr for Age {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = || Error::invalid(format!("`{text}` is no age; write `30d`, `12h`, `90m` or `0s`"));
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit()).ok_or_else(refuse)?;
        let scale = match trimmed[end..].trim() {
            "s" => 1,
            "m" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            "w" => 7 * DAY,
            _ => return Err(refuse()),
        };
        let count: u64 = trimmed[..end].parse().map_err(|_| refuse())?;
        count.checked_mul(scale).map(|seconds| Self(Duration::from_secs(seconds))).ok_or_else(refuse)
    }
}

/// How long ago something was written; nothing for what says that it will be.
pub(super) fn since(modified: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(modified).unwrap_or(Duration::ZERO)
}

/// An age for people.
pub(super) fn shown(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        DAY.. => format!("{} d", seconds / DAY),
        HOUR.. => format!("{} h", seconds / HOUR),
        _ => format!("{} min", seconds / MINUTE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_with_their_unit_and_refused_without() {
        let read = |text: &str| text.parse::<Age>().map(|age| age.0.as_secs());
        for (text, seconds) in
            [("30d", 30 * 86_400), ("12h", 43_200), (" 90 m ", 5_400), ("0s", 0), ("2w", 1_209_600)]
        {
            assert_eq!(read(text).unwrap(), seconds, "{text}");
        }
        for text in
            ["", "30", "d", "-1d", "1.5d", "5 months", "99999999999999999999d", "18446744073709551615d"]
        {
            assert!(read(text).unwrap_err().message.contains("`30d`"), "{text}");
        }
    }

    #[test]
    fn ages_are_shown_in_the_largest_unit_that_fits() {
        for (seconds, text) in [(59, "0 min"), (3_599, "59 min"), (7_200, "2 h"), (90_000, "1 d")] {
            assert_eq!(shown(Duration::from_secs(seconds)), text);
        }
    }
}
