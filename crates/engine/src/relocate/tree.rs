//! The map of a file, as it is on disk: its nodes and its runs of data.
//!
//! Input: an inode's number, or the inode. Output: every node and every run, each checked, in the order of the file. Invariants: nothing is
//! changed; a node comes before what is below it; a map with more nodes and blocks than the volume has blocks is damaged, so the work is
//! bounded by the volume, whatever a damaged map says. Limits: blocks while the device reads.

use crate::disk::read_disk_inode;
use crate::error::Error;
use crate::inode::Fs;
use crate::map::{Segment, SegmentKind, read_node, root_segments};
use diorite_format::{FsBlock, Ino, Inode as DiskInode};

/// A part of a map.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// A node, at this block.
    Node(FsBlock),
    /// A run of data.
    Data(Data),
}

/// A run of data: file blocks in one state, one after the other on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) file_block: u32,
    pub(super) len: u32,
    pub(super) at: FsBlock,
    pub(super) unwritten: bool,
}

/// Reads an inode as the running transaction has it.
pub(super) fn read_inode(fs: &Fs, ino: Ino) -> Result<DiskInode, Error> {
    read_disk_inode(fs, ino).map_err(|e| e.at(format!("inode {ino}")))
}

/// Calls `meet` for every part of an inode's map.
pub(super) fn walk(
    fs: &Fs,
    disk: &DiskInode,
    meet: &mut dyn FnMut(Part) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut walk = Walk {
        fs,
        disk,
        left: fs.sb.geometry().blocks_count(),
        meet,
    };
    walk.all(&root_segments(fs, disk)?)
}

struct Walk<'a> {
    fs: &'a Fs,
    disk: &'a DiskInode,
    /// Blocks that the volume may still have for this file.
    left: u64,
    meet: &'a mut dyn FnMut(Part) -> Result<(), Error>,
}

impl Walk<'_> {
    fn all(&mut self, segments: &[Segment]) -> Result<(), Error> {
        for segment in segments {
            let (at, len) = match data_of(segment) {
                Some(data) => (Part::Data(data), data.len),
                None => (Part::Node(node_of(segment)), 1),
            };
            let left = self.left.checked_sub(u64::from(len));
            self.left = left.ok_or_else(|| self.too_large())?;
            (self.meet)(at)?;
            if segment.is_unloaded() {
                self.all(&read_node(self.fs, self.disk, segment)?)?;
            }
        }
        Ok(())
    }

    fn too_large(&self) -> Error {
        let ino = self.disk.ino;
        let what = "its map has more blocks than the volume";
        Error::Damaged(format!("inode {ino}: {what}; run e2fsck"))
    }
}

/// The run of a segment; none if the segment is a node.
pub(super) fn data_of(segment: &Segment) -> Option<Data> {
    let (at, unwritten) = match segment.kind {
        SegmentKind::Written(at) => (at, false),
        SegmentKind::Unwritten(at) => (at, true),
        SegmentKind::ExtentNode(..) | SegmentKind::IndirectNode(..) => return None,
    };
    Some(Data {
        file_block: segment.start,
        len: segment.len,
        at,
        unwritten,
    })
}

/// The block of a segment: of the node, or the first one of the run.
pub(super) fn node_of(segment: &Segment) -> FsBlock {
    match segment.kind {
        SegmentKind::Written(at)
        | SegmentKind::Unwritten(at)
        | SegmentKind::ExtentNode(at, _)
        | SegmentKind::IndirectNode(at, _) => at,
    }
}
