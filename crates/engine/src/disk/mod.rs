//! The disk module: reads and writes a volume's metadata, verified, and tracks whether the volume may still be changed. It decides nothing.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `raw` | a device and a place -> bytes, before there is a volume |
//! | `superblock` | a device -> the superblock, or what replaces a torn one |
//! | `groups` | the superblock -> group descriptors; an inode's number -> its place |
//! | `tuning` | values and features for a superblock -> whether it may have them |
//! | `zone` | a range of blocks -> which of the volume's own structures lies in it |
//! | `cache` | a block of metadata -> its bytes, verified once |
//! | `home` | blocks -> written in place, durably |
//! | `mark` | the first change and the last -> "in use" and "clean" in the superblock |
//! | `health` | errors -> whether the volume can be written, or used at all |
//!
//! Input: a device and its superblock. Output: [`Disk`]. Invariants: what is read is verified before it is used; what is written here
//! is durable when the call returns. Limits: knows no transaction and no inode in memory.

pub(crate) mod cache;
mod groups;
mod health;
mod home;
mod mark;
mod raw;
mod superblock;
#[cfg(test)]
mod tests;
mod tuning;
mod zone;

pub(crate) use groups::{Descriptors, read_disk_inode, read_groups};
pub(crate) use health::{Code, Condition};
pub use raw::read_bytes;
pub(crate) use raw::{Blocks, edit_kept_superblock, edit_superblock, flush, write_block};
pub use superblock::Found as FoundSuperblock;
pub(crate) use superblock::{Raw, blocks_in, find as find_superblock, guess, raw_in, stand_in};
pub(crate) use tuning::{Judged, check_tuning, judge_features};
pub use zone::{Overlap, Zone};

use crate::error::Error;
use crate::latest::Latest;
use crate::options::Clock;
use cache::MetaCache;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use diorite_block::{Blocking, Device, Epoch, Flushes, Told};
use diorite_format::superblock::JournalPlace;
use diorite_format::{FsBlock, GroupDesc, GroupNo, Superblock, bitmap};
use health::Health;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A volume's device, superblock, group descriptors, metadata cache and condition.
pub(crate) struct Disk {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) blocking: Blocking,
    pub(crate) sb: Latest<Superblock>,
    /// The descriptors as they were when the volume was opened, or when their group was added.
    pub(crate) groups: Latest<Box<[GroupDesc]>>,
    pub(crate) cache: MetaCache,
    /// The failed flushes that syncs of the whole volume have reported already.
    pub(crate) told: Told,
    /// The volume's height in a stack of volumes: 1 if its device is not in a volume itself.
    pub(crate) level: u8,
    health: Health,
    clock: Clock,
    /// Bytes written to the device since the volume was opened. Queues add theirs from time to time.
    written: AtomicU64,
    mounted_on: Option<String>,
    name: String,
    writable: bool,
    zone: Latest<Zone>,
    /// The journal's own blocks, known once its inode has been read.
    journal_zone: OnceLock<Zone>,
    /// Those blocks after the journal was moved.
    moved_journal_zone: OnceLock<Zone>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk")
            .field("name", &self.name)
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

/// What opening has read from the device.
pub(crate) struct Parts {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) blocking: Blocking,
    pub(crate) sb: Superblock,
    pub(crate) groups: Box<[GroupDesc]>,
    pub(crate) zone: Zone,
}

/// What the options say of the volume.
pub(crate) struct Terms {
    pub(crate) clock: Clock,
    pub(crate) writable: bool,
    pub(crate) mounted_on: Option<String>,
    /// The metadata cache's budget in bytes.
    pub(crate) cache_bytes: usize,
}

impl Disk {
    pub(crate) fn new(parts: Parts, terms: Terms) -> Disk {
        let level = parts
            .device
            .level()
            .checked_add(1)
            .expect("what opened it has refused more levels");
        Disk {
            told: parts.blocking.flushes().all_told(),
            level,
            health: Health::new(level),
            cache: MetaCache::new(level, parts.sb.block_size(), terms.cache_bytes),
            clock: terms.clock,
            written: AtomicU64::new(0),
            mounted_on: terms.mounted_on,
            name: parts.device.name(),
            writable: terms.writable,
            zone: Latest::new(parts.zone),
            journal_zone: OnceLock::new(),
            moved_journal_zone: OnceLock::new(),
            device: parts.device,
            blocking: parts.blocking,
            sb: Latest::new(parts.sb),
            groups: Latest::new(parts.groups),
        }
    }

    /// The locator or name that the volume was opened by.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn block_size(&self) -> u32 {
        self.sb.block_size()
    }

    /// Was it opened for writing?
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Does the volume have a log? Otherwise a commit writes blocks home in ordered rounds.
    pub(crate) fn has_journal(&self) -> bool {
        self.sb.journal() != JournalPlace::None
    }

    /// Time since 1970, by the volume's clock.
    pub(crate) fn now(&self) -> Duration {
        (self.clock)()
    }

    /// As [`Disk::now`], in nanoseconds; never 0.
    pub(crate) fn now_nanos(&self) -> u64 {
        u64::try_from(self.now().as_nanos())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// As [`Disk::now`], in seconds.
    pub(crate) fn now_seconds(&self) -> i64 {
        i64::try_from(self.now().as_secs()).unwrap_or(i64::MAX)
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.condition() == Condition::Closed {
            Err(Error::ShutDown)
        } else {
            Ok(())
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if !self.writable {
            return Err(Error::ReadOnly(format!(
                "{} was opened for reading only",
                self.name
            )));
        }
        self.check_sound()
    }

    /// Which of the volume's own structures lies in these blocks, if one does.
    pub(crate) fn metadata_in(&self, at: FsBlock, len: u64) -> Option<&'static str> {
        self.zone
            .find(at, len)
            .or_else(|| self.journal_now().and_then(|z| z.find(at, len)))
    }

    /// The volume's structures at fixed places, sorted: first block, length, and what it is.
    pub(crate) fn fixed_runs(&self) -> impl Iterator<Item = (FsBlock, u64, &'static str)> + '_ {
        self.zone.runs()
    }

    /// The block bitmap of a group that has never had an allocation. The work does not depend on the number of groups.
    pub(crate) fn fresh_bitmap(&self, group: GroupNo) -> Result<Vec<u8>, Error> {
        let mut bits = vec![0; self.block_size() as usize];
        bitmap::fresh_blocks(&self.sb, group, [], &mut bits)?;
        let (first, len) = (
            self.sb.group_first_block(group),
            self.sb.group_blocks(group),
        );
        for (at, len) in self.zone.runs_within(first, len.into()) {
            bitmap::mark_blocks(&self.sb, group, &mut bits, at, len);
        }
        Ok(bits)
    }

    /// Number of blocks of the volume's own structures, including the journal's once they are known, and of the blocks before the
    /// first one of group 0. A cluster with some of them counts as a whole.
    pub(crate) fn own_blocks(&self) -> u64 {
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        let journal = self.journal_now().map_or(0, |zone| zone.blocks(ratio));
        self.zone.blocks(ratio) + journal + self.sb.geometry().first_data_block().get()
    }

    /// Replaces superblock, descriptors and the places of structures: the volume has grown. One thread at a time, and while
    /// [`Latest::changes_left`] of the superblock is not 0. The superblock comes last: its numbers lead to the others.
    pub(crate) fn publish(&self, sb: Superblock, groups: Box<[GroupDesc]>, zone: Zone) {
        self.groups.publish(groups);
        self.zone.publish(zone);
        self.sb.publish(sb);
    }

    /// Adds the journal's blocks to those that no file may be mapped to.
    pub(crate) fn guard_journal(&self, zone: Zone) {
        self.journal_zone.get_or_init(|| zone);
    }

    /// As [`Disk::guard_journal`], after the journal was moved: its former blocks are like others. Once only.
    pub(crate) fn guard_moved_journal(&self, zone: Zone) {
        self.moved_journal_zone.get_or_init(|| zone);
    }

    fn journal_now(&self) -> Option<&Zone> {
        let moved = self.moved_journal_zone.get();
        moved.or_else(|| self.journal_zone.get())
    }

    /// Counts bytes that were, or are about to be, written to the device.
    pub(crate) fn note_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// KiB written since mkfs, as the superblock counts them (`s_kbytes_written`).
    pub(crate) fn kbytes_written(&self) -> u64 {
        let now = self.written.load(Ordering::Relaxed) / 1024;
        self.sb.info().kbytes_written.saturating_add(now)
    }

    /// The device's account of flushes: which ones have begun, ended and failed.
    pub(crate) fn flushes(&self) -> &Flushes {
        self.blocking.flushes()
    }

    /// The epoch of data whose writes have ended by now: see [`Epoch`].
    pub(crate) fn data_epoch(&self) -> Epoch {
        self.flushes().now()
    }

    /// Checks that no failed flush may have dropped data of this epoch.
    ///
    /// # Errors
    /// The error of a flush that has failed since, whoever asked for it.
    pub(crate) fn check_flushes_since(&self, epoch: Epoch) -> Result<(), Error> {
        let checked = self.flushes().check(epoch);
        checked.map_err(|e| Error::of_flush(&*self.device, e))
    }

    /// The result that a sync reports, given its own result `done`. The caller of a sync relies on data of any epoch, so the sync fails as
    /// well if a flush has failed that `told` has not reported yet; `since` is `told`'s state when the sync began. Reporting the error
    /// of one flush counts all failures so far as reported.
    ///
    /// # Errors
    /// The sync's own, or that flush's.
    pub(crate) fn end_sync(
        &self,
        (told, since): (&Told, Epoch),
        done: Result<(), Error>,
    ) -> Result<(), Error> {
        if done.as_ref().is_err_and(|error| !error.is_of_flush()) {
            return done;
        }
        let untold = self.flushes().tell(told, since);
        done.and(untold.map_err(|e| Error::of_flush(&*self.device, e)))
    }
}
