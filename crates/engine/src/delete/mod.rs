//! The delete module: deletion of inodes, recovery of the orphan list, and what a commit needs from the modules above the journal.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `doomed` | an inode without names or users -> free space |
//! | `recover` | the orphan list as it was left on disk -> all inodes on it deleted or truncated |
//! | `upkeep` | a commit -> the times, counts and failures that it writes |
//!
//! Input: inodes that nobody uses any more. Output: free blocks and inode numbers. Invariants: an inode that cannot be deleted stays on
//! the orphan list. Limits: inodes that are in use when the process ends, or when the volume is closed before their last file is dropped,
//! are deleted when the volume is opened for writing next.

mod doomed;
mod recover;
#[cfg(test)]
mod tests;
mod upkeep;

pub(crate) use doomed::{
    check_deletable, commit_deleted, condemn, delete_condemned, delete_doomed_best_effort,
    delete_orphan, delete_unheld, delete_unlinked_best_effort, free_deleted, go_at_once,
    has_only_number_of, may_go_at_once, prepare_condemned, prepare_to_lose_name, sync,
    time_of_deletion,
};
pub(crate) use recover::{load, recover};
