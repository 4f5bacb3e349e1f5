//! What of an inode is not durable yet: times that are only noted, and the transactions that changed it last.
//!
//! Input: notes of writes and of changes. Output: what an fsync has to wait for, and the times in the inode. Invariants: noting is a load
//! and rarely a store, and takes no time back that a later write has noted; who asks while times are being written finds either the mark
//! or the transaction. Limits: 64 bits of nanoseconds, half of which are used: the year 2262.

use super::Inode;
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use crate::options::AccessTimes;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use diorite_format::{FileType, Inode as DiskInode, InodeFlags, Tid, Timestamp};
use std::sync::Arc;

/// In an inode's `touched`: the time has to be written.
const OWED: u64 = 1;

/// Nanoseconds by which a write that asked the clock before another one may be noted after it; a clock that is put back goes back further.
const RACE: u64 = 1_000_000_000;

/// No transaction: see [`note_tid`].
pub(super) const NO_TID: u64 = 0;

/// Keeps a transaction's number where 0 stands for none.
pub(super) fn note_tid(place: &AtomicU64, tid: Tid) {
    place.store(1 << 32 | u64::from(tid.get()), Ordering::Release);
}

/// Seconds.
const DAY: i64 = 86_400;

/// May reading this inode - data, names, a target - change its time of access?
#[inline]
pub(super) fn reads_matter(volume: &Fs, disk: &DiskInode) -> bool {
    use FileType::{Directory, Regular, Symlink};
    volume.access_times != AccessTimes::Never
        && matches!(disk.file_type, Some(Regular | Directory | Symlink))
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

impl Inode {
    /// Notes that data was written now (nanoseconds since 1970). Costs one load if that was noted already, or is the inode's time.
    #[inline]
    pub(crate) fn touch(self: &Arc<Self>, now: u64) {
        if self.touched.load(Ordering::Acquire) >> 1 != now {
            self.note_written(now);
        }
    }

    #[cold]
    fn note_written(self: &Arc<Self>, now: u64) {
        let later = |noted: u64| {
            let last = noted >> 1;
            let time = if last > now && last - now < RACE {
                last
            } else {
                now
            };
            Some(time << 1 | OWED)
        };
        let note = || {
            let noted = self
                .touched
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
            noted.is_ok_and(|noted| noted & OWED == 0)
        };
        if self.volume.note_touched(self, note) {
            self.look_at_reads();
        }
    }

    /// Notes that data was read, or names, or a link's target. Costs one load if that changes nothing.
    #[inline]
    pub(crate) fn note_read(self: &Arc<Self>) {
        if self.read_matters.load(Ordering::Relaxed) {
            self.note_read_now();
        }
    }

    /// The next read may change the time of access again: something else has changed.
    fn look_at_reads(&self) {
        self.look_at_reads_of(&self.disk());
    }

    /// The same, where the inode is being changed to this.
    #[inline]
    pub(super) fn look_at_reads_of(&self, disk: &DiskInode) {
        if reads_matter(&self.volume, disk) {
            self.read_matters.store(true, Ordering::Relaxed);
        }
    }

    #[cold]
    fn note_read_now(self: &Arc<Self>) {
        let (now, disk) = (self.volume.now_nanos(), self.disk());
        let (read, policy) = (timestamp(now), self.volume.access_times);
        if policy == AccessTimes::Relative {
            // Until something changes it is later than that, though it may be more than a day.
            self.read_matters.store(false, Ordering::Relaxed);
        }
        let written = timestamp(self.touched.load(Ordering::Acquire) >> 1);
        let last = written.max(disk.mtime).max(disk.ctime);
        let moves = match policy {
            AccessTimes::Never => false,
            AccessTimes::Relative => disk.atime <= last || read.secs - disk.atime.secs >= DAY,
            AccessTimes::Always => disk.atime != read,
        };
        if moves {
            let note = || self.read_at.swap(now << 1 | OWED, Ordering::AcqRel) & OWED == 0;
            self.volume.note_touched(self, note);
        }
    }

    /// What was noted of writes comes before the time that is put into the inode now. Called where nobody else changes that.
    pub(crate) fn forget_noted_write(&self) {
        self.touched.store(0, Ordering::Release);
    }

    /// The same of reads.
    pub(crate) fn forget_noted_read(&self) {
        self.read_at.store(0, Ordering::Release);
    }

    /// Are there times that were noted, and somebody to write them? A volume without its journal is open for overwrites alone.
    pub(crate) fn owes_times(&self) -> bool {
        if self.volume.takes_overwrites_alone() {
            return false;
        }
        let noted = self.touched.load(Ordering::Acquire) | self.read_at.load(Ordering::Acquire);
        noted & OWED != 0
    }

    /// Writes the times that were noted, if there are some, in a handle of its own. Blocks; no lock may be held.
    pub(crate) fn write_noted_times(self: &Arc<Self>) -> Result<(), Error> {
        if self.owes_times() {
            self.volume
                .in_handle(1, |handle| self.write_touched(handle))?;
            self.volume.forget_written_times(self);
        }
        Ok(())
    }

    /// Writes the times that were noted.
    pub(crate) fn write_touched(self: &Arc<Self>, handle: &JournalHandle<'_>) -> Result<(), Error> {
        if !self.owes_times() {
            return Ok(());
        }
        let (mut noted, mut read) = (0, 0);
        self.change(handle, |disk| {
            // Here, where nobody else changes the inode: who sets times takes the marks away in the same step.
            noted = self.touched.load(Ordering::Acquire);
            read = self.read_at.load(Ordering::Acquire);
            if noted & OWED != 0 {
                let time = timestamp(noted >> 1);
                (disk.mtime, disk.ctime) = (time, time);
            }
            if read & OWED != 0 {
                disk.atime = timestamp(read >> 1);
            }
        })?;
        // Only now: who asks meanwhile whether times are owed finds either the mark or the transaction. What was noted meanwhile stays
        // marked, and its inode is in the list as long as there is a mark.
        for (place, noted) in [(&self.touched, noted), (&self.read_at, read)] {
            let written = noted & !OWED;
            let _newer =
                place.compare_exchange(noted, written, Ordering::AcqRel, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The transaction that last changed the map or the size, if it is not durable yet.
    #[inline]
    pub(crate) fn uncommitted_map(&self) -> Option<Tid> {
        self.uncommitted(&self.map_tid)
    }

    /// The transaction that last changed anything of it, if it is not durable yet.
    pub(crate) fn uncommitted_change(&self) -> Option<Tid> {
        self.uncommitted(&self.any_tid)
    }

    /// Were times or anything else changed that is not durable yet?
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
}
