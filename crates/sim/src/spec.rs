//! What to run: a strategy and a policy by name, with settings, as a person types them.
//!
//! `iis+icache` is a pair; `iis[fraction=0.5]+icache[strict=true]` gives settings; `iis` alone brings the policy
//! that belongs to it.

use std::fmt;
use std::str::FromStr;

use hotset_core::{Error, Result};

/// A registered name, and the settings given for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Named {
    /// The name in the registry.
    pub name: String,
    /// Settings and their values.
    pub settings: Vec<(String, String)>,
}

impl Named {
    /// Its settings as the registries take them.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl FromStr for Named {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let (name, rest) = text.split_once('[').unwrap_or((text, "]"));
        let rest = rest.strip_suffix(']').ok_or_else(|| refuse(text, "it has no closing `]`"))?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(refuse(text, "it does not begin with a name"));
        }
        let settings = rest.split(',').filter(|entry| !entry.trim().is_empty()).map(|entry| {
            let (key, value) = entry
                .split_once('=')
                .ok_or_else(|| refuse(text, &format!("`{}` is not `setting=value`", entry.trim())))?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        });
        Ok(Self { name: name.to_owned(), settings: settings.collect::<Result<_>>()? })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.settings.is_empty() {
            return Ok(());
        }
        let settings: Vec<String> =
            self.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        write!(f, "[{}]", settings.join(","))
    }
}

/// A strategy, and a policy unless the strategy's own is meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// What is trained.
    pub strategy: Named,
    /// What stays.
    pub policy: Option<Named>,
}

impl FromStr for Pair {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (strategy, policy) = match text.split_once('+') {
            Some((strategy, policy)) => (strategy, Some(policy.parse()?)),
            None => (text, None),
        };
        Ok(Self { strategy: strategy.parse()?, policy })
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.policy {
            Some(policy) => write!(f, "{}+{policy}", self.strategy),
            None => write!(f, "{}", self.strategy),
        }
    }
}

/// The items of a list, split at commas outside of brackets.
pub fn split(text: &str) -> Vec<&str> {
    let (mut items, mut depth, mut from) = (Vec::new(), 0usize, 0);
    for (at, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                items.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[from..]);
    items.retain(|item| !item.trim().is_empty());
    items
}

fn refuse(text: &str, reason: &str) -> Error {
    Error::invalid(format!(
        "`{text}` names nothing to run: {reason}; write `uniform+lru`, `iis[fraction=0.5]+icache[strict=true]`, or a \
         strategy alone (`iis`)"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pairs_are_read_as_they_are_shown() {
        for text in ["uniform+lru", "iis", "iis[fraction=0.5,warmup=2]+icache[strict=true]", "a+b[c=d]"] {
            assert_eq!(text.parse::<Pair>().unwrap().to_string(), text);
        }
        assert_eq!(
            split("iis[fraction=0.5,warmup=2]+icache, uniform,"),
            ["iis[fraction=0.5,warmup=2]+icache", " uniform"]
        );
    }

    #[test]
    fn what_names_nothing_is_refused_with_the_form_to_use() {
        for text in ["", "+lru", "iis[", "iis[f]", "i is", "iis+"] {
            let message = text.parse::<Pair>().unwrap_err().message;
            assert!(message.contains("iis[fraction=0.5]+icache"), "{message}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z\\[\\]=,+ é]{0,20}") {
            let _ = text.parse::<Pair>();
            let _ = split(&text);
        }
    }
}
