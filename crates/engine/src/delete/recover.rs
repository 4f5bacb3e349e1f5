//! Recovery of the orphan list that the last user of the volume left: each inode is deleted, or truncated to its size.
//!
//! Input: a volume that is being opened for writing, its journal replayed. Output: an empty list, on disk and in memory. Invariants: if
//! there are no orphans, at most the mark is removed that there are some; an inode without a name is deleted; of one with a name the
//! blocks behind its size are freed, as the kernel does; a number that is no inode's, or occurs twice, ends the opening with an error
//! that names it. Limits: at most as many orphans as the volume has inodes.

use super::doomed::delete_orphan;
use crate::disk::read_disk_inode;
use crate::error::Error;
use crate::inode::Fs;
use crate::mapping::MappingState;
use crate::orphan::{ORPHAN_CREDITS, SlotFile, damaged};
use crate::range;
use diorite_format::features::RoCompat;
use diorite_format::{FsBlock, Ino, Inode as DiskInode, MapKind};
use std::collections::HashSet;
use std::sync::Arc;

/// The largest orphan file that is read, in bytes. mke2fs makes it 32 to 512 blocks long.
const MOST_BYTES: u64 = 64 << 20;

/// Reads the orphan list into memory, and returns the inodes on it. Changes nothing on disk. Blocks; no lock may be held.
pub(crate) fn load(volume: &Arc<Fs>) -> Result<Vec<Ino>, Error> {
    let load = || {
        let chain = read_chain(volume)?;
        // Read before the list's lock is taken, under which no inode may be looked up.
        let file = slot_file(volume)?;
        volume.orphans.load(volume, chain, file)
    };
    load().map_err(|e| e.at("the list of orphaned inodes"))
}

/// Reads the orphan list, and deletes or truncates every inode on it. Returns a note of what was done, if anything was. Blocks; no lock
/// may be held.
pub(crate) fn recover(volume: &Arc<Fs>) -> Result<Option<String>, Error> {
    let known = |e: Error| e.at("the list of orphaned inodes");
    let all = load(volume)?;
    let (mut deleted, mut truncated) = (0, 0);
    for ino in all {
        let disk = look(volume, ino).map_err(known)?;
        let (done, count) = match disk.links {
            0 => (delete_orphan(volume, ino), &mut deleted),
            _ => (truncate(volume, ino), &mut truncated),
        };
        done.map_err(|e| e.at(format!("orphaned inode {ino}")))?;
        *count += 1;
    }
    let some = deleted + truncated > 0;
    if !some && volume.sb.features().ro_compat.has(RoCompat::ORPHAN_PRESENT) {
        // ORPHAN_PRESENT is set while the orphan file is in use; the last user stopped without an orphan.
        let keep = |block: &[u8]| match volume.journal_if_any() {
            Some(journal) => journal.keep_superblock(volume, block),
            None => Ok(()),
        };
        volume.mark_clean(volume.orphans.in_file(), keep)?;
    }
    Ok(some.then(|| format!("orphaned inodes: {deleted} deleted, {truncated} truncated")))
}

/// The inodes of the chain, the newest first.
fn read_chain(volume: &Fs) -> Result<Vec<Ino>, Error> {
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

/// Reads an orphan from the inode table, and checks that it may be one.
fn look(volume: &Fs, ino: Ino) -> Result<DiskInode, Error> {
    if volume.sb.check_ino(ino.get()).is_err() {
        return Err(damaged(ino, "is no inode of this volume"));
    }
    let own = [Some(Ino::ROOT), volume.sb.orphan_file()];
    if volume.is_system_inode(ino) || own.contains(&Some(ino)) {
        return Err(damaged(ino, "is one of the volume's own"));
    }
    let disk = read_disk_inode(volume, ino)?;
    if disk.file_type.is_none() {
        return Err(damaged(ino, "is not in use"));
    }
    Ok(disk)
}

/// The orphan file and the places of its blocks, if the volume has one.
fn slot_file(volume: &Arc<Fs>) -> Result<Option<SlotFile>, Error> {
    let Some(ino) = volume.sb.orphan_file() else {
        return Ok(None);
    };
    let inode = volume.inode(ino)?;
    if inode.size() > MOST_BYTES {
        return Err(damaged(ino, "is larger than an orphan file can be"));
    }
    let (mut blocks, block_size) = (Vec::new(), u64::from(volume.block_size()));
    for mapping in inode.mappings(0..inode.size().div_ceil(block_size))? {
        let MappingState::Written(first) = mapping.state else {
            return Err(damaged(ino, "is the orphan file and has holes"));
        };
        blocks.extend((first.get()..first.get() + mapping.len).map(FsBlock::new));
    }
    let inode = inode.disk();
    Ok(Some(SlotFile { inode, blocks }))
}

fn truncate(volume: &Arc<Fs>, ino: Ino) -> Result<(), Error> {
    let inode = volume.inode(ino)?;
    let mapped = matches!(
        inode.disk().map_kind(),
        MapKind::Extents | MapKind::Indirect
    );
    if mapped {
        inode.check_can_grow()?;
        return range::shrink(&inode, inode.size());
    }
    volume.in_handle(1 + ORPHAN_CREDITS, |handle| inode.end_orphan(handle, 0))
}
