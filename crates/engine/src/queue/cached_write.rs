//! Writes of an open file through the page cache: any position, any length, any memory.
//!
//! Input: slices. Output: counts. Invariants: a write has its space before it is acknowledged (delayed allocation), whatever the mode of
//! its data, so write-back never finds the volume full; a write that may be refused by its write-back waits for it, and tells that itself;
//! a write is counted in flight while it changes pages, so operations on the map keep it out as they keep out direct writes. Limits: pages
//! change in steps of at most 1 MiB; an append of more than that may be divided by a direct append; every call blocks.

use super::cached_space::Found;
use super::{File, page_io};
use crate::error::{Error, Wait};
use crate::inode::{Inode, Shortage};
use crate::pages::{Change, NewFolio, Told, Watched, Wrote};
use crate::threads;
use crate::turn::gate::Shard;
use diorite_block::Buf;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that one step changes, at most.
const STEP: u64 = 1 << 20;

/// How often a step begins anew, as its pages went before it could use them.
const MOST_TRIES: u32 = 10_000;
/// The same for a thread that never waits for memory.
const FEW_TRIES: u32 = 3;

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
    pub(super) fn write_lazily(
        &self,
        pos: u64,
        data: &[u8],
        watched: Option<&Watched<'_>>,
    ) -> Result<usize, Error> {
        self.write_pages_at(Place::At(pos), data, watched)
            .map(|wrote| wrote.len)
    }

    fn write_cached(&self, place: Place, data: &[u8]) -> Result<Written, Error> {
        let watched = self.watch();
        let wrote = self.write_pages_at(place, data, watched.as_ref())?;
        self.make_written_durable(watched)?;
        Ok(wrote)
    }

    fn write_pages_at(
        &self,
        place: Place,
        data: &[u8],
        watched: Option<&Watched<'_>>,
    ) -> Result<Written, Error> {
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
            match self.step(place, at, part, watched) {
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

    /// Is every step of a write on the device before the next one? What the journal or an atomic change cannot take is told by the write.
    fn writes_through(&self) -> bool {
        let inode = self.inode();
        inode.is_journalled() || inode.volume.has_atomic()
    }

    /// For a write that tells the failure of its bytes itself: also one that has to be durable.
    pub(super) fn watch(&self) -> Option<Watched<'_>> {
        let (open, inode) = (self.open_file(), self.inode());
        let waits = self.writes_through() || open.is_dsync() || inode.is_sync();
        (waits && !open.is_direct()).then(|| inode.pages.watch())
    }

    /// Writes one step; false if it was an append and its place was taken meanwhile.
    fn step(
        &self,
        place: Place,
        pos: u64,
        data: &[u8],
        watched: Option<&Watched<'_>>,
    ) -> Result<bool, Error> {
        let inode = self.inode();
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
        let told = watched.map_or(Told::Syncs, |watched| {
            watched.add(&blocks);
            Told::Caller
        });
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
            self.bring_folios(&blocks)?;
            let seen = inode.pages.changes();
            let in_flight = InFlight::enter(inode);
            match self.write_pages(place, &bytes, data, told) {
                Ok(Wrote::Done(_)) => {
                    inode.touch(inode.volume.now_nanos());
                    drop(in_flight);
                    self.note_dirty()?;
                    if let Some(watched) = watched.filter(|_| self.writes_through()) {
                        self.write_watched_back(watched)?;
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
                Ok(Wrote::Claimed | Wrote::Behind) => {
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
                Err(Error::WouldBlock(Wait::Commit)) => {
                    drop(in_flight);
                    inode.volume.commit_running()?;
                }
                Err(error @ Error::NoSpace { .. }) => {
                    drop(in_flight);
                    match self.find_space(&mut shortage, &blocks)? {
                        Found::Some => {}
                        Found::Room => tries = 0,
                        Found::Little if place != Place::End => {
                            return self.step_by_block(pos, data, watched);
                        }
                        Found::Little | Found::Nothing => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds folios where these blocks have none.
    fn bring_folios(&self, blocks: &Range<u64>) -> Result<(), Error> {
        let (inode, pool) = (self.inode(), self.pool());
        let bits = inode.volume.block_size().trailing_zeros();
        for new in inode.pages.without_folio(blocks.clone()) {
            let len = new.end - new.start;
            let memory = page_io::memory(pool, inode, len << bits)?;
            let new = NewFolio::new(new.start, len, memory);
            inode.pages.add(inode.as_reclaim(), new);
        }
        Ok(())
    }

    /// Writes one step block by block: each may become an extent of its own until its neighbours are written back, and the map has no room
    /// for so many.
    fn step_by_block(
        &self,
        pos: u64,
        data: &[u8],
        watched: Option<&Watched<'_>>,
    ) -> Result<bool, Error> {
        let block = u64::from(self.inode().volume.block_size());
        let (mut done, end) = (0, pos + data.len() as u64);
        while done < data.len() {
            let at = pos + done as u64;
            let next = (at / block + 1) * block;
            let len = (next.min(end) - at) as usize;
            self.step(Place::At(at), at, &data[done..done + len], watched)?;
            done += len;
        }
        Ok(true)
    }

    /// Reserves space and changes the pages. The caller is counted in flight.
    fn write_pages(
        &self,
        place: Place,
        bytes: &Range<u64>,
        data: &[u8],
        told: Told,
    ) -> Result<Wrote, Error> {
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
        let change = |holes| Change {
            pos: bytes.start,
            data,
            holes,
            told,
        };
        let size = || inode.size();
        if inode.pages.is_dirty_all(blocks.clone()) {
            return inode.pages.write(change(None), size, check, extend);
        }
        let reserved = inode.reserve_delayed(blocks)?;
        let what = change(Some(&reserved.holes));
        let wrote = inode.pages.write(what, size, check, extend)?;
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

    fn note_dirty(&self) -> Result<(), Error> {
        let inode = self.inode();
        let first = inode.volume.cached.note_dirty(inode)?;
        if first || inode.pages.cache().wants_write_back() {
            self.pool().wake_flusher();
        }
        Ok(())
    }

    /// Writes back what the call has written, and fails if that was lost, by whomever it was written back.
    fn write_watched_back(&self, watched: &Watched<'_>) -> Result<(), Error> {
        let (inode, (blocks, _)) = (self.inode(), watched.result());
        let done = inode.volume.write_back(std::slice::from_ref(inode), blocks);
        watched.result().1.and(done)
    }

    /// What O_DSYNC, O_SYNC and the file's flag `S` want of a write.
    pub(super) fn make_written_durable(&self, watched: Option<Watched<'_>>) -> Result<(), Error> {
        let (open, inode) = (self.open_file(), self.inode());
        if open.is_direct() {
            // Its requests were durable one by one.
            return Ok(());
        }
        if let Some(watched) = watched {
            self.write_watched_back(&watched)?;
        }
        let by_flag = inode.is_sync() && !inode.volume.has_atomic();
        match (open.is_sync() || by_flag, open.is_dsync()) {
            (true, _) => self.sync(),
            (false, true) => self.sync_data(),
            (false, false) => Ok(()),
        }
    }
}
