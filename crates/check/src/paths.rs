//! Paths of findings: which names lead to the inode of a finding.
//!
//! Input: a report; directories with the directories that name them. Output: paths in the report. Invariants: directories are
//! read again only if there are findings, and each once; a pass reads at most twice as many blocks as the volume has. Limits:
//! of several names the first found is used; no path for an inode without a name, or whose name was not read because of the
//! limit.

use super::attributes;
use super::context::{Check, STAGE_PATHS};
use super::maps::runs_of;
use super::parents::Directories;
use super::reader::Reader;
use super::report::Report;
use diorite::Error;
use diorite_format::dir::DirBlock;
use diorite_format::inline::InlineData;
use diorite_format::{FileBlock, FsBlock, Ino, Inode, MapKind};
use std::collections::{HashMap, HashSet};

/// Paths deeper than this are not reported.
const DEEPEST: usize = 256;

/// An inode's name, and the directory that has it.
type Names = HashMap<Ino, (Ino, Vec<u8>)>;

/// Adds paths to a report.
pub(super) fn fill(
    check: &Check<'_>,
    directories: &Directories,
    report: &mut Report,
) -> Result<(), Error> {
    let kept = || report.findings.iter().flat_map(|f| &f.kept);
    let mut wanted: HashSet<Ino> = HashSet::new();
    for ino in kept().filter_map(|f| f.ino) {
        wanted.insert(ino);
        wanted.extend(above_all(directories, ino));
    }
    wanted.remove(&Ino::ROOT);
    if wanted.is_empty() {
        return Ok(());
    }
    let names = search(check, directories, wanted)?;
    for finding in report.findings.iter_mut().flat_map(|f| &mut f.kept) {
        finding.path = finding.ino.and_then(|ino| path(&names, ino));
    }
    Ok(())
}

/// The directories above a directory.
fn above_all(directories: &Directories, ino: Ino) -> Vec<Ino> {
    let mut all = Vec::new();
    let mut at = directories.find(ino);
    while let Some(n) = at.filter(|_| all.len() < DEEPEST) {
        all.push(directories.list()[n].ino);
        at = directories.find(directories.list()[n].above());
    }
    all
}

/// Reads directories until the names of all wanted inodes and of their parents are known.
fn search(
    check: &Check<'_>,
    directories: &Directories,
    wanted: HashSet<Ino>,
) -> Result<Names, Error> {
    // For an inode that is not a directory, the directory that names it is known only now.
    let mut names = pass(check, directories, &wanted)?;
    let mut more: HashSet<Ino> = HashSet::new();
    for (by, _) in names.values() {
        more.extend(above_all(directories, *by));
    }
    more.retain(|ino| !names.contains_key(ino));
    if !more.is_empty() {
        names.extend(pass(check, directories, &more)?);
    }
    Ok(names)
}

fn pass(
    check: &Check<'_>,
    directories: &Directories,
    wanted: &HashSet<Ino>,
) -> Result<Names, Error> {
    directories.refill(check.source.sb.geometry().blocks_count());
    let begin = || (Reader::new(check.source), Names::new());
    let count = directories.list().len();
    let met = check
        .threads
        .each(STAGE_PATHS, count, begin, |(reader, names), n| {
            let ino = directories.list()[n].ino;
            if check.link_counts.get(ino).is_some_and(|p| !p.is_tangled()) {
                one((check, directories), reader, names, wanted, ino)?;
            }
            Ok(())
        })?;
    let mut all = Names::new();
    for (_, names) in met {
        for (ino, name) in names {
            let first = all.entry(ino).or_insert_with(|| name.clone());
            // Independent of which thread found it first.
            if name < *first {
                *first = name;
            }
        }
    }
    Ok(all)
}

fn one(
    (check, directories): (&Check<'_>, &Directories),
    reader: &mut Reader<'_>,
    names: &mut Names,
    wanted: &HashSet<Ino>,
    ino: Ino,
) -> Result<(), Error> {
    let Some((dir, raw)) = reader.inode(ino)? else {
        return Ok(());
    };
    let sb = &check.source.sb;
    if dir.map_kind() == MapKind::Inline {
        let rest = attributes::inline_value(sb, &dir, raw).unwrap_or(&[]);
        for part in InlineData::new(&dir, rest)
            .iter()
            .flat_map(InlineData::dir_parts)
        {
            if let Ok(block) = DirBlock::parse_inline(sb, &dir, part) {
                take(&dir, &block, names, wanted);
            }
        }
        return Ok(());
    }
    for run in runs_of(check, reader, &dir)? {
        for n in 0..run.len {
            if !directories.spend(1) {
                return Ok(());
            }
            let raw = reader.block(FsBlock::new(run.at.get() + n))?;
            if let Ok(block) = DirBlock::parse(sb, &dir, FileBlock::new(run.file + n), raw) {
                take(&dir, &block, names, wanted);
            }
        }
    }
    Ok(())
}

fn take(dir: &Inode, block: &DirBlock<'_>, names: &mut Names, wanted: &HashSet<Ino>) {
    for e in block.entries().filter(|e| wanted.contains(&e.ino)) {
        if e.name != b"." && e.name != b".." {
            names
                .entry(e.ino)
                .or_insert_with(|| (dir.ino, e.name.to_vec()));
        }
    }
}

/// The path to an inode, if names lead up to the root.
fn path(names: &Names, ino: Ino) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut at = ino;
    while at != Ino::ROOT {
        let (by, name) = names.get(&at)?;
        parts.push(name);
        at = *by;
        if parts.len() > DEEPEST {
            return None;
        }
    }
    let mut path = Vec::new();
    for part in parts.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    Some(if path.is_empty() { b"/".to_vec() } else { path })
}
