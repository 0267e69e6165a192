//! Settings of strategies and policies: names and values as people type them, checked against what each takes.
//!
//! Every registered strategy and policy lists its [`Parameter`]s with their defaults. What a user gives is a
//! list of names and texts, the same in Python, in the command line, in a report and in a state file;
//! [`Values::resolve`] checks it once, so that reading a value afterwards cannot fail.

use std::collections::BTreeMap;

use crate::{Error, Result};

/// What a parameter's value may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Domain {
    /// A number between two others, both included.
    Number(f64, f64),
    /// A number as above, or the word `auto`.
    NumberOrAuto(f64, f64),
    /// A whole number between two others, both included.
    Whole(u64, u64),
    /// `true` or `false`.
    Switch,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// One setting that a strategy or a policy takes.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Its name everywhere.
    pub name: &'static str,
    /// Its value where none is given.
    pub default: &'static str,
    /// What it may be.
    pub domain: Domain,
    /// What it does, in one line.
    pub summary: &'static str,
}

/// The value of every parameter of one strategy or policy.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Values {
    texts: BTreeMap<&'static str, String>,
    given: Vec<&'static str>,
}

impl Values {
    /// The defaults of `parameters`.
    pub fn defaults(parameters: &'static [Parameter]) -> Self {
        let texts = parameters.iter().map(|parameter| (parameter.name, parameter.default.to_owned()));
        Self { texts: texts.collect(), given: Vec::new() }
    }

    /// The values of `of`, which takes `parameters`: those given, and the defaults of the others.
    pub fn resolve<'a>(
        of: &str,
        parameters: &'static [Parameter],
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        Self::resolve_with(of, parameters, &[], given)
    }

    /// The same where `common` parameters are taken too, which have no value unless they are given.
    pub fn resolve_with<'a>(
        of: &str,
        parameters: &'static [Parameter],
        common: &'static [Parameter],
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let mut values = Self::defaults(parameters);
        let known = || parameters.iter().chain(common);
        for (name, text) in given {
            let Some(parameter) = known().find(|parameter| parameter.name == name) else {
                return Err(unknown(of, name, known()));
            };
            check(of, parameter, text.trim())?;
            values.texts.insert(parameter.name, text.trim().to_owned());
            values.given.push(parameter.name);
        }
        Ok(values)
    }

    /// These values, and the defaults of `parameters` for those that are not there.
    #[must_use]
    pub fn or_defaults(mut self, parameters: &'static [Parameter]) -> Self {
        for parameter in parameters {
            self.texts.entry(parameter.name).or_insert_with(|| parameter.default.to_owned());
        }
        self
    }

    /// The number `name`; nothing when it is `auto`.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.text(name).parse().ok()
    }

    /// The number `name`, of a parameter that is always one.
    pub fn share(&self, name: &str) -> f64 {
        self.number(name).unwrap_or_default()
    }

    /// The whole number `name`.
    pub fn whole(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// Whether `name` is `true`.
    pub fn switch(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    /// The text of `name`.
    pub fn text(&self, name: &str) -> &str {
        self.texts.get(name).map_or("", String::as_str)
    }

    /// Whether a user gave `name`.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains(&name)
    }

    /// Every name and value, for a report or a state file.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.texts.iter().map(|(&name, text)| (name, text.as_str()))
    }
}

fn unknown<'a>(of: &str, name: &str, parameters: impl Iterator<Item = &'a Parameter>) -> Error {
    let known: Vec<String> = parameters.map(|parameter| format!("`{}`", parameter.name)).collect();
    let takes = if known.is_empty() { "no setting".to_owned() } else { known.join(", ") };
    Error::invalid(format!("`{of}` has no setting `{name}`; it takes {takes}"))
}

fn check(of: &str, parameter: &Parameter, text: &str) -> Result<()> {
    let within = |low: f64, high: f64| text.parse().is_ok_and(|value: f64| (low..=high).contains(&value));
    let (fits, wanted) = match parameter.domain {
        Domain::Number(low, high) => (within(low, high), format!("a number from {low} to {high}")),
        Domain::NumberOrAuto(low, high) => {
            (text == "auto" || within(low, high), format!("`auto` or a number from {low} to {high}"))
        }
        Domain::Whole(low, high) => (
            text.parse().is_ok_and(|value: u64| (low..=high).contains(&value)),
            format!("a whole number from {low} to {high}"),
        ),
        Domain::Switch => (matches!(text, "true" | "false"), "`true` or `false`".to_owned()),
        Domain::Word(words) => (
            words.contains(&text),
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
        ),
    };
    if fits {
        return Ok(());
    }
    Err(Error::invalid(format!("`{}` of `{of}` is `{text}`, but takes {wanted}", parameter.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &[Parameter] = &[
        Parameter { name: "fraction", default: "0.7", domain: Domain::Number(0.01, 1.0), summary: "" },
        Parameter { name: "fresh", default: "auto", domain: Domain::NumberOrAuto(0.0, 1.0), summary: "" },
        Parameter { name: "warmup", default: "1", domain: Domain::Whole(0, 100), summary: "" },
        Parameter { name: "strict", default: "false", domain: Domain::Switch, summary: "" },
        Parameter { name: "split", default: "fixed", domain: Domain::Word(&["fixed", "paper"]), summary: "" },
    ];

    fn refusal(name: &str, text: &str) -> String {
        Values::resolve("iis", SOME, [(name, text)]).unwrap_err().message
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        let values = Values::resolve("iis", SOME, [("strict", "true"), ("fresh", " 0.25 ")]).unwrap();
        assert_eq!((values.share("fraction"), values.whole("warmup")), (0.7, 1));
        assert_eq!((values.number("fresh"), values.switch("strict")), (Some(0.25), true));
        assert!(values.is_given("strict") && !values.is_given("warmup"));
        assert_eq!(Values::defaults(SOME).number("fresh"), None);
        assert_eq!(values.iter().count(), SOME.len());
    }

    #[test]
    fn an_unknown_name_lists_those_there_are() {
        let listed = "`fraction`, `fresh`, `warmup`, `strict`, `split`";
        assert_eq!(refusal("f", "1"), format!("`iis` has no setting `f`; it takes {listed}"));
        let none = Values::resolve("lru", &[], [("f", "1")]).unwrap_err().message;
        assert_eq!(none, "`lru` has no setting `f`; it takes no setting");
    }

    #[test]
    fn a_value_that_cannot_be_says_what_could() {
        for (name, text) in [("fraction", "0"), ("fraction", "NaN"), ("fresh", "some"), ("warmup", "-1")] {
            assert!(refusal(name, text).contains("takes"), "{name} {text}");
        }
        assert_eq!(refusal("strict", "yes"), "`strict` of `iis` is `yes`, but takes `true` or `false`");
        assert_eq!(refusal("split", "half"), "`split` of `iis` is `half`, but takes `fixed` or `paper`");
    }
}
