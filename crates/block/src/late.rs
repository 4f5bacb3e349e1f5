//! Failures that a host reports late: whether it has taken what was written to a descriptor.
//!
//! Input: a descriptor to which something was written. Output: what a close of it would report. Invariant: the descriptor stays open.
//! Limits: says nothing about durability: a host that writes back in its own time (ext4, XFS) reports a failure of that at fsync only.

use rustix::fd::{AsFd, IntoRawFd};
use rustix::io::Errno;

/// Asks the host for the failure that a close would report. Hosts that take bytes first and find room for them later (NFS, FUSE with a
/// writeback cache, quotas of both) report only then that there was none.
///
/// # Errors
/// That of the close.
pub fn reported_at_close(fd: impl AsFd) -> Result<(), Errno> {
    let copy = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
    // SAFETY: `into_raw_fd` gives up the only owner of the copy, so nobody else uses or closes that number.
    let closed = unsafe { libc::close(copy.into_raw_fd()) };
    match closed {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
