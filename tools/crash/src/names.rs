//! What it is: a tree of names that one thread changes, one operation at a time.
//! Input: operations in their order. Output: the tree after each of them (`tree`); what a recovered volume shows, in the same form (`look`).
//! Invariant: an operation that the tree does not allow changes nothing. Limits: everything lies below [`TOP`]; files are empty, or their few bytes are in
//! their inodes.

mod extras;
mod look;
mod tree;

pub(crate) use extras::{List, Which};
pub(crate) use tree::Tree;

use diorite::dir::RenameFlags;
use diorite::{Error, OpenFlags, SetAttr, Volume};
use diorite_format::features::Incompat;
use diorite_format::inode::Rdev;
use diorite_format::{FileType, InodeFlags};
use extras::ATTRIBUTES;
use serde::{Deserialize, Serialize};

/// The directory with all of it.
pub(crate) const TOP: &str = "/tree";
const DEVICE: Rdev = Rdev { major: 8, minor: 1 };
/// What attributes and contents are made of.
pub(crate) const FILLING: u8 = b'v';

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
    /// The attribute with this number gets so many bytes, or is removed.
    Attribute(String, u8, Option<u32>),
    /// A list of who may do what is set, or removed.
    Acl(String, Which, Option<List>),
    /// Flags are set: these of those that operations change, and no others.
    Flags(String, u32),
    /// An empty file gets so many bytes, in its inode.
    Inside(String, u16),
}

/// What a volume has that not all have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Powers {
    /// Values of attributes in inodes of their own.
    pub(crate) values: bool,
    /// Small files in their inodes.
    pub(crate) inside: bool,
}

impl Powers {
    pub(crate) fn of(volume: &Volume) -> Powers {
        let features = volume.superblock().features().incompat;
        Powers {
            values: features.has(Incompat::EA_INODE),
            inside: features.has(Incompat::INLINE_DATA),
        }
    }
}

impl NameOp {
    /// Asks a volume to do it.
    pub(crate) fn ask(&self, volume: &Volume) -> Result<(), Error> {
        let at = |path: &str| format!("{TOP}{path}");
        let ino = |path: &str| volume.resolve(at(path).as_bytes(), false);
        match self {
            NameOp::Make(path, make) => ask_make(volume, &at(path), *make),
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
            NameOp::Attribute(path, number, len) => {
                let (ino, name) = (ino(path)?, ATTRIBUTES[usize::from(*number)].as_bytes());
                match len {
                    Some(len) => volume.set_xattr(ino, name, &vec![FILLING; *len as usize]),
                    None => volume.remove_xattr(ino, name),
                }
            }
            NameOp::Acl(path, which, list) => {
                let (ino, name) = (ino(path)?, which.name().as_bytes());
                match list {
                    Some(list) => volume.set_xattr(ino, name, &list.encode()),
                    None => volume.remove_xattr(ino, name),
                }
            }
            NameOp::Flags(path, flags) => {
                let (ino, mask) = (ino(path)?, InodeFlags::from_bits(extras::CHANGED));
                let now = volume.open_ino(ino, OpenFlags::default())?.metadata().flags;
                let new = now.without(mask).with(InodeFlags::from_bits(*flags));
                volume.set_flags(ino, new)
            }
            NameOp::Inside(path, len) => ask_inside(volume, &at(path), *len),
        }
    }

    /// Does it change the inode that this path stands for afterwards?
    pub(crate) fn concerns(&self, path: &str) -> bool {
        match self {
            NameOp::Make(of, _)
            | NameOp::Mode(of, _)
            | NameOp::Attribute(of, _, _)
            | NameOp::Acl(of, _, _)
            | NameOp::Flags(of, _)
            | NameOp::Inside(of, _) => of == path,
            NameOp::Link(one, two) => one == path || two == path,
            NameOp::Rename(_, to, _) => to == path,
            NameOp::Unlink(_) | NameOp::Rmdir(_) => false,
        }
    }
}

fn ask_make(volume: &Volume, path: &str, make: Make) -> Result<(), Error> {
    match make {
        Make::File => volume.create(path, 0o640).map(drop),
        Make::Temporary => {
            let file = volume.temporary(TOP, 0o640)?;
            volume.link_file(&file, path)
        }
        Make::Dir => volume.mkdir(path, 0o750).map(drop),
        Make::Link(len) => {
            let target = "t".repeat(usize::from(len));
            volume.symlink(&target, path).map(drop)
        }
        Make::Device => {
            let made = volume.mknod(path, FileType::CharDevice, 0o600, DEVICE);
            made.map(drop)
        }
    }
}

fn ask_inside(volume: &Volume, path: &str, len: u16) -> Result<(), Error> {
    let write = OpenFlags {
        write: true,
        ..OpenFlags::default()
    };
    let file = volume.open_path(path, write)?;
    match file.keep_inside(&vec![FILLING; usize::from(len)])? {
        true => Ok(()),
        false => Err(Error::Invalid(format!("{path}: no room for {len} bytes"))),
    }
}
