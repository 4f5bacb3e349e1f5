//! What it is: a tree of names that one thread changes, one operation at a time.
//! Input: operations in their order. Output: the tree after each of them (`tree`); what a recovered volume shows, in the same form
//! (`look`).
//! Invariant: an operation that the tree does not allow changes nothing. Limits: all names are below [`TOP`]; files are empty, or
//! have a few bytes in their inodes.

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

/// The directory that holds the tree.
pub(crate) const TOP: &str = "/tree";
const DEVICE: Rdev = Rdev { major: 8, minor: 1 };
/// The byte that fills attribute values and contents.
pub(crate) const FILLING: u8 = b'v';

/// What an operation creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Make {
    /// An empty file.
    File,
    /// An empty file that is created without a name and then linked.
    Temporary,
    /// An empty directory.
    Dir,
    /// A symbolic link whose target has this many bytes.
    Link(u16),
    /// A character device.
    Device,
}

/// How a name is moved (flags of renameat2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Replacing the target.
    Replace,
    /// Failing if the target exists.
    NoReplace,
    /// Exchanging source and target.
    Exchange,
    /// Leaving a whiteout at the source.
    Whiteout,
}

/// One operation. Paths are relative to [`TOP`] and begin with a slash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameOp {
    /// Create something.
    Make(String, Make),
    /// Give a file a second name.
    Link(String, String),
    /// Remove a name of anything but a directory.
    Unlink(String),
    /// Remove an empty directory.
    Rmdir(String),
    /// Move a name.
    Rename(String, String, How),
    /// Set the permissions.
    Mode(String, u16),
    /// Set the attribute with this number to a value of this many bytes, or remove it.
    Attribute(String, u8, Option<u32>),
    /// Set an access control list, or remove it.
    Acl(String, Which, Option<List>),
    /// Set exactly these of the flags in [`extras::CHANGED`].
    Flags(String, u32),
    /// Give an empty file this many bytes, stored in its inode.
    Inside(String, u16),
}

/// Optional features of a volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Powers {
    /// Attribute values may have inodes of their own (ea_inode).
    pub(crate) values: bool,
    /// Small files may be stored in their inodes (inline_data).
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
    /// Performs the operation on a volume.
    pub(crate) fn ask(&self, volume: &Volume) -> Result<(), Error> {
        let at = |path: &str| format!("{TOP}{path}");
        let ino = |path: &str| volume.resolve(at(path).as_bytes(), false);
        match self {
            NameOp::Make(path, make) => ask_make(volume, &at(path), *make),
            NameOp::Link(from, to) => volume.link(&at(from), &at(to)),
            NameOp::Unlink(path) => volume.unlink(&at(path)),
            NameOp::Rmdir(path) => volume.rmdir(&at(path)),
            NameOp::Rename(from, to, how) => {
                let flags = RenameFlags::default()
                    .no_replace(*how == How::NoReplace)
                    .exchange(*how == How::Exchange)
                    .whiteout(*how == How::Whiteout);
                volume.rename(&at(from), &at(to), flags)
            }
            NameOp::Mode(path, mode) => {
                let set = SetAttr::default().permissions(*mode);
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

    /// True if the operation changes the inode that this path names afterwards.
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
    let write = OpenFlags::writable();
    let file = volume.open_path(path, write)?;
    match file.keep_inside(&vec![FILLING; usize::from(len)])? {
        true => Ok(()),
        false => Err(Error::Invalid(format!("{path}: no room for {len} bytes"))),
    }
}
