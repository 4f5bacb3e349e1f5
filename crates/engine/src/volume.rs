//! The volume: everything that the open files and queues of one file system share.
//!
//! Input: a device and what `mount` read from it. Output: files, queues, counters. Invariants: a volume outlives its files
//! and queues; one in-core inode per number; opening for writing changes nothing but file data in this slice. Limits: the
//! public [`Volume`] may be dropped while files are open: they keep what they need.

use crate::alloc::Alloc;
use crate::cache::MetaCache;
use crate::error::Error;
use crate::failure::{Condition, Health};
use crate::file::{File, OpenFlags};
use crate::inode::Inode;
use crate::journal::{Journal, JournalHandle};
use crate::locks::{INODES, QUEUES, RENAMES, SYNC_POOL, TOUCHED};
use crate::mount::{self, Clock, Mounted, OpenOptions, Zone};
use crate::orphan::Orphans;
use crate::policy::Policy;
use crate::queue::{BlockingWork, Queue, QueueShared, SyncQueue};
use crate::stats::{Counters, JournalStats};
use crate::workers::Workers;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use diorite_block::{Blocking, Device};
use diorite_format::features::RoCompat;
use diorite_format::superblock::JournalPlace;
use diorite_format::{FsBlock, GroupDesc, Ino, Superblock, Tid};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Queues for blocking calls that are kept for later callers.
const SYNC_QUEUES_KEPT: usize = 16;

/// An open volume. Send and Sync; cheap to clone. Dropping the last one keeps files and queues working; use
/// [`Volume::close`] to end everything. It must not be used in the child after a fork.
#[derive(Clone, Debug)]
pub struct Volume {
    shared: Arc<Owner>,
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
    /// User and group of what is created.
    pub(crate) owner: (u32, u32),
    /// Blocks that are kept for root may be used.
    pub(crate) privileged: bool,
    /// The superblock says that there may be files past 2 GiB.
    pub(crate) large_files: AtomicBool,
    pub(crate) orphans: Orphans,
    /// Held while a directory gets another parent.
    pub(crate) renames: Mutex<()>,
    /// Inodes whose times were noted since the last commit.
    touched: Mutex<Vec<Arc<Inode>>>,
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
    /// Segments of maps in memory beyond the inodes' roots, and how many there may be.
    loaded_segments: AtomicU64,
    most_segments: u64,
    queues: Mutex<Registry>,
    /// None once the last handle of the volume is gone.
    sync_pool: Mutex<Option<Vec<SyncQueue>>>,
}

/// The inodes in memory, and entries of those that were: see [`VolumeShared::inode`].
#[derive(Debug, Default)]
struct InodeTable {
    known: HashMap<Ino, Weak<Inode>>,
    /// How often entries of inodes that are gone were thrown away.
    cleaned: u64,
}

impl InodeTable {
    fn find(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.known.get(&ino).and_then(Weak::upgrade)
    }

    /// Something that changes whenever this inode comes into memory.
    fn trace(&self, ino: Ino) -> (Option<Weak<Inode>>, u64) {
        (self.known.get(&ino).cloned(), self.cleaned)
    }

    /// Has it not been in memory since?
    fn is_still(&self, ino: Ino, trace: &(Option<Weak<Inode>>, u64)) -> bool {
        let same = match (self.known.get(&ino), &trace.0) {
            (None, None) => true,
            (Some(now), Some(then)) => now.ptr_eq(then),
            _ => false,
        };
        same && self.cleaned == trace.1
    }

    fn insert(&mut self, inode: &Arc<Inode>) {
        let known = &mut self.known;
        if known.len() >= 1024 && known.len().is_power_of_two() {
            known.retain(|_, i| i.strong_count() > 0);
            self.cleaned += 1;
        }
        known.insert(inode.ino, Arc::downgrade(inode));
    }
}

#[derive(Debug, Default)]
struct Registry {
    queues: Vec<Weak<QueueShared>>,
    /// What the queues that are gone have counted.
    retired: Counters,
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
        let level = device.level() + 1;
        let volume = Arc::new_cyclic(|weak| VolumeShared {
            weak: weak.clone(),
            journal: OnceLock::new(),
            alloc: options
                .write
                .then(|| Alloc::new(level, &sb, &groups, options.metadata_cache / 4)),
            clock: options.clock,
            written: AtomicU64::new(0),
            mounted_on: options.mounted_on.clone(),
            owner: options.owner,
            privileged: options.caller.is_privileged(&sb),
            large_files: AtomicBool::new(sb.features().ro_compat.has(RoCompat::LARGE_FILE)),
            orphans: Orphans::new(level),
            renames: Mutex::at_level(&RENAMES, level, ()),
            touched: Mutex::at_level(&TOUCHED, level, Vec::new()),
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
            loaded_segments: AtomicU64::new(0),
            most_segments: options.map_cache as u64 / 32,
            queues: Mutex::at_level(&QUEUES, level, Registry::default()),
            sync_pool: Mutex::at_level(&SYNC_POOL, level, Some(Vec::new())),
            device,
            blocking,
            sb,
            groups,
        });
        Volume {
            shared: Arc::new(Owner { volume }),
        }
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
        let inode = self.inner().inode(ino)?;
        if inode.is_unlinked() {
            let path = format!("inode {ino}");
            return Err(Error::NotFound { path });
        }
        if flags.write {
            self.inner().check_writable()?;
            self.inner().check_holds_data(&inode)?;
        }
        Ok(File::new(inode, flags))
    }

    /// Opens a file by its path, following symbolic links. Blocks while metadata is read.
    ///
    /// # Errors
    /// As [`Volume::open_ino`], and a path that leads nowhere.
    pub fn open_path(&self, path: &str, flags: OpenFlags) -> Result<File, Error> {
        let ino = self.resolve(path.as_bytes(), true)?;
        self.open_ino(ino, flags).map_err(|e| match e {
            Error::IsADirectory { .. } => Error::IsADirectory {
                path: path.to_owned(),
            },
            other => other,
        })
    }

    /// Makes durable all that was acknowledged, of all files and names. Blocks.
    ///
    /// # Errors
    /// The device's; the volume may not be changed any more.
    pub fn sync(&self) -> Result<(), Error> {
        let volume = self.inner();
        if !volume.writable {
            return Ok(());
        }
        volume.delete_doomed()?;
        volume.commit_running()?;
        volume.flush()
    }

    /// What all queues of the volume have counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let (queues, mut sum) = {
            let registry = self.inner().queues.lock();
            (registry.queues.clone(), registry.retired.clone())
        };
        queues
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|q| sum.add(&q.lock().counters));
        sum
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
    /// The flush failed.
    pub fn close(self) -> Result<(), Error> {
        let volume = self.inner();
        volume.shut_down();
        drop(volume.sync_pool.lock().take());
        while volume.open_queues().iter().any(|q| q.busy()) {
            volume.drain_all();
            std::thread::yield_now();
        }
        if !volume.writable {
            return Ok(());
        }
        volume.delete_doomed()?;
        volume.settle()?;
        volume.flush()
    }
}

impl VolumeShared {
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

    /// So many bytes were, or are about to be, written to the device.
    pub(crate) fn note_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// KiB written in the volume's life, as its superblock counts them.
    pub(crate) fn kbytes_written(&self) -> u64 {
        let now = self.written.load(Ordering::Relaxed) / 1024;
        self.sb.info().kbytes_written.saturating_add(now)
    }

    /// An inode's times were noted in memory: they go with the next commit.
    pub(crate) fn note_touched(&self, inode: &Arc<Inode>) {
        self.touched.lock().push(inode.clone());
        if let Some(journal) = self.journal.get() {
            journal.expect_commit(self);
        }
    }

    pub(crate) fn has_touched(&self) -> bool {
        !self.touched.lock().is_empty()
    }

    pub(crate) fn take_touched(&self) -> Vec<Arc<Inode>> {
        std::mem::take(&mut *self.touched.lock())
    }

    /// Opening has ended, and this was noted on the way.
    pub(crate) fn set_notes(&self, notes: Vec<String>) {
        self.notes.get_or_init(|| notes);
    }

    /// Gives the volume what a writer needs beside files' data.
    pub(crate) fn set_journal(&self, journal: Journal) {
        self.journal.get_or_init(|| journal);
    }

    pub(crate) fn journal(&self) -> Result<&Journal, Error> {
        self.check_writable()?;
        self.journal
            .get()
            .ok_or_else(|| Error::ReadOnly(format!("{} has no journal to write to", self.name)))
    }

    /// Begins a handle that may change `credits` blocks of metadata. Blocks; no lock may be held.
    pub(crate) fn begin(&self, credits: u32) -> Result<JournalHandle<'_>, Error> {
        self.journal()?.begin(self, credits)
    }

    /// Is this transaction durable?
    pub(crate) fn is_committed(&self, tid: Tid) -> bool {
        self.journal.get().is_none_or(|j| j.is_committed(tid))
    }

    /// Commits what is running. Blocks; no lock may be held.
    pub(crate) fn commit_running(&self) -> Result<(), Error> {
        self.journal()?.commit_running(self)
    }

    /// Blocks that one handle should change at most, so that it fits into any journal.
    pub(crate) fn most_credits(&self) -> u32 {
        self.journal.get().map_or(0, Journal::most_credits)
    }

    /// Every file gives back the blocks that it keeps ahead.
    pub(crate) fn close_windows(&self) {
        for inode in self.known_inodes() {
            inode.claims.close(&inode);
        }
    }

    fn known_inodes(&self) -> Vec<Arc<Inode>> {
        let inodes = self.inodes.lock();
        inodes.known.values().filter_map(Weak::upgrade).collect()
    }

    /// Makes all of a transaction durable, and what came before it. Blocks; no lock may be held.
    pub(crate) fn commit_up_to(&self, tid: Tid) -> Result<(), Error> {
        self.journal()?.commit_up_to(self, tid)
    }

    /// Commits what is running, where nobody can be told: a failure is latched, and written down.
    pub(crate) fn commit_best_effort(&self) {
        if let Some(volume) = self.weak.upgrade() {
            volume.delete_doomed_best_effort();
        }
        if let Some(journal) = self.journal.get() {
            let _latched = journal.commit_running(self);
            journal.write_failure_down(self);
        }
    }

    /// Brings home what is only in the log, where nobody can be told: a failure is latched, and written down.
    pub(crate) fn bring_home_best_effort(&self) {
        if let Some(journal) = self.journal.get() {
            let _latched = journal.checkpoint(self);
            journal.write_failure_down(self);
        }
    }

    /// As [`VolumeShared::settle`], where nobody can be told: a failure is latched, and the next open recovers.
    pub(crate) fn settle_best_effort(&self) {
        let _latched = self.settle();
    }

    /// As [`VolumeShared::delete_doomed`], where nobody can be told: what fails stays on the list of orphans.
    pub(crate) fn delete_doomed_best_effort(self: &Arc<Self>) {
        let _stays = self.delete_doomed();
    }

    /// Commits everything and brings it home: the volume needs no recovery then. Blocks; no lock may be held.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        self.journal.get().map_or(Ok(()), |journal| {
            let settled = journal.settle(self);
            journal.write_failure_down(self);
            settled
        })
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

    /// Only files' data is written through a [`File`]: no directory, nothing of the volume's own.
    fn check_holds_data(&self, inode: &Inode) -> Result<(), Error> {
        let ino = inode.ino;
        let refused = |flag| Err(Error::NotPermitted { ino, flag });
        if self.is_system_inode(ino) {
            return refused("one of the volume's own");
        }
        if inode.disk().is_dir() {
            return Err(Error::IsADirectory {
                path: format!("inode {ino}"),
            });
        }
        if !inode.disk().is_file() {
            return refused("no regular file");
        }
        Ok(())
    }

    /// Inodes that hold the volume's own structures.
    pub(crate) fn is_system_inode(&self, ino: Ino) -> bool {
        ino == self.journal_ino() || ino != Ino::ROOT && ino.get() < self.sb.geometry().first_ino()
    }

    fn journal_ino(&self) -> Ino {
        match self.sb.journal() {
            JournalPlace::Internal(ino) => ino,
            JournalPlace::None | JournalPlace::External { .. } => Ino::new(0),
        }
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

    /// The in-core inode. Blocks while metadata is read. It is read again if it was in memory meanwhile. Without this:
    ///
    /// 1. A reads an inode from the table and loses the CPU.
    /// 2. B reads it too, changes it, and lets it go.
    /// 3. A finds it not in memory, and goes on with what it was before the change.
    pub(crate) fn inode(self: &Arc<Self>, ino: Ino) -> Result<Arc<Inode>, Error> {
        loop {
            let trace = {
                let table = self.inodes.lock();
                if let Some(known) = table.find(ino) {
                    return Ok(known);
                }
                table.trace(ino)
            };
            let new = Arc::new(mount::read_inode(self, ino)?);
            self.note_uncommitted(&new);
            let mut table = self.inodes.lock();
            if let Some(first) = table.find(ino) {
                return Ok(first);
            }
            if table.is_still(ino, &trace) {
                table.insert(&new);
                return Ok(new);
            }
        }
    }

    /// The in-core inode, if somebody uses it.
    pub(crate) fn known_inode(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.inodes.lock().find(ino)
    }

    /// Makes an in-core inode the one of its number.
    pub(crate) fn know(&self, inode: &Arc<Inode>) {
        self.note_uncommitted(inode);
        self.inodes.lock().insert(inode);
    }

    /// Whoever made an inode that comes into memory, or had it there before, may have changed it since the last commit: that must be durable
    /// after an fsync too.
    fn note_uncommitted(&self, inode: &Inode) {
        if let Some(tid) = self.journal.get().and_then(Journal::newest_uncommitted) {
            inode.note_changed_before(tid);
        }
    }

    /// Counts segments of maps in memory.
    pub(crate) fn add_segments(&self, more: usize) {
        self.loaded_segments
            .fetch_add(more as u64, Ordering::Relaxed);
    }

    /// Counts them out again.
    pub(crate) fn sub_segments(&self, fewer: usize) {
        self.loaded_segments
            .fetch_sub(fewer as u64, Ordering::Relaxed);
    }

    /// Lets maps fall back to their roots while there are more segments in memory than the budget allows; `busy`'s last.
    pub(crate) fn shrink_maps(&self, busy: &Inode) {
        let over = || self.loaded_segments.load(Ordering::Relaxed) > self.most_segments;
        if !over() {
            return;
        }
        let known = self.known_inodes();
        let others = known.iter().filter(|i| i.ino != busy.ino).map(|i| &**i);
        for inode in others.chain([busy]) {
            if !over() {
                return;
            }
            inode.drop_loaded_map();
        }
    }

    pub(crate) fn register(&self, queue: &Arc<QueueShared>) {
        self.queues.lock().queues.push(Arc::downgrade(queue));
    }

    /// Forgets a queue that is being dropped.
    pub(crate) fn retire(&self, queue: &Arc<QueueShared>, counters: &Counters) {
        let mut registry = self.queues.lock();
        registry.retired.add(counters);
        registry.queues.retain(|q| q.as_ptr() != Arc::as_ptr(queue));
    }

    fn open_queues(&self) -> Vec<Arc<QueueShared>> {
        self.queues
            .lock()
            .queues
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Drains every queue of the volume, on behalf of its owner; says whether that made progress.
    pub(crate) fn drain_all(&self) -> bool {
        drain_each(self.open_queues().iter())
    }

    /// The same for every queue but one.
    pub(crate) fn drain_others(&self, mine: &QueueShared) -> bool {
        let queues = self.open_queues();
        drain_each(
            queues
                .iter()
                .filter(|q| !std::ptr::eq(Arc::as_ptr(q), mine)),
        )
    }

    /// A queue for one blocking call.
    pub(crate) fn sync_queue(self: &Arc<Self>) -> Result<SyncQueue, Error> {
        self.check_open()?;
        let kept = self.sync_pool.lock().as_mut().and_then(Vec::pop);
        kept.map_or_else(|| SyncQueue::open(self), Ok)
    }

    /// Idle queues of blocking calls let go of files without a name.
    pub(crate) fn let_go_of_unlinked(&self) {
        if let Some(pool) = self.sync_pool.lock().as_mut() {
            pool.iter_mut().for_each(SyncQueue::let_go_of_unlinked);
        }
    }

    /// Keeps the queue for the next call.
    pub(crate) fn keep_sync_queue(&self, mut queue: SyncQueue) {
        queue.let_go_of_unlinked();
        let mut pool = self.sync_pool.lock();
        let refused = match pool.as_mut() {
            Some(pool) if pool.len() < SYNC_QUEUES_KEPT => {
                pool.push(queue);
                None
            }
            _ => Some(queue),
        };
        drop(pool);
        drop(refused);
    }
}

fn drain_each<'a>(queues: impl Iterator<Item = &'a Arc<QueueShared>>) -> bool {
    queues.fold(false, |progress, q| q.drain_foreign() | progress)
}
