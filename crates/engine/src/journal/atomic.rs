//! Atomic changes: changes of many handles that are committed together or not at all.
//!
//! Input: a volume on which everything is committed. Output: no commit while an atomic change is open; one commit at its end, or none if it
//! is abandoned. Invariants: an atomic change is one transaction, so after a crash all of it is there or nothing; a request that needs a
//! commit in the middle fails; an abandoned one leaves on the device what was there before it, and a volume that takes no more requests.
//! Limits: not larger than the largest transaction; one at a time, and changes by others meanwhile belong to it, too; overwrites of data
//! are not part of it; without a journal a crash during its commit may leave a part of it.

use super::transaction::State;
use super::{CommitHooks, Journal, Medium};
use crate::disk::Disk;
use crate::error::{Error, Wait};
use diorite_format::Ino;
use std::collections::BTreeSet;

/// How many times to try to find a moment at which nothing is uncommitted.
const TRIES: u32 = 1000;

/// The state of an open atomic change.
#[derive(Debug, Default)]
pub(super) struct Atomic {
    /// Last blocks of files that the atomic change truncated, whose bytes behind the new end were kept: an abandoned atomic change gives
    /// them back.
    shortened: BTreeSet<(Ino, u64)>,
    /// Files that have data, not only metadata, in the atomic change's transaction.
    journalled: BTreeSet<Ino>,
    /// A change was refused because the transaction has no room for it.
    is_full: bool,
    /// The orphan file on disk had entries before the atomic change began.
    had_orphans: bool,
}

/// How full the transaction of an atomic change is, in blocks of metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicFill {
    /// Blocks that were changed.
    pub changed: u32,
    /// Blocks that one transaction of this journal may change.
    pub most: u32,
    /// A change was refused for lack of room: the atomic change can only be abandoned, or committed without that change.
    pub is_full: bool,
}

impl Journal {
    /// Begins an atomic change. Blocks; no lock may be held.
    pub(crate) fn begin_atomic(&self, hooks: &dyn CommitHooks) -> Result<(), Error> {
        for _ in 0..TRIES {
            hooks.write_noted_times()?;
            self.commit_running(hooks)?;
            let (orphans, noted) = (hooks.has_orphans_in_file(), hooks.has_noted_times());
            let mut state = self.state.lock();
            if state.atomic.is_some() {
                let what = "an atomic change is open already";
                return Err(Error::Invalid(what.to_owned()));
            }
            // Nothing may be on its way into the log either: a thread that waits for that commit would be refused because of this atomic
            // change.
            let quiet = state.newest_uncommitted().is_none() && !state.closing;
            if quiet && state.aborted.is_none() && !noted {
                state.atomic = Some(Atomic {
                    had_orphans: orphans,
                    ..Atomic::default()
                });
                return Ok(());
            }
        }
        Err(Error::WouldBlock(Wait::Commit))
    }

    /// Allows commits again: the next one commits the whole atomic change.
    pub(crate) fn end_atomic(&self) {
        self.state.lock().atomic = None;
    }

    /// Ends an atomic change without committing it: the device is left as it was before the atomic change. Blocks; no lock may be held.
    pub(crate) fn abandon_atomic(&self, disk: &Disk) -> Result<(), Error> {
        let mut medium = self.medium.lock();
        let atomic = {
            let mut state = self.state.lock();
            if let Some(error) = &state.aborted {
                return Err(error.clone());
            }
            state.aborted = Some(Error::ShutDown);
            let Some(atomic) = state.atomic.take().filter(|_| state.marked) else {
                return Ok(());
            };
            atomic
        };
        self.opened.notify_all();
        self.committed.notify_all();
        disk.shut_down();
        self.leave_clean(disk, &mut medium, atomic.had_orphans)
    }

    /// Writes home what is committed and marks the volume as clean, so that nothing has to be recovered. What is not committed is in
    /// memory only.
    fn leave_clean(
        &self,
        disk: &Disk,
        medium: &mut Medium,
        has_orphans: bool,
    ) -> Result<(), Error> {
        self.bring_home(disk, medium)?;
        disk.mark_clean_as_at_home(has_orphans, |block| medium.keep_superblock(disk, block))
    }

    /// Is an atomic change open that may still be committed? Not after an abort: nothing waits for the end of such an atomic change, and
    /// tails that it has left unzeroed stay so, as its changes may be undone.
    pub(crate) fn has_atomic(&self) -> bool {
        let state = self.state.lock();
        state.atomic.is_some() && state.aborted.is_none()
    }

    /// Notes that the open atomic change truncated a file and kept the bytes behind its new end in this block. Returns false without an
    /// atomic change.
    pub(crate) fn leaves_tail(&self, ino: Ino, block: u64) -> bool {
        let mut state = self.state.lock();
        let atomic = state.atomic.as_mut();
        atomic.is_some_and(|atomic| {
            atomic.shortened.insert((ino, block));
            true
        })
    }

    /// May the bytes behind this file's end in this block be zeroed? Not if an open atomic change may yet give them back.
    pub(crate) fn check_tail(&self, ino: Ino, block: u64) -> Result<(), Error> {
        let state = self.state.lock();
        match &state.atomic {
            Some(atomic) if atomic.shortened.contains(&(ino, block)) => {
                Err(Error::CutInAtomic { ino })
            }
            _ => Ok(()),
        }
    }

    /// Notes that data of a file is in the transaction of the open atomic change, if there is one.
    pub(crate) fn note_data(&self, ino: Ino) {
        let mut state = self.state.lock();
        if let Some(atomic) = &mut state.atomic {
            atomic.journalled.insert(ino);
        }
    }

    /// Makes sure that all data of this file is committed. While an atomic change is open it is, unless the atomic change has written some;
    /// that is an error.
    /// Blocks; no lock may be held.
    pub(crate) fn commit_data(&self, hooks: &dyn CommitHooks, ino: Ino) -> Result<(), Error> {
        let atomic_wrote = self.with_atomic(|atomic| atomic.journalled.contains(&ino));
        match atomic_wrote {
            None => self.commit_running(hooks),
            Some(true) => Err(Error::WrittenInAtomic { ino }),
            Some(false) => Ok(()),
        }
    }

    /// Has an open atomic change room for a change of several handles, with so many credits in all? Without an atomic change, commits make
    /// room for each.
    ///
    /// # Errors
    /// `AtomicTooLarge`, as the first handle without room would return it.
    pub(crate) fn check_room(&self, credits: u32) -> Result<(), Error> {
        let mut state = self.state.lock();
        match state.used() + u64::from(state.credits) + u64::from(credits) <= u64::from(self.most) {
            true => Ok(()),
            false => state.check_divisible(credits, self.most),
        }
    }

    /// Calls `look` on the open atomic change, under the lock.
    fn with_atomic<T>(&self, look: impl FnOnce(&Atomic) -> T) -> Option<T> {
        self.state.lock().atomic.as_ref().map(look)
    }

    /// How full the running transaction is. While an atomic change is open, that is the atomic change's.
    pub(crate) fn fill(&self) -> AtomicFill {
        let state = self.state.lock();
        AtomicFill {
            changed: u32::try_from(state.used()).unwrap_or(u32::MAX),
            most: self.most,
            is_full: state.atomic.as_ref().is_some_and(|atomic| atomic.is_full),
        }
    }
}

impl State {
    /// No commit may begin while an atomic change is open.
    pub(super) fn check_no_atomic(&self) -> Result<(), Error> {
        match self.atomic {
            Some(_) => Err(Error::InAtomic),
            None => Ok(()),
        }
    }

    /// Called when the running transaction has no room for a handle. If it is an atomic change's, it cannot be committed to make room: an
    /// error.
    pub(super) fn check_divisible(&mut self, needed: u32, most: u32) -> Result<(), Error> {
        let changed = u32::try_from(self.used()).unwrap_or(u32::MAX);
        let Some(atomic) = &mut self.atomic else {
            return Ok(());
        };
        atomic.is_full = true;
        Err(Error::AtomicTooLarge {
            changed,
            needed,
            most,
        })
    }
}
