//! What it is: changes of every kind to files that are changed by one request at a time.
//! Input: such a file. Output: its next change, made in the calling thread while requests of other files are in flight.
//! Invariants: each request is a valid one: ranges are whole blocks where they have to be, and sizes stay below [`MOST`]. Limits:
//! files without extents are only written, truncated and punched.

use super::{Driver, LENGTHS};
use crate::error::Result;
use crate::history::{Start, Usage, What};
use crate::rng::Rng;
use crate::stamp::{SECTOR, fill};
use crate::states::{Change, KeepSize};
use diorite::{Error, Fallocate, File, OpenFlags, Volume};
use diorite_block::Buf;
use diorite_format::MapKind;
use std::ops::Range;

/// The largest size of such a file in sectors.
const MOST: u64 = (1800 << 10) / SECTOR as u64;
/// The most blocks that are collapsed or inserted at once.
const SHIFTED: u64 = 12;

/// A file that is changed by one request at a time.
pub(super) struct Alone {
    number: u32,
    start: Start,
    /// True if the file has a name.
    there: bool,
    /// May be open after the file has lost its name.
    file: Option<File>,
    sectors: u64,
}

impl Alone {
    pub(super) fn new(volume: &Volume, number: usize, start: &Start) -> Result<Alone> {
        let flags = OpenFlags::writable();
        let file = match volume.open_path(&start.path, flags) {
            Err(Error::NotFound { .. }) => None,
            other => Some(other?),
        };
        Ok(Alone {
            number: u32::try_from(number).expect("files are few"),
            start: start.clone(),
            there: file.is_some(),
            sectors: file.as_ref().map_or(0, |f| f.size() / SECTOR as u64),
            file,
        })
    }

    /// A change that is possible now; `per` is the number of sectors in a block, or in a cluster.
    fn draw(&self, rng: &mut Rng, per: u64) -> Change {
        if !self.there {
            return Change::Create;
        }
        let file = self.file.as_ref().expect("what is there is open");
        let has_extents = file.metadata().map_kind() == MapKind::Extents;
        match rng.below(if has_extents { 14 } else { 9 }) {
            0 if self.start.usage == Usage::New => Change::Unlink,
            0..=3 => Change::Write(range(rng, self.sectors + 24, *rng.clone().pick(&LENGTHS))),
            4 | 5 => Change::Truncate(self.size(rng)),
            6..=8 => Change::Punch(range(rng, self.sectors, 64)),
            9 => Change::Allocate(range(rng, self.sectors + 64, 64), keep(rng)),
            10 => Change::Zero(range(rng, self.sectors + 16, 64), keep(rng)),
            11 | 12 => self.collapse(rng, per),
            _ => self.insert(rng, per),
        }
    }

    /// A new size in sectors: mostly smaller, sometimes 0.
    fn size(&self, rng: &mut Rng) -> u64 {
        match rng.below(6) {
            0 => 0,
            1 => (self.sectors + rng.below(100)).min(MOST),
            _ => rng.below(self.sectors + 1),
        }
    }

    fn collapse(&self, rng: &mut Rng, per: u64) -> Change {
        let whole = self.sectors.saturating_sub(1) / per;
        if whole == 0 {
            return Change::Truncate(self.size(rng));
        }
        let first = rng.below(whole);
        let blocks = 1 + rng.below((whole - first).min(SHIFTED));
        Change::Collapse(first * per..(first + blocks) * per)
    }

    fn insert(&self, rng: &mut Rng, per: u64) -> Change {
        let whole = self.sectors.div_ceil(per);
        let blocks = 1 + rng.below(SHIFTED);
        if whole == 0 || self.sectors + blocks * per > MOST {
            return Change::Truncate(self.size(rng));
        }
        let first = rng.below(whole);
        Change::Insert(first * per..(first + blocks) * per)
    }

    fn make(
        &mut self,
        volume: &Volume,
        number: u32,
        change: &Change,
    ) -> std::result::Result<(), Error> {
        let bytes = |sectors: &Range<u64>| {
            let sector = SECTOR as u64;
            (
                sectors.start * sector,
                (sectors.end - sectors.start) * sector,
            )
        };
        let keep_size = |keep: &KeepSize| *keep == KeepSize::Yes;
        let (mode, sectors) = match change {
            Change::Create => {
                self.file = Some(volume.create(&self.start.path, 0o644)?);
                return Ok(());
            }
            Change::Unlink => return volume.unlink(&self.start.path),
            Change::Write(sectors) => return self.write(number, sectors),
            Change::Truncate(to) => return self.open().truncate(to * SECTOR as u64),
            Change::Allocate(sectors, keep) => {
                let keep_size = keep_size(keep);
                (Fallocate::Allocate { keep_size }, sectors)
            }
            Change::Punch(sectors) => (Fallocate::PunchHole, sectors),
            Change::Zero(sectors, keep) => {
                let keep_size = keep_size(keep);
                (Fallocate::ZeroRange { keep_size }, sectors)
            }
            Change::Collapse(sectors) => (Fallocate::CollapseRange, sectors),
            Change::Insert(sectors) => (Fallocate::InsertRange, sectors),
        };
        let (pos, len) = bytes(sectors);
        self.open().fallocate(mode, pos, len)
    }

    fn open(&self) -> &File {
        self.file.as_ref().expect("what is changed is open")
    }

    fn write(&self, number: u32, sectors: &Range<u64>) -> std::result::Result<(), Error> {
        let len = (sectors.end - sectors.start) * SECTOR as u64;
        let mut buf = Buf::zeroed(usize::try_from(len).expect("requests are small"));
        fill(buf.as_mut_slice(), self.number, sectors.start, number);
        let pos = sectors.start * SECTOR as u64;
        self.open().write_buf(pos, buf).1.map(drop)
    }

    /// Updates what is known of the file after the change.
    fn follow(&mut self, rng: &mut Rng, change: &Change) {
        match change {
            Change::Create => self.there = true,
            Change::Unlink => {
                self.there = false;
                // Otherwise it stays open until the next file is created or the volume is closed.
                if rng.one_in(2) {
                    self.file = None;
                }
            }
            _ => self.sectors = self.open().size() / SECTOR as u64,
        }
        if !self.there {
            self.sectors = 0;
        }
    }
}

fn keep(rng: &mut Rng) -> KeepSize {
    if rng.one_in(2) {
        KeepSize::Yes
    } else {
        KeepSize::No
    }
}

/// A range of sectors that begins before `end`; half of the ranges are multiples of 8 sectors.
fn range(rng: &mut Rng, end: u64, longest: u64) -> Range<u64> {
    let end = end.clamp(1, MOST - 128);
    let (mut first, mut len) = (rng.below(end), 1 + rng.below(longest));
    if rng.one_in(2) {
        (first, len) = (first - first % 8, len.next_multiple_of(8));
    }
    first..first + len
}

impl Driver<'_> {
    /// Makes the next change of one of these files, or a sync.
    pub(super) fn change_alone(&mut self) -> Result<()> {
        let which = usize::try_from(self.rng.below(self.alone.len() as u64));
        let which = which.expect("an index of a list in memory");
        let file = self.alone[which].number;
        match self.rng.below(12) {
            0 => {
                let number = self.begin(What::SyncAll)?;
                let made = self.volume.sync();
                return self.end(number, made);
            }
            1 | 2 if self.alone[which].file.is_some() => {
                let number = self.begin(What::Sync { file })?;
                let made = self.alone[which].open().sync();
                return self.end(number, made);
            }
            3 if self.alone[which].file.is_some() => {
                let open = self.alone[which].open().clone();
                return self.toggle(file, &open);
            }
            _ => {}
        }
        let unit = self.volume.superblock().geometry().cluster_size();
        let per = u64::from(unit) / SECTOR as u64;
        let change = self.alone[which].draw(&mut self.rng, per);
        let number = self.begin(What::Change {
            file,
            change: change.clone(),
        })?;
        let made = self.alone[which].make(self.volume, number, &change);
        self.alone[which].follow(&mut self.rng, &change);
        self.end(number, made)
    }
}
