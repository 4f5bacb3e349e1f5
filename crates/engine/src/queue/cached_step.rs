//! One step of a write through the page cache: the part of a write whose pages change together.
//!
//! Input: a range of bytes, and what they become. Output: how many of them are in the cache, and on the device if the write may still be
//! refused there. Invariants: a step has its space before its pages change; it is counted in flight while they change, so an operation on
//! the map excludes it in the same way as direct writes; a step that began before an atomic change is written back either when the atomic
//! change begins or by the step itself. Limits: at most 1 MiB; blocks.

use super::cached_space::Found;
use super::{File, page_io};
use crate::error::{Error, Wait};
use crate::inode::{Inode, Shortage};
use crate::pages::{Change, NewFolio, Told, Watched, Wrote};
use crate::threads;
use crate::turn::gate::Shard;
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
pub(super) enum Place {
    At(u64),
    End,
}

/// A part of a write.
struct Step<'a> {
    place: Place,
    bytes: Range<u64>,
    blocks: Range<u64>,
    data: &'a [u8],
    told: Told<'a>,
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
    /// Bytes that one step changes: with a small budget less, as all its pages must be there at once.
    pub(super) fn most_per_step(&self) -> u64 {
        let inode = self.inode();
        let block = u64::from(inode.volume.block_size());
        let most = inode.pages.cache().cache_bytes() / 16;
        (most / block * block).clamp(block, STEP.max(block))
    }

    /// Is every step of a write on the device before the next one? What the journal or an atomic change cannot take is told by the write.
    fn writes_through(&self) -> bool {
        let inode = self.inode();
        inode.is_journalled() || inode.volume.cached.writes_through()
    }

    /// Writes one step. Returns how many bytes it has written: none if it was an append and its place was taken meanwhile; fewer than all
    /// if there was no space behind them.
    pub(super) fn step(
        &self,
        (place, pos): (Place, u64),
        data: &[u8],
        watched: Option<&Watched<'_>>,
        shortage: &mut Shortage,
    ) -> Result<usize, Error> {
        let (blocks, bytes) = self.prepare_step(pos, data)?;
        // Of its own: what one step has lost does not concern those before it.
        let own = self.writes_through().then(|| self.inode().pages.watch());
        let step = Step {
            place,
            bytes,
            blocks,
            data,
            told: own.as_ref().or(watched).map_or(Told::Syncs, Told::Caller),
        };
        let mut tries = 0;
        loop {
            tries += 1;
            check_tries(tries, data.len())?;
            match self.try_step(&step) {
                Ok((Wrote::Done(_), _)) => {
                    self.end_step(&step, own.as_ref(), watched.is_some())?;
                    return Ok(data.len());
                }
                Ok((Wrote::Moved, _)) => return Ok(0),
                Ok((Wrote::Missing, _)) if tries < 3 => {}
                Ok((met, seen)) => {
                    if self.wait_for_pages(&met, seen)? {
                        tries = 0;
                    }
                }
                Err(Error::WouldBlock(Wait::Commit)) => self.inode().volume.commit_running()?,
                Err(error @ Error::NoSpace { .. }) => {
                    match self.find_space(shortage, &step.blocks)? {
                        Found::Some => {}
                        Found::Room => tries = 0,
                        Found::Little if place != Place::End => {
                            return self.step_by_block(&step, watched, shortage);
                        }
                        Found::Little | Found::Nothing => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Prepares the file for a step. Returns its blocks and its bytes.
    fn prepare_step(&self, pos: u64, data: &[u8]) -> Result<(Range<u64>, Range<u64>), Error> {
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
        Ok((blocks, bytes))
    }

    /// Brings the pages of a step, and changes them if nothing is in the way. With the count of changes that others wait for, before that.
    fn try_step(&self, step: &Step<'_>) -> Result<(Wrote, u64), Error> {
        let inode = self.inode();
        let Some(_bringing) = inode.volume.cached.keep(inode) else {
            return Err(Error::ShutDown);
        };
        self.bring_edges(&step.bytes)?;
        self.bring_folios(&step.blocks)?;
        let seen = inode.pages.changes();
        let _in_flight = InFlight::enter(inode);
        let wrote = self.write_pages(step)?;
        if let Wrote::Done(_) = wrote {
            inode.touch(inode.volume.now_nanos());
        }
        Ok((wrote, seen))
    }

    /// Waits until something has changed that a step has met. True if a step may meet it any number of times.
    fn wait_for_pages(&self, met: &Wrote, seen: u64) -> Result<bool, Error> {
        let inode = self.inode();
        match met {
            // Pages go as fast as they come, as most others are dirty, or old bytes cannot be put into a folio that is lent.
            Wrote::Missing => self.write_back_for_memory(),
            // Memory that is free then lies idle, where the next try finds it. Without any, the end of the write-back helps.
            Wrote::Lent(bytes) if inode.pages.cache().memory(*bytes)?.is_some() => return Ok(true),
            _ => {
                inode.volume.drain_all();
            }
        }
        inode.pages.wait(seen);
        Ok(*met != Wrote::Missing)
    }

    /// Call when the pages of a step have changed.
    fn end_step(
        &self,
        step: &Step<'_>,
        own: Option<&Watched<'_>>,
        is_watched: bool,
    ) -> Result<(), Error> {
        self.note_dirty()?;
        match own {
            Some(own) => self.write_watched_back(own),
            // An atomic change has begun since the step did, perhaps before it was noted as dirty.
            None if !is_watched && self.writes_through() => {
                let inode = self.inode();
                let volume = &inode.volume;
                volume.write_back(std::slice::from_ref(inode), step.blocks.clone())
            }
            None => Ok(()),
        }
    }

    /// Writes one step block by block: each may become an extent of its own until its neighbours are written back, and the map has no room
    /// for so many.
    fn step_by_block(
        &self,
        step: &Step<'_>,
        watched: Option<&Watched<'_>>,
        shortage: &mut Shortage,
    ) -> Result<usize, Error> {
        let block = u64::from(self.inode().volume.block_size());
        let mut done = 0;
        while done < step.data.len() {
            // Failures are noted, and reported to syncs or to those who write.
            let _noted = self.inode().write_back();
            let at = step.bytes.start + done as u64;
            let next = (at / block + 1) * block;
            let len = (next.min(step.bytes.end) - at) as usize;
            let part = &step.data[done..done + len];
            match self.step((Place::At(at), at), part, watched, shortage) {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                // The write goes on there, and meets it again.
                Err(_) => break,
            }
        }
        Ok(done)
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

    /// Reserves space and changes the pages. The caller is counted in flight.
    fn write_pages(&self, step: &Step<'_>) -> Result<Wrote, Error> {
        let inode = self.inode();
        let (place, bytes) = (step.place, &step.bytes);
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
            data: step.data,
            holes,
            told: step.told,
        };
        let size = || inode.size();
        if inode.pages.is_dirty_all(step.blocks.clone()) {
            return inode.pages.write(change(None), size, check, extend);
        }
        let reserved = inode.reserve_delayed(step.blocks.clone())?;
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
}

/// Refuses one try more for a step of `asked` bytes, if the budget is too small for the pages of all writers.
fn check_tries(tries: u32, asked: usize) -> Result<(), Error> {
    let most = match threads::may_wait_for_memory() {
        true => MOST_TRIES,
        false => FEW_TRIES,
    };
    match tries > most {
        true => Err(Error::NoMemory {
            asked: asked as u64,
        }),
        false => Ok(()),
    }
}
