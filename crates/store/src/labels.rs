//! Labels that come one by one, as text: numbers, lists of numbers, or names of classes.
//!
//! The first label says which; one that is something else is an error. Numbers are taken as they are, and where one of
//! them is written with a fraction all are floats. Names become the numbers of classes in the order of their names, as
//! an image folder has them.

use std::collections::HashMap;

use hotset_core::{Error, Result};

use crate::catalog::{Builder, Label};

/// Labels seen so far.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    /// What the first was.
    first: Option<What>,
    /// Names, by the number they were given when they came up.
    known: HashMap<String, i32>,
    /// The list that was read last.
    list: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Number,
    List,
    Name,
}

impl What {
    fn shown(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::List => "a list of numbers",
            Self::Name => "the name of a class",
        }
    }
}

/// What a text is.
enum Read {
    Whole(i32),
    Float(f64),
    /// Whether one of its values is a float.
    List(bool),
    Name,
}

impl Labels {
    /// The label that `text` is; `of` says whose.
    pub(crate) fn label(&mut self, text: &str, of: &dyn Fn() -> String) -> Result<Label<'_>> {
        let text = text.trim();
        let read = read(text, &mut self.list)
            .map_err(|why| Error::invalid(format!("the label `{text}` of {} {why}", of())))?;
        let what = match read {
            Read::Whole(_) | Read::Float(_) => What::Number,
            Read::List(_) => What::List,
            Read::Name => What::Name,
        };
        let first = *self.first.get_or_insert(what);
        if first != what {
            return Err(Error::invalid(format!(
                "the label `{text}` of {} is {}, and the first label is {}: write all labels as numbers, all as lists \
                 like `[0, 1]`, or all as names",
                of(),
                what.shown(),
                first.shown()
            )));
        }
        Ok(match read {
            Read::Whole(whole) => Label::Whole(whole),
            Read::Float(float) => Label::Float(float),
            Read::List(floats) => Label::List { values: &self.list, floats },
            Read::Name => Label::Whole(self.class(text)?),
        })
    }

    /// The number of a class.
    fn class(&mut self, name: &str) -> Result<i32> {
        if let Some(number) = self.known.get(name) {
            return Ok(*number);
        }
        let next =
            i32::try_from(self.known.len()).map_err(|_| Error::invalid("there are too many classes"))?;
        self.known.insert(name.to_owned(), next);
        Ok(next)
    }

    /// Gives names to the labels that were pushed, if they were names.
    pub(crate) fn name(self, builder: &mut Builder) -> Result<()> {
        if self.first != Some(What::Name) {
            return Ok(());
        }
        let mut names = vec![String::new(); self.known.len()];
        for (name, number) in self.known {
            names[number as usize] = name;
        }
        builder.name_classes(names)
    }
}

/// What `text` is, or why it is nothing; the values of a list are put into `list`.
fn read(text: &str, list: &mut Vec<f64>) -> std::result::Result<Read, String> {
    if text.is_empty() {
        return Err("is empty".into());
    }
    if text.starts_with('[') {
        return read_list(text, list);
    }
    if let Some(number) = number(text) {
        return number;
    }
    let values = |text: &str| {
        let mut parts = text.split([';', ',', '|', ' ', '\t']).filter(|part| !part.is_empty());
        parts.clone().count() > 1 && parts.all(|part| number(part).is_some())
    };
    if values(text) || text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).is_some_and(values) {
        return Err("is several numbers: write a list as `[0, 1]`".into());
    }
    Ok(Read::Name)
}

/// The number that `text` is; `None` if it is none.
fn number(text: &str) -> Option<std::result::Result<Read, String>> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if digits.bytes().all(|c| c.is_ascii_digit()) {
        return Some(text.parse().map(Read::Whole).map_err(|_| "is no whole number of 32 bits".into()));
    }
    let float: f64 = text.parse().ok()?;
    Some(if float.is_finite() { Ok(Read::Float(float)) } else { Err("is too large".into()) })
}

fn read_list(text: &str, list: &mut Vec<f64>) -> std::result::Result<Read, String> {
    let wrong = || "is no list of numbers, as `[0, 1]` is one".to_owned();
    let values: Vec<serde_json::Number> = serde_json::from_str(text).map_err(|_| wrong())?;
    list.clear();
    for value in &values {
        if !value.is_f64() && value.as_i64().is_none_or(|whole| i32::try_from(whole).is_err()) {
            return Err(format!("holds `{value}`, which is no whole number of 32 bits"));
        }
        list.push(value.as_f64().ok_or_else(wrong)?);
    }
    Ok(Read::List(values.iter().any(serde_json::Number::is_f64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{LabelKind, Sample, Shape};

    fn build(texts: &[&str]) -> Result<crate::Catalog> {
        let mut labels = Labels::default();
        let mut builder = Builder::of(Shape { labels: true, ..Shape::default() });
        let directory = builder.directory("")?;
        for (number, text) in texts.iter().enumerate() {
            let label = Some(labels.label(text, &|| format!("`{number}`"))?);
            builder.push_sample(directory, &number.to_string(), &Sample { label, ..Sample::default() })?;
        }
        labels.name(&mut builder)?;
        Ok(builder.finish())
    }

    fn wire(catalog: &crate::Catalog) -> (Vec<i64>, Vec<u32>) {
        let (mut values, mut lengths) = (Vec::new(), Vec::new());
        (0..catalog.len() as u32).for_each(|id| catalog.append_label(id, &mut values, &mut lengths));
        (values, lengths)
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
    fn a_number_with_a_fraction_makes_all_of_them_floats() {
        for texts in [["0.0", "2.0", "10.0"], ["0", "2", "10.0"], ["0.0", "2", "1e1"]] {
            let floats = build(&texts).unwrap();
            assert_eq!(floats.label_kind(), LabelKind::Float);
            assert!(floats.classes().is_empty());
            let bits = [0.0f64, 2.0, 10.0].map(|float| float.to_bits() as i64).to_vec();
            assert_eq!(wire(&floats), (bits, vec![]));
        }
        assert_ne!(build(&["1", "2"]).unwrap().identity(), build(&["1.0", "2"]).unwrap().identity());
    }

    #[test]
    fn lists_are_lists_of_what_they_hold() {
        let wholes = build(&["[0, 1]", "[]", "[5]"]).unwrap();
        assert_eq!((wholes.label_kind(), wire(&wholes)), (LabelKind::Wholes, (vec![0, 1, 5], vec![2, 0, 1])));
        let floats = build(&["[0, 1]", "[0.5, 1]"]).unwrap();
        let bits = [0.0f64, 1.0, 0.5, 1.0].map(|float| float.to_bits() as i64).to_vec();
        assert_eq!((floats.label_kind(), wire(&floats)), (LabelKind::Floats, (bits, vec![2, 2])));
        assert_eq!(wholes.label(0), build(&["[0, 1]"]).unwrap().label(0));
        assert_ne!(wholes.label(0), wholes.label(2));
    }

    #[test]
    fn what_does_not_fit_the_others_or_could_mean_two_things_is_told_with_its_sample() {
        for (first, wrong, says) in [
            ("7", "dog", "name of a class, and the first label is a number"),
            ("dog", "7", "a number, and the first label is the name of a class"),
            ("7", "[1]", "a list of numbers"),
            ("7", "5000000000", "32 bits"),
            ("7", "99999999999999999999", "32 bits"),
            ("7.5", "1e999", "too large"),
            ("dog", "0;1", "several numbers: write a list as `[0, 1]`"),
            ("dog", "0 1 0", "several numbers"),
            ("[1]", "[1, \"a\"]", "no list of numbers"),
            ("[1]", "[5000000000]", "32 bits"),
            ("dog", " ", "is empty"),
        ] {
            let error = build(&[first, wrong]).unwrap_err();
            let named = format!("`{}` of `1`", wrong.trim());
            assert!(error.message.contains(&named) && error.message.contains(says), "{}", error.message);
        }
        assert_eq!(build(&["nan", "inf", "3d", "1-2"]).unwrap().classes(), ["1-2", "3d", "inf", "nan"]);
    }
}
