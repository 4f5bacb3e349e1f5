//! What a commit needs from the modules above the journal: free counts, a recorded failure, noted times.
//!
//! Input: commits. Output: the superblock, changed in the last handle of each; noted times in the running transaction. Invariants: those
//! of [`CommitHooks`]. Limits: while an atomic change is open, noted times are not written.

use super::doomed::delete_doomed_best_effort;
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::{CommitHooks, JournalHandle, Store};
use diorite_format::FsBlock;

impl CommitHooks for Fs {
    fn store(&self) -> &Store {
        self
    }

    fn before_commit(&self, handle: &JournalHandle<'_>, empty: bool) -> Result<(), Error> {
        if let Some(alloc) = &self.alloc {
            alloc.seal(handle)?;
        }
        let failure = self.take_record();
        if empty && failure.is_none() {
            return Ok(());
        }
        let now = self.now_seconds();
        handle.edit_super(|edit| {
            edit.set_write_time(now);
            edit.set_kbytes_written(self.kbytes_written());
            if let Some(alloc) = &self.alloc {
                edit.set_free_blocks(alloc.free_blocks());
                edit.set_free_inodes(alloc.free_inodes());
            }
            if let Some(failure) = &failure {
                edit.record_error(failure);
            }
        })
    }

    fn reuse(&self, freed: &[(FsBlock, u32)]) {
        for (start, len) in freed {
            if let Some(alloc) = &self.alloc {
                alloc.reuse(&self.sb, *start, *len);
            }
        }
    }

    fn has_orphans_in_file(&self) -> bool {
        self.orphans.in_file()
    }

    fn has_noted_times(&self) -> bool {
        Fs::has_noted_times(self)
    }

    fn write_noted_times(&self) -> Result<(), Error> {
        Fs::write_noted_times(self)
    }

    fn commit_best_effort(&self) {
        if let Some(fs) = self.upgraded() {
            delete_doomed_best_effort(&fs);
        }
        if let Some(journal) = self.journal_if_any() {
            if self.noted_times_are_due() {
                let _stays = self.write_noted_times();
                // The list of noted times may have been their last user.
                if let Some(fs) = self.upgraded() {
                    delete_doomed_best_effort(&fs);
                }
            }
            let _latched = journal.commit_running(self);
            journal.write_failure_down(self);
        }
    }
}
