//! Labels that come one by one, as text: numbers, or names of classes.
//!
//! The first label says which. Numbers are taken as they are; names become the numbers of classes in the order
//! of their names, as an image folder has them.

use std::collections::HashMap;

use hotset_core::{Error, Result};

use crate::catalog::Builder;

/// Labels seen so far.
#[derive(Debug, Default)]
pub(crate) enum Labels {
    #[default]
    None,
    Numbers,
    /// Names, by the number they were given when they came up.
    Names(HashMap<String, i32>),
}

impl Labels {
    /// The number of the label that `text` is, for the sample `of`.
    pub(crate) fn number(&mut self, text: &str, of: &str) -> Result<i32> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Error::invalid(format!("the label of `{of}` is empty")));
        }
        let parsed = text.parse::<i64>().ok();
        if let Self::None = self {
            *self = if parsed.is_some() { Self::Numbers } else { Self::Names(HashMap::new()) };
        }
        match self {
            Self::Names(known) => {
                if let Some(number) = known.get(text) {
                    return Ok(*number);
                }
                let next = i32::try_from(known.len()).map_err(|_| Error::invalid("there are too many classes"))?;
                known.insert(text.to_owned(), next);
                Ok(next)
            }
            _ => parsed.and_then(|number| i32::try_from(number).ok()).ok_or_else(|| {
                Error::invalid(format!(
                    "the label `{text}` of `{of}` is no number of 32 bits, and the first label was one: write all \
                     labels as numbers, or all as names"
                ))
            }),
        }
    }

    /// Gives names to the labels that were pushed, if they were names.
    pub(crate) fn name(self, builder: &mut Builder) -> Result<()> {
        let Self::Names(known) = self else { return Ok(()) };
        let mut names = vec![String::new(); known.len()];
        for (name, number) in known {
            names[number as usize] = name;
        }
        builder.name_classes(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Sample, Shape};

    fn build(texts: &[&str]) -> Result<crate::Catalog> {
        let mut labels = Labels::default();
        let mut builder = Builder::of(Shape { labels: true, ..Shape::default() });
        let directory = builder.directory("")?;
        for (number, text) in texts.iter().enumerate() {
            let label = Some(labels.number(text, &number.to_string())?);
            builder.push_sample(directory, &number.to_string(), &Sample { label, ..Sample::default() })?;
        }
        labels.name(&mut builder)?;
        Ok(builder.finish())
    }

    #[test]
    fn numbers_stay_and_names_become_classes_in_their_order() {
        let numbers = build(&["7", " -3\n", "7"]).unwrap();
        assert_eq!((numbers.label(0), numbers.label(1)), (Some(7), Some(-3)));
        assert!(numbers.classes().is_empty() && numbers.labelled());
        let names = build(&["dog", "cat", "dog", "ant"]).unwrap();
        assert_eq!(names.classes(), ["ant", "cat", "dog"]);
        assert_eq!([0, 1, 2, 3].map(|id| names.label(id).unwrap()), [2, 1, 2, 0]);
        assert_ne!(build(&["a", "b"]).unwrap().identity(), build(&["a", "c"]).unwrap().identity());
    }

    #[test]
    fn a_name_among_numbers_and_a_number_too_large_are_told_with_their_sample() {
        for wrong in ["dog", "5000000000", "1.5"] {
            let error = build(&["7", wrong]).unwrap_err();
            assert!(error.message.contains(&format!("`{wrong}` of `1`")), "{}", error.message);
        }
        assert!(build(&[" "]).unwrap_err().message.contains("empty"));
    }
}
