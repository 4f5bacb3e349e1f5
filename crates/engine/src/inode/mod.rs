//! The inode room: in-core inodes, their lock, their gate, and what a queue keeps of an attached file.
//!
//! Input: inodes that `mount` parsed. Output: [`Inode`]s shared by everyone who has the file open. Invariants: there is one
//! in-core inode per number; the lock order is inode lock, gate, map lock; none is held while I/O is in flight. Limits: in
//! this slice the size and the map never change.

mod aside;
mod attrs;
mod claims;
mod clusters;
mod first;
pub(crate) mod gate;
mod grow;
mod inline;
mod journalled;
mod pending;
mod remap;

use aside::Aside;
pub use attrs::SetAttr;
use claims::Claims;
use first::FirstWrite;
pub(crate) use pending::{Claimed, NoPlace, Pending, Share, Wanted};

use crate::cache::Kind;
use crate::complete::deferred::Job;
use crate::error::{Error, Wait};
use crate::file::File;
use crate::journal::JournalHandle;
use crate::locks::{INODE, INODE_STATE, MAP};
use crate::map::{Cached, MapView, Published, root_view};
use crate::volume::VolumeShared;
use diorite_block::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use diorite_block::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use diorite_format::{FileType, Inode as DiskInode, InodeFlags, MapKind, Tid, Timestamp};
use gate::{Gate, Shard};
use std::sync::Arc;

/// In an inode's `touched`: the time has to be written.
const OWED: u64 = 1;

/// An in-core inode.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) volume: Arc<VolumeShared>,
    pub(crate) ino: diorite_format::Ino,
    /// What its place in the inode table holds, or will hold with the running transaction.
    disk: Mutex<Arc<DiskInode>>,
    /// The inode's own bytes, of which only the attributes that lie in it are kept up to date.
    raw: Mutex<Arc<[u8]>>,
    /// Its data goes through the journal.
    pub(crate) journalled: bool,
    /// What comes before the first write of data.
    first: FirstWrite,
    size: AtomicU64,
    /// Where a write has to end at the latest, in bytes.
    pub(crate) max_size: u64,
    lock: RwLock<()>,
    pub(crate) gate: Gate,
    pub(crate) map: Published<MapView>,
    /// Serialises publications of `map`; no reader takes it.
    pub(crate) map_lock: Mutex<()>,
    /// What was in the inode instead of a map when it was read; whether that has been moved out since.
    inline_data: Option<Box<[u8]>>,
    moved_out: AtomicBool,
    /// Writes into space that is not written yet.
    pub(crate) pending: Pending<Job>,
    /// Where its new blocks come from.
    pub(crate) claims: Claims,
    /// What the conversions of writes under way may need.
    pub(crate) aside: Aside,
    /// What lies behind the size in its block is zeros.
    tail_is_zero: AtomicBool,
    /// The transaction that last changed map or size, and the one that last changed anything: see [`Inode::uncommitted_map`].
    map_tid: AtomicU64,
    any_tid: AtomicU64,
    /// When data was written last, in nanoseconds since 1970, times two; and [`OWED`] if that is not in the inode yet.
    touched: AtomicU64,
    /// Segments of the map in memory beyond the root.
    loaded: AtomicUsize,
    /// Whether it has a name: see [`Named`].
    named: AtomicU32,
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.claims.close(self);
        self.volume
            .sub_segments(self.loaded.load(Ordering::Relaxed));
        if self.is_unlinked() {
            self.volume.orphans.doom(self.ino);
        }
    }
}

impl Inode {
    /// An in-core inode; `inline_data` is the file's whole contents if they lie in the inode.
    pub(crate) fn new(
        volume: &Arc<VolumeShared>,
        disk: DiskInode,
        raw: Arc<[u8]>,
        inline_data: Option<Box<[u8]>>,
    ) -> Result<Inode, Error> {
        let level = volume.level;
        let view = root_view(volume, &disk)?;
        let first = FirstWrite::of(volume, &disk, &raw);
        let journalled = journalled::is_journalled(volume, &disk);
        Ok(Inode {
            volume: volume.clone(),
            ino: disk.ino,
            size: AtomicU64::new(disk.size),
            lock: RwLock::at_level(&INODE, level, ()),
            gate: Gate::new(level),
            map: Published::new(level, view),
            map_lock: Mutex::at_level(&MAP, level, ()),
            max_size: max_size(volume, &disk),
            inline_data,
            moved_out: AtomicBool::new(false),
            pending: Pending::new(level),
            claims: Claims::new(level),
            aside: Aside::new(level),
            tail_is_zero: AtomicBool::new(disk.size % u64::from(volume.block_size()) == 0),
            map_tid: AtomicU64::new(NO_TID),
            any_tid: AtomicU64::new(NO_TID),
            touched: AtomicU64::new(0),
            loaded: AtomicUsize::new(0),
            named: AtomicU32::new(Named::Yes as u32),
            disk: Mutex::at_level(&INODE_STATE, level, Arc::new(disk)),
            raw: Mutex::at_level(&INODE_STATE, level, raw),
            journalled,
            first,
        })
    }

    /// The inode as it is now.
    pub(crate) fn disk(&self) -> Arc<DiskInode> {
        self.disk.lock().clone()
    }

    /// Its bytes, for the attributes in it.
    pub(crate) fn raw(&self) -> Arc<[u8]> {
        self.raw.lock().clone()
    }

    /// It has no name: it goes with its last user.
    pub(crate) fn is_unlinked(&self) -> bool {
        self.named.load(Ordering::Acquire) != Named::Yes as u32
    }

    /// It never had a name, and may get one.
    pub(crate) fn is_temporary(&self) -> bool {
        self.named.load(Ordering::Acquire) == Named::NotYet as u32
    }

    /// It has lost its last name, and is on the list of orphans.
    pub(crate) fn note_unlinked(&self) {
        self.named.store(Named::NoMore as u32, Ordering::Release);
    }

    /// It was made without a name, and is on the list of orphans.
    pub(crate) fn note_temporary(&self) {
        self.named.store(Named::NotYet as u32, Ordering::Release);
    }

    /// It has got a name, and is on no list.
    pub(crate) fn note_named(&self) {
        self.named.store(Named::Yes as u32, Ordering::Release);
    }

    /// Notes that data was written now (nanoseconds since 1970). Costs one load if that was noted already, or is the inode's time.
    #[inline]
    pub(crate) fn touch(self: &Arc<Self>, now: u64) {
        if self.touched.load(Ordering::Acquire) >> 1 != now
            && self.touched.swap(now << 1 | OWED, Ordering::AcqRel) & OWED == 0
        {
            self.volume.note_touched(self);
        }
    }

    /// Writes the times that were noted.
    pub(crate) fn write_touched(self: &Arc<Self>, handle: &JournalHandle<'_>) -> Result<(), Error> {
        let noted = self.touched.load(Ordering::Acquire);
        if noted & OWED == 0 {
            return Ok(());
        }
        self.change(handle, |disk| {
            let time = timestamp(noted >> 1);
            (disk.mtime, disk.ctime) = (time, time);
        })?;
        // Only now: who asks meanwhile whether times are owed finds either the mark or the transaction.
        let written = noted & !OWED;
        let settled =
            self.touched
                .compare_exchange(noted, written, Ordering::AcqRel, Ordering::Relaxed);
        if settled.is_err() {
            self.volume.note_touched(self);
        }
        Ok(())
    }

    /// The transaction that last changed the map or the size, if it is not durable yet.
    #[inline]
    pub(crate) fn uncommitted_map(&self) -> Option<Tid> {
        self.uncommitted(&self.map_tid)
    }

    /// Were times or anything else changed that is not durable yet?
    pub(crate) fn has_uncommitted_times(&self) -> bool {
        self.touched.load(Ordering::Acquire) & OWED != 0
            || self.uncommitted(&self.any_tid).is_some()
    }

    #[inline]
    fn uncommitted(&self, place: &AtomicU64) -> Option<Tid> {
        match place.load(Ordering::Acquire) {
            NO_TID => None,
            noted => self.still_uncommitted(place, noted),
        }
    }

    #[cold]
    fn still_uncommitted(&self, place: &AtomicU64, noted: u64) -> Option<Tid> {
        let tid = Tid::new(u32::try_from(noted & u64::from(u32::MAX)).expect("masked to 32 bits"));
        if self.volume.is_committed(tid) {
            // A later change may have been noted meanwhile: then that stays.
            let _ = place.compare_exchange(noted, NO_TID, Ordering::AcqRel, Ordering::Relaxed);
            return None;
        }
        Some(tid)
    }

    /// The map or the size was changed in this transaction.
    pub(crate) fn note_map_change(&self, tid: Tid) {
        note_tid(&self.map_tid, tid);
    }

    /// What is in it when it is read may have been changed by transactions up to this one.
    pub(crate) fn note_changed_before(&self, tid: Tid) {
        note_tid(&self.map_tid, tid);
        note_tid(&self.any_tid, tid);
    }

    /// Shows a new size. After the map that it needs.
    pub(crate) fn publish_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Changes the inode and writes it to its place in the inode table, in a transaction. Blocks while the device reads.
    pub(crate) fn change(
        &self,
        handle: &JournalHandle<'_>,
        change: impl FnOnce(&mut DiskInode),
    ) -> Result<(), Error> {
        let volume = &self.volume;
        let (block, from) = volume.inode_place(self.ino)?;
        let to = from + volume.sb.geometry().inode_size() as usize;
        // Read first: nothing may fail once the inode has changed.
        handle.read(block, Kind::InodeTable, |_| Ok(()))?;
        note_tid(&self.any_tid, handle.tid());
        let mut disk = self.disk.lock();
        let new = Arc::make_mut(&mut disk);
        change(new);
        handle.update(
            block,
            Kind::InodeTable,
            |_| Ok(()),
            |raw| {
                new.write(&volume.sb, &mut raw[from..to])
                    .map_err(Error::from)
            },
        )
    }

    /// As [`Inode::change`], for the attributes in the inode too: `change` gets its bytes, and may fail. Who calls keeps others who change
    /// attributes out.
    pub(crate) fn change_attributes(
        &self,
        handle: &JournalHandle<'_>,
        change: impl FnOnce(&mut DiskInode, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let volume = &self.volume;
        let (block, from) = volume.inode_place(self.ino)?;
        let to = from + volume.sb.geometry().inode_size() as usize;
        handle.read(block, Kind::InodeTable, |_| Ok(()))?;
        note_tid(&self.any_tid, handle.tid());
        let mut disk = self.disk.lock();
        let mut new = DiskInode::clone(&disk);
        let bytes = handle.update(
            block,
            Kind::InodeTable,
            |_| Ok(()),
            |raw| {
                let mut bytes = raw[from..to].to_vec();
                change(&mut new, &mut bytes)?;
                new.write(&volume.sb, &mut bytes)?;
                raw[from..to].copy_from_slice(&bytes);
                Ok(bytes)
            },
        )?;
        *disk = Arc::new(new);
        drop(disk);
        *self.raw.lock() = bytes.into();
        Ok(())
    }

    /// The size in bytes. Loaded before the map: writers publish the map first.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Do its blocks go through the journal, as metadata does?
    pub(crate) fn holds_metadata(&self) -> bool {
        let kind = self.disk().file_type;
        matches!(kind, Some(FileType::Directory | FileType::Symlink))
    }

    /// Takes the inode lock shared.
    pub(crate) fn lock_shared(&self, nowait: bool) -> Result<RwLockReadGuard<'_, ()>, Error> {
        if nowait {
            return self
                .lock
                .try_read()
                .ok_or(Error::WouldBlock(Wait::InodeLock));
        }
        Ok(self.lock.read())
    }

    /// Takes the inode lock shared if it is free now.
    #[inline]
    pub(crate) fn try_lock_shared(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.lock.try_read()
    }

    /// Takes the inode lock alone.
    pub(crate) fn lock_exclusive(&self, nowait: bool) -> Result<RwLockWriteGuard<'_, ()>, Error> {
        if nowait {
            return self
                .lock
                .try_write()
                .ok_or(Error::WouldBlock(Wait::InodeLock));
        }
        Ok(self.lock.write())
    }

    /// Takes the inode lock alone, as one of several: in the order of the inodes' numbers.
    pub(crate) fn lock_numbered(&self) -> RwLockWriteGuard<'_, ()> {
        self.lock.write_numbered(self.ino.get())
    }

    /// Counts segments that were read into the map.
    pub(crate) fn note_loaded(&self, segments: usize) {
        self.loaded.fetch_add(segments, Ordering::Relaxed);
        self.volume.add_segments(segments);
    }

    /// Counts out what the map has lost by falling back to its root.
    pub(crate) fn note_dropped(&self) {
        self.volume
            .sub_segments(self.loaded.swap(0, Ordering::Relaxed));
    }

    /// Counts segments that a change of the map put in the place of others.
    pub(crate) fn note_reloaded(&self, before: usize, now: usize) {
        if now >= before {
            return self.note_loaded(now - before);
        }
        // The root's own segments were never counted in.
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

    /// May data of this file be overwritten?
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        let (ino, disk) = (self.ino, self.disk());
        let not_permitted = |flag| Err(Error::NotPermitted { ino, flag });
        if disk.flags.has(InodeFlags::IMMUTABLE) {
            return not_permitted("immutable");
        }
        Ok(())
    }
}

/// Whether an inode in memory has a name.
#[derive(Clone, Copy)]
enum Named {
    Yes,
    /// It lost the last one while the volume is open.
    NoMore,
    /// It was made without one.
    NotYet,
}

/// No transaction: see [`note_tid`].
const NO_TID: u64 = 0;

/// Keeps a transaction's number where 0 stands for none.
fn note_tid(place: &AtomicU64, tid: Tid) {
    place.store(1 << 32 | u64::from(tid.get()), Ordering::Release);
}

/// Nanoseconds since 1970 as an inode stores them.
pub(crate) fn timestamp(nanos: u64) -> Timestamp {
    const SECOND: u64 = 1_000_000_000;
    Timestamp {
        secs: i64::try_from(nanos / SECOND).unwrap_or(i64::MAX),
        nanos: u32::try_from(nanos % SECOND).expect("below a second"),
    }
}

/// The largest size that a file's map can have, in bytes.
fn max_size(volume: &VolumeShared, disk: &DiskInode) -> u64 {
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

/// What all requests of one attached file share: counted once per queue, so no reference count is shared by threads.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) inode: Arc<Inode>,
    pub(crate) shard: Arc<Shard>,
    /// Every write is O_DSYNC; O_SYNC.
    pub(crate) dsync: bool,
    pub(crate) sync: bool,
    write_refused: Option<Error>,
    /// Writes need no more than a look at the map. Never goes from true to false: what comes before a write is noted when the inode is read.
    plain_writes: AtomicBool,
}

impl Handle {
    /// The reason why writes through this handle are refused, if they are.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        match &self.write_refused {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Are writes allowed, with nothing to be done before them?
    #[inline]
    pub(crate) fn writes_plainly(&self) -> bool {
        self.plain_writes.load(Ordering::Acquire)
    }

    /// For a write that is allowed: must something be done before it?
    pub(crate) fn owes_first_write(&self) -> bool {
        if self.writes_plainly() {
            return false;
        }
        let owes = self.inode.owes_first_write();
        let plain = !owes && !self.inode.journalled;
        self.plain_writes.store(plain, Ordering::Release);
        owes
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inode.gate.remove_shard(&self.shard);
    }
}

/// A written run, in bytes: where it begins in the file and on the device, and how long it is.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    start: u64,
    len: u64,
    at: u64,
}

impl Run {
    #[inline(always)]
    fn covers(&self, pos: u64, len: u64) -> bool {
        let skip = pos.wrapping_sub(self.start);
        skip < self.len && len <= self.len - skip
    }
}

/// A file attached to a queue.
#[derive(Debug)]
pub(crate) struct Attached {
    handle: Arc<Handle>,
    /// The newest view of the map that this queue has seen.
    view: Cached<MapView>,
    /// The written run of `view` that was looked up last.
    last_run: Run,
    /// Its requests in the queue's slots that are not ready.
    pub(crate) requests: u32,
    pub(crate) generation: u32,
}

impl Attached {
    pub(crate) fn new(file: &File, generation: u32) -> Attached {
        let inode = file.inode().clone();
        let write_refused = file
            .check_writable()
            .and_then(|()| inode.check_writable())
            .err();
        let handle = Handle {
            shard: inode.gate.add_shard(),
            dsync: file.is_dsync(),
            sync: file.is_sync(),
            // Found out by the first one.
            plain_writes: AtomicBool::new(false),
            write_refused,
            inode,
        };
        Attached {
            view: handle.inode.map.cached(),
            last_run: Run::default(),
            handle: Arc::new(handle),
            requests: 0,
            generation,
        }
    }

    /// The file, and the newest view of its map: one load if nothing was published since the last call.
    #[inline]
    pub(crate) fn with_latest_map(&mut self) -> (&Handle, &Arc<MapView>) {
        self.refresh();
        (&self.handle, self.view.value())
    }

    /// Counts a request for `len` bytes at `pos` in flight, if they lie inside the size and in one written run; gives the
    /// byte of the device where they begin. Gate, size, map, in this order.
    #[inline(always)]
    pub(crate) fn enter_for_run(&mut self, pos: u64, len: u64) -> Option<u64> {
        let Attached {
            handle,
            view,
            last_run,
            ..
        } = self;
        let inode: &Inode = &handle.inode;
        if !inode.gate.enter(&handle.shard) {
            return None;
        }
        let size = inode.size();
        let found = if len > size || pos > size - len {
            None
        } else if view.is_latest(&inode.map) && last_run.covers(pos, len) {
            Some(last_run.at + (pos - last_run.start))
        } else {
            self.look_up_run(pos, len)
        };
        if found.is_some() {
            self.requests += 1;
        } else {
            self.handle.inode.gate.leave(&self.handle.shard);
        }
        found
    }

    #[inline(never)]
    fn look_up_run(&mut self, pos: u64, len: u64) -> Option<u64> {
        self.refresh();
        if self.handle.inode.journalled {
            return None;
        }
        let bits = self.handle.inode.volume.block_size().trailing_zeros();
        let (start, blocks, at) = self.view.value().written_run(pos >> bits)?;
        let run = Run {
            start: start << bits,
            len: blocks << bits,
            at: at << bits,
        };
        self.last_run = run;
        run.covers(pos, len).then(|| run.at + (pos - run.start))
    }

    /// Takes the newest view; what was found in an older one is forgotten.
    #[inline]
    fn refresh(&mut self) {
        if self.view.refresh(&self.handle.inode.map) {
            self.last_run = Run::default();
        }
    }

    /// A reference that outlives the queue's lock.
    #[inline]
    pub(crate) fn handle(&self) -> Arc<Handle> {
        self.handle.clone()
    }
}

impl std::ops::Deref for Attached {
    type Target = Handle;
    #[inline]
    fn deref(&self) -> &Handle {
        &self.handle
    }
}
