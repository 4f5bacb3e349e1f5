//! Usage files of quotas: their entries, compared with the actual usage of users, groups and projects.
//!
//! Input: the superblock, files, [`Usage`]. Output: findings. Invariants: a block of a file is read once; memory grows with the
//! references and entries of a file; a file that maps a block twice is not read. Limits: e2fsck 1.47 reads entries wherever a
//! reference leads. Here the reference must be the one for their id, because the kernel finds no other, and the magic number
//! must be right, because the kernel accepts no other.

use super::context::Check;
use super::maps::runs_of;
use super::own::is_reserved;
use super::reader::Reader;
use super::report::Kind as Of;
use super::usage::{Sum, Usage, Used};
use super::walk::Run;
use crate::link_counts::Person;
use diorite::Error;
use diorite_format::quota::{BLOCK_SIZE, Branch, Header, Kind, Tree, usage_file};
use diorite_format::{FileType, FsBlock, Ino};
use std::collections::HashMap;
use std::fmt;

/// Compares all usage files.
pub(super) fn all(check: &Check<'_>, usage: &mut Usage) -> Result<(), Error> {
    for kind in Kind::ALL {
        if let Some(ino) = usage_file(&check.source.sb, kind) {
            let mut file = File {
                check,
                kind,
                ino,
                used: usage.take(kind),
            };
            file.compare()?;
        }
    }
    Ok(())
}

struct File<'a> {
    check: &'a Check<'a>,
    kind: Kind,
    ino: Ino,
    used: HashMap<u32, Used>,
}

impl File<'_> {
    fn say(&self, what: impl fmt::Display) {
        self.check.found.inode(Of::Quota, self.ino, what);
    }

    fn compare(&mut self) -> Result<(), Error> {
        let Some(person) = self.person() else {
            let (kind, ino) = (self.kind.name(), self.ino);
            self.say(format_args!(
                "what each {kind} uses is said to be in inode {ino}, which is no file for that"
            ));
            return Ok(());
        };
        if person.is_bad() || person.is_tangled() {
            return Ok(());
        }
        let mut reader = Reader::new(self.check.source);
        let Some((inode, _)) = reader.inode(self.ino)? else {
            return Ok(());
        };
        let runs = runs_of(self.check, &mut reader, &inode)?;
        let Some(mut blocks) = Blocks::new(self.check, reader, runs) else {
            return Ok(());
        };
        let head = blocks.read(0)?;
        match Header::parse(self.kind, self.ino, inode.size, head) {
            Ok(header) => self.entries(&header, &mut blocks)?,
            Err(e) => {
                self.say(e);
                return Ok(());
            }
        }
        self.missing();
        Ok(())
    }

    /// The inode, if it may be a usage file and is a regular file.
    fn person(&self) -> Option<Person> {
        let sb = &self.check.source.sb;
        let allowed = is_reserved(self.ino) || self.ino.get() >= sb.geometry().first_ino();
        if !allowed || sb.check_ino(self.ino.get()).is_err() {
            return None;
        }
        let person = self.check.link_counts.get(self.ino)?;
        (person.kind() == Some(FileType::Regular)).then_some(person)
    }

    fn entries(&mut self, header: &Header, blocks: &mut Blocks<'_>) -> Result<(), Error> {
        let mut tree = Tree::new(header);
        while let Some(level) = tree.level() {
            for at in level {
                tree.references(at, blocks.read(at.byte())?, &mut |e| self.say(e));
            }
        }
        let leaves = tree.leaves();
        for ids in leaves.chunk_by(|a, b| a.block == b.block) {
            let at = ids.first().map_or(0, |b: &Branch| b.byte());
            for entry in tree.entries(ids, blocks.read(at)?, &mut |e| self.say(e)) {
                let mut used = Used::default();
                if let Some(known) = self.used.get_mut(&entry.id) {
                    known.met = true;
                    used = *known;
                }
                let Sum { bytes, inodes } = used.all;
                let says = Sum {
                    bytes: entry.space,
                    inodes: entry.inodes,
                };
                if !used.fits(says) {
                    self.say(format_args!(
                        "{} {} uses {bytes} bytes and {inodes} inodes; the usage file says {} and {}",
                        self.kind.name(),
                        entry.id,
                        entry.space,
                        entry.inodes
                    ));
                }
            }
        }
        Ok(())
    }

    /// Reports ids with usage but no entry.
    fn missing(&self) {
        let none = Sum::default();
        for (id, used) in self.used.iter().filter(|(_, u)| !u.met && !u.fits(none)) {
            let (kind, Sum { bytes, inodes }) = (self.kind.name(), used.all);
            self.say(format_args!(
                "{kind} {id} uses {bytes} bytes and {inodes} inodes, and has no entry in the usage file"
            ));
        }
    }
}

/// The blocks of a usage file, which are at most as large as the volume's blocks.
struct Blocks<'a> {
    reader: Reader<'a>,
    /// Sorted by file block.
    runs: Vec<Run>,
    size: u64,
    /// The volume's block that was read last.
    last: Option<(FsBlock, Box<[u8]>)>,
}

impl<'a> Blocks<'a> {
    /// None if a block is mapped twice, which was reported before.
    fn new(check: &Check<'_>, reader: Reader<'a>, mut runs: Vec<Run>) -> Option<Blocks<'a>> {
        runs.sort_unstable_by_key(|run| run.at);
        if runs
            .windows(2)
            .any(|w| w[0].at.get() + w[0].len > w[1].at.get())
        {
            return None;
        }
        runs.sort_unstable_by_key(|run| run.file);
        Some(Blocks {
            reader,
            runs,
            size: u64::from(check.source.sb.block_size()),
            last: None,
        })
    }

    /// The bytes of the file from `byte` on; zeros in unwritten space.
    fn read(&mut self, byte: u64) -> Result<&[u8], Error> {
        let block = byte / self.size;
        let after = self.runs.partition_point(|run| run.file <= block);
        let run = after.checked_sub(1).map(|n| self.runs[n]);
        let Some(run) = run.filter(|run| block < run.end() && !run.unwritten) else {
            return Ok(&[0; BLOCK_SIZE]);
        };
        let at = FsBlock::new(run.at.get() + block - run.file);
        if self.last.as_ref().is_none_or(|(last, _)| *last != at) {
            self.last = Some((at, self.reader.block(at)?.into()));
        }
        let (_, bytes) = self.last.as_ref().expect("it was just read");
        let from = usize::try_from(byte % self.size).expect("a block is in memory");
        Ok(&bytes[from..from + BLOCK_SIZE])
    }
}
