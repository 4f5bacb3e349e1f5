//! The mount module: from a device to an open file system.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `look` | a device -> superblock, features, group descriptors, checked; whether the state allows to open it |
//! | `torn` | a device -> its superblock, from the log if the primary one is torn and has no copy |
//! | `journal`, `log_places` | a volume -> its journal and the places of its log, checked |
//! | `recover` | a volume that needs recovery -> recovered, in memory for readers, on disk for writers |
//! | `mend` | counts of groups, clusters that nobody uses -> a volume with them, or without, before its orphans are processed |
//! | `fast` | fast commits behind a log -> the blocks that they change |
//!
//! Input: a device, and options. Output: [`Opened`]. Invariants: nothing but recovery writes; a volume is opened for writing only if all
//! of it is understood and it has been recovered; every structure is checked before it is used. Limits: the group descriptors are read
//! whole, 512 KiB for a TiB.
//!
//! # Recovery
//!
//! `mount/recover.rs` assembles a volume once from what is on the device, to find the journal's inode. If the log is empty, that volume
//! is used. Else the log is read in three passes (`journal/recovery`: `scan` finds where it ends and what is revoked, `replay` takes the
//! last copy of each block), all in memory; a pass takes each block of the log once, even if the log is damaged. Readers get a volume
//! over an `Overlay`, a device that replaces blocks in what is read. For writers the state after recovery is checked first, through such
//! an overlay, so that a volume that is going to be refused is not changed; then:
//!
//! 1. The blocks are written home; flush. Until then the log is complete, and an interrupted recovery starts again.
//! 2. If the journal was aborted, the error state is written to the superblock; flush.
//! 3. The log's start is set to 0 and its sequence to one past what it could hold; flush.
//! 4. `needs_recovery` is cleared; flush.
//!
//! A superblock with a wrong checksum is recovered in the same way: its block, with a copy in its place, is one more block to write home,
//! unless the log has a newer one. The head of the orphan chain is in no copy; it is taken from the torn superblock, if the sector
//! around it is this volume's. A volume without a copy gets the superblock that its log has (`torn`).

mod fast;
mod journal;
mod log_places;
mod look;
mod mend;
mod recover;
mod torn;

pub(crate) use journal::superblock as journal_superblock;
pub(crate) use recover::open;
pub use torn::find as find_superblock;

use crate::error::Error;
use crate::inode::Fs;
use diorite_block::Device;
use std::sync::Arc;

/// Opens the device of a journal by its locator, for a volume with blocks of this many bytes.
pub(crate) type OpenLog<'a> = &'a dyn Fn(&str, u32) -> Result<Arc<dyn Device>, Error>;

/// An open file system.
pub(crate) struct Opened {
    pub(crate) fs: Arc<Fs>,
    /// Messages for a person about how it was opened, one line each.
    pub(crate) notes: Vec<String>,
}
