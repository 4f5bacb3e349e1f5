//! Reads a file's map from disk into the in-core tree, node by node.
//!
//! Input: the map's root in an inode, and blocks of the map through the metadata cache. Output: views in which a range is loaded.
//! Invariants: a node is checked against what its parent says of it, so with every step its depth falls and its range shrinks
//! and no cycle is possible; an extent that overlaps the volume's own structures is corrupt. Limits: loaded segments count
//! against the volume's budget; when that is exceeded, maps are reduced to their roots.

use super::{MapView, Segment, SegmentKind, Tree};
use crate::disk::cache::{Kind, MetaRef};
use crate::error::{BadMap, Error};
use crate::journal::Store;
use diorite_format::extent::{Entries, Expect, Extent, ExtentNode};
use diorite_format::indirect::{self, PointerBlock};
use diorite_format::{FileBlock, FsBlock, Ino, Inode as DiskInode, MapKind, Superblock};
use std::ops::Range;

/// One past the last file block that can be mapped.
pub(super) const END: u32 = u32::MAX;

/// The view that the inode alone gives: extents of its root, and the nodes that the root points to as not loaded.
pub(crate) fn root_view(volume: &Store, inode: &DiskInode) -> Result<MapView, Error> {
    let segments = root_segments(volume, inode)?;
    let mut tree = Tree::new();
    if !segments.is_empty() {
        tree = tree.splice(0, END, &segments);
    }
    Ok(MapView { tree, edits: 0 })
}

/// The segments of the map's root in the inode, checked.
pub(crate) fn root_segments(volume: &Store, inode: &DiskInode) -> Result<Vec<Segment>, Error> {
    let segments = segments_in_inode(&volume.sb, inode)?;
    check_places(volume, inode, &segments)?;
    Ok(segments)
}

/// The segments of the map's root in the inode. Whether they lie in the volume's own structures is not checked.
pub(crate) fn segments_in_inode(sb: &Superblock, inode: &DiskInode) -> Result<Vec<Segment>, Error> {
    match inode.map_kind() {
        MapKind::Extents => Ok(extent_segments(&ExtentNode::parse_root(sb, inode)?)),
        MapKind::Indirect => indirect_root(sb, inode),
        MapKind::Inline | MapKind::FastSymlink | MapKind::Device | MapKind::None => Ok(Vec::new()),
    }
}

/// The segments of a node whose bytes are `raw`, checked against what its parent says of it.
pub(crate) fn segments_in_node(
    sb: &Superblock,
    inode: &DiskInode,
    node: &Segment,
    raw: &[u8],
) -> Result<Vec<Segment>, Error> {
    match node.kind {
        SegmentKind::ExtentNode(at, depth) => {
            let expect = expected(node, depth);
            let (ino, generation) = (inode.ino, inode.generation);
            let node = ExtentNode::parse_block(sb, ino, generation, expect, at, raw)?;
            Ok(extent_segments(&node))
        }
        _ => pointer_segments(sb, inode.ino, node, raw),
    }
}

/// What its parent says of a node of an extent tree.
fn expected(node: &Segment, depth: u16) -> Expect {
    Expect {
        depth,
        first: FileBlock::new(u64::from(node.start)),
        end: u64::from(node.start) + u64::from(node.len),
    }
}

pub(super) fn extent_segments(node: &ExtentNode) -> Vec<Segment> {
    let block = |b: u64| u32::try_from(b).expect("the parser keeps file blocks below 2^32");
    match &node.entries {
        Entries::Leaf(extents) => extents.iter().map(extent_segment).collect(),
        Entries::Index(children) => children
            .iter()
            .map(|c| Segment {
                start: block(c.block.get()),
                len: block(c.end - c.block.get()),
                kind: SegmentKind::ExtentNode(c.child, node.depth - 1),
            })
            .collect(),
    }
}

/// An extent as a segment of the in-core map.
pub(super) fn extent_segment(extent: &Extent) -> Segment {
    let start = u32::try_from(extent.block.get());
    Segment {
        start: start.expect("the parser keeps file blocks below 2^32"),
        len: extent.len,
        kind: if extent.unwritten {
            SegmentKind::Unwritten(extent.start)
        } else {
            SegmentKind::Written(extent.start)
        },
    }
}

/// The segments of the direct pointers in the inode.
pub(super) fn direct_segments(sb: &Superblock, inode: &DiskInode) -> Result<Vec<Segment>, Error> {
    let mut segments = Vec::new();
    for slot in 0..indirect::DIRECT {
        let at = indirect::root_pointer(sb, inode, slot)?;
        push_pointer(&mut segments, slot, at);
    }
    Ok(segments)
}

fn indirect_root(sb: &Superblock, inode: &DiskInode) -> Result<Vec<Segment>, Error> {
    let mut segments = direct_segments(sb, inode)?;
    let per = u64::from(indirect::pointers_per_block(sb));
    let mut start = u64::from(indirect::DIRECT);
    for level in 1..=3u16 {
        let end = (start + per.pow(u32::from(level))).min(u64::from(END));
        let child = indirect::root_pointer(sb, inode, indirect::DIRECT + u32::from(level) - 1)?;
        push_indirect(&mut segments, start..end, child, level);
        start = end;
    }
    Ok(segments)
}

/// Adds a pointer to data; extends the previous segment where the block follows it both in the file and on the volume.
fn push_pointer(segments: &mut Vec<Segment>, block: u32, at: FsBlock) {
    if at.is_none() {
        return;
    }
    if let Some(Segment {
        start,
        len,
        kind: SegmentKind::Written(first),
    }) = segments.last_mut()
        && *start + *len == block
        && first.get() + u64::from(*len) == at.get()
    {
        *len += 1;
        return;
    }
    segments.push(Segment {
        start: block,
        len: 1,
        kind: SegmentKind::Written(at),
    });
}

fn push_indirect(segments: &mut Vec<Segment>, blocks: Range<u64>, at: FsBlock, level: u16) {
    if at.is_none() || blocks.is_empty() {
        return;
    }
    let short =
        |b: u64| u32::try_from(b).expect("the caller cuts the range at the last mappable block");
    let (start, len) = (short(blocks.start), short(blocks.end - blocks.start));
    segments.push(Segment {
        start,
        len,
        kind: SegmentKind::IndirectNode(at, level),
    });
}

/// Checks that neither data nor nodes of a file's map lie in the volume's own structures.
pub(super) fn check_places(
    volume: &Store,
    inode: &DiskInode,
    segments: &[Segment],
) -> Result<(), Error> {
    if volume.is_system_inode(inode.ino) {
        return Ok(());
    }
    for segment in segments {
        let (at, len) = match segment.kind {
            SegmentKind::Written(at) | SegmentKind::Unwritten(at) => (at, segment.len),
            SegmentKind::ExtentNode(at, _) | SegmentKind::IndirectNode(at, _) => (at, 1),
        };
        if let Some(what) = volume.metadata_in(at, u64::from(len)) {
            let (ino, block) = (inode.ino, u64::from(segment.start));
            return Err(Error::BadMap(Box::new(BadMap {
                ino,
                block,
                at,
                what,
            })));
        }
    }
    Ok(())
}

/// Reads a node of an extent tree and checks it against what its parent says of it.
pub(super) fn extent_node(
    volume: &Store,
    inode: &DiskInode,
    at: FsBlock,
    expect: Expect,
) -> Result<(MetaRef, ExtentNode), Error> {
    let (sb, ino) = (&volume.sb, inode.ino);
    let verify = |raw: &[u8]| {
        ExtentNode::parse_block(sb, ino, inode.generation, expect, at, raw).map(|_| ())
    };
    let raw = volume.cache.read(&volume.blocking, at, Kind::Map, verify)?;
    let node = ExtentNode::parse_changed_block(sb, ino, expect, at, &raw)?;
    check_places(volume, inode, &extent_segments(&node))?;
    Ok((raw, node))
}

/// Reads a block of pointers. The pointers are checked when they are taken from it.
pub(super) fn pointer_block(volume: &Store, at: FsBlock) -> Result<MetaRef, Error> {
    let unchecked = |_: &[u8]| Ok(());
    volume
        .cache
        .read(&volume.blocking, at, Kind::Map, unchecked)
}

/// The segments of the pointers in the block `raw`, for which `node` is the segment of the view.
pub(super) fn pointer_segments(
    sb: &Superblock,
    ino: Ino,
    node: &Segment,
    raw: &[u8],
) -> Result<Vec<Segment>, Error> {
    let SegmentKind::IndirectNode(at, level) = node.kind else {
        unreachable!("only an indirect node has pointers")
    };
    let pointers = PointerBlock::new(sb, ino, at, raw)?.to_vec()?;
    let below = (pointers.len() as u64).pow(u32::from(level) - 1);
    let (mut segments, mut start) = (Vec::new(), u64::from(node.start));
    let end = start + u64::from(node.len);
    for pointer in pointers {
        let next = (start + below).min(end);
        match u32::try_from(start) {
            Ok(block) if level == 1 && start < end => push_pointer(&mut segments, block, pointer),
            _ => push_indirect(&mut segments, start..next, pointer, level - 1),
        }
        start = next;
    }
    Ok(segments)
}

/// Reads a node of an inode's map and checks it against what its parent says of it. Blocks while the device reads.
pub(crate) fn read_node(
    volume: &Store,
    disk: &DiskInode,
    node: &Segment,
) -> Result<Vec<Segment>, Error> {
    match node.kind {
        SegmentKind::ExtentNode(at, depth) => {
            let expect = expected(node, depth);
            Ok(extent_segments(&extent_node(volume, disk, at, expect)?.1))
        }
        SegmentKind::IndirectNode(at, _) => {
            let raw = pointer_block(volume, at)?;
            let segments = pointer_segments(&volume.sb, disk.ino, node, &raw)?;
            check_places(volume, disk, &segments)?;
            Ok(segments)
        }
        SegmentKind::Written(_) | SegmentKind::Unwritten(_) => {
            unreachable!("only nodes are unloaded")
        }
    }
}
