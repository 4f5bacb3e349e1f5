//! Journal handles, commits and the final checkpoint of a file system, with [`Fs`] as the hooks of its commits.
//!
//! Input: changes of metadata. Output: handles, commits, a volume that needs no recovery. Invariants: an error that cannot be reported is
//! latched and recorded in the superblock. Limits: calls that commit block the calling thread, which may hold no lock.

use super::Fs;
use crate::alloc::Alloc;
use crate::error::{Error, Wait};
use crate::journal::JournalHandle;
use diorite_block::sync::MutexGuard;
use diorite_block::sync::atomic::Ordering;
use diorite_format::Tid;

/// The largest size, in bytes, of a file without the feature large_file.
const MOST_OF_SMALL: u64 = (1 << 31) - 1;

impl Fs {
    /// The allocator.
    ///
    /// # Errors
    /// The volume may not be written.
    pub(crate) fn alloc(&self) -> Result<&Alloc, Error> {
        self.check_writable()?;
        let missing = || Error::ReadOnly(format!("{} is not open for writing", self.name()));
        self.alloc.as_ref().ok_or_else(missing)
    }

    /// The lock of calls that change the volume as a whole, one at a time: its size, its parameters. Each of them commits, so none can be
    /// made in the middle of an atomic change; and none begins while the lock is held. No lock may be held.
    ///
    /// # Errors
    /// `InAtomic`.
    pub(crate) fn alone(&self) -> Result<MutexGuard<'_, ()>, Error> {
        let alone = self.resizing.lock();
        match self.has_atomic() {
            true => Err(Error::InAtomic),
            false => Ok(alone),
        }
    }

    /// Begins an atomic change. Blocks; no lock may be held.
    ///
    /// # Errors
    /// Those of [`crate::Volume::atomic`].
    pub(crate) fn begin_atomic(&self) -> Result<(), Error> {
        let _alone = self.resizing.lock();
        self.journal()?.begin_atomic(self)
    }

    /// Begins a handle that may change `credits` blocks of metadata, for [`JournalHandle::with`]. Blocks; no lock may be held.
    pub(crate) fn begin(&self, credits: u32) -> Result<JournalHandle<'_>, Error> {
        self.journal()?.begin(self, credits)
    }

    /// As [`Fs::begin`], but None if it would have to wait.
    pub(crate) fn begin_at_once(&self, credits: u32) -> Option<JournalHandle<'_>> {
        self.journal().ok()?.begin_at_once(self, credits)
    }

    /// Makes a change in one handle of `credits` blocks. If the change fails because space needs a commit, or for lack of space, it is
    /// repeated as by [`Fs::with_all_space`]; so `change` must have changed nothing then. Blocks; no lock but a directory's may be held.
    pub(crate) fn in_handle<R>(
        &self,
        credits: u32,
        mut change: impl FnMut(&JournalHandle<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.with_all_space(|| self.begin(credits)?.with(&mut change))
    }

    /// Runs `attempt`. If space is missing, repeats it after a commit, and then with the blocks given back that files keep ahead. Blocks;
    /// no lock but a directory's may be held.
    pub(crate) fn with_all_space<R>(
        &self,
        mut attempt: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self.or_commit(&mut attempt) {
            Err(Error::NoSpace { .. }) => {
                self.close_windows();
                self.or_commit(attempt)
            }
            done => done,
        }
    }

    /// Repeats `attempt` after a commit, as long as a commit is all that is missing. Blocks; no lock may be held and no handle open.
    ///
    /// # Errors
    /// Those of `attempt` and of the commit.
    pub(crate) fn or_commit<R>(
        &self,
        mut attempt: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        loop {
            // More than one round only if others took the blocks that the commit made usable, and freed more.
            match attempt() {
                Err(Error::WouldBlock(Wait::Commit)) => self.commit_running()?,
                done => return done,
            }
        }
    }

    /// Commits the running transaction. Blocks; no lock may be held.
    pub(crate) fn commit_running(&self) -> Result<(), Error> {
        self.journal()?.commit_running(self)
    }

    /// Makes a transaction durable, and all before it. Blocks; no lock may be held.
    pub(crate) fn commit_up_to(&self, tid: Tid) -> Result<(), Error> {
        self.journal()?.commit_up_to(self, tid)
    }

    /// As [`Fs::make_clean`], for callers that cannot report an error: it is latched, and the next open recovers.
    pub(crate) fn make_clean_best_effort(&self) {
        let _latched = self.make_clean();
    }

    /// Writes noted times, commits everything and checkpoints it: the volume needs no recovery then. Blocks; no lock may be held.
    pub(crate) fn make_clean(&self) -> Result<(), Error> {
        self.journal_if_any().map_or(Ok(()), |journal| {
            let written = self.write_noted_times();
            let clean = journal.make_clean(self);
            journal.write_failure_down(self);
            written.and(clean)
        })
    }

    /// Ends all changes that no request asks for: deletion of inodes that lose their last user, and noted times. What could not be written
    /// is given up. Call it when everything is committed and no request is taken any more.
    pub(crate) fn end_own_changes(&self) {
        self.orphans.end_deletion();
        self.dirty_times.end();
    }

    /// Ends the keeper, which may hold the file system until then. Blocks; no lock may be held.
    pub(crate) fn end_keeper(&self) {
        if let Some(journal) = self.journal_if_any() {
            journal.end_keeper();
        }
    }

    /// Notes whether the superblock has the feature large_file.
    pub(crate) fn note_large_files(&self, has: bool) {
        self.large_files.store(has, Ordering::Relaxed);
    }

    /// Sets the feature large_file before the first size of 2 GiB or more, in the same transaction.
    pub(crate) fn announce_size(&self, handle: &JournalHandle<'_>, size: u64) -> Result<(), Error> {
        if size <= MOST_OF_SMALL || self.large_files.load(Ordering::Relaxed) {
            return Ok(());
        }
        handle.edit_super(|edit| edit.set_large_file())?;
        self.large_files.store(true, Ordering::Relaxed);
        Ok(())
    }
}
