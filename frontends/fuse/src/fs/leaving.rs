//! Files that have lost their last name and that the kernel is about to forget.
//!
//! Input: calls that need space, and questions for it. Output: a wait until those files are deleted. Invariants: nobody waits longer than
//! [`MOMENT`], nor for a file that lost its name, and its last user, longer ago than that: one that somebody keeps in another way (a FIFO,
//! a working directory, O_PATH) is waited for once. A file that somebody has open is not waited for. Limits: with one thread nobody waits.
//!
//! The kernel forgets a file before unlink(2) returns, but its FORGET has no reply, and another thread may receive it after the next
//! request: then df showed the space as used, and a write that needed it failed.

use super::FileSystem;
use diorite::Error;
use std::time::Duration;

/// How long the kernel's FORGET, and the deletion behind it, may take on a busy host.
const MOMENT: Duration = Duration::from_millis(500);

/// Does the volume itself have too few free blocks or inodes?
fn is_full(error: &Error) -> bool {
    match error {
        Error::At(inner) => is_full(&inner.1),
        Error::NoSpace { .. } | Error::NoInodes { .. } => true,
        _ => false,
    }
}

impl FileSystem {
    /// Makes a call of the volume that takes space, and once more if there was none, but some has come meanwhile. Only for a call that has
    /// changed nothing then, or whose repetition does all of it again; and not for one that makes other data durable, as it says only once
    /// what was lost.
    pub(super) fn with_space<T>(
        &self,
        mut call: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        match call() {
            Err(error) if is_full(&error) && self.wait_for_forgotten() => call(),
            done => done,
        }
    }

    /// Waits for the files that the kernel is about to forget. True: there were some, and one at least is gone.
    pub(super) fn wait_for_forgotten(&self) -> bool {
        if self.options.threads == Some(1) {
            return false;
        }
        let mut those = self.volume.known_without_name(MOMENT);
        those.retain(|(ino, _)| !self.files.is_open(*ino));
        let Some(last) = those.iter().map(|(_, since)| *since).max() else {
            return false;
        };
        self.kernel.hand_over();
        self.volume.await_forgotten(those, last + MOMENT)
    }
}
