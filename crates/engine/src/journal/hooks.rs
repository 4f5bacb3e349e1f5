//! What a commit needs from the modules above: times, counts and orphans to add, and a receiver for the blocks that the transaction freed.
//!
//! Input: commits. Output: changes in the last handle of their transactions. Invariants: called by the thread that commits, with the
//! journal's medium held where a method says so; takes no lock that a handle waits for. Limits: passed to every call that may commit; only
//! the keeper stores it, as a weak reference.

use super::{JournalHandle, Store};
use crate::error::Error;
use diorite_format::FsBlock;

/// See the module.
pub(crate) trait CommitHooks: std::fmt::Debug + Send + Sync {
    /// The disk and its journal.
    fn store(&self) -> &Store;

    /// Adds what every commit writes: one block, for which the journal keeps room. `empty`: the transaction has nothing else. The medium
    /// is held.
    ///
    /// # Errors
    /// The device's; the journal is aborted then.
    fn before_commit(&self, handle: &JournalHandle<'_>, empty: bool) -> Result<(), Error>;

    /// Takes back runs that were freed by a transaction which is durable now. The medium is held.
    fn reuse(&self, freed: &[(FsBlock, u32)]);

    /// Are there inodes in the orphan file?
    fn has_orphans_in_file(&self) -> bool;

    /// Are there times in memory that no transaction has yet?
    fn has_noted_times(&self) -> bool;

    /// Writes these times into the running transaction. Blocks; no lock may be held.
    ///
    /// # Errors
    /// The device's; `InAtomic` while an atomic change is open.
    fn write_noted_times(&self) -> Result<(), Error>;

    /// Commits the running transaction, with noted times, where nobody can be given an error: a failure is latched, and written down.
    /// Blocks; no lock may be held.
    fn commit_best_effort(&self);
}
