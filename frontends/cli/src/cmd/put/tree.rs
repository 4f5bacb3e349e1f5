//! Directories: the walk through those of the host or of another image, and their copies in the image.
//!
//! Input: a directory and the path of its copy. Output: calls of `node` for every entry. Invariants: the walk keeps its own
//! stack; a directory gets its owner, mode and times when the last file in it is finished. Limits: a descriptor per level of
//! the host, 1,000 levels; the names of a directory are read at once.

use super::source::{Attributes, Name, Source};
use super::{Putter, Trouble};
use crate::output::report::Reason;
use crate::words::names::join;
use diorite_format::Ino;
use std::rc::Rc;

/// The maximum depth of directories.
pub(super) const DEEPEST: usize = 1_000;

/// A directory, and its copy.
pub(super) struct Dir {
    pub(super) source: Source,
    pub(super) path: Vec<u8>,
    ino: Ino,
    attributes: Attributes,
    /// It was created for this copy.
    is_new: bool,
    parent: Option<Rc<Dir>>,
}

/// One level of the walk.
struct Frame {
    dir: Rc<Dir>,
    names: std::vec::IntoIter<Name>,
}

impl Putter<'_> {
    /// Copies a SOURCE to a path, and everything below it.
    pub(super) fn top(&mut self, source: Source, path: Vec<u8>) {
        let device = source.device();
        if let Some(dir) = self.item(source, path, None) {
            self.walk(dir, device);
        }
    }

    /// Copies the contents of a SOURCE into an existing directory, which gets the metadata of SOURCE.
    pub(super) fn merge(&mut self, source: Source, path: Vec<u8>) {
        let (device, found) = (source.device(), source.found.clone());
        match self.existing(source, path.clone()) {
            Ok(dir) => self.walk(dir, device),
            Err(trouble) => self.fail(&found, &path, trouble),
        }
    }

    fn existing(&mut self, source: Source, path: Vec<u8>) -> Result<Rc<Dir>, Trouble> {
        let ino = self.volume.resolve(&path, true)?;
        self.dir(source, path, (ino, false), None)
    }

    /// A directory whose copy exists.
    pub(super) fn dir(
        &mut self,
        source: Source,
        path: Vec<u8>,
        (ino, is_new): (Ino, bool),
        parent: Option<Rc<Dir>>,
    ) -> Result<Rc<Dir>, Trouble> {
        let attributes = self.meta.read(&source).map_err(Trouble::Source)?;
        Ok(Rc::new(Dir {
            source,
            path,
            ino,
            attributes,
            is_new,
            parent,
        }))
    }

    fn walk(&mut self, top: Rc<Dir>, device: u64) {
        let mut stack = Vec::new();
        stack.extend(self.enter(top));
        while let Some(frame) = stack.last_mut() {
            let dir = frame.dir.clone();
            let name = frame.names.next().filter(|_| !self.over);
            let Some(name) = name else {
                drop(stack.pop());
                self.release(dir);
                continue;
            };
            let below = self.entry(&dir, &name, device);
            drop(dir);
            let Some(below) = below else { continue };
            if stack.len() < DEEPEST {
                stack.extend(self.enter(below));
            } else {
                let why =
                    format!("more than {DEEPEST} directories deep; what is in it is not copied");
                let trouble = Trouble::Refused(Reason::new(why));
                self.fail(&below.source.found, &below.path, trouble);
                self.release(below);
            }
        }
    }

    /// Begins to walk a directory; none if it cannot be read.
    fn enter(&mut self, dir: Rc<Dir>) -> Option<Frame> {
        let mut wrong = Vec::new();
        let names = dir.source.names(&mut wrong);
        for reason in wrong {
            self.fail(&dir.source.found, &dir.path, Trouble::Source(reason));
        }
        match names {
            Ok(names) => {
                let names = names.into_iter();
                Some(Frame { dir, names })
            }
            Err(reason) => {
                self.fail(&dir.source.found, &dir.path, Trouble::Source(reason));
                self.release(dir);
                None
            }
        }
    }

    /// Copies one entry; returns a directory whose contents are to be copied.
    fn entry(&mut self, dir: &Rc<Dir>, name: &Name, device: u64) -> Option<Rc<Dir>> {
        let path = join(&dir.path, &name.name);
        match Source::in_dir(&dir.source, name) {
            Ok(source) => {
                let elsewhere = source.device() != device;
                if elsewhere && self.args.copies.one_file_system && !source.is_dir() {
                    return None;
                }
                let below = self.item(source, path, Some(dir.clone()))?;
                if elsewhere && self.args.copies.one_file_system {
                    // The copy of the mount point exists and stays empty.
                    self.release(below);
                    return None;
                }
                Some(below)
            }
            Err(reason) => {
                let found = dir.source.found_below(name);
                self.fail(&found, &path, Trouble::Source(reason));
                None
            }
        }
    }

    /// Drops a reference to a directory; the last one sets the metadata of its copy.
    pub(super) fn release(&mut self, dir: Rc<Dir>) {
        let mut next = Some(dir);
        while let Some(dir) = next.and_then(Rc::into_inner) {
            let set = self
                .meta
                .set(self.volume, dir.ino, &dir.attributes, dir.is_new);
            if let Err(error) = set {
                self.fail(&dir.source.found, &dir.path, error.into());
            }
            next = dir.parent;
        }
    }
}
