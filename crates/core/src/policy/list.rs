//! Residents in the order in which they came, any of them taken out in one step.
//!
//! A list of neighbours that runs through one slot for each id, eight bytes, so that nothing allocates.

use crate::Id;

/// The end of the list. No sample has this id: a catalog holds at most `u32::MAX` samples, from 0.
const END: Id = Id::MAX;

/// A resident's neighbours.
#[derive(Debug, Clone, Copy)]
struct Link {
    newer: Id,
    older: Id,
}

/// Residents from the newest to the oldest.
#[derive(Debug)]
pub(super) struct List {
    links: Vec<Link>,
    newest: Id,
    oldest: Id,
    len: usize,
}

impl List {
    /// An empty one, for so many samples.
    pub(super) fn new(samples: usize) -> Self {
        Self { links: vec![Link { newer: END, older: END }; samples], newest: END, oldest: END, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn link(&mut self, id: Id) -> &mut Link {
        &mut self.links[id as usize]
    }

    /// Takes in `id`, which is not here, as the newest.
    pub(super) fn push(&mut self, id: Id) {
        let older = std::mem::replace(&mut self.newest, id);
        *self.link(id) = Link { newer: END, older };
        match older {
            END => self.oldest = id,
            _ => self.link(older).newer = id,
        }
        self.len += 1;
    }

    /// Takes in `id`, which is not here, as the oldest.
    pub(super) fn push_oldest(&mut self, id: Id) {
        let newer = std::mem::replace(&mut self.oldest, id);
        *self.link(id) = Link { newer, older: END };
        match newer {
            END => self.newest = id,
            _ => self.link(newer).older = id,
        }
        self.len += 1;
    }

    /// The oldest.
    pub(super) fn oldest(&self) -> Option<Id> {
        Some(self.oldest).filter(|&id| id != END)
    }

    /// Takes out the oldest.
    pub(super) fn pop_oldest(&mut self) -> Option<Id> {
        let oldest = self.oldest()?;
        self.remove(oldest);
        Some(oldest)
    }

    /// Takes out `id`, which is here.
    pub(super) fn remove(&mut self, id: Id) {
        let Link { newer, older } = *self.link(id);
        match newer {
            END => self.newest = older,
            _ => self.link(newer).older = older,
        }
        match older {
            END => self.oldest = newer,
            _ => self.link(older).newer = newer,
        }
        self.len -= 1;
    }

    /// All, from the oldest to the newest.
    pub(super) fn iter(&self) -> impl Iterator<Item = Id> + '_ {
        std::iter::successors(self.oldest(), |&id| {
            Some(self.links[id as usize].newer).filter(|&id| id != END)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_does_what_a_plain_queue_does(steps in proptest::collection::vec((0u32..20, 0u8..5), 0..200)) {
            let (mut list, mut model) = (List::new(20), VecDeque::new());
            for (id, step) in steps {
                match (step, model.iter().position(|&other| other == id)) {
                    (0, _) => prop_assert_eq!(list.pop_oldest(), model.pop_front()),
                    (1, Some(place)) => {
                        model.remove(place);
                        list.remove(id);
                    }
                    (2, None) => {
                        model.push_front(id);
                        list.push_oldest(id);
                    }
                    (_, None) => {
                        model.push_back(id);
                        list.push(id);
                    }
                    _ => {}
                }
                prop_assert_eq!(Vec::from_iter(list.iter()), Vec::from(model.clone()));
                prop_assert_eq!(list.len(), model.len());
            }
        }
    }
}
