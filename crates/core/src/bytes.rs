//! Amounts of memory, as people write them.
//!
//! A size is a number and a unit, decimal (`100MB`) or binary (`8GiB`), in any case; a share is a percentage of
//! a whole that the reader of the setting knows (the dataset, the machine's memory). A number without a unit is
//! bytes where that can be meant: `0.2` and `20` are slips for `20%`, so a fraction, and anything below
//! [`LEAST_BARE`] but `0`, is refused. Nothing at all, `0` or `0%`, is an amount: a cache of nothing. Whole
//! numbers are exact; fractions round to the nearest byte.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// Every unit and its bytes, lower case. A lone letter (`8G`) is left out: people disagree on what it means.
const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("pb", 1_000_000_000_000_000),
    ("eb", 1_000_000_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
    ("eib", 1 << 60),
];

/// The least number of bytes that may stand without a unit; programs compute such numbers, people write `64KiB`.
pub const LEAST_BARE: u64 = 64 << 10;

/// The first size that is too large for 64 bits; exact as a float.
const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;

/// Bytes, or a share of something that is known later.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the whole, from 0 to 100: as it was written, so that it can be written again.
    Share(f64),
}

impl Default for Amount {
    /// Nothing at all.
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl Amount {
    /// The bytes of this amount, if it is a share then of `whole`. Bytes may be more than the whole.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(percent) if percent >= 100.0 => whole,
            // To the nearest byte: 29% of 100 must be 29, though 0.29 * 100 is a little less.
            Self::Share(percent) => ((whole as f64 * (percent / 100.0)).round() as u64).min(whole),
        }
    }

    /// This amount exactly, as it can be read again; [`Display`](fmt::Display) rounds for people.
    pub fn exact(self) -> String {
        match self {
            Self::Bytes(bytes) => format!("{bytes}B"),
            Self::Share(percent) => format!("{percent}%"),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&human(*bytes)),
            Self::Share(percent) => write!(f, "{}%", (percent * 1e4).round() / 1e4),
        }
    }
}

impl FromStr for Amount {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = (&trimmed[..end], trimmed[end..].trim().to_ascii_lowercase());
        if trimmed.is_empty() {
            return Err(refuse(text, "it is empty"));
        }
        if trimmed.starts_with('-') {
            return Err(refuse(text, "it is negative"));
        }
        // Only digits and dots are left here, so what does not parse has no digit or too many dots.
        let Ok(value) = number.parse::<f64>() else {
            return Err(refuse(text, "it does not begin with a number"));
        };
        if unit == "%" {
            if value > 100.0 {
                return Err(refuse(text, "it is more than 100%"));
            }
            return Ok(Self::Share(value));
        }
        let Some(&(_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(refuse(text, &format!("`{unit}` is no unit")));
        };
        if unit.is_empty() && (number.contains('.') || (1.0..LEAST_BARE as f64).contains(&value)) {
            return Err(refuse(text, &unitless(number, value)));
        }
        let bytes = if number.contains('.') {
            let bytes = (value * scale as f64).round();
            (bytes < TOO_LARGE).then_some(bytes as u64)
        } else {
            number.parse::<u64>().ok().and_then(|count| count.checked_mul(scale))
        };
        bytes.map(Self::Bytes).ok_or_else(|| refuse(text, "it does not fit 64 bits"))
    }
}

/// Why a number without a unit is no amount, with what was probably meant.
fn unitless(number: &str, value: f64) -> String {
    let percent = (value * 1e6).round() / 1e4;
    match value {
        _ if value <= 1.0 && number.contains('.') => {
            format!("it has no unit, and a share is written as a percentage (`{percent}%`)")
        }
        _ if value <= 100.0 => format!("it has no unit (`{number}%`? `{number}GiB`?)"),
        _ => format!("it has no unit (`{number}MiB`? `{number}B`?)"),
    }
}

/// The error that says why, and what would have been taken.
fn refuse(text: &str, reason: &str) -> Error {
    Error::invalid(format!(
        "`{text}` is no amount of memory: {reason}; write a share as `20%` or a size as `8GiB` (also `1.5 GB`, \
         `512KiB`, `4096B`)"
    ))
}

/// Bytes for a person to read: at most one decimal, binary units (`1.5 GiB`).
pub fn human(bytes: u64) -> String {
    let mut scale: u128 = 1;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].into_iter();
    loop {
        let tenths = (u128::from(bytes) * 10 + scale / 2) / scale;
        let unit = units.next();
        if tenths < 10_240 || unit.is_none() {
            let (whole, tenth, unit) = (tenths / 10, tenths % 10, unit.unwrap_or("EiB"));
            return if tenth == 0 { format!("{whole} {unit}") } else { format!("{whole}.{tenth} {unit}") };
        }
        scale <<= 10;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> u64 {
        text.parse::<Amount>().unwrap().of(1_000)
    }

    fn refusal(text: &str) -> String {
        text.parse::<Amount>().unwrap_err().message
    }

    #[test]
    fn sizes_are_read_in_decimal_and_binary_units_of_any_case() {
        assert_eq!(bytes("65536"), 65_536);
        assert_eq!(bytes("4096B"), 4096);
        assert_eq!(bytes("512KiB"), 512 << 10);
        assert_eq!(bytes("100mb"), 100_000_000);
        assert_eq!(bytes(" 1.5 GB "), 1_500_000_000);
        assert_eq!(bytes("8GIB"), 8 << 30);
        assert_eq!(bytes(".5KiB"), 512);
        assert_eq!(bytes("18446744073709551615"), u64::MAX);
    }

    #[test]
    fn shares_are_of_the_whole_and_exact_where_the_whole_allows_it() {
        assert_eq!(bytes("20%"), 200);
        assert_eq!(bytes("0.5 %"), 5);
        assert_eq!("29%".parse::<Amount>().unwrap().of(100), 29);
        assert_eq!("100%".parse::<Amount>().unwrap().of(u64::MAX - 1), u64::MAX - 1);
        assert_eq!("99.9999999999999999%".parse::<Amount>().unwrap().of(u64::MAX), u64::MAX);
    }

    #[test]
    fn nothing_at_all_is_an_amount() {
        assert_eq!((bytes("0"), bytes("0%"), bytes("0 GiB")), (0, 0, 0));
    }

    #[test]
    fn every_refusal_says_why_and_which_forms_are_taken() {
        for (text, reason) in [
            ("", "is empty"),
            ("  ", "is empty"),
            ("-1GB", "is negative"),
            ("NaN", "does not begin with a number"),
            ("GiB", "does not begin with a number"),
            (".", "does not begin with a number"),
            ("1.2.3", "does not begin with a number"),
            ("12 apples", "`apples` is no unit"),
            ("8G", "`g` is no unit"),
            ("1e9", "`e9` is no unit"),
            ("100.1%", "is more than 100%"),
            ("18446744073709551616", "does not fit"),
            ("0.2", "it has no unit, and a share is written as a percentage (`20%`)"),
            (".5", "(`50%`)"),
            ("0.0", "(`0%`)"),
            ("20", "it has no unit (`20%`? `20GiB`?)"),
            ("1", "it has no unit (`1%`? `1GiB`?)"),
            ("1.5", "it has no unit (`1.5%`? `1.5GiB`?)"),
            ("512", "it has no unit (`512MiB`? `512B`?)"),
            ("65535", "it has no unit"),
            ("65536.5", "it has no unit"),
            ("16EiB", "does not fit"),
            ("99999999999999999999.5EB", "does not fit"),
        ] {
            let message = refusal(text);
            assert!(message.contains(reason), "{text:?} gave {message}");
            assert!(message.contains("`8GiB`") && message.contains("`20%`"), "{message}");
        }
    }

    #[test]
    fn people_read_at_most_one_decimal() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(3 << 29), "1.5 GiB");
        assert_eq!(human((1 << 20) - 1), "1 MiB");
        assert_eq!(human(u64::MAX), "16 EiB");
    }

    proptest! {
        #[test]
        fn plain_bytes_come_back_exactly(size in LEAST_BARE..) {
            prop_assert_eq!(size.to_string().parse::<Amount>(), Ok(Amount::Bytes(size)));
        }

        #[test]
        fn an_exact_amount_is_read_again_as_it_was(size: u64, percent in 0.0..=100.0f64) {
            for amount in [Amount::Bytes(size), Amount::Share(percent)] {
                prop_assert_eq!(amount.exact().parse::<Amount>(), Ok(amount));
            }
        }

        #[test]
        fn what_a_person_reads_can_be_typed_back(size in 0..u64::MAX / 100 * 99) {
            let Amount::Bytes(typed) = human(size).parse::<Amount>().unwrap() else {
                return Err(TestCaseError::fail("a size became a share"));
            };
            prop_assert_eq!(human(typed), human(size));
            prop_assert!(typed.abs_diff(size) as f64 <= 0.05 * size as f64 + 1.0);
        }

        #[test]
        fn a_share_is_never_more_than_its_whole(percent in 0.0..=100.0f64, whole: u64) {
            let share: Amount = format!("{percent}%").parse().unwrap();
            prop_assert!(share.of(whole) <= whole);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*", near in "[-+ ]?[0-9.]{0,25} ?[a-zA-Z%µ]{0,4}") {
            let _ = text.parse::<Amount>();
            let _ = near.parse::<Amount>();
        }
    }
}
