//! What a listing leaves out and says in one line, however much it is: how many, and the first few.

/// Things that are left out, for one reason.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    pub(crate) count: usize,
    first: Vec<String>,
}

impl LeftOut {
    const SHOWN: usize = 3;

    pub(crate) fn add(&mut self, what: &str) {
        self.count += 1;
        if self.first.len() < Self::SHOWN {
            self.first.push(format!("`{what}`"));
        }
    }

    /// Adds what was left out elsewhere.
    pub(crate) fn extend(&mut self, other: Self) {
        self.count += other.count;
        self.first.extend(other.first);
        self.first.truncate(Self::SHOWN);
    }

    /// The first few, for a message; `None` if nothing was left out.
    pub(crate) fn shown(&self) -> Option<String> {
        (self.count > 0).then(|| self.first.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_first_three_shown() {
        assert_eq!(LeftOut::default().shown(), None);
        let (mut some, mut more) = (LeftOut::default(), LeftOut::default());
        ["a", "b"].iter().for_each(|what| some.add(what));
        ["c", "d", "e", "f"].iter().for_each(|what| more.add(what));
        some.extend(more);
        assert_eq!((some.count, some.shown().as_deref()), (6, Some("`a`, `b`, `c`")));
    }
}
