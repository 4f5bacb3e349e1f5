//! Settings of the process for the commands that copy whole trees or devices, and the signals that end them.
//!
//! Input: signals. Output: the umask and the limit of open files of this process; a flag. Invariant: a limit that the host does not let us
//! change stays unchanged. Limits: none of its own.

use crate::report::Reason;
use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, setrlimit, umask};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The exit code of a command that a signal ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Set by the first signal that asks for the end; the second ends the process.
pub(crate) fn watch() -> Result<Arc<AtomicBool>, Reason> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|e| Reason::new(format!("cannot watch for signals: {e}")))?;
    }
    Ok(stop)
}

/// Clears the umask, because copies have exact modes, and raises the limit of open files, because a deep tree needs a
/// descriptor per level.
pub(crate) fn prepare() {
    umask(Mode::empty());
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the limit cannot be raised, very deep trees fail with their own message.
    let _ = setrlimit(Resource::Nofile, limit);
}
