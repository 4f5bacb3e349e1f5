//! Directories: their blocks, in the order in which they lie; every entry is compared with the inode that it names.
//!
//! Input: the directories that the tables have. Output: findings; names counted; of every directory which one names it and which it says
//! is above it. Invariants: a directory is read by one thread, in large reads; no more blocks are read in all than twice those of the
//! volume, with those of hash trees and those that are read again for names that are there twice. Limits: names of one directory are
//! compared by 64-bit hashes first, eight bytes for each name.

use super::entries::{Entries, First};
use super::hashed::Tree;
use super::reader::Reader;
use super::report::Kind;
use super::walk::{Run, Visit, walk};
use super::{Check, STAGE_DIRECTORIES, attributes};
use crate::check::link_counts::Person;
use crate::error::Error;
use diorite_format::dir::{DirBlock, inline_parent, is_hashed};
use diorite_format::inline::InlineData;
use diorite_format::{FileBlock, FsBlock, Ino, Inode, MapKind};
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// What is known of one directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) ino: Ino,
    /// What it says is above it.
    up: AtomicU32,
    /// The directory that names it.
    above: AtomicU32,
}

/// All directories, by number.
pub(super) struct Directories {
    list: Vec<Directory>,
    /// Names in all of them.
    names: AtomicU64,
    /// Blocks that may still be read.
    left: AtomicI64,
}

impl Directories {
    pub(super) fn new(inos: &[Ino], blocks: u64) -> Directories {
        let directory = |ino: &Ino| Directory {
            ino: *ino,
            up: AtomicU32::new(0),
            above: AtomicU32::new(0),
        };
        Directories {
            list: inos.iter().map(directory).collect(),
            names: AtomicU64::new(0),
            left: AtomicI64::new(twice(blocks)),
        }
    }

    /// Takes blocks from what may still be read; says whether there were some.
    pub(super) fn spend(&self, blocks: u64) -> bool {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.left.fetch_sub(blocks, Ordering::Relaxed) > 0
    }

    /// Lets another pass read as many as the first one.
    pub(super) fn refill(&self, blocks: u64) {
        self.left.store(twice(blocks), Ordering::Relaxed);
    }

    pub(super) fn list(&self) -> &[Directory] {
        &self.list
    }

    pub(super) fn names(&self) -> u64 {
        self.names.load(Ordering::Relaxed)
    }

    /// Where in the list a directory is.
    pub(super) fn find(&self, ino: Ino) -> Option<usize> {
        self.list.binary_search_by_key(&ino, |d| d.ino).ok()
    }

    /// `by` names a directory; gives who named it before.
    pub(super) fn named(&self, ino: Ino, by: Ino) -> Option<Ino> {
        let directory = &self.list[self.find(ino)?];
        let first =
            directory
                .above
                .compare_exchange(0, by.get(), Ordering::Relaxed, Ordering::Relaxed);
        first.err().map(Ino::new)
    }
}

/// Blocks that one pass may read on a volume of so many.
fn twice(blocks: u64) -> i64 {
    i64::try_from(blocks).unwrap_or(i64::MAX / 2) * 2
}

impl Directory {
    /// What it says is above it; 0 if it does not say.
    pub(super) fn up(&self) -> Ino {
        Ino::new(self.up.load(Ordering::Relaxed))
    }

    /// The directory that names it; 0 if none does.
    pub(super) fn above(&self) -> Ino {
        Ino::new(self.above.load(Ordering::Relaxed))
    }
}

/// Reads all directories.
pub(super) fn all(check: &Check<'_>, directories: &Directories) -> Result<(), Error> {
    let begin = || (Reader::new(check.source), Entries::new());
    let count = directories.list.len();
    check
        .threads
        .each(STAGE_DIRECTORIES, count, begin, |state, n| {
            let (reader, entries) = state;
            let directory = &directories.list[n];
            match check.link_counts.get(directory.ino) {
                Some(person) => one(check, directories, reader, entries, directory, person),
                None => Ok(()),
            }
        })?;
    Ok(())
}

fn one(
    check: &Check<'_>,
    directories: &Directories,
    reader: &mut Reader<'_>,
    entries: &mut Entries,
    directory: &Directory,
    person: Person,
) -> Result<(), Error> {
    // Nobody reads it again: it is deleted as it stands, and what it says is above it has counted one link less since it lost its name.
    if person.is_orphan() && person.links() == 0 {
        return Ok(());
    }
    let Some((inode, raw)) = reader.inode(directory.ino)? else {
        return Ok(());
    };
    entries.begin(inode.ino);
    let up = if inode.map_kind() == MapKind::Inline {
        let raw = raw.to_vec();
        inline(check, directories, entries, &inode, &raw)
    } else if person.is_tangled() {
        let what = format_args!(
            "directory {}: its map goes through blocks that others have; its names were not read",
            inode.ino
        );
        check.found.inode(Kind::NotChecked, inode.ino, what);
        None
    } else {
        mapped(check, directories, reader, entries, &inode)?
    };
    directory
        .up
        .store(up.map_or(0, Ino::get), Ordering::Relaxed);
    directories
        .names
        .fetch_add(entries.names(), Ordering::Relaxed);
    if let Some(twins) = entries.twins() {
        twins_of(check, directories, reader, &inode, &twins)?;
    }
    Ok(())
}

/// A directory inside its inode; gives what it says is above it.
fn inline(
    check: &Check<'_>,
    directories: &Directories,
    entries: &mut Entries,
    dir: &Inode,
    raw: &[u8],
) -> Option<Ino> {
    let sb = &check.source.sb;
    let rest = attributes::inline_value(sb, dir, raw).unwrap_or(&[]);
    // Said when the inode was judged.
    let data = InlineData::new(dir, rest).ok()?;
    check.link_counts.count(dir.ino);
    for part in data.dir_parts().into_iter().filter(|p| !p.is_empty()) {
        match DirBlock::parse_inline(sb, dir, part) {
            Ok(block) => {
                entries.block(check, directories, &block, First::No);
            }
            Err(e) => check.found.inode(Kind::Directory, dir.ino, e),
        }
    }
    match inline_parent(sb, dir) {
        Ok(up) => {
            check.link_counts.count(up);
            Some(up)
        }
        Err(e) => {
            check.found.inode(Kind::Directory, dir.ino, e);
            None
        }
    }
}

/// A directory of blocks; gives what it says is above it.
fn mapped(
    check: &Check<'_>,
    directories: &Directories,
    reader: &mut Reader<'_>,
    entries: &mut Entries,
    dir: &Inode,
) -> Result<Option<Ino>, Error> {
    let runs = runs_of(check, reader, dir)?;
    holes(check, dir, &runs);
    let mut tree = if is_hashed(&check.source.sb, dir) {
        Tree::read(check, directories, reader, dir, &runs)?
    } else {
        None
    };
    let mut up = None;
    let sb = &check.source.sb;
    let (size, most) = (sb.block_size() as usize, reader.stripe_blocks());
    for run in &runs {
        let mut from = 0;
        while from < run.len {
            let count = (run.len - from).min(most);
            if !spend(check, directories, count) {
                return Ok(up);
            }
            let bytes = reader.run(FsBlock::new(run.at.get() + from), count)?;
            for (n, raw) in (run.file + from..).zip(bytes.chunks_exact(size)) {
                let block = FileBlock::new(n);
                if tree.as_mut().is_some_and(|t| t.is_node(block)) {
                    continue;
                }
                match DirBlock::parse(sb, dir, block, raw) {
                    Ok(parsed) => {
                        let first = if n == 0 { First::Yes } else { First::No };
                        let seen = entries.block(check, directories, &parsed, first);
                        up = up.or(seen);
                        if let Some(tree) = &mut tree {
                            tree.leaf(check, dir, block, &parsed);
                        }
                    }
                    Err(e) => check.found.inode(Kind::Directory, dir.ino, e),
                }
            }
            from += count;
        }
    }
    if let Some(tree) = &tree {
        tree.finish(check, dir, &runs);
    }
    Ok(up)
}

/// Takes blocks from what may still be read; where there are none, that is said.
pub(super) fn spend(check: &Check<'_>, directories: &Directories, blocks: u64) -> bool {
    let enough = directories.spend(blocks);
    if !enough {
        check.found.add(
            Kind::NotChecked,
            "directories have more blocks than the volume: some were not read",
        );
    }
    enough
}

/// A directory has no holes.
fn holes(check: &Check<'_>, dir: &Inode, runs: &[Run]) {
    let mut next = 0;
    let blocks = dir.size >> check.source.sb.geometry().block_bits();
    for run in runs {
        if run.file != next || run.unwritten {
            let what = if run.unwritten {
                "is not written"
            } else {
                "is missing"
            };
            let at = if run.unwritten { run.file } else { next };
            check.found.inode(
                Kind::Directory,
                dir.ino,
                format_args!("directory {}: block {at} of it {what}", dir.ino),
            );
        }
        next = run.end();
    }
    if next < blocks || runs.is_empty() {
        check.found.inode(
            Kind::Directory,
            dir.ino,
            format_args!("directory {}: block {next} of it is missing", dir.ino),
        );
    }
}

/// The blocks of a directory, in order.
pub(super) fn runs_of(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    dir: &Inode,
) -> Result<Vec<Run>, Error> {
    let mut all = Runs::default();
    walk(&check.source.sb, reader, dir, &mut all)?;
    Ok(all.runs)
}

/// All runs, of each block of the map once: a map that leads to itself is no longer than what it consists of.
#[derive(Default)]
struct Runs {
    runs: Vec<Run>,
    nodes: HashSet<FsBlock>,
}

impl Visit for Runs {
    fn node(&mut self, block: FsBlock) -> bool {
        self.nodes.insert(block)
    }

    fn run(&mut self, run: Run) {
        self.runs.push(run);
    }

    fn wrong(&mut self, _: &dyn fmt::Display) {
        // Said when the inode was judged.
    }
}

/// Says which names a directory has twice: those whose hashes it has twice.
fn twins_of(
    check: &Check<'_>,
    directories: &Directories,
    reader: &mut Reader<'_>,
    dir: &Inode,
    twins: &super::entries::Twins,
) -> Result<(), Error> {
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    let sb = &check.source.sb;
    let mut look = |parsed: &DirBlock<'_>| {
        for name in parsed.entries().map(|e| e.name).filter(|n| twins.has(n)) {
            if seen.contains(name) {
                let shown = name.escape_ascii();
                let what =
                    format_args!("directory {}: the name \"{shown}\" is in it twice", dir.ino);
                check.found.inode(Kind::Directory, dir.ino, what);
            } else {
                seen.insert(name.to_vec());
            }
        }
    };
    if dir.map_kind() == MapKind::Inline {
        let Some((_, raw)) = reader.inode(dir.ino)? else {
            return Ok(());
        };
        let rest = attributes::inline_value(sb, dir, raw).unwrap_or(&[]);
        let parts = InlineData::new(dir, rest).map(|d| d.dir_parts().map(<[u8]>::to_vec));
        for part in parts.iter().flatten() {
            if let Ok(block) = DirBlock::parse_inline(sb, dir, part) {
                look(&block);
            }
        }
        return Ok(());
    }
    for run in runs_of(check, reader, dir)? {
        for n in 0..run.len {
            if !spend(check, directories, 1) {
                return Ok(());
            }
            let raw = reader.block(FsBlock::new(run.at.get() + n))?;
            if let Ok(block) = DirBlock::parse(sb, dir, FileBlock::new(run.file + n), raw) {
                look(&block);
            }
        }
    }
    Ok(())
}
