//! The pages room: the cached bytes of one inode, and what of them is not written back.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `bits` | blocks of a folio -> a set of them |
//! | `folio` | memory -> blocks that are valid, dirty, being written |
//! | `folios` | a block -> its folio |
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
//! of the claim are written back first, then all its pages are dropped. As long as the claim stands buffered writes of these blocks wait
//! for its end, and reads of them cache nothing. So at the end no page has been found dirty again: the race is excluded.
//!
//! A direct request asks for pages by one word ([`segments`]), after it is counted in flight. Before the first page of a segment comes, the
//! segment is noted there, and then the gate is closed for a moment: requests that have not seen the note have ended by then.

mod bits;
mod budget;
mod folio;
mod folios;
mod memory;
mod segments;
mod stats;
#[cfg(test)]
mod tests;

pub use budget::PageCache;
pub(crate) use budget::{Reclaim, Reclaimed, WriteBack};
pub(crate) use folio::NewFolio;
pub(crate) use memory::{Ahead, Grant, Memory};
pub use stats::PageStats;

use crate::error::Error;
use crate::locks::{PAGES, PAGES_CHANGED};
use bits::MOST as MOST_BLOCKS;
use diorite_block::Buf;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use diorite_block::sync::{Biased, Condvar, Mutex};
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
}

impl Marked {
    fn new(id: u64, blocks: Range<u64>) -> Marked {
        Marked {
            id,
            blocks,
            is_stale: false,
            is_ahead: false,
            is_kept: false,
        }
    }
}

/// Failed write-backs.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    /// Somebody was told of the last one.
    is_told: bool,
    last: Option<Error>,
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

/// What became of the wish to read blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// All are cached.
    Cached,
    /// Somebody else reads some of them already, or a direct request has them: wait.
    Busy,
    /// These are to be read; [`Pages::end_fill`] must follow.
    Begun(u64, Range<u64>),
}

/// A run of dirty blocks on their way to the device.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) id: u64,
    pub(crate) blocks: Range<u64>,
    /// Their bytes, lent.
    pub(crate) buf: Buf,
    /// For how many of them space was reserved.
    pub(crate) reserved: u64,
    /// It moves the size: [`Pages::sent`] must be called once it is on its way.
    pub(crate) moves_size: bool,
    /// One past the last byte of the file, in bytes: what is appended later is not in `buf`.
    pub(crate) end: u64,
}

/// What write-back finds in a range.
#[derive(Debug)]
pub(crate) enum Collected {
    /// Nothing that can be written now.
    Nothing,
    /// What lies before it, behind the size on disk, has to go first: a run that was not sent down yet, or one that is being written and is
    /// dirty again.
    Kept,
    Run(Batch),
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

    /// Copies cached bytes from `pos` on; returns how many, up to the first that is not cached.
    #[inline]
    pub(crate) fn read(&self, pos: u64, out: &mut [u8]) -> usize {
        // A long copy would let writers wait, awake.
        let state = match out.len() <= MOST_BRIEF {
            true => self.state.read_briefly(),
            false => self.state.read(),
        };
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
    /// visible end. `holes` are those of the blocks for which space was reserved; none if all
    /// blocks have to be dirty already, as they need none. `size` gives the size on disk; `check` is told the
    /// visible end and may refuse. `extend` is called if the end of the write is behind it; it may refuse, too.
    ///
    /// # Errors
    /// `NoMemory`: the host has none for a copy of a folio that is being written; those of `check`.
    pub(crate) fn write(
        &self,
        (pos, data): (u64, &[u8]),
        holes: Option<&[Range<u64>]>,
        size: impl FnOnce() -> u64,
        check: impl FnOnce(u64) -> Result<Option<Wrote>, Error>,
        extend: impl FnOnce(&dyn Fn()) -> bool,
    ) -> Result<Wrote, Error> {
        let bits = self.block_bits;
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
        let (mut at, mut more, mut reserved) = (pos, 0, 0);
        while at < end {
            let (start, folio) = state.folios.of_mut(at >> bits).expect("checked above");
            let from = at - (start << bits);
            let len = (end - at).min((u64::from(folio.blocks()) << bits) - from);
            let skip = (at - pos) as usize;
            more += folio.write(bits, from, &data[skip..skip + len as usize]);
            reserved += folio.reserve(start, holes.unwrap_or_default());
            at += len;
        }
        self.unwritten.fetch_add(more, Ordering::SeqCst);
        self.cache.add_dirty(more << bits);
        Ok(Wrote::Done(reserved))
    }

    /// Marks the first run of blocks in a range that are not cached, for a caller that is going to read them from the device.
    pub(crate) fn begin_fill(&self, blocks: Range<u64>) -> Fill {
        let mut state = self.state.write();
        let start = state.folios.end_of_valid(blocks.start, blocks.end);
        if start >= blocks.end {
            return Fill::Cached;
        }
        let blocks = start..state.folios.next_valid(start, blocks.end);
        let mut others = state.fills.iter().filter(|fill| !fill.is_ahead);
        if others.any(|fill| meet(&fill.blocks, &blocks)) || state.is_claimed(&blocks) {
            return Fill::Busy;
        }
        Fill::Begun(state.begin_fill(blocks.clone(), false), blocks)
    }

    /// As [`Pages::begin_fill`], for blocks that somebody may need later: others may read them from the device, too.
    pub(crate) fn begin_ahead(&self, blocks: Range<u64>) -> u64 {
        self.state.write().begin_fill(blocks, true)
    }

    /// Ends a fill with the bytes that were read, if all went well, as new folios; what became valid meanwhile stays as it is.
    pub(crate) fn end_fill(&self, id: u64, of: &Weak<dyn Reclaim>, read: Vec<NewFolio>) {
        let mut state = self.state.write();
        let fill = state.fills.iter().position(|fill| fill.id == id);
        let fill = state.fills.swap_remove(fill.expect("a fill ends once"));
        let (mut added, mut bytes) = (Vec::new(), 0);
        for new in read {
            bytes += u64::from(new.blocks()) << self.block_bits;
            if fill.is_stale {
                continue;
            }
            let start = new.start;
            if state
                .folios
                .overlaps(start..start + u64::from(new.blocks()))
            {
                state.folios.copy_missing(self.block_bits, &new);
                continue;
            }
            let folio = Folio::filled(new, state.id());
            added.push(((start, folio.id()), folio.alive()));
            state.folios.insert(start, folio);
        }
        self.count(&state);
        drop(state);
        self.cache.note_filled(bytes, fill.is_ahead);
        added
            .into_iter()
            .for_each(|(place, alive)| self.cache.enqueue(of.clone(), place, alive));
        self.tell();
    }

    /// Takes the first run of dirty blocks in a range, at most `most` blocks, to write them. [`Pages::written`] must follow. `size`
    /// gives the file's size on disk, in bytes.
    pub(crate) fn collect(
        &self,
        blocks: Range<u64>,
        most: u64,
        size: impl FnOnce() -> u64,
    ) -> Collected {
        let mut state = self.state.write();
        // As for `visible_size`: first the end, which write-back forgets once the size has moved.
        let last = self.end();
        let size = size();
        let (mut parts, mut reserved) = (Vec::new(), 0);
        let Some(start) = state.folios.first_dirty(&blocks) else {
            return Collected::Nothing;
        };
        let behind = |block: u64| block << self.block_bits > size;
        if state.writes.iter().any(|batch| batch.is_kept) && behind((start + most).min(blocks.end))
        {
            return Collected::Kept;
        }
        let size_block = size >> self.block_bits;
        if size_block < start && state.folios.any(&(size_block..start), Folio::dirty) {
            return Collected::Kept;
        }
        let run = start;
        let (mut at, mut end) = (run, run);
        while at < blocks.end && at - run < most {
            let Some((start, folio)) = state.folios.of_mut(at) else {
                break;
            };
            let left = blocks.end.min(run + most) - at;
            let Some(taken) = folio.take_dirty(at - start, left) else {
                break;
            };
            reserved += taken.reserved;
            let bytes = |b: u32| (b as usize) << self.block_bits;
            parts.push(folio.lend(bytes(taken.blocks.start)..bytes(taken.blocks.end)));
            at = start + u64::from(taken.blocks.end);
            end = at;
        }
        let (id, moves_size) = (state.id(), behind(end));
        state.writes.push(Marked {
            is_kept: moves_size,
            ..Marked::new(id, run..end)
        });
        self.cache.note_collected((end - run) << self.block_bits);
        Collected::Run(Batch {
            id,
            blocks: run..end,
            buf: Buf::from_parts(parts),
            reserved,
            moves_size,
            end: last.max(size),
        })
    }

    /// Notes that a batch which moves the size is on its way: others may follow.
    pub(crate) fn sent(&self, id: u64) {
        let mut state = self.state.write();
        let batch = state.writes.iter_mut().find(|batch| batch.id == id);
        batch.expect("it has not ended").is_kept = false;
        drop(state);
        self.tell();
    }

    /// Ends the write-back of a batch. After a failure blocks that were not written again meanwhile are dropped, so that reads show what
    /// the device has, and the failure is noted. `size` is the file's size on disk.
    pub(crate) fn written(&self, id: u64, error: Option<Error>, size: u64) {
        let mut state = self.state.write();
        let batch = state.writes.iter().position(|batch| batch.id == id);
        let blocks = state
            .writes
            .swap_remove(batch.expect("a batch ends once"))
            .blocks;
        let mut clean = 0;
        let mut at = blocks.start;
        while at < blocks.end {
            let (start, folio) = state.folios.of_mut(at).expect("what is written stays");
            let end = blocks.end.min(start + u64::from(folio.blocks()));
            clean += folio.end_writing(short(at - start)..short(end - start), error.is_some());
            at = end;
        }
        if let Some(error) = error {
            self.cache.note_failed();
            let failures = &mut state.failures;
            (failures.is_told, failures.last) = (false, Some(error));
            failures.count += 1;
            state.folios.drop_empty();
            self.count(&state);
        }
        let left = self.unwritten.fetch_sub(clean, Ordering::SeqCst) - clean;
        self.cache.sub_dirty(clean << self.block_bits);
        if left == 0 || self.end() <= size {
            self.end.store(0, Ordering::Release);
        }
        drop(state);
        self.tell();
    }

    /// Is a block of the range dirty, or being written?
    pub(crate) fn is_unwritten(&self, blocks: &Range<u64>) -> bool {
        self.has_unwritten() && self.state.read().folios.any(blocks, |f| f.unwritten())
    }

    /// For [`Pages::is_writing`].
    pub(crate) fn mark(&self) -> u64 {
        self.state.write().id()
    }

    /// Is a block of the range still being written by a batch that was collected before the mark was made?
    pub(crate) fn is_writing(&self, blocks: &Range<u64>, mark: u64) -> bool {
        let state = self.state.read();
        let mut earlier = state.writes.iter().filter(|batch| batch.id < mark);
        earlier.any(|batch| meet(&batch.blocks, blocks))
    }

    /// The runs of blocks in a range that are dirty or being written.
    pub(crate) fn unwritten_runs(&self, blocks: &Range<u64>) -> Vec<Range<u64>> {
        let state = self.state.read();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (start, folio) in state.folios.meeting(blocks) {
            let mut from = 0;
            while let Some(run) = folio.unwritten().run(from) {
                from = run.end;
                let (a, b) = (start + u64::from(run.start), start + u64::from(run.end));
                let (a, b) = (a.max(blocks.start), b.min(blocks.end));
                match runs.last_mut() {
                    _ if a >= b => {}
                    Some(last) if last.end == a => last.end = b,
                    _ => runs.push(a..b),
                }
                if from >= bits::MOST {
                    break;
                }
            }
        }
        runs
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

    /// The last failure of write-back, if nobody was told of it.
    pub(crate) fn untold_failure(&self) -> Option<Error> {
        let failures = &self.state.read().failures;
        failures.last.clone().filter(|_| !failures.is_told)
    }

    pub(crate) fn count_failures(&self) -> u64 {
        self.state.read().failures.count
    }

    /// For an open file: the failures of which it need not be told.
    pub(crate) fn failures_known(&self) -> u64 {
        let failures = &self.state.read().failures;
        failures.count - u64::from(failures.last.is_some() && !failures.is_told)
    }

    /// The last failure of write-back, if there are more than `known`, and their number. Whoever asks is told.
    pub(crate) fn failure_since(&self, known: u64) -> Option<(u64, Error)> {
        let failures = &mut self.state.write().failures;
        let last = failures.last.clone().filter(|_| failures.count > known)?;
        failures.is_told = true;
        Some((failures.count, last))
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

    fn begin_fill(&mut self, blocks: Range<u64>, is_ahead: bool) -> u64 {
        // What has become valid since the caller looked may be newer than what is read, and gone before that is installed.
        let is_valid = self.folios.next_valid(blocks.start, blocks.end) < blocks.end;
        let is_stale = is_valid || self.is_claimed(&blocks);
        let id = self.id();
        self.fills.push(Marked {
            is_stale,
            is_ahead,
            ..Marked::new(id, blocks)
        });
        id
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
