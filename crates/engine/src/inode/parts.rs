//! Names for the memory of a file system and of its inodes, for measurements of which threads write it.
//!
//! Input: an inode, a file system. Output: names and ranges of addresses. Invariants: none. Limits: what they point to is named only where
//! it is the engine's own.

use super::{Fs, Inode};
use diorite_block::sync::Parts;

impl Inode {
    /// See [`crate::Volume::parts_in_memory`].
    pub(crate) fn parts_in_memory(&self, parts: &mut Parts) {
        parts.add("inode: other", self);
        parts.add("inode: lock", &self.lock);
        parts.add("inode: gate", &self.gate);
        parts.add("inode: map", &self.map);
        parts.add("inode: map lock", &self.map_lock);
        parts.add("inode: state", &self.disk);
        parts.add("inode: size", &self.size);
        parts.add("inode: pending map", &self.pending);
        parts.add("inode: claims", &self.claims);
        parts.add("inode: reserve of nodes", &self.node_reserve);
        parts.add("inode: tail", &self.tail);
        parts.add("inode: transactions", &self.map_tid);
        parts.add("inode: transactions", &self.any_tid);
        parts.add("inode: time of writes", &self.written);
        parts.add("inode: reads matter", &self.read_matters);
        parts.add("inode: time of reads", &self.read_at);
        parts.add("inode: pages", &self.pages);
        parts.add("inode: delayed", &self.delayed);
        parts.add("inode: loaded segments", &self.loaded);
        parts.add("inode: in memory", &**self.disk.lock());
    }
}

impl Fs {
    /// See [`crate::Volume::parts_in_memory`].
    pub(crate) fn parts_in_memory(&self, parts: &mut Parts) {
        parts.add("volume: other", self);
        parts.add("volume: dirty times", &self.dirty_times);
        parts.add("volume: inodes", &self.inodes);
        parts.add("volume: loaded segments", &self.loaded_segments);
        self.store_parts(parts);
        if let Some(alloc) = &self.alloc {
            alloc.parts_in_memory(parts);
        }
    }

    fn store_parts(&self, parts: &mut Parts) {
        parts.add("metadata cache", &self.cache);
        self.cache.parts_in_memory(parts);
        parts.add("flushes", self.blocking.flushes());
        if let Some(journal) = self.journal_if_any() {
            journal.parts_in_memory(parts);
        }
    }
}
