//! An inode with cached pages: the size that callers see, claims of direct requests, and the inodes that their pages keep in memory.
//!
//! Input: direct requests of files that may have pages; inodes that get pages. Output: claims, which end when they are dropped; the list of
//! inodes with pages, and of those with dirty ones. Invariants: an inode with a name stays in memory while it has pages, or a failure of
//! write-back that nobody was told of; none is kept once the volume is closed, as it holds the file system. Limits: an inode without a name
//! keeps its pages only while it is open; its dirty pages go with it.

use super::{Fs, Inode};
use crate::error::Error;
use crate::locks::CACHED_INODES;
use crate::pages::{Reclaim, Reclaimed};
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicU32, Ordering};
use diorite_format::{Ino, Inode as DiskInode};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The inodes with pages.
#[derive(Debug)]
pub(crate) struct CachedInodes {
    lists: Mutex<Lists>,
    /// How many want writes to the cache to be on the device when they return.
    through: AtomicU32,
}

#[derive(Debug, Default)]
struct Lists {
    kept: BTreeMap<Ino, Arc<Inode>>,
    /// Since when they have been dirty.
    dirty: BTreeMap<Ino, Instant>,
    /// Dirty inodes without a name, which only their users keep in memory, and since when.
    nameless: BTreeMap<Ino, (Weak<Inode>, Instant)>,
    closed: bool,
    /// The number of failed write-backs.
    failures: u64,
    /// The last one of each file of which syncs of the volume are to be told, with its number.
    untold: BTreeMap<Ino, (u64, Error)>,
    /// The last one of which a sync of the volume was told, and how many there had been then.
    told: Option<Error>,
    told_up_to: u64,
}

/// A range of blocks of a file that a direct request has for itself: see [`crate::pages`].
#[derive(Debug)]
pub(crate) struct PageClaim {
    inode: Arc<Inode>,
    id: u64,
    pub(crate) blocks: Range<u64>,
}

/// An inode that is kept because it gets pages. Dropped, it is let go if none has come.
#[derive(Debug)]
pub(crate) struct Bringing<'i> {
    inode: &'i Arc<Inode>,
}

impl Drop for Bringing<'_> {
    fn drop(&mut self) {
        self.inode.volume.cached.let_go_of_empty(self.inode);
    }
}

impl PageClaim {
    pub(crate) fn new(inode: &Arc<Inode>, blocks: Range<u64>) -> Box<PageClaim> {
        Box::new(PageClaim {
            id: inode.pages.claim(blocks.clone()),
            inode: inode.clone(),
            blocks,
        })
    }
}

impl Drop for PageClaim {
    fn drop(&mut self) {
        self.inode.pages.end_claim(self.id);
    }
}

impl CachedInodes {
    pub(crate) fn new(level: u8) -> CachedInodes {
        CachedInodes {
            lists: Mutex::at_level(&CACHED_INODES, level, Lists::default()),
            through: AtomicU32::new(0),
        }
    }

    /// From now on a write to the cache is on the device when it returns, or fails itself. One that does not know of it yet may be noted as
    /// dirty already: a write-back of all that follows this call has it.
    pub(crate) fn begin_writing_through(&self) {
        self.through.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end_writing_through(&self) {
        self.through.fetch_sub(1, Ordering::SeqCst);
    }

    /// Asked by a write before its pages change, and again after they were noted as dirty.
    pub(crate) fn writes_through(&self) -> bool {
        self.through.load(Ordering::SeqCst) > 0
    }

    /// Keeps an inode that gets pages. None if the volume is closed: none may come.
    pub(crate) fn keep<'i>(&self, inode: &'i Arc<Inode>) -> Option<Bringing<'i>> {
        let mut lists = self.lists.lock();
        if lists.closed {
            return None;
        }
        if !inode.is_unlinked() {
            lists.kept.entry(inode.ino).or_insert_with(|| inode.clone());
        }
        Some(Bringing { inode })
    }

    /// Notes that an inode has dirty pages. True if it is the first one that has.
    ///
    /// # Errors
    /// `ShutDown`: the volume was closed meanwhile, so the pages may never be written back.
    pub(crate) fn note_dirty(&self, inode: &Arc<Inode>) -> Result<bool, Error> {
        let mut lists = self.lists.lock();
        if lists.closed {
            return Err(Error::ShutDown);
        }
        let first = lists.dirty.is_empty() && lists.nameless.is_empty();
        if inode.is_unlinked() {
            let known = lists.nameless.get(&inode.ino);
            // One with this number may have been deleted.
            if known.is_none_or(|(of, _)| of.as_ptr() != Arc::as_ptr(inode)) {
                let new = (Arc::downgrade(inode), Instant::now());
                lists.nameless.insert(inode.ino, new);
            }
            return Ok(first);
        }
        // It may have been let go before these pages came.
        lists.kept.entry(inode.ino).or_insert_with(|| inode.clone());
        lists.dirty.entry(inode.ino).or_insert_with(Instant::now);
        Ok(first)
    }

    /// Call when an inode has got a name: before nothing kept it in memory.
    pub(crate) fn note_named(&self, inode: &Arc<Inode>) {
        let mut lists = self.lists.lock();
        if lists.closed || inode.pages.is_empty() {
            return;
        }
        lists.kept.entry(inode.ino).or_insert_with(|| inode.clone());
        lists.nameless.remove(&inode.ino);
        if inode.pages.has_unwritten() {
            lists.dirty.entry(inode.ino).or_insert_with(Instant::now);
        }
    }

    /// Notes that a part of an inode was written back.
    pub(crate) fn note_clean(&self, inode: &Inode) {
        let mut lists = self.lists.lock();
        if inode.pages.has_unwritten() {
            return;
        }
        lists.dirty.remove(&inode.ino);
        lists.nameless.remove(&inode.ino);
        drop(lists);
        // Its pages may keep it in memory long after its last user has gone.
        inode.claims.close(inode);
        self.let_go_of_empty(inode);
    }

    /// The inodes that have been dirty for so long. The caller may be the last user of one without a name when it drops them.
    pub(crate) fn dirty_for(&self, age: Duration) -> Vec<Arc<Inode>> {
        let now = Instant::now();
        let is_old = |since: &Instant| now.saturating_duration_since(*since) >= age;
        let mut lists = self.lists.lock();
        lists
            .nameless
            .retain(|_, (inode, _)| inode.strong_count() > 0);
        let nameless = lists.nameless.values().filter(|(_, since)| is_old(since));
        let mut all: Vec<_> = nameless.filter_map(|(inode, _)| inode.upgrade()).collect();
        let old = lists.dirty.iter().filter(|(_, since)| is_old(since));
        all.extend(old.filter_map(|(ino, _)| lists.kept.get(ino).cloned()));
        drop(lists);
        all
    }

    /// The dirty inodes of which nobody has the exclusive turn: for a write-back that frees memory or space. Who has the turn may be the
    /// caller, and would wait for itself.
    pub(crate) fn dirty_unheld(&self) -> Vec<Arc<Inode>> {
        let mut dirty = self.dirty_for(Duration::ZERO);
        dirty.retain(|inode| !inode.gate.is_held());
        dirty
    }

    pub(crate) fn any_dirty(&self) -> bool {
        let lists = self.lists.lock();
        !lists.dirty.is_empty() || !lists.nameless.is_empty()
    }

    /// Keeps this inode no longer, as it has lost its name.
    pub(crate) fn let_go(&self, ino: Ino) {
        let mut lists = self.lists.lock();
        let since = lists.dirty.remove(&ino);
        let gone = lists.kept.remove(&ino);
        if let Some((inode, since)) = gone.as_ref().zip(since) {
            lists.nameless.insert(ino, (Arc::downgrade(inode), since));
        }
        drop(lists);
        drop(gone);
    }

    /// As [`CachedInodes::let_go`], if it has no page, and no failure of write-back that nobody was told of: that would go with it.
    pub(crate) fn let_go_of_empty(&self, inode: &Inode) {
        if !inode.pages.is_empty() || inode.pages.untold_failure().is_some() {
            return;
        }
        let mut lists = self.lists.lock();
        let gone = match inode.pages.is_empty() {
            true => lists.kept.remove(&inode.ino),
            false => None,
        };
        drop(lists);
        drop(gone);
    }

    /// From now on no inode gets pages.
    pub(crate) fn close(&self) {
        self.lists.lock().closed = true;
    }

    /// Keeps none of those that it has now.
    pub(crate) fn clear(&self) {
        let mut lists = self.lists.lock();
        let kept = std::mem::take(&mut lists.kept);
        lists.dirty.clear();
        lists.nameless.clear();
        drop(lists);
        drop(kept);
    }

    /// Notes a failed write-back of acknowledged bytes, and returns its number.
    pub(crate) fn note_failure(&self, ino: Ino, error: &Error) -> u64 {
        let mut lists = self.lists.lock();
        if lists.closed && matches!(error.root(), Error::ShutDown) {
            // What became dirty after the close: its writer was refused.
            return 0;
        }
        lists.failures += 1;
        let number = lists.failures;
        lists.untold.insert(ino, (number, error.clone()));
        number
    }

    /// Everybody who may have written what a file has lost up to this failure was told: no sync of the volume is to be told.
    pub(crate) fn settle_failure(&self, ino: Ino, number: u64) {
        let mut lists = self.lists.lock();
        if lists.untold.get(&ino).is_some_and(|(n, _)| *n <= number) {
            lists.untold.remove(&ino);
        }
    }

    /// How many failures there had been when a sync of the volume last reported one.
    fn told(&self) -> u64 {
        self.lists.lock().told_up_to
    }

    /// The last failure to be told, or one that was told since `told`, when the sync began: syncs under way together all report it.
    fn tell_since(&self, told: u64) -> Result<(), Error> {
        let mut lists = self.lists.lock();
        let untold = std::mem::take(&mut lists.untold);
        let last = untold.into_values().max_by_key(|(number, _)| *number);
        if let Some((_, error)) = last {
            (lists.told, lists.told_up_to) = (Some(error), lists.failures);
        }
        match &lists.told {
            Some(error) if lists.told_up_to > told => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

impl Fs {
    /// Writes back all dirty pages of all files. Blocks; no lock may be held.
    ///
    /// # Errors
    /// A failure of this write-back, or of an earlier one that no such call has reported.
    pub(crate) fn write_back_all(&self) -> Result<(), Error> {
        let told = self.cached.told();
        let dirty = self.cached.dirty_for(Duration::ZERO);
        let done = match dirty.is_empty() {
            true => Ok(()),
            false => self.write_back(&dirty, 0..u64::MAX),
        };
        // A failure of earlier write-back counts, too; that of this one is noted, unless it was not begun.
        self.cached.tell_since(told).and(done)
    }
}

impl Inode {
    /// The size that callers see: including bytes that were written to the cache and are not on disk yet.
    #[inline]
    pub(crate) fn visible_size(&self) -> u64 {
        // In this order: write-back moves the size first, then forgets the end of what was dirty.
        let end = self.pages.end();
        self.size().max(end)
    }

    /// The inode as it is now, with the visible size, the space that dirty pages will take, and the times of reads and writes that are
    /// not written yet.
    pub(crate) fn seen(&self) -> Arc<DiskInode> {
        let mut disk = self.with_noted_times(self.disk());
        let size = self.visible_size();
        if disk.is_file() && size > disk.size {
            Arc::make_mut(&mut disk).size = size;
        }
        let owed = self.delayed.owed();
        if owed > 0 {
            Arc::make_mut(&mut disk).blocks += owed * u64::from(self.volume.block_size() / 512);
        }
        disk
    }

    /// Writes back all its dirty pages, and waits for those that others write back. Blocks; no lock may be held.
    ///
    /// # Errors
    /// Those of write-back.
    pub(crate) fn write_back(self: &Arc<Self>) -> Result<(), Error> {
        match self.pages.has_unwritten() {
            true => self
                .volume
                .write_back(std::slice::from_ref(self), 0..u64::MAX),
            false => Ok(()),
        }
    }

    /// As [`Inode::write_back`], and fails if data of the file was lost before, of which nobody was told. The caller is told then.
    ///
    /// # Errors
    /// Those of write-back, of this one and of earlier ones.
    pub(crate) fn write_back_whole(self: &Arc<Self>) -> Result<(), Error> {
        let written = self.write_back();
        let Some((error, settled)) = self.pages.tell_failure() else {
            return written;
        };
        if let Some(number) = settled {
            self.volume.cached.settle_failure(self.ino, number);
        }
        Err(error)
    }

    /// Claims all pages of the file, which are written back and dropped: until the claim ends none becomes dirty. Blocks; no lock may be
    /// held.
    ///
    /// # Errors
    /// Those of write-back.
    pub(crate) fn claim_pages(self: &Arc<Self>) -> Result<Box<PageClaim>, Error> {
        let claim = PageClaim::new(self, 0..u64::MAX);
        while self.pages.has_unwritten() {
            self.write_back()?;
        }
        self.drop_clean_pages(&(0..u64::MAX));
        Ok(claim)
    }

    /// Drops the pages of a range that are not dirty or being written; without any it is kept no longer. Returns whether there were any.
    pub(crate) fn drop_clean_pages(&self, blocks: &Range<u64>) -> bool {
        let some = self.pages.drop_clean(blocks);
        if some {
            self.volume.cached.let_go_of_empty(self);
        }
        some
    }

    /// Itself, for the budget.
    pub(crate) fn as_reclaim(self: &Arc<Self>) -> Weak<dyn Reclaim> {
        let weak: Weak<Inode> = Arc::downgrade(self);
        weak
    }

    /// Prepares a range of bytes for pages, so that direct requests look at them. Blocks until requests in flight have ended that have not
    /// seen this, once for each part of a file.
    pub(crate) fn make_pages_ready(&self, bytes: &Range<u64>) {
        if !self.try_make_pages_ready(bytes) {
            drop(self.quiesce());
            self.pages.note_ready(bytes);
        }
    }

    /// As [`Inode::make_pages_ready`], but false if it would have to wait.
    pub(crate) fn try_make_pages_ready(&self, bytes: &Range<u64>) -> bool {
        if self.pages.is_ready(bytes) {
            return true;
        }
        self.pages.note(bytes);
        self.gate.note_pages();
        let quiet = self.gate.is_quiet();
        if quiet {
            self.pages.note_ready(bytes);
        }
        quiet
    }
}

impl Reclaim for Inode {
    fn reclaim(&self, start: u64, id: u64, may_be_used: bool) -> Reclaimed {
        let done = self.pages.reclaim((start, id), may_be_used);
        if done == Reclaimed::Gone {
            self.volume.cached.let_go_of_empty(self);
        }
        done
    }
}

#[cfg(test)]
mod tests;
