//! What a commit needs from above: the times, counts and orphans that it adds, and who may use again what it freed.
//!
//! Input: commits. Output: changes in the last handle of their transactions. Invariants: called by whoever commits, with the journal's medium
//! held where a method says so; takes no lock that a handle waits for. Limits: passed to whatever may commit; the keeper alone has it weakly.

use super::{JournalHandle, Store};
use crate::error::Error;
use diorite_format::FsBlock;

/// See the module.
pub(crate) trait CommitHooks: std::fmt::Debug + Send + Sync {
    /// The disk and its journal.
    fn store(&self) -> &Store;

    /// Adds what every commit writes: one block, which the journal has kept room for. `empty`: nothing else is in it. The medium is held.
    ///
    /// # Errors
    /// The device's; the journal is aborted then.
    fn before_commit(&self, handle: &JournalHandle<'_>, empty: bool) -> Result<(), Error>;

    /// These runs were freed by a transaction that is durable now. The medium is held.
    fn reuse(&self, freed: &[(FsBlock, u32)]);

    /// Are there inodes in the orphan file?
    fn has_orphans_in_file(&self) -> bool;

    /// Are there times in memory that are in no transaction?
    fn has_noted_times(&self) -> bool;

    /// Writes these into the running transaction. Blocks; no lock may be held.
    ///
    /// # Errors
    /// The device's; `InGroup` while a group of changes is open.
    fn write_noted_times(&self) -> Result<(), Error>;

    /// Commits what is running, with all of this, where nobody can be told: a failure is latched, and written down. Blocks; no lock may
    /// be held.
    fn commit_best_effort(&self);
}
