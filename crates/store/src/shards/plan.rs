//! Which members of a sample are its parts, and which is its label.

use hotset_core::{Error, Result};

/// The member that holds a label, and the field of it if it is JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LabelAt {
    pub(super) extension: String,
    pub(super) field: Option<String>,
}

/// What is taken of every sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// The extensions of each part; of several the first that is there.
    pub(super) parts: Vec<Vec<String>>,
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
        let mut taken: Vec<Vec<String>> = parts
            .iter()
            .map(|part| part.split(';').map(bare).filter(|part| !part.is_empty()).collect())
            .collect();
        if taken.iter().any(Vec::is_empty) {
            return Err(Error::invalid(
                "`parts` names an empty extension; write it like `(\"jpg\", \"json\")`",
            ));
        }
        if taken.is_empty() {
            let is_label = |extension: &str| {
                label.as_ref().is_some_and(|at| at.field.is_none() && at.extension == extension)
            };
            taken = first.iter().filter(|name| !is_label(name)).map(|name| vec![name.clone()]).collect();
        }
        if taken.is_empty() {
            return Err(Error::invalid(format!(
                "the first sample of the shard `{shard}` has no parts beside its label; name them with `parts`"
            )));
        }
        Ok(Self { parts: taken, label })
    }

    /// The names of the parts.
    pub(super) fn names(&self) -> Vec<String> {
        self.parts.iter().map(|choices| choices.join(";")).collect()
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
        assert_eq!((plan.parts, plan.label), (vec![strings(&["jpg", "png"])], None));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let first = strings(&["cls"]);
        assert!(Plan::new(&[], "", &first, "s").unwrap_err().message.contains("`parts`"));
        assert!(Plan::new(&strings(&["."]), "", &first, "s").unwrap_err().message.contains("`parts`"));
        assert!(Plan::new(&[], "json:", &first, "s").unwrap_err().message.contains("`label=json:`"));
    }
}
