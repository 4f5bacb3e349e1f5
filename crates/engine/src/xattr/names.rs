//! Names of attributes: their stored form, and which inodes may have them.
//!
//! Input: an inode number and a whole name. Output: the inode and the stored form of the name, or the reason of the refusal. Invariants: a
//! refusal has changed nothing. Limits: which user may use which namespace is left to the caller. Source: man 7 xattr, man 2 setxattr;
//! experiments with the kernel's mount.

use crate::error::Error;
use crate::inode::{Fs, Inode};
use diorite_format::features::Compat;
use diorite_format::xattr::NameIndex;
use diorite_format::{FileType, Ino};
use std::sync::Arc;

/// An attribute's name in its stored form: the index of the prefix, and the rest.
pub(crate) type Named<'n> = (NameIndex, &'n [u8]);

/// The longest whole name, in bytes.
const MOST_NAME: usize = 255;

/// Is it an ACL, which changes with the permissions?
pub(super) fn is_acl((index, _): Named<'_>) -> bool {
    matches!(index, NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT)
}

pub(crate) fn missing(name: &[u8]) -> Error {
    let name = String::from_utf8_lossy(name).into_owned();
    Error::NoAttribute { name }
}

/// The inode whose attribute is to be changed, and the stored form of the name.
pub(crate) fn to_change<'n>(
    fs: &Arc<Fs>,
    ino: Ino,
    name: &'n [u8],
) -> Result<(Arc<Inode>, Named<'n>), Error> {
    fs.check_open()?;
    fs.check_writable()?;
    let inode = fs.inode(ino)?;
    // As the kernel does: of an inode that must not change, nobody learns which names there can be.
    inode.check_settable()?;
    let which = stored(name)?;
    if !fs.sb.features().compat.has(Compat::EXT_ATTR) {
        let what = "attributes on a volume without the feature ext_attr";
        return Err(Error::NotSupported(what.to_owned()));
    }
    check_kind(&inode, which)?;
    Ok((inode, which))
}

/// The stored form of a whole name. The only names with the prefix `system.` are those of the ACLs.
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

/// May an inode of this type have attributes in this namespace?
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
