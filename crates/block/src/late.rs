//! Failures of writes that the host reports only when the descriptor is closed. And which of the descriptors 0 and 1 were closed when the
//! process began.
//!
//! Input: a descriptor to which something was written; the process's descriptors before `main`. Output: the error that closing it would
//! report. Invariant: the descriptor stays open. Limits: it says nothing about durability: a host that writes back later (ext4, XFS)
//! reports a failure of write-back at fsync only.

use rustix::fd::{AsFd, IntoRawFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};

/// Standard input and standard output were closed when the process began.
static CLOSED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// Runs before `main`: the standard library opens /dev/null in place of standard descriptors that are closed, and then it is too late to
/// ask.
#[used]
// SAFETY: the section holds pointers to functions that take nothing and return nothing, or ignore their arguments as C allows; the loader
// calls each once, with the C library at work. The function makes two system calls and stores two flags, so it needs nothing that the
// standard library sets up later.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for (number, closed) in [libc::STDIN_FILENO, libc::STDOUT_FILENO]
        .into_iter()
        .zip(&CLOSED)
    {
        // SAFETY: F_GETFD changes nothing, and a number without a descriptor is an answer.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        closed.store(flags == -1, Ordering::Relaxed);
    }
}

/// Fails if the process was started without a standard input (`<&-`): what is read there now is nobody's.
///
/// # Errors
/// `EBADF`.
pub fn check_stdin() -> Result<(), Errno> {
    match CLOSED[0].load(Ordering::Relaxed) {
        true => Err(Errno::BADF),
        false => Ok(()),
    }
}

/// Whether the process was started without a standard output (`>&-`): what is written there now is lost.
#[must_use]
pub fn stdout_was_closed() -> bool {
    CLOSED[1].load(Ordering::Relaxed)
}

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
