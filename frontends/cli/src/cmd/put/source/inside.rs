//! The side of another image, or of the same one: what a name in a directory is, what it has, and where its data is.
//!
//! Input: an open image, names. Output: types, attributes, ranges of data. Invariants: links are never followed, but in a SOURCE that
//! ends with a slash; no directory is walked twice below one SOURCE, whatever the image says; a name is one name. Limits: the names of a
//! directory are read at once.

use super::{Attributes, Name};
use crate::flow::SHORTER;
use crate::image;
use crate::names::unusable;
use crate::report::Reason;
use crate::walk::Written;
use diorite::{Error, File, Volume};
use diorite_format::{FileType, Ino, Inode};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// An image that is copied from.
pub(crate) struct Image {
    pub(crate) volume: Volume,
    /// What stands before its paths in messages.
    pub(crate) prefix: String,
    /// Where it lies, seen from the one that is copied into.
    pub(crate) lies: Lies,
    /// Directories that this SOURCE led to.
    seen: RefCell<HashSet<Ino>>,
}

/// Where two images lie, one that is copied from and one that is copied into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lies {
    /// They are one.
    Same,
    /// The second lies in this file of the first.
    DestInSource(Ino),
    /// The first lies in this file of the second.
    SourceInDest(Ino),
    /// Neither lies in the other.
    Apart,
}

impl Image {
    pub(crate) fn new(volume: Volume, prefix: &str, lies: Lies) -> Image {
        Image {
            volume,
            prefix: prefix.to_owned(),
            lies,
            seen: RefCell::default(),
        }
    }

    /// A path in it, for messages.
    pub(super) fn shown(&self, path: &OsStr) -> PathBuf {
        let mut shown = OsString::from(&self.prefix);
        shown.push(path);
        shown.into()
    }
}

/// What a name in an image stands for.
pub(super) struct InImage {
    image: Rc<Image>,
    pub(super) file: File,
    pub(super) inode: Arc<Inode>,
    pub(super) kind: FileType,
}

impl InImage {
    /// A SOURCE of the command line.
    pub(super) fn of_path(image: &Rc<Image>, path: &[u8]) -> Result<InImage, Reason> {
        image.seen.borrow_mut().clear();
        let follow = path.ends_with(b"/");
        InImage::open(image, image::find(&image.volume, path, follow))
    }

    /// A name in this directory.
    pub(super) fn below(&self, name: &Name) -> Result<InImage, Reason> {
        if let Some(why) = unusable(&name.name) {
            return Err(Reason::new(why));
        }
        let ino = name.ino.expect("names in an image come with their inodes");
        InImage::open(&self.image, image::file(&self.image.volume, ino))
    }

    fn open(image: &Rc<Image>, found: Result<File, Error>) -> Result<InImage, Reason> {
        let file = found?;
        let inode = file.metadata();
        let Some(kind) = inode.file_type else {
            let why = "it has no file type: the inode is corrupt, run e2fsck";
            return Err(Reason::new(why));
        };
        Ok(InImage {
            image: image.clone(),
            file,
            inode,
            kind,
        })
    }

    pub(super) fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// What a symbolic link says.
    pub(super) fn target(&self) -> Result<Vec<u8>, Reason> {
        Ok(self.image.volume.read_link(self.ino())?)
    }

    /// The names in a directory, as far as they can be read; what is `wrong` with the others.
    pub(super) fn names(&self, wrong: &mut Vec<Reason>) -> Result<Vec<Name>, Reason> {
        let ino = self.ino();
        if !self.image.seen.borrow_mut().insert(ino) {
            let why = format!(
                "inode {ino} was copied already: the directories form a circle; run e2fsck"
            );
            return Err(Reason::new(why));
        }
        let mut names = Vec::new();
        for entry in self.image.volume.read_dir(ino)? {
            match entry {
                Ok(entry) => names.push(Name {
                    name: entry.name,
                    ino: Some(entry.ino),
                }),
                Err(error) => wrong.push(error.into()),
            }
        }
        Ok(names)
    }

    /// What it has besides its data.
    pub(super) fn attributes(&self, xattrs: bool) -> Result<Attributes, Reason> {
        let inode = &self.inode;
        Ok(Attributes {
            uid: inode.uid,
            gid: inode.gid,
            mode: inode.mode & 0o7777,
            atime: inode.atime,
            mtime: inode.mtime,
            xattrs: match xattrs {
                true => self.image.volume.xattrs(inode.ino)?,
                false => Vec::new(),
            },
        })
    }

    /// Reads all of `to` from `at`.
    pub(super) fn read(&self, to: &mut [u8], at: u64) -> Result<(), Reason> {
        match self.file.read_bytes(at, to)? == to.len() {
            true => Ok(()),
            false => Err(Reason::new(SHORTER)),
        }
    }

    /// Where its data is: whole blocks of this image, and of the other one, which has `unit`.
    pub(super) fn data(&self, unit: u64) -> impl Iterator<Item = Result<Range<u64>, Reason>> {
        let volume = &self.image.volume;
        let unit = unit.max(volume.superblock().block_size().into());
        let (size, mut end) = (self.inode.size, 0);
        Written::of(volume, &self.file).map(move |range| {
            let range = range?;
            // What comes before it, in the same block of the other image, may be on its way already.
            let start = (range.start - range.start % unit).max(end);
            end = range.end.next_multiple_of(unit).min(size).max(start);
            Ok(start..end)
        })
    }
}
