//! Sources in an image, another one or the one that is written: the type and attributes of a name in a directory, and the
//! ranges of its data.
//!
//! Input: an open image, names. Output: types, attributes, ranges of data. Invariants: links are never followed, except a
//! SOURCE that ends with a slash; no directory is walked twice below one SOURCE, even if the image is corrupt; a name never has
//! a slash. Limits: the names of a directory are read at once.

use super::{Attributes, Name};
use crate::copying::files::SHORTER;
use crate::images::image;
use crate::output::report::Reason;
use crate::walking::extents::Written;
use crate::words::names::unusable;
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
    /// The prefix of its paths in messages.
    pub(crate) prefix: String,
    /// Its relation to the image that is written.
    pub(crate) nesting: Nesting,
    /// Directories that were entered below the present SOURCE.
    seen: RefCell<HashSet<Ino>>,
}

/// The relation of two images: the source and the destination of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nesting {
    /// Both are the same image.
    Same,
    /// The destination is in this file of the source.
    DestInSource(Ino),
    /// The source is in this file of the destination.
    SourceInDest(Ino),
    /// Neither is in the other.
    Apart,
}

impl Image {
    pub(crate) fn new(volume: Volume, prefix: &str, nesting: Nesting) -> Image {
        Image {
            volume,
            prefix: prefix.to_owned(),
            nesting,
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

/// A file in an image.
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

    /// The target of a symbolic link.
    pub(super) fn target(&self) -> Result<Vec<u8>, Reason> {
        Ok(self.image.volume.read_link(self.ino())?)
    }

    /// The names in a directory, as far as they can be read; the errors of the others are added to `wrong`.
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

    /// Its metadata.
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

    /// The ranges that hold data, rounded outwards to blocks of this image and of the destination, whose block size is `unit`.
    pub(super) fn data(&self, unit: u64) -> impl Iterator<Item = Result<Range<u64>, Reason>> {
        let volume = &self.image.volume;
        let unit = unit.max(volume.superblock().block_size().into());
        let (size, mut end) = (self.inode.size, 0);
        Written::of(volume, &self.file).map(move |range| {
            let range = range?;
            // The previous range may already have covered this block of the destination.
            let start = (range.start - range.start % unit).max(end);
            end = range.end.next_multiple_of(unit).min(size).max(start);
            Ok(start..end)
        })
    }
}
