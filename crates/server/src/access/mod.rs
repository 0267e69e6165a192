//! Who may use a server, and how much of it.
//!
//! The kernel tells the user and the groups of whoever connects ([`Audience::admits`]); nothing that a client says of
//! itself is believed. What each user takes is counted under its number ([`Accounts`]) and held against the [`Quota`].
//! Whoever is refused is told which setting says so.

mod accounts;
mod names;
mod quota;

use hotset_core::{Error, Result};
use hotset_wire::Peer;

pub(crate) use accounts::{Accounts, REASONS, Visit};
pub use names::user_number;
pub use quota::Quota;

/// Whom a server works for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// Its own user.
    Own,
    /// Its own user and the members of a group.
    Group(Group),
    /// Every user of the host.
    Everyone,
}

/// A group of users, as the system knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name, for messages.
    pub name: String,
    /// Its number.
    pub number: u32,
}

impl Group {
    /// The group of that name, or of that number.
    pub fn find(name: &str) -> Result<Self> {
        let number = names::group_number(name)?;
        Ok(Self { name: name.to_owned(), number })
    }
}

impl Audience {
    /// The mode of the socket that they come through.
    pub(crate) fn mode(&self) -> u32 {
        match self {
            Self::Own => 0o600,
            Self::Group(_) => 0o660,
            Self::Everyone => 0o666,
        }
    }

    /// The group that the socket must belong to.
    pub(crate) fn group(&self) -> Option<&Group> {
        match self {
            Self::Group(group) => Some(group),
            Self::Own | Self::Everyone => None,
        }
    }

    /// An error for a process that the server does not work for.
    pub(crate) fn admits(&self, peer: &Peer) -> Result<()> {
        let own = rustix::process::geteuid().as_raw();
        match self {
            _ if peer.user == own => Ok(()),
            Self::Everyone => Ok(()),
            Self::Group(group) if peer.groups.contains(&group.number) => Ok(()),
            Self::Group(group) => Err(Error::invalid(format!(
                "this server works for user `{own}` and the members of group `{}` (`--group`), and user `{}` is none of them",
                group.name, peer.user
            ))),
            Self::Own => Err(Error::invalid(format!(
                "this server works for user `{own}` alone: start it with `--group NAME` to let members of a group use it, or \
                 share what is read through one that runs with `--tenants`"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(user: u32, groups: &[u32]) -> Peer {
        Peer { process: None, user, groups: groups.to_vec() }
    }

    #[test]
    fn another_user_is_let_in_by_its_group_or_where_everyone_is() {
        let own = rustix::process::geteuid().as_raw();
        let other = own + 1;
        let staff = Audience::Group(Group { name: "staff".into(), number: 50 });
        for (audience, user, groups, admitted) in [
            (&Audience::Own, own, &[][..], true),
            (&Audience::Own, other, &[50][..], false),
            (&staff, own, &[], true),
            (&staff, other, &[1, 50], true),
            (&staff, other, &[1, 51], false),
            (&Audience::Everyone, other, &[], true),
        ] {
            let told = audience.admits(&peer(user, groups));
            assert_eq!(told.is_ok(), admitted, "{audience:?} {user} {groups:?}");
            if let Err(error) = told {
                assert!(error.message.contains("--group"), "{error}");
            }
        }
    }
}
