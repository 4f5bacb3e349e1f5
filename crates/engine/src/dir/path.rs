//! Resolves a path to an inode, through symbolic links.
//!
//! Input: a path from the volume's root, with or without a leading slash. Output: the inode. Invariants: ".." leads to the parent that the
//! directory stores, and never above the root; a link's target is resolved from the root if it begins with a slash, else from the link's
//! directory; what a slash or "." follows must be a directory. Limits: 40 links; a target must be shorter than a block.

use super::{lookup, place_of};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::{Fs, Inode};
use diorite_format::dir::MAX_NAME;
use diorite_format::{FileType, Ino, MapKind};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// The most symbolic links that one path may contain.
const MOST_LINKS: u32 = 40;

/// See [`crate::Volume::resolve`].
pub(crate) fn resolve(fs: &Arc<Fs>, path: &[u8], follow: bool) -> Result<Arc<Inode>, Error> {
    // Links on the way note their times of access; this keeps the list of noted times short.
    fs.bound_noted_times_best_effort();
    let shown = || String::from_utf8_lossy(path).into_owned();
    // What is left of the path: all of it, or a link's target with what followed the link.
    let (mut text, mut at) = (Cow::Borrowed(path), 0);
    let mut links = 0;
    let mut here = fs.inode(Ino::ROOT)?;
    while let Some(part) = next_part(&text, at) {
        at = part.end;
        let name = match &text[part] {
            // A slash at the end.
            b"" => b".",
            name => name,
        };
        if !here.is_dir() {
            return Err(Error::NotADirectory { path: shown() });
        }
        if name == b"." {
            continue;
        }
        if name.len() > MAX_NAME {
            return Err(Error::NameTooLong { path: shown() });
        }
        let next = lookup::locked(&here, name)?.ok_or_else(|| Error::NotFound { path: shown() })?;
        let is_last = at == text.len();
        if next.file_type() != Some(FileType::Symlink) || is_last && !follow {
            here = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Error::SymlinkLoop { path: shown() });
        }
        let mut target = link_target(&next)?;
        if target.first() == Some(&b'/') {
            here = fs.inode(Ino::ROOT)?;
        }
        // What follows begins with a slash.
        target.extend_from_slice(&text[at..]);
        (text, at) = (Cow::Owned(target), 0);
    }
    Ok(here)
}

/// The next name of a path from the byte `at` on; none at its end. It is empty if only slashes follow: they count as "." behind the names.
fn next_part(path: &[u8], at: usize) -> Option<Range<usize>> {
    let left = path.get(at..).filter(|left| !left.is_empty())?;
    let start = at + left.iter().position(|c| *c != b'/').unwrap_or(left.len());
    let name = &path[start..];
    let len = name.iter().position(|c| *c == b'/').unwrap_or(name.len());
    Some(start..start + len)
}

/// The target of a symbolic link. Blocks while metadata is read.
pub(crate) fn link_target(link: &Arc<Inode>) -> Result<Vec<u8>, Error> {
    if link.file_type() != Some(FileType::Symlink) {
        return Err(Error::Invalid(format!(
            "inode {} is not a symbolic link",
            link.ino
        )));
    }
    link.check_data_access()?;
    link.note_read();
    match link.disk().map_kind() {
        MapKind::FastSymlink => Ok(link.disk().fast_symlink()?.to_vec()),
        MapKind::Inline => {
            let target = link.inline_data();
            Ok(target.map_or_else(Vec::new, |target| target.to_vec()))
        }
        _ => long_target(link),
    }
}

/// Reads a target that is too long for the inode, from its block.
fn long_target(link: &Inode) -> Result<Vec<u8>, Error> {
    let volume = &link.volume;
    let size = link.size();
    let damaged = |why: &str| {
        Error::Damaged(format!(
            "symbolic link inode {}: {why}; run e2fsck",
            link.ino
        ))
    };
    if size >= u64::from(volume.block_size()) {
        return Err(damaged("its target is longer than a block"));
    }
    let at = place_of(link, 0)?.ok_or_else(|| damaged("its target is a hole"))?;
    let raw = volume
        .cache
        .read(&volume.blocking, at, Kind::Data, |_| Ok(()))?;
    let target = raw[..usize::try_from(size).expect("smaller than a block")].to_vec();
    if target.contains(&0) {
        Err(damaged("a NUL byte in its target"))
    } else {
        Ok(target)
    }
}
