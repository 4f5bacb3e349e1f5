//! Walks through directories, for commands that visit whole trees: a directory comes before its contents, and names are in byte
//! order.
//!
//! Input: a path. Output: one [`Visit`] after the other. Invariants: the walk keeps its own stack, and enters no inode twice,
//! even if the image is corrupt; a file that cannot be read is returned with its error. Limits: it holds the names that are
//! left in each directory between the start and the present place, and one path, so memory grows with the depth and not with
//! its square.

use crate::images::image;
use crate::words::names::join;
use diorite::{At, Error, File, Volume};
use diorite_format::{FileType, Ino};
use std::collections::HashSet;

/// See the module.
pub(crate) struct TreeWalk<'a> {
    volume: &'a Volume,
    seen: HashSet<Ino>,
    stack: Vec<Level>,
    /// The path of the deepest open directory; the paths of the others are prefixes of it.
    path: Vec<u8>,
}

/// An open directory: the names that are left in it.
struct Level {
    dir: Ino,
    /// The length of its path.
    len: usize,
    left: std::vec::IntoIter<Name>,
}

/// A name in a directory.
pub(crate) struct Name {
    pub(crate) name: Vec<u8>,
    ino: Ino,
    /// The type that the directory entry gives, if it gives one.
    pub(crate) kind: Option<FileType>,
}

/// A file that was visited.
pub(crate) struct Visit {
    pub(crate) path: Vec<u8>,
    /// The directory that it was met in; none where the walk began.
    pub(crate) dir: Option<Ino>,
    /// The last part of the path; the whole path at the start of the walk.
    pub(crate) name: Vec<u8>,
    /// 0 at the start of the walk.
    pub(crate) depth: usize,
    /// It is the last name in its directory.
    pub(crate) is_last: bool,
    pub(crate) file: Result<File, Error>,
}

impl Visit {
    pub(crate) fn is_dir(&self) -> bool {
        self.file
            .as_ref()
            .is_ok_and(|file| file.metadata().is_dir())
    }

    /// The name itself, for who changes it: those of an encrypted directory may be any bytes, and their path leads elsewhere.
    pub(crate) fn at(&self) -> At<'_> {
        at(self.dir, &self.path, &self.name)
    }
}

/// A name that was met in a directory, or where the walk began.
pub(crate) fn at<'n>(dir: Option<Ino>, path: &'n [u8], name: &'n [u8]) -> At<'n> {
    dir.map_or(At::Path(path), |dir| At::In(dir, name))
}

/// Directories that were visited and whose turn comes after their contents, each in the one before it. They have one path together, so
/// memory grows with the depth and not with its square.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Without their paths, but with the lengths of these.
    visits: Vec<(usize, Visit)>,
    path: Vec<u8>,
}

impl Waiting {
    pub(crate) fn push(&mut self, mut visit: Visit) {
        self.path = std::mem::take(&mut visit.path);
        self.visits.push((self.path.len(), visit));
    }

    /// The deepest one, if it lies at this depth or below it.
    pub(crate) fn pop(&mut self, depth: usize) -> Option<Visit> {
        let (len, mut visit) = self.visits.pop_if(|(_, visit)| visit.depth >= depth)?;
        self.path.truncate(len);
        visit.path.clone_from(&self.path);
        Some(visit)
    }
}

impl<'a> TreeWalk<'a> {
    pub(crate) fn new(volume: &'a Volume) -> TreeWalk<'a> {
        TreeWalk {
            volume,
            seen: HashSet::new(),
            stack: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Starts a walk; a symbolic link is not followed.
    pub(crate) fn begin(&mut self, path: &[u8]) -> Visit {
        self.seen.clear();
        Visit {
            path: path.to_vec(),
            dir: None,
            name: path.to_vec(),
            depth: 0,
            is_last: true,
            file: image::find(self.volume, path, false),
        }
    }

    /// Continues the walk with those names of the directory just visited that the caller selects; reports names that cannot be
    /// read.
    pub(crate) fn enter(
        &mut self,
        dir: &Visit,
        wanted: impl Fn(&Name) -> bool,
        mut fail: impl FnMut(Error),
    ) {
        let Ok(file) = &dir.file else { return };
        let ino = file.ino();
        if !self.seen.insert(ino) {
            let why =
                format!("inode {ino} was met already: the directories form a circle; run e2fsck");
            return fail(Error::Damaged(why));
        }
        let entries = match self.volume.read_dir(ino) {
            Ok(entries) => entries,
            Err(error) => return fail(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(e) if e.name == b"." || e.name == b".." => {}
                Ok(e) => names.push(Name {
                    name: e.name,
                    ino: e.ino,
                    kind: e.file_type,
                }),
                Err(error) => fail(error),
            }
        }
        names.retain(wanted);
        names.sort_by(|a, b| a.name.cmp(&b.name));
        self.path.clone_from(&dir.path);
        self.stack.push(Level {
            dir: ino,
            len: dir.path.len(),
            left: names.into_iter(),
        });
    }

    /// The next visit; none at the end.
    pub(crate) fn next(&mut self) -> Option<Visit> {
        loop {
            let depth = self.stack.len();
            let level = self.stack.last_mut()?;
            match level.left.next() {
                Some(next) => {
                    return Some(Visit {
                        path: join(&self.path[..level.len], &next.name),
                        dir: Some(level.dir),
                        name: next.name,
                        depth,
                        is_last: level.left.len() == 0,
                        file: image::file(self.volume, next.ino),
                    });
                }
                None => drop(self.stack.pop()),
            }
        }
    }
}
