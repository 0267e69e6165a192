//! Which members of a sample are its parts, and which is its label.

use hotset_core::{Error, Result};

/// The member that holds a label, and the field of it if it is JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LabelAt {
    pub(super) extension: String,
    pub(super) field: Option<String>,
}

/// A part of every sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Of several extensions the first that is there.
    pub(super) choices: Vec<String>,
    /// Samples may be without it: written with a question mark behind it.
    pub(super) optional: bool,
}

impl Part {
    fn parse(written: &str) -> Self {
        let (choices, optional) = match written.trim().strip_suffix('?') {
            Some(choices) => (choices, true),
            None => (written, false),
        };
        let choices = choices.split(';').map(bare).filter(|part| !part.is_empty()).collect();
        Self { choices, optional }
    }

    /// Its name, as users write it.
    pub(super) fn name(&self) -> String {
        self.choices.join(";") + if self.optional { "?" } else { "" }
    }
}

/// What is taken of every sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    pub(super) label: Option<LabelAt>,
}

impl Plan {
    /// What `parts` and `label` ask for. What they leave open is taken from the extensions of the first sample: a
    /// label from `cls`, parts from all others.
    pub(super) fn new(parts: &[String], label: &str, first: &[String], shard: &str) -> Result<Self> {
        let label = match label.split_once(':') {
            _ if label == "none" => None,
            None if label.is_empty() => first
                .iter()
                .any(|extension| extension == "cls")
                .then(|| LabelAt { extension: "cls".into(), field: None }),
            None => Some(LabelAt { extension: bare(label), field: None }),
            Some((extension, field)) if !field.is_empty() && !extension.is_empty() => {
                Some(LabelAt { extension: bare(extension), field: Some(field.to_owned()) })
            }
            Some(_) => {
                return Err(Error::invalid(format!(
                    "`label={label}`: write a member like `cls`, a field of one like `json:label`, or `none`"
                )));
            }
        };
        let mut taken: Vec<Part> = parts.iter().map(|part| Part::parse(part)).collect();
        if taken.iter().any(|part| part.choices.is_empty()) {
            return Err(Error::invalid(
                "`parts` names an empty extension; write it like `(\"jpg\", \"json\")`",
            ));
        }
        if let [Part { optional: true, .. }] = taken.as_slice() {
            return Err(Error::invalid(format!(
                "`parts` names `{}` alone, and a sample without its only part is none; write it without `?`",
                parts.concat()
            )));
        }
        if taken.is_empty() {
            let is_label = |extension: &str| {
                label.as_ref().is_some_and(|at| at.field.is_none() && at.extension == extension)
            };
            let part = |name: &String| Part { choices: vec![name.clone()], optional: false };
            taken = first.iter().filter(|name| !is_label(name)).map(part).collect();
        }
        if taken.is_empty() {
            return Err(Error::invalid(format!(
                "the first sample of the shard `{shard}` has no parts beside its label; name them with `parts`"
            )));
        }
        Ok(Self { parts: taken, label })
    }

    /// Whether members that end in `extension` are taken.
    pub(super) fn takes(&self, extension: &str) -> bool {
        let named = |part: &Part| part.choices.iter().any(|choice| choice == extension);
        self.parts.iter().any(named) || self.label.as_ref().is_some_and(|at| at.extension == extension)
    }

    /// The names of the parts.
    pub(super) fn names(&self) -> Vec<String> {
        self.parts.iter().map(Part::name).collect()
    }
}

fn bare(extension: &str) -> String {
    extension.trim().trim_start_matches('.').to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| text.to_string()).collect()
    }

    #[test]
    fn what_is_left_open_comes_from_the_first_sample() {
        let first = strings(&["jpg", "cls", "json"]);
        let plan = Plan::new(&[], "", &first, "s").unwrap();
        assert_eq!(plan.names(), ["jpg", "json"]);
        assert_eq!(plan.label.unwrap().extension, "cls");
        let plan = Plan::new(&[], "json:class", &first, "s").unwrap();
        assert_eq!(plan.names(), ["jpg", "cls", "json"]);
        assert_eq!(plan.label.unwrap().field.as_deref(), Some("class"));
        let plan = Plan::new(&strings(&[".JPG;png"]), "none", &first, "s").unwrap();
        let part = Part { choices: strings(&["jpg", "png"]), optional: false };
        assert_eq!((plan.parts, plan.label), (vec![part], None));
        let plan = Plan::new(&strings(&["jpg", ".Mask.PNG;seg ?"]), "", &first, "s").unwrap();
        assert_eq!(plan.names(), ["jpg", "mask.png;seg?"]);
        assert!(plan.parts[1].optional && !plan.parts[0].optional);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let first = strings(&["cls"]);
        assert!(Plan::new(&[], "", &first, "s").unwrap_err().message.contains("`parts`"));
        assert!(Plan::new(&strings(&["."]), "", &first, "s").unwrap_err().message.contains("`parts`"));
        assert!(Plan::new(&strings(&["?", "a"]), "", &first, "s").unwrap_err().message.contains("`parts`"));
        let alone = Plan::new(&strings(&["jpg?"]), "", &first, "s").unwrap_err();
        assert!(alone.message.contains("`jpg?` alone"), "{}", alone.message);
        assert!(Plan::new(&[], "json:", &first, "s").unwrap_err().message.contains("`label=json:`"));
    }
}
