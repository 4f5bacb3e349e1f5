//! The volume: the public face of an open file system.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `names` | paths, or names in directories -> inodes, files, directory entries |
//! | `attributes` | inode numbers -> permissions, owners, times, flags, extended attributes |
//! | `known` | numbers that a frontend has been told -> inodes that are not deleted until they are forgotten |
//! | `space` | a moment -> size and free space, as statvfs(3) |
//! | `usage` | a moment -> what the volume holds in memory and in flight |
//! | `resize` | a size -> the volume with it, while it is in use |
//! | `trim` | a range -> its free blocks discarded on the device |
//! | `repair` | a check that found nothing wrong -> a superblock that says so |
//! | `tune` | parameters -> the superblock and its copies with them |
//! | `zero` | free blocks -> zeros in them, or a count of those that hold anything else |
//! | `atomic` | many changes -> one transaction |
//!
//! Input: a file system that `mount` has opened. Output: files, queues, counters. Invariants: one in-core inode per number; open files and
//! queues keep what they need of the file system, so the last [`Volume`] may be dropped before them. Limits: the caller's permissions are
//! not checked.

mod atomic;
mod attributes;
mod known;
mod names;
mod parts;
mod repair;
mod resize;
mod space;
mod trim;
mod tune;
mod usage;
mod which;
mod zero;

use crate::caller::{Caller, Maker};
use crate::delete;
use crate::error::Error;
use crate::inode::{Fs, Inode};
use crate::journal::Journal;
use crate::mount;
use crate::options::{OpenFlags, OpenOptions};
use crate::pages::PageCache;
use crate::policy::Policy;
use crate::queue::{File, Pool, Queue};
use crate::slots::{BlockingWork, Service};
use crate::stats::{Counters, JournalStats};
pub use atomic::Atomic;
use diorite_block::Device;
use diorite_block::sync::thread;
use diorite_format::journal::JournalSuper;
use diorite_format::{GroupDesc, Ino, Superblock};
pub use space::Space;
use std::sync::Arc;
use std::time::Duration;
pub use which::Which;
pub use zero::FreeBlocks;

/// An open volume. Send and Sync; cheap to clone. If the last handle is dropped, open files and queues keep working; [`Volume::close`]
/// ends them too. It must not be used in the child after a fork.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
/// use diorite::{OpenOptions, RenameFlags, Volume};
///
/// # fn main() -> Result<(), diorite::Error> {
/// let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
/// volume.mkdir("/etc", 0o755)?;
/// volume.create("/etc/hostname", 0o644)?.write_bytes(0, b"example\n")?;
/// volume.rename("/etc/hostname", "/hostname", RenameFlags::default())?;
/// assert_eq!(volume.read("/hostname")?, b"example\n");
/// assert!(volume.space().available > 0);
/// volume.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Volume {
    shared: Arc<Owner>,
    /// User, group and umask of what is created through this handle.
    maker: Maker,
}

/// What all handles share. When the last handle goes, this ends the pool of queues for blocking calls, which hold the file system.
#[derive(Debug)]
struct Owner {
    pool: Arc<Pool>,
    /// Notes for a person from opening the volume; see [`Volume::notes`].
    notes: Vec<String>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let fs = &self.pool.service().fs;
        if cfg!(debug_assertions) && fs.cached.any_dirty() {
            eprintln!(
                "diorite: error: {} was dropped while {} bytes written to its files were only in the page cache; they are written back \
                 now, but nobody learns if that fails: call Volume::close",
                fs.device.name(),
                fs.page_cache.dirty_bytes()
            );
        }
        // The flusher does not begin again: it would hold the volume, and its device, when this has ended.
        self.pool.rest();
        self.pool.write_back_best_effort();
        self.pool.end_blocking_calls();
        fs.known.clear();
        fs.recent.close();
        delete::delete_doomed_best_effort(fs);
        fs.make_clean_best_effort();
        // A file that lives on may have been written to meanwhile, while the flusher rested.
        self.pool.look_for_dirty();
    }
}

impl Volume {
    /// Starts serving a mounted file system. `notes` are what opening it has noted.
    pub(crate) fn serve(fs: Arc<Fs>, options: &OpenOptions, notes: Vec<String>) -> Volume {
        fs.recent.open();
        let pool = Pool::new(Service::new(fs, options), options.write_back_age);
        Volume {
            shared: Arc::new(Owner { pool, notes }),
            maker: Maker::of_owner(options.owner),
        }
    }

    /// A handle on the same volume that creates inodes for another user and group. For frontends that serve several users.
    #[must_use]
    pub fn with_owner(&self, uid: u32, gid: u32) -> Volume {
        Volume {
            maker: Maker::of_owner((uid, gid)),
            ..self.clone()
        }
    }

    /// A handle on the same volume for a process of this user. What it creates belongs to the user and to the first of the groups, or to
    /// the group of a directory with set-group-id; `umask` clears permissions unless the directory has a default ACL; set-group-id is not
    /// given together with a group that the user is not in. Access is not checked: frontends do that. Which rights of a file a write clears
    /// (set-user-id and others) depends on [`OpenOptions::caller`], not on this user; see [`Volume::leave_rights_to_frontend`]. For
    /// frontends that serve several users; the call costs as much as a clone.
    #[must_use]
    pub fn for_caller(&self, caller: &Caller, umask: u16) -> Volume {
        Volume {
            maker: Maker::of_caller(caller, umask),
            ..self.clone()
        }
    }

    /// From now on no write to the volume clears set-user-id and set-group-id by itself: a frontend knows who writes, and calls
    /// [`crate::File::clear_rights`] before. A capability is still cleared by every write.
    pub fn leave_rights_to_frontend(&self) {
        self.inner().leave_rights_to_frontend();
    }

    /// User, group and umask of what is created through this handle.
    pub(crate) fn maker(&self) -> &Maker {
        &self.maker
    }

    pub(crate) fn inner(&self) -> &Arc<Fs> {
        &self.service().fs
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.shared.pool
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        self.shared.pool.service()
    }

    /// The superblock, checked, as it was when the volume was opened, or when it grew.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.inner().sb
    }

    /// The group descriptors, checked, as they were when the volume was opened, or when their group was added.
    #[must_use]
    pub fn groups(&self) -> &[GroupDesc] {
        &self.inner().groups
    }

    /// The device that the volume is on.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.inner().device
    }

    /// Messages for a person about how the volume was opened, one line each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.shared.notes
    }

    /// The policy that new requests follow.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.service().policy()
    }

    /// Changes the policy, for requests that are submitted from now on.
    pub fn set_policy(&self, policy: Policy) {
        self.service().set_policy(policy);
    }

    /// Opens a queue of `depth` slots, at least 1 and at most [`crate::queue::MAX_DEPTH`]; other values are clamped.
    ///
    /// # Errors
    /// The host has no memory or descriptors left, or the volume is closed.
    pub fn queue(&self, depth: u32) -> Result<Queue, Error> {
        Queue::open(self.service(), depth, BlockingWork::Workers)
    }

    /// As [`Volume::queue`], for callers to whom a request's latency is worth a processor: [`Queue::reap`] looks for completions for about
    /// as long as waits took of late, and sleeps only if there is none by then. `longest` bounds the look; where the device takes longer
    /// than that, it sleeps at once.
    ///
    /// If the host's block device has poll queues (NVMe with `nvme.poll_queues=N`), requests that owe nothing when they end and are one
    /// request of the device end by polling its driver (IORING_SETUP_IOPOLL), without an interrupt; all others end as in other queues.
    /// Between two polls a wait that has looked for `longest` sleeps for at most a millisecond. [`Queue::polled_waits`] says whether the
    /// device is polled, and why not. The device is not polled any more once [`Queue::eventfd`] was called.
    ///
    /// # Errors
    /// As of [`Volume::queue`].
    pub fn polled_queue(&self, depth: u32, longest: Duration) -> Result<Queue, Error> {
        Queue::open_polled(self.service(), depth, longest)
    }

    /// Opens a file by its inode's number. Blocks while metadata is read.
    ///
    /// # Errors
    /// `NotInUse`; the inode is damaged; with [`OpenFlags::write`]: the volume or such an inode may not be written.
    pub fn open_ino(&self, ino: Ino, flags: OpenFlags) -> Result<File, Error> {
        let inode = self.in_use(ino)?;
        if flags.write {
            self.inner().check_writable()?;
            self.inner().check_holds_data(&inode)?;
        }
        Ok(File::new(self.pool(), inode, flags))
    }

    /// An inode as it is now, including changes that are not committed yet, and its size, including what is not written back yet: as
    /// [`File::metadata`] and [`File::size`], without opening it. `of` is a number or a path. Blocks while metadata
    /// is read.
    ///
    /// # Errors
    /// `NotInUse`; the inode is damaged; for a path those of [`Volume::resolve`].
    pub fn metadata(&self, of: impl Which) -> Result<(Arc<diorite_format::Inode>, u64), Error> {
        let inode = self.in_use(of.ino(self)?)?;
        Ok((inode.seen(), inode.visible_size()))
    }

    /// All bytes of a file: `of` is a number or a path. Blocks.
    ///
    /// # Errors
    /// Those of [`Volume::open_ino`], for a path those of [`Volume::resolve`], and those of [`File::read_bytes`]; `NoMemory`.
    pub fn read(&self, of: impl Which) -> Result<Vec<u8>, Error> {
        let file = self.open_ino(of.ino(self)?, OpenFlags::default())?;
        let (mut bytes, mut done) = (Vec::new(), 0);
        loop {
            // It may grow meanwhile. One byte more, so that its end is seen.
            let want = file.size().saturating_sub(done as u64).saturating_add(1);
            let none = || Error::NoMemory { asked: want };
            let more = usize::try_from(want).map_err(|_| none())?;
            bytes.try_reserve(more).map_err(|_| none())?;
            bytes.resize(done + more, 0);
            let count = file.read_bytes(done as u64, &mut bytes[done..])?;
            done += count;
            if count == 0 || done < bytes.len() {
                bytes.truncate(done);
                return Ok(bytes);
            }
        }
    }

    fn in_use(&self, ino: Ino) -> Result<Arc<Inode>, Error> {
        self.inner().bound_noted_times_best_effort();
        let inode = self.inner().inode(ino)?;
        match inode.is_unlinked() && !self.inner().known.has(ino) {
            true => Err(Error::NotInUse { ino }),
            false => Ok(inode),
        }
    }

    /// Opens a file by its path, following symbolic links. A directory can be opened too, without [`OpenFlags::write`], for its metadata
    /// and for [`File::sync`]. Paths are bytes everywhere in this crate (text, `b"..."`, a `Vec<u8>`), so that every name can be opened.
    /// Blocks while metadata is read.
    ///
    /// # Errors
    /// As [`Volume::open_ino`] and [`Volume::resolve`].
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

    /// Makes durable everything that was acknowledged before this call, of all files and names (syncfs). Blocks. As a request of a queue
    /// it is [`crate::Request::sync_volume`].
    ///
    /// # Errors
    /// Errors of the device. If any flush of the device has failed since the last such call, no matter who requested it, this call fails
    /// too, once, because data that was written before may be lost. If write-back of a file has failed, it fails, once, unless that was
    /// reported through each open file that may have written what was lost: so whoever relies on this call alone hears of every loss that
    /// its writers were not told of. All handles of one opened volume are told together. Also an error if the volume cannot be changed any
    /// more.
    pub fn sync(&self) -> Result<(), Error> {
        let fs = self.inner();
        delete::sync(fs, fs.told.since())
    }

    /// As [`File::write_back`] of each of the files, with their writes under way together. A failure is reported by the next
    /// [`File::write_back`] or sync of its file. Blocks.
    pub fn write_back(&self, files: &[&File]) {
        let inodes = files.iter().map(|file| file.inode().clone());
        let (mine, others): (Vec<_>, Vec<_>) =
            inodes.partition(|inode| Arc::ptr_eq(&inode.volume, self.inner()));
        // Noted in the inodes, and told through the files.
        let _noted = self.inner().write_back(&mine, 0..u64::MAX);
        for inode in others {
            let _noted = inode.write_back();
        }
    }

    /// The sum of the counters of all queues of the volume, closed ones included.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.service().counted()
    }

    /// The budget of the volume's cached pages, with its statistics.
    #[must_use]
    pub fn page_cache(&self) -> &PageCache {
        &self.inner().page_cache
    }

    /// Statistics of the journal since the volume was opened. Blocks while a commit is under way.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        let journal = self.inner().journal_if_any();
        journal.map_or_else(JournalStats::default, Journal::stats)
    }

    /// The superblock of the journal inside the volume, as the device has it now; None if there is no such journal. Blocks for its reads,
    /// and opens no queue.
    ///
    /// # Errors
    /// [`Error::Device`] of the reads; [`Error::Damaged`] and [`Error::Format`] for a journal that cannot be one.
    pub fn journal_superblock(&self) -> Result<Option<JournalSuper>, Error> {
        mount::journal_superblock(self.inner())
    }

    /// How many blocks of metadata were read from the device since the volume was opened.
    #[must_use]
    pub fn metadata_loads(&self) -> u64 {
        self.inner().cache.loads()
    }

    /// Reads change no access time from now on; with false they do again. Access times from before are written by the next sync, so with
    /// [`Volume::make_clean`] behind it a volume that nobody changes stays as it is.
    pub fn rest_access_times(&self, rest: bool) {
        self.inner().rest_reads(rest);
    }

    /// Makes everything durable, as [`Volume::sync`], writes it home and marks the volume as clean: until the next change it needs no
    /// recovery. If something changes meanwhile it stays marked as in use. Blocks.
    ///
    /// # Errors
    /// Those of [`Volume::sync`].
    pub fn make_clean(&self) -> Result<(), Error> {
        self.sync()?;
        self.inner().make_clean()?;
        self.sync()
    }

    /// Closes the volume: refuses new requests (`ShutDown`), waits for those in flight, commits what was changed, and flushes the device.
    /// Completions that were not reaped can still be reaped. A file without a name that is still open is deleted when the volume is opened
    /// for writing next. Blocks.
    ///
    /// # Errors
    /// Those of [`Volume::sync`].
    pub fn close(self) -> Result<(), Error> {
        let (service, fs) = (self.service(), self.inner());
        // Taken before it waits: if a sync by others is told of a failed flush meanwhile, close is told of it as well.
        let told = (&fs.told, fs.told.since());
        // Nothing becomes dirty any more; what is dirty goes while requests are still taken.
        fs.cached.close();
        let pages = fs.write_back_all();
        fs.shut_down();
        self.pool().rest();
        self.pool().end_blocking_calls();
        fs.known.clear();
        while service.open_queues().iter().any(|q| q.busy()) {
            fs.drain_all();
            thread::yield_now();
        }
        if !fs.is_writable() {
            return Ok(());
        }
        let data = fs.data_epoch();
        // Removed directories that are kept in memory lose their last user here.
        fs.recent.close();
        // Deletions need room in the log.
        fs.make_clean()?;
        // The keeper may have held inodes until now.
        fs.end_keeper();
        delete::delete_doomed_best_effort(fs);
        fs.make_clean()?;
        fs.cached.clear();
        fs.end_own_changes();
        fs.end_sync(told, fs.flush_since(data)).and(pages)?;
        Ok(fs.device.rest()?)
    }
}
