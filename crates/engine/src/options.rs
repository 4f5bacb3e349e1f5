//! Options with which volumes and files are opened.
//!
//! Input: what a caller asks for. Output: [`OpenOptions`], [`OpenFlags`] and the types of their fields. Invariant: with the defaults an
//! image is not changed. Limits: plain values.

use crate::caller::Caller;
use crate::pages::PageCache;
use crate::policy::Policy;
use crate::undo::Undo;
use diorite_block::{Device, IoEngine};
use diorite_format::group::{GroupCounts, GroupRun};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A function that returns the time since 1970. It is an option so that a simulation can supply its own time.
pub type Clock = fn() -> Duration;

/// The host's coarse clock, as the host's own file systems use it: it advances with the timer tick. So many writes in a row leave the
/// same time, and the second fsync of a file within a tick finds nothing to commit.
fn system_clock() -> Duration {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    // No file can have been written before 1970.
    Duration::try_from(now).unwrap_or_default()
}

/// When reading a file's data, a directory's names or a link's target updates the access time. Merely passing through a directory on a
/// path is not reading it. No read waits for the update: it goes with the next commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never: reading an image leaves it unchanged.
    #[default]
    Never,
    /// When it is not later than the last change, or is a day old (relatime).
    Relative,
    /// Always (strictatime).
    Always,
}

/// A device that holds nothing but the journal of a volume.
#[derive(Clone)]
pub struct JournalDevice(pub Arc<dyn Device>);

impl fmt::Debug for JournalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JournalDevice")
            .field(&self.0.name())
            .finish()
    }
}

/// What is written to a volume before it is used, as decided by a check of the whole volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Groups whose descriptors get other counts.
    pub groups: Vec<GroupCounts>,
    /// Clusters that a bitmap has as used, and nobody uses: they become free. Their groups are among `groups`.
    pub unused: Vec<GroupRun>,
    /// The superblock names an orphan file that the volume does not have, and gets no such name.
    pub orphan_file: bool,
}

/// How a volume is to be opened. The default reads only.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
/// use diorite::{OpenOptions, Volume};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), diorite::Error> {
/// let options = OpenOptions::writable()
///     .commit_interval(Duration::from_secs(1))
///     .owner((1000, 1000));
/// let volume = Volume::open_device(example_volume(), &options)?;
/// assert_eq!(volume.create("/mine", 0o600)?.metadata().uid, 1000);
/// volume.close()
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// File data may be overwritten.
    pub write: bool,
    /// Only this I/O engine below.
    pub io_engine: Option<IoEngine>,
    /// Open for writing although somebody else has the image open. Risk: two writers destroy the volume.
    pub force: bool,
    /// The locator of the device with the journal, for a volume whose journal is not inside it.
    pub journal: Option<String>,
    /// The journal device itself, where the caller has it; `journal` is ignored then.
    pub journal_device: Option<JournalDevice>,
    /// Open for writing although errors are recorded, and write this first: for who has checked the whole volume.
    pub repair: Option<Repair>,
    /// Open for writing although the feature `read-only` forbids it: for who clears it.
    pub ignore_read_only: bool,
    /// What the log holds is taken into account. With false a volume that is opened for reading is seen as it is on the device, which may
    /// be inconsistent, also if its journal or descriptors are damaged; opening for writing is refused if the log holds anything
    /// (norecovery).
    pub recover: bool,
    /// Some(true): all file data goes through the journal (data=journal). Some(false): only data of files with the flag. None: as the
    /// superblock says.
    pub data_journal: Option<bool>,
    /// The path at which the volume will be seen, for "last mounted on" in its superblock. None: the field is not changed.
    pub mounted_on: Option<String>,
    /// The policy at the beginning; it can be changed later.
    pub policy: Policy,
    /// What the device has in its blocks goes there before they are overwritten, if it is the one that the undo file is for.
    pub undo: Option<Undo>,
    /// Worker threads per class, at least one.
    pub workers: u32,
    /// Bytes of memory for the cache of metadata blocks.
    pub metadata_cache: usize,
    /// Bytes of memory for extent maps.
    pub map_cache: usize,
    /// The budget of the page cache, which volumes may share. Default: that of the process.
    pub page_cache: PageCache,
    /// Age at which dirty pages are written back, unless somebody asks for it before.
    pub write_back_age: Duration,
    /// Age at which changes of metadata are committed, unless somebody asks for a commit before.
    pub commit_interval: Duration,
    /// When reading updates access times. Only in a volume that is open for writing, and never of inodes with the noatime flag.
    pub access_times: AccessTimes,
    /// Reading a directory's names updates access times, too (diratime).
    pub directory_access_times: bool,
    /// Times that reads and overwrites change are written with a sync, a change of their inode or at the end, not at every commit
    /// (lazytime). A crash may lose them.
    pub lazy_times: bool,
    /// User and group of new inodes; for other owners see [`crate::Volume::with_owner`].
    pub owner: (u32, u32),
    /// Decides who may use reserved blocks.
    pub caller: Caller,
    /// Some free space is kept for maps of blocks that files have already, as the kernel keeps it: so a write into preallocated space
    /// succeeds on a full volume. With false files get the last block, for who fills images.
    pub keep_for_maps: bool,
    /// The clock for times in inodes and superblocks.
    pub clock: Clock,
}

diorite_block::setters! {
    OpenOptions {
        write: bool,
        force: bool,
        ignore_read_only: bool,
        recover: bool,
        policy: Policy,
        workers: u32,
        metadata_cache: usize,
        map_cache: usize,
        page_cache: PageCache,
        write_back_age: Duration,
        commit_interval: Duration,
        access_times: AccessTimes,
        directory_access_times: bool,
        lazy_times: bool,
        owner: (u32, u32),
        caller: Caller,
        keep_for_maps: bool,
        clock: Clock,
    } option {
        io_engine: IoEngine,
        journal: String,
        journal_device: JournalDevice,
        repair: Repair,
        data_journal: bool,
        mounted_on: String,
        undo: Undo,
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            write: false,
            io_engine: None,
            force: false,
            journal: None,
            journal_device: None,
            repair: None,
            ignore_read_only: false,
            recover: true,
            data_journal: None,
            mounted_on: None,
            policy: Policy::DIORITE,
            undo: None,
            workers: 4,
            metadata_cache: 16 << 20,
            map_cache: 32 << 20,
            page_cache: PageCache::process(),
            write_back_age: Duration::from_secs(30),
            commit_interval: Duration::from_secs(5),
            access_times: AccessTimes::default(),
            directory_access_times: true,
            lazy_times: false,
            owner: (0, 0),
            caller: Caller::of_process(),
            keep_for_maps: true,
            clock: system_clock,
        }
    }
}

impl OpenOptions {
    /// Do the options name an external journal?
    pub(crate) fn names_journal(&self) -> bool {
        self.journal.is_some() || self.journal_device.is_some()
    }

    /// What a repair writes.
    pub(crate) fn repair_to_write(&self) -> Option<&Repair> {
        self.repair.as_ref().filter(|_| self.write)
    }

    /// The defaults, for writing.
    #[must_use]
    pub fn writable() -> OpenOptions {
        OpenOptions {
            write: true,
            ..OpenOptions::default()
        }
    }
}

/// How a file is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenFlags {
    /// Data may be written.
    pub write: bool,
    /// Every write is durable when it is acknowledged, with what is needed to read it back (O_DSYNC).
    pub dsync: bool,
    /// As `dsync`, and the inode's times are durable, too (O_SYNC).
    pub sync: bool,
    /// Reads and writes of slices do not use the page cache either (O_DIRECT). Requests with a [`crate::Buf`] never do.
    pub direct: bool,
}

impl OpenFlags {
    /// Data may be written.
    #[must_use]
    pub const fn writable() -> OpenFlags {
        OpenFlags {
            write: true,
            dsync: false,
            sync: false,
            direct: false,
        }
    }
}

diorite_block::setters!(const OpenFlags {
    write: bool,
    dsync: bool,
    sync: bool,
    direct: bool,
});
