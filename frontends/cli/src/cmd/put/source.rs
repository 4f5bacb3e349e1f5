//! The source of a copy, on the host or in an image: its type, its attributes, and the ranges of its data.
//!
//! Input: paths, names in directories that were found. Output: types, attributes, ranges of data. Invariants: sources on the
//! host and in an image have the same interface; symbolic links are not followed. Limits: those of `host` and `inside`.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `host` | a name in an open directory of the host -> the file |
//! | `inside` | a name in a directory of an image -> the file |

mod host;
mod inside;

use crate::output::report::Reason;
use diorite::xattr::Xattr;
use diorite::{File, Volume};
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Ino, Timestamp};
use host::OnHost;
use inside::InImage;
pub(crate) use inside::{Image, Nesting};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

/// Where the SOURCEs are.
pub(crate) enum Origin {
    /// On the host.
    Host,
    /// In an image.
    Image(Rc<Image>),
}

impl Origin {
    /// The volume; none for the host.
    pub(super) fn volume(&self) -> Option<&Volume> {
        match self {
            Origin::Host => None,
            Origin::Image(image) => Some(&image.volume),
        }
    }
}

/// The identity of a file, independent of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    Host { device: u64, inode: u64 },
    Image(Ino),
}

/// A file that is copied.
pub(super) struct Source {
    /// Where it was found, for messages.
    pub(super) found: PathBuf,
    side: Side,
}

enum Side {
    Host(OnHost),
    Image(InImage),
}

/// A name in a directory; in an image with its inode number.
pub(super) struct Name {
    pub(super) name: Vec<u8>,
    ino: Option<Ino>,
}

/// Owner, permissions, times, attributes.
#[derive(Clone, Debug)]
pub(super) struct Attributes {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u16,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) xattrs: Vec<Xattr>,
}

/// The device number of a file that is not a device.
const NO_DEVICE: Rdev = Rdev { major: 0, minor: 0 };

/// Ranges of bytes, in order.
type Ranges<'a> = Box<dyn Iterator<Item = Result<Range<u64>, Reason>> + 'a>;

impl Source {
    /// A SOURCE of the command line; an error has its path, for the message, and the reason.
    pub(super) fn of_path(origin: &Origin, path: &OsStr) -> Result<Source, (PathBuf, Reason)> {
        let bytes = path.as_bytes();
        let (found, side) = match origin {
            Origin::Host => (path.into(), OnHost::of_path(bytes).map(Side::Host)),
            Origin::Image(image) => {
                let side = InImage::of_path(image, bytes).map(Side::Image);
                (image.shown(path), side)
            }
        };
        match side {
            Ok(side) => Ok(Source { found, side }),
            Err(reason) => Err((found, reason)),
        }
    }

    /// A name in a directory.
    pub(super) fn in_dir(dir: &Source, name: &Name) -> Result<Source, Reason> {
        let side = match &dir.side {
            Side::Host(dir) => Side::Host(dir.below(&name.name)?),
            Side::Image(dir) => Side::Image(dir.below(name)?),
        };
        let found = dir.found_below(name);
        Ok(Source { found, side })
    }

    /// The path of a name in this directory, for messages.
    pub(super) fn found_below(&self, name: &Name) -> PathBuf {
        self.found.join(OsStr::from_bytes(&name.name))
    }

    pub(super) fn kind(&self) -> FileType {
        match &self.side {
            Side::Host(host) => host.kind,
            Side::Image(inside) => inside.kind,
        }
    }

    pub(super) fn id(&self) -> Identity {
        match &self.side {
            Side::Host(host) => host.id(),
            Side::Image(inside) => Identity::Image(inside.ino()),
        }
    }

    /// An identifier of the file system that it is on; an image is one file system.
    pub(super) fn device(&self) -> u64 {
        match &self.side {
            Side::Host(host) => host.device(),
            Side::Image(_) => 0,
        }
    }

    /// Whether it has other names.
    pub(super) fn is_shared(&self) -> bool {
        match &self.side {
            Side::Host(host) => host.is_shared(),
            Side::Image(inside) => inside.inode.links > 1,
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        self.kind() == FileType::Directory
    }

    pub(super) fn size(&self) -> u64 {
        match &self.side {
            Side::Host(host) => host.size(),
            Side::Image(inside) => inside.inode.size,
        }
    }

    pub(super) fn size_if_file(&self) -> Option<u64> {
        (self.kind() == FileType::Regular).then(|| self.size())
    }

    /// The number of a device.
    pub(super) fn rdev(&self) -> Rdev {
        match &self.side {
            Side::Host(host) => host.rdev(),
            Side::Image(inside) => inside.inode.rdev().unwrap_or(NO_DEVICE),
        }
    }

    /// The target of a symbolic link.
    pub(super) fn target(&self) -> Result<Vec<u8>, Reason> {
        match &self.side {
            Side::Host(host) => host.target(),
            Side::Image(inside) => inside.target(),
        }
    }

    /// The names in a directory, in byte order; errors of names that cannot be read are added to `wrong`.
    pub(super) fn names(&self, wrong: &mut Vec<Reason>) -> Result<Vec<Name>, Reason> {
        let mut names = match &self.side {
            Side::Host(host) => host.names()?,
            Side::Image(inside) => inside.names(wrong)?,
        };
        names.retain(|n| n.name != b"." && n.name != b"..");
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(names)
    }

    /// Its metadata.
    pub(super) fn attributes(&self, xattrs: bool) -> Result<Attributes, Reason> {
        match &self.side {
            Side::Host(host) => host.attributes(xattrs),
            Side::Image(inside) => inside.attributes(xattrs),
        }
    }

    /// Fails if its size is 0 although it has contents.
    pub(super) fn check_empty(&self) -> Result<(), Reason> {
        match &self.side {
            Side::Host(host) => host.check_empty(),
            Side::Image(_) => Ok(()),
        }
    }

    /// The ranges that hold data, without the holes; start and end rounded outwards to `unit`, in order, not overlapping.
    pub(super) fn data(&self, unit: u64) -> Result<Ranges<'_>, Reason> {
        Ok(match &self.side {
            Side::Host(host) => Box::new(host.data(unit)?.into_iter().map(Ok)),
            Side::Image(inside) => Box::new(inside.data(unit)),
        })
    }

    /// Reads all of `to` from `at`.
    pub(super) fn read(&self, to: &mut [u8], at: u64) -> Result<(), Reason> {
        match &self.side {
            Side::Host(host) => host.read(to, at),
            Side::Image(inside) => inside.read(to, at),
        }
    }

    /// The file, if it is in an image.
    pub(super) fn file(&self) -> Option<&File> {
        match &self.side {
            Side::Host(_) => None,
            Side::Image(inside) => Some(&inside.file),
        }
    }
}

impl Attributes {
    /// The metadata of a new file that belongs to root.
    pub(super) fn new(mode: u16, now: Timestamp) -> Attributes {
        Attributes {
            uid: 0,
            gid: 0,
            mode,
            atime: now,
            mtime: now,
            xattrs: Vec::new(),
        }
    }
}
