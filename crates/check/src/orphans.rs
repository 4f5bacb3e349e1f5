//! Orphaned inodes: the list through the inodes, and the orphan file.
//!
//! Input: the superblock. Output: [`Orphans`]. Invariants: a cyclic list ends; every number was checked. Limits: orphans are
//! not damage: the next writer processes them, and a note says so. Sizes of orphans and names in orphaned directories are not
//! judged, since both will be deleted.

use super::reader::Reader;
use super::report::{Collector, Kind};
use super::walk::{Run, Visit, walk};
use crate::source::Source;
use diorite::Error;
use diorite_format::features::RoCompat;
use diorite_format::{FsBlock, Ino, Inode, orphan};
use std::collections::HashSet;
use std::fmt;

/// See the module.
#[derive(Default)]
pub(super) struct Orphans {
    known: HashSet<Ino>,
}

impl Orphans {
    pub(super) fn has(&self, ino: Ino) -> bool {
        !self.known.is_empty() && self.known.contains(&ino)
    }

    /// Finds all orphans.
    pub(super) fn find(source: &Source, found: &Collector) -> Result<Orphans, Error> {
        let mut orphans = Orphans::default();
        let mut reader = Reader::new(source);
        orphans.list(source, &mut reader, found)?;
        if let Some(file) = source.sb.orphan_file() {
            orphans.file(source, &mut reader, found, file)?;
        }
        if !orphans.known.is_empty() {
            found.stale(|stale| stale.recovery = true);
            let n = orphans.known.len();
            found.note(format_args!("orphaned inodes: {n}; they are dealt with when the volume is next opened for writing"));
        }
        Ok(orphans)
    }

    /// Reads the list: the superblock has the first inode, the deletion time of each has the next one.
    fn list(
        &mut self,
        source: &Source,
        reader: &mut Reader<'_>,
        found: &Collector,
    ) -> Result<(), Error> {
        let (mut next, mut before) = (source.sb.last_orphan(), Ino::new(0));
        let first_ino = source.sb.geometry().first_ino();
        while !next.is_none() {
            let wrong = |what: &str| {
                let by = if before.is_none() {
                    "the superblock".to_owned()
                } else {
                    format!("inode {before}")
                };
                found.inode(
                    Kind::Orphan,
                    next,
                    format_args!("list of orphans: {by} names inode {next}, {what}"),
                );
            };
            if next.get() < first_ino || source.sb.check_ino(next.get()).is_err() {
                wrong("which is no ordinary inode of the volume");
                return Ok(());
            }
            if !self.known.insert(next) {
                wrong("which is on the list already");
                return Ok(());
            }
            let Some((inode, _)) = reader.inode(next)? else {
                wrong("which is damaged");
                return Ok(());
            };
            if inode.mode == 0 {
                wrong("which is not in use");
                return Ok(());
            }
            (before, next) = (next, Ino::new(inode.dtime));
        }
        Ok(())
    }

    fn file(
        &mut self,
        source: &Source,
        reader: &mut Reader<'_>,
        found: &Collector,
        ino: Ino,
    ) -> Result<(), Error> {
        if source.sb.check_ino(ino.get()).is_err() {
            found.inode(
                Kind::Orphan,
                ino,
                format_args!("the orphan file is inode {ino}, which is outside the volume"),
            );
            return Ok(());
        }
        let Some((inode, _)) = reader.inode(ino)? else {
            found.inode(
                Kind::Orphan,
                ino,
                format_args!("the orphan file, inode {ino}, is damaged"),
            );
            return Ok(());
        };
        let before = self.known.len();
        let whole = self.slots(source, reader, found, &inode)?;
        let says = source.sb.features().ro_compat.has(RoCompat::ORPHAN_PRESENT);
        if self.known.len() != before && !says {
            found.inode(
                Kind::Orphan,
                ino,
                "the orphan file has entries, and the superblock says that it has none",
            );
        }
        // A user keeps the mark while the volume is in use. It counts nothing that is there, and whoever writes next takes it off.
        if self.known.len() == before && says && whole && source.unmounted {
            let what = "the superblock says that the orphan file has entries (orphan_present), and it has none";
            found.inode(Kind::Counters, ino, what);
        }
        Ok(())
    }

    /// Reads the blocks of the file. False if one of them is damaged.
    fn slots(
        &mut self,
        source: &Source,
        reader: &mut Reader<'_>,
        found: &Collector,
        file: &Inode,
    ) -> Result<bool, Error> {
        let mut blocks = Blocks::new(source);
        walk(&source.sb, reader, file, &mut blocks)?;
        let expected = file.size >> source.sb.geometry().block_bits();
        let mut whole = blocks.whole && file.size.is_multiple_of(u64::from(source.sb.block_size()));
        if !whole
            || !file.is_file()
            || blocks.list.len() as u64 != expected
            || blocks.list.is_empty()
        {
            let (ino, has) = (file.ino, blocks.list.len());
            let what = format_args!(
                "the orphan file, inode {ino}, has {has} blocks in its map; expected a regular file of {expected}"
            );
            found.inode(Kind::Orphan, ino, what);
        }
        for at in blocks.list {
            let raw = reader.block(at)?;
            match orphan::parse_block(&source.sb, file, at, raw) {
                Ok(list) => {
                    self.known.extend(list);
                    let Some(stored) = orphan::stray_checksum(&source.sb, raw) else {
                        continue;
                    };
                    let what = format_args!(
                        "orphan file, block {at}: its checksum is {stored:#010x}, and the volume has none (metadata_csum)"
                    );
                    found.of(Kind::Orphan, file.ino, at, what);
                }
                Err(e) => found.of(Kind::Orphan, file.ino, at, e),
            }
            whole = false;
        }
        Ok(whole)
    }
}

/// The blocks of a file, at most as many as the volume has.
struct Blocks {
    list: Vec<FsBlock>,
    left: u64,
    /// The blocks begin at file block 0 and have no holes.
    whole: bool,
}

impl Blocks {
    fn new(source: &Source) -> Blocks {
        Blocks {
            list: Vec::new(),
            // The kernel's orphan file has at most 512 blocks.
            whole: true,
            left: source.sb.geometry().blocks_count().min(4096),
        }
    }
}

impl Visit for Blocks {
    fn node(&mut self, _: FsBlock) -> bool {
        let go = self.left > 0;
        self.left = self.left.saturating_sub(1);
        go
    }

    fn run(&mut self, run: Run) {
        self.whole &= run.file == self.list.len() as u64;
        let len = run.len.min(self.left);
        self.left -= len;
        self.list
            .extend((run.at.get()..run.at.get() + len).map(FsBlock::new));
    }

    fn wrong(&mut self, _: &dyn fmt::Display) {
        // Reported when the inode is judged.
    }
}
