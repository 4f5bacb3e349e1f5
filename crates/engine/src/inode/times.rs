//! Changes of an inode that are not durable yet: times that are only noted in memory, and the transactions that changed it last.
//!
//! Input: notes of reads, writes and changes. Output: what an fsync has to wait for; the noted times in the inode. Invariants: noting costs
//! a load and rarely a store, and never replaces a time that a later write has noted; a sync that looks for noted times while they are
//! being written finds either the mark or the transaction. Limits: nanoseconds in 63 bits: until the year 2262.

use super::Inode;
use super::written::{Noted, OWED, Written};
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use crate::options::AccessTimes;
use crate::turn::gate::Shard;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use diorite_format::{FileType, Inode as DiskInode, InodeFlags, Tid, Timestamp};
use std::sync::Arc;

/// Stands for "no transaction": see [`note_tid`].
pub(super) const NO_TID: u64 = 0;

/// Stores a transaction's number, with bit 32 set, so that it differs from [`NO_TID`].
pub(super) fn note_tid(place: &AtomicU64, tid: Tid) {
    place.store(1 << 32 | u64::from(tid.get()), Ordering::Release);
}

/// Did [`note_tid`] store this number last?
pub(super) fn is_tid(place: &AtomicU64, tid: Tid) -> bool {
    place.load(Ordering::Acquire) == 1 << 32 | u64::from(tid.get())
}

/// In seconds.
const DAY: i64 = 86_400;

/// May a read of this inode (data, directory entries, link target) change its atime?
#[inline]
pub(super) fn reads_matter(volume: &Fs, disk: &DiskInode) -> bool {
    let kind_matters = match disk.file_type {
        Some(FileType::Directory) => volume.directory_access_times,
        Some(FileType::Regular | FileType::Symlink) => true,
        _ => false,
    };
    volume.access_times != AccessTimes::Never
        && kind_matters
        && !disk.flags.has(InodeFlags::NOATIME)
        && !disk.holds_value()
}

/// Nanoseconds since 1970 as an inode stores them.
pub(crate) fn timestamp(nanos: u64) -> Timestamp {
    const SECOND: u64 = 1_000_000_000;
    Timestamp {
        secs: i64::try_from(nanos / SECOND).unwrap_or(i64::MAX),
        nanos: u32::try_from(nanos % SECOND).expect("below a second"),
    }
}

impl Fs {
    /// The ctime of an inode that has `ctime`, and data that was written, or a change that was begun, at `written`: something else may have
    /// changed after that. A ctime that is still to come is from before the clock was set back.
    pub(crate) fn later_change(&self, ctime: Timestamp, written: Timestamp) -> Timestamp {
        match ctime > written && ctime <= timestamp(self.now_nanos()) {
            true => ctime,
            false => written,
        }
    }
}

impl Inode {
    /// Notes that data was written at `now` (nanoseconds since 1970). Costs one load if that time was noted already.
    pub(crate) fn touch(self: &Arc<Self>, now: u64) {
        if !self.written.is_noted(now) {
            self.note_written(None, now);
        }
    }

    /// As [`Inode::touch`], by a queue with this shard of the gate: it writes only the shard, unless the times were written to the inode
    /// since its last write.
    #[inline]
    pub(crate) fn touch_from(self: &Arc<Self>, shard: &Arc<Shard>, now: u64) {
        if shard.written.load(Ordering::Acquire) >> 1 != now {
            self.note_written_from(shard, now);
        }
    }

    #[cold]
    fn note_written_from(self: &Arc<Self>, shard: &Arc<Shard>, now: u64) {
        if !Written::note_again(shard, now) {
            self.note_written(Some(shard), now);
        }
    }

    #[cold]
    fn note_written(self: &Arc<Self>, shard: Option<&Arc<Shard>>, now: u64) {
        let note = || self.written.note(shard, now);
        if self.volume.note_touched(self, note) {
            self.look_at_reads();
        }
    }

    /// Call when a queue lets the file go: what it has noted stays.
    pub(super) fn take_over_times(&self, shard: &Arc<Shard>) {
        self.written.take_over(shard);
    }

    /// Notes that data, directory entries, or a link's target were read. Costs one load if that does not change atime.
    #[inline]
    pub(crate) fn note_read(self: &Arc<Self>) {
        if self.read_matters.load(Ordering::Relaxed) {
            self.note_read_now();
        }
    }

    /// Lets the next read look at atime again, as something else has changed.
    fn look_at_reads(&self) {
        self.look_at_reads_of(&self.disk());
    }

    /// As [`Inode::look_at_reads`], while the inode is being changed to `disk`.
    #[inline]
    pub(super) fn look_at_reads_of(&self, disk: &DiskInode) {
        if reads_matter(&self.volume, disk) {
            self.read_matters.store(true, Ordering::Relaxed);
        }
    }

    #[cold]
    fn note_read_now(self: &Arc<Self>) {
        let rests = || self.volume.reads_rest.load(Ordering::Relaxed);
        if rests() {
            return;
        }
        let (now, disk) = (self.volume.now_nanos(), self.disk());
        let (read, policy) = (timestamp(now), self.volume.access_times);
        if policy == AccessTimes::Relative {
            // Until something changes, atime stays newer than mtime and ctime. That it becomes a day old meanwhile is not noticed.
            self.read_matters.store(false, Ordering::Relaxed);
        }
        let written = timestamp(self.written.noted(|| now).latest >> 1);
        let last = written.max(disk.mtime).max(disk.ctime);
        let moves = match policy {
            AccessTimes::Never => false,
            AccessTimes::Relative => disk.atime <= last || read.secs - disk.atime.secs >= DAY,
            AccessTimes::Always => disk.atime != read,
        };
        if moves {
            // Asked again under the list's lock, where the answer cannot change.
            let note =
                || !rests() && self.read_at.swap(now << 1 | OWED, Ordering::AcqRel) & OWED == 0;
            self.volume.note_touched(self, note);
        }
    }

    /// Forgets the noted time of the last write: the inode gets a newer time now. Call it where nobody else changes the inode.
    pub(crate) fn forget_noted_write(&self) {
        self.written.forget();
    }

    /// As [`Inode::forget_noted_write`], for reads.
    pub(crate) fn forget_noted_read(&self) {
        self.read_at.store(0, Ordering::Release);
    }

    /// The inode with the noted times, as it will be once they are written.
    pub(crate) fn with_noted_times(&self, mut disk: Arc<DiskInode>) -> Arc<DiskInode> {
        if !self.owes_times() {
            return disk;
        }
        let time = |noted: u64| (noted & OWED != 0).then(|| timestamp(noted >> 1));
        let written = time(self.noted_writes().latest);
        let read = time(self.read_at.load(Ordering::Acquire));
        let change = Arc::make_mut(&mut disk);
        let wide = change.has_wide_times();
        if let Some(time) = written.map(|time| time.as_stored(wide)) {
            change.ctime = self.volume.later_change(change.ctime, time);
            change.mtime = time;
        }
        if let Some(time) = read {
            change.atime = time.as_stored(wide);
        }
        disk
    }

    /// Are there noted times that will be written? In a volume without its journal, which is open for overwrites only, nobody writes them.
    pub(crate) fn owes_times(&self) -> bool {
        if self.volume.takes_overwrites_alone() {
            return false;
        }
        self.written.is_owed() || self.read_at.load(Ordering::Acquire) & OWED != 0
    }

    fn noted_writes(&self) -> Noted {
        self.written.noted(|| self.volume.now_nanos())
    }

    /// Writes the noted times, if there are any, in a handle of its own. Blocks; no lock may be held.
    pub(crate) fn write_noted_times(self: &Arc<Self>) -> Result<(), Error> {
        if self.owes_times() {
            self.volume
                .in_handle(1, |handle| self.write_touched(handle))?;
            self.volume.forget_written_times(self);
        }
        Ok(())
    }

    /// Writes the noted times, if there are any, in this handle.
    pub(crate) fn write_touched(self: &Arc<Self>, handle: &JournalHandle<'_>) -> Result<(), Error> {
        if !self.owes_times() {
            return Ok(());
        }
        let (mut noted, mut read) = (Noted::default(), 0);
        self.change(handle, |disk| {
            // Loaded here, where nobody else changes the inode: a change of the times clears the marks in the same step.
            noted = self.noted_writes();
            read = self.read_at.load(Ordering::Acquire);
            if noted.latest & OWED != 0 {
                let time = timestamp(noted.latest >> 1);
                disk.ctime = self.volume.later_change(disk.ctime, time);
                disk.mtime = time;
            }
            if read & OWED != 0 {
                disk.atime = timestamp(read >> 1);
            }
        })?;
        // The marks are cleared only now, so whoever asks for owed times meanwhile finds either the mark or the transaction. A time that
        // was noted meanwhile keeps its mark, and the inode stays in the list as long as it has a mark.
        self.written.settle(&noted);
        let ended = read & !OWED;
        let _newer =
            self.read_at
                .compare_exchange(read, ended, Ordering::AcqRel, Ordering::Relaxed);
        Ok(())
    }

    /// The transaction that changed the map or the size last, if it is not durable yet.
    #[inline]
    pub(crate) fn uncommitted_map(&self) -> Option<Tid> {
        self.uncommitted(&self.map_tid)
    }

    /// The transaction that changed anything of the inode last, if it is not durable yet.
    pub(crate) fn uncommitted_change(&self) -> Option<Tid> {
        self.uncommitted(&self.any_tid)
    }

    /// Is there any change of the inode, noted times included, that is not durable yet?
    pub(crate) fn has_uncommitted_times(&self) -> bool {
        self.owes_times() || self.uncommitted_change().is_some()
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
            // If a later change was noted meanwhile, it stays.
            let _ = place.compare_exchange(noted, NO_TID, Ordering::AcqRel, Ordering::Relaxed);
            return None;
        }
        Some(tid)
    }

    /// Notes that this transaction has changed the map or the size.
    pub(crate) fn note_map_change(&self, tid: Tid) {
        note_tid(&self.map_tid, tid);
    }

    /// Call when it was just read: transactions up to this one may have changed it before.
    pub(crate) fn note_changed_before(&self, tid: Tid) {
        note_tid(&self.map_tid, tid);
        note_tid(&self.any_tid, tid);
    }
}
