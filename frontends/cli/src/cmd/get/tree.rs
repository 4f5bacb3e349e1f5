//! Directories: the walk through them, and the paths of those that were entered.
//!
//! Input: a directory of the image and its copy. Output: calls of `node` for every entry. Invariants: the walk keeps its own
//! stack; a directory's times and mode are set when the last file in it is finished; below one PATH no directory inode is
//! entered twice. Limits: a descriptor per level, 1,000 levels; a name per directory is kept to the end.

use super::Copier;
use crate::images::image;
use crate::output::report::Reason;
use crate::words::names::{join, unusable};
use diorite::dir::{DirEntry, ReadDir};
use diorite_format::{Ino, Inode};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::rc::Rc;

/// The maximum depth of directories.
const DEEPEST: usize = 1_000;
/// No parent.
const TOP: u32 = u32::MAX;

/// A host directory that copies go into.
pub(super) struct Dir {
    pub(super) fd: OwnedFd,
    /// Its number in [`Names`].
    pub(super) id: u32,
    parent: Option<Rc<Dir>>,
    /// The inode that it is a copy of; none for a directory that existed.
    source: Option<Inode>,
}

impl Dir {
    pub(super) fn new(
        fd: OwnedFd,
        id: u32,
        parent: Option<Rc<Dir>>,
        source: Option<Inode>,
    ) -> Rc<Dir> {
        Rc::new(Dir {
            fd,
            id,
            parent,
            source,
        })
    }
}

/// Every directory that was entered, by number: gives paths for messages and finds the first copies for hard links.
#[derive(Default)]
pub(super) struct Names {
    dirs: Vec<Named>,
}

struct Named {
    parent: u32,
    name: Box<[u8]>,
    /// For a top directory: its copy on the host, whose name may differ.
    copy: Option<(OwnedFd, Shown)>,
}

/// The form of a top directory's path on the host.
pub(super) enum Shown {
    /// The path of the directory itself.
    Itself(Vec<u8>),
    /// The path of the only copy in the directory.
    Below(Vec<u8>),
}

impl Names {
    /// Adds a top directory: its path in the image, its copy.
    pub(super) fn add_top(
        &mut self,
        path: &[u8],
        fd: &OwnedFd,
        shown: Shown,
    ) -> Result<u32, Reason> {
        self.push(TOP, path, Some((fd, shown)))
    }

    /// Adds a directory below another one.
    pub(super) fn add(
        &mut self,
        parent: u32,
        name: &[u8],
        (host, fd): (&[u8], &OwnedFd),
    ) -> Result<u32, Reason> {
        let renamed = || (fd, Shown::Itself(self.host_path(parent, host)));
        self.push(parent, name, (host != name).then(renamed))
    }

    fn push(
        &mut self,
        parent: u32,
        name: &[u8],
        copy: Option<(&OwnedFd, Shown)>,
    ) -> Result<u32, Reason> {
        let copy = copy.map(|(fd, shown)| fd.try_clone().map(|fd| (fd, shown)));
        let copy = copy
            .transpose()
            .map_err(|e| Reason::new(format!("no descriptor is left: {e}")))?;
        let id = u32::try_from(self.dirs.len()).map_err(|_| Reason::new("too many directories"))?;
        let name = name.into();
        self.dirs.push(Named { parent, name, copy });
        Ok(id)
    }

    /// The path on the host of `host` in the copy of directory `id`.
    pub(super) fn host_path(&self, id: u32, host: &[u8]) -> Vec<u8> {
        let mut parts = vec![host];
        let mut next = self.dirs.get(id as usize);
        let mut path = Vec::new();
        while let Some(dir) = next {
            match &dir.copy {
                None => parts.push(&dir.name),
                Some((_, shown)) => {
                    if let Shown::Below(_) = shown {
                        parts.pop();
                    }
                    let (Shown::Itself(top) | Shown::Below(top)) = shown;
                    path.clone_from(top);
                    break;
                }
            }
            next = self.dirs.get(dir.parent as usize);
        }
        let parts = parts.into_iter().rev();
        parts.fold(path, |path, part| join(&path, part))
    }

    /// The path in the image of `name` in directory `id`.
    pub(super) fn path(&self, id: u32, name: &[u8]) -> Vec<u8> {
        let mut parts = vec![name];
        let mut next = self.dirs.get(id as usize);
        while let Some(dir) = next {
            parts.push(&dir.name);
            next = self.dirs.get(dir.parent as usize);
        }
        let mut parts = parts.into_iter().rev();
        let first = parts.next().unwrap_or_default().to_vec();
        parts.fold(first, |path, part| {
            if part.is_empty() {
                path
            } else {
                join(&path, part)
            }
        })
    }

    /// Opens the copy of directory `id` again, name by name, without following a link.
    pub(super) fn open(&self, id: u32) -> Result<OwnedFd, Errno> {
        let mut below = Vec::new();
        let mut dir = self.dirs.get(id as usize).ok_or(Errno::NOENT)?;
        let start = loop {
            match &dir.copy {
                Some((fd, _)) => break fd,
                None => below.push(&dir.name),
            }
            dir = self.dirs.get(dir.parent as usize).ok_or(Errno::NOENT)?;
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut fd = openat(start.as_fd(), ".", flags, Mode::empty())?;
        for name in below.into_iter().rev() {
            fd = openat(&fd, &**name, flags, Mode::empty())?;
        }
        Ok(fd)
    }
}

/// One level of the walk.
struct Frame {
    dir: Rc<Dir>,
    entries: ReadDir,
}

impl Copier<'_> {
    /// Copies everything below a directory whose copy exists already.
    pub(super) fn walk(&mut self, top: Rc<Dir>, ino: Ino) {
        let mut stack = Vec::new();
        stack.extend(self.enter(top, ino));
        while let Some(frame) = stack.last_mut() {
            let dir = frame.dir.clone();
            let below = match frame.entries.next() {
                Some(Ok(entry)) => self.entry(&dir, &entry),
                Some(Err(error)) => {
                    self.fail(&dir, b"", error.into());
                    None
                }
                None => {
                    drop(stack.pop());
                    self.release(dir);
                    continue;
                }
            };
            let Some((below, ino)) = below else { continue };
            if stack.len() < DEEPEST {
                stack.extend(self.enter(below, ino));
            } else {
                let why =
                    format!("more than {DEEPEST} directories deep; what is in it is not copied");
                self.fail(&below, b"", Reason::new(why));
                self.release(below);
            }
        }
    }

    /// Begins to walk a directory; none if it cannot be read, or was walked before.
    fn enter(&mut self, dir: Rc<Dir>, ino: Ino) -> Option<Frame> {
        if !self.seen.insert(ino) {
            let why = format!(
                "inode {ino} was copied already: the directories form a circle; run e2fsck"
            );
            self.fail(&dir, b"", Reason::new(why));
            self.release(dir);
            return None;
        }
        match self.volume.read_dir(ino) {
            Ok(entries) => Some(Frame { dir, entries }),
            Err(error) => {
                self.fail(&dir, b"", error.into());
                self.release(dir);
                None
            }
        }
    }

    /// Copies one entry; returns the copy of a directory that is to be walked.
    fn entry(&mut self, dir: &Rc<Dir>, entry: &DirEntry) -> Option<(Rc<Dir>, Ino)> {
        let name = &entry.name[..];
        if matches!(name, b"." | b"..") {
            return None;
        }
        if let Some(why) = unusable(name) {
            self.fail(dir, name, Reason::new(why));
            return None;
        }
        match image::file(self.volume, entry.ino) {
            Ok(file) => self.item(dir, name, name, &file).map(|d| (d, entry.ino)),
            Err(error) => {
                self.fail(dir, name, error.into());
                None
            }
        }
    }

    /// Drops a reference to a directory; the last one sets the metadata of its copy.
    pub(super) fn release(&mut self, dir: Rc<Dir>) {
        let mut next = Some(dir);
        while let Some(dir) = next.and_then(Rc::into_inner) {
            if let Some(inode) = &dir.source {
                let path = self.names.path(dir.id, b"");
                self.meta
                    .set_open(self.volume, &mut self.report, &dir.fd, inode, &path);
            }
            next = dir.parent;
        }
    }

    /// Reports a failure of `name` in `dir`.
    pub(super) fn fail(&mut self, dir: &Dir, name: &[u8], reason: Reason) {
        let path = self.names.path(dir.id, name);
        self.report.file(&path, reason);
    }
}
