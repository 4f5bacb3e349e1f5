//! Reads the blocks of directories in the order in which they lie on the volume, and compares every entry with its inode.
//!
//! Input: the directories found in the inode tables. Output: findings; names counted; for every directory the directory that
//! names it, and the parent that its ".." names. Invariants: a directory is read by one thread, in large reads; in total at
//! most twice as many blocks are read as the volume has, including those of hash trees and those read again for duplicate
//! names. Limits: names of one directory are first compared by 64-bit hashes, eight bytes per name.

use super::attributes;
use super::context::{Check, STAGE_DIRECTORIES};
use super::entries::{Entries, First};
use super::hashed::Tree;
use super::maps::runs_of;
use super::parents::{Directories, Directory, spend};
use super::reader::Reader;
use super::report::Kind;
use super::walk::Run;
use crate::link_counts::Person;
use diorite::Error;
use diorite_format::dir::{DirBlock, inline_parent, is_hashed};
use diorite_format::inline::InlineData;
use diorite_format::{FileBlock, FsBlock, Ino, Inode, MapKind};
use std::collections::HashSet;

/// Checks all directories.
pub(super) fn all(check: &Check<'_>, directories: &Directories) -> Result<(), Error> {
    let begin = || (Reader::new(check.source), Entries::new());
    let count = directories.list().len();
    check
        .threads
        .each(STAGE_DIRECTORIES, count, begin, |state, n| {
            let (reader, entries) = state;
            let directory = &directories.list()[n];
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
    // An orphaned directory is not read: it is deleted as it is, and its former parent's link count was already decremented
    // when its name was removed.
    if person.is_orphan() && person.links() == 0 {
        return Ok(());
    }
    let Some((inode, raw)) = reader.inode(directory.ino)? else {
        return Ok(());
    };
    entries.begin(&inode);
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
    directory.says_above(up.map_or(0, Ino::get));
    directories.add_names(entries.names());
    if let Some(twins) = entries.twins() {
        twins_of(check, directories, reader, &inode, &twins)?;
    }
    Ok(())
}

/// Checks an inline directory; returns its parent.
fn inline(
    check: &Check<'_>,
    directories: &Directories,
    entries: &mut Entries,
    dir: &Inode,
    raw: &[u8],
) -> Option<Ino> {
    let sb = &check.source.sb;
    let rest = attributes::inline_value(sb, dir, raw).unwrap_or(&[]);
    // Reported when the inode was judged.
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

/// Checks a directory with blocks; returns the parent from "..".
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

/// Reports holes: a directory has none.
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

/// Reports duplicate names of a directory: reads again the names whose hashes occur twice.
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
