//! Reads and writes of an open file through the page cache: any position, any length, any memory.
//!
//! Input: slices. Output: bytes, counts. Invariants: a write has its space before it is acknowledged (delayed allocation), so write-back
//! never finds the volume full; bytes that are not written back are seen by every reader; a write is counted in flight while it changes
//! pages, so operations on the map keep it out as they keep out direct writes. Limits: pages change in steps of at most 1 MiB, and a reader
//! may see some of a longer write; an append of more than that may be divided by a direct append; every call blocks.

use super::read_ahead::ReadAhead;
use super::{File, page_io};
use crate::attr::prepare_first_write;
use crate::error::{Error, Wait};
use crate::inode::{Inode, Shortage};
use crate::op::Op;
use crate::pages::{NewFolio, Wrote};
use crate::request::RequestFlags;
use crate::threads;
use crate::turn::gate::Shard;
use diorite_block::Buf;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that one step changes, at most.
const STEP: u64 = 1 << 20;

/// How often a step begins anew, as its pages went before it could use them.
const MOST_TRIES: u32 = 10_000;
/// The same for a thread that never waits for memory.
const FEW_TRIES: u32 = 3;

/// Bytes of one fill, at most.
const MOST_FILLED: u64 = 4 << 20;

/// The position of an open file, and what read-ahead knows of its reader.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) position: AtomicU64,
    /// Where a sequential reader reads next.
    next: AtomicU64,
    ahead: ReadAhead,
}

impl Reading {
    pub(super) fn new(level: u8) -> Reading {
        Reading {
            position: AtomicU64::new(0),
            next: AtomicU64::new(0),
            ahead: ReadAhead::new(level),
        }
    }
}

/// Where a write begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    At(u64),
    End,
}

/// What a write has written, and the error that it met behind that.
struct Written {
    at: u64,
    len: usize,
    error: Option<Error>,
}

/// The bytes of a read that has gone on behind the first `done`: an error behind them is met again by who reads there.
fn behind(done: usize, more: Result<usize, Error>) -> Result<usize, Error> {
    match more {
        Err(_) if done > 0 => Ok(done),
        more => more.map(|more| done + more),
    }
}

/// A thread that is counted in flight.
struct InFlight<'a> {
    inode: &'a Inode,
    shard: Arc<Shard>,
}

impl<'a> InFlight<'a> {
    fn enter(inode: &'a Inode) -> InFlight<'a> {
        let shard = inode.gate.writers_shard();
        inode.gate.wait_enter(&shard, || inode.volume.drain_all());
        InFlight { inode, shard }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.inode.gate.leave(&self.shard);
    }
}

impl File {
    /// Reads any range, aligned or not, through the page cache; with [`crate::OpenFlags::direct`] through a bounce buffer. Returns how many
    /// bytes were read: all of `out`, or fewer if the file ends before. Blocks, unless all is cached.
    ///
    /// # Errors
    /// Those of [`File::read_at`]; `NoMemory`.
    pub fn read_bytes(&self, pos: u64, out: &mut [u8]) -> Result<usize, Error> {
        if self.open_file().is_direct() {
            return self.read_bounced(pos, out);
        }
        let inode = self.inode();
        inode.volume.check_open()?;
        let left = inode.visible_size().saturating_sub(pos);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
        let out = &mut out[..len];
        let mut done = inode.pages.read(pos, out);
        if len > 0 {
            inode.note_read();
        }
        let reading = &self.reading;
        let is_sequential = pos == reading.next.load(Relaxed);
        if done < len {
            let more = self.read_missing(pos + done as u64, &mut out[done..], is_sequential);
            done = behind(done, more)?;
        }
        let end = pos + done as u64;
        reading.next.store(end, Relaxed);
        if is_sequential && reading.ahead.is_short(end) {
            reading.ahead.extend(self.pool(), inode, end, 0);
        }
        Ok(done)
    }

    fn read_missing(&self, pos: u64, out: &mut [u8], is_sequential: bool) -> Result<usize, Error> {
        let (inode, pool) = (self.inode(), self.pool());
        inode.volume.check_open()?;
        inode.check_data_access()?;
        if inode.volume.check_holds_data(inode).is_err() {
            // Blocks of metadata change without the cache.
            return self.read_bounced(pos, out);
        }
        let bits = inode.volume.block_size().trailing_zeros();
        let mut done = 0;
        // Pages may go before they are copied, if the budget is small.
        let mut tries = 0;
        while done < out.len() {
            let at = pos + done as u64;
            let more = inode.pages.read(at, &mut out[done..]);
            done += more;
            if more > 0 {
                tries = 0;
                continue;
            }
            tries += 1;
            let bringing = inode.volume.cached.keep(inode);
            if tries > 8 || bringing.is_none() {
                return behind(done, self.read_bounced(at, &mut out[done..]));
            }
            let left = (out.len() - done) as u64;
            let end = self.end_of_fill(at, left);
            let ahead = &self.reading.ahead;
            if ahead.finish(at >> bits) {
                continue;
            }
            if is_sequential && end < inode.visible_size() {
                ahead.extend(pool, inode, at, left.min(MOST_FILLED));
                if ahead.finish(at >> bits) {
                    continue;
                }
            }
            if !inode.try_make_pages_ready(&(at..end)) {
                // A reader does not wait for direct requests.
                return behind(done, self.read_bounced(at, &mut out[done..]));
            }
            let blocks = at >> bits..end.div_ceil(1 << bits);
            // If memory is short, or something behind cannot be read, the bytes asked for are read alone.
            if page_io::fill(pool, inode, blocks).is_err() {
                return behind(done, self.read_bounced(at, &mut out[done..]));
            }
        }
        Ok(done)
    }

    /// Where a fill ends that begins at `at`, for a reader who wants `len` bytes.
    fn end_of_fill(&self, at: u64, len: u64) -> u64 {
        let cache = self.inode().pages.cache().cache_bytes();
        let most = len.min(MOST_FILLED).min((cache / 2).max(1));
        at.saturating_add(most)
            .min(self.inode().visible_size().max(at + 1))
    }

    /// Writes `data` at byte `pos`, which may be behind the end, through the page cache; with [`crate::OpenFlags::direct`] at once, aligned
    /// as for [`File::write_at`]. Space is reserved before the call returns. With O_DSYNC or O_SYNC the data is durable when it returns.
    /// Returns how many bytes were written: fewer than all only if an error was met behind them. Blocks while too much is dirty.
    ///
    /// # Errors
    /// Those of [`File::write_at`] but `Unaligned`; `NoMemory`.
    pub fn write_bytes(&self, pos: u64, data: &[u8]) -> Result<usize, Error> {
        let wrote = self.write_cached(Place::At(pos), data)?;
        Ok(wrote.len)
    }

    /// Writes `data` at the end of the file, through the page cache, behind what others have appended. Returns the position at which it was
    /// written. Otherwise as [`File::write_bytes`].
    ///
    /// # Errors
    /// Those of [`File::write_bytes`]; an append that meets one may have been written in part.
    pub fn append_bytes(&self, data: &[u8]) -> Result<u64, Error> {
        let Written { at, len, error } = self.write_cached(Place::End, data)?;
        let part = || format!("only {len} of {} bytes were appended at {at}", data.len());
        error.map_or(Ok(at), |error| Err(error.at(part())))
    }

    /// As [`File::write_bytes`], but durable only after [`File::make_written_durable`], unless it is direct.
    pub(super) fn write_lazily(&self, pos: u64, data: &[u8]) -> Result<usize, Error> {
        self.write_pages_at(Place::At(pos), data)
            .map(|wrote| wrote.len)
    }

    fn write_cached(&self, place: Place, data: &[u8]) -> Result<Written, Error> {
        let wrote = self.write_pages_at(place, data)?;
        self.make_written_durable()?;
        Ok(wrote)
    }

    fn write_pages_at(&self, place: Place, data: &[u8]) -> Result<Written, Error> {
        let inode = self.inode();
        if self.open_file().is_direct() {
            let asked = data.len() as u64;
            let mut buf = Buf::try_zeroed(data.len()).ok_or(Error::NoMemory { asked })?;
            buf.copy_in(0, data);
            let (at, len) = match place {
                Place::At(pos) => (pos, self.write_at(pos, buf).1?),
                Place::End => (self.append(buf).1?, data.len()),
            };
            let error = None;
            return Ok(Written { at, len, error });
        }
        self.check_write(place, data.len() as u64)?;
        let _alone = (place == Place::End).then(|| inode.appends.take());
        let (mut first, mut error) = (None, None);
        let mut done = 0;
        while done < data.len() && error.is_none() {
            let at = match place {
                Place::At(pos) => pos + done as u64,
                Place::End => inode.visible_size(),
            };
            let most = self.most_per_step();
            let step = (most - at % most).min((data.len() - done) as u64) as usize;
            let part = &data[done..done + step];
            match self.step(place, at, part) {
                Ok(true) => {
                    first.get_or_insert(at);
                    done += step;
                }
                // An append whose place was taken.
                Ok(false) => {}
                Err(met) if done > 0 => error = Some(met),
                Err(met) => return Err(met),
            }
        }
        Ok(Written {
            at: first.unwrap_or(inode.visible_size()),
            len: done,
            error,
        })
    }

    /// Bytes that one step changes: with a small budget less, as all its pages must be there at once.
    fn most_per_step(&self) -> u64 {
        let inode = self.inode();
        let block = u64::from(inode.volume.block_size());
        let most = inode.pages.cache().cache_bytes() / 16;
        (most / block * block).clamp(block, STEP.max(block))
    }

    fn check_write(&self, place: Place, len: u64) -> Result<(), Error> {
        let inode = self.inode();
        inode.volume.check_open()?;
        self.open_file().check_writable()?;
        let size = inode.visible_size();
        let pos = match place {
            Place::At(pos) => pos,
            Place::End => size,
        };
        inode.check_writable(pos >= size)?;
        inode.check_data_access()?;
        inode.volume.check_sound()?;
        inode.check_end(pos.saturating_add(len))
    }

    /// Writes one step; false if it was an append and its place was taken meanwhile.
    fn step(&self, place: Place, pos: u64, data: &[u8]) -> Result<bool, Error> {
        let (inode, pool) = (self.inode(), self.pool());
        if inode.owes_first_write() {
            // Inline data gets its block here, as write-back may not find one.
            self.prepare_first()?;
        }
        self.throttle();
        let bits = inode.volume.block_size().trailing_zeros();
        let bytes = pos..pos + data.len() as u64;
        inode.check_end(bytes.end)?;
        let blocks = pos >> bits..bytes.end.div_ceil(1 << bits);
        inode.make_pages_ready(&(blocks.start << bits..blocks.end << bits));
        let (mut shortage, mut tries) = (Shortage::default(), 0);
        loop {
            tries += 1;
            let most = match threads::may_wait_for_memory() {
                true => MOST_TRIES,
                false => FEW_TRIES,
            };
            if tries > most {
                // The budget is too small for the pages of all writers.
                return Err(Error::NoMemory {
                    asked: data.len() as u64,
                });
            }
            let Some(_bringing) = inode.volume.cached.keep(inode) else {
                return Err(Error::ShutDown);
            };
            self.bring_edges(&bytes)?;
            for new in inode.pages.without_folio(blocks.clone()) {
                let len = new.end - new.start;
                let memory = page_io::memory(pool, inode, len << bits)?;
                let new = NewFolio::new(new.start, len, memory);
                inode.pages.add(inode.as_reclaim(), new);
            }
            let seen = inode.pages.changes();
            let in_flight = InFlight::enter(inode);
            match self.write_pages(place, &bytes, data) {
                Ok(Wrote::Done(_)) => {
                    inode.touch(inode.volume.now_nanos());
                    drop(in_flight);
                    self.note_dirty()?;
                    // What an atomic change cannot take is reported here, and not by the commit of somebody else.
                    if inode.is_journalled() || inode.volume.has_atomic() {
                        let done = inode.volume.write_back(std::slice::from_ref(inode), blocks);
                        if done.is_err() {
                            // Reported here, so not by the next sync.
                            let _same = self.open_file().tell_page_failure();
                        }
                        done?;
                    }
                    return Ok(true);
                }
                Ok(Wrote::Moved) => return Ok(false),
                Ok(Wrote::Missing) if tries < 3 => {}
                Ok(Wrote::Missing) => {
                    // Pages go as fast as they come, as most others are dirty, or old bytes cannot be put into a folio that is lent.
                    drop(in_flight);
                    self.write_back_for_memory();
                    inode.pages.wait(seen);
                }
                Ok(Wrote::Claimed) => {
                    tries = 0;
                    drop(in_flight);
                    inode.volume.drain_all();
                    inode.pages.wait(seen);
                }
                Ok(Wrote::Lent(bytes)) => {
                    tries = 0;
                    drop(in_flight);
                    // Memory that is free then lies idle, where the next try finds it. Without any, the end of the write-back helps.
                    if inode.pages.cache().memory(bytes)?.is_none() {
                        inode.volume.drain_all();
                        inode.pages.wait(seen);
                    }
                }
                Ok(Wrote::Behind) => {
                    tries = 0;
                    drop(in_flight);
                    inode.volume.drain_all();
                    inode.pages.wait(seen);
                }
                Err(Error::WouldBlock(Wait::Commit)) => {
                    drop(in_flight);
                    inode.volume.commit_running()?;
                }
                Err(error @ Error::NoSpace { .. }) => {
                    drop(in_flight);
                    if !shortage.relieve(&inode.volume) {
                        return Err(error);
                    }
                    match shortage.is_first() {
                        true => self.make_space()?,
                        false => self.write_back_for_space(),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reserves space and changes the pages. The caller is counted in flight.
    fn write_pages(&self, place: Place, bytes: &Range<u64>, data: &[u8]) -> Result<Wrote, Error> {
        let inode = self.inode();
        let bits = inode.volume.block_size().trailing_zeros();
        let blocks = bytes.start >> bits..bytes.end.div_ceil(1 << bits);
        let extend = |extend: &dyn Fn()| match place {
            Place::At(_) => {
                extend();
                true
            }
            Place::End => inode.pending.extend_behind(bytes.start, extend),
        };
        let check = |size: u64| {
            if place == Place::End && size != bytes.start {
                return Ok(Some(Wrote::Moved));
            }
            inode.check_writable(bytes.start >= size).map(|()| None)
        };
        let (what, size) = ((bytes.start, data), || inode.size());
        if inode.is_journalled() {
            return inode.pages.write(what, Some(&[]), size, check, extend);
        }
        if inode.pages.is_dirty_all(blocks.clone()) {
            return inode.pages.write(what, None, size, check, extend);
        }
        let reserved = inode.reserve_delayed(blocks)?;
        let wrote = inode
            .pages
            .write(what, Some(&reserved.holes), size, check, extend)?;
        if let Wrote::Done(count) = wrote {
            reserved.used(count);
        }
        Ok(wrote)
    }

    /// Caches the blocks that the write changes in part, unless they are behind the end. They may not be cached yet afterwards.
    fn bring_edges(&self, bytes: &Range<u64>) -> Result<(), Error> {
        let inode = self.inode();
        let block = u64::from(inode.volume.block_size());
        let size = inode.visible_size();
        for edge in [bytes.start, bytes.end] {
            let first = edge / block;
            if edge % block != 0 && first * block < size {
                page_io::fill(self.pool(), inode, first..first + 1)?;
            }
        }
        Ok(())
    }

    fn prepare_first(&self) -> Result<(), Error> {
        match prepare_first_write(self.inode()) {
            Err(Error::NoSpace { .. }) => {
                self.make_space()?;
                prepare_first_write(self.inode())
            }
            done => done,
        }
    }

    /// Makes a writer wait while too much is dirty.
    fn throttle(&self) {
        let inode = self.inode();
        if inode.pages.cache().is_too_dirty() {
            inode.pages.cache().note_throttled();
            // Failures are noted, and reported to syncs.
            let _noted = page_io::write_back(self.pool(), std::slice::from_ref(inode), 0..u64::MAX);
            if inode.pages.cache().is_too_dirty() {
                self.write_back_for_memory();
            }
        }
    }

    /// Writes back all that is dirty in the volume, and asks other volumes of its budget for the same if that is not enough.
    fn write_back_for_memory(&self) {
        let inode = self.inode();
        let dirty = inode.volume.cached.dirty_unheld();
        let _noted = page_io::write_back(self.pool(), &dirty, 0..u64::MAX);
        if inode.pages.cache().is_too_dirty() {
            inode.pages.cache().ask_for_write_back();
        }
    }

    fn note_dirty(&self) -> Result<(), Error> {
        let inode = self.inode();
        let first = inode.volume.cached.note_dirty(inode)?;
        if first || inode.pages.cache().wants_write_back() {
            self.pool().wake_flusher();
        }
        Ok(())
    }

    /// Gives back space that is reserved for too much: everything is written back, windows are closed, deleted files are freed.
    fn make_space(&self) -> Result<(), Error> {
        let fs = &self.inode().volume;
        self.write_back_for_space();
        fs.close_windows();
        crate::delete::commit_deleted(fs)
    }

    fn write_back_for_space(&self) {
        let dirty = self.inode().volume.cached.dirty_unheld();
        let _noted = page_io::write_back(self.pool(), &dirty, 0..u64::MAX);
    }

    /// What O_DSYNC, O_SYNC and the file's flag `S` want.
    pub(super) fn make_written_durable(&self) -> Result<(), Error> {
        let (open, inode) = (self.open_file(), self.inode());
        if open.is_direct() {
            // Its requests were durable one by one.
            return Ok(());
        }
        let by_flag = inode.is_sync() && !inode.volume.has_atomic();
        match (open.is_sync() || by_flag, open.is_dsync()) {
            (true, _) => self.sync(),
            (false, true) => self.sync_data(),
            (false, false) => Ok(()),
        }
    }

    /// Reads through a bounce buffer, without the cache; through a smaller one where memory is short.
    fn read_bounced(&self, pos: u64, out: &mut [u8]) -> Result<usize, Error> {
        let logical = u64::from(self.inode().volume.device.geometry().logical);
        let mut bounce = (1 << 20).max(logical);
        let mut done = 0;
        while done < out.len() {
            let at = pos.saturating_add(done as u64);
            let start = at - at % logical;
            let want = ((out.len() - done) as u64 + (at - start))
                .next_multiple_of(logical)
                .min(bounce);
            let Some(buf) = Buf::try_zeroed(want as usize) else {
                if want <= logical {
                    return Err(Error::NoMemory { asked: want });
                }
                bounce = (want / 2).next_multiple_of(logical);
                continue;
            };
            let (buf, got) = self.call(Op::Read, start, buf, RequestFlags::default());
            let skip = (at - start) as usize;
            let got = match got {
                Err(_) if done > 0 => break,
                got => got?.saturating_sub(skip).min(out.len() - done),
            };
            out[done..done + got].copy_from_slice(&buf.as_slice()[skip..skip + got]);
            done += got;
            if got == 0 {
                break;
            }
        }
        Ok(done)
    }
}
