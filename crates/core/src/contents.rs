//! What a shared cache keeps: contents by their hash, each once, and whose room they take.
//!
//! A content takes room of the user that put it there. A user that has all the room it may have makes way for its own
//! newcomers; when the cache is full, whoever has the most makes way, least recently used first. So whatever one
//! user floods the cache with, others keep what they have as long as that is less. Room is taken before bytes are copied
//! ([`Contents::take_room`]), so that what is on its way is bounded too.

use std::collections::{BTreeMap, HashMap};

/// Names some bytes.
pub type Hash = [u8; 32];

/// What a content takes beside its bytes, so that empty ones count too.
pub const OVERHEAD: u64 = 256;

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is larger than all that the user may have.
    TooLarge,
    /// All that the user may have, or all that there is, is on its way.
    Busy,
}

/// Contents `B` by their hashes.
#[derive(Debug)]
pub struct Contents<B> {
    capacity: u64,
    /// The most of it that one user may have.
    share: u64,
    kept: HashMap<Hash, Kept<B>>,
    users: BTreeMap<u32, User>,
    /// Room that is taken, by what is kept and by what is on its way.
    taken: u64,
    clock: u64,
}

#[derive(Debug)]
struct Kept<B> {
    bytes: B,
    room: u64,
    user: u32,
    used: u64,
}

#[derive(Debug, Default)]
struct User {
    /// Room of what is kept for it.
    kept: u64,
    /// Room of what is on its way from it.
    coming: u64,
    /// What is kept for it, by when that was used last.
    by_use: BTreeMap<u64, Hash>,
}

impl<B> Contents<B> {
    /// A cache of `capacity` bytes, of which a user may have `share`.
    pub fn new(capacity: u64, share: Option<u64>) -> Self {
        let share = share.unwrap_or(capacity).min(capacity);
        Self { capacity, share, kept: HashMap::new(), users: BTreeMap::new(), taken: 0, clock: 0 }
    }

    /// The content of that hash, which is used now.
    pub fn get(&mut self, hash: &Hash) -> Option<&B> {
        let kept = self.kept.get_mut(hash)?;
        self.clock += 1;
        let by_use = &mut self.users.entry(kept.user).or_default().by_use;
        by_use.remove(&kept.used);
        kept.used = self.clock;
        by_use.insert(kept.used, *hash);
        Some(&kept.bytes)
    }

    /// Takes room for a content of so many bytes that a user is about to put; others leave for it.
    pub fn take_room(&mut self, user: u32, length: u64) -> Result<(), Refused> {
        let room = length.saturating_add(OVERHEAD);
        if room > self.share {
            return Err(Refused::TooLarge);
        }
        while self.of(user) + room > self.share {
            self.drop_oldest(user)?;
        }
        while self.taken + room > self.capacity {
            let most = self.users.iter().max_by_key(|(_, user)| user.kept).map(|(&user, _)| user);
            self.drop_oldest(most.ok_or(Refused::Busy)?)?;
        }
        self.users.entry(user).or_default().coming += room;
        self.taken += room;
        Ok(())
    }

    /// Gives room back that was taken for so many bytes: they are not wanted.
    pub fn give_back(&mut self, user: u32, length: u64) {
        let room = length.saturating_add(OVERHEAD);
        if let Some(user) = self.users.get_mut(&user) {
            user.coming = user.coming.saturating_sub(room);
            self.taken = self.taken.saturating_sub(room);
        }
    }

    /// Keeps a content of so many bytes, for which its user has taken room; whether it was new.
    pub fn put(&mut self, user: u32, hash: Hash, bytes: B, length: u64) -> bool {
        self.give_back(user, length);
        if self.get(&hash).is_some() {
            return false;
        }
        let room = length.saturating_add(OVERHEAD);
        self.clock += 1;
        let owner = self.users.entry(user).or_default();
        owner.kept += room;
        owner.by_use.insert(self.clock, hash);
        self.taken += room;
        self.kept.insert(hash, Kept { bytes, room, user, used: self.clock });
        true
    }

    /// How many contents are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Room that is taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Room that there is.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    fn of(&self, user: u32) -> u64 {
        self.users.get(&user).map_or(0, |user| user.kept + user.coming)
    }

    /// Lets go of what a user has used least recently.
    fn drop_oldest(&mut self, user: u32) -> Result<(), Refused> {
        let owner = self.users.get_mut(&user).ok_or(Refused::Busy)?;
        let (_, hash) = owner.by_use.pop_first().ok_or(Refused::Busy)?;
        if let Some(gone) = self.kept.remove(&hash) {
            owner.kept = owner.kept.saturating_sub(gone.room);
            self.taken = self.taken.saturating_sub(gone.room);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOM: u64 = OVERHEAD + 44;

    fn hash(number: u64) -> Hash {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        hash
    }

    fn put(contents: &mut Contents<u64>, user: u32, number: u64) -> Result<bool, Refused> {
        contents.take_room(user, 44)?;
        Ok(contents.put(user, hash(number), number, 44))
    }

    fn kept(contents: &mut Contents<u64>, numbers: std::ops::Range<u64>) -> Vec<u64> {
        numbers.filter(|&number| contents.kept.contains_key(&hash(number))).collect()
    }

    #[test]
    fn equal_content_is_kept_once_whoever_puts_it() {
        let mut contents = Contents::new(10 * ROOM, None);
        assert_eq!(put(&mut contents, 1, 7), Ok(true));
        assert_eq!(put(&mut contents, 2, 7), Ok(false));
        assert_eq!((contents.len(), contents.taken()), (1, ROOM));
        assert_eq!(contents.get(&hash(7)), Some(&7));
        assert_eq!(contents.get(&hash(8)), None);
    }

    #[test]
    fn a_user_that_floods_makes_way_for_itself_and_others_keep_what_they_have() {
        let mut contents = Contents::new(10 * ROOM, None);
        for number in 0..3 {
            put(&mut contents, 1, number).unwrap();
        }
        for number in 100..200 {
            put(&mut contents, 2, number).unwrap();
        }
        assert_eq!(kept(&mut contents, 0..3), [0, 1, 2]);
        assert_eq!(kept(&mut contents, 100..200), (193..200).collect::<Vec<_>>());
        // Who has less gets room from who has most.
        put(&mut contents, 1, 3).unwrap();
        assert_eq!(kept(&mut contents, 100..200).len(), 6);
    }

    #[test]
    fn what_was_used_last_stays_longest() {
        let mut contents = Contents::new(10 * ROOM, Some(3 * ROOM));
        for number in 0..3 {
            put(&mut contents, 1, number).unwrap();
        }
        contents.get(&hash(0));
        put(&mut contents, 1, 3).unwrap();
        assert_eq!(kept(&mut contents, 0..9), [0, 2, 3]);
    }

    #[test]
    fn what_is_on_its_way_takes_room_and_nothing_beyond_a_share_is_let_in() {
        let mut contents: Contents<u64> = Contents::new(10 * ROOM, Some(2 * ROOM));
        assert_eq!(contents.take_room(1, u64::MAX), Err(Refused::TooLarge));
        assert_eq!(contents.take_room(1, 2 * ROOM), Err(Refused::TooLarge));
        contents.take_room(1, 44).unwrap();
        contents.take_room(1, 44).unwrap();
        assert_eq!(contents.take_room(1, 44), Err(Refused::Busy));
        contents.take_room(2, 44).unwrap();
        contents.give_back(1, 44);
        contents.take_room(1, 44).unwrap();
        assert_eq!(contents.taken(), 3 * ROOM);
    }

    proptest! {
        #[test]
        fn no_user_has_more_than_its_share_and_all_together_no_more_than_there_is(
            steps in proptest::collection::vec((0u32..4, 0u64..40, 0u64..900, any::<bool>()), 1..300),
        ) {
            let (capacity, share) = (8 * ROOM, 5 * ROOM);
            let mut contents = Contents::new(capacity, Some(share));
            let mut coming = Vec::new();
            for (user, number, length, puts) in steps {
                if contents.take_room(user, length).is_ok() {
                    coming.push((user, number, length));
                }
                if puts && let Some((user, number, length)) = coming.pop() {
                    contents.put(user, hash(number), number, length);
                } else if coming.len() > 3 {
                    let (user, _, length) = coming.remove(0);
                    contents.give_back(user, length);
                }
                prop_assert!(contents.taken() <= capacity);
                let room: u64 = contents.kept.values().map(|kept| kept.room).sum();
                let on_its_way: u64 = coming.iter().map(|(_, _, length)| length + OVERHEAD).sum();
                prop_assert_eq!(contents.taken(), room + on_its_way);
                for (user, has) in &contents.users {
                    prop_assert!(has.kept + has.coming <= share);
                    let own = contents.kept.values().filter(|kept| kept.user == *user);
                    prop_assert_eq!(own.map(|kept| kept.room).sum::<u64>(), has.kept);
                }
            }
        }
    }
}
