//! The pages module: the cached bytes of one inode, and which of them are not written back.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `bits` | blocks of a folio -> a set of them |
//! | `folio` | memory -> blocks that are valid, dirty, being written |
//! | `folios` | a block -> its folio |
//! | `fills` | blocks that are not cached -> read once, and installed if nobody has changed them meanwhile |
//! | `batches` | dirty blocks -> runs on their way to the device, and what became of them |
//! | `failures` | failed write-backs -> whoever has to be told of them, once |
//! | `segments` | ranges that may have pages -> one word that direct requests look at |
//! | `memory` | a grant -> the memory of a folio, or a buf to be read into |
//! | `budget` | bytes wanted -> a grant, for which the oldest folios go |
//! | `stats` | events -> their numbers |
//!
//! Input: bytes that were read or are to be written, as ranges of file blocks; ranges that direct requests claim. Output: cached bytes;
//! runs of dirty blocks for write-back. Invariants: folios do not overlap; a dirty block is valid; a block that is being written is not
//! collected again before that has ended (rule B9); nobody makes a block dirty or valid that a direct request has claimed. Limits:
//! bytes and numbers only: it knows no inode and no queue, and does no I/O.
//!
//! # Direct requests
//!
//! A direct write, and a range operation, **claims** its blocks before it looks at the map, if the file may have pages there. Dirty blocks
//! of the claim are written back first, then all its pages are dropped. Until the claim ends, buffered writes of these blocks wait, and
//! reads of them cache nothing. So no page of the claim can be dirty when the direct request ends.
//!
//! A direct request finds out by one word whether there are pages ([`segments`]), after it is counted in flight. Before a segment gets its
//! first page, the segment is noted in that word, and then the gate is closed and opened again: by then all requests that have not seen the
//! note have ended.

mod batches;
mod bits;
mod budget;
mod failures;
mod fills;
mod folio;
mod folios;
mod memory;
mod segments;
mod stats;
#[cfg(test)]
mod tests;

pub(crate) use batches::Collected;
pub use budget::PageCache;
pub(crate) use budget::{Reclaim, Reclaimed, WriteBack};
pub(crate) use failures::{Failure, Told, Watched};
pub(crate) use fills::Fill;
pub(crate) use folio::NewFolio;
pub(crate) use memory::{Ahead, Grant, Memory};
pub use stats::PageStats;

use crate::error::Error;
use crate::locks::{PAGES, PAGES_CHANGED};
use bits::MOST as MOST_BLOCKS;
use diorite_block::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use diorite_block::sync::{Biased, Condvar, Mutex};
use failures::{Failures, Watch};
use folio::Folio;
use folios::Folios;
use segments::Segments;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Weak;
use std::time::Duration;

/// The largest folio, in bytes: a huge page.
const MOST_BYTES: u64 = 2 << 20;

/// The most bytes that are copied by a read that writers do not sleep on.
const MOST_BRIEF: usize = 64 << 10;

/// The most bytes that one read copies: writers wait meanwhile.
const MOST_COPIED: usize = 1 << 20;

/// The cached pages of one inode.
#[derive(Debug)]
pub(crate) struct Pages {
    state: Biased<State>,
    cache: PageCache,
    block_bits: u32,
    /// Segments with pages; and those of them for which earlier direct requests have ended.
    noted: Segments,
    ready: Segments,
    /// One past the last byte that was written to the cache, if it may be behind the size on disk; else 0.
    end: AtomicU64,
    /// Blocks that are dirty or being written.
    unwritten: AtomicU64,
    /// How many folios there are.
    folios: AtomicU64,
    /// How many open files may write.
    writers: AtomicU32,
    /// A write-back has failed, so there are failures to ask for. Set under the state's lock.
    has_failed: AtomicBool,
    /// A file was closed while some of its bytes may have been dirty, and they may be still.
    left_dirty: AtomicBool,
    /// Counts changes that others wait for.
    changes: Mutex<u64>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    folios: Folios,
    claims: Vec<Marked>,
    fills: Vec<Marked>,
    /// Batches on their way to the device.
    writes: Vec<Marked>,
    next_id: u64,
    failures: Failures,
    watches: Vec<Watch>,
}

/// A range of blocks that somebody has marked.
#[derive(Debug)]
struct Marked {
    id: u64,
    blocks: Range<u64>,
    /// Of a fill: a block of it was changed meanwhile, so it must not be installed.
    is_stale: bool,
    /// Of a fill: it is read ahead, so nobody waits for it.
    is_ahead: bool,
    /// Of a write: it moves the size, and was not sent down yet.
    is_kept: bool,
    /// Of a write: it has bytes of calls that have returned.
    is_acknowledged: bool,
    /// Of a write: the calls with bytes in it that are told of its failure.
    watches: Vec<u64>,
}

impl Marked {
    fn new(id: u64, blocks: Range<u64>) -> Marked {
        Marked {
            id,
            blocks,
            is_stale: false,
            is_ahead: false,
            is_kept: false,
            is_acknowledged: false,
            watches: Vec::new(),
        }
    }
}

/// A write to the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) pos: u64,
    pub(crate) data: &'a [u8],
    /// Those of its blocks for which space was reserved; none if all blocks have to be dirty already, as they need none.
    pub(crate) holes: Option<&'a [Range<u64>]>,
    pub(crate) told: Told<'a>,
}

/// What became of a write to the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// The bytes are in the cache. The number of blocks that were reserved with it.
    Done(u64),
    /// These blocks need a folio, or their old bytes, first.
    Missing,
    /// A direct request has a part of the range.
    Claimed,
    /// The file cannot become longer now: extending direct requests are under way.
    Behind,
    /// An append whose place was taken meanwhile.
    Moved,
    /// A folio is lent to a write-back, and the budget has no room for a copy of so many bytes.
    Lent(u64),
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.cache
            .sub_dirty(self.unwritten.load(Ordering::Relaxed) << self.block_bits);
    }
}

impl Pages {
    pub(crate) fn new(level: u8, cache: &PageCache, block_size: u32) -> Pages {
        Pages {
            state: Biased::at_level(&PAGES, level, State::default()),
            cache: cache.clone(),
            block_bits: block_size.trailing_zeros(),
            noted: Segments::default(),
            ready: Segments::default(),
            end: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            folios: AtomicU64::new(0),
            writers: AtomicU32::new(0),
            has_failed: AtomicBool::new(false),
            left_dirty: AtomicBool::new(false),
            changes: Mutex::at_level(&PAGES_CHANGED, level, 0),
            changed: Condvar::new(),
        }
    }

    /// The most blocks of a new folio.
    pub(crate) fn most_per_folio(&self) -> u64 {
        let bytes = self.cache.most_per_folio().min(MOST_BYTES);
        (bytes >> self.block_bits).clamp(1, u64::from(MOST_BLOCKS))
    }

    pub(crate) fn cache(&self) -> &PageCache {
        &self.cache
    }

    /// May these bytes have pages? Asked by direct requests, after they are counted in flight.
    #[inline]
    pub(crate) fn may_have(&self, bytes: &Range<u64>) -> bool {
        self.noted.may_have(bytes)
    }

    /// May pages of these bytes come without further steps?
    pub(crate) fn is_ready(&self, bytes: &Range<u64>) -> bool {
        self.ready.has_all(bytes)
    }

    /// Notes that these bytes will have pages.
    pub(crate) fn note(&self, bytes: &Range<u64>) {
        self.noted.add(bytes);
    }

    /// Notes that all direct requests in flight know of them.
    pub(crate) fn note_ready(&self, bytes: &Range<u64>) {
        self.ready.add(bytes);
    }

    /// One past the last byte written to the cache, or 0: see the field.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Is anything dirty, or being written?
    #[inline]
    pub(crate) fn has_unwritten(&self) -> bool {
        self.unwritten.load(Ordering::SeqCst) != 0
    }

    /// Blocks that are dirty or being written.
    pub(crate) fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::SeqCst)
    }

    /// Has it no folio?
    pub(crate) fn is_empty(&self) -> bool {
        self.folios.load(Ordering::SeqCst) == 0
    }

    /// Copies cached bytes from `pos` on; returns how many, up to the first that is not cached, at most [`MOST_COPIED`].
    #[inline]
    pub(crate) fn read(&self, pos: u64, out: &mut [u8]) -> usize {
        // A long copy would let writers wait, awake.
        let state = match out.len() <= MOST_BRIEF {
            true => self.state.read_briefly(),
            false => self.state.read(),
        };
        let most = out.len().min(MOST_COPIED);
        let out = &mut out[..most];
        let mut done = 0;
        while done < out.len() {
            let at = pos + done as u64;
            let Some((start, folio)) = state.folios.of(at >> self.block_bits) else {
                break;
            };
            let more = folio.read(
                self.block_bits,
                at - (start << self.block_bits),
                &mut out[done..],
            );
            if more == 0 {
                break;
            }
            done += more;
        }
        done
    }

    /// The first run of blocks in a range that are not cached.
    pub(crate) fn missing(&self, blocks: Range<u64>) -> Option<Range<u64>> {
        let state = self.state.read();
        let start = state.folios.end_of_valid(blocks.start, blocks.end);
        (start < blocks.end).then(|| start..state.folios.next_valid(start, blocks.end))
    }

    /// Are these blocks all dirty? Then a write to them needs no space.
    pub(crate) fn is_dirty_all(&self, blocks: Range<u64>) -> bool {
        let state = self.state.read();
        blocks.into_iter().all(|block| {
            let folio = state.folios.of(block);
            folio.is_some_and(|(start, folio)| folio.is_dirty(block - start))
        })
    }

    /// The parts of a range without a folio, each not longer than a folio may be. Where bytes are written one after another the parts
    /// become longer than asked.
    pub(crate) fn without_folio(&self, blocks: Range<u64>) -> Vec<Range<u64>> {
        let state = self.state.read();
        let most = self.most_per_folio();
        let (mut at, mut parts) = (blocks.start, Vec::new());
        while at < blocks.end {
            if let Some((start, folio)) = state.folios.of(at) {
                at = start + u64::from(folio.blocks());
                continue;
            }
            let before = at.checked_sub(1).and_then(|b| state.folios.of(b));
            let ahead = before.map_or(0, |(_, folio)| 2 * u64::from(folio.blocks()));
            let next = state.folios.next_start(at..u64::MAX).unwrap_or(u64::MAX);
            let end = (at + ahead.max(blocks.end - at).min(most)).min(next);
            parts.push(at..end);
            at = end;
        }
        parts
    }

    /// Adds an empty folio, unless another has a part of its range.
    pub(crate) fn add(&self, of: Weak<dyn Reclaim>, new: NewFolio) {
        let mut state = self.state.write();
        let (start, end) = (new.start, new.start + u64::from(new.blocks()));
        if state.folios.overlaps(start..end) {
            return;
        }
        let folio = Folio::new(new, state.id());
        let (id, alive) = (folio.id(), folio.alive());
        state.folios.insert(start, folio);
        self.count(&state);
        drop(state);
        self.cache.enqueue(of, (start, id), alive);
    }

    /// Writes to the cache. The blocks must have folios, and the partly written ones their old bytes, unless they lie behind the file's
    /// visible end. `size` gives the size on disk; `check` is told the visible end and may refuse.
    /// `extend` is called if the end of the write is behind it; it may refuse, too.
    ///
    /// # Errors
    /// `NoMemory`: the host has none for a copy of a folio that is being written; those of `check`.
    pub(crate) fn write(
        &self,
        change: Change<'_>,
        size: impl FnOnce() -> u64,
        check: impl FnOnce(u64) -> Result<Option<Wrote>, Error>,
        extend: impl FnOnce(&dyn Fn()) -> bool,
    ) -> Result<Wrote, Error> {
        let bits = self.block_bits;
        let Change {
            pos,
            data,
            holes,
            told,
        } = change;
        let end = pos + data.len() as u64;
        let blocks = pos >> bits..end.div_ceil(1 << bits);
        let mut state = self.state.write();
        if state.is_claimed(&blocks) {
            return Ok(Wrote::Claimed);
        }
        // Only now: who had a claim here may have moved the size before it ended.
        let size = size().max(self.end());
        if let Some(refused) = check(size)? {
            return Ok(refused);
        }
        let is_partial = |b: u64| (b << bits) < pos || ((b + 1) << bits) > end;
        for block in blocks.clone() {
            let Some((start, folio)) = state.folios.of(block) else {
                return Ok(Wrote::Missing);
            };
            if holes.is_none() && !folio.is_dirty(block - start) {
                return Ok(Wrote::Missing);
            }
            if is_partial(block) && !folio.is_valid(block - start) && (block << bits) < size {
                return Ok(Wrote::Missing);
            }
        }
        if let Some(bytes) = state.folios.make_writable(&blocks)? {
            return Ok(Wrote::Lent(bytes));
        }
        if end > size
            && !extend(&|| {
                self.end.fetch_max(end, Ordering::AcqRel);
            })
        {
            return Ok(Wrote::Behind);
        }
        state.make_stale(&blocks);
        state.note_told(told, &blocks);
        let (mut at, mut more, mut reserved) = (pos, 0, 0);
        while at < end {
            let (start, folio) = state.folios.of_mut(at >> bits).expect("checked above");
            let from = at - (start << bits);
            let len = (end - at).min((u64::from(folio.blocks()) << bits) - from);
            let skip = (at - pos) as usize;
            more += folio.write(bits, from, &data[skip..skip + len as usize], told);
            reserved += folio.reserve(start, holes.unwrap_or_default());
            at += len;
        }
        self.unwritten.fetch_add(more, Ordering::SeqCst);
        self.cache.add_dirty(more << bits);
        Ok(Wrote::Done(reserved))
    }

    /// Claims a range of blocks: see the module. [`Pages::end_claim`] must follow.
    pub(crate) fn claim(&self, blocks: Range<u64>) -> u64 {
        let mut state = self.state.write();
        state.make_stale(&blocks);
        let id = state.id();
        state.claims.push(Marked::new(id, blocks));
        id
    }

    pub(crate) fn end_claim(&self, id: u64) {
        self.state.write().claims.retain(|claim| claim.id != id);
        self.tell();
    }

    /// Drops the pages of a range that are not dirty or being written. Returns whether there were any.
    pub(crate) fn drop_clean(&self, blocks: &Range<u64>) -> bool {
        let mut state = self.state.write();
        state.make_stale(blocks);
        let mut some = false;
        let Ok(()) = state.folios.change::<Infallible>(blocks, |start, folio| {
            let from = short(blocks.start.saturating_sub(start));
            let to = short((blocks.end - start).min(u64::from(folio.blocks())));
            some |= folio.drop_clean(from..to);
            Ok(())
        });
        state.folios.drop_empty();
        self.count(&state);
        some
    }

    /// Drops the folio that starts at this block: see [`Reclaim`].
    pub(crate) fn reclaim(&self, (start, id): (u64, u64), may_be_used: bool) -> Reclaimed {
        let mut state = self.state.write();
        match state.folios.starting_at(start) {
            Some(folio) if folio.id() == id && folio.must_stay(may_be_used) => Reclaimed::Stays,
            Some(folio) if folio.id() == id => {
                state.folios.remove(start);
                self.count(&state);
                Reclaimed::Gone
            }
            _ => Reclaimed::Gone,
        }
    }

    /// Waits until something has changed since `seen`, which [`Pages::changes`] returned, or a short time has passed.
    pub(crate) fn wait(&self, seen: u64) {
        let changes = self.changes.lock();
        if *changes == seen {
            drop(self.changed.wait_timeout(changes, Duration::from_millis(1)));
        }
    }

    pub(crate) fn changes(&self) -> u64 {
        *self.changes.lock()
    }

    fn count(&self, state: &State) {
        self.folios
            .store(state.folios.len() as u64, Ordering::SeqCst);
    }

    fn tell(&self) {
        *self.changes.lock() += 1;
        self.changed.notify_all();
    }
}

impl State {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn is_claimed(&self, blocks: &Range<u64>) -> bool {
        self.claims.iter().any(|claim| meet(&claim.blocks, blocks))
    }

    /// Fills that read these blocks must not be installed.
    fn make_stale(&mut self, blocks: &Range<u64>) {
        let fills = self.fills.iter_mut();
        fills
            .filter(|fill| meet(&fill.blocks, blocks))
            .for_each(|fill| fill.is_stale = true);
    }
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn short(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX).min(bits::MOST)
}
