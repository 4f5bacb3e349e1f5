//! The delete room: the way out, and what a commit takes from above.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `doomed` | an inode without names or users -> free space |
//! | `recover` | the list of orphans as it was left -> all of it deleted or truncated |
//! | `upkeep` | a commit -> the times, counts and failures that it writes |
//!
//! Input: inodes that nobody uses any more. Output: free blocks and numbers. Invariants: what cannot be deleted stays on the list of orphans.
//! Limits: what stays open when the process ends, or the volume goes before its last file, is deleted by the next opening for writing.

mod doomed;
mod recover;
#[cfg(test)]
mod tests;
mod upkeep;

pub(crate) use doomed::{
    check_deletable, commit_deleted, delete_doomed_best_effort, delete_orphan,
    delete_unlinked_best_effort, go_at_once, may_go_at_once, sync, time_of_deletion,
};
pub(crate) use recover::{load, recover};
