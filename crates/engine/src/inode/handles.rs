//! Changes under handles, commits, and the way home: what may commit, with what its commits take from above.
//!
//! Input: changes of metadata. Output: handles, commits, a volume that needs no recovery. Invariants: where nobody can be told of a failure
//! it is latched and written down. Limits: all that commits blocks, and wants no lock held.

use super::Fs;
use crate::alloc::Alloc;
use crate::error::{Error, Wait};
use crate::journal::JournalHandle;
use diorite_block::sync::atomic::Ordering;
use diorite_format::Tid;

/// The largest size that every implementation of ext2 knows.
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

    /// Begins a handle that may change `credits` blocks of metadata. Blocks; no lock may be held.
    pub(crate) fn begin(&self, credits: u32) -> Result<JournalHandle<'_>, Error> {
        self.journal()?.begin(self, credits)
    }

    /// As [`Fs::begin`], if there is nothing to wait for.
    pub(crate) fn begin_at_once(&self, credits: u32) -> Option<JournalHandle<'_>> {
        self.journal().ok()?.begin_at_once(self, credits)
    }

    /// Makes a change in one handle, again after a commit where that is all that is missing, and again with what others keep ahead where
    /// there is no space else. `change` leaves nothing changed where it fails for space. Blocks; no lock but a directory's may be held.
    pub(crate) fn in_handle<R>(
        &self,
        credits: u32,
        mut change: impl FnMut(&JournalHandle<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.with_all_space(|| change(&self.begin(credits)?))
    }

    /// Tries again after a commit, and with what others keep ahead, where space is missing. Blocks; no lock but a directory's may be held.
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

    /// Tries again after a commit where all that was missing was one. Blocks; no lock may be held and no handle open.
    ///
    /// # Errors
    /// Those of `attempt` and of the commit.
    pub(crate) fn or_commit<R>(
        &self,
        mut attempt: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        loop {
            // Again only if others took what the commit made usable, and freed more.
            match attempt() {
                Err(Error::WouldBlock(Wait::Commit)) => self.commit_running()?,
                done => return done,
            }
        }
    }

    /// Commits what is running. Blocks; no lock may be held.
    pub(crate) fn commit_running(&self) -> Result<(), Error> {
        self.journal()?.commit_running(self)
    }

    /// Makes all of a transaction durable, and what came before it. Blocks; no lock may be held.
    pub(crate) fn commit_up_to(&self, tid: Tid) -> Result<(), Error> {
        self.journal()?.commit_up_to(self, tid)
    }

    /// As [`Fs::settle`], where nobody can be told: a failure is latched, and the next open recovers.
    pub(crate) fn settle_best_effort(&self) {
        let _latched = self.settle();
    }

    /// Commits everything and brings it home: the volume needs no recovery then. Blocks; no lock may be held.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        self.journal_if_any().map_or(Ok(()), |journal| {
            let written = self.write_noted_times();
            let settled = journal.settle(self);
            journal.write_failure_down(self);
            written.and(settled)
        })
    }

    /// Before a size reaches 2 GiB the superblock says that there may be such files: the first time, and in the same transaction.
    pub(crate) fn announce_size(&self, handle: &JournalHandle<'_>, size: u64) -> Result<(), Error> {
        if size <= MOST_OF_SMALL || self.large_files.load(Ordering::Relaxed) {
            return Ok(());
        }
        handle.edit_super(|edit| edit.set_large_file())?;
        self.large_files.store(true, Ordering::Relaxed);
        Ok(())
    }
}
