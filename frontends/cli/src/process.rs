//! The process, as commands that copy whole trees need it.
//!
//! Input: none. Output: limits of this process. Invariant: what the host does not allow stays as it is. Limits: none of its own.

use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, setrlimit, umask};

/// Modes are given exactly, and a deep tree needs a descriptor per level.
pub(crate) fn prepare() {
    umask(Mode::empty());
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it stays as it is, very deep trees fail with a message of their own.
    let _ = setrlimit(Resource::Nofile, limit);
}
