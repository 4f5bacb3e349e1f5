//! Changes of inodes that nobody has in memory, where they are in the inode table: no in-core inode is made for a call that only counts a
//! name less or sets a time.
//!
//! Input: an inode's number, under the lock of the directory that names it. Output: the inode as the table has it, and a change of it.
//! Invariants: an inode is changed only while nobody has it in memory and no frontend knows its number; whoever reads it into memory
//! meanwhile reads it again. Limits: not for inodes with inline data.

use super::Fs;
use super::table::InodeTable;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::map::root_segments;
use diorite_block::sync::atomic::{AtomicU32, Ordering};
use diorite_format::xattr::has_area;
use diorite_format::{Ino, Inode as DiskInode, MapKind};
use smallvec::SmallVec;

const COUNTERS: usize = 4096;

/// How many in-core inodes there are, by a part of their numbers: a hint, read without a lock.
#[derive(Debug)]
pub(super) struct Presence(Box<[AtomicU32]>);

impl Presence {
    pub(super) fn new() -> Presence {
        Presence((0..COUNTERS).map(|_| AtomicU32::new(0)).collect())
    }

    fn of(&self, ino: Ino) -> &AtomicU32 {
        &self.0[ino.get() as usize % COUNTERS]
    }

    /// An in-core inode was made.
    pub(super) fn came(&self, ino: Ino) {
        self.of(ino).fetch_add(1, Ordering::Relaxed);
    }

    /// An in-core inode was dropped.
    pub(super) fn went(&self, ino: Ino) {
        self.of(ino).fetch_sub(1, Ordering::Relaxed);
    }

    /// Is there probably no in-core inode of this number?
    fn lacks(&self, ino: Ino) -> bool {
        self.of(ino).load(Ordering::Relaxed) == 0
    }
}

/// An inode with a name, as the inode table had it at one moment. Its checksum and the root of its map were checked.
#[derive(Debug)]
pub(crate) struct Glance {
    pub(crate) disk: DiskInode,
    /// Its map is empty, and it has no attributes.
    pub(crate) is_empty: bool,
    raw: SmallVec<[u8; 256]>,
}

impl Fs {
    /// The inode with this number, if it seems that nobody has it in memory. None also for an inode that cannot be read: [`Fs::inode`] says
    /// why. Blocks while the device reads.
    pub(crate) fn glance(&self, ino: Ino) -> Option<Glance> {
        // An inode with a name may be on the orphan list, because of blocks behind its size.
        if !self.presence.lacks(ino) || self.orphans.any() {
            return None;
        }
        let (block, from) = self.inode_place(ino).ok()?;
        let read = |_: &[u8]| Ok(());
        let all = self
            .cache
            .read(&self.blocking, block, Kind::InodeTable, read);
        let all = all.ok()?;
        let raw = &all[from..from + self.sb.geometry().inode_size() as usize];
        let disk = DiskInode::parse(&self.sb, ino, raw).ok()?;
        if disk.links == 0 || disk.map_kind() == MapKind::Inline {
            return None;
        }
        let has_attributes = !disk.file_acl.is_none() || has_area(&disk, raw);
        let is_empty = root_segments(self, &disk).ok()?.is_empty() && !has_attributes;
        let raw = SmallVec::from_slice(raw);
        Some(Glance {
            disk,
            is_empty,
            raw,
        })
    }

    /// Changes the inode, if it is still as it was seen, nobody has it in memory, and no frontend knows its number. Returns whether it
    /// did. Blocks while the device reads, before anything is changed.
    ///
    /// # Errors
    /// Nothing was changed.
    pub(crate) fn change_absent(
        &self,
        handle: &JournalHandle<'_>,
        seen: &Glance,
        change: impl FnOnce(&mut DiskInode),
    ) -> Result<bool, Error> {
        let ino = seen.disk.ino;
        let (block, from) = self.inode_place(ino)?;
        let place = from..from + seen.raw.len();
        let mut disk = seen.disk.clone();
        change(&mut disk);
        disk.settle_times();
        loop {
            // Held while the table is changed: whoever looks for the inode finds it as it is afterwards.
            let mut table = self.inodes.lock();
            if table.has(ino) || self.known.has(ino) {
                return Ok(false);
            }
            let changed = handle.update_present(block, Kind::InodeTable, |raw| {
                let raw = &mut raw[place.clone()];
                let is_same = *raw == *seen.raw;
                if is_same {
                    disk.write(&self.sb, raw)?;
                }
                Ok(is_same)
            })?;
            if let Some(changed) = changed {
                table.void_reads();
                return Ok(changed);
            }
            drop(table);
            handle.read(block, Kind::InodeTable, |_| Ok(()))?;
        }
    }
}

impl InodeTable {
    /// Is somebody using the in-core inode of this number?
    fn has(&self, ino: Ino) -> bool {
        self.known
            .get(&ino)
            .is_some_and(|inode| inode.strong_count() > 0)
    }
}
