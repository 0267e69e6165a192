//! Users and groups by their names, as the system's databases have them.

use std::ffi::CString;
use std::ptr::null_mut;

use hotset_core::{Error, Result};

/// What one entry of a database may take.
const ENTRY: usize = 1 << 20;

/// The number of a user, by its name or as it is.
pub fn user_number(name: &str) -> Result<u32> {
    let unknown = || Error::invalid(format!("there is no user `{name}` on this system"));
    name.parse().or_else(|_| find_user(name).ok_or_else(unknown))
}

/// The number of a group, by its name or as it is.
pub(super) fn group_number(name: &str) -> Result<u32> {
    let unknown = || Error::invalid(format!("there is no group `{name}`: give `group` one of this system"));
    name.parse().or_else(|_| find_group(name).ok_or_else(unknown))
}

fn find_user(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let (mut text, mut found) = (vec![0; ENTRY], null_mut());
    // SAFETY: a `passwd` is numbers and pointers, of which zeros are valid values.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends with a zero, `text` has the length that is told, and `entry` and `found` may be written.
    let failed = unsafe {
        libc::getpwnam_r(name.as_ptr(), &raw mut entry, text.as_mut_ptr(), text.len(), &raw mut found)
    };
    (failed == 0 && !found.is_null()).then_some(entry.pw_uid)
}

fn find_group(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let (mut text, mut found) = (vec![0; ENTRY], null_mut());
    // SAFETY: a `group` is numbers and pointers, of which zeros are valid values.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends with a zero, `text` has the length that is told, and `entry` and `found` may be written.
    let failed = unsafe {
        libc::getgrnam_r(name.as_ptr(), &raw mut entry, text.as_mut_ptr(), text.len(), &raw mut found)
    };
    (failed == 0 && !found.is_null()).then_some(entry.gr_gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_known_by_name_or_number() {
        for number in [user_number, group_number] {
            assert_eq!(number("root").unwrap(), 0);
            assert_eq!(number("1234").unwrap(), 1234);
            assert!(number("no such name").unwrap_err().message.contains("`no such name`"));
        }
    }
}
