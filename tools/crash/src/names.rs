//! What it is: a tree of names that one thread changes, one operation at a time.
//! Input: operations in their order. Output: the tree after each of them; what a recovered volume shows, in the same form.
//! Invariant: an operation that the tree does not allow changes nothing. Limits: everything lies below [`TOP`]; contents of files are others' matter.

use diorite::dir::RenameFlags;
use diorite::{Error, OpenFlags, SetAttr, Volume};
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Ino};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The directory with all of it.
pub(crate) const TOP: &str = "/tree";
/// The attribute that operations set.
const ATTRIBUTE: &str = "user.crash";
const DEVICE: Rdev = Rdev { major: 8, minor: 1 };

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Make {
    /// An empty file.
    File,
    /// An empty file that has no name at first, and then gets it.
    Temporary,
    /// An empty directory.
    Dir,
    /// A symbolic link with so many bytes to its target.
    Link(u16),
    /// A character device.
    Device,
}

/// How a name is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Over what is there.
    Replace,
    /// Not over what is there.
    NoReplace,
    /// In exchange for what is there.
    Exchange,
    /// A whiteout takes its place.
    Whiteout,
}

/// One operation. Paths begin below [`TOP`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameOp {
    /// Something new.
    Make(String, Make),
    /// A second name.
    Link(String, String),
    /// A name of anything but a directory is removed.
    Unlink(String),
    /// An empty directory is removed.
    Rmdir(String),
    /// A name is moved.
    Rename(String, String, How),
    /// Permissions are set.
    Mode(String, u16),
    /// An attribute of so many bytes is set.
    Attribute(String, u16),
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thing {
    /// Names of one inode have the same number.
    id: u64,
    pub(crate) kind: FileType,
    mode: u16,
    target: usize,
    attribute: Option<usize>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) things: BTreeMap<String, Thing>,
    next: u64,
}

/// The directory that a path is in.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Tree {
    fn is_dir(&self, path: &str) -> bool {
        let thing = self.things.get(path);
        path.is_empty() || thing.is_some_and(|t| t.kind == FileType::Directory)
    }

    fn is_empty(&self, dir: &str) -> bool {
        !self.things.keys().any(|path| parent(path) == dir)
    }

    fn can_come(&self, path: &str) -> bool {
        !self.things.contains_key(path) && self.is_dir(parent(path))
    }

    fn add(&mut self, path: &str, kind: FileType, mode: u16, target: usize) {
        self.next += 1;
        let thing = Thing {
            id: self.next,
            kind,
            mode,
            target,
            attribute: None,
        };
        self.things.insert(path.to_owned(), thing);
    }

    /// Does it, if it can be done.
    pub(crate) fn apply(&mut self, op: &NameOp) -> bool {
        match op {
            NameOp::Make(path, make) => {
                let can = self.can_come(path);
                if can {
                    let (kind, mode, target) = match make {
                        Make::File | Make::Temporary => (FileType::Regular, 0o640, 0),
                        Make::Dir => (FileType::Directory, 0o750, 0),
                        Make::Link(len) => (FileType::Symlink, 0o777, usize::from(*len)),
                        Make::Device => (FileType::CharDevice, 0o600, 0),
                    };
                    self.add(path, kind, mode, target);
                }
                can
            }
            NameOp::Link(from, to) => {
                let thing = self.things.get(from).filter(|_| !self.is_dir(from));
                let thing = thing.filter(|_| self.can_come(to)).cloned();
                thing
                    .map(|thing| self.things.insert(to.clone(), thing))
                    .is_some()
            }
            NameOp::Unlink(path) => !self.is_dir(path) && self.things.remove(path).is_some(),
            NameOp::Rmdir(path) => {
                let can = !path.is_empty() && self.is_dir(path) && self.is_empty(path);
                can && self.things.remove(path).is_some()
            }
            NameOp::Rename(from, to, how) => self.rename(from, to, *how),
            NameOp::Mode(path, mode) => {
                let can = |t: &Thing| t.kind != FileType::Symlink;
                self.change(path, can, |thing| thing.mode = *mode)
            }
            NameOp::Attribute(path, len) => {
                let can = |t: &Thing| matches!(t.kind, FileType::Regular | FileType::Directory);
                self.change(path, can, |thing| thing.attribute = Some(usize::from(*len)))
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
                // What was there is gone.
                (_, Some(_)) => continue,
                _ => path,
            };
            self.things.insert(new, thing);
        }
        if how == How::Whiteout {
            self.add(from, FileType::CharDevice, 0, 1);
        }
        true
    }

    /// Each name with what can be seen of it, whatever numbers inodes have.
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
                attribute,
                ..
            } = thing;
            let same = first[&thing.id];
            let what = format!("{kind:?} {mode:o} {target} {attribute:?} {links} {same}");
            (path.as_str(), what)
        });
        told.collect()
    }

    /// The tree that a volume shows; None if it has none.
    pub(crate) fn of(volume: &Volume) -> Result<Option<Tree>, Error> {
        let top = match volume.resolve(TOP.as_bytes(), false) {
            Err(Error::NotFound { .. }) => return Ok(None),
            other => other?,
        };
        let (mut tree, mut todo) = (Tree::default(), vec![(String::new(), top)]);
        while let Some((dir, ino)) = todo.pop() {
            for entry in volume.read_dir(ino)? {
                let entry = entry?;
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
                let path = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
                let thing = look(volume, entry.ino)?;
                if thing.kind == FileType::Directory {
                    todo.push((path.clone(), entry.ino));
                }
                tree.next = tree.next.max(thing.id);
                tree.things.insert(path, thing);
            }
        }
        Ok(Some(tree))
    }
}

fn look(volume: &Volume, ino: Ino) -> Result<Thing, Error> {
    let disk = volume.open_ino(ino, OpenFlags::default())?.metadata();
    let kind = disk.file_type.unwrap_or(FileType::Socket);
    let target = match kind {
        FileType::Symlink => volume.read_link(ino)?.len(),
        FileType::CharDevice => usize::from(disk.rdev() != Some(DEVICE)),
        _ => 0,
    };
    let attribute = volume.xattrs(ino)?.into_iter();
    let attribute = attribute.filter(|x| x.name == ATTRIBUTE.as_bytes());
    Ok(Thing {
        id: u64::from(ino.get()),
        kind,
        mode: disk.mode & 0o7777,
        target,
        attribute: attribute.map(|x| x.value.len()).next(),
    })
}

impl NameOp {
    /// Asks a volume to do it.
    pub(crate) fn ask(&self, volume: &Volume) -> Result<(), Error> {
        let at = |path: &str| format!("{TOP}{path}");
        let ino = |path: &str| volume.resolve(at(path).as_bytes(), false);
        match self {
            NameOp::Make(path, make) => {
                let path = at(path);
                match make {
                    Make::File => volume.create(&path, 0o640).map(drop),
                    Make::Temporary => {
                        let file = volume.temporary(TOP, 0o640)?;
                        volume.link_file(&file, &path)
                    }
                    Make::Dir => volume.mkdir(&path, 0o750).map(drop),
                    Make::Link(len) => {
                        let target = "t".repeat(usize::from(*len));
                        volume.symlink(&target, &path).map(drop)
                    }
                    Make::Device => {
                        let made = volume.mknod(&path, FileType::CharDevice, 0o600, DEVICE);
                        made.map(drop)
                    }
                }
            }
            NameOp::Link(from, to) => volume.link(&at(from), &at(to)),
            NameOp::Unlink(path) => volume.unlink(&at(path)),
            NameOp::Rmdir(path) => volume.rmdir(&at(path)),
            NameOp::Rename(from, to, how) => {
                let flags = RenameFlags {
                    no_replace: *how == How::NoReplace,
                    exchange: *how == How::Exchange,
                    whiteout: *how == How::Whiteout,
                };
                volume.rename(&at(from), &at(to), flags)
            }
            NameOp::Mode(path, mode) => {
                let set = SetAttr {
                    permissions: Some(*mode),
                    ..SetAttr::default()
                };
                volume.set_attr(ino(path)?, &set)
            }
            NameOp::Attribute(path, len) => {
                let value = vec![b'v'; usize::from(*len)];
                volume.set_xattr(ino(path)?, ATTRIBUTE.as_bytes(), &value)
            }
        }
    }

    /// Does it change the inode that this path stands for afterwards?
    pub(crate) fn concerns(&self, path: &str) -> bool {
        match self {
            NameOp::Make(of, _) | NameOp::Mode(of, _) | NameOp::Attribute(of, _) => of == path,
            NameOp::Link(one, two) => one == path || two == path,
            NameOp::Rename(_, to, _) => to == path,
            NameOp::Unlink(_) | NameOp::Rmdir(_) => false,
        }
    }
}
