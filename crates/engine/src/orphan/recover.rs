//! What the last user of the volume left on the list of orphans: deleted, or truncated to its size.
//!
//! Input: a volume that was opened for writing, its journal replayed. Output: an empty list, on disk and in memory. Invariants: if there
//! are no orphans nothing is written but that there are none; an inode without names is deleted, one with a name has what lies behind its
//! size given back, as the kernel does; a number that is no inode's, or comes twice, ends the opening with an error that names it.
//! Limits: as many orphans as inodes.

use crate::error::Error;
use crate::mount;
use crate::range;
use crate::volume::VolumeShared;
use diorite_format::features::RoCompat;
use diorite_format::{Ino, Inode as DiskInode, MapKind};
use std::collections::HashSet;
use std::sync::Arc;

/// Reads the list, and leaves it as it is; gives what is on it. Blocks; no lock may be held.
pub(crate) fn load(volume: &Arc<VolumeShared>) -> Result<Vec<Ino>, Error> {
    let loaded = read_chain(volume).and_then(|chain| volume.orphans.load(volume, chain));
    loaded.map_err(|e| e.at("the list of orphaned inodes"))
}

/// Reads the list and deals with all that is on it; says what was done, if there was anything. Blocks; no lock may be held.
pub(crate) fn recover(volume: &Arc<VolumeShared>) -> Result<Option<String>, Error> {
    let known = |e: Error| e.at("the list of orphaned inodes");
    let all = load(volume)?;
    let (mut deleted, mut truncated) = (0, 0);
    for ino in all {
        let disk = look(volume, ino).map_err(known)?;
        let (done, count) = match disk.links {
            0 => (volume.delete_orphan(ino), &mut deleted),
            _ => (truncate(volume, ino), &mut truncated),
        };
        done.map_err(|e| e.at(format!("orphaned inode {ino}")))?;
        *count += 1;
    }
    let some = deleted + truncated > 0;
    if !some && volume.sb.features().ro_compat.has(RoCompat::ORPHAN_PRESENT) {
        // Said so while it was in use, by who had none when it stopped.
        volume.mark_clean()?;
    }
    Ok(some.then(|| format!("orphaned inodes: {deleted} deleted, {truncated} truncated")))
}

/// The inodes that the chain names, from the newest on.
fn read_chain(volume: &VolumeShared) -> Result<Vec<Ino>, Error> {
    let (mut chain, mut seen) = (Vec::new(), HashSet::new());
    let mut at = volume.sb.last_orphan();
    while !at.is_none() {
        if !seen.insert(at) {
            return Err(damaged(at, "comes a second time"));
        }
        let disk = look(volume, at)?;
        chain.push(at);
        at = Ino::new(disk.dtime);
    }
    Ok(chain)
}

/// An orphan's place in the inode table.
pub(super) fn look(volume: &VolumeShared, ino: Ino) -> Result<DiskInode, Error> {
    if volume.sb.check_ino(ino.get()).is_err() {
        return Err(damaged(ino, "is no inode of this volume"));
    }
    let own = [Some(Ino::ROOT), volume.sb.orphan_file()];
    if volume.is_system_inode(ino) || own.contains(&Some(ino)) {
        return Err(damaged(ino, "is one of the volume's own"));
    }
    let disk = mount::read_disk_inode(volume, ino)?;
    if disk.file_type.is_none() {
        return Err(damaged(ino, "is not in use"));
    }
    Ok(disk)
}

pub(super) fn damaged(ino: Ino, why: &str) -> Error {
    Error::Damaged(format!("inode {ino} {why}; run e2fsck"))
}

fn truncate(volume: &Arc<VolumeShared>, ino: Ino) -> Result<(), Error> {
    let inode = volume.inode(ino)?;
    let mapped = matches!(
        inode.disk().map_kind(),
        MapKind::Extents | MapKind::Indirect
    );
    if mapped {
        inode.check_can_grow()?;
        return range::shrink(&inode, inode.size());
    }
    volume.in_handle(1 + super::ORPHAN_CREDITS, |handle| {
        volume.orphans.remove(handle, &inode, 0)
    })
}
