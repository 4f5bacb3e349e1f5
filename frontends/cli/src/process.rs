//! Settings of the process for the commands that copy whole trees.
//!
//! Input: none. Output: the umask and the limit of open files of this process. Invariant: a limit that the host does not let us
//! change stays unchanged. Limits: none of its own.

use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, setrlimit, umask};

/// Clears the umask, because copies have exact modes, and raises the limit of open files, because a deep tree needs a
/// descriptor per level.
pub(crate) fn prepare() {
    umask(Mode::empty());
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the limit cannot be raised, very deep trees fail with their own message.
    let _ = setrlimit(Resource::Nofile, limit);
}
