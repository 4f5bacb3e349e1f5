//! The disk in a qcow2 file: bios become calls that block.
//!
//! Input: an open file, bios. Output: the bios, ended. Invariants: any number of threads may call; after a flush, tables and data are
//! durable; a panic below is an error of its bio, and nothing is done with the file afterwards; the mark is taken off when nobody writes
//! and everything is durable, and stays if a flush has failed. Limits: no discard.

use crate::mark::Mark;
use crate::storage::{Below, Watch};
use diorite_block::{Bio, BioError, BioErrorKind, BioOp, Geometry, Run, RunsBios, Stored};
use imago::{FormatAccess, Mapping};
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many zeros are written at once.
const ZEROS: u64 = 1 << 20;
/// How much is written at once: the largest cluster. The library allocates all of it before it writes any, and other writes may come
/// between.
const PIECE: u64 = 2 << 20;

/// See the module.
pub(crate) struct Disk {
    access: FormatAccess<Below>,
    geometry: Geometry,
    cluster: u64,
    /// Of a file that is written, unless it is of version 2.
    mark: Option<Mark>,
    /// A call has panicked: tables in memory may be half changed.
    broken: AtomicBool,
    /// A flush has failed: tables in memory may not be in the file.
    lost: AtomicBool,
    turns: Option<Turns>,
    pub(crate) below: Watch,
}

/// How a file is written whose clusters become free when they are overwritten. The library may make such a cluster a table of clusters
/// while the entry that led to it has changed in memory alone. So changes take turns, each begins with all entries in the file, and none
/// makes a second table.
pub(crate) struct Turns {
    turn: Mutex<()>,
    /// Bytes of the disk that one table of clusters leads to.
    span: u64,
}

impl Turns {
    pub(crate) fn new(cluster: u64) -> Turns {
        Turns {
            turn: Mutex::new(()),
            span: cluster * (cluster / 8),
        }
    }
}

impl RunsBios for Disk {
    fn run(&self, bio: &mut Bio) {
        bio.result = match self.broken.load(Ordering::Acquire) {
            true => Err(BioError::new(BioErrorKind::Gone)),
            false => self.geometry.check(bio).and_then(|()| self.guarded(bio)),
        };
    }
}

impl Disk {
    /// A disk of at most `size` bytes, in clusters of a file.
    pub(crate) fn new(
        access: FormatAccess<Below>,
        (size, cluster): (u64, u64),
        read_only: bool,
        mark: Option<Mark>,
        below: Watch,
        turns: Option<Turns>,
    ) -> Disk {
        Disk {
            geometry: Geometry {
                physical: 4096,
                volatile_cache: true,
                write_zeroes: true,
                read_only,
                ..Geometry::plain(access.size().min(size))
            },
            access,
            cluster,
            mark,
            broken: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            turns,
            below,
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The tables of a file that somebody made are walked by code that somebody wrote.
    fn guarded(&self, bio: &mut Bio) -> Result<(), BioError> {
        match catch_unwind(AssertUnwindSafe(|| self.transfer(bio))) {
            Ok(done) => done.map_err(|error| BioError::from(&error)),
            Err(_) => {
                self.broken.store(true, Ordering::Release);
                Err(BioError::new(BioErrorKind::Io))
            }
        }
    }

    fn transfer(&self, bio: &mut Bio) -> io::Result<()> {
        let mut at = bio.pos;
        let fits = bio.len == bio.buf.len() as u64;
        let _marked = match (&self.mark, bio.op) {
            (Some(mark), BioOp::Write | BioOp::WriteZeroes | BioOp::WriteZeroesUnmap) => {
                Some(mark.writing()?)
            }
            _ => None,
        };
        match bio.op {
            BioOp::Flush => self.flush(),
            BioOp::Read | BioOp::Write if !fits => Err(io::ErrorKind::InvalidInput.into()),
            BioOp::Read => {
                for part in bio.buf.parts_mut() {
                    let len = part.len() as u64;
                    self.access.read(part, at)?;
                    at += len;
                }
                Ok(())
            }
            BioOp::Write => {
                for part in bio.buf.parts() {
                    let start = at;
                    self.change(start, part.len() as u64, PIECE, |at, len| {
                        let from = (at - start) as usize;
                        self.access.write(&part[from..from + len as usize], at)
                    })?;
                    at += part.len() as u64;
                }
                match bio.flags.fua {
                    true => self.flush(),
                    false => Ok(()),
                }
            }
            BioOp::WriteZeroes | BioOp::WriteZeroesUnmap => {
                self.change(at, bio.len, u64::MAX, |at, len| self.write_zeroes(at, len))
            }
            BioOp::Discard => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Runs a change of a range in pieces of at most so many bytes, in turns if it has to be.
    fn change(
        &self,
        mut at: u64,
        len: u64,
        most: u64,
        each: impl Fn(u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let end = at + len;
        let span = most.min(self.turns.as_ref().map_or(u64::MAX, |turns| turns.span));
        while at < end {
            let len = (span - at % span).min(end - at);
            let _turn = match &self.turns {
                Some(turns) => Some(self.take(turns)?),
                None => None,
            };
            each(at, len)?;
            at += len;
        }
        Ok(())
    }

    fn take<'t>(&self, turns: &'t Turns) -> io::Result<MutexGuard<'t, ()>> {
        let turn = turns.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.access.flush()?;
        Ok(turn)
    }

    /// The library makes an entry for a whole cluster of zeros for a part of one, too, if the rest is no data; between its look at the rest
    /// and the entry, another thread may write there. So it sees whole clusters alone.
    fn write_zeroes(&self, at: u64, len: u64) -> io::Result<()> {
        let end = at + len;
        let from = at.next_multiple_of(self.cluster).min(end);
        // The last cluster ends with the disk.
        let is_last = end == self.access.size();
        let until = if is_last {
            end
        } else {
            end - end % self.cluster
        }
        .max(from);
        self.write_as_data(at, from - at)?;
        if from < until {
            match self.access.write_zeroes(from, until - from) {
                Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                    self.write_as_data(from, until - from)?;
                }
                done => done?,
            }
        }
        self.write_as_data(until, end - until)
    }

    /// Overwrites what reads as something else than zeros: of parts of clusters, and of version 2, which has no clusters of zeros.
    fn write_as_data(&self, mut at: u64, len: u64) -> io::Result<()> {
        let end = at + len;
        let zeros = vec![0; len.min(ZEROS) as usize];
        while at < end {
            let (mapping, len) = self.access.get_mapping(at, end - at)?;
            let len = match mapping {
                Mapping::Zero { .. } if len > 0 => len,
                _ => {
                    let len = if len == 0 { end - at } else { len };
                    let len = len.min(ZEROS).min(end - at);
                    self.access.write(&zeros[..len as usize], at)?;
                    len
                }
            };
            at += len.min(end - at);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let flushed = self.access.flush().and_then(|()| self.access.sync());
        self.lost.fetch_or(flushed.is_err(), Ordering::AcqRel);
        flushed
    }

    /// Makes everything durable, and takes the mark off, unless tables may be damaged.
    pub(crate) fn rest(&self) -> io::Result<()> {
        let mut damages = [&self.broken, &self.lost].into_iter();
        let is_damaged = damages.any(|it| it.load(Ordering::Acquire)) || self.below.is_lost();
        match &self.mark {
            Some(mark) if !is_damaged => mark.rest(|| self.flush()),
            _ => Ok(()),
        }
    }

    /// How a range inside the disk is stored: see `Device::stored`.
    pub(crate) fn stored(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Run>> {
        if self.broken.load(Ordering::Acquire) {
            return Err(io::Error::other("it is broken"));
        }
        let mut runs: Vec<Run> = Vec::new();
        let mut at = range.start;
        while at < range.end && runs.len() < most {
            let (mapping, len) = self.access.get_mapping(at, range.end - at)?;
            // A mapping without a length is the end of what is known.
            let len = match len {
                0 => range.end - at,
                len => len.min(range.end - at),
            };
            let (stored, len) = match mapping {
                Mapping::Zero { explicit: true, .. } => (Stored::Zero, len),
                Mapping::Zero { .. } => (Stored::Hole, len),
                Mapping::Raw {
                    storage, offset, ..
                } => storage.run(offset, len)?,
                _ => (Stored::Data, len),
            };
            match runs.last_mut() {
                Some(last) if last.stored == stored => last.len += len,
                _ => runs.push(Run { len, stored }),
            }
            at += len;
        }
        Ok(runs)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // If that fails the mark stays, and says so to whoever opens the file.
        let _ = catch_unwind(AssertUnwindSafe(|| self.rest()));
    }
}
