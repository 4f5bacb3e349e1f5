//! The volume: everything that the open files and queues of one file system share.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `inodes` | an inode's number -> the inode in memory |
//! | `queues` | queues that come and go -> drains on behalf of others, counters |
//! | `group` | many changes -> all of them, or none |
//! | `dirty_times` | times that were only noted -> times in the running transaction |
//! | `usage` | a moment -> what is held then |
//! | `durable` | changes of metadata -> handles, commits, the way home |
//!
//! Input: a device and what `mount` read from it. Output: files, queues, counters. Invariants: a volume outlives its files
//! and queues; one in-core inode per number. Limits: the public [`Volume`] may be dropped while files are open: they keep what they
//! need.

mod dirty_times;
mod durable;
mod group;
mod inodes;
mod queues;
mod recent;
mod usage;

use crate::alloc::Alloc;
use crate::cache::MetaCache;
use crate::caller::Caller;
use crate::error::Error;
use crate::failure::{Condition, Health};
use crate::file::File;
use crate::journal::Journal;
use crate::locks::{INODES, QUEUES, RENAMES, SYNC_POOL};
use crate::mount;
use crate::mount::{Mounted, Zone};
use crate::options::OpenFlags;
use crate::options::{AccessTimes, Clock, OpenOptions};
use crate::orphan::Orphans;
use crate::policy::Policy;
use crate::queue::{BlockingWork, Queue, SyncQueue};
use crate::stats::{Counters, JournalStats};
use crate::workers::Workers;
use crate::xattr::EqualBlocks;
use diorite_block::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use diorite_block::sync::{Mutex, thread};
use diorite_block::{Blocking, Device, Epoch, Locator, Told};
use diorite_format::features::RoCompat;
use diorite_format::{FsBlock, GroupDesc, Ino, Superblock};
use dirty_times::DirtyTimes;
pub use group::Group;
use inodes::InodeTable;
use queues::Registry;
use recent::Recent;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// An open volume. Send and Sync; cheap to clone. Dropping the last one keeps files and queues working; use
/// [`Volume::close`] to end everything. It must not be used in the child after a fork.
#[derive(Clone, Debug)]
pub struct Volume {
    shared: Arc<Owner>,
    /// User and group of what is created through this handle.
    owner: (u32, u32),
}

/// Ends the pool of blocking queues, which hold the volume, when the last handle goes.
#[derive(Debug)]
struct Owner {
    volume: Arc<VolumeShared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let pool = self.volume.sync_pool.lock().take();
        drop(pool);
        self.volume.recent.close();
        self.volume.delete_doomed_best_effort();
        self.volume.settle_best_effort();
    }
}

impl Drop for VolumeShared {
    fn drop(&mut self) {
        // Files that outlived the last handle of the volume may have changed something since.
        self.settle_best_effort();
    }
}

/// What everything in a volume shares.
pub(crate) struct VolumeShared {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) blocking: Blocking,
    pub(crate) sb: Superblock,
    pub(crate) groups: Box<[GroupDesc]>,
    pub(crate) cache: MetaCache,
    pub(crate) workers: Workers,
    /// Where changes of metadata go, once there may be some.
    journal: OnceLock<Journal>,
    /// What is free, in a volume that is open for writing.
    pub(crate) alloc: Option<Alloc>,
    clock: Clock,
    /// What reading does to times.
    pub(crate) access_times: AccessTimes,
    /// Blocks that are kept for root may be used.
    pub(crate) privileged: bool,
    /// On whose behalf files are written.
    pub(crate) caller: Caller,
    /// The superblock says that there may be files past 2 GiB.
    pub(crate) large_files: AtomicBool,
    pub(crate) orphans: Orphans,
    /// Held while a directory gets another parent.
    pub(crate) renames: Mutex<()>,
    dirty_times: DirtyTimes,
    /// The failed flushes that were told of by syncs of the volume.
    pub(crate) told: Told,
    /// Whether it can be written, or used at all.
    pub(crate) health: Health,
    weak: Weak<VolumeShared>,
    /// Bytes written to the device since it was opened. Queues add theirs now and then.
    written: AtomicU64,
    pub(crate) mounted_on: Option<String>,
    /// How high the volume stands in a stack of volumes: 1 on a bottom device.
    pub(crate) level: u8,
    /// The mount options say that all file data goes through the journal.
    pub(crate) data_journalled: bool,
    name: String,
    /// What was noted while it was opened.
    notes: OnceLock<Vec<String>>,
    writable: bool,
    zone: Zone,
    /// The journal's own blocks, known once its inode has been read.
    journal_zone: OnceLock<Zone>,
    policy: AtomicU32,
    inodes: Mutex<InodeTable>,
    pub(crate) recent: Recent,
    /// Blocks of attributes that others may have too.
    pub(crate) equal_blocks: EqualBlocks,
    /// Segments of maps in memory beyond the inodes' roots, and how many there may be.
    loaded_segments: AtomicU64,
    most_segments: u64,
    queues: Mutex<Registry>,
    /// None once the last handle of the volume is gone.
    sync_pool: Mutex<Option<Vec<SyncQueue>>>,
}

impl std::fmt::Debug for VolumeShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume")
            .field("name", &self.name)
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

impl Volume {
    /// Opens the volume that a locator names: `disk.img`, `/dev/x?part=2`, `mem:64M`, `outer.img!/inner.img`. Blocks.
    ///
    /// # Errors
    /// The locator, the device, a damaged or unsupported volume, or (for writing) a state that forbids it.
    pub fn open(locator: &str, options: &OpenOptions) -> Result<Volume, Error> {
        mount::open(&Locator::parse(locator)?, options)
    }

    /// As [`Volume::open`], for a locator that is not text: of a host file whose path is not, say ([`Locator::file`]).
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_locator(locator: &Locator, options: &OpenOptions) -> Result<Volume, Error> {
        mount::open(locator, options)
    }

    /// Opens the volume on a device that the caller has.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_device(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Volume, Error> {
        mount::open_device(device, options)
    }

    pub(crate) fn assemble(mounted: Mounted, options: &OpenOptions) -> Volume {
        let Mounted {
            device,
            blocking,
            sb,
            groups,
            zone,
            data_journalled,
            ..
        } = mounted;
        let level = device
            .level()
            .checked_add(1)
            .expect("what opened it has refused more levels");
        let volume = Arc::new_cyclic(|weak| VolumeShared {
            weak: weak.clone(),
            journal: OnceLock::new(),
            alloc: options
                .write
                .then(|| Alloc::new(level, &sb, &groups, options.metadata_cache / 4)),
            clock: options.clock,
            written: AtomicU64::new(0),
            mounted_on: options.mounted_on.clone(),
            access_times: match options.write {
                true => options.access_times,
                false => AccessTimes::Never,
            },
            privileged: options.caller.is_privileged(&sb),
            caller: options.caller.clone(),
            large_files: AtomicBool::new(sb.features().ro_compat.has(RoCompat::LARGE_FILE)),
            orphans: Orphans::new(level),
            renames: Mutex::at_level(&RENAMES, level, ()),
            dirty_times: DirtyTimes::new(level),
            health: Health::new(level),
            cache: MetaCache::new(level, sb.block_size(), options.metadata_cache),
            workers: Workers::new(level, options.workers),
            level,
            data_journalled,
            name: device.name(),
            notes: OnceLock::new(),
            writable: options.write,
            zone,
            journal_zone: OnceLock::new(),
            policy: AtomicU32::new(options.policy.pack()),
            inodes: Mutex::at_level(&INODES, level, InodeTable::default()),
            recent: Recent::new(level),
            equal_blocks: EqualBlocks::new(level),
            loaded_segments: AtomicU64::new(0),
            most_segments: options.map_cache as u64 / 32,
            told: blocking.flushes().all_told(),
            queues: Mutex::at_level(&QUEUES, level, Registry::default()),
            sync_pool: Mutex::at_level(&SYNC_POOL, level, Some(Vec::new())),
            device,
            blocking,
            sb,
            groups,
        });
        Volume {
            shared: Arc::new(Owner { volume }),
            owner: options.owner,
        }
    }

    /// The same volume for another user: what is created through this handle is theirs. For frontends that serve many.
    #[must_use]
    pub fn with_owner(&self, uid: u32, gid: u32) -> Volume {
        Volume {
            owner: (uid, gid),
            ..self.clone()
        }
    }

    /// User and group of what is created.
    pub(crate) fn owner(&self) -> (u32, u32) {
        self.owner
    }

    pub(crate) fn inner(&self) -> &Arc<VolumeShared> {
        &self.shared.volume
    }

    /// The checked superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.inner().sb
    }

    /// The checked group descriptors.
    #[must_use]
    pub fn groups(&self) -> &[GroupDesc] {
        &self.inner().groups
    }

    /// The device below.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.inner().device
    }

    /// What a person should know about how the volume was opened, one line each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        self.inner().notes.get().map_or(&[], Vec::as_slice)
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.inner().policy()
    }

    /// Changes the policy for requests from now on.
    pub fn set_policy(&self, policy: Policy) {
        self.inner().policy.store(policy.pack(), Ordering::Relaxed);
    }

    /// Opens a queue of `depth` slots, 1 to [`crate::queue::MAX_DEPTH`].
    ///
    /// # Errors
    /// The host has no memory or descriptors left, or the volume is closed.
    pub fn queue(&self, depth: u32) -> Result<Queue, Error> {
        Queue::open(self.inner(), depth, BlockingWork::Workers)
    }

    /// Opens a file by its inode's number. Blocks while metadata is read.
    ///
    /// # Errors
    /// No such inode, a damaged one, or one that may not be opened this way.
    pub fn open_ino(&self, ino: Ino, flags: OpenFlags) -> Result<File, Error> {
        self.inner().bound_noted_times_best_effort();
        let inode = self.inner().inode(ino)?;
        if inode.is_unlinked() {
            return Err(Error::NotInUse { ino });
        }
        if flags.write {
            self.inner().check_writable()?;
            self.inner().check_holds_data(&inode)?;
        }
        Ok(File::new(inode, flags))
    }

    /// Opens a file by its path, following symbolic links; a directory, too, for what it says of itself and for [`File::sync`]. Paths are
    /// bytes everywhere in this crate - text, `b"..."`, a `Vec<u8>` - so that every name can be opened. Blocks while metadata is read.
    ///
    /// # Errors
    /// As [`Volume::open_ino`], and a path that leads nowhere.
    pub fn open_path(
        &self,
        path: &(impl AsRef<[u8]> + ?Sized),
        flags: OpenFlags,
    ) -> Result<File, Error> {
        let path = path.as_ref();
        let ino = self.resolve(path, true)?;
        self.open_ino(ino, flags).map_err(|e| match e {
            Error::IsADirectory { .. } => Error::IsADirectory {
                path: String::from_utf8_lossy(path).into_owned(),
            },
            other => other,
        })
    }

    /// Makes durable all that was acknowledged, of all files and names. Blocks. As a request of a queue it is
    /// [`crate::Request::sync_volume`].
    ///
    /// # Errors
    /// The device's, once also if it failed somebody else's flush since the last such call: what was written before may be lost. Or the
    /// volume may not be changed any more.
    pub fn sync(&self) -> Result<(), Error> {
        let volume = self.inner();
        volume.sync(volume.told.since())
    }

    /// What all queues of the volume have counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner().counted()
    }

    /// What the journal has done so far. Blocks while a commit is under way.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        let journal = self.inner().journal.get();
        journal.map_or_else(JournalStats::default, Journal::stats)
    }

    /// Blocks of metadata read from the device so far.
    #[must_use]
    pub fn metadata_loads(&self) -> u64 {
        self.inner().cache.loads()
    }

    /// Refuses new requests, waits for those in flight, and flushes the device. Completions stay to be reaped. Blocks.
    ///
    /// # Errors
    /// Those of [`Volume::sync`].
    pub fn close(self) -> Result<(), Error> {
        let volume = self.inner();
        // Asked before it waits: who syncs meanwhile may be told of a failed flush, and this is told of it as well.
        let told = (&volume.told, volume.told.since());
        volume.shut_down();
        drop(volume.sync_pool.lock().take());
        while volume.open_queues().iter().any(|q| q.busy()) {
            volume.drain_all();
            thread::yield_now();
        }
        if !volume.writable {
            return Ok(());
        }
        let data = volume.data_epoch();
        volume.commit_deleted()?;
        volume.settle()?;
        volume.end_sync(told, volume.flush_since(data))
    }
}

impl VolumeShared {
    /// See [`Volume::sync`]; `since` as for [`VolumeShared::make_all_durable`]. No lock may be held.
    pub(crate) fn sync(self: &Arc<Self>, since: Epoch) -> Result<(), Error> {
        if !self.writable {
            return Ok(());
        }
        self.delete_doomed_best_effort();
        self.make_all_durable(since)
    }

    /// The locator or name that the volume was opened by.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn block_size(&self) -> u32 {
        self.sb.block_size()
    }

    pub(crate) fn weak(&self) -> Weak<VolumeShared> {
        self.weak.clone()
    }

    /// Time since 1970, by the volume's clock.
    pub(crate) fn now(&self) -> Duration {
        (self.clock)()
    }

    /// The same in nanoseconds; never 0.
    pub(crate) fn now_nanos(&self) -> u64 {
        u64::try_from(self.now().as_nanos())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// Opening has ended, and this was noted on the way.
    pub(crate) fn set_notes(&self, notes: Vec<String>) {
        self.notes.get_or_init(|| notes);
    }

    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        Policy::unpack(self.policy.load(Ordering::Relaxed))
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
            .or_else(|| self.journal_zone.get().and_then(|z| z.find(at, len)))
    }

    /// Adds the journal's blocks to what no file may point to.
    pub(crate) fn guard_journal(&self, zone: Zone) {
        self.journal_zone.get_or_init(|| zone);
    }
}
