//! The memory that cached pages may take, of all files of all volumes that share one [`PageCache`].
//!
//! Input: bytes wanted for a folio. Output: [`Memory`], which gives them back when it is dropped. Invariants: the memory of all folios, and
//! what lies idle between two of them, never exceeds the budget; folios go in the order in which they came, but one that was read since
//! gets a second turn; a folio with changes that are not written back stays; the list is at most twice as long as there are folios. Limits:
//! a caller holds no lock; idle memory is a sixteenth of the budget at most, and found again by its exact length.

use super::stats::{PageStats, Tally};
use super::{Ahead, Grant, Memory};
use crate::error::Error;
use crate::locks::PAGE_BUDGET;
use diorite_block::Shared;
use diorite_block::buf::BUF_ALIGN;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};

/// The budget of [`PageCache::process`] at first, in bytes.
const DEFAULT: u64 = 256 << 20;

/// How many folios are looked at for one grant, at most, times their number.
const TURNS: usize = 3;

/// So long the list of folios may be whatever their number.
const LEAST_LISTED: u64 = 1024;

/// A budget of memory for cached pages. Cheap to clone; clones are the same budget. Volumes that are opened with the same one share it;
/// the default is that of the process.
#[derive(Clone)]
pub struct PageCache(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    most: AtomicU64,
    /// So much there is in any case: what files of its volumes take for one write.
    least: AtomicU64,
    /// Of folios, and idle.
    used: AtomicU64,
    idle: AtomicU64,
    /// Of read-ahead under way.
    ahead: AtomicU64,
    /// Of all memory that is being read into, and is in no folio yet.
    filling: AtomicU64,
    dirty: AtomicU64,
    /// How many folios there are.
    live: AtomicU64,
    tally: Tally,
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    /// The oldest first.
    folios: VecDeque<Entry>,
    /// Memory of folios that went, by its length.
    idle: BTreeMap<usize, Vec<Shared>>,
    /// Those who write back dirty folios in the background: one per volume.
    writers: Vec<Weak<dyn WriteBack>>,
}

#[derive(Debug)]
struct Entry {
    of: Weak<dyn Reclaim>,
    start: u64,
    id: u64,
    alive: Weak<Counted>,
}

/// A folio that is counted.
#[derive(Debug)]
pub(super) struct Counted(PageCache);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.live.fetch_sub(1, Relaxed);
    }
}

/// What becomes of a folio when memory is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reclaimed {
    /// It is gone, or was gone already.
    Gone,
    /// It is needed, or was used since: it gets another turn.
    Stays,
}

/// Whoever has folios.
pub(crate) trait Reclaim: fmt::Debug + Send + Sync {
    /// Drops the folio that starts at this block, if it is still the one with this id and can go. `may_be_used`: also if it was used
    /// lately.
    fn reclaim(&self, start: u64, id: u64, may_be_used: bool) -> Reclaimed;
}

/// Whoever writes back dirty folios in the background.
pub(crate) trait WriteBack: fmt::Debug + Send + Sync {
    /// Asks for all dirty folios to be written back, as others need their memory. Does not wait.
    fn ask(&self);
}

impl fmt::Debug for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, most) = (self.used_bytes(), self.cache_bytes());
        write!(f, "PageCache({used} of {most} bytes)")
    }
}

impl Default for PageCache {
    fn default() -> Self {
        PageCache::process()
    }
}

impl PageCache {
    /// A budget of its own. For a volume that is opened with it there is room for two pages in any
    /// case.
    #[must_use]
    pub fn new(cache_bytes: u64) -> PageCache {
        PageCache(Arc::new(Budget {
            most: AtomicU64::new(cache_bytes),
            least: AtomicU64::new(0),
            used: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            filling: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
            live: AtomicU64::new(0),
            tally: Tally::default(),
            lists: Mutex::new(&PAGE_BUDGET, Lists::default()),
        }))
    }

    /// The budget that volumes of this process share unless they are opened with another: 256 MiB until
    /// [`PageCache::set_cache_bytes`].
    #[must_use]
    #[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
    pub fn process() -> PageCache {
        static PROCESS: std::sync::LazyLock<PageCache> =
            std::sync::LazyLock::new(|| PageCache::new(DEFAULT));
        PROCESS.clone()
    }

    /// Under a test's scheduler nothing outlives a schedule, so each call makes a budget.
    #[cfg(any(feature = "_loom", feature = "_shuttle"))]
    #[must_use]
    pub fn process() -> PageCache {
        PageCache::new(DEFAULT)
    }

    /// The budget in bytes.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        let least = self.0.least.load(Relaxed);
        self.0.most.load(Relaxed).max(least)
    }

    /// Call when a volume with blocks of so many bytes is opened with it: without a page for what a write changes, and one for its copy
    /// while the device has it, no write would ever end.
    pub(crate) fn serve(&self, block_size: u32) {
        let page = granted(block_size as usize);
        self.0.least.fetch_max(2 * page, Relaxed);
    }

    /// Changes the budget; the least is that of [`PageCache::new`]. A smaller one takes effect with the next pages that are cached.
    pub fn set_cache_bytes(&self, cache_bytes: u64) {
        self.0.most.store(cache_bytes, Relaxed);
    }

    /// Bytes of cached pages.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let used = self.0.used.load(Relaxed);
        used.saturating_sub(self.0.idle.load(Relaxed))
    }

    /// Of these, bytes that are not written back yet.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.0.dirty.load(Relaxed)
    }

    /// The state of the budget, and what all files that share it have made of it since it is there.
    #[must_use]
    pub fn stats(&self) -> PageStats {
        self.0.tally.add_to(PageStats {
            cache_bytes: self.cache_bytes(),
            used_bytes: self.used_bytes(),
            dirty_bytes: self.dirty_bytes(),
            idle_bytes: self.0.idle.load(Relaxed),
            ..PageStats::default()
        })
    }

    pub(super) fn note_filled(&self, bytes: u64, is_ahead: bool) {
        let tally = &self.0.tally;
        let which = match is_ahead {
            true => &tally.ahead,
            false => &tally.filled,
        };
        which.fetch_add(bytes, Relaxed);
    }

    pub(super) fn note_collected(&self, bytes: u64) {
        self.0.tally.written.fetch_add(bytes, Relaxed);
        self.0.tally.write_backs.fetch_add(1, Relaxed);
    }

    pub(super) fn note_failed(&self) {
        self.0.tally.failed.fetch_add(1, Relaxed);
    }

    pub(crate) fn note_throttled(&self) {
        self.0.tally.throttled.fetch_add(1, Relaxed);
    }

    pub(crate) fn add_dirty(&self, bytes: u64) {
        self.0.dirty.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn sub_dirty(&self, bytes: u64) {
        self.0.dirty.fetch_sub(bytes, Relaxed);
    }

    /// More is dirty than background write-back should leave: a quarter of the budget.
    pub(crate) fn wants_write_back(&self) -> bool {
        self.dirty_bytes() > self.cache_bytes() / 4
    }

    /// So much is dirty that writers have to wait for write-back: half of the budget.
    pub(crate) fn is_too_dirty(&self) -> bool {
        self.dirty_bytes() > self.cache_bytes() / 2
    }

    /// The largest folio, in bytes: a small budget has room for several.
    pub(crate) fn most_per_folio(&self) -> u64 {
        self.cache_bytes() / 16
    }

    /// Adds somebody who writes back, as long as it lives.
    pub(crate) fn add_writer(&self, writer: Weak<dyn WriteBack>) {
        let mut lists = self.0.lists.lock();
        lists.writers.retain(|writer| writer.strong_count() > 0);
        lists.writers.push(writer);
    }

    /// Asks all volumes of this budget to write back what is dirty: one of them needs memory, or may not make more dirty. Does not wait; no
    /// lock may be held.
    pub(crate) fn ask_for_write_back(&self) {
        let writers = self.0.lists.lock().writers.clone();
        let writers = writers.iter().filter_map(Weak::upgrade);
        writers.for_each(|writer| writer.ask());
    }

    /// Takes memory for a folio, and drops others for that. None if too many of them have to stay.
    ///
    /// # Errors
    /// `NoMemory`: the budget has room, and the host has none.
    pub(crate) fn memory(&self, bytes: u64) -> Result<Option<Memory>, Error> {
        let len = as_len(bytes)?;
        let mut turns = None;
        loop {
            if let Some(memory) = self.take(len)? {
                return Ok(Some(memory));
            }
            if self.free_idle(bytes) {
                continue;
            }
            let (left, listed) = turns.get_or_insert_with(|| {
                let listed = self.0.lists.lock().folios.len();
                (TURNS * listed, listed)
            });
            if *left == 0 {
                return Ok(None);
            }
            *left -= 1;
            // The last time around: readers may use every folio again between two of its turns.
            self.turn(*left < *listed);
        }
    }

    /// As [`PageCache::memory`], but drops no folio. May be called while pages are locked.
    pub(super) fn memory_at_once(&self, bytes: u64) -> Result<Option<Memory>, Error> {
        let len = as_len(bytes)?;
        match self.take(len)? {
            None if self.free_idle(bytes) => self.take(len),
            taken => Ok(taken),
        }
    }

    /// Takes memory that is idle, or that the budget has room for.
    fn take(&self, len: usize) -> Result<Option<Memory>, Error> {
        let asked = granted(len);
        if let Some(data) = self.take_idle(len) {
            return Ok(Some(Memory::new(data, Grant::new(self.clone(), asked))));
        }
        let most = self.cache_bytes();
        let room = |used: u64| used.checked_add(asked).filter(|sum| *sum <= most);
        if self.0.used.fetch_update(Relaxed, Relaxed, room).is_err() {
            return Ok(None);
        }
        let grant = Grant::new(self.clone(), asked);
        let data = Shared::try_zeroed(len).ok_or(Error::NoMemory { asked })?;
        Ok(Some(Memory::new(data, grant)))
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.0.used.fetch_sub(bytes, Relaxed);
    }

    /// Keeps memory for the next folio of its length; it stays granted. False if enough is idle.
    pub(super) fn keep_idle(&self, mut data: Shared) -> bool {
        let len = granted(data.len());
        let most = self.cache_bytes() / 16;
        let room = |idle: u64| idle.checked_add(len).filter(|sum| *sum <= most);
        if self.0.idle.fetch_update(Relaxed, Relaxed, room).is_err() {
            return false;
        }
        if let (true, Some(bytes)) = (cfg!(debug_assertions), data.bytes_mut()) {
            // So that tests see bytes of another file that come to light.
            bytes.fill(0xdb);
        }
        let mut lists = self.0.lists.lock();
        lists.idle.entry(data.len()).or_default().push(data);
        true
    }

    /// Permission to read ahead so much. None while an eighth of the budget is under way.
    pub(crate) fn read_ahead(&self, bytes: u64) -> Option<Ahead> {
        let most = self.cache_bytes() / 8;
        let room = |ahead: u64| ahead.checked_add(bytes).filter(|sum| *sum <= most);
        let taken = self.0.ahead.fetch_update(Relaxed, Relaxed, room);
        taken.is_ok().then(|| Ahead::new(self.clone(), bytes))
    }

    pub(super) fn begin_filling(&self, bytes: u64) {
        self.0.filling.fetch_add(bytes, Relaxed);
    }

    pub(super) fn end_filling(&self, bytes: u64) {
        self.0.filling.fetch_sub(bytes, Relaxed);
    }

    /// Does a device have some of the memory? Then a part of it may become free, or a folio that can go.
    pub(crate) fn is_with_devices(&self) -> bool {
        self.dirty_bytes() > 0 || self.0.filling.load(Relaxed) > 0
    }

    pub(super) fn end_read_ahead(&self, bytes: u64) {
        self.0.ahead.fetch_sub(bytes, Relaxed);
    }

    fn take_idle(&self, len: usize) -> Option<Shared> {
        if self.0.idle.load(Relaxed) == 0 {
            return None;
        }
        let data = self.0.lists.lock().idle.get_mut(&len)?.pop()?;
        self.0.idle.fetch_sub(granted(len), Relaxed);
        Some(data)
    }

    /// Gives idle memory back to the host, about so much, the largest pieces first. False if none is idle.
    fn free_idle(&self, bytes: u64) -> bool {
        let mut freed = Vec::new();
        let mut sum = 0;
        let mut lists = self.0.lists.lock();
        while sum < bytes {
            let Some(mut largest) = lists.idle.last_entry() else {
                break;
            };
            match largest.get_mut().pop() {
                Some(data) => {
                    sum += granted(data.len());
                    freed.push(data);
                }
                None => drop(largest.remove()),
            }
        }
        drop(lists);
        self.0.idle.fetch_sub(sum, Relaxed);
        self.give_back(sum);
        sum > 0
    }

    #[cfg(test)]
    pub(super) fn listed(&self) -> usize {
        self.0.lists.lock().folios.len()
    }

    /// For a folio, as long as it lives.
    pub(super) fn count_folio(&self) -> Arc<Counted> {
        self.0.live.fetch_add(1, Relaxed);
        Arc::new(Counted(self.clone()))
    }

    /// Puts a folio behind all others.
    pub(super) fn enqueue(
        &self,
        of: Weak<dyn Reclaim>,
        (start, id): (u64, u64),
        alive: Weak<Counted>,
    ) {
        let mut lists = self.0.lists.lock();
        let most = 2 * self.0.live.load(Relaxed) + LEAST_LISTED;
        if lists.folios.len() as u64 > most {
            lists.folios.retain(|entry| entry.alive.strong_count() > 0);
        }
        lists.folios.push_back(Entry {
            of,
            start,
            id,
            alive,
        });
    }

    /// Drops the oldest folio, or gives it another turn. `may_be_used`: not because it was used lately.
    fn turn(&self, may_be_used: bool) {
        let Some(oldest) = self.0.lists.lock().folios.pop_front() else {
            return;
        };
        let alive = oldest.alive.strong_count() > 0;
        let Some(of) = oldest.of.upgrade().filter(|_| alive) else {
            return;
        };
        match of.reclaim(oldest.start, oldest.id, may_be_used) {
            Reclaimed::Stays => self.0.lists.lock().folios.push_back(oldest),
            Reclaimed::Gone => {
                self.0.tally.reclaimed.fetch_add(1, Relaxed);
            }
        }
    }
}

/// So much of the budget takes a piece of memory: the host gives whole pages.
fn granted(len: usize) -> u64 {
    len.next_multiple_of(BUF_ALIGN) as u64
}

fn as_len(bytes: u64) -> Result<usize, Error> {
    usize::try_from(bytes).map_err(|_| Error::NoMemory { asked: bytes })
}
