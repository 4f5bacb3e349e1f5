//! Names of attributes: how they are stored, and whether an inode may have them.
//!
//! Input: an inode's number and a whole name. Output: the inode and the stored name; or why not. Invariants: what is refused here has changed
//! nothing. Limits: who may use which namespace is the caller's policy.
//! Source: man 7 xattr, man 2 setxattr; experiments with the kernel's mount.

use crate::error::Error;
use crate::inode::{Fs, Inode};
use diorite_format::features::Compat;
use diorite_format::xattr::NameIndex;
use diorite_format::{FileType, Ino};
use std::sync::Arc;

/// Which attribute, as it is stored.
pub(crate) type Named<'n> = (NameIndex, &'n [u8]);

/// The longest whole name.
const MOST_NAME: usize = 255;

/// Whether it is an access control list, which changes with the permissions.
pub(super) fn is_acl((index, _): Named<'_>) -> bool {
    matches!(index, NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT)
}

pub(crate) fn missing(name: &[u8]) -> Error {
    let name = String::from_utf8_lossy(name).into_owned();
    Error::NoAttribute { name }
}

/// The inode whose attribute changes, and how the name is stored.
pub(crate) fn to_change<'n>(
    fs: &Arc<Fs>,
    ino: Ino,
    name: &'n [u8],
) -> Result<(Arc<Inode>, Named<'n>), Error> {
    fs.check_open()?;
    fs.check_writable()?;
    let inode = fs.inode(ino)?;
    let which = stored(name)?;
    inode.check_settable()?;
    if !fs.sb.features().compat.has(Compat::EXT_ATTR) {
        let what = "attributes on a volume without the feature ext_attr";
        return Err(Error::NotSupported(what.to_owned()));
    }
    check_kind(&inode, which)?;
    Ok((inode, which))
}

/// How a name is stored. `system.` has no names but those of the access control lists.
fn stored(name: &[u8]) -> Result<Named<'_>, Error> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    if name.len() > MOST_NAME {
        return Err(Error::AttributeName { name: shown() });
    }
    let prefixes = [&b"user."[..], b"trusted.", b"security.", b"gnu."];
    if prefixes.contains(&name) || name.contains(&0) {
        let what = format!("{}: not the name of an attribute", shown());
        return Err(Error::Invalid(what));
    }
    NameIndex::split(name)
        .filter(|(index, _)| !matches!(index.0, 7 | 8))
        .ok_or_else(|| Error::NotSupported(format!("an attribute {}", shown())))
}

/// Which kinds of inodes have attributes of this sort?
fn check_kind(inode: &Inode, (index, _): Named<'_>) -> Result<(), Error> {
    let (ino, disk) = (inode.ino, inode.disk());
    match index {
        NameIndex::USER if !disk.is_file() && !disk.is_dir() => {
            let flag = "no file or directory";
            Err(Error::NotPermitted { ino, flag })
        }
        NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT
            if disk.file_type == Some(FileType::Symlink) =>
        {
            let what = format!("inode {ino}: a symbolic link has no access control list");
            Err(Error::NotSupported(what))
        }
        _ => Ok(()),
    }
}
