//! Reading a file's map from disk into the tree, node by node.
//!
//! Input: an inode's root, and blocks of its map through the metadata cache. Output: views in which a range is loaded.
//! Invariants: a node is checked against what its parent says of it, so its depth falls and its range shrinks with every
//! step and no cycle can be walked; an extent that overlaps known metadata is corrupt. Limits: what is loaded counts
//! against the volume's budget; when that is exceeded, maps fall back to their roots.

use super::{MapView, Mapping, MappingState, NotLoaded, Segment, SegmentKind, Tree};
use crate::disk::cache::{Kind, MetaRef};
use crate::error::{BadMap, Error};
use crate::inode::{Handle, Inode};
use crate::journal::Store;
use crate::queue::{Message, QueueShared};
use crate::threads::{Lead, Task, contained};
use diorite_format::extent::{Entries, Expect, Extent, ExtentNode};
use diorite_format::features::RoCompat;
use diorite_format::indirect::{self, PointerBlock};
use diorite_format::{FileBlock, FsBlock, Ino, Inode as DiskInode, MapKind, Superblock};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// A part of a map to load, for a request that met its absence.
#[derive(Debug)]
pub(crate) struct LoadJob {
    /// Before the queue, so that it is dropped first: who drops the queue waits for this job to let go of it.
    pub(crate) file: Arc<Handle>,
    pub(crate) queue: Arc<QueueShared>,
    pub(crate) slot: u32,
    pub(crate) blocks: Range<u64>,
}

impl Task for LoadJob {
    const CLASS: &'static str = "submit";
    const BATCH: usize = 1;

    fn run(batch: &mut Vec<LoadJob>, _: &dyn Lead) {
        for job in batch.drain(..) {
            let message = match contained(|| job.file.inode.load_map(job.blocks)) {
                Ok(view) => Message::Mapped(job.slot, view),
                Err(error) => Message::Unmapped(job.slot, error),
            };
            job.queue.inbox.post([message]);
            job.queue.waker.kick();
        }
    }

    fn refuse(self, error: &Error) {
        self.queue
            .inbox
            .post([Message::Unmapped(self.slot, error.clone())]);
        self.queue.waker.kick();
    }
}

/// One past the last file block that can be mapped.
pub(super) const END: u32 = u32::MAX;

/// The view that the inode alone gives: its root's extents, and its root's pointers as nodes that are not loaded.
pub(crate) fn root_view(volume: &Store, inode: &DiskInode) -> Result<MapView, Error> {
    let segments = root_segments(volume, inode)?;
    let mut tree = Tree::new();
    if !segments.is_empty() {
        tree = tree.splice(0, END, &segments);
    }
    Ok(MapView { tree, edits: 0 })
}

/// What the inode alone says of its map, checked.
pub(super) fn root_segments(volume: &Store, inode: &DiskInode) -> Result<Vec<Segment>, Error> {
    let segments = match inode.map_kind() {
        MapKind::Extents => extent_segments(&ExtentNode::parse_root(&volume.sb, inode)?),
        MapKind::Indirect => indirect_root(volume, inode)?,
        MapKind::Inline | MapKind::FastSymlink | MapKind::Device | MapKind::None => Vec::new(),
    };
    check_places(volume, inode, &segments)?;
    Ok(segments)
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

/// An extent as the in-core map shows it.
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

/// What the pointers in the inode map themselves.
pub(super) fn direct_segments(sb: &Superblock, inode: &DiskInode) -> Result<Vec<Segment>, Error> {
    let mut segments = Vec::new();
    for slot in 0..indirect::DIRECT {
        let at = indirect::root_pointer(sb, inode, slot)?;
        push_pointer(&mut segments, slot, at);
    }
    Ok(segments)
}

fn indirect_root(volume: &Store, inode: &DiskInode) -> Result<Vec<Segment>, Error> {
    let mut segments = direct_segments(&volume.sb, inode)?;
    let per = u64::from(indirect::pointers_per_block(&volume.sb));
    let mut start = u64::from(indirect::DIRECT);
    for level in 1..=3u16 {
        let end = (start + per.pow(u32::from(level))).min(u64::from(END));
        let child =
            indirect::root_pointer(&volume.sb, inode, indirect::DIRECT + u32::from(level) - 1)?;
        push_indirect(&mut segments, start..end, child, level);
        start = end;
    }
    Ok(segments)
}

/// A pointer to data, merged with its predecessor where both are neighbours in the file and on the volume.
fn push_pointer(segments: &mut Vec<Segment>, block: u32, at: FsBlock) {
    if at.is_none() {
        return;
    }
    if let Some(Segment {
        start,
        len,
        kind: SegmentKind::Written(first),
    }) = segments.last_mut()
    {
        if *start + *len == block && first.get() + u64::from(*len) == at.get() {
            *len += 1;
            return;
        }
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

/// No file's data, and no node of a file's map, lies in the volume's own structures.
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

/// Reads a block of pointers; what they point to is checked when they are taken from it.
pub(super) fn pointer_block(volume: &Store, at: FsBlock) -> Result<MetaRef, Error> {
    let unchecked = |_: &[u8]| Ok(());
    volume
        .cache
        .read(&volume.blocking, at, Kind::Map, unchecked)
}

/// What the bytes of a block of pointers map, that `node` stands for.
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

/// Holes that follow each other are one.
fn push_mapping(all: &mut Vec<Mapping>, next: Mapping) {
    match all.last_mut() {
        Some(last) if (last.state, next.state) == (MappingState::Hole, MappingState::Hole) => {
            last.len += next.len;
        }
        _ => all.push(next),
    }
}

impl Inode {
    /// A view in which `blocks` are loaded. Blocks while the device reads.
    pub(crate) fn load_map(&self, blocks: Range<u64>) -> Result<Arc<MapView>, Error> {
        self.load_map_from(&self.map.load(), blocks)
    }

    /// As [`Inode::load_map`], beginning with a view that the caller has.
    pub(super) fn load_map_from(
        &self,
        view: &Arc<MapView>,
        blocks: Range<u64>,
    ) -> Result<Arc<MapView>, Error> {
        let (mut view, mut from) = (view.clone(), blocks.start);
        while let Some(NotLoaded { block }) = view.walk(from, blocks.end).find_map(Result::err) {
            let loaded = self.load_node(&view, block)?;
            // After a change of the map what was walked over may be another matter.
            from = match loaded.edits == view.edits {
                true => u64::from(block),
                false => blocks.start,
            };
            view = loaded;
        }
        self.volume.shrink_maps(self);
        Ok(view)
    }

    /// The mappings of a range of blocks, loaded as needed, as they were at one moment. Blocks while the device reads.
    pub(crate) fn mappings(&self, blocks: Range<u64>) -> Result<Vec<Mapping>, Error> {
        let (mut view, mut left) = (self.map.load(), self.most_mapped());
        let (mut at, mut all) = (blocks.start, Vec::new());
        loop {
            for mapping in view.walk(at, blocks.end).map_while(Result::ok) {
                left = self.less_mapped(left, &mapping)?;
                at = mapping.start + mapping.len;
                push_mapping(&mut all, mapping);
            }
            if at >= blocks.end {
                return Ok(all);
            }
            let loaded = self.load_map_from(&view, at..at + 1)?;
            if loaded.edits != view.edits {
                // What was walked over may be another matter now.
                (at, left) = (blocks.start, self.most_mapped());
                all.clear();
            }
            view = loaded;
        }
    }

    /// What is left of the blocks that a map can have, behind this part of it.
    fn less_mapped(&self, left: u64, mapping: &Mapping) -> Result<u64, Error> {
        match mapping.state {
            MappingState::Hole => Ok(left),
            MappingState::Unwritten(_) | MappingState::Written(_) => left
                .checked_sub(mapping.len)
                .ok_or_else(|| self.maps_too_much()),
        }
    }

    /// Gives the mappings of a range to `each`, in order, until it breaks off: node by node, so that only one needs to be in memory at a
    /// time. What is not mapped may come as several holes that follow each other. Blocks while the device reads.
    ///
    /// # Errors
    /// More blocks than the volume has: nodes that point to themselves can map any number.
    pub(crate) fn walk_map(
        &self,
        blocks: Range<u64>,
        mut each: impl FnMut(Mapping) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut left = self.most_mapped();
        let mut at = blocks.start;
        while at < blocks.end {
            let view = self.load_map(at..at + 1)?;
            // What is not loaded yet is in the next round.
            for mapping in view.walk(at, blocks.end).map_while(Result::ok) {
                left = self.less_mapped(left, &mapping)?;
                at = mapping.start + mapping.len;
                if each(mapping).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Gives the blocks that hold the map itself to `each`, until it breaks off. Blocks while the device reads.
    ///
    /// # Errors
    /// As [`Inode::walk_map`].
    pub(crate) fn walk_nodes(
        &self,
        mut each: impl FnMut(FsBlock) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let root = root_view(&self.volume, &self.disk())?;
        let mut left = self.most_mapped();
        let mut nodes: Vec<Segment> = root.tree.iter().filter(Segment::is_unloaded).collect();
        while let Some(node) = nodes.pop() {
            let (SegmentKind::ExtentNode(at, _) | SegmentKind::IndirectNode(at, _)) = node.kind
            else {
                continue;
            };
            left = left.checked_sub(1).ok_or_else(|| self.maps_too_much())?;
            if each(at).is_break() {
                return Ok(());
            }
            let below = self.read_node(&node)?;
            nodes.extend(below.into_iter().filter(Segment::is_unloaded));
        }
        Ok(())
    }

    /// Blocks that a map can have: no more than there are, unless they may be shared (shared_blocks).
    fn most_mapped(&self) -> u64 {
        let sb = &self.volume.sb;
        match sb.features().ro_compat.has(RoCompat::SHARED_BLOCKS) {
            true => u64::MAX,
            false => sb.geometry().blocks_count(),
        }
    }

    #[cold]
    fn maps_too_much(&self) -> Error {
        Error::Damaged(format!(
            "inode {}: its map has more blocks than the volume has ({}); run e2fsck",
            self.ino,
            self.most_mapped()
        ))
    }

    /// Replaces the node that covers `block` by what it holds, in the caller's view, and publishes that where it is news. The
    /// caller's view only grows: the published one may fall back to its root at any time, when the budget is exceeded. If the map was
    /// changed since the caller's view, this is the latest one, whatever it holds: the node may be gone.
    fn load_node(&self, mine: &Arc<MapView>, block: u32) -> Result<Arc<MapView>, Error> {
        let unloaded = |view: &MapView| {
            view.tree
                .at_or_after(block)
                .filter(|s| s.is_unloaded() && s.start <= block)
        };
        let _map = self.map_lock.lock();
        let latest = self.map.load();
        if latest.edits != mine.edits {
            return Ok(latest);
        }
        let Some(node) = unloaded(mine) else {
            return Ok(mine.clone());
        };
        let segments = self.read_node(&node)?;
        let grown = |view: &MapView| {
            Arc::new(MapView {
                tree: view.tree.splice(node.start, node.last(), &segments),
                edits: view.edits,
            })
        };
        let view = grown(mine);
        if unloaded(&latest) == Some(node) {
            let news = if Arc::ptr_eq(&latest, mine) {
                view.clone()
            } else {
                grown(&latest)
            };
            self.map.publish(news);
            self.note_loaded(segments.len());
        }
        Ok(view)
    }

    pub(super) fn read_node(&self, node: &Segment) -> Result<Vec<Segment>, Error> {
        let (volume, disk) = (&self.volume, self.disk());
        match node.kind {
            SegmentKind::ExtentNode(at, depth) => {
                let expect = Expect {
                    depth,
                    first: FileBlock::new(u64::from(node.start)),
                    end: u64::from(node.start) + u64::from(node.len),
                };
                Ok(extent_segments(&extent_node(volume, &disk, at, expect)?.1))
            }
            SegmentKind::IndirectNode(at, _) => {
                let raw = pointer_block(volume, at)?;
                let segments = pointer_segments(&volume.sb, self.ino, node, &raw)?;
                check_places(volume, &disk, &segments)?;
                Ok(segments)
            }
            SegmentKind::Written(_) | SegmentKind::Unwritten(_) => {
                unreachable!("only nodes are unloaded")
            }
        }
    }

    /// Falls back to the root, unless somebody is changing the map now.
    pub(crate) fn drop_loaded_map(&self) {
        let Some(_map) = self.map_lock.try_lock() else {
            return;
        };
        // The root was parsed when the inode was read, so it parses again.
        if let Ok(root) = root_view(&self.volume, &self.disk()) {
            let edits = self.map.load().edits;
            self.map.publish(Arc::new(MapView { edits, ..root }));
            self.note_dropped();
        }
    }
}
