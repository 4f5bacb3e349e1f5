//! A process that cleans up after another one has ended.
//!
//! The end of a socket tells it that the other process has ended, so that works for a killed process, too. Both sides send single bytes.
//!
//! Input: a command line; bytes. Output: a process; the same bytes as answers. Invariants: it is in a session of its own, and signals that
//! end or ask servers do not end it; it has no descriptor but its socket, and those that come by it. Limits: SIGKILL ends it.

use crate::cmd::mount::{raw, this_program};
use crate::host::process::outlive_signals;
use crate::output::report::Reason;
use rustix::io::{FdFlags, fcntl_setfd};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

/// Starts this program again, with the arguments that `words` gives for the option that names its end of a socket. The other end comes
/// back.
///
/// # Errors
/// The host has no socket or no process for it.
pub(crate) fn start(words: impl FnOnce(String) -> Vec<OsString>) -> Result<(File, Child), Reason> {
    let (ours, theirs) = UnixStream::pair().map_err(text)?;
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(|e| Reason::host("a socket", e))?;
    let mut program = this_program()?;
    program.args(words(format!("--sweep={}", theirs.as_raw_fd())));
    program
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = program.spawn().map_err(text)?;
    Ok((OwnedFd::from(ours).into(), child))
}

/// Why the other process cannot be told something.
pub(crate) fn text(error: std::io::Error) -> Reason {
    Reason::new(format!("the process that cleans up: {error}"))
}

/// The other process begins here: its end of the socket, by the number of the option.
pub(crate) fn begin(socket: u32) -> Option<File> {
    // Before anything else: from now on only the socket's end counts.
    outlive_signals();
    let socket = diorite_fuse::inherited(socket).ok()?;
    diorite_fuse::close_others(vec![raw(&socket)]);
    // Signals from a terminal are for the one it cleans up after.
    let _ = rustix::process::setsid();
    Some(socket.into())
}
