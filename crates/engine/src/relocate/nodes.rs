//! Moves the nodes of a file's map: of extent trees, and the indirect blocks of ext2 and ext3.
//!
//! Input: an inode. Output: its nodes in front of the limit. Invariants: one handle for each node: the copy, the pointer to it, the old
//! block freed and revoked; a node moves before those below it. Limits: a node's contents do not depend on its place, so it is copied as it
//! is.

use super::edits::free_around;
use super::job::Job;
use super::tree::{node_of, read_inode};
use crate::alloc::{MARK_CREDITS, Reach};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use crate::map::{Segment, SegmentKind, read_node, root_segments};
use diorite_format::extent::{raw, seal_block};
use diorite_format::indirect::{self, PointerBlock};
use diorite_format::inode::I_BLOCK_SIZE;
use diorite_format::{FsBlock, Ino, Inode as DiskInode, MapKind};

/// The copy, the block that has the pointer, the revoked block; a bitmap and a descriptor of both places.
const CREDITS: u32 = 3 + 2 * MARK_CREDITS;

/// Which block has the pointer to a node.
#[derive(Clone, Copy, Debug)]
enum Parent {
    Inode,
    Node(FsBlock),
}

/// Moves the nodes of an inode's map that are behind the limit. Blocks.
pub(super) fn move_nodes(job: &mut Job<'_>, ino: Ino) -> Result<(), Error> {
    let disk = read_inode(job.fs, ino)?;
    let segments = root_segments(job.fs, &disk)?;
    below(job, &disk, &segments, Parent::Inode)
}

/// Moves these nodes of one parent, and the nodes below them.
fn below(
    job: &mut Job<'_>,
    disk: &DiskInode,
    segments: &[Segment],
    parent: Parent,
) -> Result<(), Error> {
    for segment in segments.iter().filter(|segment| segment.is_unloaded()) {
        let mut now = *segment;
        if job.is_in_region(node_of(segment)) {
            let to = relocate(job.fs, disk, segment, parent)?;
            now.kind = match segment.kind {
                SegmentKind::IndirectNode(_, level) => SegmentKind::IndirectNode(to, level),
                SegmentKind::ExtentNode(_, depth) => SegmentKind::ExtentNode(to, depth),
                data => data,
            };
            job.moved(u64::from(job.fs.sb.geometry().cluster_ratio()))?;
        }
        let is_leaf = matches!(
            segment.kind,
            SegmentKind::ExtentNode(_, 0) | SegmentKind::IndirectNode(_, 1)
        );
        // The blocks that a node of the resize inode points to are those of the fixed structures.
        if !is_leaf && disk.ino != Ino::RESIZE {
            let segments = read_node(job.fs, disk, &now)?;
            below(job, disk, &segments, Parent::Node(node_of(&now)))?;
        }
    }
    Ok(())
}

/// Moves one node; returns its new place.
fn relocate(fs: &Fs, disk: &DiskInode, node: &Segment, parent: Parent) -> Result<FsBlock, Error> {
    let (from, alloc) = (node_of(node), fs.alloc()?);
    // Checked against its parent.
    read_node(fs, disk, node)?;
    let goal = alloc.goal_of(&fs.sb, disk.ino);
    fs.in_handle(CREDITS, |handle| {
        let mut bytes = handle.read(from, Kind::Map, |_| Ok(()))?.to_vec();
        let to = alloc.allocate(handle, goal, 1, Reach::All)?.start;
        if disk.map_kind() == MapKind::Extents {
            // An edit may have left its checksum to the commit.
            seal_block(&fs.sb, disk.ino, disk.generation, &mut bytes);
        }
        handle.or_abort((|| {
            handle.create(to, Kind::Map, |raw| raw.copy_from_slice(&bytes));
            point(fs, handle, disk, parent, (from, to))?;
            handle.forget(from);
            free_around(fs, handle, from)
        })())?;
        Ok(to)
    })
}

/// Makes the parent's pointer to `from` one to `to`.
fn point(
    fs: &Fs,
    handle: &JournalHandle<'_>,
    disk: &DiskInode,
    parent: Parent,
    (from, to): (FsBlock, FsBlock),
) -> Result<(), Error> {
    let extents = disk.map_kind() == MapKind::Extents;
    let missing = || {
        let ino = disk.ino;
        Error::Damaged(format!(
            "inode {ino}: nothing points to node {from}; run e2fsck"
        ))
    };
    let Parent::Node(at) = parent else {
        let mut i_block = disk_now(fs, disk.ino)?.i_block;
        let found = match extents {
            true => raw::set_child(&mut i_block, from, to),
            false => set_in_inode(fs, disk, &mut i_block, (from, to))?,
        };
        if !found {
            return Err(missing());
        }
        return fs.change_on_disk(handle, disk.ino, |now| now.i_block = i_block);
    };
    handle.node(at, disk.ino);
    handle.update(
        at,
        Kind::Map,
        |_| Ok(()),
        |bytes| {
            if extents {
                if !raw::set_child(bytes, from, to) {
                    return Err(missing());
                }
                seal_block(&fs.sb, disk.ino, disk.generation, bytes);
                return Ok(());
            }
            let pointers = PointerBlock::new(&fs.sb, disk.ino, at, bytes)?.to_vec()?;
            let slot = pointers.iter().position(|pointer| *pointer == from);
            let slot = slot.and_then(|slot| u32::try_from(slot).ok());
            let slot = slot.ok_or_else(missing)?;
            Ok(indirect::set_pointer(&fs.sb, bytes, slot, to)?)
        },
    )
}

fn disk_now(fs: &Fs, ino: Ino) -> Result<DiskInode, Error> {
    read_inode(fs, ino)
}

/// Changes a pointer to an indirect block in the inode. Returns false if there is none.
fn set_in_inode(
    fs: &Fs,
    disk: &DiskInode,
    i_block: &mut [u8; I_BLOCK_SIZE],
    (from, to): (FsBlock, FsBlock),
) -> Result<bool, Error> {
    let now = disk_now(fs, disk.ino)?;
    for slot in indirect::DIRECT..indirect::DIRECT + 3 {
        if indirect::root_pointer(&fs.sb, &now, slot)? == from {
            indirect::set_root_pointer(&fs.sb, i_block, slot, to)?;
            return Ok(true);
        }
    }
    Ok(false)
}
