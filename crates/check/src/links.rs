//! Link counts and the way to the root: every inode must have as many names as it says, and every directory must be below the
//! root.
//!
//! Input: stored link counts and names counted; directories with the directories that name them. Output: findings. Invariant:
//! the way up is followed once per directory, so that cycles end. Limits: of a tree that is not connected to the root only the
//! top is reported.

use super::context::Check;
use super::parents::{Directories, Directory};
use super::report::Kind;
use crate::link_counts::Person;
use diorite_format::Ino;
use diorite_format::features::RoCompat;

/// From this many links on, a directory does not count its links.
const MOST_LINKS: u32 = 65_000;

/// Compares names found with stored link counts, group by group.
pub(super) fn counts(check: &Check<'_>) {
    for group in 0..check.source.groups.len() {
        for (ino, person, found) in check.link_counts.of_group(group) {
            one(check, ino, person, found);
        }
    }
}

fn one(check: &Check<'_>, ino: Ino, person: Person, found: u32) {
    if person.is_own() {
        return;
    }
    let links = person.links();
    if found == 0 && !person.is_dir() && !person.is_orphan() {
        let what = if person.is_ea() {
            "no attribute has its value in it"
        } else {
            "is in use, and no name leads to it"
        };
        check
            .found
            .inode(Kind::Unreachable, ino, format_args!("inode {ino}: {what}"));
        return;
    }
    let many = check
        .source
        .sb
        .features()
        .ro_compat
        .has(RoCompat::DIR_NLINK);
    let uncounted = person.is_dir() && links == 1 && many && found >= MOST_LINKS;
    if links != found && !uncounted && !(person.is_dir() && found == 0) {
        let what = format_args!("inode {ino}: says that it has {links} links; {found} were found");
        check.found.inode(Kind::Links, ino, what);
    }
}

/// How far the way up from a directory is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown,
    BeingGone,
    Known,
}

/// Checks that every directory is below the root, and that ".." is the directory that names it.
pub(super) fn ways(check: &Check<'_>, directories: &Directories) {
    let list = directories.list();
    if directories.find(Ino::ROOT).is_none() {
        check.found.inode(
            Kind::Unreachable,
            Ino::ROOT,
            "there is no root directory: inode 2 is none",
        );
        return;
    }
    let mut ways = vec![Way::Unknown; list.len()];
    for from in 0..list.len() {
        let mut path = Vec::new();
        let mut at = Some(from);
        while let Some(n) = at.filter(|n| ways[*n] == Way::Unknown) {
            ways[n] = Way::BeingGone;
            path.push(n);
            at = above(check, directories, &list[n]);
        }
        if let Some(n) = at.filter(|n| ways[*n] == Way::BeingGone) {
            let ino = list[n].ino;
            check.found.inode(
                Kind::Unreachable,
                ino,
                format_args!("directory {ino}: is below itself"),
            );
        }
        path.into_iter().for_each(|n| ways[n] = Way::Known);
    }
    list.iter().for_each(|d| dotdot(check, d));
}

/// The directory above this one; a directory without one that is not the root is reported as lost.
fn above(check: &Check<'_>, directories: &Directories, directory: &Directory) -> Option<usize> {
    let ino = directory.ino;
    if ino == Ino::ROOT {
        return None;
    }
    let above = directories.find(directory.above());
    let orphan = check.link_counts.get(ino).is_some_and(Person::is_orphan);
    if above.is_none() && !orphan {
        let what = format_args!("directory {ino}: is in use, and no name leads to it");
        check.found.inode(Kind::Unreachable, ino, what);
    }
    above
}

/// ".." must be the directory that has the name.
fn dotdot(check: &Check<'_>, directory: &Directory) {
    let (ino, up) = (directory.ino, directory.up());
    let expected = if ino == Ino::ROOT {
        Ino::ROOT
    } else {
        directory.above()
    };
    if !up.is_none() && !expected.is_none() && up != expected {
        let what = format_args!(
            "directory {ino}: \"..\" is inode {up}; expected {expected}, which names it"
        );
        check.found.inode(Kind::Directory, ino, what);
    }
}
