//! Edits of maps on disk, without an in-core inode.
//!
//! Input: an inode whose map was edited in a handle. Output: the inode written, blocks of nodes freed or allocated. Invariants: i_blocks
//! counts what the map has afterwards; an edit that fails gives back the blocks that it took. Limits: for a file system that nobody else
//! uses: no map lock is taken, no view is published.

use crate::alloc::{Alloc, MARK_CREDITS, Reach, Run};
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use crate::map::edit::{self, Edited, MappedRun, NewRun, TreeBlocks};
use diorite_format::{FsBlock, Inode as DiskInode, MapKind, indirect};

/// Frees the nodes that an edit has removed, and writes the inode with its new map.
pub(super) fn write_map(
    fs: &Fs,
    handle: &JournalHandle<'_>,
    disk: &DiskInode,
    edited: &Edited,
) -> Result<(), Error> {
    for node in &edited.nodes_removed {
        free_around(fs, handle, *node)?;
    }
    let units = u64::from(fs.sb.geometry().cluster_size() / 512);
    let (more, fewer) = (
        u64::from(edited.nodes_taken) * units,
        edited.nodes_removed.len() as u64 * units,
    );
    fs.change_on_disk(handle, disk.ino, |now| {
        now.i_block = disk.i_block;
        now.blocks = (now.blocks + more).saturating_sub(fewer);
    })
}

/// Frees the cluster of a block of metadata.
pub(super) fn free_around(fs: &Fs, handle: &JournalHandle<'_>, at: FsBlock) -> Result<(), Error> {
    let run = Alloc::around(&fs.sb, Run { start: at, len: 1 })?;
    fs.alloc()?.free(handle, run.start, run.len)
}

/// Credits of a handle that maps blocks, marks them as used, and writes the inode.
pub(super) fn credits_to_map(fs: &Fs, disk: &DiskInode, new: &[NewRun]) -> u32 {
    let short = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let len: u32 = new.iter().map(|run| run.len).sum();
    let leaves = match disk.map_kind() {
        MapKind::Indirect => len / indirect::pointers_per_block(&fs.sb) + short(new.len()) + 2,
        _ => short(new.len()) + 2,
    };
    let tree = edit::credits(fs, disk, leaves, new);
    // Each run lies in one group, and so does each node.
    let groups = short(new.len())
        .saturating_add(tree)
        .min(fs.sb.group_count());
    // The inode; nodes that go are revoked.
    1 + 2 * tree + MARK_CREDITS * groups
}

/// Blocks for the nodes of a map.
pub(super) struct ForNodes<'a> {
    pub(super) fs: &'a Fs,
    pub(super) handle: &'a JournalHandle<'a>,
}

impl TreeBlocks for ForNodes<'_> {
    fn take(&mut self, goal: FsBlock) -> Result<FsBlock, Error> {
        let run = self
            .fs
            .alloc()?
            .allocate(self.handle, goal, 1, Reach::All)?;
        Ok(run.start)
    }

    fn give_back(&mut self, block: FsBlock) -> Result<(), Error> {
        free_around(self.fs, self.handle, block)
    }

    fn prepare_to_free(
        &mut self,
        _: &DiskInode,
        removed: &[MappedRun],
        nodes: &[FsBlock],
    ) -> Result<(), Error> {
        let alloc = self.fs.alloc()?;
        alloc.prepare_to_free(self.handle, removed, nodes)
    }

    fn counted_on(&self) -> usize {
        0
    }
}
