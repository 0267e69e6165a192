//! The process at the other end of a socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// More groups than a process has on any system.
const MOST_GROUPS: usize = 1 << 17;

/// The process at the other end of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its process, where this one's PID namespace knows it; not where it is in another container.
    pub process: Option<u32>,
    /// Its user.
    pub user: u32,
    /// Its groups when it connected.
    pub groups: Vec<u32>,
}

impl Peer {
    /// The process that made the other end of `socket`.
    ///
    /// Not by `rustix`, for which a process of another namespace, whose number is 0, is an error without a cause.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the descriptor is open, and `found` is a `ucred` of `size` bytes that the kernel may write.
        let outcome = unsafe {
            let found = (&raw mut found).cast();
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, found, &raw mut size)
        };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
        // Where the kernel does not tell them it has none: what only a group may do is then for its own user.
        let mut groups = match supplementary(socket) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Vec::new(),
            found => found?,
        };
        groups.push(found.gid);
        let process = u32::try_from(found.pid).ok().filter(|&process| process > 0);
        Ok(Self { process, user: found.uid, groups })
    }
}

/// The groups that the process at the other end has beside its own.
fn supplementary(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<u32> = vec![0; 32];
    loop {
        let mut size = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: the descriptor is open, and `groups` has `size` bytes that the kernel may write.
        let outcome = unsafe {
            let found = groups.as_mut_ptr().cast();
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, found, &raw mut size)
        };
        let needed = size as usize / size_of::<u32>();
        if outcome == 0 {
            groups.truncate(needed);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || needed <= groups.len() || needed > MOST_GROUPS {
            return Err(error);
        }
        groups.resize(needed, 0);
    }
}
