//! What it is: edits of files that are written through the page cache and directly.
//! Input: such a file. Output: its next edit, made in the calling thread while requests of other files are in flight, or a sync of one of
//! the kinds. Invariants: one edit at a time; sizes stay below [`MOST`]. Limits: direct writes are whole sectors; a file ends inside a
//! sector only on volumes with a journal, because e2fsck rounds sizes up.

use super::Driver;
use crate::edits::{Edit, Way};
use crate::error::Result;
use crate::history::{Start, What};
use crate::rng::Rng;
use crate::stamp::{SECTOR, fill};
use diorite::dir::RenameFlags;
use diorite::{Error, File, OpenFlags, Volume};
use diorite_block::Buf;
use diorite_format::features::Compat;
use std::ops::Range;

/// The largest size of such a file in sectors.
const MOST: u64 = 400;
/// Upper limits of a write's length in sectors, one of which is chosen at random.
const LENGTHS: [u64; 6] = [1, 2, 8, 8, 24, 64];

/// One open of the file for each way to write.
struct Handles {
    plain: File,
    dsync: File,
    sync: File,
}

/// A file that is edited.
pub(super) struct Editor {
    number: u32,
    path: String,
    handles: Handles,
}

impl Handles {
    fn open(volume: &Volume, path: &str) -> std::result::Result<Handles, Error> {
        let open = |dsync, sync| {
            let flags = OpenFlags::writable().dsync(dsync).sync(sync);
            volume.open_path(path, flags)
        };
        Ok(Handles {
            plain: open(false, false)?,
            dsync: open(true, false)?,
            sync: open(false, true)?,
        })
    }
}

/// Writes all of `data` through the page cache.
fn write_cached(file: &File, pos: u64, data: &[u8]) -> std::result::Result<(), Error> {
    let done = file.write_bytes(pos, data)?;
    match done == data.len() {
        true => Ok(()),
        false => Err(Error::Invalid(format!("{done} of {} bytes", data.len()))),
    }
}

impl Editor {
    pub(super) fn new(volume: &Volume, number: usize, start: &Start) -> Result<Editor> {
        Ok(Editor {
            number: u32::try_from(number).expect("files are few"),
            path: start.path.clone(),
            handles: Handles::open(volume, &start.path)?,
        })
    }

    fn sectors(&self) -> u64 {
        self.handles.plain.size().div_ceil(SECTOR as u64)
    }

    /// An edit that is possible now. With `odd`, the file may end anywhere.
    fn draw(&self, rng: &mut Rng, odd: bool) -> Edit {
        let sectors = self.sectors();
        match rng.below(16) {
            0 => Edit::Truncate(rng.below(sectors + 1) * SECTOR as u64),
            1 => Edit::Truncate((sectors + rng.below(20)).min(MOST) * SECTOR as u64),
            2 | 3 => Edit::Punch(bytes(&range(rng, sectors.max(1)))),
            4 | 5 => Edit::Replace {
                size: end(rng, odd, 1 + rng.clone().below(100)),
                synced: rng.one_in(2),
            },
            6..=9 => self.write(rng, sectors..(sectors + 1), odd),
            10 => self.write(rng, sectors + rng.clone().below(16)..MOST, odd),
            _ => self.write(rng, rng.clone().below(sectors + 1)..MOST, odd),
        }
    }

    /// A write that begins at the first of these sectors.
    fn write(&self, rng: &mut Rng, from: Range<u64>, odd: bool) -> Edit {
        let first = from.start.min(MOST - 1);
        let last = (first + 1 + rng.below(*rng.clone().pick(&LENGTHS))).min(MOST);
        let way = match rng.one_in(3) {
            true => Way::Direct,
            false => Way::Cached,
        };
        let grows = last * SECTOR as u64 > self.handles.plain.size() + SECTOR as u64;
        let odd = odd && grows && way == Way::Cached;
        Edit::Write {
            bytes: first * SECTOR as u64..end(rng, odd, last),
            way,
            durable: rng.one_in(5),
        }
    }

    fn make(
        &mut self,
        volume: &Volume,
        (number, with_times): (u32, bool),
        edit: &Edit,
    ) -> std::result::Result<(), Error> {
        match edit {
            Edit::Truncate(to) => self.handles.plain.truncate(*to),
            Edit::Punch(bytes) => {
                let mode = diorite::Fallocate::PunchHole;
                let len = bytes.end - bytes.start;
                self.handles.plain.fallocate(mode, bytes.start, len)
            }
            Edit::Write {
                bytes,
                way,
                durable,
            } => {
                let handle = match (durable, with_times) {
                    (false, _) => &self.handles.plain,
                    (true, false) => &self.handles.dsync,
                    (true, true) => &self.handles.sync,
                };
                let data = self.data(number, bytes);
                match way {
                    Way::Direct => handle.write_buf(bytes.start, data).1.map(drop),
                    Way::Cached if bytes.start == handle.size() && with_times => handle
                        .append_bytes(data.as_slice())
                        .map(|at| debug_assert_eq!(at, bytes.start)),
                    Way::Cached => write_cached(handle, bytes.start, data.as_slice()),
                }
            }
            Edit::Replace { size, synced } => {
                let path = format!("{}.new", self.path);
                let new = volume.create(&path, 0o644)?;
                write_cached(&new, 0, self.data(number, &(0..*size)).as_slice())?;
                match (synced, with_times) {
                    (false, _) => {}
                    (true, false) => new.sync_data()?,
                    (true, true) => new.sync()?,
                }
                volume.rename(&path, &self.path, RenameFlags::default())?;
                self.handles = Handles::open(volume, &self.path)?;
                Ok(())
            }
        }
    }

    fn data(&self, number: u32, bytes: &Range<u64>) -> Buf {
        let len = usize::try_from(bytes.end - bytes.start).expect("requests are small");
        let mut buf = Buf::zeroed(len);
        let first = bytes.start / SECTOR as u64;
        fill(buf.as_mut_slice(), self.number, first, number);
        buf
    }

    /// A sync of the file by one of its handles.
    fn sync(&self, rng: &mut Rng) -> std::result::Result<(), Error> {
        match rng.below(3) {
            0 => self.handles.plain.sync(),
            1 => self.handles.plain.sync_data(),
            _ => self.handles.dsync.sync_data(),
        }
    }

    /// A read that brings pages, or has dirty ones written back.
    fn read(&self, rng: &mut Rng) -> std::result::Result<(), Error> {
        let sectors = range(rng, self.sectors().max(1));
        let len = usize::try_from(sectors.end - sectors.start).expect("ranges are short") * SECTOR;
        let (pos, mut buf) = (sectors.start * SECTOR as u64, Buf::zeroed(len));
        match rng.one_in(2) {
            true => self.handles.plain.read_buf(pos, buf).1.map(drop),
            false => self
                .handles
                .plain
                .read_bytes(pos, buf.as_mut_slice())
                .map(drop),
        }
    }
}

/// A range of sectors that begins before `end`.
fn range(rng: &mut Rng, end: u64) -> Range<u64> {
    let first = rng.below(end);
    first..first + 1 + rng.below(32)
}

fn bytes(sectors: &Range<u64>) -> Range<u64> {
    sectors.start * SECTOR as u64..sectors.end * SECTOR as u64
}

/// The end of this many sectors, or with `odd` half of the time any byte of the last one.
fn end(rng: &mut Rng, odd: bool, sectors: u64) -> u64 {
    let less = match odd && rng.one_in(2) {
        true => rng.below(SECTOR as u64),
        false => 0,
    };
    sectors * SECTOR as u64 - less
}

impl Driver<'_> {
    /// Makes the next edit of one of these files, a sync, or a read.
    pub(super) fn edit(&mut self) -> Result<()> {
        let which = usize::try_from(self.rng.below(self.editors.len() as u64));
        let which = which.expect("an index of a list in memory");
        let file = self.editors[which].number;
        match self.rng.below(16) {
            0 => {
                let number = self.begin(What::SyncAll)?;
                let made = self.volume.sync();
                return self.end(number, made);
            }
            1 | 2 => {
                let number = self.begin(What::Sync { file })?;
                let made = self.editors[which].sync(&mut self.rng);
                return self.end(number, made);
            }
            3 => return Ok(self.editors[which].read(&mut self.rng)?),
            _ => {}
        }
        let compat = self.volume.superblock().features().compat;
        let odd = compat.has(Compat::HAS_JOURNAL);
        let edit = self.editors[which].draw(&mut self.rng, odd);
        let with_times = self.rng.one_in(2);
        let number = self.begin(What::Edit {
            file,
            edit: edit.clone(),
        })?;
        let made = self.editors[which].make(self.volume, (number, with_times), &edit);
        self.end(number, made)
    }
}
