//! The inode module: the in-core inodes of a volume, and [`Fs`], the file system that they belong to.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `fs`, `queues` | a store -> the file system with its inodes; the queues above it, as a trait |
//! | `table`, `read`, `recent` | an inode's number -> the one in-core inode; directories kept in memory |
//! | `absent` | the number of an inode that nobody has in memory -> the inode, changed where it is |
//! | `remembered` | what searches of a directory have found -> the same for later searches |
//! | `view`, `whole_map` | a range of file blocks -> the map, loaded from disk; a check of all its nodes |
//! | `open_file`, `handle` | an inode and flags -> an open file; an open file in one queue |
//! | `first`, `attrs`, `flags`, `generation` | an inode -> what its flags and rights allow; changes of its flags and generation |
//! | `times`, `dirty_times` | reads and writes -> times noted in memory, then in a transaction |
//! | `handles`, `commit_change`, `durable`, `orphaned` | changes -> journal handles, commits, durability promised, the orphan list |
//! | `claims`, `clusters`, `fill`, `node_reserve`, `beforehand`, `shortage` | a write into new space -> its blocks claimed, nodes reserved |
//! | `job`, `remap`, `pieces` | an ended write, a range -> edits of the map, in handles of bounded size |
//! | `grow`, `tail` | a size that is going to move -> zeros behind the old end |
//! | `cached`, `delayed` | cached pages -> claims of direct requests, the visible size, inodes kept for their pages; reserved space |
//! | `inside`, `inline`, `journalled` | inline data; data through the journal |
//!
//! Input: inode numbers, and what requests and operations do to inodes. Output: [`Inode`]s shared by everyone who uses them. Invariants:
//! there is one in-core inode per number; the lock order is inode lock, gate, map lock; none is held while I/O is in flight; the map is
//! published before the size that needs it. Limits: a file ends where its map can (`max_size`).

mod absent;
mod attrs;
mod beforehand;
mod brief;
mod cached;
mod claims;
mod clusters;
mod commit_change;
mod delayed;
pub(crate) mod dirty_times;
mod durable;
mod fill;
mod first;
mod flags;
mod fs;
pub(crate) mod generation;
mod grow;
mod handle;
mod handles;
mod inline;
mod inside;
mod job;
mod journalled;
mod known;
mod node_reserve;
mod open_file;
mod orphaned;
mod parts;
pub(crate) mod pieces;
mod queues;
mod read;
mod recent;
mod remap;
mod remembered;

mod shortage;
mod table;
mod tail;
mod times;
mod untorn;
mod view;
mod whole_map;
mod written;

pub(crate) use absent::Glance;
use brief::Brief;
pub(crate) use cached::PageClaim;
use claims::Claims;
pub(crate) use claims::From;
use delayed::Delayed;
pub(crate) use durable::Owed;
pub(crate) use fill::{Patience, fill};
pub(crate) use first::CAPABILITY;
use first::FirstWrite;
pub(crate) use fs::Fs;
pub(crate) use handle::Handle;
use inside::Inside;
pub(crate) use inside::{INSIDE_CREDITS, inline_contents, inline_tail, inline_value};
pub(crate) use job::{Conversion, Data, Durable, Job};
use node_reserve::NodeReserve;
pub(crate) use open_file::OpenFile;
pub(crate) use queues::Queues;
pub use queues::Quiesced;
pub(crate) use read::{in_core, read_inode, read_orphan};
pub(crate) use remap::Remap;
pub(crate) use remembered::{HashRoot, Remembered};
pub(crate) use shortage::Shortage;
use tail::Tail;
pub(crate) use times::timestamp;
use times::{NO_TID, note_tid};
pub use untorn::AtomicLimits;
use untorn::Untorn;
pub(crate) use untorn::{Ways, fill_anew, is_mapped};

use crate::disk::cache::Kind;
use crate::error::{Error, Wait};
use crate::journal::JournalHandle;
use crate::locks::{INODE, INODE_STATE, MAP};
use crate::map::{MapView, Published, Publishers, root_view};
use crate::pages::Pages;
use crate::turn::Pending;
use crate::turn::appends::Appends;
use crate::turn::gate::Gate;
use diorite_block::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use diorite_block::sync::{Biased, BiasedReadGuard, BiasedWriteGuard, Mutex};
use diorite_format::{FileType, FsBlock, Inode as DiskInode, InodeFlags, MapKind};
use std::ops::Range;
use std::sync::Arc;
use written::Written;

/// An in-core inode.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) volume: Arc<Fs>,
    pub(crate) ino: diorite_format::Ino,
    brief: Brief,
    /// The inode as it is in the inode table, or will be when the running transaction is committed.
    disk: Mutex<Arc<DiskInode>>,
    /// The inode's raw bytes. Only the extended attributes in them are kept up to date.
    raw: Mutex<Arc<[u8]>>,
    /// Its data goes through the journal. Changes only while no request of the file is under way.
    journalled: AtomicBool,
    /// Why a write may not simply go down: set-uid to clear, inline data, immutable, ... One word, loaded by every write.
    first: FirstWrite,
    size: AtomicU64,
    /// The largest size that the map allows, in bytes: no write may end behind it.
    pub(crate) max_size: u64,
    lock: Biased<Remembered>,
    /// The lock's value has subdirectories: read without it.
    knows_subdirs: AtomicBool,
    /// How often the blocks of the directory were rebuilt.
    remade: AtomicU64,
    pub(crate) gate: Gate,
    pub(crate) map: Published<MapView>,
    /// The views that those who write the file have replaced.
    pub(crate) map_publishers: Publishers<MapView>,
    /// Serialises publications of `map`; no reader takes it.
    pub(crate) map_lock: Mutex<()>,
    /// Inline data, if the file has that instead of a map.
    inside: Inside,
    /// The pending map: writes into new space that are under way.
    pub(crate) pending: Pending<Job>,
    /// Where new blocks of the file are claimed.
    pub(crate) claims: Claims,
    /// Blocks reserved for the nodes that conversions of writes under way may need.
    pub(crate) node_reserve: NodeReserve,
    untorn: Untorn,
    /// Whether the bytes behind the size, in its last block, are known to be zeros.
    tail: Tail,
    /// The transaction that changed map or size last, and the one that changed anything last: see [`Inode::uncommitted_map`].
    map_tid: AtomicU64,
    any_tid: AtomicU64,
    /// The transaction that changed its block of the inode table last, for this inode. Until it is committed the block is in memory.
    table_tid: AtomicU64,
    /// When data was written last.
    written: Written,
    /// The next read has to find out whether it changes atime; and when data was read last, as a mark of `written`.
    read_matters: AtomicBool,
    read_at: AtomicU64,
    /// Its cached pages, and the space reserved for those of them that have no place yet.
    pub(crate) pages: Pages,
    pub(crate) delayed: Delayed,
    /// Who appends through the cache.
    pub(crate) appends: Appends,
    /// How many segments of the map are in memory, without the root's.
    loaded: AtomicUsize,
    /// Whether it has a name: a [`Named`].
    named: AtomicU32,
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.volume.presence.went(self.ino);
        self.claims.close(self);
        self.let_go_of_swapped();
        self.volume
            .sub_segments(self.loaded.load(Ordering::Relaxed));
        if self.is_unlinked() && !self.is_deleted() {
            self.volume.orphans.doom(self.ino);
            // Whoever knew that it was the last user deletes it now. Others do not: then the keeper does.
            if let Some(journal) = self.volume.journal_if_any() {
                journal.expect_commit();
            }
        }
        self.volume.inodes_gone.fetch_add(1, Ordering::Relaxed);
    }
}

impl Inode {
    /// An in-core inode. `inline_data` is the file's whole contents if they are in the inode.
    pub(crate) fn new(
        volume: &Arc<Fs>,
        disk: DiskInode,
        raw: Arc<[u8]>,
        inline_data: Option<Arc<[u8]>>,
    ) -> Result<Arc<Inode>, Error> {
        let level = volume.level;
        let view = root_view(volume, &disk)?;
        let journalled = journalled::is_journalled(volume, &disk);
        let first = FirstWrite::of(volume, &disk, &raw, journalled);
        volume.presence.came(disk.ino);
        Ok(Arc::new(Inode {
            volume: volume.clone(),
            ino: disk.ino,
            brief: Brief::of(&disk, &raw),
            size: AtomicU64::new(disk.size),
            lock: Biased::at_level(&INODE, level, Remembered::default()),
            knows_subdirs: AtomicBool::new(false),
            remade: AtomicU64::new(0),
            gate: Gate::new(level),
            map: Published::new(level, view),
            map_publishers: Publishers::new(level),
            map_lock: Mutex::at_level(&MAP, level, ()),
            max_size: max_size(volume, &disk),
            inside: Inside::new(level, inline_data),
            pending: Pending::new(level),
            claims: Claims::new(level),
            node_reserve: NodeReserve::new(level),
            untorn: Untorn::default(),
            tail: Tail::default(),
            map_tid: AtomicU64::new(NO_TID),
            any_tid: AtomicU64::new(NO_TID),
            table_tid: AtomicU64::new(NO_TID),
            written: Written::new(level),
            read_matters: AtomicBool::new(times::reads_matter(volume, &disk)),
            read_at: AtomicU64::new(0),
            pages: Pages::new(level, &volume.page_cache, volume.block_size()),
            delayed: Delayed::new(level),
            appends: Appends::new(level),
            loaded: AtomicUsize::new(0),
            named: AtomicU32::new(Named::Yes as u32),
            disk: Mutex::at_level(&INODE_STATE, level, Arc::new(disk)),
            raw: Mutex::at_level(&INODE_STATE, level, raw),
            journalled: AtomicBool::new(journalled),
            first,
        }))
    }

    /// The inode as it is now, with changes that are not committed yet.
    pub(crate) fn disk(&self) -> Arc<DiskInode> {
        self.disk.lock().clone()
    }

    /// The inode's raw bytes, for the extended attributes in it.
    pub(crate) fn raw(&self) -> Arc<[u8]> {
        self.raw.lock().clone()
    }

    /// Does its data go through the journal?
    #[inline]
    pub(crate) fn is_journalled(&self) -> bool {
        self.journalled.load(Ordering::Acquire)
    }

    /// It has no name, so it is deleted with its last user.
    pub(crate) fn is_unlinked(&self) -> bool {
        self.named.load(Ordering::Acquire) != Named::Yes as u32
    }

    /// It never had a name (O_TMPFILE), and may get one.
    pub(crate) fn is_temporary(&self) -> bool {
        self.named.load(Ordering::Acquire) == Named::NotYet as u32
    }

    /// Call when it has lost its last name and is on the orphan list.
    pub(crate) fn note_unlinked(self: &Arc<Self>) {
        self.named.store(Named::NoMore as u32, Ordering::Release);
        self.volume.known.note_unlinked(self);
        self.volume.recent.let_go(self.ino);
        self.volume.cached.let_go(self.ino);
        self.volume.forget_touched(self);
    }

    /// It is being deleted, or was deleted.
    pub(crate) fn is_deleted(&self) -> bool {
        self.named.load(Ordering::Acquire) == Named::Deleted as u32
    }

    /// Call when it has lost its last name and is being deleted, or was deleted.
    pub(crate) fn note_deleted(&self) {
        self.named.store(Named::Deleted as u32, Ordering::Release);
    }

    /// Call when it keeps its last name after all, which was being removed.
    pub(crate) fn note_kept(&self) {
        self.named.store(Named::Yes as u32, Ordering::Release);
    }

    /// Call when it was created without a name and is on the orphan list.
    pub(crate) fn note_temporary(&self) {
        self.named.store(Named::NotYet as u32, Ordering::Release);
    }

    /// Call when it has got a name and is on the orphan list no more.
    pub(crate) fn note_named(self: &Arc<Self>) {
        self.named.store(Named::Yes as u32, Ordering::Release);
        self.volume.keep_touched(self);
        self.volume.cached.note_named(self);
        self.volume.known.note_named(self.ino);
    }

    /// Shows a new size to readers. Call it after the map was published that the size needs.
    pub(crate) fn publish_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Changes the inode, in memory and in the inode table, as a part of the handle's transaction. Blocks while the device reads.
    pub(crate) fn change(
        &self,
        handle: &JournalHandle<'_>,
        change: impl FnOnce(&mut DiskInode),
    ) -> Result<(), Error> {
        self.changed(handle, change).map(drop)
    }

    /// As [`Inode::change`]; returns the inode as it is then.
    pub(crate) fn changed(
        &self,
        handle: &JournalHandle<'_>,
        change: impl FnOnce(&mut DiskInode),
    ) -> Result<Arc<DiskInode>, Error> {
        let (block, from) = self.volume.inode_place(self.ino)?;
        let to = from + self.volume.sb.geometry().inode_size() as usize;
        let mut change = Some(change);
        loop {
            // Noted before the change, so that no sync finds the change without its transaction.
            note_tid(&self.any_tid, handle.tid());
            let mut disk = self.disk.lock();
            // Nobody waits for the device behind the lock: a block that is not in memory is read without it.
            let changed = handle.update_present(block, Kind::InodeTable, |raw| {
                let new = Arc::make_mut(&mut disk);
                change.take().expect("a block is changed once")(new);
                // What is in memory is what the disk can hold.
                new.settle_times();
                self.brief.note(new);
                // A change may make mtime or ctime newer than atime, so that the next read moves atime (relatime).
                self.look_at_reads_of(new);
                Ok(new.write(&self.volume.sb, &mut raw[from..to])?)
            })?;
            if changed.is_some() {
                note_tid(&self.table_tid, handle.tid());
                return Ok(disk.clone());
            }
            drop(disk);
            handle.read(block, Kind::InodeTable, |_| Ok(()))?;
        }
    }

    /// As [`Inode::change`], for extended attributes in the inode too: `change` gets the inode's raw bytes, and may fail. The caller keeps
    /// others from changing attributes meanwhile.
    pub(crate) fn change_attributes(
        &self,
        handle: &JournalHandle<'_>,
        change: impl FnOnce(&mut DiskInode, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (block, place) = self.begin_change(handle)?;
        let mut disk = self.disk.lock();
        let mut new = DiskInode::clone(&disk);
        let bytes = handle.update(
            block,
            Kind::InodeTable,
            |_| Ok(()),
            |raw| {
                let mut bytes = raw[place.clone()].to_vec();
                change(&mut new, &mut bytes)?;
                new.settle_times();
                new.write(&self.volume.sb, &mut bytes)?;
                raw[place].copy_from_slice(&bytes);
                Ok(bytes)
            },
        )?;
        self.brief.note_attributes(&new, &bytes);
        *disk = Arc::new(new);
        drop(disk);
        *self.raw.lock() = bytes.into();
        Ok(())
    }

    /// The place of the inode in the inode table. Reads that block, and notes the transaction, before anything is changed: later no read
    /// may fail.
    fn begin_change(&self, handle: &JournalHandle<'_>) -> Result<(FsBlock, Range<usize>), Error> {
        let (block, from) = self.volume.inode_place(self.ino)?;
        handle.read(block, Kind::InodeTable, |_| Ok(()))?;
        note_tid(&self.any_tid, handle.tid());
        let size = self.volume.sb.geometry().inode_size() as usize;
        Ok((block, from..from + size))
    }

    /// The size in bytes. Load it before the map, as writers publish the map first.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Call when it is the value of an extended attribute: its data does not go through the journal as a file's with that flag does.
    pub(crate) fn note_value(&self) {
        self.journalled.store(false, Ordering::Release);
    }

    /// Are its data blocks logged in the journal as metadata is? They are for directories, symbolic links and values of attributes.
    pub(crate) fn holds_metadata(&self) -> bool {
        let disk = self.disk();
        let named = matches!(
            disk.file_type,
            Some(FileType::Directory | FileType::Symlink)
        );
        let was_value = disk.links == 0 && disk.flags.has(InodeFlags::JOURNAL_DATA);
        named || disk.holds_value() || was_value
    }

    /// Takes the inode lock shared.
    pub(crate) fn lock_shared(
        &self,
        nowait: bool,
    ) -> Result<BiasedReadGuard<'_, Remembered>, Error> {
        if nowait {
            return self
                .lock
                .try_read()
                .ok_or(Error::WouldBlock(Wait::InodeLock));
        }
        Ok(self.lock.read())
    }

    /// Takes the inode lock shared, for a moment, if it is free now. Threads that do so write no memory that they share.
    #[inline]
    pub(crate) fn try_lock_briefly(&self) -> Option<BiasedReadGuard<'_, Remembered>> {
        self.lock.try_read_briefly()
    }

    /// As [`Inode::lock_shared`], for a moment: its holder waits for nothing.
    pub(crate) fn lock_briefly(
        &self,
        nowait: bool,
    ) -> Result<BiasedReadGuard<'_, Remembered>, Error> {
        if nowait {
            let free = self.try_lock_briefly();
            return free.ok_or(Error::WouldBlock(Wait::InodeLock));
        }
        Ok(self.lock.read_briefly())
    }

    /// Takes the inode lock exclusively.
    pub(crate) fn lock_exclusive(
        &self,
        nowait: bool,
    ) -> Result<BiasedWriteGuard<'_, Remembered>, Error> {
        if nowait {
            let free = self.lock.try_write();
            let free = free.ok_or(Error::WouldBlock(Wait::InodeLock));
            return free.map(|names| self.forgotten(names));
        }
        Ok(self.forgotten(self.lock.write()))
    }

    /// Takes the inode lock exclusively, as one of several inodes': they must be locked in the order of the inodes' numbers.
    pub(crate) fn lock_numbered(&self) -> BiasedWriteGuard<'_, Remembered> {
        self.forgotten(self.lock.write_numbered(self.ino.get()))
    }

    /// Counts segments of the map that were loaded.
    pub(crate) fn note_loaded(&self, segments: usize) {
        self.loaded.fetch_add(segments, Ordering::Relaxed);
        self.volume.add_segments(segments);
    }

    /// Counts the segments that the map has lost because it fell back to its root.
    pub(crate) fn note_dropped(&self) {
        self.volume
            .sub_segments(self.loaded.swap(0, Ordering::Relaxed));
    }

    /// Counts a change of the map that replaced `before` segments by `now` others.
    pub(crate) fn note_reloaded(&self, before: usize, now: usize) {
        if now >= before {
            return self.note_loaded(now - before);
        }
        // The root's segments were never counted, so there may be fewer to take off.
        let less = |loaded: usize| Some(loaded.saturating_sub(before - now));
        let relaxed = Ordering::Relaxed;
        if let Ok(loaded) = self.loaded.fetch_update(relaxed, relaxed, less) {
            self.volume.sub_segments(loaded.min(before - now));
        }
    }

    /// Encrypted and verity files are refused by name.
    pub(crate) fn check_data_access(&self) -> Result<(), Error> {
        let refused = |what: &str, help| {
            Err(Error::refused(
                format!("inode {} is {what}", self.ino),
                help,
            ))
        };
        let flags = self.disk().flags;
        if flags.has(InodeFlags::ENCRYPT) {
            return refused(
                "encrypted (feature encrypt)",
                "its data cannot be read without the key; use the kernel",
            );
        }
        if flags.has(InodeFlags::VERITY) {
            return refused(
                "protected by verity (feature verity)",
                "its data cannot be verified here; use the kernel",
            );
        }
        Ok(())
    }
}

/// Whether an inode in memory has a name.
#[derive(Clone, Copy)]
enum Named {
    Yes,
    /// It has lost its last name since it came into memory.
    NoMore,
    /// It was created without a name.
    NotYet,
    /// It is being deleted, or was; another inode may have its number.
    Deleted,
}

/// The largest size that a file's map can have, in bytes.
fn max_size(volume: &Fs, disk: &DiskInode) -> u64 {
    let block = u64::from(volume.block_size());
    let mut kind = disk.map_kind();
    if kind == MapKind::Inline {
        let mut later = disk.clone();
        later.end_inline(&volume.sb);
        kind = later.map_kind();
    }
    let blocks = match kind {
        MapKind::Indirect => {
            let per = block / 4;
            (12 + per + per * per + per * per * per).min(u64::from(u32::MAX))
        }
        _ => u64::from(u32::MAX),
    };
    blocks * block
}
