//! The view of an inode's map in memory, loaded from disk as it is needed.
//!
//! Input: ranges of file blocks. Output: views in which these ranges are loaded; mappings. Invariants: those of the module `map`; an
//! iteration ends with an error if a map has more blocks than the volume. Limits: loaded segments count against the volume's budget; when
//! that is exceeded, maps fall back to their roots.

use super::Inode;
use crate::error::Error;
use crate::map::edit::{Edited, Next, next_view};
use crate::map::{MapView, NotLoaded, Retired, Segment, SegmentKind, read_node, root_view};
use crate::mapping::{Mapping, MappingState};
use diorite_format::FsBlock;
use diorite_format::features::RoCompat;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Adds a mapping; holes that follow each other become one.
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

    /// As [`Inode::load_map`], starting from a view that the caller has.
    pub(crate) fn load_map_from(
        &self,
        view: &Arc<MapView>,
        blocks: Range<u64>,
    ) -> Result<Arc<MapView>, Error> {
        let (mut view, mut from) = (view.clone(), blocks.start);
        while let Some(NotLoaded { block }) = view.walk(from, blocks.end).find_map(Result::err) {
            let loaded = self.load_node(&view, block)?;
            // After a change of the map what was passed already may have changed, too: start again.
            from = match loaded.is_of_same_map(&view) {
                true => u64::from(block),
                false => blocks.start,
            };
            view = loaded;
        }
        self.volume.shrink_maps(self);
        Ok(view)
    }

    /// The mappings of a range of blocks as they were at one moment. Blocks while the device reads.
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
                // The map has changed, so the mappings that were collected may be out of date: start again.
                (at, left) = (blocks.start, self.most_mapped());
                all.clear();
            }
            view = loaded;
        }
    }

    /// Subtracts a mapping from the count of blocks that a map may still have; an error if it has more.
    fn less_mapped(&self, left: u64, mapping: &Mapping) -> Result<u64, Error> {
        match mapping.state {
            MappingState::Hole => Ok(left),
            MappingState::Unwritten(_) | MappingState::Written(_) => left
                .checked_sub(mapping.len)
                .ok_or_else(|| self.maps_too_much()),
        }
    }

    /// Calls `each` with the mappings of a range, in order, until it breaks off. Works node by node, so that only one node needs to be in
    /// memory at a time. A hole may come in several parts. Blocks while the device reads.
    ///
    /// # Errors
    /// The map has more blocks than the volume: nodes that point to themselves can map any number.
    pub(crate) fn walk_map(
        &self,
        blocks: Range<u64>,
        mut each: impl FnMut(Mapping) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut left = self.most_mapped();
        let mut at = blocks.start;
        while at < blocks.end {
            let view = self.load_map(at..at + 1)?;
            // What is not loaded yet is left to the next round of the outer loop.
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

    /// Calls `each` with the blocks that hold the map itself, until it breaks off. Blocks while the device reads.
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

    /// How many blocks a map can have: not more than the volume, unless the volume's blocks may be shared (shared_blocks).
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

    /// Replaces the unloaded node that covers `block` by its contents, in the caller's view, and in the published view if that has the
    /// same node. The caller's view only grows, while the published view may fall back to its root at any time, when the budget is
    /// exceeded. If the map was changed since the caller's view, returns the latest view instead, as the node may be gone.
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

    /// Publishes the result of some edits, in their order. The caller has held the map lock since before the first edit, and the in-core
    /// inode has the new `i_block`. `retired` takes the view before.
    pub(crate) fn publish_edits(
        &self,
        all: &[Edited],
        retired: Option<&Retired<MapView>>,
    ) -> Result<(), Error> {
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
                let old = self.map.replace(Arc::new(view));
                match retired {
                    Some(retired) => retired.keep(old),
                    None => drop(old),
                }
                self.note_reloaded(before, after);
            }
        }
        Ok(())
    }

    /// Reads a node of the map.
    pub(super) fn read_node(&self, node: &Segment) -> Result<Vec<Segment>, Error> {
        read_node(&self.volume, &self.disk(), node)
    }

    /// Lets the published view fall back to the root, unless somebody holds the map lock.
    pub(crate) fn drop_loaded_map(&self) {
        let Some(_map) = self.map_lock.try_lock() else {
            return;
        };
        // Cannot fail: the root was parsed when the inode was read.
        if let Ok(root) = root_view(&self.volume, &self.disk()) {
            let edits = self.map.load().edits();
            self.map.publish(Arc::new(root.after(edits)));
            self.note_dropped();
        }
        // Those of idle writers would stay beyond the budget.
        self.map_publishers.sweep();
    }
}
