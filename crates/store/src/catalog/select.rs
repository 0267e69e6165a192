//! A part of a catalog, as a catalog of its own.

use std::collections::HashMap;

use hotset_core::{Error, Id, Result};

use super::{Builder, Catalog, Directory, Sample, Shape};

impl Catalog {
    /// The samples `ids`, in that order, with ids of their own from 0. Each may come once.
    pub fn select(&self, ids: &[Id]) -> Result<Self> {
        let mut chosen = vec![false; self.len()];
        for &id in ids {
            let chosen = chosen.get_mut(id as usize).ok_or_else(|| {
                Error::invalid(format!(
                    "sample `{id}` cannot be selected: the dataset has {} samples",
                    self.len()
                ))
            })?;
            if std::mem::replace(chosen, true) {
                return Err(Error::invalid(format!("sample `{id}` is selected twice")));
            }
        }
        let shape =
            Shape { classes: self.classes.clone(), labels: self.labels.is_some(), parts: self.parts.clone() };
        let mut builder = Builder::of(shape);
        let mut directories: HashMap<u32, Directory> = HashMap::new();
        for &id in ids {
            let run = self.run(id);
            let directory = match directories.get(&run.directory.0) {
                Some(&directory) => directory,
                None => {
                    let directory = builder.directory(self.directories.get(run.directory.0 as usize))?;
                    directories.insert(run.directory.0, directory);
                    directory
                }
            };
            let (size, version) = (self.size(id), self.version(id));
            if self.scattered() {
                let label = self.labels.as_ref().map(|labels| labels.get(id as usize));
                let sample = Sample { offset: self.offset(id), size, version, label, spans: self.spans(id) };
                builder.push_sample(directory, self.name(id), &sample)?;
            } else {
                builder.push(directory, self.name(id), size, version, run.label)?;
            }
        }
        Ok(builder.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Label;
    use super::*;

    fn whole() -> Catalog {
        let mut builder = Builder::new(vec!["cat".into(), "dog".into()]);
        for (label, class) in ["cat", "dog"].into_iter().enumerate() {
            let directory = builder.directory(class).unwrap();
            for number in 0..3u64 {
                let name = format!("{number}.jpg");
                builder.push(directory, &name, 10 + number, number as u32, Some(label as u32)).unwrap();
            }
        }
        builder.finish()
    }

    #[test]
    fn a_selection_has_what_was_selected_in_that_order() {
        let whole = whole();
        let part = whole.select(&[4, 0, 5]).unwrap();
        assert_eq!(part.len(), 3);
        for (own, id) in [4, 0, 5].into_iter().enumerate() {
            let own = own as Id;
            assert_eq!((part.key(own), part.label(own)), (whole.key(id), whole.label(id)));
            assert_eq!((part.size(own), part.version(own)), (whole.size(id), whole.version(id)));
        }
        assert_eq!(part.classes(), whole.classes());
        assert_ne!(part.identity(), whole.identity());
        assert_eq!(part.identity(), whole.select(&[4, 0, 5]).unwrap().identity());
    }

    #[test]
    fn parts_places_and_labels_of_their_own_come_along() {
        let shape = Shape { labels: true, parts: vec!["jpg".into(), "txt".into()], ..Shape::default() };
        let mut builder = Builder::of(shape);
        let shard = builder.directory("train-0.tar").unwrap();
        for number in 0..4u32 {
            let spans = [0, 5, 5, 3];
            let sample = Sample {
                offset: Some(u64::from(number) * 1024),
                size: 8,
                version: 7,
                label: Some(Label::Whole(-1 - number as i32)),
                spans: &spans,
            };
            builder.push_sample(shard, &number.to_string(), &sample).unwrap();
        }
        let whole = builder.finish();
        let part = whole.select(&[3, 1]).unwrap();
        assert_eq!((part.label(0), part.offset(0), part.spans(0)), (Some(-4), Some(3072), whole.spans(3)));
        assert_eq!(part.key(1), whole.key(1));
    }

    #[test]
    fn a_sample_twice_or_beyond_the_end_is_refused() {
        assert!(whole().select(&[1, 1]).unwrap_err().message.contains("twice"));
        assert!(whole().select(&[6]).unwrap_err().message.contains("6 samples"));
        assert!(whole().select(&[]).unwrap().is_empty());
    }
}
