//! The mount room: from a device to a file system that can be used.
//!
//! Input: a device, and options. Output: [`Opened`]. Invariants: probing never writes; nothing is opened for writing that is not fully
//! understood, and recovered first if it has to be; every structure is checked before it is used. Limits: the group descriptors are read
//! whole, 512 KiB for a TiB.
//!
//! # Recovery
//!
//! `mount/recover.rs` puts a volume together once from what is on the device, to find the journal's inode. If its log is empty that
//! volume is handed out. Else the log is read in three passes (`scan`: where does it end; what is revoked; `replay`: the last copy of
//! each block), all in memory, each block of the log taken once. Readers get a volume over an `Overlay`, a device that patches what is
//! read. For writers the state after recovery is judged first, through such an overlay, so that a volume that is going to be refused
//! stays as it is; then:
//!
//! 1. the blocks go home, flush: until then the log is whole, and recovery starts again
//! 2. if the journal was aborted, the superblock's error state, flush
//! 3. the log's start is set to 0 and its sequence one past what it could hold, flush
//! 4. `needs_recovery` is cleared, flush
//!
//! A superblock with a wrong sum goes the same way: the block with a copy in its place is one more block to bring home, unless the log
//! has a newer one. The head of the chain of orphans, which no copy has, is taken from the torn one if the sector around it is the
//! volume's.

mod fast;
mod journal;
mod log_places;
mod look;
mod recover;

pub(crate) use recover::open;

use crate::error::Error;
use crate::inode::Fs;
use diorite_block::Device;
use std::sync::Arc;

/// Opens the device of a journal at a locator, for a volume with blocks of this size.
pub(crate) type OpenLog<'a> = &'a dyn Fn(&str, u32) -> Result<Arc<dyn Device>, Error>;

/// A file system, opened.
pub(crate) struct Opened {
    pub(crate) fs: Arc<Fs>,
    /// What a person should know about how that went, one line each.
    pub(crate) notes: Vec<String>,
}
