//! What it is: the model of the tree of names, in memory.
//! Input: operations. Output: the tree after each, and for each name what a reader can see of it. Invariant: an operation that
//! cannot be done changes nothing.
//! Limit: some operations that a volume allows count as impossible here: immutable and append-only inodes are left alone.

use super::extras::Extras;
use super::{How, Make, NameOp, Which};
use diorite_format::{FileType, InodeFlags};
use std::collections::{BTreeMap, HashMap};

/// The inode that a name refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thing {
    /// Equal for all names of one inode.
    pub(super) id: u64,
    pub(crate) kind: FileType,
    pub(super) mode: u16,
    pub(super) target: usize,
    pub(super) extras: Extras,
}

/// The tree. See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) things: BTreeMap<String, Thing>,
    next: u64,
}

impl Thing {
    /// True if operations may set attributes of it.
    fn has_attributes(&self) -> bool {
        matches!(self.kind, FileType::Regular | FileType::Directory) && !self.extras.is_sealed()
    }
}

/// The directory that contains a path.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Tree {
    fn is_dir(&self, path: &str) -> bool {
        let thing = self.things.get(path);
        path.is_empty() || thing.is_some_and(|t| t.kind == FileType::Directory)
    }

    fn is_sealed(&self, path: &str) -> bool {
        self.things.get(path).is_some_and(|t| t.extras.is_sealed())
    }

    fn is_empty(&self, dir: &str) -> bool {
        !self.things.keys().any(|path| parent(path) == dir)
    }

    fn can_come(&self, path: &str) -> bool {
        !self.things.contains_key(path) && self.is_dir(parent(path))
    }

    pub(super) fn insert(&mut self, path: String, thing: Thing) {
        self.next = self.next.max(thing.id);
        self.things.insert(path, thing);
    }

    fn add(&mut self, path: &str, kind: FileType, (mode, extras): (u16, Extras), target: usize) {
        let id = self.next + 1;
        let thing = Thing {
            id,
            kind,
            mode,
            target,
            extras,
        };
        self.insert(path.to_owned(), thing);
    }

    /// The properties of the directory that contains a path; default ones for the top.
    fn extras_above(&self, path: &str) -> Extras {
        let above = self.things.get(parent(path));
        above.map_or_else(Extras::default, |dir| dir.extras.clone())
    }

    fn make(&mut self, path: &str, make: Make) -> bool {
        if !self.can_come(path) {
            return false;
        }
        let (kind, mode, target) = match make {
            Make::File | Make::Temporary => (FileType::Regular, 0o640, 0),
            Make::Dir => (FileType::Directory, 0o750, 0),
            Make::Link(len) => (FileType::Symlink, 0o777, usize::from(len)),
            Make::Device => (FileType::CharDevice, 0o600, 0),
        };
        let (extras, mode) = match make {
            Make::Temporary => (Extras::default(), mode),
            _ => self.extras_above(path).inherit(kind, mode),
        };
        self.add(path, kind, (mode, extras), target);
        true
    }

    /// Performs the operation if it can be done; returns whether it was done.
    pub(crate) fn apply(&mut self, op: &NameOp) -> bool {
        match op {
            NameOp::Make(path, make) => self.make(path, *make),
            NameOp::Link(from, to) => {
                let can = |t: &&Thing| t.kind != FileType::Directory && !t.extras.is_sealed();
                let thing = self.things.get(from).filter(can);
                let thing = thing.filter(|_| self.can_come(to)).cloned();
                thing
                    .map(|thing| self.things.insert(to.clone(), thing))
                    .is_some()
            }
            NameOp::Unlink(path) => {
                !self.is_dir(path) && !self.is_sealed(path) && self.things.remove(path).is_some()
            }
            NameOp::Rmdir(path) => {
                let can = !path.is_empty() && self.is_dir(path) && self.is_empty(path);
                can && self.things.remove(path).is_some()
            }
            NameOp::Rename(from, to, how) => self.rename(from, to, *how),
            NameOp::Mode(path, mode) => {
                let can = |t: &Thing| t.kind != FileType::Symlink && !t.extras.is_sealed();
                self.change(path, can, |thing| {
                    thing.mode = *mode;
                    thing.extras.follow_mode(*mode);
                })
            }
            NameOp::Attribute(path, number, len) => {
                let can = |t: &Thing| {
                    let there = t.extras.attributes.contains_key(number);
                    t.has_attributes() && (len.is_some() || there)
                };
                self.change(path, can, |thing| {
                    match len {
                        Some(len) => thing.extras.attributes.insert(*number, *len as usize),
                        None => thing.extras.attributes.remove(number),
                    };
                })
            }
            NameOp::Acl(path, which, list) => {
                let can = |t: &Thing| {
                    let there = match which {
                        Which::Access => t.extras.access,
                        Which::Default => t.extras.default,
                    };
                    let is_dir = t.kind == FileType::Directory;
                    let may = is_dir || *which == Which::Access;
                    t.has_attributes() && may && (list.is_some() || there.is_some())
                };
                self.change(path, can, |thing| {
                    thing.mode = thing.extras.set_list(*which, *list, thing.mode);
                })
            }
            NameOp::Flags(path, flags) => {
                let of_dirs = InodeFlags::DIRSYNC.bits();
                let of_files = InodeFlags::IMMUTABLE.with(InodeFlags::APPEND).bits();
                let can = |t: &Thing| match t.kind {
                    FileType::Directory => flags & of_files == 0,
                    // Flags of an immutable or append-only file can change only if it loses that flag.
                    FileType::Regular => {
                        flags & of_dirs == 0 && !(t.extras.is_sealed() && flags & of_files != 0)
                    }
                    _ => false,
                };
                self.change(path, can, |thing| thing.extras.flags = *flags)
            }
            NameOp::Inside(path, len) => {
                let can = |t: &Thing| t.kind == FileType::Regular && t.extras.has_room();
                self.change(path, can, |thing| thing.extras.inside = usize::from(*len))
            }
        }
    }

    fn change(
        &mut self,
        path: &str,
        can: impl Fn(&Thing) -> bool,
        change: impl Fn(&mut Thing),
    ) -> bool {
        let Some(id) = self.things.get(path).filter(|t| can(t)).map(|t| t.id) else {
            return false;
        };
        let all = self.things.values_mut().filter(|t| t.id == id);
        all.for_each(change);
        true
    }

    fn rename(&mut self, from: &str, to: &str, how: How) -> bool {
        let inside = |path: &str, of: &str| path.starts_with(&format!("{of}/"));
        let Some(moved) = self.things.get(from).cloned() else {
            return false;
        };
        if from == to || inside(to, from) || !self.is_dir(parent(to)) {
            return false;
        }
        if self.is_sealed(from) || self.is_sealed(to) {
            return false;
        }
        let can = match (self.things.get(to), how) {
            (None, how) => how != How::Exchange,
            (Some(there), _) if there.id == moved.id => false,
            (Some(_), How::NoReplace) => false,
            (Some(_), How::Exchange) => !inside(from, to),
            (Some(_), How::Replace | How::Whiteout) => {
                let kinds = (self.is_dir(from), self.is_dir(to));
                kinds == (false, false) || kinds == (true, true) && self.is_empty(to)
            }
        };
        if !can {
            return false;
        }
        let all = std::mem::take(&mut self.things);
        let exchange = how == How::Exchange;
        for (path, thing) in all {
            let below = |of: &str| match path.strip_prefix(of) {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => Some(rest.to_owned()),
                _ => None,
            };
            let new = match (below(from), below(to)) {
                (Some(rest), _) => format!("{to}{rest}"),
                (_, Some(rest)) if exchange => format!("{from}{rest}"),
                // The replaced name is gone.
                (_, Some(_)) => continue,
                _ => path,
            };
            self.things.insert(new, thing);
        }
        if how == How::Whiteout {
            let extras = self.extras_above(from);
            let (extras, mode) = extras.inherit(FileType::CharDevice, 0);
            self.add(from, FileType::CharDevice, (mode, extras), 1);
        }
        true
    }

    /// For each name what can be seen of it, without the inode numbers.
    pub(crate) fn seen(&self) -> BTreeMap<&str, String> {
        let (mut first, mut names) = (HashMap::new(), HashMap::new());
        for (path, thing) in &self.things {
            first.entry(thing.id).or_insert(path);
            *names.entry(thing.id).or_insert(0u32) += 1;
        }
        let told = self.things.iter().map(|(path, thing)| {
            let dirs = self.things.iter();
            let dirs = dirs.filter(|(p, t)| parent(p) == path && t.kind == FileType::Directory);
            let links = match thing.kind {
                FileType::Directory => 2 + dirs.count() as u32,
                _ => names[&thing.id],
            };
            let Thing {
                kind,
                mode,
                target,
                extras,
                ..
            } = thing;
            let same = first[&thing.id];
            let what = format!("{kind:?} {mode:o} {target} {extras:?} {links} {same}");
            (path.as_str(), what)
        });
        told.collect()
    }
}
