//! The view of an inode's map, loaded as it is asked for.
//!
//! Input: ranges of file blocks. Output: views in which they are loaded; mappings. Invariants: those of the map; what is walked has no more
//! blocks than the volume. Limits: what is loaded counts against the volume's budget; when that is exceeded, maps fall back to their roots.

use super::Inode;
use crate::error::Error;
use crate::map::edit::{Edited, Next, next_view};
use crate::map::{MapView, NotLoaded, Segment, SegmentKind, read_node, root_view};
use crate::mapping::{Mapping, MappingState};
use diorite_format::FsBlock;
use diorite_format::features::RoCompat;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

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
    pub(crate) fn load_map_from(
        &self,
        view: &Arc<MapView>,
        blocks: Range<u64>,
    ) -> Result<Arc<MapView>, Error> {
        let (mut view, mut from) = (view.clone(), blocks.start);
        while let Some(NotLoaded { block }) = view.walk(from, blocks.end).find_map(Result::err) {
            let loaded = self.load_node(&view, block)?;
            // After a change of the map what was walked over may be another matter.
            from = match loaded.is_of_same_map(&view) {
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
            if !loaded.is_of_same_map(&view) {
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
        if !latest.is_of_same_map(mine) {
            return Ok(latest);
        }
        let Some(node) = unloaded(mine) else {
            return Ok(mine.clone());
        };
        let segments = self.read_node(&node)?;
        let grown = |view: &MapView| {
            let tree = view.tree.splice(node.start, node.last(), &segments);
            Arc::new(view.with_tree(tree))
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

    /// Publishes what some edits did, in their order. The caller holds the map lock since before the first, and the in-core inode has the new
    /// `i_block`.
    pub(crate) fn publish_edits(&self, all: &[Edited]) -> Result<(), Error> {
        match next_view(&self.map.load(), all) {
            Next::Same => {}
            Next::Root(edits) => {
                let root = root_view(&self.volume, &self.disk())?;
                self.map.publish(Arc::new(root.after(edits)));
                self.note_dropped();
            }
            Next::View {
                view,
                before,
                after,
            } => {
                self.map.publish(Arc::new(view));
                self.note_reloaded(before, after);
            }
        }
        Ok(())
    }

    /// A node of the map, read.
    pub(super) fn read_node(&self, node: &Segment) -> Result<Vec<Segment>, Error> {
        read_node(&self.volume, &self.disk(), node)
    }

    /// Falls back to the root, unless somebody is changing the map now.
    pub(crate) fn drop_loaded_map(&self) {
        let Some(_map) = self.map_lock.try_lock() else {
            return;
        };
        // The root was parsed when the inode was read, so it parses again.
        if let Ok(root) = root_view(&self.volume, &self.disk()) {
            let edits = self.map.load().edits();
            self.map.publish(Arc::new(root.after(edits)));
            self.note_dropped();
        }
    }
}
