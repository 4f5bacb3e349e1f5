//! The volume: everything that the open files and queues of one file system share.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `inodes` | an inode's number -> the inode in memory |
//! | `queues` | queues that come and go -> drains on behalf of others, counters |
//! | `known` | numbers that a frontend has been told -> inodes that stay what they are |
//! | `space` | a moment -> how large, how full |
//! | `group` | many changes -> all of them, or none |
//! | `dirty_times` | times that were only noted -> times in the running transaction |
//! | `usage` | a moment -> what is held then |
//! | `durable` | changes of metadata -> handles, commits, the way home |
//!
//! Input: a device and what `mount` read from it. Output: files, queues, counters. Invariants: a volume outlives its files
//! and queues; one in-core inode per number. Limits: the public [`Volume`] may be dropped while files are open: they keep what they
//! need.

mod attributes;
mod group;
mod known;
mod names;
mod space;
mod trim;
mod usage;

use crate::caller::{Caller, Maker};
use crate::delete;
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::Journal;
use crate::options::{OpenFlags, OpenOptions};
use crate::policy::Policy;
use crate::queue::{File, Pool, Queue};
use crate::slots::{BlockingWork, Service};
use crate::stats::{Counters, JournalStats};
use diorite_block::Device;
use diorite_block::sync::thread;
use diorite_format::{GroupDesc, Ino, Superblock};
pub use group::Group;
use known::Known;
pub use space::Space;
use std::sync::Arc;

/// An open volume. Send and Sync; cheap to clone. Dropping the last one keeps files and queues working; use
/// [`Volume::close`] to end everything. It must not be used in the child after a fork.
#[derive(Clone, Debug)]
pub struct Volume {
    shared: Arc<Owner>,
    /// Who makes what is made through this handle.
    maker: Maker,
}

/// Ends the pool of blocking queues, which hold the volume, when the last handle goes.
#[derive(Debug)]
struct Owner {
    pool: Arc<Pool>,
    known: Known,
    /// What was noted while it was opened.
    notes: Vec<String>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let fs = &self.pool.service().fs;
        self.pool.end_blocking_calls();
        self.known.clear();
        fs.recent.close();
        delete::delete_doomed_best_effort(fs);
        fs.settle_best_effort();
    }
}

impl Volume {
    /// The volume of a file system that was opened so.
    pub(crate) fn serve(fs: Arc<Fs>, options: &OpenOptions, notes: Vec<String>) -> Volume {
        fs.recent.open();
        let known = Known::new(fs.level);
        let pool = Pool::new(Service::new(fs, options));
        Volume {
            shared: Arc::new(Owner { pool, known, notes }),
            maker: Maker::of_owner(options.owner),
        }
    }

    /// The same volume for another user: what is created through this handle is theirs. For frontends that serve many.
    #[must_use]
    pub fn with_owner(&self, uid: u32, gid: u32) -> Volume {
        Volume {
            maker: Maker::of_owner((uid, gid)),
            ..self.clone()
        }
    }

    /// The same volume for a process of this user: what is made or given permissions through this handle is as such a process makes it. It
    /// belongs to the user and to the first of the groups, or that of a directory that gives its own; `umask` is taken from its permissions where
    /// the directory has no default list; set-group-id is not given with a group that the user is not in. Who may do what is not asked: that is
    /// the frontend's. What writes take away is the volume's ([`OpenOptions::caller`]). For frontends that serve many: it costs a clone.
    #[must_use]
    pub fn for_caller(&self, caller: &Caller, umask: u16) -> Volume {
        Volume {
            maker: Maker::of_caller(caller, umask),
            ..self.clone()
        }
    }

    /// Who makes what is made through this handle.
    pub(crate) fn maker(&self) -> &Maker {
        &self.maker
    }

    pub(crate) fn inner(&self) -> &Arc<Fs> {
        &self.service().fs
    }

    fn known(&self) -> &Known {
        &self.shared.known
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.shared.pool
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        self.shared.pool.service()
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
        &self.shared.notes
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.service().policy()
    }

    /// Changes the policy for requests from now on.
    pub fn set_policy(&self, policy: Policy) {
        self.service().set_policy(policy);
    }

    /// Opens a queue of `depth` slots, 1 to [`crate::queue::MAX_DEPTH`].
    ///
    /// # Errors
    /// The host has no memory or descriptors left, or the volume is closed.
    pub fn queue(&self, depth: u32) -> Result<Queue, Error> {
        Queue::open(self.service(), depth, BlockingWork::Workers)
    }

    /// Opens a file by its inode's number. Blocks while metadata is read.
    ///
    /// # Errors
    /// No such inode, a damaged one, or one that may not be opened this way.
    pub fn open_ino(&self, ino: Ino, flags: OpenFlags) -> Result<File, Error> {
        self.inner().bound_noted_times_best_effort();
        let inode = self.inner().inode(ino)?;
        if inode.is_unlinked() && !self.known().has(ino) {
            return Err(Error::NotInUse { ino });
        }
        if flags.write {
            self.inner().check_writable()?;
            self.inner().check_holds_data(&inode)?;
        }
        Ok(File::new(self.pool(), inode, flags))
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
        let fs = self.inner();
        delete::sync(fs, fs.told.since())
    }

    /// What all queues of the volume have counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.service().counted()
    }

    /// What the journal has done so far. Blocks while a commit is under way.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        let journal = self.inner().journal_if_any();
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
        let (service, fs) = (self.service(), self.inner());
        // Asked before it waits: who syncs meanwhile may be told of a failed flush, and this is told of it as well.
        let told = (&fs.told, fs.told.since());
        fs.shut_down();
        self.pool().end_blocking_calls();
        self.known().clear();
        while service.open_queues().iter().any(|q| q.busy()) {
            fs.drain_all();
            thread::yield_now();
        }
        if !fs.is_writable() {
            return Ok(());
        }
        let data = fs.data_epoch();
        delete::commit_deleted(fs)?;
        fs.settle()?;
        fs.end_sync(told, fs.flush_since(data))
    }
}
