//! Residents side by side, any of them taken out in one step.
//!
//! The last takes the place of one that is taken out. Where each stands is kept for every id, four bytes each.

use crate::Id;

/// Residents by place.
#[derive(Debug)]
pub(super) struct Shelf {
    ids: Vec<Id>,
    places: Vec<u32>,
}

impl Shelf {
    /// An empty one, for so many samples.
    pub(super) fn new(samples: usize) -> Self {
        Self { ids: Vec::new(), places: vec![0; samples] }
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn contains(&self, id: Id) -> bool {
        let place = self.places.get(id as usize).and_then(|&place| self.ids.get(place as usize));
        place == Some(&id)
    }

    /// Adds `id`, which is not here, as the last.
    pub(super) fn push(&mut self, id: Id) {
        self.places[id as usize] = self.ids.len() as u32;
        self.ids.push(id);
    }

    /// The last.
    pub(super) fn last(&self) -> Option<Id> {
        self.ids.last().copied()
    }

    /// Takes out the last.
    pub(super) fn pop(&mut self) -> Option<Id> {
        self.ids.pop()
    }

    /// Takes out the one at a place.
    pub(super) fn take(&mut self, place: usize) -> Id {
        let id = self.ids.swap_remove(place);
        if let Some(&moved) = self.ids.get(place) {
            self.places[moved as usize] = place as u32;
        }
        id
    }

    /// Takes out `id`, which is here.
    pub(super) fn remove(&mut self, id: Id) {
        self.take(self.places[id as usize] as usize);
    }

    /// All, by place.
    pub(super) fn iter(&self) -> impl Iterator<Item = Id> + '_ {
        self.ids.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_does_what_a_plain_vector_does(steps in proptest::collection::vec((0u32..20, 0u8..4), 0..200)) {
            let (mut shelf, mut model) = (Shelf::new(20), Vec::new());
            for (id, step) in steps {
                match (step, model.iter().position(|&other| other == id)) {
                    (0, _) => prop_assert_eq!(shelf.pop(), model.pop()),
                    (1, _) if !model.is_empty() => {
                        let place = id as usize % model.len();
                        prop_assert_eq!(shelf.take(place), model.swap_remove(place));
                    }
                    (2, Some(place)) => {
                        model.swap_remove(place);
                        shelf.remove(id);
                    }
                    (_, None) => {
                        model.push(id);
                        shelf.push(id);
                    }
                    _ => {}
                }
                prop_assert_eq!(Vec::from_iter(shelf.iter()), model.clone());
                prop_assert_eq!(shelf.len(), model.len());
                prop_assert!((0..21).all(|id| shelf.contains(id) == model.contains(&id)));
            }
        }
    }
}
