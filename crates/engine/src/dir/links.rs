//! Limits of link counts, and how a directory counts its subdirectories.
//!
//! Input: an inode's link count. Output: the next count. Invariants: a directory's count is 2 plus its subdirectories; with dir_nlink, a
//! directory with too many subdirectories to count has the count 1 from then on. Limits: 65,000. Source: the kernel's ext4 documentation
//! ("super block", dir_nlink); e2fsck in tests.

use crate::error::Error;
use crate::inode::Inode;
use diorite_format::Inode as DiskInode;
use diorite_format::dir::is_hashed;
use diorite_format::features::RoCompat;

/// The most names that an inode may have.
pub(super) const MOST: u16 = 65_000;

/// Can the directory have another subdirectory?
pub(super) fn check_subdirectory(dir: &Inode) -> Result<(), Error> {
    let (sb, disk) = (&dir.volume.sb, dir.disk());
    let uncounted = sb.features().ro_compat.has(RoCompat::DIR_NLINK) && is_hashed(sb, &disk);
    match disk.links >= MOST && !uncounted {
        true => Err(too_many(dir)),
        false => Ok(()),
    }
}

pub(super) fn too_many(inode: &Inode) -> Error {
    Error::TooManyLinks {
        ino: inode.ino,
        most: MOST,
    }
}

/// Counts a new subdirectory.
pub(crate) fn one_more(dir: &mut DiskInode) {
    dir.links = match dir.links {
        1 | MOST.. => 1,
        counted => counted + 1,
    };
}

/// Counts a subdirectory less. Never below 2; a count of 1 stays 1.
pub(crate) fn one_less(dir: &mut DiskInode) {
    if dir.links > 2 {
        dir.links -= 1;
    }
}
