//! An indexed heap over dense ids: the smallest key on top, any id's key changed or taken out in O(log n).
//!
//! Four children a node: a quarter of the depth of cache misses of two. Where each id stands is kept by the
//! caller, four bytes an id, so that several heaps that never share an id share one such list. Equal keys are
//! ordered by id, the lowest first.

use crate::Id;

const CHILDREN: usize = 4;

/// Residents by key.
#[derive(Debug, Clone)]
pub(super) struct Heap<K> {
    items: Vec<(K, Id)>,
}

impl<K: Ord + Copy> Heap<K> {
    pub(super) const fn new() -> Self {
        Self { items: Vec::new() }
    }

    /// Of what [`Self::iter`] gave, place by place; nothing if that cannot be.
    pub(super) fn restore(items: Vec<(K, Id)>, places: &mut [u32]) -> Option<Self> {
        let parent = |place: usize| (place - 1) / CHILDREN;
        if (1..items.len()).any(|place| items[parent(place)] > items[place]) {
            return None;
        }
        for (place, &(_, id)) in items.iter().enumerate() {
            *places.get_mut(id as usize)? = place as u32;
        }
        Some(Self { items })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The smallest key and its id.
    pub(super) fn first(&self) -> Option<(K, Id)> {
        self.items.first().copied()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (K, Id)> + '_ {
        self.items.iter().copied()
    }

    /// The key of `id`, which is in this heap.
    pub(super) fn key(&self, id: Id, places: &[u32]) -> K {
        self.items[places[id as usize] as usize].0
    }

    /// Adds `id`, which is in no heap of `places`.
    pub(super) fn push(&mut self, key: K, id: Id, places: &mut [u32]) {
        self.items.push((key, id));
        self.rise(self.items.len() - 1, places);
    }

    /// Takes the smallest out.
    pub(super) fn pop(&mut self, places: &mut [u32]) -> Option<(K, Id)> {
        let first = self.first()?;
        self.remove(first.1, places);
        Some(first)
    }

    /// Takes out one that costs nothing to take out, whatever its key.
    pub(super) fn pop_any(&mut self) -> Option<(K, Id)> {
        self.items.pop()
    }

    /// Takes `id` out, which is in this heap.
    pub(super) fn remove(&mut self, id: Id, places: &mut [u32]) {
        let place = places[id as usize] as usize;
        self.items.swap_remove(place);
        if place < self.items.len() {
            self.settle(place, places);
        }
    }

    /// Changes the key of `id`, which is in this heap.
    pub(super) fn update(&mut self, key: K, id: Id, places: &mut [u32]) {
        let place = places[id as usize] as usize;
        self.items[place].0 = key;
        self.settle(place, places);
    }

    fn settle(&mut self, place: usize, places: &mut [u32]) {
        let place = self.rise(place, places);
        self.sink(place, places);
    }

    fn rise(&mut self, mut place: usize, places: &mut [u32]) -> usize {
        let item = self.items[place];
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if self.items[parent] <= item {
                break;
            }
            self.put(place, self.items[parent], places);
            place = parent;
        }
        self.put(place, item, places);
        place
    }

    fn sink(&mut self, mut place: usize, places: &mut [u32]) {
        let item = self.items[place];
        loop {
            let first = place * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.items.len());
            let Some(least) = children.min_by_key(|&child| self.items[child]) else { break };
            if item <= self.items[least] {
                break;
            }
            self.put(place, self.items[least], places);
            place = least;
        }
        self.put(place, item, places);
    }

    fn put(&mut self, place: usize, item: (K, Id), places: &mut [u32]) {
        self.items[place] = item;
        places[item.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_does_what_a_sorted_map_does(
            steps in proptest::collection::vec((0u32..20, 0u32..9, 0u8..8), 0..300)
        ) {
            let (mut heap, mut places) = (Heap::new(), vec![0; 20]);
            let mut model: BTreeMap<Id, u32> = BTreeMap::new();
            for (id, key, step) in steps {
                let known = model.contains_key(&id);
                match step {
                    0 => {
                        let least = model.iter().map(|(&id, &key)| (key, id)).min();
                        prop_assert_eq!(heap.pop(&mut places), least);
                        least.map(|(_, id)| model.remove(&id));
                    }
                    1 if known => {
                        heap.remove(id, &mut places);
                        model.remove(&id);
                    }
                    2 => {
                        let any = heap.pop_any();
                        prop_assert_eq!(any.and_then(|(key, id)| model.remove(&id).map(|was| was == key)), any.map(|_| true));
                    }
                    _ if known => {
                        prop_assert_eq!(heap.key(id, &places), model[&id]);
                        heap.update(key, id, &mut places);
                        model.insert(id, key);
                    }
                    _ => {
                        heap.push(key, id, &mut places);
                        model.insert(id, key);
                    }
                }
                prop_assert_eq!(heap.first(), model.iter().map(|(&id, &key)| (key, id)).min());
                prop_assert_eq!(heap.len(), model.len());
            }
        }
    }
}
