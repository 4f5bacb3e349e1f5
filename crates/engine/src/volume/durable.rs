//! What a volume owes its device: changes under handles, commits, the way home.
//!
//! Input: changes of metadata, bytes written. Output: handles, commits, a volume that needs no recovery. Invariants: where
//! nobody can be told of a failure it is latched and written down. Limits: all that commits blocks, and wants no lock held.

use super::VolumeShared;
use crate::error::Error;
use crate::journal::{Journal, JournalHandle};
use diorite_block::sync::atomic::Ordering;
use diorite_format::Tid;
use std::sync::Arc;

impl VolumeShared {
    /// So many bytes were, or are about to be, written to the device.
    pub(crate) fn note_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// KiB written in the volume's life, as its superblock counts them.
    pub(crate) fn kbytes_written(&self) -> u64 {
        let now = self.written.load(Ordering::Relaxed) / 1024;
        self.sb.info().kbytes_written.saturating_add(now)
    }

    /// Gives the volume what a writer needs beside files' data.
    pub(crate) fn set_journal(&self, journal: Journal) {
        self.journal.get_or_init(|| journal);
    }

    pub(crate) fn journal(&self) -> Result<&Journal, Error> {
        self.check_writable()?;
        self.journal.get().ok_or_else(|| {
            let name = &self.name;
            Error::ReadOnly(format!(
                "the journal of {name} is on a device of its own: name it (--journal)"
            ))
        })
    }

    /// Nobody writes metadata: the volume's journal is on a device that was not named.
    pub(crate) fn takes_overwrites_alone(&self) -> bool {
        self.journal.get().is_none()
    }

    /// The newest transaction that may have changed something and is not durable.
    pub(crate) fn newest_uncommitted(&self) -> Option<Tid> {
        self.journal.get().and_then(Journal::newest_uncommitted)
    }

    /// Begins a handle that may change `credits` blocks of metadata. Blocks; no lock may be held.
    pub(crate) fn begin(&self, credits: u32) -> Result<JournalHandle<'_>, Error> {
        self.journal()?.begin(self, credits)
    }

    /// As [`VolumeShared::begin`], if there is nothing to wait for.
    pub(crate) fn begin_at_once(&self, credits: u32) -> Option<JournalHandle<'_>> {
        self.journal().ok()?.begin_at_once(self, credits)
    }

    /// Is this transaction durable?
    pub(crate) fn is_committed(&self, tid: Tid) -> bool {
        self.journal.get().is_none_or(|j| j.is_committed(tid))
    }

    /// Commits what is running. Blocks; no lock may be held.
    pub(crate) fn commit_running(&self) -> Result<(), Error> {
        self.journal()?.commit_running(self)
    }

    /// Deletes what nobody uses and commits, so that its space is usable. Blocks; no lock may be held.
    pub(crate) fn commit_deleted(self: &Arc<Self>) -> Result<(), Error> {
        if self.takes_overwrites_alone() {
            return Ok(());
        }
        // What cannot be deleted is still to be committed as an orphan.
        self.delete_doomed_best_effort();
        self.commit_running()
    }

    /// Is a group of changes open?
    pub(crate) fn has_group(&self) -> bool {
        self.journal.get().is_some_and(Journal::has_group)
    }

    /// Blocks that one handle should change at most, so that it fits into any journal.
    pub(crate) fn most_credits(&self) -> u32 {
        self.journal.get().map_or(0, Journal::most_credits)
    }

    /// Makes all of a transaction durable, and what came before it. Blocks; no lock may be held.
    pub(crate) fn commit_up_to(&self, tid: Tid) -> Result<(), Error> {
        self.journal()?.commit_up_to(self, tid)
    }

    /// Commits what is running, where nobody can be told: a failure is latched, and written down.
    pub(crate) fn commit_best_effort(&self) {
        if let Some(volume) = self.weak.upgrade() {
            volume.delete_doomed_best_effort();
        }
        if let Some(journal) = self.journal.get() {
            let _stays = self.write_noted_times();
            let _latched = journal.commit_running(self);
            journal.write_failure_down(self);
        }
    }

    /// Brings home what is only in the log, where nobody can be told: a failure is latched, and written down.
    pub(crate) fn bring_home_best_effort(&self) {
        if let Some(journal) = self.journal.get() {
            let _latched = journal.checkpoint(self);
            journal.write_failure_down(self);
        }
    }

    /// As [`VolumeShared::settle`], where nobody can be told: a failure is latched, and the next open recovers.
    pub(crate) fn settle_best_effort(&self) {
        let _latched = self.settle();
    }

    /// As [`VolumeShared::delete_doomed`], where nobody can be told: what fails stays on the list of orphans.
    pub(crate) fn delete_doomed_best_effort(self: &Arc<Self>) {
        let _stays = self.delete_doomed();
    }

    /// Commits everything and brings it home: the volume needs no recovery then. Blocks; no lock may be held.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        self.journal.get().map_or(Ok(()), |journal| {
            let written = self.write_noted_times();
            let settled = journal.settle(self);
            journal.write_failure_down(self);
            written.and(settled)
        })
    }
}
