//! The file system in memory: a store, the allocator, the orphan list, and one in-core inode for each number.
//!
//! Input: a store, and the options. Output: [`Fs`], which files, directories and jobs share. Invariants: every call that may commit goes
//! through this type, which implements the [`CommitHooks`] of its commits. Limits: when it is dropped, uncommitted changes are committed,
//! and errors of that cannot be reported.

use super::Queues;
use super::absent::Presence;
use super::cached::CachedInodes;
use super::dirty_times::DirtyTimes;
use super::known::Known;
use super::recent::Recent;
use super::table::InodeTable;
use crate::alloc::{Alloc, Reach};
use crate::caller::Caller;
use crate::disk::{Disk, Parts, Terms};
use crate::journal::{CommitHooks, Store};
use crate::locks::{INODES, RENAMES, RESIZING};
use crate::options::{AccessTimes, OpenOptions};
use crate::orphan::Orphans;
use crate::pages::PageCache;
use crate::space::EqualBlocks;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use diorite_format::features::RoCompat;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

/// An open file system; everything that its files and directories share.
pub(crate) struct Fs {
    store: Store,
    /// The allocator; only in a volume that is open for writing.
    pub(crate) alloc: Option<Alloc>,
    /// Whether reading changes atime.
    pub(crate) access_times: AccessTimes,
    pub(crate) directory_access_times: bool,
    /// Noted times wait for more than the next commit.
    pub(super) lazy_times: bool,
    /// Reads change no access time. Changes under the lock of `dirty_times`.
    pub(super) reads_rest: AtomicBool,
    /// How much of the free space may be used.
    pub(crate) reach: Reach,
    /// On whose behalf files are written, unless a frontend says that for each request.
    pub(super) caller: Caller,
    pub(super) frontend_clears_rights: AtomicBool,
    /// All file data goes through the journal (data=journal), by the open options or the superblock's default mount options.
    pub(crate) data_journalled: bool,
    /// The superblock has the feature large_file: there may be files of 2 GiB and more.
    pub(super) large_files: AtomicBool,
    pub(crate) orphans: Orphans,
    /// Held while a directory gets another parent: one at a time in a volume.
    pub(crate) renames: Mutex<()>,
    /// Held while the volume changes as a whole: see [`Fs::alone`].
    pub(super) resizing: Mutex<()>,
    pub(super) dirty_times: DirtyTimes,
    pub(super) inodes: Mutex<InodeTable>,
    pub(super) presence: Presence,
    /// In-core inodes that were dropped since their entries were removed from the table last.
    pub(super) inodes_gone: AtomicUsize,
    /// What a frontend refers to by number.
    pub(crate) known: Known,
    pub(crate) recent: Recent,
    /// Subdirectories that directories remember.
    pub(super) remembered: Arc<AtomicUsize>,
    /// Inodes with cached pages, and the budget of these.
    pub(crate) cached: CachedInodes,
    pub(crate) page_cache: PageCache,
    /// Blocks of extended attributes that several inodes may share.
    pub(crate) equal_blocks: EqualBlocks,
    /// Segments of maps in memory, without the roots', and how many of them the budget allows.
    pub(super) loaded_segments: AtomicU64,
    pub(super) most_segments: u64,
    pub(super) queues: OnceLock<Weak<dyn Queues>>,
    weak: Weak<Fs>,
}

impl Deref for Fs {
    type Target = Store;

    #[inline]
    fn deref(&self) -> &Store {
        &self.store
    }
}

impl std::fmt::Debug for Fs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fs")
            .field("name", &self.name())
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        // If opening the volume has failed, nobody else commits what recovery has changed.
        self.make_clean_best_effort();
    }
}

impl Fs {
    pub(crate) fn new(parts: Parts, options: &OpenOptions, data_journalled: bool) -> Arc<Fs> {
        let terms = Terms {
            clock: options.clock,
            writable: options.write,
            mounted_on: options.mounted_on.clone(),
            cache_bytes: options.metadata_cache,
        };
        let disk = Disk::new(parts, terms);
        let level = disk.level;
        options.page_cache.serve(disk.block_size());
        Arc::new_cyclic(|weak| Fs {
            alloc: options.write.then(|| {
                let budget = options.metadata_cache / 4;
                let keeps = options.keep_for_maps;
                Alloc::new(level, (&disk.sb, &disk.groups), budget, keeps)
            }),
            directory_access_times: options.directory_access_times,
            lazy_times: options.lazy_times,
            reads_rest: AtomicBool::new(false),
            access_times: match options.write {
                true => options.access_times,
                false => AccessTimes::Never,
            },
            reach: match options.caller.is_privileged(&disk.sb) {
                true => Reach::Privileged,
                false => Reach::Common,
            },
            caller: options.caller.clone(),
            frontend_clears_rights: AtomicBool::new(false),
            data_journalled,
            large_files: AtomicBool::new(disk.sb.features().ro_compat.has(RoCompat::LARGE_FILE)),
            orphans: Orphans::new(level),
            renames: Mutex::at_level(&RENAMES, level, ()),
            resizing: Mutex::at_level(&RESIZING, level, ()),
            dirty_times: DirtyTimes::new(level),
            inodes: Mutex::at_level(&INODES, level, InodeTable::default()),
            presence: Presence::new(),
            inodes_gone: AtomicUsize::new(0),
            known: Known::new(level),
            recent: Recent::new(level),
            remembered: Arc::default(),
            cached: CachedInodes::new(level),
            page_cache: options.page_cache.clone(),
            equal_blocks: EqualBlocks::new(level),
            loaded_segments: AtomicU64::new(0),
            most_segments: options.map_cache as u64 / 32,
            queues: OnceLock::new(),
            weak: weak.clone(),
            store: Store::new(disk),
        })
    }

    /// A strong reference, if anybody still has one.
    pub(crate) fn upgraded(&self) -> Option<Arc<Fs>> {
        self.weak.upgrade()
    }

    /// What its commits need from it, for the journal's keeper.
    pub(crate) fn hooks(&self) -> Weak<dyn CommitHooks> {
        self.weak.clone()
    }
}
