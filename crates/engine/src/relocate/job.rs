//! What the parts of an evacuation share.
//!
//! Input: the file system, the limit, and who wants to know of the progress. Output: [`Job`]. Invariant: the caller can stop the work only
//! between two handles. Limits: none.

use crate::error::Error;
use crate::inode::Fs;
use diorite_format::FsBlock;

/// Where the part ends that stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// The first block of the part that is emptied: a whole number of clusters.
    pub(crate) blocks: u64,
    /// The last inode number that may stay: those of whole groups.
    pub(crate) inodes: u32,
}

/// What has moved so far, and what is to move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Blocks that have moved.
    pub blocks: u64,
    /// Blocks that are to move.
    pub of_blocks: u64,
    /// Inodes that have got other numbers.
    pub inodes: u32,
    /// Inodes that are to get other numbers.
    pub of_inodes: u32,
}

/// Called from time to time, between handles; an error stops the evacuation, which returns it.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(&Moved) -> Result<(), Error>;

/// What the parts of an evacuation share.
pub(super) struct Job<'a> {
    pub(super) fs: &'a Fs,
    pub(super) limit: Limit,
    pub(super) moved: Moved,
    pub(super) progress: Progress<'a>,
}

impl Job<'_> {
    /// Is this block behind the limit?
    pub(super) fn is_behind(&self, block: FsBlock) -> bool {
        block.get() >= self.limit.blocks
    }

    /// So many blocks have moved.
    pub(super) fn moved(&mut self, blocks: u64) -> Result<(), Error> {
        self.moved.blocks += blocks;
        (self.progress)(&self.moved)
    }

    /// An inode has got a new number.
    pub(super) fn renumbered(&mut self) -> Result<(), Error> {
        self.moved.inodes += 1;
        (self.progress)(&self.moved)
    }
}

/// What to do if something cannot move.
pub(super) const HELP: &str = "choose a larger size";
