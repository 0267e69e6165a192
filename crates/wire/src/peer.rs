//! The process at the other end of a socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The process at the other end of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process, where this one's PID namespace knows it; not where it is in another container.
    pub process: Option<u32>,
    /// Its user.
    pub user: u32,
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
        Ok(Self { process: u32::try_from(found.pid).ok().filter(|&process| process > 0), user: found.uid })
    }
}
