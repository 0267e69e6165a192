//! By which rule samples get their owners.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// How owners are found; the name of each is the value of the setting `placement`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PlacementKind {
    /// They follow from the nodes that are alive: see [`Placement`](super::Placement).
    #[default]
    Hash,
    /// Whoever reads a sample first keeps it: see [`Directory`](super::Directory).
    Directory,
}

impl PlacementKind {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Hash, Self::Directory];

    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Directory => "directory",
        }
    }
}

impl fmt::Display for PlacementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PlacementKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            Error::invalid(format!("`placement` cannot be `{name}`: give `hash` or `directory`"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_name_and_no_other_is() {
        for kind in PlacementKind::ALL {
            assert_eq!(kind.to_string().parse::<PlacementKind>().unwrap(), kind);
        }
        let error = "Hash".parse::<PlacementKind>().unwrap_err();
        assert!(error.message.contains("`placement`") && error.message.contains("`directory`"), "{error}");
    }
}
