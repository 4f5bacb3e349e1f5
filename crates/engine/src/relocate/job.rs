//! What the parts of an evacuation share.
//!
//! Input: the file system, the limit, and a function that is told of the progress. Output: [`Job`]. Invariant: the caller can stop the work
//! only between two handles. Limits: none.

use crate::alloc::Region;
use crate::error::Error;
use crate::inode::Fs;
use diorite_format::{FsBlock, Superblock};

/// What is emptied.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    /// The blocks that are emptied: whole clusters.
    pub(crate) region: Region,
    /// The last inode number that may stay: those of whole groups.
    pub(crate) inodes: u32,
}

impl Limit {
    /// The end of the volume, from a block and from an inode on.
    pub(crate) fn behind(blocks: u64, inodes: u32) -> Limit {
        let region = Region::behind(blocks);
        Limit { region, inodes }
    }

    /// A part of the volume, all of whose inodes may stay.
    pub(crate) fn within(sb: &Superblock, region: Region) -> Limit {
        let inodes = sb.geometry().inodes_count();
        Limit { region, inodes }
    }
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
    pub(super) limit: &'a Limit,
    pub(super) moved: Moved,
    pub(super) progress: Progress<'a>,
}

impl Job<'_> {
    /// Is this block in the region that is emptied?
    pub(super) fn is_in_region(&self, block: FsBlock) -> bool {
        self.limit.region.has(block.get())
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
