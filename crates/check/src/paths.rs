//! Paths of what was found: which name leads to the inode of a finding.
//!
//! Input: a report; directories with who names them. Output: paths in it. Invariants: directories are read again only if
//! there is something to name, and each once; no more blocks are read in a pass than twice those of the volume. Limits: of several names the
//! first that is met; nothing for what no name leads to, or whose name was not read any more.

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

/// Deeper than this no path is told.
const DEEPEST: usize = 256;

/// The name of an inode and the directory that has it.
type Names = HashMap<Ino, (Ino, Vec<u8>)>;

/// Puts paths into a report.
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

/// Reads directories until the names of all that is wanted, and of what is above it, are known.
fn search(
    check: &Check<'_>,
    directories: &Directories,
    wanted: HashSet<Ino>,
) -> Result<Names, Error> {
    // Of what is no directory it is known only now who names it.
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
            // Whatever thread met it.
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
