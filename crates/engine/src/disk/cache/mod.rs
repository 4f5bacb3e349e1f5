//! The metadata cache: one per volume, bounded.
//!
//! Input: block numbers, with the check that the block's bytes must pass; changes, by journal handles only. Output: [`MetaRef`]s,
//! read-only handles on the bytes as they were when the handle was taken. Invariants: a block is verified once per load and kind of use,
//! before anyone sees it; a change never touches bytes that a reader or the committing transaction holds, but copies them first; a block
//! is evicted only if its latest bytes are home and nobody holds them. Limits: `budget` bytes, exceeded only by blocks that are held or
//! not home at the moment.

#[cfg(test)]
mod tests;
mod verified;

pub(crate) use verified::{Kind, UsedAs};

use crate::error::Error;
use crate::locks::CACHE;
use crate::op::Op;
use diorite_block::buf::BUF_ALIGN;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use diorite_block::sync::{Mutex, Parts};
use diorite_block::{Blocking, Buf};
use diorite_format::{FormatError, FsBlock, Ino, Tid};
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use verified::Verified;

const SHARDS: usize = 16;

/// How to compute the checksum of a block whose checksum is made only when its transaction is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsealed {
    Node(NodeOf),
    /// A block of a directory's names, with the seed of the directory's checksums.
    Names(u32),
}

impl Unsealed {
    fn kind(self) -> Kind {
        match self {
            Unsealed::Node(_) => Kind::Map,
            Unsealed::Names(_) => Kind::Directory,
        }
    }
}

/// The owner of an extent tree node: inode number and generation go into the node's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeOf {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
}

/// The bytes of a block at the moment when this handle was taken.
#[derive(Clone, Debug)]
pub(crate) struct MetaRef(Arc<MetaBlock>);

#[derive(Debug)]
struct MetaBlock {
    bytes: Buf,
    verified: Verified,
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
    /// The largest number of blocks per shard.
    most: usize,
    block_size: u32,
    loads: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    /// Hashed with a random seed, since block numbers come from the image and may be chosen to collide.
    blocks: HashMap<FsBlock, Entry, RandomState>,
    /// The eviction clock: every block of the shard, the next candidate first.
    clock: VecDeque<FsBlock>,
    /// How many changed blocks have left the shard, by eviction or because they were forgotten.
    gone: u64,
}

#[derive(Debug)]
struct Entry {
    latest: Arc<MetaBlock>,
    /// The last transaction that changed the block, until these bytes are home.
    dirty: Option<Tid>,
    /// The block was changed since it was loaded.
    changed: bool,
    /// The checksum is out of date: freezing the transaction makes it.
    unsealed: Option<Unsealed>,
    /// The block was used since the clock last passed it.
    used: bool,
}

impl MetaCache {
    /// See [`crate::Volume::parts_in_memory`].
    pub(crate) fn parts_in_memory(&self, parts: &mut Parts) {
        parts.add("metadata cache: shards", &*self.shards);
    }

    pub(crate) fn new(level: u8, block_size: u32, budget: usize) -> MetaCache {
        let shards = (0..SHARDS)
            .map(|_| Mutex::at_level(&CACHE, level, Shard::default()))
            .collect();
        // The memory of a smaller block takes a page, too.
        let each = (block_size as usize).max(BUF_ALIGN);
        let most = (budget / SHARDS / each).max(4);
        MetaCache {
            shards,
            most,
            block_size,
            loads: AtomicU64::new(0),
        }
    }

    /// The block's bytes. `verify` checks them at their first use as `used` since they were loaded.
    /// Blocks while the device reads.
    pub(crate) fn read(
        &self,
        blocking: &Blocking,
        block: FsBlock,
        used: impl Into<UsedAs>,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
    ) -> Result<MetaRef, Error> {
        let found = self.fetch(blocking, block)?;
        found.verify(used.into(), verify)?;
        Ok(MetaRef(found))
    }

    /// The block's bytes, if they are in memory and verified as `kind`. Never blocks on I/O.
    pub(crate) fn peek(&self, block: FsBlock, kind: Kind) -> Option<MetaRef> {
        let found = self.find(block).ok()?;
        found.verified.holds(kind.into()).then_some(MetaRef(found))
    }

    /// As [`MetaCache::change`], for a block whose checksum `change` does not update: [`MetaCache::freeze`] does that. `held` are its bytes
    /// until now, if the caller has them: they keep it in memory, and are let go of when the change begins, so that it need not copy them.
    pub(crate) fn change_unsealed<R>(
        &self,
        blocking: &Blocking,
        (block, used, owner): (FsBlock, UsedAs, Unsealed),
        tid: Tid,
        held: Option<MetaRef>,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
        change: impl FnOnce(&mut [u8]) -> Result<R, Error>,
    ) -> Result<(R, bool), Error> {
        self.change_entry(blocking, (block, used), tid, verify, |entry| {
            drop(held);
            let result = change(entry.own_bytes(owner.kind()))?;
            entry.unsealed = Some(owner);
            Ok(result)
        })
    }

    /// Changes a block in a transaction: `change` gets its bytes, verified, and must not fail once it has changed a byte.
    /// Returns `change`'s result, and whether this was the transaction's first change of the block. Blocks while the device reads.
    pub(crate) fn change<R>(
        &self,
        blocking: &Blocking,
        (block, used): (FsBlock, UsedAs),
        tid: Tid,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
        change: impl FnOnce(&mut [u8]) -> Result<R, Error>,
    ) -> Result<(R, bool), Error> {
        self.change_entry(blocking, (block, used), tid, verify, |entry| {
            let result = change(entry.own_bytes(used.kind))?;
            entry.unsealed = None;
            Ok(result)
        })
    }

    /// As [`MetaCache::change`]; None, with nothing done, if the block is not in memory or not verified for this use.
    pub(crate) fn change_present<R>(
        &self,
        (block, used): (FsBlock, UsedAs),
        tid: Tid,
        change: impl FnOnce(&mut [u8]) -> Result<R, Error>,
    ) -> Option<Result<(R, bool), Error>> {
        let mut shard = self.shard(block).lock();
        let entry = shard.blocks.get_mut(&block)?;
        if !entry.latest.verified.holds(used) {
            return None;
        }
        entry.used = true;
        Some(entry.changed(tid, |entry| {
            let result = change(entry.own_bytes(used.kind))?;
            entry.unsealed = None;
            Ok(result)
        }))
    }

    fn change_entry<R>(
        &self,
        blocking: &Blocking,
        (block, used): (FsBlock, UsedAs),
        tid: Tid,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
        change: impl FnOnce(&mut Entry) -> Result<R, Error>,
    ) -> Result<(R, bool), Error> {
        // The common case: the block is in memory.
        if let Some(entry) = self.shard(block).lock().blocks.get_mut(&block)
            && entry.latest.verified.holds(used)
        {
            entry.used = true;
            return entry.changed(tid, change);
        }
        // Read it without holding the lock. The handle is dropped before the change, since holding it would force a copy.
        drop(self.read(blocking, block, used, verify)?);
        loop {
            let mut shard = self.shard(block).lock();
            let Some(entry) = shard.blocks.get_mut(&block) else {
                drop(shard);
                self.fetch(blocking, block)?.verified.note(used);
                continue;
            };
            return entry.changed(tid, change);
        }
    }

    /// Makes a block whose old contents do not matter: `fill` gets zeros. Returns whether this was the transaction's first change of the
    /// block.
    pub(crate) fn create(
        &self,
        (block, kind): (FsBlock, Kind),
        tid: Tid,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let mut bytes = Buf::zeroed(self.block_size as usize);
        fill(bytes.as_mut_slice());
        let new = MetaBlock::new(bytes);
        new.verified.note(kind.into());
        let mut shard = self.shard(block).lock();
        shard.make_room(self.most);
        let before = shard.put(block, Arc::new(new), Some(tid));
        before.and_then(|e| e.dirty) != Some(tid)
    }

    /// The bytes that a transaction leaves in a block, when the transaction has just ended. `seal` makes the checksum if it is out of
    /// date.
    ///
    /// # Panics
    /// If the block is not in memory: a block that a transaction has changed stays in memory until it is home.
    pub(crate) fn freeze(&self, block: FsBlock, seal: impl FnOnce(Unsealed, &mut [u8])) -> MetaRef {
        let mut shard = self.shard(block).lock();
        let entry = shard.blocks.get_mut(&block);
        let entry = entry.expect("a changed block stays in memory until it is home");
        if let Some(owner) = entry.unsealed.take() {
            seal(owner, entry.own_bytes(owner.kind()));
        }
        MetaRef(entry.latest.clone())
    }

    /// Notes that these bytes of the block are home. The block may be evicted then, unless it has newer bytes.
    pub(crate) fn is_home(&self, block: FsBlock, bytes: &MetaRef) {
        if let Some(entry) = self.shard(block).lock().blocks.get_mut(&block)
            && Arc::ptr_eq(&entry.latest, &bytes.0)
        {
            entry.dirty = None;
        }
    }

    /// Drops the block, changed or not: it holds no metadata any more.
    pub(crate) fn forget(&self, block: FsBlock) {
        let mut shard = self.shard(block).lock();
        shard.blocks.remove(&block);
        shard.gone += 1;
    }

    /// Drops all blocks that were used as this kind and are home.
    pub(crate) fn drop_clean(&self, kind: Kind) {
        self.drop_unless(|entry| !entry.latest.verified.has_been(kind));
    }

    /// Drops all blocks that are home, and makes loads under way void. Some of these blocks may hold a file's data by now.
    pub(crate) fn drop_all_clean(&self) {
        self.drop_unless(|_| false);
    }

    fn drop_unless(&self, stays: impl Fn(&Entry) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let keep = |entry: &Entry| entry.dirty.is_some() || stays(entry);
            shard.blocks.retain(|_, entry| keep(entry));
            shard.gone += 1;
        }
    }

    /// The number of blocks in memory, and how many of them somebody holds.
    pub(crate) fn count(&self) -> (u64, u64) {
        let (mut blocks, mut held) = (0, 0);
        for shard in &self.shards {
            let shard = shard.lock();
            blocks += shard.blocks.len() as u64;
            let all = shard.blocks.values();
            held += all.filter(|e| Arc::strong_count(&e.latest) > 1).count() as u64;
        }
        (blocks, held)
    }

    /// Number of blocks read from the device so far.
    pub(crate) fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    fn shard(&self, block: FsBlock) -> &Mutex<Shard> {
        // Neighbouring blocks go to different shards.
        &self.shards[(block.get() % SHARDS as u64) as usize]
    }

    /// The block, if it is in memory; else the shard's count of changed blocks that have left it.
    fn find(&self, block: FsBlock) -> Result<Arc<MetaBlock>, u64> {
        let mut shard = self.shard(block).lock();
        let gone = shard.gone;
        let found = shard.blocks.get_mut(&block).ok_or(gone)?;
        found.used = true;
        Ok(found.latest.clone())
    }

    /// The block, loaded if it is not in memory. If a changed block left the shard during the load, the block is loaded again: each
    /// repetition is thus caused by another thread's change.
    fn fetch(&self, blocking: &Blocking, block: FsBlock) -> Result<Arc<MetaBlock>, Error> {
        loop {
            let gone = match self.find(block) {
                Ok(found) => return Ok(found),
                Err(gone) => gone,
            };
            let bytes = self.load(blocking, block)?;
            if let Some(kept) = self.keep(block, bytes, gone) {
                return Ok(kept);
            }
        }
    }

    /// Reads the block from the device, even if it is in memory. Blocks.
    pub(crate) fn load(&self, blocking: &Blocking, block: FsBlock) -> Result<Buf, Error> {
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

    /// Puts a loaded block into the cache, unless another thread has done so first. Returns None if the bytes may be out of date: `gone`
    /// was the shard's count before the load, and it has changed since. Without this check:
    ///
    /// 1. A loads a block and loses the CPU.
    /// 2. B loads it too, puts it into the cache and changes it; the change is committed and written home; the block is evicted.
    /// 3. A does not find the block in memory and would put its bytes of before the change into the cache.
    fn keep(&self, block: FsBlock, bytes: Buf, gone: u64) -> Option<Arc<MetaBlock>> {
        let mut shard = self.shard(block).lock();
        if let Some(first) = shard.blocks.get(&block) {
            return Some(first.latest.clone());
        }
        if shard.gone != gone {
            return None;
        }
        shard.make_room(self.most);
        let new = Arc::new(MetaBlock::new(bytes));
        shard.put(block, new.clone(), None);
        Some(new)
    }
}

impl MetaBlock {
    fn new(bytes: Buf) -> MetaBlock {
        MetaBlock {
            bytes,
            verified: Verified::default(),
        }
    }

    fn verify(
        &self,
        used: UsedAs,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
    ) -> Result<(), Error> {
        if !self.verified.holds(used) {
            verify(self.bytes.as_slice())?;
            self.verified.note(used);
        }
        Ok(())
    }
}

impl Entry {
    /// Makes a change in a transaction. Returns its result, and whether it was the transaction's first change of the block.
    fn changed<R>(
        &mut self,
        tid: Tid,
        change: impl FnOnce(&mut Entry) -> Result<R, Error>,
    ) -> Result<(R, bool), Error> {
        let result = change(self)?;
        self.changed = true;
        Ok((result, self.dirty.replace(tid) != Some(tid)))
    }

    /// The latest bytes, for changing them. They are copied first if somebody else holds them.
    fn own_bytes(&mut self, kind: Kind) -> &mut [u8] {
        // After a change as one kind, the block counts as verified for no other kind.
        let verified = self.latest.verified.after_change(kind);
        if Arc::get_mut(&mut self.latest).is_none() {
            let old = self.latest.bytes.as_slice();
            let mut copy = Buf::zeroed(old.len());
            copy.as_mut_slice().copy_from_slice(old);
            self.latest = Arc::new(MetaBlock::new(copy));
        }
        let own = Arc::get_mut(&mut self.latest).expect("nobody else has it yet");
        own.verified = verified;
        own.bytes.as_mut_slice()
    }
}

impl Shard {
    fn put(&mut self, block: FsBlock, latest: Arc<MetaBlock>, dirty: Option<Tid>) -> Option<Entry> {
        let new = Entry {
            latest,
            dirty,
            changed: dirty.is_some(),
            unsealed: None,
            used: false,
        };
        let before = self.blocks.insert(block, new);
        if before.is_none() {
            // Blocks that were forgotten are still on the clock. It is rebuilt when it has grown too long.
            if self.clock.len() > 64 + 2 * self.blocks.len() {
                self.clock = self.blocks.keys().copied().collect();
            } else {
                self.clock.push_back(block);
            }
        }
        before
    }

    /// Evicts blocks in the clock's order until there is room for one more. Skips blocks that are held, not home, or used since the last
    /// pass.
    fn make_room(&mut self, most: usize) {
        let mut looks = 2 * self.clock.len();
        while self.blocks.len() >= most && looks > 0 {
            looks -= 1;
            let Some(block) = self.clock.pop_front() else {
                return;
            };
            let Some(entry) = self.blocks.get_mut(&block) else {
                // It was forgotten.
                continue;
            };
            let busy = entry.dirty.is_some() || Arc::strong_count(&entry.latest) > 1;
            if busy || std::mem::take(&mut entry.used) {
                self.clock.push_back(block);
            } else {
                self.gone += u64::from(entry.changed);
                self.blocks.remove(&block);
            }
        }
    }
}
