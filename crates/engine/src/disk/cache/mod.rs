//! The metadata cache: one per volume, bounded.
//!
//! Input: block numbers and the check that their bytes must pass; changes, from journal handles only. Output: [`MetaRef`]s,
//! read-only handles on the bytes as they were when the handle was taken. Invariants: a block is verified once per load and kind of use,
//! before anyone sees it; a change never touches bytes that somebody else holds, readers and the committing transaction included:
//! it copies then; only blocks whose latest bytes are home and that nobody holds are evicted. Limits: `budget` bytes, exceeded only by
//! blocks that are held or not home at the moment.

mod verified;

pub(crate) use verified::{Kind, UsedAs};

use crate::error::Error;
use crate::locks::CACHE;
use crate::op::Op;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use diorite_block::{Blocking, Buf};
use diorite_format::{FormatError, FsBlock, Ino, Tid};
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use verified::Verified;

const SHARDS: usize = 16;

/// What the sum is made with of a block that gets it when the transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsealed {
    Node(NodeOf),
    /// Names of a directory, by the seed of its sums.
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

/// Whose a node of an extent tree is: what its sum is made with, besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeOf {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
}

/// A block's bytes at one moment.
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
    /// Blocks per shard.
    most: usize,
    block_size: u32,
    loads: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    /// Hashed with a seed of its own: block numbers come from the image.
    blocks: HashMap<FsBlock, Entry, RandomState>,
    /// The clock: every block of the shard, in the order of the hand.
    clock: VecDeque<FsBlock>,
    /// Blocks that were changed and then left, forgotten ones included.
    gone: u64,
}

#[derive(Debug)]
struct Entry {
    latest: Arc<MetaBlock>,
    /// The last transaction that changed it, until its bytes are home.
    dirty: Option<Tid>,
    /// It was changed since it came.
    changed: bool,
    /// Its sum is out of date: it is made when the transaction ends.
    unsealed: Option<Unsealed>,
    /// Used since the clock's hand last passed.
    used: bool,
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
        used: impl Into<UsedAs>,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
    ) -> Result<MetaRef, Error> {
        let found = self.fetch(blocking, block)?;
        found.verify(used.into(), verify)?;
        Ok(MetaRef(found))
    }

    /// The block's bytes if they are in memory and verified as `kind`. Never blocks on I/O.
    pub(crate) fn peek(&self, block: FsBlock, kind: Kind) -> Option<MetaRef> {
        let found = self.find(block).ok()?;
        found.verified.holds(kind.into()).then_some(MetaRef(found))
    }

    /// As [`MetaCache::change`], for a block that `change` leaves without a new sum: [`MetaCache::freeze`] makes it.
    pub(crate) fn change_unsealed<R>(
        &self,
        blocking: &Blocking,
        (block, used, owner): (FsBlock, UsedAs, Unsealed),
        tid: Tid,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
        change: impl FnOnce(&mut [u8]) -> Result<R, Error>,
    ) -> Result<(R, bool), Error> {
        self.change_entry(blocking, (block, used), tid, verify, |entry| {
            let result = change(entry.own_bytes(owner.kind()))?;
            entry.unsealed = Some(owner);
            Ok(result)
        })
    }

    /// Changes a block in a transaction: `change` gets its bytes, verified as `kind`, and must not fail after it has changed one.
    /// Says beside `change`'s result whether this was the transaction's first change of the block. Blocks while the device reads.
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

    fn change_entry<R>(
        &self,
        blocking: &Blocking,
        (block, used): (FsBlock, UsedAs),
        tid: Tid,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
        change: impl FnOnce(&mut Entry) -> Result<R, Error>,
    ) -> Result<(R, bool), Error> {
        let changed = |entry: &mut Entry| {
            let result = change(entry)?;
            entry.changed = true;
            Ok((result, entry.dirty.replace(tid) != Some(tid)))
        };
        // Mostly it is there.
        if let Some(entry) = self.shard(block).lock().blocks.get_mut(&block)
            && entry.latest.verified.holds(used)
        {
            entry.used = true;
            return changed(entry);
        }
        // Read outside the lock; the handle is let go before the change, so that it does not force a copy.
        drop(self.read(blocking, block, used, verify)?);
        loop {
            let mut shard = self.shard(block).lock();
            let Some(entry) = shard.blocks.get_mut(&block) else {
                drop(shard);
                self.fetch(blocking, block)?.verified.note(used);
                continue;
            };
            return changed(entry);
        }
    }

    /// Makes a block whose old contents do not matter: `fill` gets zeros. Says whether this was the transaction's first change of the
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

    /// The bytes that a transaction which has just ended leaves; `seal` makes the sum of a block that has none.
    ///
    /// # Panics
    /// If the block is not in memory: what a transaction has changed stays until it is home.
    pub(crate) fn freeze(&self, block: FsBlock, seal: impl FnOnce(Unsealed, &mut [u8])) -> MetaRef {
        let mut shard = self.shard(block).lock();
        let entry = shard.blocks.get_mut(&block);
        let entry = entry.expect("a changed block stays in memory until it is home");
        if let Some(owner) = entry.unsealed.take() {
            seal(owner, entry.own_bytes(owner.kind()));
        }
        MetaRef(entry.latest.clone())
    }

    /// These bytes of the block are home; it may be evicted unless there are newer ones.
    pub(crate) fn is_home(&self, block: FsBlock, bytes: &MetaRef) {
        if let Some(entry) = self.shard(block).lock().blocks.get_mut(&block)
            && Arc::ptr_eq(&entry.latest, &bytes.0)
        {
            entry.dirty = None;
        }
    }

    /// The block holds no metadata any more: its bytes go, changed or not.
    pub(crate) fn forget(&self, block: FsBlock) {
        let mut shard = self.shard(block).lock();
        shard.blocks.remove(&block);
        shard.gone += 1;
    }

    /// Lets blocks go that are of this kind and home.
    pub(crate) fn drop_clean(&self, kind: Kind) {
        self.drop_unless(|entry| !entry.latest.verified.has_been(kind));
    }

    /// Lets all blocks go that are home, and what is being loaded: whatever they were for, some may be a file's data by now.
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

    /// Blocks in memory, and those of them whose bytes somebody holds.
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

    /// Blocks read from the device so far.
    pub(crate) fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    fn shard(&self, block: FsBlock) -> &Mutex<Shard> {
        // Neighbours go to different shards.
        &self.shards[(block.get() % SHARDS as u64) as usize]
    }

    /// The block, if it is in memory; else how many of its shard had gone by then.
    fn find(&self, block: FsBlock) -> Result<Arc<MetaBlock>, u64> {
        let mut shard = self.shard(block).lock();
        let gone = shard.gone;
        let found = shard.blocks.get_mut(&block).ok_or(gone)?;
        found.used = true;
        Ok(found.latest.clone())
    }

    /// The block, loaded if it is not in memory. Loads again whenever a change came and went meanwhile, so each turn is one that somebody
    /// else's change has made.
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

    /// Reads what is on the device, whatever is in memory. Blocks.
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

    /// Keeps a loaded block, unless another thread was first. None if the bytes may be out of date: they were loaded when `gone` changed
    /// ones had left the shard. Without this:
    ///
    /// 1. A loads a block and loses the CPU.
    /// 2. B loads it too, keeps it, changes it; the change is committed and brought home; the block is evicted.
    /// 3. A finds the block not in memory and keeps what it was before the change.
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
    /// The latest bytes, nobody else's: a copy if somebody holds them.
    fn own_bytes(&mut self, kind: Kind) -> &mut [u8] {
        // What was a block of one kind is none of another after a change.
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
            // What was forgotten is still on the clock; so that it does not grow for ever, it is wound up anew.
            if self.clock.len() > 64 + 2 * self.blocks.len() {
                self.clock = self.blocks.keys().copied().collect();
            } else {
                self.clock.push_back(block);
            }
        }
        before
    }

    /// Evicts by the clock until one more block fits, passing over blocks that are held, not home, or were used since last time.
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

#[cfg(test)]
mod tests {
    use crate::disk::cache::*;
    use diorite_block::mem::MemDevice;
    use diorite_format::Corrupt;

    fn no_node(_: Unsealed, _: &mut [u8]) {
        unreachable!("no node was changed")
    }

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
    fn a_change_leaves_what_others_hold_and_stays_until_it_is_home() {
        let blocking = Blocking::new(Arc::new(MemDevice::new(16 << 20)));
        let cache = MetaCache::new(1, 4096, 64 * 4096);
        let at = (FsBlock::new(5), Kind::Map);
        let set = |tid, value| {
            let put = |bytes: &mut [u8]| {
                bytes[0] = value;
                Ok(())
            };
            let at = (at.0, at.1.into());
            let changed = cache.change(&blocking, at, Tid::new(tid), no_check, put);
            changed.expect("memory can be read").1
        };
        assert!(set(1, 10));
        assert!(!set(1, 11));
        let frozen = cache.freeze(at.0, no_node);
        assert!(set(2, 20));
        let latest = cache.freeze(at.0, no_node);
        assert_eq!((frozen[0], latest[0]), (11, 20));
        cache.is_home(at.0, &frozen);
        drop(frozen);
        drop(latest);
        let crowd = |from: u64| {
            (from..from + 2000).for_each(|n| {
                let read = cache.read(&blocking, FsBlock::new(n), Kind::Map, no_check);
                drop(read.expect("memory can be read"));
            });
        };
        crowd(100);
        let kept = cache.freeze(at.0, no_node);
        assert_eq!(kept[0], 20);
        cache.is_home(at.0, &kept);
        drop(kept);
        crowd(100);
        assert!(cache.peek(at.0, Kind::Map).is_none());
    }

    /// What was loaded before a change of the block came, got home and left is not kept.
    #[test]
    fn a_slow_load_does_not_bring_back_what_was_changed_meanwhile() {
        let blocking = Blocking::new(Arc::new(MemDevice::new(16 << 20)));
        let cache = MetaCache::new(1, 4096, 64 * 4096);
        let at = (FsBlock::new(5), Kind::Map);
        let gone = cache.find(at.0).expect_err("nothing is in memory");
        let slow = cache.load(&blocking, at.0).expect("memory can be read");
        let put = |bytes: &mut [u8]| {
            bytes[0] = 77;
            Ok(())
        };
        cache
            .change(&blocking, (at.0, at.1.into()), Tid::new(1), no_check, put)
            .expect("memory can be read");
        let home = cache.freeze(at.0, no_node);
        let mut bytes = Buf::zeroed(4096);
        bytes.copy_in(0, &home);
        blocking
            .write_durably(5 * 4096, bytes)
            .expect("memory can be written");
        cache.is_home(at.0, &home);
        drop(home);
        for n in 100..2100 {
            let read = cache.read(&blocking, FsBlock::new(n), Kind::Map, no_check);
            drop(read.expect("memory can be read"));
        }
        assert!(cache.peek(at.0, Kind::Map).is_none(), "it was evicted");
        assert!(cache.keep(at.0, slow, gone).is_none());
        let now = cache.read(&blocking, at.0, at.1, no_check);
        assert_eq!(now.expect("memory can be read")[0], 77);
    }

    /// Evictions of what nobody changed make nobody load again; a block that was forgotten does.
    #[test]
    fn only_changes_that_went_make_a_load_void() {
        let blocking = Blocking::new(Arc::new(MemDevice::new(16 << 20)));
        let cache = MetaCache::new(1, 4096, 64 * 4096);
        let at = FsBlock::new(5);
        let load = || cache.load(&blocking, at).expect("memory can be read");
        let gone = cache.find(at).expect_err("nothing is in memory");
        for n in 100..2100 {
            let read = cache.read(&blocking, FsBlock::new(n), Kind::Map, no_check);
            drop(read.expect("memory can be read"));
        }
        assert!(cache.keep(at, load(), gone).is_some());
        cache.forget(at);
        assert!(cache.keep(at, load(), gone).is_none());
    }

    #[test]
    fn a_new_block_is_not_read_and_a_forgotten_one_is_gone() {
        let blocking = Blocking::new(Arc::new(MemDevice::new(1 << 20)));
        let cache = MetaCache::new(1, 4096, 64 * 4096);
        let at = (FsBlock::new(9), Kind::Directory);
        assert!(cache.create(at, Tid::new(1), |bytes| bytes[7] = 7));
        assert_eq!((cache.loads(), cache.freeze(at.0, no_node)[7]), (0, 7));
        cache.forget(at.0);
        let read = cache.read(&blocking, at.0, at.1, no_check);
        assert_eq!(read.expect("memory can be read")[7], 0);
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
