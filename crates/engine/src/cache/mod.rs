//! The metadata cache: one per volume, bounded.
//!
//! Input: block numbers and the check that their bytes must pass. Output: [`MetaRef`]s, read-only handles that pin their
//! block. Invariants: a block is verified once per load and kind of use, before anyone sees it; only unpinned blocks are
//! evicted. Limits: `budget` bytes, exceeded only by blocks that are pinned at the moment. Blocks are clean in this slice; a
//! handle for writing, which a journal handle gives, adds dirty(tid), frozen and being written.

use crate::error::Error;
use crate::locks::CACHE;
use crate::queue::Op;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use diorite_block::{Blocking, Buf};
use diorite_format::{FormatError, FsBlock};
use std::collections::HashMap;
use std::sync::Arc;

const SHARDS: usize = 16;

/// What a block is used as. A block is verified again when it is used as something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A node of an extent tree, or an indirect block.
    Map,
    /// A block of a directory.
    Directory,
    /// A block of extended attributes.
    Xattr,
    /// A block of an inode table; each inode in it carries its own checksum.
    InodeTable,
    /// A block of a file's data read as metadata: a symbolic link's target, an attribute's value, the orphan file.
    Data,
}

/// A pinned block.
#[derive(Clone, Debug)]
pub(crate) struct MetaRef(Arc<MetaBlock>);

#[derive(Debug)]
struct MetaBlock {
    bytes: Buf,
    /// One bit per [`Kind`] that the bytes were verified as.
    verified: AtomicU32,
    /// Used since the clock's hand last passed.
    used: AtomicBool,
}

impl std::ops::Deref for MetaRef {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes.as_slice()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct MetaCache {
    shards: Box<[Mutex<Shard>]>,
    /// Blocks per shard.
    most: usize,
    block_size: u32,
    loads: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    blocks: HashMap<FsBlock, Arc<MetaBlock>>,
    /// The clock: every block of the shard, in the order of the hand.
    clock: std::collections::VecDeque<FsBlock>,
}

impl MetaCache {
    pub(crate) fn new(level: u8, block_size: u32, budget: usize) -> MetaCache {
        let shards = (0..SHARDS)
            .map(|_| Mutex::at_level(&CACHE, level, Shard::default()))
            .collect();
        let most = (budget / SHARDS / block_size as usize).max(4);
        MetaCache {
            shards,
            most,
            block_size,
            loads: AtomicU64::new(0),
        }
    }

    /// The block's bytes, verified by `verify` when they are used as `kind` for the first time since they were loaded.
    /// Blocks while the device reads.
    pub(crate) fn read(
        &self,
        blocking: &Blocking,
        block: FsBlock,
        kind: Kind,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
    ) -> Result<MetaRef, Error> {
        let found = match self.find(block) {
            Some(found) => found,
            None => self.insert(block, self.load(blocking, block)?),
        };
        let bit = 1 << kind as u32;
        if found.verified.load(Ordering::Acquire) & bit == 0 {
            verify(found.bytes.as_slice())?;
            found.verified.fetch_or(bit, Ordering::Release);
        }
        Ok(MetaRef(found))
    }

    /// Blocks read from the device so far.
    pub(crate) fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    fn shard(&self, block: FsBlock) -> &Mutex<Shard> {
        // Neighbours go to different shards.
        &self.shards[(block.get() % SHARDS as u64) as usize]
    }

    fn find(&self, block: FsBlock) -> Option<Arc<MetaBlock>> {
        let shard = self.shard(block).lock();
        let found = shard.blocks.get(&block)?;
        found.used.store(true, Ordering::Relaxed);
        Some(found.clone())
    }

    fn load(&self, blocking: &Blocking, block: FsBlock) -> Result<Buf, Error> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let pos = block.get() * u64::from(self.block_size);
        let buf = Buf::zeroed(self.block_size as usize);
        blocking.read(pos, buf).map_err(|error| Error::Device {
            op: Op::Read,
            pos,
            len: self.block_size,
            error,
        })
    }

    /// Keeps a loaded block, unless another thread was first.
    fn insert(&self, block: FsBlock, bytes: Buf) -> Arc<MetaBlock> {
        let mut shard = self.shard(block).lock();
        if let Some(first) = shard.blocks.get(&block) {
            return first.clone();
        }
        shard.make_room(self.most);
        let new = Arc::new(MetaBlock {
            bytes,
            verified: AtomicU32::new(0),
            used: AtomicBool::new(false),
        });
        shard.blocks.insert(block, new.clone());
        shard.clock.push_back(block);
        new
    }
}

impl Shard {
    /// Evicts by the clock until one more block fits, passing over blocks that are pinned or were used since last time.
    fn make_room(&mut self, most: usize) {
        let mut looks = 2 * self.clock.len();
        while self.blocks.len() >= most && looks > 0 {
            looks -= 1;
            let Some(block) = self.clock.pop_front() else {
                return;
            };
            let idle = self.blocks.get(&block).is_some_and(|b| {
                Arc::strong_count(b) == 1 && !b.used.swap(false, Ordering::Relaxed)
            });
            if idle {
                self.blocks.remove(&block);
            } else {
                self.clock.push_back(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_block::mem::MemDevice;
    use diorite_format::Corrupt;

    fn no_check(_: &[u8]) -> Result<(), FormatError> {
        Ok(())
    }

    #[test]
    fn it_stays_within_its_budget_and_keeps_what_is_pinned() {
        let blocking = Blocking::new(Arc::new(MemDevice::new(16 << 20)));
        let cache = MetaCache::new(1, 4096, 64 * 4096);
        let read = |n| {
            cache
                .read(&blocking, FsBlock::new(n), Kind::Map, no_check)
                .expect("memory can be read")
        };
        let pinned = read(7);
        (0..2000).for_each(|n| drop(read(n)));
        let held: usize = cache.shards.iter().map(|s| s.lock().blocks.len()).sum();
        assert!(held <= 64, "{held} blocks");
        let loads = cache.loads();
        assert!(Arc::ptr_eq(&pinned.0, &read(7).0));
        assert_eq!(cache.loads(), loads);
    }

    #[test]
    fn a_block_is_verified_once_per_load_and_use() {
        let blocking = Blocking::new(Arc::new(MemDevice::new(1 << 20)));
        let cache = MetaCache::new(1, 4096, 64 * 4096);
        let mut calls = 0;
        for kind in [Kind::Map, Kind::Map, Kind::Xattr, Kind::Map] {
            let count = |_: &[u8]| {
                calls += 1;
                Ok(())
            };
            cache
                .read(&blocking, FsBlock::new(3), kind, count)
                .expect("memory can be read");
        }
        assert_eq!(calls, 2);
        let bad = |_: &[u8]| Err(Corrupt::SuperMagic { found: 1 }.into());
        for _ in 0..2 {
            let refused = cache.read(&blocking, FsBlock::new(3), Kind::Directory, bad);
            assert!(refused.is_err_and(|e| e.is_corrupt()));
        }
    }
}
