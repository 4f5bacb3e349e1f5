//! The file of a loop device: what the device and its queues share.
//!
//! Input: a file. Output: geometry, how the device works, how its bytes are stored. Invariants: the size is that of the file when the
//! device was made or last refreshed; what the file has refused once is not asked of it again (rule L5). Limits: none of its own.

use super::able::Able;
use super::worker::Worker;
use crate::error::Error;
use crate::inode::Fs;
use crate::mapping::{Mapping, MappingState};
use crate::policy::LoopMode;
use crate::queue::File;
use diorite_block::{Geometry, Run, Stored};
use diorite_format::Ino;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The most mappings that one question about a range looks at, however few runs they make.
const MOST_MAPPINGS: u32 = 100_000;

#[derive(Debug)]
pub(super) struct Backing {
    pub(super) file: File,
    pub(super) name: String,
    size: AtomicU64,
    pub(super) able: Arc<Able>,
    /// Reads wholly behind the file's end: it has shrunk (rule L2).
    pub(super) beyond_end: AtomicU64,
    /// Of mode [`LoopMode::BufferedSync`].
    pub(super) worker: Worker,
    /// The file is taken for writing: [`Backing::claim`].
    claimed: AtomicBool,
}

impl Backing {
    pub(super) fn new(file: File, name: String) -> Backing {
        let able = Arc::new(Able::of_map(file.metadata().map_kind()));
        let backing = Backing {
            size: AtomicU64::new(0),
            beyond_end: AtomicU64::new(0),
            worker: Worker::new(file.clone(), able.clone()),
            able,
            claimed: AtomicBool::new(false),
            file,
            name,
        };
        backing.measure();
        backing
    }

    pub(super) fn volume(&self) -> &Arc<Fs> {
        &self.file.inode().volume
    }

    /// How requests that come now are done.
    #[inline]
    pub(super) fn mode(&self) -> LoopMode {
        self.file.pool().service().policy().loop_mode
    }

    /// Takes the size that the file has now. A last partial sector counts: it reads as the file's bytes followed by zeros (rule L2).
    pub(super) fn measure(&self) {
        let sector = u64::from(self.volume().device.geometry().logical);
        loop {
            let size = self.file.size();
            self.size.store(size.next_multiple_of(sector), Relaxed);
            // Of several that measure, one may have looked before a change and stored after the others.
            if self.file.size() == size {
                return;
            }
        }
    }

    #[inline]
    pub(super) fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    pub(super) fn geometry(&self) -> Geometry {
        let below = self.volume().device.geometry();
        let writable = self.file.open_file().check_writable().is_ok();
        let is_direct = self.mode() == LoopMode::DirectAsync;
        let able = self.able.now();
        Geometry {
            size: self.size(),
            read_only: !writable,
            discard: able.punch && writable,
            write_zeroes: able.zero && writable,
            max_transfer: below.max_transfer.min(1 << 30),
            // Rule D2: changes of the file's map and size are durable only after a sync of the file, whatever cache its device has.
            volatile_cache: true,
            // FUA is an O_DSYNC write of the file. If the device below has no volatile cache, its flushes cost nothing. Through pages it
            // is no cheaper than a flush.
            fua: is_direct && (below.fua || !below.volatile_cache),
            fua_flushes: false,
            ..below
        }
    }

    /// Takes the file for writing; the guard is the device. Returns the name of the device that has it, if another one does.
    pub(super) fn claim(&self) -> Result<(), String> {
        let mut devices = self.file.pool().service().devices.lock();
        let ino = self.file.ino();
        if let Some((_, holder)) = devices.iter().find(|(taken, _)| *taken == ino) {
            return Err(holder.clone());
        }
        devices.push((ino, self.name.clone()));
        self.claimed.store(true, Relaxed);
        Ok(())
    }

    /// How a range is stored: at most `most` runs.
    pub(super) fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, Error> {
        let inode = self.file.inode();
        let mut runs = Runs::new(range.clone(), most);
        // What lies behind the end of a file that has shrunk cannot be read: no zeros are promised there.
        let there = range.end.min(self.file.size());
        if inode.inline_data().is_some() || there <= range.start {
            runs.add(range.end, Stored::Data);
            return Ok(runs.all);
        }
        let bits = inode.volume.block_size().trailing_zeros();
        let blocks = range.start >> bits..there.div_ceil(1 << bits);
        // Before the map: what is written back meanwhile is found here, or there.
        let dirty = match inode.pages.has_unwritten() {
            true => inode.pages.unwritten_runs(&blocks),
            false => Vec::new(),
        };
        let mut next_dirty = dirty.into_iter().peekable();
        let (mut left, mut is_whole) = (MOST_MAPPINGS, true);
        let walked = |mapping: Mapping| {
            let stored = stored_as(&mapping);
            let end = mapping.start + mapping.len;
            while let Some(run) = next_dirty.peek().filter(|run| run.start < end).cloned() {
                runs.add(run.start << bits, stored);
                runs.add(run.end.min(end) << bits, Stored::Data);
                if run.end > end {
                    break;
                }
                next_dirty.next();
            }
            left -= 1;
            is_whole = runs.add(end << bits, stored) && left > 0;
            match is_whole {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        inode.walk_map(blocks, walked)?;
        if is_whole {
            runs.add(range.end, Stored::Data);
        }
        Ok(runs.all)
    }
}

fn stored_as(mapping: &Mapping) -> Stored {
    match mapping.state {
        MappingState::Hole => Stored::Hole,
        MappingState::Unwritten(_) => Stored::Zero,
        MappingState::Written(_) => Stored::Data,
    }
}

/// Runs of a range in order; those that follow each other differ.
struct Runs {
    at: u64,
    end: u64,
    most: usize,
    all: Vec<Run>,
}

impl Runs {
    fn new(range: Range<u64>, most: usize) -> Runs {
        Runs {
            at: range.start,
            end: range.end,
            most,
            all: Vec::new(),
        }
    }

    /// The bytes up to `end` are stored in this way. Returns whether there is room for more.
    fn add(&mut self, end: u64, stored: Stored) -> bool {
        let len = end.min(self.end).saturating_sub(self.at);
        if len == 0 {
            return self.at < self.end;
        }
        let is_full = self.all.len() >= self.most;
        match self.all.last_mut() {
            Some(last) if last.stored == stored => last.len += len,
            _ if is_full => {
                // Nothing is added behind what was left out.
                self.end = self.at;
                return false;
            }
            _ => self.all.push(Run { len, stored }),
        }
        self.at += len;
        self.at < self.end
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        self.worker.stop();
        if self.claimed.load(Relaxed) {
            let ino: Ino = self.file.ino();
            let mut devices = self.file.pool().service().devices.lock();
            devices.retain(|(taken, _)| *taken != ino);
        }
    }
}
