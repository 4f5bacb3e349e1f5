//! Files that have lost their last name and that the kernel is about to forget.
//!
//! Input: calls that need space, and statfs calls. Output: a wait until those files are deleted. Invariants: a statfs call waits no longer
//! than [`MOMENT`] and a call than [`PATIENCE`], nor for a file that lost its name, and its last user, longer ago than that: one that
//! somebody keeps in another way (a FIFO, a working directory, O_PATH) is waited for once. A file that somebody has open is waited for by
//! calls only, for [`CLOSING`] behind the loss of its name. Limits: with one thread nobody waits.
//!
//! The kernel forgets a file before unlink(2) returns, but its FORGET has no reply, and another thread may receive it after the next
//! request: then df showed the space as used, and a write that needed it failed. The same is so of RELEASE, which close(2) does not wait
//! for, and FORGET comes only after the reply to that: for a thread that has not begun with it the file is still open.

use super::{FileSystem, Help};
use diorite::Error;
use std::time::{Duration, Instant};

/// How long the kernel's FORGET, and the deletion behind it, may take on a busy host.
const MOMENT: Duration = Duration::from_millis(500);
/// The same, for a call that fails otherwise.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the RELEASE of a file that was closed before it lost its name may be under way.
const CLOSING: Duration = Duration::from_millis(200);

/// Does the volume itself have too few free blocks or inodes?
fn is_full(error: &Error) -> bool {
    match error {
        Error::At(inner) => is_full(&inner.1),
        Error::NoSpace { .. } | Error::NoInodes { .. } => true,
        _ => false,
    }
}

impl FileSystem {
    /// Makes a call of the volume that takes space, and again if there was none, but some has come meanwhile. Only for a call that has
    /// changed nothing then, or whose repetition does all of it again; and not for one that makes other data durable, as it says only once
    /// what was lost.
    pub(super) fn with_space<T>(
        &self,
        help: &dyn Help,
        call: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.until_space(help, call, is_full)
    }

    /// Makes a call that finds too little space by an error that `is_full` knows, and again each time that some has come.
    pub(super) fn until_space<T, E>(
        &self,
        help: &dyn Help,
        mut call: impl FnMut() -> Result<T, E>,
        is_full: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let mut until = None;
        loop {
            let done = call();
            if !done.as_ref().is_err_and(&is_full) {
                return done;
            }
            let until = *until.get_or_insert_with(|| Instant::now() + PATIENCE);
            if !self.wait(help, PATIENCE, CLOSING, until) {
                return done;
            }
        }
    }

    /// Waits for the files that the kernel is about to forget.
    pub(super) fn wait_for_forgotten(&self, help: &dyn Help) {
        self.wait(help, MOMENT, Duration::ZERO, Instant::now() + MOMENT);
    }

    /// Waits for files that lost their name, or a user after it, at most so long ago: `patience`, or `closing` if they are open. True: one
    /// at least is gone, or closed.
    fn wait(&self, help: &dyn Help, patience: Duration, closing: Duration, until: Instant) -> bool {
        let now = Instant::now();
        if self.options.threads == Some(1) || now >= until {
            return false;
        }
        let mut those = self.volume.known_without_name(patience);
        let mut last = now;
        those.retain(|(ino, since)| {
            let is_open = self.files.is_open(*ino);
            let end = *since + if is_open { closing } else { patience };
            last = last.max(end);
            end > now
        });
        if those.is_empty() || !help.may_wait() {
            return false;
        }
        self.kernel.hand_over();
        self.volume.await_forgotten(those, last.min(until))
    }
}
